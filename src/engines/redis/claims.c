/* Claims: asking. The short way takes what is free; who finds it taken, or has lately, goes the
 * long way, which puts it in line (queue.c). Who is told there that it is granted confirms that.
 * How it ends is in grant.c, how it leaves in release.c. */
#include <string.h>

#include "engines/redis/redis.h"

static void fail_strange(struct redis_claim *part)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0, "the server's answer has an unexpected form");
    claim_fail(part, &err);
}

static void turned_away(struct redis_claim *part, long long pttl_ms)
{
    struct claim *claim = claim_of(part);
    claim_forget(part);
    claim->engine->events->busy(claim, pttl_ms > 0 ? (uint64_t)pttl_ms * NS_PER_MS : 0);
}

static void granted_at_once(struct redis_claim *part, uint64_t token)
{
    part->wanted = part->has_waited;
    claim_granted(part, token);
}

static void on_claimed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err)
        claim_unanswered(part, err);
    else if (number_at(reply, 0) == 1 && token_at(reply, 1))
        granted_at_once(part, token_at(reply, 1));
    else if (!is_array(reply, 4))
        fail_strange(part);
    else if (claim_of(part)->wait)
        claim_stand_in_line(part, reply);
    else
        turned_away(part, number_at(reply, 1));
}

static void on_taken(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err) {
        claim_unanswered(part, err);
    } else if (is_token(reply)) {
        claim_granted(part, (uint64_t)reply->integer);
    } else if (!is_number(reply)) {
        fail_strange(part);
    } else {
        part->wanted = true;
        claim_ask(part);
    }
}

static void send_take(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    struct numbers n;
    struct call call;
    numbers_of(&n, claim, 0);
    call_begin(&call, TAKE_KEYS, redis, claim->name, claim->name_len);
    call_add(&call, part->owner);
    call_add(&call, n.px);
    call_add(&call, n.terms);
    describe_to(redis, claim);
    part->taking = true;
    part->standing = ASKED;
    part->sent_ns = loop_now(redis->engine.loop);
    if (call_send(&call, redis, &redis_script_take, on_taken, part, &err))
        claim_unanswered(part, &err);
}

void claim_add_entry(struct call *call, struct redis_claim *part, struct numbers *n)
{
    numbers_of(n, claim_of(part), 0);
    call_add(call, part->owner);
    call_add(call, n->mode);
    call_add(call, n->px);
    call_add(call, n->terms);
}

/* Answers to what was asked before count no longer. */
static void stop_looking(struct redis_claim *part)
{
    if (part->looking)
        route_forget(redis_of_part(part), part);
    part->looking = false;
}

void claim_ask(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    uint64_t now_ns = loop_now(redis->engine.loop);
    struct stile_error err;
    struct numbers n;
    struct call call;
    char behind[NUMBER_MAX];
    stop_looking(part);
    call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    claim_add_entry(&call, part, &n);
    call_add(&call, n.slots);
    part->asked_at = claim_node(part);
    call_add(&call, claim->wait && part->asked_at->hearing ? "1" : "0");
    call_add(&call, part->has_waited ? "1" : "0");
    call_add(&call, redis->poll_ms ? "1" : "0");
    number_write(behind, part->behind_ns ? (now_ns - part->behind_ns) / NS_PER_MS + 1 : 0);
    call_add(&call, behind);
    describe_to(redis, claim);
    part->behind_ns = 0;
    part->taking = part->unanswered = false;
    part->standing = ASKED;
    part->sent_ns = now_ns;
    if (call_send(&call, redis, &redis_script_claim, on_claimed, part, &err))
        claim_unanswered(part, &err);
}

