/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Row 13: one status for each reason, with a message that says what was being done and why. */
#include "core/events.h"
#include "support/unit.h"

static void a_failed_claim_says_why(void **state)
{
    static const enum stile_status reasons[] = {STILE_UNREACHABLE, STILE_REFUSED,
                                                STILE_CORRUPT,     STILE_NOMEM,
                                                STILE_UNSUPPORTED, STILE_UNCERTAIN};
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        struct stile_error err = {0};
        SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = reasons[i]);
        assert_int_equal(stile_lock_acquire(lock, 0, &err), reasons[i]);
        assert_int_equal(err.status, reasons[i]);
        assert_string_equal(err.message, "acquiring 'a': the script says so");
    }
}

static void what_waiting_does_not_help_ends_at_once(void **state)
{
    static const enum stile_status reasons[] = {STILE_REFUSED, STILE_CORRUPT, STILE_NOMEM};
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = reasons[i]);
        assert_int_equal(stile_lock_acquire(lock, -1, NULL), reasons[i]);
    }
    assert_int_equal(world_now(w), start);
}

static void held_timeout_and_unreachable_are_three_things(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err = {0};

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire(lock, 0, &err), HELD);
    assert_string_equal(err.message, "acquiring 'a': held by another");
    assert_status(stile_lock_acquire(lock, 100, &err), TIMEOUT);
    assert_string_equal(err.message, "acquiring 'a': not granted in time");
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_acquire(lock, 1000, &err), UNREACHABLE);
    assert_string_equal(err.message, "acquiring 'a': the script says so");
}

/* An earlier error of the wait is no longer the reason. */
static void the_last_reason_counts(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    assert_status(stile_lock_acquire(lock, 2000, NULL), TIMEOUT);
}

static void an_error_is_written_only_on_failure(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err = {.status = STILE_CONFLICT, .native = 7, .message = "mine"};

    assert_status(stile_lock_acquire(lock, -1, &err), OK);
    assert_status(stile_lock_release(lock, &err), OK);
    assert_int_equal(err.status, STILE_CONFLICT);
    assert_int_equal(err.native, 7);
    assert_string_equal(err.message, "mine");
}

static void a_loss_says_why(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err = {0};

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_jump(w, 20 * SEC);
    world_pass(w, 0);
    assert_status(stile_lock_release(lock, &err), LOST);
    assert_non_null(strstr(err.message, "releasing 'a': the lease reached its deadline"));
    assert_int_equal(err.status, STILE_LOST);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_status(stile_lock_release(lock, &err), LOST);
    assert_string_equal(err.message, "releasing 'a': somebody has broken it");
}

/* An engine may say lost without a word; we find some. */
static void a_loss_without_a_reason(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));
    struct stile_error err = {0};

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    core_events.session_lost(w->clients[0]->engine, NULL, NULL);
    world_pass(w, 0);
    assert_int_equal(lost.times, 1);
    assert_status(stile_lock_release(lock, &err), LOST);
    assert_string_equal(err.message, "releasing 'a': no longer held");
}

/* ---- what is passed to the engine ---- */

static void hold_and_delay_reach_the_engine(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock =
        make_lock(w->clients[0], "a",
                  STILE_OPTIONS(.hold_at_least_ms = 60000, .lock_delay_ms = 15000, .ttl_ms = 4000));
    const struct script_event *event;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    event = script_last(w->script, SCRIPT_CLAIM);
    assert_int_equal(event->hold_ns, 60 * SEC);
    assert_int_equal(event->delay_ns, 15 * SEC);
    assert_int_equal(event->ttl_ns, 4 * SEC);
    assert_true(event->wait);
}

static void hold_at_least_keeps_the_next_one_out(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.hold_at_least_ms = 60000));
    uint64_t start = world_now(w);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_status(stile_lock_acquire(lock, 0, NULL), HELD);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_int_equal(world_now(w) - start, 60 * SEC);
}

/* The slot of a cron job is not used up by a grant that nobody heard of in time. */
static void a_withdrawn_grant_is_not_kept(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.hold_at_least_ms = 3600000));

    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .back_ns = 2 * SEC);
    assert_status(stile_lock_acquire(lock, 1000, NULL), TIMEOUT);
    assert_true(script_last(w->script, SCRIPT_RELEASE)->unused);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
    assert_status(stile_lock_abandon(lock, NULL), OK);
    assert_true(script_last(w->script, SCRIPT_RELEASE)->unused);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_false(script_last(w->script, SCRIPT_RELEASE)->unused);
    assert_status(stile_lock_acquire(lock, 0, NULL), HELD);
}

