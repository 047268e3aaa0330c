/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/process.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/container.h"
#include "core/client.h"
#include "core/lock.h"

#define BOOT_NS (1000 * SEC) /* what a process's clock shows at the beginning */

struct sim_loop {
    struct loop loop;
    struct process *process;
    struct random random;
    struct readable *readable, **readable_tail;
    uint64_t extra_ns; /* what has passed for it alone, once it is over */
    bool kicked;
};

/* The process whose client is being opened: loop_epoll_new() has no argument for it. */
static struct process *opening;

static unsigned n_blocking;

static struct sim_loop *of(struct loop *loop)
{
    return (struct sim_loop *)loop;
}

struct process *process_of_loop(struct loop *loop)
{
    return of(loop)->process;
}

struct loop *process_loop(const struct process *process)
{
    return &process->loop->loop;
}

/* ---- its clock ---- */

static uint64_t clock_of(const struct process *process, uint64_t world_ns)
{
    int64_t drift = (int64_t)(world_ns / 1000000) * process->drift_ppm;
    return BOOT_NS + world_ns + (uint64_t)drift;
}

uint64_t process_world_time(const struct process *process, uint64_t clock_ns)
{
    if (clock_ns <= BOOT_NS)
        return 0;
    uint64_t ns = clock_ns - BOOT_NS;
    int64_t drift = (int64_t)(ns / 1000000) * process->drift_ppm;
    uint64_t world_ns = ns - (uint64_t)drift;
    while (clock_of(process, world_ns) < clock_ns)
        world_ns += US;
    return world_ns;
}

uint64_t process_deadline(const struct process *process, const struct stile_lock *lock)
{
    return lock->deadline_ns == NEVER ? UINT64_MAX : process_world_time(process, lock->deadline_ns);
}

static uint64_t now_ns(struct loop *loop)
{
    return clock_of(of(loop)->process, world_now()) + of(loop)->extra_ns;
}

const char *process_owner(struct stile_lock *lock)
{
    const struct engine_detached *detached = lock->client->engine->class->detached;
    return detached != NULL ? detached->owner(lock->client->engine, lock->claim) : NULL;
}

void process_stop_renewal(struct stile_lock *lock)
{
    lock->renew_at_ns = NEVER;
}

/* ---- turns ---- */

static uint64_t next_due(const struct process *process)
{
    const struct sim_loop *sim = process->loop;
    if ((process->client == NULL && !process->without_library) || process->dead ||
        process->closing || process->paused)
        return NEVER;
    if (sim->kicked || sim->readable != NULL || sim->loop.tasks != NULL ||
        sim->loop.senders != NULL ||
        (process->client != NULL && process->client->callbacks.first != NULL))
        return world_now();
    if (sim->loop.n_timers == 0)
        return NEVER;
    uint64_t at_ns = process_world_time(process, sim->loop.heap[0]->at_ns);
    return at_ns > world_now() ? at_ns : world_now();
}

static void run_once(struct process *process)
{
    if (!process->without_library) {
        stile_client_dispatch(process->client);
        return;
    }
    loop_prepare(&process->loop->loop);
    loop_wait(&process->loop->loop, false);
    loop_run(&process->loop->loop);
}

/* NULL: the world goes on, and servers do. */
static struct process *running;

bool process_lacks_memory(void)
{
    return running != NULL && running->scarce > 0 && --running->scarce == 0;
}

static void turn(void *data)
{
    struct process *process = data;
    if (process->wake_ns > world_now())
        return; /* another turn was planned instead */
    process->wake_ns = NEVER;
    if (next_due(process) <= world_now()) {
        running = process;
        run_once(process);
        running = NULL;
        if (process->ran != NULL && !process->dead)
            process->ran(process);
    }
    process_touch(process);
}

void process_touch(struct process *process)
{
    uint64_t due = next_due(process);
    if (due >= process->wake_ns)
        return;
    process->wake_ns = due;
    world_at(due, turn, process);
}

/* ---- the loop ---- */

static int watch(struct loop *loop, struct watch *watched, uint32_t events)
{
    (void)loop, (void)watched, (void)events;
    return ENOSYS; /* there are no descriptors here */
}

static void unwatch(struct loop *loop, struct watch *watched)
{
    (void)loop, (void)watched;
}

static void rearm(struct loop *loop, uint64_t at_ns)
{
    (void)at_ns;
    process_touch(of(loop)->process);
}

static bool is_due(struct sim_loop *sim)
{
    return sim->kicked || sim->readable != NULL ||
           (sim->loop.n_timers > 0 && sim->loop.heap[0]->at_ns <= now_ns(&sim->loop));
}

/* A blocking call lets the world go on until something is due here. For a client that is being
 * closed after the run, time passes for it alone. */
static void wait_for_it(struct loop *loop, bool block)
{
    struct sim_loop *sim = of(loop);
    while (block && !is_due(sim)) {
        uint64_t at_ns = loop->n_timers > 0 ? loop->heap[0]->at_ns : NEVER;
        if (at_ns == NEVER)
            break;
        if (sim->process->over)
            sim->extra_ns += at_ns - now_ns(loop);
        else if (!world_step(process_world_time(sim->process, at_ns)))
            world_run(process_world_time(sim->process, at_ns));
    }
    sim->kicked = false;
}

/* The kernel may take the processor away at any point. Here the timers have run, and what has come
 * has not been read: it may be too late for what it says. */
