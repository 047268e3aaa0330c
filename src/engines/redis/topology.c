/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The servers, and which of them keeps a name: the only one, the primary that the Sentinels name,
 * or the node of a Cluster that has the name's slot. */
#include "engines/redis/topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/errors.h"
#include "engines/redis/keys.h"
#include "engines/redis/redis.h"
#include "engines/redis/reply.h"
#include "engines/redis/sentinel.h"

/* ======== one server ======== */

#define AGAIN_FIRST_NS (10 * NS_PER_MS)
#define AGAIN_DOUBLED  4

/* ---- connections ---- */

static void is_up(struct conn *conn)
{
    (void)conn;
}

/* The requests are answered one by one elsewhere. */
static void report_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = redis_conn_owner(conn);
    node->redis->node_events->down(node, why);
}

/* A server that no longer answers does not publish, either. Nothing is sent on the subscription, so
 * nothing else would show that it is dead.
 */
static void conn_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = redis_conn_owner(conn);
    if (why->native == ETIMEDOUT && node->pubsub)
        redis_conn_reconnect(node->pubsub, why);
    report_down(conn, why);
}

/* The server may have been replaced unnoticed: a host that disappears closes no connection. */
static void is_late(struct conn *conn)
{
    struct stile_error why;
    error_set(&why, STILE_UNREACHABLE, 0, "it does not answer");
    report_down(conn, &why);
}

/* A subscription at the old primary would get what the new one publishes, but the new one does not
 * count it and would take our waiters for dead. */
static void is_replica(struct conn *conn, const struct stile_error *why)
{
    struct node *node = redis_conn_owner(conn);
    if (node->pubsub)
        redis_conn_reconnect(node->pubsub, why);
    if (node->wait_conn)
        redis_conn_reconnect(node->wait_conn, why);
}

static void pubsub_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = redis_conn_owner(conn);
    node->subscribed = false;
    report_down(conn, why);
}

static void pubsub_subscribed(struct conn *conn, const char *channel, size_t len)
{
    struct node *node = redis_conn_owner(conn);
    (void)channel, (void)len;
    node->subscribed = true;
    node->redis->node_events->subscribed(node);
}

static void pubsub_message(struct conn *conn, const char *channel, size_t channel_len,
                           const char *bytes, size_t n)
{
    struct node *node = redis_conn_owner(conn);
    char text[128];
    (void)channel, (void)channel_len;
    if (n >= sizeof text)
        return;
    memcpy(text, bytes, n);
    text[n] = '\0';
    node->redis->node_events->message(node->redis, text, n);
}

static bool answers(struct conn *conn, struct request *request, const redisReply *reply)
{
    struct node *node = redis_conn_owner(conn);
    node->redis->answering = node;
    return node->redis->node_events->answers(node, request, reply);
}

static void conn_up(struct conn *conn)
{
    struct node *node = redis_conn_owner(conn);
    if (node->later.first)
        loop_arm(node->redis->engine.loop, &node->again, loop_now(node->redis->engine.loop));
    node->redis->node_events->up(node);
}

static const struct conn_events conn_callbacks = {
    .up = conn_up, .down = conn_down, .replica = is_replica, .late = is_late, .answers = answers};
static const struct conn_events pubsub_callbacks = {
    .up = is_up, .down = pubsub_down, .subscribed = pubsub_subscribed, .message = pubsub_message};

enum stile_status redis_node_connect(struct node *node, struct stile_error *err)
{
    if (node->conn)
        return STILE_OK;
    return redis_conn_new(&node->conn, node->redis->engine.loop, &node->options, &conn_callbacks,
                          node, err);
}

enum stile_status redis_node_listen(struct node *node, struct stile_error *err)
{
    struct redis *redis = node->redis;
    if (node->pubsub)
        return STILE_OK;
    enum stile_status status = redis_conn_new(&node->pubsub, redis->engine.loop, &node->options,
                                              &pubsub_callbacks, node, err);
    if (!status)
        status = redis_conn_subscribe(node->pubsub, redis->channel, strlen(redis->channel), err);
    if (status) {
        redis_conn_free(node->pubsub);
        node->pubsub = NULL;
    }
    return status;
}

/* ---- requests ---- */

enum stile_status redis_node_eval(struct node *node, const struct lua *lua,
                                  const struct conn_arg *args, size_t n_keys, size_t n, conn_fn *fn,
                                  void *data, struct stile_error *err)
{
    enum stile_status status = redis_node_connect(node, err);
    return status ? status : redis_conn_eval(node->conn, lua, args, n_keys, n, fn, data, err);
}

