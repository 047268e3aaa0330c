/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many names of the local engine, in turn and at once, and what an open costs after them.
 *
 *   turn   NAMES names, each made, taken, given and freed, one after the other
 *   held   NAMES held at once by one client, then all given
 *   open   a client opened and closed after NAMES were used in turn by a process that ended without
 *          closing, or died holding all of them, or held them for at least an hour; ROUNDS times
 *
 *   bench-names DIR turn|held NAMES
 *   bench-names DIR open NAMES ROUNDS
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stile.h"

#define SMALL_FILE (10 << 20) /* what must be reached */

static const char *dir;

static struct stile_client *open_client(void)
{
    char url[4200];
    struct stile_client *client;
    struct stile_error err = {0};
    snprintf(url, sizeof url, "local:%s", dir);
    if (stile_client_open(&client, url, NULL, &err) != STILE_OK)
        bench_die("%s", err.message);
    return client;
}

static struct stile_lock *take_for(struct stile_client *client, long i, int64_t hold_ms)
{
    char name[32];
    struct stile_lock *lock;
    struct stile_lock_options options = {.size = sizeof options, .hold_at_least_ms = hold_ms};
    struct stile_error err = {0};
    snprintf(name, sizeof name, "order:%ld", i);
    if (stile_lock_new(&lock, client, name, &options, &err) != STILE_OK ||
        stile_lock_acquire(lock, 0, &err) != STILE_OK)
        bench_die("%s: %s", name, err.message);
    return lock;
}

static struct stile_lock *take(struct stile_client *client, long i)
{
    return take_for(client, i, 0);
}

static long file_bytes(void)
{
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s/state", dir);
    return stat(path, &st) == 0 ? (long)st.st_blocks * 512 : 0;
}

static void use_in_turn(struct stile_client *client, long n)
{
    for (long i = 0; i < n; i++) {
        struct stile_lock *lock = take(client, i);
        stile_lock_release(lock, NULL);
        stile_lock_free(lock);
    }
}

static void in_turn(long n)
{
    struct stile_client *client = open_client();
    int64_t start_ns = bench_now_ns();
    use_in_turn(client, n);
    printf("{\"how\": \"turn\", \"names\": %ld, \"each_ns\": %.1f, \"file_bytes\": %ld}\n", n,
           (double)(bench_now_ns() - start_ns) / (double)n, file_bytes());
    stile_client_close(client);
}

static void at_once(long n)
{
    struct stile_client *client = open_client();
    struct stile_lock **locks = calloc((size_t)n, sizeof *locks);
    if (!locks)
        bench_die("out of memory");
    int64_t start_ns = bench_now_ns();
    for (long i = 0; i < n; i++)
        locks[i] = take(client, i);
    int64_t taken_ns = bench_now_ns();
    long full = file_bytes();
    for (long i = 0; i < n; i++)
        stile_lock_release(locks[i], NULL);
    int64_t given_ns = bench_now_ns();
    for (int i = 0; i < 300 && file_bytes() > SMALL_FILE; i++)
        bench_sleep_us(100000); /* the rest is given back by a timer */
    printf("{\"how\": \"held\", \"names\": %ld, \"take_ns\": %.1f, \"give_ns\": %.1f, "
           "\"file_bytes\": %ld, \"left_bytes\": %ld}\n",
           n, (double)(taken_ns - start_ns) / (double)n, (double)(given_ns - taken_ns) / (double)n,
           full, file_bytes());
    stile_client_close(client);
    free(locks);
}

enum left { USED, HELD, KEPT };

static const char *const left_texts[] = {"used", "held", "kept"};

static void leave_behind(long n, enum left left)
{
    pid_t pid = bench_fork();
    if (pid == 0) {
        struct stile_client *client = open_client();
        if (left == USED)
            use_in_turn(client, n);
        for (long i = 0; left != USED && i < n; i++)
            take_for(client, i, left == KEPT ? 3600000 : 0);
        _exit(0);
    }
    bench_reap(pid);
}

/* A process that has used a million names leaves the processor's caches empty of what an open
 * needs, one that has used ten does not. */
static void empty_caches(void)
{
    enum { BYTES = 256 << 20, LINE = 64 };
    pid_t pid = bench_fork();
    if (pid == 0) {
        volatile char *bytes = malloc(BYTES);
        if (!bytes)
            bench_die("out of memory");
        for (size_t i = 0; i < BYTES; i += LINE)
            bytes[i]++;
        _exit(0);
    }
    bench_reap(pid);
}

static void opened_after(long n, enum left left, long rounds)
{
    int64_t *took_ns = calloc((size_t)rounds, sizeof *took_ns);
    if (!took_ns)
        bench_die("out of memory");
    leave_behind(n, left);
    empty_caches();
    int64_t first_ns = bench_now_ns();
    stile_client_close(open_client());
    first_ns = bench_now_ns() - first_ns;
    for (long i = 0; i < rounds; i++) {
        int64_t start_ns = bench_now_ns();
        stile_client_close(open_client());
        took_ns[i] = bench_now_ns() - start_ns;
    }
    printf("{\"how\": \"open\", \"names\": %ld, \"left\": \"%s\", \"first_ns\": %ld, \"p50_ns\": "
           "%ld}\n",
           n, left_texts[left], (long)first_ns,
           (long)bench_percentile(took_ns, (size_t)rounds, 50));
    free(took_ns);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        bench_die("usage: bench-names DIR turn|held|open NAMES [ROUNDS]");
    dir = argv[1];
    long n = bench_number(argv[3]);
    if (strcmp(argv[2], "turn") == 0) {
        in_turn(n);
    } else if (strcmp(argv[2], "held") == 0) {
        at_once(n);
    } else {
        for (enum left left = USED; left <= KEPT; left++)
            opened_after(n, left, bench_number(argv[4]));
    }
    return 0;
}
