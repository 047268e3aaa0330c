/* The server: which servers are accepted, the shared session, the schema in the database, and
 * `stile setup`, which creates it. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

extern const char postgres_schema[]; /* made from schema.sql */

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
    if (PQntuples(result) != 1 || PQnfields(result) <= GREETING_SCHEMA)
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    int backend = atoi(PQgetvalue(result, 0, GREETING_BACKEND));
    session->base.backend = (uint64_t)backend;
    pg->pooled = backend != PQbackendPID(session->conn);
    if (pg->opening)
        pg->opening->schema = PQgetvalue(result, 0, GREETING_SCHEMA)[0] == 't';
    if (PQgetvalue(result, 0, GREETING_RECOVERY)[0] == 't' && !pg->engine.examining)
        return error_set(err, STILE_UNREACHABLE, 0, /* it may be promoted soon */
                         "this server is a standby or in recovery, where nothing can be locked: "
                         "connect to its primary (target_session_attrs=read-write finds it)");
    return STILE_OK;
}

static enum stile_status check_has_schema(struct session *session, const PGresult *result,
                                          struct stile_error *err)
{
    const struct pg *pg = session->pg;
    if (PQgetvalue(result, 0, GREETING_SCHEMA)[0] == 't' || pg->options.table ||
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

static enum stile_status take_addresses(struct pg *pg, const struct addrinfo *found,
                                        struct stile_error *err)
{
    return postgres_options_set_addresses(&pg->options, found, err);
}

enum stile_status postgres_connect(struct session **session, struct pg *pg,
                                   const struct session_events *events, struct stile_error *err)
{
    bool table = pg->options.mode == MODE_TABLE;
    const struct route route = {.keywords = pg->options.keywords,
                                .values = (const char *const *)pg->options.values,
                                .host = postgres_options_name(&pg->options),
                                .resolved = take_addresses,
                                .secret = postgres_options_get(&pg->options, "password"),
                                .patience_ns = pg->options.patience_ns,
                                .greeting =
                                    table ? postgres_sql_table_greeting : postgres_sql_greeting,
                                .check = table ? check_table : check_server};
    return postgres_session_new(session, pg, &route, events, err);
}

enum stile_status postgres_session_connect(struct session **session, struct pool *pool,
                                           struct stile_error *err)
{
    struct pg *pg = pg_of(pool->engine);
    return postgres_connect(session, pg, pg->pooled_events, err);
}

/* ---- the shared session ---- */

/* Further sessions go to the same server, until it no longer answers. */
void postgres_session_opened(struct session *session, const struct stile_error *why)
{
    struct pg *pg = session->pg;
    if (!why) {
        pg->server++;
        postgres_options_pin(&pg->options, session->conn, NULL);
    } else if (!session->was_up)
        postgres_options_unpin(&pg->options);
    sql_opening_done(pg->opening, why);
}

enum stile_status postgres_shared(struct session **session, struct pg *pg, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    sql_pool_share_idle(&pg->pool);
    if (!pg->pool.shared)
        status = postgres_connect(&pg->pool.shared, pg, pg->shared_events, err);
    *session = pg->pool.shared;
    return status;
}

/* ---- opening ---- */

static void on_version(void *data, const struct answer *a)
{
    struct opening *opening = data;
    sql_opening_done(opening, a->err);
    if (a->err)
        return;
    int version = PQntuples(a->result) == 1 ? atoi(PQgetvalue(a->result, 0, 0)) : 0;
    opening->version = version;
    if (version >= SCHEMA_OLDEST && version <= SCHEMA_VERSION)
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
        postgres_send(pg->pool.shared, &postgres_sql_version, NULL, 0, on_version, opening, err);
    if (!status)
        status = sql_opening_wait(opening, pg->engine.loop, err);
    pg->schema = opening->version == SCHEMA_VERSION ? SCHEMA_QUEUE : SCHEMA_COUNTS;
    return status;
}

static void on_table(void *data, const struct answer *a)
{
    struct opening *opening = data;
    sql_opening_done(opening, a->err);
    if (!a->err && (PQntuples(a->result) != 1 || PQgetvalue(a->result, 0, 0)[0] != 't'))
        sql_shedlock_refuse_missing(0, &opening->error);
}

static enum stile_status check_shedlock(struct pg *pg, struct opening *opening,
                                        struct stile_error *err)
{
    static const struct statement look = {0, "select to_regclass($1::text) is not null as " TAG};
    const char *values[] = {pg->options.table};
    enum stile_status status = postgres_shedlock_prepare(pg, err);
    if (!status)
        status = postgres_send(pg->pool.shared, &look, values, 1, on_table, opening, err);
    return status ? status : sql_opening_wait(opening, pg->engine.loop, err);
}

/* ---- whether its locks exclude ---- */

static void on_probed(void *data, const struct answer *a)
{
    struct opening *opening = data;
    sql_opening_done(opening, a->err);
    if (a->err || PQntuples(a->result) != 1)
        return;
    opening->room = strtoull(PQgetvalue(a->result, 0, 2), NULL, 10);
    if (PQgetvalue(a->result, 0, 0)[0] != 't')
        error_set(&opening->error, STILE_REFUSED, 0,
                  "this server's advisory locks do not exclude, so it is not PostgreSQL "
                  "(CockroachDB and YugabyteDB have stubs): use mode=table");
}

/* Advisory locks share the server's lock table: when it is full, nobody can even connect. */
static enum stile_status check_locks(struct pg *pg, struct opening *opening,
                                     struct stile_error *err)
{
    enum stile_status status =
        postgres_send(pg->pool.shared, &postgres_sql_probe, NULL, 0, on_probed, opening, err);
    if (!status)
        status = sql_opening_wait(opening, pg->engine.loop, err);
    uint64_t quarter = opening->room / LOCKS_SHARE;
    pg->most_locks = pg->options.locks ? pg->options.locks : quarter > 1 ? quarter : 1;
    return status;
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a; /* only shown: nothing depends on it */
}

static void rename_shared(struct pg *pg)
{
    const char *values[] = {postgres_options_get(&pg->options, "application_name")};
    static const struct statement rename = {
        0, "select set_config('application_name', $1::text, false)"};
    postgres_send(pg->pool.shared, &rename, values, 1, ignore, NULL, NULL);
}

enum stile_status postgres_server_open(struct pg *pg, struct stile_error *err)
{
    struct opening opening = {0};
    struct session *shared;
    pg->opening = &opening;
    enum stile_status status = postgres_shared(&shared, pg, err);
    if (!status)
        status = sql_opening_wait(&opening, pg->engine.loop, err);
    if (!status)
        status = check_schema(pg, &opening, err);
    if (!status && pg->options.table)
        status = check_shedlock(pg, &opening, err);
    if (!status && pg->options.mode == MODE_ADVISORY && !pg->engine.examining)
        status = check_locks(pg, &opening, err);
    if (!status)
        status = postgres_name_sessions(pg, err);
    if (!status && !pg->pooled)
        rename_shared(pg);
    pg->opening = NULL;
    return status;
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

/* Whether this very script has been run already, and all its tables are there. Without the
 * privilege to check, the script is run: its error says what is missing. */
static bool is_complete(PGconn *conn)
{
    const char *values[] = {postgres_schema};
    PGresult *result = PQexecParams(
        conn,
        "select pg_catalog.obj_description('stile.version'::pg_catalog.regclass, 'pg_class') "
        "operator(pg_catalog.=) ('made by the script ' operator(pg_catalog.||) "
        "pg_catalog.md5($1::pg_catalog.text)) and (select pg_catalog.max(version) from "
        "stile.version) operator(pg_catalog.=) 3 and pg_catalog.count(t) operator(pg_catalog.=) 10 "
        "from pg_catalog.unnest(array['version', 'lock', 'floor', 'waiting', 'row_lock', "
        "'counter', 'claim', 'job', 'job_idle', 'locks']) t where pg_catalog.to_regclass(('stile.' "
        "operator(pg_catalog.||) t)) is not null",
        1, NULL, values, NULL, NULL, 0);
    bool complete = is_done(result) && PQntuples(result) == 1 && *PQgetvalue(result, 0, 0) == 't';
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
    char comment[128];
    PGresult *result = PQexecParams(conn, "select pg_catalog.md5($1::pg_catalog.text)", 1, NULL,
                                    values, NULL, NULL, 0);
    snprintf(comment, sizeof comment,
             "comment on table stile.version is 'made by the script %.32s'",
             is_done(result) && PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return exec(conn, comment, err);
}

/* The connection is used for nothing else, so it may be left in any state. */
static enum stile_status run(PGconn *conn, struct stile_error *err)
{
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    if (is_complete(conn))
        return STILE_OK;
    enum stile_status status = exec(conn, postgres_schema, err);
    return status ? status : note_complete(conn, err);
}

enum stile_status postgres_setup(const struct url *url, bool dry_run, const char **script,
                                 struct stile_error *err)
{
    struct options options = {0};
    struct stile_error why = {0};
    PGconn *conn = NULL;
    *script = postgres_schema;
    enum stile_status status = postgres_options_read(&options, url, &why);
    if (status || dry_run)
        goto out;
    conn = PQconnectdbParams(options.keywords, (const char *const *)options.values, 0);
    if (PQstatus(conn) != CONNECTION_OK) {
        postgres_connection_error(&why, conn, postgres_options_get(&options, "password"));
        status = why.status;
        goto out;
    }
    status = run(conn, &why);
out:
    PQfinish(conn);
    postgres_options_free(&options);
    if (status)
        error_copy(err, &why);
    return status;
}
