/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Being granted: one try on the shared session, then a wait inside the server on another. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

/* A wait that took less than this share of the lease needs no confirmation. */
#define FRESH_SHARE 4
/* About what a hand-over takes; and how many times in a row to yield to waiters that do not
 * come. */
#define YIELD_NS   (NS_PER_MS / 20)
#define CONTENTION 16

static void retry_grant(struct sql_claim *c);

/* ---- held back: the lock is ours in the server, but a hold keeps the name back ---- */

static void on_hold_over(struct timer *timer)
{
    struct sql_claim *c = sql_claim_of_timer(timer);
    if (c->state == CLAIM_HELD_BACK)
        retry_grant(c);
}

static void hold_back(struct sql_claim *c, uint64_t ms)
{
    struct loop *loop = claim_of(c)->engine->loop;
    sql_claim_move_to(c, CLAIM_HELD_BACK);
    claim_of(c)->engine->events->queued(claim_of(c));
    c->timer.fn = on_hold_over;
    loop_arm(loop, &c->timer, loop_now(loop) + (ms + 1) * NS_PER_MS);
}

/* ---- on a session of its own ---- */

/* The lease counts from a request that the server has read, and of a wait only the beginning is
 * known. So after a long wait the session is asked once more, which also proves that it is still
 * ours. */
static void confirm(struct sql_claim *c, uint64_t token, uint64_t sent_ns)
{
    struct session *session = c->session;
    struct stile_error err;
    uint64_t now = loop_now(session->base.loop);
    c->token = token;
    if (now - sent_ns < session->base.lease_ns / FRESH_SHARE) {
        sql_claim_grant(c, token, sent_ns);
        return;
    }
    sql_claim_move_to(c, CLAIM_CONFIRMING);
    if (postgres_lease_set_to(session, pg_of_claim(c)->pool.ttl_ns, postgres_claim_confirmed, c,
                              &err))
        sql_claim_abandon(c, &err);
}

void postgres_claim_confirmed(void *data, const struct answer *a)
{
    sql_claim_confirmed(data, a->sent_ns, a->err);
}

static void note_contention(struct sql_claim *c, const PGresult *result)
{
    if (PQnfields(result) < 3)
        return;
    bool waited = postgres_value(result, 0, 2)[0] == 't';
    pg_claim_of(c)->contention =
        waited ? CONTENTION : pg_claim_of(c)->contention - (pg_claim_of(c)->contention > 0);
}

/* ---- a wait in the server is short ---- */

static void wait_again(struct sql_claim *c, struct session *session);

/* Its session is clean. */
static void slice_over(struct sql_claim *c)
{
    struct session *session = c->session;
    if (c->withdrawn) {
        sql_claim_released(c, NULL);
    } else if (pg_of_claim(c)->schema >= SCHEMA_QUEUE) {
        sql_claim_leave(c);
        sql_pool_return(session);
        postgres_queue_join(c);
    } else {
        wait_again(c, session);
    }
}

static void on_slice_cleared(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    if (a->err)
        sql_claim_abandon(c, a->err);
    else
        slice_over(c);
}

/* lock_timeout may have come between the lock and its row. */
static void end_slice(struct sql_claim *c)
{
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_UNDOING);
    if (postgres_send(c->session, &postgres_sql_unlock_all, NULL, 0, on_slice_cleared, c, &err))
        sql_claim_abandon(c, &err);
}

static bool is_slice_over(const struct answer *a)
{
    return a->err && strcmp(a->sqlstate, "55P03") == 0;
}

static void on_locked(void *data, const struct answer *a);

static void decide(struct sql_claim *c)
{
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_CONFIRMING);
    if (postgres_claim_decide(c, on_locked, &err))
        sql_claim_abandon(c, &err);
}

