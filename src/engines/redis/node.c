/* One server: the connection for requests, the one for messages, and requests that are sent again
 * after a while. What happens on them is reported through struct node_events. */
#include "engines/redis/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/errors.h"
#include "engines/redis/redis.h"

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
