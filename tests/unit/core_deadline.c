/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines: where they come from, how renewals move them, and what happens when they pass. */
#include "core/lease.h"
#include "support/loop_virtual.h"
#include "support/unit.h"

/* ---- the sum ---- */

static void ttl_less_drift_and_margin(void **state)
{
    (void)state;
    /* 1 % + 2 ms of drift; a twentieth as margin, 250 ms at most. */
    assert_int_equal(lease_deadline(SEC, 1000 * MS), SEC + (1000 - 12 - 50) * MS);
    assert_int_equal(lease_deadline(SEC, 10000 * MS), SEC + (10000 - 102 - 250) * MS);
    assert_int_equal(lease_deadline(SEC, 30000 * MS), SEC + (30000 - 302 - 250) * MS);
}

static void no_ttl_is_no_deadline(void **state)
{
    (void)state;
    assert_true(lease_deadline(SEC, 0) == NEVER);
}

static void too_short_a_ttl_is_over_at_once(void **state)
{
    (void)state;
    assert_int_equal(lease_deadline(SEC, 2 * MS), SEC);
}

/* ---- grants ---- */

static void counts_from_before_sending(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w), token;

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .there_ns = 100 * MS, .back_ns = 200 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_int_equal(world_now(w) - start, 300 * MS);
    assert_int_equal(stile_lock_remaining_ms(lock), 9648 - 300);
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_token(lock, &token), OK);
    assert_int_equal(token, 1);
    assert_int_equal(script_last(w->script, SCRIPT_CLAIM)->ttl_ns, 10 * SEC);
}

/* Row 5: what the engine really keeps it for counts, not what we asked for. */
static void the_engines_ttl_counts(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .ttl_ns = 1000 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_int_equal(stile_lock_remaining_ms(lock), 938);
    assert_int_equal(stile_lock_ttl_ms(lock), 1000);
    script_forget(w->script);
    world_pass(w, 30 * SEC); /* renewed more often than the policy says */
    assert_true(stile_lock_held(lock));
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 30, 100);
}

static void process_lease_has_no_deadline(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_true(stile_lock_remaining_ms(lock) == STILE_NO_DEADLINE);
    assert_true(stile_lock_ttl_ms(lock) == STILE_NO_DEADLINE);
    world_jump(w, 1000000 * SEC);
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_trace(w->script, "claim a, release a");
}

/* An answer that comes after the deadline is no grant: it is withdrawn and asked for again. */
static void granted_too_late_is_withdrawn(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t token;

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .back_ns = 9648 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_trace(w->script, "claim a, release a, claim a");
    assert_status(stile_lock_token(lock, &token), OK);
    assert_int_equal(token, 2);
    assert_true(stile_lock_held(lock));
}

static void granted_just_in_time_is_held(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .back_ns = 9647 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_trace(w->script, "claim a");
    assert_int_equal(stile_lock_remaining_ms(lock), 1);
}

static void a_try_granted_too_late_is_unreachable(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.ttl_ms = 1000));
    struct stile_error err;

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .back_ns = 2 * SEC);
    assert_status(stile_lock_acquire(lock, 0, &err), UNREACHABLE);
    assert_non_null(strstr(err.message, "after the deadline"));
    assert_false(stile_lock_held(lock));
    assert_null(model_place(&w->script->model, "a")->holder);
}

/* Neither 0 nor a negative number in a database's bigint could be compared by a guard. */
static void granted_without_a_token_is_withdrawn(void **state)
{
    static const uint64_t before[] = {UINT64_MAX, INT64_MAX};
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    for (size_t i = 0; i < 2; i++) {
        struct place *place = model_place(&w->script->model, "a");
        place->token = before[i];
        assert_status(stile_lock_acquire(lock, -1, &err), CORRUPT);
        assert_non_null(strstr(err.message, "no token"));
        assert_false(stile_lock_held(lock));
        assert_null(model_place(&w->script->model, "a")->holder);
    }
}

/* ---- renewals ---- */

