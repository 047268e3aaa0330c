/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A group of three or five Redis servers. */
#include "sim/redis_faults.h"
#include "sim/redis_foreign.h"
#include "sim/workload.h"

#define SERVERS 5 /* of which a group of three uses the first */

static struct {
    unsigned size;         /* how many servers are its members at the beginning */
    const char *other_url; /* that of another number of nodes */
    bool sizes;            /* several clients named different numbers of nodes */
    bool foreign;          /* other programs use its locks, and count nodes that forgot */
    unsigned forgot;       /* servers that have lost their data, by bits */
} group;

static const char *begin(struct random *random)
{
    group.size = random_once_in(random, 2) ? 3 : 5;
    group.other_url = redis_servers_url("redlock", group.size == 3 ? 5 : 3);
    group.sizes = group.foreign = false;
    group.forgot = 0;
    redis_servers_make(SERVERS);
    return redis_servers_url("redlock", group.size);
}

static void crash_to_forget(struct fault *fault)
{
    group.forgot |= 1u << fault->server->number;
    redis_strike_crash(fault);
}

static void flush(struct fault *fault)
{
    group.forgot |= 1u << fault->server->number;
    redis_strike_flush(fault);
}

static void adopt(struct fault *fault)
{
    (void)fault;
    workload_adopt(NULL);
}

static void adopt_later(void *data)
{
    (void)data;
    workload_adopt(NULL);
}

/* The operator waits for the server, and no longer. */
static void heal_and_adopt(struct fault *fault)
{
    redis_heal_with_none(fault);
    world_at(world_now() + fault->number % 500 * MS, adopt_later, NULL);
}

/* By the URL that some clients may still have, or never should have had. */
static void adopt_other(struct fault *fault)
{
    (void)fault;
    workload_adopt(group.other_url);
}

static void resize(struct fault *fault)
{
    (void)fault;
    group.sizes = true;
    workload_resize(group.other_url);
}

static void other_size(struct fault *fault)
{
    group.sizes = true;
    workload_restart(fault->user, group.other_url);
}

/* A group most of whose nodes have lost their data grants nothing until they are adopted. Where all
 * that a client names have, there is no record that they were a group, and nothing is promised. */
static unsigned also_broken(void)
{
    unsigned small = group.forgot & 7u, all = group.forgot & ((1u << group.size) - 1);
    unsigned n = (unsigned)__builtin_popcount(all), broken = 0;
    if (group.forgot != 0) /* the holder may have had no vote to spare */
        broken |= BIT(FALSE_LOSS);
    if (group.foreign && (group.forgot != 0 || group.sizes))
        broken |= BIT(OVERLAP);
    if (n > group.size / 2)
        broken |= BIT(STARVED);
    if (n == group.size || (small == 7u && group.sizes))
        broken |= BIT(OVERLAP) | TOKENS;
    return broken;
}

static const struct fault_class faults[] = {
    {"a server is stopped", 6, 0, AT_SERVER, strike_stop, heal_stop},
    {"a server crashes and keeps its data", 6, 0, AT_SERVER, redis_strike_crash,
     redis_heal_with_all},
    {"a server crashes and loses its data", 3, 0, AT_SERVER, crash_to_forget, redis_heal_with_none},
    {"a server crashes and loses its data, and an operator adopts it", 5, 0, AT_SERVER,
     crash_to_forget, heal_and_adopt},
    {"FLUSHALL", 2, 0, AT_SERVER, flush, NULL},
    {"a server's clock jumps forward", 2, BIT(OVERLAP), AT_SERVER, strike_clock_forward, NULL},
    {"a server's clock jumps back", 2, BIT(STARVED), AT_SERVER, strike_clock_back, NULL},
    {"an operator adopts", 6, 0, AT_CLIENT, adopt, NULL},
    {"an operator adopts, and names another number of nodes", 2, 0, AT_CLIENT, adopt_other, NULL},
    {"an operator breaks a lock", 3, 0, IN_ORDER, strike_break, NULL},
    {"an operator resizes the group", 2, BIT(STARVED) | BIT(FALSE_LOSS), AT_CLIENT, resize, NULL},
    {"a client names another number of nodes", 2, 0, AT_CLIENT, other_size, NULL},
    {0},
};

/* Most members at once, and the operator does not wait for the others. */
static void forget_most(struct fault *fault)
{
    unsigned first = fault->number % group.size;
    for (unsigned i = 0; i <= group.size / 2; i++) {
        struct server *server = net_server((first + i) % group.size);
        if (server->down)
            continue;
        group.forgot |= 1u << server->number;
        sim_redis_crash(server);
        sim_redis_restart(server, LEFT_NONE);
    }
    world_at(world_now() + fault->number % 500 * MS, adopt_later, NULL);
}

/* Two of them, neither of whom knows of the other. */
static void adopt_twice(struct fault *fault)
{
    world_at(world_now() + fault->number % 3000 * US, adopt_later, NULL);
    workload_adopt(NULL);
}

static const struct fault_class more[] = {
    {"an operator breaks a lock", 12, 0, IN_ORDER, strike_break_of, NULL},
    {"a server forgets its scripts", 8, 0, IN_ORDER, redis_strike_flush_scripts, NULL},
    {"a server's clock drifts", 3, 0, AT_SERVER, strike_drift, heal_drift},
    {"a server is stopped", 4, 0, AT_SERVER, strike_stop, heal_stop},
    {"most servers lose their data, and an operator adopts", 4, 0, AT_CLIENT, forget_most, NULL},
    {"two operators adopt", 4, 0, AT_CLIENT, adopt_twice, NULL},
    {0},
};

static void foreign(uint64_t end_ns, struct random *random)
{
    group.foreign = true;
    redis_foreign_begin(group.size, end_ns, random);
}

/* Of the smaller group, where a client may name either. Once a server has forgotten, those that are
 * left may show less than was granted. */
static unsigned votes(void)
{
    if (group.forgot != 0)
        return SERVERS + 1;
    return group.sizes || group.size == 3 ? 2 : 3;
}

const struct sim_engine_class sim_redlock_class = {
    .name = "redlock",
    .exclusive_only = true,
    .tokens = true,
    .begin = begin,
    .votes = votes,
    .dispose = redis_servers_dispose,
    .faults = faults,
    .more = more,
    .wake_ns = SEC,
    .foreign = foreign,
    .also_broken = also_broken,
    .save = redis_servers_save,
    .failed = redis_servers_failed,
    .finish = sim_redis_finish,
};
