/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The plots of redlock: several steps, each at the moment at which it hurts most. */
#ifndef STILE_SIM_REDLOCK_PLOTS_H
#define STILE_SIM_REDLOCK_PLOTS_H

#include "sim/engine.h"

struct redlock_group {
    unsigned size;         /* how many servers are its members at the beginning */
    const char *other_url; /* that of another number of nodes */
    bool sizes;            /* several clients named different numbers of nodes */
    bool foreign;          /* other programs use its locks, and count nodes that forgot */
    unsigned forgot;       /* servers that have lost their data, by bits */
};

/* At the beginning of a run. */
void redlock_plots_begin(struct redlock_group *group);
extern const struct fault_class redlock_plots[];

#endif
