/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many names of the local engine, in turn and at once, and what an open costs after them.
 *
 *   turn   NAMES names, each made, taken, given and freed, one after the other
 *   held   NAMES held at once by one client, then all given, then each taken and given again; the
 *          bare limit is a hash table of as many records in a mapped file of the same directory,
 *          without locking, journal or checksums: each put in, then each taken out
 *   open   a client opened and closed after NAMES were used in turn by a process that ended without
 *          closing, or died holding all of them, or held them for at least an hour; ROUNDS times
 *
 *   bench-names DIR turn|held NAMES
 *   bench-names DIR open NAMES ROUNDS
 */
#include "bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* ---- the bare limit ---- */

struct record {
    uint64_t hash;
    uint32_t next;
    char name[180]; /* a record is as large as a name and its claim are in our table */
};

struct bare {
    struct record *records;
    uint32_t *heads;
    size_t n, n_heads, n_bytes;
};

static struct bare bare_make(long n)
{
    char path[4200];
    struct bare bare = {.n = (size_t)n, .n_heads = 1};
    while (bare.n_heads < bare.n)
        bare.n_heads *= 2;
    size_t heads_bytes = bare.n_heads * sizeof *bare.heads;
    bare.n_bytes = (bare.n + 1) * sizeof *bare.records + heads_bytes;
    snprintf(path, sizeof path, "%s/bare", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || unlink(path) != 0 || posix_fallocate(fd, 0, (off_t)bare.n_bytes) != 0)
        bench_die("no room for a table of %ld records", n);
    void *map = mmap(NULL, bare.n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        bench_die("cannot map a table of %ld records", n);
    bare.heads = map;
    bare.records = (struct record *)((char *)map + heads_bytes);
    return bare;
}

static uint64_t hash_of(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    return hash;
}

/* Where the record is linked from, or would be. */
static uint32_t *bare_find(struct bare *bare, uint64_t hash, const char *name)
{
    uint64_t mixed = hash * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t *at = &bare->heads[(mixed >> 32) & (bare->n_heads - 1)];
    while (*at && (bare->records[*at].hash != hash || strcmp(bare->records[*at].name, name) != 0))
        at = &bare->records[*at].next;
    return at;
}

static void bare_take(struct bare *bare, uint32_t i)
{
    char name[32];
    snprintf(name, sizeof name, "order:%u", i);
    uint64_t hash = hash_of(name);
    uint32_t *at = bare_find(bare, hash, name);
    struct record *record = &bare->records[i + 1];
    memset(record, 0, sizeof *record);
    record->hash = hash;
    strcpy(record->name, name);
    *at = i + 1;
}

static void bare_give(struct bare *bare, uint32_t i)
{
    char name[32];
    snprintf(name, sizeof name, "order:%u", i);
    uint32_t *at = bare_find(bare, hash_of(name), name);
    *at = bare->records[*at].next;
}

static void measure_bare(long n)
{
    struct bare bare = bare_make(n);
    int64_t start_ns = bench_now_ns();
    for (uint32_t i = 0; i < bare.n; i++)
        bare_take(&bare, i);
    int64_t taken_ns = bench_now_ns();
    for (uint32_t i = 0; i < bare.n; i++)
        bare_give(&bare, i);
    printf("{\"how\": \"bare\", \"names\": %ld, \"take_ns\": %.1f, \"give_ns\": %.1f}\n", n,
           (double)(taken_ns - start_ns) / (double)n,
           (double)(bench_now_ns() - taken_ns) / (double)n);
    munmap(bare.heads, bare.n_bytes);
}

/* ---- all at once ---- */

/* Each has been used before now, so from the second time on words are used. */
static double use_again(struct stile_lock **locks, long n)
{
    int64_t start_ns = 0;
    for (int round = 0; round < 4; round++) {
        if (round == 3)
            start_ns = bench_now_ns();
        for (long i = 0; i < n; i++) {
            if (stile_lock_acquire(locks[i], 0, NULL) != STILE_OK)
                bench_die("a lock was not granted again");
            stile_lock_release(locks[i], NULL);
        }
    }
    return (double)(bench_now_ns() - start_ns) / (double)n;
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
    long left = file_bytes();
    printf("{\"how\": \"held\", \"names\": %ld, \"take_ns\": %.1f, \"give_ns\": %.1f, "
           "\"again_ns\": %.1f, \"file_bytes\": %ld, \"left_bytes\": %ld}\n",
           n, (double)(taken_ns - start_ns) / (double)n, (double)(given_ns - taken_ns) / (double)n,
           use_again(locks, n), full, left);
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
        measure_bare(n);
        at_once(n);
    } else {
        for (enum left left = USED; left <= KEPT; left++)
            opened_after(n, left, bench_number(argv[4]));
    }
    return 0;
}