static void on_locked(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum grant_reply reply = a->err ? REPLY_STRANGE : postgres_read_grant(c, a->result, &number);
    bool up = c->session && c->session->base.state == UP;
    if (c->session)
        c->session->base.waits = false;
    if (up && is_slice_over(a)) {
        end_slice(c);
    } else if (up && reply == REPLY_NOT_FIRST) {
        slice_over(c);
    } else if (c->withdrawn && up) { /* cancelled, and perhaps granted before that */
        c->token = reply == REPLY_GRANTED ? number : 0;
        sql_claim_withdraw(c, true);
    } else if (a->err || reply == REPLY_STRANGE || reply == REPLY_TAKEN) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        sql_claim_abandon(c, a->err ? a->err : &strange);
    } else if (reply == REPLY_HELD_BACK) {
        hold_back(c, number);
    } else if (reply == REPLY_UNDECIDED) {
        note_contention(c, a->result);
        decide(c);
    } else {
        note_contention(c, a->result);
        confirm(c, number, a->sent_ns);
    }
}

static void retry_grant(struct sql_claim *c)
{
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_CONFIRMING);
    if (postgres_claim_send(c, SQL_GRANT, on_locked, &err))
        sql_claim_abandon(c, &err);
}

static void wait_again(struct sql_claim *c, struct session *session)
{
    struct engine *engine = claim_of(c)->engine;
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_WAITING);
    session->base.waits = session->deaf = true;
    engine->events->queued(claim_of(c));
    if (postgres_lease_set(session, &err) || postgres_claim_send(c, SQL_LOCK, on_locked, &err))
        sql_claim_abandon(c, &err);
}

static void wait_on(struct sql_claim *c, struct session *session)
{
    sql_claim_join(c, session);
    wait_again(c, session);
}

/* If the shared session has nothing else to do, it waits itself: a client that wants one lock
 * needs one connection. */
static bool may_lend(const struct sql_claim *c)
{
    const struct session *session = c->session;
    const struct pool *pool = session ? session->base.pool : NULL;
    return session && session == pool->shared && session->base.claims == c && !c->next &&
           !session->base.first && session->base.state == UP;
}

void postgres_claim_wait(struct sql_claim *c)
{
    struct pool *pool = &pg_of_claim(c)->pool;
    bool queue = pg_of_claim(c)->schema >= SCHEMA_QUEUE;
    struct session *session;
    struct stile_error err;
    pg_claim_of(c)->contention = CONTENTION;
    if (may_lend(c)) {
        session = c->session;
        sql_pool_lend_shared(pool);
        session->base.events = &postgres_pooled_events;
        wait_again(c, session);
        return;
    }
    sql_claim_leave(c);
    if (!sql_pool_take(&session, pool, &err))
        wait_on(c, session);
    else if (queue)
        postgres_queue_join(c);
    else
        sql_claim_fail(c, &err);
}

/* ---- on the shared session ---- */

static void on_tried(void *data, const struct answer *a);

static void decide_tried(struct sql_claim *c)
{
    struct stile_error err;
    if (postgres_claim_decide(c, on_tried, &err))
        postgres_claim_undo(c, &err);
}

static void on_tried(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum grant_reply reply = a->err ? REPLY_STRANGE : postgres_read_grant(c, a->result, &number);
    if (a->err &&
        strcmp(a->sqlstate, "40P01") == 0) { /* a repetition would meet the same deadlock */
        error_set(&strange, STILE_REFUSED, 0,
                  "deadlock: a transaction that has locked this name's row in stile.lock waits for "
                  "a lock that this client holds");
        postgres_claim_undo(c, &strange);
        return;
    }
    if (a->err || reply == REPLY_STRANGE) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        postgres_claim_undo(c, a->err ? a->err : &strange);
        return;
    }
    bool ours = postgres_held_against(c, pg_claim_of(c)->id, false);
    if (reply == REPLY_NOT_FIRST && claim_of(c)->wait && !c->withdrawn) {
        sql_claim_leave(c);
        postgres_queue_join(c);
    } else if (reply == REPLY_TAKEN || reply == REPLY_NOT_FIRST)
        sql_claim_not_taken(c);
    else if (reply == REPLY_UNDECIDED && !ours && !c->withdrawn)
        decide_tried(c);
    else if (reply == REPLY_HELD_BACK || ours)
        postgres_claim_step_back(c, reply == REPLY_HELD_BACK ? number : 0);
    else if (c->withdrawn) {
        c->token = number;
        sql_claim_withdraw(c, true);
    } else
        sql_claim_grant(c, number, a->sent_ns);
}

