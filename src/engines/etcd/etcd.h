/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The etcd engine: what its files share. */
#ifndef STILE_ETCD_H
#define STILE_ETCD_H

#include <time.h>

#include "base/container.h"
#include "engines/etcd/claims.h"
#include "engines/kit/doctor.h"

#define INFO_MAX 320
#define SELF_MAX 96

/* What query->state points to: an inspection, a break, or the writing of a record. */
struct inquiry {
    void (*discard)(struct inquiry *inquiry);
};

/* ---- inspect.c ---- */

/* The server executes the requests of one connection in any order: an inspection begins when every
 * release before it is answered, so that a caller that has released does not see its lock held. */
void etcd_inspect_released(struct etcd *etcd);
void etcd_inspect_list(struct engine *engine, struct query *query);
void etcd_inspect_show(struct engine *engine, struct query *query);
void etcd_inspect_break(struct engine *engine, struct query *query);
void etcd_inspect_cancel(struct engine *engine, struct query *query);
/* Reports every change of these keys to the query, until unwatch(). */
void etcd_inspect_subscribe(struct engine *engine, struct query *query, const struct key *start,
                            const struct key *end);
void etcd_inspect_watch(struct engine *engine, struct query *query);
void etcd_inspect_unwatch(struct engine *engine, struct query *query);

/* ---- proclaim.c ---- */

void etcd_proclaim(struct engine *engine, struct query *query);

/* ---- history.c ---- */

void etcd_history_record(struct engine *engine, struct query *query);
/* The text of a record in the value of its key; NULL: it is not ours. */
const char *etcd_history_text(size_t *len, const ProtobufCBinaryData *value);

/* ---- cells.c, cell_list.c ---- */

void etcd_cells_run(struct engine *engine, struct cell_request *request);
void etcd_cells_watch(struct engine *engine, struct query *query);
void etcd_cells_close(struct etcd *etcd);

/* ---- doctor_probe.c ---- */

void etcd_doctor_examine(struct engine *engine, struct query *query);

enum opening_stage {
    OPENING_NOT,    /* it is open, or has failed, or open() has not begun */
    OPENING_STATUS, /* a member was asked for its status */
    OPENING_OTHERS, /* that member will do; the others have a moment to name their cluster */
};

/* The way to opened(): see etcd.c. */
struct etcd_opening {
    enum opening_stage stage;
    struct timer patience;
    struct task look;
    bool late;               /* patience is over */
    bool answered;           /* the status, with error or without */
    size_t asked;            /* members */
    uint64_t cluster_id;     /* as the last of them has named it; 0: none has */
    struct members *members; /* the others; NULL: none are asked */
    struct stile_error error, no_leader;
};

struct etcd {
    struct engine engine;
    struct etcd_opening opening;
    struct conn *conn;
    size_t n_members; /* that the URL names */
    struct tls_context *tls;
    char prefix[PREFIX_MAX + 1];
    char info[INFO_MAX];    /* "pid host command", for `show` */
    char self[SELF_MAX];    /* "pid@host" */
    bool plain_key;         /* exclusive claims take the key of etcd3's Lock as well */
    bool rwmutex;           /* exclusive claims where the recipe's readers look for writers */
    bool no_info_keys;      /* our roles do not allow the keys that are for `show` only */
    uint64_t record_leases; /* distinguishes the leases of records, by prefix and user */
    unsigned last_ghost;
    uint32_t last_sharer;

    struct lease *leases;
    const struct lease_events *lease_events;
    struct conn_stream keep_alive;

    struct conn_stream watch_stream;
    struct key_watch *watches[WATCH_BUCKETS];
    int64_t last_watch;
    struct timer rewatch;
    uint64_t interruptions; /* of the connection or a stream: what is known may be outdated */
    struct idle_watch *idle_watches; /* the oldest first */
    size_t n_idle;
    struct timer idle_timer;
    struct etcd_claim *recent, **recent_tail; /* claims held, or waiting, for a short time */
    struct timer recent_timer;
    struct batch_list batched[BATCH_KINDS]; /* to be sent before the loop sleeps */
    struct sender batch_sender;
    const struct batch_class *batch_classes[BATCH_KINDS];
    struct batch *batches;         /* under way */
    uint64_t last_release;         /* number of the last request to be released */
    struct inspection *deferred;   /* inspections that have not begun */
    struct lingering *lingering;   /* ghosts of claims that have ended */
    struct cell_listing *listings; /* of cells, under way */
    struct doctor_visit *visits;   /* of the doctor, under way */
};

/* For people to read; it decides nothing. */
static inline int64_t etcd_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline struct etcd *etcd_of(struct engine *engine)
{
    return (struct etcd *)engine;
}

static inline enum stile_status etcd_txn_send(struct txn *txn, struct etcd *etcd, conn_fn *fn,
                                              void *data, struct stile_error *err)
{
    return etcd_conn_request(etcd->conn, RPC_TXN, &txn->request.base, fn, data, err);
}

static inline struct etcd_claim *claim_of(struct claim *base)
{
    return (struct etcd_claim *)base->state;
}

static inline struct claim *base_of(struct etcd_claim *claim)
{
    return container_of(claim, struct claim, state);
}

static inline struct etcd *etcd_of_claim(struct etcd_claim *claim)
{
    return etcd_of(base_of(claim)->engine);
}

static inline struct etcd_claim *claim_of_timer(struct timer *timer)
{
    return container_of(timer, struct etcd_claim, timer);
}

static inline struct etcd_claim *claim_of_watch(struct key_watch *watch)
{
    return container_of(watch, struct etcd_claim, watch);
}

static inline void key_of_own(struct key *key, struct etcd_claim *claim)
{
    etcd_key_of_claim(key, etcd_of_claim(claim), base_of(claim), claim->lease_id, claim->number);
}

#endif
