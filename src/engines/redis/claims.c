/* Claims, from the first request to the release.
 *
 *     IDLE ──► REQUESTED ──► WAITING ──► CONFIRMING ──► REPLICATING ──► HELD ──► RELEASING ──► IDLE
 *
 * A claim on a name that nobody else wants takes the short script (take.lua). If the name is taken,
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
 * One script releases, withdraws and clears away (release.lua). */
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/redis/redis.h"
#include "mutant.h"

/* ---- the list of claims ---- */

static unsigned head_of(const char *owner)
{
    unsigned head = 0;
    for (size_t i = OWNER_LEN - 8; i < OWNER_LEN; i++)
        head = head * 31 + (unsigned char)owner[i];
    return head % OWNER_HEADS;
}

void redis_claim_enlist(struct redis_claim *part)
{
    struct redis *redis = redis_of_part(part);
    struct redis_claim **head = &redis->by_owner[head_of(part->owner)];
    part->next = *head;
    *head = part;
    part->older = redis->newest;
    part->newer = NULL;
    *(redis->newest ? &redis->newest->newer : &redis->oldest) = part;
    redis->newest = part;
    part->listed = true;
    part->stake = redis_leases_add(&redis->stakes, claim_of(part)->ttl_ns);
}

void redis_claim_unlist(struct redis_claim *part)
{
    struct redis *redis = redis_of_part(part);
    struct redis_claim **at = &redis->by_owner[head_of(part->owner)];
    if (!part->listed)
        return;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    *(part->older ? &part->older->newer : &redis->oldest) = part->newer;
    *(part->newer ? &part->newer->older : &redis->newest) = part->older;
    part->listed = false;
    redis_leases_remove(&redis->stakes, part->stake);
}

struct redis_claim *redis_claim_find(struct redis *redis, const char *owner)
{
    struct redis_claim *part = redis->by_owner[head_of(owner)];
    while (part && memcmp(part->owner, owner, OWNER_LEN) != 0)
        part = part->next;
    return part;
}

/* ---- the end of a request: granted or failed ---- */

/* ---- the end of a claim ---- */

static void stop_timer(struct redis_claim *part)
{
    struct loop *loop = claim_of(part)->engine->loop;
    if (part->has_timer) {
        loop_disarm(loop, &part->timer);
        loop_unreserve(loop, 1);
    }
    part->has_timer = false;
}

void redis_claim_forget(struct redis_claim *part)
{
    redis_replicas_forget(part);
    redis_route_forget(redis_of_part(part), part);
    stop_timer(part);
    redis_claim_unlist(part);
    part->standing = NOWHERE;
}

void redis_claim_fail(struct redis_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    redis_claim_forget(part);
    part->may_be_there = err->status == STILE_UNCERTAIN;
    claim->engine->events->failed(claim, err);
}

void redis_claim_fail_to_resume(struct redis_claim *part, const struct stile_error *err)
{
    struct stile_error why;
    error_copy(&why, err);
    if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE;
    redis_claim_fail(part, &why);
}

/* ---- granted ---- */

void redis_claim_hold(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    stop_timer(part);
    part->standing = HOLDING;
    part->granted_ns = part->sent_ns - part->held_ns;
    /* So that `stile break` is heard; a renewal would notice, too. */
    redis_route_listen(redis, claim->name, claim->name_len, NULL);
    claim->engine->events->granted(claim, part->token, part->sent_ns, claim->ttl_ns);
}

/* Enough replicas have the grant, or err says why not. */
static void replicated(struct redis_claim *part, const struct stile_error *err)
{
    if (!err) {
        redis_claim_hold(part);
        return;
    }
    redis_claim_retract(part); /* here it is, and elsewhere it is not */
    redis_claim_fail(part, err);
}

/* What is resumed was granted before: like a renewal it is done when the primary has done it. */
void redis_claim_granted(struct redis_claim *part, uint64_t token)
{
    part->token = token;
    if (redis_of_part(part)->wait_replicas == 0 || part->resumed)
        redis_claim_hold(part);
    else
        redis_replicas_await(part, replicated);
}

