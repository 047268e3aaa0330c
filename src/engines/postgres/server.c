/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The server: which servers are accepted, the shared session, the schema in the database, and
 * `stile setup`, which creates it. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/postgres/errors.h"
#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

extern const char postgres_schema[]; /* made from schema.sql, guard.sql and once.sql */
extern const char postgres_guard[];  /* made from guard.sql */

/* For pg_stat_activity, and for show: "stile+" counts its grants in the schema. */
enum stile_status postgres_name_sessions(struct pg *pg, struct stile_error *err)
{
    char text[sizeof pg->identity + 16];
    snprintf(text, sizeof text, "stile%s:%s@%s %s", pg->bare ? "" : "+", pg->identity.pid,
             pg->identity.host, pg->identity.command);
    text[APPLICATION_MAX - 1] = '\0'; /* the server would cut it, with a notice */
    return postgres_options_set(&pg->options, "application_name", text, err);
}

/* ---- which servers are accepted ---- */

static enum stile_status refuse_pooler(struct stile_error *err)
{
    return error_set(err, STILE_REFUSED, 0,
                     "there is a pooler between this client and the server, where a session's "
                     "locks may pass to another client: use mode=table, or connect to the server "
                     "directly (or set allow=pooler, if it pools by session)");
}

static enum stile_status check_kind(struct session *session, const PGresult *result,
                                    struct stile_error *err)
{
    struct pg *pg = session->pg;
    if (PQntuples(result) != 1 || PQnfields(result) <= GREETING_KEEPS)
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    int backend = atoi(postgres_value(result, 0, GREETING_BACKEND));
    session->base.backend = (uint64_t)backend;
    pg->pooled = backend != PQbackendPID(session->conn);
    if (sql_opening_is_under_way(&pg->opening)) {
        pg->bare = postgres_value(result, 0, GREETING_SCHEMA)[0] != 't';
        pg->has_cells = postgres_value(result, 0, GREETING_CELLS)[0] == 't';
        pg->has_ends = postgres_value(result, 0, GREETING_KEEPS)[0] == 't';
    }
    if (postgres_value(result, 0, GREETING_RECOVERY)[0] == 't' && !pg->engine.examining)
        return error_set(err, STILE_UNREACHABLE, 0, /* it may be promoted soon */
                         "this server is a standby or in recovery, where nothing can be locked: "
                         "connect to its primary (target_session_attrs=read-write finds it)");
    return STILE_OK;
}

static enum stile_status check_has_schema(struct session *session, const PGresult *result,
                                          struct stile_error *err)
{
    const struct pg *pg = session->pg;
    if (postgres_value(result, 0, GREETING_SCHEMA)[0] == 't' || pg->options.table ||
        pg->engine.examining)
        return STILE_OK;
    return error_set(err, STILE_REFUSED, 0,
                     "this database has no schema `stile`, which mode=%s needs: run `stile setup "
                     "URL`",
                     pg->options.mode == MODE_ROW ? "row" : "table");
}

static bool may_be_pooled(const struct pg *pg)
{
    return pg->options.allow_pooler || pg->engine.examining;
}

