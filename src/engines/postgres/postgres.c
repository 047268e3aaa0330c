/* postgres: advisory locks that end with a session, and a row that counts.
 *
 * The key is hashtextextended(name, 0), so that plain SQL takes the same lock. What is free is
 * granted on one session that all locks of a client share, in one statement:
 * pg_try_advisory_lock(), and the row of the name, whose counter becomes the token with the commit.
 * A claim that has to wait does so inside the server, in pg_advisory_lock() on a session of its
 * own, which then holds it, but for less than a second: a statement keeps a snapshot. Then it has a
 * place in a line of our own (line.c), without a statement, on the shared session.
 *
 * The server ends a session that it has not heard of for the lease (idle_session_timeout), and sees
 * a closed connection at once: a killed holder's lock is free within milliseconds, a stopped one's
 * after its TTL. A hold or a lock-delay is written into the row with the grant; who gets the
 * advisory lock meanwhile sits on it until the time is over.
 *
 *     reach.c                          the server and what it has
 *     session.c, talk.c                one connection
 *     ttl.c, ../sql/pool.c             its lease; all of them together
 *     claims.c, line.c, held.c, release.c, ../sql/part.c, ../sql/release.c   the life of a claim
 *     view.c, list.c, breaking.c, ../sql/people.c   show, watch, list, break
 *     jobs.c                           the queue of jobs, in every mode
 *     sql.c, schema.sql                what the server is told, and what it needs for it
 *     table.c, shedlock.c, ../sql/lease.c    mode=table: rows with an owner and an end instead
 *     rows.c                           mode=row: SELECT ... FOR UPDATE instead of a key
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/url.h"
#include "engines/postgres/pg.h"
#include "engines/postgres/setup.h"
#include "engines/postgres/sql.h"
#include "engines/postgres/table.h"
#include "engines/sql/opening.h"

/* ---- who we are ---- */

static enum stile_status introduce(struct pg *pg, struct stile_error *err)
{
    enum stile_status status = who_introduce(&pg->who, &pg->engine, err);
    snprintf(pg->channel, sizeof pg->channel, "stile_%s", pg->who.owner);
    snprintf(pg->listen_sql, sizeof pg->listen_sql, "listen %s", pg->channel);
    pg->listen.sql = pg->listen_sql;
    pg->tags = strtoull(pg->who.owner, NULL, 16) | 1;
    return status;
}

static void dispose(struct pg *pg)
{
    session_free(pg->jobs);
    pg->jobs = NULL;
    pool_end(&pg->pool);
    lease_free_batches(&pg->leases);
    shedlock_free(pg);
    options_free(&pg->options);
}

extern const struct engine_class postgres_table_class, postgres_shedlock_class, postgres_row_class;

static void promise(struct pg *pg)
{
    struct engine *engine = &pg->engine;
    if (pg->options.table) {
        opening_promise(engine, &postgres_shedlock_class);
    } else if (pg->options.mode == MODE_TABLE) {
        opening_promise(engine, &postgres_table_class);
    } else if (pg->options.mode == MODE_ROW) {
        opening_promise(engine, &postgres_row_class);
        engine->caps.most_locks = pg->options.sessions - 1;
    }
    if (pg->options.mode == MODE_ADVISORY)
        engine->caps.most_locks = (unsigned)pg->most_locks;
    if (pg->options.mode == MODE_ADVISORY && pg->schema != SCHEMA_LINE)
        engine->caps.fifo = false;
    if (pg->options.mode == MODE_ADVISORY && pg->schema == SCHEMA_COUNTS)
        engine->caps.instead = "run `stile setup URL`: the schema here is older than this library, "
                               "and keeps no order among those that wait for more than a second";
    if (pg->bare)
        opening_promise_less(
            engine, "none, for this database has no schema `stile`: run `stile setup URL`",
            "run `stile setup URL` for tokens, hold-at-least, lock-delay and an order among "
            "those that wait for more than a second; then mode=table "
            "in the URL has slots and stile acquire, too");
}

