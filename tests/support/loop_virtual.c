/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/loop_virtual.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#define PATIENCE_SEC 10     /* of real time, for other threads */
#define STANDSTILL   100000 /* turns without a nanosecond passing are no progress */

struct place {
    struct watch *watch; /* NULL: free */
    uint32_t asked;
    uint32_t fired; /* since the last wait() */
    uint32_t ready; /* found by the last wait() */
};

/* The mutex is inside all others: it guards what wait() shares with threads that hold the owner's.
 */
struct loop_virtual {
    struct loop loop;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Atomic uint64_t now_ns; /* read by anybody */
    uint64_t wake_ns;        /* set by rearm() */
    bool kicked;
    struct place *places;
    uint32_t n_places;
    uint64_t seed;
};

static struct loop_virtual *of(struct loop *loop)
{
    return (struct loop_virtual *)loop;
}

static void fail(const char *why)
{
    (void)fprintf(stderr, "# %s\n", why);
    abort();
}

static uint64_t now_ns(struct loop *loop)
{
    return atomic_load(&of(loop)->now_ns);
}

/* ---- watches ---- */

static int take_place(struct loop_virtual *v, uint32_t *index)
{
    for (*index = 0; *index < v->n_places; ++*index)
        if (!v->places[*index].watch)
            return 0;
    struct place *places = realloc(v->places, (v->n_places + 1) * sizeof(*places));
    if (!places)
        return ENOMEM;
    v->places = places;
    v->places[v->n_places++] = (struct place){0};
    return 0;
}

static int watch(struct loop *loop, struct watch *watch, uint32_t events)
{
    struct loop_virtual *v = of(loop);
    uint32_t index = watch->slot - 1;
    int error = 0;

    pthread_mutex_lock(&v->mutex);
    if (!watch->slot)
        error = take_place(v, &index);
    if (!error) {
        v->places[index].watch = watch;
        v->places[index].asked = events;
        watch->slot = index + 1;
    }
    pthread_mutex_unlock(&v->mutex);
    return error;
}

static void unwatch(struct loop *loop, struct watch *watch)
{
    struct loop_virtual *v = of(loop);

    pthread_mutex_lock(&v->mutex);
    if (watch->slot)
        v->places[watch->slot - 1] = (struct place){0};
    watch->slot = 0;
    pthread_mutex_unlock(&v->mutex);
}

static struct place *find(struct loop_virtual *v, int fd)
{
    for (uint32_t i = 0; i < v->n_places; i++)
        if (v->places[i].watch && v->places[i].watch->fd == fd)
            return &v->places[i];
    return NULL;
}

bool loop_virtual_fire(struct loop *loop, int fd, uint32_t events)
{
    struct loop_virtual *v = of(loop);

    pthread_mutex_lock(&v->mutex);
    struct place *place = find(v, fd);
    if (place)
        place->fired |= events;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
    return place;
}

uint32_t loop_virtual_asked(struct loop *loop, int fd)
{
    struct loop_virtual *v = of(loop);

    pthread_mutex_lock(&v->mutex);
    struct place *place = find(v, fd);
    uint32_t asked = place ? place->asked : 0;
    pthread_mutex_unlock(&v->mutex);
    return asked;
}

static bool collect(struct loop_virtual *v)
{
    bool any = false;

    for (uint32_t i = 0; i < v->n_places; i++) {
        struct place *place = &v->places[i];
        place->ready |= place->fired & (place->asked | EPOLLERR | EPOLLHUP);
        place->fired = 0;
        any = any || place->ready;
    }
    return any;
}

static void deliver(struct loop *loop)
{
    struct loop_virtual *v = of(loop);

    for (uint32_t i = 0; i < v->n_places; i++) {
        struct watch *to = v->places[i].watch;
        uint32_t ready = v->places[i].ready;
        v->places[i].ready = 0;
        if (to && ready)
            to->fn(to, ready);
    }
}

/* ---- waiting ---- */

