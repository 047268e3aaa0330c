/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time: what happens when, in one thread and without sleeping.
 *
 * One run has one world. Whatever will happen waits in a heap, ordered by its time and then by the
 * order in which it was put there. Randomness comes from streams that a seed and a label make, so
 * that leaving out one fault does not change what all the others do. Memory of the world lasts
 * until the end of the run: an event may come later than the end of what it is about.
 */
#ifndef STILE_SIM_WORLD_H
#define STILE_SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/history.h"

#define US  UINT64_C(1000)
#define MS  UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

#define WORLD_EPOCH_S UINT64_C(1750000000) /* what wall clocks show at the beginning */

/* ---- randomness ---- */

struct random {
    uint64_t state;
};

struct random random_stream(uint64_t seed, uint64_t label);
uint64_t random_next(struct random *random);
/* From 0 to n - 1; 0 if n is 0. */
uint64_t random_below(struct random *random, uint64_t n);
/* From low to high, both included. */
uint64_t random_between(struct random *random, uint64_t low, uint64_t high);
/* True once in n. */
bool random_once_in(struct random *random, uint64_t n);

/* ---- time ---- */

typedef void happening_fn(void *data);

void world_begin(uint64_t seed, FILE *trace);
void world_end(void);
uint64_t world_now(void);
uint64_t world_seed(void);
struct history *world_history(void);

/* Puts it off until then, or until now if that is past. */
void world_at(uint64_t at_ns, happening_fn *fn, void *data);
/* Lets the next thing happen, if that is not later than until_ns. False: it is, or there is none.
 */
bool world_step(uint64_t until_ns);
/* Lets everything happen until then. */
void world_run(uint64_t until_ns);
/* So much has happened that two parts of it must be answering each other forever; nothing happens
 * any longer. */
bool world_is_endless(void);

/* Zeroed, and freed by world_end(). Ends the program if there is none. */
void *world_alloc(size_t size);
char *world_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- observers ---- */

/* It follows the run and does not change it. */
struct world_observer {
    void (*traced)(const char *line); /* a line of the trace, without its time */
    void (*stepped)(void);            /* something has happened */
};

/* Until the end of the run; NULL: no longer. */
void world_observe(const struct world_observer *observer);

/* ---- the trace ---- */

/* One line with the time before it: for a reader, if the trace is printed, and for the sum by which
 * two runs of a seed are compared. */
void world_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t world_trace_sum(void);
/* The run is judged. What clients are told while they are removed is no part of it. */
uint64_t world_trace_end(void);

#endif
