/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated Redis server: RESP2, EVAL and EVALSHA with Lua 5.1, subscriptions, and crashes that
 * keep all of the data, an older state of it, or none. */
#ifndef STILE_SIM_REDIS_SERVER_H
#define STILE_SIM_REDIS_SERVER_H

#include "sim/net.h"
#include "sim/redis_store.h"

/* The memory is the world's. */
struct server *sim_redis_new(const char *host);
void sim_redis_dispose(struct server *server);
/* How many scripts have failed, or did not end, since the last call. */
size_t sim_redis_failures(void);
/* Frees what all servers of all runs share. */
void sim_redis_finish(void);

/* One command without a connection; the answer is put behind what is in *out. */
void sim_redis_execute(struct server *server, const struct bytes *args, size_t n,
                       struct buffer *out);

/* As PUBLISH. */
void sim_redis_publish(struct server *server, struct bytes channel, struct bytes message);
/* Only to its own subscribers. Returns how many there are. */
long long sim_redis_deliver(struct server *server, struct bytes channel, struct bytes message);

/* What a crash leaves. */
enum redis_left { LEFT_ALL, LEFT_OLD, LEFT_NONE };

void sim_redis_crash(struct server *server);
void sim_redis_restart(struct server *server, enum redis_left left);
/* Remembers the data as they are: what LEFT_OLD restores. */
void sim_redis_save(struct server *server);

/* By hand, by eviction, by another program. */
void sim_redis_flush(struct server *server);
void sim_redis_drop_key(struct server *server, size_t n);
/* As SCRIPT FLUSH: clients send them again. */
void sim_redis_flush_scripts(struct server *server);

#endif
