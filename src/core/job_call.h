/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on the jobs of an engine: sent, waited for, answered.
 *
 * A claim that found nothing waits here: until something comes into its queue (reported by the
 * engine, or found by polling), until the next job is due, or until its time is over. */
#ifndef STILE_JOB_CALL_H
#define STILE_JOB_CALL_H

#include "core/client.h"

/* On a blocking caller's stack, or allocated for an async one. */
struct job_call {
    struct job_request job;
    struct stile_client *client;
    struct job_call *next, **link; /* of the client's, until it is answered */
    struct follower follower;
    struct stile_error error; /* status OK unless it failed */
    bool asked;               /* the engine has it */
    bool arrived;             /* a job has arrived since the last request */
    bool cancelled;
    bool out_of_memory;

    /* claims */
    uint64_t until_ns; /* 0: looks once */
    struct timer timer;
    unsigned looks;
    struct stile_error last; /* of the last request; OK: there was no job */

    /* what the engine has reported */
    struct stile_job *jobs; /* owned until the caller takes it */
    size_t n, room;
    struct stile_queue *queues;
    size_t n_queues, room_queues;

    struct stile_job *given; /* what the marks are of */
    size_t n_given;
    struct callback callback;
    void (*answered)(struct job_call *call); /* async: comes once, without the mutex */
};

/* With the mutex. wait_ms: as for stile_jobs_claim(); 0 for all others. The loop has a timer
 * reserved for a claim. */
void job_call_start(struct job_call *call, struct stile_client *client, int64_t wait_ms);
void job_call_cancel_all(struct stile_client *client);
void job_call_interrupt(struct follower *follower); /* of a claim that waits */
/* Closing: calls that the engine has not answered are given up after engine->close(). */
void job_call_abandon_all(struct stile_client *client);

void job_call_free_jobs(struct stile_job *jobs, size_t n);
void job_call_free_queues(struct stile_queue *queues, size_t n);

/* As engine_events has them. */
void job_call_job(struct job_request *job, const struct stile_job *given);
void job_call_mark(struct job_request *job, uint64_t token);
void job_call_queue(struct job_request *job, const struct stile_queue *given);
void job_call_done(struct job_request *job, const struct stile_error *err);
void job_call_arrived(struct engine *engine, const char *queue);

#endif
