/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A run that a person has written instead of a seed: web/stories/NAME.story, docs/play.md.
 *
 * A line is a setting, or what happens at a time. docs/play.md has all of them; the shape is
 *
 *     engine redlock                  which simulated servers
 *     clients A B                     their names, eight at most
 *     at 0.5 A asks x ttl 3 wait 10   a client and its lock
 *     at 1 A sets x ttl 3             the same by hand, without the library (sim/plain.h)
 *     at 3 n1 stops                   a server (sim/script_faults.h)
 *     at 4 A n2 cut                   the path between the two
 *     at 5 message 17 held            one message, by its number in the run
 *     at 6 say TEXT                   a caption
 *
 * A name stands for one lock and one store.
 */
#ifndef STILE_SIM_SCRIPT_H
#define STILE_SIM_SCRIPT_H

#include "sim/run.h"

#define SCRIPT_ERROR_MAX 160

/* Runs it and writes the rows to *page. False: the line in error[] is wrong. */
bool script_run(struct run_result *result, const char *text, FILE *page,
                char error[SCRIPT_ERROR_MAX]);

#endif
