/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Claims, from the first request to the grant, and while they are held.
 *
 * A claim on a name without contention sends the short script (take.lua). If the name is taken,
 * or was lately, it sends the long one (claim.lua), which queues it. A waiter is granted by a
 * message and confirms the grant.
 *
 * A message may get lost, the waiters ahead may have died, another client's key ends without a
 * message to us, and anybody may delete anything by hand. So a waiter also looks by itself: when
 * what is in its way must have ended, and once a second in any case. A look changes nothing and
 * costs the server next to nothing; only a look that finds something to do asks again. In a long
 * queue those far behind look less often: they are not needed before all those ahead of them have
 * died at once.
 *
 * states.c has the states of a claim, release.c its end. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/name.h"
#include "engines/redis/redis.h"

/* What the server reports about a waiter: see scripts/lib/status.lua. */
struct queue_status {
    long long ms, rank;
    const char *foreign; /* the value of another client's key, or "" */
};

/* Sends the claim by claim.lua, which queues it, or finds its entry in the queue. */
static void send_claim(struct redis_claim *claim);
static void wait_in_queue(struct redis_claim *claim, const redisReply *reply);
static void on_look_due(struct timer *timer);
/* Sets the timer for the next look. */
static void arm_look(struct redis_claim *claim, const struct queue_status *status);
/* A waiter that got no answer keeps its place and asks again later, which finds whatever the server
 * has done. A claim that was refused leaves nothing behind. */
static void claim_unanswered(struct redis_claim *claim, const struct stile_error *err);
static conn_fn on_checked;

/* ---- the list of claims ---- */

static struct redis_claim *find_claim(struct redis *redis, const char *owner)
{
    return (struct redis_claim *)leased_find(&redis->claims, owner, OWNER_LEN);
}

static struct redis_claim *oldest_of(const struct redis *redis)
{
    return (struct redis_claim *)redis->claims.oldest;
}

static struct redis_claim *newer_than(const struct redis_claim *claim)
{
    return (struct redis_claim *)claim->leased.newer;
}

/* ---- failed ---- */

/* After UNCERTAIN the claim keeps its owner value: the withdrawal that core sends needs it. */
static void fail(struct redis_claim *claim, const struct stile_error *err)
{
    struct claim *base = base_of(claim);
    redis_claim_forget(claim, IDLE);
    base->engine->events->failed(base, err);
}

/* Never UNCERTAIN: core would withdraw a lock that its owner holds and keeps. */
static void fail_to_resume(struct redis_claim *claim, const struct stile_error *err)
{
    struct stile_error why;
    error_copy(&why, err);
    if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE;
    fail(claim, &why);
}

/* ---- granted ---- */

static void hold(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    redis_claim_move_to(claim, HELD);
    claim->granted_ns = claim->sent_ns - claim->held_ns;
    claim->renewed_ns = claim->sent_ns;
    /* For the message of `stile break`; without it only the next renewal would notice. */
    redis_route_listen(redis, base->name, base->name_len, NULL);
    if (claim->check_due)
        redis_claim_check(claim, on_checked, NULL);
    base->engine->events->granted(base, claim->token, claim->sent_ns, base->ttl_ns);
}

/* Enough replicas have the grant, or err says why not. */
static void replicated(struct redis_claim *claim, const struct stile_error *err)
{
    if (!err) {
        hold(claim);
        return;
    }
    redis_claim_retract(claim); /* the primary has it, the replicas do not */
    fail(claim, err);
}

/* A resumed claim was granted before: like a renewal, it needs the primary only. */
static void granted(struct redis_claim *claim, uint64_t token)
{
    claim->token = token;
    if (redis_of_claim(claim)->wait_replicas == 0 || claim->state == RESUMING) {
        hold(claim);
        return;
    }
    redis_claim_move_to(claim, REPLICATING);
    redis_replicas_await(claim, replicated);
}

/* ---- requests ---- */

