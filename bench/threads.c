/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of one client, each with a name of its own that nobody else wants, as fast as they can:
 * one alone and all of them, in turn.
 *
 *   bench-threads PLACE ROUNDS THREADS MILLISECONDS
 */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct worker {
    _Alignas(64) void *lock;
    uint64_t pairs;
    pthread_t thread;
};

static bool stop;

static void *work(void *arg)
{
    struct worker *worker = arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        subject_stile.take(worker->lock);
        subject_stile.give(worker->lock);
        worker->pairs++;
    }
    return NULL;
}

static void run_batch(struct worker *workers, long n, long for_ms)
{
    uint64_t pairs = 0;
    stop = false;
    int64_t start_ns = bench_now_ns();
    for (long i = 0; i < n; i++) {
        workers[i].pairs = 0;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            bench_die("cannot start %ld threads", n);
    }
    bench_sleep_us(for_ms * 1000);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (long i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        pairs += workers[i].pairs;
    }
    printf("{\"threads\": %ld, \"per_s\": %.0f}\n", n,
           (double)pairs * 1e9 / (double)(bench_now_ns() - start_ns));
}

int main(int argc, char **argv)
{
    if (argc != 5)
        bench_die("usage: bench-threads PLACE ROUNDS THREADS MILLISECONDS");
    long rounds = bench_number(argv[2]), n = bench_number(argv[3]), for_ms = bench_number(argv[4]);
    struct worker *workers = aligned_alloc(64, (size_t)n * sizeof(*workers));
    for (long i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "thread-%ld", i);
        workers[i].lock = subject_stile.open(argv[1], name);
    }
    for (long r = 0; r < rounds; r++) {
        run_batch(workers, 1, for_ms);
        run_batch(workers, n, for_ms);
    }
    free(workers);
    return 0;
}
