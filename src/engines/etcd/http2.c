/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/etcd/http2.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW (1 << 20)
/* Streams above the peer's limit wait inside nghttp2. */
#define UNTIL_SETTINGS_STREAMS 100

struct h2 {
    const struct h2_events *events;
    void *owner;
    struct stream *stream;
    nghttp2_session *session;
    char authority[300];
    bool tls, up, failed, receiving, sending, freed;
};

void *etcd_h2_owner(const struct h2 *h2)
{
    return h2->owner;
}

/* ---- the end ---- */

static void free_now(struct h2 *h2)
{
    nghttp2_session_del(h2->session);
    free(h2);
}

void etcd_h2_free(struct h2 *h2)
{
    if (!h2 || h2->freed)
        return;
    h2->freed = true;
    if (!h2->receiving && !h2->sending)
        free_now(h2);
}

static void fail(struct h2 *h2, const struct stile_error *why)
{
    if (h2->failed || h2->freed)
        return;
    h2->failed = true;
    h2->events->failed(h2, why);
}

static void fail_protocol(struct h2 *h2, const char *what)
{
    struct stile_error why;
    error_set(&why, STILE_REFUSED, 0, "the server does not speak gRPC as etcd does: %s", what);
    fail(h2, &why);
}

bool etcd_h2_is_temporary(int http_status)
{
    return http_status == 429 || (http_status >= 502 && http_status <= 504);
}

/* A balancer whose servers are down may answer in HTTP/1, as it does to every client. */
static void fail_http1(struct h2 *h2, const char *answer)
{
    int http_status = atoi(answer + sizeof "HTTP/1.1 " - 1);
    struct stile_error why;
    error_set(&why, etcd_h2_is_temporary(http_status) ? STILE_UNREACHABLE : STILE_REFUSED, 0,
              etcd_h2_is_temporary(http_status)
                  ? "a proxy answers in place of etcd (HTTP status %d)"
                  : "the server does not speak gRPC as etcd does (HTTP status %d)",
              http_status);
    fail(h2, &why);
}

static bool is_http1(const struct h2 *h2, const void *bytes, size_t n)
{
    return !h2->up && n >= sizeof "HTTP/1.1 503" - 1 && memcmp(bytes, "HTTP/1.", 7) == 0;
}

static void fail_memory(struct h2 *h2)
{
    struct stile_error why;
    error_set(&why, STILE_NOMEM, 0, "out of memory");
    fail(h2, &why);
}

static void fail_session(struct h2 *h2, ssize_t rc)
{
    if (rc == NGHTTP2_ERR_NOMEM)
        fail_memory(h2);
    else
        fail_protocol(h2, nghttp2_strerror((int)rc));
}

/* ---- sending ---- */

static void write_all(struct h2 *h2)
{
    const uint8_t *bytes;
    ssize_t n = 0;
    while (!h2->failed && !h2->freed && (n = nghttp2_session_mem_send(h2->session, &bytes)) > 0) {
        int rc = stream_write(h2->stream, bytes, (size_t)n);
        if (rc) {
            struct stile_error why;
            error_errno(&why, STILE_UNREACHABLE, rc, "sending");
            fail(h2, &why);
        }
    }
    if (n < 0)
        fail_session(h2, n);
}

/* Moves everything nghttp2 has into the stream, which sends it before the loop sleeps. A call ends
 * while nghttp2 sends its reset; what its owner then sends, cancels or frees waits until that is
 * done. */
static void pump(struct h2 *h2)
{
    if (h2->receiving || h2->sending || h2->failed || h2->freed)
        return;
    h2->sending = true;
    write_all(h2);
    h2->sending = false;
    if (h2->freed)
        free_now(h2);
    else if (!h2->failed && !nghttp2_session_want_read(h2->session) &&
             !nghttp2_session_want_write(h2->session))
        fail_protocol(h2, "it violates HTTP/2");
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct h2_call *call = nghttp2_session_get_stream_user_data(session, id);
    struct h2 *h2 = data;
    (void)source;
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = buffer_len(&call->out) < room ? buffer_len(&call->out) : room;
    if (n == 0 && !call->last)
        return NGHTTP2_ERR_DEFERRED;
    memcpy(bytes, buffer_at(&call->out), n);
    buffer_drop(&call->out, n);
    if (call->last && buffer_len(&call->out) == 0) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        call->sent = stream_written(h2->stream) + 1;
    }
    return (ssize_t)n;
}

#define FIXED_HEADERS 7

#define FIXED(name, value)                                                                         \
    {                                                                                              \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1,                \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE                           \
    }

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

