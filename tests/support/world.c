/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/world.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/lock.h"
#include "support/loop_virtual.h"

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "# world: %s\n", what);
    abort();
}

void world_open(struct world *world, size_t n, const struct engine_class *class, uint64_t seed)
{
    *world = (struct world){.n = n};
    if (n > 1)
        must(loop_virtual_new(&world->server, seed) == 0, "no loop for the server");
    world->script = script_new(world->server);
    must(world->script != NULL, "no script");
    script_use(world->script);
    for (size_t i = 0; i < n; i++) {
        struct stile_error err;
        must(loop_virtual_new(&world->loops[i], seed + i + 1) == 0, "no loop");
        must(client_new(&world->clients[i], class, world->loops[i], NULL,
                        STILE_CLIENT_OPTIONS(.threadless = true), &err) == STILE_OK,
             "no client");
    }
}

void world_close_client(struct world *world, size_t i)
{
    if (world->clients[i])
        stile_client_close(world->clients[i]);
    world->clients[i] = NULL;
    world->loops[i] = NULL;
}

void world_close(struct world *world)
{
    for (size_t i = 0; i < world->n; i++)
        world_close_client(world, i);
    script_free(world->script);
    loop_free(world->server);
}

/* ---- time ---- */

static struct loop *any_loop(const struct world *world)
{
    return world->server ? world->server : world->loops[0];
}

uint64_t world_now(const struct world *world)
{
    return loop_now(any_loop(world));
}

void world_jump(struct world *world, uint64_t ns)
{
    for (size_t i = 0; i < world->n; i++) {
        if (world->loops[i])
            loop_virtual_jump(world->loops[i], ns);
    }
    if (world->server)
        loop_virtual_jump(world->server, ns);
}

static uint64_t next_of(const struct loop *loop)
{
    if (loop->tasks)
        return 0;
    return loop->n_timers ? loop->heap[0]->at_ns : NEVER;
}

static uint64_t next_of_client(const struct world *world, size_t i)
{
    if (!world->clients[i] || world->paused[i])
        return NEVER;
    return world->clients[i]->callbacks.first ? 0 : next_of(world->loops[i]);
}

static uint64_t next_ns(const struct world *world)
{
    uint64_t next = world->server ? next_of(world->server) : NEVER;

    for (size_t i = 0; i < world->n; i++) {
        uint64_t at = next_of_client(world, i);
        next = at < next ? at : next;
    }
    return next;
}

static void run_server(struct world *world)
{
    loop_prepare(world->server);
    loop_wait(world->server, false);
    loop_run(world->server);
}

static void run_due(struct world *world)
{
    uint64_t now = world_now(world);

    if (world->server && next_of(world->server) <= now)
        run_server(world);
    for (size_t i = 0; i < world->n; i++) {
        if (next_of_client(world, i) <= now)
            must(stile_client_dispatch(world->clients[i]) == STILE_OK, "dispatch");
    }
    if (world->look)
        world->look(world);
}

/* A million steps without a nanosecond passing is not progress. */
void world_pass(struct world *world, uint64_t ns)
{
    uint64_t until = world_now(world) + ns;
    unsigned idle = 0;

    for (;;) {
        uint64_t now = world_now(world), next = next_ns(world);
        if (next > until)
            break;
        must(next > now || ++idle < 1000000, "runs for ever without time passing");
        if (next > now) {
            world_jump(world, next - now);
            idle = 0;
        }
        run_due(world);
    }
    if (until > world_now(world))
        world_jump(world, until - world_now(world));
}

/* ---- listening ---- */

void heard_done(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                void *data)
{
    struct heard *heard = data;

    heard->times++;
    heard->status = status;
    heard->lock = lock;
    heard->at_ns = lock->client ? loop_now(lock->client->loop) : 0;
    error_copy(&heard->err, err);
}

void heard_lost(struct stile_lock *lock, void *data)
{
    struct heard *heard = data;

    heard->times++;
    heard->lock = lock;
    heard->at_ns = loop_now(lock->client->loop);
}

bool fd_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN);
}
