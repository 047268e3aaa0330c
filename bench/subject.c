/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The locks that are compared: ours, and flock(2) on an open file. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "stile.h"

static struct stile_client *client;

static void check(enum stile_status status, const struct stile_error *err, const char *what)
{
    if (status != STILE_OK)
        bench_die("%s: %s: %s", what, stile_status_name(status), err->message);
}

static void *open_stile(const char *place, const char *lock_name)
{
    struct stile_error err = {0};
    struct stile_lock *lock;
    char url[512];
    snprintf(url, sizeof(url), "%s%s", strchr(place, ':') ? "" : "local:", place);
    if (!client)
        check(stile_client_open(&client, url, NULL, &err), &err, "stile_client_open");
    check(stile_lock_new(&lock, client, lock_name, NULL, &err), &err, "stile_lock_new");
    return lock;
}

static void take_stile(void *handle)
{
    struct stile_error err;
    uint64_t token = 0;
    enum stile_status status = stile_lock_acquire(handle, -1, &err);
    if (status != STILE_OK)
        check(status, &err, "stile_lock_acquire");
    status = stile_lock_token(handle, &token);
    if (status != STILE_UNSUPPORTED && (status != STILE_OK || token == 0))
        bench_die("a grant without a token");
}

static void give_stile(void *handle)
{
    struct stile_error err;
    enum stile_status status = stile_lock_release(handle, &err);
    if (status != STILE_OK)
        check(status, &err, "stile_lock_release");
}

const struct subject subject_stile = {
    .name = "stile",
    .open = open_stile,
    .take = take_stile,
    .give = give_stile,
};

/* The handle is the fd plus one, since 0 is an fd and NULL is no handle. */
static void *open_flock(const char *dir, const char *lock_name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s.flock", dir, lock_name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die("%s: %s", path, strerror(errno));
    return (void *)((intptr_t)fd + 1);
}

static void flock_or_die(void *handle, int operation)
{
    int rc;
    while ((rc = flock((int)((intptr_t)handle - 1), operation)) < 0 && errno == EINTR)
        ;
    if (rc < 0)
        bench_die("flock: %s", strerror(errno));
}

static void take_flock(void *handle)
{
    flock_or_die(handle, LOCK_EX);
}

static void give_flock(void *handle)
{
    flock_or_die(handle, LOCK_UN);
}

const struct subject subject_flock = {
    .name = "flock",
    .open = open_flock,
    .take = take_flock,
    .give = give_flock,
};

void bench_ping(const char *url)
{
#ifdef WITH_LIBPQ
    if (strncmp(url, "postgres", 8) == 0) {
        libpq_ping(url);
        return;
    }
#endif
#ifdef WITH_LIBMARIADB
    if (strncmp(url, "mysql", 5) == 0) {
        libmariadb_ping(url);
        return;
    }
#endif
#ifdef WITH_ZOOKEEPER
    if (strncmp(url, "zk:", 3) == 0) {
        zookeeper_write(url);
        return;
    }
#endif
#ifdef WITH_ETCD
    if (strncmp(url, "etcd", 4) == 0) {
        etcd_write(url);
        return;
    }
#endif
#ifdef WITH_HIREDIS
    hiredis_ping(url);
#else
    bench_die("%s: built without its client library", url);
#endif
}

const struct subject *subject_find(const char *name)
{
    static const struct subject *const subjects[] = {
        &subject_stile,      &subject_flock,
#ifdef WITH_HIREDIS
        &subject_hiredis,
#endif
#ifdef WITH_LIBPQ
        &subject_libpq,      &subject_libpq_wait,      &subject_libpq_row,
#endif
#ifdef WITH_LIBMARIADB
        &subject_libmariadb, &subject_libmariadb_wait, &subject_libmariadb_row,
#endif
#ifdef WITH_ZOOKEEPER
        &subject_zookeeper,
#endif
#ifdef WITH_ETCD
        &subject_etcd,
#endif
#ifdef WITH_DYNAMODB
        &subject_dynamodb,
#endif
    };
    for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
        if (!strcmp(name, subjects[i]->name))
            return subjects[i];
    bench_die("'%s': want stile, flock, or a client: hiredis, libpq, libmariadb, zookeeper, etcd, "
              "dynamodb",
              name);
}