enum stile_status redis_node_send(struct node *node, const struct conn_arg *args, size_t n,
                                  conn_fn *fn, void *data, struct stile_error *err)
{
    enum stile_status status = redis_node_connect(node, err);
    return status ? status : redis_conn_send(node->conn, args, n, fn, data, err);
}

/* ---- requests that are sent again later ---- */

static void arm_again(struct node *node)
{
    struct loop *loop = node->redis->engine.loop;
    uint64_t now_ns = loop_now(loop);
    if (node->again.place)
        return;
    if (now_ns > node->again.at_ns + NS_PER_SEC)
        node->agains = 0; /* the last retries were long ago */
    unsigned doubled = node->agains < AGAIN_DOUBLED ? node->agains++ : AGAIN_DOUBLED;
    loop_arm(loop, &node->again, now_ns + (AGAIN_FIRST_NS << doubled));
}

/* In their old order. Without a connection they stay: it may be moving to another address. */
static void ask_again(struct timer *timer)
{
    struct node *node = container_of(timer, struct node, again);
    uint64_t now_ns = loop_now(node->redis->engine.loop);
    struct link_queue queue = {0};
    link_queue_append(&queue, &node->later);
    for (struct request *request; (request = redis_request_pop(&queue));) {
        if (!request->link.wanted)
            redis_request_free(request);
        else if (request->link.until_ns <= now_ns)
            redis_conn_answer(request, &node->why);
        else if (node->conn && redis_conn_is_up(node->conn))
            redis_conn_give(node->conn, request, false);
        else
            link_queue_push(&node->later, &request->link);
    }
    if (node->later.first)
        arm_again(node);
}

void redis_node_send_later(struct node *node, struct request *request, const redisReply *why)
{
    if (!node->later.first)
        redis_error_explain(why, &node->why);
    link_queue_push(&node->later, &request->link);
    arm_again(node);
}

/* ---- init and close ---- */

enum stile_status redis_node_init(struct node *node, struct redis *redis, const char *host,
                                  uint16_t port, struct stile_error *err)
{
    *node = (struct node){.options = redis->options, .again.fn = ask_again};
    node->host = host ? strdup(host) : NULL;
    if ((host && !node->host) || loop_reserve(redis->engine.loop, 1)) {
        free(node->host);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    node->redis = redis;
    node->options.target.host = node->host;
    node->options.target.port = port;
    if (host)
        node->options.target.path = NULL;
    return STILE_OK;
}

void redis_node_close(struct node *node)
{
    if (!node->redis)
        return;
    redis_conn_free(node->pubsub);
    redis_conn_free(node->conn);
    redis_conn_free(node->wait_conn);
    node->pubsub = node->conn = node->wait_conn = NULL;
    for (struct request *request; (request = redis_request_pop(&node->later));)
        redis_request_free(request);
    loop_disarm(node->redis->engine.loop, &node->again);
    loop_unreserve(node->redis->engine.loop, 1);
    free(node->host);
    node->redis = NULL;
}

/* ======== a Cluster ======== */

#define NODES_MAX     1000
#define HOPS_MAX      5                 /* of one request */
#define REST_FIRST_NS (100 * NS_PER_MS) /* between two readings of the table */
#define REST_DOUBLED  3
#define REST_OVER_NS  (5 * NS_PER_SEC)
#define HOST_MAX      256

struct cluster {
    struct redis *redis;
    struct node *nodes[NODES_MAX]; /* all that were ever named */
    size_t n;
    uint16_t owner[SLOTS]; /* 1 + the index of its node; 0: none */
    uint16_t next[SLOTS];  /* the table that is being read */

    struct timer refresh;
    uint64_t asked_ns;
    unsigned rounds;
    bool asking, loaded, gave_up;
    size_t at, tried; /* at: the node asked for the table; tried: how many were asked */
    struct stile_error why;
};

static void ask_next(struct cluster *c);
static uint16_t find_node(struct cluster *c, const char *host, uint16_t port);

/* ---- nodes ---- */

static bool is_at(const struct node *node, const char *host, uint16_t port)
{
    return node->host && strcmp(node->host, host) == 0 && node->options.target.port == port;
}

/* A known node that is no longer used. */
static struct node *find_unused(struct cluster *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct node *node = c->nodes[i];
        bool used =
            node->slots || node->conn || node->pubsub || node->wait_conn || node->later.first;
        if (!used && node != &c->redis->home)
            return node;
    }
    return NULL;
}

