/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Operators: they break locks, and change which servers belong to a group.
 *
 * Each errand has a process of its own, unless a client does it. It may die at any moment: between
 * two requests, or when only some of the servers have executed one.
 */
#ifndef STILE_SIM_OPERATORS_H
#define STILE_SIM_OPERATORS_H

#include "sim/process.h"

/* A client breaks one of the locks. */
void operator_break(unsigned name);
/* The one that this user asks for or holds, or has asked for last. */
void operator_break_of(unsigned user);

struct process *operator_new(void);
/* It runs `stile doctor --adopt URL`, while the world goes on; NULL: the clients' URL. */
void operator_adopt(struct process *process, const char *url);
/* It runs `stile doctor --resize URL`; processes that start later use this URL. */
void operator_resize(struct process *process, const char *url);
/* It opens a client, and breaks this lock (a number) a moment later. */
void operator_start_break(struct process *process, unsigned name);

/* Nothing happens if its errand is done. What it has sent to the servers of `reached` (bits, by
 * their numbers) is executed, what it has sent to the others is lost, and it sends nothing more. */
void operator_die(struct process *process, unsigned reached);

#endif
