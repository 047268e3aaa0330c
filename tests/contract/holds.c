/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* hold_at_least and lock-delay: names that stay taken without a holder. Whether a name
 * is kept is asked of holds that outlast the test, whether it comes free again of short ones. Times
 * are checked in one direction only: never earlier. */
#include "contract.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LONG_MS  (10 * PATIENCE_MS)
#define SHORT_MS 250
#define COPIES   8

/* The engine's clock may run 1 % faster than ours. */
static void check_not_earlier(int64_t since, int64_t ms)
{
    assert_true(now_ms() - since >= ms - ms / 100 - 2);
}

static struct stile_lock *wait_until_free(struct scene *s)
{
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    return lock;
}

static void check_kept(struct scene *s, bool ghost)
{
    struct seen seen;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    look(s->client, s->name, &seen);
    assert_int_equal(seen.holders, 1);
    assert_true(seen.claims[0].ghost || !ghost);
    assert_in_range(seen.claims[0].expires_ms, 1, LONG_MS + short_ttl(s));
    stile_lock_free(lock);
}

static void check_ghost_keeps_it(struct scene *s)
{
    await_ghost(s, s->name);
    check_kept(s, true);
}

/* Other leases cannot distinguish a dead holder from a silent one: after its lease the name is
 * still taken, and shown as its holder's. */
static void check_kept_after_a_kill(struct scene *s)
{
    struct timespec lease = {.tv_sec = short_ttl(s) / 1000 + 1};
    if (ends_with_process(s)) {
        check_ghost_keeps_it(s);
        return;
    }
    nanosleep(&lease, NULL);
    check_kept(s, false);
}

static struct peer *holding_peer(struct scene *s, int64_t hold_ms)
{
    return peer_start(s, s->name,
                      STILE_OPTIONS(.hold_at_least_ms = hold_ms, .ttl_ms = short_ttl(s)));
}

/* ---- hold_at_least: row 28 ---- */

static void test_hold_outlives_the_release(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct stile_lock *lock =
        held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = LONG_MS));
    check_ok(stile_lock_release(lock, &why));
    assert_false(stile_lock_held(lock));
    check_ghost_keeps_it(s);
    check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
}

static void test_hold_is_not_kept_for_what_was_abandoned(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct stile_lock *lock =
        held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = LONG_MS));
    check_ok(stile_lock_abandon(lock, &why));
    check_ok(stile_lock_acquire(lock, 0, &why));
    check_ok(stile_lock_abandon(lock, &why));
    check_status(STILE_MISUSE, stile_lock_abandon(lock, &why));
}

/* All or none: nothing ran, so nothing stays taken. */
static void test_hold_is_not_kept_for_some_of_several(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    const struct stile_lock_options *options = STILE_OPTIONS(.hold_at_least_ms = LONG_MS);
    char other[STILE_NAME_MAX];
    snprintf(other, sizeof other, "%s-other", s->name); /* behind it in canonical order */
    struct stile_lock *holder = held_on(s->client, other, NULL);
    struct stile_lock *both[] = {lock_on(s->client, other, options),
                                 lock_on(s->client, s->name, options)};
    check_status(STILE_HELD, stile_locks_acquire(both, 2, 0, &why));
    check_ok(stile_lock_release(holder, &why));
    check_ok(stile_locks_acquire(both, 2, 0, &why));
}

static void test_hold_outlives_the_process(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct peer *peer = holding_peer(s, LONG_MS);
    peer_acquire(peer);
    peer_release(peer);
    peer_end(s, peer);
    check_ghost_keeps_it(s);
}

static void test_hold_outlives_a_kill(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct peer *peer = holding_peer(s, LONG_MS);
    peer_acquire(peer);
    peer_kill(peer);
    check_kept_after_a_kill(s);
}

static void test_hold_ends(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    int64_t start = now_ms();
    struct stile_lock *lock =
        held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = SHORT_MS));
    check_ok(stile_lock_release(lock, &why));
    struct stile_lock *next = wait_until_free(s);
    check_not_earlier(start, SHORT_MS);
    check_ok(stile_lock_release(next, &why));
    check_free(s, s->name);
}

static void test_hold_ends_after_a_kill(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct peer *peer = holding_peer(s, SHORT_MS);
    int64_t start = now_ms();
    peer_acquire(peer);
    peer_kill(peer);
    struct stile_lock *next = wait_until_free(s);
    check_not_earlier(start, SHORT_MS);
    check_ok(stile_lock_release(next, &why));
    check_free(s, s->name);
}

/* Tried repeatedly: a clock that is early shows only to an early try. */
static void test_hold_does_not_end_early(void **state)
{
    struct scene *s = *state;
    struct timespec tick = {.tv_nsec = 2000000};
    if (!has_hold(s))
        return;
    int64_t start = now_ms();
    struct stile_lock *lock =
        held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = SHORT_MS));
    struct stile_lock *next = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_release(lock, &why));
    while (stile_lock_acquire(next, 0, &why) == STILE_HELD && now_ms() - start < PATIENCE_MS)
        nanosleep(&tick, NULL);
    assert_true(stile_lock_held(next));
    check_not_earlier(start, SHORT_MS);
}

