/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A connection against a server that says what it may not, breaks off, or says nothing. */
#include "unit/redis_conn_kit.h"

#include <errno.h>

/* ---- what a server may not do ---- */

/* LESSONS row 37: whatever comes, it ends the connection with a sentence. */
static void ends_with(const char *bytes, const char *sentence)
{
    struct heard a;
    unsigned down = kit.down;

    kit_ask(&a, "GET a");
    scene_flush();
    fake_hear(&server, GET_A);
    fake_say(&server, bytes);
    run_until(kit.loop, kit.down > down);
    assert_status(kit.why.status, REFUSED);
    if (!error_has(&kit.why, sentence))
        fail_msg("\"%s\" lacks \"%s\"", kit.why.message, sentence);
    assert_status(a.err.status, UNCERTAIN);
    scene_welcome();
}

static void bad_bytes_end_it(void **state)
{
    (void)state;
    scene_connect();
    ends_with("HTTP/1.1 400 Bad Request\r\n\r\n", "not Redis");
    ends_with("\x15\x03\x03", "speaks TLS");
    ends_with("$x\r\n", "not Redis");
    ends_with("*1\r\n!\r\n", "not Redis");
    ends_with(":12x\r\n", "not Redis");
}

/* hiredis 1.x would read them. */
static void types_of_resp3_end_it(void **state)
{
    (void)state;
    scene_connect();
    ends_with("#t\r\n", "not Redis");
    ends_with(",1.5\r\n", "not Redis");
    ends_with("(12\r\n", "not Redis");
    ends_with("=5\r\ntxt:a\r\n", "not Redis");
    ends_with("%1\r\n+a\r\n+b\r\n", "not Redis");
    ends_with("~1\r\n+a\r\n", "not Redis");
    ends_with(">1\r\n+a\r\n", "not Redis");
    ends_with("*2\r\n+a\r\n#f\r\n", "not Redis");
}

static void promises_too_big_to_keep_end_it(void **state)
{
    (void)state;
    scene_connect();
    ends_with("$2147483648\r\n", "too many bytes");
    ends_with("$1048577\r\n", "too many bytes");
    ends_with("*2147483647\r\n", "too many elements");
    ends_with("*65537\r\n", "too many elements");
}

static void nested_arrays_count_together(void **state)
{
    struct heard a;
    char part[] = "*60000\r\n";

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    scene_flush();
    fake_say(&server, part);
    fake_say(&server, part);
    run_until(kit.loop, kit.down);
    assert_true(error_has(&kit.why, "too many elements"));
}

static void nesting_ends_somewhere(void **state)
{
    (void)state;
    scene_connect();
    ends_with("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "not Redis");
}

static void the_largest_string_is_taken(void **state)
{
    static char big[RESP_BULK_MAX];
    struct heard a;

    (void)state;
    scene_connect();
    memset(big, 'x', sizeof big);
    kit_ask(&a, "GET a");
    scene_flush();
    fake_say(&server, "$1048576\r\n");
    for (size_t at = 0; at < sizeof big; at += 65536) {
        fake_say_bytes(&server, big + at, 65536);
        net_settle(kit.loop);
    }
    fake_say(&server, "\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.type, REDIS_REPLY_STRING);
}

static void a_line_without_end_ends_it(void **state)
{
    static char big[65536];
    struct heard a;

    (void)state;
    scene_connect();
    memset(big, 'x', sizeof big);
    kit_ask(&a, "GET a");
    scene_flush();
    fake_say(&server, "+");
    for (int i = 0; i < 20 && !kit.down; i++) {
        fake_say_bytes(&server, big, sizeof big);
        net_settle(kit.loop);
    }
    run_until(kit.loop, kit.down);
    assert_true(error_has(&kit.why, "too many bytes"));
}

static void an_answer_nobody_asked_for_ends_it(void **state)
{
    (void)state;
    scene_connect();
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.down);
    assert_true(error_has(&kit.why, "without a request"));
}

/* ---- breaking ---- */

/* LESSONS row 9. */
static void what_was_sent_is_in_doubt_and_what_was_not_is_not(void **state)
{
    struct heard sent, unsent;

    (void)state;
    scene_connect();
    kit_ask(&sent, "GET a");
    scene_flush();
    fake_hear(&server, GET_A);
    fake_hang_up(&server);
    kit_ask(&unsent, "GET b");
    loop_wait(kit.loop, true); /* the end is seen before anything is flushed */
    loop_run(kit.loop);
    run_until(kit.loop, unsent.times);
    assert_status(sent.err.status, UNCERTAIN);
    assert_true(error_has(&sent.err, "the connection broke"));
    assert_status(unsent.err.status, UNREACHABLE);
    assert_true(sent.order == 1 && unsent.order == 2 && kit.down == 1);
}

static void what_left_in_part_was_not_executed(void **state)
{
    static char big[8 << 20];
    static struct heard heard;
    struct conn_arg arg = {big, sizeof big};

    (void)state;
    scene_connect();
    assert_status(redis_conn_send(kit.conn, &arg, 1, kit_hear, &heard, NULL), OK);
    scene_flush();
    assert_in_range(stream_sent(kit.conn->link.stream), 1, sizeof big);
    fake_reset(&server);
    run_until(kit.loop, heard.times);
    assert_status(heard.err.status, UNREACHABLE);
}

static void closed_in_the_middle_of_a_reply(void **state)
{
    struct heard a;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    scene_flush();
    fake_hear(&server, GET_A);
    fake_say(&server, "*2\r\n$5\r\nhel");
    net_settle(kit.loop);
    fake_hang_up(&server);
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNCERTAIN);
}

