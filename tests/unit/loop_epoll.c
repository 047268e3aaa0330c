/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The real loop: watches, timers, its own file descriptors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
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

static void turn(bool block)
{
    loop_prepare(loop);
    loop_wait(loop, block);
    loop_run(loop);
}

/* ---- watches ---- */

/* A pipe whose reading end is watched. */
struct wire {
    struct watch watch;
    int in;
    unsigned calls;
    uint32_t events;
    struct wire *cuts; /* removed when this one is called */
};

static void wire_called(struct watch *watch, uint32_t events)
{
    struct wire *wire = (struct wire *)watch;

    wire->calls++;
    wire->events = events;
    if (wire->cuts)
        loop_unwatch(loop, &wire->cuts->watch);
}

static void wire_open(struct wire *wire)
{
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    *wire = (struct wire){.watch = {.fd = fds[0], .fn = wire_called}, .in = fds[1]};
    assert_int_equal(loop_watch(loop, &wire->watch, EPOLLIN), 0);
}

static void wire_send(struct wire *wire)
{
    assert_int_equal(write(wire->in, "x", 1), 1);
}

static void wire_close(struct wire *wire)
{
    loop_unwatch(loop, &wire->watch);
    close(wire->watch.fd);
    close(wire->in);
}

static void a_watch_is_called_while_its_fd_is_ready(void **state)
{
    struct wire wire;
    char byte;

    (void)state;
    wire_open(&wire);
    turn(false);
    assert_int_equal(wire.calls, 0);
    wire_send(&wire);
    turn(true);
    assert_int_equal(wire.calls, 1);
    assert_int_equal(wire.events, EPOLLIN);
    turn(true);
    assert_int_equal(wire.calls, 2);
    assert_int_equal(read(wire.watch.fd, &byte, 1), 1);
    turn(false);
    assert_int_equal(wire.calls, 2);
    close(wire.in);
    wire.in = -1;
    turn(true);
    assert_int_equal(wire.events, EPOLLHUP);
    wire_close(&wire);
}

static void what_is_asked_can_change(void **state)
{
    struct wire wire;

    (void)state;
    wire_open(&wire);
    wire_send(&wire);
    assert_int_equal(loop_watch(loop, &wire.watch, 0), 0);
    turn(false);
    assert_int_equal(wire.calls, 0);
    assert_int_equal(loop_watch(loop, &wire.watch, EPOLLIN), 0);
    turn(false);
    assert_int_equal(wire.calls, 1);
    loop_prepare(loop);
    loop_wait(loop, true);
    assert_int_equal(loop_watch(loop, &wire.watch, EPOLLOUT), 0);
    loop_run(loop);
    assert_int_equal(wire.calls, 1);
    wire_close(&wire);
}

static void a_watch_removed_between_wait_and_run_is_not_called(void **state)
{
    struct wire *gone = malloc(sizeof(*gone)), stays, heir;

    (void)state;
    assert_non_null(gone);
    wire_open(gone);
    wire_open(&stays);
    wire_send(gone);
    wire_send(&stays);
    loop_prepare(loop);
    loop_wait(loop, true);
    uint32_t slot = gone->watch.slot;
    wire_close(gone);
    free(gone);
    wire_open(&heir); /* takes the place, and the fd's number */
    assert_int_equal(heir.watch.slot, slot);
    loop_run(loop);
    assert_int_equal(heir.calls, 0);
    assert_int_equal(stays.calls, 1);
    wire_close(&heir);
    wire_close(&stays);
}

static void a_watch_removed_by_another_in_the_same_run_is_not_called(void **state)
{
    struct wire a, b;

    (void)state;
    wire_open(&a);
    wire_open(&b);
    a.cuts = &b;
    b.cuts = &a;
    wire_send(&a);
    wire_send(&b);
    turn(true);
    assert_int_equal(a.calls + b.calls, 1);
    wire_close(&a);
    wire_close(&b);
}

#define MANY 150