/* Row 28 after an abnormal end: no claim is granted before the delay is over. */
static void lock_delay_follows_an_abnormal_end(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *first = make_lock(w->clients[0], "a", STILE_OPTIONS(.lock_delay_ms = 30000));
    struct stile_lock *second = make_lock(w->clients[1], "a", NULL);
    struct heard granted = {0};
    uint64_t start = world_now(w);

    assert_status(stile_lock_acquire_async(first, -1, heard_done, &heard), OK);
    world_pass(w, 0);
    assert_status(stile_lock_acquire_async(second, -1, heard_done, &granted), OK);
    w->paused[0] = true; /* and is never heard of again */
    world_pass(w, 100 * SEC);
    assert_int_equal(granted.times, 1);
    assert_int_equal(granted.at_ns - start, 40 * SEC);
    w->paused[0] = false;
}

static void what_an_engine_lacks_is_unsupported(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock;
    struct stile_error err;

    assert_status(
        stile_lock_new(&lock, w->clients[0], "a", STILE_OPTIONS(.mode = STILE_SHARED), &err),
        UNSUPPORTED);
    assert_string_equal(err.message, "making a lock: test has no shared locks");
    assert_null(lock);
    assert_status(stile_lock_new(&lock, w->clients[0], "a",
                                 STILE_OPTIONS(.mode = STILE_SLOTS, .slots = 2), &err),
                  UNSUPPORTED);
    assert_status(stile_lock_new(&lock, w->clients[0], "a", STILE_OPTIONS(.owner = "me"), &err),
                  UNSUPPORTED);
    lock = make_lock(w->clients[0], "a", NULL);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_detach(lock, &err), UNSUPPORTED);
    assert_null(stile_lock_owner(lock));
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_status(stile_lock_resume(lock, &err), UNSUPPORTED);
}

/* ---- claims that outlive their process ---- */

static void detach_and_resume(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL), *other;
    uint64_t token;
    char owner[64];

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    (void)snprintf(owner, sizeof(owner), "%s", stile_lock_owner(lock));
    assert_status(stile_lock_detach(lock, NULL), OK);
    assert_false(stile_lock_held(lock));
    stile_lock_free(lock);
    world_pass(w, 5 * SEC);
    other = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = owner));
    assert_status(stile_lock_resume(other, NULL), OK);
    assert_true(stile_lock_held(other));
    assert_status(stile_lock_token(other, &token), OK);
    assert_int_equal(token, 1);
    assert_int_equal(stile_lock_remaining_ms(other), 9648);
    assert_status(stile_lock_release(other, NULL), OK);
    assert_trace(w->script, "claim a, resume a, release a");
}

static void resume_of_what_is_gone_is_lost(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = "somebody"));
    struct stile_lock *unowned = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_resume(lock, NULL), LOST);
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_resume(unowned, NULL), MISUSE);
}

/* Acquired and detached; the owner value goes to out. */
static void leave_one_behind(struct world *w, char *out, size_t out_size)
{
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    (void)snprintf(out, out_size, "%s", stile_lock_owner(lock));
    assert_status(stile_lock_detach(lock, NULL), OK);
    stile_lock_free(lock);
}

/* The owner of the claim works under it: our failure to reach the engine must not end it. */
static void what_cannot_be_resumed_is_left_alone(void **state)
{
    struct world *w = *state;
    char owner[64];
    struct stile_lock *lock;

    leave_one_behind(w, owner, sizeof(owner));
    lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = owner, .ttl_ms = 60000));
    SCRIPT_NEXT(w->script, SCRIPT_RESUME, .back_ns = 6 * SEC); /* longer than we wait */
    assert_status(stile_lock_resume(lock, NULL), UNREACHABLE);
    assert_non_null(model_place(&w->script->model, "a")->holder);
    assert_status(stile_lock_resume(lock, NULL), UNCERTAIN); /* not answered yet */
    world_pass(w, 2 * SEC);
    assert_false(stile_lock_held(lock));
    SCRIPT_NEXT(w->script, SCRIPT_RESUME, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    assert_status(stile_lock_resume(lock, NULL), UNCERTAIN);
    SCRIPT_NEXT(w->script, SCRIPT_RESUME, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_resume(lock, NULL), UNREACHABLE);
    assert_status(stile_lock_resume(lock, NULL), OK);
    assert_true(stile_lock_held(lock));
    assert_trace(w->script, "claim a, resume a, resume a, resume a, resume a");
}

/* Granted after the new deadline: not held, and still not ended. */
static void resumed_too_late_is_left_alone(void **state)
{
    struct world *w = *state;
    char owner[64];
    struct stile_lock *lock;

    leave_one_behind(w, owner, sizeof(owner));
    lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = owner, .ttl_ms = 1000));
    SCRIPT_NEXT(w->script, SCRIPT_RESUME, .back_ns = 2 * SEC);
    assert_status(stile_lock_resume(lock, NULL), UNREACHABLE);
    assert_false(stile_lock_held(lock));
    assert_trace(w->script, "claim a, resume a");
    stile_lock_free(lock);
    assert_null(w->clients[0]->locks);
}

