/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A model of PostgreSQL's session locks: what its advisory locks do, and nothing else of it.
 *
 * The engine for PostgreSQL runs in libpq, which has its own sockets and cannot be simulated. So
 * written stories have this server and plain clients (sim/session_client.h) instead; seeds never
 * use it. A connection is a session. The server reads the few statements below, a line each, and
 * answers with a line: the row's only column, or "(1 row)" if that is void.
 *
 *     SELECT pg_advisory_lock(hashtextextended('x', 0))        answered when the session has it
 *     SELECT pg_try_advisory_lock(hashtextextended('x', 0))    t or f
 *     SELECT pg_advisory_unlock(hashtextextended('x', 0))      t or f
 *     SELECT nextval('tokens')                                 a number
 *     SELECT 1
 *     SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'A'
 *
 * A session has a lock as often as it has asked for it, waiters of a lock are in a queue, and all
 * locks of a session end with it. Behind a transaction pooler all clients use one session.
 */
#ifndef STILE_SIM_SESSION_SERVER_H
#define STILE_SIM_SESSION_SERVER_H

#include "sim/engine.h"

/* Of written stories only: it is not one of sim_engines. */
extern const struct sim_engine_class sim_sessions_class;

struct session_options {
    bool pooled;              /* clients reach the server through a transaction pooler */
    uint64_t idle_timeout_ns; /* idle_session_timeout; 0: none */
};

/* Of the next begin(). */
void sim_sessions_configure(const struct session_options *options);

#endif