static void renewal_moves_it(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .there_ns = 100 * MS, .back_ns = 100 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 3000 * MS);
    assert_trace(w->script, "claim a, renew 1");
    assert_int_equal(stile_lock_remaining_ms(lock), 9648 - 3000);
    world_pass(w, 200 * MS); /* answered: counted from before it was sent */
    assert_int_equal(stile_lock_remaining_ms(lock), 9648 - 200);
    world_pass(w, 1000 * SEC);
    assert_true(stile_lock_held(lock));
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 330, 336);
}

/* Row 9: not knowing is no loss. */
static void unknown_renewal_is_retried_until_the_deadline(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));
    uint64_t start = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN, .back_ns = 10 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 9647 * MS);
    assert_true(stile_lock_held(lock));
    assert_int_equal(lost.times, 0);
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 10, 500);
    world_pass(w, 1 * MS);
    assert_false(stile_lock_held(lock));
    assert_int_equal(lost.times, 1);
    assert_int_equal(lost.at_ns - start, 9648 * MS);
}

static void unknown_then_renewed_goes_on(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN, .reached = true);
    SCRIPT_NEXT(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN);
    world_pass(w, 60 * SEC);
    assert_true(stile_lock_held(lock));
    assert_int_equal(model_place(&w->script->model, "a")->token, 1);
}

/* An engine that knows at once that it can't know must not be asked again at once. */
static void unknown_from_inside_does_not_spin(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN, .inside = true);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 9647 * MS);
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 10, 500);
    assert_true(stile_lock_held(lock));
}

static void renewed_from_inside_does_not_spin(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .inside = true, .ttl_ns = 500 * MS);
    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .inside = true);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 10 * SEC);
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 20, 100);
    assert_true(stile_lock_held(lock));
}

/* A renewal may be unanswered for good; nothing is asked twice meanwhile. */
static void unanswered_renewal_ends_at_the_deadline(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 9647 * MS);
    assert_trace(w->script, "claim a, renew 1");
    assert_true(stile_lock_held(lock));
    world_pass(w, 1 * MS);
    assert_trace(w->script, "claim a, renew 1, release a");
    assert_false(stile_lock_held(lock));
}

static void lost_in_a_renewal(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    SCRIPT_NEXT(w->script, SCRIPT_RENEW, .act = SCRIPT_LOST);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 3000 * MS);
    assert_false(stile_lock_held(lock));
    assert_trace(w->script, "claim a, renew 1, release a");
    assert_status(stile_lock_release(lock, &err), LOST);
    assert_non_null(strstr(err.message, "no longer knows it"));
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
}

/* ---- loss ---- */

/* Row 1: the server is silent for good, and all four views agree to the millisecond. */
static void loss_needs_no_server(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));
    uint64_t start = world_now(w), token;
    int fd = stile_lock_lost_fd(lock);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 9647 * MS);
    assert_true(stile_lock_held(lock));
    assert_int_equal(stile_lock_remaining_ms(lock), 1);
    assert_false(fd_readable(fd));
    assert_int_equal(lost.times, 0);

    world_pass(w, 1 * MS);
    assert_false(stile_lock_held(lock));
    assert_int_equal(stile_lock_remaining_ms(lock), 0);
    assert_true(fd_readable(fd));
    assert_int_equal(lost.times, 1);
    assert_ptr_equal(lost.lock, lock);
    assert_int_equal(lost.at_ns - start, 9648 * MS);
    /* The guard must be able to see that we are late. */
    assert_status(stile_lock_token(lock, &token), OK);
    assert_int_equal(token, 1);
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_int_equal(lost.times, 1);
}

static void an_fd_asked_for_after_the_loss_is_readable(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_true(fd_readable(stile_lock_lost_fd(lock)));
}

static void the_fd_is_quiet_again_after_the_next_acquire(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    int fd = stile_lock_lost_fd(lock);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_true(fd_readable(fd));
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_true(fd_readable(fd));
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_false(fd_readable(fd));
    assert_int_equal(stile_lock_lost_fd(lock), fd);
}

