/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a run that breaks a rule smaller: fewer faults, users and claims, and an early end. */
#ifndef STILE_SIM_MINIMISE_H
#define STILE_SIM_MINIMISE_H

#include "sim/run.h"

/* found is how the run of these options ended. What is left breaks the same rule, and leaving out
 * one more fault, user or claim does not. */
void sim_minimise(struct run_limits *limits, const struct run_options *options,
                  const struct run_result *found);

#endif
