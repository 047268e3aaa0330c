/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A Redis Cluster of three shards, each with one or two replicas.
 *
 * Gossip and votes are not simulated, only their outcome: `truth` is what most nodes agree
 * on, and each node learns of a change by itself, a little later. A primary that is not seen for
 * node_timeout_ns is replaced by its best replica; until it learns of that, it answers as a
 * primary, for node_timeout_ns at most if it is cut off.
 */
#include <string.h>

#include "sim/redis_cluster.h"
#include "sim/redis_failover.h"
#include "sim/workload.h"

#define NODES_MAX    9
#define WATCH_NS     (50 * MS)
#define WATCH_END_NS (75 * SEC)

struct member {
    struct redis_node *node;
    struct cluster_node cluster;
    uint64_t learns_ns; /* 0: it has nothing to learn */
    uint64_t alone_ns;  /* since when it does not see most primaries; 0: it does */
};

/* A slot on its way. */
struct migration {
    bool active;
    unsigned slot, shard; /* shard: where it goes to */
    struct redis_node *from, *to;
};

static struct {
    struct random random;
    struct member members[NODES_MAX];
    unsigned n;
    struct cluster_view truth;
    uint64_t node_timeout_ns;
    uint64_t unseen_ns[CLUSTER_SHARDS]; /* 0: it is seen */
    uint64_t elected_ns[CLUSTER_SHARDS];
    struct migration migration;
} group;

/* The members are in the order of their servers. */
static struct member *member_of(const struct redis_node *node)
{
    return &group.members[node->server->number];
}

static unsigned shard_of(const struct member *member)
{
    return member->node->server->number % CLUSTER_SHARDS;
}

/* ---- what each node knows ---- */

/* The first to know of a change is the node that has made it. */
static void changed(struct redis_node *by)
{
    group.truth.version++;
    if (by != NULL)
        member_of(by)->cluster.view = group.truth;
    redis_failover_mark();
}

static void learn(struct member *member)
{
    struct redis_node *primary = group.truth.primaries[shard_of(member)];
    world_trace("%s learns of version %u", member->node->server->host, group.truth.version);
    member->learns_ns = 0;
    member->cluster.view = group.truth;
    if (member->node != primary && member->node->replication.primary != primary)
        redis_failover_demote(member->node, primary);
    redis_failover_mark();
}

static void let_learn(struct member *member)
{
    if (member->cluster.view.version == group.truth.version || !redis_failover_sees(member->node)) {
        member->learns_ns = 0;
        return;
    }
    if (member->learns_ns == 0)
        member->learns_ns = world_now() + random_below(&group.random, 300 * MS);
    if (member->learns_ns <= world_now())
        learn(member);
}

static unsigned count_seen(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < CLUSTER_SHARDS; i++)
        n += redis_failover_sees(group.truth.primaries[i]);
    return n;
}

static void look_around(struct member *member)
{
    bool alone = member->node->replication.cut || count_seen() <= CLUSTER_SHARDS / 2;
    if (!server_runs(member->node->server))
        return;
    if (!alone) {
        if (member->cluster.isolated)
            redis_failover_mark();
        member->alone_ns = 0;
        member->cluster.isolated = false;
    } else if (member->alone_ns == 0) {
        member->alone_ns = world_now();
    } else if (world_now() - member->alone_ns > group.node_timeout_ns) {
        member->cluster.isolated = true;
    }
}

/* ---- failover ---- */

static void drop_slot(struct redis_node *node);

/* The replica of a node knows nothing of a slot on its way: an operator ends the matter. */
static void break_off(const struct redis_node *replaced)
{
    struct migration *m = &group.migration;
    if (!m->active || (m->from != replaced && m->to != replaced))
        return;
    world_trace("the move of slot %u is broken off", m->slot);
    member_of(m->from)->cluster.migrating = member_of(m->to)->cluster.importing = NO_SLOT;
    drop_slot(m->to);
    m->active = false;
    redis_failover_lost();
}

