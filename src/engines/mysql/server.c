/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The server: the shared session, the schema in the database, and `stile setup`, which creates
 * it. */
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"

extern const char maria_schema[]; /* made from schema.sql, guard.sql and once.sql */
extern const char maria_guard[];  /* made from guard.sql */

/* ---- sessions ---- */

static void ignore_up(struct session *session)
{
    (void)session;
}

const struct session_events maria_pooled_events = {
    .up = ignore_up, .down = sql_pool_remove, .ended = sql_claim_session_ended};

static void shared_up(struct session *session)
{
    sql_opening_answered(&session->my->opening, NULL);
}

static void shared_ended(struct session *session, const struct stile_error *why)
{
    sql_opening_answered(&session->my->opening, why);
    sql_claim_session_ended(session, why);
}

const struct session_events maria_shared_events = {
    .up = shared_up, .down = sql_pool_shared_down, .ended = shared_ended};

/* ---- opening: the tables ---- */

static enum stile_status ask(struct engine *engine, char *sql, answer_fn *fn,
                             struct stile_error *err)
{
    struct my *my = my_of(engine);
    return maria_send(my->pool.shared, sql, fn, my, err);
}

static bool has_tables(struct engine *engine)
{
    return !my_of(engine)->bare;
}

static enum stile_status check_version(int version, struct stile_error *err)
{
    if (version >= SCHEMA_OLDEST && version <= SCHEMA_VERSION)
        return STILE_OK;
    return error_set(err, STILE_REFUSED, 0,
                     version > SCHEMA_VERSION
                         ? "its tables stile_* have version %d, this library knows %d: install a "
                           "newer one"
                         : "its tables stile_* have version %d, this library needs %d: run `stile "
                           "setup URL`",
                     version, version > SCHEMA_VERSION ? SCHEMA_VERSION : SCHEMA_OLDEST);
}

static void on_version(void *data, const struct answer *a)
{
    struct my *my = data;
    struct stile_error err;
    const char *text = a->err ? NULL : maria_outcome_text(answer_last(a), 0);
    const char *records = a->err ? NULL : maria_outcome_text(answer_last(a), 1);
    my->version = text ? atoi(text) : 0;
    my->epochs = my->version >= SCHEMA_EPOCHS;
    my->remembers = records && strcmp(records, "0") != 0;
    bool refused = !a->err && !my->engine.examining && check_version(my->version, &err);
    sql_opening_answered(&my->opening, refused ? &err : a->err);
}

static enum stile_status ask_version(struct engine *engine, struct stile_error *err)
{
    return ask(engine, maria_sql_version(), on_version, err);
}

/* Tables are invisible to a user without privileges on them. Without tables a claim has no token
 * and ignores the holds of others, so it matters whether they are there. */
static bool may_have_tables(struct engine *engine)
{
    const struct my *my = my_of(engine);
    return my->bare && my->options.database && !engine->examining;
}

static void on_denied(void *data, const struct answer *a)
{
    struct my *my = data;
    struct stile_error err;
    bool denied = a->err && a->code != ER_NO_SUCH_TABLE;
    if (denied) {
        error_copy(&err, a->err);
        error_wrap(&err, err.status, "reading the tables stile_*");
    }
    sql_opening_answered(&my->opening, denied ? &err : NULL);
}

static enum stile_status ask_denied(struct engine *engine, struct stile_error *err)
{
    return ask(engine, maria_sql_written("SELECT 1 FROM stile_version LIMIT 0"), on_denied, err);
}

/* ---- opening: ShedLock's table ---- */

static bool is_shedlock(struct engine *engine)
{
    return my_of(engine)->options.table && !engine->examining;
}

static void on_shedlock(void *data, const struct answer *a)
{
    struct my *my = data;
    struct stile_error err;
    bool missing = a->err && a->err->status == STILE_REFUSED;
    if (missing)
        sql_shedlock_refuse_missing(a->err->native, &err);
    sql_opening_answered(&my->opening, missing ? &err : a->err);
}

static enum stile_status ask_shedlock(struct engine *engine, struct stile_error *err)
{
    return ask(engine,
               maria_sql_written("SELECT name,lock_until,locked_at,locked_by FROM %s LIMIT 0",
                                 my_of(engine)->options.table),
               on_shedlock, err);
}

/* ---- opening: the name of the session, for show ---- */

