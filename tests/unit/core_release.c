/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Giving back: release and renewal are one machine (row 8), and the engine may be slow or silent.
 */
#include "core/events.h"
#include "core/lock.h"
#include "support/unit.h"

static struct place *place_of(struct world *w, const char *name)
{
    return model_place(&w->script->model, name);
}

static void acquire_and_release(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t token;

    for (uint64_t i = 1; i <= 3; i++) {
        assert_status(stile_lock_acquire(lock, -1, NULL), OK);
        assert_status(stile_lock_token(lock, &token), OK);
        assert_int_equal(token, i);
        assert_status(stile_lock_release(lock, NULL), OK);
        assert_false(stile_lock_held(lock));
        assert_int_equal(stile_lock_remaining_ms(lock), 0);
        assert_status(stile_lock_token(lock, &token), MISUSE);
    }
    assert_trace(w->script, "claim a, release a, claim a, release a, claim a, release a");
}

static void answers_from_inside(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(w->script, (enum script_call)call, .inside = true);
    for (int i = 0; i < 3; i++) {
        assert_status(stile_lock_acquire(lock, -1, NULL), OK);
        world_pass(w, 20 * SEC);
        assert_true(stile_lock_held(lock));
        assert_status(stile_lock_release(lock, NULL), OK);
    }
    stile_lock_free(lock);
}

static void no_renewal_after_release(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    script_forget(w->script);
    world_pass(w, 60 * SEC);
    assert_trace(w->script, "");
}

/* ... nor while the release is on its way. */
static void no_renewal_during_release(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    assert_status(stile_lock_release(lock, NULL), UNREACHABLE);
    world_pass(w, 60 * SEC);
    assert_trace(w->script, "claim a, release a");
}

static void release_while_a_renewal_is_under_way(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .there_ns = 200 * MS, .back_ns = 200 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 3100 * MS);
    assert_trace(w->script, "claim a, renew 1");
    assert_status(stile_lock_release(lock, NULL), OK);
    world_pass(w, 60 * SEC);
    assert_false(stile_lock_held(lock));
    assert_null(place_of(w, "a")->holder);
    assert_trace(w->script, "claim a, renew 1, release a");
}

/* An engine that lets a late answer through all the same can't bring the lock back. */
static void late_answers_are_ignored(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));
    struct claim *claim = lock->claim;
    struct stile_error err = {.status = STILE_LOST};

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    assert_status(stile_lock_release(lock, NULL), UNREACHABLE);
    core_events.renewed(claim, world_now(w), 10 * SEC);
    core_events.unknown(claim);
    core_events.lost(claim, &err);
    core_events.granted(claim, 7, world_now(w), 10 * SEC);
    core_events.session_renewed(w->clients[0]->engine, NULL, world_now(w), 10 * SEC);
    assert_false(stile_lock_held(lock));
    assert_null(w->clients[0]->leases.first);
    world_pass(w, 60 * SEC);
    assert_int_equal(lost.times, 0);
    assert_trace(w->script, "claim a, release a");
}

/* ---- the engine doesn't answer ---- */

static void patience_ends_and_the_late_answer_frees_the_handle(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;
    uint64_t start;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    start = world_now(w);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .there_ns = 10 * SEC);
    assert_status(stile_lock_release(lock, &err), UNREACHABLE);
    assert_int_equal(world_now(w) - start, 3000 * MS);
    assert_non_null(strstr(err.message, "did not answer in time"));
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), MISUSE);
    assert_status(stile_lock_acquire(lock, -1, NULL), UNCERTAIN);
    world_pass(w, 8 * SEC);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
}

/* Its user has waited for the release once; the end of the client does not wait for it again. */
static void closing_does_not_wait_for_what_was_given_up(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    assert_status(stile_lock_release(lock, NULL), UNREACHABLE);
    uint64_t start = world_now(w);
    world_close_client(w, 0);
    assert_int_equal(w->script->closed_ns, start);
}

