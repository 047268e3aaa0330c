/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a seed decides the engine's set-up, what clients do, and what goes wrong. */
#ifndef STILE_SIM_RUN_H
#define STILE_SIM_RUN_H

#include "sim/engine.h"

#define FAULTS_MAX 32

/* How a run is made smaller than its seed wants. */
struct run_limits {
    uint32_t faults_left_out;   /* by bits */
    unsigned rounds[CROWD_MAX]; /* the most claims of each user; 0: it is left out */
    uint64_t end_ns;            /* nothing happens any longer */
};

extern const struct run_limits RUN_WITHOUT_LIMITS;

struct run_options {
    const struct sim_engine_class *engine;
    uint64_t seed;
    const struct run_limits *limits; /* NULL: none */
    FILE *trace;                     /* NULL: none */
    FILE *story;                     /* the history in short, if a rule is broken; NULL: none */
    FILE *page;                      /* the whole run as JSON (sim/story.h); NULL: none */
};

struct run_result {
    struct verdict verdict;
    uint64_t trace_sum;
    uint64_t virtual_ns;
    uint64_t broken_ns; /* when a rule was broken */
    unsigned n_users, n_faults;
    unsigned rounds[CROWD_MAX]; /* claims of each user */
    unsigned rules;             /* that were promised */
};

void sim_run(struct run_result *result, const struct run_options *options);

#endif
