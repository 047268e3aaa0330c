/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/minimise.h"

#define PASSES_MAX 4

struct search {
    struct run_options options;
    struct run_limits *limits; /* the smallest so far that break the rule */
    struct run_result smallest;
    enum rule rule;
    bool progress; /* in this pass */
};

/* Keeps these limits if the rule is still broken. */
static bool try_limits(struct search *search, const struct run_limits *limits)
{
    struct run_result result;
    search->options.limits = limits;
    sim_run(&result, &search->options);
    if (result.verdict.holds || result.verdict.violation.rule != search->rule)
        return false;
    *search->limits = *limits;
    search->smallest = result;
    search->progress = true;
    return true;
}

/* What comes after the violation does not matter. */
static void end_early(struct search *search)
{
    struct run_limits limits = *search->limits;
    limits.end_ns = search->smallest.broken_ns + 1;
    if (limits.end_ns < search->limits->end_ns)
        try_limits(search, &limits);
}

static void leave_out(struct search *search, unsigned first, unsigned n)
{
    struct run_limits limits = *search->limits;
    for (unsigned i = first; i < first + n; i++)
        limits.faults_left_out |= 1u << i;
    if (limits.faults_left_out != search->limits->faults_left_out)
        try_limits(search, &limits);
}

/* Many at once, then fewer: some are needed only as long as another one is there. */
static void leave_out_faults(struct search *search)
{
    unsigned n = search->smallest.n_faults;
    for (unsigned size = n; size > 0; size /= 2) {
        for (unsigned i = 0; i + size <= n; i += size)
            leave_out(search, i, size);
    }
}

static bool try_rounds(struct search *search, unsigned user, unsigned rounds)
{
    struct run_limits limits = *search->limits;
    limits.rounds[user] = rounds;
    return try_limits(search, &limits);
}

/* Nothing at all, or as little as steps of half the rest lead to. */
static void shorten(struct search *search, unsigned user)
{
    unsigned rounds = search->smallest.rounds[user];
    if (rounds == 0 || try_rounds(search, user, 0))
        return;
    for (unsigned step = (rounds + 1) / 2; step > 0; step /= 2) {
        if (step < rounds && try_rounds(search, user, rounds - step))
            rounds -= step;
    }
}

void sim_minimise(struct run_limits *limits, const struct run_options *options,
                  const struct run_result *found)
{
    struct search search = {.options = *options,
                            .limits = limits,
                            .smallest = *found,
                            .rule = found->verdict.violation.rule};
    *limits = RUN_WITHOUT_LIMITS;
    search.options.trace = search.options.story = NULL;
    for (unsigned pass = 0; pass < PASSES_MAX; pass++) {
        search.progress = false;
        end_early(&search);
        leave_out_faults(&search);
        for (unsigned user = 0; user < search.smallest.n_users; user++)
            shorten(&search, user);
        if (!search.progress)
            break;
    }
}
