/* Hand-over between two processes that always wait for one another: each takes, notes how long ago
 * the other began to give, and gives. In turn, batch by batch:
 *
 *   futex    a shared word that says whose turn it is, FUTEX_WAIT and FUTEX_WAKE: the bare limit
 *   socket   a byte through a Unix datagram socket, awaited with epoll: what a wake-up that an
 *            event loop can wait for costs at least
 *   stile    one name, each process with a client of its own
 *
 *   bench-handover DIR ROUNDS HANDOVERS apart|together    pinned to two cores, or both to one
 */
#include "bench.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct shared {
    _Alignas(64) uint32_t batch[2]; /* which batch each of the two has reached */
    _Alignas(64) uint32_t turn;     /* of the futex subject */
    _Alignas(64) int64_t gave_ns;   /* when the last holder began to give */
    uint32_t holder;                /* who that was */
    uint32_t given;                 /* hand-overs of this batch so far */
    uint32_t again;                 /* taken twice in a row by the same process */
    int64_t samples_ns[];
};

/* One of the two. */
struct side {
    uint32_t id;
    struct shared *shared;
    void *lock;
    int sockets[2];
    int epoll;
};

struct way {
    const char *name;
    void (*take)(struct side *);
    void (*give)(struct side *);
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

static const struct way ways[] = {
    {"futex", take_futex, give_futex},
    {"socket", take_socket, give_socket},
    {"stile", take_stile, give_stile},
};

#define WAYS (sizeof(ways) / sizeof(*ways))

/* Inside: everything here is guarded by the lock that is measured. False once there are enough. */
static bool note(struct side *side, int64_t now_ns, uint32_t limit)
{
    struct shared *shared = side->shared;
    if (shared->holder == side->id)
        shared->again++;
    else if (shared->given < limit)
        shared->samples_ns[shared->given++] = now_ns - shared->gave_ns;
    shared->holder = side->id;
    return shared->given < limit;
}

static void meet(struct side *side, uint32_t batch)
{
    bench_word_set(&side->shared->batch[side->id], batch);
    bench_word_await(&side->shared->batch[!side->id], batch);
}

static void play(struct side *side, const struct way *way, uint32_t handovers)
{
    for (bool more = true; more;) {
        way->take(side);
        more = note(side, bench_now_ns(), handovers);
        side->shared->gave_ns = bench_now_ns();
        way->give(side);
    }
}

static void prepare(struct shared *shared, const struct way *way, struct side *side)
{
    shared->turn = 0;
    shared->given = shared->again = 0;
    shared->holder = 1;
    shared->gave_ns = bench_now_ns();
    if (way->take == take_socket && write(side->sockets[1], "", 1) != 1)
        bench_die("write: %s", strerror(errno));
}

/* What is left of the last give: both leave, the first to notice may have given to the other. */
static void drain(struct side *side)
{
    char byte;
    for (int i = 0; i < 2; i++)
        while (recv(side->sockets[i], &byte, 1, MSG_DONTWAIT) == 1)
            ;
}

static void report(struct shared *shared, const struct way *way, int64_t took_ns, long switches)
{
    printf("{\"way\": \"%s\", \"handovers\": %u, \"again\": %u, \"mean_ns\": %.0f, "
           "\"p50_ns\": %ld, \"p99_ns\": %ld, \"switches\": %ld}\n",
           way->name, shared->given, shared->again, (double)took_ns / shared->given,
           (long)bench_percentile(shared->samples_ns, shared->given, 50),
           (long)bench_percentile(shared->samples_ns, shared->given, 99), switches);
}

static void run_side(struct side *side, uint32_t rounds, uint32_t handovers)
{
    uint32_t batch = 0;
    for (uint32_t r = 0; r < rounds; r++) {
        for (size_t w = 0; w < WAYS; w++) {
            struct rusage before, after;
            if (side->id == 0)
                prepare(side->shared, &ways[w], side);
            meet(side, ++batch);
            getrusage(RUSAGE_SELF, &before);
            int64_t start_ns = bench_now_ns();
            play(side, &ways[w], handovers);
            int64_t took_ns = bench_now_ns() - start_ns;
            getrusage(RUSAGE_SELF, &after);
            meet(side, ++batch);
            if (side->id == 0)
                report(side->shared, &ways[w], took_ns, after.ru_nvcsw - before.ru_nvcsw);
            drain(side);
            meet(side, ++batch);
        }
    }
}

static void open_side(struct side *side, uint32_t id, const char *dir, int cpu)
{
    side->id = id;
    bench_pin(cpu);
    side->lock = subject_stile.open(dir, "handover");
    struct epoll_event event = {.events = EPOLLIN};
    side->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (side->epoll < 0 || epoll_ctl(side->epoll, EPOLL_CTL_ADD, side->sockets[id], &event))
        bench_die("epoll: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    if (argc != 5 || (strcmp(argv[4], "apart") && strcmp(argv[4], "together")))
        bench_die("usage: bench-handover DIR ROUNDS HANDOVERS apart|together");
    uint32_t rounds = (uint32_t)bench_number(argv[2]), handovers = (uint32_t)bench_number(argv[3]);
    int other_cpu = !strcmp(argv[4], "apart");
    struct side side = {0};
    side.shared = bench_share(sizeof(*side.shared) + handovers * sizeof(int64_t));
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, side.sockets))
        bench_die("socketpair: %s", strerror(errno));
    pid_t child = bench_fork();
    open_side(&side, child == 0, argv[1], child == 0 ? other_cpu : 0);
    run_side(&side, rounds, handovers);
    if (child == 0)
        _exit(0);
    bench_reap(child);
    return 0;
}
