/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: time, timers, file descriptors and randomness, as one interface.
 *
 * Core and engines never call epoll, clock_gettime or getrandom themselves; they ask the loop they
 * were given. Two classes implement it: loop_epoll.c for real use, and the virtual loop of the
 * tests, in which time passes only when nothing is left to do.
 *
 * One turn of the loop is three calls, so that the owner can release its mutex during the middle
 * one:
 *
 *     loop_prepare(l)       with the mutex: send what was gathered, arm the timerfd for the
 *                           earliest timer
 *     loop_wait(l, block)   WITHOUT the mutex: sleep until something is ready; touches no timer
 *     loop_run(l)           with the mutex: call ready watches, due timers and tasks put off
 *
 * Everything else is called with the mutex. While a thread sleeps in loop_wait(), arming an earlier
 * timer, adding a watch or putting off a task takes effect at once (the timerfd and the epoll set
 * are live), so no kick is needed for those. An owner that polls fd() instead of sleeping
 * calls loop_prepare() after every loop_run(). All times are nanoseconds of CLOCK_BOOTTIME, which
 * counts suspend.
 */
#ifndef STILE_LOOP_H
#define STILE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_MS  UINT64_C(1000000)
#define NS_PER_SEC UINT64_C(1000000000)
#define NEVER      UINT64_MAX

struct loop;

/* Embedded by its owner; zero-initialised means not armed. */
struct timer {
    uint64_t at_ns;
    uint64_t turn; /* set by loop_arm(): equal times fire in the order of arming */
    size_t place;  /* 1 + index in the heap; 0: not armed */
    void (*fn)(struct timer *timer);
};

/* Removed before its fd is closed: a duplicate in a forked child would keep it in the epoll set. */
struct watch {
    int fd;
    uint32_t slot; /* 1 + index in the loop's table; 0: not watched */
    void (*fn)(struct watch *watch, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP, ... */
};

/* Work put off to the next loop_run(), to keep callbacks from nesting. */
struct task {
    struct task *next;
    bool queued;
    void (*fn)(struct task *task);
};

/* Sends what was gathered, right before a thread sleeps: all requests of one turn are sent
 * together, and a blocking caller's request is sent without a turn of its own. It runs at the end
 * of a call and must not call back: a failure is put off to a task. */
struct sender {
    struct sender *next;
    bool queued;
    void (*fn)(struct sender *sender);
};

struct loop_class {
    uint64_t (*now_ns)(struct loop *loop);
    int (*watch)(struct loop *loop, struct watch *watch, uint32_t events); /* 0 or errno */
    void (*unwatch)(struct loop *loop, struct watch *watch);
    void (*rearm)(struct loop *loop, uint64_t at_ns); /* wake loop_wait() at that time */
    void (*wait)(struct loop *loop, bool block);
    void (*deliver)(struct loop *loop); /* call the watches that wait() found ready */
    void (*kick)(struct loop *loop);    /* make a sleeping wait() return; from any thread */
    int (*random)(struct loop *loop, void *out, size_t n); /* 0 or errno */
    int (*fd)(struct loop *loop);                          /* pollable, or -1 */
    void (*close_fds)(struct loop *loop); /* in a forked child: close, touch nothing shared */
    void (*free)(struct loop *loop);
};

struct loop {
    const struct loop_class *class;
    struct timer **heap; /* binary heap by at_ns, then turn */
    size_t n_timers, cap_timers, reserved;
    uint64_t last_turn;
    uint64_t run_ns;   /* the time of the loop_run() under way; 0: none */
    uint64_t ran_ns;   /* of the last one */
    uint64_t armed_ns; /* what rearm() was last given; NEVER: nothing */
    struct task *tasks, **tasks_tail;
    struct sender *senders;
    bool live; /* a thread may be sleeping in wait() or polling fd(): rearm at once */
};

/* 0 or an errno value. */
int loop_epoll_new(struct loop **loop);

void loop_init(struct loop *loop, const struct loop_class *class); /* for classes */
void loop_fini(struct loop *loop);
void loop_free(struct loop *loop);

void loop_prepare(struct loop *loop);
void loop_wait(struct loop *loop, bool block);
void loop_run(struct loop *loop);

/* The heap grows in loop_reserve() only, so that arming a timer can't fail when it matters: n
 * timers are reserved before the object that has them is made. 0 or ENOMEM. */
int loop_reserve(struct loop *loop, size_t n_timers);
void loop_unreserve(struct loop *loop, size_t n_timers);
void loop_arm(struct loop *loop, struct timer *timer, uint64_t at_ns); /* moves it if armed */
void loop_disarm(struct loop *loop, struct timer *timer);
void loop_soon(struct loop *loop, struct task *task); /* once, however often asked */
void loop_forget(struct loop *loop, struct task *task);

/* The mutex is never let go of with something gathered: loop_prepare() flushes, and callers that
 * leave without it call loop_flush(). */
void loop_gather(struct loop *loop, struct sender *sender); /* once, however often asked */
void loop_ungather(struct loop *loop, struct sender *sender);
void loop_flush(struct loop *loop);

static inline uint64_t loop_now(struct loop *loop)
{
    return loop->class->now_ns(loop);
}

/* When the last loop_run() began: for times that may be a little old, since reading the clock costs
 * as much as a hundred instructions. Never for a lease. */
static inline uint64_t loop_lately(const struct loop *loop)
{
    return loop->ran_ns;
}

static inline int loop_watch(struct loop *loop, struct watch *watch, uint32_t events)
{
    return loop->class->watch(loop, watch, events);
}

static inline void loop_unwatch(struct loop *loop, struct watch *watch)
{
    loop->class->unwatch(loop, watch);
}

static inline void loop_kick(struct loop *loop)
{
    loop->class->kick(loop);
}

static inline int loop_random(struct loop *loop, void *out, size_t n)
{
    return loop->class->random(loop, out, n);
}

/* How long to wait before a retry. Exponential with full jitter: from 0 to first * 2^tried, at most
 * max; so clients that lost the same server don't come back together. */
uint64_t loop_backoff(struct loop *loop, uint64_t first_ns, uint64_t max_ns, unsigned tried);

#endif
