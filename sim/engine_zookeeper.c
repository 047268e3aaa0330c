/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A ZooKeeper ensemble with one or three members. */
#include "sim/faults.h"
#include "sim/zookeeper_foreign.h"
#include "sim/zookeeper_server.h"

/* A grant may be under way to a client whose node has gone meanwhile: it learns of it after the
 * next holder, whose token is larger. */
#define BY_HAND (BIT(OVERLAP) | BIT(TOKEN_ORDER))

#define MOST_MS 40000 /* maxSessionTimeout, as it is with the usual tick */

static struct zk_ensemble *ensemble;
static const char *dialect, *base; /* of all clients of a run */

static const char *begin(struct random *random)
{
    static const char *const dialects[] = {"curator", "curator-rw", "curator-latch", "kazoo"};
    static const uint64_t ticks_ms[] = {100, 200, 500, 500, 1000};
    unsigned n = random_once_in(random, 3) ? 1 : 3;
    ensemble = sim_zk_new(n, ticks_ms[random_below(random, 5)] * MS);
    ensemble->most_ms = MOST_MS;
    unsigned number = (unsigned)random_below(random, 4); /* compilers order arguments freely */
    dialect = dialects[number];
    base = random_once_in(random, 3) ? "/base/of all" : "";
    return world_print("zk://%s%s%s%s", n == 1 ? "n1" : "n1,n2,n3", base,
                       number > 0 ? "?dialect=" : "", number > 0 ? dialect : "");
}

static void dispose(void)
{
    sim_zk_dispose(ensemble);
}

/* Not every second, so that a snapshot may be old. */
static void save(void)
{
    if (random_once_in(&ensemble->random, 4))
        zk_ensemble_save(ensemble);
}

/* ---- faults of a member ---- */

static void crash(struct fault *fault)
{
    zk_member_crash(sim_zk_member(fault->server));
}

/* Another fault may have ended first. One that starts may forget connections. */
static void restart(struct fault *fault)
{
    struct zk_member *member = sim_zk_member(fault->server);
    if (!fault->server->down)
        return;
    if (fault->number % 2 == 0)
        sim_zk_forget_connections(member, fault->number % 3000 * MS);
    zk_member_restart(member);
}

static void restart_empty(struct fault *fault)
{
    if (fault->server->down)
        zk_member_forget(sim_zk_member(fault->server));
    restart(fault);
}

/* Whichever member it is by then. */
static void aim_at_leader(struct fault *fault)
{
    const struct zk_member *leader = zk_ensemble_leader(ensemble);
    if (leader != NULL)
        fault->server = leader->server;
}

static void stop_leader(struct fault *fault)
{
    aim_at_leader(fault);
    strike_stop(fault);
}

static void crash_leader(struct fault *fault)
{
    aim_at_leader(fault);
    crash(fault);
}

static void cut_off(struct fault *fault)
{
    sim_zk_member(fault->server)->cut_off = true;
}

static void cut_off_leader(struct fault *fault)
{
    aim_at_leader(fault);
    cut_off(fault);
}

static void join_again(struct fault *fault)
{
    sim_zk_member(fault->server)->cut_off = false;
}

static void throttle(struct fault *fault)
{
    sim_zk_member(fault->server)->throttles = true;
}

static void unthrottle(struct fault *fault)
{
    sim_zk_member(fault->server)->throttles = false;
}

/* ---- faults of the ensemble ---- */

static void move_leader(struct fault *fault)
{
    (void)fault;
    zk_ensemble_move_leader(ensemble);
}

static void stop_all(struct fault *fault)
{
    (void)fault;
    zk_ensemble_stop(ensemble);
}

static void restart_all(struct fault *fault)
{
    for (unsigned i = 0; i < ensemble->n; i++) {
        fault->server = ensemble->members[i].server;
        restart(fault);
    }
}

static void restore(struct fault *fault)
{
    (void)fault;
    zk_ensemble_restore(ensemble, true);
}

static void start_empty(struct fault *fault)
{
    (void)fault;
    zk_ensemble_restore(ensemble, false);
}

static void delete_node(struct fault *fault)
{
    zk_ensemble_delete_one(ensemble, fault->number % 8);
}

static void close_session(struct fault *fault)
{
    zk_ensemble_close_one(ensemble, fault->number % 8);
}

static void foreign(uint64_t end_ns, struct random *random)
{
    zk_foreign_begin(ensemble, dialect, base, end_ns, random);
}

/* One disk that is lost may have been the last that had something, while others were down. */
static unsigned also_broken(void)
{
    return ensemble->forgot ? BIT(OVERLAP) | TOKENS : 0;
}

static const char *failed(void)
{
    return sim_zk_failures() > 0 ? "A request is not simulated; the trace says which." : NULL;
}