static void replace(unsigned shard, struct redis_node *next)
{
    break_off(group.truth.primaries[shard]);
    redis_failover_promote(next);
    group.truth.primaries[shard] = next;
    group.truth.failed[shard] = false;
    group.unseen_ns[shard] = group.elected_ns[shard] = 0;
    changed(next);
}

static void elect(unsigned shard)
{
    struct redis_node *next = redis_failover_best(group.truth.primaries[shard]);
    if (group.elected_ns[shard] == 0)
        group.elected_ns[shard] = world_now() + random_between(&group.random, 500 * MS, 1500 * MS);
    if (world_now() >= group.elected_ns[shard] && next != NULL && count_seen() > CLUSTER_SHARDS / 2)
        replace(shard, next);
}

static void look_at_shard(unsigned shard)
{
    if (redis_failover_sees(group.truth.primaries[shard])) {
        if (group.truth.failed[shard]) {
            group.truth.failed[shard] = false;
            changed(NULL);
        }
        group.unseen_ns[shard] = group.elected_ns[shard] = 0;
        return;
    }
    if (group.unseen_ns[shard] == 0)
        group.unseen_ns[shard] = world_now();
    if (world_now() - group.unseen_ns[shard] <= group.node_timeout_ns)
        return;
    if (!group.truth.failed[shard]) {
        group.truth.failed[shard] = true;
        changed(NULL);
    }
    elect(shard);
}

static void watch(void *data)
{
    (void)data;
    for (unsigned i = 0; i < CLUSTER_SHARDS; i++)
        look_at_shard(i);
    for (unsigned i = 0; i < group.n; i++) {
        let_learn(&group.members[i]);
        look_around(&group.members[i]);
    }
    if (world_now() < WATCH_END_NS)
        world_at(world_now() + WATCH_NS, watch, NULL);
}

/* ---- slots that move ---- */

static bool in_slot(struct bytes name, unsigned slot)
{
    return redis_cluster_slot(name) == slot;
}

static void drop_slot(struct redis_node *node)
{
    struct redis_store nowhere = {0};
    while (redis_store_migrate(&nowhere, &node->store, in_slot, group.migration.slot, 0))
        ;
    redis_replica_commit(node, NULL);
}

/* MIGRATE keeps the time that is left to a key, whatever the clocks show. */
static bool move_key(void)
{
    struct migration *m = &group.migration;
    int64_t later_ms = (m->to->server->clock_us - m->from->server->clock_us) / 1000;
    bool moved = redis_store_migrate(&m->to->store, &m->from->store, in_slot, m->slot, later_ms);
    redis_replica_commit(m->from, NULL);
    redis_replica_commit(m->to, NULL);
    return moved;
}

static bool both_run(void)
{
    return server_runs(group.migration.from->server) && server_runs(group.migration.to->server);
}

static void move_on(void *data)
{
    if (group.migration.active && both_run())
        move_key();
    if (group.migration.active)
        world_at(world_now() + random_below(&group.random, *(uint64_t *)data), move_on, data);
}

static void begin_move(struct fault *fault)
{
    struct migration *m = &group.migration;
    const char *key = fault->user % 2 ? "lock:x" : "lock:y";
    unsigned slot = redis_cluster_slot((struct bytes){key, strlen(key)});
    unsigned from = redis_cluster_shard(&group.truth, slot);
    unsigned to = (from + 1 + fault->number % 2) % CLUSTER_SHARDS;
    if (m->active)
        return;
    *m = (struct migration){true, slot, to, group.truth.primaries[from], group.truth.primaries[to]};
    if (!redis_failover_sees(m->from) || !redis_failover_sees(m->to)) {
        m->active = false;
        return;
    }
    world_trace("slot %u moves from %s to %s", slot, m->from->server->host, m->to->server->host);
    fault->data = m;
    member_of(m->to)->cluster.importing = member_of(m->from)->cluster.migrating = (int)slot;
    member_of(m->to)->cluster.partner = m->from;
    member_of(m->from)->cluster.partner = m->to;
    redis_failover_moved();
    uint64_t *pace = world_alloc(sizeof *pace);
    *pace = fault->for_ns / 4 + MS;
    move_on(pace);
}

