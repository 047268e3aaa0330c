/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a written story does to servers, to paths and to single messages (sim/script.h). */
#ifndef STILE_SIM_SCRIPT_FAULTS_H
#define STILE_SIM_SCRIPT_FAULTS_H

#include "sim/engine.h"

void script_faults_begin(void); /* of a new run */

bool script_server_verb(const char *verb);
/* Returns the rules that no longer hold, by bits. */
unsigned script_break_server(const struct sim_engine_class *engine, struct server *server,
                             const char *verb, double seconds);

bool script_path_state(const char *how);
void script_break_path(const struct process *process, const struct server *server, const char *how);

bool script_message_fate(const char *fate);
/* Nothing happens if it is no longer under way. */
void script_break_message(uint64_t piece, const char *fate, double seconds);

#endif