static void it_comes_back_by_itself(void **state)
{
    struct heard a;

    (void)state;
    scene_connect();
    fake_reset(&server);
    run_until(kit.loop, kit.down);
    scene_welcome();
    assert_int_equal(kit.up, 2);
    kit_ask(&a, "GET a");
    scene_flush();
    fake_hear(&server, GET_A);
    fake_say(&server, ":5\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.integer, 5);
}

static void between_two_attempts_requests_fail_at_once(void **state)
{
    struct heard a;

    (void)state;
    fake_free(&server);
    kit_connect();
    scene_fail_attempts(8);
    loop_arm(kit.loop, &kit.conn->link.retry, NEVER);
    kit_ask(&a, "GET a");
    net_settle(kit.loop);
    assert_int_equal(a.times, 1);
    assert_status(a.err.status, UNREACHABLE);
    assert_int_equal(a.err.native, ECONNREFUSED);
    assert_true(error_has(&a.err, "127.0.0.1:"));
}

static void pauses_grow_and_differ(void **state)
{
    uint64_t longest_ns = 0;

    (void)state;
    fake_free(&server);
    kit_connect();
    for (unsigned i = 1; i < 14; i++) {
        scene_fail_attempts(i);
        uint64_t pause_ns = kit.conn->link.retry.at_ns - loop_now(kit.loop);
        uint64_t most_ns = (20 * NS_PER_MS) << (i - 1);
        if (kit.conn->link.retry.at_ns > loop_now(kit.loop) && pause_ns > longest_ns)
            longest_ns = pause_ns;
        assert_true(kit.conn->link.retry.at_ns <= loop_now(kit.loop) ||
                    pause_ns <= (most_ns < 2 * NS_PER_SEC ? most_ns : 2 * NS_PER_SEC));
    }
    assert_true(longest_ns > 40 * NS_PER_MS);
}

/* ---- no answer ---- */

static void late_is_in_doubt_and_its_answer_is_dropped(void **state)
{
    struct heard late, next;

    (void)state;
    scene_connect();
    kit_ask(&late, "GET a");
    scene_flush();
    fake_hear(&server, GET_A);
    kit_grow_late();
    run_until(kit.loop, late.times);
    assert_status(late.err.status, UNCERTAIN);
    assert_true(error_has(&late.err, "no answer in time"));
    assert_int_equal(kit.down, 0);
    kit_ask(&next, "GET b");
    scene_flush();
    fake_hear(&server, GET_B);
    fake_say(&server, ":1\r\n:2\r\n");
    run_until(kit.loop, next.times);
    assert_int_equal(next.integer, 2);
    assert_int_equal(late.times, 1);
    assert_int_equal(kit.down, 0);
}

static void silence_for_long_ends_it(void **state)
{
    struct heard a;

    (void)state;
    kit.options.answer_ns = 10 * NS_PER_MS;
    scene_connect();
    kit_ask(&a, "GET a");
    assert_int_equal(kit.conn->link.overdue.at_ns, kit.conn->link.sent.first->until_ns);
    run_until(kit.loop, kit.down);
    assert_true(error_has(&kit.why, "has not answered for 40 ms"));
    assert_int_equal(a.times, 1);
}

/* A lease of 80 ms depends on it: a quarter, counted by powers of two, is 16 ms. */
static void silence_is_shorter_where_a_lease_is(void **state)
{
    struct heard a;
    struct link_leases leases = {0};

    (void)state;
    kit.options.leases = &leases;
    scene_connect();
    link_leases_add(&leases, 80 * NS_PER_MS);
    kit_ask(&a, "GET a");
    run_until(kit.loop, kit.down);
    assert_true(error_has(&kit.why, "has not answered for 16 ms"));
    assert_status(a.err.status, UNCERTAIN);
    run_until(kit.loop, kit.down == 2); /* nobody greets the next one */
    assert_true(error_has(&kit.why, "does not answer"));
}

/* The last of many requests is late long before a busy server comes to it. */
static void who_answers_others_is_not_silent(void **state)
{
    struct heard first, last;

    (void)state;
    scene_connect();
    kit_ask(&first, "GET a");
    kit_ask(&last, "GET b");
    scene_flush();
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, first.times);
    kit_grow_late();
    kit.conn->link.sent.first->sent_ns -= 4 * kit.conn->options.answer_ns;
    run_until(kit.loop, last.times);
    assert_status(last.err.status, UNCERTAIN);
    assert_int_equal(kit.down, 0);
}

