/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A lack of memory, made to measure: one allocation fails, or all from one on. For tests that are
 * linked with --wrap (scarcity_dep), so that malloc() and the others come here first. */
#ifndef STILE_TEST_SCARCITY_H
#define STILE_TEST_SCARCITY_H

#include <stdatomic.h>
#include <stdbool.h>

extern struct scarcity {
    bool armed, and_all_that_follow;
    unsigned at;           /* the first that fails, counted from 0 */
    unsigned seen, failed; /* since scarcity_begin() */
} scarcity;

extern _Atomic long scarcity_outstanding; /* allocated and not yet freed */
extern const bool scarcity_of_memory;     /* else of what system calls give: refusals.c */

void scarcity_begin(unsigned at, bool and_all_that_follow);
void scarcity_end(void);

#endif