/* ---- requests ---- */

static void fail_strange(struct redis_claim *part)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0, "the server's answer has an unexpected form");
    redis_claim_fail(part, &err);
}

static void turned_away(struct redis_claim *part, long long pttl_ms)
{
    struct claim *claim = claim_of(part);
    redis_claim_forget(part);
    claim->engine->events->busy(claim, pttl_ms > 0 ? (uint64_t)pttl_ms * NS_PER_MS : 0);
}

static void granted_at_once(struct redis_claim *part, uint64_t token)
{
    part->wanted = part->has_waited;
    redis_claim_granted(part, token);
}

static void on_claimed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err)
        redis_claim_unanswered(part, err);
    else if (number_at(reply, 0) == 1 && token_at(reply, 1))
        granted_at_once(part, token_at(reply, 1));
    else if (!is_array(reply, 4))
        fail_strange(part);
    else if (claim_of(part)->wait)
        redis_claim_wait_in_queue(part, reply);
    else
        turned_away(part, number_at(reply, 1));
}

static void on_taken(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err) {
        redis_claim_unanswered(part, err);
    } else if (is_token(reply)) {
        redis_claim_granted(part, (uint64_t)reply->integer);
    } else if (!is_number(reply)) {
        fail_strange(part);
    } else {
        part->wanted = true;
        redis_claim_request(part);
    }
}

static void send_take(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    struct numbers n;
    struct call call;
    redis_numbers_of(&n, claim, 0);
    redis_call_begin(&call, TAKE_KEYS, redis, claim->name, claim->name_len);
    redis_call_add(&call, part->owner);
    redis_call_add(&call, n.px);
    redis_call_add(&call, n.terms);
    redis_identity_publish(redis, claim);
    part->taking = true;
    part->standing = ASKED;
    part->sent_ns = loop_now(redis->engine.loop);
    if (redis_call_send(&call, redis, &redis_script_take, on_taken, part, &err))
        redis_claim_unanswered(part, &err);
}

void redis_claim_add_entry(struct call *call, struct redis_claim *part, struct numbers *n)
{
    redis_numbers_of(n, claim_of(part), 0);
    redis_call_add(call, part->owner);
    redis_call_add(call, n->mode);
    redis_call_add(call, n->px);
    redis_call_add(call, n->terms);
}

/* Answers to what was asked before count no longer. */
static void stop_looking(struct redis_claim *part)
{
    if (part->looking)
        redis_route_forget(redis_of_part(part), part);
    part->looking = false;
}

void redis_claim_request(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    uint64_t now_ns = loop_now(redis->engine.loop);
    struct stile_error err;
    struct numbers n;
    struct call call;
    char behind[NUMBER_MAX];
    stop_looking(part);
    redis_call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    redis_claim_add_entry(&call, part, &n);
    redis_call_add(&call, n.slots);
    part->asked_at = claim_node(part);
    redis_call_add(&call, claim->wait && part->asked_at->hearing ? "1" : "0");
    redis_call_add(&call, part->has_waited ? "1" : "0");
    redis_call_add(&call, redis->poll_ms ? "1" : "0");
    redis_number_write(behind, part->behind_ns ? (now_ns - part->behind_ns) / NS_PER_MS + 1 : 0);
    redis_call_add(&call, behind);
    redis_identity_publish(redis, claim);
    part->behind_ns = 0;
    part->taking = part->unanswered = false;
    part->standing = ASKED;
    part->sent_ns = now_ns;
    if (redis_call_send(&call, redis, &redis_script_claim, on_claimed, part, &err))
        redis_claim_unanswered(part, &err);
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
    part->timer.fn = redis_claim_look;
    part->looks = 0;
    part->told = part->has_waited = part->may_be_there = part->resumed = false;
    part->unanswered = part->looking = false;
    part->behind_ns = part->held_ns = 0;
    redis_claim_enlist(part);
    return true;
}

