/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Renewals: one request renews up to RENEWS_MAX claims. */
#include <stdlib.h>
#include <string.h>

#include "engines/redis/redis.h"

#define RENEWS_MAX 256

/* The reply for one claim: an enum leased_answer, or the reason of its loss. */
static void take_answer(struct leased_renewal *renewal, size_t i, const redisReply *reply)
{
    struct redis_claim *claim = (struct redis_claim *)renewal->claims[i];
    const char *reason = text_at(reply, i);
    char gone[LOSS_MAX];
    if (!claim)
        return; /* it has left */
    if (reason) {
        redis_claim_explain_loss(gone, claim, reason);
        leased_renewal_answer(renewal, i, LEASED_GONE, gone);
    } else if (number_at(reply, i) == LEASED_RENEWED) {
        claim->renewed_ns = renewal->sent_ns;
        leased_renewal_answer(renewal, i, LEASED_RENEWED, NULL);
    }
}

static void on_renewed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct leased_renewal *renewal = data;
    bool sound = !err && is_array(reply, renewal->n);
    for (size_t i = 0; sound && i < renewal->n; i++)
        take_answer(renewal, i, reply);
    leased_renewal_end(renewal);
}

/* The memory that a request is written in, until it is sent. */
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
    draft->args = malloc((LOSS_KEYS + 3) * n * sizeof *draft->args);
    draft->room = malloc(room);
    return draft->numbers && draft->args && draft->room;
}

static void draft_free(struct draft *draft)
{
    free(draft->numbers);
    free(draft->args);
    free(draft->room);
}

static enum stile_status send_renewal(struct redis *redis, struct leased_renewal *renewal,
                                      struct draft *draft)
{
    struct conn_arg *arg = draft->args;
    char *room = draft->room;
    for (size_t i = 0; i < renewal->n; i++, arg += LOSS_KEYS) {
        struct redis_claim *claim = (struct redis_claim *)renewal->claims[i];
        struct claim *base = base_of(claim);
        room = redis_keys_write(arg, room, redis, base->name, base->name_len);
        redis_identity_publish(redis, base);
        redis_numbers_of(&draft->numbers[i], base, renewal->sent_ns - claim->granted_ns);
    }
    for (size_t i = 0; i < renewal->n; i++) {
        *arg++ = (struct conn_arg){renewal->claims[i]->owner, OWNER_LEN};
        *arg++ = CONN_TEXT(draft->numbers[i].mode);
        *arg++ = CONN_TEXT(draft->numbers[i].px);
    }
    return redis_node_eval(redis_route_to_key(redis, &draft->args[0]), &redis_script_renew,
                           draft->args, LOSS_KEYS * renewal->n, (size_t)(arg - draft->args),
                           on_renewed, renewal, NULL);
}

static void renew_some(struct redis *redis, struct claim *const *claims, size_t n)
{
    struct leased_renewal *renewal = leased_renewal_new(&redis->claims, sizeof *renewal, claims, n);
    struct draft draft;
    if (!renewal)
        return;
    if (!draft_new(&draft, redis, claims, n) || send_renewal(redis, renewal, &draft))
        leased_renewal_end(renewal);
    draft_free(&draft);
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
