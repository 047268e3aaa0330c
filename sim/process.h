/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A process with one client of the library, driven by the world instead of epoll.
 *
 * Its loop stands in for loop_epoll.c: the linker finds loop_epoll_new() here. The process runs
 * when a timer is due, bytes have come or a call was made, unless it is paused. A process that was
 * killed never runs again; its memory is given back by process_dispose(), which lets its client
 * close itself on a clock of its own.
 */
#ifndef STILE_SIM_PROCESS_H
#define STILE_SIM_PROCESS_H

#include "io/loop.h"
#include "sim/world.h"
#include "stile.h"

struct stream;

struct process {
    const char *name; /* "c1" */
    uint32_t number;
    struct stile_client *client;
    struct sim_loop *loop;
    int64_t drift_ppm; /* of its clock */
    bool opened, paused, closing, dead, over;
    bool without_library;    /* it has a loop, and no client */
    uint64_t stall_until_ns; /* what comes before this is read only then */
    bool vanished;           /* it is dead, and nothing of it reaches a server any longer */
    bool stalled;            /* it stands still in the middle of its work, with its mutex */
    uint64_t wake_ns;        /* when a turn is planned; NEVER: none is */
    unsigned scarce; /* n: the n-th buffer that has to grow from now on cannot; 0: all can */
    void (*ran)(struct process *process); /* after every turn */
    void *data;
};

/* Opens its client. opened is set, or it is dead, later. */
void process_start(struct process *process, const char *url);
/* One of a program that does without the library: it has a loop for streams. */
void process_start_without_library(struct process *process);
/* Opens a client for an operator, calls fn with it and closes it, while the world goes on. False:
 * it could not be opened. */
typedef void process_fn(struct stile_client *client);
bool process_operate(struct process *process, const char *url, process_fn *fn);
/* Closes its client, while the world goes on. The process is dead then. */
void process_close(struct process *process);
void process_pause(struct process *process);
void process_resume(struct process *process);
void process_kill(struct process *process);
void process_dispose(struct process *process);

/* The process whose turn it is gets no memory now. */
bool process_lacks_memory(void);

/* A process is inside a blocking call, and the world goes on in it. */
bool process_is_blocking(void);

/* The library was called, or something has arrived: it may have to run. */
void process_touch(struct process *process);

/* ---- for streams ---- */

struct process *process_of_loop(struct loop *loop);
struct loop *process_loop(const struct process *process);
/* deliver() is called in the next turn of the process. */
struct readable {
    struct readable *next;
    bool listed;
    void (*deliver)(struct readable *readable);
};
void process_readable(struct process *process, struct readable *readable);
void process_unreadable(struct process *process, struct readable *readable);

/* When its clock shows this time. */
uint64_t process_world_time(const struct process *process, uint64_t clock_ns);
/* That of a lock that it holds; UINT64_MAX: it has none. */
uint64_t process_deadline(const struct process *process, const struct stile_lock *lock);
/* What the engine calls its claim, also while it waits; NULL: it has no name for it. */
const char *process_owner(struct stile_lock *lock);
/* From now on its lease is not renewed, as by a program that renews nothing; a session's still is.
 */
void process_stop_renewal(struct stile_lock *lock);

#endif
