/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks as one, thousands of locks, many threads. */
#include "contract.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCKS   2000
#define THREADS 8

static void name_of(char out[80], const struct scene *s, const char *tail)
{
    snprintf(out, 80, "%s-%s", s->name, tail);
}

/* ---- all or none ---- */

static void test_opposite_orders_do_not_block_each_other(void **state)
{
    struct scene *s = *state;
    char a[80], b[80], c[80];
    unsigned rounds = scene_rounds(s, 500, 20);
    struct peer *one = peer_start(s, NULL, NULL), *two = peer_start(s, NULL, NULL);
    name_of(a, s, "a");
    name_of(b, s, "b");
    name_of(c, s, "c");
    const char *forth[] = {a, b, c}, *back[] = {c, b, a};
    for (size_t i = 0; i < 3; i++) {
        peer_lock(one, forth[i], NULL);
        peer_lock(two, back[i], NULL);
    }
    peer_tell(one, "hammer %u", rounds);
    peer_tell(two, "hammer %u", rounds);
    peer_expect(one, "hammering");
    peer_expect(two, "hammering");
    peer_expect(one, "hammered");
    peer_expect(two, "hammered");
    assert_int_equal(suite.arena->overlaps, 0);
    assert_int_equal(suite.arena->count, 2 * rounds);
    assert_int_equal(count_listed(s->client, s->name), 0);
}

static void test_all_or_none(void **state)
{
    struct scene *s = *state;
    char a[80], b[80], c[80];
    struct peer *peer = peer_start(s, NULL, NULL);
    name_of(a, s, "a");
    name_of(b, s, "b");
    name_of(c, s, "c");
    struct stile_lock *locks[] = {lock_on(s->client, c, NULL), lock_on(s->client, a, NULL),
                                  lock_on(s->client, b, NULL)};
    struct stile_lock *as_given[] = {locks[0], locks[1], locks[2]};
    peer_lock(peer, b, NULL);
    peer_acquire(peer);
    check_status(STILE_HELD, stile_locks_acquire(locks, 3, 0, &why));
    check_free(s, a);
    check_free(s, c);
    check_status(STILE_TIMEOUT, stile_locks_acquire(locks, 3, 20, &why));
    check_free(s, a);
    check_free(s, c);
    await_state(s, b, 1, 0);
    peer_release(peer);
    check_ok(stile_locks_acquire(locks, 3, PATIENCE_MS, &why));
    assert_int_equal(count_listed(s->client, s->name), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(locks[i], as_given[i]);
        assert_true(stile_lock_held(locks[i]));
    }
    check_ok(stile_locks_release(locks, 3, &why));
    assert_int_equal(count_listed(s->client, s->name), 0);
}

static void test_several_locks_misused(void **state)
{
    struct scene *s = *state;
    struct stile_lock *twice[] = {lock_on(s->client, s->name, NULL),
                                  lock_on(s->client, s->name, NULL)};
    struct stile_lock *hole[] = {twice[0], NULL};
    check_status(STILE_MISUSE, stile_locks_acquire(twice, 2, 0, &why));
    check_status(STILE_MISUSE, stile_locks_acquire(hole, 2, 0, &why));
    check_status(STILE_MISUSE, stile_locks_acquire(NULL, 0, 0, &why));
    assert_false(stile_lock_held(twice[0]));
    check_free(s, s->name);
}

/* ---- thousands ---- */

static void test_thousands_of_locks(void **state)
{
    struct scene *s = *state;
    char name[80];
    unsigned most = s->caps->most_locks;
    int n = most > 0 && most < LOCKS ? (int)most : LOCKS;
    struct stile_client *other = scene_client(s, NULL);
    struct stile_lock **locks = calloc((size_t)n, sizeof *locks);
    assert_non_null(locks);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s-%d", s->name, i);
        locks[i] = held_on(s->client, name, NULL);
    }
    assert_int_equal(count_listed(other, s->name), n);
    for (int i = 0; i < n; i += 37) {
        assert_true(stile_lock_held(locks[i]));
        struct stile_lock *lock = lock_on(other, stile_lock_name(locks[i]), NULL);
        check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
        stile_lock_free(lock);
    }
    if (n < LOCKS) { /* the limit is reported, and nothing else suffers */
        snprintf(name, sizeof name, "%s-more", s->name);
        struct stile_lock *more = lock_on(s->client, name, NULL);
        check_status(STILE_REFUSED, stile_lock_acquire(more, 0, &why));
        stile_lock_free(more);
        assert_true(stile_lock_held(locks[0]) && stile_lock_held(locks[n - 1]));
    }
    for (int i = 0; i < n; i++) {
        check_ok(stile_lock_release(locks[i], &why));
        stile_lock_free(locks[i]);
    }
    assert_int_equal(count_listed(other, s->name), 0);
    free(locks);
}

/* ---- threads ---- */

struct thread {
    pthread_t thread;
    struct scene *scene;
    unsigned me, rounds;
    enum stile_status status;
};

/* Its own name most of the time, everybody's name every eighth round. */
static void *make_and_free(void *arg)
{
    struct thread *t = arg;
    char name[80];
    for (unsigned i = 0; i < t->rounds && !t->status; i++) {
        struct stile_lock *lock;
        uint64_t token = 0;
        bool common = i % 8 == 0;
        snprintf(name, sizeof name, "%s-%u", t->scene->name, common ? 0 : t->me);
        t->status = stile_lock_new(&lock, t->scene->client, name, NULL, NULL);
        if (t->status)
            break;
        t->status = stile_lock_acquire(lock, PATIENCE_MS, NULL);
        stile_lock_token(lock, &token);
        if (common && !t->status)
            arena_work(t->me, token);
        if (!t->status)
            t->status = stile_lock_release(lock, NULL);
        stile_lock_free(lock);
    }
    return NULL;
}

static void test_many_threads_on_one_client(void **state)
{
    struct scene *s = *state;
    struct thread threads[THREADS];
    unsigned rounds = 8 * scene_rounds(s, 50, 4);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.scene = s, .me = i + 1, .rounds = rounds};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, make_and_free, &threads[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        check_ok(threads[i].status);
    assert_int_equal(suite.arena->overlaps, 0);
    assert_int_equal(suite.arena->backwards, 0);
    assert_int_equal(suite.arena->count, THREADS * rounds / 8);
    assert_int_equal(count_listed(s->client, s->name), 0);
}

/* clang-format off */
SUITE_PART(many,
    SCENE_TEST(test_opposite_orders_do_not_block_each_other),
    SCENE_TEST(test_all_or_none),
    SCENE_TEST(test_several_locks_misused),
    SCENE_TEST(test_thousands_of_locks),
    SCENE_TEST(test_many_threads_on_one_client))
/* clang-format on */
