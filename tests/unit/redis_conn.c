/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A connection against a server that does what the test says: how it comes up, is used, and goes.
 * Against a real one: redis_live.c. */
#include "unit/redis_conn_kit.h"

#include <stdio.h>

/* ---- coming up ---- */

static void greeting_comes_first_and_is_waited_for(void **state)
{
    struct heard a;

    (void)state;
    kit.options.user = "me";
    kit.options.password = "hunter2";
    kit.options.db = 7;
    kit_connect();
    kit_ask(&a, "GET a");
    run_until(kit.loop, kit.conn->link.state == LINK_GREETING);
    scene_flush();
    fake_accept(&server);
    fake_hear(&server, "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$7\r\nhunter2\r\n"
                       "*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n" SETNAME);
    fake_say(&server, "+OK\r\n+OK\r\n");
    net_settle(kit.loop);
    assert_int_equal(kit.up, 0);
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.up);
    scene_flush();
    fake_hear(&server, GET_A);
    fake_say(&server, "$1\r\nx\r\n");
    run_until(kit.loop, a.times);
    assert_string_equal(a.text, "x");
}

static void a_password_alone_is_for_the_default_user(void **state)
{
    (void)state;
    kit.options.password = "hunter2";
    kit_connect();
    run_until(kit.loop, kit.conn->link.state == LINK_GREETING);
    scene_flush();
    fake_accept(&server);
    fake_hear(&server, "*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n" SETNAME);
}

static void a_user_without_password_is_misuse(void **state)
{
    struct conn *conn;
    struct stile_error err;

    (void)state;
    kit.options.user = "me";
    assert_status(redis_conn_new(&conn, kit.loop, &kit.options, NULL, NULL, &err), MISUSE);
}

static void greeted_with(const char *reply)
{
    kit.options.password = "hunter2";
    kit.options.db = 7;
    kit_connect();
    run_until(kit.loop, kit.conn->link.state == LINK_GREETING);
    scene_flush();
    fake_accept(&server);
    fake_say(&server, reply);
    run_until(kit.loop, kit.down || kit.up);
}

static void a_wrong_password_brings_it_down(void **state)
{
    (void)state;
    greeted_with("-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_int_equal(kit.up, 0);
    assert_status(kit.why.status, REFUSED);
    assert_true(error_has(&kit.why, "logging in: user or password is wrong"));
    assert_true(error_has(&kit.why, "127.0.0.1:"));
}

static void no_error_repeats_the_password(void **state)
{
    (void)state;
    greeted_with("-ERR unknown command 'AUTH', with args beginning with: 'hunter2' \r\n");
    assert_int_equal(kit.up, 0);
    assert_false(error_has(&kit.why, "hunter2"));
}

static void nor_does_one_we_have_never_seen(void **state)
{
    (void)state;
    greeted_with("-ERR strange thing hunter2\r\n");
    assert_status(kit.why.status, REFUSED);
    assert_false(error_has(&kit.why, "hunter2"));
}

static void without_its_database_it_does_not_come_up(void **state)
{
    (void)state;
    greeted_with("+OK\r\n-ERR DB index is out of range\r\n");
    assert_int_equal(kit.up, 0);
    assert_status(kit.why.status, REFUSED);
    assert_true(error_has(&kit.why, "no database of this number"));
}

static void without_its_name_it_does(void **state)
{
    (void)state;
    greeted_with("+OK\r\n+OK\r\n-NOPERM this user has no permissions\r\n");
    assert_int_equal(kit.up, 1);
}

static void an_echo_is_no_redis(void **state)
{
    (void)state;
    greeted_with("*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n" SETNAME);
    assert_int_equal(kit.up, 0);
    assert_true(error_has(&kit.why, "not Redis"));
}

static void a_server_that_is_full_says_so(void **state)
{
    (void)state;
    greeted_with("-ERR max number of clients reached\r\n");
    assert_status(kit.why.status, UNREACHABLE);
    assert_true(error_has(&kit.why, "maxclients"));
}

static void who_accepts_and_says_nothing_is_left(void **state)
{
    (void)state;
    kit_connect();
    run_until(kit.loop, kit.conn->link.state == LINK_GREETING);
    kit_grow_late();
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, UNREACHABLE);
    assert_true(error_has(&kit.why, "does not answer"));
}

/* ---- requests and answers ---- */

static void answers_come_in_order(void **state)
{
    struct heard a, b, ping;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit_ask(&ping, "PING");
    scene_flush();
    fake_hear(&server, GET_A GET_B PING);
    fake_say(&server, "$-1\r\n*2\r\n:1\r\n$2\r\nab\r\n+PONG\r\n");
    run_until(kit.loop, ping.times);
    assert_int_equal(a.type, REDIS_REPLY_NIL);
    assert_int_equal(b.elements, 2);
    assert_string_equal(ping.text, "PONG");
    assert_true(a.order == 1 && b.order == 2 && ping.order == 3);
}

