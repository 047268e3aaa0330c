#include "engines/mysql/session.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"

/* A server that says nothing for so long is taken for gone. What it still has of ours ends when it
 * finds the connection closed, or with its lease. */
#define STALL_MIN_NS (6 * NS_PER_SEC)
#define IDLE         (-1)
#define ABORT_STEPS  16

struct request {
    struct request *next;
    char *sql;
    answer_fn *fn;
    void *data;
    uint64_t sent_ns;
    unsigned code;
    size_t n;
    struct outcome outcomes[OUTCOMES_MAX]; /* so many as there are */
    struct stile_error error;              /* if it has a status */
};

static void fail(struct session *s, const struct stile_error *why);
static void on_hailed(void *data, const struct answer *a);

/* One is kept for the next: most sessions have one request at a time. */
static struct request *request_new(struct session *s, char *sql, answer_fn *fn, void *data)
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

static void request_free(struct session *s, struct request *request)
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

static void enter(struct session *s)
{
    s->depth++;
}

static void dispose(struct session *s);

static void leave(struct session *s)
{
    s->depth--;
    if (s->depth == 0 && s->doomed)
        dispose(s);
}

static void answer(struct session *s, struct request *request, const struct stile_error *err)
{
    const struct answer a = {.outcomes = err ? NULL : request->outcomes,
                             .n = request->n,
                             .err = err,
                             .code = request->code,
                             .sent_ns = request->sent_ns};
    if (request->fn)
        request->fn(request->data, &a);
    request_free(s, request);
}

static struct request *take_first(struct session *s)
{
    struct request *request = s->first;
    s->first = request->next;
    if (!s->first)
        s->last = &s->first;
    return request;
}

/* ---- the library's calls: each returns what it waits for, or 0 when it is done ---- */

static int go_on(struct session *s, int ready)
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

static int start_query(struct session *s)
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

static void on_time(struct timer *timer)
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
    fail(s, &err);
}

/* ---- the socket ---- */

/* Who waits inside the server hears nothing from it for as long as it takes: only the kernel can
 * tell that the way there is cut. Fails harmlessly on a Unix socket. */
