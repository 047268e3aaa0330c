/* Streams of messages over a connection. */
#include <errno.h>
#include <stdlib.h>

#include "engines/etcd/conn_inner.h"
#include "mutant.h"

static struct conn_stream *stream_of(struct h2_call *call)
{
    return (struct conn_stream *)((char *)call - offsetof(struct conn_stream, call));
}

static void unlist(struct conn_stream *s)
{
    for (size_t i = 0; i < CONN_STREAMS_MAX; i++) {
        if (s->conn->streams[i] == s)
            s->conn->streams[i] = NULL;
    }
    s->open = false;
}

static void on_stream_message(struct h2_call *call, const uint8_t *bytes, size_t n)
{
    struct conn_stream *s = stream_of(call);
    struct conn *c = s->conn;
    ProtobufCMessage *message =
        protobuf_c_message_unpack(rpc_classes[s->rpc].answer, NULL, n, bytes);
    if (!message) {
        if (!c->break_task.queued)
            error_set(&c->why, STILE_UNREACHABLE, 0, "the server sent a damaged message");
        conn_break_soon(c);
        return;
    }
    conn_enter(c);
    s->message(s, message);
    conn_leave(c);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_stream_ended(struct h2_call *call)
{
    struct conn_stream *s = stream_of(call);
    struct conn *c = s->conn;
    struct stile_error err;
    if (!fault_explain(call, &err))
        error_set(&err, STILE_UNREACHABLE, 0, "the server ended the stream");
    unlist(s);
    conn_enter(c);
    if (conn_is_logged_out(c, &err) && c->state == UP)
        conn_log_in(c);
    s->ended(s, &err);
    if (!c->freed && conn_worth_another(&err))
        conn_try_another(c, &err);
    conn_leave(c);
}

static const struct h2_call_events stream_events = {.message = on_stream_message,
                                                    .ended = on_stream_ended};

enum stile_status conn_stream_open(struct conn *c, struct conn_stream *s, enum rpc rpc,
                                   struct stile_error *err)
{
    size_t i = 0;
    while (i < CONN_STREAMS_MAX && c->streams[i])
        i++;
    if (c->state != UP || c->break_task.queued || i == CONN_STREAMS_MAX)
        return error_set(err, STILE_UNREACHABLE, 0, "%s: not connected", c->address);
    s->conn = c;
    s->rpc = rpc;
    s->call.events = &stream_events;
    int rc = h2_start(c->h2, &s->call, rpc_classes[rpc].path, c->token, true);
    if (rc)
        return error_errno(err, STILE_UNREACHABLE, rc, "%s: opening a stream", c->address);
    c->streams[i] = s;
    s->open = true;
    return STILE_OK;
}

/* Half a message may be in the way of the next one. All that lives on streams begins again over the
 * next connection, and what was not said is said then. */
static enum stile_status break_off(struct conn *c, int rc, struct stile_error *err)
{
    if (!c->break_task.queued)
        error_errno(&c->why, STILE_UNREACHABLE, rc, "sending");
#ifndef MUTANT_ETCD_UNSAID_IS_FORGOTTEN
    conn_break_soon(c);
#endif
    return error_errno(err, STILE_UNREACHABLE, rc, "sending");
}

enum stile_status conn_stream_send(struct conn_stream *s, const ProtobufCMessage *message,
                                   struct stile_error *err)
{
    uint8_t small[1024], *bytes = small;
    size_t len = protobuf_c_message_get_packed_size(message);
    if (len > sizeof small)
        bytes = malloc(len);
    if (!bytes)
        return break_off(s->conn, ENOMEM, err);
    protobuf_c_message_pack(message, bytes);
    int rc = h2_send(&s->call, bytes, len, false);
    if (bytes != small)
        free(bytes);
    return rc ? break_off(s->conn, rc, err) : STILE_OK;
}

void conn_stream_close(struct conn_stream *s)
{
    if (!s->open)
        return;
    unlist(s);
    h2_cancel(&s->call);
}

void conn_end_streams(struct conn *c, const struct stile_error *why)
{
    for (size_t i = 0; i < CONN_STREAMS_MAX && !c->freed; i++) {
        struct conn_stream *s = c->streams[i];
        if (s) {
            conn_stream_close(s);
            s->ended(s, why);
        }
    }
}
