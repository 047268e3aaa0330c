/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: core lets as many claims and releases be unanswered as the engine says, and no more.
 * The rest wait in the client, in order, and none of them fails for it. */
#include <stdlib.h>

#include "core/lock.h"
#include "support/unit.h"

#define LIMIT 4
#define MANY  2000

static struct engine_class limited;

static int open_limited(void **state, enum stile_lease lease)
{
    limited = *script_variant(lease, SCRIPT_APART);
    limited.in_flight = LIMIT;
    return open_world(state, 1, &limited);
}

static int open_limited_claims(void **state)
{
    return open_limited(state, STILE_LEASE_CLAIM);
}

static int open_limited_session(void **state)
{
    return open_limited(state, STILE_LEASE_SESSION);
}

static struct stile_lock *lock_number(struct world *w, size_t i)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "n%zu", i);
    return make_lock(w->clients[0], name, STILE_OPTIONS(.ttl_ms = 3600 * 1000));
}

/* How many requests the server has got and not answered: each takes 10 ms. */
static void slow(struct world *w)
{
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .there_ns = 5 * MS, .back_ns = 5 * MS);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .there_ns = 5 * MS, .back_ns = 5 * MS);
}

static void never_too_many(struct world *w)
{
    size_t n = 0;
    for (struct stile_lock *lock = w->clients[0]->locks; lock; lock = lock->all_next)
        n += lock->admission == IN_FLIGHT;
    assert_int_equal(n, w->clients[0]->admission.in_flight);
    assert_in_range(n, 0, LIMIT);
}

static void a_burst_is_served_in_order(void **state)
{
    struct world *w = *state;
    static struct stile_lock *locks[MANY];
    static struct heard heard[MANY];

    memset(heard, 0, sizeof heard);
    slow(w);
    w->look = never_too_many;
    for (size_t i = 0; i < MANY; i++) {
        locks[i] = lock_number(w, i);
        assert_status(stile_lock_acquire_async(locks[i], i % 2 ? 0 : -1, heard_done, &heard[i]),
                      OK);
    }
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), LIMIT);
    world_pass(w, MANY / LIMIT * 10 * MS);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(heard[i].times, 1);
        assert_status(heard[i].status, OK);
        assert_true(i == 0 || heard[i].at_ns >= heard[i - 1].at_ns);
    }
    memset(heard, 0, sizeof heard);
    for (size_t i = 0; i < MANY; i++)
        assert_status(stile_lock_release_async(locks[i], heard_done, &heard[i]), OK);
    world_pass(w, MANY / LIMIT * 10 * MS);
    for (size_t i = 0; i < MANY; i++)
        assert_status(heard[i].times == 1 ? heard[i].status : STILE_UNCERTAIN, OK);
    assert_int_equal(script_count(w->script, SCRIPT_RELEASE), MANY);
}

/* All are released at once, and nothing is held: the queued releases still need the session.
 */
static void a_session_outlives_a_line_of_releases(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[25 * LIMIT];
    struct heard heard[25 * LIMIT] = {{0}};
    char name[16];

    for (size_t i = 0; i < 25 * LIMIT; i++) {
        (void)snprintf(name, sizeof(name), "n%zu", i);
        locks[i] = make_lock(w->clients[0], name, STILE_OPTIONS(.ttl_ms = 10000));
        assert_status(stile_lock_acquire(locks[i], -1, NULL), OK);
    }
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .there_ns = 500 * MS, .back_ns = 500 * MS);
    for (size_t i = 0; i < 25 * LIMIT; i++)
        assert_status(stile_lock_release_async(locks[i], heard_done, &heard[i]), OK);
    world_pass(w, 26 * SEC);
    for (size_t i = 0; i < 25 * LIMIT; i++)
        assert_status(heard[i].times == 1 ? heard[i].status : STILE_UNCERTAIN, OK);
    script_forget(w->script);
    world_pass(w, 60 * SEC); /* no lock needs it now */
    assert_trace(w->script, "");
}

/* Waiters in the server's queue use up no places: else their holder's release could not pass. */
static void waiters_do_not_block_a_release(void **state)
{
    struct world *w = *state;
    struct stile_lock *holder = make_lock(w->clients[0], "a", NULL), *waiters[3 * LIMIT];
    struct heard heard[3 * LIMIT] = {{0}};

    slow(w);
    assert_status(stile_lock_acquire(holder, -1, NULL), OK);
    for (size_t i = 0; i < 3 * LIMIT; i++) {
        waiters[i] = make_lock(w->clients[0], "a", NULL);
        assert_status(stile_lock_acquire_async(waiters[i], -1, heard_done, &heard[i]), OK);
    }
    world_pass(w, 1 * SEC);
    assert_int_equal(model_waiting(&w->script->model), 3 * LIMIT);
    assert_status(stile_lock_release(holder, NULL), OK);
    for (size_t i = 0; i < 3 * LIMIT; i++) {
        world_pass(w, 1 * SEC);
        assert_int_equal(heard[i].times, 1);
        assert_status(stile_lock_release(waiters[i], NULL), OK);
    }
}

