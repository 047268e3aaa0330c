/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many watches on one stream. */
#ifndef STILE_ETCD_WATCH_H
#define STILE_ETCD_WATCH_H

#include "engines/etcd/connection.h"
#include "engines/etcd/keys.h"

#define WATCH_BUCKETS 256

struct key_watch;
/* kv NULL: something may have happened before the watch began, or while it was interrupted: its
 * owner must look for itself. The watch goes on in any case. */
typedef void key_watch_fn(struct key_watch *watch, const Etcd__KeyValue *kv, bool deleted);

/* Embedded by its owner; zeroed means not started. */
struct key_watch {
    struct key_watch *next, **link; /* in its bucket of etcd->watches */
    int64_t id;                     /* 0: not started */
    int64_t from;                   /* the first revision it has no events of yet */
    uint64_t interruptions;         /* there had been so many when `from` was learned */
    key_watch_fn *fn;
    bool puts;             /* not deletions only */
    bool last_values;      /* a deletion is reported with the last value of its key */
    bool requested;        /* on the present stream */
    bool live;             /* it has had an event there, so the next one comes at once */
    struct key *key, *end; /* end NULL: one key */
};

enum stile_status etcd_watch_start(struct etcd *etcd, struct key_watch *watch,
                                   const struct key *key, const struct key *end, int64_t from,
                                   struct stile_error *err);
void etcd_watch_stop(struct etcd *etcd, struct key_watch *watch);
/* Stops it a little later, unless another claim wants to watch the same key before. */
void etcd_watch_idle(struct etcd *etcd, struct key_watch *watch);
/* In place of etcd_watch_start(), if an idle one watches this key: true. It does not report what
 * happened before now: see `from`. The idle watches of other keys of this name are stopped. */
bool etcd_watch_reuse(struct etcd *etcd, struct key_watch *watch, const struct key *name,
                      const struct key *key);

void etcd_watches_restart(struct etcd *etcd); /* the connection is up (again) */
void etcd_watches_init(struct etcd *etcd);
void etcd_watches_close(struct etcd *etcd);

#endif
