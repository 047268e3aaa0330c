/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a PostgreSQL server, or something in front of it, may return to our statements: rows of
 * any form, errors, notifications, and the end of the connection at any time. libpq reads the wire,
 * so it is what is played here: session.c sees the same calls and results. */
#include <libpq-fe.h>
#include <sys/epoll.h>

#include "base/container.h"
#include "engines/postgres/statements.h"
#include "fuzz/played_rows.h"

extern const struct engine_class postgres_class;

#define BACKEND  12
#define FIRST_FD (1 << 20) /* no descriptor has such a number: the loop only compares it */

struct pg_result {
    ExecStatusType status;
    char sqlstate[6];
    bool may_lack_rows; /* its statement has a column OURS_OR_NO_ROW */
    struct played_rows rows;
};

/* What was sent and not answered; afterwards, what was answered and not read. */
struct item {
    struct item *next;
    enum { PREPARE, QUERY, SYNC, RESULT, END } kind;
    char *sql;
    PGresult *result;
};

struct pg_conn {
    struct pg_conn *next;
    int fd;
    ConnStatusType status;
    bool pipeline, aborted;
    struct timer timer;
    struct item *sent, *arrived;
    PQnoticeReceiver receiver;
    void *receiver_data;
};

static struct pg_conn *all;
static int last_fd;

/* ---- items ---- */

static void add(struct item **list, int kind, const char *sql, PGresult *result)
{
    struct item *item = calloc(1, sizeof *item);
    MUST(item);
    item->kind = kind;
    item->sql = sql ? strdup(sql) : NULL;
    item->result = result;
    while (*list)
        list = &(*list)->next;
    *list = item;
}

static PGresult *take(struct item **list)
{
    struct item *item = *list;
    PGresult *result = item->result;
    *list = item->next;
    free(item->sql);
    free(item);
    return result;
}

/* ---- results ---- */

static PGresult *result_new(ExecStatusType status)
{
    PGresult *result = calloc(1, sizeof *result);
    MUST(result);
    result->status = status;
    return result;
}

static PGresult *error_result(void)
{
    static const char *const states[] = {"40001", "55P03", "57014", "42501", "25006", "57P01",
                                         "23505", "",      "XX000", "22P05", "42P01", "53300"};
    PGresult *result = result_new(PGRES_FATAL_ERROR);
    strcpy(result->sqlstate, states[played_pick(sizeof states / sizeof *states)]);
    return result;
}

/* What a server would answer while the client opens: behind that lies most of the engine. */
static const char *const *usual_row(const char *sql)
{
    static const char *const greeting[] = {"12", "f", "t", "t", "t", NULL};
    static const char *const version[] = {"3", "t", "t", NULL};
    static const char *const probe[] = {"t", "t", "1000", NULL};
    if (strstr(sql, "pg_is_in_recovery(), "))
        return greeting;
    if (strstr(sql, "max(version)"))
        return version;
    return strstr(sql, "1937009006::oid") ? probe : NULL;
}

static PGresult *rows_result(const char *sql)
{
    PGresult *result = result_new(PGRES_TUPLES_OK);
    result->may_lack_rows = strstr(sql, OURS_OR_NO_ROW) != NULL;
    played_rows_fill(&result->rows, usual_row(sql));
    if (result->rows.columns == 0)
        result->status = PGRES_COMMAND_OK;
    return result;
}

static PGresult *answer_to(struct pg_conn *conn, const struct item *item)
{
    if (item->kind == SYNC) {
        conn->aborted = false;
        return result_new(PGRES_PIPELINE_SYNC);
    }
    if (conn->aborted)
        return result_new(PGRES_PIPELINE_ABORTED);
    if (played_is_over() || played_pick(24) == 23) {
        conn->aborted = conn->pipeline;
        return error_result();
    }
    return item->kind == PREPARE ? result_new(PGRES_COMMAND_OK) : rows_result(item->sql);
}

/* ---- the server ---- */

static void notice(struct pg_conn *conn)
{
    PGresult *result = result_new(PGRES_NONFATAL_ERROR);
    strcpy(result->sqlstate, "57P01");
    if (conn->receiver)
        conn->receiver(conn->receiver_data, result);
    PQclear(result);
}

/* An answer is whole: up to its Sync, or its end where there is no pipeline. */
static void answer(struct pg_conn *conn)
{
    while (conn->sent) {
        int kind = conn->sent->kind;
        add(&conn->arrived, RESULT, NULL, answer_to(conn, conn->sent));
        if (kind != SYNC)
            add(&conn->arrived, END, NULL, NULL);
        take(&conn->sent);
        if (kind == SYNC || !conn->pipeline)
            return;
    }
}

