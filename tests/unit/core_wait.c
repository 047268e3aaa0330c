/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that end without a grant: time-outs, cancels, doubts. Nothing may be left behind. */
#include "support/unit.h"

static struct place *place_of(struct world *w, const char *name)
{
    return model_place(&w->script->model, name);
}

/* ---- time-outs ---- */

/* Rows 6 and 7: the entry is out of the queue when the caller hears of it. */
static void a_timeout_leaves_the_queue(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire(lock, 500, NULL), TIMEOUT);
    assert_int_equal(world_now(w) - start, 500 * MS);
    assert_trace(w->script, "claim a, release a");
    assert_int_equal(model_waiting(&w->script->model), 0);
}

/* The withdrawal has time of its own: the caller's is over. */
static void a_withdrawal_may_take_longer_than_the_wait(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);

    script_occupy(w->script, "a", NEVER);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .there_ns = 1000 * MS, .back_ns = 1000 * MS);
    assert_status(stile_lock_acquire(lock, 500, NULL), TIMEOUT);
    assert_int_equal(world_now(w) - start, 2500 * MS);
    assert_int_equal(model_waiting(&w->script->model), 0);
}

/* ... but not for ever; and until it is answered the handle and the turn stay taken. */
static void an_unanswered_withdrawal_ends_in_time(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *other = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);
    struct stile_error err;

    script_occupy(w->script, "a", NEVER);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .there_ns = 5000 * MS);
    assert_status(stile_lock_acquire(lock, 500, NULL), TIMEOUT);
    assert_int_equal(world_now(w) - start, 3500 * MS);
    assert_status(stile_lock_acquire(lock, 0, &err), UNCERTAIN);
    assert_non_null(strstr(err.message, "not answered the last release"));
    assert_status(stile_lock_acquire(other, 0, NULL), HELD);
    world_pass(w, 2000 * MS);
    assert_int_equal(model_waiting(&w->script->model), 0);
    script_vacate(w->script, "a");
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
}

static void a_timeout_races_with_the_grant(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .back_ns = 600 * MS);
    assert_status(stile_lock_acquire(lock, 500, NULL), TIMEOUT);
    world_pass(w, 1000 * MS);
    assert_false(stile_lock_held(lock));
    assert_null(place_of(w, "a")->holder);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
}

static void a_wait_longer_than_time_is_for_ever(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire_async(lock, INT64_MAX, heard_done, &heard), OK);
    world_pass(w, 1000000 * SEC);
    assert_int_equal(heard.times, 0);
    script_vacate(w->script, "a");
    world_pass(w, 0);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, OK);
}

/* ---- tries ---- */

static void a_try_asks_once(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire(lock, 0, NULL), HELD);
    assert_int_equal(world_now(w), start);
    assert_trace(w->script, "claim a");
    assert_false(script_last(w->script, SCRIPT_CLAIM)->wait);
}

static void a_try_that_is_not_answered_ends(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_NEVER, .reached = true);
    assert_status(stile_lock_acquire(lock, 0, NULL), UNREACHABLE);
    assert_int_equal(world_now(w) - start, 5000 * MS);
    assert_null(place_of(w, "a")->holder);
}

/* ---- cancels ---- */

static void cancel_while_queued(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 1000 * MS);
    assert_int_equal(model_waiting(&w->script->model), 1);
    assert_status(stile_lock_cancel(lock), OK);
    world_pass(w, 0);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_int_equal(model_waiting(&w->script->model), 0);
}

static void cancel_while_the_grant_is_on_its_way(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .back_ns = 100 * MS);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 50 * MS);
    assert_non_null(place_of(w, "a")->holder);
    assert_status(stile_lock_cancel(lock), OK);
    world_pass(w, 1000 * MS);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_false(stile_lock_held(lock));
    assert_null(place_of(w, "a")->holder);
}

static void cancel_while_pausing(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.retry_ms = 5000));

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 0);
    assert_status(stile_lock_cancel(lock), OK);
    script_forget(w->script);
    world_pass(w, 60 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_trace(w->script, "");
}

static void cancel_while_waiting_for_the_turn(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(first, 0, NULL), OK);
    assert_status(stile_lock_acquire_async(second, -1, heard_done, &heard), OK);
    assert_status(stile_lock_cancel(second), OK);
    world_pass(w, 0);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_status(stile_lock_release(first, NULL), OK);
    assert_trace(w->script, "claim a, release a");
}

/* The claim was in doubt, its withdrawal is under way: the cancel must not be forgotten. */
static void cancel_while_a_doubt_is_withdrawn(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 100 * MS);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 50 * MS);
    assert_trace(w->script, "claim a, release a");
    assert_status(stile_lock_cancel(lock), OK);
    world_pass(w, 60 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_trace(w->script, "claim a, release a");
}

/* The message is about the cancel, not about an engine that was away earlier. */
static void a_cancel_says_so(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 1000 * MS);
    assert_status(stile_lock_cancel(lock), OK);
    world_pass(w, 0);
    assert_status(heard.status, CANCELLED);
    assert_string_equal(heard.err.message, "cancelled");
}