void redis_claims_claim(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    struct stile_error err;
    int rc = redis_identity_draw_owner(part->owner, redis_of(engine)->channel, engine->loop);
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
        redis_claim_request(part);
}

/* ---- confirming ---- */

static void on_confirmed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    if (err)
        redis_claim_unanswered(part, err);
    else if (is_token(reply))
        redis_claim_granted(part, (uint64_t)reply->integer);
    else
        redis_claim_request(part); /* it took us too long */
}

void redis_claim_confirm(struct redis_claim *part)
{
    struct stile_error err;
    stop_looking(part);
    part->standing = CONFIRMING;
    part->unanswered = part->told = false;
    part->sent_ns = loop_now(claim_of(part)->engine->loop);
    if (redis_replicas_confirm(part, NULL, on_confirmed, &err))
        redis_claim_unanswered(part, &err);
}

/* ---- resuming ---- */

/* What was requested when it was acquired, and what of it is over by now. */
static bool take_terms(struct redis_claim *part, const redisReply *reply)
{
    struct claim *claim = claim_of(part);
    const char *mode = text_at(reply, 1);
    if (!is_array(reply, 7) || !mode || !token_at(reply, 0) || !count_at(reply, 2) ||
        !redis_claim_take_mode(claim, mode))
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
        redis_claim_fail_to_resume(part, err);
    } else if (take_terms(part, reply)) {
        redis_claim_unlist(part); /* the lease that depends on the connection may be another */
        redis_claim_enlist(part);
        redis_identity_extend(redis_of_part(part), part);
        redis_claim_granted(part, token_at(reply, 0));
    } else if (is_number(reply) && reply->integer == 0) {
        error_set(&why, STILE_LOST, 0, "this owner value does not hold it (any more)");
        redis_claim_fail(part, &why);
    } else {
        error_set(&why, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        redis_claim_fail(part, &why);
    }
}

static enum stile_status send_resume(struct redis_claim *part, struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct numbers n;
    struct call call;
    redis_numbers_of(&n, claim, 0);
    redis_call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    redis_call_add(&call, part->owner);
    redis_call_add(&call, claim->ttl_given ? n.ttl : "");
    redis_call_add(&call, n.ttl);
    part->standing = CONFIRMING;
    part->sent_ns = loop_now(redis->engine.loop);
    return redis_call_send(&call, redis, &redis_script_resume, on_resumed, part, err);
}

void redis_claims_resume(struct engine *engine, struct claim *claim)
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
        redis_claim_fail_to_resume(part, &err);
}

void redis_claims_detach(struct engine *engine, struct claim *claim)
{
    redis_of(engine)->has_detached = true;
    redis_claim_leave_batch(part_of(claim));
    redis_claim_forget(part_of(claim));
}

const char *redis_claims_owner(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return part_of(claim)->owner;
}

/* ---- waiting ---- */

/* The first looks so long after the end of what is in its way; the others, lest all come at once,
 * some time later. */
#define LOOK_AFTER_NS (5 * NS_PER_MS)
#define LOOK_NEXT_NS  (250 * NS_PER_MS)
#define LOOK_NS       (1 * NS_PER_SEC)
#define LOOK_RANK_NS  (5 * NS_PER_MS)   /* for each that is ahead, where that is longer */
#define SURE_NS       (30 * NS_PER_SEC) /* and so often it asks, which also keeps the queue alive */
#define RESTLESS_NS   (300 * NS_PER_MS) /* another client's key that has changed since */

/* From half of it on, at random: many may look at the same name. */
static uint64_t about(struct redis_claim *part, uint64_t ns)
{
    uint64_t random = 0;
    loop_random(claim_of(part)->engine->loop, &random, sizeof random);
    return ns / 2 + random % (ns / 2 + 1);
}

/* What the server says about a waiter: see scripts/lib/status.lua. */
struct sight {
    long long ms, rank;
    const char *foreign; /* the value of another client's key, or "" */
};

/* A key that changes hands all the time is free for moments only: look often. One that does not is
 * looked at as often as its own kind would. */
