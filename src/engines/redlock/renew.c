/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Renewing, many in one request to each node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/redlock.h"

#define RENEWS_MAX 256
#define GONE_MAX   (LOSS_MAX + 40)

/* The nodes' answers for one claim. */
struct tally {
    unsigned char renewed, gone;
    char reason[REASON_MAX]; /* of the loss: the most exact one */
};

struct reader {
    struct batch *batch;
    struct node *node;
};

/* One renewal, sent to all nodes. */
struct batch {
    struct leased_renewal renewal;
    unsigned pending; /* nodes */
    struct reader readers[NODES_MAX];
    struct tally tallies[];
};

static void explain(char gone[GONE_MAX], struct redlock_claim *claim, const struct tally *tally)
{
    const struct claim *base = redlock_base(claim);
    const struct redlock *redlock = redlock_of_claim(claim);
    char why[LOSS_MAX];
    redis_loss_explain(why, tally->reason, loop_now(base->engine->loop) - claim->renewed_ns,
                       redlock_claim_px(base, 0) * NS_PER_MS);
    if (tally->reason[0] == 'b')
        strcpy(gone, why);
    else
        snprintf(gone, GONE_MAX, "on %u of %u nodes %s", tally->gone, redlock->n, why);
}

/* Once a majority agrees. */
static void decide(struct batch *batch, size_t i)
{
    const struct tally *tally = &batch->tallies[i];
    const struct redlock *redlock = redlock_of(batch->renewal.engine);
    struct redlock_claim *claim = (struct redlock_claim *)batch->renewal.claims[i];
    char gone[GONE_MAX];
    if (!claim)
        return; /* it was answered, or has left */
    if (tally->renewed >= redlock->majority) {
        claim->renewed_ns = batch->renewal.sent_ns;
        leased_renewal_answer(&batch->renewal, i, LEASED_RENEWED, NULL);
    } else if (tally->gone >= redlock->majority) {
        explain(gone, claim, tally);
        leased_renewal_answer(&batch->renewal, i, LEASED_GONE, gone);
    }
}

/* A node's answer: an enum leased_answer, or the reason of the loss. */
static void take_answer(struct tally *tally, const redisReply *reply, size_t i)
{
    const char *reason = text_at(reply, i);
    tally->renewed += number_at(reply, i) == LEASED_RENEWED;
    tally->gone += reason != NULL;
    if (reason && redis_loss_is_more_exact(reason, tally->reason))
        snprintf(tally->reason, sizeof tally->reason, "%s", reason);
}

static void on_renewed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct reader *reader = data;
    struct batch *batch = reader->batch;
    bool sound = !err && is_array(reply, batch->renewal.n);
    batch->pending--;
    if (err)
        redlock_node_failed(reader->node, err);
    else
        redlock_node_answered(reader->node);
    for (size_t i = 0; sound && i < batch->renewal.n; i++) {
        take_answer(&batch->tallies[i], reply, i);
        decide(batch, i);
    }
    if (batch->pending == 0)
        leased_renewal_end(&batch->renewal);
}

#define RENEW_KEYS 2 /* of each claim */

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
        room += KEYS_ROOM(RENEW_KEYS, strlen(redlock->prefix), claims[i]->name_len);
    draft->px = malloc(n * sizeof *draft->px);
    draft->args = malloc(((RENEW_KEYS + 2) * n + 2) * sizeof *draft->args);
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
    static const char *const keys[RENEW_KEYS] = {"", BROKEN_SUFFIX};
    struct redlock *redlock = redlock_of(batch->renewal.engine);
    char *room = draft->room;
    draft->n_keys = RENEW_KEYS * batch->renewal.n + redlock->fenced;
    draft->n = draft->n_keys + 2 * batch->renewal.n + redlock->fenced;
    if (redlock->fenced) {
        draft->args[RENEW_KEYS * batch->renewal.n] = CONN_TEXT(NODE_KEY);
        draft->args[draft->n - 1] = CONN_TEXT(redlock->group_id);
    }
    for (size_t i = 0; i < batch->renewal.n; i++) {
        struct redlock_claim *claim = (struct redlock_claim *)batch->renewal.claims[i];
        struct claim *base = redlock_base(claim);
        uint64_t px = redlock_claim_px(base, batch->renewal.sent_ns - claim->granted_ns);
        struct conn_arg *args = draft->args + draft->n_keys + 2 * i;
        room = redis_keys_of_name(draft->args + RENEW_KEYS * i, room, keys, RENEW_KEYS,
                                  redlock->prefix, base->name, base->name_len);
        snprintf(draft->px[i], sizeof draft->px[i], "%llu", (unsigned long long)px);
        args[0] = (struct conn_arg){claim->leased.owner, OWNER_LEN};
        args[1] = CONN_TEXT(draft->px[i]);
    }
}

static void send_batch(struct batch *batch, const struct draft *draft)
{
    struct redlock *redlock = redlock_of(batch->renewal.engine);
    for (unsigned i = 0; i < redlock->n; i++) {
        batch->readers[i] = (struct reader){batch, &redlock->nodes[i]};
        if (!redis_conn_eval(redlock->nodes[i].requests, &redlock_script_renew, draft->args,
                             draft->n_keys, draft->n, on_renewed, &batch->readers[i], NULL))
            batch->pending++;
    }
}

static void renew_some(struct redlock *redlock, struct claim *const *claims, size_t n)
{
    size_t size = sizeof(struct batch) + n * sizeof(struct tally);
    struct batch *batch = leased_renewal_new(&redlock->claims, size, claims, n);
    struct draft draft;
    if (!batch)
        return;
    if (draft_new(&draft, redlock, claims, n)) {
        draft_write(&draft, batch);
        send_batch(batch, &draft);
    }
    draft_free(&draft);
    if (batch->pending == 0)
        leased_renewal_end(&batch->renewal);
}

void redlock_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    for (size_t i = 0; i < n; i += RENEWS_MAX)
        renew_some(redlock_of(engine), claims + i, n - i < RENEWS_MAX ? n - i : RENEWS_MAX);
}