int etcd_h2_start(struct h2 *h2, struct h2_call *call, const char *path, const char *token,
                  bool led)
{
    const nghttp2_data_provider out = {.read_callback = read_out};
    nghttp2_nv headers[FIXED_HEADERS + 2] = {FIXED(":method", "POST"),
                                             h2->tls ? (nghttp2_nv)FIXED(":scheme", "https")
                                                     : (nghttp2_nv)FIXED(":scheme", "http"),
                                             header(":path", path),
                                             header(":authority", h2->authority),
                                             FIXED("te", "trailers"),
                                             FIXED("content-type", "application/grpc"),
                                             FIXED("user-agent", "stile/" STILE_VERSION)};
    size_t n = FIXED_HEADERS;
    if (led)
        headers[n++] = (nghttp2_nv)FIXED("hasleader", "true");
    if (token)
        headers[n++] = header("token", token);
    const struct h2_call_events *events = call->events;
    *call = (struct h2_call){.events = events, .status = H2_NO_STATUS};
    int32_t id = nghttp2_submit_request(h2->session, NULL, headers, n, &out, call);
    if (id < 0)
        return id == NGHTTP2_ERR_NOMEM ? ENOMEM : EPIPE;
    call->h2 = h2;
    call->id = id;
    return 0;
}

int etcd_h2_send(struct h2_call *call, const void *message, size_t n, bool last)
{
    struct h2 *h2 = call->h2;
    const uint8_t head[5] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                             (uint8_t)n};
    if (!h2)
        return EPIPE;
    int rc = buffer_put(&call->out, head, sizeof head);
    if (!rc)
        rc = buffer_put(&call->out, message, n);
    if (rc)
        return rc;
    call->last = last;
    nghttp2_session_resume_data(h2->session, call->id);
    pump(h2);
    return 0;
}

int etcd_h2_ping(struct h2 *h2)
{
    int rc = nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, NULL);
    pump(h2);
    return rc ? ENOMEM : 0;
}

uint64_t etcd_h2_end(const struct h2_call *call)
{
    return call->h2 && call->sent ? call->sent : UINT64_MAX;
}

static void drop_call(struct h2_call *call)
{
    call->h2 = NULL;
    buffer_free(&call->out);
    buffer_free(&call->in);
}

void etcd_h2_cancel(struct h2_call *call)
{
    struct h2 *h2 = call->h2;
    if (!h2)
        return;
    nghttp2_session_set_stream_user_data(h2->session, call->id, NULL);
    nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
    drop_call(call);
    pump(h2);
}

/* ---- headers ---- */

static bool is(const uint8_t *bytes, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(bytes, text, n) == 0;
}

static int number(const uint8_t *bytes, size_t n)
{
    int value = 0;
    if (n == 0 || n > 3)
        return H2_NO_STATUS;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] < '0' || bytes[i] > '9')
            return H2_NO_STATUS;
        value = value * 10 + (bytes[i] - '0');
    }
    return value;
}