static void stall(struct process *process)
{
    world_trace("%s stands still", process->name);
    history_add(
        world_history(),
        &(struct event){.ns = world_now(), .kind = EVENT_EXCUSED, .client = process->number});
    process->paused = process->stalled = true;
    running = NULL;
    n_blocking++;
    world_run(process->stall_until_ns);
    n_blocking--;
    process->paused = process->stalled = false;
    world_trace("%s goes on", process->name);
}

static void deliver(struct loop *loop)
{
    struct sim_loop *sim = of(loop);
    if (world_now() < sim->process->stall_until_ns && sim->readable != NULL && n_blocking == 0)
        stall(sim->process);
    struct readable *readable = sim->readable, *next;
    sim->readable = NULL;
    sim->readable_tail = &sim->readable;
    for (struct readable *each = readable; each != NULL; each = each->next)
        each->listed = false;
    for (; readable != NULL; readable = next) {
        next = readable->next;
        readable->deliver(readable);
    }
}

static void kick(struct loop *loop)
{
    of(loop)->kicked = true;
}

static int fill_random(struct loop *loop, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)random_next(&of(loop)->random);
    return 0;
}

static int no_fd(struct loop *loop)
{
    (void)loop;
    return -1;
}

static void nothing(struct loop *loop)
{
    (void)loop;
}

/* The memory of the loop is the world's; that of its timers is not. */
static void free_loop(struct loop *loop)
{
    loop_fini(loop);
    of(loop)->process->loop = NULL;
}

static const struct loop_class sim_class = {
    .now_ns = now_ns,
    .watch = watch,
    .unwatch = unwatch,
    .rearm = rearm,
    .wait = wait_for_it,
    .deliver = deliver,
    .kick = kick,
    .random = fill_random,
    .fd = no_fd,
    .close_fds = nothing,
    .free = free_loop,
};

int loop_epoll_new(struct loop **loop)
{
    struct sim_loop *sim = world_alloc(sizeof *sim);
    loop_init(&sim->loop, &sim_class);
    sim->process = opening;
    sim->random = random_stream(world_seed(), 1000 + opening->number);
    sim->readable_tail = &sim->readable;
    opening->loop = sim;
    *loop = &sim->loop;
    return 0;
}

void process_readable(struct process *process, struct readable *readable)
{
    if (readable->listed)
        return;
    readable->listed = true;
    readable->next = NULL;
    *process->loop->readable_tail = readable;
    process->loop->readable_tail = &readable->next;
    process_touch(process);
}

void process_unreadable(struct process *process, struct readable *readable)
{
    struct readable **at = &process->loop->readable;
    if (!readable->listed)
        return;
    for (; *at != readable; at = &(*at)->next)
        ;
    *at = readable->next;
    if (*at == NULL)
        process->loop->readable_tail = at;
    readable->listed = false;
}

/* Records and answers contain the host's name: a seed must give the same trace on every machine. */
int gethostname(char *name, size_t n)
{
    snprintf(name, n, "host");
    return 0;
}

/* ---- its life ---- */

static void on_opened(struct stile_client *client, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    struct process *process = data;
    (void)client;
    world_trace("%s opened: %s", process->name, status ? err->message : "ok");
    process->opened = status == STILE_OK;
    process->dead = status != STILE_OK;
}

void process_start(struct process *process, const char *url)
{
    struct stile_error err;
    process->wake_ns = NEVER;
    opening = process;
    if (stile_client_open_async(&process->client, url,
                                STILE_CLIENT_OPTIONS(.threadless = true, .label = process->name,
                                                     .pid = process->number + 1),
                                on_opened, process, &err)) {
        fprintf(stderr, "stile: sim: %s\n", err.message);
        exit(70);
    }
    process_touch(process);
}

void process_start_without_library(struct process *process)
{
    struct loop *loop;
    process->wake_ns = NEVER;
    process->without_library = process->opened = true;
    opening = process;
    loop_epoll_new(&loop);
}

bool process_is_blocking(void)
{
    return n_blocking > 0;
}

/* The process has no turns of its own meanwhile: its blocking calls run its loop. */
static bool operate(struct process *process, const char *url, process_fn *fn)
{
    struct stile_client *client;
    struct stile_error err;
    process->wake_ns = NEVER;
    opening = process;
    if (stile_client_open(&client, url,
                          STILE_CLIENT_OPTIONS(.threadless = true, .examine = true,
                                               .label = process->name, .pid = process->number + 1),
                          &err)) {
        world_trace("%s: %s", process->name, err.message);
        return false;
    }
    fn(client);
    stile_client_close(client);
    return true;
}

bool process_operate(struct process *process, const char *url, process_fn *fn)
{
    n_blocking++;
    bool opened = operate(process, url, fn);
    n_blocking--;
    process->dead = true;
    return opened;
}

void process_close(struct process *process)
{
    struct stile_client *client = process->client;
    process->closing = true;
    n_blocking++;
    stile_client_close(client);
    n_blocking--;
    process->dead = true;
    process->client = NULL;
}

void process_pause(struct process *process)
{
    world_trace("%s paused", process->name);
    process->paused = true;
}

void process_resume(struct process *process)
{
    world_trace("%s resumed", process->name);
    process->paused = false;
    process_touch(process);
}

void process_kill(struct process *process)
{
    world_trace("%s killed", process->name);
    process->dead = true;
}

void process_dispose(struct process *process)
{
    process->over = true;
    if (process->client != NULL)
        stile_client_close(process->client);
    if (process->without_library)
        loop_free(&process->loop->loop);
    process->client = NULL;
}
