/* postgres: advisory locks that end with a session, and a row that counts.
 *
 * The key is hashtextextended(name, 0), so that plain SQL takes the same lock. What is free is
 * granted on one session that all locks of a client share, in one statement:
 * pg_try_advisory_lock(), and the row of the name, whose counter becomes the token with the commit.
 * Who has to wait does so inside the server, in pg_advisory_lock() on a session of its own, which
 * then holds it: so nothing that is held depends on a statement that waits, and the server's own
 * queue is the order.
 *
 * The server ends a session that it has not heard of for the lease (idle_session_timeout), and sees
 * a closed connection at once: a killed holder's lock is free within milliseconds, a stopped one's
 * after its TTL. A hold or a lock-delay is written into the row with the grant; who gets the
 * advisory lock meanwhile sits on it until the time is over.
 *
 *     session.c  one connection        pool.c      those for waiters, and the lease
 *     part.c, claims.c, release.c, renew.c   the life of a claim; rows.c: of one in mode=row
 *     people.c, list.c, breaking.c     list, show, watch, break
 *     jobs.c                           the queue of jobs, in every mode
 *     sql.c, schema.sql                what the server is told, and what it needs for it
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/url.h"
#include "engines/postgres/pg.h"
#include "engines/postgres/setup.h"
#include "engines/postgres/sql.h"
#include "engines/postgres/table.h"
#include "mutant.h"

struct opening {
    bool over;
    bool schema;
    struct stile_error error;
};

/* ---- who we are ---- */

static void write_command(char *out, size_t size, const char *label)
{
    char line[COMMAND_MAX] = "?";
    if (label) {
        snprintf(line, sizeof line, "%s", label);
    } else {
        int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        if (fd >= 0)
            close(fd);
        line[n > 0 ? n : 1] = '\0';
        for (ssize_t i = 0; i + 1 < n; i++)
            line[i] = line[i] ? line[i] : ' ';
    }
    for (char *c = line; *c; c++)
        *c = (unsigned char)*c < ' ' || (unsigned char)*c >= 127 ? '?' : *c;
    snprintf(out, size, "%s", line);
}

static enum stile_status introduce(struct pg *pg, struct stile_error *err)
{
    unsigned char random[OWNER_LEN / 2];
    int rc = loop_random(pg->engine.loop, random, sizeof random);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(pg->who.owner + 2 * i, 3, "%02x", random[i]);
    snprintf(pg->who.pid, sizeof pg->who.pid, "%ld", (long)getpid());
    strcpy(pg->who.host, "?");
    gethostname(pg->who.host, sizeof pg->who.host - 1);
    write_command(pg->who.command, sizeof pg->who.command, pg->engine.label);
    snprintf(pg->channel, sizeof pg->channel, "stile_%s", pg->who.owner);
    snprintf(pg->listen_sql, sizeof pg->listen_sql, "listen %s", pg->channel);
    pg->listen.sql = pg->listen_sql;
    return STILE_OK;
}

/* For pg_stat_activity, and for show: "stile+" counts its grants in the schema. */
static enum stile_status name_sessions(struct pg *pg, struct stile_error *err)
{
    char text[sizeof pg->who + 16];
    snprintf(text, sizeof text, "stile%s:%s@%s %s", pg->bare ? "" : "+", pg->who.pid, pg->who.host,
             pg->who.command);
    text[APPLICATION_MAX - 1] = '\0'; /* the server would cut it, and say so */
    return options_set(&pg->options, "application_name", text, err);
}

/* ---- connecting ---- */

static enum stile_status refuse_pooler(struct stile_error *err)
{
    return error_set(err, STILE_REFUSED, 0,
                     "a pooler stands between us and the server, where the locks of a session may "
                     "become another's: say mode=table, or connect to the server itself (or say "
                     "allow=pooler, if it pools by session)");
}

