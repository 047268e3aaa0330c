/* The life of a connection. */
#include "engines/mysql/session.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"
#include "engines/mysql/talk.h"

/* ---- the end ---- */

static void close_connection(struct session *s)
{
    loop_unwatch(s->loop, &s->watch);
    loop_disarm(s->loop, &s->timer);
    loop_forget(s->loop, &s->task);
    talk_abort(s);
    mysql_close(s->conn);
    s->conn = NULL;
    s->state = DOWN;
}

static void dispose(struct session *s)
{
    while (s->first)
        talk_free(s, talk_take_first(s));
    free(s->spare);
    loop_unreserve(s->loop, 1);
    free(s);
}

void session_enter(struct session *s)
{
    s->depth++;
}

void session_leave(struct session *s)
{
    s->depth--;
    if (s->depth == 0 && s->doomed)
        dispose(s);
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

void session_fail(struct session *s, const struct stile_error *why)
{
    struct stile_error err = *why;
    if (s->state == DOWN)
        return;
    if (s->state == UP)
        err.status = STILE_UNREACHABLE;
    close_connection(s);
    session_enter(s);
    s->events->down(s);
    while (s->first && !s->doomed)
        talk_answer(s, talk_take_first(s), &err);
    if (!s->doomed)
        s->events->ended(s, &err);
    s->doomed = true;
    session_leave(s);
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
void session_watch(struct session *s, int waits_for)
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

/* Nothing was asked, so it is the server's last word, or none. */
static void hear_the_end(struct session *s)
{
    unsigned char said[512];
    struct stile_error err;
    ssize_t n = recv(s->watch.fd, said, sizeof said, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    fault_of_last_word(&err, said, n > 0 ? (size_t)n : 0);
    session_fail(s, &err);
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
        talk_drive(s, talk_go_on(s, ready));
}

/* A call that was done at once, or a socket that could not be watched. */
static void on_task(struct task *task)
{
    struct session *s = (struct session *)((char *)task - offsetof(struct session, task));
    struct stile_error err;
    if (s->call != CALL_NONE && s->waits_for == 0) {
        talk_drive(s, 0);
    } else if (!s->watch.slot) {
        error_set(&err, STILE_NOMEM, 0, "the connection can't be watched");
        session_fail(s, &err);
    }
}

void session_begin(struct session *s, int waits_for)
{
    if (waits_for) {
        session_watch(s, waits_for);
        return;
    }
    s->waits_for = 0;
    loop_soon(s->loop, &s->task);
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
    session_fail(s, &err);
}

static int hail(struct session *s)
{
    char *sql = sql_hail(s->my);
    struct request *request = sql ? talk_new(s, sql, on_hailed, s) : NULL;
    struct stile_error err;
    if (!request) {
        free(sql);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        session_fail(s, &err);
        return IDLE;
    }
    s->state = HAILING;
    request->next = s->first;
    if (!s->first)
        s->last = &request->next;
    s->first = request;
    return talk_start(s);
}

int session_connected(struct session *s)
{
    struct stile_error err;
    s->call = CALL_NONE;
    if (s->connected)
        return hail(s);
    fault_of(&err, mysql_errno(s->conn), mysql_error(s->conn), s->options->password);
    session_fail(s, &err);
    return IDLE;
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
                          .timer.fn = talk_on_time,
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
    session_begin(s, mysql_real_connect_start(&s->connected, s->conn, options->host, options->user,
                                              options->password, options->database, options->port,
                                              options->socket, OPTIONS_FLAGS));
    loop_arm(loop, &s->timer, loop_now(loop) + options->patience_ns);
    *out = s;
    return STILE_OK;
}
