/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"
#include "io/stream_inner.h"

#define CHUNK              16384
#define DEFAULT_TIMEOUT_NS (5 * NS_PER_SEC)

/* A dead connection without requests is noticed after half a minute. */
#define KEEPALIVE_IDLE_SEC  15
#define KEEPALIVE_EVERY_SEC 5
#define KEEPALIVE_PROBES    3

void *stream_owner(const struct stream *s)
{
    return s->owner;
}

uint64_t stream_sent(const struct stream *s)
{
    return s->sent;
}

uint64_t stream_written(const struct stream *s)
{
    return s->written;
}

/* ---- the end ---- */

static void close_socket(struct stream *s)
{
    loop_unwatch(s->loop, &s->watch);
    if (s->watch.fd >= 0)
        close(s->watch.fd);
    s->watch.fd = -1;
    s->wants_write = false;
}

static void close_all(struct stream *s)
{
    s->state = CLOSED;
    close_socket(s);
    loop_disarm(s->loop, &s->timer);
    loop_forget(s->loop, &s->start_task);
    loop_forget(s->loop, &s->end_task);
    loop_ungather(s->loop, &s->sender);
    resolve_free(s->resolve);
    s->resolve = NULL;
}

static void dispose(struct stream *s)
{
    loop_unreserve(s->loop, 1);
    tls_free(s->tls);
    if (s->found)
        freeaddrinfo(s->found);
    buffer_free(&s->out);
    buffer_free(&s->wire);
    free(s);
}

/* If it is freed inside one of its own events, its memory stays until that event is over. */
void stream_free(struct stream *s)
{
    if (!s)
        return;
    close_all(s);
    if (s->in_event)
        s->freed = true;
    else
        dispose(s);
}

void stream_forked(struct stream *s)
{
    if (!s)
        return;
    if (s->watch.fd >= 0)
        close(s->watch.fd);
    resolve_forked(s->resolve);
}

static void enter_event(struct stream *s)
{
    s->in_event = true;
}

static void leave_event(struct stream *s)
{
    s->in_event = false;
    if (s->freed)
        dispose(s);
}

/* The reason has been set; does nothing if the stream has ended already. */
static void end_stream(struct stream *s)
{
    if (s->state == CLOSED)
        return;
    close_all(s);
    s->events->closed(s, &s->why);
}

static void end_with_errno(struct stream *s, int number, const char *what)
{
    error_errno(&s->why, STILE_UNREACHABLE, number, "%s", what);
    end_stream(s);
}

static void on_end_task(struct task *task)
{
    struct stream *s = container_of(task, struct stream, end_task);

    enter_event(s);
    end_stream(s);
    leave_event(s);
}

/* ---- sending ---- */

static int ask_for_writable(struct stream *s, bool wants)
{
    if (s->wants_write == wants)
        return 0;
    s->wants_write = wants;
    return loop_watch(s->loop, &s->watch, EPOLLIN | (wants ? EPOLLOUT : 0));
}

/* What TLS has to send, handshake and alerts included. */
static int collect_wire(struct stream *s)
{
    char part[CHUNK];
    size_t n;
    int rc = 0;

    while (!rc && (n = tls_take(s->tls, part, sizeof part)) > 0)
        rc = buffer_put(&s->wire, part, n);
    return rc;
}

static enum stile_status encrypt(struct stream *s)
{
    size_t n = s->state == OPEN ? buffer_len(&s->out) : 0;
    enum stile_status status = STILE_OK;

    if (n > 0)
        status = tls_encrypt(s->tls, buffer_at(&s->out), n, &s->why);
    if (status)
        return status;
    buffer_drop(&s->out, n);
    s->sent += n;
    return collect_wire(s) ? error_set(&s->why, STILE_NOMEM, ENOMEM, "sending: out of memory")
                           : STILE_OK;
}