static enum stile_status check_kind(struct session *session, const PGresult *result,
                                    struct stile_error *err)
{
    struct pg *pg = session->pg;
    if (PQntuples(result) != 1 || PQnfields(result) <= HAIL_SCHEMA)
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    session->backend = atoi(PQgetvalue(result, 0, HAIL_BACKEND));
    pg->pooled = session->backend != PQbackendPID(session->conn);
    if (pg->opening)
        pg->opening->schema = PQgetvalue(result, 0, HAIL_SCHEMA)[0] == 't';
    if (PQgetvalue(result, 0, HAIL_RECOVERY)[0] == 't' && !pg->engine.examining)
        return error_set(err, STILE_REFUSED, 0,
                         "this server is a standby or in recovery, where nothing can be locked: "
                         "connect to its primary (target_session_attrs=read-write finds it)");
    return STILE_OK;
}

static enum stile_status check_has_schema(struct session *session, const PGresult *result,
                                          struct stile_error *err)
{
    const struct pg *pg = session->pg;
    if (PQgetvalue(result, 0, HAIL_SCHEMA)[0] == 't' || pg->options.table || pg->engine.examining)
        return STILE_OK;
    return error_set(err, STILE_REFUSED, 0,
                     "this database has no schema `stile`, which mode=%s needs: run `stile setup "
                     "URL`",
                     pg->options.mode == MODE_ROW ? "row" : "table");
}

static bool may_be_pooled(const struct pg *pg)
{
#ifdef MUTANT_POSTGRES_POOLER_TAKEN
    return true;
#endif
    return pg->options.allow_pooler || pg->engine.examining;
}

static enum stile_status check_server(struct session *session, const PGresult *result,
                                      struct stile_error *err)
{
    struct pg *pg = session->pg;
    if (PQserverVersion(session->conn) < OLDEST_SERVER)
        return error_set(err, STILE_REFUSED, 0,
                         "this server is older than PostgreSQL 14, which has no lease for sessions "
                         "(idle_session_timeout): say mode=table");
    enum stile_status status = check_kind(session, result, err);
    if (!status && pg->pooled && !may_be_pooled(pg))
        return refuse_pooler(err);
    if (!status && pg->options.mode == MODE_ROW)
        status = check_has_schema(session, result, err);
    return status;
}

static enum stile_status check_table(struct session *session, const PGresult *result,
                                     struct stile_error *err)
{
    enum stile_status status = check_kind(session, result, err);
    return status ? status : check_has_schema(session, result, err);
}

static enum stile_status take_addresses(struct pg *pg, const struct addrinfo *found,
                                        struct stile_error *err)
{
    return options_set_addresses(&pg->options, found, err);
}

enum stile_status pg_connect(struct session **session, struct pg *pg,
                             const struct session_events *events, struct stile_error *err)
{
    bool table = pg->options.mode == MODE_TABLE;
    const struct route route = {.keywords = pg->options.keywords,
                                .values = (const char *const *)pg->options.values,
                                .host = options_name(&pg->options),
                                .resolved = take_addresses,
                                .secret = options_get(&pg->options, "password"),
                                .patience_ns = pg->options.patience_ns,
                                .hail = table ? sql_table_hail : sql_hail,
                                .check = table ? check_table : check_server};
    return session_new(session, pg, pg->engine.loop, &route, events, err);
}

/* ---- the shared session ---- */

/* Further sessions go where this one is, until nobody answers there any more. */
void pg_opened(struct session *session, const struct stile_error *why)
{
    struct pg *pg = session->pg;
    struct opening *opening = pg->opening;
    if (!why) {
        pg->server++;
        options_pin(&pg->options, session->conn, NULL);
    } else if (!session->was_up)
        options_unpin(&pg->options);
    if (opening && why && !opening->error.status)
        opening->error = *why;
    if (opening)
        opening->over = true;
}

static void on_listening(void *data, const struct answer *a)
{
    (void)data, (void)a; /* without it `stile break` ends the session after a second */
}