static void releases_go_first(void **state)
{
    struct world *w = *state;
    struct stile_lock *held = lock_number(w, 0), *locks[3 * LIMIT];
    struct heard heard[3 * LIMIT] = {{0}}, released = {0};

    slow(w);
    assert_status(stile_lock_acquire(held, -1, NULL), OK);
    for (size_t i = 0; i < 3 * LIMIT; i++) {
        locks[i] = lock_number(w, i + 1);
        assert_status(stile_lock_acquire_async(locks[i], -1, heard_done, &heard[i]), OK);
    }
    assert_status(stile_lock_release_async(held, heard_done, &released), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(released.at_ns, heard[LIMIT].at_ns);
    assert_true(released.at_ns < heard[3 * LIMIT - 1].at_ns);
}

static void cancelled_and_timed_out_in_line(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[LIMIT + 3];
    struct heard heard[LIMIT + 3] = {{0}};

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_NEVER);
    for (size_t i = 0; i < LIMIT + 3; i++) {
        locks[i] = lock_number(w, i);
        int64_t wait_ms = i == LIMIT ? 100 : i == LIMIT + 1 ? 0 : -1;
        assert_status(stile_lock_acquire_async(locks[i], wait_ms, heard_done, &heard[i]), OK);
    }
    assert_status(stile_lock_cancel(locks[LIMIT + 2]), OK);
    world_pass(w, 100 * MS);
    assert_status(heard[LIMIT + 2].status, CANCELLED);
    assert_int_equal(heard[LIMIT].times, 1);
    assert_status(heard[LIMIT].status, TIMEOUT);
    world_pass(w, 5 * SEC); /* the line stands still: a single try does not wait for ever */
    assert_int_equal(heard[LIMIT + 1].times, 1);
    assert_status(heard[LIMIT + 1].status, UNREACHABLE);
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), LIMIT);
}

/* Answers from inside the request would nest one call per request in line. */
static void a_long_line_of_failures_does_not_nest(void **state)
{
    struct world *w = *state;
    enum { LINE = 100000 };
    struct heard *heard = calloc(LINE, sizeof *heard);
    size_t answered = 0;

    assert_non_null(heard);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_REFUSED,
                  .back_ns = 1 * MS);
    w->script->untraced = true;
    for (size_t i = 0; i < LINE; i++) {
        struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
        assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard[i]), OK);
    }
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_REFUSED,
                  .inside = true);
    world_pass(w, 1 * SEC);
    for (size_t i = 0; i < LINE; i++)
        answered += heard[i].times == 1 && heard[i].status == STILE_REFUSED;
    assert_int_equal(answered, LINE);
    free(heard);
}

/* Locks freed and the client closed while requests are in line, in flight and granted. */
static void closed_with_a_line(void **state)
{
    struct world *w = *state;

    slow(w);
    for (size_t i = 0; i < 5 * LIMIT; i++) {
        struct stile_lock *lock = lock_number(w, i);
        static struct heard heard;
        assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
        if (i % 3 == 0)
            stile_lock_free(lock);
    }
    world_pass(w, 15 * MS);
    world_close_client(w, 0);
}

/* The patience of a close counts from the last answer: 2,000 releases of 10 ms each, four at a
 * time, take five seconds. */
static void closing_waits_for_a_line_that_moves(void **state)
{
    struct world *w = *state;

    for (size_t i = 0; i < MANY; i++)
        assert_status(stile_lock_acquire(lock_number(w, i), -1, NULL), OK);
    slow(w);
    world_close_client(w, 0);
    assert_int_equal(script_count(w->script, SCRIPT_RELEASE), MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_limited_claims, a_burst_is_served_in_order),
        TEST_IN(open_limited_session, a_burst_is_served_in_order),
        TEST_IN(open_limited_claims, waiters_do_not_block_a_release),
        TEST_IN(open_limited_session, a_session_outlives_a_line_of_releases),
        TEST_IN(open_limited_session, waiters_do_not_block_a_release),
        TEST_IN(open_limited_claims, releases_go_first),
        TEST_IN(open_limited_claims, cancelled_and_timed_out_in_line),
        TEST_IN(open_limited_claims, a_long_line_of_failures_does_not_nest),
        TEST_IN(open_limited_claims, closed_with_a_line),
        TEST_IN(open_limited_session, closed_with_a_line),
        TEST_IN(open_limited_claims, closing_waits_for_a_line_that_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
