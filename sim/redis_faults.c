/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_faults.h"

#include "sim/redis_node.h"

/* ---- faults ---- */

void redis_strike_crash(struct fault *fault)
{
    sim_redis_crash(fault->server);
}

void redis_heal_with_all(struct fault *fault)
{
    sim_redis_restart(fault->server, LEFT_ALL);
}

void redis_heal_with_old(struct fault *fault)
{
    sim_redis_restart(fault->server, LEFT_OLD);
}

void redis_heal_with_none(struct fault *fault)
{
    sim_redis_restart(fault->server, LEFT_NONE);
}

void redis_strike_flush(struct fault *fault)
{
    sim_redis_flush(fault->server);
}

void redis_strike_drop_key(struct fault *fault)
{
    sim_redis_drop_key(fault->server, fault->user);
}

void redis_strike_flush_scripts(struct fault *fault)
{
    sim_redis_flush_scripts(fault->server);
}

void redis_strike_cut(struct fault *fault)
{
    redis_node_of(fault->server)->replication.cut = true;
}

void redis_heal_cut(struct fault *fault)
{
    redis_node_of(fault->server)->replication.cut = false;
}

void redis_strike_lag(struct fault *fault)
{
    redis_node_of(fault->server)->replication.lag_ns = 3 * SEC;
}

void redis_heal_lag(struct fault *fault)
{
    redis_node_of(fault->server)->replication.lag_ns = 0;
}

/* ---- servers ---- */

void redis_servers_make(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        net_add(sim_redis_new(world_print("n%u", i + 1)));
}

const char *redis_servers_url(const char *scheme, unsigned n)
{
    const char *url = world_print("%s://", scheme);
    for (unsigned i = 0; i < n; i++)
        url = world_print("%s%sn%u:6379", url, i > 0 ? "," : "", i + 1);
    return url;
}

const char *redis_servers_wait(const char *url, unsigned n, struct random *random)
{
    if (random_once_in(random, 2))
        return url;
    return world_print("%s?wait_replicas=%u&wait_timeout=%u", url,
                       random_once_in(random, 2) ? 1 : n,
                       (unsigned)random_between(random, 20, 1000));
}

void redis_servers_save(void)
{
    for (size_t i = 0; i < net_count(); i++)
        sim_redis_save(net_server(i));
}

void redis_servers_dispose(void)
{
    for (size_t i = 0; i < net_count(); i++)
        sim_redis_dispose(net_server(i));
}

const char *redis_servers_failed(void)
{
    return sim_redis_failures() > 0 ? "A script failed or did not end; the trace says which."
                                    : NULL;
}
