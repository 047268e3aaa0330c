/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Renewals of many: one for a session, a few batches for claims. */
#include <stdlib.h>

#include "core/events.h"
#include "core/lock.h"
#include "support/unit.h"

#define SOME 300
#define MANY 10000

static struct stile_lock *locks[MANY];

static void acquire_many(struct world *w, size_t n, const struct stile_lock_options *options)
{
    char name[32];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof(name), "n%zu", i);
        locks[i] = make_lock(w->clients[0], name, options);
        assert_status(stile_lock_acquire(locks[i], -1, NULL), OK);
    }
}

static size_t held_of(size_t n)
{
    size_t held = 0;

    for (size_t i = 0; i < n; i++)
        held += stile_lock_held(locks[i]);
    return held;
}

/* ---- sessions ---- */

static void one_renewal_for_all_locks(void **state)
{
    struct world *w = *state;

    acquire_many(w, SOME, NULL);
    script_forget(w->script);
    world_pass(w, 3 * SEC);
    assert_trace(w->script, "renew 0");
    world_pass(w, 57 * SEC);
    assert_int_equal(script_count(w->script, SCRIPT_RENEW), 20);
    assert_int_equal(held_of(SOME), SOME);
}

static void an_unknown_session_renewal_is_retried(void **state)
{
    struct world *w = *state;

    acquire_many(w, SOME, NULL);
    SCRIPT_NEXT(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN);
    SCRIPT_NEXT(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN, .inside = true);
    script_forget(w->script);
    world_pass(w, 5 * SEC);
    assert_trace(w->script, "renew 0, renew 0, renew 0");
    world_pass(w, 60 * SEC);
    assert_int_equal(held_of(SOME), SOME);
}

static void a_session_without_answers_ends_at_the_deadline(void **state)
{
    struct world *w = *state;

    acquire_many(w, SOME, NULL);
    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    world_pass(w, 9647 * MS);
    assert_int_equal(held_of(SOME), SOME);
    world_pass(w, 1 * MS);
    assert_int_equal(held_of(SOME), 0);
    for (size_t i = 0; i < SOME; i++)
        assert_status(stile_lock_release(locks[i], NULL), LOST);
}

static void a_lost_session_loses_all(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};

    acquire_many(w, SOME, STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));
    script_tell_session_lost(w->script);
    world_pass(w, 0);
    assert_int_equal(lost.times, SOME);
    assert_int_equal(held_of(SOME), 0);
    for (size_t i = 0; i < SOME; i++) {
        assert_status(stile_lock_release(locks[i], NULL), LOST);
        assert_status(stile_lock_acquire(locks[i], -1, NULL), OK);
    }
    world_pass(w, 60 * SEC); /* the new session is renewed, too */
    assert_int_equal(held_of(SOME), SOME);
}

/* The server has ended the session while we could not speak with it. */
static void a_session_that_expired_is_seen_in_the_renewal(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};

    acquire_many(w, 3, STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));
    world_pass(w, 2 * SEC);
    ((struct record *)model_place(&w->script->model, "n0")->holder)->session->expires_ns =
        world_now(w);
    world_pass(w, 2 * SEC);
    assert_int_equal(lost.times, 3);
}

/* A waiter depends on the session as well: it is renewed though nothing is held yet (row 3). */
static void a_session_is_renewed_for_who_waits(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    script_occupy(w->script, "a", 100 * SEC);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN);
    for (int i = 0; i < 99; i++) {
        world_pass(w, 1 * SEC);
        model_settle(model_place(&w->script->model, "a"));
        assert_int_equal(model_waiting(&w->script->model), 1);
    }
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 30, 40);
    world_pass(w, 1 * SEC);
    assert_status(heard.status, OK);
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), 1);
    assert_true(stile_lock_held(lock));
    world_pass(w, 60 * SEC);
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), OK);
    script_forget(w->script);
    world_pass(w, 60 * SEC); /* nobody holds or waits: nothing to renew */
    assert_trace(w->script, "");
}

/* The session that a waiter comes to may have been renewed half a TTL ago: an interval close to the
 * TTL is for holders. */
static void a_waiter_keeps_its_place_whatever_its_interval(void **state)
{
    struct world *w = *state;
    static struct heard heard; /* it waits until the client is closed */
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.ttl_ms = 6000, .renew_ms = 5900));

    script_occupy(w->script, "a", 100 * SEC);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    script_forget(w->script);
    world_pass(w, 3 * SEC - 1);
    assert_trace(w->script, "renew 0");
    world_pass(w, 3 * SEC);
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 2, 3);
}

static void a_withdrawn_wait_needs_no_session(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire(lock, 20000, NULL), TIMEOUT);
    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    assert_status(stile_lock_acquire(lock, -1, NULL), REFUSED);
    script_forget(w->script);
    world_pass(w, 60 * SEC);
    assert_trace(w->script, "");
}

/* The renewal was sent before the claim, and is heard of after the grant. */
static void an_older_renewal_does_not_shorten_a_grant(void **state)
{
    struct world *w = *state;
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "b", NULL);

    assert_status(stile_lock_acquire(first, -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    world_pass(w, 3 * SEC);
    assert_int_equal(script_count(w->script, SCRIPT_RENEW), 1);
    uint64_t sent_ns = world_now(w);
    world_pass(w, 5 * SEC);
    assert_status(stile_lock_acquire(second, -1, NULL), OK);
    assert_int_equal(stile_lock_remaining_ms(second), 9648);
    core_events.session_renewed(w->clients[0]->engine, NULL, sent_ns, 10 * SEC);
    assert_int_equal(stile_lock_remaining_ms(first), 9648 - 5000);
    assert_int_equal(stile_lock_remaining_ms(second), 9648);
}

/* A lost session is no reason to lose what was never granted. */
static void who_waits_does_not_lose_a_session(void **state)
{
    struct world *w = *state;
    struct heard heard = {0}, lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));

    script_occupy(w->script, "a", 5 * SEC);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_pass(w, 1 * SEC);
    script_tell_session_lost(w->script);
    world_pass(w, 10 * SEC);
    assert_int_equal(lost.times, 0);
    assert_int_equal(heard.times, 1);
    assert_true(stile_lock_held(lock));
}

