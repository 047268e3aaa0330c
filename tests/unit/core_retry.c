/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Where an engine has to be polled: profiles, tries, back-off with full jitter. */
#include <stdlib.h>

#include "core/retry.h"
#include "support/loop_virtual.h"
#include "support/unit.h"

/* ---- the table ---- */

static const struct {
    enum stile_profile profile;
    uint64_t ttl_ms, renew_ms, retry_ms;
    unsigned tries;
} table[] = {
    {STILE_PROFILE_DEFAULT, 10000, 3000, 100, 0},
    {STILE_PROFILE_FINANCIAL, 5000, 1500, 200, 5},
    {STILE_PROFILE_CACHE, 2000, 800, 50, 2},
    {STILE_PROFILE_BATCH, 30000, 5000, 500, 10},
};
#define PROFILES (sizeof(table) / sizeof(table[0]))

static void profiles_are_as_promised(void **state)
{
    struct policy policy;

    (void)state;
    for (size_t i = 0; i < PROFILES; i++) {
        assert_status(policy_from(&policy, STILE_OPTIONS(.profile = table[i].profile), NULL), OK);
        assert_int_equal(policy.ttl_ns, table[i].ttl_ms * MS);
        assert_int_equal(policy.renew_ns, table[i].renew_ms * MS);
        assert_int_equal(policy.retry_ns, table[i].retry_ms * MS);
        assert_int_equal(policy.tries, table[i].tries);
    }
}

/* The engine sees them: TTL in the claim, renewals in time, as many tries as the profile has. */
static void profiles_reach_the_engine(void **state)
{
    struct world *w = *state;

    for (size_t i = 0; i < PROFILES; i++) {
        struct stile_lock *lock =
            make_lock(w->clients[0], "a", STILE_OPTIONS(.profile = table[i].profile));
        uint64_t granted;
        assert_status(stile_lock_acquire(lock, -1, NULL), OK);
        granted = world_now(w);
        assert_int_equal(script_last(w->script, SCRIPT_CLAIM)->ttl_ns, table[i].ttl_ms * MS);
        script_forget(w->script);
        world_pass(w, table[i].renew_ms * MS);
        assert_int_equal(script_count(w->script, SCRIPT_RENEW), 1);
        assert_int_equal(script_last(w->script, SCRIPT_RENEW)->at_ns - granted,
                         table[i].renew_ms * MS);
        stile_lock_free(lock);
        world_pass(w, 0);
    }
}

static void tries_are_bounded(void **state)
{
    struct world *w = *state;

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    for (size_t i = 0; i < PROFILES; i++) {
        struct stile_lock *lock =
            make_lock(w->clients[0], "a", STILE_OPTIONS(.profile = table[i].profile));
        if (table[i].tries == 0)
            continue;
        script_forget(w->script);
        assert_status(stile_lock_acquire(lock, 3600000, NULL), HELD);
        assert_int_equal(script_count(w->script, SCRIPT_CLAIM), table[i].tries);
        assert_status(stile_lock_acquire(lock, 3600000, NULL), HELD); /* counted anew */
        assert_int_equal(script_count(w->script, SCRIPT_CLAIM), 2 * table[i].tries);
    }
}

static void without_a_limit_only_time_ends_it(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    uint64_t start = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    assert_status(stile_lock_acquire(lock, 600000, NULL), TIMEOUT);
    assert_int_equal(world_now(w) - start, 600 * SEC);
    /* at most 5 s apart, 2.5 s on average */
    assert_in_range(script_count(w->script, SCRIPT_CLAIM), 150, 400);
}

static void failures_count_as_tries(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.tries = 3));

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_acquire(lock, -1, NULL), UNREACHABLE);
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), 3);
    script_forget(w->script);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNCERTAIN);
    assert_status(stile_lock_acquire(lock, -1, NULL), UNCERTAIN);
    assert_int_equal(script_count(w->script, SCRIPT_CLAIM), 3);
}

/* ---- the pauses ---- */

#define SAMPLES 20000

/* Anything from nothing to the limit, evenly: that is what keeps a herd apart. */
static void jitter_is_full(void **state)
{
    struct loop *loop;
    unsigned buckets[10] = {0};

    (void)state;
    assert_int_equal(loop_virtual_new(&loop, 1), 0);
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t pause = retry_pause(loop, 100 * MS, 3);
        assert_true(pause <= 800 * MS);
        buckets[pause / (80 * MS + 1)]++;
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(buckets[i], SAMPLES / 10 * 9 / 10, SAMPLES / 10 * 11 / 10);
    loop_free(loop);
}

static uint64_t longest(struct loop *loop, uint64_t first_ns, unsigned tried)
{
    uint64_t max = 0;

    for (int i = 0; i < 2000; i++) {
        uint64_t pause = retry_pause(loop, first_ns, tried);
        max = pause > max ? pause : max;
    }
    return max;
}

