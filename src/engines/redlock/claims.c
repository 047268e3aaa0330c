/* Claims: asking all nodes, and being granted by a majority of votes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"
#include "engines/redlock/redlock.h"
#include "mutant.h"

#define SPLITS_MAX      8 /* tries that may end in a split vote */
#define SPLIT_FIRST_NS  (5 * NS_PER_MS)
#define SPLIT_PAUSE_MAX (200 * NS_PER_MS)

/* ---- by owner ---- */

static unsigned head_of(const char *owner)
{
    unsigned head = 0;
    for (size_t i = OWNER_LEN - 8; i < OWNER_LEN; i++)
        head = head * 31 + (unsigned char)owner[i];
    return head % OWNER_HEADS;
}

static void enlist(struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part(part);
    struct redlock_claim **head = &redlock->by_owner[head_of(part->owner)];
    part->next = *head;
    *head = part;
    part->older = redlock->newest;
    part->newer = NULL;
    *(redlock->newest ? &redlock->newest->newer : &redlock->oldest) = part;
    redlock->newest = part;
    part->listed = true;
    part->stake = stakes_add(&redlock->stakes, claim_of(part)->ttl_ns);
}

static void unlist(struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part(part);
    struct redlock_claim **at = &redlock->by_owner[head_of(part->owner)];
    if (!part->listed)
        return;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    *(part->older ? &part->older->newer : &redlock->oldest) = part->newer;
    *(part->newer ? &part->newer->older : &redlock->newest) = part->older;
    part->listed = false;
    stakes_remove(&redlock->stakes, part->stake);
}

struct redlock_claim *part_find(struct redlock *redlock, const char *owner)
{
    struct redlock_claim *part = redlock->by_owner[head_of(owner)];
    while (part && memcmp(part->owner, owner, OWNER_LEN) != 0)
        part = part->next;
    return part;
}

/* ---- the end of a claim ---- */

void part_forget(struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part(part);
    for (unsigned i = 0; i < redlock->n; i++)
        vote_unasked(&part->votes[i]);
    if (part->has_timer) {
        loop_disarm(redlock->engine.loop, &part->timer);
        loop_unreserve(redlock->engine.loop, 1);
    }
    part->has_timer = false;
    unlist(part);
    part->standing = NOWHERE;
}

void part_fail(struct redlock_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    errand_withdraw(part);
    part_forget(part);
    claim->engine->events->failed(claim, err);
}

static uint64_t soonest_ns(const struct redlock_claim *part, unsigned n)
{
    int64_t ms = -1;
    for (unsigned i = 0; i < n; i++) {
        const struct vote *vote = &part->votes[i];
        if (vote->answer == TAKEN && vote->ms > 0 && (ms < 0 || vote->ms < ms))
            ms = vote->ms;
    }
    return ms > 0 ? (uint64_t)ms * NS_PER_MS : 0;
}

void part_busy(struct redlock_claim *part)
{
    struct claim *claim = claim_of(part);
    uint64_t hint_ns = soonest_ns(part, redlock_of_part(part)->n);
    errand_withdraw(part);
    part_forget(part);
    claim->engine->events->busy(claim, hint_ns);
}

/* ---- granted ---- */

static void grant(struct redlock_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redlock *redlock = redlock_of_part(part);
    uint64_t now_ns = loop_now(redlock->engine.loop);
    loop_disarm(redlock->engine.loop, &part->timer);
    if (part->standing != RESUMING || !part->granted_ns)
        part->granted_ns = now_ns;
    part->standing = HOLDING;
    part->last_token = part->token;
    part->contended = part->in_line;
    nodes_listen(redlock); /* so that `stile break` is heard; a renewal would notice, too */
#ifdef MUTANT_REDLOCK_VALID_FROM_ANSWER
    part->sent_ns = now_ns;
#endif
    claim->engine->events->granted(claim, part->token, part->sent_ns, claim->ttl_ns);
}

static void firm_up(struct redlock_claim *part)
{
    part->standing = FIRMING;
    part->looking = part->gathering = false;
    loop_disarm(claim_of(part)->engine->loop, &part->timer);
    votes_firm_up(part);
}

/* ---- not granted (yet) ---- */

static void unreachable(struct redlock_claim *part, const struct count *count)
{
    struct stile_error err;
    nodes_explain(redlock_of_part(part), count->answering, &err);
    part_fail(part, &err);
}

void part_try_again(struct redlock_claim *part)
{
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t random = 0, limit = SPLIT_FIRST_NS << part->tries;
    if (part->tries >= SPLITS_MAX) {
        part_busy(part);
        return;
    }
    part->tries++;
#ifndef MUTANT_REDLOCK_RETRY_WITHOUT_WITHDRAWAL
    errand_withdraw(part);
#endif
    votes_clear(part);
    unlist(part);
    part->standing = PAUSED;
    loop_random(loop, &random, sizeof random);
    limit = limit < SPLIT_PAUSE_MAX ? limit : SPLIT_PAUSE_MAX;
    loop_arm(loop, &part->timer, loop_now(loop) + random % limit);
}

/* A new owner value for each attempt: what is late of an earlier one can't touch a later one. */
static bool draw(struct redlock_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    int rc = who_draw_owner(part->owner, redlock_of_part(part)->channel, claim->engine->loop);
    if (!rc)
        return true;
    error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
    part_forget(part);
    claim->engine->events->failed(claim, &err);
    return false;
}