static uint16_t reuse_node(struct cluster *c, const char *host, uint16_t port)
{
    struct node *node = find_unused(c);
    char *copy = node ? strdup(host) : NULL;
    if (!copy)
        return 0;
    free(node->host);
    node->options.target.host = node->host = copy;
    node->options.target.port = port;
    return find_node(c, host, port);
}

/* 1 + its index, or 0: no memory, or too many nodes. */
static uint16_t find_node(struct cluster *c, const char *host, uint16_t port)
{
    for (size_t i = 0; i < c->n; i++)
        if (is_at(c->nodes[i], host, port))
            return (uint16_t)(i + 1);
    if (c->n == NODES_MAX)
        return reuse_node(c, host, port);
    struct node *node = malloc(sizeof *node);
    if (!node || redis_node_init(node, c->redis, host, port, NULL)) {
        free(node);
        return 0;
    }
    c->nodes[c->n++] = node;
    return (uint16_t)c->n;
}

static struct node *cluster_node(struct cluster *c, uint16_t slot)
{
    if (c->owner[slot])
        return c->nodes[c->owner[slot] - 1];
    return c->nodes[c->at % c->n]; /* it will answer that the cluster is down */
}

static size_t cluster_nodes(struct node ***nodes, struct cluster *c)
{
    *nodes = c->nodes;
    return c->n;
}

/* ---- the table ---- */

/* Nodes without slots get no requests: idle connections to them are closed, and stay closed. */
static void close_idle(struct cluster *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct node *node = c->nodes[i];
        if (node->slots || node->later.first)
            continue;
        redis_conn_free(node->pubsub);
        node->pubsub = NULL;
        node->subscribed = false;
        if (node->conn && redis_conn_is_idle(node->conn)) {
            redis_conn_free(node->conn);
            node->conn = NULL;
        }
        if (node->wait_conn && redis_conn_is_idle(node->wait_conn)) {
            redis_conn_free(node->wait_conn);
            node->wait_conn = NULL;
        }
    }
}

static void count_slots(struct cluster *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->nodes[i]->slots = 0;
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (c->owner[slot])
            c->nodes[c->owner[slot] - 1]->slots++;
}

static void take_table(struct cluster *c)
{
    memcpy(c->owner, c->next, sizeof c->owner);
    count_slots(c);
    c->loaded = true;
    close_idle(c);
    c->redis->node_events->moved(c->redis);
}

/* {first, last, {host, port, ...}, replicas ...}; no host: that of the sender. */
static bool read_range(struct cluster *c, const redisReply *range, const char *sender)
{
    const redisReply *node = element_at(range, 2);
    if (!is_array(node, 2) || !is_number(element_at(range, 0)) || !is_number(element_at(range, 1)))
        return false;
    long long first = number_at(range, 0), last = number_at(range, 1), port = number_at(node, 1);
    const char *host = text_at(node, 0);
    bool given = host && *host && strcmp(host, "?") != 0 && strlen(host) < HOST_MAX;
    if (first < 0 || last < first || last >= SLOTS || port < 1 || port > UINT16_MAX)
        return false;
    uint16_t number = find_node(c, given ? host : sender, (uint16_t)port);
    if (!number)
        return false;
    for (long long slot = first; slot <= last; slot++)
        c->next[slot] = number;
    c->nodes[number - 1]->slots++; /* so that it is not taken for unused */
    return true;
}

static bool read_table(struct cluster *c, const redisReply *reply, const char *sender)
{
    memset(c->next, 0, sizeof c->next);
    if (!is_array(reply, 1))
        return false;
    for (size_t i = 0; i < length_of(reply); i++)
        if (!read_range(c, element_at(reply, i), sender ? sender : "127.0.0.1"))
            return false;
    return true;
}

static void on_table(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct cluster *c = data;
    if (!err && read_table(c, reply, c->nodes[c->at]->host)) {
        c->asking = c->gave_up = false;
        take_table(c);
        return;
    }
    count_slots(c);
    if (err)
        c->why = *err;
    else
        error_set(&c->why, STILE_UNREACHABLE, 0,
                  "the cluster has no slots yet, or its table of them is malformed");
    ask_next(c);
}

static bool ask_node(struct cluster *c, struct node *node)
{
    static const struct conn_arg args[] = {{"CLUSTER", 7}, {"SLOTS", 5}};
    return redis_node_send(node, args, 2, on_table, c, &c->why) == STILE_OK;
}

