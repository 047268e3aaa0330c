#include "engines/redis/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/errors.h"
#include "engines/redis/keys.h"
#include "engines/redis/redis.h"

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

struct node *redis_cluster_node(struct cluster *c, uint16_t slot)
{
    if (c->owner[slot])
        return c->nodes[c->owner[slot] - 1];
    return c->nodes[c->at % c->n]; /* it will answer that the cluster is down */
}

size_t redis_cluster_nodes(struct node ***nodes, struct cluster *c)
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

bool redis_cluster_answers(struct cluster *c, struct node *node, struct request *request,
                           const redisReply *reply)
{
    switch (redis_error_of(reply)) {
    case FAULT_MOVED:
        return follow(c, node, request, reply, false);
    case FAULT_ASK:
        return follow(c, node, request, reply, true);
    case FAULT_TRY_AGAIN:
        request->hops = 0;
        redis_node_send_later(node, request, reply);
        return true;
    case FAULT_CLUSTER_DOWN:
        refresh_soon(c);
        return false;
    default:
        return false;
    }
}

/* Another node is asked for the table first. */
void redis_cluster_down(struct cluster *c, struct node *node)
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
