/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a simulated ZooKeeper ensemble: which one leads, what they have agreed on, and how
 * far each one has got.
 *
 * Members send each other messages, in order and with delays: proposals, acknowledgements and
 * commits; requests of a follower's clients; and every half tick the sessions that a follower has
 * heard from. So what a follower answers by itself may be old, and so may what the leader has heard
 * of a session. A follower that is cut off from the leader serves its clients until it notices,
 * after some ticks; so does a leader that has lost its followers.
 *
 * Each member has a log of its own. Logs share their beginnings: a transaction points to the one
 * before it. The member with the latest transaction is elected, and what it has is agreed on.
 */
#ifndef STILE_SIM_ZOOKEEPER_ENSEMBLE_H
#define STILE_SIM_ZOOKEEPER_ENSEMBLE_H

#include "sim/net.h"
#include "sim/zookeeper_tree.h"

#define ZK_MEMBERS_MAX 5
#define ZK_LIMIT_TICKS 5 /* syncLimit: a shorter silence goes unnoticed */

struct zk_reign;
struct zk_member;
struct zk_message;

/* One way between a follower and its leader. */
struct zk_pipe {
    struct zk_member *from, *to;
    struct zk_message *first, **last;
    uint64_t latest_ns;
    bool pumping;
};

enum zk_role { ZK_LOOKING, ZK_FOLLOWING, ZK_LEADING };

struct zk_member {
    struct server *server;
    struct zk_ensemble *ensemble;
    unsigned number;
    enum zk_role role;
    struct zk_reign *reign; /* that it follows or leads; NULL: it looks for one */
    unsigned term;          /* how often it has begun to serve: what began before is forgotten */
    bool cut_off;           /* from all other members */
    bool throttles;         /* it turns requests away */
    struct zk_txn *logged;  /* the last transaction in its log, */
    struct zk_txn *synced;  /* the last one that is on its disk, */
    struct zk_txn *applied; /* and the last one that is in its tree */
    struct zk_tree tree;
    uint64_t looks_ns;       /* since when it looks for a leader */
    uint64_t silent_ns;      /* how long it has run without hearing from its leader */
    struct zk_pipe up, down; /* to and from its leader */
    struct zk_touched *touched;
    uint64_t forgets_ns; /* connections, until then: see sim_zk_forget_connections() */
    void *clients;
};

struct zk_ensemble {
    struct zk_member members[ZK_MEMBERS_MAX];
    unsigned n;
    uint64_t tick_ns;
    int32_t least_ms, most_ms; /* of sessions: 2 and 20 ticks */
    struct random random;
    int64_t epoch;
    struct zk_reign *reign; /* the latest */
    uint64_t elects_ns;     /* 0: no election has begun */
    struct zk_txn *agreed;  /* the last transaction that was committed */
    struct zk_tree saved;
    uint64_t containers_ns; /* how often empty ones are looked for */
    bool over;
    bool forgot; /* something that had been agreed on */

    /* ---- for the server ---- */
    zk_changed_fn *changed; /* data is the member */
    /* A member has applied a transaction; its request may be one of this member's. */
    void (*applied)(struct zk_member *member, struct zk_txn *txn);
    /* A request that is no transaction was answered by the leader. */
    void (*synced)(struct zk_member *member, void *request);
    void (*validated)(struct zk_member *member, void *request, bool valid);
    /* It no longer serves. */
    void (*stopped)(struct zk_member *member);
};

void zk_ensemble_begin(struct zk_ensemble *ensemble, unsigned n, uint64_t tick_ns);
void zk_ensemble_end(struct zk_ensemble *ensemble);
struct zk_member *zk_ensemble_leader(const struct zk_ensemble *ensemble);

/* ---- for the server: what a member that serves asks its leader ---- */

/* In the order of the calls. The transaction is not prepared yet. */
void zk_member_propose(struct zk_member *member, struct zk_txn *txn);
void zk_member_sync(struct zk_member *member, void *request);
/* Is this session alive? It is the member's from now on. */
void zk_member_validate(struct zk_member *member, void *request, int64_t session,
                        int32_t timeout_ms);
/* The member has heard from this session. */
void zk_member_touch(struct zk_member *member, int64_t session, int32_t timeout_ms);
/* Milliseconds on its wall clock. */
int64_t zk_member_clock_ms(const struct zk_member *member);

/* ---- faults ---- */

void zk_ensemble_save(struct zk_ensemble *ensemble);
void zk_member_crash(struct zk_member *member);
void zk_member_restart(struct zk_member *member);
/* Its disk is new. It must be down. */
void zk_member_forget(struct zk_member *member);
/* It gives up its office. */
void zk_ensemble_move_leader(struct zk_ensemble *ensemble);
void zk_ensemble_stop(struct zk_ensemble *ensemble);
/* All members must be down. Their disks are empty, or have the last snapshot that was saved. */
void zk_ensemble_restore(struct zk_ensemble *ensemble, bool snapshot);
/* By hand: one of the ephemeral nodes, or one of the sessions. */
void zk_ensemble_delete_one(struct zk_ensemble *ensemble, unsigned n);
void zk_ensemble_close_one(struct zk_ensemble *ensemble, unsigned n);

#endif
