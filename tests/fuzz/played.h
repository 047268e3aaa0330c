/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* An engine below the real core, on a loop in virtual time, for targets that play its server: the
 * bytes of the input decide what is asked of the engine and what it is answered. Whatever that is,
 * each call must end, and touch no memory but its own. */
#ifndef STILE_FUZZ_PLAYED_H
#define STILE_FUZZ_PLAYED_H

#include "engines/engine.h"
#include "fuzz/fuzz.h"

extern struct loop *played_loop;

/* ---- the input ---- */

unsigned played_next(void); /* 0 behind its end */
unsigned played_pick(unsigned n);
bool played_is_over(void);
/* Up to most bytes as they are. */
const uint8_t *played_bytes(size_t *n, size_t most);

/* How long the server takes for its next answer: mostly not at all. Behind the input time passes,
 * so that every wait ends. */
uint64_t played_delay_ns(void);

/* Makes a descriptor ready, so that the next turn of the loop finds it. */
void played_fire(int fd, uint32_t events);

/* ---- the client ---- */

/* Opens one of these URLs, does with it what the input says, and closes it. */
void played_run(const struct engine_class *class, const char *const *urls, size_t n_urls,
                const uint8_t *data, size_t size);

#endif
