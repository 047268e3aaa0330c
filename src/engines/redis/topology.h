/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The servers, and which of them keeps a name: the only one, the primary that the Sentinels name,
 * or the node of a Cluster that has the name's slot. */
#ifndef STILE_REDIS_TOPOLOGY_H
#define STILE_REDIS_TOPOLOGY_H

#include "engines/redis/connection.h"

struct cluster;
struct redis;
struct redis_claim;

/* One server. Its connections are made when first needed. */
struct node {
    struct redis *redis;
    struct conn_options options; /* for its connections */
    char *host;                  /* of options.target; NULL: a socket, or not known yet */
    struct conn *conn;           /* for requests */
    struct conn *pubsub;         /* for messages to our session */
    struct conn *wait_conn;      /* for WAIT, which blocks its connection */
    bool waiting;                /* a WAIT is under way, see replicas.c */
    struct redis_claim *gathering, *replicating;
    bool subscribed; /* the subscription is in effect */
    unsigned slots;  /* of a Cluster: how many it has */

    struct link_queue later; /* to be sent again here, after a while */
    struct timer again;
    unsigned agains;
    struct stile_error why; /* the error that made them wait */
};

/* host NULL: redis->options has a path. */
enum stile_status redis_node_init(struct node *node, struct redis *redis, const char *host,
                                  uint16_t port, struct stile_error *err);
void redis_node_close(struct node *node); /* also if it is all zero */

enum stile_status redis_node_connect(struct node *node, struct stile_error *err);
/* Subscribes to our channel there, if that is not done yet. */
enum stile_status redis_node_listen(struct node *node, struct stile_error *err);
/* As redis_conn_eval() and redis_conn_send(). */
enum stile_status redis_node_eval(struct node *node, const struct lua *lua,
                                  const struct conn_arg *args, size_t n_keys, size_t n, conn_fn *fn,
                                  void *data, struct stile_error *err);
enum stile_status redis_node_send(struct node *node, const struct conn_arg *args, size_t n,
                                  conn_fn *fn, void *data, struct stile_error *err);
/* Sends a request that was taken over here again after a while, until its deadline. */
void redis_node_send_later(struct node *node, struct request *request, const redisReply *why);

/* What happens on a node's connections. One set for all nodes; redis.c has it. */
struct node_events {
    void (*up)(struct node *node);         /* requests can be sent again */
    void (*subscribed)(struct node *node); /* (again): messages may have been missed */
    void (*message)(struct redis *redis, const char *text, size_t len);
    /* A connection broke or failed, or a request was not answered in time. */
    void (*down)(struct node *node, const struct stile_error *why);
    /* As conn_events.answers. */
    bool (*answers)(struct node *node, struct request *request, const redisReply *reply);
    void (*moved)(struct redis *redis);   /* names may be on other nodes than before */
    void (*named)(struct node *home);     /* the Sentinels did; it has no connection yet */
    void (*gave_up)(struct redis *redis); /* all Sentinels, or nodes of the Cluster, were asked */
};

/* ---- a Cluster ---- */

/* Redis Cluster: which node has which slots, and how requests follow keys that move.
 *
 * The table is read when the engine is opened, and again when a node redirects us (MOVED), is
 * lost, or reports that the cluster is down; never more than a few times a second, however many
 * replies do. A redirected request is handed to the other node. While a slot moves, the keys of a
 * name may be on two nodes: its requests are sent again until their deadline. */

/* Begins to ask redis->home for the table. */
enum stile_status redis_cluster_new(struct cluster **cluster, struct redis *redis,
                                    struct stile_error *err);
void redis_cluster_free(struct cluster *cluster); /* and its nodes, but for redis->home */

bool redis_cluster_is_loaded(const struct cluster *cluster);
/* OK: go on waiting. Else all nodes were asked. */
enum stile_status redis_cluster_gave_up(const struct cluster *cluster, struct stile_error *err);

/* ---- the way to a name ---- */

/* For struct node_events. */
void redis_route_down(struct node *node, const struct stile_error *why);
bool redis_route_answers(struct node *node, struct request *request, const redisReply *reply);

/* Never NULL, but a request there may still fail. */
struct node *redis_route_to_key(struct redis *redis, const struct conn_arg *key);
struct node *redis_route_to(struct redis *redis, const char *name, size_t name_len);

uint16_t redis_route_slot(const struct redis *redis, const char *name, size_t name_len);
/* Iterates over the nodes that have names. node NULL: returns the first; NULL: no more. */
struct node *redis_route_next(struct redis *redis, const struct node *node);

/* Subscribes on the name's own node, if that is not done yet: the script that grants to a waiter
 * sees only the subscribers of its own node. */
enum stile_status redis_route_listen(struct redis *redis, const char *name, size_t name_len,
                                     struct stile_error *err);

/* redis_conn_forget() on all nodes. */
void redis_route_forget(struct redis *redis, const void *data);
void redis_route_forked(struct redis *redis);

#endif
