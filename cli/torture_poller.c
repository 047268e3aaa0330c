/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, time and randomness of `stile torture`. */
#include "torture_poller.h"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64 /* sources served in one turn */

static int epoll_fd = -1;

uint64_t poller_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

bool poller_begin(void)
{
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return epoll_fd >= 0;
}

void poller_forget(void)
{
    if (epoll_fd >= 0)
        close(epoll_fd);
    epoll_fd = -1;
}

void poller_end(void)
{
    poller_forget();
}

bool poller_watch(struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (events == source->watched)
        return true;
    int how = events == 0 ? EPOLL_CTL_DEL : source->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    source->watched = events;
    return epoll_ctl(epoll_fd, how, source->fd, &event) == 0;
}

void poller_turn(int timeout_ms)
{
    struct epoll_event event;
    /* One at a time: serving a source may free another one. */
    for (int i = 0; i < BATCH && epoll_wait(epoll_fd, &event, 1, i == 0 ? timeout_ms : 0) == 1;
         i++) {
        struct source *source = event.data.ptr;
        source->ready(source, event.events);
    }
}

/* xorshift64* */
uint64_t poller_random(uint64_t *state, uint64_t below)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * UINT64_C(0x2545f4914f6cdd1d) >> 16) % below;
}
