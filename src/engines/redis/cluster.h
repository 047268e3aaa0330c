/* Redis Cluster: which node has which slots, and how requests follow keys that move.
 *
 * The table is read when the engine is opened, and again when a node redirects us (MOVED), is
 * lost, or reports that the cluster is down; never more than a few times a second, however many
 * replies do. A redirected request is handed to the other node. While a slot moves, the keys of a
 * name may be on two nodes: its requests are sent again until their deadline. */
#ifndef STILE_REDIS_CLUSTER_H
#define STILE_REDIS_CLUSTER_H

#include "engines/redis/node.h"

struct cluster;

/* Begins to ask redis->home for the table. */
enum stile_status redis_cluster_new(struct cluster **cluster, struct redis *redis,
                                    struct stile_error *err);
void redis_cluster_free(struct cluster *cluster); /* and its nodes, but for redis->home */

bool redis_cluster_is_loaded(const struct cluster *cluster);
/* OK: go on waiting. Else all nodes were asked. */
enum stile_status redis_cluster_gave_up(const struct cluster *cluster, struct stile_error *err);

struct node *redis_cluster_node(struct cluster *cluster, uint16_t slot); /* never NULL */
size_t redis_cluster_nodes(struct node ***nodes, struct cluster *cluster);

/* For route.c: what happens to the connections of its nodes. */
void redis_cluster_down(struct cluster *cluster, struct node *node);
bool redis_cluster_answers(struct cluster *cluster, struct node *node, struct request *request,
                           const redisReply *reply);

#endif
