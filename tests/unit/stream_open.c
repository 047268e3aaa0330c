/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that are open: what is sent and how, and their end wherever it comes. */
#include "unit/stream_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- sending ---- */

static void a_turn_leaves_in_one_send(void **state)
{
    (void)state;
    scene_open_up();
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
    scene_open_up();
    fake_reset(&server);
    assert_int_equal(stream_write(stream, "x", 1), 0);
    loop_flush(loop);
    assert_int_equal(stream_write(stream, "y", 1), 0);
    loop_flush(loop);
    assert_int_equal(record.closed, 0);
    assert_int_equal(stream_sent(stream), 0);
    run_until(loop, record.closed);
    assert_status(record.why.status, UNREACHABLE);
    assert_true(record.why.native == ECONNRESET || record.why.native == EPIPE);
}

static void a_socket_that_went_bad_is_told_by_the_loop(void **state)
{
    int none = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)state;
    scene_open_up();
    assert_true(none >= 0 && dup2(none, stream->watch.fd) >= 0);
    assert_int_equal(stream_write(stream, "x", 1), 0);
    stream_flush(stream);
    assert_int_equal(record.closed, 0);
    run_until(loop, record.closed);
    assert_int_equal(record.why.native, ENOTSOCK);
    close(none);
}

static void the_last_words_are_heard_though_sending_fails(void **state)
{
    (void)state;
    scene_open_up();
    fake_say(&server, "full up");
    fake_reset(&server);
    assert_int_equal(stream_write(stream, "x", 1), 0);
    loop_flush(loop);
    run_until(loop, record.closed);
    assert_int_equal(record.n, 7);
    assert_true(record.why.native == ECONNRESET || record.why.native == EPIPE);
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
    scene_open_up();
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
    scene_open_tcp("127.0.0.1");
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
    scene_open_up();
    while (put < BIG) {
        fake_say_bytes(&server, big, 65536);
        put += 65536;
        run_until(loop, record.n_all == put);
    }
    free(big);
}

/* ---- the end ---- */

static void freed_inside(int event)
{
    record.free_in = event;
    scene_open_tcp("127.0.0.1");
    run_until(loop, !stream || record.opened);
    fake_accept(&server);
    if (stream) {
        fake_say(&server, "data");
        run_until(loop, !stream || record.n);
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
    assert_true(record.n == 0 && record.closed == 0);
}

static void freed_inside_data(void **state)
{
    (void)state;
    freed_inside(FREE_DATA);
    assert_true(record.n == 4 && record.closed == 0);
}

static void freed_inside_closed(void **state)
{
    (void)state;
    freed_inside(FREE_CLOSED);
    assert_int_equal(record.closed, 1);
}

/* LESSONS row 31. */
static void a_forked_child_closes_its_own_copy_only(void **state)
{
    int status;

    (void)state;
    scene_open_up();
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
    run_until(loop, record.n == 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    return cmocka_run_group_tests_name("stream-open", tests, NULL, NULL);
}
