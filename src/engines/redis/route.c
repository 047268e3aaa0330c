#include "engines/redis/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/cluster.h"
#include "engines/redis/fault.h"
#include "engines/redis/redis.h"
#include "engines/redis/sentinel.h"
#include "engines/redis/slot.h"

#define AGAIN_FIRST_NS (10 * NS_PER_MS)
#define AGAIN_DOUBLED  4

/* ---- connections ---- */

static void is_up(struct conn *conn)
{
    (void)conn;
}

/* Each request hears of it by itself. */
static void is_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = conn_owner(conn);
    struct redis *redis = node->redis;
    if (redis->sentinel)
        sentinel_down(redis->sentinel, why);
    if (redis->cluster)
        cluster_down(redis->cluster, node);
}

/* What does not answer any more does not publish, either, and nothing that is sent would show it.
 */
static void asks_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = conn_owner(conn);
    if (why->native == ETIMEDOUT && node->hears)
        conn_reconnect(node->hears, why);
    is_down(conn, why);
}

/* It may have been replaced without a word to us: a host that is gone ends no connection. */
static void is_late(struct conn *conn)
{
    struct stile_error why;
    error_set(&why, STILE_UNREACHABLE, 0, "it does not answer");
    is_down(conn, &why);
}

/* A subscription at the old primary would hear what the new one publishes, but the new one does not
 * count it: our waiters would be taken for dead. */
static void is_replica(struct conn *conn, const struct stile_error *why)
{
    struct node *node = conn_owner(conn);
    if (node->hears)
        conn_reconnect(node->hears, why);
    if (node->waits)
        conn_reconnect(node->waits, why);
}

static void hears_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = conn_owner(conn);
    node->hearing = false;
    is_down(conn, why);
}

static void hears_subscribed(struct conn *conn, const char *channel, size_t len)
{
    struct node *node = conn_owner(conn);
    (void)channel, (void)len;
    node->hearing = true;
    claims_look_again(node);
}

static void hears_message(struct conn *conn, const char *channel, size_t channel_len,
                          const char *bytes, size_t n)
{
    struct node *node = conn_owner(conn);
    char text[128];
    (void)channel, (void)channel_len;
    if (n >= sizeof text)
        return;
    memcpy(text, bytes, n);
    text[n] = '\0';
    claims_hear(node->redis, text, n);
}

static bool answers(struct conn *conn, struct request *request, const redisReply *reply)
{
    struct node *node = conn_owner(conn);
    struct redis *redis = node->redis;
    enum fault fault = fault_of(reply);
    redis->speaker = node;
    if (redis->cluster)
        return cluster_answers(redis->cluster, node, request, reply);
    if (fault != FAULT_READ_ONLY && fault != FAULT_MASTER_DOWN)
        return false;
    node_ask_later(node, request, reply); /* nothing was done: the next primary is asked */
    return true;
}

static void asks_up(struct conn *conn)
{
    struct node *node = conn_owner(conn);
    if (node->later.first)
        loop_arm(node->redis->engine.loop, &node->again, loop_now(node->redis->engine.loop));
    claims_ask_again(node);
}

static const struct conn_events asks_events = {
    .up = asks_up, .down = asks_down, .replica = is_replica, .late = is_late, .answers = answers};
static const struct conn_events hears_events = {
    .up = is_up, .down = hears_down, .subscribed = hears_subscribed, .message = hears_message};

enum stile_status node_connect(struct node *node, struct stile_error *err)
{
    if (node->asks)
        return STILE_OK;
    return conn_new(&node->asks, node->redis->engine.loop, &node->options, &asks_events, node, err);
}

static enum stile_status listen(struct node *node, struct stile_error *err)
{
    struct redis *redis = node->redis;
    if (node->hears)
        return STILE_OK;
    if (redis->sentinel)
        sentinel_listen(redis->sentinel);
    enum stile_status status =
        conn_new(&node->hears, redis->engine.loop, &node->options, &hears_events, node, err);
    if (!status)
        status = conn_subscribe(node->hears, redis->channel, strlen(redis->channel), err);
    if (status) {
        conn_free(node->hears);
        node->hears = NULL;
    }
    return status;
}

/* ---- asking ---- */

enum stile_status node_eval(struct node *node, const struct lua *lua, const struct conn_arg *args,
                            size_t n_keys, size_t n, conn_fn *fn, void *data,
                            struct stile_error *err)
{
    enum stile_status status = node_connect(node, err);
    return status ? status : conn_eval(node->asks, lua, args, n_keys, n, fn, data, err);
}

enum stile_status node_send(struct node *node, const struct conn_arg *args, size_t n, conn_fn *fn,
                            void *data, struct stile_error *err)
{
    enum stile_status status = node_connect(node, err);
    return status ? status : conn_send(node->asks, args, n, fn, data, err);
}

/* ---- later ---- */

