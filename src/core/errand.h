/* Errands to the jobs of an engine: asked, waited for, answered.
 *
 * A claim that found nothing waits here: until something comes into its queue (told by the engine,
 * or found by looking again), until the next job is due, or until its time is over. */
#ifndef STILE_ERRAND_H
#define STILE_ERRAND_H

#include "core/client.h"

/* On a blocking caller's stack, or allocated for an async one. */
struct errand {
    struct job_errand job;
    struct stile_client *client;
    struct errand *next, **link; /* of the client's, until it is answered */
    struct follower follower;
    struct stile_error error; /* status OK unless it failed */
    bool asked;               /* the engine has it */
    bool stirred;             /* something has come since it was asked last */
    bool cancelled;
    bool out_of_memory;

    /* claims */
    uint64_t until_ns; /* 0: looks once */
    struct timer timer;
    unsigned looks;
    struct stile_error last; /* what the last look was answered; OK: there was nothing */

    /* what was told */
    struct stile_job *jobs; /* owned until somebody takes it */
    size_t n, room;
    struct stile_queue *queues;
    size_t n_queues, room_queues;

    struct stile_job *given; /* what the marks are of */
    struct note note;
    void (*answered)(struct errand *errand); /* async: comes once, without the mutex */
    void *data;
    stile_jobs_fn *fn;
};

/* With the mutex. wait_ms: as for stile_jobs_claim(); 0 for all others. The loop has a timer
 * reserved for a claim. */
void errand_start(struct errand *errand, struct stile_client *client, int64_t wait_ms);
void errand_cancel_all(struct stile_client *client);
/* Closing: what is still with the engine is given up after engine->close(). */
void errand_abandon_all(struct stile_client *client);

void errand_free_jobs(struct stile_job *jobs, size_t n);
void errand_free_queues(struct stile_queue *queues, size_t n);

/* As engine_events has them. */
void errand_job(struct job_errand *job, const struct stile_job *told);
void errand_mark(struct job_errand *job, uint64_t token);
void errand_queue(struct job_errand *job, const struct stile_queue *told);
void errand_done(struct job_errand *job, const struct stile_error *err);
void errand_stir(struct engine *engine, const char *queue);

#endif
