/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: requests, answers, its life and its lease. */
#include "engines/postgres/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "engines/postgres/errors.h"
#include "engines/postgres/pg.h"

#define IN_A_ROW 16
#define ROOM_MIN 64

#define LEASE_MAX_MS INT32_MAX
/* A statement waits for a lock in the server for a quarter of the lease, but no longer than
 * this: renewals are queued behind it. It is more than deadlock_timeout, so that deadlocks are
 * detected. */
#define LOCK_WAIT_MS 2000

struct request {
    struct sql_request base;
    const struct statement *statement;
    PGresult *result;
    char sqlstate[6];
    uint64_t tag;  /* the number in its column's name; 0: it has none */
    bool prepares; /* its first result is that of preparing its statement */
    int n;
    size_t room; /* for texts */
    const char *values[SEND_PARAMS_MAX];
    int lengths[SEND_PARAMS_MAX], formats[SEND_PARAMS_MAX]; /* 0: a text */
    char texts[];
};

/* ---- requests ---- */

static size_t size_of(const char *value, const struct sent_bytes *bytes, int i)
{
    if (!value)
        return 0;
    return bytes && bytes->at == i ? bytes->size + 1 : strlen(value) + 1;
}

static size_t room_for(const char *const *values, int n, const struct sent_bytes *bytes)
{
    size_t room = 0;
    for (int i = 0; i < n; i++)
        room += size_of(values[i], bytes, i);
    return room;
}

static void copy_values(struct request *request, const char *const *values, int n,
                        const struct sent_bytes *bytes)
{
    char *text = request->texts;
    for (int i = 0; i < n; i++) {
        size_t size = size_of(values[i], bytes, i);
        bool binary = bytes && bytes->at == i;
        request->values[i] = values[i] ? text : NULL;
        request->formats[i] = binary;
        request->lengths[i] = binary ? (int)bytes->size : 0;
        if (size)
            memcpy(text, values[i], binary ? size - 1 : size);
        text += size;
    }
    request->n = n;
}

static struct request *with_room(struct session *s, size_t room)
{
    struct request *request = s->base.spare;
    if (request && request->room >= room) {
        s->base.spare = NULL;
        return request;
    }
    room = room > ROOM_MIN ? room : ROOM_MIN;
    request = malloc(sizeof *request + room);
    if (request)
        request->room = room;
    return request;
}

static struct request *new_request(struct session *s, const struct statement *statement,
                                   const char *const *values, int n, const struct sent_bytes *bytes,
                                   answer_fn *fn, void *data)
{
    struct request *request = with_room(s, room_for(values, n, bytes));
    if (!request)
        return NULL;
    sql_request_init(&request->base, fn, data);
    request->statement = statement;
    request->tag = 0;
    request->prepares = false;
    request->result = NULL;
    request->sqlstate[0] = '\0';
    copy_values(request, values, n, bytes);
    return request;
}

/* One is kept for reuse: most sessions have one request at a time. */
void postgres_request_drop(struct session *s, struct request *request)
{
    PQclear(request->result);
    free(s->base.spare);
    s->base.spare = request;
}

/* ---- sending ---- */

void postgres_session_break(struct session *s)
{
    s->broken = true;
    loop_soon(s->base.loop, &s->base.task);
}

static void watch(struct session *s, uint32_t events)
{
    int fd = PQsocket(s->conn);
    if (s->base.watch.slot && s->base.watch.fd == fd && s->base.watched == events)
        return;
    if (s->base.watch.slot && s->base.watch.fd != fd)
        loop_unwatch(s->base.loop, &s->base.watch);
    s->base.watch.fd = fd;
    s->base.watched = events;
    if (fd >= 0 && loop_watch(s->base.loop, &s->base.watch, events))
        s->broken = true;
    if (s->broken)
        loop_soon(s->base.loop, &s->base.task);
}

