/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells and guards: rows of stile_guard, which is the table of guard.sql. A write is one call of
 * stile_cell_write(), in a transaction of its own; a read is one SELECT. On MariaDB a put is tried
 * as one UPDATE first, which takes half of the server's time; if that finds no such row, the
 * procedure says why, or creates it.
 *
 * A row may be locked for long, by a transaction of anybody's that has called the guard. Waiting
 * for it on the shared session would keep that from renewing its locks: so a write does not wait
 * there, and if it would have to, is repeated on a session that does nothing else. */
#include <inttypes.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"

#define UNDONE_MAX 5
#define WAIT_S     3 /* less than until its session would be taken for stalled */

/* In request->state. */
struct progress {
    uint64_t undone; /* how often the server rolled it back for the sake of others */
    uint64_t waits;  /* 1: it is on the session that may wait */
    uint64_t called; /* 1: the procedure is asked */
};

_Static_assert(sizeof(struct progress) <= sizeof((struct cell_request *)0)->state,
               "no room for it");

static struct progress *progress_of(struct cell_request *request)
{
    return (struct progress *)request->state;
}

static bool only_looks(const struct cell_request *request)
{
    return request->verb == CELL_GET || request->verb == CELL_LIST;
}

/* ---- statements ---- */

#define KEY_HEX    (2 * STILE_NAME_MAX + 1)
#define ISSUER_HEX (2 * STILE_ISSUER_MAX + 1)

/* Behind a statement. In mode=table nothing is set in the session, and the server may not commit by
 * itself: a write would not last, and a read would see the same for ever. */
static const char *commit_for(const struct cell_request *request)
{
    bool table = my_of(request->engine)->options.mode == MODE_TABLE;
    return table ? ";COMMIT AND NO CHAIN NO RELEASE" : "";
}

/* The value between two texts, both of which are freed; NULL without memory. asprintf(3) would take
 * longer for a large value than the rest of the client together. */
static char *with_value(char *before, const struct cell_request *request, char *after)
{
    size_t size = request->verb == CELL_PUT ? request->size : 0;
    size_t first = before ? strlen(before) : 0, last = after ? strlen(after) : 0;
    char *sql = before && after ? malloc(first + 2 * size + last + 1) : NULL;
    if (sql) {
        memcpy(sql, before, first);
        maria_name_hex(sql + first, request->value, size);
        memcpy(sql + first + 2 * size, after, last + 1);
    }
    free(before);
    free(after);
    return sql;
}

static char *write_of(const struct cell_request *request, const char *key, const char *issuer,
                      bool wait)
{
    static const char *const verbs[] = {[CELL_PUT] = "put",
                                        [CELL_REMOVE] = "remove",
                                        [CELL_RAISE] = "raise",
                                        [CELL_RESET] = "reset"};
    char limit[64] = "", version[24] = "NULL", keep[24] = "";
    bool compares = request->verb == CELL_PUT || request->verb == CELL_REMOVE;
    if (my_of(request->engine)->mariadb)
        snprintf(limit, sizeof limit, "SET STATEMENT innodb_lock_wait_timeout=%d FOR ",
                 wait ? WAIT_S : 0);
    if (compares && !request->any_version)
        snprintf(version, sizeof version, "%" PRIu64, request->if_version);
    if (request->keep_ns)
        snprintf(keep, sizeof keep, " %" PRIu64, request->keep_ns / NS_PER_MS);
    return with_value(maria_sql_written("%sCALL stile_cell_write('%s%s',X'%s',X'", limit,
                                        verbs[request->verb], keep, key),
                      request,
                      maria_sql_written("',%s,%" PRIu64 ",X'%s',%d,%d)", version, request->token,
                                        issuer, request->strict, wait));
}

/* Rows that have not ended. An older table has no ends. */
static const char *alive(const struct cell_request *request)
{
    return request->engine->caps.keeps ? " AND (ends_at IS NULL OR ends_at>UTC_TIMESTAMP(6))" : "";
}

/* Replaces a cell whose guard has seen a token of this issuer, no larger one, or none at all: what
 * is stored then is known without reading it. One with an end is left to the procedure. Its answer
 * is the version. */