static void shared_up(struct session *session)
{
    session_send(session, &sql_listen, NULL, 0, on_listening, NULL, NULL);
    pg_opened(session, NULL);
}

static void shared_down(struct session *session)
{
    session->pg->shared = NULL;
}

static void shared_ended(struct session *session, const struct stile_error *why)
{
    pg_opened(session, why);
    part_go_down(session, why);
    jobs_go_down(session);
}

static void shared_notified(struct session *session, const char *payload)
{
    if (!jobs_notified(session->pg, payload))
        part_break(session->pg, payload);
}

static const struct session_events shared_events = {
    .up = shared_up, .down = shared_down, .ended = shared_ended, .notified = shared_notified};

enum stile_status pg_shared(struct session **session, struct pg *pg, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    if (!pg->shared)
        status = pg_connect(&pg->shared, pg,
                            pg->options.mode == MODE_TABLE ? &table_events : &shared_events, err);
    *session = pg->shared;
    return status;
}

/* ---- opening ---- */

static enum stile_status drive(struct pg *pg, struct opening *opening, struct stile_error *err)
{
    struct loop *loop = pg->engine.loop;
    while (!opening->over) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    if (opening->error.status)
        error_copy(err, &opening->error);
    opening->over = false;
    return opening->error.status;
}

static void on_version(void *data, const struct answer *a)
{
    struct opening *opening = data;
    opening->over = true;
    if (a->err) {
        opening->error = *a->err;
        return;
    }
    int version = PQntuples(a->result) == 1 ? atoi(PQgetvalue(a->result, 0, 0)) : 0;
    if (version == SCHEMA_VERSION)
        return;
    error_set(&opening->error, STILE_REFUSED, 0,
              version > SCHEMA_VERSION
                  ? "its schema `stile` has version %d, this library knows %d: install a newer one"
                  : "its schema `stile` has version %d, this library needs %d: run `stile setup "
                    "URL`",
              version, SCHEMA_VERSION);
}

static enum stile_status check_schema(struct pg *pg, struct opening *opening,
                                      struct stile_error *err)
{
    pg->bare = !opening->schema;
    if (pg->bare || pg->engine.examining)
        return STILE_OK;
    enum stile_status status =
        session_send(pg->shared, &sql_version, NULL, 0, on_version, opening, err);
    return status ? status : drive(pg, opening, err);
}

static void on_table(void *data, const struct answer *a)
{
    struct opening *opening = data;
    opening->over = true;
    if (a->err)
        opening->error = *a->err;
    else if (PQntuples(a->result) != 1 || PQgetvalue(a->result, 0, 0)[0] != 't')
        error_set(&opening->error, STILE_REFUSED, 0,
                  "there is no such table: make it as ShedLock's manual says (name, lock_until, "
                  "locked_at, locked_by), or name another one (table=)");
}

static enum stile_status check_shedlock(struct pg *pg, struct opening *opening,
                                        struct stile_error *err)
{
    static const struct statement look = {0, "select to_regclass($1::text) is not null"};
    const char *values[] = {pg->options.table};
    enum stile_status status = shedlock_prepare(pg, err);
    if (!status)
        status = session_send(pg->shared, &look, values, 1, on_table, opening, err);
    return status ? status : drive(pg, opening, err);
}

static void rename_shared(struct pg *pg)
{
    const char *values[] = {options_get(&pg->options, "application_name")};
    static const struct statement rename = {
        0, "select set_config('application_name', $1::text, false)"};
    session_send(pg->shared, &rename, values, 1, on_listening, NULL, NULL);
}

static enum stile_status reach(struct pg *pg, struct stile_error *err)
{
    struct opening opening = {0};
    struct session *shared;
    pg->opening = &opening;
    enum stile_status status = pg_shared(&shared, pg, err);
    if (!status)
        status = drive(pg, &opening, err);
    if (!status)
        status = check_schema(pg, &opening, err);
    if (!status && pg->options.table)
        status = check_shedlock(pg, &opening, err);
    if (!status)
        status = name_sessions(pg, err);
    if (!status && !pg->pooled)
        rename_shared(pg);
    pg->opening = NULL;
    return status;
}