static void fail_malformed(struct redis_claim *claim)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0, "the server's answer has an unexpected form");
    fail(claim, &err);
}

static void report_busy(struct redis_claim *claim, long long pttl_ms)
{
    struct claim *base = base_of(claim);
    redis_claim_forget(claim, IDLE);
    base->engine->events->busy(base, pttl_ms > 0 ? (uint64_t)pttl_ms * NS_PER_MS : 0);
}

static void granted_at_once(struct redis_claim *claim, uint64_t token)
{
    claim->contended = claim->has_waited;
    granted(claim, token);
}

static void on_claimed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    if (err)
        claim_unanswered(claim, err);
    else if (number_at(reply, 0) == 1 && token_at(reply, 1))
        granted_at_once(claim, token_at(reply, 1));
    else if (!is_array(reply, 4))
        fail_malformed(claim);
    else if (base_of(claim)->wait)
        wait_in_queue(claim, reply);
    else
        report_busy(claim, number_at(reply, 1));
}

static void on_taken(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    if (err) {
        claim_unanswered(claim, err);
    } else if (is_token(reply)) {
        granted(claim, (uint64_t)reply->integer);
    } else if (!is_number(reply)) {
        fail_malformed(claim);
    } else {
        claim->contended = true;
        send_claim(claim);
    }
}

static void send_take(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct stile_error err;
    struct numbers n;
    struct call call;
    redis_numbers_of(&n, base, 0);
    redis_call_begin(&call, TAKE_KEYS, redis, base->name, base->name_len);
    redis_call_add(&call, claim->leased.owner);
    redis_call_add(&call, n.px);
    redis_call_add(&call, n.terms);
    redis_identity_publish(redis, base);
    redis_claim_move_to(claim, TAKING);
    claim->sent_ns = loop_now(redis->engine.loop);
    if (redis_call_send(&call, redis, &redis_script_take, on_taken, claim, &err))
        claim_unanswered(claim, &err);
}

/* The answer to an earlier look must not count: it may be older than what follows. */
static void stop_looking(struct redis_claim *claim)
{
    if (claim->state == LOOKING)
        redis_route_forget(redis_of_claim(claim), claim);
}

/* Until the subscription is up, which sends all claims in order, or until the next look. */
static void put_off(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    stop_looking(claim);
    claim->asked_at = claim_node(claim);
    claim->has_waited = true;
    redis_claim_move_to(claim, UNANSWERED);
    redis_route_listen(redis_of_claim(claim), base->name, base->name_len, NULL);
    arm_look(claim, &(struct queue_status){.ms = -1, .foreign = ""});
}

static void send_claim(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    uint64_t now_ns = loop_now(redis->engine.loop);
    struct stile_error err;
    struct numbers n;
    struct call call;
    char behind[NUMBER_MAX];
    if (base->wait && redis_order_would_overtake(claim)) {
        put_off(claim);
        return;
    }
    stop_looking(claim);
    redis_call_begin(&call, SCRIPT_KEYS, redis, base->name, base->name_len);
    redis_call_add_entry(&call, claim, &n);
    redis_call_add(&call, n.slots);
    claim->asked_at = claim_node(claim);
    redis_call_add(&call, base->wait && claim->asked_at->subscribed ? "1" : "0");
    redis_call_add(&call, claim->has_waited ? "1" : "0");
    redis_call_add(&call, redis->poll_ms ? "1" : "0");
    redis_number_write(behind, claim->behind_ns ? (now_ns - claim->behind_ns) / NS_PER_MS + 1 : 0);
    redis_call_add(&call, behind);
    redis_identity_publish(redis, base);
    claim->behind_ns = 0;
    redis_claim_move_to(claim, REQUESTED);
    claim->sent_ns = now_ns;
    if (redis_call_send(&call, redis, &redis_script_claim, on_claimed, claim, &err))
        claim_unanswered(claim, &err);
}

