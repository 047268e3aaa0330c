/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One value is replaced again and again, each time only if its version is the one before: batch by
 * batch in turn.
 *
 *   cell      a cell, with its version
 *   guarded   the same, with the token that its guard has seen last
 *   bare      the same with what the engine itself offers
 *
 *   bench-cells URL WHOSE ROUNDS CALLS BYTES CORE    CORE: the nth that we may use
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "stile.h"

#define TOKEN  1000000
#define ISSUER "bench:cells"

static struct stile_client *client;

static void check(enum stile_status status, const struct stile_error *err)
{
    if (status != STILE_OK)
        bench_die("%s: %s", stile_status_name(status), err->message);
}

struct ours {
    const char *key;
    uint64_t version, token;
};

static void *open_ours(const char *place, const char *key, uint64_t token)
{
    struct stile_error err;
    struct ours *ours = calloc(1, sizeof *ours);
    *ours = (struct ours){.key = key, .token = token};
    if (!client)
        check(stile_client_open(&client, place, NULL, &err), &err);
    return ours;
}

static void *open_cell(const char *place, const char *key)
{
    return open_ours(place, key, 0);
}

static void *open_guarded(const char *place, const char *key)
{
    return open_ours(place, key, TOKEN);
}

static void swap_cell(void *handle, const void *value, size_t size)
{
    struct ours *ours = handle;
    struct stile_error err;
    uint64_t before = ours->version;
    check(stile_cell_put(&ours->version, client, ours->key, value, size,
                         STILE_CELL_OPTIONS(.if_version = &before, .token = ours->token,
                                            .issuer = ours->token ? ISSUER : NULL),
                         &err),
          &err);
}

static const struct swap_subject cell = {.name = "cell", .open = open_cell, .swap = swap_cell},
                                 guarded = {
                                     .name = "guarded", .open = open_guarded, .swap = swap_cell};

static const struct swap_subject *find(const char *name)
{
#ifdef WITH_HIREDIS
    if (strcmp(name, "hiredis") == 0)
        return &swap_hiredis;
#endif
#ifdef WITH_LMDB
    if (strcmp(name, "lmdb") == 0)
        return &swap_lmdb;
#endif
#ifdef WITH_ETCD
    if (strcmp(name, "etcd") == 0)
        return &swap_etcd;
#endif
#ifdef WITH_SWAP_ZOOKEEPER
    if (strcmp(name, "zookeeper") == 0)
        return &swap_zookeeper;
#endif
#ifdef WITH_LIBPQ
    if (strcmp(name, "libpq") == 0)
        return &swap_libpq;
#endif
#ifdef WITH_LIBMARIADB
    if (strcmp(name, "libmariadb") == 0)
        return &swap_libmariadb;
#endif
    bench_die("'%s' is not built", name);
}

static void run_batch(const struct swap_subject *subject, void *handle, size_t calls, size_t size)
{
    int64_t *took_ns = calloc(calls, sizeof *took_ns);
    char *value = calloc(1, size + 1);
    for (size_t i = 0; i < calls; i++) {
        memset(value, 'a' + (int)(i % 26), size);
        int64_t before_ns = bench_now_ns();
        subject->swap(handle, value, size);
        took_ns[i] = bench_now_ns() - before_ns;
    }
    printf("{\"series\": \"%s\", \"p50_ns\": %" PRId64 "}\n", subject->name,
           bench_percentile(took_ns, calls, 50));
    free(value);
    free(took_ns);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        bench_die("usage: bench-cells URL WHOSE ROUNDS CALLS BYTES CORE");
    struct swap_subject bare = *find(argv[2]);
    bare.name = "bare";
    const struct swap_subject *const subjects[] = {&cell, &bare, &guarded};
    void *handles[sizeof subjects / sizeof *subjects];
    long rounds = bench_number(argv[3]);
    size_t calls = (size_t)bench_number(argv[4]), size = (size_t)bench_number(argv[5]);
    bench_pin((int)bench_number(argv[6]) - 1);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        handles[i] = subjects[i]->open(argv[1], subjects[i]->name);
        subjects[i]->swap(handles[i], "", 0);
    }
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
            run_batch(subjects[i], handles[i], calls, size);
    }
    stile_client_close(client);
    return 0;
}
