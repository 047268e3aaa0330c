/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A group of three or five Redis servers. */
#include "sim/operators.h"
#include "sim/redis_faults.h"
#include "sim/redis_foreign.h"
#include "sim/redlock_plots.h"
#include "sim/workload.h"

#define SERVERS 5 /* of which a group of three uses the first */

static struct redlock_group group;

static const char *begin(struct random *random)
{
    group.size = random_once_in(random, 2) ? 3 : 5;
    group.other_url = redis_servers_url("redlock", group.size == 3 ? 5 : 3);
    group.sizes = group.foreign = false;
    group.forgot = 0;
    redis_servers_make(SERVERS);
    redlock_plots_begin(&group);
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
    operator_adopt(operator_new(), NULL);
}

static void adopt_later(void *data)
{
    (void)data;
    operator_adopt(operator_new(), NULL);
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
    operator_adopt(operator_new(), group.other_url);
}

static void resize(struct fault *fault)
{
    (void)fault;
    group.sizes = true;
    operator_resize(operator_new(), group.other_url);
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
    operator_adopt(operator_new(), NULL);
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

/* ---- operators that die ---- */

/* What it has sent by then is executed by some of the servers. */
struct death {
    struct process *process;
    unsigned reached;
};

static void die(void *data)
{
    const struct death *death = data;
    operator_die(death->process, death->reached);
}

/* Between any two requests: an errand takes some six round trips. */
static struct process *mortal(const struct fault *fault)
{
    struct death *death = world_alloc(sizeof *death);
    *death = (struct death){operator_new(), fault->number / 6000 % 32};
    world_at(world_now() + fault->number % 6000 * US, die, death);
    return death->process;
}

static void adopt_and_die(struct fault *fault)
{
    operator_adopt(mortal(fault), NULL);
}

static void forget_adopt_and_die(struct fault *fault)
{
    crash_to_forget(fault);
    redis_heal_with_none(fault);
    adopt_and_die(fault);
}

static void resize_and_die(struct fault *fault)
{
    group.sizes = true;
    operator_resize(mortal(fault), group.other_url);
}

/* The next operator goes on from there. */
static void resize_again(struct fault *fault)
{
    (void)fault;
    operator_resize(operator_new(), group.other_url);
}

static void break_and_die(struct fault *fault)
{
    operator_start_break(mortal(fault), workload_name(fault->user));
}

static const struct fault_class deaths[] = {
    {"an operator dies during an adoption", 6, 0, AT_CLIENT, adopt_and_die, adopt},
    {"a server loses its data, and an operator dies while adopting it", 6, 0, AT_SERVER,
     forget_adopt_and_die, adopt},
    {"an operator dies while resizing the group", 2, BIT(STARVED) | BIT(FALSE_LOSS), AT_CLIENT,
     resize_and_die, resize_again},
    {"an operator dies during a break", 5, 0, AT_CLIENT, break_and_die, NULL},
    {0},
};

static void foreign(uint64_t end_ns, struct random *random)
{
    group.foreign = true;
    redis_foreign_begin(group.size, end_ns, random);
}

/* ---- races ---- */

static void restart(struct server *server)
{
    if (server->down)
        sim_redis_restart(server, LEFT_ALL);
}

static void restart_later(void *data)
{
    restart(data);
}

static void crash(struct server *server)
{
    if (!server->down)
        sim_redis_crash(server);
}

static struct server *member(unsigned number)
{
    return net_server(number % group.size);
}

static void forget_later(void *data)
{
    struct server *server = data;
    group.forgot |= 1u << server->number;
    crash(server);
    sim_redis_restart(server, LEFT_NONE);
}

/* A minority was away when a claim was granted: of its votes none is to spare. */
static void forget_a_needed_vote(struct fault *fault)
{
    unsigned first = fault->number, away = group.size / 2;
    uint64_t back_ns = world_now() + (100 + fault->number % 300) * MS;
    uint64_t forget_ns = back_ns + fault->number / 300 % 300 * MS;
    fault->for_ns = 2 * SEC;
    for (unsigned i = 0; i < away; i++) {
        crash(member(first + i));
        world_at(back_ns, restart_later, member(first + i));
    }
    world_at(forget_ns, forget_later, member(first + away));
    world_at(forget_ns + 1 + fault->number % 100 * MS, adopt_later, NULL);
}

/* Longer than the first release waits for them, and shorter than the lease may be kept. */
static void crash_most(struct fault *fault)
{
    fault->for_ns = 2300 * MS + fault->number / 16 % 900 * MS;
    for (unsigned i = 0; i <= group.size / 2; i++)
        crash(member(fault->number + i));
}

static void restart_most(struct fault *fault)
{
    for (unsigned i = 0; i <= group.size / 2; i++)
        restart(member(fault->number + i));
}

static void crash_first(void *data)
{
    struct fault *fault = data;
    crash(member(0));
    fault->data = member(0);
}

/* Nodes 4 and 5 go with what they know; of those that stay, only the first knows it, too. It goes
 * when clients have come over, and shortly before the longest lease is over. */
static void shrink_later(void *data)
{
    const struct fault *fault = data;
    uint64_t quiet_ns = fault->number % 2 ? 5 * SEC : 10 * SEC;
    group.sizes = true;
    operator_resize(operator_new(), group.other_url);
    world_at(world_now() + quiet_ns - fault->number % 1000 * MS, crash_first, data);
}

static void miss_and_shrink(struct fault *fault)
{
    uint64_t back_ns = world_now() + (200 + fault->number % 1000) * MS;
    if (group.size != 5 || group.sizes || world_now() > 20 * SEC)
        return;
    fault->for_ns = 17 * SEC;
    for (unsigned i = 1; i <= 2; i++) {
        crash(member(i));
        world_at(back_ns, restart_later, member(i));
    }
    world_at(back_ns + 1 * MS, shrink_later, fault);
}

static void restart_first(struct fault *fault)
{
    if (fault->data != NULL)
        restart(fault->data);
}

static const struct race races[] = {
    {{"a grant has no vote to spare, and one of its servers loses its data and is adopted", 8, 0,
      AT_CLIENT, forget_a_needed_vote, NULL},
     WHEN_ASKED},
    {{"most servers crash at a release, and keep their data", 4, 0, AT_CLIENT, crash_most,
      restart_most},
     WHEN_RELEASED},
    {{"two servers miss a grant, and the group is made smaller", 4, BIT(STARVED) | BIT(FALSE_LOSS),
      AT_CLIENT, miss_and_shrink, restart_first},
     WHEN_ASKED},
    {{0}, WHEN_ASKED},
};

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
    .races = races,
    .plots = redlock_plots,
    .deaths = deaths,
    .breaks_named = true,
    .wake_ns = SEC,
    .foreign = foreign,
    .also_broken = also_broken,
    .save = redis_servers_save,
    .failed = redis_servers_failed,
    .finish = sim_redis_finish,
};
