/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a name inside a client: one claim at a time reaches an engine that cannot
 * distinguish two claims of one client. */
#include <stdlib.h>

#include "support/unit.h"

#define WAITERS 5

static void all_inside(struct script *script)
{
    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(script, (enum script_call)call, .inside = true);
}

static void first_come_first_served(void **state)
{
    struct world *w = *state;
    struct heard heard[WAITERS] = {0};
    struct stile_lock *locks[WAITERS];

    for (int i = 0; i < WAITERS; i++) {
        locks[i] = make_lock(w->clients[0], "a", NULL);
        assert_status(stile_lock_acquire_async(locks[i], -1, heard_done, &heard[i]), OK);
    }
    for (int i = 0; i < WAITERS; i++) {
        world_pass(w, 1 * SEC);
        for (int j = 0; j < WAITERS; j++) {
            assert_int_equal(heard[j].times, j <= i ? 1 : 0);
            assert_int_equal(stile_lock_held(locks[j]), i == j);
        }
        assert_int_equal(script_count(w->script, SCRIPT_CLAIM), i + 1);
        assert_status(stile_lock_release(locks[i], NULL), OK);
    }
    assert_int_equal(w->clients[0]->name_queues.n, 0);
}

/* Each that goes costs the same, however many are behind it, and every third gives up. */
static void thousands_in_one_turn(void **state)
{
    enum { MANY = 5000 };
    struct world *w = *state;
    struct heard *heard = calloc(MANY, sizeof *heard);
    struct stile_lock **locks = calloc(MANY, sizeof *locks);
    size_t served = 0;

    assert_true(heard && locks);
    for (size_t i = 0; i < MANY; i++) {
        locks[i] = make_lock(w->clients[0], "a", NULL);
        assert_status(stile_lock_acquire_async(locks[i], -1, heard_done, &heard[i]), OK);
    }
    for (size_t i = 1; i < MANY; i += 3)
        assert_status(stile_lock_cancel(locks[i]), OK);
    for (size_t i = 0; i < MANY; i++) {
        world_pass(w, 0);
        assert_int_equal(heard[i].times, 1);
        if (i % 3 == 1)
            continue;
        assert_true(stile_lock_held(locks[i]));
        assert_int_equal(script_count(w->script, SCRIPT_CLAIM), ++served);
        assert_status(stile_lock_release(locks[i], NULL), OK);
    }
    assert_int_equal(w->clients[0]->name_queues.n, 0);
    free(locks);
    free(heard);
}

/* ---- an engine that keeps them apart ---- */

static void apart_all_reach_the_engine(void **state)
{
    struct world *w = *state;
    struct heard heard[2] = {0};
    struct stile_lock *locks[2];

    for (int i = 0; i < 2; i++) {
        locks[i] = make_lock(w->clients[0], "a", NULL);
        assert_status(stile_lock_acquire_async(locks[i], -1, heard_done, &heard[i]), OK);
    }
    world_pass(w, 1 * SEC);
    assert_trace(w->script, "claim a, claim a");
    assert_int_equal(model_waiting(&w->script->model), 1);
    assert_status(stile_lock_release(locks[0], NULL), OK);
    world_pass(w, 0);
    assert_true(stile_lock_held(locks[1]));
}

static void apart_a_try_asks_the_engine(void **state)
{
    struct world *w = *state;
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    assert_status(stile_lock_acquire(second, 0, NULL), HELD);
    assert_trace(w->script, "claim a, claim a");
}

/* ---- one that does not ---- */

static void a_try_on_a_taken_turn_asks_nobody(void **state)
{
    struct world *w = *state;
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    assert_status(stile_lock_acquire(second, 0, &err), HELD);
    assert_string_equal(err.message, "acquiring 'a': held by another lock handle of this client");
    assert_trace(w->script, "claim a");
    assert_status(stile_lock_release(first, NULL), OK);
    assert_status(stile_lock_acquire(second, 0, NULL), OK);
}

static void a_timeout_in_the_turn_tells_the_engine_nothing(void **state)
{
    struct world *w = *state;
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);
    uint64_t start;

    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    start = world_now(w);
    assert_status(stile_lock_acquire(second, 700, NULL), TIMEOUT);
    assert_int_equal(world_now(w) - start, 700 * MS);
    assert_status(stile_lock_release(first, NULL), OK);
    assert_trace(w->script, "claim a, release a");
}

/* The wait's time goes on from the turn to the engine. */
static void one_deadline_for_turn_and_engine(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);
    uint64_t start;

    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    start = world_now(w);
    assert_status(stile_lock_acquire_async(second, 1000, heard_done, &heard), OK);
    world_pass(w, 600 * MS);
    assert_status(stile_lock_release(first, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_NEVER);
    world_pass(w, 2 * SEC);
    assert_status(heard.status, OK); /* the turn came, and the claim was sent before the rule */
    assert_status(stile_lock_release(second, NULL), OK);

    start = world_now(w);
    heard = (struct heard){0};
    assert_status(stile_lock_acquire_async(second, 1000, heard_done, &heard), OK);
    world_pass(w, 5 * SEC);
    assert_status(heard.status, TIMEOUT);
    assert_int_equal(heard.at_ns - start, 1000 * MS);
}

