/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are killed with -9 or stopped, while they hold and while they wait. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct peer *mortal(struct scene *s)
{
    return peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
}

/* ---- killed ---- */

static void test_killed_holder_lets_the_next_in(void **state)
{
    struct scene *s = *state;
    struct peer *holder = mortal(s), *waiter = mortal(s);
    uint64_t first = peer_acquire(holder);
    peer_tell(waiter, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_kill(holder);
    uint64_t second = peer_expect_grant(waiter);
    assert_true(!s->caps->token || second > first);
    peer_release(waiter);
    check_free(s, s->name);
}

static void test_killed_holder_without_waiters(void **state)
{
    struct scene *s = *state;
    struct peer *holder = mortal(s);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    peer_kill(holder);
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    check_ok(stile_lock_release(lock, &why));
    check_free(s, s->name);
}

/* Rows 6, 10: a dead waiter must not hold up those behind it, wherever it stood. */
static void kill_waiter_at(struct scene *s, size_t place)
{
    struct peer *waiters[3];
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    for (size_t i = 0; i < 3; i++) {
        waiters[i] = mortal(s);
        peer_tell(waiters[i], "acquire %d", PATIENCE_MS);
        await_state(s, s->name, 1, i + 1);
    }
    peer_kill(waiters[place]);
    check_ok(stile_lock_release(holder, &why));
    struct peer *left[2] = {waiters[place == 0], waiters[place == 2 ? 1 : 2]};
    for (size_t i = 0; i < 2; i++) {
        size_t next = peer_first(left, 2);
        if (s->caps->fifo)
            assert_int_equal(next, i);
        peer_expect_grant(left[next]);
        peer_release(left[next]);
    }
    await_state(s, s->name, 0, 0);
    stile_lock_free(holder);
}

static void test_killed_first_waiter(void **state)
{
    kill_waiter_at(*state, 0);
}

static void test_killed_waiter_in_the_middle(void **state)
{
    kill_waiter_at(*state, 1);
}

static void test_killed_last_waiter(void **state)
{
    kill_waiter_at(*state, 2);
}

/* The dead one's entry may have been granted it already, by the other one's death. */
static void test_killed_holder_and_first_waiter(void **state)
{
    struct scene *s = *state;
    struct peer *holder = mortal(s), *first = mortal(s), *second = mortal(s);
    peer_acquire(holder);
    peer_tell(first, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_tell(second, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 2);
    peer_kill(first);
    peer_kill(holder);
    peer_expect_grant(second);
    peer_release(second);
    check_free(s, s->name);
}

/* No process is left to clear the queue: what is shown of it must end with the holder's lease.
 */
static void test_killed_holder_and_all_waiters(void **state)
{
    struct scene *s = *state;
    struct peer *holder = mortal(s), *waiters[2] = {mortal(s), mortal(s)};
    peer_acquire(holder);
    for (size_t i = 0; i < COUNT(waiters); i++) {
        peer_tell(waiters[i], "acquire %d", PATIENCE_MS);
        await_state(s, s->name, 1, i + 1);
    }
    for (size_t i = 0; i < COUNT(waiters); i++)
        peer_kill(waiters[i]);
    peer_kill(holder);
    await_state(s, s->name, 0, 0);
    check_ok(stile_lock_acquire(lock_on(s->client, s->name, NULL), 0, &why));
}

static void gave_up(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)lock, (void)err;
    if (status == STILE_CANCELLED)
        sem_post(data);
}

/* Row 11: the waiter behind one that gave up must now watch the one before that. An engine that
 * looks again after seconds would pass once; all rounds together have the patience of one. */
static void test_killed_holder_after_a_waiter_gave_up(void **state)
{
    struct scene *s = *state;
    sem_t *cancelled = scene_semaphore(s);
    struct peer *last = mortal(s);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    int64_t start = now_ms();
    for (unsigned i = 0; i < (ends_with_process(s) ? 10u : 1u); i++) {
        struct peer *holder = mortal(s);
        peer_acquire(holder);
        check_ok(stile_lock_acquire_async(lock, -1, gave_up, cancelled));
        await_state(s, s->name, 1, 1);
        peer_tell(last, "acquire %d", PATIENCE_MS);
        await_state(s, s->name, 1, 2);
        check_ok(stile_lock_cancel(lock));
        await_post(cancelled);
        peer_kill(holder);
        peer_forget(s, holder);
        peer_expect_grant(last);
        peer_release(last);
        assert_true(now_ms() - start < PATIENCE_MS);
    }
}

/* Everything of a dead process goes, not just one lock. */
static void test_killed_holder_of_many(void **state)
{
    struct scene *s = *state;
    char names[6][80];
    struct peer *holder = peer_start(s, NULL, NULL);
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(names[i], sizeof names[i], "%s-%zu", s->name, i);
        peer_lock(holder, names[i], STILE_OPTIONS(.ttl_ms = short_ttl(s)));
    }
    peer_tell(holder, "acquire-all 0");
    peer_expect(holder, "acquired all");
    peer_kill(holder);
    for (size_t i = 0; i < COUNT(names); i++) {
        struct stile_lock *lock = lock_on(s->client, names[i], NULL);
        check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
        check_ok(stile_lock_release(lock, &why));
    }
    assert_int_equal(count_listed(s->client, s->name), 0);
}

