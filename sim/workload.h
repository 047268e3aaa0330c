/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What clients do: ask for locks, wait, hold, write to a guarded store, release, give up.
 *
 * A user is one of the threads of a process. It reports what it does and learns to the history. Its
 * process may be paused or killed at any moment; then another process takes its place.
 */
#ifndef STILE_SIM_WORKLOAD_H
#define STILE_SIM_WORKLOAD_H

#include "sim/process.h"

#define USERS_MAX 8  /* whom faults may concern */
#define CROWD_MAX 80 /* users of a run in all */

struct workload {
    const char *url;
    unsigned n_users;
    unsigned n_hosts; /* processes; the users share them evenly. At most n_users */
    unsigned n_names;
    bool exclusive_only; /* the engine has neither shared locks nor slots */
    bool tokens;
    unsigned rounds[CROWD_MAX]; /* the most claims of each user */
    bool more;                  /* this run has more than the usual habits (sim/run.c) */
    bool races;                 /* and this one has those that bring claims together */
    bool keepers;               /* many claims have hold_at_least or a lock-delay */
    unsigned (*votes)(void);    /* of its engine (sim/engine.h); may be NULL */
};

void workload_begin(const struct workload *workload);
/* No new claims; those that wait may be granted, and what is held is released. */
void workload_wind_down(void);
void workload_dispose(void);

/* NULL, or which user counts on a lock for longer than its servers keep it, in a sentence. */
const char *workload_overdue(void);
/* How many claims it has made. */
unsigned workload_rounds(unsigned user);
/* The process of this user at present; it may be dead. NULL: there is none. */
struct process *workload_process(unsigned user);
/* The lock that this user asks for or holds, or has asked for last: a number, and its name. */
unsigned workload_name(unsigned user);
const char *workload_name_text(unsigned name);
/* The owner value of what it holds; NULL: nothing. */
const char *workload_owner(unsigned user);
/* Points in the life of a claim at which a fault hurts most. */
enum moment {
    WHEN_ASKED,    /* the request is about to be sent */
    WHEN_GRANTED,  /* the user has just learned of it */
    WHEN_RELEASED, /* as WHEN_ASKED */
    MOMENTS
};
/* Calls fn after_ns after this user next comes to that point. */
void workload_await(unsigned user, enum moment moment, uint64_t after_ns, happening_fn *fn,
                    void *data);

/* Kills it, without a word to its servers if its host lost power, and starts another one later. */
void workload_kill(unsigned user, bool silently);
/* Closes its client in the middle of what it does, and starts another one later. */
void workload_close(unsigned user);
/* Its program forks without exec: the child looks at every handle and ends, the parent continues.
 */
void workload_fork(unsigned user);
/* NULL, or what a forked child could still do, in a sentence. */
const char *workload_forked(void);
void workload_pause(unsigned user);
void workload_resume(unsigned user);
/* When it next has something to read, it stops in the middle of its work, until this is over. */
void workload_stall(unsigned user, uint64_t ns);
/* It no longer waits for the lock that it asks for. False: it asks for none, or cannot act. */
bool workload_give_up(unsigned user);
/* The process of this user is started again with this URL, whatever the others use. */
void workload_restart(unsigned user, const char *url);

#endif
