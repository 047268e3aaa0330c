/* Where a name is kept: on the one server, on the primary that the Sentinels name, or on the node
 * of a Cluster that has its slot. */
#ifndef STILE_REDIS_ROUTE_H
#define STILE_REDIS_ROUTE_H

#include "engines/redis/conn.h"
#include "engines/redis/request.h"

struct redis;
struct redis_claim;

/* A server we speak with. Its connections are made when first needed. */
struct node {
    struct redis *redis;
    struct conn_options options; /* for its connections */
    char *host;                  /* of options.target, if it is the node's own */
    struct conn *asks, *hears, *waits;
    bool waiting; /* a WAIT is under way; for whom: replicas.c */
    struct redis_claim *gathering, *replicating;
    bool hearing;   /* the subscription is in effect */
    unsigned slots; /* of a Cluster, that are its own */

    struct request_line later; /* to be said again here, after a while */
    struct timer again;
    unsigned agains;
    struct stile_error why; /* they must wait */
};

/* host NULL: redis->options has a path. */
enum stile_status node_init(struct node *node, struct redis *redis, const char *host, uint16_t port,
                            struct stile_error *err);
void node_close(struct node *node); /* also if it is all zero */

enum stile_status node_connect(struct node *node, struct stile_error *err);
/* As conn_eval() and conn_send(). */
enum stile_status node_eval(struct node *node, const struct lua *lua, const struct conn_arg *args,
                            size_t n_keys, size_t n, conn_fn *fn, void *data,
                            struct stile_error *err);
enum stile_status node_send(struct node *node, const struct conn_arg *args, size_t n, conn_fn *fn,
                            void *data, struct stile_error *err);
/* A request that was taken over is asked here again after a while, until its time is up. */
void node_ask_later(struct node *node, struct request *request, const redisReply *why);

/* Never NULL: what is asked there may still fail. */
struct node *route_to_key(struct redis *redis, const struct conn_arg *key);
struct node *route_to(struct redis *redis, const char *name, size_t name_len);

uint16_t route_slot(const struct redis *redis, const char *name, size_t name_len);
/* Each that has names of its own, one after the other; NULL: the first, or there is no other. */
struct node *route_next(struct redis *redis, const struct node *node);

/* Subscribes on the name's own node, if that is not done yet: the script that serves who waits sees
 * only who listens there. */
enum stile_status route_listen(struct redis *redis, const char *name, size_t name_len,
                               struct stile_error *err);

/* The same for who holds: a message reaches all nodes of a Cluster, so one ear is enough. */
enum stile_status route_listen_anywhere(struct redis *redis, const char *name, size_t name_len,
                                        struct stile_error *err);

/* As conn_forget(), wherever it was asked. */
void route_forget(struct redis *redis, const void *data);
void route_forked(struct redis *redis);

#endif