/* A claim that waits already is woken when the hold ends, not before. */
static void test_hold_keeps_a_waiter(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct peer *waiter = peer_start(s, s->name, NULL);
    int64_t start = now_ms();
    struct stile_lock *lock =
        held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = SHORT_MS));
    peer_tell(waiter, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    check_ok(stile_lock_release(lock, &why));
    peer_expect_grant(waiter);
    check_not_earlier(start, SHORT_MS);
    peer_release(waiter);
    check_free(s, s->name);
}

/* Row 28: a cron job on many hosts, each of which comes when the last one is done. */
static void test_hold_lets_one_copy_run(void **state)
{
    struct scene *s = *state;
    int ran = 0;
    if (!has_hold(s))
        return;
    for (int i = 0; i < COPIES; i++) {
        struct peer *copy = holding_peer(s, LONG_MS);
        peer_tell(copy, "acquire 0");
        if (strcmp(peer_hear(copy), "failed HELD") != 0) {
            ran++;
            peer_release(copy);
        }
        peer_end(s, copy);
    }
    assert_int_equal(ran, 1);
}

static void test_hold_that_is_over_keeps_nothing(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct stile_lock *lock = held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = 10));
    struct stile_lock *next = lock_on(s->client, s->name, NULL);
    check_status(STILE_TIMEOUT, stile_lock_acquire(next, 50, &why));
    check_ok(stile_lock_release(lock, &why));
    check_free(s, s->name);
    check_ok(stile_lock_acquire(next, 0, &why));
}

/* The hold is its holder's, not the name's: the next one is as free as ever. */
static void test_hold_is_not_inherited(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct stile_lock *lock = held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = 20));
    check_ok(stile_lock_release(lock, &why));
    struct stile_lock *next = wait_until_free(s);
    check_ok(stile_lock_release(next, &why));
    check_free(s, s->name);
    check_ok(stile_lock_acquire(next, 0, &why));
}

/* A person may end a ghost as well. */
static void test_hold_is_broken(void **state)
{
    struct scene *s = *state;
    if (!has_hold(s))
        return;
    struct stile_lock *lock =
        held_on(s->client, s->name, STILE_OPTIONS(.hold_at_least_ms = LONG_MS));
    check_ok(stile_lock_release(lock, &why));
    await_ghost(s, s->name);
    check_ok(stile_break(s->client, s->name, 0, &why));
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
}

/* ---- lock-delay ---- */

static struct peer *delaying_peer(struct scene *s, int64_t delay_ms)
{
    return peer_start(s, s->name, STILE_OPTIONS(.lock_delay_ms = delay_ms, .ttl_ms = short_ttl(s)));
}

static void test_delay_after_a_kill(void **state)
{
    struct scene *s = *state;
    if (!has_delay(s))
        return;
    struct peer *peer = delaying_peer(s, LONG_MS);
    peer_acquire(peer);
    peer_kill(peer);
    check_kept_after_a_kill(s);
}

static void test_delay_ends(void **state)
{
    struct scene *s = *state;
    if (!has_delay(s))
        return;
    struct peer *peer = delaying_peer(s, SHORT_MS), *waiter = peer_start(s, s->name, NULL);
    peer_acquire(peer);
    peer_tell(waiter, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    int64_t start = now_ms();
    peer_kill(peer);
    peer_expect_grant(waiter);
    check_not_earlier(start, SHORT_MS);
    peer_release(waiter);
    check_free(s, s->name);
}

static void test_no_delay_after_a_release(void **state)
{
    struct scene *s = *state;
    if (!has_delay(s))
        return;
    struct peer *peer = delaying_peer(s, LONG_MS), *waiter = peer_start(s, s->name, NULL);
    peer_acquire(peer);
    peer_tell(waiter, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_release(peer);
    peer_expect_grant(waiter);
    peer_release(waiter);
    check_free(s, s->name);
}

static void test_no_delay_for_a_try_after_a_release(void **state)
{
    struct scene *s = *state;
    if (!has_delay(s))
        return;
    struct peer *peer = delaying_peer(s, LONG_MS);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(peer);
    peer_release(peer);
    check_free(s, s->name);
    check_ok(stile_lock_acquire(lock, 0, &why));
    check_ok(stile_lock_release(lock, &why));
    peer_acquire(peer);
    peer_end(s, peer); /* closing a client is no accident either */
    check_ok(stile_lock_acquire(lock, 0, &why));
}

/* clang-format off */
SUITE_PART(holds,
    SCENE_TEST(test_hold_outlives_the_release),
    SCENE_TEST(test_hold_is_not_kept_for_what_was_abandoned),
    SCENE_TEST(test_hold_is_not_kept_for_some_of_several),
    SCENE_TEST(test_hold_outlives_the_process),
    SCENE_TEST(test_hold_outlives_a_kill),
    SCENE_TEST(test_hold_ends),
    SCENE_TEST(test_hold_ends_after_a_kill),
    SCENE_TEST(test_hold_does_not_end_early),
    SCENE_TEST(test_hold_keeps_a_waiter),
    SCENE_TEST(test_hold_lets_one_copy_run),
    SCENE_TEST(test_hold_that_is_over_keeps_nothing),
    SCENE_TEST(test_hold_is_not_inherited),
    SCENE_TEST(test_hold_is_broken),
    SCENE_TEST(test_delay_after_a_kill),
    SCENE_TEST(test_delay_ends),
    SCENE_TEST(test_no_delay_after_a_release),
    SCENE_TEST(test_no_delay_for_a_try_after_a_release))
/* clang-format on */
