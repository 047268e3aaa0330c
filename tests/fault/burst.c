/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of claims at once: burst URL N TTL_MS. One client claims N names in one turn and holds
 * them all; another one claims the same names and waits for them; the first one gives all back in
 * one turn, and the second one gets each. Prints how long a claim, a hand-over and a release took
 * on average, in microseconds. None may fail, however long the line is; a release whose answer
 * takes longer than its caller's patience, on a busy machine, goes on by itself. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "stile.h"

#define WAIT_MS  600000
#define PREFIX   "burst-"
#define NAME_MAX 40

static atomic_size_t pending, late;
static atomic_flag failed = ATOMIC_FLAG_INIT;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static _Noreturn void give_up(const char *what, enum stile_status status,
                              const struct stile_error *err)
{
    (void)fprintf(stderr, "burst: %s: %s: %s\n", what, stile_status_name(status),
                  err ? err->message : "");
    _Exit(1);
}

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *what)
{
    (void)lock;
    if (status && status != STILE_UNREACHABLE && !atomic_flag_test_and_set(&failed))
        give_up(what, status, err);
    late += status == STILE_UNREACHABLE;
    pending--;
}

static void on_done(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *what)
{
    (void)lock;
    if (status && !atomic_flag_test_and_set(&failed))
        give_up(what, status, err);
    pending--;
}

static void await_all(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (pending > 0)
        nanosleep(&pause, NULL);
}

static struct stile_client *open_client(const char *url)
{
    struct stile_client *client;
    struct stile_error err;
    enum stile_status status = stile_client_open(&client, url, NULL, &err);
    if (status)
        give_up("opening", status, &err);
    return client;
}

static void claim_all(struct stile_lock **locks, struct stile_client *client, size_t n,
                      int64_t ttl_ms, char *what)
{
    char name[NAME_MAX];
    struct stile_error err;
    pending += n;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, PREFIX "%zu", i);
        enum stile_status status =
            stile_lock_new(&locks[i], client, name, STILE_OPTIONS(.ttl_ms = ttl_ms), &err);
        if (!status)
            status = stile_lock_acquire_async(locks[i], WAIT_MS, on_done, what);
        if (status)
            give_up(what, status, &err);
    }
}

static void release_all(struct stile_lock **locks, size_t n, char *what)
{
    pending += n;
    for (size_t i = 0; i < n; i++) {
        enum stile_status status = stile_lock_release_async(locks[i], on_released, what);
        if (status)
            give_up(what, status, NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t n = strtoul(argv[2], NULL, 10);
    int64_t ttl_ms = atol(argv[3]);
    struct stile_client *first = open_client(argv[1]), *second = open_client(argv[1]);
    struct stile_lock **held = calloc(n, sizeof(void *)), **waiting = calloc(n, sizeof(void *));
    if (!held || !waiting)
        return 1;
    double start = now_us();
    claim_all(held, first, n, ttl_ms, "claiming");
    await_all();
    double claimed = now_us();
    printf("%zu: claim %.1f", n, (claimed - start) / (double)n);
    (void)fflush(stdout);
    claim_all(waiting, second, n, ttl_ms, "waiting");
    release_all(held, n, "giving back");
    await_all();
    double handed_over = now_us();
    release_all(waiting, n, "giving back again");
    await_all();
    printf(", hand-over %.1f, release %.1f us, %zu releases answered late\n",
           (handed_over - claimed) / (double)n, (now_us() - handed_over) / (double)n, late);
    stile_client_close(first);
    stile_client_close(second);
    free(held);
    free(waiting);
    return 0;
}