static enum stile_status check_server(struct session *session, const PGresult *result,
                                      struct stile_error *err)
{
    struct pg *pg = session->pg;
    if (PQserverVersion(session->conn) < OLDEST_SERVER)
        return error_set(err, STILE_REFUSED, 0,
                         "this server is older than PostgreSQL 14, which has no lease for sessions "
                         "(idle_session_timeout): use mode=table");
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

enum stile_status postgres_connect(struct session **session, struct pool *pool,
                                   const struct session_events *events, struct stile_error *err)
{
    struct pg *pg = pg_of(pool->engine);
    bool table = pg->options.mode == MODE_TABLE;
    const struct route route = {.keywords = pg->options.keywords,
                                .values = (const char *const *)pg->options.values,
                                .secret = postgres_options_get(&pg->options, "password"),
                                .patience_ns = pg->options.patience_ns,
                                .greeting =
                                    table ? postgres_sql_table_greeting : postgres_sql_greeting,
                                .check = table ? check_table : check_server};
    return postgres_session_new(session, pg, &route, events, err);
}

/* Further sessions go to the same server, until it no longer answers. */
void postgres_session_opened(struct session *session, const struct stile_error *why)
{
    struct pg *pg = session->pg;
    if (!why) {
        pg->server++;
        postgres_options_pin(&pg->options, session->conn, NULL);
    } else if (!session->base.was_up)
        postgres_options_unpin(&pg->options);
    sql_opening_answered(&pg->opening, why);
}

/* ---- opening: the schema ---- */

static enum stile_status ask(struct engine *engine, const struct statement *statement,
                             const char *const *values, int n, answer_fn *fn,
                             struct stile_error *err)
{
    struct pg *pg = pg_of(engine);
    return postgres_send(pg->pool.shared, statement, values, n, fn, pg, err);
}

static bool has_schema(struct engine *engine)
{
    return !pg_of(engine)->bare && !engine->examining;
}

static enum stile_status check_version(int version, struct stile_error *err)
{
    if (version >= SCHEMA_OLDEST && version <= SCHEMA_VERSION)
        return STILE_OK;
    return error_set(
        err, STILE_REFUSED, 0,
        version > SCHEMA_VERSION
            ? "its schema `stile` has version %d, this library knows %d: install a newer one"
            : "its schema `stile` has version %d, this library needs %d: run `stile setup URL`",
        version, SCHEMA_VERSION);
}

static void on_version(void *data, const struct answer *a)
{
    struct pg *pg = data;
    struct stile_error err;
    int version =
        a->result && PQntuples(a->result) == 1 ? atoi(postgres_value(a->result, 0, 0)) : 0;
    bool draws = version && postgres_value(a->result, 0, 2)[0] == 't';
    bool without_rows = version && postgres_value(a->result, 0, 3)[0] == 't';
    pg->schema = version < SCHEMA_VERSION ? SCHEMA_COUNTS
                 : !draws                 ? SCHEMA_QUEUE
                 : without_rows           ? SCHEMA_DRAWS
                                          : SCHEMA_TOKENS;
    pg->remembers = version && postgres_value(a->result, 0, 1)[0] == 't';
    bool refused = !a->err && check_version(version, &err);
    sql_opening_answered(&pg->opening, refused ? &err : a->err);
}

static enum stile_status ask_version(struct engine *engine, struct stile_error *err)
{
    return ask(engine, &postgres_sql_version, NULL, 0, on_version, err);
}

/* ---- opening: ShedLock's table ---- */

static bool is_shedlock(struct engine *engine)
{
    return pg_of(engine)->options.table;
}

static void on_shedlock(void *data, const struct answer *a)
{
    struct pg *pg = data;
    struct stile_error err;
    bool missing =
        !a->err && (PQntuples(a->result) != 1 || postgres_value(a->result, 0, 0)[0] != 't');
    if (missing)
        sql_shedlock_refuse_missing(0, &err);
    sql_opening_answered(&pg->opening, missing ? &err : a->err);
}

static enum stile_status ask_shedlock(struct engine *engine, struct stile_error *err)
{
    static const struct statement look = {0, "select to_regclass($1::text) is not null as " TAG};
    struct pg *pg = pg_of(engine);
    const char *values[] = {pg->options.table};
    enum stile_status status = postgres_shedlock_prepare(pg, err);
    return status ? status : ask(engine, &look, values, 1, on_shedlock, err);
}

/* ---- opening: whether its locks exclude ---- */

static bool is_advisory(struct engine *engine)
{
    return pg_of(engine)->options.mode == MODE_ADVISORY && !engine->examining;
}

/* Advisory locks share the server's lock table: when it is full, no client can even connect. */
static void note_room(struct pg *pg, uint64_t room)
{
    uint64_t quarter = room / LOCKS_SHARE;
    pg->most_locks = pg->options.locks ? pg->options.locks : quarter > 1 ? quarter : 1;
}

static void on_probed(void *data, const struct answer *a)
{
    struct pg *pg = data;
    struct stile_error err;
    bool one = !a->err && PQntuples(a->result) == 1;
    bool stub = one && postgres_value(a->result, 0, 0)[0] != 't';
    note_room(pg, one ? strtoull(postgres_value(a->result, 0, 2), NULL, 10) : 0);
    if (stub)
        error_set(&err, STILE_REFUSED, 0,
                  "this server's advisory locks do not exclude, so it is not PostgreSQL "
                  "(CockroachDB and YugabyteDB have stubs): use mode=table");
    sql_opening_answered(&pg->opening, stub ? &err : a->err);
}

static enum stile_status ask_probe(struct engine *engine, struct stile_error *err)
{
    return ask(engine, &postgres_sql_probe, NULL, 0, on_probed, err);
}

const struct opening_step postgres_opening_steps[] = {
    {.ask = sql_opening_connect},
    {.needed = has_schema, .ask = ask_version},
    {.needed = is_shedlock, .ask = ask_shedlock},
    {.needed = is_advisory, .ask = ask_probe},
    {.ask = NULL},
};

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a; /* only shown: nothing depends on it */
}

/* The name of the shared session was given before it was known whether there is a schema. */
enum stile_status postgres_server_opened(struct pg *pg, struct stile_error *err)
{
    static const struct statement rename = {
        0, "select set_config('application_name', $1::text, false)"};
    enum stile_status status = postgres_name_sessions(pg, err);
    if (status || pg->pooled)
        return status;
    const char *values[] = {postgres_options_get(&pg->options, "application_name")};
    postgres_send(pg->pool.shared, &rename, values, 1, ignore, NULL, NULL);
    return STILE_OK;
}