static const struct fault_class faults[] = {
    {"a member is stopped", 4, 0, AT_SERVER, strike_stop, heal_stop},
    {"the leader is stopped", 4, 0, AT_SERVER, stop_leader, heal_stop},
    {"a member crashes", 4, 0, AT_SERVER, crash, restart},
    {"the leader crashes", 4, 0, AT_SERVER, crash_leader, restart},
    {"a member is cut off from the others", 6, 0, AT_SERVER, cut_off, join_again},
    {"the leader is cut off from the others", 4, 0, AT_SERVER, cut_off_leader, join_again},
    {"a member turns requests away", 3, 0, AT_SERVER, throttle, unthrottle},
    {"the leader gives up its office", 5, 0, AT_CLIENT, move_leader, NULL},
    {"all members crash", 2, 0, AT_CLIENT, stop_all, restart_all},
    {"a member loses its disk", 1, 0, AT_SERVER, crash, restart_empty},
    {"a node is deleted by hand", 2, BY_HAND, AT_CLIENT, delete_node, NULL},
    {"a session is closed by hand", 2, BY_HAND, AT_CLIENT, close_session, NULL},
    {"a member's clock jumps forward", 1, BIT(KEPT), AT_SERVER, strike_clock_forward, NULL},
    {"a member's clock jumps back", 1, BIT(KEPT) | BIT(STARVED), AT_SERVER, strike_clock_back,
     NULL},
    {"an operator breaks a lock", 3, 0, AT_CLIENT, strike_break, NULL},
    {"an older snapshot is restored", 1, BIT(OVERLAP) | TOKENS, AT_CLIENT, stop_all, restore},
    {"the members lose their disks", 1, BIT(OVERLAP) | TOKENS, AT_CLIENT, stop_all, start_empty},
    {0},
};

static const struct fault_class more[] = {
    {"an operator breaks a lock", 8, 0, AT_CLIENT, strike_break_of, NULL},
    {"the leader is stopped", 8, 0, AT_SERVER, stop_leader, heal_stop},
    {"the leader is cut off from the others", 6, 0, AT_SERVER, cut_off_leader, join_again},
    {0},
};

/* ---- plots ---- */

/* A client's requests arrive late at its follower, and are answered. Once it has been granted a
 * lock by that, it stands still, and the follower is cut off before its next beat tells the leader
 * of the session: how old may what the client counts on be? */
struct stranding {
    struct process *process;
    struct connection *connection;
    uint64_t until_ns; /* for the grant; 0: the requests have not arrived */
    bool stranded;
};

static struct connection *connection_to_follower(const struct process *process)
{
    for (unsigned i = 0; i < ensemble->n; i++) {
        struct connection *each = ensemble->members[i].server->connections;
        for (; each != NULL && ensemble->members[i].role == ZK_FOLLOWING; each = each->next) {
            if (each->process == process && each->stream != NULL && each->accepted && !each->ended)
                return each;
        }
    }
    return NULL;
}

static void strand(void *data)
{
    const struct fault *fault = data;
    struct stranding *stranding = fault->data;
    if (stranding->stranded || world_now() > stranding->until_ns ||
        stranding->process != workload_process(fault->user))
        return;
    stranding->stranded = true;
    sim_zk_member(stranding->connection->server)->cut_off = true;
    workload_pause(fault->user);
}

static void arrive_late(void *data)
{
    struct fault *fault = data;
    struct stranding *stranding = fault->data;
    stranding->connection->blocked = false;
    stranding->until_ns = world_now() + 100 * MS;
    for (unsigned user = 0; user < USERS_MAX; user++) {
        if (workload_process(user) == stranding->process)
            workload_await(user, WHEN_GRANTED, 0, strand, fault);
    }
}

static void delay_and_strand(struct fault *fault)
{
    struct process *process = workload_process(fault->user);
    struct connection *connection = connection_to_follower(process);
    if (connection == NULL)
        return;
    struct stranding *stranding = world_alloc(sizeof *stranding);
    *stranding = (struct stranding){.process = process, .connection = connection};
    connection->blocked = true;
    fault->data = stranding;
    fault->for_ns = 16 * SEC;
    world_at(world_now() + 500 * MS + fault->number % 4000 * MS, arrive_late, fault);
}

static void rescue(struct fault *fault)
{
    const struct stranding *stranding = fault->data;
    if (stranding == NULL || !stranding->stranded)
        return;
    sim_zk_member(stranding->connection->server)->cut_off = false;
    workload_resume(fault->user);
}

static const struct fault_class plots[] = {
    {"requests of a client arrive late, and it is left alone with its grant", 1, 0, AT_CLIENT,
     delay_and_strand, rescue},
    {0},
};

const struct sim_engine_class sim_zookeeper_class = {
    .name = "zookeeper",
    .tokens = true,
    .fifo = true,
    .claims_race = true,
    .exact_holds = true,
    .late_delays = true,
    .begin = begin,
    .dispose = dispose,
    .faults = faults,
    .more = more,
    .plots = plots,
    .wake_ns = SEC,
    .foreign = foreign,
    .polls_foreign = true,
    .queues_foreign = true,
    .also_broken = also_broken,
    .save = save,
    .failed = failed,
};