/* Reserves the timer, which redis_claim_move_to() gives back. */
static bool begin(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    struct stile_error err;
    if (loop_reserve(base->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        base->engine->events->failed(base, &err);
        return false;
    }
    claim->timer.fn = on_look_due;
    claim->has_waited = claim->check_due = false;
    claim->behind_ns = claim->held_ns = 0;
    return true;
}

/* A claim that has sent take.lua joins the queue only after the answer, behind any claim that is
 * sent before that. So it joins now: claim.lua finds a grant that take.lua may have made. */
static void join_before_others(struct redis_claim *claim)
{
    if (claim->state != TAKING)
        return;
    redis_route_forget(redis_of_claim(claim), claim);
    claim->has_waited = true;
    send_claim(claim);
}

/* False: this client has no older claim on the name, so that there may be no contention. */
static bool follow_older(struct redis_claim *claim)
{
    struct redis_claim *older = base_of(claim)->wait ? redis_order_join(claim) : NULL;
    if (older)
        join_before_others(older);
    return older;
}

/* A single try is not put off: while an older claim of this client waits for its place in the
 * queue, the lock counts as held. */
static bool tries_to_overtake(struct redis_claim *claim)
{
    struct redis_claim *older = redis_order_newest(claim);
    if (older)
        join_before_others(older);
    return redis_order_would_overtake(claim);
}

void redis_claims_claim(struct engine *engine, struct claim *base)
{
    struct redis_claim *claim = redis_claim_of(base);
    struct stile_error err;
    int rc = redis_owner_draw(claim->leased.owner, redis_of(engine)->channel, engine->loop);
    if (rc) {
        error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
        engine->events->failed(base, &err);
        return;
    }
    if (!base->wait && tries_to_overtake(claim)) {
        engine->events->busy(base, 0);
        return;
    }
    if (!begin(claim))
        return;
    bool follows = follow_older(claim);
    if (base->mode == STILE_EXCLUSIVE && !claim->contended && !follows &&
        !redis_order_would_overtake(claim))
        send_take(claim);
    else
        send_claim(claim);
}

/* ---- confirming ---- */

static void on_confirmed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    if (err)
        claim_unanswered(claim, err);
    else if (is_token(reply))
        granted(claim, (uint64_t)reply->integer);
    else
        send_claim(claim); /* the confirmation came too late */
}

static void confirm(struct redis_claim *claim)
{
    struct stile_error err;
    stop_looking(claim);
    redis_claim_move_to(claim, CONFIRMING);
    claim->sent_ns = loop_now(base_of(claim)->engine->loop);
    if (redis_replicas_confirm(claim, NULL, on_confirmed, &err))
        claim_unanswered(claim, &err);
}

/* ---- resuming ---- */

#define NOT_HELD "this owner value does not hold the lock, or no longer does"

static void fail_lost(struct redis_claim *claim, const char *why)
{
    struct stile_error err;
    error_set(&err, STILE_LOST, 0, "%s", why);
    fail(claim, &err);
}

/* Only `stile break` leaves a trace: an owner value that is unknown may be a wrong one. */
static void on_resume_checked(void *data, const redisReply *reply, const struct stile_error *err)
{
    const char *reason = err ? NULL : text_of(reply);
    char why[LOSS_MAX] = NOT_HELD;
    if (reason && reason[0] == 'b')
        redis_loss_explain(why, reason, 0, 1);
    fail_lost(data, why);
}

/* The terms that were requested at the acquisition, and how long the claim was held since. */
static bool take_terms(struct redis_claim *claim, const redisReply *reply)
{
    struct claim *base = base_of(claim);
    const char *mode = text_at(reply, 1);
    if (!is_array(reply, 7) || !mode || !token_at(reply, 0) || !count_at(reply, 2) ||
        !redis_claim_take_mode(base, mode))
        return false;
    base->ttl_ns = count_at(reply, 2) * NS_PER_MS;
    base->hold_ns = count_at(reply, 3) * NS_PER_MS;
    base->delay_ns = count_at(reply, 4) * NS_PER_MS;
    base->slots = (uint32_t)count_at(reply, 5);
    claim->held_ns = count_at(reply, 6) * NS_PER_MS;
    return true;
}

