/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/h2_peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

static struct peer_call *call_of(struct h2_peer *peer, int32_t id)
{
    for (size_t i = 0; i < peer->n; i++) {
        if (peer->calls[i].id == id)
            return &peer->calls[i];
    }
    return NULL;
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct h2_peer *peer = data;
    (void)session;
    assert_true(peer->n < PEER_CALLS_MAX);
    peer->calls[peer->n++] = (struct peer_call){.id = frame->hd.stream_id};
    return 0;
}

static void keep(char *to, size_t size, const uint8_t *value, size_t len)
{
    snprintf(to, size, "%.*s", (int)len, (const char *)value);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *data)
{
    struct peer_call *call = call_of(data, frame->hd.stream_id);
    (void)session, (void)flags;
    if (name_len == 5 && memcmp(name, ":path", 5) == 0)
        keep(call->path, sizeof call->path, value, value_len);
    else if (name_len == 5 && memcmp(name, "token", 5) == 0)
        keep(call->token, sizeof call->token, value, value_len);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *data)
{
    struct peer_call *call = call_of(data, id);
    (void)session, (void)flags;
    assert_true(call && call->n + n <= sizeof call->body);
    memcpy(call->body + call->n, bytes, n);
    call->n += n;
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct h2_peer *peer = data;
    struct peer_call *call = call_of(peer, frame->hd.stream_id);
    (void)session;
    if (call && frame->hd.type != NGHTTP2_RST_STREAM && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        call->whole = true;
    if (call && frame->hd.type == NGHTTP2_RST_STREAM)
        call->reset = true;
    peer->pings += frame->hd.type == NGHTTP2_PING;
    return 0;
}

void peer_listen(struct h2_peer *peer)
{
    memset(peer, 0, sizeof *peer);
    fake_listen(&peer->fake);
}

static void say(struct h2_peer *peer)
{
    const uint8_t *bytes;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(peer->session, &bytes)) > 0)
        fake_say_bytes(&peer->fake, bytes, (size_t)n);
    assert_int_equal(n, 0);
}

void peer_accept(struct h2_peer *peer)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    int on = 1;
    fake_accept(&peer->fake);
    setsockopt(peer->fake.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_del(peer->session);
    peer->n = 0;
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20); /* more than we take */
    assert_int_equal(nghttp2_session_server_new2(&peer->session, callbacks, peer, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    assert_int_equal(nghttp2_submit_settings(peer->session, NGHTTP2_FLAG_NONE, NULL, 0), 0);
    say(peer);
}

void peer_take(struct h2_peer *peer)
{
    uint8_t bytes[4096];
    ssize_t n;
    while ((n = recv(peer->fake.fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        assert_int_equal(nghttp2_session_mem_recv(peer->session, bytes, (size_t)n), n);
    say(peer);
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct h2_peer *peer = data;
    size_t left = peer->out_len - peer->out_sent, n = left < room ? left : room;
    (void)session, (void)id, (void)source;
    memcpy(bytes, peer->out + peer->out_sent, n);
    peer->out_sent += n;
    if (peer->out_sent == peer->out_len) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (!peer->out_last)
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    return (ssize_t)n;
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), 0};
}

void peer_more(struct h2_peer *peer, int32_t id, const void *body, size_t n)
{
    nghttp2_data_provider provider = {.read_callback = read_body};
    assert_true(n <= sizeof peer->out);
    memcpy(peer->out, body, n);
    peer->out_len = n;
    peer->out_sent = 0;
    peer->out_last = false;
    assert_int_equal(nghttp2_submit_data(peer->session, 0, id, &provider), 0);
    say(peer);
}

void peer_answer(struct h2_peer *peer, int32_t id, const void *body, size_t n, int status,
                 const char *words)
{
    char number[16];
    nghttp2_nv head[] = {header(":status", "200"), header("content-type", "application/grpc")};
    snprintf(number, sizeof number, "%d", status);
    nghttp2_nv tail[] = {header("grpc-status", number), header("grpc-message", words)};
    assert_int_equal(nghttp2_submit_headers(peer->session, 0, id, NULL, head, 2, NULL), 0);
    say(peer);
    if (n > 0)
        peer_more(peer, id, body, n);
    if (status >= 0)
        assert_int_equal(nghttp2_submit_trailer(peer->session, id, tail, *words ? 2 : 1), 0);
    say(peer);
}

void peer_answer_message(struct h2_peer *peer, int32_t id, const void *message, size_t n)
{
    uint8_t body[4096] = {0, 0, 0, (uint8_t)(n >> 8), (uint8_t)n};
    assert_true(n + 5 <= sizeof body);
    memcpy(body + 5, message, n);
    peer_answer(peer, id, body, n + 5, 0, "");
}

void peer_reset(struct h2_peer *peer, int32_t id, uint32_t code)
{
    assert_int_equal(nghttp2_submit_rst_stream(peer->session, 0, id, code), 0);
    say(peer);
}

void peer_goaway(struct h2_peer *peer, int32_t last_id)
{
    assert_int_equal(nghttp2_submit_goaway(peer->session, 0, last_id, NGHTTP2_NO_ERROR, NULL, 0),
                     0);
    say(peer);
}

void peer_hang_up(struct h2_peer *peer)
{
    fake_hang_up(&peer->fake);
}

void peer_free(struct h2_peer *peer)
{
    nghttp2_session_del(peer->session);
    fake_free(&peer->fake);
}
