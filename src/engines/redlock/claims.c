/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A claim: asking all nodes, waiting in their queues, and being granted by a majority of votes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"
#include "engines/redlock/redlock.h"

#define SPLITS_MAX      8 /* tries that may end in a split vote */
#define SPLIT_FIRST_NS  (5 * NS_PER_MS)
#define SPLIT_PAUSE_MAX (200 * NS_PER_MS)
#define GATHER_NS       (10 * NS_PER_MS) /* for the other nodes' messages; doubled each round */
#define GATHER_ROUNDS   5
#define LOOK_AFTER_NS   (5 * NS_PER_MS)   /* after the key in the way has expired */
#define LOOK_MIN_NS     (100 * NS_PER_MS) /* where that key may go without a message */
#define LOOK_MAX_NS     (5 * NS_PER_SEC)
#define UNSUBSCRIBED_NS NS_PER_SEC /* not queued: messages can not arrive yet */
#define PLACE_NS        NS_PER_SEC /* for each waiter before this one */
#define PLACES_MAX      30

static void evaluate(struct redlock_claim *claim);

/* ---- claims by owner ---- */

/* Claims that messages may be for. */
static bool is_listed(enum claim_state state)
{
    return state != IDLE && state != PAUSED;
}

static bool is_phase1(enum claim_state state)
{
    return state == ASKING || state == QUEUED || state == GATHERING;
}

static void list_claim(struct redlock_claim *claim)
{
    struct redlock *redlock = redlock_of_claim(claim);
    leased_add(&redlock->claims, &claim->leased);
    claim->lease_kind = link_leases_add(&redlock->leases, redlock_base(claim)->ttl_ns);
}

static void unlist_claim(struct redlock_claim *claim)
{
    struct redlock *redlock = redlock_of_claim(claim);
    leased_remove(&redlock->claims, &claim->leased);
    link_leases_remove(&redlock->leases, claim->lease_kind);
}

static struct redlock_claim *find(struct redlock *redlock, const char *owner)
{
    return (struct redlock_claim *)leased_find(&redlock->claims, owner, OWNER_LEN);
}

/* ---- states ---- */

#define TO(state) (1u << (state))

/* What may follow. */
static const unsigned transitions[] = {
    [IDLE] = TO(ASKING) | TO(RESUMING),
    [ASKING] = TO(ASKING) | TO(QUEUED) | TO(VOTING) | TO(PAUSED) | TO(HELD) | TO(IDLE),
    [QUEUED] = TO(ASKING) | TO(GATHERING) | TO(VOTING) | TO(HELD) | TO(IDLE),
    [GATHERING] = TO(ASKING) | TO(VOTING) | TO(HELD) | TO(IDLE),
    [VOTING] = TO(GATHERING) | TO(PAUSED) | TO(HELD) | TO(IDLE),
    [RESUMING] = TO(HELD) | TO(IDLE),
    [PAUSED] = TO(ASKING) | TO(IDLE),
    [HELD] = TO(IDLE),
};

static void enter(struct redlock_claim *claim, enum claim_state state)
{
    enum claim_state before = claim->state;
    assert(transitions[before] & TO(state));
    claim->state = state;
    if (is_listed(state) && !is_listed(before))
        list_claim(claim);
    else if (is_listed(before) && !is_listed(state))
        unlist_claim(claim);
}

/* ---- the end of a claim ---- */

static void forget(struct redlock_claim *claim)
{
    struct redlock *redlock = redlock_of_claim(claim);
    for (unsigned i = 0; i < redlock->n; i++)
        redlock_vote_cancel(&claim->votes[i]);
    if (claim->state == IDLE)
        return;
    loop_disarm(redlock->engine.loop, &claim->timer);
    loop_unreserve(redlock->engine.loop, 1);
    enter(claim, IDLE);
}

static void fail(struct redlock_claim *claim, const struct stile_error *err)
{
    struct claim *base = redlock_base(claim);
    redlock_removal_withdraw(claim);
    forget(claim);
    base->engine->events->failed(base, err);
}