static void on_resumed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    struct stile_error why;
    if (err) {
        fail_to_resume(claim, err);
    } else if (take_terms(claim, reply)) {
        redis_claim_relist(claim);
        redis_identity_extend(redis_of_claim(claim), claim);
        granted(claim, token_at(reply, 0));
    } else if (is_number(reply) && reply->integer == 0) {
        if (redis_claim_check(claim, on_resume_checked, NULL))
            fail_lost(claim, NOT_HELD);
    } else {
        error_set(&why, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        fail(claim, &why);
    }
}

static enum stile_status send_resume(struct redis_claim *claim, struct stile_error *err)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct numbers n;
    struct call call;
    redis_numbers_of(&n, base, 0);
    redis_call_begin(&call, SCRIPT_KEYS, redis, base->name, base->name_len);
    redis_call_add(&call, claim->leased.owner);
    redis_call_add(&call, base->ttl_given ? n.ttl : "");
    redis_call_add(&call, n.ttl);
    redis_claim_move_to(claim, RESUMING);
    claim->sent_ns = loop_now(redis->engine.loop);
    return redis_call_send(&call, redis, &redis_script_resume, on_resumed, claim, err);
}

void redis_claims_resume(struct engine *engine, struct claim *base)
{
    struct redis_claim *claim = redis_claim_of(base);
    struct stile_error err;
    if (leased_take_owner(base, OWNER_LEN, &err)) {
        engine->events->failed(base, &err);
        return;
    }
    if (!begin(claim))
        return;
    if (send_resume(claim, &err))
        fail_to_resume(claim, &err);
}

void redis_claims_detach(struct engine *engine, struct claim *base)
{
    redis_of(engine)->has_detached = true;
    leased_leave_renewal(leased_of(base));
    redis_claim_forget(redis_claim_of(base), IDLE);
}

const char *redis_claims_owner(struct engine *engine, struct claim *base)
{
    (void)engine;
    return leased_of(base)->owner;
}

/* ---- waiting ---- */

/* The first waiter looks this long after the lock before it must have ended; the others some time
 * later, so that they do not all look at once. */
#define LOOK_AFTER_NS (5 * NS_PER_MS)
#define LOOK_NEXT_NS  (250 * NS_PER_MS)
#define LOOK_NS       (1 * NS_PER_SEC)
#define LOOK_RANK_NS  (5 * NS_PER_MS) /* per waiter ahead, if that is longer */
#define SURE_NS                                                                                    \
    (30 * NS_PER_SEC) /* then it sends the claim again, which also keeps the queue alive */
#define RESTLESS_NS                                                                                \
    (300 * NS_PER_MS) /* another client's key is restless if it changed within this time */

/* A random time from half of ns to all of it: many may look at the same name. */
static uint64_t about(struct redis_claim *claim, uint64_t ns)
{
    uint64_t random = 0;
    loop_random(base_of(claim)->engine->loop, &random, sizeof random);
    return ns / 2 + random % (ns / 2 + 1);
}

/* A key that changes hands all the time is free for moments only: look often. Another key is looked
 * at about as often as its own clients poll. */
static uint64_t poll_pause(struct redis_claim *claim, const char *foreign)
{
    uint64_t now_ns = loop_now(base_of(claim)->engine->loop);
    uint64_t hash = name_hash(foreign, strlen(foreign));
    uint64_t poll_ns = redis_of_claim(claim)->poll_ms * NS_PER_MS;
    if (claim->foreign_hash != hash)
        claim->foreign_ns = now_ns;
    claim->foreign_hash = hash;
    return about(claim, now_ns - claim->foreign_ns < RESTLESS_NS ? poll_ns / 4 : poll_ns * 4 / 3);
}

