/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The users of a workload, for workload.c and operators.c alone: each asks for locks, holds them,
 * writes to a guarded store and releases, in a cycle of its own. */
#ifndef STILE_SIM_USERS_H
#define STILE_SIM_USERS_H

#include "sim/process.h"
#include "sim/workload.h"

#define PROCESSES_KEPT 512

/* What is protected by the lock of the same number. It checks tokens, as a guard does. */
struct store {
    uint64_t highest, value, last_value;
};

enum user_state { RESTING, ASKING, HOLDING, RELEASING, CLOSING };

/* A process, and the one that takes its place. Users with the same number modulo n_hosts share it.
 */
struct host {
    unsigned number;
    struct process *process;
    bool restarting;
    const char *url; /* for its next process; NULL: as all others */
};

/* How a holder asks whether it still holds: one fact, four views. */
enum view { BY_HELD, BY_REMAINING, BY_FD, BY_REASON, VIEWS };

struct user {
    unsigned number;
    struct random random;
    struct host *host;
    unsigned rounds; /* claims so far */
    enum user_state state;
    struct stile_lock *lock;           /* kept for its next claim on the same name, or NULL */
    struct stile_lock_options options; /* of that handle */
    enum view view;
    int lost_fd; /* view BY_FD */
    unsigned name;
    uint32_t claim;
    uint64_t token, deadline_ns;
    uint64_t seen;  /* the value that it has read */
    bool told;      /* that it has lost its lock */
    uint64_t cycle; /* events of an earlier one are late */
    struct awaited *awaited;
};

/* Something that will happen when a user comes to this point. */
struct awaited {
    struct awaited *next;
    enum moment moment;
    uint64_t after_ns;
    happening_fn *fn;
    void *data;
};

/* What the users of this run have in common: schedules that need the same thing several times, a
 * long lease or a wait that is given up, would be rare if every user drew everything anew. */
struct habits {
    bool busy;        /* they hardly rest */
    bool in_step;     /* they ask and release at the same moments, as programs that cron starts */
    bool long_leases; /* of 5 s and more */
    bool patient;     /* they wait without a limit */
    bool hasty;       /* half of the time they do not wait at all */
    bool keeping;     /* every third claim has a hold_at_least */
    unsigned long_hold_in; /* one in this many holds is long */
    unsigned give_up_in;   /* and one in this many waits is given up */
};

struct job {
    struct workload workload;
    struct habits habits;
    struct user users[CROWD_MAX];
    struct host hosts[CROWD_MAX];
    struct store stores[4];
    struct process *processes[PROCESSES_KEPT];
    unsigned n_processes, next_number;
    bool winding_down;
    const char *forked;          /* what workload_forked() returns */
    uint64_t broken_until_ns[4]; /* by name: a holder may not know yet that it was broken */
    const char *overdue;         /* what workload_overdue() returns */
};

extern struct job job;
extern const char *const job_names[];

static inline struct process *process_of(const struct user *user)
{
    return user->host->process;
}

/* Its next cycle begins after a pause. */
void user_rest(struct user *user);
/* It no longer waits for the lock that it asks for. */
void user_cancel(struct user *user);
/* A holder acts on its lock as long as it looks held. ran: the library has had a turn since the
 * user could last look. True: it has acted. */
bool user_act(struct user *user, bool ran);
/* It has made all its claims. */
bool user_is_done(const struct user *user);
void user_tell(const struct user *user, enum event_kind kind);
/* After a process has run: renewals are noticed by the deadline that has moved. */
void user_look_at_deadlines(struct process *process);

/* Answers to its calls. */
void user_on_done(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data);
void user_on_released(struct stile_lock *lock, enum stile_status status,
                      const struct stile_error *err, void *data);

#endif