static void back_off_doubles_up_to_a_cap(void **state)
{
    struct loop *loop;

    (void)state;
    assert_int_equal(loop_virtual_new(&loop, 1), 0);
    for (unsigned tried = 0; tried < 6; tried++)
        assert_in_range(longest(loop, 100 * MS, tried), (100 << tried) * MS * 98 / 100,
                        (100 << tried) * MS);
    for (unsigned tried = 6; tried < 200; tried += 7)
        assert_in_range(longest(loop, 100 * MS, tried), 4900 * MS, 5000 * MS);
    assert_in_range(longest(loop, 366 * 24 * 3600 * SEC, 15), 4900 * MS, 5000 * MS);
    loop_free(loop);
}

static void pauses_differ_from_claim_to_claim(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.tries = 30));
    uint64_t pauses[29];

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    assert_status(stile_lock_acquire(lock, -1, NULL), HELD);
    assert_int_equal(w->script->n_events, 30);
    for (int i = 0; i < 29; i++) {
        pauses[i] = w->script->events[i + 1].at_ns - w->script->events[i].at_ns;
        for (int j = 0; j < i; j++)
            assert_int_not_equal(pauses[i], pauses[j]);
        assert_true(pauses[i] <= 5 * SEC);
    }
}

static void a_hint_shortens_the_pause(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.tries = 20, .retry_ms = 5000));
    uint64_t start = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY, .hint_ns = 10 * MS);
    assert_status(stile_lock_acquire(lock, -1, NULL), HELD);
    assert_in_range(world_now(w) - start, 1, 190 * MS);
}

/* The last pause is cut short by the end of the wait. */
static void a_pause_ends_with_the_wait(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.retry_ms = 3600000));
    uint64_t start = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    assert_status(stile_lock_acquire(lock, 100, NULL), TIMEOUT);
    assert_int_equal(world_now(w) - start, 100 * MS);
}

static void polled_until_it_is_free(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    w->script->polled = true;
    script_occupy(w->script, "a", 20 * SEC);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_in_range(script_count(w->script, SCRIPT_CLAIM), 5, 60);
}

/* ---- options ---- */

static void options_override_the_profile(void **state)
{
    struct policy p;

    (void)state;
    assert_status(policy_from(&p,
                              STILE_OPTIONS(.profile = STILE_PROFILE_BATCH, .ttl_ms = 6000,
                                            .retry_ms = 7, .tries = 4),
                              NULL),
                  OK);
    assert_int_equal(p.ttl_ns, 6000 * MS);
    assert_int_equal(p.renew_ns, 2000 * MS); /* a third of a TTL that was given */
    assert_int_equal(p.retry_ns, 7 * MS);
    assert_int_equal(p.tries, 4);
    assert_status(policy_from(&p, STILE_OPTIONS(.ttl_ms = 6000, .renew_ms = 1000), NULL), OK);
    assert_int_equal(p.renew_ns, 1000 * MS);
}

static void impossible_options_are_refused(void **state)
{
    struct policy p;
    struct stile_error err;

    (void)state;
    assert_status(policy_from(&p, STILE_OPTIONS(.profile = (enum stile_profile)9), &err), MISUSE);
    assert_string_equal(err.message, "there is no profile 9");
    assert_status(policy_from(&p, STILE_OPTIONS(.ttl_ms = -1), &err), MISUSE);
    assert_string_equal(err.message, "ttl must be between 0 and 366 days");
    assert_status(policy_from(&p, STILE_OPTIONS(.hold_at_least_ms = INT64_MAX), &err), MISUSE);
    assert_status(policy_from(&p, STILE_OPTIONS(.lock_delay_ms = -5), &err), MISUSE);
    assert_status(policy_from(&p, STILE_OPTIONS(.retry_ms = -5), &err), MISUSE);
    assert_status(policy_from(&p, STILE_OPTIONS(.ttl_ms = 9), &err), MISUSE);
    assert_string_equal(err.message, "a ttl below 10 ms can't be kept");
    assert_status(policy_from(&p, STILE_OPTIONS(.ttl_ms = 1000, .renew_ms = 1000), &err), MISUSE);
    assert_string_equal(err.message, "renewal every 1000 ms comes too late for a ttl of 1000 ms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiles_are_as_promised),
        TEST_IN(open_one, profiles_reach_the_engine),
        TEST_IN(open_one, tries_are_bounded),
        TEST_IN(open_one, without_a_limit_only_time_ends_it),
        TEST_IN(open_one, failures_count_as_tries),
        cmocka_unit_test(jitter_is_full),
        cmocka_unit_test(back_off_doubles_up_to_a_cap),
        TEST_IN(open_one, pauses_differ_from_claim_to_claim),
        TEST_IN(open_one, a_hint_shortens_the_pause),
        TEST_IN(open_one, a_pause_ends_with_the_wait),
        TEST_IN(open_one, polled_until_it_is_free),
        cmocka_unit_test(options_override_the_profile),
        cmocka_unit_test(impossible_options_are_refused),
    };
    return cmocka_run_group_tests_name("core_retry", tests, NULL, NULL);
}
