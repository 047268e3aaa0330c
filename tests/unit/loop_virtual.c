/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the other tests is tested itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/loop_virtual.h"

static struct loop *loop;
static char trace[64];

static int set_up(void **state)
{
    (void)state;
    trace[0] = '\0';
    return loop_virtual_new(&loop, 1) || loop_reserve(loop, 4);
}

static int tear_down(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

struct alarm {
    struct timer timer;
    char name;
    uint64_t again_ns, rang_ns;
};

static void ring(struct timer *timer)
{
    struct alarm *alarm = (struct alarm *)timer;

    alarm->rang_ns = loop_now(loop);
    strncat(trace, &alarm->name, 1);
    if (alarm->again_ns)
        loop_arm(loop, timer, loop_now(loop) + alarm->again_ns);
}

static void turn(bool block)
{
    loop_prepare(loop);
    loop_wait(loop, block);
    loop_run(loop);
}

static void time_jumps_to_the_earliest_timer(void **state)
{
    struct alarm a = {{.fn = ring}, 'a', 0, 0}, b = {{.fn = ring}, 'b', 0, 0};
    uint64_t start_ns = loop_now(loop);

    (void)state;
    loop_arm(loop, &a.timer, start_ns + 3600 * NS_PER_SEC);
    loop_arm(loop, &b.timer, start_ns + 7);
    turn(false);
    assert_int_equal(loop_now(loop), start_ns);
    turn(true);
    assert_string_equal(trace, "b");
    assert_int_equal(loop_now(loop), start_ns + 7);
    loop_disarm(loop, &a.timer);
    loop_arm(loop, &b.timer, start_ns + 9);
    turn(true);
    assert_int_equal(b.rang_ns, start_ns + 9);
}

static void advance_runs_all_on_the_way(void **state)
{
    struct alarm a = {{.fn = ring}, 'a', 3, 0}, b = {{.fn = ring}, 'b', 0, 0};
    uint64_t start_ns = loop_now(loop);

    (void)state;
    loop_arm(loop, &a.timer, start_ns + 3);
    loop_arm(loop, &b.timer, start_ns + 7);
    loop_virtual_advance(loop, 11);
    assert_string_equal(trace, "aaba");
    assert_int_equal(a.rang_ns, start_ns + 9);
    assert_int_equal(loop_now(loop), start_ns + 11);
    loop_virtual_jump(loop, 10);
    assert_string_equal(trace, "aaba");
    turn(false);
    assert_string_equal(trace, "aabaa");
    assert_int_equal(a.rang_ns, start_ns + 21);
}

static uint32_t seen;

static void see(struct watch *watch, uint32_t events)
{
    (void)watch;
    seen = events;
}

static void watches_are_fired_by_the_test(void **state)
{
    struct watch watch = {.fd = 1000, .fn = see};
    uint64_t start_ns = loop_now(loop);

    (void)state;
    assert_false(loop_virtual_fire(loop, 1000, EPOLLIN));
    assert_int_equal(loop_watch(loop, &watch, EPOLLIN), 0);
    assert_int_equal(loop_virtual_asked(loop, 1000), EPOLLIN);
    assert_true(loop_virtual_fire(loop, 1000, EPOLLIN | EPOLLOUT | EPOLLHUP));
    turn(true);
    assert_int_equal(seen, EPOLLIN | EPOLLHUP);
    assert_int_equal(loop_now(loop), start_ns);
    seen = 0;
    turn(false);
    assert_int_equal(seen, 0);
    loop_virtual_fire(loop, 1000, EPOLLIN);
    loop_prepare(loop);
    loop_wait(loop, true);
    loop_unwatch(loop, &watch);
    loop_run(loop);
    assert_int_equal(seen, 0);
    assert_int_equal(loop_virtual_asked(loop, 1000), 0);
}

static void a_kick_ends_one_wait(void **state)
{
    struct alarm a = {{.fn = ring}, 'a', 0, 0};

    (void)state;
    loop_arm(loop, &a.timer, loop_now(loop) + 5);
    loop_kick(loop);
    turn(true);
    assert_string_equal(trace, "");
    turn(true);
    assert_string_equal(trace, "a");
}

static void the_seed_decides(void **state)
{
    struct loop *same, *other;
    uint64_t a[4], b[4], c[4];

    (void)state;
    assert_int_equal(loop_virtual_new(&same, 1), 0);
    assert_int_equal(loop_virtual_new(&other, 2), 0);
    loop_random(loop, a, sizeof(a));
    loop_random(same, b, sizeof(b));
    loop_random(other, c, sizeof(c));
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_not_equal(a, c, sizeof(a));
    loop_free(same);
    loop_free(other);
}

/* What a process says that runs f, and how it ends. */
static int end_of(void (*f)(void), char *said, size_t size)
{
    int fds[2], status;

    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(fds[1], STDERR_FILENO);
        f();
        _exit(0);
    }
    close(fds[1]);
    ssize_t n = read(fds[0], said, size - 1);
    said[n > 0 ? n : 0] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void wait_for_nothing(void)
{
    turn(true);
}

static void arm_for_now(struct timer *timer)
{
    loop_arm(loop, timer, loop_now(loop));
}

static void never_ends(void)
{
    struct timer timer = {.fn = arm_for_now};

    loop_arm(loop, &timer, 0);
    loop_virtual_advance(loop, 1);
}

static void a_hang_is_a_failure(void **state)
{
    char said[256];

    (void)state;
    int status = end_of(wait_for_nothing, said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "deadlock in virtual time"));
    status = end_of(never_ends, said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "no time has passed"));
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *arm_from_outside(void *alarm)
{
    pthread_mutex_lock(&mutex);
    loop_arm(loop, &((struct alarm *)alarm)->timer, loop_now(loop) + 5);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void another_thread_may_save_it(void **state)
{
    struct alarm a = {{.fn = ring}, 'a', 0, 0};
    pthread_t thread;

    (void)state;
    pthread_mutex_lock(&mutex);
    loop_prepare(loop);
    assert_int_equal(pthread_create(&thread, NULL, arm_from_outside, &a), 0);
    pthread_mutex_unlock(&mutex);
    loop_wait(loop, true);
    pthread_mutex_lock(&mutex);
    loop_run(loop);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
    assert_string_equal(trace, "a");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(time_jumps_to_the_earliest_timer),
        TEST(advance_runs_all_on_the_way),
        TEST(watches_are_fired_by_the_test),
        TEST(a_kick_ends_one_wait),
        TEST(the_seed_decides),
        TEST(a_hang_is_a_failure),
        TEST(another_thread_may_save_it),
    };

    return cmocka_run_group_tests_name("loop_virtual", tests, NULL, NULL);
}
