/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that end before their time: the client is closed, the lock is freed, or a signal handler
 * interrupts. On the real loop, with threads. */
#include "unit/core_threads_kit.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 50

/* A leader and a follower, or more of them, each behind a holder of its own. */
static void start_waiters(struct waiter *waiters, struct stile_lock **locks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[2] = {(char)('a' + i), 0};
        if (!locks[i]) {
            threads_occupy(name);
            locks[i] = make_lock(it.client, name, NULL);
        }
        waiter_start(&waiters[i], locks[i]);
    }
    for (size_t i = 0; i < n; i++)
        threads_await(&it.claims);
}

/* ---- closing ---- */

static void close_ends_waits(void **state)
{
    struct stile_lock *locks[3] = {NULL};
    struct waiter waiters[3];

    (void)state;
    start_waiters(waiters, locks, 3);
    stile_client_close(it.client);
    for (int i = 0; i < 3; i++)
        assert_status(waiter_finish(&waiters[i]), CANCELLED);
    it.client = NULL;
}

struct several {
    pthread_t thread;
    struct stile_lock *locks[3];
    enum stile_status status;
};

static void *acquire_several(void *arg)
{
    struct several *several = arg;

    several->status = stile_locks_acquire(several->locks, 3, -1, NULL);
    return NULL;
}

/* The locks that it had got are of a client that is being closed: nothing of it may be gone yet. */
static void close_while_several_are_taken(void **state)
{
    struct several several = {.status = STILE_OK};
    struct timespec until;

    (void)state;
    threads_occupy("c");
    for (int i = 0; i < 3; i++)
        several.locks[i] = make_lock(it.client, i == 0 ? "a" : i == 1 ? "b" : "c", NULL);
    assert_int_equal(pthread_create(&several.thread, NULL, acquire_several, &several), 0);
    for (int i = 0; i < 3; i++)
        threads_await(&it.claims);
    stile_client_close(it.client);
    until = threads_patience();
    assert_int_equal(pthread_timedjoin_np(several.thread, NULL, &until), 0);
    assert_status(several.status, CANCELLED);
    it.client = NULL;
}

static int close_in_with(struct stile_lock *lock, void *data)
{
    (void)data;
    stile_client_close(it.client);
    return stile_lock_name(lock) ? 7 : 0; /* still there */
}

static void close_inside_of_with(void **state)
{
    int result = 0;

    (void)state;
    threads_watch_close();
    assert_status(stile_with(it.client, "a", NULL, close_in_with, NULL, &result, NULL), MISUSE);
    assert_int_equal(result, 7);
    threads_await_close();
}

static void close_inside(struct stile_lock *lock, enum stile_status status,
                         const struct stile_error *err, void *data)
{
    struct stile_lock *more;

    (void)lock;
    (void)err;
    (void)data;
    assert_status(status, OK);
    stile_client_close(it.client);
    stile_client_close(it.client); /* again: nothing happens */
    assert_status(stile_lock_new(&more, it.client, "more", NULL, NULL), MISUSE);
}

static void close_from_the_background_thread(void **state)
{
    (void)state;
    threads_watch_close();
    assert_status(stile_lock_acquire_async(make_lock(it.client, "x", NULL), -1, close_inside, NULL),
                  OK);
    threads_await_close();
}

/* The callback runs on the thread of one that waits; the last of them to leave closes. */
static void close_from_a_callback_while_others_wait(void **state)
{
    struct stile_lock *locks[3] = {NULL};
    struct waiter waiters[3];

    (void)state;
    threads_watch_close();
    start_waiters(waiters, locks, 3);
    assert_status(stile_lock_acquire_async(make_lock(it.client, "x", NULL), -1, close_inside, NULL),
                  OK);
    for (int i = 0; i < 3; i++)
        assert_status(waiter_finish(&waiters[i]), CANCELLED);
    threads_await_close();
}

static int close_in_list(const struct stile_info *info, void *data)
{
    (void)info;
    ++*(int *)data;
    stile_client_close(it.client);
    return 0;
}

