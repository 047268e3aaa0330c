/* Inside the recipe for jobs. */
#ifndef STILE_JOBS_RECIPE_H
#define STILE_JOBS_RECIPE_H

#include <stdint.h>

/* How long a job pauses after this many tries: from 0 to first_ms * 2^(tries - 1), an hour at most,
 * chosen by the random number. */
int64_t jobs_pause_ms(int64_t first_ms, unsigned tries, uint64_t random);

#endif
