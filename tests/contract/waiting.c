/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that end without a grant, and what they must not leave behind (LESSONS rows 6, 7). */
#include "contract.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

struct wait {
    pthread_t thread;
    struct stile_lock *lock;
    atomic_int over;
    enum stile_status status;
    struct stile_error err;
};

static void *wait_for_it(void *arg)
{
    struct wait *w = arg;
    w->status = stile_lock_acquire(w->lock, PATIENCE_MS, &w->err);
    atomic_store(&w->over, 1);
    return NULL;
}

static struct wait *start_wait(struct scene *s, struct stile_lock *lock)
{
    struct wait *w = scene_memory(s, sizeof *w);
    w->lock = lock;
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
    return w;
}

static enum stile_status end_wait(struct wait *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    why = w->err;
    return w->status;
}

/* ---- time ---- */

/* Row 6: nothing of it may stay in the queue. */
static void test_timeout_leaves_no_entry(void **state)
{
    struct scene *s = *state;
    struct peer *holder = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    int64_t start = now_ms();
    check_status(STILE_TIMEOUT, stile_lock_acquire(lock, 40, &why));
    assert_true(now_ms() - start >= 40);
    assert_non_null(strstr(why.message, s->name));
    await_state(s, s->name, 1, 0);
    peer_tell(holder, "held");
    peer_expect(holder, "held");
    peer_release(holder);
    check_free(s, s->name);
    check_ok(stile_lock_acquire(lock, 0, &why));
}

static void test_timeout_behind_our_own_handle(void **state)
{
    struct scene *s = *state;
    struct stile_lock *first = held_on(s->client, s->name, NULL);
    struct stile_lock *second = lock_on(s->client, s->name, NULL);
    check_status(STILE_TIMEOUT, stile_lock_acquire(second, 20, &why));
    await_state(s, s->name, 1, 0);
    check_ok(stile_lock_release(first, &why));
    check_ok(stile_lock_acquire(second, 0, &why));
}

static void timed_out(struct stile_lock *lock, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    (void)lock, (void)err;
    if (status == STILE_TIMEOUT)
        sem_post(data);
}

/* Row 6: those behind one that gave up must not wait for a ghost. */
static void test_those_behind_a_timeout_go_on(void **state)
{
    struct scene *s = *state;
    sem_t *over = scene_semaphore(s);
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    struct stile_lock *impatient = lock_on(scene_client(s, NULL), s->name, NULL);
    struct peer *behind = peer_start(s, s->name, NULL);
    check_ok(stile_lock_acquire_async(impatient, 300, timed_out, over));
    peer_tell(behind, "acquire %d", PATIENCE_MS);
    await_post(over);
    await_state(s, s->name, 1, 1);
    check_ok(stile_lock_release(holder, &why));
    peer_expect_grant(behind);
    peer_release(behind);
    check_free(s, s->name);
}

/* ---- cancelling ---- */

/* Where the queue can't be seen, it is not known when the wait has begun: cancel until it takes
 * effect. */
static void cancel(struct scene *s, struct wait *w)
{
    struct timespec tick = {.tv_nsec = 1000000};
    int64_t until = now_ms() + PATIENCE_MS;
    check_ok(stile_lock_cancel(w->lock));
    while (!s->caps->fifo && !atomic_load(&w->over) && now_ms() < until) {
        nanosleep(&tick, NULL);
        check_ok(stile_lock_cancel(w->lock));
    }
}

/* Rows 6, 7. */
static void test_cancel_from_another_thread(void **state)
{
    struct scene *s = *state;
    struct peer *holder = peer_start(s, s->name, NULL), *behind = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    struct wait *w = start_wait(s, lock);
    await_state(s, s->name, 1, 1);
    cancel(s, w);
    check_status(STILE_CANCELLED, end_wait(w));
    await_state(s, s->name, 1, 0);
    peer_tell(behind, "acquire %d", PATIENCE_MS);
    peer_release(holder);
    peer_expect_grant(behind);
    peer_release(behind);
    check_ok(stile_lock_acquire(lock, 0, &why));
}

static void test_cancel_of_what_does_not_wait(void **state)
{
    struct scene *s = *state;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_cancel(lock));
    check_ok(stile_lock_acquire(lock, 0, &why));
    check_ok(stile_lock_cancel(lock));
    assert_true(stile_lock_held(lock));
    check_ok(stile_lock_release(lock, &why));
}

/* Of two handles of one client that wait, the first is cancelled; the second still gets it. */
static void test_cancel_before_our_own_handle(void **state)
{
    struct scene *s = *state;
    struct peer *holder = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    struct wait *first = start_wait(s, lock);
    await_state(s, s->name, 1, 1);
    struct wait *second = start_wait(s, lock_on(s->client, s->name, NULL));
    cancel(s, first);
    check_status(STILE_CANCELLED, end_wait(first));
    peer_release(holder);
    check_ok(end_wait(second));
    assert_true(stile_lock_held(second->lock));
    check_ok(stile_lock_release(second->lock, &why));
    check_free(s, s->name);
}

/* ---- signals ---- */

static atomic_int signals;

static void count_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&signals, 1);
}

static timer_t bombard(void)
{
    struct sigaction action = {.sa_handler = count_signal}; /* no SA_RESTART */
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec every = {{0, 500000}, {0, 500000}};
    timer_t timer;
    sigaction(SIGUSR1, &action, NULL);
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &every, NULL), 0);
    return timer;
}

/* EINTR at every turn: the wait goes on, and ends in a grant. */
static void test_signals_do_not_end_a_wait(void **state)
{
    struct scene *s = *state;
    struct peer *holder = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(holder);
    atomic_store(&signals, 0);
    timer_t timer = bombard();
    enum stile_status refused = stile_lock_acquire(lock, 50, NULL);
    peer_tell(holder, "release");
    enum stile_status granted = stile_lock_acquire(lock, PATIENCE_MS, &why);
    enum stile_status released = granted ? granted : stile_lock_release(lock, &why);
    timer_delete(timer);
    check_status(STILE_TIMEOUT, refused);
    check_ok(granted);
    check_ok(released);
    assert_true(atomic_load(&signals) > 0);
    peer_expect(holder, "released");
}

/* clang-format off */
SUITE_PART(waiting,
    SCENE_TEST(test_timeout_leaves_no_entry),
    SCENE_TEST(test_timeout_behind_our_own_handle),
    SCENE_TEST(test_those_behind_a_timeout_go_on),
    SCENE_TEST(test_cancel_from_another_thread),
    SCENE_TEST(test_cancel_of_what_does_not_wait),
    SCENE_TEST(test_cancel_before_our_own_handle),
    SCENE_TEST(test_signals_do_not_end_a_wait))
/* clang-format on */
