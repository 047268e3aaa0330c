/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many names that nobody else wants, all in flight at once through one client and one thread: what
 * has been granted is given back at once, and taken again. Ours and a bare client library, batch by
 * batch in turn.
 *
 *   bench-inflight PLACE zookeeper|etcd ROUNDS NAMES MILLISECONDS
 */
#include "bench.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stile.h"

struct batch {
    const struct async_subject *subject;
    uint64_t pairs;
    size_t under_way;
    bool stop;
};

struct name {
    struct batch *batch;
    void *handle;
    bench_done_fn *done;
};

/* ---- ours ---- */

static struct stile_client *client;

static void check(enum stile_status status, const struct stile_error *err)
{
    if (status != STILE_OK)
        bench_die("%s: %s", stile_status_name(status), err ? err->message : "");
}

static void *open_ours(const char *place, const char *lock_name)
{
    struct stile_error err;
    struct stile_lock *lock;
    if (!client)
        check(stile_client_open(&client, place, STILE_CLIENT_OPTIONS(.threadless = true), &err),
              &err);
    check(stile_lock_new(&lock, client, lock_name, NULL, &err), &err);
    return lock;
}

/* Which of the two has ended is the name's to know. */
static void on_done(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    struct name *name = data;
    (void)lock;
    check(status, err);
    name->done(name);
}

static void take_ours(void *lock, bench_done_fn *done, void *data)
{
    ((struct name *)data)->done = done;
    check(stile_lock_acquire_async(lock, -1, on_done, data), NULL);
}

static void give_ours(void *lock, bench_done_fn *done, void *data)
{
    ((struct name *)data)->done = done;
    check(stile_lock_release_async(lock, on_done, data), NULL);
}

static void turn_ours(void)
{
    struct pollfd ready = {.fd = stile_client_fd(client), .events = POLLIN};
    poll(&ready, 1, 1000);
    check(stile_client_dispatch(client), NULL);
}

static const struct async_subject async_stile = {
    .name = "stile", .open = open_ours, .take = take_ours, .give = give_ours, .turn = turn_ours};

/* ---- the same for both ---- */

static void on_taken(void *data);

static void take(struct name *name)
{
    name->batch->under_way++;
    name->batch->subject->take(name->handle, on_taken, name);
}

static void on_given(void *data)
{
    struct name *name = data;
    name->batch->under_way--;
    name->batch->pairs++;
    if (!name->batch->stop)
        take(name);
}

static void on_taken(void *data)
{
    struct name *name = data;
    name->batch->subject->give(name->handle, on_given, name);
}

static struct name *open_names(const char *place, const struct async_subject *subject, size_t n)
{
    struct name *names = calloc(n, sizeof(*names));
    for (size_t i = 0; i < n; i++) {
        char lock_name[32];
        snprintf(lock_name, sizeof(lock_name), "flight-%zu", i);
        names[i].handle = subject->open(place, lock_name);
    }
    return names;
}

static int64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void run_batch(const struct async_subject *subject, struct name *names, size_t n,
                      long for_ms)
{
    struct batch batch = {.subject = subject};
    int64_t start_ns = bench_now_ns(), end_ns = start_ns + for_ms * INT64_C(1000000);
    int64_t start_cpu_ns = cpu_ns();
    for (size_t i = 0; i < n; i++) {
        names[i].batch = &batch;
        take(&names[i]);
    }
    while (batch.under_way) {
        subject->turn();
        batch.stop = batch.stop || bench_now_ns() >= end_ns;
    }
    int64_t took_cpu_ns = cpu_ns() - start_cpu_ns;
    printf("{\"subject\": \"%s\", \"names\": %zu, \"per_s\": %.0f, \"mean_cpu_ns\": %.0f}\n",
           subject->name, n, (double)batch.pairs * 1e9 / (double)(bench_now_ns() - start_ns),
           (double)took_cpu_ns / (double)batch.pairs);
}

static const struct async_subject *find(const char *name)
{
#ifdef WITH_ZOOKEEPER
    if (strcmp(name, async_zookeeper.name) == 0)
        return &async_zookeeper;
#endif
#ifdef WITH_ETCD
    if (strcmp(name, async_etcd.name) == 0)
        return &async_etcd;
#endif
    bench_die("'%s': not built, or not known", name);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        bench_die("usage: bench-inflight PLACE zookeeper|etcd ROUNDS NAMES MILLISECONDS");
    const struct async_subject *peer = find(argv[2]);
    long rounds = bench_number(argv[3]), for_ms = bench_number(argv[5]);
    size_t n = (size_t)bench_number(argv[4]);
    struct name *ours = open_names(argv[1], &async_stile, n);
    struct name *theirs = open_names(argv[1], peer, n);
    for (long r = 0; r < rounds; r++) {
        run_batch(peer, theirs, n, for_ms);
        run_batch(&async_stile, ours, n, for_ms);
    }
    stile_client_close(client);
    free(ours);
    free(theirs);
    return 0;
}