static uint64_t soonest_ns(const struct redlock_claim *claim, unsigned n)
{
    int64_t ms = -1;
    for (unsigned i = 0; i < n; i++) {
        const struct vote *vote = &claim->votes[i];
        if (vote->answer == TAKEN && vote->ms > 0 && (ms < 0 || vote->ms < ms))
            ms = vote->ms;
    }
    return ms > 0 ? (uint64_t)ms * NS_PER_MS : 0;
}

static void end_busy(struct redlock_claim *claim)
{
    struct claim *base = redlock_base(claim);
    uint64_t hint_ns = soonest_ns(claim, redlock_of_claim(claim)->n);
    redlock_removal_withdraw(claim);
    forget(claim);
    base->engine->events->busy(base, hint_ns);
}

/* ---- answers ---- */

static void on_answer(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct vote *vote = data;
    struct redlock_claim *claim = claim_of_vote(vote);
    bool pushed = redlock_vote_take(vote, reply, err);
    if (pushed && vote->answer == OURS && !is_phase1(claim->state) && vote->fence < claim->token)
        redlock_vote_phase2(vote, on_answer);
    redlock_check_if_due(vote);
    if (!redlock_broken_lose(claim))
        evaluate(claim);
}

/* The age of what is resumed: hold_at_least counts from its grant. */
static void on_confirmed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct vote *vote = data;
    struct redlock_claim *claim = claim_of_vote(vote);
    redlock_vote_take(vote, reply, err);
    if (vote->answer == CONFIRMED && is_array(reply, 3) && vote->fence > claim->token) {
        uint64_t now_ns = loop_now(redlock_base(claim)->engine->loop);
        uint64_t age_ns = count_at(reply, 2) * NS_PER_MS;
        claim->token = vote->fence;
        claim->granted_ns = age_ns < now_ns ? now_ns - age_ns : 0;
    }
    redlock_check_if_due(vote);
    evaluate(claim);
}

/* ---- granted ---- */

static void grant(struct redlock_claim *claim)
{
    struct claim *base = redlock_base(claim);
    struct redlock *redlock = redlock_of_claim(claim);
    uint64_t now_ns = loop_now(redlock->engine.loop);
    loop_disarm(redlock->engine.loop, &claim->timer);
    if (claim->state != RESUMING || !claim->granted_ns)
        claim->granted_ns = now_ns;
    enter(claim, HELD);
    claim->was_held = true;
    claim->last_token = claim->token;
    claim->contended = claim->has_waited;
    claim->renewed_ns = claim->sent_ns;
    /* For the message of `stile break`; a renewal would notice, too. */
    redlock_nodes_subscribe(redlock);
    for (unsigned i = 0; i < redlock->n; i++)
        redlock_check_if_due(&claim->votes[i]);
    base->engine->events->granted(base, claim->token, claim->sent_ns, base->ttl_ns);
}

static void start_phase2(struct redlock_claim *claim)
{
    enter(claim, VOTING);
    loop_disarm(redlock_base(claim)->engine->loop, &claim->timer);
    redlock_votes_phase2(claim, on_answer);
}

/* ---- not granted (yet) ---- */

static void unreachable(struct redlock_claim *claim, const struct count *count)
{
    struct stile_error err;
    redlock_nodes_explain(redlock_of_claim(claim), count->answering, &err);
    fail(claim, &err);
}

static void try_again(struct redlock_claim *claim)
{
    struct loop *loop = redlock_base(claim)->engine->loop;
    uint64_t random = 0, limit = SPLIT_FIRST_NS << claim->tries;
    if (claim->tries >= SPLITS_MAX) {
        end_busy(claim);
        return;
    }
    claim->tries++;
    redlock_removal_withdraw(claim);
    redlock_votes_clear(claim);
    enter(claim, PAUSED);
    loop_random(loop, &random, sizeof random);
    limit = limit < SPLIT_PAUSE_MAX ? limit : SPLIT_PAUSE_MAX;
    loop_arm(loop, &claim->timer, loop_now(loop) + random % limit);
}

