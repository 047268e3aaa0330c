/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a connection fails in turn: each request is answered exactly once or was not
 * taken, nothing half-written reaches the server, and with memory back it works again. */
#include <stdlib.h>

#include "servers/redis_server.h"
#include "support/conn_kit.h"
#include "support/scarcity.h"

/* ---- the scene ---- */

static struct redis_server server;

#define ROUNDS 4

static void ignore_up(struct conn *conn)
{
    (void)conn;
}

static void count_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn;
    assert_true(why->status == STILE_NOMEM || why->status == STILE_UNREACHABLE);
    kit.down++;
}

static const struct conn_events events = {.up = ignore_up, .down = count_down};

/* Taken: an answer comes. */
static bool ask(struct heard *heard, bool by_script)
{
    static char filler[2048];
    struct conn_arg args[] = {CONN_TEXT("n"), {filler, sizeof filler}};
    struct conn_arg words[] = {CONN_TEXT("INCR"), CONN_TEXT("n")};
    struct stile_error err;
    enum stile_status status =
        by_script ? redis_conn_eval(kit.conn, &kit_incr, args, 1, 2, kit_hear, heard, &err)
                  : redis_conn_send(kit.conn, words, 2, kit_hear, heard, &err);

    if (status)
        assert_status(status, NOMEM);
    return !status;
}

static void scene(void)
{
    static struct heard heard[2 * ROUNDS];
    unsigned taken = 0;
    struct stile_error err;

    memset(heard, 0, sizeof heard);
    enum stile_status status =
        redis_conn_new(&kit.conn, kit.loop, &kit.options, &events, NULL, &err);
    if (status) {
        assert_status(status, NOMEM);
        return;
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        taken += ask(&heard[2 * i], true);
        taken += ask(&heard[2 * i + 1], false);
        run_until(kit.loop, kit.answers == taken);
    }
    scarcity_end();
    run_until(kit.loop, redis_conn_is_up(kit.conn));
    struct heard last = {0};
    assert_true(ask(&last, true));
    run_until(kit.loop, last.times);
    assert_status(last.err.status, OK);
    for (unsigned i = 0; i < 2 * ROUNDS; i++)
        assert_true(heard[i].times <= 1);
}

/* With one allocation more each time, until none is left that could fail. */
static void each_allocation_fails_in_turn(void **state)
{
    (void)state;
    for (unsigned at = 0;; at++) {
        kit_open();
        kit.options.target.port = server.port;
        kit.options.password = "sesame";
        scarcity_begin(at, false);
        scene();
        scarcity_end();
        redis_conn_free(kit.conn);
        loop_free(kit.loop);
        if (!scarcity.failed)
            break;
        assert_true(at < 1000);
    }
    assert_true(scarcity.seen > 10);
}

static int set_up(void **state)
{
    static const char *const args[] = {"--requirepass", "sesame", NULL};

    (void)state;
    redis_server_start(&server, args);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    redis_server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_fails_in_turn, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("redis-nomem", tests, NULL, NULL);
}