/* ---- after a contended grant ---- */

/* Then it waits in the server at once, if an idle session is there: one request instead of two. */
static bool waits_at_once(struct sql_claim *c)
{
    struct session *session;
    bool straight = pg_claim_of(c)->contention && claim_of(c)->wait &&
                    sql_pool_has_idle(&pg_of_claim(c)->pool) &&
                    !sql_pool_take(&session, &pg_of_claim(c)->pool, NULL);
    if (straight)
        wait_on(c, session);
    return straight;
}

static void ask(struct sql_claim *c)
{
    struct session *shared;
    struct stile_error err;
    if (waits_at_once(c))
        return;
    if (sql_pool_shared(&shared, &pg_of_claim(c)->pool, &err)) {
        sql_claim_fail(c, &err);
        return;
    }
    sql_claim_join(c, shared);
    sql_claim_move_to(c, CLAIM_TRYING);
    if (postgres_lease_set(shared, &err) || postgres_claim_send(c, SQL_TRY, on_tried, &err))
        sql_claim_fail(c, &err);
}

static void on_yielded(struct timer *timer)
{
    ask(sql_claim_of_timer(timer));
}

/* Others wanted the lock a moment ago and were not queued: they wait for a processor, not for
 * the lock. A client that comes back at once would get it again and again until the scheduler
 * lets them run. */
static bool yields(struct sql_claim *c)
{
    struct loop *loop = claim_of(c)->engine->loop;
    bool makes = pg_claim_of(c)->contention > 0 && pg_claim_of(c)->contention < CONTENTION &&
                 claim_of(c)->wait && loop_now(loop) - pg_claim_of(c)->released_ns < YIELD_NS;
    if (makes) {
        sql_claim_move_to(c, CLAIM_YIELDING);
        c->timer.fn = on_yielded;
        loop_arm(loop, &c->timer, pg_claim_of(c)->released_ns + YIELD_NS);
    }
    return makes;
}

static bool has_room(struct pg *pg, struct claim *claim)
{
    struct stile_error err;
    if (pg->pool.n_active < pg->most_locks)
        return true;
    error_set(
        &err, STILE_REFUSED, 0,
        "this client has %" PRIu64
        " locks, its share of the server's lock table (max_locks_per_transaction): raise that, set "
        "locks=N in the URL for a larger share, or use mode=table, which needs none",
        pg->most_locks);
    claim->engine->events->failed(claim, &err);
    return false;
}

void postgres_claim(struct engine *engine, struct claim *claim)
{
    struct sql_claim *c = sql_claim_of(claim);
    if (!has_room(pg_of(engine), claim))
        return;
    if (postgres_claim_begin(c) && !yields(c))
        ask(c);
}

/* ---- releasing ---- */

static void on_unlocked(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    bool ours = !a->err && PQntuples(a->result) == 1 && postgres_value(a->result, 0, 0)[0] == 't';
    bool over = !c->session || c->session->base.state != UP;
    if (a->err && !over && c->token) { /* perhaps for its row: the lock goes without that */
        c->token = 0;
        postgres_claim_give_back(c);
    } else {
        sql_claim_release_answered(c, ours, a->err);
    }
}

/* A hold or a delay in the name's row is settled by the same statement. */
void postgres_claim_give_back(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct pg *pg = pg_of_claim(c);
    struct stile_error err;
    char token[24];
    bool has_hold = !pg->bare && (claim->hold_ns || claim->delay_ns) && c->token;
    bool unused = claim->unused || c->withdrawn;
    const char *key = pg_claim_of(c)->key.form == KEY_HASH ? c->stored : pg_claim_of(c)->key.number;
    const char *values[] = {key, c->stored, token, unused ? "t" : "f"};
    if (has_hold)
        snprintf(token, sizeof token, "%" PRIu64, c->token);
    int n = has_hold ? 4 : 1;
    const struct statement *statement =
        postgres_claim_statement(c, has_hold ? SQL_END_HOLD : SQL_UNLOCK, &n);
    postgres_describe_never(c);
    if (postgres_send(c->session, statement, values, n, on_unlocked, c, &err)) {
        sql_claim_release_unsent(c, &err);
    } else {
        postgres_queue_wake_next(c);
        postgres_describe_over(c);
    }
}