static uint64_t poll_pause(struct redis_claim *part, const char *foreign)
{
    uint64_t now_ns = loop_now(claim_of(part)->engine->loop);
    uint64_t hash = name_hash(foreign, strlen(foreign));
    uint64_t poll_ns = redis_of_part(part)->poll_ms * NS_PER_MS;
    if (part->foreign_hash != hash)
        part->foreign_ns = now_ns;
    part->foreign_hash = hash;
    return about(part, now_ns - part->foreign_ns < RESTLESS_NS ? poll_ns / 4 : poll_ns * 4 / 3);
}

static uint64_t look_pause(struct redis_claim *part, const struct sight *sight)
{
    uint64_t pause = (uint64_t)sight->rank * LOOK_RANK_NS, ends = LOOK_AFTER_NS;
    pause = about(part, pause > LOOK_NS ? pause : LOOK_NS);
    if (*sight->foreign && redis_of_part(part)->poll_ms)
        pause = poll_pause(part, sight->foreign);
    if (sight->rank)
        ends += about(part, LOOK_NEXT_NS);
    if (sight->ms >= 0 && (uint64_t)sight->ms * NS_PER_MS + ends < pause)
        pause = (uint64_t)sight->ms * NS_PER_MS + ends;
    return pause;
}

static void arm_look(struct redis_claim *part, const struct sight *sight)
{
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t now_ns = loop_now(loop);
    if (*sight->foreign && !part->behind_ns)
        part->behind_ns = now_ns;
    loop_arm(loop, &part->timer, now_ns + look_pause(part, sight));
}

static struct sight sight_of(const redisReply *reply)
{
    const redisReply *foreign = reply->element[3];
    return (struct sight){number_at(reply, 1), number_at(reply, 2),
                          foreign->type == REDIS_REPLY_STRING ? foreign->str : ""};
}

static void on_looked(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    part->looking = false;
    if (err) {
        redis_claim_unanswered(part, err);
    } else if (is_array(reply, 4) && number_at(reply, 0) == 0) {
        struct sight sight = sight_of(reply);
        arm_look(part, &sight);
    } else {
        redis_claim_request(part);
    }
}

static void send_look(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    struct numbers n;
    struct call call;
    redis_call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    redis_claim_add_entry(&call, part, &n);
    redis_call_add(&call, n.slots);
    part->looking = true;
    if (redis_call_send(&call, redis, &redis_script_look, on_looked, part, &err)) {
        part->looking = false;
        redis_claim_unanswered(part, &err);
    }
}

void redis_claim_look(struct timer *timer)
{
    struct redis_claim *part =
        (struct redis_claim *)((char *)timer - offsetof(struct redis_claim, timer));
    bool sure = loop_now(claim_of(part)->engine->loop) >= part->sent_ns + SURE_NS;
    if (part->standing != IN_LINE)
        return;
    if (sure || part->unanswered || part->asked_at != claim_node(part))
        redis_claim_request(part);
    else if (!part->looking)
        send_look(part);
}

void redis_claim_unanswered(struct redis_claim *part, const struct stile_error *err)
{
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    if (part->has_waited && passing) {
        part->standing = IN_LINE;
        part->unanswered = true;
        arm_look(part, &(struct sight){.ms = -1, .foreign = ""});
        return;
    }
    if (part->has_waited)
        redis_claim_retract(part);
    redis_claim_fail(part, err);
}

/* Nobody is put in line before it can hear: the server would take it for dead. */
void redis_claim_wait_in_queue(struct redis_claim *part, const redisReply *reply)
{
    struct redis *redis = redis_of_part(part);
    struct claim *claim = claim_of(part);
    struct sight sight = sight_of(reply);
    struct stile_error err;
    part->standing = IN_LINE;
    part->has_waited = true;
    if (redis_route_listen(redis, claim->name, claim->name_len, &err))
        redis_claim_unanswered(part, &err);
    else if (part->told)
        redis_claim_confirm(part);
    else
        arm_look(part, &sight);
}

