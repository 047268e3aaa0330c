/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts and channels on a connection, against a server that does what the test says. */
#include "unit/redis_conn_kit.h"

#include <errno.h>

/* ---- scripts ---- */

#define SHA_ONE  "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" /* of "return 1" */
#define SHA_TWO  "7f923f79fe76194c868d7e1d0820de36700eb649" /* of "return 2" */
#define EVAL_ONE "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\n"
#define EVAL_TWO "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 2\r\n$1\r\n1\r\n$1\r\n"
#define NAME_ONE "*4\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA_ONE "\r\n$1\r\n1\r\n$1\r\n"
#define NAME_TWO "*4\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA_TWO "\r\n$1\r\n1\r\n$1\r\n"
#define NOSCRIPT "-NOSCRIPT No matching script. Please use EVAL.\r\n"

static void know_scripts(void)
{
    struct heard a, b;

    scene_connect();
    kit_eval(&a, &kit_one, "a");
    kit_eval(&b, &kit_two, "b");
    scene_flush();
    fake_hear(&server, EVAL_ONE "a\r\n" EVAL_TWO "b\r\n");
    fake_say(&server, ":1\r\n:2\r\n");
    run_until(kit.loop, b.times);
}

static void the_source_is_sent_once(void **state)
{
    struct heard a, b;

    (void)state;
    know_scripts();
    kit_eval(&a, &kit_one, "c");
    kit_eval(&b, &kit_two, "d");
    scene_flush();
    fake_hear(&server, NAME_ONE "c\r\n" NAME_TWO "d\r\n");
}

static void and_again_on_the_next_connection(void **state)
{
    struct heard a;

    (void)state;
    know_scripts();
    fake_hang_up(&server);
    run_until(kit.loop, kit.down);
    scene_welcome();
    kit_eval(&a, &kit_one, "c");
    scene_flush();
    fake_hear(&server, EVAL_ONE "c\r\n");
}

static void what_was_forgotten_is_sent_again_in_order(void **state)
{
    struct heard a, get, b, later, last;

    (void)state;
    know_scripts();
    kit_eval(&a, &kit_one, "c");
    kit_ask(&get, "GET a");
    kit_eval(&b, &kit_two, "d");
    scene_flush();
    fake_hear(&server, NAME_ONE "c\r\n" GET_A NAME_TWO "d\r\n");
    fake_say(&server, NOSCRIPT);
    net_settle(kit.loop);
    kit_eval(&later, &kit_one, "e"); /* must not overtake what may have to be sent again */
    kit_ask(&last, "GET b");
    scene_flush();
    fake_say(&server, ":7\r\n" NOSCRIPT);
    run_until(kit.loop, get.times);
    scene_flush();
    fake_hear(&server, EVAL_ONE "c\r\n" EVAL_TWO "d\r\n" NAME_ONE "e\r\n" GET_B);
    assert_int_equal(a.times + b.times, 0);
    fake_say(&server, ":1\r\n:2\r\n:3\r\n:4\r\n");
    run_until(kit.loop, last.times);
    assert_true(a.integer == 1 && b.integer == 2 && later.integer == 3 && last.integer == 4);
    assert_true(get.order < a.order && a.order < b.order && b.order < later.order);
}

static void who_forgets_for_ever_is_not_asked_for_ever(void **state)
{
    struct heard a;

    (void)state;
    know_scripts();
    kit_eval(&a, &kit_one, "c");
    scene_flush();
    fake_hear(&server, NAME_ONE "c\r\n");
    fake_say(&server, NOSCRIPT);
    net_settle(kit.loop);
    fake_hear(&server, EVAL_ONE "c\r\n");
    fake_say(&server, NOSCRIPT);
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNREACHABLE);
    assert_int_equal(a.fault, REDIS_ERROR_NO_SCRIPT);
}

static void forgotten_and_broken_was_not_executed(void **state)
{
    struct heard a, get;

    (void)state;
    know_scripts();
    kit_eval(&a, &kit_one, "c");
    kit_ask(&get, "GET a");
    scene_flush();
    fake_hear(&server, NAME_ONE "c\r\n" GET_A);
    fake_say(&server, NOSCRIPT);
    net_settle(kit.loop);
    fake_hang_up(&server);
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNREACHABLE);
    assert_status(get.err.status, UNCERTAIN);
}

/* ---- channels ---- */

#define SUBSCRIBE_X "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nx\r\n"
#define SUBSCRIBED  "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"

static void messages_come_as_they_are(void **state)
{
    (void)state;
    kit_connect();
    assert_status(redis_conn_subscribe(kit.conn, "x", 1, NULL), OK);
    scene_welcome();
    scene_flush();
    fake_hear(&server, SUBSCRIBE_X);
    fake_say(&server, SUBSCRIBED "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$5\r\nhello\r\n");
    fake_say(&server, "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$0\r\n\r\n");
    run_until(kit.loop, strstr(kit.heard, "x= "));
    assert_string_equal(kit.heard, "+x x=hello x= ");
}

static void subscriptions_are_renewed(void **state)
{
    struct conn_arg ping = CONN_TEXT("PING");

    (void)state;
    scene_connect();
    assert_status(redis_conn_subscribe(kit.conn, "x", 1, NULL), OK);
    assert_status(redis_conn_subscribe(kit.conn, "gone", 4, NULL), OK);
    redis_conn_unsubscribe(kit.conn, "gone", 4);
    scene_flush();
    fake_hear(&server, SUBSCRIBE_X "*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\ngone\r\n"
                                   "*2\r\n$11\r\nUNSUBSCRIBE\r\n$4\r\ngone\r\n");
    fake_say(&server, SUBSCRIBED);
    run_until(kit.loop, kit.heard[0]);
    assert_status(redis_conn_send(kit.conn, &ping, 1, kit_hear, NULL, NULL), MISUSE);
    fake_hang_up(&server);
    run_until(kit.loop, kit.down);
    scene_welcome();
    scene_flush();
    fake_hear(&server, SUBSCRIBE_X);
    fake_say(&server, SUBSCRIBED);
    run_until(kit.loop, strcmp(kit.heard, "+x +x ") == 0);
}

static void a_channel_that_is_not_allowed_brings_it_down(void **state)
{
    (void)state;
    scene_connect();
    assert_status(redis_conn_subscribe(kit.conn, "x", 1, NULL), OK);
    scene_flush();
    fake_say(&server, "-NOPERM No permissions to access a channel\r\n");
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, REFUSED);
    assert_true(error_has(&kit.why, "access a channel"));
}

static void what_is_no_message_ends_it(void **state)
{
    (void)state;
    scene_connect();
    assert_status(redis_conn_subscribe(kit.conn, "x", 1, NULL), OK);
    fake_say(&server, "*3\r\n:1\r\n:2\r\n:3\r\n");
    run_until(kit.loop, kit.down);
    assert_true(error_has(&kit.why, "without a request"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_source_is_sent_once),
        TEST(and_again_on_the_next_connection),
        TEST(what_was_forgotten_is_sent_again_in_order),
        TEST(who_forgets_for_ever_is_not_asked_for_ever),
        TEST(forgotten_and_broken_was_not_executed),
        TEST(messages_come_as_they_are),
        TEST(subscriptions_are_renewed),
        TEST(a_channel_that_is_not_allowed_brings_it_down),
        TEST(what_is_no_message_ends_it),
    };
    return cmocka_run_group_tests_name("redis-conn-scripts", tests, NULL, NULL);
}
