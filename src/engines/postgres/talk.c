/* What is said on a connection, and what is answered. */
#include "engines/postgres/talk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* A server that says nothing for so long is taken for gone. What it still has of ours ends when it
 * finds the connection closed, or with its lease. */
#define STALL_MIN_NS (6 * NS_PER_SEC)
#define IN_A_ROW     16
#define ROOM_MIN     64

/* One is kept for the next: most sessions have one request at a time. */
void talk_free(struct session *s, struct request *request)
{
    PQclear(request->result);
    free(s->spare);
    s->spare = request;
}

/* ---- answers ---- */

void talk_answer(struct session *s, struct request *request, const struct stile_error *err)
{
    const struct answer a = {.result = err ? NULL : request->result,
                             .err = err,
                             .sqlstate = request->sqlstate,
                             .sent_ns = request->sent_ns};
    if (request->fn)
        request->fn(request->data, &a);
    talk_free(s, request);
}

struct request *talk_take_first(struct session *s)
{
    struct request *request = s->first;
    s->first = request->next;
    if (!s->first)
        s->last = &s->first;
    return request;
}

static void finish_first(struct session *s)
{
    struct request *request = talk_take_first(s);
    s->seat.used_ns = loop_lately(s->loop);
    talk_answer(s, request, request->error.status ? &request->error : NULL);
}

/* One of the results of the oldest request, or none any more. */
static void take_result(struct session *s, PGresult *result)
{
    struct request *request = s->first;
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
    if (status == PGRES_FATAL_ERROR && !request->error.status)
        session_read_error(&request->error, request->sqlstate, result);
    if (request->result)
        PQclear(request->result);
    request->result = result;
}

static bool is_under_way(const struct session *s)
{
    return s->first && s->first != s->unsent;
}

void talk_take_results(struct session *s)
{
    unsigned nothing = 0;
    while (!s->doomed && s->state != DOWN && is_under_way(s) && nothing < 3 && !PQisBusy(s->conn)) {
        PGresult *result = PQgetResult(s->conn);
        nothing = result ? 0 : nothing + 1;
        take_result(s, result);
    }
}

void talk_take_notes(struct session *s)
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
    return s->seat.ttl_told_ns > STALL_MIN_NS ? s->seat.ttl_told_ns : STALL_MIN_NS;
}

/* Stays armed for the next request: setting it anew for each would cost as much as the request. */
static void arm_stall(struct session *s)
{
    if (s->state == UP && s->first && !s->timer.place)
        loop_arm(s->loop, &s->timer, loop_now(s->loop) + stall_ns(s));
}

void talk_on_time(struct timer *timer)
{
    struct session *s = (struct session *)((char *)timer - offsetof(struct session, timer));
    struct stile_error err;
    uint64_t now = loop_now(s->loop);
    if (s->state == UP && (!s->first || s->seat.waits))
        return;
    uint64_t until = s->state == UP ? s->first->sent_ns + stall_ns(s) : now;
    if (until > now) {
        loop_arm(s->loop, timer, until);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, 0, "the server does not answer");
    session_fail(s, &err);
}

/* ---- sending ---- */

void talk_watch(struct session *s, uint32_t events)
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

void talk_flush(struct session *s)
{
    int rc = PQflush(s->conn);
    if (rc < 0 || PQstatus(s->conn) == CONNECTION_BAD) {
        s->broken = true;
        loop_soon(s->loop, &s->task);
        return;
    }
    talk_watch(s, rc == 1 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

#define PREPARED_NAME(id)                                                                          \
    {                                                                                              \
        's', (char)('0' + id / 10), (char)('0' + id % 10), '\0'                                    \
    }

static bool is_prepared(const struct session *s, const struct statement *statement)
{
    return s->prepared >> statement->id & 1;
}

static bool put(struct session *s, struct request *request)
{
    const struct statement *statement = request->statement;
    const char name[] = PREPARED_NAME(statement->id);
    if (statement->id == 0)
        return PQsendQueryParams(s->conn, statement->sql, request->n, NULL, request->values, NULL,
                                 NULL, 0);
    if (!is_prepared(s, statement)) {
        if (!PQsendPrepare(s->conn, name, statement->sql, 0, NULL))
            return false;
        s->prepared |= UINT64_C(1) << statement->id;
    }
    return PQsendQueryPrepared(s->conn, name, request->n, request->values, NULL, NULL, 0);
}

static void give_up(struct session *s)
{
    s->broken = true;
    loop_soon(s->loop, &s->task);
}

void talk_send(struct session *s, struct request *request)
{
    request->sent_ns = loop_now(s->loop);
    if (s->broken)
        return;
    if (!put(s, request) || (!s->alone && !PQpipelineSync(s->conn)))
        give_up(s);
}

/* Nothing is under way. A pipeline costs libpq more than a statement by itself; so who has said one
 * at a time for a while goes on without, until there are two again. */
static void choose_manner(struct session *s)
{
    const struct request *request = s->unsent;
    bool prepared = request->statement->id == 0 || is_prepared(s, request->statement);
    s->in_a_row = prepared && !request->next ? s->in_a_row + 1 : 0;
    bool alone = s->in_a_row > IN_A_ROW;
    if (alone == s->alone)
        return;
    if (alone ? !PQexitPipelineMode(s->conn) : !PQenterPipelineMode(s->conn))
        give_up(s);
    s->alone = alone;
}

void talk_send_unsent(struct session *s)
{
    if (!is_under_way(s)) {
        choose_manner(s);
    } else {
        s->in_a_row = 0;
        if (s->alone)
            return; /* its answer comes first */
    }
    for (; s->unsent; s->unsent = s->unsent->next)
        talk_send(s, s->unsent);
    talk_flush(s);
    arm_stall(s);
}

static size_t room_for(const char *const *values, int n)
{
    size_t room = 0;
    for (int i = 0; i < n; i++)
        room += values[i] ? strlen(values[i]) + 1 : 0;
    return room;
}

static struct request *with_room(struct session *s, size_t room)
{
    struct request *request = s->spare;
    if (request && request->room >= room) {
        s->spare = NULL;
        return request;
    }
    room = room > ROOM_MIN ? room : ROOM_MIN;
    request = malloc(sizeof *request + room);
    if (request)
        request->room = room;
    return request;
}

struct request *talk_new(struct session *s, const struct statement *statement,
                         const char *const *values, int n, answer_fn *fn, void *data)
{
    struct request *request = with_room(s, room_for(values, n));
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
    struct request *request = talk_new(s, statement, values, n, fn, data);
    if (!request)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    *s->last = request;
    s->last = &request->next;
    if (!s->unsent)
        s->unsent = request;
    if (s->state == UP)
        talk_send_unsent(s);
    return STILE_OK;
}

void session_forget(struct session *s, const void *data)
{
    for (struct request *request = s->first; request; request = request->next) {
        if (request->data == data)
            request->fn = NULL;
    }
}
