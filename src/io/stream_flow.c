#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "io/stream_inner.h"

#define CHUNK 16384

uint64_t stream_sent(const struct stream *s)
{
    return s->sent;
}

uint64_t stream_written(const struct stream *s)
{
    return s->written;
}

/* ---- sending ---- */

static int ask_for_writable(struct stream *s, bool wants)
{
    if (s->wants_write == wants)
        return 0;
    s->wants_write = wants;
    return loop_watch(s->loop, &s->watch, EPOLLIN | (wants ? EPOLLOUT : 0));
}

/* What TLS wants to be sent, handshake and alerts included. */
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

/* 0, EAGAIN if the kernel takes no more now, or what ends the stream. */
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

/* Who has hung up may have said why: that is read first, and the end follows from there. */
void stream_send_out(struct stream *s)
{
    if (s->unheard || s->end_task.queued || !try_send(s))
        return;
    if (s->why.native == EPIPE || s->why.native == ECONNRESET)
        s->unheard = !ask_for_writable(s, false);
    if (!s->unheard)
        loop_soon(s->loop, &s->end_task);
}

void stream_flush(struct stream *s)
{
    loop_ungather(s->loop, &s->sender);
    if (s->state == OPEN && !s->wants_write)
        stream_send_out(s);
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

/* The alert that says why is worth sending, whatever becomes of it. */
static void end_tls(struct stream *s)
{
    if (!collect_wire(s))
        (void)send_buffer(s, &s->wire);
    stream_end(s);
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
        loop_gather(s->loop, &s->sender); /* TLS may have to answer by itself: a new key */
}

static void shake_hands(struct stream *s)
{
    enum tls_step step = tls_handshake(s->tls, &s->why);

    if (step == TLS_FAILED) {
        end_tls(s);
        return;
    }
    stream_send_out(s);
    if (step == TLS_READY) {
        become_open(s);
        if (s->state == OPEN)
            hand_decrypted(s); /* what came together with the end of the handshake */
    }
}

void stream_start(struct stream *s)
{
    int rc = loop_watch(s->loop, &s->watch, EPOLLIN);

    if (rc) {
        stream_end_errno(s, rc, "watching the connection");
    } else if (s->tls) {
        s->state = SHAKING;
        loop_arm(s->loop, &s->timer, s->until_ns);
        shake_hands(s);
    } else {
        become_open(s);
    }
}

/* ---- receiving ---- */

/* One read an event is enough: the loop comes back while there is more. */
void stream_receive(struct stream *s)
{
    char part[CHUNK];
    ssize_t n = recv(s->watch.fd, part, sizeof part, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        stream_end_errno(s, errno, "receiving");
    } else if (n == 0) {
        if (!s->unheard)
            error_set(&s->why, STILE_UNREACHABLE, 0, "the server closed the connection");
        stream_end(s);
    } else if (!s->tls) {
        s->events->data(s, part, (size_t)n);
    } else if (tls_put(s->tls, part, (size_t)n, &s->why)) {
        stream_end(s);
    } else if (s->state == OPEN) {
        hand_decrypted(s);
    } else {
        shake_hands(s);
    }
}
