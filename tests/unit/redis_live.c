/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A connection against a real redis-server. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "servers/redis_server.h"
#include "support/conn_kit.h"

static struct redis_server server;

static void start(const char *const *args)
{
    redis_server_start(&server, args);
    kit_open();
    kit.options.target.port = server.port;
}

static int set_up(void **state)
{
    (void)state;
    start(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kit_close();
    redis_server_stop(&server);
    return 0;
}

static bool has(const struct stile_error *err, const char *words)
{
    return strstr(err->message, words);
}

static void expect_ok(const char *words)
{
    struct heard a;

    kit_ask_and_wait(&a, words);
    if (a.err.status)
        fail_msg("%s: %s", words, a.err.message);
}

static void expect_fault(const char *words, enum redis_error fault, enum stile_status status)
{
    struct heard a;

    kit_ask_and_wait(&a, words);
    assert_string_equal(stile_status_name(a.err.status), stile_status_name(status));
    if (a.fault != fault)
        fail_msg("%s: \"%s\" is fault %d, not %d", words, a.text, a.fault, fault);
}

/* ---- the ordinary ---- */

static void it_asks_and_hears(void **state)
{
    struct heard a;

    (void)state;
    kit_connect_up();
    expect_ok("SET a hello");
    kit_ask_and_wait(&a, "GET a");
    assert_string_equal(a.text, "hello");
    kit_ask_and_wait(&a, "GET b");
    assert_int_equal(a.type, REDIS_REPLY_NIL);
    kit_ask_and_wait(&a, "CLIENT GETNAME");
    assert_string_equal(a.text, "stile");
}

static void many_requests_at_once_keep_their_order(void **state)
{
    static struct heard heard[1000];

    (void)state;
    kit_connect_up();
    for (unsigned i = 0; i < 1000; i++)
        kit_ask(&heard[i], "INCR n");
    run_until(kit.loop, heard[999].times);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(heard[i].times == 1 && heard[i].integer == (int)i + 1);
}

static void it_speaks_through_a_unix_socket(void **state)
{
    (void)state;
    kit.options.target.host = NULL;
    kit.options.target.path = server.path;
    kit_connect_up();
    expect_ok("PING");
}

static void it_uses_its_own_database(void **state)
{
    struct heard a;

    (void)state;
    kit.options.db = 5;
    kit_connect_up();
    expect_ok("SET a here");
    expect_ok("SELECT 0");
    kit_ask_and_wait(&a, "EXISTS a");
    assert_int_equal(a.integer, 0);
}

static void a_database_that_is_not_there_is_refused(void **state)
{
    (void)state;
    kit.options.db = 99;
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, REFUSED);
    assert_true(has(&kit.why, "no database of this number"));
}

static void a_password_nobody_asked_for_is_refused(void **state)
{
    (void)state;
    kit.options.password = "hunter2";
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, REFUSED);
    assert_true(has(&kit.why, "the server has none"));
}

/* ---- permissions ---- */

static int set_up_acl(void **state)
{
    static const char *const args[] = {
        "--requirepass", "sesame", "--user",        "ann", "on", ">hunter2", "~*",
        "+@all",         "-eval",  "resetchannels", NULL};

    (void)state;
    start(args);
    return 0;
}

static void without_a_password_nothing_goes(void **state)
{
    (void)state;
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, REFUSED);
    assert_true(has(&kit.why, "wants a password"));
}

static void the_password_opens(void **state)
{
    (void)state;
    kit.options.password = "sesame";
    kit_connect_up();
    expect_ok("PING");
}

static void a_wrong_password_is_refused_and_not_repeated(void **state)
{
    (void)state;
    kit.options.user = "ann";
    kit.options.password = "hunter3";
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, REFUSED);
    assert_true(has(&kit.why, "password is wrong"));
    assert_false(has(&kit.why, "hunter3"));
}

static void a_user_may_what_its_acl_says(void **state)
{
    struct heard a;

    (void)state;
    kit.options.user = "ann";
    kit.options.password = "hunter2";
    kit_connect_up();
    expect_ok("SET a 1");
    kit_eval(&a, &kit_one, "k");
    run_until(kit.loop, a.times);
    assert_int_equal(a.fault, REDIS_ERROR_NO_PERMISSION);
    assert_true(has(&a.err, "eval"));
    assert_status(redis_conn_subscribe(kit.conn, "x", 1, NULL), OK);
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, REFUSED);
}

/* ---- scripts ---- */

