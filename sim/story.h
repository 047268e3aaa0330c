/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A run as JSON, for the page in web/.
 *
 * One object: what was run, the verdict, and under "rows" everything that happened, in order. A row
 * is an array: its kind, the time in nanoseconds, and what belongs to the kind:
 *
 *     ["sent", ns, piece, connection, from, to, text]   text: a line for each request or answer
 *     ["late", ns, piece]             held up: it should have arrived by now
 *     ["came", ns, piece]             it arrived; what follows from that comes behind it
 *     ["lost", ns, piece]
 *     ["told", ns, event, {...}]      an event of the history (sim/history.h), by its number
 *     ["line", ns, text]              a line of the trace
 *     ["fault", ns, text, client, server]    either may be null
 *     ["healed", ns, text, client, server]
 *     ["say", ns, text]               a caption that an author has written
 *     ["client", ns, name, state, number]    "opening", "running", "paused", "dead"
 *     ["server", ns, name, state, clock]     "running", "stopped", "down"; how far its clock is
 * off, in microseconds
 *     ["stored", ns, server, name, holder, until, fence]   what a server has about a lock
 *
 * Numbers above 2^53 would not survive JSON: tokens are strings. Times do; null means "no end".
 */
#ifndef STILE_SIM_STORY_H
#define STILE_SIM_STORY_H

#include "sim/engine.h"

struct story_run {
    const char *engine, *url;
    uint64_t seed;
    unsigned users;
    unsigned rules; /* that were checked, by bits */
    const struct verdict *verdict;
};

/* After world_begin() and net_begin(). Everything is written to *out from now on. */
void story_begin(FILE *out);
/* Nothing happens unless a story was begun. */
void story_fault(const struct fault *fault, bool strikes);
void story_note_fault(const char *text, const char *client, const char *server, bool strikes);
/* A process, before it has sent anything. */
void story_meet(const struct process *process);
/* ["say", ns, text]: a caption. */
void story_say(const char *text);
/* Before anything is freed: what happens after that is not part of the run. */
void story_end(const struct story_run *run);

#endif
