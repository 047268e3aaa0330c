/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many claims that one client holds and renews, and nothing else: what that costs it.
 *
 *   bench-keep URL LOCKS TTL_MS SECONDS     a line when all are held, a line at the end
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stile.h"

static void check(enum stile_status status, const struct stile_error *err)
{
    if (status != STILE_OK)
        bench_die("%s: %s", stile_status_name(status), err->message);
}

static double cpu_seconds(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static long rss_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "VmRSS: %ld kB", &kib);
    if (file)
        fclose(file);
    return kib;
}

static struct stile_lock *hold(struct stile_client *client, long i, int64_t ttl_ms)
{
    struct stile_error err;
    struct stile_lock *lock;
    char name[32];
    snprintf(name, sizeof(name), "keep-%ld", i);
    check(stile_lock_new(&lock, client, name, STILE_LOCK_OPTIONS(.ttl_ms = ttl_ms), &err), &err);
    check(stile_lock_acquire(lock, 0, &err), &err);
    return lock;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        bench_die("usage: bench-keep URL LOCKS TTL_MS SECONDS");
    long n = bench_number(argv[2]), ttl_ms = bench_number(argv[3]), lost = 0;
    double for_s = (double)bench_number(argv[4]);
    struct stile_client *client;
    struct stile_error err;
    struct stile_lock **locks = calloc((size_t)n, sizeof(struct stile_lock *));
    check(stile_client_open(&client, argv[1], NULL, &err), &err);
    printf("{\"rss_kib\": %ld}\n", rss_kib());
    for (long i = 0; i < n; i++)
        locks[i] = hold(client, i, ttl_ms);
    printf("{\"held\": %ld}\n", n);
    fflush(stdout);
    double start_cpu = cpu_seconds();
    bench_sleep_us((long)(for_s * 1e6));
    double cpu = cpu_seconds() - start_cpu;
    for (long i = 0; i < n; i++)
        lost += !stile_lock_held(locks[i]);
    printf("{\"cpu\": %.5f, \"lost\": %ld, \"rss_kib\": %ld}\n", cpu / for_s, lost, rss_kib());
    fflush(stdout);
    _exit(0); /* no releases: the caller counts commands */
}