/* 0, EAGAIN if the kernel accepts no more now, or the error that ends the stream. */
static int send_buffer(struct stream *s, struct buffer *b)
{
    while (buffer_len(b) > 0) {
        ssize_t n = send(s->watch.fd, buffer_at(b), buffer_len(b), MSG_NOSIGNAL);
        if (n >= 0)
            buffer_drop(b, (size_t)n);
        else if (errno != EINTR)
            return errno;
        if (n > 0 && b == &s->out)
            s->sent += (uint64_t)n;
    }
    return 0;
}

static enum stile_status try_send(struct stream *s)
{
    enum stile_status status = s->tls ? encrypt(s) : STILE_OK;

    if (status)
        return status;
    int rc = send_buffer(s, s->tls ? &s->wire : &s->out);
    if (rc == 0 || rc == EAGAIN)
        rc = ask_for_writable(s, rc == EAGAIN);
    return rc ? error_errno(&s->why, STILE_UNREACHABLE, rc, "sending") : STILE_OK;
}

/* A peer that has hung up may have sent a reason: that is read first, and reading finds the end. A
 * failure is put off: no event comes from inside a call. */
static void send_out(struct stream *s)
{
    if (s->peer_closed || s->end_task.queued || !try_send(s))
        return;
    if (s->why.native == EPIPE || s->why.native == ECONNRESET)
        s->peer_closed = !ask_for_writable(s, false);
    if (!s->peer_closed)
        loop_soon(s->loop, &s->end_task);
}

void stream_flush(struct stream *s)
{
    loop_ungather(s->loop, &s->sender);
    if (s->state == OPEN && !s->wants_write)
        send_out(s);
}

int stream_write(struct stream *s, const void *bytes, size_t n)
{
    if (s->state == CLOSED)
        return EPIPE;
    if (n > STREAM_OUT_MAX - buffer_len(&s->out))
        return ENOBUFS;
    int rc = buffer_put(&s->out, bytes, n);
    if (rc)
        return rc;
    s->written += n;
    if (s->state == OPEN)
        loop_gather(s->loop, &s->sender);
    return 0;
}

/* ---- TLS ---- */

static void become_open(struct stream *s)
{
    loop_disarm(s->loop, &s->timer);
    s->state = OPEN;
    if (buffer_len(&s->out) > 0)
        loop_gather(s->loop, &s->sender);
    s->events->opened(s);
}

/* The alert has the reason and is worth sending, even if that fails. */
static void end_tls(struct stream *s)
{
    if (!collect_wire(s))
        (void)send_buffer(s, &s->wire);
    end_stream(s);
}

static void hand_decrypted(struct stream *s)
{
    char plain[CHUNK];
    enum tls_step step = TLS_READY;

    while (s->state == OPEN && step == TLS_READY) {
        size_t n = sizeof plain;
        step = tls_decrypt(s->tls, plain, &n, &s->why);
        if (step == TLS_READY)
            s->events->data(s, plain, n);
    }
    if (s->state != OPEN)
        return;
    if (step == TLS_FAILED)
        end_tls(s);
    else
        loop_gather(s->loop, &s->sender); /* TLS may have to answer: a new key */
}

static void shake_hands(struct stream *s)
{
    enum tls_step step = tls_handshake(s->tls, &s->why);

    if (step == TLS_FAILED) {
        end_tls(s);
        return;
    }
    send_out(s);
    if (step == TLS_READY) {
        become_open(s);
        if (s->state == OPEN)
            hand_decrypted(s); /* what came together with the end of the handshake */
    }
}

/* Connected: TLS first, if there is any. */
static void begin_session(struct stream *s)
{
    int rc = loop_watch(s->loop, &s->watch, EPOLLIN);

    if (rc) {
        end_with_errno(s, rc, "watching the connection");
    } else if (s->tls) {
        s->state = SHAKING;
        loop_arm(s->loop, &s->timer, s->until_ns);
        shake_hands(s);
    } else {
        become_open(s);
    }
}

/* ---- receiving ---- */

