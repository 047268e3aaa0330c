/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A primary with one or two replicas, and three Sentinels.
 *
 * The Sentinels' votes are not simulated, only their outcome: a primary that most of them
 * have not reached for a while is replaced by the replica that has most of its data. Each Sentinel
 * learns of it by itself, a little later. A server with the wrong role gets the right one after a
 * while; until then a primary that was cut off or stopped answers as one.
 */
#include <string.h>
#include <strings.h>

#include "sim/redis_failover.h"

#define SENTINELS     3
#define DATA_MAX      3
#define SENTINEL_PORT 26379
#define NAME          "main"
#define WATCH_NS      (50 * MS)
#define WATCH_END_NS  (75 * SEC)

/* A server that keeps locks. */
struct data {
    struct redis_node *node;
    uint64_t wrong_ns; /* since when it follows another than it should; 0: it does not */
    uint64_t patience; /* of the Sentinels with it */
};

struct watcher {
    struct server *server;
    const struct redis_node *named; /* the primary, as it says */
    uint64_t learns_ns;             /* 0: it has nothing to learn */
};

static struct {
    struct random random;
    struct data data[DATA_MAX];
    unsigned n_data;
    struct watcher watchers[SENTINELS];
    struct redis_node *primary;
    uint64_t down_after_ns, unseen_ns; /* unseen_ns: since when; 0: it is seen */
} group;

/* ---- Sentinels ---- */

static bool is(struct bytes bytes, const char *word)
{
    return bytes.n == strlen(word) && strncasecmp(bytes.at, word, bytes.n) == 0;
}

static void put_text(struct buffer *out, const char *text)
{
    resp_bulk(out, text, strlen(text));
}

static void put_address(const struct redis_node *node, struct buffer *out)
{
    resp_array(out, 2);
    put_text(out, node->server->host);
    put_text(out, world_print("%u", node->server->port));
}

/* What a Sentinel shares with a server is left to that; it knows no other command. */
static bool sentinel_command(struct redis_node *node, struct session *session,
                             const struct redis_call *call)
{
    static const char *const shared[] = {"CLIENT", "INFO", "PING", "SUBSCRIBE", "UNSUBSCRIBE"};
    const struct watcher *watcher = node->data;
    (void)session;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        if (is(call->args[0], shared[i]))
            return false;
    }
    if (is(call->args[0], "SENTINEL") && call->n_args == 3 &&
        is(call->args[1], "get-master-addr-by-name")) {
        if (is(call->args[2], NAME))
            put_address(watcher->named, call->out);
        else
            buffer_put(call->out, "*-1\r\n", 5);
    } else {
        resp_error(call->out, "ERR unknown command");
    }
    return true;
}

static const struct redis_mode sentinel_mode = {.command = sentinel_command,
                                                .info = "redis_mode:sentinel\r\n"};

static bool most_run(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SENTINELS; i++)
        n += server_runs(group.watchers[i].server);
    return n > SENTINELS / 2;
}

static void learn(struct watcher *watcher)
{
    const struct server *old = watcher->named->server, *new = group.primary->server;
    const char *message =
        world_print(NAME " %s %u %s %u", old->host, old->port, new->host, new->port);
    world_trace("%s names %s", watcher->server->host, new->host);
    watcher->named = group.primary;
    watcher->learns_ns = 0;
    sim_redis_publish(watcher->server, (struct bytes){"+switch-master", 14},
                      (struct bytes){message, strlen(message)});
    redis_failover_mark();
}

static void let_learn(struct watcher *watcher)
{
    if (watcher->named == group.primary || !server_runs(watcher->server)) {
        watcher->learns_ns = 0;
        return;
    }
    if (watcher->learns_ns == 0)
        watcher->learns_ns = world_now() + random_below(&group.random, 800 * MS);
    if (watcher->learns_ns <= world_now())
        learn(watcher);
}

/* ---- failover ---- */

