/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench programs share: time, places, memory between processes, and locks to compare.
 *
 * Every program prints one JSON object a line; bench/run computes medians and ratios from them.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A positive number from the command line, or the end. */
long bench_number(const char *text);

/* CLOCK_MONOTONIC: the same for all processes. */
int64_t bench_now_ns(void);
void bench_sleep_us(long us);

/* Stays on the nth of the cores that we may use, from 0. Once only: then there is one left. */
void bench_pin(int nth);

/* As many open files as we may have: flock needs one a lock. */
void bench_many_files(void);

/* Zeroed memory that forked children share. */
void *bench_share(size_t size);

/* The p-th percentile (0..100, nearest rank) of n > 0 values, which are sorted in place. */
int64_t bench_percentile(int64_t *values, size_t n, unsigned p);

/* A child that dies with us, so that nothing is left behind when a run is interrupted. */
pid_t bench_fork(void);
void bench_reap(pid_t pid);

/* Sleeps on a shared word, and wakes its sleepers. */
void bench_word_wait(const uint32_t *word, uint32_t seen);
void bench_word_set(uint32_t *word, uint32_t value);

/* Waits until the word has at least this value; dies after 30 s. */
void bench_word_await(const uint32_t *word, uint32_t value);

/* What a process's first thread is doing, as /proc shows it: 'S' is asleep. fd from open_state. */
int bench_open_state(pid_t pid);
char bench_state(int fd);

/* Waits until the process's first thread sleeps in the kernel, and stays asleep. */
void bench_await_asleep(pid_t pid);

/* A lock to be measured, at a place: a directory, or the URL of a server. Handles are for the
 * process that opened them. */
struct subject {
    const char *name;
    void *(*open)(const char *place, const char *lock_name);
    void (*take)(void *handle); /* waits for ever; reads the token where there is one */
    void (*give)(void *handle);
};

extern const struct subject subject_stile;
extern const struct subject subject_flock;
extern const struct subject subject_hiredis; /* SET NX PX, compare-and-delete; never waits */

extern const struct subject subject_libpq;      /* pg_try_advisory_lock, unlock */
extern const struct subject subject_libpq_wait; /* pg_advisory_lock, which waits in the server */
extern const struct subject subject_libpq_row;  /* tried, and a row updated and committed */

extern const struct subject subject_libmariadb, subject_libmariadb_wait, subject_libmariadb_row;
extern const struct subject subject_zookeeper; /* a node created, deleted; never waits */
extern const struct subject subject_etcd;      /* a key put, deleted; never waits */
extern const struct subject subject_dynamodb;  /* an item changed twice; never waits */

const struct subject *subject_find(const char *name);

/* The same without waiting: done is called from turn(), which sleeps until there is something. */
typedef void bench_done_fn(void *data);

struct async_subject {
    const char *name;
    void *(*open)(const char *place, const char *lock_name);
    void (*take)(void *handle, bench_done_fn *done, void *data);
    void (*give)(void *handle, bench_done_fn *done, void *data);
    void (*turn)(void);
};

extern const struct async_subject async_zookeeper;
extern const struct async_subject async_etcd;

/* A value that is replaced if its version is the one that it got the time before; the first time,
 * if there is none. */
struct swap_subject {
    const char *name;
    void *(*open)(const char *place, const char *key);
    void (*swap)(void *handle, const void *value, size_t size);
};

extern const struct swap_subject swap_hiredis; /* a script: a version compared and counted, a SET */
extern const struct swap_subject swap_etcd;    /* a transaction: mod_revision compared, a put */
extern const struct swap_subject swap_zookeeper;  /* setData with a version, over a bare socket */
extern const struct swap_subject swap_libmariadb; /* UPDATE ... WHERE version = */
extern const struct swap_subject swap_libpq;      /* the same */
extern const struct swap_subject swap_lmdb;       /* a transaction: read, compared, put */

/* Asks a server for a sign of life, and waits for it. */
void bench_ping(const char *url);
void hiredis_ping(const char *url);
void libpq_ping(const char *url);
void libmariadb_ping(const char *url);
void zookeeper_write(const char *url); /* there is no less that others can wait for */
void etcd_write(const char *url);

#endif
