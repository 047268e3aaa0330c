/* Renewals: one request renews up to RENEWS_MAX claims. */
#include <stdlib.h>
#include <string.h>

#include "engines/redis/redis.h"

#define RENEWS_MAX 256

enum { GONE, RENEWED }; /* what the script returns for each; anything else: unknown */

/* A renewal under way. Claims that end meanwhile are set to NULL. */
struct batch {
    struct batch *next, **at; /* at: what points to it */
    struct redis *redis;
    uint64_t sent_ns;
    size_t n;
    struct redis_claim *claims[];
};

void redis_claim_leave_batch(struct redis_claim *claim)
{
    struct batch *batch = claim->batch;
    for (size_t i = 0; batch && i < batch->n; i++) {
        if (batch->claims[i] == claim)
            batch->claims[i] = NULL;
    }
    claim->batch = NULL;
}

static void answer_one(struct batch *batch, struct redis_claim *claim, const redisReply *reply,
                       size_t i)
{
    const struct engine_events *events = batch->redis->engine.events;
    struct claim *base = base_of(claim);
    struct stile_error err;
    claim->batch = NULL;
    if (!is_array(reply, batch->n)) {
        events->unknown(base);
    } else if (number_at(reply, i) == RENEWED) {
        events->renewed(base, batch->sent_ns, base->ttl_ns);
    } else if (number_at(reply, i) != GONE) {
        events->unknown(base);
    } else {
        error_set(&err, STILE_LOST, 0, "the server no longer has it");
        events->lost(base, &err);
    }
}

static void on_renewed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct batch *batch = data;
    *batch->at = batch->next;
    if (batch->next)
        batch->next->at = batch->at;
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->claims[i])
            answer_one(batch, batch->claims[i], err ? NULL : reply, i);
    }
    free(batch);
}

void redis_batches_free(struct redis *redis)
{
    while (redis->batches) {
        struct batch *batch = redis->batches;
        redis->batches = batch->next;
        free(batch);
    }
}

/* The memory that a batch is written in, until it is sent. */
struct draft {
    struct numbers *numbers;
    struct conn_arg *args;
    char *room;
};

static bool draft_new(struct draft *draft, const struct redis *redis, struct claim *const *claims,
                      size_t n)
{
    size_t room = 0;
    for (size_t i = 0; i < n; i++)
        room += redis_keys_room(redis, claims[i]->name_len);
    draft->numbers = malloc(n * sizeof *draft->numbers);
    draft->args = malloc((SCRIPT_KEYS + 3) * n * sizeof *draft->args);
    draft->room = malloc(room);
    return draft->numbers && draft->args && draft->room;
}

static void draft_free(struct draft *draft)
{
    free(draft->numbers);
    free(draft->args);
    free(draft->room);
}

static enum stile_status send_batch(struct redis *redis, struct batch *batch, struct draft *draft)
{
    struct conn_arg *arg = draft->args;
    char *room = draft->room;
    for (size_t i = 0; i < batch->n; i++, arg += SCRIPT_KEYS) {
        struct claim *base = base_of(batch->claims[i]);
        room = redis_keys_write(arg, room, redis, base->name, base->name_len);
        redis_identity_publish(redis, base);
        redis_numbers_of(&draft->numbers[i], base, batch->sent_ns - batch->claims[i]->granted_ns);
    }
    for (size_t i = 0; i < batch->n; i++) {
        *arg++ = (struct conn_arg){batch->claims[i]->owner, OWNER_LEN};
        *arg++ = CONN_TEXT(draft->numbers[i].mode);
        *arg++ = CONN_TEXT(draft->numbers[i].px);
    }
    return redis_node_eval(redis_route_to_key(redis, &draft->args[0]), &redis_script_renew,
                           draft->args, SCRIPT_KEYS * batch->n, (size_t)(arg - draft->args),
                           on_renewed, batch, NULL);
}

static void renew_some(struct redis *redis, struct claim *const *claims, size_t n)
{
    struct batch *batch = malloc(sizeof *batch + n * sizeof *batch->claims);
    struct draft draft;
    bool sent = false;
    if (draft_new(&draft, redis, claims, n) && batch) {
        *batch = (struct batch){.redis = redis, .n = n, .sent_ns = loop_now(redis->engine.loop)};
        for (size_t i = 0; i < n; i++) {
            batch->claims[i] = redis_claim_of(claims[i]);
            batch->claims[i]->batch = batch;
        }
        sent = send_batch(redis, batch, &draft) == STILE_OK;
    }
    draft_free(&draft);
    if (sent) {
        batch->next = redis->batches;
        batch->at = &redis->batches;
        if (batch->next)
            batch->next->at = &batch->next;
        redis->batches = batch;
        return;
    }
    free(batch);
    for (size_t i = 0; i < n; i++) {
        redis_claim_of(claims[i])->batch = NULL;
        redis->engine.events->unknown(claims[i]);
    }
}

/* How many claims, from the first on, may share one request: in a Cluster all its keys must be in
 * one slot. */
static size_t run_of(const struct redis *redis, struct claim *const *claims, size_t n)
{
    size_t run = 1, most = n < RENEWS_MAX ? n : RENEWS_MAX;
    if (!redis->cluster)
        return most;
    uint16_t slot = redis_route_slot(redis, claims[0]->name, claims[0]->name_len);
    while (run < most && redis_route_slot(redis, claims[run]->name, claims[run]->name_len) == slot)
        run++;
    return run;
}

void redis_claims_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    for (size_t i = 0, run; i < n; i += run) {
        run = run_of(redis_of(engine), claims + i, n - i);
        renew_some(redis_of(engine), claims + i, run);
    }
}
