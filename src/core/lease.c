/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lease.h"

#include "core/client.h"
#include "core/lock.h"

#define DRIFT_FIXED_NS (2 * NS_PER_MS)
#define MARGIN_MAX_NS  (250 * NS_PER_MS)
#define RETRY_MIN_NS   (5 * NS_PER_MS)

/* Drift: the engine's clock may run 1 % faster than ours. Margin: a twentieth of the TTL, so that
 * the user has time to act on the loss. */
uint64_t lease_deadline(uint64_t sent_ns, uint64_t ttl_ns)
{
    if (ttl_ns == 0)
        return NEVER;
    uint64_t drift = ttl_ns / 100 + DRIFT_FIXED_NS;
    uint64_t margin = ttl_ns / 20 < MARGIN_MAX_NS ? ttl_ns / 20 : MARGIN_MAX_NS;
    return ttl_ns > drift + margin ? sent_ns + ttl_ns - drift - margin : sent_ns;
}

bool lease_is_valid(const struct stile_lock *lock)
{
    return lock->state == HELD &&
           (lock->deadline_ns == NEVER || loop_now(lock->client->loop) < lock->deadline_ns);
}

static uint64_t due_ns(const struct stile_lock *lock)
{
    if (lock->renewing || lock->renew_at_ns > lock->deadline_ns)
        return lock->deadline_ns;
    return lock->renew_at_ns;
}

static void wake_no_later(struct stile_client *client, uint64_t at_ns)
{
    struct timer *tick = &client->leases.tick;
    if (at_ns != NEVER && (!tick->place || tick->at_ns > at_ns))
        loop_arm(client->loop, tick, at_ns);
}

static void set_times(struct stile_lock *lock, uint64_t sent_ns, uint64_t ttl_ns)
{
    lock->sent_ns = sent_ns;
    lock->lease_ns = ttl_ns;
    lock->deadline_ns = lease_deadline(sent_ns, ttl_ns);
    lock->renew_at_ns = ttl_ns ? sent_ns + lock->policy.renew_ns : NEVER;
    /* An engine that keeps it for less than requested needs more frequent renewals. */
    if (ttl_ns && lock->renew_at_ns >= lock->deadline_ns)
        lock->renew_at_ns = sent_ns + (lock->deadline_ns - sent_ns) / 2;
    lock->renewing = false;
}

static void insert(struct stile_lock *lock)
{
    struct leases *leases = &lock->client->leases;
    lock->in_leases = true;
    lock->lease_before = NULL;
    lock->lease_next = leases->first;
    if (leases->first)
        leases->first->lease_before = lock;
    leases->first = lock;
    wake_no_later(lock->client, due_ns(lock));
}

void lease_start(struct stile_lock *lock, uint64_t sent_ns, uint64_t ttl_ns)
{
    lease_stop(lock);
    set_times(lock, sent_ns, ttl_ns);
    insert(lock);
}

/* A claim may join a session that was renewed up to half of its TTL ago (engine.h), so the interval
 * must not be near the TTL. */
static uint64_t interval_of_waiter(const struct stile_lock *lock)
{
    uint64_t third = lock->claim->ttl_ns / 3;
    return lock->policy.renew_ns < third ? lock->policy.renew_ns : third;
}

/* A claim in an engine's queue ends with its session, so the session is renewed for it as well. It
 * has no deadline, because it holds nothing yet. */
void lease_keep_session(struct stile_lock *lock)
{
    if (lock->client->engine->caps.lease != STILE_LEASE_SESSION)
        return;
    lock->deadline_ns = NEVER;
    lock->renew_at_ns = loop_now(lock->client->loop) + interval_of_waiter(lock);
    lock->renewing = false;
    insert(lock);
}

void lease_stop(struct stile_lock *lock)
{
    if (!lock->in_leases)
        return;
    lock->in_leases = false;
    if (lock->client->engine->caps.lease != STILE_LEASE_CLAIM)
        lock->renewing = false; /* the session's answer is not for this lock */
    if (lock->lease_before)
        lock->lease_before->lease_next = lock->lease_next;
    else
        lock->client->leases.first = lock->lease_next;
    if (lock->lease_next)
        lock->lease_next->lease_before = lock->lease_before;
}

/* After the deadline a renewal is too late: held() has returned false by then, and the tick that
 * declares the loss is due. A session's renewal that was sent before the claim was granted is older
 * than the grant, and must not bring the deadline forward. */
