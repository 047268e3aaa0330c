/* The life of a connection. */
#include "engines/postgres/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "engines/postgres/fault.h"
#include "engines/postgres/pg.h"
#include "engines/postgres/talk.h"

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
        talk_free(s, talk_take_first(s));
    if (s->suspect)
        talk_free(s, s->suspect);
    free(s->spare);
    loop_unreserve(s->loop, 1);
    free(s);
}

void session_enter(struct session *s)
{
    s->depth++;
}

bool session_leave(struct session *s)
{
    s->depth--;
    if (s->depth > 0 || !s->doomed)
        return !s->doomed;
    dispose(s);
    return false;
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

bool session_is_up(const struct session *s)
{
    return s->state == UP;
}

bool session_is_over(const struct session *s)
{
    return s->state == DOWN;
}

void session_break(struct session *s)
{
    s->broken = true;
    loop_soon(s->loop, &s->task);
}

void session_forked(struct session *s)
{
    if (s && s->conn && PQsocket(s->conn) >= 0)
        close(PQsocket(s->conn));
    if (s && s->resolve)
        resolve_forked(s->resolve);
}

void session_fail(struct session *s, const struct stile_error *why)
{
    struct stile_error err = *why;
    if (s->state == DOWN)
        return;
    close_connection(s);
    session_enter(s);
    s->unsent = NULL;
    s->events->down(s);
    while (s->first && !s->doomed)
        talk_answer(s, talk_take_first(s), &err);
    if (!s->doomed)
        s->events->ended(s, &err);
    s->doomed = true;
    session_leave(s);
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
    session_fail(s, &err);
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
    session_fail(s, &err);
}

static void hail(struct session *s)
{
    struct stile_error err;
    struct request *request = talk_new(s, &s->route.hail, NULL, 0, on_hailed, s);
    s->state = HAILING;
    if (!request || PQsetnonblocking(s->conn, 1) != 0 || !PQenterPipelineMode(s->conn)) {
        free(request);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        session_fail(s, &err);
        return;
    }
    request->next = s->first;
    if (!s->first)
        s->last = &request->next;
    s->first = request;
    talk_send(s, request);
    talk_flush(s);
}

/* The fd may be another after each step, and the old one closed. */
static void connect_further(struct session *s)
{
    loop_unwatch(s->loop, &s->watch);
    switch (PQconnectPoll(s->conn)) {
    case PGRES_POLLING_READING:
        talk_watch(s, EPOLLIN);
        break;
    case PGRES_POLLING_WRITING:
        talk_watch(s, EPOLLOUT);
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
    session_enter(s);
    if (s->state == CONNECTING) {
        connect_further(s);
        session_leave(s);
        return;
    }
    bool alive = PQconsumeInput(s->conn);
    talk_take_results(s);
    if (!s->doomed)
        talk_take_notes(s);
    if (!s->doomed && s->state != DOWN && s->unsent && s->state == UP)
        talk_send_unsent(s);
    if (!s->doomed && s->state != DOWN) {
        if (!alive || PQstatus(s->conn) == CONNECTION_BAD)
            fail_broken(s);
        else if (s->watched & EPOLLOUT)
            talk_flush(s);
    }
    session_leave(s);
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
    talk_watch(s, EPOLLOUT);
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
        session_fail(s, &why);
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
    *s = (struct session){.seat.pool = &pg->pool,
                          .pg = pg,
                          .loop = loop,
                          .route = *route,
                          .events = events,
                          .watch.fn = on_ready,
                          .watch.fd = -1,
                          .timer.fn = talk_on_time,
                          .task.fn = on_task};
    s->last = &s->first;
    s->seat.used_ns = loop_now(loop);
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