/* Once through the connected nodes, then once through the others. */
static void ask_next(struct cluster *c)
{
    while (c->tried < 2 * c->n) {
        bool others = c->tried++ >= c->n;
        c->at = (c->at + 1) % c->n;
        struct node *node = c->nodes[c->at];
        bool up = node->conn && redis_conn_is_up(node->conn);
        if (up != others && ask_node(c, node))
            return;
    }
    c->asking = false;
    c->gave_up = true;
    c->redis->node_events->gave_up(c->redis);
}

static void refresh(struct timer *timer)
{
    struct cluster *c = container_of(timer, struct cluster, refresh);
    c->asked_ns = loop_now(c->redis->engine.loop);
    c->asking = true;
    c->tried = 0;
    ask_next(c);
}

static void refresh_soon(struct cluster *c)
{
    struct loop *loop = c->redis->engine.loop;
    uint64_t now_ns = loop_now(loop);
    if (c->asking || c->refresh.place)
        return;
    if (now_ns > c->asked_ns + REST_OVER_NS)
        c->rounds = 0;
    unsigned doubled = c->rounds < REST_DOUBLED ? c->rounds++ : REST_DOUBLED;
    uint64_t at_ns = c->asked_ns + (REST_FIRST_NS << doubled);
    loop_arm(loop, &c->refresh, at_ns > now_ns ? at_ns : now_ns);
}

/* ---- redirections ---- */

/* "MOVED slot host:port" or "ASK slot host:port"; an IPv6 address has no brackets, and no host
 * means that of the sender. */
static uint16_t read_redirect(struct cluster *c, long *slot, const char *text, const char *sender)
{
    char host[HOST_MAX], *end;
    const char *at = strchr(text, ' ');
    *slot = at ? strtol(at + 1, &end, 10) : -1;
    if (*slot < 0 || *slot >= SLOTS || *end != ' ')
        return 0;
    const char *colon = strrchr(++end, ':');
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (port < 1 || port > UINT16_MAX || colon - end >= HOST_MAX)
        return 0;
    snprintf(host, sizeof host, "%.*s", (int)(colon - end), end);
    if (!*host)
        snprintf(host, sizeof host, "%s", sender ? sender : "127.0.0.1");
    return find_node(c, host, (uint16_t)port);
}

static void set_owner(struct cluster *c, long slot, uint16_t number)
{
    if (c->owner[slot])
        c->nodes[c->owner[slot] - 1]->slots--;
    c->owner[slot] = number;
    c->nodes[number - 1]->slots++;
}

/* False: it is not redirected, and gets the server's reply. */
static bool follow(struct cluster *c, struct node *node, struct request *request,
                   const redisReply *reply, bool asking)
{
    long slot;
    uint16_t number = read_redirect(c, &slot, reply->str, node->host);
    if (!asking)
        refresh_soon(c);
    if (!number)
        return false;
    if (!asking)
        set_owner(c, slot, number);
    struct node *to = c->nodes[number - 1];
    if (request->hops++ >= HOPS_MAX || redis_node_connect(to, NULL))
        return false;
    redis_conn_give(to->conn, request, asking);
    return true;
}

static bool cluster_answers(struct cluster *c, struct node *node, struct request *request,
                            const redisReply *reply)
{
    switch (redis_error_of(reply)) {
    case REDIS_ERROR_MOVED:
        return follow(c, node, request, reply, false);
    case REDIS_ERROR_ASK:
        return follow(c, node, request, reply, true);
    case REDIS_ERROR_TRY_AGAIN:
        request->hops = 0;
        redis_node_send_later(node, request, reply);
        return true;
    case REDIS_ERROR_CLUSTER_DOWN:
        refresh_soon(c);
        return false;
    default:
        return false;
    }
}

/* Another node is asked for the table first. */
static void cluster_down(struct cluster *c, struct node *node)
{
    if (!node->slots) {
        close_idle(c);
        return;
    }
    for (size_t i = 0; !c->asking && i < c->n; i++)
        if (c->nodes[i] == node)
            c->at = i;
    refresh_soon(c);
}

/* ---- new and free ---- */

enum stile_status redis_cluster_new(struct cluster **out, struct redis *redis,
                                    struct stile_error *err)
{
    struct cluster *c = calloc(1, sizeof *c);
    if (!c || loop_reserve(redis->engine.loop, 1)) {
        free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *out = c;
    c->redis = redis;
    c->nodes[c->n++] = &redis->home;
    c->refresh.fn = refresh;
    refresh(&c->refresh);
    return STILE_OK;
}

void redis_cluster_free(struct cluster *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        if (c->nodes[i] == &c->redis->home)
            continue;
        redis_node_close(c->nodes[i]);
        free(c->nodes[i]);
    }
    loop_disarm(c->redis->engine.loop, &c->refresh);
    loop_unreserve(c->redis->engine.loop, 1);
    free(c);
}