static void close_from_a_callback_of_list(void **state)
{
    struct stile_lock *lock = make_lock(it.client, "a", NULL);
    int times = 0;

    (void)state;
    threads_watch_close();
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_list(it.client, NULL, close_in_list, &times, NULL), OK);
    assert_int_equal(times, 1);
    threads_await_close();
}

/* ---- freeing ---- */

static void free_ends_a_wait(void **state)
{
    struct stile_lock *locks[2] = {NULL};
    struct waiter waiters[2];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        start_waiters(waiters, locks, 2);
        stile_lock_free(locks[round % 2]);
        stile_lock_free(locks[(round + 1) % 2]);
        for (int i = 0; i < 2; i++) {
            assert_status(waiter_finish(&waiters[i]), CANCELLED);
            locks[i] = make_lock(it.client, i ? "b" : "a", NULL);
        }
    }
}

/* ---- interrupting ---- */

static void an_interrupt_ends_all_waits(void **state)
{
    struct stile_lock *locks[3] = {NULL};
    struct waiter waiters[3];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        start_waiters(waiters, locks, 3);
        stile_client_interrupt(it.client);
        for (int i = 0; i < 3; i++)
            assert_status(waiter_finish(&waiters[i]), CANCELLED);
    }
}

static void an_interrupt_before_the_wait_is_not_missed(void **state)
{
    struct stile_lock *held = make_lock(it.client, "free", NULL);
    struct stile_lock *lock = make_lock(it.client, "a", NULL);

    (void)state;
    threads_occupy("a");
    assert_status(stile_lock_acquire(held, -1, NULL), OK);
    stile_client_interrupt(it.client);
    stile_client_interrupt(it.client);
    assert_status(stile_lock_release(held, NULL), OK); /* no wait for a lock */
    assert_status(stile_lock_acquire(lock, -1, NULL), CANCELLED);
    assert_status(stile_lock_acquire(lock, 20, NULL), TIMEOUT); /* it counts once */
    assert_status(stile_lock_acquire(held, -1, NULL), OK);
}

static void on_signal(int signal)
{
    (void)signal;
    stile_client_interrupt(it.client);
}

static void a_signal_handler_interrupts(void **state)
{
    struct stile_lock *locks[1] = {NULL};
    struct waiter waiter;

    (void)state;
    assert_true(signal(SIGUSR1, on_signal) != SIG_ERR);
    for (int round = 0; round < ROUNDS; round++) {
        start_waiters(&waiter, locks, 1);
        assert_int_equal(pthread_kill(waiter.thread, SIGUSR1), 0);
        assert_status(waiter_finish(&waiter), CANCELLED);
    }
    assert_true(signal(SIGUSR1, SIG_DFL) != SIG_ERR);
}

static int interrupt_in_watch(const struct stile_info *info, void *data)
{
    (void)info;
    ++*(int *)data;
    stile_client_interrupt(it.client);
    return 0;
}

static void a_watch_is_interrupted(void **state)
{
    int times = 0;

    (void)state;
    assert_status(stile_watch(it.client, "a", -1, interrupt_in_watch, &times, NULL), CANCELLED);
    assert_int_equal(times, 1);
}

#define IN_CLIENT(test) cmocka_unit_test_setup_teardown(test, threads_open, threads_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CLIENT(close_ends_waits),
        IN_CLIENT(close_from_the_background_thread),
        IN_CLIENT(close_from_a_callback_while_others_wait),
        IN_CLIENT(close_from_a_callback_of_list),
        IN_CLIENT(close_while_several_are_taken),
        IN_CLIENT(close_inside_of_with),
        IN_CLIENT(free_ends_a_wait),
        IN_CLIENT(an_interrupt_ends_all_waits),
        IN_CLIENT(an_interrupt_before_the_wait_is_not_missed),
        IN_CLIENT(a_signal_handler_interrupts),
        IN_CLIENT(a_watch_is_interrupted),
    };
    return cmocka_run_group_tests_name("core_interrupt", tests, NULL, NULL);
}