/* Killed at moments nobody chose: while claiming, inside, while releasing, while handing over. */
static struct peer *hammering(struct scene *s)
{
    struct peer *peer = mortal(s);
    peer_tell(peer, "hammer 0");
    peer_expect(peer, "hammering");
    return peer;
}

static void test_kills_under_load(void **state)
{
    struct scene *s = *state;
    struct peer *peers[3];
    unsigned kills = scene_rounds(s, 60, 4);
    unsigned seed = 1;
    for (size_t i = 0; i < COUNT(peers); i++)
        peers[i] = hammering(s);
    for (unsigned i = 0; i < kills; i++) {
        struct timespec some_time = {.tv_nsec = rand_r(&seed) % 3000000};
        size_t victim = i % COUNT(peers);
        nanosleep(&some_time, NULL);
        peer_kill(peers[victim]);
        peer_forget(s, peers[victim]);
        peers[victim] = hammering(s);
    }
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    for (size_t i = 0; i < COUNT(peers); i++)
        peer_kill(peers[i]);
    assert_true(stile_lock_held(lock));
    check_ok(stile_lock_release(lock, &why));
    await_state(s, s->name, 0, 0);
    assert_int_equal(suite.arena->overlaps, 0);
    assert_int_equal(suite.arena->backwards, 0);
    assert_true(suite.arena->count > 0);
}

/* ---- stopped ---- */

/* A process lease does not run out: a stopped holder keeps it. */
static void check_stopped_holder_keeps_it(struct scene *s, struct peer *holder)
{
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_status(STILE_TIMEOUT, stile_lock_acquire(lock, 2 * short_ttl(s), &why));
    peer_continue(holder);
    peer_tell(holder, "held");
    peer_expect(holder, "held");
    peer_release(holder);
    check_ok(stile_lock_acquire(lock, 0, &why));
}

/* Row 1: every other lease does, and its holder hears of it in every way there is. Row 34: what it
 * still writes carries the smaller token. */
static void check_stopped_holder_loses_it(struct scene *s, struct peer *holder, uint64_t token)
{
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    assert_true(!s->caps->token || token_of(lock) > token);
    peer_continue(holder);
    peer_tell(holder, "lost");
    peer_expect(holder, "lost");
    peer_tell(holder, "release");
    peer_expect(holder, "failed LOST");
    assert_true(stile_lock_held(lock));
    peer_tell(holder, "acquire 0");
    peer_expect(holder, "failed HELD");
    check_ok(stile_lock_release(lock, &why));
}

static void test_stopped_holder(void **state)
{
    struct scene *s = *state;
    struct peer *holder = mortal(s);
    uint64_t token = peer_acquire(holder);
    peer_stop(holder);
    if (ends_with_process(s))
        check_stopped_holder_keeps_it(s, holder);
    else
        check_stopped_holder_loses_it(s, holder, token);
}

/* Whether the engine passes a stopped waiter over or waits for it: both get it, one at a time. */
static void test_stopped_waiter(void **state)
{
    struct scene *s = *state;
    struct peer *stopped = mortal(s), *behind = mortal(s), *both[2] = {stopped, behind};
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    peer_tell(stopped, "acquire %d", 2 * PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_tell(behind, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 2);
    peer_stop(stopped);
    check_ok(stile_lock_release(holder, &why));
    if (!ends_with_process(s))
        assert_int_equal(peer_first(both, 2), 1);
    peer_continue(stopped);
    size_t first = peer_first(both, 2);
    uint64_t token = peer_expect_grant(both[first]);
    peer_release(both[first]);
    uint64_t later = peer_expect_grant(both[!first]);
    assert_true(!s->caps->token || later > token);
    peer_release(both[!first]);
    check_free(s, s->name);
}

static void test_stopped_and_killed_holder(void **state)
{
    struct scene *s = *state;
    struct peer *holder = mortal(s), *waiter = mortal(s);
    peer_acquire(holder);
    peer_tell(waiter, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_stop(holder);
    peer_kill(holder);
    peer_expect_grant(waiter);
    peer_release(waiter);
}

/* clang-format off */
SUITE_PART(crash,
    SCENE_TEST(test_killed_holder_lets_the_next_in),
    SCENE_TEST(test_killed_holder_without_waiters),
    SCENE_TEST(test_killed_first_waiter),
    SCENE_TEST(test_killed_waiter_in_the_middle),
    SCENE_TEST(test_killed_last_waiter),
    SCENE_TEST(test_killed_holder_and_first_waiter),
    SCENE_TEST(test_killed_holder_and_all_waiters),
    SCENE_TEST(test_killed_holder_after_a_waiter_gave_up),
    SCENE_TEST(test_killed_holder_of_many),
    SCENE_TEST(test_kills_under_load),
    SCENE_TEST(test_stopped_holder),
    SCENE_TEST(test_stopped_waiter),
    SCENE_TEST(test_stopped_and_killed_holder))
/* clang-format on */
