/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many processes on one name, as fast as they can: how often each of them is served, and whether
 * two are ever inside at once. The check is independent of the lock: a shared word that must be
 * nobody's when we come in, is written, and must still be ours a few loads later.
 *
 *   bench-crowd PLACE stile|flock PROCESSES MILLISECONDS
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOADS 32

struct member {
    _Alignas(64) uint64_t served;
    uint64_t overlaps;
    uint64_t again; /* served twice in a row although another had asked, once all have been */
    uint64_t asked; /* 1 + the visits before it asked; 0: it does not ask */
    uint32_t ready;
};

struct shared {
    _Alignas(64) uint32_t n;
    uint32_t go;
    uint32_t stop;
    _Alignas(64) volatile uint32_t inside;
    uint32_t last;    /* the previous holder; none at first */
    uint32_t arrived; /* how many have been inside */
    uint64_t visits;
    struct member members[];
};

/* On a busy machine all the others may have given it back and wait for a core. */
static int has_passed_another(const struct shared *shared, uint64_t asked)
{
    for (uint32_t i = 0; i < shared->n; i++) {
        uint64_t theirs = __atomic_load_n(&shared->members[i].asked, __ATOMIC_RELAXED);
        if (theirs != 0 && theirs < asked)
            return 1;
    }
    return 0;
}

static void ask(const struct shared *shared, struct member *me)
{
    uint64_t visits = __atomic_load_n(&shared->visits, __ATOMIC_RELAXED);
    __atomic_store_n(&me->asked, visits + 1, __ATOMIC_RELAXED);
}

static void visit(struct shared *shared, struct member *me, uint32_t id)
{
    uint64_t asked = me->asked;
    __atomic_store_n(&me->asked, 0, __ATOMIC_RELAXED);
    if (shared->inside != 0)
        me->overlaps++;
    shared->inside = id;
    for (int i = 0; i < LOADS; i++) {
        if (shared->inside != id) {
            me->overlaps++;
            break;
        }
    }
    shared->arrived += me->served == 0;
    me->again +=
        shared->last == id && shared->arrived == shared->n && has_passed_another(shared, asked);
    shared->last = id;
    __atomic_store_n(&shared->visits, shared->visits + 1, __ATOMIC_RELAXED);
    shared->inside = 0;
    me->served++;
}

static void run_member(struct shared *shared, const struct subject *subject, const char *dir,
                       uint32_t id)
{
    struct member *me = &shared->members[id - 1];
    void *lock = subject->open(dir, "crowd");
    bench_word_set(&me->ready, 1);
    bench_word_await(&shared->go, 1);
    while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
        ask(shared, me);
        subject->take(lock);
        visit(shared, me, id);
        subject->give(lock);
    }
    _exit(0);
}

static void report(const struct shared *shared, const char *name, long n, int64_t took_ns)
{
    uint64_t total = 0, overlaps = 0, again = 0, least = UINT64_MAX, most = 0;
    printf("{\"subject\": \"%s\", \"served\": [", name);
    for (long i = 0; i < n; i++) {
        uint64_t served = shared->members[i].served;
        total += served;
        overlaps += shared->members[i].overlaps;
        again += shared->members[i].again;
        least = served < least ? served : least;
        most = served > most ? served : most;
        printf("%s%lu", i ? ", " : "", (unsigned long)served);
    }
    printf("], \"least_to_most\": %.4f, \"per_s\": %.0f, \"overlaps\": %lu, \"again\": %lu}\n",
           most ? (double)least / (double)most : 0, (double)total * 1e9 / (double)took_ns,
           (unsigned long)overlaps, (unsigned long)again);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        bench_die("usage: bench-crowd PLACE stile|flock PROCESSES MILLISECONDS");
    const struct subject *subject = subject_find(argv[2]);
    long n = bench_number(argv[3]), for_ms = bench_number(argv[4]);
    struct shared *shared = bench_share(sizeof(*shared) + (size_t)n * sizeof(struct member));
    shared->n = (uint32_t)n;
    pid_t *pids = calloc((size_t)n, sizeof(*pids));
    for (long i = 0; i < n; i++)
        if ((pids[i] = bench_fork()) == 0)
            run_member(shared, subject, argv[1], (uint32_t)i + 1);
    for (long i = 0; i < n; i++)
        bench_word_await(&shared->members[i].ready, 1);
    int64_t start_ns = bench_now_ns();
    bench_word_set(&shared->go, 1);
    bench_sleep_us(for_ms * 1000);
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
    int64_t took_ns = bench_now_ns() - start_ns;
    for (long i = 0; i < n; i++)
        bench_reap(pids[i]);
    report(shared, subject->name, n, took_ns);
    free(pids);
    return 0;
}
