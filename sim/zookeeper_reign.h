/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a leader of a simulated ZooKeeper ensemble knows, for zookeeper_ensemble.c and its faults.
 */
#ifndef STILE_SIM_ZOOKEEPER_REIGN_H
#define STILE_SIM_ZOOKEEPER_REIGN_H

#include "sim/zookeeper_ensemble.h"

#define ELECT_MIN_NS (200 * MS)
#define ELECT_MAX_NS (1200 * MS)

/* A session, as the present leader counts it. */
struct tracked {
    struct tracked *next;
    int64_t id;
    uint64_t expires_ns;
    const struct zk_member *owner; /* the member to which its client is connected */
    bool closing;
};

/* A sync that waits for a transaction. */
struct waiting_sync {
    struct waiting_sync *next;
    struct zk_member *member;
    const struct zk_txn *behind;
    void *request;
    unsigned term;
};

/* What a leader knows. One that has been replaced and has not noticed keeps using its own. */
struct zk_reign {
    struct zk_ensemble *ensemble;
    struct zk_member *leader;
    bool over;
    bool follows[ZK_MEMBERS_MAX];
    uint64_t silent_ns[ZK_MEMBERS_MAX]; /* how long the leader has run without hearing from them */
    struct zk_tree proposed;            /* as it will be when all that is proposed is agreed on */
    int64_t zxid;                       /* the last one that was used */
    struct zk_txn *first, **last;       /* that are proposed, and not agreed on yet */
    struct waiting_sync *syncs, **last_sync;
    struct tracked *sessions;
};

/* It follows and leads no longer; its clients are cut off. */
void zk_member_stop_serving(struct zk_member *member);
/* The log that ends at `at` contains the transaction. */
bool zk_log_has(const struct zk_txn *at, const struct zk_txn *txn);

void zk_reign_propose(struct zk_reign *reign, struct zk_txn *txn);
void zk_reign_end_session(struct zk_reign *reign, struct tracked *session);
struct zk_txn *zk_txn_new(enum zk_op_kind kind, int64_t session, const char *path);

#endif