static char *update_of(const struct cell_request *request, const char *key, const char *issuer)
{
    char token[64] = "token=0", version[64] = "";
    uint64_t most = request->token - request->strict;
    if (request->token)
        snprintf(token, sizeof token, "token BETWEEN 1 AND %" PRIu64, most);
    if (!request->any_version)
        snprintf(version, sizeof version, " AND value IS NOT NULL AND version=%" PRIu64,
                 request->if_version);
    return with_value(
        maria_sql_written(
            "SET STATEMENT innodb_lock_wait_timeout=0 FOR UPDATE stile_guard SET "
            "version=LAST_INSERT_ID(version+1),removed_at=NULL,since=IF(token=%" PRIu64
            ",since,UTC_TIMESTAMP(6)),token=%" PRIu64 ",value=X'",
            request->token, request->token),
        request,
        maria_sql_written("' WHERE resource=X'%s' AND issuer=X'%s' AND %s%s%s%s", key, issuer,
                          token, version, request->engine->caps.keeps ? " AND ends_at IS NULL" : "",
                          commit_for(request)));
}

/* A token is compared with what was pruned, too, where the row has none. */
static char *get_of(const struct cell_request *request, const char *key, const char *issuer)
{
    char floor[ISSUER_HEX + 128] = "0";
    if (request->token)
        snprintf(floor, sizeof floor, "(SELECT MAX(token) FROM stile_guard_floor%s%s%s)",
                 *issuer ? " WHERE issuer IN ('',X'" : "", issuer, *issuer ? "')" : "");
    return maria_sql_written(
        "SELECT IF(g.value IS NULL,0,g.version),IF(COALESCE(g.token,0)=0,%s,g.token),"
        "COALESCE(g.issuer,''),g.value,TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) "
        "FROM (SELECT 1) one LEFT JOIN stile_guard g ON "
        "g.resource=X'%s'%s%s",
        floor, key, alive(request), commit_for(request));
}

static char *list_of(const struct cell_request *request, const char *key)
{
    return maria_sql_written("SELECT version,token,issuer,resource,LENGTH(value) FROM stile_guard "
                             "WHERE value IS NOT NULL AND resource>=X'%s' AND "
                             "LEFT(resource,%zu)=X'%s'%s ORDER BY resource%s",
                             key, request->key_len, key, alive(request), commit_for(request));
}

/* NULL without memory. */
static char *statement_of(struct cell_request *request)
{
    char key[KEY_HEX], issuer[ISSUER_HEX];
    maria_name_hex(key, request->key, request->key_len);
    maria_name_hex(issuer, request->issuer, strlen(request->issuer));
    if (request->verb == CELL_GET)
        return get_of(request, key, issuer);
    if (request->verb == CELL_LIST)
        return list_of(request, key);
    return progress_of(request)->called
               ? write_of(request, key, issuer, progress_of(request)->waits)
               : update_of(request, key, issuer);
}

/* ---- the session that may wait ---- */

static void writer_up(struct session *session)
{
    (void)session;
}

static void writer_down(struct session *session)
{
    session->my->writer = NULL;
}

static void writer_ended(struct session *session, const struct stile_error *why)
{
    (void)session, (void)why;
}

static const struct session_events writer_events = {
    .up = writer_up, .down = writer_down, .ended = writer_ended};

/* A holder that was stopped past its TTL has a shared session that the server has ended: a write
 * there would be in doubt, and its holder would not hear that its token is stale. */
static enum stile_status session_for(struct session **session, struct cell_request *request,
                                     struct stile_error *err)
{
    struct my *my = my_of(request->engine);
    if (my->pool.shared && maria_session_is_cut(my->pool.shared))
        progress_of(request)->waits = progress_of(request)->called = 1;
    if (!progress_of(request)->waits)
        return sql_pool_shared(session, &my->pool, err);
    if (my->writer && maria_session_is_cut(my->writer)) {
        sql_session_free(my->writer);
        my->writer = NULL;
    }
    if (!my->writer) {
        enum stile_status status = maria_session_new(&my->writer, &my->pool, &writer_events, err);
        if (status) {
            my->writer = NULL;
            return status;
        }
    }
    *session = my->writer;
    return STILE_OK;
}

