/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/zookeeper/connection.h"

#include <stdlib.h>
#include <string.h>

#define XID_AT       4 /* behind the packet's length */
#define HEADER_SIZE  4
#define SCHEME       "digest"
#define PROTOCOL     0
#define TIMEOUT_MAX  (1 << 30)
#define PASSWORD_LEN 16 /* of a new session: the server expects this many bytes */

enum connection_state { OPENING, GREETING, UP, CLOSED };

struct connection {
    const struct connection_events *events;
    void *owner;
    struct loop *loop;
    struct stream *stream;
    enum connection_state state;
    struct connection_options options;
    uint64_t greeted_ns;
    int64_t zxid;
    int32_t last_xid;
    struct connection_request *first, **last; /* under way */
    struct buffer in;
    struct jute_writer writer;
    bool in_event, freed;
};

void *zk_connection_owner(const struct connection *c)
{
    return c->owner;
}

uint64_t zk_connection_greeted_ns(const struct connection *c)
{
    return c->greeted_ns;
}

int64_t zk_connection_zxid(const struct connection *c)
{
    return c->zxid;
}

bool zk_connection_is_up(const struct connection *c)
{
    return c->state == UP;
}

/* A connection that is freed inside one of its own events lives until that returns. */
static void enter(struct connection *c)
{
    c->in_event = true;
}

static void leave(struct connection *c)
{
    c->in_event = false;
    if (c->freed)
        free(c);
}

/* ---- sending ---- */

int zk_connection_send_unanswered(struct connection *c, const char *packet, size_t n)
{
    return stream_write(c->stream, packet, n);
}

void zk_connection_flush(struct connection *c)
{
    stream_flush(c->stream);
}

int zk_connection_send(struct connection *c, struct connection_request *request, char *packet,
                       size_t n)
{
    int32_t xid = c->last_xid < INT32_MAX ? c->last_xid + 1 : 1;
    uint64_t at = stream_written(c->stream);
    zk_jute_put_int(packet + XID_AT, xid);
    int error = stream_write(c->stream, packet, n);
    if (error)
        return error;
    c->last_xid = request->xid = xid;
    request->at = at;
    request->next = NULL;
    *c->last = request;
    c->last = &request->next;
    return 0;
}

struct connection_request *zk_connection_pop(struct connection *c, bool *may_have_left)
{
    struct connection_request *request = c->first;
    if (!request)
        return NULL;
    *may_have_left = stream_sent(c->stream) > request->at;
    c->first = request->next;
    if (!c->first)
        c->last = &c->first;
    return request;
}

static void push_back(struct connection *c, struct connection_request *request)
{
    request->next = c->first;
    if (!c->first)
        c->last = &request->next;
    c->first = request;
}

/* ---- the end ---- */

static void end(struct connection *c, const struct stile_error *why)
{
    if (c->state == CLOSED)
        return;
    c->state = CLOSED;
    c->events->closed(c, why);
}

static void end_as(struct connection *c, const char *what)
{
    struct stile_error why;
    error_set(&why, STILE_UNREACHABLE, 0, "%s", what);
    end(c, &why);
}

static void end_unreadable(struct connection *c, bool out_of_memory)
{
    end_as(c, out_of_memory ? "out of memory"
                            : "the server's reply is not ZooKeeper's protocol, or was damaged on "
                              "the way");
}

/* ---- the handshake ---- */

static const char *write_greeting(struct connection *c, size_t *n)
{
    static const char none[PASSWORD_LEN];
    const struct session_id *session = &c->options.session;
    zk_jute_begin(&c->writer);
    zk_jute_write_int(&c->writer, PROTOCOL);
    zk_jute_write_long(&c->writer, c->options.last_zxid);
    zk_jute_write_int(&c->writer, c->options.timeout_ms);
    zk_jute_write_long(&c->writer, session->id);
    zk_jute_write_bytes(&c->writer, session->id ? session->password : none,
                        session->id ? session->password_len : sizeof none);
    zk_jute_write_bool(&c->writer, false); /* no read-only server: it can't lock anything */
    return zk_jute_end(&c->writer, n);
}

static void on_opened(struct stream *stream)
{
    struct connection *c = stream_owner(stream);
    size_t n;
    const char *greeting = write_greeting(c, &n);
    c->greeted_ns = loop_now(c->loop);
    c->state = GREETING;
    enter(c);
    if (!greeting || stream_write(stream, greeting, n))
        end_unreadable(c, true);
    leave(c);
}

static bool authenticate(struct connection *c)
{
    size_t n;
    zk_jute_begin(&c->writer);
    zk_jute_write_int(&c->writer, JUTE_XID_AUTH);
    zk_jute_write_int(&c->writer, JUTE_AUTH);
    zk_jute_write_int(&c->writer, 0);
    zk_jute_write_string(&c->writer, SCHEME);
    zk_jute_write_bytes(&c->writer, c->options.credentials, strlen(c->options.credentials));
    const char *packet = zk_jute_end(&c->writer, &n);
    bool said = packet && zk_connection_send_unanswered(c, packet, n) == 0;
    buffer_free(&c->writer.buffer); /* wipes it */
    return said;
}