static void on_time(struct timer *timer)
{
    struct pg_conn *conn = container_of(timer, struct pg_conn, timer);
    unsigned what = played_pick(48);
    if (what == 47) {
        notice(conn);
        conn->status = CONNECTION_BAD;
    } else if (conn->status == CONNECTION_OK) {
        answer(conn);
    }
    played_fire(conn->fd, EPOLLIN | EPOLLOUT);
}

static void wait(struct pg_conn *conn)
{
    if (!conn->timer.place)
        loop_arm(played_loop, &conn->timer, loop_now(played_loop) + played_delay_ns());
}

/* ---- libpq: connections ---- */

PGconn *PQconnectStartParams(const char *const *keywords, const char *const *values, int expand)
{
    PGconn *conn = calloc(1, sizeof *conn);
    (void)keywords, (void)values, (void)expand;
    MUST(conn && !loop_reserve(played_loop, 1));
    conn->fd = FIRST_FD + last_fd++;
    conn->status = played_pick(32) == 31 ? CONNECTION_BAD : CONNECTION_STARTED;
    conn->timer.fn = on_time;
    conn->next = all;
    all = conn;
    wait(conn);
    return conn;
}

PostgresPollingStatusType PQconnectPoll(PGconn *conn)
{
    unsigned what = played_pick(16);
    if (what == 15 || played_is_over()) {
        conn->status = CONNECTION_BAD;
        return PGRES_POLLING_FAILED;
    }
    if (what >= 12) {
        wait(conn);
        return what == 12 ? PGRES_POLLING_READING : PGRES_POLLING_WRITING;
    }
    conn->status = CONNECTION_OK;
    return PGRES_POLLING_OK;
}

void PQfinish(PGconn *conn)
{
    struct pg_conn **link = &all;
    if (!conn)
        return;
    while (*link != conn)
        link = &(*link)->next;
    *link = conn->next;
    loop_disarm(played_loop, &conn->timer);
    loop_unreserve(played_loop, 1);
    while (conn->sent)
        PQclear(take(&conn->sent));
    while (conn->arrived)
        PQclear(take(&conn->arrived));
    free(conn);
}

ConnStatusType PQstatus(const PGconn *conn)
{
    return conn ? conn->status : CONNECTION_BAD;
}

int PQsocket(const PGconn *conn)
{
    return conn->status == CONNECTION_BAD ? -1 : conn->fd;
}

char *PQerrorMessage(const PGconn *conn)
{
    (void)conn;
    return "FATAL:  57P01: terminating connection\nLOCATION:  x";
}

int PQconnectionNeedsPassword(const PGconn *conn)
{
    (void)conn;
    return 0;
}

int PQserverVersion(const PGconn *conn)
{
    (void)conn;
    return 150004;
}

int PQbackendPID(const PGconn *conn)
{
    (void)conn;
    return BACKEND;
}

char *PQhost(const PGconn *conn)
{
    (void)conn;
    return "127.0.0.1";
}

char *PQhostaddr(const PGconn *conn)
{
    return PQhost(conn);
}

char *PQport(const PGconn *conn)
{
    (void)conn;
    return "5432";
}

const char *PQparameterStatus(const PGconn *conn, const char *name)
{
    (void)conn, (void)name;
    return NULL;
}

PGVerbosity PQsetErrorVerbosity(PGconn *conn, PGVerbosity verbosity)
{
    (void)conn;
    return verbosity;
}

PQnoticeReceiver PQsetNoticeReceiver(PGconn *conn, PQnoticeReceiver receiver, void *data)
{
    conn->receiver = receiver;
    conn->receiver_data = data;
    return NULL;
}

int PQsetnonblocking(PGconn *conn, int on)
{
    (void)conn, (void)on;
    return 0;
}

/* ---- libpq: requests ---- */

static int put(PGconn *conn, int kind, const char *sql)
{
    if (conn->status != CONNECTION_OK)
        return 0;
    add(&conn->sent, kind, sql, NULL);
    wait(conn);
    return 1;
}

int PQsendPrepare(PGconn *conn, const char *name, const char *sql, int n, const Oid *types)
{
    (void)name, (void)n, (void)types;
    return put(conn, PREPARE, sql);
}