static void fail_over(void)
{
    struct redis_node *next = redis_failover_best(group.primary);
    if (next == NULL)
        return;
    redis_failover_promote(next);
    group.primary = next;
    group.unseen_ns = 0;
}

/* The Sentinels say REPLICAOF and CLIENT KILL to a server that is not what it should be. */
static void put_right(struct data *data)
{
    data->wrong_ns = 0;
    redis_failover_demote(data->node, group.primary);
    for (struct connection *each = data->node->server->connections; each != NULL; each = each->next)
        connection_end(each);
}

static void look_at(struct data *data)
{
    bool right = data->node == group.primary || data->node->replication.primary == group.primary;
    if (right || !redis_failover_sees(data->node)) {
        data->wrong_ns = 0;
        return;
    }
    if (data->wrong_ns == 0) {
        data->wrong_ns = world_now();
        data->patience = random_below(&group.random, 3 * SEC);
    }
    if (world_now() >= data->wrong_ns + data->patience)
        put_right(data);
}

static void watch(void *data)
{
    (void)data;
    if (most_run()) {
        if (redis_failover_sees(group.primary))
            group.unseen_ns = 0;
        else if (group.unseen_ns == 0)
            group.unseen_ns = world_now();
        else if (world_now() - group.unseen_ns > group.down_after_ns)
            fail_over();
        for (unsigned i = 0; i < group.n_data; i++)
            look_at(&group.data[i]);
    }
    for (unsigned i = 0; i < SENTINELS; i++)
        let_learn(&group.watchers[i]);
    if (world_now() < WATCH_END_NS)
        world_at(world_now() + WATCH_NS, watch, NULL);
}

/* ---- the set-up ---- */

static void make_data(unsigned n)
{
    redis_servers_make(n);
    group.n_data = n;
    for (unsigned i = 0; i < n; i++) {
        group.data[i].node = redis_node_of(net_server(i));
        redis_replica_begin(group.data[i].node);
    }
    group.primary = group.data[0].node;
    for (unsigned i = 1; i < n; i++)
        redis_replica_follow(group.data[i].node, group.primary);
}

static void make_sentinels(void)
{
    for (unsigned i = 0; i < SENTINELS; i++) {
        struct watcher *watcher = &group.watchers[i];
        watcher->server = sim_redis_new(world_print("s%u", i + 1));
        watcher->server->port = SENTINEL_PORT;
        watcher->named = group.primary;
        redis_node_of(watcher->server)->mode = &sentinel_mode;
        redis_node_of(watcher->server)->data = watcher;
        net_add(watcher->server);
    }
}

static struct redis_node *primary_of(const struct fault *fault)
{
    (void)fault;
    return group.primary;
}

static const char *begin(struct random *random)
{
    static const char url[] = "redis+sentinel://s1:26379,s2:26379,s3:26379/" NAME;
    memset(&group, 0, sizeof group);
    group.random = random_stream(world_seed(), 6);
    group.down_after_ns = random_between(random, 500 * MS, 3 * SEC);
    make_data((unsigned)random_between(random, 2, DATA_MAX));
    make_sentinels();
    redis_failover_begin(group.n_data, primary_of);
    world_at(0, watch, NULL);
    return redis_servers_wait(url, group.n_data - 1, random);
}

/* ---- faults ---- */

static void order_failover(struct fault *fault)
{
    (void)fault;
    if (most_run() && redis_failover_sees(group.primary))
        fail_over();
}

static const struct fault_class faults[] = {
    REDIS_FAILOVER_FAULTS,
    {"an operator orders a failover", 4, 0, AT_CLIENT, order_failover, NULL},
    {0},
};

static const struct fault_class more[] = {
    {"an operator breaks a lock", 8, 0, AT_CLIENT, strike_break_of, NULL},
    {"a server forgets its scripts", 8, 0, IN_ORDER, redis_strike_flush_scripts, NULL},
    {0},
};

const struct sim_engine_class sim_sentinel_class = {
    .name = "sentinel",
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