/* The new owner learns of it first, then the old one. */
static void finish_move(void *data)
{
    struct migration *m = &group.migration;
    if (!m->active)
        return;
    if (!both_run()) {
        world_at(world_now() + 100 * MS, finish_move, data);
        return;
    }
    while (move_key())
        ;
    world_trace("slot %u has moved", m->slot);
    m->active = false;
    redis_cluster_move(&group.truth, m->slot, m->shard);
    member_of(m->to)->cluster.importing = member_of(m->from)->cluster.migrating = NO_SLOT;
    changed(m->to);
    member_of(m->from)->cluster.view = group.truth;
}

static void end_move(struct fault *fault)
{
    if (fault->data != NULL)
        finish_move(NULL);
}

/* ---- other faults ---- */

static unsigned shard_of_name(const struct fault *fault)
{
    const char *key = fault->number % 2 ? "lock:x" : "lock:y";
    return redis_cluster_shard(&group.truth, redis_cluster_slot((struct bytes){key, strlen(key)}));
}

static struct redis_node *primary_of(const struct fault *fault)
{
    return group.truth.primaries[shard_of_name(fault)];
}

/* CLUSTER FAILOVER TAKEOVER at a replica. */
static void order_failover(struct fault *fault)
{
    unsigned shard = shard_of_name(fault);
    struct redis_node *next = redis_failover_best(group.truth.primaries[shard]);
    if (next != NULL)
        replace(shard, next);
}

static const struct fault_class faults[] = {
    REDIS_FAILOVER_FAULTS,
    {"an operator orders a failover", 4, 0, AT_CLIENT, order_failover, NULL},
    {"a slot moves to another node", 8, 0, AT_CLIENT, begin_move, end_move},
    {0},
};

/* ---- the set-up ---- */

static void make_member(unsigned number)
{
    struct member *member = &group.members[number];
    member->node = redis_node_of(net_server(number));
    member->node->mode = &redis_cluster_mode;
    member->node->data = &member->cluster;
    member->cluster.migrating = member->cluster.importing = NO_SLOT;
    redis_replica_begin(member->node);
    if (number < CLUSTER_SHARDS)
        group.truth.primaries[number] = member->node;
    else
        redis_replica_follow(member->node, group.truth.primaries[number % CLUSTER_SHARDS]);
}

static const char *begin(struct random *random)
{
    unsigned replicas = (unsigned)random_between(random, 1, 2);
    memset(&group, 0, sizeof group);
    group.random = random_stream(world_seed(), 6);
    group.node_timeout_ns = random_between(random, 500 * MS, 3 * SEC);
    group.n = CLUSTER_SHARDS * (1 + replicas);
    redis_servers_make(group.n);
    for (unsigned i = 0; i < group.n; i++)
        make_member(i);
    for (unsigned i = 0; i < group.n; i++)
        group.members[i].cluster.view = group.truth;
    redis_failover_begin(group.n, primary_of);
    world_at(0, watch, NULL);
    const char *url =
        random_once_in(random, 4) ? "redis://n2:6379" : redis_servers_url("redis+cluster", 3);
    return redis_servers_wait(url, replicas, random);
}

static const struct fault_class more[] = {
    {"an operator breaks a lock", 8, 0, AT_CLIENT, strike_break_of, NULL},
    {"a server forgets its scripts", 8, 0, IN_ORDER, redis_strike_flush_scripts, NULL},
    {0},
};

const struct sim_engine_class sim_cluster_class = {
    .name = "cluster",
    .tokens = true,
    .begin = begin,
    .dispose = redis_servers_dispose,
    .faults = faults,
    .more = more,
    .wake_ns = SEC,
    .also_broken = redis_failover_broken,
    .save = redis_servers_save,
    .failed = redis_servers_failed,
    .finish = sim_redis_finish,
};
