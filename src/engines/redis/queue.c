/* Standing in line: the server tells who is granted. A message may get lost and a holder may be a
 * stranger who tells nobody, so that who waits also looks by itself: when what is in its way must
 * have ended, or at random times that become rarer. */
#include <stdlib.h>
#include <string.h>

#include "engines/redis/redis.h"
#include "mutant.h"

#define LOOK_AFTER_NS (5 * NS_PER_MS)   /* behind the end of what is in the way */
#define LOOK_MIN_NS   (100 * NS_PER_MS) /* where that may end in silence */
#define LOOK_MAX_NS   (5 * NS_PER_SEC)
#define DEAF_NS       (1 * NS_PER_SEC) /* not in line, as we can't hear: that should end soon */

void claim_look(struct timer *timer)
{
    struct redis_claim *part =
        (struct redis_claim *)((char *)timer - offsetof(struct redis_claim, timer));
    if (part->standing == IN_LINE)
        claim_ask(part);
}

/* Up to LOOK_MIN, doubled with each look, at random: many may look at the same name. */
static uint64_t some_time(struct redis_claim *part)
{
    uint64_t limit = LOOK_MIN_NS << (part->looks < 6 ? part->looks : 6), random = 0;
    part->looks++;
    limit = limit < LOOK_MAX_NS ? limit : LOOK_MAX_NS;
    loop_random(claim_of(part)->engine->loop, &random, sizeof random);
    return LOOK_AFTER_NS + random % limit;
}

/* ms: -1 if it never ends. In silence: another client's key. */
static void arm_look(struct redis_claim *part, long long ms, bool silent)
{
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t pause = ms < 0 ? LOOK_MAX_NS : (uint64_t)ms * NS_PER_MS + LOOK_AFTER_NS;
    uint64_t earlier = silent || ms < 0 ? some_time(part) : NEVER;
    if (!claim_node(part)->hearing)
        earlier = DEAF_NS + some_time(part);
    loop_arm(loop, &part->timer, loop_now(loop) + (earlier < pause ? earlier : pause));
}

void claim_unanswered(struct redis_claim *part, const struct stile_error *err)
{
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    if (part->has_waited && passing) {
        part->standing = IN_LINE;
        part->unanswered = true;
        arm_look(part, -1, true);
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
    struct stile_error err;
    part->standing = IN_LINE;
    part->has_waited = true;
    if (route_listen(redis, claim->name, claim->name_len, &err))
        claim_unanswered(part, &err);
    else if (part->told)
        claim_confirm(part);
    else
        arm_look(part, number_at(reply, 1), number_at(reply, 2) == 1);
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
    if (part->standing == IN_LINE)
        arm_look(part, ms, strcmp(rest, " 1") == 0);
}

/* "g owner", "h owner ms silent" or "b owner"; anybody may publish anything, so it is a hint at
 * most. */
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
