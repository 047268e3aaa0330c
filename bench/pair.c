/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Uncontended acquire and release, batch by batch in turn. NAMES 1: peer_one, one. More: peer_one,
 * among, peer_each, each.
 *
 *   one      one name, nothing else at this place
 *   among    one name, while another process holds NAMES others
 *   each     another of NAMES names for each pair, in shuffled order
 *   peer_one, peer_each   the same with flock(2) on open files, or with bare hiredis
 *
 *   bench-pair PLACE flock|hiredis ROUNDS PAIRS NAMES [CORE]  CORE: the nth that we may use
 *   bench-pair PLACE solo PAIRS [WHOSE]     one of them alone, ours by default: to count its
 *                                           syscalls and instructions, or to profile
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* One reading of the clock for so many pairs, where it costs some per cent of one pair. */
static int group = 16;

struct series {
    const char *name;
    const struct subject *subject;
    void **handles;
    size_t n_handles;
    size_t next;
};

static void one_pair(struct series *s)
{
    void *handle = s->handles[s->next];
    s->next = s->next + 1 == s->n_handles ? 0 : s->next + 1;
    s->subject->take(handle);
    s->subject->give(handle);
}

static struct rusage usage(void)
{
    struct rusage r;
    getrusage(RUSAGE_THREAD, &r);
    return r;
}

static int64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void run_batch(struct series *s, size_t pairs, int64_t *group_ns)
{
    size_t groups = pairs / (size_t)group;
    double count = (double)groups * group;
    struct rusage start = usage();
    int64_t start_cpu_ns = cpu_ns(), start_ns = bench_now_ns(), before_ns = start_ns;
    for (size_t g = 0; g < groups; g++) {
        for (int i = 0; i < group; i++)
            one_pair(s);
        int64_t now_ns = bench_now_ns();
        group_ns[g] = now_ns - before_ns;
        before_ns = now_ns;
    }
    int64_t took_cpu_ns = cpu_ns() - start_cpu_ns;
    struct rusage end = usage();
    printf("{\"series\": \"%s\", \"pairs\": %.0f, \"p50_ns\": %.1f, \"mean_ns\": %.1f, "
           "\"mean_cpu_ns\": %.1f, \"switches\": %ld, \"preempted\": %ld}\n",
           s->name, count, (double)bench_percentile(group_ns, groups, 50) / group,
           (double)(before_ns - start_ns) / count, (double)took_cpu_ns / count,
           end.ru_nvcsw - start.ru_nvcsw, end.ru_nivcsw - start.ru_nivcsw);
}

static void shuffle(void **handles, size_t n)
{
    srandom(1);
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)random() % i;
        void *swap = handles[i - 1];
        handles[i - 1] = handles[j];
        handles[j] = swap;
    }
}

static struct series make_series(const char *name, const struct subject *subject, const char *dir,
                                 size_t n)
{
    struct series s = {.name = name, .subject = subject, .n_handles = n};
    s.handles = calloc(n, sizeof(*s.handles));
    for (size_t i = 0; i < n; i++) {
        char lock_name[64];
        snprintf(lock_name, sizeof(lock_name), "%s-%zu", name, i);
        s.handles[i] = subject->open(dir, lock_name);
    }
    shuffle(s.handles, n);
    for (size_t i = 0; i < n; i++)
        one_pair(&s);
    return s;
}

/* Another process that holds so many names until we end. */
static void start_holder(const char *dir, size_t names)
{
    uint32_t *ready = bench_share(sizeof(*ready));
    if (bench_fork() == 0) {
        for (size_t i = 0; i < names; i++) {
            char lock_name[64];
            snprintf(lock_name, sizeof(lock_name), "held-%zu", i);
            subject_stile.take(subject_stile.open(dir, lock_name));
        }
        bench_word_set(ready, 1);
        for (;;)
            pause();
    }
    bench_word_await(ready, 1);
}

static void solo(const char *dir, const struct subject *subject, size_t pairs)
{
    struct series s = make_series("one", subject, dir, 1);
    for (size_t i = 0; i < pairs; i++)
        one_pair(&s);
}

static void run_rounds(struct series *all, size_t n, size_t rounds, size_t pairs)
{
    int64_t *group_ns = calloc(pairs / (size_t)group + 1, sizeof(*group_ns));
    for (size_t r = 0; r < rounds; r++)
        for (size_t i = 0; i < n; i++)
            run_batch(&all[i], pairs, group_ns);
    free(group_ns);
}

static void measure(const char *dir, const struct subject *peer, size_t rounds, size_t pairs,
                    size_t names)
{
    struct series all[4];
    size_t n = 0;
    all[n++] = make_series("peer_one", peer, dir, 1);
    if (names == 1) {
        all[n++] = make_series("one", &subject_stile, dir, 1);
    } else {
        start_holder(dir, names);
        all[n++] = make_series("among", &subject_stile, dir, 1);
        all[n++] = make_series("peer_each", peer, dir, names);
        all[n++] = make_series("each", &subject_stile, dir, names);
    }
    run_rounds(all, n, rounds, pairs);
}

int main(int argc, char **argv)
{
    if ((argc == 4 || argc == 5) && !strcmp(argv[2], "solo")) {
        solo(argv[1], subject_find(argc == 5 ? argv[4] : "stile"), (size_t)bench_number(argv[3]));
        return 0;
    }
    if (argc != 6 && argc != 7)
        bench_die("usage: bench-pair PLACE flock|hiredis ROUNDS PAIRS NAMES [CORE] | "
                  "bench-pair PLACE solo PAIRS [WHOSE]");
    const struct subject *peer = subject_find(argv[2]);
    if (peer != &subject_flock)
        group = 1;
    bench_many_files();
    if (argc == 7)
        bench_pin((int)bench_number(argv[6]) - 1);
    measure(argv[1], peer, (size_t)bench_number(argv[3]), (size_t)bench_number(argv[4]),
            (size_t)bench_number(argv[5]));
    return 0;
}
