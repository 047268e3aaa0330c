/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks as one, and stile_with(). */
#include "support/unit.h"

static void acquired_in_canonical_order(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {
        make_lock(w->clients[0], "c", NULL), make_lock(w->clients[0], "\xffz", NULL),
        make_lock(w->clients[0], "a", NULL), make_lock(w->clients[0], "ab", NULL)};
    struct stile_lock *before[4];

    memcpy(before, locks, sizeof(locks));
    assert_status(stile_locks_acquire(locks, 4, -1, NULL), OK);
    assert_trace(w->script, "claim a, claim ab, claim c, claim \xffz"); /* bytewise */
    assert_memory_equal(before, locks, sizeof(locks)); /* the caller's order stays */
    for (int i = 0; i < 4; i++)
        assert_true(stile_lock_held(locks[i]));
    assert_status(stile_locks_release(locks, 4, NULL), OK);
    for (int i = 0; i < 4; i++)
        assert_false(stile_lock_held(locks[i]));
}

static void all_or_none(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {make_lock(w->clients[0], "b", NULL),
                                  make_lock(w->clients[0], "a", NULL),
                                  make_lock(w->clients[0], "c", NULL)};
    struct stile_error err;

    script_occupy(w->script, "c", NEVER);
    assert_status(stile_locks_acquire(locks, 3, 0, &err), HELD);
    assert_non_null(strstr(err.message, "'c'"));
    assert_trace(w->script, "claim a, claim b, claim c, release b, release a");
    assert_null(model_place(&w->script->model, "a")->holder);
    assert_null(model_place(&w->script->model, "b")->holder);
    script_vacate(w->script, "c");
    assert_status(stile_locks_acquire(locks, 3, 0, NULL), OK);
}

static void one_deadline_for_all(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {make_lock(w->clients[0], "a", NULL),
                                  make_lock(w->clients[0], "b", NULL)};
    uint64_t start = world_now(w);

    script_occupy(w->script, "a", 600 * MS);
    script_occupy(w->script, "b", NEVER);
    assert_status(stile_locks_acquire(locks, 2, 1000, NULL), TIMEOUT);
    assert_int_equal(world_now(w) - start, 1000 * MS);
    assert_int_equal(model_waiting(&w->script->model), 0);
    assert_null(model_place(&w->script->model, "a")->holder);
}

/* The time was up as the first was granted: the second is tried, and that it is held means that
 * the time did not suffice. */
static void out_of_time_between_two_is_a_timeout(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {make_lock(w->clients[0], "a", NULL),
                                  make_lock(w->clients[0], "b", NULL)};
    struct stile_error err = {0};

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .back_ns = 1000 * MS - 1);
    script_occupy(w->script, "b", NEVER);
    assert_status(stile_locks_acquire(locks, 2, 1000, &err), TIMEOUT);
    assert_int_equal(err.status, STILE_TIMEOUT);
    assert_false(stile_lock_held(locks[0]));
}

static void a_loss_while_waiting_for_the_rest(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {make_lock(w->clients[0], "a", NULL),
                                  make_lock(w->clients[0], "b", NULL)};
    struct stile_error err;

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    script_occupy(w->script, "b", 60 * SEC);
    assert_status(stile_locks_acquire(locks, 2, -1, &err), LOST);
    assert_non_null(strstr(err.message, "'a' was lost while waiting for the others"));
    assert_false(stile_lock_held(locks[1]));
    assert_null(model_place(&w->script->model, "b")->holder);
    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_MODEL);
    assert_status(stile_locks_acquire(locks, 2, -1, NULL), OK);
}

static void named_twice_would_wait_for_itself(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {make_lock(w->clients[0], "a", NULL),
                                  make_lock(w->clients[0], "b", NULL),
                                  make_lock(w->clients[0], "a", NULL)};
    struct stile_error err;

    assert_status(stile_locks_acquire(locks, 3, -1, &err), MISUSE);
    assert_non_null(strstr(err.message, "'a' is named twice"));
    assert_trace(w->script, "");
}

static void bad_arrays(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {make_lock(w->clients[0], "a", NULL), NULL};
    struct stile_error err;

    assert_status(stile_locks_acquire(locks, 2, -1, &err), MISUSE);
    assert_string_equal(err.message, "acquiring several locks: number 2 isn't a lock");
    assert_status(stile_locks_acquire(NULL, 2, -1, NULL), MISUSE);
    assert_status(stile_locks_acquire(locks, 0, -1, NULL), MISUSE);
    assert_status(stile_locks_release(NULL, 2, NULL), MISUSE);
    assert_trace(w->script, "");
}

