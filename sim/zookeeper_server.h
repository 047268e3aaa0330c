/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated ZooKeeper ensemble as its clients see it: sessions, requests and watches on the wire.
 *
 * tests/sim/zookeeper.c compares it with a real server.
 */
#ifndef STILE_SIM_ZOOKEEPER_SERVER_H
#define STILE_SIM_ZOOKEEPER_SERVER_H

#include "sim/zookeeper_ensemble.h"

/* Its servers are "n1" and so on. */
struct zk_ensemble *sim_zk_new(unsigned n_members, uint64_t tick_ns);
void sim_zk_dispose(struct zk_ensemble *ensemble);
struct zk_member *sim_zk_member(const struct server *server);
/* How many requests came that nothing is simulated for. */
unsigned sim_zk_failures(void);
/* For so long it forgets half of the connections that it accepts, and ends them much later: as a
 * real one does while it starts. */
void sim_zk_forget_connections(struct zk_member *member, uint64_t for_ns);

/* ---- a connection, on whichever network ---- */

struct zk_client;

struct zk_client_events {
    void (*write)(void *owner, const void *bytes, size_t n);
    void (*end)(void *owner);
};

struct zk_client *zk_client_new(struct zk_member *member, const struct zk_client_events *events,
                                void *owner, const char *name);
/* What has come so far; returns how much of it was used. */
size_t zk_client_receive(struct zk_client *client, const char *bytes, size_t n);
void zk_client_gone(struct zk_client *client);

#endif