static void dispose(struct pg *pg)
{
    while (pg->sessions)
        pool_close(pg->sessions);
    session_free(pg->shared);
    pg->shared = NULL;
    lease_free_batches(&pg->leases);
    shedlock_free(pg);
    loop_disarm(pg->engine.loop, &pg->sweep);
    loop_unreserve(pg->engine.loop, 1);
    options_free(&pg->options);
}

/* A database without our schema. */
static void promise_less(struct stile_caps *caps)
{
    caps->token = caps->hold_at_least = caps->lock_delay = false;
    caps->token_is = "none, for this database has no schema `stile`: run `stile setup URL`";
    caps->survives = "a holder's crash: free at once; a server's crash: nothing is held afterwards";
}

extern const struct engine_class postgres_table_class, postgres_shedlock_class, postgres_row_class;

static enum stile_status postgres_open(struct engine *engine, const struct url *url,
                                       struct stile_error *err)
{
    struct pg *pg = pg_of(engine);
    if (loop_reserve(engine->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    table_prepare(pg);
    pg->sweep.fn = pool_sweep;
    pg->leases.engine = engine;
    pg->leases.ops = &table_ops;
    enum stile_status status = introduce(pg, err);
    if (!status)
        status = options_read(&pg->options, url, err);
    if (!status)
        status = name_sessions(pg, err);
    if (!status)
        status = reach(pg, err);
    if (status) {
        dispose(pg);
    } else if (pg->options.table) {
        engine->class = &postgres_shedlock_class;
        engine->caps = postgres_shedlock_class.caps;
        engine->caps.token = !pg->bare;
        if (pg->bare)
            engine->caps.token_is =
                "none, for this database has no schema `stile`: run `stile setup URL`";
    } else if (pg->options.mode == MODE_TABLE) {
        engine->class = &postgres_table_class;
        engine->caps = postgres_table_class.caps;
    } else if (pg->options.mode == MODE_ROW) {
        engine->class = &postgres_row_class;
        engine->caps = postgres_row_class.caps;
        engine->caps.most_locks = pg->options.sessions - 1;
    } else if (pg->bare) {
        promise_less(&engine->caps);
    }
    return status;
}

static void postgres_close(struct engine *engine)
{
    dispose(pg_of(engine));
}

static void postgres_forked(struct engine *engine)
{
    struct pg *pg = pg_of(engine);
    session_forked(pg->shared);
    for (struct session *session = pg->sessions; session; session = session->next)
        session_forked(session);
}

#define SLOTS                                                                                      \
    .scheme = "postgres postgresql", .params = options_params, .engine_size = sizeof(struct pg),   \
    .open = postgres_open, .setup = postgres_setup, .close = postgres_close,                       \
    .forked = postgres_forked, .list = people_list, .show = people_show, .watch = people_watch,    \
    .unwatch = people_unwatch, .examine = doctor_examine, .jobs = jobs_run

const struct engine_class postgres_table_class = {
    .caps = {.engine = "postgres",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
             .lease = STILE_LEASE_CLAIM,
             .fifo = true,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .detached = true,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed (fsync = on)",
             .condition = "one primary that does not forget: failover to a standby that is not "
                          "synchronous may forget a lock or repeat a token"},
    .apart = true,
    .break_ = table_break,
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
                          "database's (usingDbTime)"},
    .apart = true,
    .break_ = table_break,
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
                          "database"},
    .apart = true,
    .claim_size = sizeof(struct pg_claim),
    .claim = rows_claim,
    .release = claims_release,
    .renew = sessions_renew,
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
                          "them all; their holders are told as their connections end"},
    .claim_size = sizeof(struct pg_claim),
    .claim = claims_claim,
    .release = claims_release,
    .renew = sessions_renew,
    .break_ = people_break,
    SLOTS,
};
