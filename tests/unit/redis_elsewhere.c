/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that one connection hands to another, and connections that want to be elsewhere. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/redis/connection.h"
#include "support/conn_kit.h"

#define SETNAME "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$5\r\nstile\r\n"
#define ROLE    "*1\r\n$4\r\nROLE\r\n"
#define GET_A   "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
#define MOVED   "-MOVED 1 127.0.0.1:1\r\n"

/* Two servers and a connection to each; what the first one says is handed to the second. */
static struct fake here, there;
static struct conn *first, *second;
static unsigned up, down, late, taken, replicas;
static struct stile_error why;
static bool asking, later;

static void on_up(struct conn *conn)
{
    (void)conn;
    up++;
}

static void on_down(struct conn *conn, const struct stile_error *reason)
{
    (void)conn;
    down++;
    why = *reason;
}

static void on_replica(struct conn *conn, const struct stile_error *reason)
{
    (void)conn, (void)reason;
    replicas++;
}

static void on_late(struct conn *conn)
{
    (void)conn;
    late++;
}

static bool on_answer(struct conn *conn, struct request *request, const redisReply *reply)
{
    struct stile_error err;

    if (conn != first || redis_error_of(reply) != REDIS_ERROR_MOVED)
        return false;
    taken++;
    error_set(&err, STILE_UNREACHABLE, 0, "no further");
    if (later)
        redis_conn_answer(request, &err);
    else
        redis_conn_give(second, request, asking);
    return true;
}

static const struct conn_events events = {
    .up = on_up, .down = on_down, .replica = on_replica, .late = on_late, .answers = on_answer};

static int set_up(void **state)
{
    (void)state;
    kit_open();
    fake_listen(&here);
    fake_listen(&there);
    first = second = NULL;
    up = down = late = taken = replicas = 0;
    asking = later = false;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    redis_conn_free(first);
    redis_conn_free(second);
    kit_close();
    fake_free(&here);
    fake_free(&there);
    return 0;
}

static void begin(struct conn **conn, struct fake *server)
{
    struct stile_error err;

    kit.options.target.port = server->port;
    assert_status(redis_conn_new(conn, kit.loop, &kit.options, &events, NULL, &err), OK);
}

static void welcome(struct conn *conn, struct fake *server)
{
    unsigned before = up;

    run_until(kit.loop, conn->link.state == LINK_GREETING);
    loop_prepare(kit.loop);
    fake_accept(server);
    fake_hear(server, SETNAME);
    fake_say(server, "+OK\r\n");
    run_until(kit.loop, up > before);
}

static void begin_both(void)
{
    begin(&first, &here);
    welcome(first, &here);
    begin(&second, &there);
    welcome(second, &there);
}

static void ask(struct heard *heard)
{
    struct conn_arg args[] = {CONN_TEXT("GET"), CONN_TEXT("a")};

    memset(heard, 0, sizeof *heard);
    assert_status(redis_conn_send(first, args, 2, kit_hear, heard, NULL), OK);
    loop_prepare(kit.loop);
    fake_hear(&here, GET_A);
}

static void sent_elsewhere_it_is_answered_from_there(void **state)
{
    struct heard a;

    (void)state;
    begin_both();
    ask(&a);
    fake_say(&here, MOVED);
    run_until(kit.loop, taken);
    assert_true(redis_conn_is_idle(first) && !redis_conn_is_idle(second));
    loop_prepare(kit.loop);
    fake_hear(&there, GET_A);
    fake_say(&there, "$1\r\nx\r\n");
    run_until(kit.loop, a.times);
    assert_string_equal(a.text, "x");
    assert_status(a.err.status, OK);
    assert_true(redis_conn_is_idle(second));
}

