/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A loop in virtual time, for tests: nothing sleeps and nothing is random.
 *
 * Time stands still, except that a blocking wait() with nothing ready jumps to the earliest timer.
 * With no timer either, nothing could ever happen again: it aborts with "deadlock in virtual time",
 * so that a test that would hang fails. In a process with several threads another one gets some
 * real time first, to kick, arm or fire.
 *
 * Watched file descriptors are never looked at; loop_virtual_fire() makes them ready. */
#ifndef STILE_LOOP_VIRTUAL_H
#define STILE_LOOP_VIRTUAL_H

#include "io/loop.h"

#define LOOP_VIRTUAL_START_NS (1000 * NS_PER_SEC)

/* 0 or an errno value. The same seed gives the same random bytes. */
int loop_virtual_new(struct loop **loop, uint64_t seed);

/* Lets ns pass, and runs the loop whenever something is due on the way, in order. For loops without
 * a mutex around them. */
void loop_virtual_advance(struct loop *loop, uint64_t ns);

/* Lets ns pass, and runs nothing: what is due by then is late. */
void loop_virtual_jump(struct loop *loop, uint64_t ns);

/* The next wait() finds these events on fd, once, as far as they are asked for. False: nobody
 * watches it. */
bool loop_virtual_fire(struct loop *loop, int fd, uint32_t events);

/* What is asked for on fd; 0: nobody watches it. */
uint32_t loop_virtual_asked(struct loop *loop, int fd);

#endif
