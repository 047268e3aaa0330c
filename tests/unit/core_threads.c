/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Blocked callers and the background thread on the real loop: which thread drives, which is woken,
 * and by whom. */
#include "unit/core_threads_kit.h"

#include <pthread.h>
#include <semaphore.h>

/* ---- cancel ---- */

/* The waiter leads, asleep in the loop; the cancel is answered on the canceller's thread. */
static void cancel_wakes_the_leader(void **state)
{
    struct stile_lock *lock = make_lock(it.client, "a", NULL);
    struct waiter waiter;

    (void)state;
    threads_all_inside();
    threads_occupy("a");
    for (int i = 0; i < 200; i++) {
        waiter_start(&waiter, lock);
        threads_await(&it.claims);
        assert_status(stile_lock_cancel(lock), OK);
        assert_status(waiter_finish(&waiter), CANCELLED);
    }
}

static void cancel_wakes_followers(void **state)
{
    struct stile_lock *locks[3];
    struct waiter waiters[3];

    (void)state;
    threads_all_inside();
    for (int i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), 0};
        threads_occupy(name);
        locks[i] = make_lock(it.client, name, NULL);
    }
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 3; i++)
            waiter_start(&waiters[i], locks[i]);
        for (int i = 0; i < 3; i++)
            threads_await(&it.claims);
        for (int i = 0; i < 3; i++) {
            assert_status(stile_lock_cancel(locks[(round + i) % 3]), OK);
            assert_status(waiter_finish(&waiters[(round + i) % 3]), CANCELLED);
        }
    }
}

static bool in_turn(const struct stile_lock *lock)
{
    pthread_mutex_lock(&it.client->mutex);
    bool is = lock->state == IN_NAME_QUEUE;
    pthread_mutex_unlock(&it.client->mutex);
    return is;
}

static void cancel_in_the_turn(void **state)
{
    struct stile_lock *first = make_lock(it.client, "a", NULL);
    struct stile_lock *second = make_lock(it.client, "a", NULL);
    struct waiter waiter;

    (void)state;
    assert_status(stile_lock_acquire(first, -1, NULL), OK);
    for (int i = 0; i < 100; i++) {
        waiter_start(&waiter, second);
        while (!in_turn(second))
            sched_yield();
        assert_status(stile_lock_cancel(second), OK);
        assert_status(waiter_finish(&waiter), CANCELLED);
    }
}

/* ---- handing over ---- */

/* The turn, and with an engine that answers at once the grant, come on the releaser's thread. */
static void a_release_wakes_who_has_the_next_turn(void **state)
{
    struct stile_lock *locks[2] = {make_lock(it.client, "a", NULL),
                                   make_lock(it.client, "a", NULL)};
    struct waiter waiter;

    (void)state;
    threads_all_inside();
    assert_status(stile_lock_acquire(locks[0], -1, NULL), OK);
    for (int i = 0; i < 300; i++) {
        waiter_start(&waiter, locks[(i + 1) % 2]);
        if (i % 2)
            sched_yield();
        assert_status(stile_lock_release(locks[i % 2], NULL), OK);
        assert_status(waiter_finish(&waiter), OK);
    }
}

/* A blocking call meets the background thread asleep in the driver's seat. */
static void a_call_while_the_background_thread_sleeps(void **state)
{
    struct stile_lock *lock = make_lock(it.client, "a", NULL);

    (void)state;
    for (int i = 0; i < 50; i++) {
        for (bool background = false; !background;) {
            pthread_mutex_lock(&it.client->mutex);
            background = it.client->drive.by_background;
            pthread_mutex_unlock(&it.client->mutex);
            sched_yield();
        }
        assert_status(stile_lock_acquire(lock, -1, NULL), OK);
        assert_status(stile_lock_release(lock, NULL), OK);
    }
}

/* ---- the background thread ---- */

static void it_renews_while_nobody_calls(void **state)
{
    struct stile_lock *lock =
        make_lock(it.client, "a", STILE_OPTIONS(.ttl_ms = 60000, .renew_ms = 5));

    (void)state;
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    for (int i = 0; i < 20; i++)
        threads_await(&it.renewals);
    assert_true(stile_lock_held(lock));
}

static size_t waiting(void)
{
    pthread_mutex_lock(&it.client->mutex);
    size_t n = model_waiting(&it.script->model);
    pthread_mutex_unlock(&it.client->mutex);
    return n;
}