static void a_reply_may_come_byte_by_byte(void **state)
{
    static const char reply[] = "*3\r\n$5\r\nhello\r\n:-42\r\n*1\r\n+OK\r\n-ERR no\r\n";
    struct heard a, b;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    scene_flush();
    for (size_t i = 0; i < sizeof reply - 1; i++) {
        fake_say_bytes(&server, reply + i, 1);
        net_settle(kit.loop);
    }
    run_until(kit.loop, b.times);
    assert_int_equal(a.elements, 3);
    assert_status(b.err.status, REFUSED);
    assert_true(error_has(&b.err, "the server says: ERR no"));
}

static void errors_come_with_their_meaning_and_words(void **state)
{
    struct heard a;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    scene_flush();
    fake_say(&server, "-MOVED 3999 127.0.0.1:6381\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.type, REDIS_REPLY_ERROR);
    assert_int_equal(a.fault, REDIS_ERROR_MOVED);
    assert_string_equal(a.text, "MOVED 3999 127.0.0.1:6381");
    assert_status(a.err.status, UNREACHABLE);
    assert_true(error_has(&a.err, "127.0.0.1:6381"));
}

static void each_error_has_a_status_and_a_sentence(void **state)
{
    static const struct {
        const char *words;
        enum stile_status status;
        const char *sentence;
    } errors[] = {
        {"LOADING Redis is loading the dataset in memory", STILE_UNREACHABLE, "still loading"},
        {"BUSY Redis is busy running a script.", STILE_UNREACHABLE, "SCRIPT KILL"},
        {"OOM command not allowed when used memory > 'maxmemory'.", STILE_REFUSED, "maxmemory"},
        {"NOAUTH Authentication required.", STILE_REFUSED, "wants a password"},
        {"NOPERM User x has no permissions to run the 'eval' command", STILE_REFUSED, "'eval'"},
        {"WRONGTYPE Operation against a key", STILE_REFUSED, "other than a lock"},
        {"ASK 1 127.0.0.1:1", STILE_UNREACHABLE, "127.0.0.1:1"},
        {"CLUSTERDOWN Hash slot not served", STILE_UNREACHABLE, "Cluster is down"},
        {"TRYAGAIN Multiple keys request during rehashing", STILE_UNREACHABLE, "moving"},
        {"CROSSSLOT Keys in request don't hash", STILE_REFUSED, "slots"},
        {"MISCONF Errors writing to the AOF file", STILE_REFUSED, "disk"},
        {"NOREPLICAS Not enough good replicas to write.", STILE_UNREACHABLE, "replicas"},
        {"DENIED Redis is running in protected mode", STILE_REFUSED, "protected"},
        {"ERR unknown command 'x'", STILE_UNSUPPORTED, "too old"},
        {"ERR Error running script (call to f_1): @user_script:1: WRONGTYPE x", STILE_REFUSED,
         "other than a lock"},
        {"ERR \x01\xff", STILE_REFUSED, "ERR ??"},
    };
    struct heard a;
    char line[128];

    (void)state;
    scene_connect();
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        kit_ask(&a, "GET a");
        scene_flush();
        snprintf(line, sizeof line, "-%s\r\n", errors[i].words);
        fake_say(&server, line);
        run_until(kit.loop, a.times);
        assert_string_equal(stile_status_name(a.err.status), stile_status_name(errors[i].status));
        if (!error_has(&a.err, errors[i].sentence))
            fail_msg("\"%s\" lacks \"%s\"", a.err.message, errors[i].sentence);
    }
}

static void who_is_forgotten_hears_nothing(void **state)
{
    struct heard a, b;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    redis_conn_forget(kit.conn, &a);
    scene_flush();
    fake_say(&server, ":1\r\n:2\r\n");
    run_until(kit.loop, b.times);
    assert_int_equal(a.times, 0);
    assert_int_equal(b.integer, 2);
}

static void too_many_requests_are_refused(void **state)
{
    static struct heard heard;
    struct conn_arg ping = CONN_TEXT("PING");
    struct stile_error err;

    (void)state;
    kit_connect();
    for (unsigned i = 0; i < CONN_PENDING_MAX; i++)
        assert_status(redis_conn_send(kit.conn, &ping, 1, kit_hear, &heard, NULL), OK);
    assert_status(redis_conn_send(kit.conn, &ping, 1, kit_hear, &heard, &err), REFUSED);
    assert_true(error_has(&err, "too many requests"));
}

static void too_many_bytes_are_refused(void **state)
{
    static char big[1 << 20];
    static struct heard heard;
    struct conn_arg arg = {big, sizeof big};
    enum stile_status status = STILE_OK;
    unsigned n = 0;

    (void)state;
    kit_connect();
    while (!status && n++ < 100)
        status = redis_conn_send(kit.conn, &arg, 1, kit_hear, &heard, NULL);
    assert_status(status, REFUSED);
    assert_int_equal(n, 16);
}

/* ---- so many at once ---- */

