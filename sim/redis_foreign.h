/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Other programs that use the same locks, as redis-py and node-redlock do: SET NX PX with a value
 * of their own on a majority of the servers, and a script that compares and deletes.
 *
 * They poll and stand in no queue, so the history owes them no grant. Each step of theirs takes no
 * time on the servers that run; a server that does not is passed over.
 */
#ifndef STILE_SIM_REDIS_FOREIGN_H
#define STILE_SIM_REDIS_FOREIGN_H

#include "sim/world.h"

/* Some of them come and go until end_ns, and use the first n servers. */
void redis_foreign_begin(unsigned n, uint64_t end_ns, struct random *random);

#endif