static bool begin(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    if (loop_reserve(claim->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        claim->engine->events->failed(claim, &err);
        return false;
    }
    part->has_timer = true;
    part->timer.fn = claim_look;
    part->looks = 0;
    part->told = part->has_waited = part->may_be_there = part->resumed = false;
    part->unanswered = part->looking = false;
    part->behind_ns = part->held_ns = 0;
    claim_enlist(part);
    return true;
}

void claims_claim(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    struct stile_error err;
    int rc = who_draw_owner(part->owner, redis_of(engine)->channel, engine->loop);
    if (rc) {
        error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
        engine->events->failed(claim, &err);
        return;
    }
    if (!begin(part))
        return;
    if (claim->mode == STILE_EXCLUSIVE && !part->wanted)
        send_take(part);
    else
        claim_ask(part);
}

/* ---- confirming ---- */

enum stile_status claim_send_confirm(struct redis_claim *part, struct conn *conn, conn_fn *fn,
                                     struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct numbers n;
    struct call call;
    size_t n_keys = claim->mode == STILE_EXCLUSIVE ? TAKE_KEYS : SCRIPT_KEYS;
    numbers_of(&n, claim, 0);
    call_begin(&call, n_keys, redis, claim->name, claim->name_len);
    call_add(&call, part->owner);
    call_add(&call, n.mode);
    call_add(&call, n.px);
    const struct lua *script = &redis_script_confirm;
    return conn ? conn_eval(conn, script, call.args, call.n_keys, call.n, fn, part, err)
                : call_send(&call, redis, script, fn, part, err);
}

static void on_confirmed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err)
        claim_unanswered(part, err);
    else if (is_token(reply))
        claim_granted(part, (uint64_t)reply->integer);
    else
        claim_ask(part); /* it took us too long */
}

void claim_confirm(struct redis_claim *part)
{
    struct stile_error err;
    stop_looking(part);
    part->standing = CONFIRMING;
    part->unanswered = part->told = false;
    part->sent_ns = loop_now(claim_of(part)->engine->loop);
    if (claim_send_confirm(part, NULL, on_confirmed, &err))
        claim_unanswered(part, &err);
}

/* ---- resuming ---- */

/* What was requested when it was acquired, and what of it is over by now. */
static bool take_terms(struct redis_claim *part, const redisReply *reply)
{
    struct claim *claim = claim_of(part);
    const char *mode = text_at(reply, 1);
    if (!is_array(reply, 7) || !mode || !token_at(reply, 0) || !count_at(reply, 2) ||
        !claim_take_mode(claim, mode))
        return false;
    claim->ttl_ns = count_at(reply, 2) * NS_PER_MS;
    claim->hold_ns = count_at(reply, 3) * NS_PER_MS;
    claim->delay_ns = count_at(reply, 4) * NS_PER_MS;
    claim->slots = (uint32_t)count_at(reply, 5);
    part->held_ns = count_at(reply, 6) * NS_PER_MS;
    return true;
}

static void on_resumed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    struct stile_error why;
    if (err) {
        claim_fail_to_resume(part, err);
    } else if (take_terms(part, reply)) {
        claim_unlist(part); /* the lease that depends on the connection may be another */
        claim_enlist(part);
        describe_prolong(redis_of_part(part), part);
        claim_granted(part, token_at(reply, 0));
    } else if (is_number(reply) && reply->integer == 0) {
        error_set(&why, STILE_LOST, 0, "this owner value does not hold it (any more)");
        claim_fail(part, &why);
    } else {
        error_set(&why, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        claim_fail(part, &why);
    }
}

static enum stile_status send_resume(struct redis_claim *part, struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct numbers n;
    struct call call;
    numbers_of(&n, claim, 0);
    call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    call_add(&call, part->owner);
    call_add(&call, claim->ttl_given ? n.ttl : "");
    call_add(&call, n.ttl);
    part->standing = CONFIRMING;
    part->sent_ns = loop_now(redis->engine.loop);
    return call_send(&call, redis, &redis_script_resume, on_resumed, part, err);
}

void claims_resume(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    struct stile_error err;
    if (strlen(claim->owner) != OWNER_LEN ||
        strspn(claim->owner, "0123456789abcdef") != OWNER_LEN) {
        error_set(&err, STILE_MISUSE, 0, "an owner value has %d lower-case hex digits", OWNER_LEN);
        engine->events->failed(claim, &err);
        return;
    }
    memcpy(part->owner, claim->owner, sizeof part->owner);
    if (!begin(part))
        return;
    part->resumed = true;
    if (send_resume(part, &err))
        claim_fail_to_resume(part, &err);
}

void claims_detach(struct engine *engine, struct claim *claim)
{
    redis_of(engine)->has_detached = true;
    claim_leave_batch(part_of(claim));
    claim_forget(part_of(claim));
}

const char *claims_owner(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return part_of(claim)->owner;
}
