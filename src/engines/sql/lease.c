/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of mode=table. A waiter looks by itself when the holder's lease must have ended. Where
 * the server can notify it, it is woken; where nothing can be heard, it polls. */
#include "engines/sql/lease.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/sql/inspect.h"
#include "engines/sql/pool.h"

#define LOOK_AFTER_NS (5 * NS_PER_MS)
/* After the first of a client's waiters for a name. */
#define LOOK_BEHIND_NS (50 * NS_PER_MS)
#define LOOK_AMONG     64
#define DEAF_MIN_NS    (20 * NS_PER_MS)
#define DEAF_DOUBLES                                                                               \
    3 /* a quarter of a second at most: a granted waiter has one second to answer */
#define AGAIN_NS       (50 * NS_PER_MS)
#define LOOK_MAX_NS    NS_PER_SEC
#define CONNECT_MIN_NS (100 * NS_PER_MS)
/* Waiters with this many others before them look less often, and renew their row less often. */
#define FAR_BACK        4
#define FAR_BACK_SLOWER 4
/* How long the row of such a waiter stays without a renewal. A killed crowd delays no other waiter
 * for longer than this, and a waiting crowd of any size writes only a few rows a second. */
#define FAR_BACK_LIFE_NS (20 * NS_PER_SEC)
#define UNDONE_MIN_NS    NS_PER_MS
#define UNDONE_MAX       12 /* about four seconds: after that it is no longer bad luck */
#define UNDONE_DOUBLE    8

static void ask(struct lease *lease);
static void check(struct lease *lease);
static void keep(struct lease *lease, uint64_t now);

/* ---- the states ---- */

#define TO(state) (1u << (state))
#define TO_END    (TO(LEASE_WITHDRAWING) | TO(LEASE_IDLE))

/* Where each state may lead. WITHDRAWING follows IDLE if the claim failed in doubt. A new claim may
 * follow a release in doubt: core stops repeating it when the lease must be over. */
static const unsigned transitions[] = {
    [LEASE_IDLE] = TO(LEASE_ASKING) | TO(LEASE_WITHDRAWING),
    [LEASE_ASKING] = TO(LEASE_HELD) | TO(LEASE_WAITING) | TO_END,
    [LEASE_WAITING] = TO(LEASE_ASKING) | TO(LEASE_CHECKING) | TO_END,
    [LEASE_CHECKING] = TO(LEASE_ASKING) | TO(LEASE_WAITING) | TO_END,
    [LEASE_HELD] = TO(LEASE_RELEASING) | TO(LEASE_IDLE), /* IDLE: detached */
    [LEASE_RELEASING] = TO(LEASE_RELEASE_FAILED) | TO(LEASE_RELEASE_IN_DOUBT) | TO(LEASE_IDLE),
    [LEASE_RELEASE_FAILED] = TO(LEASE_RELEASING) | TO(LEASE_ASKING),
    [LEASE_RELEASE_IN_DOUBT] = TO(LEASE_RELEASING_AGAIN) | TO(LEASE_ASKING),
    [LEASE_RELEASING_AGAIN] = TO(LEASE_RELEASE_IN_DOUBT) | TO(LEASE_IDLE),
    [LEASE_WITHDRAWING] = TO(LEASE_IDLE),
};

/* Core may end the claim in the other states, so nothing points to it. */
static bool is_listed(enum lease_state state)
{
    return state != LEASE_IDLE && state != LEASE_RELEASE_FAILED && state != LEASE_RELEASE_IN_DOUBT;
}

static bool is_undecided(enum lease_state state)
{
    return state == LEASE_ASKING || state == LEASE_WAITING || state == LEASE_CHECKING;
}

static void unhear(struct lease *lease)
{
    lease->leases->n_heard -= lease->heard;
    lease->heard = false;
}

/* An undecided claim has a timer, which begin() reserves. */
static void move_to(struct lease *lease, enum lease_state state)
{
    struct loop *loop = lease->leases->engine->loop;
    enum lease_state before = lease->state;
    assert(transitions[before] & TO(state));
    lease->state = state;
    if (is_undecided(before) && !is_undecided(state)) {
        loop_disarm(loop, &lease->timer);
        loop_unreserve(loop, 1);
        unhear(lease);
    }
    if (is_listed(state) && !is_listed(before))
        leased_add(&lease->leases->claims, &lease->leased);
    else if (is_listed(before) && !is_listed(state))
        leased_remove(&lease->leases->claims, &lease->leased);
}

