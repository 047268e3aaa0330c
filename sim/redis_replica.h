/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Replication: replicas follow their primary later, in order, with a copy of all data first. What a
 * primary had not delivered when it crashed is lost. WAIT counts the replicas that have confirmed.
 */
#ifndef STILE_SIM_REDIS_REPLICA_H
#define STILE_SIM_REDIS_REPLICA_H

#include "sim/redis_node.h"

/* From now on its changes are noted. Both: before the first command. */
void redis_replica_begin(struct redis_node *node);
/* Follows a primary from now on; NULL: it is one. Clients that wait are sent away, as after
 * REPLICAOF. */
void redis_replica_follow(struct redis_node *node, struct redis_node *primary);
/* It was started again: it, or those that follow it, need all data again. */
void redis_replica_restarted(struct redis_node *node);
/* A command is over: what it has changed goes to the replicas. */
void redis_replica_commit(struct redis_node *node, struct session *session);
/* Whether it has all that its primary has written. */
bool redis_replica_is_current(const struct redis_node *node);

/* WAIT and ROLE. True: it was one of them. */
bool redis_replica_command(struct redis_node *node, struct session *session,
                           const struct redis_call *call);
/* For INFO. */
int redis_replica_info(const struct redis_node *node, char *text, size_t size);

#endif
