/* Renewing, many in one request to each node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/redlock.h"

#define RENEWS_MAX 256

enum { GONE, RENEWED }; /* the script's reply for each claim; anything else: unknown */

struct tally {
    unsigned char renewed, gone;
};

struct reader {
    struct batch *batch;
    struct node *node;
};

/* A renewal under way. Claims that end meanwhile, or are decided, are removed from it. */
struct batch {
    struct batch *next;
    struct redlock *redlock;
    uint64_t sent_ns;
    size_t n;
    unsigned pending; /* nodes */
    struct reader readers[NODES_MAX];
    struct tally tallies[RENEWS_MAX];
    struct redlock_claim *claims[RENEWS_MAX];
};

void redlock_renewal_leave(struct redlock_claim *claim)
{
    struct batch *batch = claim->batch;
    for (size_t i = 0; batch && i < batch->n; i++) {
        if (batch->claims[i] == claim)
            batch->claims[i] = NULL;
    }
    claim->batch = NULL;
}

/* Once a majority agrees, or no further answer can come. */
static void decide(struct batch *batch, size_t i)
{
    const struct engine_events *events = batch->redlock->engine.events;
    struct redlock_claim *claim = batch->claims[i];
    struct tally *tally = &batch->tallies[i];
    unsigned majority = batch->redlock->majority;
    struct stile_error err;
    bool over = tally->renewed >= majority || tally->gone >= majority || batch->pending == 0;
    if (!claim || !over)
        return;
    struct claim *base = redlock_base(claim);
    batch->claims[i] = NULL;
    claim->batch = NULL;
    if (tally->renewed >= majority) {
        events->renewed(base, batch->sent_ns, base->ttl_ns);
    } else if (tally->gone >= majority) {
        error_set(&err, STILE_LOST, 0, "%u of %u nodes no longer have the key", tally->gone,
                  batch->redlock->n);
        events->lost(base, &err);
    } else {
        events->unknown(base);
    }
}

static void batch_free(struct batch *batch)
{
    struct batch **at = &batch->redlock->batches;
    while (*at != batch)
        at = &(*at)->next;
    *at = batch->next;
    free(batch);
}

void redlock_renewals_free(struct redlock *redlock)
{
    while (redlock->batches)
        batch_free(redlock->batches);
}

static void on_renewed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct reader *reader = data;
    struct batch *batch = reader->batch;
    bool sound = !err && is_array(reply, batch->n);
    batch->pending--;
    if (err)
        redlock_node_failed(reader->node, err);
    else
        redlock_node_answered(reader->node);
    for (size_t i = 0; i < batch->n; i++) {
        long long says = sound ? number_at(reply, i) : -1;
        batch->tallies[i].renewed += says == RENEWED;
        batch->tallies[i].gone += says == GONE;
        decide(batch, i);
    }
    if (batch->pending == 0)
        batch_free(batch);
}

/* The arguments of a batch until it has been sent. */
struct draft {
    struct conn_arg *args;
    size_t n_keys, n;
    char (*px)[24];
    char *room;
};

static bool draft_new(struct draft *draft, const struct redlock *redlock,
                      struct claim *const *claims, size_t n)
{
    size_t room = 0;
    for (size_t i = 0; i < n; i++)
        room += strlen(redlock->prefix) + claims[i]->name_len;
    draft->px = malloc(n * sizeof *draft->px);
    draft->args = malloc((3 * n + 2) * sizeof *draft->args);
    draft->room = malloc(room);
    return draft->px && draft->args && draft->room;
}

static void draft_free(struct draft *draft)
{
    free(draft->px);
    free(draft->args);
    free(draft->room);
}

/* With fences, the node's key follows the other keys, and the group's id the other arguments. */
static void draft_write(struct draft *draft, struct batch *batch)
{
    static const char *const key[] = {""};
    struct redlock *redlock = batch->redlock;
    char *room = draft->room;
    draft->n_keys = batch->n + redlock->fenced;
    draft->n = draft->n_keys + 2 * batch->n + redlock->fenced;
    if (redlock->fenced) {
        draft->args[batch->n] = CONN_TEXT(NODE_KEY);
        draft->args[draft->n - 1] = CONN_TEXT(redlock->group_id);
    }
    for (size_t i = 0; i < batch->n; i++) {
        struct redlock_claim *claim = batch->claims[i];
        struct claim *base = redlock_base(claim);
        uint64_t px = redlock_claim_px(base, batch->sent_ns - claim->granted_ns);
        struct conn_arg *args = draft->args + draft->n_keys + 2 * i;
        room = redis_keys_of_name(draft->args + i, room, key, 1, redlock->prefix, base->name,
                                  base->name_len);
        snprintf(draft->px[i], sizeof draft->px[i], "%llu", (unsigned long long)px);
        args[0] = (struct conn_arg){claim->owner, OWNER_LEN};
        args[1] = CONN_TEXT(draft->px[i]);
    }
}

static void send_batch(struct batch *batch, const struct draft *draft)
{
    struct redlock *redlock = batch->redlock;
    for (unsigned i = 0; i < redlock->n; i++) {
        batch->readers[i] = (struct reader){batch, &redlock->nodes[i]};
        if (!redis_conn_eval(redlock->nodes[i].requests, &redlock_script_renew, draft->args,
                             draft->n_keys, draft->n, on_renewed, &batch->readers[i], NULL))
            batch->pending++;
    }
}

static void renew_some(struct redlock *redlock, struct claim *const *claims, size_t n)
{
    struct batch *batch = calloc(1, sizeof *batch);
    struct draft draft;
    if (draft_new(&draft, redlock, claims, n) && batch) {
        batch->redlock = redlock;
        batch->n = n;
        batch->sent_ns = loop_now(redlock->engine.loop);
        for (size_t i = 0; i < n; i++) {
            batch->claims[i] = redlock_claim_of(claims[i]);
            batch->claims[i]->batch = batch;
        }
        draft_write(&draft, batch);
        send_batch(batch, &draft);
    }
    draft_free(&draft);
    if (batch && batch->pending) {
        batch->next = redlock->batches;
        redlock->batches = batch;
        return;
    }
    free(batch);
    for (size_t i = 0; i < n; i++) {
        redlock_claim_of(claims[i])->batch = NULL;
        redlock->engine.events->unknown(claims[i]);
    }
}

void redlock_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    for (size_t i = 0; i < n; i += RENEWS_MAX)
        renew_some(redlock_of(engine), claims + i, n - i < RENEWS_MAX ? n - i : RENEWS_MAX);
}
