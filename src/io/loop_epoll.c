/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The loop for real use: epoll, a timerfd on CLOCK_BOOTTIME and an eventfd for kick().
 *
 * wait() runs without the owner's mutex and only fills `ready`; what is in there may be outdated
 * when deliver() reads it. Each entry therefore names a place in the table of watches and the
 * generation of its use: a watch that was removed in between, its memory perhaps gone, is never
 * called.
 *
 * timerfd and eventfd are edge-triggered, so neither has ever to be read. */
#include "io/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define READY_MAX  64
#define RANDOM_MAX 256 /* getrandom() is never interrupted for so few */
#define KEY_TIMER  UINT64_MAX
#define KEY_KICK   (UINT64_MAX - 1)

struct place {
    struct watch *watch; /* NULL: free */
    uint32_t generation;
    uint32_t events;    /* what is asked for now */
    uint32_t next_free; /* 1 + index */
};

struct loop_epoll {
    struct loop loop;
    int epoll_fd, timer_fd, kick_fd;
    uint64_t timer_fd_ns; /* what the kernel will wake us at; may be earlier than asked */
    struct place *places;
    uint32_t n_places, cap_places, first_free; /* first_free: 1 + index */
    size_t random_left;                        /* unused bytes of random[] */
    unsigned char random[RANDOM_MAX];
    int n_ready;
    struct epoll_event ready[READY_MAX];
};

static struct loop_epoll *of(struct loop *loop)
{
    return (struct loop_epoll *)loop;
}

