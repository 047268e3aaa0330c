/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-over between two processes: each takes, notes how long ago the other began to give, waits
 * until the other one sleeps in its own take, and gives. In turn, batch by batch:
 *
 *   futex    a shared word that says whose turn it is, FUTEX_WAIT and FUTEX_WAKE: the bare limit
 *   socket   a byte through a Unix datagram socket, awaited with epoll: what a wake-up that an
 *            event loop can wait for costs at least
 *   stile    one name, each process with a client of its own
 *   ping     where the place is a server, instead of the first two: its answer to a bare PING
 *
 *   bench-handover PLACE ROUNDS HANDOVERS apart|together|free [PARKED_MS]
 *            pinned to two cores, or both to one, or not at all; nothing happens for so long before
 *            each hand-over, and before each ping
 */
#include "bench.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum stage { HOLDS, TAKES, IS_DONE };

struct shared {
    _Alignas(64) uint32_t batch[2]; /* which batch each of the two has reached */
    uint32_t stage[2];              /* enum stage: where each of them is */
    _Alignas(64) uint32_t turn;     /* of the futex subject */
    _Alignas(64) int64_t gave_ns;   /* when the last holder began to give */
    uint32_t holder;                /* its number; NOBODY at the start */
    uint32_t given;                 /* hand-overs of this batch so far */
    uint32_t again;                 /* taken twice in a row by the same process */
    int64_t samples_ns[];
};

#define NOBODY 2

/* One of the two. */
struct side {
    uint32_t id;
    struct shared *shared;
    const char *place;
    void *lock;
    int sockets[2];
    int epoll;
    int other_stat; /* of /proc, to see whether the other one sleeps */
    long parked_ms;
};

struct way {
    const char *name;
    void (*take)(struct side *); /* NULL: ping */
    void (*give)(struct side *);
    bool apart; /* the giver does not claim again before the other has the lock */
};