/* ---- setup ---- */

static void ignore_notice(void *data, const PGresult *result)
{
    (void)data, (void)result; /* "already exists, skipping" */
}

static bool is_done(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
}

/* What is noted of a run of the script. A function that was dropped since changes it. */
#define MARK                                                                                       \
    "'made by the script ' operator(pg_catalog.||) pg_catalog.md5($1::pg_catalog.text) "           \
    "operator(pg_catalog.||) ', functions: ' operator(pg_catalog.||) (select pg_catalog.count(p) " \
    "from pg_catalog.pg_proc p where p.pronamespace operator(pg_catalog.=) "                       \
    "'stile'::pg_catalog.regnamespace)"

/* Whether this very script has been run already, and all its tables are there, with their rows.
 * Without the privilege to check, the script is run: its error says what is missing. */
static bool is_complete(PGconn *conn)
{
    const char *values[] = {postgres_schema};
    PGresult *result = PQexecParams(
        conn,
        "select pg_catalog.obj_description('stile.version'::pg_catalog.regclass, 'pg_class') "
        "operator(pg_catalog.=) (" MARK ") and (select pg_catalog.max(version) from "
        "stile.version) operator(pg_catalog.=) 3 and pg_catalog.count(t) operator(pg_catalog.=) 19 "
        "from pg_catalog.unnest(array['version', 'lock', 'floor', 'epoch', 'life', 'tokens', "
        "'changes', "
        "'waiting', 'row_lock', 'counter', 'claim', 'last_holder', 'job', 'job_idle', 'locks', "
        "'guarded', "
        "'guard_floor', 'guard_state', 'once_key']) t where "
        "pg_catalog.to_regclass(('stile.' "
        "operator(pg_catalog.||) t)) is not null and exists (select from stile.epoch)",
        1, NULL, values, NULL, NULL, 0);
    bool complete =
        is_done(result) && PQntuples(result) == 1 && *postgres_value(result, 0, 0) == 't';
    PQclear(result);
    return complete;
}

static enum stile_status exec(PGconn *conn, const char *sql, struct stile_error *err)
{
    char sqlstate[6];
    PGresult *result = PQexec(conn, sql);
    enum stile_status status = STILE_OK;
    if (!is_done(result)) {
        postgres_result_error(err, sqlstate, result);
        status = err->status;
    }
    PQclear(result);
    return status;
}

/* Not in the script itself, whose hash it contains. */
static enum stile_status note_complete(PGconn *conn, struct stile_error *err)
{
    const char *values[] = {postgres_schema};
    char comment[160];
    PGresult *result = PQexecParams(conn, "select " MARK, 1, NULL, values, NULL, NULL, 0);
    snprintf(comment, sizeof comment, "comment on table stile.version is '%.100s'",
             is_done(result) && PQntuples(result) == 1 ? postgres_value(result, 0, 0) : "");
    PQclear(result);
    return exec(conn, comment, err);
}

/* The connection is used for nothing else, so it may be left in any state. */
static enum stile_status run_schema(PGconn *conn, struct stile_error *err)
{
    if (is_complete(conn))
        return STILE_OK;
    enum stile_status status = exec(conn, postgres_schema, err);
    return status ? status : note_complete(conn, err);
}

typedef enum stile_status run_fn(PGconn *conn, struct stile_error *err);

static enum stile_status run_on(const struct url *url, bool dry_run, run_fn *fn,
                                struct stile_error *err)
{
    struct options options = {0};
    struct stile_error why = {0};
    PGconn *conn = NULL;
    enum stile_status status = postgres_options_read(&options, url, &why);
    if (status || dry_run)
        goto out;
    conn = PQconnectdbParams(options.keywords, (const char *const *)options.values, 0);
    if (PQstatus(conn) != CONNECTION_OK) {
        postgres_connection_error(&why, conn, postgres_options_get(&options, "password"));
        status = why.status;
        goto out;
    }
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    status = fn(conn, &why);
out:
    PQfinish(conn);
    postgres_options_free(&options);
    if (status)
        error_copy(err, &why);
    return status;
}

enum stile_status postgres_setup(const struct url *url, bool dry_run, const char **script,
                                 struct stile_error *err)
{
    *script = postgres_schema;
    return run_on(url, dry_run, run_schema, err);
}

static enum stile_status run_guard(PGconn *conn, struct stile_error *err)
{
    return exec(conn, postgres_guard, err);
}

enum stile_status postgres_install_guard(const struct url *url, bool dry_run, const char **script,
                                         struct stile_error *err)
{
    *script = postgres_guard;
    return run_on(url, dry_run, run_guard, err);
}
