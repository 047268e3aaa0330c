/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a simulated etcd cluster: which one leads, what they have agreed on, and how far
 * each one has got.
 *
 * There are no messages between members. A write requested of a leader with a majority is agreed
 * on after a moment, and each member applies it a moment later. Without a majority it waits; the
 * seed decides whether it survives the election of another leader. A leader that was stopped still
 * acts as one for a moment after another has been elected, as the real one does. Leases are the
 * leader's: a new one gives each its full time again, and an election timeout more.
 */
#ifndef STILE_SIM_ETCD_CLUSTER_H
#define STILE_SIM_ETCD_CLUSTER_H

#include "sim/etcd_kv.h"
#include "sim/net.h"
#include "sim/world.h"

#define ETCD_MEMBERS_MAX 5
#define ETCD_TICK_NS     (50 * MS)
#define ETCD_PATIENCE_NS (7 * SEC) /* 5 s and two election timeouts */
#define ETCD_ELECTION_NS (1 * SEC)
#define ETCD_MIN_TTL_S   2
#define ETCD_MAX_TTL_S   9000000000

struct etcd_member {
    struct server *server;
    struct etcd_cluster *cluster;
    uint64_t id;
    unsigned incarnation; /* how often it has started */
    bool cut_off;         /* from all other members */
    bool busy;            /* it turns writes away */
    uint64_t have;        /* entries of the log that it has, and those it has applied */
    uint64_t applied;
    uint64_t silent_ns; /* how long it has run without hearing of a leader with a majority */
    bool deposed;       /* it was stopped as leader, and has not noticed that another was elected */
    uint64_t notices_ns; /* when it will; 0: it has not continued yet */
    void *streams;
};

struct etcd_cluster {
    struct etcd_store store, saved;
    struct etcd_member members[ETCD_MEMBERS_MAX];
    unsigned n;
    uint64_t id, term;
    struct etcd_member *leader;   /* NULL: nobody believes to be it */
    uint64_t lost_ns, timeout_ns; /* since when no leader has had a majority; 0: one has */
    struct etcd_task *tasks;
    struct random random;
    bool misled; /* a deposed leader has renewed a lease */
    bool missed; /* or has answered that there is no such lease: it was granted later */
    /* A member has applied something: its watches have events. */
    void (*applied)(struct etcd_member *member);
    bool over;
};

/* A request that needs the agreement of a majority, or the certainty that it sees all that was
 * agreed on. */
struct etcd_task {
    struct etcd_task *next;
    struct etcd_member *member;
    unsigned incarnation;
    bool writes;
    enum etcd_task_state {
        TASK_ON_ITS_WAY,
        TASK_IN_DOUBT,
        TASK_WAITING,
        TASK_AGREED,
        TASK_LOST,
        TASK_OVER
    } state;
    bool answered;
    uint64_t until_ns, term, index;
    enum etcd_refusal refusal;
    /* As of a revision, or 0 for a write: packs the answer. */
    enum etcd_refusal (*run)(struct etcd_task *task, int64_t revision);
    void (*done)(struct etcd_task *task, enum etcd_refusal refusal);
    void *data;
};

void etcd_cluster_begin(struct etcd_cluster *cluster, unsigned n);
void etcd_cluster_end(struct etcd_cluster *cluster);
void etcd_task_start(struct etcd_task *task);

bool etcd_member_runs(const struct etcd_member *member);
bool etcd_member_sees_leader(const struct etcd_member *member);
int64_t etcd_member_revision(const struct etcd_member *member);
/* How long a member needs for something, as a rule and now and then. */
uint64_t etcd_cluster_moment(struct etcd_cluster *cluster);

enum etcd_renewal { ETCD_RENEWED, ETCD_LEASE_GONE, ETCD_RENEW_LATER };
enum etcd_renewal etcd_member_renew(struct etcd_member *member, int64_t id, int64_t *ttl_s);

/* ---- faults ---- */

void etcd_cluster_save(struct etcd_cluster *cluster);
void etcd_member_crash(struct etcd_member *member);
void etcd_member_restart(struct etcd_member *member);
/* Another one is elected, if there is one. */
void etcd_cluster_move_leader(struct etcd_cluster *cluster);
/* All members go down; and come up with a snapshot, or without data. They have new ids. */
void etcd_cluster_stop(struct etcd_cluster *cluster);
void etcd_cluster_restore(struct etcd_cluster *cluster, bool snapshot, int64_t bump);
void etcd_cluster_compact(struct etcd_cluster *cluster);
/* By hand, as with etcdctl: one of the leases, or one of the keys. */
void etcd_cluster_revoke_one(struct etcd_cluster *cluster, unsigned n);
void etcd_cluster_delete_one(struct etcd_cluster *cluster, unsigned n);
/* That of the last claim with a ghost. */
void etcd_cluster_delete_waiter(struct etcd_cluster *cluster);

#endif