bool redis_cluster_is_loaded(const struct cluster *c)
{
    return c->loaded;
}

enum stile_status redis_cluster_gave_up(const struct cluster *c, struct stile_error *err)
{
    if (!c->gave_up)
        return STILE_OK;
    error_copy(err, &c->why);
    return error_wrap(err, c->why.status, "reading the table of the cluster");
}

/* ======== the way to a name ======== */

/* ---- what happens on connections ---- */

void redis_route_down(struct node *node, const struct stile_error *why)
{
    struct redis *redis = node->redis;
    if (redis->sentinel)
        redis_sentinel_down(redis->sentinel, why);
    if (redis->cluster)
        cluster_down(redis->cluster, node);
}

bool redis_route_answers(struct node *node, struct request *request, const redisReply *reply)
{
    struct redis *redis = node->redis;
    if (!is_error(reply))
        return false;
    if (redis->cluster)
        return cluster_answers(redis->cluster, node, request, reply);
    enum redis_error error = redis_error_of(reply);
    if (error != REDIS_ERROR_READ_ONLY && error != REDIS_ERROR_MASTER_DOWN)
        return false;
    redis_node_send_later(node, request, reply); /* not executed: the next primary gets it */
    return true;
}

/* ---- where a name is kept ---- */

/* The only server, or the nodes of the Cluster. */
static size_t all_nodes(struct node ***nodes, struct redis *redis, struct node **home)
{
    if (redis->cluster)
        return cluster_nodes(nodes, redis->cluster);
    *home = &redis->home;
    *nodes = home;
    return 1;
}

uint16_t redis_route_slot(const struct redis *redis, const char *name, size_t name_len)
{
    char key[PREFIX_MAX + STILE_NAME_MAX];
    size_t prefix_len = strlen(redis->prefix);
    memcpy(key, redis->prefix, prefix_len);
    memcpy(key + prefix_len, name, name_len);
    return redis_slot_of(key, prefix_len + name_len);
}

struct node *redis_route_to_key(struct redis *redis, const struct conn_arg *key)
{
    return redis->cluster ? cluster_node(redis->cluster, redis_slot_of(key->bytes, key->len))
                          : &redis->home;
}

struct node *redis_route_to(struct redis *redis, const char *name, size_t name_len)
{
    return redis->cluster ? cluster_node(redis->cluster, redis_route_slot(redis, name, name_len))
                          : &redis->home;
}

struct node *redis_route_next(struct redis *redis, const struct node *node)
{
    struct node *home, **nodes;
    size_t n = all_nodes(&nodes, redis, &home), i = 0;
    while (node && i < n && nodes[i++] != node)
        ;
    while (i < n && redis->cluster && !nodes[i]->slots)
        i++;
    return i < n ? nodes[i] : NULL;
}

enum stile_status redis_route_listen(struct redis *redis, const char *name, size_t name_len,
                                     struct stile_error *err)
{
    struct node *node = redis_route_to(redis, name, name_len);
    if (redis->sentinel && !node->pubsub)
        redis_sentinel_listen(redis->sentinel);
    return redis_node_listen(node, err);
}

void redis_route_forget(struct redis *redis, const void *data)
{
    struct node *home, **nodes;
    size_t n = all_nodes(&nodes, redis, &home);
    for (size_t i = 0; i < n; i++) {
        if (nodes[i]->conn)
            redis_conn_forget(nodes[i]->conn, data);
        link_queue_forget(&nodes[i]->later, data);
    }
}

void redis_route_forked(struct redis *redis)
{
    struct node *home, **nodes;
    size_t n = all_nodes(&nodes, redis, &home);
    for (size_t i = 0; i < n; i++) {
        redis_conn_forked(nodes[i]->conn);
        redis_conn_forked(nodes[i]->pubsub);
        redis_conn_forked(nodes[i]->wait_conn);
    }
    redis_sentinel_forked(redis->sentinel);
}

/* ---- scripts ---- */

enum stile_status redis_call_send(const struct call *call, struct redis *redis,
                                  const struct lua *script, conn_fn *fn, void *data,
                                  struct stile_error *err)
{
    struct node *node = redis_route_to_key(redis, &call->args[0]);
    return redis_node_eval(node, script, call->args, call->n_keys, call->n, fn, data, err);
}