static void ask_anew(struct redlock_claim *part)
{
    if (!draw(part))
        return;
    enlist(part);
    part->standing = ASKING;
    part->looking = true;
    /* Once the plain SET has failed, the nodes have to tell who holds it. */
    votes_ask(part, !redlock_of_part(part)->fenced);
    part_weigh(part);
}

/* No majority can be had any more. The vote is split if nobody else can have one either. */
static void weigh_try(struct redlock_claim *part, const struct count *count)
{
    unsigned majority = redlock_of_part(part)->majority;
    const struct vote *rival;
    if (votes_are_open(count, majority))
        return;
    if (count->mine + count->taken + count->pending < majority) {
        if (count->awaited > 0)
            return; /* so that it can be said of each node what the matter is */
        if (count->apart && group_is_newer(part))
            part_try_again(part);
        else
            unreachable(part, count);
        return;
    }
    unsigned most = votes_rival(part, &rival);
    unsigned unknown = count->down + count->apart + count->pending;
    if (!part->bare && most < majority && count->awaited > 0)
        return; /* it is held, or split: the others will tell */
    bool held = part->bare ? count->mine == 0 : most + unknown >= majority;
    if (held)
        part_busy(part);
    else
        part_try_again(part);
}

/* The condition of phase 2 decides: where a fence was not smaller, a larger token may do. */
static void weigh_firming(struct redlock_claim *part, const struct count *count)
{
    unsigned majority = redlock_of_part(part)->majority;
    if (count->firm + count->awaited >= majority)
        return;
    if (count->mine >= majority && part->rounds < SPLITS_MAX) {
        part->rounds++;
        votes_firm_up(part);
        return;
    }
    if (count->firm + count->pending >= majority)
        return; /* only those who are silent can help */
    part->standing = ASKING;
    if (claim_of(part)->wait)
        wait_again(part);
    else
        part_try_again(part);
}

/* Never withdrawn: somebody works under it. */
static void weigh_resuming(struct redlock_claim *part, const struct count *count)
{
    struct redlock *redlock = redlock_of_part(part);
    struct claim *claim = claim_of(part);
    struct stile_error err;
    if (count->pending > 0 && count->taken < redlock->majority)
        return;
    if (count->firm >= redlock->majority)
        error_set(&err, STILE_LOST, 0, "the fences do not know its token any more");
    else if (count->firm + count->taken >= redlock->majority)
        error_set(&err, STILE_LOST, 0, "this owner value does not hold it (any more)");
    else
        nodes_explain(redlock, count->answering, &err);
    part_forget(part);
    claim->engine->events->failed(claim, &err);
}

/* A grant that is resumed needs its token as well. */
static bool has_majority(const struct redlock_claim *part, const struct count *count,
                         const struct redlock *redlock)
{
    bool token_known = part->standing != RESUMING || part->token || !redlock->fenced;
#ifdef MUTANT_REDLOCK_NO_MAJORITY
    return token_known && count->firm + 1 >= redlock->majority;
#endif
    return token_known && count->firm >= redlock->majority;
}

void part_weigh(struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part(part);
    struct count count;
    votes_count(&count, part);
    if (part->standing == HOLDING || part->standing == NOWHERE || part->standing == PAUSED)
        return;
    if (has_majority(part, &count, redlock))
        grant(part);
    else if (part->standing == RESUMING)
        weigh_resuming(part, &count);
    else if (part->standing == FIRMING)
        weigh_firming(part, &count);
    else if (count.mine >= redlock->majority)
        firm_up(part);
    else if (claim_of(part)->wait)
        wait_weigh(part, &count);
    else
        weigh_try(part, &count);
}

/* ---- asking ---- */

static void on_timer(struct timer *timer)
{
    struct redlock_claim *part =
        (struct redlock_claim *)((char *)timer - offsetof(struct redlock_claim, timer));
    if (part->standing == PAUSED)
        ask_anew(part);
    else if (part->standing == ASKING)
        wait_timer(part);
}

static bool begin(struct redlock_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    if (loop_reserve(claim->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        claim->engine->events->failed(claim, &err);
        return false;
    }
    part->has_timer = true;
    part->timer.fn = on_timer;
    part->tries = part->looks = part->rounds = 0;
    part->in_line = part->looking = part->gathering = false;
    part->granted_ns = 0;
    votes_clear(part);
    return true;
}

void redlock_claim(struct engine *engine, struct claim *claim)
{
    struct redlock_claim *part = part_of(claim);
    struct stile_error err;
    if (keys_are_ours((struct redlock *)engine, claim->name)) {
        error_set(&err, STILE_REFUSED, 0,
                  "with this prefix the name is that of " NODE_KEY
                  ", where each node keeps what it knows of its group: choose another one");
        engine->events->failed(claim, &err);
        return;
    }
    if (!begin(part) || !draw(part))
        return;
    enlist(part);
    part->standing = ASKING;
    part->looking = true;
    votes_ask(part, false);
    part_weigh(part);
}

void redlock_resume(struct engine *engine, struct claim *claim)
{
    struct redlock_claim *part = part_of(claim);
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
    enlist(part);
    part->standing = RESUMING;
    part->token = 0;
    for (unsigned i = 0; i < redlock_of(engine)->n; i++)
        part->votes[i].touched = true; /* by who had it before */
    votes_confirm(part);
    part_weigh(part);
}

void redlock_detach(struct engine *engine, struct claim *claim)
{
    (void)engine;
    part_leave_batch(part_of(claim));
    part_forget(part_of(claim));
}

const char *redlock_owner(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return part_of(claim)->owner;
}
