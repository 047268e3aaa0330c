/* Streams over real sockets; the test plays the server by hand. TLS that works is in redis_tls.c.
 */
#include "support/net.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/stream_inner.h"
#include "servers/redis_server.h"

static struct loop *loop;
static struct fake server;
static struct stream *stream;

/* What the stream's events have told. */
static struct {
    unsigned opened, closed;
    struct stile_error why;
    char bytes[65536];
    size_t n;
    uint64_t n_all;
    enum { NEVER_FREE, FREE_OPENED, FREE_DATA, FREE_CLOSED } free_in;
} told;

static void free_in_event(int event)
{
    if ((int)told.free_in != event)
        return;
    stream_free(stream);
    stream = NULL;
}

static void on_opened(struct stream *s)
{
    assert_ptr_equal(stream_owner(s), &told);
    told.opened++;
    free_in_event(FREE_OPENED);
}

static void on_data(struct stream *s, const void *bytes, size_t n)
{
    (void)s;
    if (told.n + n <= sizeof told.bytes) {
        memcpy(told.bytes + told.n, bytes, n);
        told.n += n;
    }
    told.n_all += n;
    free_in_event(FREE_DATA);
}

static void on_closed(struct stream *s, const struct stile_error *why)
{
    (void)s;
    told.closed++;
    told.why = *why;
    free_in_event(FREE_CLOSED);
}

static const struct stream_events events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

static int set_up(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    stream = NULL;
    loop = net_loop();
    fake_listen(&server);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    stream_free(stream);
    fake_free(&server);
    assert_int_equal(loop->n_timers, 0);
    assert_null(loop->tasks);
    assert_null(loop->senders);
    assert_int_equal(loop->reserved, 1);
    loop_free(loop);
    return 0;
}

static enum stile_status open_to(const struct stream_target *target, struct stile_error *err)
{
    return stream_open(&stream, loop, target, &events, &told, err);
}

static void open_tcp(const char *host)
{
    struct stream_target target = {.host = host, .port = server.port};

    assert_status(open_to(&target, NULL), OK);
    assert_int_equal(told.opened + told.closed, 0);
}

static void open_up(void)
{
    open_tcp("127.0.0.1");
    run_until(loop, told.opened);
    fake_accept(&server);
}

/* ---- the way there ---- */

static void bytes_go_both_ways(void **state)
{
    (void)state;
    open_up();
    assert_int_equal(stream_write(stream, "hello", 5), 0);
    loop_prepare(loop);
    fake_hear(&server, "hello");
    fake_say(&server, "good day");
    run_until(loop, told.n == 8);
    assert_memory_equal(told.bytes, "good day", 8);
    fake_hang_up(&server);
    run_until(loop, told.closed);
    assert_status(told.why.status, UNREACHABLE);
    assert_non_null(strstr(told.why.message, "closed the connection"));
    net_settle(loop);
    assert_true(told.opened == 1 && told.closed == 1);
    assert_int_equal(stream_write(stream, "x", 1), EPIPE);
}

static void unix_sockets_work_too(void **state)
{
    char dir[64];

    (void)state;
    fake_free(&server);
    make_directory(dir, sizeof dir);
    fake_listen_unix(&server, dir);
    assert_status(open_to(&(struct stream_target){.path = server.path}, NULL), OK);
    run_until(loop, told.opened);
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
    open_tcp("127.0.0.1");
    assert_int_equal(stream_write(stream, "early", 5), 0);
    loop_flush(loop);
    assert_int_equal(stream_sent(stream), 0);
    run_until(loop, told.opened);
    loop_prepare(loop);
    fake_accept(&server);
    fake_hear(&server, "early");
}

static void a_refusal_is_told_by_the_loop(void **state)
{
    (void)state;
    fake_free(&server);
    open_tcp("127.0.0.1");
    run_until(loop, told.closed);
    assert_status(told.why.status, UNREACHABLE);
    assert_int_equal(told.why.native, ECONNREFUSED);
    assert_int_equal(told.opened, 0);
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
    open_tcp("127.0.0.1");
    run_until(loop, stream->watch.fd >= 0);
    assert_true(dup2(fd, stream->watch.fd) >= 0);
    stream->watch.fn(&stream->watch, EPOLLOUT);
    assert_int_equal(told.opened, 0);
    assert_int_equal(told.closed, 1);
    assert_int_equal(told.why.native, ECONNREFUSED);
    close(fd);
}

static void a_missing_socket_file_is_told_by_the_loop(void **state)
{
    (void)state;
    assert_status(open_to(&(struct stream_target){.path = "/nonexistent/socket"}, NULL), OK);
    assert_int_equal(told.closed, 0);
    run_until(loop, told.closed);
    assert_int_equal(told.why.native, ENOENT);
}