static int digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The percent-escapes of grpc-message; what does not print becomes '?'. */
static void copy_words(char out[H2_WORDS_MAX], const uint8_t *bytes, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n && used + 1 < H2_WORDS_MAX; i++) {
        int c = bytes[i];
        if (c == '%' && i + 2 < n && digit(bytes[i + 1]) >= 0 && digit(bytes[i + 2]) >= 0) {
            c = digit(bytes[i + 1]) * 16 + digit(bytes[i + 2]);
            i += 2;
        }
        out[used++] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    out[used] = '\0';
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *data)
{
    struct h2_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags, (void)data;
    if (!call)
        return 0;
    call->headers += name_len + value_len + 32;
    if (call->headers > H2_HEADERS_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (is(name, name_len, ":status"))
        call->http_status = number(value, value_len);
    else if (is(name, name_len, "grpc-status"))
        call->status = number(value, value_len);
    else if (is(name, name_len, "grpc-message"))
        copy_words(call->words, value, value_len);
    return 0;
}

/* ---- messages ---- */

static size_t message_len(const struct h2_call *call)
{
    const uint8_t *h = call->head;
    return (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
}

/* Takes what it can use, and returns how many bytes that was. */
static size_t take_head(struct h2_call *call, const uint8_t *bytes, size_t n)
{
    size_t room = sizeof call->head - call->head_len, used = n < room ? n : room;
    memcpy(call->head + call->head_len, bytes, used);
    call->head_len += (unsigned)used;
    return used;
}

static void hand_over(struct h2_call *call)
{
    struct buffer whole = call->in;
    call->in = (struct buffer){0};
    call->head_len = 0;
    call->events->message(call, whole.bytes ? (const uint8_t *)buffer_at(&whole) : call->head,
                          buffer_len(&whole));
    buffer_free(&whole);
}

static void end_call(struct h2 *h2, int32_t id, uint32_t code);

/* One answer that is too long must not cost all others the connection. */
static void end_too_long(struct h2 *h2, struct h2_call *call)
{
    int32_t id = call->id;
    call->too_long = true;
    nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    end_call(h2, id, NGHTTP2_CANCEL);
}

/* The call may be gone after a message. After a failure the rest would be taken for another one. */
static void take(struct h2 *h2, int32_t id, const uint8_t *bytes, size_t n)
{
    while (!h2->freed && !h2->failed) {
        struct h2_call *call = nghttp2_session_get_stream_user_data(h2->session, id);
        if (!call)
            return;
        size_t used = call->head_len < sizeof call->head ? take_head(call, bytes, n) : 0;
        bytes += used;
        n -= used;
        if (call->head_len < sizeof call->head)
            return;
        if (call->head[0] != 0) {
            fail_protocol(h2, "a message is compressed");
            return;
        }
        if (message_len(call) > H2_MESSAGE_MAX) {
            end_too_long(h2, call);
            return;
        }
        size_t left = message_len(call) - buffer_len(&call->in);
        used = n < left ? n : left;
        if (used && buffer_put(&call->in, bytes, used)) {
            fail_memory(h2);
            return;
        }
        bytes += used;
        n -= used;
        if (used < left)
            return;
        hand_over(call);
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *data)
{
    struct h2 *h2 = data;
    struct h2_call *call = nghttp2_session_get_stream_user_data(session, id);
    (void)flags;
    if (h2->freed || !call || call->http_status != 200)
        return 0;
    take(h2, id, bytes, n);
    return 0;
}

static void end_call(struct h2 *h2, int32_t id, uint32_t code)
{
    struct h2_call *call = nghttp2_session_get_stream_user_data(h2->session, id);
    if (h2->freed || h2->failed || !call)
        return;
    nghttp2_session_set_stream_user_data(h2->session, id, NULL);
    drop_call(call);
    call->refused = code == NGHTTP2_REFUSED_STREAM;
    if (code != NGHTTP2_NO_ERROR && call->status == H2_NO_STATUS && !call->words[0])
        snprintf(call->words, sizeof call->words, "stream reset: %s", nghttp2_http2_strerror(code));
    call->events->ended(call);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
    (void)session;
    end_call(data, id, code);
    return 0;
}

/* The peer has ended its side while ours is open: nothing more will come of the call. */
static void end_half_open(struct h2 *h2, int32_t id)
{
    const struct h2_call *call = nghttp2_session_get_stream_user_data(h2->session, id);
    if (!call || call->last)
        return;
    nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
    end_call(h2, id, NGHTTP2_NO_ERROR);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct h2 *h2 = data;
    (void)session;
    if (h2->freed || h2->failed)
        return 0;
    if (frame->hd.type == NGHTTP2_SETTINGS && !(frame->hd.flags & NGHTTP2_FLAG_ACK) && !h2->up) {
        h2->up = true;
        h2->events->up(h2);
    } else if (frame->hd.type == NGHTTP2_GOAWAY) {
        h2->events->going(h2);
    } else if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
               (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        end_half_open(h2, frame->hd.stream_id);
    }
    return 0;
}

static void set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
}

/* ---- what the stream receives ---- */

void etcd_h2_receive(struct h2 *h2, const void *bytes, size_t n)
{
    if (h2->failed)
        return;
    if (is_http1(h2, bytes, n)) {
        char answer[sizeof "HTTP/1.1 503"] = "";
        memcpy(answer, bytes, sizeof answer - 1);
        fail_http1(h2, answer);
        return;
    }
    h2->receiving = true;
    ssize_t rc = nghttp2_session_mem_recv(h2->session, bytes, n);
    h2->receiving = false;
    if (h2->freed) {
        free_now(h2);
        return;
    }
    if (rc < 0)
        fail_session(h2, rc);
    pump(h2);
}

/* ---- the beginning ---- */

static int set_up_session(struct h2 *h2)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int rc = nghttp2_session_callbacks_new(&callbacks);
    if (!rc)
        rc = nghttp2_option_new(&option);
    if (!rc) {
        set_callbacks(callbacks);
        nghttp2_option_set_peer_max_concurrent_streams(option, UNTIL_SETTINGS_STREAMS);
        nghttp2_option_set_no_closed_streams(option, 1);
        rc = nghttp2_session_client_new2(&h2->session, callbacks, h2, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return rc;
}

static int greet(struct h2 *h2)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_HEADERS_MAX},
    };
    int rc = nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings,
                                     sizeof settings / sizeof *settings);
    if (!rc)
        rc = nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0, 4 * WINDOW);
    return rc;
}

enum stile_status etcd_h2_new(struct h2 **out, struct stream *stream, const char *authority,
                              bool tls, const struct h2_events *events, void *owner,
                              struct stile_error *err)
{
    struct h2 *h2 = calloc(1, sizeof *h2);
    if (!h2)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    h2->stream = stream;
    h2->events = events;
    h2->owner = owner;
    h2->tls = tls;
    snprintf(h2->authority, sizeof h2->authority, "%s", authority);
    if (set_up_session(h2) || greet(h2)) {
        free_now(h2);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    pump(h2);
    *out = h2;
    return STILE_OK;
}
