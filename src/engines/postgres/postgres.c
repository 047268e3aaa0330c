/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* postgres: advisory locks that end with a session, and tokens from a counter.
 *
 * The key is hashtextextended(name, 0), so that plain SQL takes the same lock. A free lock is
 * granted on one session that all locks of a client share, in one statement:
 * pg_try_advisory_lock(), and a token from a counter. It writes nothing; a row that describes the
 * holder follows if the lock is held for some milliseconds (describe.c).
 * A claim that has to wait does so inside the server, in pg_advisory_lock() on a session of its
 * own, which then holds the lock. It waits there for less than a second, as a statement keeps a
 * snapshot; then it gets a place in a queue of our own (queue.c), without a statement.
 *
 * The server ends a session that it has not heard from for the lease (idle_session_timeout), and
 * sees a closed connection at once: a killed holder's lock is free within milliseconds, a stopped
 * one's after its TTL. A hold or a lock-delay is written into the row with the grant; a claim that
 * gets the advisory lock meanwhile keeps it, ungranted, until the hold is over.
 *
 *     server.c                         the server, what it has, and `stile setup`
 *     session.c, ../sql/session.c      one connection and its lease
 *     ../sql/pool.c                    all of them together
 *     claims.c, advisory.c, queue.c, ../sql/claim.c    the life of a claim
 *     rows.c                           mode=row: SELECT ... FOR UPDATE instead of a key
 *     table.c, ../sql/lease.c          mode=table: rows with an owner and an end instead
 *     describe.c                       rows of locks that are held for a while
 *     inspect.c, ../sql/inspect.c      show, watch, list, break
 *     jobs.c, cells.c                  the queue of jobs, and cells, in every mode
 *     statements.c, schema.sql         what is sent to the server, and what it needs for that
 *     guard.sql                        guards for the transactions of others
 *     once.sql                         work that is done once, in the transactions of others
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"
#include "engines/sql/inspect.h"

/* ---- identity ---- */

static enum stile_status introduce(struct pg *pg, struct stile_error *err)
{
    enum stile_status status = sql_identity_init(&pg->identity, &pg->engine, err);
    snprintf(pg->channel, sizeof pg->channel, "stile_%s", pg->identity.owner);
    snprintf(pg->listen_sql, sizeof pg->listen_sql, "listen %s", pg->channel);
    pg->listen.sql = pg->listen_sql;
    pg->tags = strtoull(pg->identity.owner, NULL, 16) | 1;
    return status;
}

static void dispose(struct pg *pg)
{
    sql_opening_cancel(&pg->opening);
    postgres_describe_end(pg);
    postgres_looks_free(pg);
    sql_session_free(pg->jobs);
    pg->jobs = NULL;
    sql_pool_end(&pg->pool);
    leased_renewals_free(&pg->leases.claims);
    postgres_shedlock_free(pg);
    postgres_options_free(&pg->options);
}

extern const struct engine_class postgres_class, postgres_table_class, postgres_shedlock_class,
    postgres_row_class;

static const struct stile_caps *promises(const struct url *url)
{
    static const struct sql_modes modes = {.session = &postgres_class,
                                           .table = &postgres_table_class,
                                           .shedlock = &postgres_shedlock_class,
                                           .row = &postgres_row_class};
    return sql_opening_promises(url, &modes);
}

static void promise(struct pg *pg)
{
    struct engine *engine = &pg->engine;
    if (pg->options.table) {
        sql_opening_set_class(engine, &postgres_shedlock_class);
    } else if (pg->options.mode == MODE_TABLE) {
        sql_opening_set_class(engine, &postgres_table_class);
    } else if (pg->options.mode == MODE_ROW) {
        sql_opening_set_class(engine, &postgres_row_class);
        engine->caps.most_locks = pg->options.sessions - 1;
    }
    if (pg->options.mode != MODE_TABLE && pg->schema >= SCHEMA_TOKENS)
        engine->caps.token_is = "an epoch, which is on disk, and a counter, which need not be";
    engine->caps.history = pg->remembers;
    engine->caps.cells = pg->has_cells;
    engine->caps.keeps = pg->has_ends;
    if (pg->options.mode == MODE_ADVISORY)
        engine->caps.most_locks = (unsigned)pg->most_locks;
    if (pg->options.mode == MODE_ADVISORY && pg->schema < SCHEMA_QUEUE)
        engine->caps.fifo = false;
    if (pg->options.mode == MODE_ADVISORY && pg->schema == SCHEMA_COUNTS)
        engine->caps.instead = "run `stile setup URL`: the schema here is older than this library, "
                               "and keeps no order among waits of more than a second";
    if (pg->bare)
        sql_opening_set_bare(
            engine, "none: this database has no schema `stile`; run `stile setup URL`",
            "run `stile setup URL` for tokens, hold-at-least, lock-delay and an order among waits "
            "of more than a second; then mode=table in the URL has slots and stile acquire, too");
}

#define DATABASE                                                                                   \
    .connect = postgres_connect, .close = postgres_session_close,                                  \
    .answer = postgres_request_answer, .drop = postgres_request_drop,                              \
    .forked = postgres_session_forked, .forget = postgres_session_forget,                          \
    .dispose = postgres_session_dispose, .renew = postgres_session_renew,                          \
    .keep = postgres_session_keep, .stop = postgres_session_stop, .share = postgres_share,         \
    .note = postgres_held_note, .ask_show = postgres_ask_show, .read_show = postgres_read_show,    \
    .ask_list = postgres_ask_list, .report_list = postgres_report_list, .record = postgres_record

