/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The first use of a name beside another use of a name: one per order or per user is the usual way
 * to lock. Every pair makes its handle and frees it, so that only the engine's part differs. The
 * two alternate pair by pair, so that both meet the same load.
 *
 *   used     the same name again and again
 *   fresh    a name that nobody has ever used
 *
 *   bench-fresh PLACE ROUNDS PAIRS
 *   bench-fresh PLACE solo used|fresh PAIRS    one of them alone, to count its requests
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stile.h"

struct series {
    const char *name;
    bool is_fresh;
    int64_t *take_ns, *pair_ns;
};

static struct stile_client *client;
static long names; /* made so far */

static void check(enum stile_status status, const struct stile_error *err)
{
    if (status != STILE_OK)
        bench_die("%s: %s", stile_status_name(status), err->message);
}

static void one_pair(const struct series *s, size_t i)
{
    struct stile_lock *lock;
    struct stile_error err;
    char name[64];
    /* The process is part of the name: a second run on the same server has other names. */
    snprintf(name, sizeof name, "fresh-%ld-%ld", (long)getpid(), s->is_fresh ? ++names : 0);
    int64_t start_ns = bench_now_ns();
    check(stile_lock_new(&lock, client, name, NULL, &err), &err);
    check(stile_lock_acquire(lock, -1, &err), &err);
    s->take_ns[i] = bench_now_ns() - start_ns;
    check(stile_lock_release(lock, &err), &err);
    stile_lock_free(lock);
    s->pair_ns[i] = bench_now_ns() - start_ns;
}

static struct series make_series(const char *name, size_t pairs)
{
    struct series s = {.name = name, .is_fresh = strcmp(name, "fresh") == 0};
    s.take_ns = calloc(pairs, sizeof *s.take_ns);
    s.pair_ns = calloc(pairs, sizeof *s.pair_ns);
    if (!s.take_ns || !s.pair_ns)
        bench_die("out of memory");
    return s;
}

static void report(struct series *s, size_t pairs)
{
    printf("{\"series\": \"%s\", \"pairs\": %zu, \"take_p50_ns\": %ld, \"p50_ns\": %ld, "
           "\"p99_ns\": %ld}\n",
           s->name, pairs, (long)bench_percentile(s->take_ns, pairs, 50),
           (long)bench_percentile(s->pair_ns, pairs, 50),
           (long)bench_percentile(s->pair_ns, pairs, 99));
}

static void measure(size_t rounds, size_t pairs)
{
    struct series used = make_series("used", pairs), fresh = make_series("fresh", pairs);
    for (size_t i = 0; i < pairs; i++)
        one_pair(&used, i); /* the first ones are slower, of whichever kind */
    for (size_t r = 0; r < rounds; r++) {
        for (size_t i = 0; i < pairs; i++) {
            one_pair(&used, i);
            one_pair(&fresh, i);
        }
        report(&used, pairs);
        report(&fresh, pairs);
    }
}

int main(int argc, char **argv)
{
    struct stile_error err;
    if (argc != 4 && argc != 5)
        bench_die(
            "usage: bench-fresh PLACE ROUNDS PAIRS | bench-fresh PLACE solo used|fresh PAIRS");
    check(stile_client_open(&client, argv[1], NULL, &err), &err);
    if (argc == 5) {
        size_t pairs = (size_t)bench_number(argv[4]);
        struct series s = make_series(argv[3], pairs);
        for (size_t i = 0; i < pairs; i++)
            one_pair(&s, i);
        report(&s, pairs);
    } else {
        measure((size_t)bench_number(argv[2]), (size_t)bench_number(argv[3]));
    }
    stile_client_close(client);
    return 0;
}
