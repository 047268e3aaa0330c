/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What list and show print: the keys of names, as claims in the order of the queue. */
#ifndef STILE_ETCD_VIEW_H
#define STILE_ETCD_VIEW_H

#include "engines/etcd/etcd.h"

/* One key. */
struct entry {
    char *name;
    struct key *key;
    struct key_suffix suffix;
    int64_t revision, lease;
    unsigned slots;
    char *value;    /* what it proclaims, or "" */
    bool foreign;   /* in the way, as it would be for `etcdctl lock`, but not a lock's */
    bool dropped;   /* not a lock's either, as its value shows */
    int64_t age_ms; /* -1: not known */
};

/* What is known of one lease. */
struct lease_owner {
    int64_t lease;
    int64_t ttl; /* seconds left; below 0: not known */
    char *info;  /* cut up in place, once */
    bool cut;
    int64_t pid;
    const char *host, *command;
    char lease_hex[20], self[SELF_MAX];
};

struct view {
    const char *only; /* this name; NULL: all that start with the prefix */
    const char *prefix;
    struct entry *entries;
    size_t n, cap;
    struct lease_owner *owners;
    size_t n_owners;
    int64_t revision; /* as of which it is */
};

/* Adds what is a key of a lock, or is in the way of the only name there is. OK or NOMEM. */
enum stile_status etcd_view_add(struct view *view, const struct etcd *etcd,
                                const Etcd__RangeResponse *range, struct stile_error *err);
/* The value of one entry's key. False: out of memory. */
bool etcd_view_value(struct view *view, size_t entry, const Etcd__KeyValue *kv);
/* Sorts, and makes a list of the leases, at most `max`. */
enum stile_status etcd_view_sort(struct view *view, size_t max, struct stile_error *err);
struct lease_owner *etcd_view_owner(struct view *view, int64_t lease);

/* The age of an entry, from a key of etcd_key_of_since(). */
void etcd_view_since(struct view *view, const Etcd__KeyValue *kv, int64_t now_ms);

/* One name's entries from `at` on, as claims; claims has room for all of them. Returns the entry
 * behind them. */
size_t etcd_view_name(struct view *view, size_t at, struct stile_info *info,
                      struct stile_claim_info *claims);
void etcd_view_empty(struct view *view);

#endif
