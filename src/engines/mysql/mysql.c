/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* mysql: GET_LOCK of a MySQL or MariaDB server, which ends with a session, and a number that it
 * draws.
 *
 * A free lock is granted on one session that all locks of a client share, in one round trip:
 * GET_LOCK(name, 0), and UUID_SHORT(), which becomes the token, above an epoch that is on disk. A
 * claim that has to wait does so inside the server, in GET_LOCK() on a session of its own, which
 * then holds the lock. So no held lock depends on a session with a waiting statement (a server
 * notices late that such a session's process has died), and the server's own queue is the order.
 *
 * The server ends a session that it has not heard from for the lease (wait_timeout), and sees a
 * closed connection at once: a killed holder's lock is free within milliseconds, a stopped one's
 * after its TTL. A hold or a lock-delay is written into the row with the grant; a claim that gets
 * the lock meanwhile keeps it, ungranted, until the hold is over. A wait is withdrawn with KILL
 * QUERY from the shared session, and the lock released then in case it was granted.
 *
 *     server.c                         the server, what it has, and `stile setup`
 *     session.c, ../sql/session.c      one connection and its lease
 *     ../sql/pool.c                    all of them together
 *     claims.c, ../sql/claim.c         the life of a claim
 *     tokens.c, describe.c             its token; the row that describes its grant
 *     rows.c                           mode=row: SELECT ... FOR UPDATE instead of GET_LOCK
 *     table.c, shedlock.c, ../sql/lease.c    mode=table: rows with an owner and an end instead
 *     inspect.c, ../sql/inspect.c      show, watch, list, break
 *     jobs.c                           the queue of jobs, in every mode
 *     cells.c, guard.sql               cells, and guards for anyone's transactions
 *     once.sql                         work that is done once, in anyone's transactions
 *     statements.c, schema.sql         what is sent to the server, and what it needs for that
 */
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/tokens.h"
#include "engines/sql/inspect.h"

/* ---- identity ---- */

/* The text is also sent inside a comment. */
static void keep_from_comment(char *text)
{
    for (char *c = strchr(text, '*'); c; c = strchr(c, '*'))
        *c = '?';
}

static enum stile_status introduce(struct my *my, struct stile_error *err)
{
    struct identity *identity = &my->identity;
    enum stile_status status = sql_identity_init(identity, &my->engine, err);
    if (status)
        return status;
    keep_from_comment(identity->host);
    keep_from_comment(identity->command);
    maria_name_hex(my->host_hex, identity->host, strlen(identity->host));
    maria_name_hex(my->command_hex, identity->command, strlen(identity->command));
    return STILE_OK;
}

/* ---- opening and closing ---- */

#define TIMERS 2

static void dispose(struct my *my)
{
    sql_opening_cancel(&my->opening);
    sql_session_free(my->sleeper);
    my->sleeper = NULL;
    sql_session_free(my->writer);
    my->writer = NULL;
    loop_disarm(my->engine.loop, &my->wakeup_check);
    loop_disarm(my->engine.loop, &my->describe);
    loop_unreserve(my->engine.loop, TIMERS);
    sql_pool_end(&my->pool);
    leased_renewals_free(&my->leases.claims);
    maria_options_free(&my->options);
}

extern const struct engine_class maria_class, maria_table_class, maria_shedlock_class,
    maria_row_class;

static const struct stile_caps *promises(const struct url *url)
{
    static const struct sql_modes modes = {.session = &maria_class,
                                           .table = &maria_table_class,
                                           .shedlock = &maria_shedlock_class,
                                           .row = &maria_row_class};
    return sql_opening_promises(url, &modes);
}

static void promise(struct my *my)
{
    struct engine *engine = &my->engine;
    if (my->options.table) {
        sql_opening_set_class(engine, &maria_shedlock_class);
    } else if (my->options.mode == MODE_TABLE) {
        sql_opening_set_class(engine, &maria_table_class);
    } else if (my->options.mode == MODE_ROW) {
        sql_opening_set_class(engine, &maria_row_class);
        engine->caps.fifo = my->mariadb; /* MySQL prefers transactions that block others */
        engine->caps.most_locks = my->options.sessions - 1;
    }
    if (my->options.mode == MODE_GETLOCK && !my->bare && !my->epochs)
        engine->caps.token_is =
            "a counter in the name's row, committed with the grant: run `stile setup "
            "URL` for tokens that do not wait for the disk";
    engine->caps.history = my->remembers;
    engine->caps.cells = my->guards;
    engine->caps.keeps = my->ends;
    if (my->bare)
        sql_opening_set_bare(
            engine, "none: this database has no tables stile_*; run `stile setup URL`",
            "run `stile setup URL` for tokens, hold-at-least and lock-delay; then mode=table "
            "in the URL has shared locks, slots and stile acquire, too");
}

#define DATABASE                                                                                   \
    .connect = maria_session_new, .close = maria_session_close, .answer = maria_request_answer,    \
    .drop = maria_request_drop, .forked = maria_session_forked, .renew = maria_session_renew,      \
    .keep = maria_session_keep, .stop = maria_session_stop, .ask_show = maria_ask_show,            \
    .read_show = maria_read_show, .ask_list = maria_ask_list, .report_list = maria_report_list,    \
    .record = maria_record

static const struct sql_database database = {
    .wait = maria_claim_wait,
    .give_back = maria_claim_give_back,
    .clear = maria_claim_give_back,
    .note = maria_note,
    DATABASE,
};

static const struct sql_database row_database = {
    .give_back = maria_row_give_back,
    .clear = maria_row_clear,
    DATABASE,
};

/* What depends on the mode. */
static void configure(struct my *my)
{
    bool row = my->options.mode == MODE_ROW, table = my->options.mode == MODE_TABLE;
    my->pool.shared_events = table ? &maria_table_events : &maria_shared_events;
    my->pool.events = &maria_pooled_events;
    my->leases.ops = my->options.table ? &maria_shedlock_ops : &maria_table_ops;
    sql_pool_configure(&my->pool, row ? &row_database : &database, my->options.sessions, row);
}

static enum stile_status prepare(struct my *my, const struct url *url, struct stile_error *err)
{
    struct loop *loop = my->engine.loop;
    if (loop_reserve(loop, TIMERS))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    enum stile_status status = sql_pool_init(&my->pool, &my->engine, err);
    if (status) {
        loop_unreserve(loop, TIMERS);
        return status;
    }
    maria_wakeup_init(my);
    maria_describe_init(my);
    my->leases.engine = &my->engine;
    status = introduce(my, err);
    if (!status)
        status = maria_options_read(&my->options, url, err);
    configure(my);
    if (status)
        dispose(my);
    return status;
}

static enum stile_status finish_open(struct engine *engine, struct stile_error *err)
{
    (void)err;
    promise(my_of(engine));
    return STILE_OK;
}

static void maria_open(struct engine *engine, const struct url *url)
{
    struct my *my = my_of(engine);
    struct stile_error err;
    if (prepare(my, url, &err))
        engine->events->opened(engine, &err);
    else
        sql_opening_start(&my->opening, engine, maria_opening_steps, finish_open);
}

static void maria_close(struct engine *engine)
{
    dispose(my_of(engine));
}

static void maria_forked(struct engine *engine)
{
    struct my *my = my_of(engine);
    if (my->sleeper)
        maria_session_forked(my->sleeper);
    if (my->writer)
        maria_session_forked(my->writer);
    sql_pool_forked(&my->pool);
}

#define CONDITION                                                                                  \
    "one server outside a Galera cluster: GET_LOCK is not replicated, so a failover frees "        \
    "all; "                                                                                        \
    "holders notice when their connections end. For tokens, "                                      \
    "innodb_flush_log_at_trx_commit=1, and sync_binlog=1 if the binary log is on"

#define TABLE_CONDITION                                                                            \
    "servers that do not forget (innodb_flush_log_at_trx_commit=1, and sync_binlog=1 if the "      \
    "binary log is on), and in a Galera cluster, "                                                 \
    "clocks that agree; failover to a replica may forget a lock or repeat a token"

static const struct engine_cells cells = {
    .run = maria_cells,
};

static const struct engine_jobs jobs = {
    .run = maria_jobs,
};

static const struct engine_admin admin = {
    .setup = maria_setup,
    .install_guard = maria_install_guard,
    .examine = maria_examine,
};

#define SLOTS                                                                                      \
    .promises = promises, .schemes = "mysql mysqls mariadb", .params = maria_options_params,       \
    .engine_size = sizeof(struct my), .open = maria_open, .close = maria_close,                    \
    .forked = maria_forked, .list = sql_inspect_list, .show = sql_inspect_show,                    \
    .cancel = sql_inspect_cancel, .cells = &cells, .jobs = &jobs, .admin = &admin,                 \
    .history = &sql_history

const struct engine_class maria_table_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
             .lease = STILE_LEASE_CLAIM,
             .fifo = true,
             .token = true,
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
             .hold_at_least = true,
             .lock_delay = true,
             .detached = true,
             .restores = true,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed",
             .condition = TABLE_CONDITION},
    .apart = true,
    .in_flight = 256,
    .break_ = maria_table_break,
    LEASE_SLOTS,
    SLOTS,
};

