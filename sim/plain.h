/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A lock by hand: SET NX, PEXPIRE and DEL on one Redis server, as programs without a library do it.
 * The key is that of the library, so the two exclude each other.
 *
 * It has a connection of its own, renews nothing, and deletes the key without checking whose it is.
 * What it does and learns is added to the history of the run; its grants have the token 0.
 */
#ifndef STILE_SIM_PLAIN_H
#define STILE_SIM_PLAIN_H

#include "sim/net.h"

struct plain;

/* granted() is called with data after each grant. */
struct plain *plain_new(struct process *process, const struct server *server, const char *name,
                        void (*granted)(void *data), void *data);
/* ttl_ns 0: without an expiry. every_ns 0: one try; else until it is granted, with random pauses
 * of that length on average if jitter is set. */
void plain_set(struct plain *plain, uint64_t ttl_ns, uint64_t every_ns, bool jitter);
void plain_expire(struct plain *plain, uint64_t ttl_ns);
void plain_delete(struct plain *plain);
/* Before its process is disposed of. */
void plain_close(struct plain *plain);

#endif
