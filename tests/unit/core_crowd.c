/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at once on the real loop: callbacks among them, and forks in the midst of it. */
#include "unit/core_threads_kit.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- callbacks from the background thread ---- */

struct chain {
    sem_t done;
    _Atomic unsigned left;
};

static void go_on(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data)
{
    struct chain *chain = data;

    (void)err;
    if (status)
        abort();
    if (stile_lock_held(lock)) {
        (void)stile_lock_release_async(lock, go_on, chain);
    } else if (atomic_fetch_sub(&chain->left, 1) > 1) {
        (void)stile_lock_acquire_async(lock, -1, go_on, chain);
    } else {
        (void)stile_lock_free(lock);
        sem_post(&chain->done);
    }
}

static void chains_of_callbacks(void **state)
{
    struct chain chains[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        sem_init(&chains[i].done, 0, 0);
        atomic_init(&chains[i].left, 500);
        assert_status(stile_lock_acquire_async(make_lock(it.client, i % 2 ? "a" : "b", NULL), -1,
                                               go_on, &chains[i]),
                      OK);
    }
    for (int i = 0; i < 4; i++) {
        threads_await(&chains[i].done);
        sem_destroy(&chains[i].done);
    }
}

static void wait_inside(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct chain *chain = data;

    (void)err;
    if (status || stile_lock_release(lock, NULL) || stile_lock_acquire(lock, -1, NULL) ||
        stile_lock_release(lock, NULL))
        abort();
    sem_post(&chain->done);
}

/* Not allowed, but no reason to hang: on the background thread, with callers coming and going. */
static void a_callback_that_waits_is_served(void **state)
{
    struct stile_lock *other = make_lock(it.client, "b", NULL);
    struct stile_lock *lock = make_lock(it.client, "a", NULL);
    struct chain chain;

    (void)state;
    sem_init(&chain.done, 0, 0);
    for (int i = 0; i < 200; i++) {
        assert_status(stile_lock_acquire_async(lock, -1, wait_inside, &chain), OK);
        if (i % 2) {
            assert_status(stile_lock_acquire(other, -1, NULL), OK);
            assert_status(stile_lock_release(other, NULL), OK);
        }
        threads_await(&chain.done);
    }
    sem_destroy(&chain.done);
}

/* ---- everybody at once ---- */

#define THREADS 8
#define NAMES   16
#define ROUNDS  400

static struct {
    unsigned names;
    uint64_t word[NAMES]; /* written and read under its lock only */
    _Atomic unsigned grants, others;
} crowd;

static void *jostle(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    struct stile_lock *locks[NAMES];

    for (unsigned i = 0; i < crowd.names; i++) {
        char name[2] = {(char)('a' + i), 0};
        if (stile_lock_new(&locks[i], it.client, name, NULL, NULL))
            abort();
    }
    for (int round = 0; round < ROUNDS; round++) {
        unsigned i = (unsigned)rand_r(&seed) % crowd.names;
        int64_t wait_ms = (int64_t[]){-1, -1, -1, 0, 1}[rand_r(&seed) % 5];
        uint64_t before, token;
        enum stile_status status = stile_lock_acquire(locks[i], wait_ms, NULL);
        if (status) {
            if (status != STILE_HELD && status != STILE_TIMEOUT)
                abort();
            atomic_fetch_add(&crowd.others, 1);
            continue;
        }
        before = crowd.word[i];
        if (stile_lock_token(locks[i], &token) || token <= before)
            abort();
        crowd.word[i] = token;
        atomic_fetch_add(&crowd.grants, 1);
        if (stile_lock_release(locks[i], NULL))
            abort();
    }
    for (unsigned i = 0; i < crowd.names; i++)
        (void)stile_lock_free(locks[i]);
    return NULL;
}

static void all_threads(unsigned names)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    struct timespec until = threads_patience();

    crowd.names = names;
    memset(crowd.word, 0, sizeof(crowd.word));
    crowd.grants = crowd.others = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, jostle, &seeds[i]), 0);
    }
    until.tv_sec += 30;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_timedjoin_np(threads[i], NULL, &until), 0);
    assert_int_equal(crowd.grants + crowd.others, THREADS * ROUNDS);
    assert_true(crowd.grants > ROUNDS);
}

static void many_threads_one_name(void **state)
{
    (void)state;
    all_threads(1);
}

static void many_threads_many_names(void **state)
{
    (void)state;
    all_threads(NAMES);
}

static void many_threads_answered_from_inside(void **state)
{
    (void)state;
    threads_all_inside();
    all_threads(1);
    all_threads(NAMES);
}

/* ---- fork in the midst of it ---- */

static void *keep_busy(void *arg)
{
    struct stile_lock *lock;
    _Atomic bool *stop = arg;

    if (stile_lock_new(&lock, it.client, "a", NULL, NULL))
        abort();
    while (!atomic_load(stop)) {
        if (stile_lock_acquire(lock, -1, NULL) || stile_lock_release(lock, NULL))
            abort();
    }
    return NULL;
}

static void fork_while_threads_call(void **state)
{
    pthread_t threads[3];
    _Atomic bool stop = false;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &stop), 0);
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(PATIENCE_SEC);
            stile_client_close(it.client); /* the parent's: nothing happens */
            _exit(stile_client_dispatch(it.client) != STILE_MISUSE);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

#define IN_CLIENT(test) cmocka_unit_test_setup_teardown(test, threads_open, threads_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CLIENT(chains_of_callbacks),
        IN_CLIENT(a_callback_that_waits_is_served),
        IN_CLIENT(many_threads_one_name),
        IN_CLIENT(many_threads_many_names),
        IN_CLIENT(many_threads_answered_from_inside),
        IN_CLIENT(fork_while_threads_call),
    };
    return cmocka_run_group_tests_name("core_crowd", tests, NULL, NULL);
}