static void scripts_run_and_survive_a_flush(void **state)
{
    struct heard a[6], flush;

    (void)state;
    kit_connect_up();
    kit_eval(&a[0], &kit_incr, "n");
    kit_eval(&a[1], &kit_get, "n");
    kit_ask(&flush, "SCRIPT FLUSH");
    kit_eval(&a[2], &kit_incr, "n");
    kit_eval(&a[3], &kit_get, "n");
    kit_eval(&a[4], &kit_incr, "n");
    kit_eval(&a[5], &kit_get, "n");
    run_until(kit.loop, a[5].times);
    for (unsigned i = 0; i < 6; i += 2) {
        char text[8];
        snprintf(text, sizeof text, "%u", i / 2 + 1);
        assert_int_equal(a[i].integer, i / 2 + 1);
        assert_string_equal(a[i + 1].text, text);
    }
}

/* ---- what servers say when they are not well ---- */

static void wrong_types_and_unknown_commands(void **state)
{
    struct heard a;

    (void)state;
    kit_connect_up();
    expect_ok("LPUSH list x");
    expect_fault("GET list", REDIS_ERROR_WRONG_TYPE, STILE_REFUSED);
    expect_fault("FROB a", REDIS_ERROR_UNKNOWN_COMMAND, STILE_UNSUPPORTED);
    kit_eval(&a, &kit_get, "list");
    run_until(kit.loop, a.times);
    assert_int_equal(a.fault, REDIS_ERROR_WRONG_TYPE);
}

static void out_of_memory(void **state)
{
    (void)state;
    kit_connect_up();
    expect_ok("CONFIG SET maxmemory 1");
    expect_fault("SET a 1", REDIS_ERROR_OOM, STILE_REFUSED);
}

static void a_replica_takes_no_writes(void **state)
{
    char words[64];

    (void)state;
    kit_connect_up();
    snprintf(words, sizeof words, "REPLICAOF 127.0.0.1 %u", free_port());
    expect_ok(words);
    expect_fault("SET a 1", REDIS_ERROR_READ_ONLY, STILE_UNREACHABLE);
    run_until(kit.loop, kit.down >= 2); /* left, and not taken for a primary again */
    assert_int_equal(kit.why.native, REDIS_ERROR_READ_ONLY);
    assert_false(redis_conn_is_up(kit.conn));
}

static void a_replica_without_its_primary_is_left_as_well(void **state)
{
    char words[64];

    (void)state;
    kit_connect_up();
    snprintf(words, sizeof words, "REPLICAOF 127.0.0.1 %u", free_port());
    expect_ok(words);
    expect_ok("CONFIG SET replica-serve-stale-data no");
    expect_fault("GET a", REDIS_ERROR_MASTER_DOWN, STILE_UNREACHABLE);
    run_until(kit.loop, kit.down >= 2);
    assert_false(redis_conn_is_up(kit.conn));
}

static void too_few_replicas(void **state)
{
    (void)state;
    kit_connect_up();
    expect_ok("CONFIG SET min-replicas-to-write 1");
    expect_fault("SET a 1", REDIS_ERROR_NO_REPLICAS, STILE_UNREACHABLE);
}

static void a_server_that_is_full(void **state)
{
    struct conn *first;

    (void)state;
    kit_connect_up();
    expect_ok("CONFIG SET maxclients 1");
    first = kit.conn;
    kit.up = 0;
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_status(kit.why.status, UNREACHABLE);
    assert_true(has(&kit.why, "maxclients"));
    redis_conn_free(first);
    run_until(kit.loop, kit.up); /* room for one */
}

static void a_slow_script_makes_it_busy(void **state)
{
    struct conn *first;
    struct heard slow, ping;

    (void)state;
    kit_connect_up();
    expect_ok("CONFIG SET busy-reply-threshold 1");
    kit_eval(&slow, &kit_endless, "k");
    loop_prepare(kit.loop);
    first = kit.conn;
    kit.up = 0;
    kit_connect_up();
    do
        kit_ask_and_wait(&ping, "GET a");
    while (!ping.err.status);
    assert_int_equal(ping.fault, REDIS_ERROR_BUSY);
    assert_status(ping.err.status, UNREACHABLE);
    expect_ok("SCRIPT KILL");
    run_until(kit.loop, slow.times);
    redis_conn_free(first);
}

static int set_up_cluster(void **state)
{
    static const char *const args[] = {"--cluster-enabled", "yes", NULL};

    (void)state;
    start(args);
    return 0;
}

static void a_cluster_sends_elsewhere_or_is_down(void **state)
{
    (void)state;
    kit_connect_up();
    expect_fault("GET a", REDIS_ERROR_CLUSTER_DOWN, STILE_UNREACHABLE);
    expect_ok("CLUSTER ADDSLOTSRANGE 0 16383");
    struct heard a;
    do
        kit_ask_and_wait(&a, "GET a");
    while (a.fault == REDIS_ERROR_CLUSTER_DOWN); /* until its next look around */
    assert_status(a.err.status, OK);
    expect_fault("MGET a b", REDIS_ERROR_CROSS_SLOT, STILE_REFUSED);
    expect_ok("SET a 1");
    kit.options.db = 1;
    redis_conn_free(kit.conn);
    kit.up = 0;
    kit_connect();
    run_until(kit.loop, kit.down);
    assert_true(has(&kit.why, "database 0 only"));
}

