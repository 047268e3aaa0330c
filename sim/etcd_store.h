/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a simulated etcd cluster agree on: keys with their whole history, leases, and
 * the log in which they change.
 *
 * There is one store for all members. A member that lags reads it as of an earlier entry of the
 * log: every entry has the revision that it led to, and no version of a key is ever thrown away.
 * Compaction only forbids reading below it. Memory is the world's.
 */
#ifndef STILE_SIM_ETCD_STORE_H
#define STILE_SIM_ETCD_STORE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef ProtobufCBinaryData etcd_bytes;

/* One state of a key, from its revision to that of the next. */
struct etcd_version {
    struct etcd_version *older;
    const struct etcd_key *key;
    int64_t revision, created, version, lease;
    bool deleted;
    etcd_bytes value;
};

struct etcd_key {
    etcd_bytes name;
    struct etcd_version *latest;
};

struct etcd_lease {
    struct etcd_lease *next;
    int64_t id, ttl_s;
    uint64_t granted, ended; /* entries of the log; ended 0: it lives */
    uint64_t expires_ns;     /* for the present leader */
    uint64_t former_ns; /* for the leader before, if that does not know yet that it is deposed */
    bool revoking;      /* the leader has proposed its end */
};

struct etcd_store {
    struct etcd_key **keys; /* in order; some are deleted */
    size_t n_keys, keys_room;
    struct etcd_version **changes; /* in the order in which they were made */
    size_t n_changes, changes_room;
    int64_t *revisions; /* by entry of the log */
    size_t revisions_room;
    uint64_t index; /* the last entry of the log */
    int64_t revision, compacted;
    struct etcd_lease *leases;
};

void etcd_store_begin(struct etcd_store *store);
/* Ends an entry of the log. The revision grows by one if it has changed a key. */
void etcd_store_commit(struct etcd_store *store);
int64_t etcd_store_revision_at(const struct etcd_store *store, uint64_t index);
/* A copy as of now, and a store that goes on from one; its log goes on as well. bump is added to
 * the revision, and everything below is compacted, as `etcdutl snapshot restore` does it. */
void etcd_store_copy(struct etcd_store *to, const struct etcd_store *from);
void etcd_store_restore(struct etcd_store *store, const struct etcd_store *saved, int64_t bump);

/* ---- keys ---- */

/* Whether it is from start to before end. An empty end: start alone; "\0": all from start on. */
bool etcd_range_has(etcd_bytes start, etcd_bytes end, etcd_bytes key);
int etcd_bytes_compare(etcd_bytes a, etcd_bytes b);

/* The revision that a change would have now, or has if there was one in this entry. */
int64_t etcd_store_present(const struct etcd_store *store);
/* The place of the first key that is not before this one. */
size_t etcd_store_find(const struct etcd_store *store, etcd_bytes name);
/* NULL: it did not exist then. */
struct etcd_version *etcd_version_at(const struct etcd_key *key, int64_t revision);
void etcd_store_put(struct etcd_store *store, etcd_bytes name, etcd_bytes value, int64_t lease);
/* How many were deleted. */
int64_t etcd_store_delete(struct etcd_store *store, etcd_bytes start, etcd_bytes end);

/* ---- leases ---- */

/* NULL: there was none at that entry of the log. */
struct etcd_lease *etcd_store_lease(const struct etcd_store *store, int64_t id, uint64_t index);
struct etcd_lease *etcd_store_grant(struct etcd_store *store, int64_t id, int64_t ttl_s);
/* With its keys. */
void etcd_store_revoke(struct etcd_store *store, struct etcd_lease *lease);

#endif
