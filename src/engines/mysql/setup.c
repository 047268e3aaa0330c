#include "engines/mysql/setup.h"

#include <mysqld_error.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/my.h"

extern const char mysql_schema[]; /* made from schema.sql */

static enum stile_status complain(MYSQL *conn, const struct options *options,
                                  struct stile_error *err)
{
    fault_of(err, mysql_errno(conn), mysql_error(conn), options->password);
    return err->status;
}

/* 0: there is none yet. */
static enum stile_status read_version(int *version, MYSQL *conn, const struct options *options,
                                      struct stile_error *err)
{
    *version = 0;
    if (mysql_query(conn, "SELECT MAX(version) FROM stile_version"))
        return mysql_errno(conn) == ER_NO_SUCH_TABLE ? STILE_OK : complain(conn, options, err);
    MYSQL_RES *rows = mysql_store_result(conn);
    MYSQL_ROW row = rows ? mysql_fetch_row(rows) : NULL;
    *version = row && row[0] ? atoi(row[0]) : 0;
    mysql_free_result(rows);
    return STILE_OK;
}

static enum stile_status run(MYSQL *conn, const struct options *options, struct stile_error *err)
{
    int failed = mysql_query(conn, mysql_schema);
    while (failed == 0) {
        mysql_free_result(mysql_store_result(conn));
        failed = mysql_next_result(conn);
    }
    return failed > 0 ? complain(conn, options, err) : STILE_OK;
}

static enum stile_status make(MYSQL *conn, const struct options *o, struct stile_error *err)
{
    int version;
    if (!mysql_real_connect(conn, o->host, o->user, o->password, o->database, o->port, o->socket,
                            OPTIONS_FLAGS))
        return complain(conn, o, err);
    if (mysql_query(conn, "SET SESSION completion_type=0,sql_mode='',autocommit=1"))
        return complain(conn, o, err);
    enum stile_status status = read_version(&version, conn, o, err);
    if (!status && version > SCHEMA_VERSION)
        status = error_set(err, STILE_REFUSED, 0,
                           "its tables stile_* have version %d, this library knows %d: install a "
                           "newer one",
                           version, SCHEMA_VERSION);
    return status ? status : run(conn, o, err);
}

enum stile_status mysql_setup(const struct url *url, bool dry_run, const char **script,
                              struct stile_error *err)
{
    struct options options = {0};
    struct stile_error why = {0};
    MYSQL *conn = NULL;
    *script = mysql_schema;
    enum stile_status status = options_read(&options, url, &why);
    if (status || dry_run)
        goto out;
    conn = options_prepare_blocking(&options);
    if (!options.database)
        status = error_set(&why, STILE_MISUSE, 0,
                           "which database? The tables go into the one that the URL names: "
                           "mysql://HOST/DATABASE");
    else if (!conn)
        status = error_set(&why, STILE_NOMEM, 0, "out of memory");
    else
        status = make(conn, &options, &why);
out:
    if (conn)
        mysql_close(conn);
    options_free(&options);
    if (status)
        error_copy(err, &why);
    return status;
}