static enum stile_status postgres_open(struct engine *engine, const struct url *url,
                                       struct stile_error *err)
{
    struct pg *pg = pg_of(engine);
    enum stile_status status = pool_init(&pg->pool, engine, err);
    if (status)
        return status;
    table_prepare(pg);
    pg->leases.engine = engine;
    pg->leases.ops = &table_ops;
    pg->pool.note = held_note;
    pg->pool.share = pg_share;
    status = introduce(pg, err);
    if (!status)
        status = options_read(&pg->options, url, err);
    pool_limit(&pg->pool, pg->options.sessions, pg->options.mode == MODE_ROW);
    if (!status)
        status = pg_name_sessions(pg, err);
    if (!status)
        status = pg_reach(pg, err);
    if (!status)
        promise(pg);
    else
        dispose(pg);
    return status;
}

static void postgres_close(struct engine *engine)
{
    dispose(pg_of(engine));
}

static void postgres_forked(struct engine *engine)
{
    pool_forked(pool_of(engine));
    session_forked(pg_of(engine)->jobs);
}

static const struct engine_push push = {
    .watch = people_watch,
    .unwatch = people_unwatch,
};

static const struct engine_jobs jobs = {
    .run = jobs_run,
    .left = jobs_left,
};

static const struct engine_admin admin = {
    .setup = postgres_setup,
    .examine = doctor_examine,
};

#define SLOTS                                                                                      \
    .schemes = "postgres postgresql", .params = options_params, .engine_size = sizeof(struct pg),  \
    .open = postgres_open, .close = postgres_close, .forked = postgres_forked,                     \
    .list = people_list, .show = people_show, .push = &push, .jobs = &jobs, .admin = &admin

const struct engine_class postgres_table_class = {
    .caps = {.engine = "postgres",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
             .lease = STILE_LEASE_CLAIM,
             .fifo = true,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .detached = true,
             .restores = true,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed (fsync = on)",
             .condition = "one primary that does not forget: failover to a standby that is not "
                          "synchronous may forget a lock or repeat a token"},
    .apart = true,
    .break_ = table_break,
    .in_flight = 256,
    LEASE_SLOTS,
    SLOTS,
};

const struct engine_class postgres_shedlock_class = {
    .caps = {.engine = "postgres",
             .modes = 1u << STILE_EXCLUSIVE,
             .lease = STILE_LEASE_CLAIM,
             .token = true,
             .hold_at_least = true,
             .detached = true,
             .token_is = "a counter of ours, committed with the grant; ShedLock's own claims have "
                         "none",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed (fsync = on)",
             .condition = "all others keep ShedLock's rules, on clocks that agree with the "
                          "database's (usingDbTime)",
             .instead = "mode=table without dialect= has shared locks, slots and lock-delay"},
    .apart = true,
    .break_ = table_break,
    .in_flight = 256,
    LEASE_SLOTS,
    SLOTS,
};

const struct engine_class postgres_row_class = {
    .caps = {.engine = "postgres",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED,
             .lease = STILE_LEASE_SESSION,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .token_is = "a counter in the name's row, committed by another session than the one "
                         "that holds the lock",
             .survives = "a holder's crash: free at once; a server's crash: nothing is held "
                         "afterwards, and tokens go on growing",
             .condition = "one primary, for locks of rows are not replicated; each lock keeps a "
                          "session and an open transaction, which holds up VACUUM in the whole "
                          "database",
             .instead = "mode=table in the URL has slots and stile acquire"},
    .apart = true,
    .in_flight = 256,
    .claim_size = sizeof(struct pg_claim),
    .claim = rows_claim,
    .release = claims_release,
    .renew = pool_renew,
    .break_ = people_break,
    SLOTS,
};

const struct engine_class postgres_class = {
    .caps = {.engine = "postgres",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED,
             .lease = STILE_LEASE_SESSION,
             .fifo = true,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free at once; a server's crash: nothing is held "
                         "afterwards, and tokens go on growing",
             .condition = "one primary: advisory locks are not replicated, so a failover frees "
                          "them all; their holders are told as their connections end. Locks share "
                          "the server's lock table: a quarter of it for one client, or locks=N",
             .instead = "mode=table in the URL has slots and stile acquire"},
    .apart_sharing = true,
    .in_flight = 256,
    .claim_size = sizeof(struct pg_claim),
    .claim = claims_claim,
    .release = claims_release,
    .renew = pool_renew,
    .break_ = people_break,
    SLOTS,
};
