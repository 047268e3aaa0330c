/* What is said on a connection, and what is answered. */
#include "engines/mysql/talk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/options.h"

/* A server that says nothing for so long is taken for gone. What it still has of ours ends when it
 * finds the connection closed, or with its lease. */
#define STALL_MIN_NS (6 * NS_PER_SEC)
#define ABORT_STEPS  16

/* One is kept for the next: most sessions have one request at a time. */
struct request *talk_new(struct session *s, char *sql, answer_fn *fn, void *data)
{
    struct request *request = s->spare ? s->spare : malloc(sizeof *request);
    s->spare = NULL;
    if (!request)
        return NULL;
    request->next = NULL;
    request->sql = sql;
    request->fn = fn;
    request->data = data;
    request->sent_ns = 0;
    request->code = 0;
    request->n = 0;
    request->error.status = STILE_OK;
    return request;
}

void talk_free(struct session *s, struct request *request)
{
    for (size_t i = 0; i < request->n; i++)
        mysql_free_result(request->outcomes[i].rows);
    free(request->sql);
    free(s->spare);
    s->spare = request;
}

const char *outcome_text(const struct outcome *outcome, unsigned column)
{
    if (!outcome->rows || column >= mysql_num_fields(outcome->rows))
        return NULL;
    mysql_data_seek(outcome->rows, 0);
    MYSQL_ROW row = mysql_fetch_row(outcome->rows);
    return row ? row[column] : NULL;
}

/* ---- answers ---- */

void talk_answer(struct session *s, struct request *request, const struct stile_error *err)
{
    const struct answer a = {.outcomes = err ? NULL : request->outcomes,
                             .n = request->n,
                             .err = err,
                             .code = request->code,
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

/* ---- the library's calls: each returns what it waits for, or 0 when it is done ---- */

int talk_go_on(struct session *s, int ready)
{
    switch (s->call) {
    case CALL_CONNECT:
        return mysql_real_connect_cont(&s->connected, s->conn, ready);
    case CALL_SEND:
        return mysql_send_query_cont(&s->failed, s->conn, ready);
    case CALL_AWAIT:
        s->call = CALL_READ;
        return mysql_read_query_result_start(&s->unread, s->conn);
    case CALL_READ:
        return mysql_read_query_result_cont(&s->unread, s->conn, ready);
    case CALL_STORE:
        return mysql_store_result_cont(&s->rows, s->conn, ready);
    case CALL_NEXT:
        return mysql_next_result_cont(&s->failed, s->conn, ready);
    default:
        return IDLE;
    }
}

/* The library would look for the answer at once, when it can't be there. */
static int await_answer(struct session *s)
{
    s->call = CALL_AWAIT;
    return MYSQL_WAIT_READ;
}

int talk_start(struct session *s)
{
    struct request *request = s->first;
    request->sent_ns = loop_now(s->loop);
    s->call = CALL_SEND;
    int waits_for = mysql_send_query_start(&s->failed, s->conn, request->sql, strlen(request->sql));
    return waits_for == 0 && !s->failed ? await_answer(s) : waits_for;
}

static int start_next(struct session *s)
{
    s->call = CALL_NEXT;
    return mysql_next_result_start(&s->failed, s->conn);
}

/* A call that is suspended has things on its own stack: it has to be let go to its end. */
void talk_abort(struct session *s)
{
    int fd = mysql_get_socket(s->conn);
    if (s->call == CALL_NONE)
        return;
    if (fd >= 0)
        shutdown(fd, SHUT_RDWR); /* a word of farewell would keep the server from noticing */
    for (int i = 0; i < ABORT_STEPS && s->waits_for > 0 && s->call != CALL_AWAIT; i++)
        s->waits_for = talk_go_on(s, MYSQL_WAIT_TIMEOUT);
    if (s->call == CALL_STORE && s->waits_for == 0)
        mysql_free_result(s->rows);
    s->call = CALL_NONE;
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

/* ---- results ---- */

static void note_error(struct session *s)
{
    struct request *request = s->first;
    request->code = mysql_errno(s->conn);
    fault_of(&request->error, request->code, mysql_error(s->conn), s->options->password);
}

static int finish_request(struct session *s)
{
    struct request *request = s->first;
    s->call = CALL_NONE;
    s->seat.used_ns = loop_lately(s->loop);
    if (request->error.status && fault_is_end(request->code)) {
        struct stile_error why = request->error;
        session_fail(s, &why);
        return IDLE;
    }
    talk_take_first(s);
    talk_answer(s, request, request->error.status ? &request->error : NULL);
    if (s->doomed || s->state == DOWN || !s->first || s->call != CALL_NONE)
        return IDLE;
    return talk_start(s);
}

static int note_outcome(struct session *s, MYSQL_RES *rows)
{
    struct request *request = s->first;
    if (request->n == OUTCOMES_MAX) /* the last ones count */
        mysql_free_result(request->outcomes[--request->n].rows);
    request->outcomes[request->n++] = (struct outcome){.rows = rows,
                                                       .affected = mysql_affected_rows(s->conn),
                                                       .insert_id = mysql_insert_id(s->conn)};
    return mysql_more_results(s->conn) ? start_next(s) : finish_request(s);
}

static int take_result(struct session *s)
{
    if (mysql_field_count(s->conn) == 0)
        return note_outcome(s, NULL);
    s->call = CALL_STORE;
    return mysql_store_result_start(&s->rows, s->conn);
}

/* The call is done: what it has brought, and what the next one waits for. */
static int finish_call(struct session *s)
{
    if (s->call == CALL_CONNECT)
        return session_connected(s);
    bool failed = s->call == CALL_STORE ? !s->rows : s->call == CALL_READ ? s->unread : s->failed;
    if (failed) {
        note_error(s);
        return finish_request(s);
    }
    if (s->call == CALL_SEND)
        return await_answer(s);
    return s->call == CALL_STORE ? note_outcome(s, s->rows) : take_result(s);
}

void talk_drive(struct session *s, int waits_for)
{
    session_enter(s);
    while (waits_for == 0 && !s->doomed && s->state != DOWN)
        waits_for = finish_call(s);
    /* An answer may have asked for more, which is then under way already. */
    if (!s->doomed && s->state != DOWN && (waits_for != IDLE || s->call == CALL_NONE))
        session_watch(s, waits_for);
    arm_stall(s);
    session_leave(s);
}

/* ---- sending ---- */

enum stile_status session_send(struct session *s, char *sql, answer_fn *fn, void *data,
                               struct stile_error *err)
{
    struct request *request = sql && s->state != DOWN ? talk_new(s, sql, fn, data) : NULL;
    if (!request) {
        free(sql);
        if (s->state == DOWN)
            return error_set(err, STILE_UNREACHABLE, 0, "the connection is gone");
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *s->last = request;
    s->last = &request->next;
    if (s->state != UP || s->call != CALL_NONE)
        return STILE_OK;
    session_begin(s, talk_start(s));
    arm_stall(s);
    return STILE_OK;
}

void session_forget(struct session *s, const void *data)
{
    for (struct request *request = s->first; request; request = request->next) {
        if (request->data == data)
            request->fn = NULL;
    }
}
