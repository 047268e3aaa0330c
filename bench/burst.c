/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A burst: one client and one thread claim so many names at once that nobody else wants or has ever
 * used, wait until all are held, and give all of them back at once.
 *
 *   bench-burst PLACE ROUNDS CLAIMS...    each size in turn, round by round
 */
#include "bench.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "stile.h"

#define PATIENCE_NS (60 * INT64_C(1000000000)) /* without a single answer */

static struct stile_client *client;
static size_t answered, failed;

static void check(enum stile_status status, const struct stile_error *err)
{
    if (status != STILE_OK)
        bench_die("%s: %s", stile_status_name(status), err ? err->message : "");
}

static void on_done(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)lock, (void)data;
    answered++;
    if (status != STILE_OK && failed++ == 0)
        fprintf(stderr, "%s: %s\n", stile_status_name(status), err ? err->message : "");
}

/* Until so many have been answered. */
static void await(size_t n)
{
    struct pollfd ready = {.fd = stile_client_fd(client), .events = POLLIN};
    int64_t progress_ns = bench_now_ns();
    while (answered < n) {
        size_t before = answered;
        poll(&ready, 1, 1000);
        check(stile_client_dispatch(client), NULL);
        int64_t now_ns = bench_now_ns();
        if (answered != before)
            progress_ns = now_ns;
        else if (now_ns - progress_ns > PATIENCE_NS)
            bench_die("%zu of %zu answered, and then none for a minute", answered, n);
    }
}

static int64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void make(struct stile_lock **locks, size_t n)
{
    static long bursts;
    struct stile_error err;
    bursts++;
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "burst-%ld-%ld-%zu", (long)getpid(), bursts, i);
        check(stile_lock_new(&locks[i], client, name, NULL, &err), &err);
    }
}

static void burst(size_t n)
{
    struct stile_lock **locks = calloc(n, sizeof *locks);
    if (!locks)
        bench_die("out of memory");
    make(locks, n);
    answered = failed = 0;
    int64_t start_ns = bench_now_ns(), start_cpu_ns = cpu_ns();
    for (size_t i = 0; i < n; i++)
        check(stile_lock_acquire_async(locks[i], -1, on_done, NULL), NULL);
    await(n);
    int64_t taken_ns = bench_now_ns(), taken_cpu_ns = cpu_ns();
    answered = 0;
    for (size_t i = 0; i < n; i++)
        check(stile_lock_release_async(locks[i], on_done, NULL), NULL);
    await(n);
    int64_t given_ns = bench_now_ns();
    printf("{\"claims\": %zu, \"take_ns\": %.0f, \"take_cpu_ns\": %.0f, \"give_ns\": %.0f, "
           "\"failed\": %zu}\n",
           n, (double)(taken_ns - start_ns) / (double)n,
           (double)(taken_cpu_ns - start_cpu_ns) / (double)n,
           (double)(given_ns - taken_ns) / (double)n, failed);
    fflush(stdout);
    for (size_t i = 0; i < n; i++)
        stile_lock_free(locks[i]);
    free(locks);
}

int main(int argc, char **argv)
{
    struct stile_client_options options = {.size = sizeof options, .threadless = true};
    struct stile_error err;
    if (argc < 4)
        bench_die("usage: bench-burst PLACE ROUNDS CLAIMS...");
    check(stile_client_open(&client, argv[1], &options, &err), &err);
    burst(1); /* the first claim may begin a session */
    for (long r = bench_number(argv[2]); r > 0; r--) {
        for (int i = 3; i < argc; i++)
            burst((size_t)bench_number(argv[i]));
    }
    stile_client_close(client);
    return 0;
}
