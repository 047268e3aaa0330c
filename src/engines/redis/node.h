/* One server, and what happens on the connections to it. */
#ifndef STILE_REDIS_NODE_H
#define STILE_REDIS_NODE_H

#include "engines/redis/connection.h"

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
    void (*gave_up)(struct redis *redis); /* all Sentinels, or nodes of the Cluster, were asked */
};

#endif