static void release_goes_on_after_a_failure(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[] = {make_lock(w->clients[0], "a", NULL),
                                  make_lock(w->clients[0], "b", NULL),
                                  make_lock(w->clients[0], "c", NULL)};
    struct stile_error err;

    assert_status(stile_locks_acquire(locks, 3, -1, NULL), OK);
    script_vacate(w->script, "b");
    assert_status(stile_locks_release(locks, 3, &err), LOST);
    assert_non_null(strstr(err.message, "'b'"));
    for (int i = 0; i < 3; i++)
        assert_false(stile_lock_held(locks[i]));
    assert_null(model_place(&w->script->model, "a")->holder);
}

/* Two callers that take the same two locks in opposite orders both get them. */
static void crossed_orders_do_not_block(void **state)
{
    struct world *w = *state;
    struct stile_lock *here[] = {make_lock(w->clients[0], "a", NULL),
                                 make_lock(w->clients[0], "b", NULL)};

    /* The other one has a already, as it would by the canonical order, and wants b next. */
    script_occupy(w->script, "a", 5 * SEC);
    struct stile_lock *crossed[] = {here[1], here[0]};
    assert_status(stile_locks_acquire(crossed, 2, -1, NULL), OK);
    assert_trace(w->script, "claim a, claim b"); /* b stayed free while it waited for a */
}

/* ---- with ---- */

static int note_token(struct stile_lock *lock, void *data)
{
    return stile_lock_token(lock, data) ? -1 : 42;
}

static void with_calls_under_the_lock(void **state)
{
    struct world *w = *state;
    uint64_t token = 0;
    int result = 0;

    assert_status(stile_with(w->clients[0], "a", NULL, note_token, &token, &result, NULL), OK);
    assert_int_equal(result, 42);
    assert_int_equal(token, 1);
    assert_trace(w->script, "claim a, release a");
    assert_null(w->clients[0]->locks);
    assert_status(stile_with(w->clients[0], "a", NULL, note_token, &token, NULL, NULL), OK);
}

static int sleep_over_it(struct stile_lock *lock, void *data)
{
    world_jump(data, 20 * SEC);
    return stile_lock_held(lock);
}

static void with_says_when_it_did_not_last(void **state)
{
    struct world *w = *state;
    int result = 7;

    assert_status(stile_with(w->clients[0], "a", NULL, sleep_over_it, w, &result, NULL), LOST);
    assert_int_equal(result, 0);
    assert_null(w->clients[0]->locks);
    assert_null(model_place(&w->script->model, "a")->holder);
}

static int release_early(struct stile_lock *lock, void *data)
{
    (void)data;
    return (int)stile_lock_release(lock, NULL);
}

static void with_releases_on_every_path(void **state)
{
    struct world *w = *state;
    int result = 7;

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    assert_status(stile_with(w->clients[0], "a", NULL, note_token, NULL, &result, NULL), REFUSED);
    assert_int_equal(result, 7); /* not called */
    assert_null(w->clients[0]->locks);
    assert_status(stile_with(w->clients[0], "a", NULL, release_early, NULL, &result, NULL), MISUSE);
    assert_null(w->clients[0]->locks);
    assert_null(model_place(&w->script->model, "a")->holder);
    assert_status(stile_with(w->clients[0], "", NULL, note_token, NULL, NULL, NULL), MISUSE);
    assert_status(stile_with(w->clients[0], "a", NULL, NULL, NULL, NULL, NULL), MISUSE);
    assert_status(stile_with(NULL, "a", NULL, note_token, NULL, NULL, NULL), MISUSE);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    uint64_t token;
    assert_status(stile_with(w->clients[0], "a", NULL, note_token, &token, NULL, NULL),
                  UNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, acquired_in_canonical_order),
        TEST_IN(open_one, all_or_none),
        TEST_IN(open_one, one_deadline_for_all),
        TEST_IN(open_one, out_of_time_between_two_is_a_timeout),
        TEST_IN(open_one, a_loss_while_waiting_for_the_rest),
        TEST_IN(open_one, named_twice_would_wait_for_itself),
        TEST_IN(open_one, bad_arrays),
        TEST_IN(open_one, release_goes_on_after_a_failure),
        TEST_IN(open_one, crossed_orders_do_not_block),
        TEST_IN(open_one, with_calls_under_the_lock),
        TEST_IN(open_one, with_says_when_it_did_not_last),
        TEST_IN(open_one, with_releases_on_every_path),
    };
    return cmocka_run_group_tests_name("core_multi", tests, NULL, NULL);
}