int PQsendQueryParams(PGconn *conn, const char *sql, int n, const Oid *types,
                      const char *const *values, const int *lengths, const int *formats, int format)
{
    (void)n, (void)types, (void)values, (void)lengths, (void)formats, (void)format;
    return put(conn, QUERY, sql);
}

int PQsendQueryPrepared(PGconn *conn, const char *name, int n, const char *const *values,
                        const int *lengths, const int *formats, int format)
{
    (void)n, (void)values, (void)lengths, (void)formats, (void)format;
    return put(conn, QUERY, name);
}

int PQpipelineSync(PGconn *conn)
{
    return put(conn, SYNC, NULL);
}

int PQenterPipelineMode(PGconn *conn)
{
    conn->pipeline = true;
    return 1;
}

int PQexitPipelineMode(PGconn *conn)
{
    MUST(!conn->sent && !conn->arrived);
    conn->pipeline = false;
    return 1;
}

int PQflush(PGconn *conn)
{
    return conn->status == CONNECTION_OK ? 0 : -1;
}

int PQconsumeInput(PGconn *conn)
{
    return conn->status == CONNECTION_OK;
}

int PQisBusy(PGconn *conn)
{
    return !conn->arrived && conn->status == CONNECTION_OK;
}

PGresult *PQgetResult(PGconn *conn)
{
    return conn->arrived ? take(&conn->arrived) : NULL;
}

PGnotify *PQnotifies(PGconn *conn)
{
    static const char *const notes[] = {"",
                                        "t",
                                        "w",
                                        "5",
                                        "b 5",
                                        "b",
                                        "b 5 1 stale",
                                        "1",
                                        "-1",
                                        "g 5",
                                        "99999999999999999999",
                                        "break",
                                        "\xff\xfe"};
    const char *text = notes[played_pick(sizeof notes / sizeof *notes)];
    (void)conn;
    if (played_is_over() || played_pick(4) != 3)
        return NULL;
    PGnotify *note = calloc(1, sizeof *note + strlen(text) + 1);
    MUST(note);
    note->relname = "stile";
    note->extra = strcpy((char *)(note + 1), text);
    return note;
}

/* ---- libpq: results ---- */

void PQclear(PGresult *result)
{
    if (!result)
        return;
    if (result->rows.values)
        played_rows_free(&result->rows);
    free(result);
}

ExecStatusType PQresultStatus(const PGresult *result)
{
    return result->status;
}

char *PQresultErrorField(const PGresult *result, int field)
{
    if (field == PG_DIAG_SQLSTATE)
        return *result->sqlstate ? (char *)result->sqlstate : NULL;
    if (field == PG_DIAG_SEVERITY_NONLOCALIZED)
        return "FATAL";
    return "because";
}

char *PQresultErrorMessage(const PGresult *result)
{
    (void)result;
    return "because";
}

char *PQcmdStatus(PGresult *result)
{
    (void)result;
    return "SELECT 1";
}

int PQntuples(const PGresult *result)
{
    return result ? (int)result->rows.rows : 0;
}

int PQnfields(const PGresult *result)
{
    return result ? (int)result->rows.columns : 0;
}

int PQfnumber(const PGresult *result, const char *name)
{
    (void)result, (void)name;
    return played_pick(32) == 31 ? -1 : 0;
}

char *PQfname(const PGresult *result, int column)
{
    if (column < 0 || column >= PQnfields(result))
        return NULL;
    return result->may_lack_rows ? OURS_OR_NO_ROW : "column";
}

/* As libpq: NULL outside of the rows, and "" for SQL's NULL. */
static char **place(const PGresult *result, int row, int column)
{
    if (!result || row < 0 || row >= PQntuples(result) || column < 0 || column >= PQnfields(result))
        return NULL;
    return &result->rows.values[row][column];
}

char *PQgetvalue(const PGresult *result, int row, int column)
{
    char **at = place(result, row, column);
    return at ? (*at ? *at : "") : NULL;
}

int PQgetisnull(const PGresult *result, int row, int column)
{
    char **at = place(result, row, column);
    return !at || !*at;
}

/* ---- the target ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {
        "postgres://127.0.0.1/d", "postgres://127.0.0.1/d?mode=table",
        "postgres://127.0.0.1/d?mode=row", "postgres://127.0.0.1/d?allow=pooler",
        "postgres://127.0.0.1/d?mode=table&dialect=shedlock&table=shedlock"};
    last_fd = 0;
    played_run(&postgres_class, urls, sizeof urls / sizeof *urls, data, size);
    MUST(!all);
    return 0;
}
