/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: the way to a server over TCP and Unix sockets, by name, and to one that does not
 * answer. */
#include "unit/stream_kit.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "servers/redis_server.h"

/* ---- the way there ---- */

static void bytes_go_both_ways(void **state)
{
    (void)state;
    scene_open_up();
    assert_int_equal(stream_write(stream, "hello", 5), 0);
    loop_prepare(loop);
    fake_hear(&server, "hello");
    fake_say(&server, "good day");
    run_until(loop, record.n == 8);
    assert_memory_equal(record.bytes, "good day", 8);
    fake_hang_up(&server);
    run_until(loop, record.closed);
    assert_status(record.why.status, UNREACHABLE);
    assert_non_null(strstr(record.why.message, "closed the connection"));
    net_settle(loop);
    assert_true(record.opened == 1 && record.closed == 1);
    assert_int_equal(stream_write(stream, "x", 1), EPIPE);
}

static void unix_sockets_work_too(void **state)
{
    char dir[64];

    (void)state;
    fake_free(&server);
    make_directory(dir, sizeof dir);
    fake_listen_unix(&server, dir);
    assert_status(scene_open_to(&(struct stream_target){.path = server.path}, NULL), OK);
    run_until(loop, record.opened);
    fake_accept(&server);
    assert_int_equal(stream_write(stream, "x", 1), 0);
    loop_prepare(loop);
    fake_hear(&server, "x");
    fake_free(&server);
    remove_tree(dir);
}

static void what_is_written_before_it_is_open_is_sent_then(void **state)
{
    (void)state;
    scene_open_tcp("127.0.0.1");
    assert_int_equal(stream_write(stream, "early", 5), 0);
    loop_flush(loop);
    assert_int_equal(stream_sent(stream), 0);
    run_until(loop, record.opened);
    loop_prepare(loop);
    fake_accept(&server);
    fake_hear(&server, "early");
}

static void a_refusal_is_told_by_the_loop(void **state)
{
    (void)state;
    fake_free(&server);
    scene_open_tcp("127.0.0.1");
    run_until(loop, record.closed);
    assert_status(record.why.status, UNREACHABLE);
    assert_int_equal(record.why.native, ECONNREFUSED);
    assert_int_equal(record.opened, 0);
}

static void speaking_to_oneself_is_a_refusal(void **state)
{
    struct sockaddr_in self = {.sin_family = AF_INET,
                               .sin_port = htons(free_port()),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&self, sizeof self), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&self, sizeof self), 0);
    scene_open_tcp("127.0.0.1");
    run_until(loop, stream->watch.fd >= 0);
    assert_true(dup2(fd, stream->watch.fd) >= 0);
    stream->watch.fn(&stream->watch, EPOLLOUT);
    assert_int_equal(record.opened, 0);
    assert_int_equal(record.closed, 1);
    assert_int_equal(record.why.native, ECONNREFUSED);
    close(fd);
}

static void a_missing_socket_file_is_told_by_the_loop(void **state)
{
    (void)state;
    assert_status(scene_open_to(&(struct stream_target){.path = "/nonexistent/socket"}, NULL), OK);
    assert_int_equal(record.closed, 0);
    run_until(loop, record.closed);
    assert_int_equal(record.why.native, ENOENT);
}

static void a_path_that_is_too_long_is_misuse(void **state)
{
    char path[256] = {0};
    struct stile_error err;

    (void)state;
    memset(path, 'x', sizeof path - 1);
    assert_status(scene_open_to(&(struct stream_target){.path = path}, &err), MISUSE);
}

/* ---- names ---- */

static void a_name_is_resolved_beside_the_loop(void **state)
{
    (void)state;
    scene_open_tcp("localhost"); /* ::1 may come first, where nobody listens */
    run_until(loop, record.opened);
    fake_accept(&server);
}

static void a_name_nobody_has_is_told_by_the_loop(void **state)
{
    (void)state;
    scene_open_tcp("no host");
    run_until(loop, record.closed);
    assert_status(record.why.status, UNREACHABLE);
    assert_non_null(strstr(record.why.message, "resolving 'no host'"));
}

static void freed_while_its_name_is_resolved(void **state)
{
    (void)state;
    scene_open_tcp("localhost");
    stream_free(stream);
    stream = NULL;
    net_settle(loop);
    assert_int_equal(record.opened + record.closed, 0);
}

