/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster of etcd with one or three members. */
#include "sim/etcd_foreign.h"
#include "sim/etcd_server.h"
#include "sim/faults.h"

#define BUMP 1000000000 /* as etcd's manual recommends */

/* A grant may be under way to a client whose key has gone meanwhile: it learns of it after the next
 * holder, whose token is larger. */
#define BY_HAND (BIT(OVERLAP) | BIT(TOKEN_ORDER))

static struct etcd_cluster *cluster;
static int64_t raised; /* by how much revisions have been raised so far */

static const char *begin(struct random *random)
{
    unsigned n = random_once_in(random, 3) ? 1 : 3;
    cluster = sim_etcd_new(n);
    raised = 0;
    return n == 1 ? "etcd://n1" : "etcd://n1,n2,n3";
}

static void dispose(void)
{
    sim_etcd_dispose(cluster);
}

/* Not every second, so that a snapshot may be old. */
static void save(void)
{
    if (random_once_in(&cluster->random, 4))
        etcd_cluster_save(cluster);
}

/* ---- faults of a member ---- */

static void crash(struct fault *fault)
{
    etcd_member_crash(sim_etcd_member(fault->server));
}

static void restart(struct fault *fault)
{
    etcd_member_restart(sim_etcd_member(fault->server));
}

/* Whichever member it is by then. */
static void stop_leader(struct fault *fault)
{
    if (cluster->leader != NULL && etcd_member_runs(cluster->leader))
        fault->server = cluster->leader->server;
    strike_stop(fault);
}

static void crash_leader(struct fault *fault)
{
    if (cluster->leader != NULL && etcd_member_runs(cluster->leader))
        fault->server = cluster->leader->server;
    crash(fault);
}

static void cut_off(struct fault *fault)
{
    sim_etcd_member(fault->server)->cut_off = true;
}

static void join_again(struct fault *fault)
{
    sim_etcd_member(fault->server)->cut_off = false;
}

static void overload(struct fault *fault)
{
    sim_etcd_member(fault->server)->busy = true;
}

static void unload(struct fault *fault)
{
    sim_etcd_member(fault->server)->busy = false;
}

/* ---- faults of the cluster ---- */

static void move_leader(struct fault *fault)
{
    (void)fault;
    etcd_cluster_move_leader(cluster);
}

static void stop_all(struct fault *fault)
{
    (void)fault;
    etcd_cluster_stop(cluster);
}

static void restart_all(struct fault *fault)
{
    (void)fault;
    for (unsigned i = 0; i < cluster->n; i++)
        etcd_member_restart(&cluster->members[i]);
}

static void restore(struct fault *fault)
{
    (void)fault;
    etcd_cluster_restore(cluster, true, 0);
}

/* The snapshot may be older than the last one that was restored, and must pass it nevertheless. */
static void restore_ahead(struct fault *fault)
{
    (void)fault;
    raised += BUMP;
    etcd_cluster_restore(cluster, true, raised);
}

static void start_empty(struct fault *fault)
{
    (void)fault;
    etcd_cluster_restore(cluster, false, 0);
}

static void compact(struct fault *fault)
{
    (void)fault;
    etcd_cluster_compact(cluster);
}

static void revoke_lease(struct fault *fault)
{
    etcd_cluster_revoke_one(cluster, fault->number % 4);
}

static void delete_key(struct fault *fault)
{
    etcd_cluster_delete_one(cluster, fault->number % 8);
}

static void foreign(uint64_t end_ns, struct random *random)
{
    etcd_foreign_begin_mutexes(cluster, end_ns, random);
}

static void foreign_plain(uint64_t end_ns, struct random *random)
{
    etcd_foreign_begin_plain(cluster, end_ns, random);
}

/* A leader that was stopped may renew a lease that the others have ended, and not know of one that
 * they have granted. */
static unsigned also_broken(void)
{
    return (cluster->misled ? BIT(OVERLAP) : 0) | (cluster->missed ? BIT(FALSE_LOSS) : 0);
}

static const char *failed(void)
{
    return sim_etcd_failures() > 0 ? "A request is not simulated; the trace says which." : NULL;
}

static const struct fault_class faults[] = {
    {"a member is stopped", 4, 0, AT_SERVER, strike_stop, heal_stop},
    {"the leader is stopped", 4, 0, AT_SERVER, stop_leader, heal_stop},
    {"a member crashes", 4, 0, AT_SERVER, crash, restart},
    {"the leader crashes", 4, 0, AT_SERVER, crash_leader, restart},
    {"a member is cut off from the others", 5, 0, AT_SERVER, cut_off, join_again},
    {"a member turns requests away", 3, 0, AT_SERVER, overload, unload},
    {"another member becomes the leader", 5, 0, AT_CLIENT, move_leader, NULL},
    {"all members crash", 2, 0, AT_CLIENT, stop_all, restart_all},
    {"the history is compacted", 2, 0, AT_CLIENT, compact, NULL},
    {"a lease is revoked by hand", 2, BY_HAND, AT_CLIENT, revoke_lease, NULL},
    {"a key is deleted by hand", 2, BY_HAND, AT_CLIENT, delete_key, NULL},
    {"an operator breaks a lock", 3, 0, AT_CLIENT, strike_break, NULL},
    {"an older snapshot is restored", 1, BIT(OVERLAP) | TOKENS, AT_CLIENT, stop_all, restore},
    /* A waiter's key that comes back has its old revision, and may be granted with it. */
    {"an older snapshot is restored, and its revision raised", 1, BIT(OVERLAP) | BIT(TOKEN_ORDER),
     AT_CLIENT, stop_all, restore_ahead},
    {"the members lose their disks", 1, BIT(OVERLAP) | TOKENS, AT_CLIENT, stop_all, start_empty},
    {0},
};

