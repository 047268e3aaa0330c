/* What is said on a connection, and what is answered. */
#include "engines/postgres/talk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "engines/postgres/pg.h"

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

/* ---- through a pooler: whose answer it is ---- */

/* pgbouncer 1.18 gives the answers of a client that died to the next one. Each answer of a request
 * of ours has a column that is named after the request; an error has none. */
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
    session_fail(s, &err);
}

static void on_probed(void *data, const struct answer *a)
{
    struct session *s = data;
    struct request *suspect = s->suspect;
    (void)a; /* the session is over, or the probe's own answer has come: so had the one before */
    s->suspect = NULL;
    talk_answer(s, suspect, s->state == DOWN ? a->err : &suspect->error);
}

/* The answer to what is sent behind an error shows whether the error was ours. */
static bool probe(struct session *s, struct request *suspect)
{
    static const struct statement statement = {0, "select 1 as " TAG};
    struct request *request = talk_new(s, &statement, NULL, 0, on_probed, s);
    if (!request)
        return false;
    s->suspect = suspect;
    request->next = s->first;
    if (!s->first)
        s->last = &request->next;
    s->first = request;
    talk_send(s, request);
    talk_flush(s);
    return true;
}

static void finish_first(struct session *s)
{
    struct request *request = talk_take_first(s);
    bool failed = request->error.status;
    s->seat.used_ns = loop_lately(s->loop);
    if (request->tag && s->state == UP && failed && !s->suspect && probe(s, request))
        return;
    if (request->tag && !failed && !is_answer_to(request)) {
        request->next = s->first; /* fails with all others */
        s->first = request;
        fail_mixed_up(s);
        return;
    }
    talk_answer(s, request, failed ? &request->error : NULL);
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
    bool sent =
        sql && PQsendQueryParams(s->conn, sql, request->n, NULL, request->values, NULL, NULL, 0);
    free(sql);
    return sent;
}

/* Until the first answer nobody knows whether there is a pooler. */
static bool may_be_mixed_up(const struct session *s)
{
    return s->state == HAILING || s->pg->pooled;
}

static bool put(struct session *s, struct request *request)
{
    const struct statement *statement = request->statement;
    const char name[] = PREPARED_NAME(statement->id);
    if (may_be_mixed_up(s))
        return put_tagged(s, request);
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

/* A pooler that counts answers by what it has seen of a client that died, gives those that still
 * come to the next one: so there is never more than one under way. */
static void send_one(struct session *s)
{
    if (!s->unsent || is_under_way(s))
        return;
    talk_send(s, s->unsent);
    s->unsent = s->unsent->next;
    talk_flush(s);
    arm_stall(s);
}

void talk_send_unsent(struct session *s)
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
    request->tag = 0;
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
    if (s->suspect && s->suspect->data == data)
        s->suspect->fn = NULL;
}