/* The turn is passed on when the engine has answered, not before: or the next claim would meet our
 * own last one. */
static void the_turn_is_kept_until_the_release_is_answered(void **state)
{
    struct world *w = *state;
    struct heard released = {0}, granted = {0};
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    assert_status(stile_lock_acquire_async(second, -1, heard_done, &granted), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .there_ns = 4 * SEC, .back_ns = 4 * SEC);
    assert_status(stile_lock_release_async(first, heard_done, &released), OK);
    world_pass(w, 7 * SEC);
    assert_int_equal(released.times, 1); /* out of patience */
    assert_status(released.status, UNREACHABLE);
    assert_int_equal(granted.times, 0);
    assert_trace(w->script, "claim a, release a");
    world_pass(w, 1 * SEC);
    assert_int_equal(granted.times, 1);
    assert_trace(w->script, "claim a, release a, claim a");
}

static void the_turn_passes_on_after_a_loss(void **state)
{
    struct world *w = *state;
    struct heard granted = {0};
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    assert_status(stile_lock_acquire_async(second, -1, heard_done, &granted), OK);
    script_tell_lost(w->script, "a");
    world_pass(w, 0); /* the loser has not called release yet */
    assert_int_equal(granted.times, 1);
    assert_status(granted.status, OK);
    assert_status(stile_lock_release(first, NULL), LOST);
    assert_true(stile_lock_held(second));
}

static void the_turn_passes_on_after_a_failure(void **state)
{
    struct world *w = *state;
    struct heard heard[2] = {0};

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    for (int i = 0; i < 2; i++)
        assert_status(stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), -1, heard_done,
                                               &heard[i]),
                      OK);
    world_pass(w, 0);
    assert_status(heard[0].status, REFUSED);
    assert_int_equal(heard[1].times, 1);
    assert_status(heard[1].status, OK);
}

static void one_from_the_middle_may_go(void **state)
{
    struct world *w = *state;
    struct heard heard[WAITERS] = {0};
    struct stile_lock *locks[WAITERS];

    for (int i = 0; i < WAITERS; i++) {
        locks[i] = make_lock(w->clients[0], "a", NULL);
        assert_status(stile_lock_acquire_async(locks[i], -1, heard_done, &heard[i]), OK);
    }
    world_pass(w, 0);
    assert_status(stile_lock_cancel(locks[2]), OK);
    assert_status(stile_lock_cancel(locks[WAITERS - 1]), OK);
    assert_status(stile_lock_release(locks[0], NULL), OK);
    world_pass(w, 0);
    assert_true(stile_lock_held(locks[1]));
    assert_status(stile_lock_release(locks[1], NULL), OK);
    world_pass(w, 0);
    assert_true(stile_lock_held(locks[3]));
    assert_status(stile_lock_release(locks[3], NULL), OK);
    assert_int_equal(w->clients[0]->name_queues.n, 0);
}

static void names_do_not_wait_for_each_other(void **state)
{
    struct world *w = *state;
    char name[16];

    for (int i = 0; i < 1000; i++) { /* the table grows meanwhile */
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_status(stile_lock_acquire(make_lock(w->clients[0], name, NULL), 0, NULL), OK);
    }
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        struct stile_lock *lock = make_lock(w->clients[0], name, NULL);
        assert_status(stile_lock_acquire(lock, 0, NULL), HELD);
        stile_lock_free(lock);
    }
    assert_int_equal(w->clients[0]->name_queues.n, 1000);
}

/* A queue that is refused from inside, one after the other, must not eat the stack. */
static void a_long_queue_is_refused_without_recursion(void **state)
{
    enum { MANY = 50000 };
    struct world *w = *state;
    struct heard *heard = calloc(MANY, sizeof(*heard));
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);

    w->script->untraced = true;
    all_inside(w->script);
    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .inside = true, .act = SCRIPT_FAIL,
                  .status = STILE_REFUSED);
    for (int i = 0; i < MANY; i++)
        assert_status(stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), -1, heard_done,
                                               &heard[i]),
                      OK);
    assert_status(stile_lock_release(first, NULL), OK);
    world_pass(w, 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(heard[i].times, 1);
        assert_status(heard[i].status, REFUSED);
    }
    free(heard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, first_come_first_served),
        TEST_IN(open_one, thousands_in_one_turn),
        TEST_IN(open_apart, apart_all_reach_the_engine),
        TEST_IN(open_apart, apart_a_try_asks_the_engine),
        TEST_IN(open_one, a_try_on_a_taken_turn_asks_nobody),
        TEST_IN(open_one, a_timeout_in_the_turn_tells_the_engine_nothing),
        TEST_IN(open_one, one_deadline_for_turn_and_engine),
        TEST_IN(open_one, the_turn_is_kept_until_the_release_is_answered),
        TEST_IN(open_one, the_turn_passes_on_after_a_loss),
        TEST_IN(open_one, the_turn_passes_on_after_a_failure),
        TEST_IN(open_one, one_from_the_middle_may_go),
        TEST_IN(open_one, names_do_not_wait_for_each_other),
        TEST_IN(open_one, a_long_queue_is_refused_without_recursion),
    };
    return cmocka_run_group_tests_name("core_name_queue", tests, NULL, NULL);
}