static void no_more_are_sent_than_the_window_has_room_for(void **state)
{
    struct heard a, b, ping;

    (void)state;
    scene_connect();
    kit.conn->link.options.window = 2;
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit_ask(&ping, "PING");
    scene_flush();
    fake_hear(&server, GET_A GET_B);
    assert_int_equal(kit.conn->link.waiting.n, 1);
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, a.times);
    scene_flush();
    fake_hear(&server, PING);
    fake_say(&server, ":2\r\n+PONG\r\n");
    run_until(kit.loop, ping.times);
    assert_true(a.order == 1 && b.order == 2 && ping.order == 3);
    assert_true(redis_conn_is_idle(kit.conn));
}

/* The time of a request begins when it is sent: in line it can't be overdue while answers come. */
static void what_is_in_line_has_time_while_the_server_answers(void **state)
{
    struct heard a, b;

    (void)state;
    scene_connect();
    kit.conn->link.options.window = 1;
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit.conn->link.waiting.first->until_ns = 0;
    scene_flush();
    fake_hear(&server, GET_A);
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(b.times, 0);
    assert_true(kit.conn->link.sent.first->until_ns > loop_now(kit.loop));
    scene_flush();
    fake_hear(&server, GET_B);
    fake_say(&server, ":2\r\n");
    run_until(kit.loop, b.times);
    assert_int_equal(b.integer, 2);
}

/* Never sent, so never executed: that is no doubt. */
static void what_is_in_line_behind_a_silent_server_is_refused(void **state)
{
    struct heard a, b;

    (void)state;
    scene_connect();
    kit.conn->link.options.window = 1;
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    scene_flush();
    fake_hear(&server, GET_A);
    kit.conn->link.heard_ns = 0;
    kit_grow_late();
    run_until(kit.loop, a.times && b.times);
    assert_status(a.err.status, UNCERTAIN);
    assert_status(b.err.status, UNREACHABLE);
}

/* It was not timed while it waited for room; now it is, for the next connection. */
static void what_is_in_line_has_time_for_the_next_connection(void **state)
{
    struct heard a, b;
    struct stile_error why;

    (void)state;
    scene_connect();
    kit.conn->link.options.window = 1;
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit.conn->link.waiting.first->until_ns = 0;
    scene_flush();
    fake_hear(&server, GET_A);
    error_set(&why, STILE_UNREACHABLE, 0, "it is elsewhere");
    assert_status(redis_conn_move(kit.conn, "127.0.0.1", server.port, &why, NULL), OK);
    run_until(kit.loop, kit.down);
    assert_status(a.err.status, UNCERTAIN);
    kit_grow_late(); /* the timer fires */
    net_settle(kit.loop);
    assert_int_equal(b.times, 0);
    scene_welcome();
    scene_flush();
    fake_hear(&server, GET_B);
    fake_say(&server, ":2\r\n");
    run_until(kit.loop, b.times);
    assert_int_equal(b.integer, 2);
}

static void what_is_in_line_can_be_taken_back(void **state)
{
    struct heard a, b, ping;

    (void)state;
    scene_connect();
    kit.conn->link.options.window = 1;
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit_ask(&ping, "PING");
    scene_flush();
    assert_true(redis_conn_cancel(kit.conn, &b));
    assert_false(redis_conn_cancel(kit.conn, &a)); /* it was sent, and may be executed */
    fake_hear(&server, GET_A);
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, kit.conn->link.waiting.n == 0);
    scene_flush();
    fake_hear(&server, PING);
    fake_say(&server, "+PONG\r\n");
    run_until(kit.loop, ping.times);
    assert_true(a.times == 0 && b.times == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(greeting_comes_first_and_is_waited_for),
        TEST(a_password_alone_is_for_the_default_user),
        TEST(a_user_without_password_is_misuse),
        TEST(a_wrong_password_brings_it_down),
        TEST(no_error_repeats_the_password),
        TEST(nor_does_one_we_have_never_seen),
        TEST(without_its_database_it_does_not_come_up),
        TEST(without_its_name_it_does),
        TEST(an_echo_is_no_redis),
        TEST(a_server_that_is_full_says_so),
        TEST(who_accepts_and_says_nothing_is_left),
        TEST(answers_come_in_order),
        TEST(a_reply_may_come_byte_by_byte),
        TEST(errors_come_with_their_meaning_and_words),
        TEST(each_error_has_a_status_and_a_sentence),
        TEST(who_is_forgotten_hears_nothing),
        TEST(too_many_requests_are_refused),
        TEST(too_many_bytes_are_refused),
        TEST(no_more_are_sent_than_the_window_has_room_for),
        TEST(what_is_in_line_has_time_while_the_server_answers),
        TEST(what_is_in_line_behind_a_silent_server_is_refused),
        TEST(what_is_in_line_has_time_for_the_next_connection),
        TEST(what_is_in_line_can_be_taken_back),
    };
    return cmocka_run_group_tests_name("redis-conn", tests, NULL, NULL);
}
