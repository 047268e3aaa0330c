/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What every call on jobs goes through: its checks, the request to the engine, and its answer, to a
 * caller that waits for it or to a callback. */
#ifndef STILE_JOBS_CALL_H
#define STILE_JOBS_CALL_H

#include "core/job_call.h"

#define JOBS_LEASE_DEFAULT_MS 30000

/* ---- checks ---- */

enum stile_status jobs_read_options(struct stile_jobs_options *o,
                                    const struct stile_jobs_options *options,
                                    struct stile_error *err);
enum stile_status jobs_check_lease(int64_t lease_ms, struct stile_error *err);
enum stile_status jobs_check_key(const char *key, struct stile_error *err);
/* For errors: "adding to", ... */
const char *jobs_doing(enum job_verb verb);

/* Enters the client, if the engine has jobs. jobs_run() and jobs_start() leave it. */
enum stile_status jobs_enter(struct stile_client *client, const char *queue,
                             struct stile_error *err);
/* The same, with the caller's options, and only if the queue has a name. */
enum stile_status jobs_enter_queue(struct stile_jobs_options *o, struct stile_client *client,
                                   const char *queue, const struct stile_jobs_options *options,
                                   struct stile_error *err);

/* ---- calling ---- */

/* Runs the call to its end and leaves the client. */
enum stile_status jobs_run(struct job_call *call, int64_t wait_ms, struct stile_error *err);
void jobs_free_results(struct job_call *call);
/* Calls fn for each, without the mutex. */
void jobs_hand_out(const struct job_call *call, stile_job_fn *fn, void *data);
void jobs_hand_out_queues(const struct job_call *call, stile_queue_fn *fn, void *data);

/* What an async call ends in. */
struct jobs_callbacks {
    stile_jobs_fn *jobs;        /* claim, show, ack, fail, give back, extend */
    stile_jobs_done_fn *done;   /* add, retry, drop */
    stile_query_done_fn *over;  /* list, count */
    stile_job_fn *each_job;     /* list */
    stile_queue_fn *each_queue; /* count */
    void *data;
};

/* Starts it with copies of what it was given, and leaves the client. */
enum stile_status jobs_start(const struct job_call *call, int64_t wait_ms,
                             struct jobs_callbacks callbacks);

#endif
