/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Acquiring a lost lock again: the handle counts as released, and the new claim waits until the
 * engine has answered the release of the old one. */
#include "core/lock.h"
#include "support/unit.h"

static struct place *place_of(struct world *w, const char *name)
{
    return model_place(&w->script->model, name);
}

static void lose_it(struct world *w, struct stile_lock *lock)
{
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    script_tell_lost(w->script, stile_lock_name(lock));
    world_pass(w, 0);
    assert_false(stile_lock_held(lock));
}

static void a_lost_lock_is_acquired_again(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    lose_it(w, lock);
    assert_status(stile_lock_lost_reason(lock, &err), LOST);
    assert_status(stile_lock_acquire(lock, 0, &err), OK);
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_lost_reason(lock, &err), OK);
    assert_status(stile_lock_release(lock, &err), OK);
    assert_trace(w->script, "claim a, release a, claim a, release a");
}

/* The machine slept over the deadline, and acquire is the first call after it. */
static void after_a_suspend_too(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t token;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_acquire(lock, -1, NULL), MISUSE); /* held: no second grant */
    world_jump(w, 9648 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_token(lock, &token), OK);
    assert_int_equal(token, 2);
}

struct losses {
    unsigned times;
    enum stile_status started;
    int64_t wait_ms;
    struct heard heard;
};

static void acquire_from_on_lost(struct stile_lock *lock, void *data)
{
    struct losses *l = data;

    l->times++;
    l->started = stile_lock_acquire_async(lock, l->wait_ms, heard_done, &l->heard);
}

static void on_lost_acquires(void **state)
{
    struct world *w = *state;
    struct losses l = {.wait_ms = -1};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = acquire_from_on_lost, .data = &l));

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    for (unsigned i = 1; i <= 3; i++) {
        SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 50 * MS);
        script_tell_lost(w->script, "a");
        world_pass(w, 49 * MS);
        assert_int_equal(l.times, i);
        assert_status(l.started, OK);
        assert_int_equal(l.heard.times, i - 1); /* the release has not been answered */
        world_pass(w, 1 * MS);
        assert_int_equal(l.heard.times, i);
        assert_status(l.heard.status, OK);
        assert_true(stile_lock_held(lock));
    }
    assert_trace(w->script, "claim a, release a, claim a, release a, claim a, release a, claim a");
}

/* Lost because the server is cut off: the wait ends in time, and the late answer does no harm. */
static void the_wait_is_kept(void **state)
{
    struct world *w = *state;
    struct losses l = {.wait_ms = 500};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = acquire_from_on_lost, .data = &l));

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 20 * SEC);
    script_tell_lost(w->script, "a");
    uint64_t start = world_now(w);
    world_pass(w, 5 * SEC);
    assert_int_equal(l.heard.times, 1);
    assert_status(l.heard.status, UNCERTAIN);
    assert_int_equal(l.heard.at_ns, start + 500 * MS);
    assert_non_null(strstr(l.heard.err.message, "has not confirmed its release"));
    assert_status(stile_lock_release(lock, NULL), MISUSE); /* it counts as released */
    assert_status(stile_lock_acquire(lock, -1, NULL), UNCERTAIN);
    world_pass(w, 20 * SEC);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
}

/* Longer than any patience with a release: the caller said how long. */
static void a_long_wait_is_kept(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 8 * SEC);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    uint64_t start = world_now(w);
    assert_status(stile_lock_acquire(lock, 10000, NULL), OK);
    assert_int_equal(world_now(w), start + 8 * SEC);
}

/* A single try has the engine's time to answer, as any other; and it is a try: with `tries` 1. */
static void a_try_waits_for_the_answers_only(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.tries = 1));

    lose_it(w, lock);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 2 * SEC);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire(lock, 0, NULL), HELD);
    script_vacate(w->script, "a");
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 60 * SEC);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    uint64_t start = world_now(w);
    assert_status(stile_lock_acquire(lock, 0, NULL), UNCERTAIN);
    assert_int_equal(world_now(w), start + 3 * SEC);
}

/* The release of what was lost fails for a while: nothing is claimed before it has succeeded. */
static void repetitions_come_first(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct heard heard = {0};

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    script_tell_lost(w->script, "a");
    world_pass(w, 1 * SEC);
    uint64_t start = world_now(w);
    assert_status(stile_lock_acquire_async(lock, 700, heard_done, &heard), OK);
    world_pass(w, 5 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, UNCERTAIN);
    assert_int_equal(heard.at_ns, start + 700 * MS);
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), 1);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_MODEL);
    world_pass(w, 2 * SEC);
    assert_null(place_of(w, "a")->holder);

    lose_it(w, lock);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
}