static void a_script_goes_with_its_source_behind_asking(void **state)
{
    struct conn_arg key = CONN_TEXT("a");
    struct heard a = {0};

    (void)state;
    asking = true;
    begin_both();
    assert_status(redis_conn_eval(first, &kit_one, &key, 1, 1, kit_hear, &a, NULL), OK);
    loop_prepare(kit.loop);
    fake_hear(&here, "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\na\r\n");
    fake_say(&here, MOVED);
    run_until(kit.loop, taken);
    loop_prepare(kit.loop);
    fake_hear(&there, "*1\r\n$6\r\nASKING\r\n"
                      "*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\na\r\n");
    fake_say(&there, "+OK\r\n:7\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.integer, 7);
}

/* It was withdrawn, and what withdraws it may have gone there already. */
static void what_nobody_waits_for_goes_nowhere(void **state)
{
    struct heard a, b;

    (void)state;
    begin_both();
    ask(&a);
    redis_conn_forget(first, &a);
    fake_say(&here, MOVED);
    ask(&b);
    fake_say(&here, ":1\r\n");
    run_until(kit.loop, b.times);
    assert_int_equal(taken, 0);
    assert_int_equal(a.times, 0);
    assert_true(redis_conn_is_idle(second));
}

static void what_was_taken_over_can_be_answered(void **state)
{
    struct heard a;

    (void)state;
    later = true;
    begin_both();
    ask(&a);
    fake_say(&here, MOVED);
    run_until(kit.loop, a.times);
    assert_int_equal(a.times, 1);
    assert_string_equal(a.err.message, "no further");
}

static void given_to_one_that_is_down_it_is_refused(void **state)
{
    struct heard a;

    (void)state;
    begin_both();
    fake_hang_up(&there);
    fake_free(&there);
    run_until(kit.loop, down);
    ask(&a);
    fake_say(&here, MOVED);
    run_until(kit.loop, a.times);
    assert_status(a.err.status, UNREACHABLE);
    fake_listen(&there);
}

static void the_next_attempt_goes_elsewhere(void **state)
{
    (void)state;
    begin(&first, &here);
    welcome(first, &here);
    assert_status(redis_conn_move(first, "127.0.0.1", there.port, NULL, NULL), OK);
    net_settle(kit.loop);
    assert_true(redis_conn_is_up(first));
    fake_hang_up(&here);
    run_until(kit.loop, down);
    welcome(first, &there);
}

static void it_is_late_once_for_all_that_is(void **state)
{
    struct conn_arg args[] = {CONN_TEXT("GET"), CONN_TEXT("a")};
    struct heard a = {0}, b = {0};

    (void)state;
    begin(&first, &here);
    welcome(first, &here);
    assert_status(redis_conn_send(first, args, 2, kit_hear, &a, NULL), OK);
    assert_status(redis_conn_send(first, args, 2, kit_hear, &b, NULL), OK);
    for (struct link_request *r = first->link.sent.first; r; r = r->next)
        r->until_ns = loop_now(kit.loop);
    loop_arm(kit.loop, &first->link.overdue, 0);
    run_until(kit.loop, a.times && b.times);
    assert_int_equal(late, 1);
    assert_int_equal(down, 0);
}

/* ---- roles ---- */

static void say_role(const char *role)
{
    kit.options.primary = true;
    begin(&first, &here);
    run_until(kit.loop, first->link.state == LINK_GREETING);
    loop_prepare(kit.loop);
    fake_accept(&here);
    fake_hear(&here, ROLE SETNAME);
    fake_say(&here, role);
    fake_say(&here, "+OK\r\n");
    run_until(kit.loop, up || down);
}

static void a_primary_is_welcome(void **state)
{
    (void)state;
    say_role("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    assert_int_equal(up, 1);
}

static void a_replica_is_not(void **state)
{
    (void)state;
    say_role("*5\r\n$5\r\nslave\r\n$1\r\nx\r\n:1\r\n$9\r\nconnected\r\n:0\r\n");
    assert_int_equal(up, 0);
    assert_status(why.status, UNREACHABLE);
    assert_non_null(strstr(why.message, "not a primary"));
}

static void nor_who_does_not_say(void **state)
{
    static const char *const answers[] = {"*0\r\n", "+OK\r\n", ":1\r\n", "*1\r\n:1\r\n",
                                          "-ERR unknown command 'ROLE'\r\n"};

    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        tear_down(state);
        set_up(state);
        say_role(answers[i]);
        assert_int_equal(up, 0);
    }
}

/* ---- a primary that has become a replica ---- */

#define READONLY "-READONLY You can't write against a read only replica.\r\n"
#define MASTER   "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
#define SLAVE    "*5\r\n$5\r\nslave\r\n$1\r\nx\r\n:1\r\n$9\r\nconnected\r\n:0\r\n"

static void send_get(struct heard *heard)
{
    struct conn_arg args[] = {CONN_TEXT("GET"), CONN_TEXT("a")};

    memset(heard, 0, sizeof *heard);
    assert_status(redis_conn_send(first, args, 2, kit_hear, heard, NULL), OK);
}

/* The next connection comes, is asked for its role first, and says this. */
static void greet_with(const char *role)
{
    run_until(kit.loop, first->link.state == LINK_GREETING);
    loop_prepare(kit.loop);
    fake_accept(&here);
    fake_hear(&here, ROLE SETNAME);
    fake_say(&here, role);
    fake_say(&here, "+OK\r\n");
}

static void what_is_under_way_is_answered_before_it_is_left(void **state)
{
    struct heard a, b, c, d;

    (void)state;
    begin(&first, &here);
    welcome(first, &here);
    send_get(&a);
    send_get(&b);
    send_get(&c);
    loop_prepare(kit.loop);
    fake_say(&here, READONLY);
    run_until(kit.loop, a.times);
    assert_int_equal(replicas, 1);
    assert_true(redis_conn_is_up(first)); /* b and c would be in doubt */
    send_get(&d);                         /* waits for the next server */
    fake_say(&here, READONLY);
    fake_say(&here, ":3\r\n");
    run_until(kit.loop, down);
    assert_status(a.err.status, UNREACHABLE);
    assert_status(b.err.status, UNREACHABLE);
    assert_int_equal(c.integer, 3);
    assert_int_equal(why.native, REDIS_ERROR_READ_ONLY);
    greet_with(MASTER);
    run_until(kit.loop, up == 2);
    loop_prepare(kit.loop);
    fake_hear(&here, GET_A);
    fake_say(&here, ":4\r\n");
    run_until(kit.loop, d.times);
    assert_int_equal(d.integer, 4);
    assert_int_equal(replicas, 1);
}

static void a_primary_is_looked_for_until_it_is_found(void **state)
{
    struct heard a;

    (void)state;
    begin(&first, &here);
    welcome(first, &here);
    send_get(&a);
    loop_prepare(kit.loop);
    fake_say(&here, READONLY);
    run_until(kit.loop, down == 1);
    for (unsigned i = 2; i < 5; i++) {
        greet_with(SLAVE);
        run_until(kit.loop, down == i);
        assert_int_equal(why.native, REDIS_ERROR_READ_ONLY);
    }
    greet_with(MASTER);
    run_until(kit.loop, up == 2);
    fake_hang_up(&here); /* it was found: the next one is no longer asked */
    run_until(kit.loop, down == 5);
    welcome(first, &here);
}

static void a_role_that_an_acl_hides_is_no_reason_to_stay_away(void **state)
{
    struct heard a;

    (void)state;
    begin(&first, &here);
    welcome(first, &here);
    send_get(&a);
    loop_prepare(kit.loop);
    fake_say(&here, "-MASTERDOWN Link with MASTER is down\r\n");
    run_until(kit.loop, down == 1);
    greet_with("-NOPERM this user has no permissions to run the 'role' command\r\n");
    run_until(kit.loop, up == 2);
}

/* One of two connections to a place has found out; the other one is just being made. */
static void a_doubt_while_it_is_greeted_counts(void **state)
{
    struct stile_error doubt;

    (void)state;
    begin(&first, &here);
    run_until(kit.loop, first->link.state == LINK_GREETING);
    loop_prepare(kit.loop);
    fake_accept(&here);
    fake_hear(&here, SETNAME);
    error_set(&doubt, STILE_UNREACHABLE, REDIS_ERROR_READ_ONLY, "a replica");
    redis_conn_reconnect(first, &doubt);
    fake_say(&here, "+OK\r\n");
    run_until(kit.loop, down == 1);
    assert_int_equal(up, 0);
    greet_with(MASTER);
    run_until(kit.loop, up == 1);
}

static void one_that_goes_silent_meanwhile_is_given_up(void **state)
{
    struct heard a, b;

    (void)state;
    begin(&first, &here);
    welcome(first, &here);
    send_get(&a);
    send_get(&b);
    loop_prepare(kit.loop);
    fake_say(&here, READONLY);
    run_until(kit.loop, a.times);
    fake_hang_up(&here);
    run_until(kit.loop, down == 1);
    assert_status(b.err.status, UNCERTAIN);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(sent_elsewhere_it_is_answered_from_there),
        TEST(a_script_goes_with_its_source_behind_asking),
        TEST(what_nobody_waits_for_goes_nowhere),
        TEST(what_was_taken_over_can_be_answered),
        TEST(given_to_one_that_is_down_it_is_refused),
        TEST(the_next_attempt_goes_elsewhere),
        TEST(it_is_late_once_for_all_that_is),
        TEST(a_primary_is_welcome),
        TEST(a_replica_is_not),
        TEST(nor_who_does_not_say),
        TEST(what_is_under_way_is_answered_before_it_is_left),
        TEST(a_primary_is_looked_for_until_it_is_found),
        TEST(a_role_that_an_acl_hides_is_no_reason_to_stay_away),
        TEST(a_doubt_while_it_is_greeted_counts),
        TEST(one_that_goes_silent_meanwhile_is_given_up),
    };

    return cmocka_run_group_tests_name("redis-elsewhere", tests, NULL, NULL);
}