static const struct fault_class more[] = {
    {"an operator breaks a lock", 8, 0, AT_CLIENT, strike_break_of, NULL},
    {"the leader is stopped", 6, 0, AT_SERVER, stop_leader, heal_stop},
    {0},
};

/* ---- plots ---- */

static struct connection *connection_of(const struct process *process)
{
    for (unsigned i = 0; i < cluster->n; i++) {
        struct connection *each = cluster->members[i].server->connections;
        for (; each != NULL; each = each->next) {
            if (each->process == process && each->stream != NULL && each->accepted && !each->ended)
                return each;
        }
    }
    return NULL;
}

/* The client withdraws once more, over another connection. What it has sent first arrives when it
 * may hold by its next claim, whose key has the same name. */
static void withdraw_late(struct fault *fault)
{
    unsigned user = fault->user;
    while (user < fault->user + USERS_MAX && !workload_give_up(user))
        user++;
    struct connection *connection = connection_of(workload_process(user));
    if (user == fault->user + USERS_MAX || connection == NULL)
        return;
    connection->blocked = true;
    fault->data = connection;
    fault->for_ns = SEC + fault->number % 8000 * MS;
}

static void arrive_late(struct fault *fault)
{
    struct connection *connection = fault->data;
    if (connection != NULL)
        connection->blocked = false;
}

/* It finds its ghosts in its way when it begins again. */
static void delete_waiter(struct fault *fault)
{
    (void)fault;
    etcd_cluster_delete_waiter(cluster);
}

/* A process that starts again lacks memory for one of its first messages: those that begin its
 * streams. Later connections are no such test: after each of them a client asks for its watches
 * twice.
 */
struct shortage {
    unsigned user, after;
    const struct process *former;
};

static void run_short(void *data)
{
    const struct shortage *shortage = data;
    struct process *process = workload_process(shortage->user);
    if (process == shortage->former || !process->opened)
        world_at(world_now() + 5 * MS, run_short, data);
    else
        process->scarce = shortage->after;
}

static void lack_memory(struct fault *fault)
{
    struct shortage *shortage = world_alloc(sizeof *shortage);
    *shortage = (struct shortage){.user = fault->user,
                                  .after = 2 + fault->number / 2 % 5,
                                  .former = workload_process(fault->user)};
    if (fault->number % 2 > 0)
        return;
    workload_close(fault->user);
    run_short(shortage);
}

/* A holder whose watch was interrupted twice checks its key by its watch and by its timer. Both
 * checks are under way when it releases, and the connection stays broken until the next one is due:
 * that arrives together with the deletion. */
struct doubt {
    struct process *process;
    struct etcd_member *leader; /* cut off: nobody answers a check */
    uint64_t until_ns;
};

static void cut_connection(void *data)
{
    struct doubt *doubt = data;
    struct connection *connection = connection_of(doubt->process);
    if (connection != NULL)
        connection_cut(connection, false);
}

static void block_paths(const struct doubt *doubt, bool blocked)
{
    for (unsigned i = 0; i < cluster->n; i++)
        net_path(doubt->process, cluster->members[i].server)->blocked[TO_SERVER] = blocked;
}

static void end_doubt(void *data)
{
    const struct doubt *doubt = data;
    block_paths(doubt, false);
    doubt->leader->cut_off = false;
}

static void break_release(void *data)
{
    struct doubt *doubt = data;
    if (world_now() >= doubt->until_ns)
        return;
    cut_connection(doubt);
    block_paths(doubt, true);
    doubt->leader->cut_off = false;
}

static void begin_doubt(void *data)
{
    struct fault *fault = data;
    struct doubt *doubt = fault->data;
    if (cluster->leader == NULL || doubt->process != workload_process(fault->user) ||
        world_now() + SEC >= doubt->until_ns)
        return;
    doubt->leader = cluster->leader;
    doubt->leader->cut_off = true;
    doubt->until_ns = world_now() + 900 * MS;
    cut_connection(doubt);
    world_at(world_now() + 10 * MS + fault->number % 20000 * US, cut_connection, doubt);
    workload_await(fault->user, WHEN_RELEASED, 100 * US, break_release, doubt);
    world_at(doubt->until_ns, end_doubt, doubt);
}

static void doubt_own_key(struct fault *fault)
{
    struct doubt *doubt = world_alloc(sizeof *doubt);
    fault->for_ns = 4 * SEC;
    *doubt = (struct doubt){.process = workload_process(fault->user),
                            .until_ns = world_now() + fault->for_ns};
    fault->data = doubt;
    workload_await(fault->user, WHEN_GRANTED, 105 * MS + fault->number % 30000 * US, begin_doubt,
                   fault);
}

static const struct fault_class plots[] = {
    {"a client gives up waiting, and its request does not arrive", 1, 0, AT_CLIENT, withdraw_late,
     arrive_late},
    {"the key of a waiter with a ghost is deleted by hand", 1, BY_HAND, AT_CLIENT, delete_waiter,
     NULL},
    {"a client lacks memory for a message", 1, 0, AT_CLIENT, lack_memory, NULL},
    {"a holder's connection breaks again and again", 1, 0, AT_CLIENT, doubt_own_key, NULL},
    {0},
};

const struct sim_engine_class sim_etcd_class = {
    .name = "etcd",
    .tokens = true,
    .fifo = true,
    .begin = begin,
    .dispose = dispose,
    .faults = faults,
    .more = more,
    .plots = plots,
    .wake_ns = SEC,
    .foreign = foreign,
    .polls_foreign = true,
    .queues_foreign = true,
    .dialect = "?dialect=etcd3",
    .foreign_of_dialect = foreign_plain,
    .also_broken = also_broken,
    .save = save,
    .failed = failed,
};