static void a_refused_release_says_why(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    assert_status(stile_lock_release(lock, &err), REFUSED);
    assert_string_equal(err.message, "releasing 'a': the script says so");
    assert_int_equal(err.status, STILE_REFUSED);
}

/* A balancer answers 503 for a while, or a role lacks a right: the session would keep the name for
 * ever if that were the end of it. */
static void a_refused_release_is_repeated(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    assert_status(stile_lock_release(lock, NULL), REFUSED);
    world_pass(w, 60 * SEC);
    assert_non_null(place_of(w, "a")->holder);
    size_t asked = script_count(w->script, SCRIPT_RELEASE);
    assert_in_range(asked, 60, 600); /* with growing pauses, a second at most */

    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_MODEL);
    world_pass(w, 2 * SEC);
    assert_null(place_of(w, "a")->holder);
    assert_int_equal(script_count(w->script, SCRIPT_RELEASE), asked + 1);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
}

/* A connection that broke, a failover: the caller need not hear of what passes in time. */
static void what_may_pass_is_waited_out(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_null(place_of(w, "a")->holder);
    assert_trace(w->script, "claim a, release a, release a, release a");
}

/* Repetitions do not prolong the caller's wait, and it hears what the engine said last. */
static void patience_with_what_may_pass_ends(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    uint64_t start = world_now(w);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    assert_status(stile_lock_release(lock, &err), UNREACHABLE);
    assert_int_equal(world_now(w) - start, 3000 * MS);
    assert_string_equal(err.message, "releasing 'a': the script says so");

    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_MODEL);
    world_pass(w, 2 * SEC);
    assert_null(place_of(w, "a")->holder);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
}

/* Nor is the end of the client a reason to leave the name locked for a whole lease. */
static void closing_waits_out_what_may_pass(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    world_close_client(w, 0);
    assert_null(place_of(w, "a")->holder);
}

static void a_claim_of_its_own_lease_is_not_released_for_ever(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_release(lock, NULL), UNREACHABLE);
    world_pass(w, 12 * SEC); /* its TTL of ten seconds is over */
    script_forget(w->script);
    world_pass(w, 60 * SEC);
    assert_trace(w->script, "");
}

/* A renewal that the server executed, and whose answer was lost, has extended the lease. */
static void an_unanswered_renewal_prolongs_the_repetition(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN, .reached = true);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 9 * SEC);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_release(lock, NULL), UNREACHABLE); /* after twelve seconds */
    assert_non_null(place_of(w, "a")->holder);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_MODEL);
    world_pass(w, 2 * SEC);
    assert_null(place_of(w, "a")->holder);
}

/* What was lost is cleared away in the same manner, while its user may come and go. */
static void a_loss_is_cleared_away_again_and_again(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    script_tell_lost(w->script, "a");
    world_pass(w, 1 * SEC);
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_status(stile_lock_acquire(lock, 0, NULL), UNCERTAIN);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_MODEL);
    world_pass(w, 2 * SEC);
    assert_null(place_of(w, "a")->holder);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
}

/* The waiter asks again only when its claim in doubt is known to be gone. */
static void a_claim_in_doubt_is_withdrawn_before_it_is_made_again(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct heard heard = {0};

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN,
                .reached = true);
    for (int i = 0; i < 3; i++)
        SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 5 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, OK);
    assert_trace(w->script, "claim a, release a, release a, release a, release a, claim a, renew "
                            "0");
}

static void a_wait_ends_in_time_while_a_withdrawal_is_repeated(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[2] = {make_lock(w->clients[0], "a", NULL),
                                   make_lock(w->clients[0], "b", NULL)};
    struct heard heard[2] = {{0}};

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_acquire_async(locks[0], 5000, heard_done, &heard[0]), OK);
    assert_status(stile_lock_acquire_async(locks[1], -1, heard_done, &heard[1]), OK);
    uint64_t start = world_now(w);
    world_pass(w, 1 * SEC);
    assert_status(stile_lock_cancel(locks[1]), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(heard[1].times, 1);
    assert_status(heard[1].status, CANCELLED);
    world_pass(w, 10 * SEC);
    assert_int_equal(heard[0].times, 1);
    assert_int_equal(heard[0].at_ns, start + 5 * SEC);
}

