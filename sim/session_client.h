/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A program that locks with PostgreSQL's session locks by hand (sim/session_server.h).
 *
 * It has one connection. After each grant it draws a token from a sequence in the same session. As
 * programs do that use libpq without a loop, it reads from its connection only while it waits for
 * an answer: that its session has ended, it learns when it uses it again. What it does and learns
 * is added to the history of the run.
 */
#ifndef STILE_SIM_SESSION_CLIENT_H
#define STILE_SIM_SESSION_CLIENT_H

#include "sim/net.h"

struct session_client;

/* granted() is called with data after each grant. */
struct session_client *session_client_new(struct process *process, const struct server *server,
                                          const char *name,
                                          void (*granted)(void *data, uint64_t token), void *data);
/* waits: pg_advisory_lock(); else pg_try_advisory_lock(). */
void session_client_lock(struct session_client *client, bool waits);
void session_client_unlock(struct session_client *client);
/* SELECT 1: whether its session still lives. */
void session_client_check(struct session_client *client);
/* Ends all sessions of another program. */
void session_client_end(struct session_client *client, const char *whom);
/* Before its process is disposed of. */
void session_client_close(struct session_client *client);

#endif