static void take_futex(struct side *side)
{
    uint32_t seen;
    while ((seen = __atomic_load_n(&side->shared->turn, __ATOMIC_ACQUIRE)) != side->id)
        syscall(SYS_futex, &side->shared->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void give_futex(struct side *side)
{
    __atomic_store_n(&side->shared->turn, !side->id, __ATOMIC_RELEASE);
    syscall(SYS_futex, &side->shared->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void take_socket(struct side *side)
{
    struct epoll_event event;
    char byte;
    while (epoll_wait(side->epoll, &event, 1, -1) < 1)
        ;
    if (read(side->sockets[side->id], &byte, 1) != 1)
        bench_die("read: %s", strerror(errno));
}

static void give_socket(struct side *side)
{
    if (write(side->sockets[side->id], "", 1) != 1)
        bench_die("write: %s", strerror(errno));
}

static void take_stile(struct side *side)
{
    subject_stile.take(side->lock);
}

static void give_stile(struct side *side)
{
    subject_stile.give(side->lock);
}

static const struct way local_ways[] = {
    {"futex", take_futex, give_futex, false},
    {"socket", take_socket, give_socket, false},
    {"stile", take_stile, give_stile, false},
    {0},
};
static const struct way server_ways[] = {
    {"ping", NULL, NULL, false},
    {"stile", take_stile, give_stile, true},
    {0},
};

/* Inside: everything here is guarded by the lock that is measured. */
static void note(struct side *side, int64_t now_ns)
{
    struct shared *shared = side->shared;
    if (shared->holder == side->id)
        shared->again++;
    else if (shared->holder != NOBODY)
        shared->samples_ns[shared->given++] = now_ns - shared->gave_ns;
    shared->holder = side->id;
}

static void set_stage(struct side *side, enum stage stage)
{
    __atomic_store_n(&side->shared->stage[side->id], stage, __ATOMIC_RELEASE);
}

static void await_taken(struct side *side, const struct way *way)
{
    while (way->apart &&
           __atomic_load_n(&side->shared->stage[!side->id], __ATOMIC_ACQUIRE) == TAKES)
        bench_word_wait(&side->shared->stage[!side->id], TAKES);
}

static void meet(struct side *side, uint32_t batch)
{
    bench_word_set(&side->shared->batch[side->id], batch);
    bench_word_await(&side->shared->batch[!side->id], batch);
}

/* Without this, the woken process may give and take again before the other waits. On
 * one core the other one needs ours to fall asleep. */
static void await_other(struct side *side)
{
    const uint32_t *at = &side->shared->stage[!side->id];
    enum stage stage;
    while ((stage = __atomic_load_n(at, __ATOMIC_ACQUIRE)) != IS_DONE)
        if (stage == TAKES && bench_state(side->other_stat) == 'S')
            return;
        else
            sched_yield();
}

static void park(const struct side *side)
{
    if (side->parked_ms)
        bench_sleep_us(side->parked_ms * 1000);
}

static void ping(struct side *side, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        park(side);
        int64_t start_ns = bench_now_ns();
        bench_ping(side->place);
        side->shared->samples_ns[side->shared->given++] = bench_now_ns() - start_ns;
    }
}

static void play(struct side *side, const struct way *way, uint32_t times)
{
    if (!way->take) {
        if (side->id == 0)
            ping(side, times);
        return;
    }
    for (uint32_t i = 0; i < times; i++) {
        set_stage(side, TAKES);
        way->take(side);
        int64_t now_ns = bench_now_ns();
        set_stage(side, HOLDS);
        if (way->apart)
            bench_word_set(&side->shared->stage[side->id], HOLDS);
        note(side, now_ns);
        await_other(side);
        park(side);
        side->shared->gave_ns = bench_now_ns();
        way->give(side);
        await_taken(side, way);
    }
    set_stage(side, IS_DONE);
}

/* What the last give has left. */
static void drain(struct side *side)
{
    char byte;
    for (int i = 0; i < 2; i++)
        while (recv(side->sockets[i], &byte, 1, MSG_DONTWAIT) == 1)
            ;
}

static void prepare(struct shared *shared, const struct way *way, struct side *side)
{
    shared->turn = 0;
    shared->given = shared->again = 0;
    shared->stage[0] = shared->stage[1] = HOLDS;
    shared->holder = NOBODY;
    drain(side);
    if (way->take == take_socket && write(side->sockets[1], "", 1) != 1)
        bench_die("write: %s", strerror(errno));
}

static void report(struct shared *shared, const struct way *way)
{
    printf("{\"way\": \"%s\", \"handovers\": %u, \"again\": %u, \"p50_ns\": %ld, "
           "\"p99_ns\": %ld}\n",
           way->name, shared->given, shared->again,
           (long)bench_percentile(shared->samples_ns, shared->given, 50),
           (long)bench_percentile(shared->samples_ns, shared->given, 99));
}

static void run_side(struct side *side, uint32_t rounds, uint32_t times)
{
    uint32_t batch = 0;
    for (uint32_t r = 0; r < rounds; r++) {
        const struct way *way = strstr(side->place, "://") ? server_ways : local_ways;
        for (; way->name; way++) {
            if (side->id == 0)
                prepare(side->shared, way, side);
            meet(side, ++batch);
            play(side, way, times);
            meet(side, ++batch);
            if (side->id == 0)
                report(side->shared, way);
        }
    }
}

static void open_side(struct side *side, uint32_t id, pid_t other, const char *pinned)
{
    side->id = id;
    if (strcmp(pinned, "free"))
        bench_pin(!strcmp(pinned, "apart") ? (int)id : 0);
    side->other_stat = bench_open_state(other);
    side->lock = subject_stile.open(side->place, "handover");
    struct epoll_event event = {.events = EPOLLIN};
    side->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (side->epoll < 0 || epoll_ctl(side->epoll, EPOLL_CTL_ADD, side->sockets[id], &event))
        bench_die("epoll: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6)
        bench_die("usage: bench-handover PLACE ROUNDS HANDOVERS apart|together|free [PARKED_MS]");
    uint32_t rounds = (uint32_t)bench_number(argv[2]), handovers = (uint32_t)bench_number(argv[3]);
    struct side side = {.place = argv[1], .parked_ms = argc == 6 ? bench_number(argv[5]) : 0};
    side.shared = bench_share(sizeof(*side.shared) + handovers * sizeof(int64_t));
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, side.sockets))
        bench_die("socketpair: %s", strerror(errno));
    pid_t child = bench_fork();
    if (child == 0)
        open_side(&side, 1, getppid(), argv[4]);
    else
        open_side(&side, 0, child, argv[4]);
    run_side(&side, rounds, handovers / 2);
    if (child == 0)
        _exit(0);
    bench_reap(child);
    return 0;
}