static void released_but_it_was_not_ours_any_more(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    script_vacate(w->script, "a"); /* gone, and no event reported it */
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
}

/* ---- freeing ---- */

static void free_gives_back_what_is_held(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .back_ns = 100 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    stile_lock_free(lock);
    stile_lock_free(lock); /* twice, though it is not quite gone yet: nothing happens */
    world_pass(w, 1 * SEC);
    stile_lock_free(lock);
    assert_null(place_of(w, "a")->holder);
    assert_null(w->clients[0]->locks);
}

static void free_withdraws_what_waits(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 0);
    stile_lock_free(lock);
    world_pass(w, 0);
    assert_int_equal(model_waiting(&w->script->model), 0);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_null(w->clients[0]->locks);
}

static void free_while_a_release_is_under_way(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 100 * MS);
    assert_status(stile_lock_release_async(lock, heard_done, &heard), OK);
    stile_lock_free(lock);
    world_pass(w, 1 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, OK);
    assert_null(w->clients[0]->locks);
}

/* Once free() has returned, nobody wants to hear that it is lost. */
static void no_lost_callback_after_free(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .back_ns = 100 * MS);
    world_jump(w, 20 * SEC);
    lock_lost_at_deadline(lock); /* its callback is due, and not made yet */
    stile_lock_free(lock);
    world_pass(w, 1 * SEC);
    assert_int_equal(lost.times, 0);
    assert_null(w->clients[0]->locks);
}

static void free_after_a_suspend(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));

    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(w->script, (enum script_call)call, .inside = true);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_jump(w, 20 * SEC);
    stile_lock_free(lock);
    assert_null(w->clients[0]->locks);
    world_pass(w, 1 * SEC);
    assert_int_equal(lost.times, 0);
}

/* The callback of a former life must not be taken for one of the present. */
static void no_lost_callback_after_the_next_acquire(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));

    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(w->script, (enum script_call)call, .inside = true);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_jump(w, 20 * SEC);
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 0);
    assert_true(stile_lock_held(lock));
    assert_int_equal(lost.times, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, acquire_and_release),
        TEST_IN(open_one, answers_from_inside),
        TEST_IN(open_one, no_renewal_after_release),
        TEST_IN(open_one, no_renewal_during_release),
        TEST_IN(open_one, release_while_a_renewal_is_under_way),
        TEST_IN(open_one, late_answers_are_ignored),
        TEST_IN(open_one, patience_ends_and_the_late_answer_frees_the_handle),
        TEST_IN(open_one, closing_does_not_wait_for_what_was_given_up),
        TEST_IN(open_one, a_refused_release_says_why),
        TEST_IN(open_session, a_refused_release_is_repeated),
        TEST_IN(open_one, what_may_pass_is_waited_out),
        TEST_IN(open_one, patience_with_what_may_pass_ends),
        TEST_IN(open_one, closing_waits_out_what_may_pass),
        TEST_IN(open_one, a_claim_of_its_own_lease_is_not_released_for_ever),
        TEST_IN(open_one, an_unanswered_renewal_prolongs_the_repetition),
        TEST_IN(open_session, a_loss_is_cleared_away_again_and_again),
        TEST_IN(open_session, a_claim_in_doubt_is_withdrawn_before_it_is_made_again),
        TEST_IN(open_session, a_wait_ends_in_time_while_a_withdrawal_is_repeated),
        TEST_IN(open_one, released_but_it_was_not_ours_any_more),
        TEST_IN(open_one, free_gives_back_what_is_held),
        TEST_IN(open_one, free_withdraws_what_waits),
        TEST_IN(open_one, free_while_a_release_is_under_way),
        TEST_IN(open_one, no_lost_callback_after_free),
        TEST_IN(open_one, free_after_a_suspend),
        TEST_IN(open_one, no_lost_callback_after_the_next_acquire),
    };
    return cmocka_run_group_tests_name("core_release", tests, NULL, NULL);
}