static void every_address_of_a_name_is_tried(void **state)
{
    struct stream_target nobody = {.host = "127.0.0.1", .port = free_port()};

    (void)state;
    assert_status(scene_open_to(&nobody, NULL), OK);
    assert_int_equal(resolve_numeric(&stream->found->ai_next, "127.0.0.1", server.port), 0);
    run_until(loop, record.opened || record.closed);
    assert_int_equal(record.opened, 1);
    fake_accept(&server);
}

/* ---- no answer ---- */

/* A queue of one that is full: further SYNs get no answer. */
static void fill_backlog(int fds[3])
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(server.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    assert_int_equal(listen(server.listen_fd, 0), 0);
    for (int i = 0; i < 3; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(fds[i] >= 0);
        (void)connect(fds[i], (struct sockaddr *)&to, sizeof to);
    }
}

static void who_does_not_answer_is_left(void **state)
{
    int fds[3];
    struct stream_target target = {
        .host = "127.0.0.1", .port = server.port, .timeout_ns = NS_PER_MS};

    (void)state;
    fill_backlog(fds);
    assert_status(scene_open_to(&target, NULL), OK);
    run_until(loop, record.closed);
    assert_int_equal(record.why.native, ETIMEDOUT);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

static void nor_is_a_resolver_waited_for(void **state)
{
    struct stream_target target = {.host = "localhost", .port = server.port, .timeout_ns = 1};

    (void)state;
    assert_status(scene_open_to(&target, NULL), OK);
    run_until(loop, record.closed);
    assert_int_equal(record.why.native, ETIMEDOUT);
    assert_non_null(strstr(record.why.message, "resolving the host"));
}

/* ---- TLS that comes to nothing ---- */

static void open_tls(struct tls_context **context)
{
    struct tls_options options = {.insecure = true};
    struct stile_error err;

    assert_status(tls_context_new(context, &options, &err), OK);
    struct stream_target target = {.host = "127.0.0.1", .port = server.port, .tls = *context};
    assert_status(scene_open_to(&target, NULL), OK);
    run_until(loop, stream->state >= SHAKING);
    fake_accept(&server);
}

static void ends_tls(struct tls_context *context, const char *words)
{
    run_until(loop, record.closed);
    assert_int_equal(record.opened, 0);
    if (!strstr(record.why.message, words))
        fail_msg("\"%s\" lacks \"%s\"", record.why.message, words);
    stream_free(stream);
    stream = NULL;
    tls_context_free(context);
}

static void a_handshake_nobody_answers(void **state)
{
    struct tls_context *context;

    (void)state;
    open_tls(&context);
    loop_arm(loop, &stream->timer, loop_now(loop)); /* time flies */
    ends_tls(context, "TLS handshake");
    assert_int_equal(record.why.native, ETIMEDOUT);
}

static void a_handshake_with_somebody_else(void **state)
{
    struct tls_context *context;

    (void)state;
    open_tls(&context);
    fake_say(&server, "-ERR Protocol error\r\n");
    ends_tls(context, "does not speak TLS");
    assert_status(record.why.status, REFUSED);
}

static void a_handshake_that_is_broken_off(void **state)
{
    struct tls_context *context;

    (void)state;
    open_tls(&context);
    fake_hang_up(&server);
    ends_tls(context, "");
    assert_status(record.why.status, UNREACHABLE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bytes_go_both_ways),
        TEST(unix_sockets_work_too),
        TEST(what_is_written_before_it_is_open_is_sent_then),
        TEST(a_refusal_is_told_by_the_loop),
        TEST(speaking_to_oneself_is_a_refusal),
        TEST(a_missing_socket_file_is_told_by_the_loop),
        TEST(a_path_that_is_too_long_is_misuse),
        TEST(a_name_is_resolved_beside_the_loop),
        TEST(a_name_nobody_has_is_told_by_the_loop),
        TEST(every_address_of_a_name_is_tried),
        TEST(freed_while_its_name_is_resolved),
        TEST(who_does_not_answer_is_left),
        TEST(nor_is_a_resolver_waited_for),
        TEST(a_handshake_nobody_answers),
        TEST(a_handshake_with_somebody_else),
        TEST(a_handshake_that_is_broken_off),
    };
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
