/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One Redis server. */
#include "sim/redis_faults.h"
#include "sim/redis_foreign.h"

static struct {
    bool forgot;   /* its server has lost data */
    bool set_back; /* its clock was set back */
} happened;

static const char *begin(struct random *random)
{
    (void)random;
    happened.forgot = happened.set_back = false;
    redis_servers_make(1);
    return redis_servers_url("redis", 1);
}

static void crash_to_forget(struct fault *fault)
{
    happened.forgot = true;
    redis_strike_crash(fault);
}

static void flush(struct fault *fault)
{
    happened.forgot = true;
    redis_strike_flush(fault);
}

static void drop_key(struct fault *fault)
{
    happened.forgot = true;
    redis_strike_drop_key(fault);
}

static void set_back(struct fault *fault)
{
    happened.set_back = true;
    strike_clock_back(fault);
}

static void foreign(uint64_t end_ns, struct random *random)
{
    redis_foreign_begin(1, end_ns, random);
}

/* A counter that is lost starts again at the clock, which must not have been set back. */
static unsigned also_broken(void)
{
    return happened.forgot && happened.set_back ? TOKENS : 0;
}

static const struct fault_class faults[] = {
    {"a server is stopped", 4, 0, AT_SERVER, strike_stop, heal_stop},
    {"a server crashes and keeps its data", 4, 0, AT_SERVER, redis_strike_crash,
     redis_heal_with_all},
    {"a server crashes and restarts with older data", 1, BIT(OVERLAP) | TOKENS, AT_SERVER,
     redis_strike_crash, redis_heal_with_old},
    {"a server crashes and loses its data", 1, BIT(OVERLAP), AT_SERVER, crash_to_forget,
     redis_heal_with_none},
    {"FLUSHALL", 1, BIT(OVERLAP), AT_SERVER, flush, NULL},
    {"a key is evicted, or deleted by hand", 1, BIT(OVERLAP), AT_SERVER, drop_key, NULL},
    {"a server's clock jumps forward", 1, BIT(OVERLAP), AT_SERVER, strike_clock_forward, NULL},
    {"a server's clock jumps back", 1, BIT(STARVED), AT_SERVER, set_back, NULL},
    {"an operator breaks a lock", 3, 0, IN_ORDER, strike_break, NULL},
    {0},
};

static const struct fault_class more[] = {
    {"an operator breaks a lock", 12, 0, IN_ORDER, strike_break_of, NULL},
    {"a server forgets its scripts", 8, 0, IN_ORDER, redis_strike_flush_scripts, NULL},
    {"a server's clock drifts", 3, 0, AT_SERVER, strike_drift, heal_drift},
    {0},
};

/* Those that all engines share. */
static const struct race races[] = {{{0}, WHEN_ASKED}};

static unsigned votes(void)
{
    return 1;
}

const struct sim_engine_class sim_redis_class = {
    .name = "redis",
    .tokens = true,
    .fifo = true,
    .begin = begin,
    .votes = votes,
    .dispose = redis_servers_dispose,
    .faults = faults,
    .more = more,
    .races = races,
    .wake_ns = SEC,
    .foreign = foreign,
    .polls_foreign = true,
    .also_broken = also_broken,
    .save = redis_servers_save,
    .failed = redis_servers_failed,
    .finish = sim_redis_finish,
};
