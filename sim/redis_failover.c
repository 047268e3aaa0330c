/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_failover.h"

#include <string.h>

static struct {
    unsigned n_data;
    struct redis_node *(*primary_of)(const struct fault *fault);
    struct {
        bool replaced;   /* another is the primary, but it was not told yet */
        uint64_t offset; /* when that happened */
    } past[SERVERS_MAX];
    bool failed_over;
    bool lost;     /* grants, or what else was answered */
    bool moved;    /* names are on other servers */
    bool forgot;   /* keys are gone */
    bool tampered; /* a replica lacks what its primary has */
    bool jumped, set_back;
} all;

void redis_failover_begin(unsigned n_data, struct redis_node *(*primary_of)(const struct fault *))
{
    memset(&all, 0, sizeof all);
    all.n_data = n_data;
    all.primary_of = primary_of;
}

void redis_failover_mark(void)
{
    history_add(world_history(), &(struct event){.ns = world_now(), .kind = EVENT_HEALED});
}

void redis_failover_lost(void)
{
    all.lost = true;
}

void redis_failover_moved(void)
{
    all.moved = true;
}

/* ---- promises ---- */

static void note_rest(unsigned number)
{
    const struct redis_node *node = redis_node_of(net_server(number));
    all.lost |= all.past[number].replaced && node->replication.offset > all.past[number].offset;
}

/* A counter that is gone starts again at the clock of its server. */
unsigned redis_failover_broken(void)
{
    unsigned broken = 0;
    for (unsigned i = 0; i < all.n_data; i++)
        note_rest(i);
    bool elsewhere = all.failed_over || all.moved;
    bool gone = all.forgot || (all.tampered && all.failed_over);
    bool back = all.set_back || (all.jumped && elsewhere);
    if (all.lost)
        broken |= BIT(OVERLAP) | TOKENS;
    if (gone || all.jumped || (all.set_back && elsewhere))
        broken |= BIT(OVERLAP);
    if (gone && back)
        broken |= TOKENS;
    if (back)
        broken |= BIT(STARVED);
    return broken;
}

/* ---- failover ---- */

bool redis_failover_sees(const struct redis_node *node)
{
    return server_runs(node->server) && !node->replication.cut;
}

struct redis_node *redis_failover_best(const struct redis_node *primary)
{
    struct redis_node *best = NULL;
    for (unsigned i = 0; i < all.n_data; i++) {
        struct redis_node *node = redis_node_of(net_server(i));
        if (node->replication.primary != primary || node->replication.next == NULL ||
            !redis_failover_sees(node))
            continue;
        if (best == NULL || node->replication.offset > best->replication.offset)
            best = node;
    }
    return best;
}

void redis_failover_promote(struct redis_node *replica)
{
    const struct redis_node *old = replica->replication.primary;
    world_trace("failover from %s to %s", old->server->host, replica->server->host);
    all.failed_over = true;
    all.lost |= !redis_replica_is_current(replica);
    all.past[old->server->number].replaced = true;
    all.past[old->server->number].offset = old->replication.offset;
    all.past[replica->server->number].replaced = false;
    redis_replica_follow(replica, NULL);
    redis_failover_mark();
}

void redis_failover_demote(struct redis_node *node, struct redis_node *primary)
{
    note_rest(node->server->number);
    all.past[node->server->number].replaced = false;
    redis_replica_follow(node, primary);
    redis_failover_mark();
}

/* ---- faults ---- */

/* What concerns a primary happens to that of this moment, if it runs. */
static bool aim_at_primary(struct fault *fault)
{
    fault->server = all.primary_of(fault)->server;
    return server_runs(fault->server);
}

void failover_stop_primary(struct fault *fault)
{
    fault->data = aim_at_primary(fault) ? fault->server : NULL;
    if (fault->data != NULL)
        strike_stop(fault);
}

void failover_continue_primary(struct fault *fault)
{
    if (fault->data != NULL)
        heal_stop(fault);
}

void failover_crash_primary(struct fault *fault)
{
    fault->data = aim_at_primary(fault) ? fault->server : NULL;
    if (fault->data != NULL)
        sim_redis_crash(fault->server);
}

void failover_restart_primary(struct fault *fault)
{
    if (fault->data != NULL)
        sim_redis_restart(fault->server, LEFT_ALL);
}

void failover_cut_primary(struct fault *fault)
{
    aim_at_primary(fault);
    redis_strike_cut(fault);
}

static bool keeps_data(const struct server *server)
{
    return server->number < all.n_data;
}

void failover_crash_to_older(struct fault *fault)
{
    all.lost |= keeps_data(fault->server);
    sim_redis_crash(fault->server);
}

void failover_crash_to_forget(struct fault *fault)
{
    all.forgot |= keeps_data(fault->server);
    sim_redis_crash(fault->server);
}

void failover_flush(struct fault *fault)
{
    if (!aim_at_primary(fault))
        return;
    all.forgot = true;
    sim_redis_flush(fault->server);
}

void failover_drop_key(struct fault *fault)
{
    if (!aim_at_primary(fault))
        return;
    all.forgot = true;
    redis_strike_drop_key(fault);
}

void failover_drop_on_replica(struct fault *fault)
{
    struct redis_node *node = redis_node_of(net_server(fault->number % all.n_data));
    fault->server = node->server;
    if (node->replication.primary == NULL || !server_runs(fault->server))
        return;
    all.tampered = true;
    redis_strike_drop_key(fault);
}

void failover_clock_forward(struct fault *fault)
{
    all.jumped |= keeps_data(fault->server);
    strike_clock_forward(fault);
}

void failover_clock_back(struct fault *fault)
{
    all.set_back |= keeps_data(fault->server);
    strike_clock_back(fault);
}
