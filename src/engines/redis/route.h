/* Where a name is kept: on the one server, on the primary that the Sentinels name, or on the node
 * of a Cluster that has its slot. */
#ifndef STILE_REDIS_ROUTE_H
#define STILE_REDIS_ROUTE_H

#include "engines/redis/node.h"

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
