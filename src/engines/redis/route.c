#include "engines/redis/route.h"

#include <stdlib.h>
#include <string.h>

#include "engines/redis/fault.h"
#include "engines/redis/redis.h"
#include "engines/redis/sentinel.h"

#define AGAIN_FIRST_NS (10 * NS_PER_MS)
#define AGAIN_DOUBLED  4

/* ---- connections ---- */

static void is_up(struct conn *conn)
{
    (void)conn;
}

static void asks_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = conn_owner(conn);
    if (node->redis->sentinel) /* each request hears of it by itself */
        sentinel_down(node->redis->sentinel, why);
}

static void hears_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = conn_owner(conn);
    node->hearing = false;
    if (node->redis->sentinel)
        sentinel_down(node->redis->sentinel, why);
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
    return node->redis->sentinel && sentinel_answers(node, request, reply);
}

static const struct conn_events asks_events = {.up = is_up, .down = asks_down, .answers = answers};
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
    return STILE_OK;
}

void node_close(struct node *node)
{
    if (!node->redis)
        return;
    conn_free(node->hears);
    conn_free(node->asks);
    line_clear(&node->later);
    loop_disarm(node->redis->engine.loop, &node->again);
    loop_unreserve(node->redis->engine.loop, 1);
    free(node->host);
}

void node_forked(struct node *node)
{
    conn_forked(node->asks);
    conn_forked(node->hears);
}

/* ---- all of them ---- */

struct node *route_to_key(struct redis *redis, const struct conn_arg *key)
{
    (void)key;
    return &redis->home;
}

struct node *route_to(struct redis *redis, const char *name, size_t name_len)
{
    (void)name, (void)name_len;
    return &redis->home;
}

enum stile_status route_listen(struct redis *redis, const char *name, size_t name_len,
                               struct stile_error *err)
{
    return listen(route_to(redis, name, name_len), err);
}

void route_forget(struct redis *redis, const void *data)
{
    struct node *node = &redis->home;
    if (node->asks)
        conn_forget(node->asks, data);
    line_forget(&node->later, data);
}