static void prepare_socket(int fd)
{
    static const struct {
        int level, name, value;
    } wanted[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                  {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                  {IPPROTO_TCP, TCP_KEEPCNT, 3},
                  {IPPROTO_TCP, TCP_USER_TIMEOUT, 25000}};
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        setsockopt(fd, wanted[i].level, wanted[i].name, &wanted[i].value, sizeof(int));
}

/* While connecting, the library may close its socket and try another that has the same number. */
static void watch_for(struct session *s, int waits_for)
{
    int fd = mysql_get_socket(s->conn);
    uint32_t events = waits_for != IDLE && waits_for & MYSQL_WAIT_WRITE ? EPOLLOUT : 0;
    if (waits_for == IDLE || waits_for & MYSQL_WAIT_READ)
        events |= EPOLLIN;
    s->waits_for = waits_for;
    if (s->state == CONNECTING || s->watch.fd != fd)
        loop_unwatch(s->loop, &s->watch);
    if (s->watch.fd != fd && fd >= 0)
        prepare_socket(fd);
    s->watch.fd = fd;
    if (fd < 0 || (s->watch.slot && s->watched == events))
        return;
    s->watched = events;
    if (loop_watch(s->loop, &s->watch, events))
        loop_soon(s->loop, &s->task);
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
    s->seat.used_ns = loop_now(s->loop);
    if (request->error.status && fault_is_end(request->code)) {
        struct stile_error why = request->error;
        fail(s, &why);
        return IDLE;
    }
    take_first(s);
    answer(s, request, request->error.status ? &request->error : NULL);
    if (s->doomed || s->state == DOWN || !s->first || s->call != CALL_NONE)
        return IDLE;
    return start_query(s);
}

static int note_outcome(struct session *s, MYSQL_RES *rows)
{
    struct request *request = s->first;
    if (request->n == OUTCOMES_MAX) {
        mysql_free_result(request->outcomes[--request->n].rows);
    }
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

static int hail(struct session *s)
{
    char *sql = sql_hail(s->my);
    struct request *request = sql ? request_new(s, sql, on_hailed, s) : NULL;
    struct stile_error err;
    if (!request) {
        free(sql);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        fail(s, &err);
        return IDLE;
    }
    s->state = HAILING;
    request->next = s->first;
    if (!s->first)
        s->last = &request->next;
    s->first = request;
    return start_query(s);
}

static int finish_connect(struct session *s)
{
    struct stile_error err;
    s->call = CALL_NONE;
    if (s->connected)
        return hail(s);
    fault_of(&err, mysql_errno(s->conn), mysql_error(s->conn), s->options->password);
    fail(s, &err);
    return IDLE;
}

/* The call is done: what it has brought, and what the next one waits for. */
static int finish_call(struct session *s)
{
    if (s->call == CALL_CONNECT)
        return finish_connect(s);
    bool failed = s->call == CALL_STORE ? !s->rows : s->call == CALL_READ ? s->unread : s->failed;
    if (failed) {
        note_error(s);
        return finish_request(s);
    }
    if (s->call == CALL_SEND)
        return await_answer(s);
    return s->call == CALL_STORE ? note_outcome(s, s->rows) : take_result(s);
}

static void drive(struct session *s, int waits_for)
{
    enter(s);
    while (waits_for == 0 && !s->doomed && s->state != DOWN)
        waits_for = finish_call(s);
    /* An answer may have asked for more, which is then under way already. */
    if (!s->doomed && s->state != DOWN && (waits_for != IDLE || s->call == CALL_NONE))
        watch_for(s, waits_for);
    arm_stall(s);
    leave(s);
}

/* Nothing was asked, so it is the server's last word, or none. */
static void hear_the_end(struct session *s)
{
    unsigned char said[512];
    struct stile_error err;
    ssize_t n = recv(s->watch.fd, said, sizeof said, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    fault_of_last_word(&err, said, n > 0 ? (size_t)n : 0);
    fail(s, &err);
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct session *s = (struct session *)((char *)watch - offsetof(struct session, watch));
    int ready = 0;
    if (s->call == CALL_NONE) {
        hear_the_end(s);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        ready |= s->waits_for & MYSQL_WAIT_READ;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        ready |= s->waits_for & MYSQL_WAIT_WRITE;
    if (ready)
        drive(s, go_on(s, ready));
}

/* A call that was done at once, or a socket that could not be watched. */
static void on_task(struct task *task)
{
    struct session *s = (struct session *)((char *)task - offsetof(struct session, task));
    struct stile_error err;
    if (s->call != CALL_NONE && s->waits_for == 0) {
        drive(s, 0);
    } else if (!s->watch.slot) {
        error_set(&err, STILE_NOMEM, 0, "the connection can't be watched");
        fail(s, &err);
    }
}

static void begin(struct session *s, int waits_for)
{
    if (waits_for) {
        watch_for(s, waits_for);
        return;
    }
    s->waits_for = 0;
    loop_soon(s->loop, &s->task);
}

enum stile_status session_send(struct session *s, char *sql, answer_fn *fn, void *data,
                               struct stile_error *err)
{
    struct request *request = sql && s->state != DOWN ? request_new(s, sql, fn, data) : NULL;
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
    begin(s, start_query(s));
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

/* ---- the end ---- */

/* A call that is suspended has things on its own stack: it has to be let go to its end. */
static void abort_call(struct session *s)
{
    int fd = mysql_get_socket(s->conn);
    if (s->call == CALL_NONE)
        return;
    if (fd >= 0)
        shutdown(fd, SHUT_RDWR); /* a word of farewell would keep the server from noticing */
    for (int i = 0; i < ABORT_STEPS && s->waits_for > 0 && s->call != CALL_AWAIT; i++)
        s->waits_for = go_on(s, MYSQL_WAIT_TIMEOUT);
    if (s->call == CALL_STORE && s->waits_for == 0)
        mysql_free_result(s->rows);
    s->call = CALL_NONE;
}

static void close_connection(struct session *s)
{
    loop_unwatch(s->loop, &s->watch);
    loop_disarm(s->loop, &s->timer);
    loop_forget(s->loop, &s->task);
    abort_call(s);
    mysql_close(s->conn);
    s->conn = NULL;
    s->state = DOWN;
}

static void dispose(struct session *s)
{
    while (s->first)
        request_free(s, take_first(s));
    free(s->spare);
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

bool session_is_up(const struct session *s)
{
    return s->state == UP;
}

bool session_is_over(const struct session *s)
{
    return s->state == DOWN;
}

void session_forked(struct session *s)
{
    if (s && s->conn && s->watch.fd >= 0)
        close(s->watch.fd);
}

static void fail(struct session *s, const struct stile_error *why)
{
    struct stile_error err = *why;
    if (s->state == DOWN)
        return;
    if (s->state == UP)
        err.status = STILE_UNREACHABLE;
    close_connection(s);
    enter(s);
    s->events->down(s);
    while (s->first && !s->doomed)
        answer(s, take_first(s), &err);
    if (!s->doomed)
        s->events->ended(s, &err);
    s->doomed = true;
    leave(s);
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
    else if (!my_check_server(s, a, &err)) {
        s->state = UP;
        loop_disarm(s->loop, &s->timer);
        s->events->up(s);
        return;
    }
    fail(s, &err);
}

enum stile_status session_new(struct session **out, struct my *my, struct loop *loop,
                              const struct options *options, const struct session_events *events,
                              struct stile_error *err)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s || loop_reserve(loop, 1)) {
        free(s);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *s = (struct session){.seat.pool = &my->pool,
                          .my = my,
                          .loop = loop,
                          .options = options,
                          .events = events,
                          .watch.fn = on_ready,
                          .watch.fd = -1,
                          .timer.fn = on_time,
                          .task.fn = on_task};
    s->last = &s->first;
    s->seat.used_ns = loop_now(loop);
    s->conn = options_prepare(options);
    if (!s->conn) {
        s->state = DOWN;
        session_free(s);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    s->call = CALL_CONNECT;
    begin(s, mysql_real_connect_start(&s->connected, s->conn, options->host, options->user,
                                      options->password, options->database, options->port,
                                      options->socket, OPTIONS_FLAGS));
    loop_arm(loop, &s->timer, loop_now(loop) + options->patience_ns);
    *out = s;
    return STILE_OK;
}
