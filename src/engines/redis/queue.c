/* Standing in line: the server says who is granted. Such a message may get lost, the waiters before
 * this one may have died, another client's key ends without a word to us, and anybody may delete
 * anything by hand. So a waiter also looks by itself: when what is in its way must have ended, and
 * once a second in any case. A look changes nothing and costs the server next to nothing; only one
 * that finds something to be done asks again. In a long queue those far behind look less often:
 * they are not needed before all those ahead of them have died at once. */
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/redis/redis.h"
#include "mutant.h"

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
        claim_unanswered(part, err);
    } else if (is_array(reply, 4) && number_at(reply, 0) == 0) {
        struct sight sight = sight_of(reply);
        arm_look(part, &sight);
    } else {
        claim_ask(part);
    }
}

static void send_look(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    struct numbers n;
    struct call call;
    call_begin(&call, SCRIPT_KEYS, redis, claim->name, claim->name_len);
    claim_add_entry(&call, part, &n);
    call_add(&call, n.slots);
    part->looking = true;
    if (call_send(&call, redis, &redis_script_look, on_looked, part, &err)) {
        part->looking = false;
        claim_unanswered(part, &err);
    }
}

void claim_look(struct timer *timer)
{
    struct redis_claim *part =
        (struct redis_claim *)((char *)timer - offsetof(struct redis_claim, timer));
    bool sure = loop_now(claim_of(part)->engine->loop) >= part->sent_ns + SURE_NS;
    if (part->standing != IN_LINE)
        return;
    if (sure || part->unanswered || part->asked_at != claim_node(part))
        claim_ask(part);
    else if (!part->looking)
        send_look(part);
}

void claim_unanswered(struct redis_claim *part, const struct stile_error *err)
{
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    if (part->has_waited && passing) {
        part->standing = IN_LINE;
        part->unanswered = true;
        arm_look(part, &(struct sight){.ms = -1, .foreign = ""});
        return;
    }
    if (part->has_waited)
        claim_retract(part);
    claim_fail(part, err);
}

/* Nobody is put in line before it can hear: the server would take it for dead. */
void claim_stand_in_line(struct redis_claim *part, const redisReply *reply)
{
    struct redis *redis = redis_of_part(part);
    struct claim *claim = claim_of(part);
    struct sight sight = sight_of(reply);
    struct stile_error err;
    part->standing = IN_LINE;
    part->has_waited = true;
    if (route_listen(redis, claim->name, claim->name_len, &err))
        claim_unanswered(part, &err);
    else if (part->told)
        claim_confirm(part);
    else
        arm_look(part, &sight);
}

/* ---- hearing ---- */

static void hear_granted(struct redis_claim *part)
{
    if (part->standing == IN_LINE)
        claim_confirm(part);
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
void claims_hear(struct redis *redis, const char *text, size_t len)
{
    if (len < 2 + OWNER_LEN || text[1] != ' ')
        return;
    struct redis_claim *part = claim_find(redis, text + 2);
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
void claims_look_again(struct node *node)
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
            route_forget(node->redis, part);
        if (asked || part->standing == IN_LINE) {
            part->has_waited = true;
            claim_ask(part);
        }
    }
}

void claims_ask_again(struct node *node)
{
    for (struct redis_claim *part = node->redis->oldest, *next; part; part = next) {
        next = part->newer;
        if (part->standing == IN_LINE && part->unanswered && claim_node(part) == node)
            claim_ask(part);
    }
}

void claims_follow(struct redis *redis)
{
    for (struct redis_claim *part = redis->oldest, *next; part; part = next) {
        next = part->newer;
        if (part->standing == IN_LINE && part->asked_at != claim_node(part)) {
            part->has_waited = true;
            claim_ask(part);
        }
    }
}
