/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a claim, from the first request to the release:
 *
 *     IDLE ──► TAKING ──► REQUESTED ──► WAITING ──► CONFIRMING ──► REPLICATING ──► HELD
 *     HELD ──► RELEASING ──► IDLE
 *
 * claims.c leads up to the grant; release.c is the end. Here is what both need. */
#include <assert.h>

#include "engines/redis/redis.h"

/* ---- the list of claims ---- */

static void enlist(struct redis_claim *claim)
{
    struct redis *redis = redis_of_claim(claim);
    leased_add(&redis->claims, &claim->leased);
    claim->lease_kind = link_leases_add(&redis->leases, base_of(claim)->ttl_ns);
}

static void unlist(struct redis_claim *claim)
{
    struct redis *redis = redis_of_claim(claim);
    leased_remove(&redis->claims, &claim->leased);
    link_leases_remove(&redis->leases, claim->lease_kind);
}

void redis_claim_relist(struct redis_claim *claim)
{
    unlist(claim);
    enlist(claim);
}

/* ---- the states ---- */

#define TO(state) (1u << (state))
#define TO_GRANT  (TO(REPLICATING) | TO(HELD))
#define TO_END    (TO(WITHDRAWING) | TO(IDLE))
#define TO_CLAIM  (TO(TAKING) | TO(REQUESTED) | TO(UNANSWERED) | TO(RESUMING))

/* Where each state may lead. WITHDRAWING follows IDLE if the claim failed in doubt. A new claim may
 * follow a release in doubt: core stops repeating it when the lease must be over. */
static const unsigned transitions[] = {
    [IDLE] = TO_CLAIM | TO(WITHDRAWING),
    [TAKING] = TO(REQUESTED) | TO(UNANSWERED) | TO_GRANT | TO_END,
    [REQUESTED] =
        TO(REQUESTED) | TO(GRANTED_EARLY) | TO(WAITING) | TO(UNANSWERED) | TO_GRANT | TO_END,
    [GRANTED_EARLY] = TO(REQUESTED) | TO(WAITING) | TO(UNANSWERED) | TO_GRANT | TO_END,
    [WAITING] = TO(REQUESTED) | TO(LOOKING) | TO(UNANSWERED) | TO(CONFIRMING) | TO_END,
    [LOOKING] = TO(REQUESTED) | TO(WAITING) | TO(UNANSWERED) | TO(CONFIRMING) | TO_END,
    [UNANSWERED] = TO(REQUESTED) | TO(UNANSWERED) | TO(CONFIRMING) | TO(WITHDRAWING),
    [CONFIRMING] = TO(REQUESTED) | TO(UNANSWERED) | TO_GRANT | TO_END,
    [RESUMING] = TO(HELD) | TO(IDLE),
    [REPLICATING] = TO(HELD) | TO_END,
    [HELD] = TO(RELEASING) | TO(IDLE), /* IDLE: detached */
    [RELEASING] = TO(RELEASE_FAILED) | TO(RELEASE_IN_DOUBT) | TO(IDLE),
    [RELEASE_FAILED] = TO(RELEASING) | TO_CLAIM,
    [RELEASE_IN_DOUBT] = TO(RELEASING_AGAIN) | TO_CLAIM,
    [RELEASING_AGAIN] = TO(RELEASE_IN_DOUBT) | TO(IDLE),
    [WITHDRAWING] = TO(IDLE),
};

/* Core may end the claim in these states, so nothing points to it. */
static bool is_listed(enum claim_state state)
{
    return state != IDLE && state != RELEASE_FAILED && state != RELEASE_IN_DOUBT;
}

static bool has_timer(enum claim_state state)
{
    return state > IDLE && state < HELD;
}

void redis_claim_move_to(struct redis_claim *claim, enum claim_state state)
{
    struct loop *loop = base_of(claim)->engine->loop;
    enum claim_state before = claim->state;
    assert(transitions[before] & TO(state));
    claim->state = state;
    redis_order_count(claim, before, state);
    if (has_timer(before) && !has_timer(state)) {
        redis_order_leave(claim);
        loop_disarm(loop, &claim->timer);
        loop_unreserve(loop, 1);
    }
    if (is_listed(state) && !is_listed(before))
        enlist(claim);
    else if (is_listed(before) && !is_listed(state))
        unlist(claim);
}

void redis_claim_forget(struct redis_claim *claim, enum claim_state state)
{
    if (claim->replicates_at)
        redis_replicas_forget(claim);
    redis_route_forget(redis_of_claim(claim), claim);
    redis_claim_move_to(claim, state);
}

/* ---- is it still held? ---- */

enum stile_status redis_claim_check(struct redis_claim *claim, conn_fn *fn, struct stile_error *err)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct numbers n;
    struct call call;
    redis_numbers_of(&n, base, 0);
    redis_call_begin(&call, LOSS_KEYS, redis, base->name, base->name_len);
    redis_call_add(&call, claim->leased.owner);
    redis_call_add(&call, n.mode);
    return redis_call_send(&call, redis, &redis_script_check, fn, claim, err);
}