/* ---- answers ---- */

enum { WRITE_STATUS, WRITE_VERSION, WRITE_TOKEN, WRITE_ISSUER, WRITE_COLUMNS };
enum { GET_VERSION, GET_TOKEN, GET_ISSUER, GET_VALUE, GET_TIME, GET_COLUMNS };
enum { LIST_VERSION, LIST_TOKEN, LIST_ISSUER, LIST_KEY, LIST_SIZE, LIST_COLUMNS };

static uint64_t number(MYSQL_ROW row, unsigned column)
{
    return row[column] ? strtoull(row[column], NULL, 10) : 0;
}

static struct stile_cell cell_in(MYSQL_ROW row, unsigned version, unsigned token, unsigned issuer,
                                 const char *key)
{
    return (struct stile_cell){.key = key,
                               .version = number(row, version),
                               .token = number(row, token),
                               .issuer = row[issuer] ? row[issuer] : ""};
}

static enum stile_status take_written(struct cell_request *request, MYSQL_ROW row)
{
    static const struct {
        const char *text;
        enum stile_status status;
    } outcomes[] = {{"ok", STILE_OK},
                    {"stale", STILE_STALE},
                    {"foreign", STILE_FOREIGN},
                    {"conflict", STILE_CONFLICT}};
    struct stile_cell cell = cell_in(row, WRITE_VERSION, WRITE_TOKEN, WRITE_ISSUER, request->key);
    for (size_t i = 0; row[WRITE_STATUS] && i < sizeof outcomes / sizeof *outcomes; i++) {
        if (strcmp(row[WRITE_STATUS], outcomes[i].text) == 0) {
            request->engine->events->cell(request, &cell);
            return outcomes[i].status;
        }
    }
    return STILE_CORRUPT;
}

static void take_listed(struct cell_request *request, MYSQL_ROW row)
{
    if (!row[LIST_KEY])
        return;
    struct stile_cell cell = cell_in(row, LIST_VERSION, LIST_TOKEN, LIST_ISSUER, row[LIST_KEY]);
    cell.size = number(row, LIST_SIZE);
    request->engine->events->cell(request, &cell);
}

static enum stile_status take_list(struct cell_request *request, MYSQL_RES *rows)
{
    MYSQL_ROW row;
    if (!rows || mysql_num_fields(rows) < LIST_COLUMNS)
        return STILE_CORRUPT;
    while ((row = mysql_fetch_row(rows)))
        take_listed(request, row);
    return STILE_OK;
}

static void take_read(struct cell_request *request, MYSQL_ROW row, const unsigned long *lengths)
{
    struct stile_cell cell = cell_in(row, GET_VERSION, GET_TOKEN, GET_ISSUER, request->key);
    cell.value = row[GET_VALUE];
    cell.size = row[GET_VALUE] ? lengths[GET_VALUE] : 0;
    cell.time_us = (int64_t)number(row, GET_TIME);
    request->engine->events->cell(request, &cell);
}

static void take_updated(struct cell_request *request, const struct outcome *outcome)
{
    struct stile_cell cell = {.key = request->key,
                              .version = outcome->insert_id,
                              .token = request->token,
                              .issuer = request->issuer};
    request->engine->events->cell(request, &cell);
}

/* What a procedure selects stands before its own outcome. */
static enum stile_status take(struct cell_request *request, const struct answer *a)
{
    const struct outcome *outcome = &a->outcomes[0];
    if (request->verb == CELL_LIST)
        return take_list(request, outcome->rows);
    MYSQL_ROW row =
        maria_next_row(outcome->rows, request->verb == CELL_GET ? GET_COLUMNS : WRITE_COLUMNS);
    if (!row)
        return STILE_CORRUPT;
    if (request->verb != CELL_GET)
        return take_written(request, row);
    take_read(request, row, mysql_fetch_lengths(outcome->rows));
    return STILE_OK;
}

static enum stile_status set_endless(struct stile_error *err)
{
    return error_set(
        err, STILE_UNSUPPORTED, 0,
        "the cells of this database have no ends yet: run `stile setup URL`, or `stile "
        "guard install URL` for these alone");
}