static void on_greeting(struct connection *c, struct jute_reader *reader)
{
    struct session_id session = {0};
    (void)zk_jute_read_int(reader);
    int32_t timeout_ms = zk_jute_read_int(reader);
    session.id = zk_jute_read_long(reader);
    const char *password = zk_jute_read_bytes(reader, &session.password_len);
    bool readable = !reader->bad && password && session.password_len <= SESSION_PASSWORD_MAX;
    int64_t wanted = c->options.session.id;
    bool expired = readable && session.id == 0;
    /* A session other than the one to be resumed belongs to another client. */
    if (!readable || (!expired && ((wanted && session.id != wanted) || timeout_ms <= 0 ||
                                   timeout_ms > TIMEOUT_MAX))) {
        end_unreadable(c, false);
        return;
    }
    memcpy(session.password, password, session.password_len);
    c->state = UP;
    if (!expired && c->options.credentials && !authenticate(c)) {
        end_unreadable(c, true);
        return;
    }
    c->events->up(c, &session, timeout_ms);
}

/* ---- packets ---- */

static void on_event(struct connection *c, struct jute_reader *reader)
{
    int32_t type = zk_jute_read_int(reader);
    (void)zk_jute_read_int(reader); /* the session's state */
    const char *path = zk_jute_read_string(reader);
    if (reader->bad)
        end_unreadable(c, false);
    else
        c->events->event(c, type, path);
}

static void on_answer(struct connection *c, int32_t xid, int32_t code, struct jute_reader *reader)
{
    bool left;
    struct connection_request *request =
        c->first && c->first->xid == xid && code <= 0 ? zk_connection_pop(c, &left) : NULL;
    if (!request) {
        end_unreadable(c, false);
    } else if (!request->answered(request, code, reader)) {
        push_back(c, request);
        end_unreadable(c, reader->out_of_memory);
    }
}

static void on_packet(struct connection *c, struct jute_reader *reader)
{
    if (c->state == GREETING) {
        on_greeting(c, reader);
        return;
    }
    int32_t xid = zk_jute_read_int(reader);
    int64_t zxid = zk_jute_read_long(reader);
    int32_t code = zk_jute_read_int(reader);
    c->zxid = !reader->bad && zxid > c->zxid ? zxid : c->zxid;
    if (reader->bad)
        end_unreadable(c, false);
    else if (xid == JUTE_XID_EVENT)
        on_event(c, reader);
    else if (xid == JUTE_XID_AUTH && code)
        c->events->unauthorized(c);
    else if (xid == JUTE_XID_SET_WATCHES && code)
        end_as(c, "the server did not set the watches again");
    else if (xid != JUTE_XID_AUTH && xid != JUTE_XID_SET_WATCHES)
        on_answer(c, xid, code, reader);
}

/* The size of the first packet received; 0: it is not complete yet. */
static size_t packet_size(struct connection *c)
{
    struct jute_reader reader = {.at = c->in.bytes + c->in.head, .end = c->in.bytes + c->in.end};
    if (buffer_len(&c->in) < HEADER_SIZE)
        return 0;
    int32_t n = zk_jute_read_int(&reader);
    if (n < 0 || (uint32_t)n > JUTE_PACKET_MAX) {
        end_unreadable(c, false);
        return 0;
    }
    return (size_t)(reader.end - reader.at) >= (size_t)n ? HEADER_SIZE + (size_t)n : 0;
}

static void read_packets(struct connection *c)
{
    size_t size;
    while (c->state != CLOSED && (size = packet_size(c)) > 0) {
        char *start = c->in.bytes + c->in.head;
        struct jute_reader reader = {.at = start + HEADER_SIZE, .end = start + size};
        on_packet(c, &reader);
        if (c->state != CLOSED)
            buffer_drop(&c->in, size);
    }
}

static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct connection *c = stream_owner(stream);
    enter(c);
    if (buffer_put(&c->in, bytes, n))
        end_unreadable(c, true);
    else
        read_packets(c);
    leave(c);
}

static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct connection *c = stream_owner(stream);
    enter(c);
    end(c, why);
    leave(c);
}

static const struct stream_events stream_events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

/* ---- opening and freeing ---- */

enum stile_status zk_connection_open(struct connection **out, struct loop *loop,
                                     const struct connection_options *options,
                                     const struct connection_events *events, void *owner,
                                     struct stile_error *err)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    *c = (struct connection){.events = events,
                             .owner = owner,
                             .loop = loop,
                             .options = *options,
                             .zxid = options->last_zxid};
    c->last = &c->first;
    enum stile_status status =
        stream_open(&c->stream, loop, &options->target, &stream_events, c, err);
    if (status)
        zk_connection_free(c);
    else
        *out = c;
    return status;
}

void zk_connection_free(struct connection *c)
{
    if (!c)
        return;
    c->state = CLOSED;
    stream_free(c->stream);
    buffer_free(&c->in);
    buffer_free(&c->writer.buffer);
    explicit_bzero(&c->options.session, sizeof c->options.session);
    if (c->in_event)
        c->freed = true;
    else
        free(c);
}

void zk_connection_forked(struct connection *c)
{
    if (c)
        stream_forked(c->stream);
}
