/* Leaving: giving back, withdrawing, clearing away. One script does all three. */
#include <string.h>

#include "engines/redis/redis.h"
#include "mutant.h"

#define SAY_AGAIN_NS      (20 * NS_PER_MS)
#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)

static void left(struct redis_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    claim_forget(part);
    part->may_be_there = part->may_be_gone = false;
    claim->engine->events->released(claim, err);
}

/* Repeated until answered or too late: the owner value makes that safe. */
static void unanswered(struct redis_claim *part, const struct stile_error *err)
{
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t at = loop_now(loop) + (SAY_AGAIN_NS << (part->looks < 5 ? part->looks : 5));
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    part->looks++;
#ifndef MUTANT_REDIS_RELEASED_TWICE_IS_LOSS
    part->may_be_gone |= err->status == STILE_UNCERTAIN;
#endif
    if (!passing || !part->has_timer || at >= part->give_up_ns)
        left(part, err);
    else
        loop_arm(loop, &part->timer, at);
}

static void on_released(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    struct stile_error lost;
    if (err) {
        unanswered(part, err);
    } else if (is_number(reply) && reply->integer == 0 && !part->may_be_there &&
               !part->may_be_gone) {
        error_set(&lost, STILE_LOST, 0, "it was not ours any more");
        left(part, &lost);
    } else {
        left(part, NULL);
    }
}

static conn_fn on_given;

/* Nothing but a key of ours to delete, as far as we know. */
static enum stile_status send_give(struct redis_claim *part, struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct call call;
    call_begin(&call, GIVE_KEYS, redis, claim->name, claim->name_len);
    call_add(&call, part->owner);
    return call_send(&call, redis, &redis_script_give, on_given, part, err);
}

static enum stile_status send_release(struct redis_claim *part, conn_fn *fn, void *data,
                                      struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct numbers n;
    struct call call;
    /* A grant that its owner never heard of, or did nothing with, need not be held for any time. */
    bool used = !part->may_be_there && !claim->unused;
    call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    claim_add_entry(&call, part, &n);
    call_add(&call, used ? n.hold : "0");
#ifdef MUTANT_REDIS_LOSS_WITHOUT_DELAY
    strcpy(n.delay, "0");
#endif
    call_add(&call, claim->lost ? n.delay : "0");
    return call_send(&call, redis, &redis_script_release, fn, data, err);
}

static void say(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    bool stays = claim->hold_ns || (claim->lost && claim->delay_ns);
    bool is_short =
        claim->mode == STILE_EXCLUSIVE && !stays && !part->wanted && !part->may_be_there;
    struct stile_error err;
    if (is_short ? send_give(part, &err) : send_release(part, on_released, part, &err))
        unanswered(part, &err);
}

static void on_given(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err) {
        unanswered(part, err);
    } else if (is_token(reply)) {
        left(part, NULL);
    } else {
        part->wanted = true;
        say(part);
    }
}

static void say_again(struct timer *timer)
{
    say((struct redis_claim *)((char *)timer - offsetof(struct redis_claim, timer)));
}

void claims_release(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    bool held = part->standing == HOLDING;
    claim_leave_batch(part);
    route_forget(redis_of(engine), part);
    if (!part->has_timer)
        part->has_timer = loop_reserve(engine->loop, 1) == 0;
    if (part->has_timer)
        loop_disarm(engine->loop, &part->timer);
    part->timer.fn = say_again;
    part->looks = 0;
    part->looking = false;
    part->may_be_there = !held;
    part->may_be_gone = false;
    part->standing = LEAVING;
    part->give_up_ns = loop_now(engine->loop) + LEAVE_PATIENCE_NS;
    say(part);
}

static void on_retracted(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err;
}

void claim_retract(struct redis_claim *part)
{
    send_release(part, on_retracted, redis_of_part(part), NULL);
}
