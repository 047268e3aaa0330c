/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Other programs that use the same locks of a simulated ZooKeeper ensemble, as Curator and kazoo
 * do.
 *
 * Each claim has a session, an ephemeral sequential node with a GUID in its name, and a watch on
 * the last node before its own that excludes it. A node whose creation was not answered is looked
 * for by its GUID. Some also create nodes that are no contenders: those of another dialect, and
 * plain data.
 *
 * They are connected to one member and see the tree as late as that; their writes are transactions.
 * A member that no longer serves or does not answer is left for another one, which takes up the
 * session. Unlike the real ones, a holder watches its own node, and counts its session as stile
 * does (engines/zookeeper/liveness.c), by transactions instead of pings, which prove nothing.
 */
#ifndef STILE_SIM_ZOOKEEPER_FOREIGN_H
#define STILE_SIM_ZOOKEEPER_FOREIGN_H

#include "sim/zookeeper_ensemble.h"

/* dialect: that of the URL; base: the path above the names. */
void zk_foreign_begin(struct zk_ensemble *ensemble, const char *dialect, const char *base,
                      uint64_t end_ns, struct random *random);

#endif