/* Row 16: the machine slept over the deadline; the first call after it already knows. */
static void after_a_suspend_held_is_false_at_once(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_jump(w, 9648 * MS);
    assert_false(stile_lock_held(lock));
    assert_int_equal(stile_lock_remaining_ms(lock), 0);
    world_pass(w, 0);
    assert_int_equal(lost.times, 1);
    assert_false(stile_lock_held(lock));
}

static const struct loop_class *calm;

/* Somebody looks at the clock, and it has gone on. */
static uint64_t ticking(struct loop *loop)
{
    loop_virtual_jump(loop, 5 * MS);
    return calm->now_ns(loop);
}

static void remaining_never_goes_below_zero(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct loop_class class = *w->loops[0]->class;

    calm = w->loops[0]->class;
    class.now_ns = ticking;
    for (uint64_t i = 0; i < 16; i++) {
        assert_status(stile_lock_acquire(lock, -1, NULL), OK);
        world_jump(w, (9600 + i) * MS);
        w->loops[0]->class = &class;
        for (int j = 0; j < 10; j++)
            assert_in_range(stile_lock_remaining_ms(lock), 0, 48);
        w->loops[0]->class = calm;
        assert_status(stile_lock_release(lock, NULL), LOST);
    }
}

/* The answer that renews it was on its way before the pause: held() must not come back to life. */
static void a_renewal_heard_after_the_deadline_is_too_late(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .back_ns = 5000 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 3000 * MS); /* renewal sent, answered at 8000 */
    world_jump(w, 6700 * MS); /* now 9700; a renewal sent at 3000 would last until 12648 */
    assert_false(stile_lock_held(lock));
    world_pass(w, 0);
    assert_false(stile_lock_held(lock));
    assert_int_equal(lost.times, 1);
    assert_status(stile_lock_release(lock, NULL), LOST);
}

/* The release is the first call after the pause: the views must agree. */
static void release_after_a_suspend_says_lost(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_jump(w, 9648 * MS);
    assert_status(stile_lock_release(lock, NULL), LOST);
    world_pass(w, 0);
    assert_int_equal(lost.times, 1);
    assert_null(model_place(&w->script->model, "a")->holder);
}

static void a_lost_lock_is_cleared_away(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 9648 * MS);
    assert_null(model_place(&w->script->model, "a")->holder);
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ttl_less_drift_and_margin),
        cmocka_unit_test(no_ttl_is_no_deadline),
        cmocka_unit_test(too_short_a_ttl_is_over_at_once),
        TEST_IN(open_one, counts_from_before_sending),
        TEST_IN(open_one, the_engines_ttl_counts),
        TEST_IN(open_process, process_lease_has_no_deadline),
        TEST_IN(open_one, granted_too_late_is_withdrawn),
        TEST_IN(open_one, granted_just_in_time_is_held),
        TEST_IN(open_one, a_try_granted_too_late_is_unreachable),
        TEST_IN(open_one, granted_without_a_token_is_withdrawn),
        TEST_IN(open_one, renewal_moves_it),
        TEST_IN(open_one, unknown_renewal_is_retried_until_the_deadline),
        TEST_IN(open_one, unknown_then_renewed_goes_on),
        TEST_IN(open_one, unknown_from_inside_does_not_spin),
        TEST_IN(open_one, renewed_from_inside_does_not_spin),
        TEST_IN(open_one, unanswered_renewal_ends_at_the_deadline),
        TEST_IN(open_one, lost_in_a_renewal),
        TEST_IN(open_one, loss_needs_no_server),
        TEST_IN(open_one, an_fd_asked_for_after_the_loss_is_readable),
        TEST_IN(open_one, the_fd_is_quiet_again_after_the_next_acquire),
        TEST_IN(open_one, after_a_suspend_held_is_false_at_once),
        TEST_IN(open_one, remaining_never_goes_below_zero),
        TEST_IN(open_one, a_renewal_heard_after_the_deadline_is_too_late),
        TEST_IN(open_one, release_after_a_suspend_says_lost),
        TEST_IN(open_one, a_lost_lock_is_cleared_away),
    };
    return cmocka_run_group_tests_name("core_deadline", tests, NULL, NULL);
}