/* What is granted from inside a loss belongs to the next session, and is not lost with this one. */
static void a_grant_from_inside_a_lost_session_lasts(void **state)
{
    struct world *w = *state;
    struct heard granted = {0};
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "a", NULL);
    struct stile_error err = {.status = STILE_LOST};

    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(w->script, (enum script_call)call, .inside = true);
    assert_status(stile_lock_acquire(first, -1, NULL), OK);
    assert_status(stile_lock_acquire_async(second, -1, heard_done, &granted), OK);
    core_events.session_lost(w->clients[0]->engine, NULL, &err);
    world_pass(w, 0);
    assert_false(stile_lock_held(first));
    assert_int_equal(granted.times, 1);
    assert_true(stile_lock_held(second));
}

/* An engine with a lease for each TTL: an answer is about the claims of one of them. */
static void sessions_are_told_apart(void **state)
{
    struct world *w = *state;
    struct stile_lock *first = make_lock(w->clients[0], "a", NULL);
    struct stile_lock *second = make_lock(w->clients[0], "b", NULL);
    struct engine *engine = w->clients[0]->engine;

    assert_status(stile_lock_acquire(first, -1, NULL), OK);
    assert_status(stile_lock_acquire(second, -1, NULL), OK);
    first->claim->session = &first;
    second->claim->session = &second;
    world_pass(w, 1 * SEC);
    core_events.session_renewed(engine, &first, world_now(w), 10 * SEC);
    assert_int_equal(stile_lock_remaining_ms(first), 9648);
    assert_int_equal(stile_lock_remaining_ms(second), 8648);
    core_events.session_lost(engine, &first, NULL);
    assert_false(stile_lock_held(first));
    assert_true(stile_lock_held(second));
    core_events.session_lost(engine, NULL, NULL);
    assert_false(stile_lock_held(second));
}

/* ---- claims ---- */

static void thousands_renew_in_a_few_batches(void **state)
{
    struct world *w = *state;

    w->script->untraced = true;
    acquire_many(w, MANY, NULL);
    w->script->untraced = false;
    world_pass(w, 3 * SEC);
    assert_int_equal(script_count(w->script, SCRIPT_RENEW), (MANY + 255) / 256);
    world_pass(w, 27 * SEC);
    assert_int_equal(script_count(w->script, SCRIPT_RENEW), 10 * ((MANY + 255) / 256));
    assert_int_equal(held_of(MANY), MANY);
}

/* Granted at different times, they soon travel together. */
static void renewals_gather(void **state)
{
    struct world *w = *state;
    char name[32];

    for (size_t i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "n%zu", i);
        locks[i] = make_lock(w->clients[0], name, NULL);
        assert_status(stile_lock_acquire(locks[i], -1, NULL), OK);
        world_pass(w, 30 * MS);
    }
    script_forget(w->script);
    world_pass(w, 30 * SEC);
    assert_in_range(script_count(w->script, SCRIPT_RENEW), 10, 120);
    assert_int_equal(held_of(100), 100);
}

/* A batch in which some are lost and some are not. */
static void a_batch_with_losses(void **state)
{
    struct world *w = *state;
    char name[32];

    acquire_many(w, SOME, NULL);
    for (size_t i = 0; i < SOME; i += 3) {
        (void)snprintf(name, sizeof(name), "n%zu", i);
        script_vacate(w->script, name);
    }
    world_pass(w, 3 * SEC);
    assert_int_equal(held_of(SOME), SOME - (SOME + 2) / 3);
    world_pass(w, 60 * SEC);
    assert_int_equal(held_of(SOME), SOME - (SOME + 2) / 3);
}

static void thousands_are_lost_at_one_deadline(void **state)
{
    struct world *w = *state;

    w->script->untraced = true;
    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_UNKNOWN);
    acquire_many(w, MANY, NULL);
    world_pass(w, 9647 * MS);
    assert_int_equal(held_of(MANY), MANY);
    world_pass(w, 1 * MS);
    assert_int_equal(held_of(MANY), 0);
    assert_null(w->clients[0]->leases.first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_session, one_renewal_for_all_locks),
        TEST_IN(open_session, an_unknown_session_renewal_is_retried),
        TEST_IN(open_session, a_session_without_answers_ends_at_the_deadline),
        TEST_IN(open_session, a_lost_session_loses_all),
        TEST_IN(open_session, a_session_that_expired_is_seen_in_the_renewal),
        TEST_IN(open_session, a_session_is_renewed_for_who_waits),
        TEST_IN(open_session, a_waiter_keeps_its_place_whatever_its_interval),
        TEST_IN(open_session, a_withdrawn_wait_needs_no_session),
        TEST_IN(open_session, an_older_renewal_does_not_shorten_a_grant),
        TEST_IN(open_session, who_waits_does_not_lose_a_session),
        TEST_IN(open_one, a_grant_from_inside_a_lost_session_lasts),
        TEST_IN(open_session, sessions_are_told_apart),
        TEST_IN(open_apart, thousands_renew_in_a_few_batches),
        TEST_IN(open_apart, renewals_gather),
        TEST_IN(open_apart, a_batch_with_losses),
        TEST_IN(open_apart, thousands_are_lost_at_one_deadline),
    };
    return cmocka_run_group_tests_name("core_session", tests, NULL, NULL);
}