static void a_path_that_is_too_long_is_misuse(void **state)
{
    char path[256] = {0};
    struct stile_error err;

    (void)state;
    memset(path, 'x', sizeof path - 1);
    assert_status(open_to(&(struct stream_target){.path = path}, &err), MISUSE);
}

/* ---- names ---- */

static void a_name_is_resolved_beside_the_loop(void **state)
{
    (void)state;
    open_tcp("localhost"); /* ::1 may come first, where nobody listens */
    run_until(loop, told.opened);
    fake_accept(&server);
}

static void a_name_nobody_has_is_told_by_the_loop(void **state)
{
    (void)state;
    open_tcp("no host");
    run_until(loop, told.closed);
    assert_status(told.why.status, UNREACHABLE);
    assert_non_null(strstr(told.why.message, "resolving 'no host'"));
}

static void freed_while_its_name_is_resolved(void **state)
{
    (void)state;
    open_tcp("localhost");
    stream_free(stream);
    stream = NULL;
    net_settle(loop);
    assert_int_equal(told.opened + told.closed, 0);
}

static void every_address_of_a_name_is_tried(void **state)
{
    struct stream_target nobody = {.host = "127.0.0.1", .port = free_port()};

    (void)state;
    assert_status(open_to(&nobody, NULL), OK);
    assert_int_equal(resolve_numeric(&stream->found->ai_next, "127.0.0.1", server.port), 0);
    run_until(loop, told.opened || told.closed);
    assert_int_equal(told.opened, 1);
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
    assert_status(open_to(&target, NULL), OK);
    run_until(loop, told.closed);
    assert_int_equal(told.why.native, ETIMEDOUT);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

static void nor_is_a_resolver_waited_for(void **state)
{
    struct stream_target target = {.host = "localhost", .port = server.port, .timeout_ns = 1};

    (void)state;
    assert_status(open_to(&target, NULL), OK);
    run_until(loop, told.closed);
    assert_int_equal(told.why.native, ETIMEDOUT);
    assert_non_null(strstr(told.why.message, "resolving the host"));
}

/* ---- TLS that comes to nothing ---- */

static void open_tls(struct tls_context **context)
{
    struct tls_options options = {.insecure = true};
    struct stile_error err;

    assert_status(tls_context_new(context, &options, &err), OK);
    struct stream_target target = {.host = "127.0.0.1", .port = server.port, .tls = *context};
    assert_status(open_to(&target, NULL), OK);
    run_until(loop, stream->state >= SHAKING);
    fake_accept(&server);
}

static void ends_tls(struct tls_context *context, const char *words)
{
    run_until(loop, told.closed);
    assert_int_equal(told.opened, 0);
    if (!strstr(told.why.message, words))
        fail_msg("\"%s\" lacks \"%s\"", told.why.message, words);
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
    assert_int_equal(told.why.native, ETIMEDOUT);
}

static void a_handshake_with_somebody_else(void **state)
{
    struct tls_context *context;

    (void)state;
    open_tls(&context);
    fake_say(&server, "-ERR Protocol error\r\n");
    ends_tls(context, "does not speak TLS");
    assert_status(told.why.status, REFUSED);
}

static void a_handshake_that_is_broken_off(void **state)
{
    struct tls_context *context;

    (void)state;
    open_tls(&context);
    fake_hang_up(&server);
    ends_tls(context, "");
    assert_status(told.why.status, UNREACHABLE);
}

/* ---- sending ---- */

static void a_turn_leaves_in_one_send(void **state)
{
    (void)state;
    open_up();
    assert_int_equal(stream_write(stream, "one ", 4), 0);
    assert_int_equal(stream_write(stream, "two ", 4), 0);
    assert_int_equal(stream_write(stream, "three", 5), 0);
    assert_int_equal(stream_sent(stream), 0);
    loop_prepare(loop);
    assert_int_equal(stream_sent(stream), 13);
    assert_int_equal(loop->armed_ns, NEVER);
    fake_hear(&server, "one two three");
    assert_int_equal(stream_write(stream, "now", 3), 0);
    stream_flush(stream);
    fake_hear(&server, "now");
}

static void a_send_that_fails_is_told_by_the_loop(void **state)
{
    (void)state;
    open_up();
    fake_reset(&server);
    assert_int_equal(stream_write(stream, "x", 1), 0);
    loop_flush(loop);
    assert_int_equal(stream_write(stream, "y", 1), 0);
    loop_flush(loop);
    assert_int_equal(told.closed, 0);
    assert_int_equal(stream_sent(stream), 0);
    run_until(loop, told.closed);
    assert_status(told.why.status, UNREACHABLE);
    assert_true(told.why.native == ECONNRESET || told.why.native == EPIPE);
}

static void a_socket_that_went_bad_is_told_by_the_loop(void **state)
{
    int none = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)state;
    open_up();
    assert_true(none >= 0 && dup2(none, stream->watch.fd) >= 0);
    assert_int_equal(stream_write(stream, "x", 1), 0);
    stream_flush(stream);
    assert_int_equal(told.closed, 0);
    run_until(loop, told.closed);
    assert_int_equal(told.why.native, ENOTSOCK);
    close(none);
}