/* One read per event is enough: the loop calls again while there is more. */
static void receive(struct stream *s)
{
    char part[CHUNK];
    ssize_t n = recv(s->watch.fd, part, sizeof part, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        end_with_errno(s, errno, "receiving");
    } else if (n == 0) {
        if (!s->peer_closed)
            error_set(&s->why, STILE_UNREACHABLE, 0, "the server closed the connection");
        end_stream(s);
    } else if (!s->tls) {
        s->events->data(s, part, (size_t)n);
    } else if (tls_put(s->tls, part, (size_t)n, &s->why)) {
        end_stream(s);
    } else if (s->state == OPEN) {
        hand_decrypted(s);
    } else {
        shake_hands(s);
    }
}

bool stream_has_unread(const struct stream *s)
{
    char byte;
    return s->state != CLOSED && recv(s->watch.fd, &byte, 1, MSG_PEEK) >= 0;
}

/* ---- connecting ---- */

static void connect_next(struct stream *s);

/* On this host, connect() may choose the server's port for our end if nothing listens on it: the
 * socket is then connected to itself, and the server cannot bind its port. */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage ours = {0}, theirs = {0};
    socklen_t our_len = sizeof ours, their_len = sizeof theirs;

    return getsockname(fd, (struct sockaddr *)&ours, &our_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&theirs, &their_len) == 0 &&
           ours.ss_family != AF_UNIX && our_len == their_len &&
           memcmp(&ours, &theirs, our_len) == 0;
}

static void finish_connect(struct stream *s)
{
    int rc = 0;
    socklen_t len = sizeof rc;

    if (getsockopt(s->watch.fd, SOL_SOCKET, SO_ERROR, &rc, &len))
        rc = errno;
    if (rc == 0 && is_self_connected(s->watch.fd))
        rc = ECONNREFUSED;
    if (rc == 0) {
        begin_session(s);
        return;
    }
    error_errno(&s->why, STILE_UNREACHABLE, rc, "connecting");
    connect_next(s);
}

static void on_socket(struct watch *watch, uint32_t events)
{
    struct stream *s = container_of(watch, struct stream, watch);

    enter_event(s);
    if (s->state == CONNECTING) {
        finish_connect(s);
    } else {
        if (events & ~(uint32_t)EPOLLOUT)
            receive(s);
        if ((events & EPOLLOUT) && s->state != CLOSED)
            send_out(s);
    }
    leave_event(s);
}

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value,
                     sizeof value); /* a failure costs speed, nothing else */
}

static void tune_tcp(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_SEC);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_SEC);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

/* 0: the loop will report the result, even if it is connected already. */
static int connect_to(struct stream *s, const struct sockaddr *address, socklen_t len)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return errno;
    s->watch.fd = fd;
    if (address->sa_family != AF_UNIX)
        tune_tcp(fd);
    int rc = connect(fd, address, len) ? errno : 0;
    if (rc == 0 || rc == EINPROGRESS || rc == EINTR)
        rc = loop_watch(s->loop, &s->watch, EPOLLOUT);
    if (rc)
        close_socket(s);
    return rc;
}

/* The share of one address in the time that is left. */
static uint64_t share_ns(struct stream *s)
{
    uint64_t now_ns = loop_now(s->loop), n = 1;

    for (struct addrinfo *a = s->next_address; a; a = a->ai_next)
        n++;
    return s->until_ns > now_ns ? now_ns + (s->until_ns - now_ns) / n : now_ns;
}

/* Ends the stream when no address is left; why has the reason of the last one. */
static void connect_next(struct stream *s)
{
    close_socket(s);
    while (s->next_address) {
        struct addrinfo *to = s->next_address;
        s->next_address = to->ai_next;
        int rc = connect_to(s, to->ai_addr, to->ai_addrlen);
        if (rc == 0) {
            loop_arm(s->loop, &s->timer, share_ns(s));
            return;
        }
        error_errno(&s->why, STILE_UNREACHABLE, rc, "connecting");
    }
    end_stream(s);
}