/* ---- hearing ---- */

static void hear_granted(struct redis_claim *part)
{
    if (part->standing == IN_LINE)
        redis_claim_confirm(part);
    else if (part->standing == ASKED)
        part->told = true;
}

static void hear_broken(struct redis_claim *part)
{
    struct stile_error err;
    if (part->standing != HOLDING)
        return;
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    part->may_be_there = false;
    claim_of(part)->engine->events->lost(claim_of(part), &err);
}

static void hear_pause(struct redis_claim *part, const char *text)
{
    char *rest;
    long long ms = strtoll(text, &rest, 10);
    if (part->standing == IN_LINE && rest != text && ms >= 0)
        arm_look(part, &(struct sight){.ms = ms, .foreign = ""});
}

/* "g owner", "h owner ms" or "b owner"; anybody may publish anything, so it is a hint at most. */
void redis_claims_message(struct redis *redis, const char *text, size_t len)
{
    if (len < 2 + OWNER_LEN || text[1] != ' ')
        return;
    struct redis_claim *part = redis_claim_find(redis, text + 2);
    if (!part)
        return;
    if (text[0] == 'g')
        hear_granted(part);
    else if (text[0] == 'b')
        hear_broken(part);
    else if (text[0] == 'h')
        hear_pause(part, text + 2 + OWNER_LEN);
}

/* ---- asking again ---- */

/* In the order in which they were asked for: some may not be in line yet, or not any more, and what
 * is on its way to others may be from before. */
void redis_claims_look_again(struct node *node)
{
    for (struct redis_claim *part = node->redis->oldest, *next; part; part = next) {
        bool asked = part->standing == ASKED && claim_of(part)->wait && !part->taking;
        next = part->newer;
        if (claim_node(part) != node)
            continue;
#ifdef MUTANT_REDIS_LATE_ANSWER_COUNTS
        asked = asked && !part->has_waited;
#endif
#ifdef MUTANT_REDIS_DEAF_FOR_GOOD
        if (!asked)
            continue;
#endif
        if (asked)
            redis_route_forget(node->redis, part);
        if (asked || part->standing == IN_LINE) {
            part->has_waited = true;
            redis_claim_request(part);
        }
    }
}

void redis_claims_request_again(struct node *node)
{
    for (struct redis_claim *part = node->redis->oldest, *next; part; part = next) {
        next = part->newer;
        if (part->standing == IN_LINE && part->unanswered && claim_node(part) == node)
            redis_claim_request(part);
    }
}

void redis_claims_follow(struct redis *redis)
{
    for (struct redis_claim *part = redis->oldest, *next; part; part = next) {
        next = part->newer;
        if (part->standing == IN_LINE && part->asked_at != claim_node(part)) {
            part->has_waited = true;
            redis_claim_request(part);
        }
    }
}

/* ---- release ---- */

#define SAY_AGAIN_NS      (20 * NS_PER_MS)
#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)

static void left(struct redis_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    redis_claim_forget(part);
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
    redis_call_begin(&call, GIVE_KEYS, redis, claim->name, claim->name_len);
    redis_call_add(&call, part->owner);
    return redis_call_send(&call, redis, &redis_script_give, on_given, part, err);
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
    redis_call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    redis_claim_add_entry(&call, part, &n);
    redis_call_add(&call, used ? n.hold : "0");
#ifdef MUTANT_REDIS_LOSS_WITHOUT_DELAY
    strcpy(n.delay, "0");
#endif
    redis_call_add(&call, claim->lost ? n.delay : "0");
    return redis_call_send(&call, redis, &redis_script_release, fn, data, err);
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

void redis_claims_release(struct engine *engine, struct claim *claim)
{
    struct redis_claim *part = part_of(claim);
    bool held = part->standing == HOLDING;
    redis_claim_leave_batch(part);
    redis_route_forget(redis_of(engine), part);
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

void redis_claim_retract(struct redis_claim *part)
{
    send_release(part, on_retracted, redis_of_part(part), NULL);
}
