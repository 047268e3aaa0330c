/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What LMDB itself takes for a conditional write: one transaction that reads the value, compares
 * its version, puts and commits. With LMDB's own locks, and durable, as LMDB is unless told
 * otherwise. */
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define MAP_BYTES ((size_t)64 << 20)

struct swapped {
    MDB_env *env;
    MDB_dbi dbi;
    MDB_val key;
    uint64_t version;
};

static void check(int rc)
{
    if (rc)
        bench_die("LMDB: %s", mdb_strerror(rc));
}

/* In the same directory as the cells: on the same disk. */
static void *open_lmdb(const char *place, const char *key)
{
    struct swapped *s = calloc(1, sizeof *s);
    char path[4096];
    MDB_txn *txn;
    snprintf(path, sizeof path, "%s/bare", strchr(place, ':') + 1);
    s->key = (MDB_val){strlen(key), (void *)key};
    check(mdb_env_create(&s->env));
    check(mdb_env_set_mapsize(s->env, MAP_BYTES));
    check(mdb_env_open(s->env, path, MDB_NOSUBDIR, 0600));
    check(mdb_txn_begin(s->env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, NULL, 0, &s->dbi));
    check(mdb_txn_commit(txn));
    return s;
}

/* The version stands before the value. */
static uint64_t version_now(struct swapped *s, MDB_txn *txn)
{
    MDB_val value;
    uint64_t version = 0;
    int rc = mdb_get(txn, s->dbi, &s->key, &value);
    if (rc != MDB_NOTFOUND) {
        check(rc);
        memcpy(&version, value.mv_data, sizeof version);
    }
    return version;
}

static void swap(void *handle, const void *value, size_t size)
{
    struct swapped *s = handle;
    MDB_val place = {sizeof s->version + size, NULL};
    MDB_txn *txn;
    check(mdb_txn_begin(s->env, NULL, 0, &txn));
    if (version_now(s, txn) != s->version)
        bench_die("LMDB: another version");
    s->version++;
    check(mdb_put(txn, s->dbi, &s->key, &place, MDB_RESERVE));
    memcpy(place.mv_data, &s->version, sizeof s->version);
    memcpy((char *)place.mv_data + sizeof s->version, value, size);
    check(mdb_txn_commit(txn));
}

const struct swap_subject swap_lmdb = {.name = "lmdb", .open = open_lmdb, .swap = swap};
