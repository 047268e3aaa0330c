/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of clients and of the network, which every engine has, and parts for the tables of
 * engines. */
#ifndef STILE_SIM_FAULTS_H
#define STILE_SIM_FAULTS_H

#include "sim/engine.h"

/* The last one of a table has no text. */
extern const struct fault_class shared_faults[];
extern const struct fault_class more_faults[]; /* of the runs with more (sim/run.c) */
extern const struct race shared_races[];       /* of those with races */

/* ---- for the tables of engines ---- */

/* A server is stopped: its kernel accepts and buffers, and it does nothing. */
void strike_stop(struct fault *fault);
void heal_stop(struct fault *fault);
/* A server's clock jumps, by up to 20 s, and stays so. */
void strike_clock_forward(struct fault *fault);
void strike_clock_back(struct fault *fault);
/* An operator breaks a lock. */
void strike_break(struct fault *fault);
/* The lock that its user is concerned with. */
void strike_break_of(struct fault *fault);
/* Its clock runs up to 0.8 % too fast or too slow. */
void strike_drift(struct fault *fault);
void heal_drift(struct fault *fault);

#endif
