/* What comes: headers, messages, the ends of calls. */
#include <stdio.h>
#include <string.h>

#include "engines/etcd/h2_inner.h"
#include "mutant.h"

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

/* Takes what it can use; how many bytes. */
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

/* One answer must not cost all others the connection. */
static void end_too_long(struct h2 *h2, struct h2_call *call)
{
    int32_t id = call->id;
    call->too_long = true;
    nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    end_call(h2, id, NGHTTP2_CANCEL);
}

/* The call may be gone after a message. Where it failed, the rest would be taken for another one.
 */
static void take(struct h2 *h2, int32_t id, const uint8_t *bytes, size_t n)
{
    while (!h2->freed && !h2->end_task.queued) {
        struct h2_call *call = nghttp2_session_get_stream_user_data(h2->session, id);
        if (!call)
            return;
        size_t used = call->head_len < sizeof call->head ? take_head(call, bytes, n) : 0;
        bytes += used;
        n -= used;
        if (call->head_len < sizeof call->head)
            return;
        if (call->head[0] != 0) {
            h2_fail(h2, "a message is compressed");
            return;
        }
#ifndef MUTANT_ETCD_ANY_LENGTH
        if (message_len(call) > H2_MESSAGE_MAX) {
            end_too_long(h2, call);
            return;
        }
#endif
        size_t left = message_len(call) - buffer_len(&call->in);
        used = n < left ? n : left;
        if (used && buffer_put(&call->in, bytes, used)) {
            h2_fail_memory(h2);
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
    if (h2->freed || h2->end_task.queued || !call)
        return;
    nghttp2_session_set_stream_user_data(h2->session, id, NULL);
    h2_drop(call);
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

/* The peer has said its last word, and we had more to say: nothing comes of it any more. */
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
    if (h2->freed || h2->end_task.queued)
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

void h2_set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
}
