/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor makes of servers that can't be had here: other versions, observers, many of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engines/zookeeper/doctor.h"

#define SERVERS_MAX 5

static struct server_facts servers[SERVERS_MAX];
static struct ensemble_facts seen;
static char reported[2000]; /* "id severity," of each */

static void note_down(void *data, const struct stile_finding *finding)
{
    (void)data;
    size_t n = strlen(reported);
    snprintf(reported + n, sizeof reported - n, "%s %d,", finding->id, (int)finding->severity);
    assert_non_null(finding->what);
    assert_true(finding->severity == STILE_FINE || finding->why);
}

static void begin(size_t n)
{
    static const char *const names[SERVERS_MAX] = {"a:1", "b:1", "c:1", "d:1", "e:1"};
    memset(servers, 0, sizeof servers);
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        servers[i].where = names[i];
        servers[i].followers = servers[i].connections = -1;
    }
    seen =
        (struct ensemble_facts){.servers = servers, .n = n, .asked_ms = 10000, .given_ms = 10000};
    *reported = '\0';
}

static void says(size_t i, const char *version, const char *mode)
{
    char text[200];
    snprintf(text, sizeof text,
             "Zookeeper version: %s-abc, built on a day\nZxid: 0x0\nMode: %s\nNode count: 5\n",
             version, mode);
    zk_doctor_read_answer(&servers[i], WORD_SRVR, text);
}

static void three(const char *of_first)
{
    begin(3);
    says(0, of_first, "leader");
    says(1, "3.8.0", "follower");
    says(2, "3.8.0", "follower");
}

static bool is_told(const char *what)
{
    *reported = '\0';
    zk_doctor_judge(&seen, note_down, NULL);
    return strstr(reported, what) != NULL;
}

static void versions_side_by_side(void **state)
{
    (void)state;
    three("3.8.0");
    assert_false(is_told("version"));
    three("3.9.1");
    assert_true(is_told("versions 2,"));
    assert_false(is_told("version 3,"));
    three("3.4.13");
    assert_true(is_told("version 3,"));
}

/* Observers have no vote, and the rest of a line may follow their kind. */
static void observers_do_not_vote(void **state)
{
    (void)state;
    three("3.8.0");
    zk_doctor_read_answer(
        &servers[0], WORD_CONF,
        "clientPort=1\ntickTime=2000\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n"
        "membership: \nserver.1=a:2:3:participant;0.0.0.0:1\nserver.2=b:2:3:participant\n"
        "server.3=c:2:3:participant\nserver.4=d:2:3:observer;0.0.0.0:1\n"
        "server.5=e:2:3:observer\nversion=0");
    assert_int_equal(servers[0].voters, 3);
    assert_int_equal(servers[0].tick_ms, 2000);
    assert_int_equal(servers[0].min_ms, 4000);
    assert_int_equal(servers[0].max_ms, 40000);
    assert_false(is_told("even"));
    assert_false(is_told("not-named"));
}

/* Where conf is closed, mntr knows how many there are and which are in sync. */
static void the_rest_of_the_ensemble(void **state)
{
    (void)state;
    three("3.8.0");
    zk_doctor_read_answer(&servers[0], WORD_MNTR,
                          "zk_version\t3.8.0\nzk_server_state\tleader\nzk_synced_followers\t2\n"
                          "zk_quorum_size\t4\n");
    assert_true(is_told("even 1,"));
    assert_true(is_told("not-named 1,"));
    assert_true(is_told("behind 2,"));
    servers[0].followers = 3;
    assert_false(is_told("behind"));
}

/* All words are closed, but there is a session: it is no danger. */
static void nothing_is_told(void **state)
{
    (void)state;
    begin(1);
    for (enum word word = 0; word < WORDS; word++)
        zk_doctor_read_answer(&servers[0], word,
                              "srvr is not executed because it is not in the whitelist.\n");
    assert_true(is_told("closed-words 1,"));
    assert_false(is_told(" 3,"));
    assert_true(is_told("one-server 2,"));
    seen.given_ms = 0;
    assert_false(is_told("session"));
}

static void no_session_where_servers_serve(void **state)
{
    (void)state;
    three("3.8.0");
    seen.given_ms = 0;
    error_set(&seen.error, STILE_REFUSED, 0, "the server says: not you");
    assert_true(is_told("no-session 3,"));
}

static void room_for_many_locks(void **state)
{
    (void)state;
    three("3.8.0");
    assert_false(is_told("session-room"));
    zk_doctor_read_answer(&servers[1], WORD_CONF, "tickTime=2000\nmaxClientCnxns=60\n");
    assert_true(is_told("session-room 0,"));
    zk_doctor_read_answer(&servers[1], WORD_CONF, "tickTime=2000\nmaxClientCnxns=0\n");
    assert_true(is_told("session-room 0,"));
    zk_doctor_read_answer(&servers[1], WORD_CONF, "tickTime=2000\nmaxClientCnxns=10\n");
    assert_true(is_told("session-room 1,"));
}

static void garbage_is_read_without_harm(void **state)
{
    static const char *const texts[] = {
        "",   "\n\n",           "server.\nserver.", "Mode:",
        "\n", "Mode: \nMode: ", "tickTime=",        "server.1=observer"};
    (void)state;
    begin(1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (enum word word = 0; word < WORDS; word++)
            zk_doctor_read_answer(&servers[0], word, texts[i]);
    }
    assert_false(is_told("tick-time"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_side_by_side),          cmocka_unit_test(observers_do_not_vote),
        cmocka_unit_test(the_rest_of_the_ensemble),       cmocka_unit_test(nothing_is_told),
        cmocka_unit_test(no_session_where_servers_serve), cmocka_unit_test(room_for_many_locks),
        cmocka_unit_test(garbage_is_read_without_harm),
    };
    return cmocka_run_group_tests_name("zookeeper_doctor", tests, NULL, NULL);
}
