/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of `stile torture`, and what is done to them. */
#ifndef STILE_CLI_TORTURE_CREW_H
#define STILE_CLI_TORTURE_CREW_H

#include "torture.h"

/* ---- torture_crew.c ---- */

/* What is wrong with a worker at the moment. */
enum plight { WELL, STOPPED, CUT_OFF, SLOWED };

struct crew;

/* One worker at a time, and the next one if it is killed. */
struct slot {
    struct source out; /* its messages */
    struct crew *crew;
    uint32_t number;
    pid_t pid;           /* 0: none */
    int control;         /* closed to end it */
    struct proxy *proxy; /* NULL: it reaches the servers directly */
    char url[STILE_URL_MAX + 1];
    struct worker_seen seen;
    enum plight plight;
    uint64_t until_ns;  /* the end of that */
    uint64_t toggle_ns; /* SLOWED: when it changes between passing and waiting */
    bool waits;         /* SLOWED: nothing passes now */
    size_t injection;
};

struct crew {
    const struct plan *plan;
    struct recording *recording;
    struct proxy_target target;
    struct slot slots[CLIENTS_MAX];
    uint32_t n;
    bool ending;
    int signals;           /* a signalfd; -1: none */
    unsigned interrupts;   /* that it has reported */
    struct errand *breaks; /* under way */
    /* Called when a worker stands between reading and writing. */
    void (*in_gap)(struct slot *slot, void *data);
    void *data;
    char reason[REASON_MAX]; /* of the last failure to open an engine */
};

/* False with errno. proxied: through ports of its own. */
bool crew_start(struct crew *crew, bool proxied);
/* A new worker in the slot of one that has died. False: not now, or too many have crashed. */
bool crew_replace(struct slot *slot);
/* How often the user has asked for an end. */
unsigned crew_interrupts(struct crew *crew);
void crew_kill(struct slot *slot); /* with -9, at once */
/* Stops the worker, and reads all it has reported. False: it was no longer between reading and
 * writing, and goes on. */
bool crew_seize(struct slot *slot);
/* Ends all workers, and kills those that have not ended after patience_ns, or when the user asks
 * for an end once more. */
void crew_end(struct crew *crew, uint64_t patience_ns);

enum errand_kind { ERRAND_OPEN, ERRAND_BEGIN, ERRAND_BREAK, ERRAND_END };

struct errand {
    struct source out;
    pid_t pid;
    bool over;
    struct crew *crew;
    struct errand *next;   /* of crew->breaks */
    struct message opened; /* kind MESSAGE_OPENED if it has opened the engine */
    struct message done;   /* its status; UNREACHABLE if it never came */
};

/* Runs it to its end, in the loop; an interrupt ends it. False with errno. */
bool errand_run(struct errand *errand, struct crew *crew, enum errand_kind kind, const char *url);
/* Breaks the lock that the worker holds, in the background. */
void errand_start_break(struct crew *crew, const struct slot *slot);

/* ---- torture_faults.c ---- */

enum script_state { SCRIPT_NONE, SCRIPT_RESTS, SCRIPT_BREAKS, SCRIPT_BROKEN, SCRIPT_HEALS };

struct chaos {
    struct crew *crew;
    struct recording *recording;
    unsigned allowed; /* bits 1 << enum injection_kind */
    bool named;       /* by the user */
    enum stile_lease lease;
    uint64_t random;
    uint64_t next_ns, last_ns; /* when the next one is due; when the last one must be over */
    bool wanted;               /* one waits for a worker in its gap */
    bool anywhere;             /* or for any worker that is well */
    enum injection_kind kind;
    uint64_t wanted_ns;

    const char *script; /* NULL: none */
    enum script_state script_state;
    pid_t script_pid;
    uint64_t script_ns; /* when its state ends, or is given up */
    size_t script_injection;
};

/* What needs the proxy. */
#define INJECT_PROXIED (1u << INJECT_CUT | 1u << INJECT_RESET | 1u << INJECT_SLOW)

/* False: a word of the list is no injection into workers. */
bool chaos_allow(unsigned *allowed, const char *list);
void chaos_begin(struct chaos *chaos, uint64_t last_ns);
void chaos_tick(struct chaos *chaos);
/* Heals everything, and waits for the script. */
void chaos_end(struct chaos *chaos);

#endif
