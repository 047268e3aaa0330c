#include "engines/postgres/setup.h"

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

static enum stile_status run(PGconn *conn, struct stile_error *err)
{
    char sqlstate[6];
    PQsetNoticeReceiver(conn, say_nothing, NULL);
    PGresult *result = PQexec(conn, postgres_schema);
    enum stile_status status = STILE_OK;
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK) {
        session_read_error(err, sqlstate, result);
        status = err ? err->status : STILE_REFUSED;
    }
    PQclear(result);
    return status;
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
