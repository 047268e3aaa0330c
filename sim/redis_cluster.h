/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a node of a Redis Cluster answers: MOVED, ASK, TRYAGAIN and CLUSTERDOWN, by what it knows.
 *
 * A shard is a third of the slots, with a primary and its replicas. A slot may be moved to another
 * shard. Each node has a view of its own; sim/engine_cluster.c decides when it learns.
 */
#ifndef STILE_SIM_REDIS_CLUSTER_H
#define STILE_SIM_REDIS_CLUSTER_H

#include "sim/redis_node.h"

#define CLUSTER_SLOTS  16384
#define CLUSTER_SHARDS 3
#define CLUSTER_MOVED  8 /* slots that are not where they were at first */
#define NO_SLOT        -1

struct cluster_view {
    unsigned version;
    struct redis_node *primaries[CLUSTER_SHARDS];
    bool failed[CLUSTER_SHARDS]; /* nobody has taken its place yet */
    struct {
        unsigned slot, shard;
    } moved[CLUSTER_MOVED];
    size_t n_moved;
};

/* Behind redis_node.data. */
struct cluster_node {
    struct cluster_view view;
    bool isolated;              /* it does not see most primaries */
    int migrating, importing;   /* a slot, or NO_SLOT */
    struct redis_node *partner; /* where it goes to, or comes from */
};

extern const struct redis_mode redis_cluster_mode;

unsigned redis_cluster_slot(struct bytes key);
unsigned redis_cluster_shard(const struct cluster_view *view, unsigned slot);
/* False: there is no room for one more slot. */
bool redis_cluster_move(struct cluster_view *view, unsigned slot, unsigned shard);

#endif