static void every_ready_watch_gets_its_turn(void **state)
{
    static struct wire wires[MANY];

    (void)state;
    for (size_t i = 0; i < MANY; i++)
        wire_open(&wires[i]);
    for (size_t i = 0; i < MANY; i++)
        wire_send(&wires[i]);
    for (size_t i = 0; i < 10; i++)
        turn(true);
    for (size_t i = 0; i < MANY; i++)
        assert_true(wires[i].calls >= 1);
    for (size_t i = 0; i < MANY; i++)
        wire_close(&wires[i]);
}

static void a_bad_fd_is_an_error(void **state)
{
    struct watch file = {.fd = -1, .fn = wire_called};

    (void)state;
    assert_int_equal(loop_watch(loop, &file, EPOLLIN), EBADF);
    assert_int_equal(file.slot, 0);
    file.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_int_equal(loop_watch(loop, &file, EPOLLIN), EPERM);
    loop_unwatch(loop, &file);
    close(file.fd);
}

/* ---- timers ---- */

struct alarm {
    struct timer timer;
    uint64_t rang_ns;
};

static void ring(struct timer *timer)
{
    ((struct alarm *)timer)->rang_ns = loop_now(loop);
}

static void sleeps_until_a_timer_is_due(void **state)
{
    struct alarm alarm = {.timer.fn = ring}, later = {.timer.fn = ring};

    (void)state;
    assert_int_equal(loop_reserve(loop, 2), 0);
    uint64_t at_ns = loop_now(loop) + 2 * NS_PER_MS;
    loop_arm(loop, &later.timer, at_ns + 1000 * NS_PER_SEC);
    loop_arm(loop, &alarm.timer, at_ns);
    while (!alarm.rang_ns)
        turn(true);
    assert_true(alarm.rang_ns >= at_ns);
    assert_int_equal(later.rang_ns, 0);
}

static void a_timer_of_the_past_is_due_at_once(void **state)
{
    static const uint64_t times[] = {0, 1, NS_PER_SEC};

    (void)state;
    assert_int_equal(loop_reserve(loop, 1), 0);
    for (size_t i = 0; i < 3; i++) {
        struct alarm alarm = {.timer.fn = ring};
        loop_arm(loop, &alarm.timer, times[i]);
        turn(true);
        assert_true(alarm.rang_ns > 0);
    }
}

/* The kernel still has the disarmed timer's time: one look at nothing to do, and on it goes. */
static void a_wake_up_for_nothing_does_no_harm(void **state)
{
    struct alarm gone = {.timer.fn = ring}, alarm = {.timer.fn = ring};

    (void)state;
    assert_int_equal(loop_reserve(loop, 2), 0);
    loop_arm(loop, &gone.timer, loop_now(loop) + NS_PER_MS);
    loop_prepare(loop);
    loop_disarm(loop, &gone.timer);
    loop_run(loop);
    loop_arm(loop, &alarm.timer, loop_now(loop) + 4 * NS_PER_MS);
    while (!alarm.rang_ns)
        turn(true);
    assert_int_equal(gone.rang_ns, 0);
    alarm.rang_ns = 0;
    loop_arm(loop, &alarm.timer, loop_now(loop) + NS_PER_MS);
    while (!alarm.rang_ns)
        turn(true);
}

/* What /proc says of the one timerfd there is. */
static int clock_of_timerfd(void)
{
    char path[64], line[128];
    int clock_id = -1;

    for (int fd = 3; fd < 256 && clock_id < 0; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
        FILE *info = fopen(path, "re");
        while (info && fgets(line, sizeof(line), info))
            (void)sscanf(line, "clockid: %d", &clock_id);
        if (info)
            fclose(info);
    }
    return clock_id;
}

