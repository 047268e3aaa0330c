#include "engines/postgres/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "engines/postgres/fault.h"
#include "mutant.h"

/* A server that says nothing for so long is taken for gone. What it still has of ours ends when it
 * finds the connection closed, or with its lease. */
#define STALL_MIN_NS (6 * NS_PER_SEC)

struct request {
    struct request *next;
    const struct statement *statement;
    answer_fn *fn;
    void *data;
    uint64_t sent_ns;
    PGresult *result;
    struct stile_error error;
    char sqlstate[6];
    int n;
    const char *values[SEND_PARAMS_MAX];
    char texts[];
};

static void on_ready(struct watch *watch, uint32_t events);
static void fail(struct session *s, const struct stile_error *why);

static void request_free(struct request *request)
{
    PQclear(request->result);
    free(request);
}

/* ---- answers ---- */

static void enter(struct session *s)
{
    s->depth++;
}

static void dispose(struct session *s);

static bool leave(struct session *s)
{
    s->depth--;
    if (s->depth > 0 || !s->doomed)
        return !s->doomed;
    dispose(s);
    return false;
}

static void answer(struct request *request, const struct stile_error *err)
{
    const struct answer a = {.result = err ? NULL : request->result,
                             .err = err,
                             .sqlstate = request->sqlstate,
                             .sent_ns = request->sent_ns};
    if (request->fn)
        request->fn(request->data, &a);
    request_free(request);
}

static struct request *take_first(struct session *s)
{
    struct request *request = s->first;
    s->first = request->next;
    if (!s->first)
        s->last = &s->first;
    return request;
}

/* One of the results of the oldest request; its Sync ends it. */
static void take_result(struct session *s, PGresult *result)
{
    struct request *request = s->first;
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        s->used_ns = loop_now(s->loop);
        take_first(s);
        answer(request, request->error.status ? &request->error : NULL);
        return;
    }
    if (status == PGRES_FATAL_ERROR && !request->error.status)
        session_read_error(&request->error, request->sqlstate, result);
    PQclear(request->result);
    request->result = result;
}

static void take_results(struct session *s)
{
    unsigned nothing = 0;
    while (!s->doomed && s->state != DOWN && s->first && s->first != s->unsent && nothing < 3 &&
           !PQisBusy(s->conn)) {
        PGresult *result = PQgetResult(s->conn);
        nothing = result ? 0 : nothing + 1;
        if (result)
            take_result(s, result);
    }
}

static void take_notifications(struct session *s)
{
    PGnotify *note;
    while (!s->doomed && s->state == UP && (note = PQnotifies(s->conn))) {
        if (s->events->notified)
            s->events->notified(s, note->extra);
        PQfreemem(note);
    }
}

/* ---- time ---- */

static uint64_t stall_ns(const struct session *s)
{
    return s->ttl_told_ns > STALL_MIN_NS ? s->ttl_told_ns : STALL_MIN_NS;
}

/* Stays armed for the next request: setting it anew for each would cost as much as the request. */
static void arm_stall(struct session *s)
{
    if (s->state == UP && s->first && !s->timer.place)
        loop_arm(s->loop, &s->timer, loop_now(s->loop) + stall_ns(s));
}

static void on_time(struct timer *timer)
{
    struct session *s = (struct session *)((char *)timer - offsetof(struct session, timer));
    struct stile_error err;
    uint64_t now = loop_now(s->loop);
    if (s->state == UP && (!s->first || s->waits))
        return;
    uint64_t until = s->state == UP ? s->first->sent_ns + stall_ns(s) : now;
    if (until > now) {
        loop_arm(s->loop, timer, until);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, 0, "the server does not answer");
    fail(s, &err);
}

/* ---- sending ---- */

static void watch_for(struct session *s, uint32_t events)
{
    int fd = PQsocket(s->conn);
    if (s->watch.slot && s->watch.fd == fd && s->watched == events)
        return;
    if (s->watch.slot && s->watch.fd != fd)
        loop_unwatch(s->loop, &s->watch);
    s->watch.fd = fd;
    s->watched = events;
    if (fd >= 0 && loop_watch(s->loop, &s->watch, events))
        s->broken = true;
    if (s->broken)
        loop_soon(s->loop, &s->task);
}