static void the_last_words_are_heard_though_sending_fails(void **state)
{
    (void)state;
    open_up();
    fake_say(&server, "full up");
    fake_reset(&server);
    assert_int_equal(stream_write(stream, "x", 1), 0);
    loop_flush(loop);
    run_until(loop, told.closed);
    assert_int_equal(told.n, 7);
    assert_true(told.why.native == ECONNRESET || told.why.native == EPIPE);
}

#define BIG (8u << 20)

static void who_reads_slowly_gets_all_in_order(void **state)
{
    unsigned char *big = malloc(BIG);
    char part[65536];
    size_t seen = 0;

    (void)state;
    assert_non_null(big);
    for (size_t i = 0; i < BIG; i++)
        big[i] = (unsigned char)(i * 31 >> 3);
    open_up();
    assert_int_equal(stream_write(stream, big, BIG), 0);
    loop_prepare(loop);
    assert_in_range(stream_sent(stream), 1, BIG - 1);
    while (seen < BIG) {
        size_t n = fake_read(&server, part, sizeof part);
        assert_memory_equal(part, big + seen, n);
        seen += n;
        net_settle(loop);
    }
    assert_int_equal(stream_sent(stream), BIG);
    assert_int_equal(stream_written(stream), BIG);
    free(big);
}

static void what_waits_is_bounded(void **state)
{
    char *big = calloc(1, STREAM_OUT_MAX);

    (void)state;
    assert_non_null(big);
    open_tcp("127.0.0.1");
    assert_int_equal(stream_write(stream, big, STREAM_OUT_MAX), 0);
    assert_int_equal(stream_write(stream, big, 1), ENOBUFS);
    assert_int_equal(stream_written(stream), STREAM_OUT_MAX);
    free(big);
}

static void much_comes_in_pieces(void **state)
{
    char *big = calloc(1, BIG);
    size_t put = 0;

    (void)state;
    assert_non_null(big);
    open_up();
    while (put < BIG) {
        fake_say_bytes(&server, big, 65536);
        put += 65536;
        run_until(loop, told.n_all == put);
    }
    free(big);
}

/* ---- the end ---- */

static void freed_inside(int event)
{
    told.free_in = event;
    open_tcp("127.0.0.1");
    run_until(loop, !stream || told.opened);
    fake_accept(&server);
    if (stream) {
        fake_say(&server, "data");
        run_until(loop, !stream || told.n);
    }
    if (stream) {
        fake_hang_up(&server);
        run_until(loop, !stream);
    }
    net_settle(loop);
}

static void freed_inside_opened(void **state)
{
    (void)state;
    freed_inside(FREE_OPENED);
    assert_true(told.n == 0 && told.closed == 0);
}

static void freed_inside_data(void **state)
{
    (void)state;
    freed_inside(FREE_DATA);
    assert_true(told.n == 4 && told.closed == 0);
}

static void freed_inside_closed(void **state)
{
    (void)state;
    freed_inside(FREE_CLOSED);
    assert_int_equal(told.closed, 1);
}

/* LESSONS row 31. */
static void a_forked_child_closes_its_own_copy_only(void **state)
{
    int status;

    (void)state;
    open_up();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        stream_forked(stream);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(stream_write(stream, "still here", 10), 0);
    loop_prepare(loop);
    fake_hear(&server, "still here");
    fake_say(&server, "so am I");
    run_until(loop, told.n == 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

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
        TEST(a_turn_leaves_in_one_send),
        TEST(a_send_that_fails_is_told_by_the_loop),
        TEST(a_socket_that_went_bad_is_told_by_the_loop),
        TEST(the_last_words_are_heard_though_sending_fails),
        TEST(who_reads_slowly_gets_all_in_order),
        TEST(what_waits_is_bounded),
        TEST(much_comes_in_pieces),
        TEST(freed_inside_opened),
        TEST(freed_inside_data),
        TEST(freed_inside_closed),
        TEST(a_forked_child_closes_its_own_copy_only),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
