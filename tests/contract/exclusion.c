/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One at a time: among processes, among threads of one client, among clients of one process. */
#include "contract.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PROCESSES 4
#define THREADS   4

static void check_arena(uint64_t rounds)
{
    assert_int_equal(suite.arena->overlaps, 0);
    assert_int_equal(suite.arena->backwards, 0);
    assert_int_equal(suite.arena->count, rounds);
}

/* ---- the plain case ---- */

static void test_acquire_and_release(void **state)
{
    struct scene *s = *state;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    assert_false(stile_lock_held(lock));
    assert_int_equal(stile_lock_remaining_ms(lock), 0);
    assert_string_equal(stile_lock_name(lock), s->name);
    for (int i = 0; i < 3; i++) {
        check_ok(stile_lock_acquire(lock, 0, &why));
        assert_true(stile_lock_held(lock));
        if (ends_with_process(s))
            assert_true(stile_lock_remaining_ms(lock) == STILE_NO_DEADLINE);
        else
            assert_in_range(stile_lock_remaining_ms(lock), 1, 10000);
        assert_false(readable(stile_lock_lost_fd(lock), 0));
        check_ok(stile_lock_release(lock, &why));
        assert_false(stile_lock_held(lock));
        assert_int_equal(stile_lock_remaining_ms(lock), 0);
    }
    check_free(s, s->name);
    stile_lock_free(lock);
}

static void test_try_says_held_by_another_process(void **state)
{
    struct scene *s = *state;
    struct peer *peer = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(peer);
    check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    assert_non_null(strstr(why.message, s->name));
    assert_false(stile_lock_held(lock));
    peer_release(peer);
    check_ok(stile_lock_acquire(lock, 0, &why));
    peer_tell(peer, "acquire 0");
    peer_expect(peer, "failed HELD");
    check_ok(stile_lock_release(lock, &why));
    peer_end(s, peer);
}

/* Not re-entrant: a second handle waits for the first, in the same thread as well. */
static void test_try_says_held_by_ourselves(void **state)
{
    struct scene *s = *state;
    struct stile_lock *first = held_on(s->client, s->name, NULL);
    struct stile_lock *second = lock_on(s->client, s->name, NULL);
    struct stile_lock *third = lock_on(scene_client(s, NULL), s->name, NULL);
    check_status(STILE_HELD, stile_lock_acquire(second, 0, &why));
    check_status(STILE_HELD, stile_lock_acquire(third, 0, &why));
    check_ok(stile_lock_release(first, &why));
    check_ok(stile_lock_acquire(second, 0, &why));
    check_status(STILE_HELD, stile_lock_acquire(third, 0, &why));
    check_ok(stile_lock_release(second, &why));
    check_ok(stile_lock_acquire(third, 0, &why));
    check_status(STILE_HELD, stile_lock_acquire(first, 0, &why));
    check_ok(stile_lock_release(third, &why));
}

static void test_names_do_not_exclude_one_another(void **state)
{
    struct scene *s = *state;
    char other[80];
    struct peer *peer = peer_start(s, s->name, NULL);
    snprintf(other, sizeof other, "%s-other", s->name);
    peer_acquire(peer);
    struct stile_lock *lock = held_on(s->client, other, NULL);
    check_ok(stile_lock_release(lock, &why));
}

/* ---- under load, with a check the engine knows nothing of ---- */

static void test_processes_exclude(void **state)
{
    struct scene *s = *state;
    struct peer *peers[PROCESSES];
    unsigned rounds = scene_rounds(s, 3000, 50);
    for (int i = 0; i < PROCESSES; i++)
        peers[i] = peer_start(s, s->name, NULL);
    for (int i = 0; i < PROCESSES; i++)
        peer_tell(peers[i], "hammer %u", rounds);
    for (int i = 0; i < PROCESSES; i++) {
        peer_expect(peers[i], "hammering");
        peer_expect(peers[i], "hammered");
        peer_end(s, peers[i]);
    }
    check_arena((uint64_t)rounds * PROCESSES);
    check_free(s, s->name);
}

struct worker {
    pthread_t thread;
    struct stile_lock *lock;
    unsigned rounds;
    uint64_t number;
    enum stile_status status;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    w->status = hammer(&w->lock, 1, w->rounds, w->number);
    return NULL;
}

/* Worker i works through clients[i % n]. */
static void run_workers(struct scene *s, struct stile_client *const *clients, size_t n,
                        unsigned rounds)
{
    struct worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.rounds = rounds, .number = i + 1};
        workers[i].lock = lock_on(clients[i % n], s->name, NULL);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        check_ok(workers[i].status);
}

static void test_threads_of_one_client_exclude(void **state)
{
    struct scene *s = *state;
    unsigned rounds = scene_rounds(s, 2000, 50);
    run_workers(s, &s->client, 1, rounds);
    check_arena((uint64_t)rounds * THREADS);
    check_free(s, s->name);
}

static void test_clients_of_one_process_exclude(void **state)
{
    struct scene *s = *state;
    struct stile_client *clients[] = {s->client, scene_client(s, NULL)};
    unsigned rounds = scene_rounds(s, 2000, 50);
    run_workers(s, clients, COUNT(clients), rounds);
    check_arena((uint64_t)rounds * THREADS);
    check_free(s, s->name);
}

/* Threads wait in their client's turn, processes in the engine's queue: both kinds at once. */
static void test_threads_and_processes_exclude(void **state)
{
    struct scene *s = *state;
    unsigned rounds = scene_rounds(s, 1000, 25);
    struct peer *a = peer_start(s, s->name, NULL), *b = peer_start(s, s->name, NULL);
    peer_tell(a, "hammer %u", rounds);
    peer_tell(b, "hammer %u", rounds);
    run_workers(s, &s->client, 1, rounds);
    peer_expect(a, "hammering");
    peer_expect(a, "hammered");
    peer_expect(b, "hammering");
    peer_expect(b, "hammered");
    check_arena((uint64_t)rounds * (THREADS + 2));
    check_free(s, s->name);
}

/* clang-format off */
SUITE_PART(exclusion,
    SCENE_TEST(test_acquire_and_release),
    SCENE_TEST(test_try_says_held_by_another_process),
    SCENE_TEST(test_try_says_held_by_ourselves),
    SCENE_TEST(test_names_do_not_exclude_one_another),
    SCENE_TEST(test_processes_exclude),
    SCENE_TEST(test_threads_of_one_client_exclude),
    SCENE_TEST(test_clients_of_one_process_exclude),
    SCENE_TEST(test_threads_and_processes_exclude))
/* clang-format on */