static void flush(struct session *s)
{
    int rc = PQflush(s->conn);
    if (rc < 0 || PQstatus(s->conn) == CONNECTION_BAD) {
        s->broken = true;
        loop_soon(s->loop, &s->task);
        return;
    }
    watch_for(s, rc == 1 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

#define PREPARED_NAME(id)                                                                          \
    {                                                                                              \
        's', (char)('0' + id / 10), (char)('0' + id % 10), '\0'                                    \
    }

static bool put(struct session *s, struct request *request)
{
    const struct statement *statement = request->statement;
    uint64_t bit = UINT64_C(1) << statement->id;
    const char name[] = PREPARED_NAME(statement->id);
    if (statement->id == 0)
        return PQsendQueryParams(s->conn, statement->sql, request->n, NULL, request->values, NULL,
                                 NULL, 0);
    if (!(s->prepared & bit)) {
        if (!PQsendPrepare(s->conn, name, statement->sql, 0, NULL))
            return false;
        s->prepared |= bit;
    }
    return PQsendQueryPrepared(s->conn, name, request->n, request->values, NULL, NULL, 0);
}

static void send_request(struct session *s, struct request *request)
{
    request->sent_ns = loop_now(s->loop);
    if (s->broken)
        return;
    if (!put(s, request) || !PQpipelineSync(s->conn)) {
        s->broken = true;
        loop_soon(s->loop, &s->task);
    }
}

static void send_unsent(struct session *s)
{
    for (; s->unsent; s->unsent = s->unsent->next)
        send_request(s, s->unsent);
    flush(s);
    arm_stall(s);
}

static size_t room_for(const char *const *values, int n)
{
    size_t room = 0;
    for (int i = 0; i < n; i++)
        room += values[i] ? strlen(values[i]) + 1 : 0;
    return room;
}

static struct request *request_new(const struct statement *statement, const char *const *values,
                                   int n, answer_fn *fn, void *data)
{
    struct request *request = malloc(sizeof *request + room_for(values, n));
    if (!request)
        return NULL;
    request->next = NULL;
    request->statement = statement;
    request->fn = fn;
    request->data = data;
    request->sent_ns = 0;
    request->result = NULL;
    request->error.status = STILE_OK;
    request->sqlstate[0] = '\0';
    request->n = n;
    char *text = request->texts;
    for (int i = 0; i < n; i++) {
        request->values[i] = values[i] ? text : NULL;
        text = values[i] ? stpcpy(text, values[i]) + 1 : text;
    }
    return request;
}

enum stile_status session_send(struct session *s, const struct statement *statement,
                               const char *const *values, int n, answer_fn *fn, void *data,
                               struct stile_error *err)
{
    if (s->state == DOWN)
        return error_set(err, STILE_UNREACHABLE, 0, "the connection is gone");
    struct request *request = request_new(statement, values, n, fn, data);
    if (!request)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    *s->last = request;
    s->last = &request->next;
    if (!s->unsent)
        s->unsent = request;
    if (s->state == UP)
        send_unsent(s);
    return STILE_OK;
}

void session_forget(struct session *s, const void *data)
{
    for (struct request *request = s->first; request; request = request->next) {
        if (request->data == data)
            request->fn = NULL;
    }
}

/* ---- the end ---- */

static void close_connection(struct session *s)
{
    loop_unwatch(s->loop, &s->watch);
    loop_disarm(s->loop, &s->timer);
    loop_forget(s->loop, &s->task);
    resolve_free(s->resolve);
    s->resolve = NULL;
    PQfinish(s->conn);
    s->conn = NULL;
    s->state = DOWN;
}

static void dispose(struct session *s)
{
    while (s->first)
        request_free(take_first(s));
    loop_unreserve(s->loop, 1);
    free(s);
}

void session_free(struct session *s)
{
    if (!s)
        return;
    if (s->state != DOWN)
        close_connection(s);
    s->doomed = true;
    if (s->depth == 0)
        dispose(s);
}

void session_forked(struct session *s)
{
    if (s && s->conn && PQsocket(s->conn) >= 0)
        close(PQsocket(s->conn));
    if (s && s->resolve)
        resolve_forked(s->resolve);
}

static void fail(struct session *s, const struct stile_error *why)
{
    struct stile_error err = *why;
    if (s->state == DOWN)
        return;
    close_connection(s);
    enter(s);
    s->unsent = NULL;
    s->events->down(s);
    while (s->first && !s->doomed)
        answer(take_first(s), &err);
    if (!s->doomed)
        s->events->ended(s, &err);
    s->doomed = true;
    leave(s);
}

/* What the server said last by itself is why it hung up. */
static void fail_broken(struct session *s)
{
    struct stile_error err;
    if (s->notice.status) {
        err = s->notice;
        err.status = STILE_UNREACHABLE;
    } else {
        fault_of_connection(&err, s->conn, s->route.secret);
        if (s->state == UP)
            err.status = STILE_UNREACHABLE;
    }
    fail(s, &err);
}

static void on_task(struct task *task)
{
    struct session *s = (struct session *)((char *)task - offsetof(struct session, task));
    if (s->broken)
        fail_broken(s);
}

/* ---- the beginning ---- */

static void on_hailed(void *data, const struct answer *a)
{
    struct session *s = data;
    struct stile_error err;
    if (a->err && s->state == DOWN)
        return; /* it failed by itself */
    if (a->err)
        error_copy(&err, a->err);
    else if (!s->route.check(s, a->result, &err)) {
        s->state = UP;
        s->was_up = true;
        loop_disarm(s->loop, &s->timer);
        s->events->up(s);
        return;
    }
    fail(s, &err);
}

static void hail(struct session *s)
{
    struct stile_error err;
    struct request *request = request_new(&s->route.hail, NULL, 0, on_hailed, s);
    s->state = HAILING;
    if (!request || PQsetnonblocking(s->conn, 1) != 0 || !PQenterPipelineMode(s->conn)) {
        free(request);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        fail(s, &err);
        return;
    }
    request->next = s->first;
    if (!s->first)
        s->last = &request->next;
    s->first = request;
    send_request(s, request);
    flush(s);
}

/* The fd may be another after each step, and the old one closed. */
static void connect_further(struct session *s)
{
    loop_unwatch(s->loop, &s->watch);
    switch (PQconnectPoll(s->conn)) {
    case PGRES_POLLING_READING:
        watch_for(s, EPOLLIN);
        break;
    case PGRES_POLLING_WRITING:
        watch_for(s, EPOLLOUT);
        break;
    case PGRES_POLLING_OK:
        hail(s);
        break;
    default:
        fail_broken(s);
        break;
    }
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct session *s = (struct session *)((char *)watch - offsetof(struct session, watch));
    (void)events;
    enter(s);
    if (s->state == CONNECTING) {
        connect_further(s);
        leave(s);
        return;
    }
    bool alive = PQconsumeInput(s->conn);
    take_results(s);
    if (!s->doomed)
        take_notifications(s);
    if (!s->doomed && s->state != DOWN && s->unsent && s->state == UP)
        send_unsent(s);
    if (!s->doomed && s->state != DOWN) {
        if (!alive || PQstatus(s->conn) == CONNECTION_BAD)
            fail_broken(s);
        else
            flush(s);
    }
    leave(s);
}

/* Else libpq would print it. */
static void on_notice(void *data, const PGresult *result)
{
    struct session *s = data;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    char sqlstate[6];
    if (severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
        session_read_error(&s->notice, sqlstate, result);
}

static enum stile_status start(struct session *s, struct stile_error *err)
{
    s->conn = PQconnectStartParams(s->route.keywords, s->route.values, 0);
    if (!s->conn || PQstatus(s->conn) == CONNECTION_BAD) {
        fault_of_connection(err, s->conn, s->route.secret);
        return s->conn ? err->status : STILE_NOMEM;
    }
    PQsetErrorVerbosity(s->conn, PQERRORS_VERBOSE);
    PQsetNoticeReceiver(s->conn, on_notice, s);
    watch_for(s, EPOLLOUT);
    return STILE_OK;
}

static void on_resolved(void *data, struct addrinfo *found, const struct stile_error *err)
{
    struct session *s = data;
    struct stile_error why;
    enum stile_status status = STILE_OK;
    resolve_free(s->resolve);
    s->resolve = NULL;
    if (err) {
        why = *err;
        status = err->status;
    } else {
        status = s->route.resolved(s->pg, found, &why);
        freeaddrinfo(found);
    }
    if (!status)
        status = start(s, &why);
    if (status)
        fail(s, &why);
}

enum stile_status session_new(struct session **out, struct pg *pg, struct loop *loop,
                              const struct route *route, const struct session_events *events,
                              struct stile_error *err)
{
    struct session *s = calloc(1, sizeof *s);
    struct stile_error why;
    if (!s || loop_reserve(loop, 1)) {
        free(s);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *s = (struct session){.pg = pg,
                          .loop = loop,
                          .route = *route,
                          .events = events,
                          .watch.fn = on_ready,
                          .watch.fd = -1,
                          .timer.fn = on_time,
                          .task.fn = on_task};
    s->last = &s->first;
    s->used_ns = loop_now(loop);
    enum stile_status status =
        route->host ? resolve_start(&s->resolve, loop, route->host, 0, on_resolved, s, &why)
                    : start(s, &why);
    if (status) {
        session_free(s);
        error_copy(err, &why);
        return status;
    }
    loop_arm(loop, &s->timer, loop_now(loop) + route->patience_ns);
    *out = s;
    return STILE_OK;
}