static bool has_sessions(struct engine *engine)
{
    return my_of(engine)->options.mode != MODE_TABLE;
}

static void on_signed(void *data, const struct answer *a)
{
    struct my *my = data;
    sql_opening_answered(&my->opening, a->err);
}

static enum stile_status ask_sign(struct engine *engine, struct stile_error *err)
{
    return ask(engine, maria_sql_sign(my_of(engine)), on_signed, err);
}

const struct opening_step maria_opening_steps[] = {
    {.ask = sql_opening_connect},
    {.needed = has_tables, .ask = ask_version},
    {.needed = may_have_tables, .ask = ask_denied},
    {.needed = is_shedlock, .ask = ask_shedlock},
    {.needed = has_sessions, .ask = ask_sign},
    {.ask = NULL},
};

/* ---- setup ---- */

/* What it creates: tables with the views, and procedures. */
#define SCHEMA_TABLES     17
#define SCHEMA_PROCEDURES 37

static enum stile_status complain(MYSQL *conn, const struct options *options,
                                  struct stile_error *err)
{
    maria_error_of(err, mysql_errno(conn), mysql_error(conn), options->password);
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

/* ---- the script, as the command `mariadb` reads it ---- */

struct script {
    const char *at;
    char delimiter[8];
    char *statement; /* with room for the whole script */
    size_t len;
};

static bool ends_with(const struct script *script, const char *end)
{
    size_t n = strlen(end);
    return script->len >= n && memcmp(script->statement + script->len - n, end, n) == 0;
}

/* Comments between statements, and lines that change the delimiter, are not sent. */
static void take_line(struct script *script, const char *line, size_t len)
{
    if (strncmp(line, "DELIMITER ", 10) == 0 && len - 10 < sizeof script->delimiter) {
        memcpy(script->delimiter, line + 10, len - 10);
        script->delimiter[len - 10] = '\0';
    } else if (len > 0 && strncmp(line, "--", 2) != 0) {
        memcpy(script->statement + script->len, line, len);
        script->len += len;
        script->statement[script->len++] = '\n';
    }
}

/* False: there is none left. */
static bool next_statement(struct script *script)
{
    char end[sizeof script->delimiter + 1];
    script->len = 0;
    while (*script->at) {
        size_t len = strcspn(script->at, "\n");
        take_line(script, script->at, len);
        script->at += len + (script->at[len] == '\n');
        snprintf(end, sizeof end, "%s\n", script->delimiter);
        if (ends_with(script, end)) {
            script->len -= strlen(end);
            break;
        }
    }
    return script->len > 0;
}

/* Dropping a procedure revokes the privileges on it; MariaDB can replace it instead. */
static bool is_needless(MYSQL *conn, const struct script *script)
{
    static const char drop[] = "DROP PROCEDURE";
    return strstr(mysql_get_server_info(conn), "MariaDB") && script->len > sizeof drop &&
           memcmp(script->statement, drop, sizeof drop - 1) == 0;
}

/* Changes to existing tables, which `CREATE TABLE IF NOT EXISTS` does not make. */
static const char *const from_version_2[] = {
    "ALTER TABLE stile_job DROP KEY live_key, DROP COLUMN live_key, ADD COLUMN queued_key "
    "VARBINARY(512) AS (IF(state = 'ready' AND token = 0, job_key, NULL)) VIRTUAL, "
    "ADD UNIQUE KEY queued_key (queue, queued_key)",
    "ALTER TABLE stile_claim ADD KEY by_bell (bell)",
};
static const char *const from_version_3[] = {
    "ALTER TABLE stile_job MODIFY last_error VARCHAR(4096) CHARACTER SET utf8mb4",
};

#define N(array) (sizeof(array) / sizeof *(array))

static const struct {
    int version;
    const char *const *steps;
    size_t n;
} upgrades[] = {{2, from_version_2, N(from_version_2)}, {3, from_version_3, N(from_version_3)}};

/* A step that an interrupted setup has done already is no error. */
static enum stile_status upgrade_from(MYSQL *conn, size_t which, const struct options *options,
                                      struct stile_error *err)
{
    for (size_t i = 0; i < upgrades[which].n; i++) {
        if (mysql_query(conn, upgrades[which].steps[i]) &&
            mysql_errno(conn) != ER_CANT_DROP_FIELD_OR_KEY && mysql_errno(conn) != ER_DUP_KEYNAME)
            return complain(conn, options, err);
    }
    return STILE_OK;
}

/* version 0, or 1: there was no such table. */
static enum stile_status upgrade(MYSQL *conn, int version, const struct options *options,
                                 struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    for (size_t i = 0; !status && i < N(upgrades); i++) {
        if (version >= 2 && version <= upgrades[i].version)
            status = upgrade_from(conn, i, options, err);
    }
    return status;
}

static enum stile_status run(MYSQL *conn, const char *text, const struct options *options,
                             struct stile_error *err)
{
    struct script script = {.at = text, .delimiter = ";", .statement = malloc(strlen(text) + 1)};
    enum stile_status status = STILE_OK;
    if (!script.statement)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    while (!status && next_statement(&script)) {
        if (is_needless(conn, &script))
            continue;
        if (mysql_real_query(conn, script.statement, script.len))
            status = complain(conn, options, err);
        mysql_free_result(mysql_store_result(conn));
    }
    free(script.statement);
    return status;
}

/* ---- privileges on a new table ---- */

static char *first_column(MYSQL *conn, const char *sql)
{
    MYSQL_RES *rows = mysql_query(conn, sql) ? NULL : mysql_store_result(conn);
    MYSQL_ROW row = rows ? mysql_fetch_row(rows) : NULL;
    char *text = row && row[0] ? strdup(row[0]) : NULL;
    mysql_free_result(rows);
    return text;
}

/* A release added them to those before. */
static const char *const added[] = {"TABLE stile_last_holder",   "TABLE stile_epoch",
                                    "TABLE stile_life",          "PROCEDURE stile_begin_epoch",
                                    "PROCEDURE stile_use_holds", "PROCEDURE stile_table_await"};

static bool is_there(MYSQL *conn, const char *what)
{
    char sql[320];
    snprintf(sql, sizeof sql,
             "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE "
             "TABLE_SCHEMA=DATABASE() AND TABLE_NAME='%s')+(SELECT COUNT(*) FROM "
             "information_schema.ROUTINES WHERE ROUTINE_SCHEMA=DATABASE() AND ROUTINE_NAME='%s')",
             strchr(what, ' ') + 1, strchr(what, ' ') + 1);
    char *count = first_column(conn, sql);
    bool has = count && strcmp(count, "0") != 0;
    free(count);
    return has;
}

/* Grants it to the users that were granted stile_lock by its name, so that they work after setup as
 * before. A grantee is quoted, but not escaped; one with a quote of its own is left out. What this
 * user may not grant, the doctor reports. */
static void grant_added(MYSQL *conn, const char *what)
{
    char sql[640];
    snprintf(sql, sizeof sql,
             "SELECT DISTINCT CONCAT('GRANT ',%s,' ON %s TO ',GRANTEE) "
             "FROM information_schema.TABLE_PRIVILEGES WHERE TABLE_SCHEMA=DATABASE() AND "
             "TABLE_NAME='stile_lock' AND PRIVILEGE_TYPE IN ('SELECT','INSERT','UPDATE',"
             "'DELETE') AND GRANTEE NOT LIKE '%%\\\\%%' AND "
             "LENGTH(GRANTEE)-LENGTH(REPLACE(GRANTEE,'''',''))=4",
             *what == 'T' ? "PRIVILEGE_TYPE" : "'EXECUTE'", what);
    if (mysql_query(conn, sql))
        return;
    MYSQL_RES *rows = mysql_store_result(conn);
    MYSQL_ROW row;
    while (rows && (row = mysql_fetch_row(rows)))
        mysql_query(conn, row[0]);
    mysql_free_result(rows);
}

/* Procedures are dropped and created: two setups at a time would disturb each other. */
static enum stile_status wait_for_others(MYSQL *conn, const struct options *options,
                                         struct stile_error *err)
{
    if (mysql_query(conn, "SELECT GET_LOCK('stile+ setup',60)"))
        return complain(conn, options, err);
    MYSQL_RES *rows = mysql_store_result(conn);
    MYSQL_ROW row = rows ? mysql_fetch_row(rows) : NULL;
    bool granted = row && row[0] && strcmp(row[0], "1") == 0;
    mysql_free_result(rows);
    return granted ? STILE_OK
                   : error_set(err, STILE_REFUSED, 0,
                               "another setup has been running here for a minute");
}

/* Whether the schema is complete: then nothing is changed, and setup need not wait for tables in
 * use. */
static enum stile_status is_complete(bool *complete, MYSQL *conn, const struct options *options,
                                     struct stile_error *err)
{
    if (mysql_query(conn, "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE "
                          "TABLE_SCHEMA=DATABASE() AND TABLE_NAME LIKE 'stile\\_%'),"
                          "(SELECT COUNT(*) FROM information_schema.ROUTINES WHERE "
                          "ROUTINE_SCHEMA=DATABASE() AND ROUTINE_NAME LIKE 'stile\\_%'),"
                          "(SELECT COUNT(*) FROM information_schema.COLUMNS WHERE "
                          "TABLE_SCHEMA=DATABASE() AND TABLE_NAME='stile_guard' AND "
                          "COLUMN_NAME='ends_at')"))
        return complain(conn, options, err);
    MYSQL_RES *rows = mysql_store_result(conn);
    MYSQL_ROW row = rows ? mysql_fetch_row(rows) : NULL;
    *complete = row && row[0] && row[1] && row[2] && atoi(row[0]) >= SCHEMA_TABLES &&
                atoi(row[1]) >= SCHEMA_PROCEDURES && atoi(row[2]) == 1;
    mysql_free_result(rows);
    char *epoch = *complete ? first_column(conn, "SELECT one FROM stile_epoch") : NULL;
    *complete = epoch;
    free(epoch);
    return STILE_OK;
}

static enum stile_status connect_alone(MYSQL *conn, const struct options *o,
                                       struct stile_error *err)
{
    if (!mysql_real_connect(conn, o->host, o->user, o->password, o->database, o->port, o->socket,
                            OPTIONS_FLAGS) ||
        mysql_query(conn, "SET SESSION completion_type=0,sql_mode='',autocommit=1,"
                          "lock_wait_timeout=10"))
        return complain(conn, o, err);
    return wait_for_others(conn, o, err);
}

static enum stile_status make_schema(MYSQL *conn, const struct options *o, struct stile_error *err)
{
    int version;
    bool complete = false;
    enum stile_status status = read_version(&version, conn, o, err);
    if (!status && version > SCHEMA_VERSION)
        status = error_set(err, STILE_REFUSED, 0,
                           "its tables stile_* have version %d, this library knows %d: install a "
                           "newer one",
                           version, SCHEMA_VERSION);
    if (!status && version == SCHEMA_VERSION)
        status = is_complete(&complete, conn, o, err);
    if (status || complete)
        return status;
    bool had[N(added)];
    for (size_t i = 0; i < N(added); i++)
        had[i] = is_there(conn, added[i]);
    status = upgrade(conn, version, o, err);
    if (!status)
        status = run(conn, maria_schema, o, err);
    for (size_t i = 0; !status && i < N(added); i++) {
        if (!had[i])
            grant_added(conn, added[i]);
    }
    return status;
}

static enum stile_status make_guard(MYSQL *conn, const struct options *o, struct stile_error *err)
{
    return run(conn, maria_guard, o, err);
}

typedef enum stile_status make_fn(MYSQL *conn, const struct options *o, struct stile_error *err);

static enum stile_status make(const struct url *url, bool dry_run, make_fn *fn,
                              struct stile_error *err)
{
    struct options options = {0};
    struct stile_error why = {0};
    MYSQL *conn = NULL;
    enum stile_status status = maria_options_read(&options, url, &why);
    if (status || dry_run)
        goto out;
    conn = maria_options_prepare_blocking(&options);
    if (!options.database)
        status = error_set(&why, STILE_MISUSE, 0,
                           "the URL names no database for the tables: use mysql://HOST/DATABASE");
    else if (!conn)
        status = error_set(&why, STILE_NOMEM, 0, "out of memory");
    else
        status = connect_alone(conn, &options, &why);
    if (!status)
        status = fn(conn, &options, &why);
out:
    if (conn)
        mysql_close(conn);
    maria_options_free(&options);
    if (status)
        error_copy(err, &why);
    return status;
}

enum stile_status maria_setup(const struct url *url, bool dry_run, const char **script,
                              struct stile_error *err)
{
    *script = maria_schema;
    return make(url, dry_run, make_schema, err);
}

enum stile_status maria_install_guard(const struct url *url, bool dry_run, const char **script,
                                      struct stile_error *err)
{
    *script = maria_guard;
    return make(url, dry_run, make_guard, err);
}
