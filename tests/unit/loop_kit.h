/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A loop of a class that only counts calls, in a time of its own. */
#ifndef STILE_LOOP_KIT_H
#define STILE_LOOP_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/loop.h"

extern struct loop the_loop;
extern uint64_t now, rearmed_ns;
extern unsigned rearms;
extern char trace[64];
extern struct task delivered_task; /* put off by what is delivered, if it has a function */

int fake_loop_open(void **state);
int fake_loop_close(void **state);
void trace_say(const char *what);
void trace_task(struct task *task);
void trace_b(struct timer *timer); /* says "b" */

#endif
