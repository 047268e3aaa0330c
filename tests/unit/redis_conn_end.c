/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that is freed where it may be, moves to another server, or is inherited by a child.
 */
#include "unit/redis_conn_kit.h"

#include <sys/wait.h>
#include <unistd.h>

static void freed_in(const char *event)
{
    struct heard a, b;

    kit.free_in = event;
    kit_connect();
    run_until(kit.loop, kit.conn->link.state == LINK_GREETING);
    scene_flush();
    fake_accept(&server);
    fake_say(&server, "+OK\r\n");
    run_until(kit.loop, kit.up);
    if (kit.conn) {
        kit_ask(&a, "GET a");
        kit_ask(&b, "GET b");
        scene_flush();
        fake_say(&server, strcmp(event, "reply") == 0 ? ":1\r\n:2\r\n" : "?");
        run_until(kit.loop, !kit.conn);
    }
    net_settle(kit.loop);
}

static void freed_in_up(void **state)
{
    (void)state;
    freed_in("up");
}

static void freed_in_a_reply(void **state)
{
    (void)state;
    freed_in("reply");
    assert_int_equal(kit.answers, 1);
}

static void freed_in_down(void **state)
{
    (void)state;
    freed_in("down");
    assert_int_equal(kit.answers, 2);
}

static void freed_as_it_breaks(void **state)
{
    struct heard a, b;

    (void)state;
    scene_connect();
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    scene_flush();
    kit.free_in = "reply";
    fake_hang_up(&server);
    run_until(kit.loop, !kit.conn);
    assert_true(kit.answers == 1 && kit.down == 0);
}

static void freed_when_overdue(void **state)
{
    struct heard a, b;

    (void)state;
    scene_connect();
    kit.free_in = "reply";
    kit_ask(&a, "GET a");
    kit_ask(&b, "GET b");
    kit_grow_late();
    run_until(kit.loop, !kit.conn);
    assert_int_equal(kit.answers, 1);
}

static void freed_in_a_message(void **state)
{
    (void)state;
    kit.free_in = "message";
    scene_connect();
    assert_status(redis_conn_subscribe(kit.conn, "x", 1, NULL), OK);
    fake_say(&server, "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n1\r\n"
                      "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n2\r\n");
    run_until(kit.loop, !kit.conn);
    assert_string_equal(kit.heard, "x=1 ");
}

static void it_moves(void **state)
{
    struct fake other;
    struct heard sent, kept;
    struct stile_error why = {.status = STILE_UNREACHABLE, .message = "a new primary"};

    (void)state;
    scene_connect();
    fake_listen(&other);
    kit_ask(&sent, "GET a");
    scene_flush();
    assert_status(redis_conn_move(kit.conn, "127.0.0.1", other.port, &why, NULL), OK);
    kit_ask(&kept, "GET b");
    assert_int_equal(kit.down, 0);
    run_until(kit.loop, kit.down);
    assert_status(sent.err.status, UNCERTAIN);
    assert_true(error_has(&kit.why, "a new primary"));
    fake_free(&server);
    server = other;
    scene_welcome();
    scene_flush();
    fake_hear(&server, GET_B);
    assert_int_equal(kept.times, 0);
}

static void it_moves_away_from_one_that_is_down(void **state)
{
    struct fake other;
    struct heard kept;
    struct stile_error why = {.status = STILE_UNREACHABLE, .message = "a new primary"};

    (void)state;
    fake_listen(&other);
    fake_free(&server);
    kit_connect();
    scene_fail_attempts(3);
    assert_status(redis_conn_move(kit.conn, "127.0.0.1", other.port, &why, NULL), OK);
    kit_ask(&kept, "GET b");
    server = other;
    scene_welcome();
    scene_flush();
    fake_hear(&server, GET_B);
    assert_int_equal(kept.times, 0);
    assert_int_equal(kit.down, 4);
}

static void a_forked_child_leaves_it_alone(void **state)
{
    struct heard a;
    int status;

    (void)state;
    scene_connect();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        redis_conn_forked(kit.conn);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    kit_ask(&a, "GET a");
    scene_flush();
    fake_hear(&server, GET_A);
    fake_say(&server, ":1\r\n");
    run_until(kit.loop, a.times);
    assert_int_equal(a.integer, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(freed_in_up),
        TEST(freed_in_a_reply),
        TEST(freed_in_down),
        TEST(freed_as_it_breaks),
        TEST(freed_when_overdue),
        TEST(freed_in_a_message),
        TEST(it_moves),
        TEST(it_moves_away_from_one_that_is_down),
        TEST(a_forked_child_leaves_it_alone),
    };
    return cmocka_run_group_tests_name("redis-conn-end", tests, NULL, NULL);
}