/* Leader and follower are decided in the same run of the loop: the leader offers its seat to the
 * follower, which is leaving as well. Another thread has to drive after that. */
static void it_takes_over_when_leader_and_follower_leave_together(void **state)
{
    struct stile_lock *locks[2];
    struct waiter waiters[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        locks[i] =
            make_lock(it.client, i ? "b" : "a", STILE_OPTIONS(.ttl_ms = 60000, .renew_ms = 5));
    for (int round = 0; round < 30; round++) {
        threads_occupy("a");
        threads_occupy("b");
        for (int i = 0; i < 2; i++)
            waiter_start(&waiters[i], locks[i]);
        for (int i = 0; i < 2; i++)
            threads_await(&it.claims);
        while (waiting() < 2)
            sched_yield();
        pthread_mutex_lock(&it.client->mutex); /* so that one run of the loop sees both */
        script_vacate(it.script, "a");
        script_vacate(it.script, "b");
        pthread_mutex_unlock(&it.client->mutex);
        assert_status(waiter_finish(&waiters[0]), OK);
        assert_status(waiter_finish(&waiters[1]), OK);
        while (sem_trywait(&it.renewals) == 0)
            ;
        for (int i = 0; i < 3; i++)
            threads_await(&it.renewals);
        assert_status(stile_locks_release(locks, 2, NULL), OK);
    }
}

static void on_lost_posts(struct stile_lock *lock, void *data)
{
    (void)lock;
    sem_post(data);
}

static void it_tells_of_the_loss(void **state)
{
    sem_t lost;
    struct stile_lock *lock;

    (void)state;
    sem_init(&lost, 0, 0);
    pthread_mutex_lock(&it.client->mutex);
    SCRIPT_ALWAYS(it.script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    pthread_mutex_unlock(&it.client->mutex);
    lock = make_lock(it.client, "a",
                     STILE_OPTIONS(.ttl_ms = 50, .on_lost = on_lost_posts, .data = &lost));
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    threads_await(&lost);
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), LOST);
    stile_lock_free(lock);
    sem_destroy(&lost);
}

/* ---- records ---- */

#define RECORDERS 4
#define RECORDS   100

static void *record_often(void *data)
{
    struct stile_lock *lock = data;

    for (int i = 0; i < RECORDS; i++) {
        assert_status(stile_lock_acquire(lock, -1, NULL), OK);
        assert_status(stile_lock_record_start(lock, NULL), OK);
        assert_status(stile_lock_record_end(lock, i, NULL), OK);
        assert_status(stile_lock_release(lock, NULL), OK);
    }
    return NULL;
}

static int see_exit_code(const struct stile_info *info, void *data)
{
    *(int *)data = info->last ? info->last->exit_code : -2;
    return 0;
}

/* The answers come on any thread; the last record of each name stays. */
static void many_threads_record(void **state)
{
    pthread_t threads[RECORDERS];
    int code = -1;

    (void)state;
    for (int i = 0; i < RECORDERS; i++) {
        char name[2] = {(char)('a' + i), 0};
        struct stile_lock *lock = make_lock(it.client, name, NULL);
        assert_int_equal(pthread_create(&threads[i], NULL, record_often, lock), 0);
    }
    for (int i = 0; i < RECORDERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < RECORDERS; i++) {
        char name[2] = {(char)('a' + i), 0};
        for (int tries = 0; code != RECORDS - 1 && tries < 1000000; tries++)
            assert_status(stile_show(it.client, name, see_exit_code, &code, NULL), OK);
        assert_int_equal(code, RECORDS - 1);
        code = -1;
    }
}

#define IN_CLIENT(test) cmocka_unit_test_setup_teardown(test, threads_open, threads_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CLIENT(cancel_wakes_the_leader),
        IN_CLIENT(cancel_wakes_followers),
        IN_CLIENT(cancel_in_the_turn),
        IN_CLIENT(a_release_wakes_who_has_the_next_turn),
        IN_CLIENT(a_call_while_the_background_thread_sleeps),
        IN_CLIENT(it_renews_while_nobody_calls),
        IN_CLIENT(it_takes_over_when_leader_and_follower_leave_together),
        IN_CLIENT(it_tells_of_the_loss),
        IN_CLIENT(many_threads_record),
    };
    return cmocka_run_group_tests_name("core_threads", tests, NULL, NULL);
}