/* From here on no answer to an earlier request comes. */
static void forget(struct lease *lease, enum lease_state state)
{
    sql_pool_forget(pool_of(lease->leases->engine), lease);
    move_to(lease, state);
}

/* A claim in doubt keeps its owner value: core withdraws it by that. */
static void fail(struct lease *lease, const struct stile_error *err)
{
    struct claim *claim = claim_of_lease(lease);
    struct stile_error why = *err;
    forget(lease, LEASE_IDLE);
    claim->engine->events->failed(claim, &why);
}

/* ---- waiting ---- */

static bool is_for_name_of(const struct lease *one, const struct lease *other)
{
    const struct claim *a = claim_of_lease((struct lease *)one);
    const struct claim *b = claim_of_lease((struct lease *)other);
    return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

/* The first of this client's claims that wait for the name: it looks for all of them. It is looked
 * for among the oldest only: a client may wait for thousands of names. */
static const struct lease *first_waiting(const struct lease *lease)
{
    const struct leased *leased = lease->leases->claims.oldest;
    for (int i = 0; leased && i < LOOK_AMONG; leased = leased->newer, i++) {
        const struct lease *other = (const struct lease *)leased;
        if (is_undecided(other->state) && is_for_name_of(other, lease))
            return other;
    }
    return lease;
}

static void arm(struct lease *lease)
{
    uint64_t at = lease->look_ns < lease->alive_ns ? lease->look_ns : lease->alive_ns;
    loop_arm(lease->leases->engine->loop, &lease->timer, at);
}

static void on_time(struct timer *timer)
{
    struct lease *lease = (struct lease *)((char *)timer - offsetof(struct lease, timer));
    uint64_t now = loop_now(lease->leases->engine->loop);
    if (lease->state != LEASE_WAITING)
        return;
    bool keeps = lease->leases->hearing && lease->leases->ops->keep && !lease->must_look;
    const struct lease *first = keeps ? first_waiting(lease) : lease;
    if (first != lease && now >= lease->look_ns) {
        lease->look_ns = (first->look_ns > now ? first->look_ns : now) + LOOK_BEHIND_NS;
        arm(lease);
    } else if (keeps && now < lease->look_ns) {
        keep(lease, now);
    } else {
        check(lease);
    }
}

/* A random time around ns, so that claims that collided do not collide again. */
static uint64_t about(struct loop *loop, uint64_t ns)
{
    uint64_t random = 0;
    loop_random(loop, &random, sizeof random);
    return ns / 2 + random % ns;
}

/* When to look: as soon as the holder's lease can have ended, and again and again before that
 * where no notification can arrive. */
static uint64_t look_pause(struct lease *lease, uint64_t ms)
{
    struct leases *leases = lease->leases;
    uint64_t end = ms * NS_PER_MS + LOOK_AFTER_NS;
    uint64_t deaf = DEAF_MIN_NS << (lease->tries < DEAF_DOUBLES ? lease->tries : DEAF_DOUBLES);
    lease->tries++;
    if (leases->hearing)
        return end;
    deaf = about(leases->engine->loop, deaf);
    if (lease->far_back)
        deaf = deaf * FAR_BACK_SLOWER < LOOK_MAX_NS ? deaf * FAR_BACK_SLOWER : LOOK_MAX_NS;
    return deaf < end ? deaf : end;
}

static void arm_look(struct lease *lease, uint64_t ms)
{
    lease->look_ns = loop_now(lease->leases->engine->loop) + look_pause(lease, ms);
    arm(lease);
}

static void look_at(struct lease *lease, uint64_t at)
{
    lease->look_ns = at;
    lease->must_look = true;
    loop_arm(lease->leases->engine->loop, &lease->timer, at);
}

static void ask_later(struct lease *lease, uint64_t pause_ns)
{
    move_to(lease, LEASE_WAITING);
    look_at(lease, loop_now(lease->leases->engine->loop) + pause_ns);
}

/* The server rolled it back, for instance as a deadlock victim: nothing of it is left, and the
 * next attempt may succeed. */
static bool may_try_again(struct lease *lease)
{
    unsigned doubles = lease->undone < UNDONE_DOUBLE ? lease->undone : UNDONE_DOUBLE;
    if (lease->undone++ >= UNDONE_MAX)
        return false;
    ask_later(lease, about(lease->leases->engine->loop, UNDONE_MIN_NS << doubles));
    return true;
}

/* The request failed. A claim that waits already asks again: its row lives on for its TTL. */
static void unanswered(struct lease *lease, const struct lease_answer *a)
{
    struct stile_error doubt = *a->err;
    bool passing = doubt.status == STILE_UNREACHABLE || doubt.status == STILE_UNCERTAIN;
    if ((a->undone || a->again) && may_try_again(lease))
        return;
    if (lease->has_waited && passing) {
        ask_later(lease, AGAIN_NS);
        return;
    }
    if (passing && a->sent_ns && !a->undone)
        doubt.status = STILE_UNCERTAIN;
    fail(lease, &doubt);
}

static void go_on_waiting(struct lease *lease, const struct lease_answer *a)
{
    struct claim *claim = claim_of_lease(lease);
    lease->has_waited = true;
    move_to(lease, LEASE_WAITING);
    claim->engine->events->queued(claim);
    if (lease->ask_again) {
        ask(lease);
    } else {
        unhear(lease);
        arm_look(lease, a->number);
    }
}

void sql_lease_asked(struct lease *lease, const struct lease_answer *a)
{
    struct claim *claim = claim_of_lease(lease);
    struct stile_error strange;
    if (a->err) {
        unanswered(lease, a);
    } else if (a->reply == 'g') {
        move_to(lease, LEASE_HELD);
        lease->renewed_ns = a->sent_ns;
        claim->engine->events->granted(claim, a->number, a->sent_ns, claim->ttl_ns);
    } else if (a->reply != 'b') {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        fail(lease, &strange);
    } else if (!claim->wait) {
        forget(lease, LEASE_IDLE);
        claim->engine->events->busy(claim, a->number * NS_PER_MS);
    } else {
        lease->undone = 0;
        lease->alive_ns = a->sent_ns + claim->ttl_ns / 3;
        go_on_waiting(lease, a);
    }
}

static void ask(struct lease *lease)
{
    struct stile_error err;
    move_to(lease, LEASE_ASKING);
    lease->ask_again = false;
    if (lease->leases->ops->ask(lease, &err))
        unanswered(lease, &(struct lease_answer){.err = &err});
}

/* A waiter that comes to the front renews its row at once: from now on its death would keep
 * others waiting. */
void sql_lease_checked(struct lease *lease, const struct lease_answer *a)
{
    bool was_far_back = lease->far_back;
    if (a->err) {
        unanswered(lease, a);
    } else if (a->reply == 'w') {
        lease->far_back = a->ahead >= FAR_BACK;
        lease->must_look = false;
        if (was_far_back && !lease->far_back)
            lease->alive_ns = 0;
        go_on_waiting(lease, a);
    } else {
        ask(lease);
    }
}

static uint64_t life_of(struct lease *lease)
{
    uint64_t ttl_ns = claim_of_lease(lease)->ttl_ns;
    return lease->far_back && ttl_ns < FAR_BACK_LIFE_NS ? FAR_BACK_LIFE_NS : ttl_ns;
}

/* If hundreds of waiters asked, they would all write the name's row and block each other and the
 * holder's release. So a waiter looks first, without writing. */
static void check(struct lease *lease)
{
    struct leases *leases = lease->leases;
    uint64_t now = loop_now(leases->engine->loop), life_ns = life_of(lease);
    bool due = now >= lease->alive_ns;
    struct stile_error err;
    if (!leases->ops->check) {
        ask(lease);
        return;
    }
    move_to(lease, LEASE_CHECKING);
    if (due)
        lease->alive_ns = now + life_ns / 3;
    if (leases->ops->check(lease, due ? life_ns / NS_PER_MS : 0, &err))
        unanswered(lease, &(struct lease_answer){.err = &err});
}

/* ---- rows that only have to be kept ---- */

static bool is_due_with(struct lease *lease, uint64_t life_ns, uint64_t now)
{
    return lease->state == LEASE_WAITING && life_of(lease) == life_ns && now < lease->look_ns &&
           lease->alive_ns <= now + life_ns / 6;
}

static void collect(struct leases *leases, uint64_t life_ns, uint64_t now)
{
    struct lease_rows *kept = &leases->kept;
    kept->n = 0;
    for (struct leased *leased = leases->claims.oldest; leased; leased = leased->newer) {
        struct lease *lease = (struct lease *)leased;
        if (kept->n == LEASE_KEPT_MAX || !is_due_with(lease, life_ns, now))
            continue;
        strcpy(kept->owners[kept->n++], lease->leased.owner);
        lease->alive_ns = now + life_ns / 3;
        arm(lease);
    }
}

/* A client with hundreds of waiters renews their rows with a few statements, and none of them looks
 * before the holder's lease can have ended. */
static void keep(struct lease *lease, uint64_t now)
{
    struct leases *leases = lease->leases;
    uint64_t life_ns = life_of(lease);
    struct stile_error err;
    bool busy = leases->kept.under_way;
    if (!busy)
        collect(leases, life_ns, now);
    if (lease->alive_ns <= now) { /* not among them */
        lease->alive_ns = now + AGAIN_NS;
        arm(lease);
    }
    if (busy)
        return;
    leases->kept.under_way = true;
    if (leases->ops->keep(leases, life_ns / NS_PER_MS, &err))
        sql_lease_kept(leases, 0, &err);
}

/* A row that is missing, or was granted without a notification, is for its waiter to look at. */
void sql_lease_kept(struct leases *leases, uint64_t n, const struct stile_error *err)
{
    struct lease_rows *kept = &leases->kept;
    kept->under_way = false;
    for (size_t i = 0; (err || n != kept->n) && i < kept->n; i++) {
        struct lease *lease =
            (struct lease *)leased_find(&leases->claims, kept->owners[i], LEASE_OWNER_LEN);
        if (lease && lease->state == LEASE_WAITING)
            check(lease);
    }
}

/* ---- beginning ---- */

static bool begin(struct leases *leases, struct lease *lease)
{
    struct claim *claim = claim_of_lease(lease);
    struct stile_error err;
    if (loop_reserve(leases->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        claim->engine->events->failed(claim, &err);
        return false;
    }
    lease->leases = leases;
    lease->timer.fn = on_time;
    lease->tries = lease->undone = 0;
    lease->ask_again = lease->heard = lease->has_waited = lease->far_back = false;
    lease->must_look = true;
    return true;
}

void sql_lease_claim(struct engine *engine, struct claim *claim)
{
    struct lease *lease = lease_of(claim);
    struct stile_error err;
    unsigned char random[LEASE_OWNER_LEN / 2];
    int rc = loop_random(engine->loop, random, sizeof random);
    if (rc) {
        error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
        claim->engine->events->failed(claim, &err);
        return;
    }
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(lease->leased.owner + 2 * i, 3, "%02x", random[i]);
    if (begin(leases_of(engine), lease))
        ask(lease);
}

/* ---- detached claims ---- */

/* Never fails in doubt: core would withdraw a claim that its owner wants to keep. */
void sql_lease_resumed(struct lease *lease, const struct lease_answer *a)
{
    struct claim *claim = claim_of_lease(lease);
    struct stile_error err;
    if (a->err) {
        fail(lease, a->err);
    } else if (a->reply != 't') {
        error_set(&err, STILE_LOST, 0, "this owner value does not hold it, or no longer");
        fail(lease, &err);
    } else {
        if (a->ttl_ms)
            claim->ttl_ns = a->ttl_ms * NS_PER_MS;
        move_to(lease, LEASE_HELD);
        lease->renewed_ns = a->sent_ns;
        claim->engine->events->granted(claim, a->number, a->sent_ns, claim->ttl_ns);
    }
}

static void resume(struct engine *engine, struct claim *claim)
{
    struct leases *leases = leases_of(engine);
    struct lease *lease = lease_of(claim);
    struct stile_error err;
    if (leased_take_owner(claim, LEASE_OWNER_LEN, &err)) {
        claim->engine->events->failed(claim, &err);
        return;
    }
    if (!begin(leases, lease))
        return;
    move_to(lease, LEASE_ASKING);
    if (leases->ops->resume(lease, &err))
        fail(lease, &err);
}

static void detach(struct engine *engine, struct claim *claim)
{
    (void)engine;
    leased_leave_renewal(leased_of(claim));
    forget(lease_of(claim), LEASE_IDLE);
}

static const char *owner_of(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return leased_of(claim)->owner;
}

const struct engine_detached sql_lease_detached = {
    .resume = resume,
    .detach = detach,
    .owner = owner_of,
};

/* ---- notifications ---- */

static struct lease *find(struct leases *leases, const char *owner)
{
    if (strlen(owner) != LEASE_OWNER_LEN)
        return NULL;
    return (struct lease *)leased_find(&leases->claims, owner, LEASE_OWNER_LEN);
}

/* A request under way may be older than the hint: another one follows it. */
static void hint(struct lease *lease)
{
    if (lease->state == LEASE_WAITING)
        ask(lease);
    else if (lease->state == LEASE_CHECKING || lease->state == LEASE_ASKING)
        lease->ask_again = true;
}

void sql_lease_ask_again(struct leases *leases)
{
    for (struct leased *leased = leases->claims.oldest, *next; leased; leased = next) {
        next = leased->newer;
        hint((struct lease *)leased);
    }
}

bool sql_lease_is_waiting(const struct leases *leases)
{
    for (const struct leased *leased = leases->claims.oldest; leased; leased = leased->newer) {
        const struct lease *lease = (const struct lease *)leased;
        if (lease->has_waited && is_undecided(lease->state))
            return true;
    }
    return false;
}

static void hear(struct lease *lease)
{
    if (!is_undecided(lease->state))
        return;
    lease->leases->n_heard += !lease->heard;
    lease->heard = true;
    hint(lease);
}

void sql_lease_hear_granted(struct leases *leases, const char *owner)
{
    struct lease *lease = find(leases, owner);
    if (lease)
        hear(lease);
}

bool sql_lease_hear_only(struct leases *leases)
{
    struct lease *only = NULL;
    for (struct leased *leased = leases->claims.oldest; leased; leased = leased->newer) {
        struct lease *lease = (struct lease *)leased;
        if (only && is_undecided(lease->state))
            return false;
        if (is_undecided(lease->state))
            only = lease;
    }
    if (only)
        hear(only);
    return only;
}

/* Safe to trust: any sender could break the lock itself. */
void sql_lease_hear_broken(struct leases *leases, const char *owner, const char *by)
{
    struct lease *lease = find(leases, owner);
    struct stile_error err;
    if (!lease || lease->state != LEASE_HELD)
        return;
    sql_break_blame(&err, by);
    leases->engine->events->lost(claim_of_lease(lease), &err);
}

/* A server may forget a connection that it has accepted. A quarter of what is left leaves time for
 * others. */
uint64_t sql_lease_patience_ns(const struct leases *leases, uint64_t usual_ns)
{
    uint64_t now_ns = loop_now(leases->engine->loop), least_ns = usual_ns;
    for (struct leased *leased = leases->claims.oldest; leased; leased = leased->newer) {
        const struct lease *lease = container_of(leased, struct lease, leased);
        uint64_t end_ns = lease->renewed_ns + leased_base(leased)->ttl_ns;
        if (lease->state == LEASE_HELD && end_ns > now_ns && (end_ns - now_ns) / 4 < least_ns)
            least_ns = (end_ns - now_ns) / 4;
    }
    return least_ns > CONNECT_MIN_NS ? least_ns : CONNECT_MIN_NS;
}

/* A held claim stays held until its deadline, and is renewed over the next connection. A waiter
 * may have been granted the lock meanwhile, and has a second to answer. */
void sql_lease_disconnected(struct leases *leases)
{
    struct loop *loop = leases->engine->loop;
    uint64_t at = loop_now(loop) + AGAIN_NS;
    leases->hearing = false;
    for (struct leased *leased = leases->claims.oldest; leased; leased = leased->newer) {
        struct lease *lease = (struct lease *)leased;
        if (lease->state == LEASE_WAITING && lease->timer.at_ns > at)
            look_at(lease, at);
    }
}

/* ---- releasing ---- */

static void end_release(struct lease *lease, enum lease_state state, const struct stile_error *err)
{
    struct claim *claim = claim_of_lease(lease);
    struct stile_error why = err ? *err : (struct stile_error){0};
    forget(lease, state);
    claim->engine->events->released(claim, err ? &why : NULL);
}

/* Core calls release() again; the owner value makes that safe. Unless the server has rolled it
 * back, the request without an answer may have been carried out. */
static void release_failed(struct lease *lease, const struct lease_answer *a)
{
    if (lease->state == LEASE_WITHDRAWING)
        end_release(lease, LEASE_IDLE, a->err);
    else if (lease->state == LEASE_RELEASING && a->undone)
        end_release(lease, LEASE_RELEASE_FAILED, a->err);
    else
        end_release(lease, LEASE_RELEASE_IN_DOUBT, a->err);
}

void sql_lease_released(struct lease *lease, const struct lease_answer *a)
{
    struct stile_error lost;
    if (a->err) {
        release_failed(lease, a);
    } else if (lease->state == LEASE_RELEASING && a->reply != 't') {
        error_set(&lost, STILE_LOST, 0, "the lock was no longer held");
        end_release(lease, LEASE_IDLE, &lost);
    } else {
        end_release(lease, LEASE_IDLE, NULL);
    }
}

static enum lease_state release_state(enum lease_state state)
{
    if (state == LEASE_HELD || state == LEASE_RELEASE_FAILED)
        return LEASE_RELEASING;
    return state == LEASE_RELEASE_IN_DOUBT ? LEASE_RELEASING_AGAIN : LEASE_WITHDRAWING;
}

void sql_lease_release(struct engine *engine, struct claim *claim)
{
    struct lease *lease = lease_of(claim);
    struct stile_error err;
    lease->leases = leases_of(engine);
    leased_leave_renewal(&lease->leased);
    forget(lease, release_state(lease->state));
    bool unused = lease->state == LEASE_WITHDRAWING || claim->unused;
    if (lease->leases->ops->release(lease, unused, &err))
        release_failed(lease, &(struct lease_answer){.err = &err, .undone = true});
}

/* ---- renewing, many in one statement ---- */

#define WHY_GONE_MAX 96

static void why_gone(char out[WHY_GONE_MAX], const struct lease *lease, uint64_t now_ns)
{
    uint64_t since_ns = now_ns - lease->renewed_ns;
    if (since_ns < claim_of_lease((struct lease *)lease)->ttl_ns)
        strcpy(out, "its row is gone: taken by stile break, or deleted by another client");
    else
        snprintf(out, WHY_GONE_MAX, "the lease ran out: not renewed for %" PRIu64 " ms",
                 since_ns / NS_PER_MS);
}

static void renewed_one(struct leased_renewal *renewal, size_t i, bool there)
{
    struct lease *lease = (struct lease *)renewal->claims[i];
    char why[WHY_GONE_MAX] = "";
    if (lease && there)
        lease->renewed_ns = renewal->sent_ns;
    else if (lease)
        why_gone(why, lease, loop_now(renewal->engine->loop));
    leased_renewal_answer(renewal, i, there ? LEASED_RENEWED : LEASED_GONE, why);
}

void sql_lease_renewed(struct leased_renewal *renewal, const struct lease_answer *a,
                       bool (*found)(const void *rows, const char *owner), const void *rows)
{
    renewal->sent_ns = a->sent_ns;
    for (size_t i = 0; !a->err && i < renewal->n; i++) {
        const struct leased *leased = renewal->claims[i];
        renewed_one(renewal, i, leased && found(rows, leased->owner));
    }
    leased_renewal_end(renewal);
}

void sql_lease_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct leases *leases = leases_of(engine);
    struct leased_renewal *renewal =
        leased_renewal_new(&leases->claims, sizeof *renewal, claims, n);
    if (renewal && leases->ops->renew(renewal, NULL))
        leased_renewal_end(renewal);
}
