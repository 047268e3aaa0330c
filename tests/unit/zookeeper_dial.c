/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* When servers are tried, and for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engines/zookeeper/zookeeper.h"
#include "support/loop_virtual.h"

#define MS      NS_PER_MS
#define SEC     NS_PER_SEC
#define SERVERS 3
#define SAMPLES 500

struct scene {
    struct zk zk;
    struct session session;
};

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    *state = scene;
    scene->zk.n_hosts = SERVERS;
    scene->session = (struct session){.zk = &scene->zk, .timeout_ms = 600000};
    return loop_virtual_new(&scene->zk.engine.loop, 1);
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    loop_free(scene->zk.engine.loop);
    free(scene);
    return 0;
}

/* One try in vain, and how long nothing is tried behind it. */
static uint64_t pause_after_one(struct session *session)
{
    zk_dial_begin(session);
    zk_dial_end(session);
    return session->dial_ns - loop_now(session->zk->engine.loop);
}

static uint64_t pause_after_round(struct session *session)
{
    for (int i = 1; i < SERVERS; i++)
        assert_int_equal(pause_after_one(session), 0);
    return pause_after_one(session);
}

/* Of the pause behind this round, counted from the first. */
static uint64_t longest(struct session *session, unsigned round)
{
    uint64_t max = 0;
    for (int i = 0; i < SAMPLES; i++) {
        session->dials = round * SERVERS;
        uint64_t pause = pause_after_round(session);
        max = pause > max ? pause : max;
    }
    return max;
}

static void pauses_grow_up_to_a_second(void **state)
{
    struct session *session = &((struct scene *)*state)->session;
    for (unsigned round = 0; round < 5; round++)
        assert_in_range(longest(session, round), (20 << round) * MS * 9 / 10, (20 << round) * MS);
    for (unsigned round = 6; round < 1000; round += 99)
        assert_in_range(longest(session, round), 900 * MS, SEC);
}

static void who_was_up_for_a_while_begins_anew(void **state)
{
    struct scene *scene = *state;
    struct session *session = &scene->session;
    session->dials = 10 * SERVERS;
    session->up_ns = loop_now(scene->zk.engine.loop);
    loop_virtual_jump(scene->zk.engine.loop, SEC);
    assert_int_equal(pause_after_one(session), 0);
    assert_in_range(longest(session, 0), 0, 20 * MS);
}

static void who_was_up_for_a_moment_does_not(void **state)
{
    struct scene *scene = *state;
    struct session *session = &scene->session;
    session->dials = 10 * SERVERS;
    session->up_ns = loop_now(scene->zk.engine.loop);
    loop_virtual_jump(scene->zk.engine.loop, SEC - 1);
    zk_dial_end(session);
    assert_int_equal(session->dials, 10 * SERVERS);
}

/* One attempt that nobody answers: how long it lasts. */
static uint64_t silence(struct session *session)
{
    struct loop *loop = session->zk->engine.loop;
    uint64_t begun_ns = loop_now(loop);
    zk_dial_begin(session);
    loop_virtual_jump(loop, session->dial_until_ns - begun_ns);
    zk_dial_end(session);
    return session->dial_until_ns - begun_ns;
}

static void patience_grows_with_each_round_of_silence(void **state)
{
    struct session *session = &((struct scene *)*state)->session;
    for (int i = 0; i < SERVERS; i++)
        assert_int_equal(silence(session), SEC);
    for (int i = 0; i < SERVERS; i++)
        assert_int_equal(silence(session), 2 * SEC);
    session->silences = UINT32_MAX;
    assert_int_equal(zk_dial_timeout_ns(session), 128 * SEC);
}

static void a_session_that_was_up_for_a_while_is_impatient_again(void **state)
{
    struct scene *scene = *state;
    struct session *session = &scene->session;
    session->silences = 10 * SERVERS;
    session->up_ns = loop_now(scene->zk.engine.loop);
    loop_virtual_jump(scene->zk.engine.loop, SEC);
    zk_dial_end(session);
    assert_int_equal(silence(session), SEC);
}

/* A server that is away refuses many connections, and the first one that it accepts may be one that
 * it forgets. */
static void refusals_leave_the_patience_as_it_is(void **state)
{
    struct session *session = &((struct scene *)*state)->session;
    for (int i = 0; i < 100; i++)
        pause_after_one(session);
    assert_int_equal(silence(session), SEC);
}

/* The only server may forget an attempt: there is time for others before the session expires. It
 * may also be slow: in the end it has most of the session, and never more. */
static void the_only_server_is_asked_again(void **state)
{
    struct scene *scene = *state;
    struct session *session = &scene->session;
    session->timeout_ms = 9000;
    session->id.id = 1;
    scene->zk.n_hosts = 1;
    for (uint64_t ns = 750 * MS; ns < 6 * SEC; ns *= 2)
        assert_int_equal(silence(session), ns);
    for (int i = 0; i < 100; i++)
        assert_int_equal(silence(session), 6 * SEC);
}

static void a_new_session_is_patient_with_it_sooner(void **state)
{
    struct scene *scene = *state;
    scene->session.timeout_ms = 9000;
    scene->zk.n_hosts = 1;
    assert_int_equal(silence(&scene->session), 750 * MS);
    assert_int_equal(silence(&scene->session), 3 * SEC);
    assert_int_equal(silence(&scene->session), 6 * SEC);
}

/* All of them in turn, whichever is the first. */
static void servers_are_tried_in_turn(void **state)
{
    struct scene *scene = *state;
    struct zk_host hosts[SERVERS];
    scene->zk.hosts = hosts;
    scene->session.first_host = 1;
    for (unsigned i = 1; i < 2 * SERVERS; i++) {
        zk_dial_begin(&scene->session);
        assert_ptr_equal(zk_dial_host(&scene->session), &hosts[(1 + i) % SERVERS]);
    }
    scene->session.fresh = true; /* the same once more, for a new session */
    zk_dial_begin(&scene->session);
    assert_ptr_equal(zk_dial_host(&scene->session), &hosts[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pauses_grow_up_to_a_second, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_was_up_for_a_while_begins_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_was_up_for_a_moment_does_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(patience_grows_with_each_round_of_silence, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_session_that_was_up_for_a_while_is_impatient_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusals_leave_the_patience_as_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_only_server_is_asked_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_session_is_patient_with_it_sooner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(servers_are_tried_in_turn, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("zookeeper_dial", tests, NULL, NULL);
}