static bool has_other_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;

    if (!tasks)
        return false;
    for (struct dirent *entry; (entry = readdir(tasks));)
        n += entry->d_name[0] != '.';
    closedir(tasks);
    return n > 1;
}

static void wait_for_threads(struct loop_virtual *v)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SEC;
    if (!has_other_threads() || pthread_cond_timedwait(&v->changed, &v->mutex, &until) == ETIMEDOUT)
        fail("deadlock in virtual time: a wait with no timer armed, nothing ready and no kick");
}

static void wait_virtual(struct loop *loop, bool block)
{
    struct loop_virtual *v = of(loop);

    pthread_mutex_lock(&v->mutex);
    while (!collect(v) && !v->kicked && block) {
        if (v->wake_ns != NEVER) {
            if (v->wake_ns > atomic_load(&v->now_ns))
                atomic_store(&v->now_ns, v->wake_ns);
            break;
        }
        wait_for_threads(v);
    }
    v->kicked = false;
    pthread_mutex_unlock(&v->mutex);
}

static void rearm(struct loop *loop, uint64_t at_ns)
{
    struct loop_virtual *v = of(loop);

    pthread_mutex_lock(&v->mutex);
    v->wake_ns = at_ns;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
}

static void kick(struct loop *loop)
{
    struct loop_virtual *v = of(loop);

    pthread_mutex_lock(&v->mutex);
    v->kicked = true;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
}

void loop_virtual_jump(struct loop *loop, uint64_t ns)
{
    atomic_fetch_add(&of(loop)->now_ns, ns);
}

static uint64_t next_ns(struct loop *loop)
{
    struct loop_virtual *v = of(loop);

    pthread_mutex_lock(&v->mutex);
    bool ready = collect(v) || v->kicked;
    pthread_mutex_unlock(&v->mutex);
    if (ready || loop->tasks)
        return 0;
    return loop->n_timers ? loop->heap[0]->at_ns : NEVER;
}

void loop_virtual_advance(struct loop *loop, uint64_t ns)
{
    uint64_t until_ns = now_ns(loop) + ns, at_ns;
    unsigned turns = 0;

    while ((at_ns = next_ns(loop)) <= until_ns) {
        if (at_ns > now_ns(loop)) {
            atomic_store(&of(loop)->now_ns, at_ns);
            turns = 0;
        }
        if (++turns > STANDSTILL)
            fail("a hundred thousand turns of the loop, and no time has passed");
        loop_prepare(loop);
        loop_wait(loop, false);
        loop_run(loop);
    }
    atomic_store(&of(loop)->now_ns, until_ns);
}

/* ---- the rest ---- */

static uint64_t next_random(struct loop_virtual *v)
{
    uint64_t x = v->seed += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static int fill_random(struct loop *loop, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)next_random(of(loop));
    return 0;
}

static int no_fd(struct loop *loop)
{
    (void)loop;
    return -1;
}

static void close_nothing(struct loop *loop)
{
    (void)loop;
}

static void free_loop(struct loop *loop)
{
    struct loop_virtual *v = of(loop);

    loop_fini(loop);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->mutex);
    free(v->places);
    free(v);
}

static const struct loop_class virtual_class = {
    .now_ns = now_ns,
    .watch = watch,
    .unwatch = unwatch,
    .rearm = rearm,
    .wait = wait_virtual,
    .deliver = deliver,
    .kick = kick,
    .random = fill_random,
    .fd = no_fd,
    .close_fds = close_nothing,
    .free = free_loop,
};

int loop_virtual_new(struct loop **loop, uint64_t seed)
{
    struct loop_virtual *v = calloc(1, sizeof(*v));

    if (!v)
        return ENOMEM;
    loop_init(&v->loop, &virtual_class);
    pthread_mutex_init(&v->mutex, NULL);
    pthread_cond_init(&v->changed, NULL);
    atomic_store(&v->now_ns, LOOP_VIRTUAL_START_NS);
    v->wake_ns = NEVER;
    v->seed = seed;
    *loop = &v->loop;
    return 0;
}