static const struct sql_database database = {
    .wait = postgres_claim_wait,
    .give_back = postgres_claim_give_back,
    .clear = postgres_claim_clear,
    DATABASE,
};

static const struct sql_database row_database = {
    .give_back = postgres_row_give_back,
    .clear = postgres_row_clear,
    DATABASE,
};

/* What depends on the mode. */
static void configure(struct pg *pg)
{
    bool row = pg->options.mode == MODE_ROW, table = pg->options.mode == MODE_TABLE;
    pg->pool.shared_events = table ? &postgres_table_events : &postgres_shared_events;
    pg->pool.events = &postgres_pooled_events;
    pg->leases.ops = pg->options.table ? &postgres_shedlock_ops : &postgres_table_ops;
    sql_pool_configure(&pg->pool, row ? &row_database : &database, pg->options.sessions, row);
}

static enum stile_status prepare(struct pg *pg, const struct url *url, struct stile_error *err)
{
    enum stile_status status = sql_pool_init(&pg->pool, &pg->engine, err);
    if (status)
        return status;
    postgres_table_prepare(pg);
    pg->leases.engine = &pg->engine;
    status = postgres_describe_init(pg, err);
    if (!status)
        status = introduce(pg, err);
    if (!status)
        status = postgres_options_read(&pg->options, url, err);
    configure(pg);
    if (!status)
        status = postgres_name_sessions(pg, err);
    if (status)
        dispose(pg);
    return status;
}

static enum stile_status finish_open(struct engine *engine, struct stile_error *err)
{
    enum stile_status status = postgres_server_opened(pg_of(engine), err);
    if (!status)
        promise(pg_of(engine));
    return status;
}

static void postgres_open(struct engine *engine, const struct url *url)
{
    struct pg *pg = pg_of(engine);
    struct stile_error err;
    if (prepare(pg, url, &err))
        engine->events->opened(engine, &err);
    else
        sql_opening_start(&pg->opening, engine, postgres_opening_steps, finish_open);
}

static void postgres_close(struct engine *engine)
{
    dispose(pg_of(engine));
}

static void postgres_forked(struct engine *engine)
{
    sql_pool_forked(pool_of(engine));
    if (pg_of(engine)->jobs)
        postgres_session_forked(pg_of(engine)->jobs);
}

static const struct engine_jobs jobs = {
    .run = postgres_jobs,
    .left = postgres_jobs_left,
};

static const struct engine_admin admin = {
    .setup = postgres_setup,
    .install_guard = postgres_install_guard,
    .examine = postgres_examine,
};

#define SLOTS                                                                                      \
    .promises = promises, .schemes = "postgres postgresql", .params = postgres_options_params,     \
    .engine_size = sizeof(struct pg), .open = postgres_open, .close = postgres_close,              \
    .forked = postgres_forked, .list = sql_inspect_list, .show = sql_inspect_show,                 \
    .cancel = postgres_cancel, .cells = &postgres_cells, .jobs = &jobs, .admin = &admin,           \
    .history = &sql_history

const struct engine_class postgres_table_class = {
    .caps = {.engine = "postgres",
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
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
    .break_ = postgres_table_break,
    .in_flight = 256,
    LEASE_SLOTS,
    SLOTS,
};

const struct engine_class postgres_shedlock_class = {
    .caps = {.engine = "postgres",
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
             .modes = 1u << STILE_EXCLUSIVE,
             .lease = STILE_LEASE_CLAIM,
             .token = true,
             .hold_at_least = true,
             .detached = true,
             .token_is = "a counter of ours, committed with the grant; ShedLock's own claims have "
                         "none",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed (fsync = on)",
             .condition = "all other clients follow ShedLock's rules, on clocks that agree with "
                          "the database's (usingDbTime)",
             .instead = "mode=table without dialect= has shared locks, slots and lock-delay"},
    .apart = true,
    .break_ = postgres_table_break,
    .in_flight = 256,
    LEASE_SLOTS,
    SLOTS,
};

const struct engine_class postgres_row_class = {
    .caps = {.engine = "postgres",
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED,
             .lease = STILE_LEASE_SESSION,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .token_is = "a counter in the name's row, committed by a session other than the one "
                         "that holds the lock",
             .survives = "a holder's crash: free at once; a server's crash: nothing is held "
                         "afterwards, and tokens go on growing",
             .condition = "one primary: row locks are not replicated; each lock keeps a session "
                          "and an open transaction, which delays VACUUM in the whole database",
             .instead = "mode=table in the URL has slots and stile acquire"},
    .apart = true,
    .in_flight = 256,
    .claim_size = sizeof(struct pg_claim),
    .claim = postgres_row_claim,
    .release = sql_claim_release,
    .renew = sql_pool_renew,
    .break_ = postgres_break,
    SLOTS,
};

const struct engine_class postgres_class = {
    .caps = {.engine = "postgres",
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
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
                          "them all; holders notice when their connections end. Locks share the "
                          "server's lock table: a quarter of it for one client, or locks=N",
             .instead = "mode=table in the URL has slots and stile acquire"},
    .apart_sharing = true,
    .in_flight = 256,
    .claim_size = sizeof(struct pg_claim),
    .claim = postgres_claim,
    .release = sql_claim_release,
    .renew = sql_pool_renew,
    .break_ = postgres_break,
    SLOTS,
};