static void on_timer(struct timer *timer)
{
    struct stream *s = container_of(timer, struct stream, timer);

    enter_event(s);
    if (s->state == CONNECTING) {
        error_errno(&s->why, STILE_UNREACHABLE, ETIMEDOUT, "connecting");
        connect_next(s);
    } else {
        end_with_errno(s, ETIMEDOUT,
                       s->state == RESOLVING ? "resolving the host" : "TLS handshake");
    }
    leave_event(s);
}

static void on_start_task(struct task *task)
{
    struct stream *s = container_of(task, struct stream, start_task);

    enter_event(s);
    connect_next(s);
    leave_event(s);
}

/* The first address may accept connections and never answer; the others must be tried too. */
static struct addrinfo *rotate(struct addrinfo *list, unsigned by)
{
    struct addrinfo *last = list, *before;
    unsigned n = 1;

    for (; last->ai_next; last = last->ai_next)
        n++;
    last->ai_next = list;
    before = last;
    for (by %= n; by > 0; by--)
        before = before->ai_next;
    list = before->ai_next;
    before->ai_next = NULL;
    return list;
}

static void on_resolved(void *data, struct addrinfo *found, const struct stile_error *err)
{
    struct stream *s = data;

    enter_event(s);
    resolve_free(s->resolve);
    s->resolve = NULL;
    if (found) {
        s->found = s->next_address = rotate(found, s->rotate);
        s->state = CONNECTING;
        connect_next(s);
    } else {
        s->why = *err;
        end_stream(s);
    }
    leave_event(s);
}

/* ---- opening ---- */

static enum stile_status use_path(struct stream *s, const char *path, struct stile_error *err)
{
    struct sockaddr_un *address = &s->unix_address;

    if (strlen(path) >= sizeof address->sun_path)
        return error_set(err, STILE_MISUSE, 0,
                         "the path of the Unix socket has more than %zu bytes",
                         sizeof address->sun_path - 1);
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path, path);
    s->unix_info =
        (struct addrinfo){.ai_addr = (struct sockaddr *)address, .ai_addrlen = sizeof *address};
    s->next_address = &s->unix_info;
    s->state = CONNECTING;
    loop_soon(s->loop, &s->start_task);
    return STILE_OK;
}

static enum stile_status use_host(struct stream *s, const char *host, uint16_t port,
                                  struct stile_error *err)
{
    if (resolve_numeric(&s->found, host, port) == 0) {
        s->next_address = s->found;
        s->state = CONNECTING;
        loop_soon(s->loop, &s->start_task);
        return STILE_OK;
    }
    s->state = RESOLVING;
    loop_arm(s->loop, &s->timer, s->until_ns);
    return resolve_start(&s->resolve, s->loop, host, port, on_resolved, s, err);
}

static void on_sender(struct sender *sender)
{
    stream_flush(container_of(sender, struct stream, sender));
}

static struct stream *stream_alloc(struct loop *loop, const struct stream_events *events,
                                   void *owner)
{
    struct stream *s = calloc(1, sizeof *s);

    if (!s || loop_reserve(loop, 1)) {
        free(s);
        return NULL;
    }
    s->loop = loop;
    s->events = events;
    s->owner = owner;
    s->watch = (struct watch){.fd = -1, .fn = on_socket};
    s->timer.fn = on_timer;
    s->sender.fn = on_sender;
    s->start_task.fn = on_start_task;
    s->end_task.fn = on_end_task;
    return s;
}

enum stile_status stream_open(struct stream **out, struct loop *loop,
                              const struct stream_target *target,
                              const struct stream_events *events, void *owner,
                              struct stile_error *err)
{
    struct stream *s = stream_alloc(loop, events, owner);
    enum stile_status status = STILE_OK;

    if (!s)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    s->rotate = target->rotate;
    s->until_ns = loop_now(loop) + (target->timeout_ns ? target->timeout_ns : DEFAULT_TIMEOUT_NS);
    if (target->tls)
        status = tls_new(&s->tls, target->tls, target->host, err);
    if (!status)
        status = target->host ? use_host(s, target->host, target->port, err)
                              : use_path(s, target->path, err);
    if (status)
        stream_free(s);
    else
        *out = s;
    return status;
}
