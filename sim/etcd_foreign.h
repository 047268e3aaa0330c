/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Other programs that use the same locks of a simulated etcd cluster.
 *
 * As Go's concurrency.Mutex and `etcdctl lock` do: a lease, the key NAME/LEASE if it is missing, a
 * watch on the last key that was created before, a look at its own key behind that, and a deletion.
 * Or as the Lock of npm's etcd3: the key NAME if it is missing, no wait, and the end of its lease.
 *
 * Their requests are entries of the cluster's log, or wait for it, at the member they are connected
 * to, and so are in doubt, late or lost with it; what they read of a watch is as late as that
 * member. One that does not answer is left for the next one. Unlike the real ones, a holder watches
 * its own key, and counts its lease from when it sent the request.
 */
#ifndef STILE_SIM_ETCD_FOREIGN_H
#define STILE_SIM_ETCD_FOREIGN_H

#include "sim/etcd_cluster.h"

void etcd_foreign_begin_mutexes(struct etcd_cluster *cluster, uint64_t end_ns,
                                struct random *random);
void etcd_foreign_begin_plain(struct etcd_cluster *cluster, uint64_t end_ns, struct random *random);

#endif
