/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/grpc.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/world.h"

#define HEAD 5 /* bytes before a message: whether it is compressed, and its length */

struct grpc {
    const struct grpc_events *events;
    void *owner;
    nghttp2_session *session;
    struct grpc_call *calls;
    bool receiving;
};

void *grpc_owner(const struct grpc *grpc)
{
    return grpc->owner;
}

/* ---- sending ---- */

/* Everything at once, so that it travels as one piece. */
static void flush(struct grpc *grpc)
{
    struct buffer all = {0};
    const uint8_t *bytes;
    ssize_t n;
    if (grpc->receiving)
        return;
    while ((n = nghttp2_session_mem_send(grpc->session, &bytes)) > 0)
        buffer_put(&all, bytes, (size_t)n);
    if (buffer_len(&all) > 0)
        grpc->events->write(grpc, buffer_at(&all), buffer_len(&all));
    buffer_free(&all);
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

static void submit_trailers(struct grpc_call *call)
{
    char code[12];
    snprintf(code, sizeof code, "%d", call->status);
    const nghttp2_nv trailers[] = {header("grpc-status", code),
                                   header("grpc-message", call->words)};
    nghttp2_submit_trailer(call->grpc->session, call->id, trailers, 2);
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct grpc_call *call = source->ptr;
    size_t n = buffer_len(&call->out) < room ? buffer_len(&call->out) : room;
    (void)session, (void)id, (void)data;
    if (n == 0 && !call->ended)
        return NGHTTP2_ERR_DEFERRED;
    if (n > 0)
        memcpy(bytes, buffer_at(&call->out), n);
    buffer_drop(&call->out, n);
    if (call->ended && buffer_len(&call->out) == 0) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(call);
    }
    return (ssize_t)n;
}

static void answer(struct grpc_call *call)
{
    const nghttp2_data_provider out = {.source.ptr = call, .read_callback = read_out};
    const nghttp2_nv headers[] = {header(":status", "200"),
                                  header("content-type", "application/grpc")};
    if (call->answered)
        nghttp2_session_resume_data(call->grpc->session, call->id);
    else
        nghttp2_submit_response(call->grpc->session, call->id, headers, 2, &out);
    call->answered = true;
}

void grpc_send(struct grpc_call *call, const uint8_t *message, size_t n)
{
    const uint8_t head[HEAD] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                                (uint8_t)n};
    if (call->grpc == NULL || call->ended)
        return;
    buffer_put(&call->out, head, sizeof head);
    if (n > 0)
        buffer_put(&call->out, message, n);
    answer(call);
    flush(call->grpc);
}

void grpc_end(struct grpc_call *call, int status, const char *words)
{
    if (call->grpc == NULL || call->ended)
        return;
    call->ended = true;
    call->status = status;
    call->words = words;
    answer(call);
    flush(call->grpc);
}

/* ---- receiving ---- */

static struct grpc_call *call_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct grpc *grpc = data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = world_alloc(sizeof *call);
    *call = (struct grpc_call){.grpc = grpc, .next = grpc->calls, .id = frame->hd.stream_id};
    grpc->calls = call;
    return nghttp2_session_set_stream_user_data(session, call->id, call);
}

static bool is(const uint8_t *bytes, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(bytes, text, n) == 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *data)
{
    struct grpc_call *call = call_of(session, frame->hd.stream_id);
    (void)flags, (void)data;
    if (call == NULL)
        return 0;
    if (is(name, name_len, ":path"))
        snprintf(call->path, sizeof call->path, "%.*s", (int)value_len, value);
    else if (is(name, name_len, "hasleader"))
        call->led = is(value, value_len, "true");
    return 0;
}

/* The whole messages that are in its buffer. */
static void take_messages(struct grpc_call *call)
{
    while (call->grpc != NULL && buffer_len(&call->in) >= HEAD) {
        const uint8_t *at = (const uint8_t *)buffer_at(&call->in);
        size_t n = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
        if (buffer_len(&call->in) < HEAD + n)
            return;
        call->grpc->events->message(call, at + HEAD, n);
        buffer_drop(&call->in, HEAD + n);
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *data)
{
    struct grpc_call *call = call_of(session, id);
    (void)flags, (void)data;
    if (call != NULL && n > 0 && buffer_put(&call->in, bytes, n) == 0)
        take_messages(call);
    return 0;
}

static void finish(struct grpc_call *call)
{
    call->grpc->events->over(call);
    call->grpc = NULL;
    buffer_free(&call->in);
    buffer_free(&call->out);
}

static void unlist(struct grpc *grpc, const struct grpc_call *call)
{
    struct grpc_call **at = &grpc->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
    struct grpc_call *call = call_of(session, id);
    (void)code;
    if (call == NULL)
        return 0;
    unlist(data, call);
    finish(call);
    return 0;
}

void grpc_receive(struct grpc *grpc, const void *bytes, size_t n)
{
    grpc->receiving = true;
    ssize_t rc = nghttp2_session_mem_recv(grpc->session, bytes, n);
    grpc->receiving = false;
    if (rc < 0) {
        fprintf(stderr, "stile: sim: a client violates HTTP/2: %s\n", nghttp2_strerror((int)rc));
        exit(70);
    }
    flush(grpc);
}

/* ---- its life ---- */

struct grpc *grpc_new(const struct grpc_events *events, void *owner)
{
    struct grpc *grpc = world_alloc(sizeof *grpc);
    nghttp2_session_callbacks *callbacks;
    *grpc = (struct grpc){.events = events, .owner = owner};
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        exit(69);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    if (nghttp2_session_server_new(&grpc->session, callbacks, grpc) != 0)
        exit(69);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(grpc->session, NGHTTP2_FLAG_NONE, NULL, 0);
    return grpc;
}

void grpc_free(struct grpc *grpc)
{
    struct grpc_call *next;
    for (struct grpc_call *call = grpc->calls; call != NULL; call = next) {
        next = call->next;
        finish(call);
    }
    grpc->calls = NULL;
    nghttp2_session_del(grpc->session);
}