static uint64_t now_ns(struct loop *loop)
{
    struct timespec ts;

    (void)loop;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* ---- watches ---- */

static int grow_places(struct loop_epoll *e)
{
    uint32_t cap = e->cap_places ? 2 * e->cap_places : 8;
    struct place *places = realloc(e->places, cap * sizeof(*places));

    if (!places)
        return ENOMEM;
    e->places = places;
    e->cap_places = cap;
    return 0;
}

static int take_place(struct loop_epoll *e, uint32_t *index)
{
    if (e->first_free) {
        *index = e->first_free - 1;
        e->first_free = e->places[*index].next_free;
        return 0;
    }
    if (e->n_places == e->cap_places && grow_places(e))
        return ENOMEM;
    *index = e->n_places++;
    e->places[*index] = (struct place){0};
    return 0;
}

static void free_place(struct loop_epoll *e, uint32_t index)
{
    struct place *place = &e->places[index];

    place->watch = NULL;
    place->generation++;
    place->next_free = e->first_free;
    e->first_free = index + 1;
}

static int control(struct loop_epoll *e, int op, int fd, uint32_t index, uint32_t events)
{
    uint64_t key = (uint64_t)e->places[index].generation << 32 | index;
    struct epoll_event event = {.events = events, .data.u64 = key};

    return epoll_ctl(e->epoll_fd, op, fd, &event) ? errno : 0;
}

static int watch_add(struct loop_epoll *e, struct watch *watch, uint32_t events)
{
    uint32_t index;
    int error = take_place(e, &index);

    if (error)
        return error;
    error = control(e, EPOLL_CTL_ADD, watch->fd, index, events);
    if (error) {
        free_place(e, index);
        return error;
    }
    e->places[index].watch = watch;
    e->places[index].events = events;
    watch->slot = index + 1;
    return 0;
}

static int watch(struct loop *loop, struct watch *watch, uint32_t events)
{
    struct loop_epoll *e = of(loop);

    if (!watch->slot)
        return watch_add(e, watch, events);
    int error = control(e, EPOLL_CTL_MOD, watch->fd, watch->slot - 1, events);
    if (!error)
        e->places[watch->slot - 1].events = events;
    return error;
}

static void unwatch(struct loop *loop, struct watch *watch)
{
    struct loop_epoll *e = of(loop);

    if (!watch->slot)
        return;
    (void)epoll_ctl(e->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    free_place(e, watch->slot - 1);
    watch->slot = 0;
}

static void deliver_one(struct loop_epoll *e, const struct epoll_event *event)
{
    struct place *place = &e->places[(uint32_t)event->data.u64];

    if (place->generation != event->data.u64 >> 32)
        return;
    /* An event may have been seen before its watch was changed. */
    uint32_t events = event->events & (place->events | EPOLLERR | EPOLLHUP);
    if (events)
        place->watch->fn(place->watch, events);
}

static void deliver(struct loop *loop)
{
    struct loop_epoll *e = of(loop);

    for (int i = 0; i < e->n_ready; i++) {
        uint64_t key = e->ready[i].data.u64;
        if (key == KEY_TIMER)
            loop->armed_ns = e->timer_fd_ns = NEVER;
        else if (key != KEY_KICK)
            deliver_one(e, &e->ready[i]);
    }
    e->n_ready = 0;
}

/* ---- waking up ---- */

/* The timerfd may stay armed for an earlier time than needed: one needless wake-up is cheaper than
 * a system call for each timeout that was armed and disarmed. */
static void rearm(struct loop *loop, uint64_t at_ns)
{
    struct loop_epoll *e = of(loop);

    if (at_ns >= e->timer_fd_ns)
        return;
    uint64_t ns = at_ns ? at_ns : 1; /* zero would disarm it */
    struct itimerspec when = {.it_value.tv_sec = (time_t)(ns / NS_PER_SEC),
                              .it_value.tv_nsec = (long)(ns % NS_PER_SEC)};
    (void)timerfd_settime(e->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    e->timer_fd_ns = at_ns;
}

static void wait_ready(struct loop *loop, bool block)
{
    struct loop_epoll *e = of(loop);

    /* Negative after a signal: nothing to deliver; the caller calls again. */
    e->n_ready = epoll_wait(e->epoll_fd, e->ready, READY_MAX, block ? -1 : 0);
}

static void kick(struct loop *loop)
{
    uint64_t one = 1;

    while (write(of(loop)->kick_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static int draw_random(void *out, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t r = getrandom((char *)out + got, n - got, 0);
        if (r < 0 && errno != EINTR)
            return errno;
        got += r > 0 ? (size_t)r : 0;
    }
    return 0;
}

/* Read in advance: a system call for each owner value would be a tenth of the cost of a claim.
 * Bytes handed out are wiped; a child of fork() never gets any, since its copy of the loop is
 * unusable. */
static int fill_random(struct loop *loop, void *out, size_t n)
{
    struct loop_epoll *e = of(loop);

    if (n > RANDOM_MAX)
        return draw_random(out, n);
    if (n > e->random_left) {
        int error = draw_random(e->random, RANDOM_MAX);
        if (error)
            return error;
        e->random_left = RANDOM_MAX;
    }
    e->random_left -= n;
    memcpy(out, e->random + e->random_left, n);
    explicit_bzero(e->random + e->random_left, n);
    return 0;
}

static int poll_fd(struct loop *loop)
{
    return of(loop)->epoll_fd;
}

/* ---- life ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_fds(struct loop *loop)
{
    struct loop_epoll *e = of(loop);

    close_fd(&e->epoll_fd);
    close_fd(&e->timer_fd);
    close_fd(&e->kick_fd);
}

static void free_loop(struct loop *loop)
{
    close_fds(loop);
    free(of(loop)->places);
    loop_fini(loop);
    free(loop);
}

static int add_own_fd(struct loop_epoll *e, int fd, uint64_t key)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = key};

    if (fd < 0)
        return errno;
    return epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? errno : 0;
}

static int open_fds(struct loop_epoll *e)
{
    int error;

    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll_fd < 0)
        return errno;
    e->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    error = add_own_fd(e, e->timer_fd, KEY_TIMER);
    if (error)
        return error;
    e->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return add_own_fd(e, e->kick_fd, KEY_KICK);
}

static const struct loop_class epoll_class = {
    .now_ns = now_ns,
    .watch = watch,
    .unwatch = unwatch,
    .rearm = rearm,
    .wait = wait_ready,
    .deliver = deliver,
    .kick = kick,
    .random = fill_random,
    .fd = poll_fd,
    .close_fds = close_fds,
    .free = free_loop,
};

int loop_epoll_new(struct loop **loop)
{
    struct loop_epoll *e = calloc(1, sizeof(*e));

    if (!e)
        return ENOMEM;
    loop_init(&e->loop, &epoll_class);
    e->epoll_fd = e->timer_fd = e->kick_fd = -1;
    e->timer_fd_ns = NEVER;
    int error = open_fds(e);
    if (error) {
        loop_free(&e->loop);
        return error;
    }
    *loop = &e->loop;
    return 0;
}
