/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Clients in virtual time on one scripted server, without threads or sleep.
 *
 * One client: the server lives on the client's own loop, so blocking calls work too; time then
 * passes by itself while they wait. Several clients: each has a loop, the server has another, and
 * world_pass() keeps their clocks together; only async calls make sense there. A paused client's
 * clock goes on, but nothing of it runs and what is sent to it stays where it is. */
#ifndef STILE_WORLD_H
#define STILE_WORLD_H

#include "core/client.h"
#include "support/script_engine.h"

#define WORLD_CLIENTS 4
#define MS            NS_PER_MS
#define SEC           NS_PER_SEC

struct world {
    struct script *script;
    size_t n;
    struct stile_client *clients[WORLD_CLIENTS];
    struct loop *loops[WORLD_CLIENTS];
    bool paused[WORLD_CLIENTS];
    struct loop *server;               /* NULL: it is on the first client's loop */
    void (*look)(struct world *world); /* after every step */
    void *data;
};

void world_open(struct world *world, size_t n, const struct engine_class *class, uint64_t seed);
void world_close_client(struct world *world, size_t i);
void world_close(struct world *world);

uint64_t world_now(const struct world *world);
void world_pass(struct world *world, uint64_t ns); /* what is due meanwhile is done in time */
void world_jump(struct world *world, uint64_t ns); /* nothing runs */

/* What an async call was answered with. */
struct heard {
    unsigned times;
    enum stile_status status;
    uint64_t at_ns;
    struct stile_lock *lock;
    struct stile_error err;
};

void heard_done(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                void *heard);
void heard_lost(struct stile_lock *lock, void *heard);
bool fd_readable(int fd);

#endif