/* ---- breaking ---- */

static void killed_by_another_client_it_comes_back(void **state)
{
    struct heard a;

    (void)state;
    kit_connect_up();
    kit_ask(&a, "CLIENT KILL TYPE normal SKIPME no");
    run_until(kit.loop, kit.down);
    assert_true(a.times == 1);
    run_until(kit.loop, kit.up == 2);
    expect_ok("PING");
}

static void killed_and_started_again_it_comes_back(void **state)
{
    struct heard a;

    (void)state;
    kit_connect_up();
    redis_server_kill(&server, SIGKILL);
    kit_ask(&a, "GET a");
    run_until(kit.loop, kit.down);
    assert_true(a.err.status == STILE_UNCERTAIN || a.err.status == STILE_UNREACHABLE);
    redis_server_restart(&server);
    run_until(kit.loop, kit.up == 2);
    expect_ok("PING");
}

/* A withdrawal sent after a request in doubt is executed after it: same connection. */
static void stopped_it_answers_late_and_in_order(void **state)
{
    struct heard set, del, exists;
    int status;

    (void)state;
    kit.options.answer_ns = NET_PATIENCE_NS;
    kit_connect_up();
    kill(server.pid, SIGSTOP);
    assert_int_equal(waitpid(server.pid, &status, WUNTRACED), server.pid);
    assert_true(WIFSTOPPED(status));
    kit_ask(&set, "SET lock mine");
    loop_prepare(kit.loop);
    kit_grow_late();
    run_until(kit.loop, set.times);
    assert_status(set.err.status, UNCERTAIN);
    kit_ask(&del, "DEL lock");
    loop_prepare(kit.loop);
    kill(server.pid, SIGCONT);
    run_until(kit.loop, del.times);
    assert_int_equal(del.integer, 1);
    assert_int_equal(kit.down, 0);
    kit_ask_and_wait(&exists, "EXISTS lock");
    assert_int_equal(exists.integer, 0);
}

/* ---- channels ---- */

static void messages_are_heard_again_after_a_break(void **state)
{
    struct conn *ears;
    struct heard a;

    (void)state;
    kit_connect();
    ears = kit.conn;
    assert_status(redis_conn_subscribe(ears, "news", 4, NULL), OK);
    run_until(kit.loop, strcmp(kit.heard, "+news ") == 0);
    kit.up = 0;
    kit_connect_up();
    kit_ask_and_wait(&a, "PUBLISH news one");
    assert_int_equal(a.integer, 1);
    run_until(kit.loop, strcmp(kit.heard, "+news news=one ") == 0);
    kit_ask_and_wait(&a, "CLIENT KILL TYPE pubsub");
    run_until(kit.loop, strcmp(kit.heard, "+news news=one +news ") == 0);
    kit_ask_and_wait(&a, "PUBLISH news two");
    assert_int_equal(a.integer, 1);
    run_until(kit.loop, strstr(kit.heard, "news=two "));
    redis_conn_unsubscribe(ears, "news", 4);
    loop_prepare(kit.loop);
    do
        kit_ask_and_wait(&a, "PUBLISH news three");
    while (a.integer == 1);
    redis_conn_free(ears);
}

#define TEST(name)            cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_IN(set_up, name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_asks_and_hears),
        TEST(many_requests_at_once_keep_their_order),
        TEST(it_speaks_through_a_unix_socket),
        TEST(it_uses_its_own_database),
        TEST(a_database_that_is_not_there_is_refused),
        TEST(a_password_nobody_asked_for_is_refused),
        TEST_IN(set_up_acl, without_a_password_nothing_goes),
        TEST_IN(set_up_acl, the_password_opens),
        TEST_IN(set_up_acl, a_wrong_password_is_refused_and_not_repeated),
        TEST_IN(set_up_acl, a_user_may_what_its_acl_says),
        TEST(scripts_run_and_survive_a_flush),
        TEST(wrong_types_and_unknown_commands),
        TEST(out_of_memory),
        TEST(a_replica_takes_no_writes),
        TEST(a_replica_without_its_primary_is_left_as_well),
        TEST(too_few_replicas),
        TEST(a_server_that_is_full),
        TEST(a_slow_script_makes_it_busy),
        TEST_IN(set_up_cluster, a_cluster_sends_elsewhere_or_is_down),
        TEST(killed_by_another_client_it_comes_back),
        TEST(killed_and_started_again_it_comes_back),
        TEST(stopped_it_answers_late_and_in_order),
        TEST(messages_are_heard_again_after_a_break),
    };

    return cmocka_run_group_tests_name("redis-live", tests, NULL, NULL);
}
