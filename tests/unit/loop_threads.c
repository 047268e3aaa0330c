/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The real loop, asleep in one thread and woken by another, or by a signal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#include "io/loop.h"

static struct loop *loop;

static int set_up(void **state)
{
    (void)state;
    return loop_epoll_new(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t goes_to_sleep = PTHREAD_COND_INITIALIZER;
static bool stop, asleep;

/* Drives as a client does: without the mutex while it sleeps. */
static void *drive(void *unused)
{
    pthread_mutex_lock(&mutex);
    while (!stop) {
        loop_prepare(loop);
        asleep = true;
        pthread_cond_signal(&goes_to_sleep);
        pthread_mutex_unlock(&mutex);
        loop_wait(loop, true);
        pthread_mutex_lock(&mutex);
        loop_run(loop);
    }
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void stops(struct timer *timer)
{
    (void)timer;
    stop = true;
}

static void task_stops(struct task *task)
{
    (void)task;
    stop = true;
}

static void watch_stops(struct watch *watch, uint32_t events)
{
    (void)watch;
    (void)events;
    stop = true;
}

/* Comes back with the mutex, when the thread sleeps or is about to. */
static void start(pthread_t *thread)
{
    stop = asleep = false;
    assert_int_equal(pthread_create(thread, NULL, drive, NULL), 0);
    pthread_mutex_lock(&mutex);
    while (!asleep)
        pthread_cond_wait(&goes_to_sleep, &mutex);
}

#define ROUNDS 500

/* Each round ends only if the sleeper hears of it. */
static void an_earlier_timer_wakes_the_sleeper(void **state)
{
    struct timer late = {.fn = stops}, soon = {.fn = stops};

    (void)state;
    assert_int_equal(loop_reserve(loop, 2), 0);
    loop_arm(loop, &late, loop_now(loop) + 1000 * NS_PER_SEC);
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        start(&thread);
        loop_arm(loop, &soon, loop_now(loop) + (i % 8) * 10000);
        pthread_mutex_unlock(&mutex);
        pthread_join(thread, NULL);
    }
    loop_disarm(loop, &late);
}

static void a_task_wakes_the_sleeper(void **state)
{
    struct task task = {.fn = task_stops};

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        start(&thread);
        loop_soon(loop, &task);
        pthread_mutex_unlock(&mutex);
        pthread_join(thread, NULL);
    }
}

static void a_new_watch_wakes_the_sleeper(void **state)
{
    struct watch watch = {.fn = watch_stops};
    int fds[2];

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    watch.fd = fds[0];
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        start(&thread);
        assert_int_equal(loop_watch(loop, &watch, EPOLLIN), 0);
        pthread_mutex_unlock(&mutex);
        pthread_join(thread, NULL);
        loop_unwatch(loop, &watch);
    }
    close(fds[0]);
    close(fds[1]);
}

static void a_kick_wakes_the_sleeper(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        start(&thread);
        stop = true;
        pthread_mutex_unlock(&mutex);
        loop_kick(loop);
        pthread_join(thread, NULL);
    }
    loop_wait(loop, false); /* the last one may not have been seen */
    struct pollfd fd = {.fd = loop->class->fd(loop), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 0), 0);
}

static void ignore(int number)
{
    (void)number;
}

/* The signal comes again and again: one of them meets the sleeper. */
static void a_signal_makes_wait_return(void **state)
{
    struct sigaction act = {.sa_handler = ignore}, before;
    struct itimerval often = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};

    (void)state;
    assert_int_equal(sigaction(SIGALRM, &act, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    loop_prepare(loop);
    loop_wait(loop, true);
    loop_run(loop);
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_earlier_timer_wakes_the_sleeper), TEST(a_task_wakes_the_sleeper),
        TEST(a_new_watch_wakes_the_sleeper),      TEST(a_kick_wakes_the_sleeper),
        TEST(a_signal_makes_wait_return),
    };

    return cmocka_run_group_tests_name("loop_threads", tests, NULL, NULL);
}