static void it_can_be_cancelled(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct heard heard = {0};

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 1 * SEC);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    assert_status(stile_lock_cancel(lock), OK);
    world_pass(w, 2 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), 1);
    assert_status(stile_lock_acquire(lock, 0, NULL), OK);
}

static void it_can_be_freed_and_closed(void **state)
{
    struct world *w = *state;
    struct stile_lock *locks[2] = {make_lock(w->clients[0], "a", NULL),
                                   make_lock(w->clients[0], "b", NULL)};
    struct heard heard[2] = {{0}};

    for (int i = 0; i < 2; i++)
        assert_status(stile_lock_acquire(locks[i], -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .back_ns = 1 * SEC);
    script_tell_lost(w->script, "a");
    script_tell_lost(w->script, "b");
    world_pass(w, 0);
    for (int i = 0; i < 2; i++)
        assert_status(stile_lock_acquire_async(locks[i], -1, heard_done, &heard[i]), OK);
    stile_lock_free(locks[0]);
    world_close_client(w, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(heard[i].times, 1);
        assert_status(heard[i].status, CANCELLED);
    }
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), 2);
}

/* Where one claim per name is allowed, another handle that waited already comes first. */
static void others_of_the_client_come_first(void **state)
{
    struct world *w = *state;
    struct losses l = {.wait_ms = -1};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = acquire_from_on_lost, .data = &l));
    struct stile_lock *other = make_lock(w->clients[0], "a", NULL);
    struct heard heard = {0};

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_acquire_async(other, -1, heard_done, &heard), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 50 * MS);
    script_tell_lost(w->script, "a");
    world_pass(w, 1 * SEC);
    assert_status(heard.status, OK);
    assert_true(stile_lock_held(other));
    assert_int_equal(l.heard.times, 0);
    assert_status(stile_lock_release(other, NULL), OK);
    world_pass(w, 0);
    assert_true(stile_lock_held(lock));

    /* A try does not wait for the other handle. */
    l.wait_ms = 0;
    assert_status(stile_lock_acquire_async(other, -1, heard_done, &heard), OK);
    SCRIPT_NEXT(w->script, SCRIPT_RELEASE, .back_ns = 50 * MS);
    script_tell_lost(w->script, "a");
    world_pass(w, 1 * SEC);
    assert_true(stile_lock_held(other));
    assert_int_equal(l.heard.times, 2);
    assert_status(l.heard.status, HELD);
}

/* The release of what was lost waits behind others for its turn at the engine. */
static void a_queue_to_the_engine_does_not_prolong_the_wait(void **state)
{
    static struct engine_class limited;
    struct world w;
    struct heard heard = {0};

    (void)state;
    limited = *script_variant(STILE_LEASE_CLAIM, SCRIPT_APART);
    limited.in_flight = 1;
    world_open(&w, 1, &limited, 1);
    struct stile_lock *lock = make_lock(w.clients[0], "a", NULL);
    struct stile_lock *other = make_lock(w.clients[0], "b", NULL);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_NEXT(w.script, SCRIPT_CLAIM, .act = SCRIPT_NEVER);
    assert_status(stile_lock_acquire_async(other, -1, heard_done, &heard), OK);
    script_tell_lost(w.script, "a");
    world_pass(&w, 0);
    uint64_t start = world_now(&w);
    assert_status(stile_lock_acquire(lock, 200, NULL), UNCERTAIN);
    assert_int_equal(world_now(&w), start + 200 * MS);
    world_close(&w);
}

static void a_lost_claim_is_not_resumed(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.owner = "me"));
    struct stile_error err;

    lose_it(w, lock);
    assert_status(stile_lock_resume(lock, &err), MISUSE);
    assert_string_equal(err.message, "resuming 'a': it was lost; release it before resuming it");
    assert_status(stile_lock_release(lock, NULL), LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, a_lost_lock_is_acquired_again),
        TEST_IN(open_one, after_a_suspend_too),
        TEST_IN(open_one, on_lost_acquires),
        TEST_IN(open_session, on_lost_acquires),
        TEST_IN(open_process, on_lost_acquires),
        TEST_IN(open_one, the_wait_is_kept),
        TEST_IN(open_one, a_long_wait_is_kept),
        TEST_IN(open_one, a_try_waits_for_the_answers_only),
        TEST_IN(open_session, repetitions_come_first),
        TEST_IN(open_one, it_can_be_cancelled),
        TEST_IN(open_one, it_can_be_freed_and_closed),
        TEST_IN(open_one, others_of_the_client_come_first),
        cmocka_unit_test(a_queue_to_the_engine_does_not_prolong_the_wait),
        TEST_IN(open_detached, a_lost_claim_is_not_resumed),
    };
    return cmocka_run_group_tests_name("core_again", tests, NULL, NULL);
}
