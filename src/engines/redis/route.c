#include "engines/redis/route.h"

#include <string.h>

#include "engines/redis/cluster.h"
#include "engines/redis/errors.h"
#include "engines/redis/redis.h"
#include "engines/redis/reply.h"
#include "engines/redis/sentinel.h"

/* ---- what happens on connections ---- */

void redis_route_down(struct node *node, const struct stile_error *why)
{
    struct redis *redis = node->redis;
    if (redis->sentinel)
        redis_sentinel_down(redis->sentinel, why);
    if (redis->cluster)
        redis_cluster_down(redis->cluster, node);
}

bool redis_route_answers(struct node *node, struct request *request, const redisReply *reply)
{
    struct redis *redis = node->redis;
    if (!is_error(reply))
        return false;
    if (redis->cluster)
        return redis_cluster_answers(redis->cluster, node, request, reply);
    enum redis_error error = redis_error_of(reply);
    if (error != FAULT_READ_ONLY && error != FAULT_MASTER_DOWN)
        return false;
    redis_node_send_later(node, request, reply); /* not executed: the next primary gets it */
    return true;
}

/* ---- where a name is kept ---- */

/* The only server, or the nodes of the Cluster. */
static size_t all_nodes(struct node ***nodes, struct redis *redis, struct node **home)
{
    if (redis->cluster)
        return redis_cluster_nodes(nodes, redis->cluster);
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
    return redis->cluster ? redis_cluster_node(redis->cluster, redis_slot_of(key->bytes, key->len))
                          : &redis->home;
}

struct node *redis_route_to(struct redis *redis, const char *name, size_t name_len)
{
    return redis->cluster
               ? redis_cluster_node(redis->cluster, redis_route_slot(redis, name, name_len))
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
