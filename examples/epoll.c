/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* In your own event loop: no background thread, no blocking call.
 *
 * The client is one more fd in your epoll set. When it is readable, call dispatch; callbacks run
 * there and nowhere else. */
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <stile.h>

static int timer_fd, work_left = 3, exit_code = -1; /* -1: continue */

static void stop(int code, const char *what)
{
    printf("%s\n", what);
    exit_code = code;
}

static void on_lost(struct stile_lock *lock, void *data)
{
    (void)lock, (void)data;
    stop(76, "lost"); /* work in progress must not be finished */
}

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    (void)lock, (void)data;
    stop(status ? 76 : 0, status ? err->message : "released");
}

static void on_acquired(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    const struct itimerspec every_10ms = {{0, 10000000}, {0, 10000000}};
    (void)lock, (void)data;
    if (status)
        stop(75, err->message);
    else
        timerfd_settime(timer_fd, 0, &every_10ms, NULL);
}

static void on_timer(struct stile_lock *lock)
{
    uint64_t ticks;
    if (read(timer_fd, &ticks, sizeof ticks) < 0 || work_left == 0)
        return;
    printf("working, %d to go\n", --work_left);
    if (work_left == 0)
        stile_lock_release_async(lock, on_released, NULL);
}

int main(void)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct stile_error err;
    if (stile_client_open(&client, NULL, STILE_CLIENT_OPTIONS(.threadless = true), &err) ||
        stile_lock_new(&lock, client, "epoll", STILE_LOCK_OPTIONS(.on_lost = on_lost), &err)) {
        fprintf(stderr, "epoll: %s\n", err.message);
        return 69;
    }
    int epoll = epoll_create1(EPOLL_CLOEXEC), ours = stile_client_fd(client);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event ready = {.events = EPOLLIN, .data.fd = ours};
    epoll_ctl(epoll, EPOLL_CTL_ADD, ours, &ready);
    ready.data.fd = timer_fd;
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer_fd, &ready);
    stile_lock_acquire_async(lock, 5000, on_acquired, NULL);
    while (exit_code < 0 && epoll_wait(epoll, &ready, 1, -1) == 1) {
        if (ready.data.fd == ours)
            stile_client_dispatch(client);
        else
            on_timer(lock);
    }
    stile_client_close(client);
    return exit_code;
}
