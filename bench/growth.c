/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a lock costs among many: many waiters of one name, or many names held, all by one client.
 *
 *   bench-growth PLACE waiters N TIMES
 *       N claims wait for one name; the one that is granted gives the lock back and waits again
 *   bench-growth PLACE held N TIMES
 *       a client that holds N names takes and gives back another one
 *
 * It prints a line when the N are there, waits for a line of its input, does its work TIMES times,
 * and prints another line: the caller can look at the server before and after.
 */
#include "bench.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stile.h"

#define PATIENCE_NS (120 * INT64_C(1000000000)) /* without a single answer */

static struct stile_client *client;
static size_t granted;  /* claims answered so far */
static bool circulates; /* what is granted is given back and asked for again */

static void check(enum stile_status status, const struct stile_error *err)
{
    if (status != STILE_OK)
        bench_die("%s: %s", stile_status_name(status), err ? err->message : "");
}

static void on_granted(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data);

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    (void)data;
    check(status, err);
    if (circulates)
        check(stile_lock_acquire_async(lock, -1, on_granted, NULL), NULL);
}

static void on_granted(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    (void)data;
    check(status, err);
    granted++;
    if (circulates)
        check(stile_lock_release_async(lock, on_released, NULL), NULL);
}

static void drive_until(size_t n)
{
    struct pollfd ready = {.fd = stile_client_fd(client), .events = POLLIN};
    int64_t progress_ns = bench_now_ns();
    while (granted < n) {
        size_t before = granted;
        poll(&ready, 1, 1000);
        check(stile_client_dispatch(client), NULL);
        if (granted != before)
            progress_ns = bench_now_ns();
        else if (bench_now_ns() - progress_ns > PATIENCE_NS)
            bench_die("%zu of %zu granted, and then none for two minutes", granted, n);
    }
}

static struct stile_lock *lock_named(const char *name)
{
    struct stile_lock *lock;
    struct stile_error err;
    check(stile_lock_new(&lock, client, name, STILE_LOCK_OPTIONS(.ttl_ms = 120000), &err), &err);
    return lock;
}

static void claim_all(size_t n, bool one_name)
{
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, one_name ? "growth" : "growth-%zu", i);
        check(stile_lock_acquire_async(lock_named(name), -1, on_granted, NULL), NULL);
    }
}

static long rss_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmRSS: %ld kB", &kib);
    if (file)
        fclose(file);
    return kib;
}

/* A line that says that all is prepared, and the caller's. */
static void announce(size_t n, long rss_before_kib)
{
    printf("{\"there\": %zu, \"bytes_each\": %.0f}\n", n,
           (double)(rss_kib() - rss_before_kib) * 1024 / (double)n);
    fflush(stdout);
    if (getchar() == EOF)
        exit(1);
}

static void waiters(size_t n, size_t times)
{
    long before_kib = rss_kib();
    circulates = true;
    claim_all(n + 1, true);
    drive_until(n + 1); /* each has had it once: all of them are in the queue */
    announce(n, before_kib);
    int64_t start_ns = bench_now_ns();
    size_t first = granted;
    drive_until(first + times);
    printf("{\"each_ns\": %.0f}\n",
           (double)(bench_now_ns() - start_ns) / (double)(granted - first));
}

static void held(size_t n, size_t times)
{
    struct stile_error err;
    long before_kib = rss_kib();
    claim_all(n, false);
    drive_until(n);
    announce(n, before_kib);
    struct stile_lock *lock = lock_named("growth");
    int64_t start_ns = bench_now_ns();
    for (size_t i = 0; i < times; i++) {
        check(stile_lock_acquire(lock, -1, &err), &err);
        check(stile_lock_release(lock, &err), &err);
    }
    printf("{\"each_ns\": %.0f}\n", (double)(bench_now_ns() - start_ns) / (double)times);
}

int main(int argc, char **argv)
{
    struct stile_client_options options = {.size = sizeof options, .threadless = true};
    struct stile_error err;
    if (argc != 5 || (strcmp(argv[2], "waiters") && strcmp(argv[2], "held")))
        bench_die("usage: bench-growth PLACE waiters|held N TIMES");
    check(stile_client_open(&client, argv[1], &options, &err), &err);
    size_t n = (size_t)bench_number(argv[3]), times = (size_t)bench_number(argv[4]);
    (strcmp(argv[2], "held") ? waiters : held)(n, times);
    fflush(stdout);
    _Exit(0); /* releases are not measured here: they would take as long as the claims */
}