static void flush(struct session *s)
{
    int rc = PQflush(s->conn);
    if (rc < 0 || PQstatus(s->conn) == CONNECTION_BAD) {
        postgres_session_break(s);
        return;
    }
    watch(s, rc == 1 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

#define PREPARED_NAME(id)                                                                          \
    {                                                                                              \
        's', (char)('0' + id / 10), (char)('0' + id % 10), '\0'                                    \
    }

static bool is_under_way(const struct session *s)
{
    return s->base.first && s->base.first != s->unsent;
}

/* A statement is sent to be prepared once in a session. That may fail, if it is cancelled or a
 * table is locked, so its name is used only after the server has answered. Until then, and after a
 * failure, the statement is parsed each time. */
static bool is_new(const struct session *s, const struct statement *statement)
{
    return statement->id && !(s->seen >> statement->id & 1);
}

static bool is_prepared(const struct session *s, const struct statement *statement)
{
    return s->prepared >> statement->id & 1;
}

/* Parsed each time, with a tag of its own. */
static bool put_tagged(struct session *s, struct request *request)
{
    char digits[sizeof TAG_ZEROS], *sql = strdup(request->statement->sql);
    char *zeros = sql ? strstr(sql, TAG) : NULL;
    if (zeros) {
        request->tag = s->pg->tags++;
        snprintf(digits, sizeof digits, "%016" PRIx64, request->tag);
        memcpy(zeros + strlen(TAG_STEM), digits, strlen(digits));
    }
    bool sent = sql && PQsendQueryParams(s->conn, sql, request->n, NULL, request->values,
                                         request->lengths, request->formats, 0);
    free(sql);
    return sent;
}

/* Before the first answer, there may be a pooler. */
static bool may_be_mixed_up(const struct session *s)
{
    return s->base.state == GREETING || s->pg->pooled;
}

static bool put(struct session *s, struct request *request)
{
    const struct statement *statement = request->statement;
    const char name[] = PREPARED_NAME(statement->id);
    if (may_be_mixed_up(s))
        return put_tagged(s, request);
    if (is_new(s, statement)) {
        if (!PQsendPrepare(s->conn, name, statement->sql, 0, NULL))
            return false;
        s->seen |= UINT64_C(1) << statement->id;
        request->prepares = true;
    } else if (!is_prepared(s, statement)) {
        return PQsendQueryParams(s->conn, statement->sql, request->n, NULL, request->values,
                                 request->lengths, request->formats, 0);
    }
    return PQsendQueryPrepared(s->conn, name, request->n, request->values, request->lengths,
                               request->formats, 0);
}

static void send_request(struct session *s, struct request *request)
{
    request->base.sent_ns = loop_now(s->base.loop);
    if (s->broken)
        return;
    if (!put(s, request) || (!s->alone && !PQpipelineSync(s->conn)))
        postgres_session_break(s);
}

/* Nothing is under way. A pipeline costs libpq more than a single statement. So a session that
 * has sent one at a time for a while leaves the pipeline, until there are two at once again. */
static void choose_manner(struct session *s)
{
    const struct request *request = s->unsent;
    bool single = !is_new(s, request->statement) && !request->base.next;
    s->in_a_row = single ? s->in_a_row + 1 : 0;
    bool alone = s->in_a_row > IN_A_ROW;
    if (alone == s->alone)
        return;
    if (alone ? !PQexitPipelineMode(s->conn) : !PQenterPipelineMode(s->conn))
        postgres_session_break(s);
    s->alone = alone;
}

/* A pooler that miscounts the answers of a dead client delivers the remaining ones to the next
 * client. With one request at a time there are none. */
static void send_one(struct session *s)
{
    if (!s->unsent || is_under_way(s))
        return;
    send_request(s, s->unsent);
    s->unsent = s->unsent->base.next;
    flush(s);
    sql_session_arm_stall(s);
}

static void send_unsent(struct session *s)
{
    if (s->pg->pooled) {
        send_one(s);
        return;
    }
    if (!is_under_way(s)) {
        choose_manner(s);
    } else {
        s->in_a_row = 0;
        if (s->alone)
            return; /* its answer comes first */
    }
    for (; s->unsent; s->unsent = s->unsent->base.next)
        send_request(s, s->unsent);
    flush(s);
    sql_session_arm_stall(s);
}

enum stile_status postgres_send_bytes(struct session *s, const struct statement *statement,
                                      const char *const *values, int n,
                                      const struct sent_bytes *bytes, answer_fn *fn, void *data,
                                      struct stile_error *err)
{
    if (s->base.state == DOWN)
        return error_set(err, STILE_UNREACHABLE, 0, "the connection is gone");
    struct request *request = new_request(s, statement, values, n, bytes, fn, data);
    if (!request)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    sql_session_append(s, request);
    if (!s->unsent)
        s->unsent = request;
    if (s->base.state == UP)
        send_unsent(s);
    return STILE_OK;
}

enum stile_status postgres_send(struct session *s, const struct statement *statement,
                                const char *const *values, int n, answer_fn *fn, void *data,
                                struct stile_error *err)
{
    return postgres_send_bytes(s, statement, values, n, NULL, fn, data, err);
}

void postgres_send_first(struct session *s, const struct statement *statement, answer_fn *fn)
{
    struct request *request = new_request(s, statement, NULL, 0, NULL, fn, s);
    if (!request)
        return;
    sql_session_prepend(s, request);
    s->unsent = request;
}

/* ---- answers ---- */

const char *postgres_value(const PGresult *result, int row, int column)
{
    bool inside = row >= 0 && row < PQntuples(result) && column >= 0 && column < PQnfields(result);
    return inside ? PQgetvalue(result, row, column) : "";
}

void postgres_request_answer(struct session *s, struct request *request,
                             const struct stile_error *err)
{
    const struct answer a = {.result = err ? NULL : request->result,
                             .err = err,
                             .sqlstate = request->sqlstate,
                             .sent_ns = request->base.sent_ns};
    if (request->base.fn)
        request->base.fn(request->base.data, &a);
    postgres_request_drop(s, request);
}

/* ---- through a pooler: checking whose answer it is ---- */

/* pgbouncer 1.18 delivers the answers of a dead client to the next one. So each answer has a
 * column that is named after its request. An error has no columns. */
static bool is_answer_to(const struct request *request)
{
    char name[sizeof TAG];
    snprintf(name, sizeof name, TAG_STEM "%016" PRIx64, request->tag);
    return PQfnumber(request->result, name) >= 0;
}

static void fail_mixed_up(struct session *s)
{
    struct stile_error err;
    error_set(&err, STILE_UNREACHABLE, 0, "the pooler has delivered another client's answer");
    sql_session_fail(s, &err);
}

static void on_probed(void *data, const struct answer *a)
{
    struct session *s = data;
    struct request *suspect = s->suspect;
    (void)a; /* the session is over, or the probe has been answered, so the error before it was ours
              */
    s->suspect = NULL;
    postgres_request_answer(s, suspect, s->base.state == DOWN ? a->err : &suspect->base.error);
}

/* A probe is sent after an error: if the probe is answered, the error was ours. */
static bool probe(struct session *s, struct request *suspect)
{
    static const struct statement statement = {0, "select 1 as " TAG};
    struct request *request = new_request(s, &statement, NULL, 0, NULL, on_probed, s);
    if (!request)
        return false;
    s->suspect = suspect;
    sql_session_prepend(s, request);
    send_request(s, request);
    flush(s);
    return true;
}

static void finish_first(struct session *s)
{
    struct request *request = sql_session_take_first(s);
    bool failed = request->base.error.status;
    s->base.used_ns = loop_lately(s->base.loop);
    if (request->tag && s->base.state == UP && failed && !s->suspect && probe(s, request))
        return;
    if (request->tag && !failed && !is_answer_to(request)) {
        sql_session_prepend(s, request); /* fails with all others */
        fail_mixed_up(s);
        return;
    }
    postgres_request_answer(s, request, failed ? &request->base.error : NULL);
}

/* A result of the oldest request; NULL: it has no more. */
static void take_result(struct session *s, PGresult *result)
{
    struct request *request = s->base.first;
    if (!result) {
        if (s->alone && request->result)
            finish_first(s);
        return;
    }
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        finish_first(s);
        return;
    }
    if (request->prepares && !request->result && status == PGRES_COMMAND_OK)
        s->prepared |= UINT64_C(1) << request->statement->id;
    if (status == PGRES_FATAL_ERROR && !request->base.error.status)
        postgres_result_error(&request->base.error, request->sqlstate, result);
    if (request->result)
        PQclear(request->result);
    request->result = result;
}

static void take_results(struct session *s)
{
    unsigned nothing = 0;
    while (!s->base.doomed && s->base.state != DOWN && is_under_way(s) && nothing < 3 &&
           !PQisBusy(s->conn)) {
        PGresult *result = PQgetResult(s->conn);
        nothing = result ? 0 : nothing + 1;
        take_result(s, result);
    }
}

static void take_notifications(struct session *s)
{
    PGnotify *note;
    while (!s->base.doomed && s->base.state == UP && (note = PQnotifies(s->conn))) {
        if (s->base.events->notified)
            s->base.events->notified(s, note->extra);
        PQfreemem(note);
    }
}

/* ---- the end ---- */

void postgres_session_close(struct session *s)
{
    resolve_free(s->resolve);
    s->resolve = NULL;
    PQfinish(s->conn);
    s->conn = NULL;
    s->unsent = NULL;
}

void postgres_session_dispose(struct session *s)
{
    if (s->suspect)
        postgres_request_drop(s, s->suspect);
}

void postgres_session_forget(struct session *s, const void *data)
{
    if (s->suspect && s->suspect->base.data == data)
        s->suspect->base.fn = NULL;
}

void postgres_session_forked(struct session *s)
{
    if (s && s->conn && PQsocket(s->conn) >= 0)
        close(PQsocket(s->conn));
    if (s && s->resolve)
        resolve_forked(s->resolve);
}

/* The server's last notice is the reason why it closed the connection. */
static void fail_broken(struct session *s)
{
    struct stile_error err;
    if (s->notice.status) {
        err = s->notice;
        err.status = STILE_UNREACHABLE;
    } else {
        postgres_connection_error(&err, s->conn, s->route.secret);
    }
    sql_session_fail(s, &err);
}

static void on_task(struct task *task)
{
    struct session *s = (struct session *)((char *)task - offsetof(struct session, base.task));
    if (s->broken)
        fail_broken(s);
}

/* ---- the beginning ---- */

static void on_greeted(void *data, const struct answer *a)
{
    struct session *s = data;
    struct stile_error err;
    bool refused = !a->err && s->route.check(s, a->result, &err);
    sql_session_greeted(s, refused ? &err : a->err);
}

static void greet(struct session *s)
{
    struct stile_error err;
    struct request *request = new_request(s, &s->route.greeting, NULL, 0, NULL, on_greeted, s);
    s->base.state = GREETING;
    if (!request || PQsetnonblocking(s->conn, 1) != 0 || !PQenterPipelineMode(s->conn)) {
        free(request);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        sql_session_fail(s, &err);
        return;
    }
    sql_session_prepend(s, request);
    send_request(s, request);
    flush(s);
}

/* Each step may close the fd and open another. */
static void connect_further(struct session *s)
{
    loop_unwatch(s->base.loop, &s->base.watch);
    switch (PQconnectPoll(s->conn)) {
    case PGRES_POLLING_READING:
        watch(s, EPOLLIN);
        break;
    case PGRES_POLLING_WRITING:
        watch(s, EPOLLOUT);
        break;
    case PGRES_POLLING_OK:
        greet(s);
        break;
    default:
        fail_broken(s);
        break;
    }
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct session *s = (struct session *)((char *)watch - offsetof(struct session, base.watch));
    (void)events;
    sql_session_enter(s);
    if (s->base.state == CONNECTING) {
        connect_further(s);
        sql_session_leave(s);
        return;
    }
    bool alive = PQconsumeInput(s->conn);
    take_results(s);
    if (!s->base.doomed)
        take_notifications(s);
    if (!s->base.doomed && s->base.state != DOWN && s->unsent && s->base.state == UP)
        send_unsent(s);
    if (!s->base.doomed && s->base.state != DOWN) {
        if (!alive || PQstatus(s->conn) == CONNECTION_BAD)
            fail_broken(s);
        else if (s->base.watched & EPOLLOUT)
            flush(s);
    }
    sql_session_leave(s);
}

/* Else libpq would print it. */
static void on_notice(void *data, const PGresult *result)
{
    struct session *s = data;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    char sqlstate[6];
    if (severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
        postgres_result_error(&s->notice, sqlstate, result);
}

static enum stile_status start(struct session *s, struct stile_error *err)
{
    s->conn = PQconnectStartParams(s->route.keywords, s->route.values, 0);
    if (!s->conn || PQstatus(s->conn) == CONNECTION_BAD) {
        postgres_connection_error(err, s->conn, s->route.secret);
        return s->conn ? err->status : STILE_NOMEM;
    }
    PQsetErrorVerbosity(s->conn, PQERRORS_VERBOSE);
    PQsetNoticeReceiver(s->conn, on_notice, s);
    watch(s, EPOLLOUT);
    return STILE_OK;
}

static enum stile_status resolve_and_start(struct session *s, struct stile_error *err);

static void on_resolved(void *data, struct addrinfo *found, const struct stile_error *err)
{
    struct session *s = data;
    struct stile_error why;
    resolve_free(s->resolve);
    s->resolve = NULL;
    enum stile_status status =
        postgres_options_set_addresses(&s->pg->options, s->name, found, &why);
    if (status && err)
        why = *err;
    if (found)
        freeaddrinfo(found);
    if (!status)
        status = resolve_and_start(s, &why);
    if (status)
        sql_session_fail(s, &why);
}

static enum stile_status resolve_and_start(struct session *s, struct stile_error *err)
{
    if (!postgres_options_next_name(s->name, &s->pg->options))
        return start(s, err);
    return resolve_start(&s->resolve, s->base.loop, s->name, 0, on_resolved, s, err);
}

enum stile_status postgres_session_new(struct session **out, struct pg *pg,
                                       const struct route *route,
                                       const struct session_events *events, struct stile_error *err)
{
    struct loop *loop = pg->engine.loop;
    struct session *s = calloc(1, sizeof *s);
    struct stile_error why;
    if (!s || loop_reserve(loop, 1)) {
        free(s);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    sql_session_init(s, &pg->pool, events);
    s->pg = pg;
    s->number = ++pg->sessions_made;
    s->route = *route;
    s->base.watch.fn = on_ready;
    s->base.task.fn = on_task;
    enum stile_status status = resolve_and_start(s, &why);
    if (status) {
        sql_session_free(s);
        error_copy(err, &why);
        return status;
    }
    loop_arm(loop, &s->base.timer,
             loop_now(loop) + sql_lease_patience_ns(leases_of(&pg->engine), route->patience_ns));
    *out = s;
    return STILE_OK;
}

/* ---- the lease: idle_session_timeout, or in mode=row that of its open transaction ---- */

static void on_lease_set(void *data, const struct answer *a)
{
    struct session *session = data;
    if (a->err && session->base.state == UP)
        postgres_session_break(session); /* its lease is not what the deadline assumes */
}

enum stile_status postgres_lease_set_to(struct session *session, uint64_t ttl_ns, answer_fn *fn,
                                        void *data, struct stile_error *err)
{
    char text[24], patience[24];
    const char *values[] = {text, patience};
    uint64_t ms = ttl_ns / NS_PER_MS;
    uint64_t quarter_ms = ms == 0 || ms > 4 * LOCK_WAIT_MS ? LOCK_WAIT_MS : ms / 4;
    snprintf(text, sizeof text, "%" PRIu64, ms < LEASE_MAX_MS ? ms : LEASE_MAX_MS);
    snprintf(patience, sizeof patience, "%" PRIu64, quarter_ms > 20 ? quarter_ms : 20);
    session->base.lease_ns = ttl_ns;
    const struct statement *statement =
        session->pg->options.mode == MODE_ROW ? &postgres_sql_row_ttl : &postgres_sql_ttl;
    return postgres_send(session, statement, values, 2, fn ? fn : on_lease_set, fn ? data : session,
                         err);
}

enum stile_status postgres_lease_set(struct session *session, struct stile_error *err)
{
    uint64_t ttl_ns = session->pg->pool.ttl_ns;
    if (session->base.lease_ns >= ttl_ns)
        return STILE_OK;
    return postgres_lease_set_to(session, ttl_ns, NULL, NULL, err);
}

static void on_renewed(void *data, const struct answer *a)
{
    struct session *session = data;
    session->deaf = false;
    if (a->err && session->base.state == UP && session->pg->options.mode == MODE_ROW)
        postgres_session_break(
            session); /* the error has ended its transaction, and with it the lock */
    sql_pool_renewed(session, a->sent_ns, a->err);
}

enum stile_status postgres_session_renew(struct session *session, uint64_t ttl_ns)
{
    return postgres_lease_set_to(session, ttl_ns, on_renewed, session, NULL);
}

void postgres_session_keep(struct session *session)
{
    postgres_lease_set_to(session, 0, NULL, NULL, NULL);
}
