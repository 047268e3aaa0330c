/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Releases and withdrawals. One script releases, withdraws and clears away (release.lua); a shorter
 * one gives back a lock without contention (give.lua). */
#include "engines/redis/redis.h"

#define WAS_LOST "the lock was no longer held"

static void end_release(struct redis_claim *claim, enum claim_state state,
                        const struct stile_error *err)
{
    struct claim *base = base_of(claim);
    redis_claim_forget(claim, state);
    base->engine->events->released(base, err);
}

/* Core calls release() again; the owner value makes that safe. */
static void release_failed(struct redis_claim *claim, const struct stile_error *err)
{
    if (claim->state == WITHDRAWING)
        end_release(claim, IDLE, err);
    else if (claim->state == RELEASING && err->status != STILE_UNCERTAIN)
        end_release(claim, RELEASE_FAILED, err);
    else
        end_release(claim, RELEASE_IN_DOUBT, err);
}

static void end_lost(struct redis_claim *claim, const char *why)
{
    struct stile_error lost;
    error_set(&lost, STILE_LOST, 0, "%s", why);
    end_release(claim, IDLE, &lost);
}

static void on_release_checked(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    char why[LOSS_MAX] = WAS_LOST;
    if (!err && text_of(reply))
        redis_claim_explain_loss(why, claim, text_of(reply));
    end_lost(claim, why);
}

/* Core knows the reason of a loss that was reported before. */
static void released_nothing(struct redis_claim *claim)
{
    if (base_of(claim)->lost || redis_claim_check(claim, on_release_checked, NULL))
        end_lost(claim, WAS_LOST);
}

static void on_released(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    if (err)
        release_failed(claim, err);
    else if (is_number(reply) && reply->integer == 0 && claim->state == RELEASING)
        released_nothing(claim);
    else
        end_release(claim, IDLE, NULL);
}

static conn_fn on_given;

/* For an uncontended lock: deletes its key, and does nothing if there is more to do. */
static enum stile_status send_give(struct redis_claim *claim, struct stile_error *err)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct call call;
    redis_call_begin(&call, GIVE_KEYS, redis, base->name, base->name_len);
    redis_call_add(&call, claim->leased.owner);
    return redis_call_send(&call, redis, &redis_script_give, on_given, claim, err);
}

static bool was_held(const struct redis_claim *claim)
{
    return claim->state == RELEASING || claim->state == RELEASING_AGAIN;
}

/* The name may stay taken without a holder. */
static bool stays(const struct claim *base)
{
    return base->hold_ns || (base->lost && base->delay_ns);
}

static enum stile_status send_release(struct redis_claim *claim, conn_fn *fn, void *data,
                                      struct stile_error *err)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct numbers n;
    struct call call;
    char stem[SHARED_ROOM];
    /* hold_at_least does not apply to a grant that never reached its owner or was not used. */
    bool used = was_held(claim) && !base->unused;
    redis_call_begin(&call, SCRIPT_KEYS, redis, base->name, base->name_len);
    redis_call_add_entry(&call, claim, &n);
    redis_call_add(&call, used ? n.hold : "0");
    redis_call_add(&call, base->lost ? n.delay : "0");
    if (stays(base)) {
        redis_key_of_clients(stem, redis, redis_route_slot(redis, base->name, base->name_len));
        redis_call_add(&call, stem);
    }
    return redis_call_send(&call, redis, &redis_script_release, fn, data, err);
}

static void send_release_or_give(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    bool is_short =
        base->mode == STILE_EXCLUSIVE && !stays(base) && !claim->contended && was_held(claim);
    struct stile_error err;
    if (is_short ? send_give(claim, &err) : send_release(claim, on_released, claim, &err))
        release_failed(claim, &err);
}

static void on_given(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    if (err) {
        release_failed(claim, err);
    } else if (is_token(reply)) {
        end_release(claim, IDLE, NULL);
    } else {
        claim->contended = true;
        send_release_or_give(claim);
    }
}

static enum claim_state release_state(enum claim_state state)
{
    if (state == HELD || state == RELEASE_FAILED)
        return RELEASING;
    return state == RELEASE_IN_DOUBT ? RELEASING_AGAIN : WITHDRAWING;
}

void redis_claims_release(struct engine *engine, struct claim *base)
{
    struct redis_claim *claim = redis_claim_of(base);
    (void)engine;
    leased_leave_renewal(&claim->leased);
    redis_claim_forget(claim, release_state(claim->state));
    send_release_or_give(claim);
}

static void on_retracted(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err;
}

void redis_claim_retract(struct redis_claim *claim)
{
    send_release(claim, on_retracted, redis_of_claim(claim), NULL);
}