/* A session with a single claim drops all its locks. A late cancel may hit this statement
 * instead of the wait. */
static void clear(struct sql_claim *c);

static void on_cleared(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    if (a->err && c->session && c->session->base.state == UP)
        clear(c);
    else
        sql_claim_released(c, NULL);
}

static void clear(struct sql_claim *c)
{
    struct stile_error err;
    if (postgres_send(c->session, &postgres_sql_unlock_all, NULL, 0, on_cleared, c, &err))
        sql_claim_release_unsent(c, &err);
}

void postgres_claim_clear(struct sql_claim *c)
{
    if (pg_claim_of(c)->ticket) { /* queued: it holds nothing */
        postgres_queue_leave(c);
        sql_claim_released(c, NULL);
    } else if (c->session == pg_of_claim(c)->pool.shared || c->token) {
        postgres_claim_give_back(c);
    } else {
        clear(c);
    }
}

static void on_cancelled(void *data, const struct answer *a)
{
    (void)a;
    sql_claim_stopped(data);
}

/* A session that does not listen yet is closed instead: the cancel could hit the statement by which
 * it would. */
enum stile_status postgres_session_stop(struct session *session)
{
    char backend[24];
    const char *values[] = {backend};
    struct session *shared;
    if (!session->listens)
        return STILE_UNREACHABLE;
    snprintf(backend, sizeof backend, "%" PRIu64, session->base.backend);
    enum stile_status status = sql_pool_shared(&shared, &session->pg->pool, NULL);
    return status ? status
                  : postgres_send(shared, &postgres_sql_cancel, values, 1, on_cancelled, session,
                                  NULL);
}

/* ---- sessions ---- */

static void on_listening(void *data, const struct answer *a)
{
    struct session *session = data;
    (void)a; /* without it `stile break` ends the session after a second */
    session->listens = true;
}

/* Every session listens on all channels: it may become the only one. Before a claim's statements:
 * what is set in the transaction of mode=row goes with it, and an error there would end it. */
static void listen_on(struct session *session)
{
    postgres_send_first(session, &session->pg->listen, on_listening);
    postgres_send_first(session, &postgres_sql_listen, NULL);
    postgres_send_first(session, &postgres_sql_check_connection, NULL);
}

static void on_notified(struct session *session, const char *payload)
{
    struct pg *pg = session->pg;
    if (*payload == 'b')
        postgres_held_break(pg, payload, false);
    else
        postgres_queue_notified(pg, payload);
}

/* A notification that came during the wait is read after the grant, but was about another
 * holder's. */
static void pooled_notified(struct session *session, const char *payload)
{
    struct pg *pg = session->pg;
    if (*payload == 'b')
        postgres_held_break(pg, payload, pg->pool.shared || session->deaf);
    else
        postgres_queue_notified(pg, payload);
}

static void shared_up(struct session *session)
{
    listen_on(session);
    postgres_session_opened(session, NULL);
}

static void shared_ended(struct session *session, const struct stile_error *why)
{
    postgres_session_opened(session, why);
    sql_claim_session_ended(session, why);
}

const struct session_events postgres_shared_events = {
    .up = shared_up, .down = sql_pool_shared_down, .ended = shared_ended, .notified = on_notified};

const struct session_events postgres_pooled_events = {.up = listen_on,
                                                      .down = sql_pool_remove,
                                                      .ended = sql_claim_session_ended,
                                                      .notified = pooled_notified};

void postgres_share(struct session *session)
{
    session->base.events = &postgres_shared_events;
    session->deaf = false;
}
