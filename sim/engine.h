/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a run has to know of an engine: its servers, and what can happen to them.
 *
 * One run has one engine. Its begin() makes the servers, adds them to the network and gives the URL
 * that clients use. Its table of faults follows the faults that all engines share
 * (sim/faults.h). A fault switches off the rules that docs/guarantees.md does not promise after it.
 */
#ifndef STILE_SIM_ENGINE_H
#define STILE_SIM_ENGINE_H

#include "sim/check.h"
#include "sim/net.h"
#include "sim/workload.h"

#define BIT(rule) (1u << RULE_##rule)
#define TOKENS    (BIT(TOKEN_ORDER) | BIT(TOKEN_TWICE) | BIT(WENT_BACK) | BIT(WRITE_LOST))

/* One fault of a run. What strikes lasts for_ns, and then heals. */
struct fault {
    const struct fault_class *class;
    uint64_t at_ns, for_ns;
    bool waits;         /* from at_ns on for a moment in the life of its user's claim */
    enum moment moment; /* and strikes after_ns later */
    uint64_t after_ns;
    unsigned user;         /* whose process it concerns: workload_process() */
    struct server *server; /* or which server */
    unsigned number;       /* any number below 20,000,000 */
    struct path *path;     /* that it has changed; it is put right before heal() is called */
    void *data;            /* of its class */
};

enum fault_aim {
    AT_CLIENT,
    AT_SERVER, /* strikes only a server that is up and runs */
    IN_ORDER,  /* nothing is wrong: an operator does this */
};

struct fault_class {
    const char *text;
    unsigned often;  /* its share of all faults */
    unsigned breaks; /* the rules that no longer hold, by bits */
    enum fault_aim aim;
    void (*strike)(struct fault *fault);
    void (*heal)(struct fault *fault); /* NULL: nothing to do */
};

/* One of a run with races. */
struct race {
    struct fault_class fault;
    enum moment moment; /* when it hurts most */
};

struct sim_engine_class {
    const char *name;    /* for --engine */
    bool exclusive_only; /* it has neither shared locks nor slots */
    bool tokens;
    bool fifo;           /* waiters are granted in the order in which they came, */
    bool claims_race;    /* except that claims of one client may overtake each other on their way */
    bool exact_holds;    /* hold_at_least counts from the grant, however slow that was */
    bool late_delays;    /* a lock-delay begins when the next claim finds its holder gone */
    bool breaks_named;   /* a break ends the grant that its operator has seen, and no other */
    bool polls_foreign;  /* waiters behind another program are woken, or look often */
    bool queues_foreign; /* other programs stand in the same queue */

    /* Makes the servers and returns the URL. Draws from *random what the seed decides here. */
    const char *(*begin)(struct random *random);
    /* Frees what this run has of its own; the world's memory is freed anyway. */
    void (*dispose)(void);

    /* How many servers store a lock with its end while it is held; NULL: they do not show it. */
    unsigned (*votes)(void);

    const struct fault_class *faults; /* the last one has no text */
    const struct fault_class *more;   /* of the runs with more (sim/run.c); NULL: none */
    const struct race *races;         /* of those with races; NULL: there are none */
    const struct fault_class *plots;  /* of the runs with a plot; NULL: there are none */
    const struct fault_class *deaths; /* of operators, where some die; NULL: there are none */
    uint64_t wake_ns; /* a release is known to the next waiter within this time; 0: not checked */
    /* Other programs that use the same locks come and go until end_ns; NULL: there are none. */
    void (*foreign)(uint64_t end_ns, struct random *random);
    /* In a quarter of those runs our clients have this at the end of their URL instead, and only
     * exclusive locks, beside programs of another kind; NULL: there are none. */
    const char *dialect;
    void (*foreign_of_dialect)(uint64_t end_ns, struct random *random);
    /* What several faults together have taken back, asked at the end of a run; NULL: nothing. */
    unsigned (*also_broken)(void);
    /* Once a second while there are faults: for those that restore older data; NULL: nothing. */
    void (*save)(void);
    /* At the end: NULL, or how a simulated server has failed, in a sentence. May be NULL. */
    const char *(*failed)(void);
    /* Frees what all runs share; NULL: nothing. */
    void (*finish)(void);
};

/* Those that were built; NULL is behind the last. */
extern const struct sim_engine_class *const sim_engines[];

#endif