static uint64_t look_pause(struct redis_claim *claim, const struct queue_status *status)
{
    uint64_t pause = (uint64_t)status->rank * LOOK_RANK_NS, ends = LOOK_AFTER_NS;
    pause = about(claim, pause > LOOK_NS ? pause : LOOK_NS);
    if (*status->foreign && redis_of_claim(claim)->poll_ms)
        pause = poll_pause(claim, status->foreign);
    if (status->rank)
        ends += about(claim, LOOK_NEXT_NS);
    if (status->ms >= 0 && (uint64_t)status->ms * NS_PER_MS + ends < pause)
        pause = (uint64_t)status->ms * NS_PER_MS + ends;
    return pause;
}

static void arm_look(struct redis_claim *claim, const struct queue_status *status)
{
    struct claim *base = base_of(claim);
    struct loop *loop = base->engine->loop;
    uint64_t now_ns = loop_now(loop);
    base->engine->events->queued(base);
    if (*status->foreign && !claim->behind_ns)
        claim->behind_ns = now_ns;
    loop_arm(loop, &claim->timer, now_ns + look_pause(claim, status));
}

static struct queue_status queue_status_of(const redisReply *reply)
{
    const redisReply *foreign = reply->element[3];
    return (struct queue_status){number_at(reply, 1), number_at(reply, 2),
                                 foreign->type == REDIS_REPLY_STRING ? foreign->str : ""};
}

static void on_looked(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    redis_claim_move_to(claim, WAITING);
    if (err) {
        claim_unanswered(claim, err);
    } else if (is_array(reply, 4) && number_at(reply, 0) == 0) {
        struct queue_status status = queue_status_of(reply);
        arm_look(claim, &status);
    } else {
        send_claim(claim);
    }
}

static void send_look(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct stile_error err;
    struct numbers n;
    struct call call;
    redis_call_begin(&call, SCRIPT_KEYS, redis, base->name, base->name_len);
    redis_call_add_entry(&call, claim, &n);
    redis_call_add(&call, n.slots);
    redis_claim_move_to(claim, LOOKING);
    if (redis_call_send(&call, redis, &redis_script_look, on_looked, claim, &err))
        claim_unanswered(claim, &err);
}

static void on_look_due(struct timer *timer)
{
    struct redis_claim *claim = container_of(timer, struct redis_claim, timer);
    bool sure = loop_now(base_of(claim)->engine->loop) >= claim->sent_ns + SURE_NS;
    if (!redis_claim_is_in_queue(claim->state))
        return;
    if (sure || claim->state == UNANSWERED || claim->asked_at != claim_node(claim))
        send_claim(claim);
    else if (claim->state == WAITING)
        send_look(claim);
}

static void claim_unanswered(struct redis_claim *claim, const struct stile_error *err)
{
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    if (claim->has_waited && passing) {
        redis_claim_move_to(claim, UNANSWERED);
        arm_look(claim, &(struct queue_status){.ms = -1, .foreign = ""});
        return;
    }
    if (claim->has_waited)
        redis_claim_retract(claim);
    fail(claim, err);
}

/* A waiter is queued only once it is subscribed: else the server would take it for dead. */
static void wait_in_queue(struct redis_claim *claim, const redisReply *reply)
{
    struct redis *redis = redis_of_claim(claim);
    struct claim *base = base_of(claim);
    struct queue_status status = queue_status_of(reply);
    struct stile_error err;
    bool granted_early = claim->state == GRANTED_EARLY;
    redis_claim_move_to(claim, WAITING);
    claim->has_waited = true;
    if (redis_route_listen(redis, base->name, base->name_len, &err))
        claim_unanswered(claim, &err);
    else if (granted_early)
        confirm(claim);
    else
        arm_look(claim, &status);
}

/* ---- lost ---- */

static void report_lost(struct redis_claim *claim, const char *why)
{
    struct stile_error err;
    error_set(&err, STILE_LOST, 0, "%s", why);
    base_of(claim)->engine->events->lost(base_of(claim), &err);
}