/* A new owner value for each attempt: late requests of an earlier one can't touch a later one. */
static bool draw(struct redlock_claim *claim)
{
    struct claim *base = redlock_base(claim);
    struct stile_error err;
    int rc =
        redis_owner_draw(claim->leased.owner, redlock_of_claim(claim)->channel, base->engine->loop);
    if (!rc)
        return true;
    error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
    forget(claim);
    base->engine->events->failed(base, &err);
    return false;
}

static void ask_anew(struct redlock_claim *claim)
{
    if (!draw(claim))
        return;
    enter(claim, ASKING);
    /* Once the plain SET has failed, the nodes have to report the holder. */
    redlock_votes_ask(claim, !redlock_of_claim(claim)->fenced, on_answer);
    evaluate(claim);
}

/* ---- waiting ---- */

/* A waiter is queued on all nodes. A release hands each node's key to the first in its queue; a
 * waiter that was handed a majority goes on to phase 2. Queues may differ, and then no waiter has a
 * majority: after a moment each of them asks all nodes again, and all but one give their keys to
 * that one. */

static uint64_t random_below(struct redlock_claim *claim, uint64_t limit)
{
    uint64_t random = 0;
    loop_random(redlock_base(claim)->engine->loop, &random, sizeof random);
    return random % limit;
}

static void arm(struct redlock_claim *claim, uint64_t ns)
{
    struct loop *loop = redlock_base(claim)->engine->loop;
    loop_arm(loop, &claim->timer, loop_now(loop) + ns);
}

static bool is_owner_value(const char *holder)
{
    return strlen(holder) == OWNER_LEN && strspn(holder, "0123456789abcdef") == OWNER_LEN;
}

/* ---- when to ask again without a message ---- */

/* Up to LOOK_MIN, doubled each time, at random: many clients may ask about the same name. */
static uint64_t backoff_ns(struct redlock_claim *claim)
{
    uint64_t limit = LOOK_MIN_NS << (claim->looks < 6 ? claim->looks : 6);
    claim->looks++;
    return LOOK_AFTER_NS + random_below(claim, limit < LOOK_MAX_NS ? limit : LOOK_MAX_NS);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* When a majority of the keys must have expired. */
static uint64_t until_free_ns(const struct redlock_claim *claim, const struct redlock *redlock,
                              unsigned ours)
{
    int64_t ends[NODES_MAX];
    size_t n = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        if (claim->votes[i].answer == TAKEN && claim->votes[i].ms >= 0)
            ends[n++] = claim->votes[i].ms;
    }
    if (ours + n < redlock->majority)
        return LOOK_MAX_NS;
    qsort(ends, n, sizeof *ends, by_size);
    return ours < redlock->majority ? (uint64_t)ends[redlock->majority - ours - 1] * NS_PER_MS : 0;
}

/* The best place in any queue; and whether the claim may have to look without a message: a key is
 * in the way that may go silently, or it stands in no queue, since no node has taken its request.
 */
static unsigned foremost_place(const struct redlock_claim *claim, const struct redlock *redlock,
                               bool *silent)
{
    int place = PLACES_MAX;
    bool queued = false;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct vote *vote = &claim->votes[i];
        if (vote->answer != TAKEN)
            continue;
        queued |= vote->place >= 0;
        if (vote->place >= 0 && vote->place < place)
            place = vote->place;
        *silent |= !is_owner_value(vote->holder) && vote->holder[0] != '~';
    }
    *silent |= !queued;
    return (unsigned)place;
}

static bool is_subscribed(const struct redlock *redlock)
{
    unsigned n = 0;
    for (unsigned i = 0; i < redlock->n; i++)
        n += redlock->nodes[i].subscribed;
    return n >= redlock->majority;
}

/* Some keys become free without a message and before the lease ends: a key deleted by hand, a node
 * that is no longer quiet or has been repaired. So the first waiter asks again every few seconds.
 * */