const struct engine_class maria_shedlock_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE,
             .lease = STILE_LEASE_CLAIM,
             .token = true,
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
             .hold_at_least = true,
             .detached = true,
             .token_is = "a counter of ours, committed with the grant; ShedLock's own claims have "
                         "none",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed",
             .condition = "all other clients follow ShedLock's rules, by the database's clock "
                          "(usingDbTime) and in its time zone",
             .instead = "mode=table without dialect= has shared locks, slots and lock-delay"},
    .apart = true,
    .break_ = maria_table_break,
    LEASE_SLOTS,
    SLOTS,
};

#define ROW_CONDITION                                                                              \
    "one server outside a Galera cluster: row locks are not replicated, so a failover frees "      \
    "all; holders notice when their connections end. Each lock that is held or waited for "        \
    "takes a session (sessions=)"

const struct engine_class maria_row_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED,
             .lease = STILE_LEASE_SESSION,
             .fifo = true,
             .token = true,
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
             .hold_at_least = true,
             .lock_delay = true,
             .most_locks = SESSIONS_DEFAULT - 1,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free at once; a server's crash: nothing is held "
                         "afterwards, and tokens go on growing",
             .condition = ROW_CONDITION,
             .instead = "mode=table in the URL has slots and stile acquire"},
    .apart_sharing = true, /* each lock has a session of its own */
    .claim_size = sizeof(struct my_claim),
    .claim = maria_row_claim,
    .release = sql_claim_release,
    .renew = sql_pool_renew,
    .break_ = maria_break,
    SLOTS,
};

const struct engine_class maria_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE,
             .lease = STILE_LEASE_SESSION,
             .fifo = true,
             .token = true,
             .cells = true,
             .clock = true,
             .keeps = true,
             .paces = true,
             .hold_at_least = true,
             .lock_delay = true,
             .token_is = "an epoch that is on disk, and a counter of the server",
             .survives = "a holder's crash: free at once; a server's crash: nothing is held "
                         "afterwards, and tokens go on growing",
             .condition = CONDITION,
             .instead =
                 "mode=table in the URL has shared locks, slots and stile acquire; mode=row has "
                 "shared locks"},
    .in_flight = 256,
    .claim_size = sizeof(struct my_claim),
    .claim = maria_claim,
    .release = sql_claim_release,
    .renew = sql_pool_renew,
    .break_ = maria_break,
    SLOTS,
};