/* Without an answer it is asked again over the next connection, unless a renewal shows it first. */
static void on_checked(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    char why[LOSS_MAX];
    if (err)
        claim->check_due = true;
    if (err || !text_of(reply) || claim->state != HELD)
        return;
    redis_claim_explain_loss(why, claim, text_of(reply));
    report_lost(claim, why);
}

/* ---- messages ---- */

static void message_granted(struct redis_claim *claim)
{
    if (redis_claim_is_in_queue(claim->state))
        confirm(claim);
    else if (claim->state == REQUESTED)
        redis_claim_move_to(claim, GRANTED_EARLY);
}

/* The reply that grants it may still be on its way, on another connection: then the claim is
 * checked when it is held. */
static void message_broken(struct redis_claim *claim, const char *by)
{
    char why[LOSS_MAX];
    if (claim->state != HELD) {
        claim->check_due = true;
        return;
    }
    redis_loss_broken(why, by);
    report_lost(claim, why);
}

static void message_pause(struct redis_claim *claim, const char *text)
{
    char *rest;
    long long ms = strtoll(text, &rest, 10);
    if (redis_claim_is_in_queue(claim->state) && rest != text && ms >= 0)
        arm_look(claim, &(struct queue_status){.ms = ms, .foreign = ""});
}

/* "g owner", "h owner ms" or "b owner pid host"; any client may publish anything, so a message is a
 * hint at most. */
void redis_claims_message(struct redis *redis, const char *text, size_t len)
{
    if (len < 2 + OWNER_LEN || text[1] != ' ')
        return;
    struct redis_claim *claim = find_claim(redis, text + 2);
    if (!claim)
        return;
    if (text[0] == 'g')
        message_granted(claim);
    else if (text[0] == 'b')
        message_broken(claim, text + 2 + OWNER_LEN);
    else if (text[0] == 'h')
        message_pause(claim, text + 2 + OWNER_LEN);
}

/* ---- requesting again ---- */

/* Claims that are held when a subscription begins: more than these are left to the renewals, since
 * checking them all at once would delay those. */
#define CHECKS_MAX 256

/* The message that it was broken was missed if it came before the subscription. A claim that is
 * about to be granted may have been broken by then, too. */
static bool check_missed(struct redis_claim *claim)
{
    claim->check_due = claim->state != HELD || redis_claim_check(claim, on_checked, NULL);
    return !claim->check_due;
}

/* In the order in which they were requested, so that the queue keeps it: some may not be in the
 * queue yet, or no longer, and replies under way may describe the time before. */
void redis_claims_look_again(struct node *node)
{
    size_t checks = 0;
    for (struct redis_claim *claim = oldest_of(node->redis), *next; claim; claim = next) {
        bool requested = claim->state == REQUESTED || claim->state == GRANTED_EARLY;
        bool asked = requested && base_of(claim)->wait;
        next = newer_than(claim);
        if (claim_node(claim) != node)
            continue;
        if (asked)
            redis_route_forget(node->redis, claim);
        if (asked || redis_claim_is_in_queue(claim->state)) {
            claim->has_waited = true;
            send_claim(claim);
        } else if (checks < CHECKS_MAX) {
            checks += check_missed(claim);
        }
    }
}

void redis_claims_request_again(struct node *node)
{
    size_t checks = 0;
    for (struct redis_claim *claim = oldest_of(node->redis), *next; claim; claim = next) {
        next = newer_than(claim);
        if (claim_node(claim) != node)
            continue;
        if (claim->state == UNANSWERED)
            send_claim(claim);
        else if (claim->state == HELD && claim->check_due && checks < CHECKS_MAX)
            checks += check_missed(claim);
    }
}

void redis_claims_follow(struct redis *redis)
{
    for (struct redis_claim *claim = oldest_of(redis), *next; claim; claim = next) {
        next = newer_than(claim);
        if (redis_claim_is_in_queue(claim->state) && claim->asked_at != claim_node(claim)) {
            claim->has_waited = true;
            send_claim(claim);
        }
    }
}