static void arm_look(struct redlock_claim *claim, unsigned ours)
{
    struct redlock *redlock = redlock_of_claim(claim);
    bool silent = false;
    unsigned place = foremost_place(claim, redlock, &silent);
    uint64_t pause = until_free_ns(claim, redlock, ours) + LOOK_AFTER_NS;
    pause = (pause < LOOK_MAX_NS ? pause : LOOK_MAX_NS) + place * PLACE_NS;
    pause += random_below(claim, 4 * LOOK_AFTER_NS);
    uint64_t earlier = silent ? backoff_ns(claim) : pause;
    if (!is_subscribed(redlock))
        earlier = UNSUBSCRIBED_NS + backoff_ns(claim);
    arm(claim, earlier < pause ? earlier : pause);
}

/* ---- asking again ---- */

static void look(struct redlock_claim *claim)
{
    enter(claim, ASKING);
    redlock_votes_ask(claim, true, on_answer);
    evaluate(claim);
}

static void retry_after_phase2(struct redlock_claim *claim)
{
    unsigned round = claim->rounds < GATHER_ROUNDS ? claim->rounds : GATHER_ROUNDS;
    claim->rounds++;
    enter(claim, GATHERING);
    arm(claim, random_below(claim, GATHER_NS << round));
}

static void gather(struct redlock_claim *claim)
{
    unsigned round = claim->rounds < GATHER_ROUNDS ? claim->rounds : GATHER_ROUNDS;
    enter(claim, GATHERING);
    arm(claim, (GATHER_NS << round) + random_below(claim, GATHER_NS << round));
}

static void yield(struct redlock_claim *claim, const char *to)
{
    struct redlock *redlock = redlock_of_claim(claim);
    for (unsigned i = 0; i < redlock->n; i++) {
        enum answer answer = claim->votes[i].answer;
        if (answer == OURS || answer == CONFIRMED)
            redlock_vote_yield(&claim->votes[i], to);
    }
}

/* Some keys are ours, but too few. All waiters that ask see the same and decide alike. Keys that
 * another client's locks keep from being a majority are not given away: that client has no queue to
 * be handed them. */
static void settle_split(struct redlock_claim *claim, unsigned ours)
{
    struct redlock *redlock = redlock_of_claim(claim);
    const struct vote *rival;
    unsigned most = redlock_votes_rival(claim, &rival);
    bool ahead = ours > most || (ours == most && strcmp(claim->leased.owner, rival->holder) < 0);
    if (rival && is_owner_value(rival->holder) && (most >= redlock->majority || !ahead)) {
        char to[OWNER_LEN + 1];
        memcpy(to, rival->holder, sizeof to);
        yield(claim, to);
        claim->rounds = 0;
        arm_look(claim, 0);
    } else if (most >= redlock->majority) {
        arm_look(claim, ours);
    } else if (claim->rounds++ < GATHER_ROUNDS) {
        gather(claim);
    } else {
        yield(claim, "");
        claim->rounds = 0;
        arm_look(claim, 0);
    }
}

/* Every node that will answer has; or one more answer can't change anything. */
static void settle_look(struct redlock_claim *claim, const struct count *count)
{
    enter(claim, QUEUED);
    claim->has_waited = claim->contended = true;
    redlock_base(claim)->engine->events->queued(redlock_base(claim));
    redlock_nodes_subscribe(redlock_of_claim(claim));
    if (claim->plain)
        look(claim); /* the plain SET has failed: now the nodes have to report more, and queue us */
    else if (count->ours > 0)
        settle_split(claim, count->ours);
    else
        arm_look(claim, 0);
}

static void on_wait_timer(struct redlock_claim *claim)
{
    struct count count;
    redlock_votes_count(&count, claim);
    if (claim->state == ASKING && count.ours + count.taken >= redlock_of_claim(claim)->majority)
        settle_look(claim, &count);
    else
        look(claim);
}