static void cancel_does_nothing_to_one_that_does_not_wait(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_cancel(lock), OK); /* idle */
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_cancel(lock), OK); /* held */
    assert_true(stile_lock_held(lock));
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 100 * MS);
    assert_status(stile_lock_release_async(lock, heard_done, &heard), OK);
    world_pass(w, 50 * MS);
    assert_status(stile_lock_cancel(lock), OK); /* releasing */
    world_pass(w, 100 * MS);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, OK);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_status(stile_lock_cancel(lock), OK); /* lost */
    assert_status(stile_lock_release(lock, NULL), LOST);
}

static void cancel_twice_answers_once(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    script_occupy(w->script, "a", NEVER);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 100 * MS);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 0);
    assert_status(stile_lock_cancel(lock), OK);
    assert_status(stile_lock_cancel(lock), OK);
    world_pass(w, 5 * SEC);
    assert_int_equal(heard.times, 1);
    assert_trace(w->script, "claim a, release a");
}

/* ---- doubts ---- */

/* Row 9: what is in doubt is taken back before it is asked for again, or our own claim that lands
 * late would keep us out. */
static void a_claim_in_doubt_is_withdrawn_then_asked_again(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t token;

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN,
                .reached = true, .there_ns = 300 * MS, .back_ns = 100 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_trace(w->script, "claim a, release a, claim a");
    assert_status(stile_lock_token(lock, &token), OK);
    assert_int_equal(token, 2); /* the first grant did happen, and is gone */
}

static void a_try_in_doubt_is_withdrawn(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN,
                .reached = true);
    assert_status(stile_lock_acquire(lock, 0, NULL), UNCERTAIN);
    assert_trace(w->script, "claim a, release a");
    assert_null(place_of(w, "a")->holder);
}

static void doubts_end_with_the_wait(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN,
                  .back_ns = 50 * MS);
    assert_status(stile_lock_acquire(lock, 2000, NULL), UNCERTAIN);
    assert_int_equal(world_now(w) - start, 2000 * MS);
    assert_in_range(script_count(w->script, SCRIPT_CLAIM), 2, 40);
    assert_int_equal(script_count(w->script, SCRIPT_RELEASE),
                     script_count(w->script, SCRIPT_CLAIM));
}

/* An engine that is away for long can't answer the withdrawal either: the waiter keeps waiting. */
static void a_withdrawal_without_an_answer_ends_no_wait(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 20 * SEC);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 19 * SEC);
    assert_int_equal(heard.times, 0);
    world_pass(w, 2 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, OK);
    assert_trace(w->script, "claim a, release a, claim a");
}

/* A wait that is bounded ends in time, and a cancel is answered soon. */
static void a_withdrawal_without_an_answer_keeps_nobody(void **state)
{
    struct world *w = *state;
    struct heard heard[2] = {0};
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "b", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    uint64_t start = world_now(w);
    assert_status(stile_lock_acquire_async(first, 8000, heard_done, &heard[0]), OK);
    assert_status(stile_lock_acquire_async(second, -1, heard_done, &heard[1]), OK);
    world_pass(w, 10 * SEC);
    assert_status(heard[0].status, UNCERTAIN);
    assert_int_equal(heard[0].at_ns - start, 8 * SEC);
    assert_int_equal(heard[1].times, 0);
    assert_status(stile_lock_cancel(second), OK);
    world_pass(w, 4 * SEC);
    assert_int_equal(heard[1].times, 1);
    assert_status(heard[1].status, CANCELLED);
}

/* An engine that is away may come back while we wait. */
static void unreachable_is_tried_again(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_trace(w->script, "claim a, claim a, claim a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, a_timeout_leaves_the_queue),
        TEST_IN(open_one, a_withdrawal_may_take_longer_than_the_wait),
        TEST_IN(open_one, an_unanswered_withdrawal_ends_in_time),
        TEST_IN(open_one, a_timeout_races_with_the_grant),
        TEST_IN(open_one, a_wait_longer_than_time_is_for_ever),
        TEST_IN(open_one, a_try_asks_once),
        TEST_IN(open_one, a_try_that_is_not_answered_ends),
        TEST_IN(open_one, cancel_while_queued),
        TEST_IN(open_one, cancel_while_the_grant_is_on_its_way),
        TEST_IN(open_one, cancel_while_pausing),
        TEST_IN(open_one, cancel_while_waiting_for_the_turn),
        TEST_IN(open_one, cancel_while_a_doubt_is_withdrawn),
        TEST_IN(open_one, a_cancel_says_so),
        TEST_IN(open_one, cancel_does_nothing_to_one_that_does_not_wait),
        TEST_IN(open_one, cancel_twice_answers_once),
        TEST_IN(open_one, a_claim_in_doubt_is_withdrawn_then_asked_again),
        TEST_IN(open_one, a_try_in_doubt_is_withdrawn),
        TEST_IN(open_one, doubts_end_with_the_wait),
        TEST_IN(open_one, a_withdrawal_without_an_answer_ends_no_wait),
        TEST_IN(open_one, a_withdrawal_without_an_answer_keeps_nobody),
        TEST_IN(open_one, unreachable_is_tried_again),
    };
    return cmocka_run_group_tests_name("core_wait", tests, NULL, NULL);
}