/* A claim that is given up in line loses its place to those behind it. */
static void in_line_none_is_late_while_the_server_answers(void **state)
{
    struct heard first, last;

    (void)state;
    scene_connect();
    kit_ask(&first, "GET a");
    kit_ask(&last, "GET b");
    scene_flush();
    kit_grow_late();
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, first.times);
    net_settle(kit.loop);
    assert_int_equal(last.times, 0);
    assert_true(kit.conn->link.overdue.at_ns > loop_now(kit.loop));
    fake_say(&server, ":2\r\n");
    run_until(kit.loop, last.times);
    assert_int_equal(last.integer, 2);
}

/* This process did not run between its wait and the timers, and the reply came meanwhile. */
static void a_reply_that_lies_there_is_read_before_it_is_late(void **state)
{
    struct heard a;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    loop_prepare(kit.loop);
    loop_wait(kit.loop, false);
    fake_say(&server, ":1\r\n");
    kit_grow_late();
    loop_run(kit.loop);
    assert_int_equal(a.times, 0);
    run_until(kit.loop, a.times);
    assert_int_equal(a.integer, 1);
}

static void waiting_for_a_connection_ends_in_time_too(void **state)
{
    struct heard a;

    (void)state;
    kit.options.answer_ns = 10 * NS_PER_MS;
    kit_connect(); /* accepted by the kernel, greeted by nobody */
    kit_ask(&a, "GET a");
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNREACHABLE);
    assert_true(error_has(&a.err, "no connection in time"));
}

static void the_timer_is_left_alone_by_requests_that_come_and_go(void **state)
{
    struct heard a;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    scene_flush();
    uint64_t at_ns = kit.conn->link.overdue.at_ns, armed_ns = kit.loop->armed_ns;
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, a.times);
    for (int i = 0; i < 3; i++) {
        kit_ask(&a, "GET a");
        scene_flush();
        assert_int_equal(kit.conn->link.overdue.at_ns, at_ns);
        fake_say(&server, ":1\r\n");
        loop_wait(kit.loop, true);
        loop_run(kit.loop);
        assert_int_equal(a.times, 1);
    }
    assert_int_equal(kit.loop->armed_ns, armed_ns);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_bytes_end_it),
        TEST(types_of_resp3_end_it),
        TEST(promises_too_big_to_keep_end_it),
        TEST(nested_arrays_count_together),
        TEST(nesting_ends_somewhere),
        TEST(the_largest_string_is_taken),
        TEST(a_line_without_end_ends_it),
        TEST(an_answer_nobody_asked_for_ends_it),
        TEST(what_was_sent_is_in_doubt_and_what_was_not_is_not),
        TEST(what_left_in_part_was_not_executed),
        TEST(closed_in_the_middle_of_a_reply),
        TEST(it_comes_back_by_itself),
        TEST(between_two_attempts_requests_fail_at_once),
        TEST(pauses_grow_and_differ),
        TEST(late_is_in_doubt_and_its_answer_is_dropped),
        TEST(silence_for_long_ends_it),
        TEST(silence_is_shorter_where_a_lease_is),
        TEST(who_answers_others_is_not_silent),
        TEST(in_line_none_is_late_while_the_server_answers),
        TEST(a_reply_that_lies_there_is_read_before_it_is_late),
        TEST(waiting_for_a_connection_ends_in_time_too),
        TEST(the_timer_is_left_alone_by_requests_that_come_and_go),
    };
    return cmocka_run_group_tests_name("redis-conn-bad", tests, NULL, NULL);
}