/* Its place in the queues is kept, and it asks again later, which finds whatever has happened. */
static void end_unanswered(struct redlock_claim *claim, const struct count *count)
{
    struct stile_error err;
    bool passing =
        redlock_nodes_explain(redlock_of_claim(claim), count->answering, &err) == STILE_UNREACHABLE;
    if (passing && (claim->has_waited || (count->other_epoch && redlock_group_is_newer(claim)))) {
        enter(claim, QUEUED);
        redlock_base(claim)->engine->events->queued(redlock_base(claim));
        arm(claim, backoff_ns(claim));
    } else {
        fail(claim, &err);
    }
}

/* What was known of the other claims when it asked last may be over: no reason to give way. */
static void evaluate_queued(struct redlock_claim *claim, const struct count *count)
{
    if (count->ours > 0)
        gather(claim);
    else if (count->awaited == 0)
        arm_look(claim, 0);
}

static void evaluate_wait(struct redlock_claim *claim, const struct count *count)
{
    unsigned majority = redlock_of_claim(claim)->majority;
    const struct vote *rival;
    if (claim->state == QUEUED)
        evaluate_queued(claim, count);
    if (claim->state != ASKING)
        return;
    bool enough = count->ours + count->taken >= majority;
    if (count->ours + count->taken + count->pending < majority && count->awaited == 0)
        end_unanswered(claim, count);
    else if (enough && (count->awaited == 0 || redlock_votes_rival(claim, &rival) >= majority))
        settle_look(claim, count);
    else if (enough && !claim->timer.place)
        arm(claim, GATHER_NS); /* for a node that has just become silent */
}

/* ---- the outcome ---- */

/* Once no majority can be won: the vote is split if no other claim can win one either. */
static void evaluate_try(struct redlock_claim *claim, const struct count *count)
{
    unsigned majority = redlock_of_claim(claim)->majority;
    const struct vote *rival;
    if (redlock_votes_are_open(count, majority))
        return;
    if (count->ours + count->taken + count->pending < majority) {
        if (count->awaited > 0)
            return; /* so that the error can name each node's trouble */
        if (count->other_epoch && redlock_group_is_newer(claim))
            try_again(claim);
        else
            unreachable(claim, count);
        return;
    }
    unsigned most = redlock_votes_rival(claim, &rival);
    unsigned unknown = count->down + count->other_epoch + count->pending;
    if (!claim->plain && most < majority && count->awaited > 0)
        return; /* held, or split: the other answers will show */
    bool held = claim->plain ? count->ours == 0 : most + unknown >= majority;
    if (held)
        end_busy(claim);
    else
        try_again(claim);
}

/* The condition of phase 2 decides: where a fence was not smaller, a larger token may do. */
static void evaluate_phase2(struct redlock_claim *claim, const struct count *count)
{
    unsigned majority = redlock_of_claim(claim)->majority;
    if (count->confirmed + count->awaited >= majority)
        return;
    if (count->ours >= majority && claim->rounds < SPLITS_MAX) {
        claim->rounds++;
        redlock_votes_phase2(claim, on_answer);
        return;
    }
    if (count->confirmed + count->pending >= majority)
        return; /* only silent nodes can help */
    if (redlock_base(claim)->wait)
        retry_after_phase2(claim);
    else
        try_again(claim);
}

/* A failed resume is never withdrawn: the program that detached the claim may rely on it. */
static void evaluate_resume(struct redlock_claim *claim, const struct count *count)
{
    struct redlock *redlock = redlock_of_claim(claim);
    struct claim *base = redlock_base(claim);
    struct stile_error err;
    if (count->pending > 0 && count->taken < redlock->majority)
        return;
    if (count->confirmed >= redlock->majority)
        error_set(&err, STILE_LOST, 0, "the nodes no longer know its token");
    else if (count->confirmed + count->taken >= redlock->majority)
        error_set(&err, STILE_LOST, 0, "this owner value does not hold the lock");
    else
        redlock_nodes_explain(redlock, count->answering, &err);
    forget(claim);
    base->engine->events->failed(base, &err);
}