/* LESSONS 16: a clock that can be set, or that stands still in suspend, keeps a lock too long. */
static void time_counts_suspend_and_cannot_be_set(void **state)
{
    struct timespec ts;

    (void)state;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    uint64_t before_ns = (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
    uint64_t ns = loop_now(loop);
    clock_gettime(CLOCK_BOOTTIME, &ts);
    assert_in_range(ns, before_ns, (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec);
    assert_int_equal(clock_of_timerfd(), CLOCK_BOOTTIME);
}

/* ---- polled from outside ---- */

static void do_nothing(struct task *task)
{
    (void)task;
}

static bool polled(int wait_ms)
{
    struct pollfd fd = {.fd = loop->class->fd(loop), .events = POLLIN};

    return poll(&fd, 1, wait_ms) == 1;
}

static void its_fd_tells_of_timers_tasks_and_watches(void **state)
{
    struct alarm alarm = {.timer.fn = ring};
    struct task task = {.fn = do_nothing};
    struct wire wire;

    (void)state;
    assert_int_equal(loop_reserve(loop, 1), 0);
    turn(false);
    loop_prepare(loop);
    assert_false(polled(0));
    loop_arm(loop, &alarm.timer, loop_now(loop) + NS_PER_MS);
    while (!alarm.rang_ns) {
        assert_true(polled(-1));
        turn(false);
        loop_prepare(loop);
    }
    assert_false(polled(0));
    loop_soon(loop, &task);
    assert_true(polled(-1));
    turn(false);
    loop_prepare(loop);
    wire_open(&wire);
    assert_false(polled(0));
    wire_send(&wire);
    assert_true(polled(-1));
    wire_close(&wire);
}

/* ---- file descriptors ---- */

static size_t open_fds(bool check_cloexec)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(dir))
            continue;
        n++;
        if (check_cloexec && fd > 2)
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    closedir(dir);
    return n;
}

static void close_inherited(void)
{
    for (int fd = 3; fd < 256; fd++)
        close(fd);
}

static void fds_are_cloexec_and_closed(void **state)
{
    struct loop *another;

    (void)state;
    size_t before = open_fds(false);
    assert_int_equal(loop_epoll_new(&another), 0);
    assert_int_equal(open_fds(true), before + 3);
    loop_free(another);
    assert_int_equal(open_fds(false), before);
}

static void too_few_fds_is_an_error_and_leaks_none(void **state)
{
    struct rlimit before, limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(0);
    assert_true(next >= 0);
    close(next);
    for (int more = 0; more < 3; more++) {
        struct loop *another = NULL;
        limit = (struct rlimit){(rlim_t)(next + more), before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        int error = loop_epoll_new(&another);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(error, EMFILE);
        assert_null(another);
        int again = dup(0);
        assert_int_equal(again, next);
        close(again);
    }
}

/* The epoll set is one for parent and child: the child must not remove anything from it. */
static void a_forked_child_closes_and_touches_nothing(void **state)
{
    struct wire wire;
    int status;

    (void)state;
    wire_open(&wire);
    size_t before = open_fds(false);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        loop->class->close_fds(loop);
        bool closed = open_fds(false) == before - 3;
        loop_unwatch(loop, &wire.watch);
        loop_free(loop);
        _exit(closed ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wire_send(&wire);
    turn(true);
    assert_int_equal(wire.calls, 1);
    wire_close(&wire);
}

static void random_bytes_fill_all_and_differ(void **state)
{
    unsigned char a[1000] = {0}, b[1000] = {0};
    unsigned zeros = 0;

    (void)state;
    assert_int_equal(loop_random(loop, a, sizeof(a)), 0);
    assert_int_equal(loop_random(loop, b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    for (size_t i = 0; i < sizeof(a); i++)
        zeros += a[i] == 0;
    assert_true(zeros < 100);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_watch_is_called_while_its_fd_is_ready),
        TEST(what_is_asked_can_change),
        TEST(a_watch_removed_between_wait_and_run_is_not_called),
        TEST(a_watch_removed_by_another_in_the_same_run_is_not_called),
        TEST(every_ready_watch_gets_its_turn),
        TEST(a_bad_fd_is_an_error),
        TEST(sleeps_until_a_timer_is_due),
        TEST(a_timer_of_the_past_is_due_at_once),
        TEST(a_wake_up_for_nothing_does_no_harm),
        TEST(time_counts_suspend_and_cannot_be_set),
        TEST(its_fd_tells_of_timers_tasks_and_watches),
        TEST(fds_are_cloexec_and_closed),
        TEST(too_few_fds_is_an_error_and_leaks_none),
        TEST(a_forked_child_closes_and_touches_nothing),
        TEST(random_bytes_fill_all_and_differ),
    };

    close_inherited(); /* a test runner may leave some that are not CLOEXEC */
    return cmocka_run_group_tests_name("loop_epoll", tests, NULL, NULL);
}
