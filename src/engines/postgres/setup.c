#include "engines/postgres/setup.h"

#include <stdio.h>

#include "engines/postgres/fault.h"
#include "engines/postgres/options.h"
#include "engines/postgres/session.h"
#include "mutant.h"

extern const char postgres_schema[]; /* made from schema.sql */

#ifdef MUTANT_POSTGRES_JOBS_UNLOCKED
#include <string.h>

static const char *without_locks(void)
{
    static const char claim[] = "limit p_max", locks[] = " for update skip locked";
    char *schema = strdup(postgres_schema);
    memset(strstr(schema, claim) + strlen(claim), ' ', strlen(locks));
    return schema;
}
#define postgres_schema without_locks()
#endif

static void say_nothing(void *data, const PGresult *result)
{
    (void)data, (void)result; /* "already exists, skipping" */
}

static bool is_done(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
}

/* Whether the very script that would be run has been run, and nothing of it was taken away. Without
 * the right to look, it is run: its error says what is missing. */
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
        session_read_error(err, sqlstate, result);
        status = err->status;
    }
    PQclear(result);
    return status;
}

/* Behind the script, so that it is not part of what is compared. */
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

/* A connection that is used for this alone: nothing is left set or locked behind it. */
static enum stile_status run(PGconn *conn, struct stile_error *err)
{
    PQsetNoticeReceiver(conn, say_nothing, NULL);
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
    enum stile_status status = options_read(&options, url, &why);
    if (status || dry_run)
        goto out;
    conn = PQconnectdbParams(options.keywords, (const char *const *)options.values, 0);
    if (PQstatus(conn) != CONNECTION_OK) {
        fault_of_connection(&why, conn, options_get(&options, "password"));
        status = why.status;
        goto out;
    }
    status = run(conn, &why);
out:
    PQfinish(conn);
    options_free(&options);
    if (status)
        error_copy(err, &why);
    return status;
}