/* A grant that is resumed needs its token as well. */
static bool has_majority(const struct redlock_claim *claim, const struct count *count,
                         const struct redlock *redlock)
{
    bool token_known = claim->state != RESUMING || claim->token || !redlock->fenced;
    return token_known && count->confirmed >= redlock->majority;
}

static void evaluate(struct redlock_claim *claim)
{
    struct redlock *redlock = redlock_of_claim(claim);
    struct count count;
    redlock_votes_count(&count, claim);
    if (claim->state == HELD || claim->state == IDLE || claim->state == PAUSED)
        return;
    if (has_majority(claim, &count, redlock))
        grant(claim);
    else if (claim->state == RESUMING)
        evaluate_resume(claim, &count);
    else if (claim->state == VOTING)
        evaluate_phase2(claim, &count);
    else if (count.ours >= redlock->majority)
        start_phase2(claim);
    else if (redlock_base(claim)->wait)
        evaluate_wait(claim, &count);
    else
        evaluate_try(claim, &count);
}

/* ---- asking ---- */

static void on_timer(struct timer *timer)
{
    struct redlock_claim *claim = container_of(timer, struct redlock_claim, timer);
    if (claim->state == PAUSED)
        ask_anew(claim);
    else if (is_phase1(claim->state))
        on_wait_timer(claim);
}