static void arm_again(struct node *node)
{
    struct loop *loop = node->redis->engine.loop;
    uint64_t now_ns = loop_now(loop);
    if (node->again.place)
        return;
    if (now_ns > node->again.at_ns + NS_PER_SEC)
        node->agains = 0; /* of another time */
    unsigned doubled = node->agains < AGAIN_DOUBLED ? node->agains++ : AGAIN_DOUBLED;
    loop_arm(loop, &node->again, now_ns + (AGAIN_FIRST_NS << doubled));
}

/* In their old order. While there is no connection they stay: it may be on its way elsewhere. */
static void ask_again(struct timer *timer)
{
    struct node *node = (struct node *)((char *)timer - offsetof(struct node, again));
    uint64_t now_ns = loop_now(node->redis->engine.loop);
    struct request_line line;
    line_init(&line);
    line_append(&line, &node->later);
    for (struct request *request; (request = line_pop(&line));) {
        if (!request->fn)
            request_free(request);
        else if (request->until_ns <= now_ns)
            conn_answer(request, &node->why);
        else if (node->asks && conn_is_up(node->asks))
            conn_give(node->asks, request, false);
        else
            line_push(&node->later, request);
    }
    if (node->later.first)
        arm_again(node);
}

void node_ask_later(struct node *node, struct request *request, const redisReply *why)
{
    if (!node->later.first)
        fault_explain(why, &node->why);
    line_push(&node->later, request);
    arm_again(node);
}

/* ---- the beginning and the end ---- */

enum stile_status node_init(struct node *node, struct redis *redis, const char *host, uint16_t port,
                            struct stile_error *err)
{
    *node = (struct node){.options = redis->options, .again.fn = ask_again};
    line_init(&node->later);
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

void node_close(struct node *node)
{
    if (!node->redis)
        return;
    conn_free(node->hears);
    conn_free(node->asks);
    conn_free(node->waits);
    node->hears = node->asks = node->waits = NULL;
    line_clear(&node->later);
    loop_disarm(node->redis->engine.loop, &node->again);
    loop_unreserve(node->redis->engine.loop, 1);
    free(node->host);
    node->redis = NULL;
}

/* ---- all of them ---- */

/* Those there are: the only one, or the Cluster's. */
static size_t all_nodes(struct node ***nodes, struct redis *redis, struct node **home)
{
    if (redis->cluster)
        return cluster_nodes(nodes, redis->cluster);
    *home = &redis->home;
    *nodes = home;
    return 1;
}

uint16_t route_slot(const struct redis *redis, const char *name, size_t name_len)
{
    char key[PREFIX_MAX + STILE_NAME_MAX];
    size_t prefix_len = strlen(redis->prefix);
    memcpy(key, redis->prefix, prefix_len);
    memcpy(key + prefix_len, name, name_len);
    return slot_of(key, prefix_len + name_len);
}

struct node *route_to_key(struct redis *redis, const struct conn_arg *key)
{
    return redis->cluster ? cluster_node(redis->cluster, slot_of(key->bytes, key->len))
                          : &redis->home;
}

struct node *route_to(struct redis *redis, const char *name, size_t name_len)
{
    return redis->cluster ? cluster_node(redis->cluster, route_slot(redis, name, name_len))
                          : &redis->home;
}

struct node *route_next(struct redis *redis, const struct node *node)
{
    struct node *home, **nodes;
    size_t n = all_nodes(&nodes, redis, &home), i = 0;
    while (node && i < n && nodes[i++] != node)
        ;
    while (i < n && redis->cluster && !nodes[i]->slots)
        i++;
    return i < n ? nodes[i] : NULL;
}

enum stile_status route_listen(struct redis *redis, const char *name, size_t name_len,
                               struct stile_error *err)
{
    return listen(route_to(redis, name, name_len), err);
}

enum stile_status route_listen_anywhere(struct redis *redis, const char *name, size_t name_len,
                                        struct stile_error *err)
{
    struct node *home, **nodes;
    size_t n = all_nodes(&nodes, redis, &home);
    for (size_t i = 0; i < n; i++)
        if (nodes[i]->hearing)
            return STILE_OK;
    return route_listen(redis, name, name_len, err);
}

void route_forget(struct redis *redis, const void *data)
{
    struct node *home, **nodes;
    size_t n = all_nodes(&nodes, redis, &home);
    for (size_t i = 0; i < n; i++) {
        if (nodes[i]->asks)
            conn_forget(nodes[i]->asks, data);
        line_forget(&nodes[i]->later, data);
    }
}

void route_forked(struct redis *redis)
{
    struct node *home, **nodes;
    size_t n = all_nodes(&nodes, redis, &home);
    for (size_t i = 0; i < n; i++) {
        conn_forked(nodes[i]->asks);
        conn_forked(nodes[i]->hears);
        conn_forked(nodes[i]->waits);
    }
    sentinel_forked(redis->sentinel);
}
