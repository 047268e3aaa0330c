/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What Sentinel and Cluster share: primaries that are replaced by a replica, and what can happen to
 * servers with replicas. Some servers keep data: the first n of the network. */
#ifndef STILE_SIM_REDIS_FAILOVER_H
#define STILE_SIM_REDIS_FAILOVER_H

#include "sim/redis_faults.h"
#include "sim/redis_replica.h"

/* primary_of: the primary that a fault concerns which concerns a primary. */
void redis_failover_begin(unsigned n_data, struct redis_node *(*primary_of)(const struct fault *));
/* A failover that has lost nothing takes nothing back. */
unsigned redis_failover_broken(void);

/* It runs, and nothing is between it and the other servers. */
bool redis_failover_sees(const struct redis_node *node);
/* Of the replicas that can take its place, the one that has most; NULL: there is none. */
struct redis_node *redis_failover_best(const struct redis_node *primary);
void redis_failover_promote(struct redis_node *replica);
/* It begins to follow the primary, and forgets what it has done meanwhile. */
void redis_failover_demote(struct redis_node *node, struct redis_node *primary);
/* Something else than a failover has lost grants. */
void redis_failover_lost(void);
/* A name was moved to a server with another clock, perhaps. */
void redis_failover_moved(void);

/* For the history: waiters may need their time again after such a step. */
void redis_failover_mark(void);

/* ---- faults ---- */

void failover_stop_primary(struct fault *fault);
void failover_continue_primary(struct fault *fault);
void failover_crash_primary(struct fault *fault);
void failover_restart_primary(struct fault *fault);
void failover_cut_primary(struct fault *fault);
void failover_crash_to_older(struct fault *fault);
void failover_crash_to_forget(struct fault *fault);
void failover_flush(struct fault *fault);
void failover_drop_key(struct fault *fault);
void failover_drop_on_replica(struct fault *fault);
void failover_clock_forward(struct fault *fault);
void failover_clock_back(struct fault *fault);

#define REDIS_FAILOVER_FAULTS                                                                       \
    {"a server is stopped", 3, 0, AT_SERVER, strike_stop, heal_stop},                               \
        {"a server crashes and keeps its data",                                                     \
         3,                                                                                         \
         0,                                                                                         \
         AT_SERVER,                                                                                 \
         redis_strike_crash,                                                                        \
         redis_heal_with_all},                                                                      \
        {"the primary is stopped", 4, 0, AT_CLIENT, failover_stop_primary,                          \
         failover_continue_primary},                                                                \
        {"the primary crashes and keeps its data",                                                  \
         4,                                                                                         \
         0,                                                                                         \
         AT_CLIENT,                                                                                 \
         failover_crash_primary,                                                                    \
         failover_restart_primary},                                                                 \
        {"the primary is cut off from the other servers",                                           \
         4,                                                                                         \
         0,                                                                                         \
         AT_CLIENT,                                                                                 \
         failover_cut_primary,                                                                      \
         redis_heal_cut},                                                                           \
        {"a server is cut off from the others", 2, 0, AT_SERVER, redis_strike_cut, redis_heal_cut}, \
        {"a replica lags", 5, 0, AT_SERVER, redis_strike_lag, redis_heal_lag},                      \
        {"a server crashes and restarts with older data",                                           \
         1,                                                                                         \
         0,                                                                                         \
         AT_SERVER,                                                                                 \
         failover_crash_to_older,                                                                   \
         redis_heal_with_old},                                                                      \
        {"a server crashes and loses its data",                                                     \
         1,                                                                                         \
         0,                                                                                         \
         AT_SERVER,                                                                                 \
         failover_crash_to_forget,                                                                  \
         redis_heal_with_none},                                                                     \
        {"FLUSHALL", 1, 0, AT_CLIENT, failover_flush, NULL},                                        \
        {"a key is evicted, or deleted by hand", 1, 0, AT_CLIENT, failover_drop_key, NULL},         \
        {"a key is deleted on a replica", 2, 0, AT_CLIENT, failover_drop_on_replica, NULL},         \
        {"a server's clock jumps forward", 1, 0, AT_SERVER, failover_clock_forward, NULL},          \
        {"a server's clock jumps back", 1, 0, AT_SERVER, failover_clock_back, NULL},                \
    {                                                                                               \
        "an operator breaks a lock", 3, 0, AT_CLIENT, strike_break, NULL                            \
    }

#endif
