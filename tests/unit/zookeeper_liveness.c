/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which replies move the time from which a session's lease counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engines/zookeeper/session.h"

#define SEC NS_PER_SEC

/* With a timeout of 12 s: followers report to the leader after a second at most. */
static struct session begun(void)
{
    struct session session = {.ttl_ns = 12 * SEC, .connect_ns = 100 * SEC};
    zk_liveness_begin(&session, 101 * SEC);
    return session;
}

static void the_handshake_proves_its_beginning(void **state)
{
    struct session session = begun();
    (void)state;
    assert_int_equal(session.proven_ns, 100 * SEC);
}

/* Sent, and answered a millisecond later. */
static void answer(struct session *session, uint64_t sent_ns, bool via_leader)
{
    zk_liveness_observe_reply(session, sent_ns, sent_ns + NS_PER_MS, via_leader);
}

static void replies_of_a_follower_prove_nothing(void **state)
{
    struct session session = begun();
    (void)state;
    for (uint64_t s = 102; s < 110; s++)
        answer(&session, s * SEC, false);
    assert_int_equal(session.proven_ns, 100 * SEC);
}

static void a_sync_proves_what_was_sent_before_it(void **state)
{
    struct session session = begun();
    (void)state;
    answer(&session, 102 * SEC, true);
    assert_int_equal(session.proven_ns, 100 * SEC);
    answer(&session, 104 * SEC, true);
    assert_int_equal(session.proven_ns, 102 * SEC);
    answer(&session, 106 * SEC, true);
    assert_int_equal(session.proven_ns, 104 * SEC);
}

/* The follower may not have reported the first one yet. */
static void not_what_was_sent_just_before_it(void **state)
{
    struct session session = begun();
    (void)state;
    answer(&session, 102 * SEC, true);
    answer(&session, 103 * SEC + NS_PER_MS - 1, true);
    assert_int_equal(session.proven_ns, 100 * SEC);
    answer(&session, 103 * SEC + NS_PER_MS, true);
    assert_int_equal(session.proven_ns, 102 * SEC);
}

/* The leader was stopped, and no follower reports to it meanwhile. */
static void a_late_answer_proves_nothing_yet(void **state)
{
    struct session session = begun();
    (void)state;
    zk_liveness_observe_reply(&session, 102 * SEC, 105 * SEC, true);
    zk_liveness_observe_reply(&session, 104 * SEC, 105 * SEC, true);
    assert_int_equal(session.proven_ns, 100 * SEC);
    answer(&session, 106 * SEC, true);
    assert_int_equal(session.proven_ns, 102 * SEC);
}

static void proofs_never_go_back(void **state)
{
    struct session session = begun();
    (void)state;
    session.proven_ns = 200 * SEC;
    answer(&session, 102 * SEC, true);
    answer(&session, 104 * SEC, true);
    assert_int_equal(session.proven_ns, 200 * SEC);
}

static void probes_are_more_frequent_with_claims(void **state)
{
    struct session session = begun();
    (void)state;
    assert_int_equal(zk_liveness_due_ns(&session), (101 * SEC) + 12 * SEC / 10 * 3);
    session.claims = (struct zk_claim *)&session; /* any */
    assert_int_equal(zk_liveness_due_ns(&session), 103 * SEC);
    session.probing = true; /* until the server is left */
    assert_int_equal(zk_liveness_due_ns(&session), 105 * SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_handshake_proves_its_beginning),
        cmocka_unit_test(replies_of_a_follower_prove_nothing),
        cmocka_unit_test(a_sync_proves_what_was_sent_before_it),
        cmocka_unit_test(not_what_was_sent_just_before_it),
        cmocka_unit_test(a_late_answer_proves_nothing_yet),
        cmocka_unit_test(proofs_never_go_back),
        cmocka_unit_test(probes_are_more_frequent_with_claims),
    };
    return cmocka_run_group_tests_name("zookeeper_liveness", tests, NULL, NULL);
}