void lease_renewed(struct stile_lock *lock, uint64_t sent_ns, uint64_t ttl_ns)
{
    if (!lease_is_valid(lock))
        return;
    lock->renewing = false;
    if (sent_ns >= lock->sent_ns)
        set_times(lock, sent_ns, ttl_ns);
    wake_no_later(lock->client, due_ns(lock));
}

/* Not a loss before the deadline: repeat it a few times in the time that is left. */
void lease_unknown(struct stile_lock *lock)
{
    uint64_t now = loop_now(lock->client->loop);
    uint64_t left = lock->deadline_ns > now ? lock->deadline_ns - now : 0;
    uint64_t pause = left / 4 < lock->policy.retry_ns ? left / 4 : lock->policy.retry_ns;
    lock->renew_at_ns = now + (pause > RETRY_MIN_NS ? pause : RETRY_MIN_NS);
    lock->renewing = false;
    wake_no_later(lock->client, due_ns(lock));
}

static bool lives_by(const struct stile_lock *lock, const void *session)
{
    return !session || lock->claim->session == session;
}

void lease_session_renewed(struct stile_client *client, const void *session, uint64_t sent_ns,
                           uint64_t ttl_ns)
{
    client->leases.session_asked = false;
    for (struct stile_lock *lock = client->leases.first; lock; lock = lock->lease_next) {
        if (!lives_by(lock, session))
            continue;
        if (lock->state == HELD) {
            lease_renewed(lock, sent_ns, ttl_ns);
        } else {
            lock->renew_at_ns = sent_ns + interval_of_waiter(lock);
            lock->renewing = false;
            wake_no_later(client, due_ns(lock));
        }
    }
}

void lease_session_unknown(struct stile_client *client, const void *session)
{
    client->leases.session_asked = false;
    for (struct stile_lock *lock = client->leases.first; lock; lock = lock->lease_next) {
        if (lives_by(lock, session))
            lease_unknown(lock);
    }
}

/* Locks granted meanwhile, from inside a loss, have later deadlines. */
void lease_end_session(struct stile_client *client, const void *session)
{
    for (struct stile_lock *lock = client->leases.first; lock; lock = lock->lease_next) {
        if (lock->state == HELD && lives_by(lock, session))
            lock->deadline_ns = 0;
    }
}

size_t lease_overdue(struct stile_client *client, uint64_t now,
                     struct stile_lock *batch[LEASE_BATCH])
{
    size_t n = 0;
    for (struct stile_lock *lock = client->leases.first; lock && n < LEASE_BATCH;
         lock = lock->lease_next) {
        if (now >= lock->deadline_ns)
            batch[n++] = lock;
    }
    return n;
}

/* ---- renewing ---- */

/* Marks the locks it returns, so that the next call finds the rest and not those that were answered
 * from inside the request. A lock that is due within an eighth of the interval joins the batch. */
static size_t take_due(struct stile_client *client, struct claim *batch[LEASE_BATCH], uint64_t now)
{
    size_t n = 0;
    for (struct stile_lock *lock = client->leases.first; lock && n < LEASE_BATCH;
         lock = lock->lease_next) {
        if (!lock->renewing && lock->renew_round != client->leases.round &&
            lock->renew_at_ns != NEVER && lock->renew_at_ns <= now + lock->policy.renew_ns / 8) {
            lock->renewing = true;
            lock->renew_round = client->leases.round;
            batch[n++] = lock->claim;
        }
    }
    return n;
}

static bool anything_due(struct stile_client *client, uint64_t now)
{
    for (struct stile_lock *lock = client->leases.first; lock; lock = lock->lease_next) {
        if (!lock->renewing && lock->renew_at_ns <= now)
            return true;
    }
    return false;
}

static void renew_claims(struct stile_client *client, uint64_t now)
{
    struct engine *engine = client->engine;
    struct claim *batch[LEASE_BATCH];
    bool session = engine->caps.lease != STILE_LEASE_CLAIM;
    size_t n;
    client->leases.round++;
    while ((n = take_due(client, batch, now)) > 0) {
        if (!session)
            engine->class->renew(engine, batch, n);
    }
    if (session && !client->leases.session_asked) {
        client->leases.session_asked = true;
        engine->class->renew(engine, NULL, 0);
    }
}

void lease_renew_due(struct stile_client *client, uint64_t now)
{
    if (anything_due(client, now))
        renew_claims(client, now);
    for (struct stile_lock *lock = client->leases.first; lock; lock = lock->lease_next)
        wake_no_later(client, due_ns(lock));
}
