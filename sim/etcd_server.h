/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated etcd cluster as its clients see it: gRPC over HTTP/2, one server for each member.
 *
 * tests/sim/etcd.c compares it with a real one.
 */
#ifndef STILE_SIM_ETCD_SERVER_H
#define STILE_SIM_ETCD_SERVER_H

#include "sim/etcd_cluster.h"

/* Its servers are "n1" and so on. */
struct etcd_cluster *sim_etcd_new(unsigned n_members);
void sim_etcd_dispose(struct etcd_cluster *cluster);
struct etcd_member *sim_etcd_member(const struct server *server);
/* How many requests came that nothing is simulated for. */
unsigned sim_etcd_failures(void);

#endif
