/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "etcd_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/container.h"

#define HEAD    5 /* before each message: whether it is compressed, and its length */
#define TURN_NS (20 * MS)

/* ---- in place of sim/net.c: what simulated servers call ---- */

void net_add(struct server *server)
{
    (void)server;
}

void connection_reply(struct connection *connection, const void *bytes, size_t n)
{
    struct rig *rig = container_of(connection, struct rig, connection);
    buffer_put(&rig->arrived, bytes, n);
}

void server_cut(struct server *server)
{
    assert_null(server->connections);
}

void server_dispose(struct server *server)
{
    (void)server;
}

/* ---- HTTP/2 ---- */

static bool is(const uint8_t *bytes, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(bytes, text, n) == 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *data)
{
    struct rig_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags, (void)data;
    if (call != NULL && is(name, name_len, "grpc-status"))
        call->status = atoi((const char *)value);
    else if (call != NULL && is(name, name_len, "grpc-message"))
        snprintf(call->words, sizeof call->words, "%.*s", (int)value_len, value);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *data)
{
    struct rig_call *call = nghttp2_session_get_stream_user_data(session, id);
    (void)flags, (void)data;
    if (call != NULL)
        buffer_put(&call->in, bytes, n);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
    struct rig_call *call = nghttp2_session_get_stream_user_data(session, id);
    (void)code, (void)data;
    if (call != NULL)
        call->over = true;
    return 0;
}

static void open_session(struct rig *rig)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    assert_int_equal(nghttp2_session_client_new(&rig->session, callbacks, rig), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(rig->session, NGHTTP2_FLAG_NONE, NULL, 0);
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct rig_call *call = source->ptr;
    size_t n = buffer_len(&call->out) < room ? buffer_len(&call->out) : room;
    (void)session, (void)id, (void)data;
    if (n == 0 && !call->last)
        return NGHTTP2_ERR_DEFERRED;
    if (n > 0)
        memcpy(bytes, buffer_at(&call->out), n);
    buffer_drop(&call->out, n);
    if (call->last && buffer_len(&call->out) == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

void rig_begin(struct rig *rig, struct rig_call *call, const char *path)
{
    *call = (struct rig_call){.status = -1};
    const nghttp2_data_provider out = {.source.ptr = call, .read_callback = read_out};
    const nghttp2_nv headers[] = {
        header(":method", "POST"), header(":scheme", "http"),
        header(":path", path),     header(":authority", "etcd"),
        header("te", "trailers"),  header("content-type", "application/grpc"),
    };
    call->id = nghttp2_submit_request(rig->session, NULL, headers, sizeof headers / sizeof *headers,
                                      &out, call);
    assert_true(call->id > 0);
}

/* ---- bytes ---- */

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = send(fd, bytes, n, MSG_NOSIGNAL);
        if (written < 0)
            fail_msg("sending to etcd: %s", strerror(errno));
        bytes += written;
        n -= (size_t)written;
    }
}

/* In one piece: a second one would wait for the acknowledgement of the first. */
static void flush(struct rig *rig)
{
    struct buffer out = {0};
    const uint8_t *bytes;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(rig->session, &bytes)) > 0)
        buffer_put(&out, bytes, (size_t)n);
    if (buffer_len(&out) > 0 && rig->fd >= 0) {
        write_all(rig->fd, buffer_at(&out), buffer_len(&out));
    } else if (buffer_len(&out) > 0) {
        buffer_put(&rig->connection.received, buffer_at(&out), buffer_len(&out));
        rig->connection.server->class->data(&rig->connection);
    }
    buffer_free(&out);
}

static void take(struct rig *rig, const void *bytes, size_t n)
{
    assert_int_equal(nghttp2_session_mem_recv(rig->session, bytes, n), n);
}

/* Virtual time goes on by what is planned, or a little if nothing is. */
static bool step_simulated(struct rig *rig)
{
    struct buffer arrived = rig->arrived;
    rig->arrived = (struct buffer){0};
    if (buffer_len(&arrived) > 0)
        take(rig, buffer_at(&arrived), buffer_len(&arrived));
    else if (!world_step(world_now() + TURN_NS))
        world_run(world_now() + TURN_NS);
    buffer_free(&arrived);
    return true;
}

static bool step_real(struct rig *rig)
{
    char bytes[65536];
    struct pollfd fd = {.fd = rig->fd, .events = POLLIN};
    if (poll(&fd, 1, RIG_PATIENCE_MS) != 1)
        return false;
    ssize_t n = recv(rig->fd, bytes, sizeof bytes, 0);
    if (n <= 0)
        fail_msg("etcd has closed the connection");
    take(rig, bytes, (size_t)n);
    return true;
}

bool rig_step(struct rig *rig)
{
    flush(rig);
    bool came = rig->fd >= 0 ? step_real(rig) : step_simulated(rig);
    flush(rig);
    return came;
}

void rig_await(struct rig *rig, struct rig_call *call)
{
    const uint8_t *message;
    size_t n;
    uint64_t until_ns = world_now() + RIG_PATIENCE_MS * MS;
    while (!call->over && !rig_message(call, &message, &n)) {
        if (!rig_step(rig) || (rig->fd < 0 && world_now() > until_ns))
            fail_msg("%s etcd does not answer", rig->fd >= 0 ? "the real" : "the simulated");
    }
}

/* ---- messages ---- */

void rig_send(struct rig *rig, struct rig_call *call, const void *message, size_t n, bool last)
{
    const uint8_t head[HEAD] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                                (uint8_t)n};
    buffer_put(&call->out, head, sizeof head);
    buffer_put(&call->out, message, n);
    call->last = last;
    nghttp2_session_resume_data(rig->session, call->id);
}

bool rig_message(const struct rig_call *call, const uint8_t **message, size_t *n)
{
    if (buffer_len(&call->in) < HEAD)
        return false;
    const uint8_t *at = (const uint8_t *)buffer_at(&call->in);
    *n = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
    *message = at + HEAD;
    return buffer_len(&call->in) >= HEAD + *n;
}

void rig_drop(struct rig_call *call)
{
    const uint8_t *message;
    size_t n;
    if (rig_message(call, &message, &n))
        buffer_drop(&call->in, HEAD + n);
}

void rig_call_free(struct rig_call *call)
{
    buffer_free(&call->in);
    buffer_free(&call->out);
}

/* ---- its life ---- */

void rig_connect(struct rig *rig, const char *address)
{
    char host[64];
    snprintf(host, sizeof host, "%s", address);
    char *port = strchr(host, ':');
    assert_non_null(port);
    *port++ = '\0';
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    assert_int_equal(inet_pton(AF_INET, host, &to.sin_addr), 1);
    *rig = (struct rig){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    setsockopt(rig->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    assert_int_equal(connect(rig->fd, (struct sockaddr *)&to, sizeof to), 0);
    open_session(rig);
}

void rig_connect_simulated(struct rig *rig, struct server *server, struct process *process)
{
    *rig = (struct rig){.fd = -1, .connection = {.server = server, .process = process}};
    server->class->accepted(&rig->connection);
    open_session(rig);
}

void rig_close(struct rig *rig)
{
    nghttp2_session_del(rig->session);
    if (rig->fd >= 0)
        close(rig->fd);
    else
        rig->connection.server->class->closed(&rig->connection);
    buffer_free(&rig->arrived);
    buffer_free(&rig->connection.received);
}