static unsigned detached_claims;

static void count_detached(struct engine *engine, struct claim *claim)
{
    (void)engine, (void)claim;
    detached_claims++;
}

/* The engine has it, and would keep the memory of a handle that core has forgotten. */
static void what_is_resumed_for_no_caller_is_detached(void **state)
{
    struct world *w = *state;
    struct engine *engine = w->clients[0]->engine;
    static struct engine_detached detached;
    static struct engine_class class;
    struct stile_lock *lock;
    char owner[64];

    detached = *engine->class->detached;
    detached.detach = count_detached;
    class = *engine->class;
    class.detached = &detached;
    leave_one_behind(w, owner, sizeof(owner));
    detached_claims = 0;
    engine->class = &class;
    lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = owner, .ttl_ms = 60000));
    SCRIPT_NEXT(w->script, SCRIPT_RESUME, .back_ns = 6 * SEC);
    assert_status(stile_lock_resume(lock, NULL), UNREACHABLE);
    assert_int_equal(detached_claims, 0);
    world_pass(w, 2 * SEC);
    assert_int_equal(detached_claims, 1);
    stile_lock_free(lock);

    lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = owner, .ttl_ms = 1000));
    SCRIPT_NEXT(w->script, SCRIPT_RESUME, .back_ns = 2 * SEC); /* after the new deadline */
    assert_status(stile_lock_resume(lock, NULL), UNREACHABLE);
    assert_int_equal(detached_claims, 2);
    stile_lock_free(lock);
    assert_null(w->clients[0]->locks);
}

static void free_while_resuming_is_not_answered(void **state)
{
    struct world *w = *state;
    char owner[64];
    struct stile_lock *lock;

    leave_one_behind(w, owner, sizeof(owner));
    lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = owner, .ttl_ms = 60000));
    SCRIPT_NEXT(w->script, SCRIPT_RESUME, .back_ns = 6 * SEC);
    assert_status(stile_lock_resume(lock, NULL), UNREACHABLE);
    stile_lock_free(lock);
    assert_non_null(w->clients[0]->locks);
    world_pass(w, 2 * SEC);
    assert_null(w->clients[0]->locks);
    assert_non_null(model_place(&w->script->model, "a")->holder);
    assert_trace(w->script, "claim a, resume a");
}

static void a_lost_lock_is_not_detached(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_jump(w, 20 * SEC); /* nothing has run since */
    assert_status(stile_lock_detach(lock, NULL), LOST);
    assert_status(stile_lock_release(lock, NULL), LOST);
}

/* The answer to a renewal that was under way must not meet a lock that is gone. */
static void detach_while_a_renewal_is_under_way(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    char name[16];

    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .back_ns = 1 * SEC);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 3500 * MS);
    assert_trace(w->script, "claim a, renew 1");
    assert_status(stile_lock_detach(lock, NULL), OK);
    assert_status(stile_lock_acquire(lock, 0, NULL), UNCERTAIN);
    stile_lock_free(lock);
    for (int i = 0; i < 2 * FREED_KEPT; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        stile_lock_free(make_lock(w->clients[0], name, NULL));
    }
    world_pass(w, 5 * SEC);
    assert_null(w->clients[0]->locks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, a_failed_claim_says_why),
        TEST_IN(open_one, what_waiting_does_not_help_ends_at_once),
        TEST_IN(open_one, held_timeout_and_unreachable_are_three_things),
        TEST_IN(open_one, the_last_reason_counts),
        TEST_IN(open_one, an_error_is_written_only_on_failure),
        TEST_IN(open_one, a_loss_says_why),
        TEST_IN(open_session, a_loss_without_a_reason),
        TEST_IN(open_one, hold_and_delay_reach_the_engine),
        TEST_IN(open_one, hold_at_least_keeps_the_next_one_out),
        TEST_IN(open_one, a_withdrawn_grant_is_not_kept),
        TEST_IN(open_two, lock_delay_follows_an_abnormal_end),
        TEST_IN(open_one, what_an_engine_lacks_is_unsupported),
        TEST_IN(open_detached, detach_and_resume),
        TEST_IN(open_detached, resume_of_what_is_gone_is_lost),
        TEST_IN(open_detached, what_cannot_be_resumed_is_left_alone),
        TEST_IN(open_detached, resumed_too_late_is_left_alone),
        TEST_IN(open_detached, what_is_resumed_for_no_caller_is_detached),
        TEST_IN(open_detached, free_while_resuming_is_not_answered),
        TEST_IN(open_detached, a_lost_lock_is_not_detached),
        TEST_IN(open_detached, detach_while_a_renewal_is_under_way),
    };
    return cmocka_run_group_tests_name("core_status", tests, NULL, NULL);
}