static enum stile_status set_unsupported(struct stile_error *err)
{
    return error_set(err, STILE_UNSUPPORTED, 0,
                     "this database has no table stile_guard for cells and guards, or this user "
                     "may not use it: run `stile setup URL`, or `stile guard install URL`");
}

/* What the server has rolled back did not happen. A write that was stopped or cut off may have. */
static void explain(struct stile_error *why, const struct cell_request *request,
                    const struct answer *a)
{
    *why = *a->err;
    if (a->code == ER_NO_SUCH_TABLE || a->code == ER_SP_DOES_NOT_EXIST)
        set_unsupported(why);
    else if (why->status == STILE_UNREACHABLE && a->sent_ns && !only_looks(request) &&
             !maria_error_is_undone(a->code) && !maria_error_is_busy(a->code))
        why->status = STILE_UNCERTAIN;
}

static enum stile_status send_it(struct cell_request *request, struct stile_error *err);

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a;
}

/* A procedure rolls back when a statement in it fails, but not when it was killed: the row would
 * stay locked. */
static void take_back(struct cell_request *request, const struct answer *a)
{
    const struct my *my = my_of(request->engine);
    struct session *session = progress_of(request)->waits ? my->writer : my->pool.shared;
    if (a->code && !only_looks(request) && session && session->base.state == UP)
        maria_send(session, maria_sql_rollback(), ignore, NULL, NULL);
}

/* Whether it is worth another try, which may be on another session. */
static bool may_repeat(struct cell_request *request, unsigned code)
{
    struct progress *progress = progress_of(request);
    if (maria_error_is_busy(code)) {
        bool waited = progress->waits;
        progress->waits = progress->called = 1;
        return !waited;
    }
    return maria_error_is_undone(code) && progress->undone++ < UNDONE_MAX;
}

static bool is_update(struct cell_request *request)
{
    return !only_looks(request) && !progress_of(request)->called;
}

/* True: it has been answered, or asked again. */
static bool on_updated(struct cell_request *request, const struct answer *a,
                       struct stile_error *err)
{
    if (a->outcomes[0].affected > 0) {
        take_updated(request, &a->outcomes[0]);
        request->engine->events->cell_done(request, NULL);
        return true;
    }
    progress_of(request)->called = 1;
    return send_it(request, err) == STILE_OK;
}

static void on_answer(void *data, const struct answer *a)
{
    struct cell_request *request = data;
    struct stile_error why = {0};
    if (!a->err && is_update(request)) {
        if (on_updated(request, a, &why))
            return;
    } else if (!a->err) {
        why.status = take(request, a);
        if (why.status == STILE_CORRUPT)
            error_set(&why, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    } else {
        take_back(request, a);
        if (a->code && may_repeat(request, a->code)) {
            if (send_it(request, &why) == STILE_OK)
                return;
        } else {
            explain(&why, request, a);
        }
    }
    request->engine->events->cell_done(request, why.status ? &why : NULL);
}

/* ---- requests ---- */

static enum stile_status send_it(struct cell_request *request, struct stile_error *err)
{
    struct session *session;
    enum stile_status status = session_for(&session, request, err);
    return status ? status : maria_send(session, statement_of(request), on_answer, request, err);
}

/* A cell that is to be created has no row that could be updated. On MySQL an UPDATE would wait. */
static bool may_update(const struct cell_request *request)
{
    return request->verb == CELL_PUT && !request->keep_ns && my_of(request->engine)->mariadb &&
           (request->any_version || request->if_version > 0);
}

void maria_cells(struct engine *engine, struct cell_request *request)
{
    struct stile_error err;
    enum stile_status status;
    progress_of(request)->called = !may_update(request);
    progress_of(request)->waits = request->keep_ns > 0; /* it skips locked rows: see guard.sql */
    if (!my_of(engine)->guards)
        status = set_unsupported(&err);
    else if (request->keep_ns && !engine->caps.keeps)
        status = set_endless(&err);
    else
        status = send_it(request, &err);
    if (status)
        engine->events->cell_done(request, &err);
}
