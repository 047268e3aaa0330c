/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that share a pace: how much of the rate they reach, and whether a window held too many.
 *
 *   bench-pace URL PROCESSES COUNT PER_MS SECONDS     one line at the end
 *
 * Each process stamps its starts itself, when stile_pace() has returned. The rate counts whole
 * windows: starts of processes that always want one come in bunches, one for each window.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stile.h"

#define STAMPS_MAX 100000

struct starts {
    _Atomic size_t n;
    uint64_t ns[STAMPS_MAX];
};

static uint64_t boottime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void start_again_and_again(struct starts *starts, const char *url, uint32_t count,
                                  int64_t per_ms, uint64_t end_ns)
{
    struct stile_client *client;
    struct stile_error err;
    if (stile_client_open(&client, url, NULL, &err))
        bench_die("%s", err.message);
    while (boottime_ns() < end_ns) {
        if (stile_pace(NULL, client, "bench-pace",
                       STILE_PACE_OPTIONS(.count = count, .per_ms = per_ms), -1, &err))
            bench_die("%s", err.message);
        size_t i = starts->n++;
        if (i < STAMPS_MAX)
            starts->ns[i] = boottime_ns();
    }
    stile_client_close(client);
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How many starts came less than a window after the one `count` places before them. */
static size_t too_many(const uint64_t *ns, size_t n, uint32_t count, uint64_t per_ns)
{
    size_t broken = 0;
    for (size_t i = count; i < n; i++)
        broken += ns[i] - ns[i - count] < per_ns;
    return broken;
}

static void report(struct starts *starts, uint32_t count, uint64_t per_ns)
{
    size_t n = starts->n < STAMPS_MAX ? starts->n : STAMPS_MAX;
    if (n <= 2 * (size_t)count)
        bench_die("only %zu starts: measure longer", n);
    qsort(starts->ns, n, sizeof *starts->ns, by_time);
    size_t whole = (n - 1) / count * count;
    double took = (double)(starts->ns[whole] - starts->ns[0]);
    double rate = (double)whole / took * (double)per_ns / count;
    printf("{\"starts\": %zu, \"rate\": %.4f, \"broken\": %zu}\n", n, rate,
           too_many(starts->ns, n, count, per_ns));
}

int main(int argc, char **argv)
{
    if (argc != 6)
        bench_die("usage: bench-pace URL PROCESSES COUNT PER_MS SECONDS");
    long processes = bench_number(argv[2]), per_ms = bench_number(argv[4]);
    uint32_t count = (uint32_t)bench_number(argv[3]);
    uint64_t end_ns = boottime_ns() + (uint64_t)bench_number(argv[5]) * 1000000000;
    struct starts *starts =
        mmap(NULL, sizeof *starts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (starts == MAP_FAILED)
        bench_die("out of memory");
    for (long i = 0; i < processes; i++) {
        if (fork() == 0) {
            start_again_and_again(starts, argv[1], count, per_ms, end_ns);
            _exit(0);
        }
    }
    int status;
    while (wait(&status) > 0) {
        if (status != 0)
            bench_die("a process failed");
    }
    report(starts, count, (uint64_t)per_ms * 1000000);
    return 0;
}
