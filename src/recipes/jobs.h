/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the recipe for jobs. */
#ifndef STILE_JOBS_RECIPE_H
#define STILE_JOBS_RECIPE_H

#include <stddef.h>
#include <stdint.h>

/* How long a job pauses after this many tries: from 0 to first_ms * 2^(tries - 1), an hour at most,
 * chosen by the random number. */
int64_t jobs_pause_ms(int64_t first_ms, unsigned tries, uint64_t random);

/* A copy in which control characters, but for line breaks and tabs, and what isn't UTF-8 have
 * become question marks; cut at the end of a character. */
void jobs_clean_text(char *out, size_t size, const char *text);

#endif