static bool begin(struct redlock_claim *claim)
{
    struct claim *base = redlock_base(claim);
    struct stile_error err;
    if (loop_reserve(base->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        base->engine->events->failed(base, &err);
        return false;
    }
    claim->timer.fn = on_timer;
    claim->tries = claim->looks = claim->rounds = 0;
    claim->has_waited = claim->was_held = claim->broken = false;
    claim->granted_ns = 0;
    redlock_votes_clear(claim);
    return true;
}

void redlock_claim(struct engine *engine, struct claim *base)
{
    struct redlock_claim *claim = redlock_claim_of(base);
    struct stile_error err;
    if (redlock_keys_are_reserved((struct redlock *)engine, base->name)) {
        error_set(&err, STILE_REFUSED, 0,
                  "with this prefix the name is that of " NODE_KEY
                  ", where each node keeps what it knows of its group: choose another one");
        engine->events->failed(base, &err);
        return;
    }
    if (!draw(claim) || !begin(claim))
        return;
    enter(claim, ASKING);
    redlock_votes_ask(claim, false, on_answer);
    evaluate(claim);
}

void redlock_release(struct engine *engine, struct claim *base)
{
    struct redlock_claim *claim = redlock_claim_of(base);
    struct removal *removal = redlock_removal_prepare(claim);
    struct stile_error err;
    leased_leave_renewal(&claim->leased);
    forget(claim);
    if (removal) {
        redlock_removal_start(removal, base);
        return;
    }
    error_set(&err, STILE_NOMEM, 0, "out of memory");
    engine->events->released(base, &err);
}

void redlock_resume(struct engine *engine, struct claim *base)
{
    struct redlock_claim *claim = redlock_claim_of(base);
    struct stile_error err;
    if (leased_take_owner(base, OWNER_LEN, &err)) {
        engine->events->failed(base, &err);
        return;
    }
    if (!begin(claim))
        return;
    enter(claim, RESUMING);
    claim->token = 0;
    for (unsigned i = 0; i < redlock_of(engine)->n; i++)
        claim->votes[i].touched = true; /* by the claim that was detached */
    redlock_votes_confirm(claim, on_confirmed);
    evaluate(claim);
}

void redlock_detach(struct engine *engine, struct claim *base)
{
    (void)engine;
    leased_leave_renewal(leased_of(base));
    forget(redlock_claim_of(base));
}

const char *redlock_owner(struct engine *engine, struct claim *base)
{
    (void)engine;
    return leased_of(base)->owner;
}

/* ---- messages ---- */

/* More claims than these that are held when a subscription begins are left to the renewals, which
 * checking them all at once would delay. */
#define CHECKS_MAX 256

/* In the order in which they were asked for: some may not be queued on this node yet. Of the others
 * the message that they were broken was missed if it came before the subscription. */
void redlock_claims_ask_again(struct node *node)
{
    struct redlock *redlock = node->redlock;
    size_t i = (size_t)(node - redlock->nodes), checks = 0;
    for (struct leased *leased = redlock->claims.oldest, *next; leased; leased = next) {
        struct redlock_claim *claim = (struct redlock_claim *)leased;
        struct vote *vote = &claim->votes[i];
        bool waits = is_phase1(claim->state) && redlock_base(claim)->wait;
        next = leased->newer;
        if (waits && vote->answer != OURS && vote->answer != CONFIRMED) {
            redlock_vote_ask(vote, true, on_answer);
        } else if (checks++ < CHECKS_MAX) {
            vote->check_due = true;
            redlock_check_if_due(vote);
        }
    }
}

static void message_granted(struct vote *vote, uint64_t fence)
{
    struct redlock_claim *claim = claim_of_vote(vote);
    vote->fence = fence;
    vote->touched = true;
    if (vote->pending) {
        vote->pushed = true; /* its answer may be older, or the request has queued us again */
        return;
    }
    vote->queued = false;
    if (is_phase1(claim->state)) {
        vote->answer = OURS;
        evaluate(claim);
    } else if (vote->answer != CONFIRMED) {
        redlock_vote_phase2(vote, on_answer); /* one node more than the majority */
    }
}

/* The claim has ended: the next waiter should not have to wait until the key expires. */
static void return_key(struct node *node, const char *text)
{
    size_t prefix_len = strlen(node->redlock->prefix);
    char owner[OWNER_LEN + 1];
    const char *key = strchr(text + 2 + OWNER_LEN + 1, ' ');
    if (!key || strncmp(key + 1, node->redlock->prefix, prefix_len) != 0)
        return;
    const char *name = key + 1 + prefix_len;
    size_t len = strlen(name);
    if (len == 0 || len > STILE_NAME_MAX)
        return;
    memcpy(owner, text + 2, OWNER_LEN);
    owner[OWNER_LEN] = '\0';
    redlock_removal_return(node, owner, name, len);
}

/* The answer that grants it may still be on its way, on another connection: then the node is asked
 * once it is held. */
static void message_broken(struct vote *vote, const char *by)
{
    if (claim_of_vote(vote)->state == HELD)
        redlock_vote_broken(vote, by);
    else
        vote->check_due = true;
}

static void message_next(struct redlock_claim *claim, const char *text)
{
    uint64_t ms = strtoull(text, NULL, 10), most = LOOK_MAX_NS / NS_PER_MS;
    if (claim->state == QUEUED)
        arm(claim, (ms < most ? ms : most) * NS_PER_MS + LOOK_AFTER_NS +
                       random_below(claim, 2 * LOOK_AFTER_NS));
}

/* "g owner fence lock", "y owner fence lock", "h owner ms" or "b owner pid host"; "p owner" only
 * tests whether anybody listens. Anybody may publish anything, so a message is a hint at most: the
 * votes decide. A "g" for a claim that has ended needs no answer: its release finds the key, or its
 * entry, there. But a "y" may hand over to a claim that has ended. */
void redlock_claims_message(struct node *node, const char *text, size_t len)
{
    struct redlock *redlock = node->redlock;
    if (len < 2 + OWNER_LEN || text[1] != ' ')
        return;
    struct redlock_claim *claim = find(redlock, text + 2);
    const char *rest = text + 2 + OWNER_LEN;
    struct vote *vote = claim ? &claim->votes[node - redlock->nodes] : NULL;
    if ((text[0] == 'g' || text[0] == 'y') && *rest == ' ') {
        if (claim && claim->state != RESUMING)
            message_granted(vote, strtoull(rest, NULL, 10));
        else if (!claim && text[0] == 'y' && strspn(text + 2, "0123456789abcdef") == OWNER_LEN)
            return_key(node, text);
    } else if (claim && text[0] == 'b') {
        message_broken(vote, rest);
    } else if (claim && text[0] == 'h') {
        message_next(claim, rest);
    }
}
