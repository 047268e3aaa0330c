/* Inside the recipe for jobs. */
#ifndef STILE_JOBS_H
#define STILE_JOBS_H

#include "core/errand.h"

/* Enters the client, if the engine has jobs and the options make sense. options NULL: defaults. */
enum stile_status jobs_enter(struct stile_client *client, const char *queue,
                             const struct stile_jobs_options *options, struct stile_error *err);
/* The same, if the queue has a name. */
enum stile_status jobs_enter_named(struct stile_client *client, const char *queue,
                                   const struct stile_jobs_options *options,
                                   struct stile_error *err);
/* Whether a lease of so long can be kept; 0: the default. */
enum stile_status jobs_check_lease(int64_t lease_ms, struct stile_error *err);
enum stile_status jobs_check_key(const char *key, struct stile_error *err);

/* Runs a blocking errand to its end and leaves. */
enum stile_status jobs_run(struct errand *errand, struct stile_client *client, int64_t wait_ms,
                           struct stile_error *err);

/* How long a job rests after so many tries: anything from 0 to first_ms * 2^(tries - 1), an hour at
 * most, as the random number has it. */
int64_t jobs_pause_ms(int64_t first_ms, unsigned tries, uint64_t random);

#endif
