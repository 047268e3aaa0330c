/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What can happen to a Redis server, for the tables of the engines that use one, and what such
 * engines do with their servers in the same way. */
#ifndef STILE_SIM_REDIS_FAULTS_H
#define STILE_SIM_REDIS_FAULTS_H

#include "sim/faults.h"
#include "sim/redis_server.h"

void redis_strike_crash(struct fault *fault);
void redis_heal_with_all(struct fault *fault);
void redis_heal_with_old(struct fault *fault);
void redis_heal_with_none(struct fault *fault);
void redis_strike_flush(struct fault *fault);
void redis_strike_drop_key(struct fault *fault);
/* SCRIPT FLUSH, which changes nothing that is promised. */
void redis_strike_flush_scripts(struct fault *fault);
/* Between a server and the other servers; clients still reach it. */
void redis_strike_cut(struct fault *fault);
void redis_heal_cut(struct fault *fault);
/* A replica lags. */
void redis_strike_lag(struct fault *fault);
void redis_heal_lag(struct fault *fault);

/* Adds n servers to the network: n1 to n9. */
void redis_servers_make(unsigned n);
/* "redis://n1:6379,n2:6379" */
const char *redis_servers_url(const char *scheme, unsigned n);
/* Half of all runs wait for replicas: for one of n, or for all. */
const char *redis_servers_wait(const char *url, unsigned n, struct random *random);
void redis_servers_save(void);
void redis_servers_dispose(void);
const char *redis_servers_failed(void);

#endif
