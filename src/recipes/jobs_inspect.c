/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for operators: listing, showing, counting, retrying and dropping. */
#include <string.h>

#include "recipes/jobs_call.h"

#define LIST_MAX 1000

/* A call on a queue, or on all ("") where the verb allows it. */
static enum stile_status begin_on_queue(struct job_call *call, enum job_verb verb,
                                        struct stile_client *client, const char *queue, uint64_t id,
                                        struct stile_error *err)
{
    enum stile_status status = jobs_enter(client, queue, err);
    if (status)
        return status;
    *call = (struct job_call){
        .client = client,
        .job = {.verb = verb, .queue = queue, .queue_len = strlen(queue), .id = id}};
    return STILE_OK;
}

static enum stile_status begin_list(struct job_call *call, struct stile_client *client,
                                    const char *queue, const struct stile_jobs_options *options,
                                    struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = jobs_read_options(&o, options, err);
    if (!status)
        status = begin_on_queue(call, JOB_LIST, client, queue, 0, err);
    if (status)
        return error_wrap(err, status, "listing jobs");
    call->job.max = o.max ? o.max : LIST_MAX;
    call->job.filter = o.filter;
    return STILE_OK;
}

enum stile_status stile_jobs_list(struct stile_client *client, const char *queue,
                                  const struct stile_jobs_options *options, stile_job_fn *fn,
                                  void *data, struct stile_error *err)
{
    struct job_call call;
    enum stile_status status = begin_list(&call, client, queue, options, err);
    if (status)
        return status;
    status = jobs_run(&call, 0, err);
    jobs_hand_out(&call, fn, data);
    jobs_free_results(&call);
    return status;
}

enum stile_status stile_jobs_list_async(struct stile_client *client, const char *queue,
                                        const struct stile_jobs_options *options, stile_job_fn *fn,
                                        stile_query_done_fn *done, void *data)
{
    struct job_call call;
    if (!done)
        return STILE_MISUSE;
    enum stile_status status = begin_list(&call, client, queue, options, NULL);
    if (status)
        return status;
    return jobs_start(&call, 0,
                      (struct jobs_callbacks){.each_job = fn, .over = done, .data = data});
}

/* ---- show ---- */

static enum stile_status begin_show(struct job_call *call, struct stile_client *client,
                                    const char *queue, uint64_t id, struct stile_error *err)
{
    enum stile_status status = id ? begin_on_queue(call, JOB_SHOW, client, queue, id, err)
                                  : error_set(err, STILE_MISUSE, 0, "no job has the number 0");
    return status ? error_wrap(err, status, "showing a job") : STILE_OK;
}

enum stile_status stile_jobs_show(struct stile_job **job, struct stile_client *client,
                                  const char *queue, uint64_t id, struct stile_error *err)
{
    struct job_call call;
    if (!job)
        return error_set(err, STILE_MISUSE, 0, "showing a job: no place for it");
    *job = NULL;
    enum stile_status status = begin_show(&call, client, queue, id, err);
    if (status)
        return status;
    status = jobs_run(&call, 0, err);
    if (status)
        jobs_free_results(&call);
    *job = call.jobs;
    return status;
}

enum stile_status stile_jobs_show_async(struct stile_client *client, const char *queue, uint64_t id,
                                        stile_jobs_fn *fn, void *data)
{
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_show(&call, client, queue, id, NULL);
    return status ? status
                  : jobs_start(&call, 0, (struct jobs_callbacks){.jobs = fn, .data = data});
}

/* ---- count, retry, drop ---- */

static enum stile_status begin_count(struct job_call *call, struct stile_client *client,
                                     const char *queue, struct stile_error *err)
{
    enum stile_status status = begin_on_queue(call, JOB_COUNT, client, queue ? queue : "", 0, err);
    return status ? error_wrap(err, status, "counting jobs") : STILE_OK;
}

enum stile_status stile_jobs_count(struct stile_client *client, const char *queue,
                                   stile_queue_fn *fn, void *data, struct stile_error *err)
{
    struct job_call call;
    enum stile_status status = begin_count(&call, client, queue, err);
    if (status)
        return status;
    status = jobs_run(&call, 0, err);
    jobs_hand_out_queues(&call, fn, data);
    jobs_free_results(&call);
    return status;
}

enum stile_status stile_jobs_count_async(struct stile_client *client, const char *queue,
                                         stile_queue_fn *fn, stile_query_done_fn *done, void *data)
{
    struct job_call call;
    if (!done)
        return STILE_MISUSE;
    enum stile_status status = begin_count(&call, client, queue, NULL);
    if (status)
        return status;
    return jobs_start(&call, 0,
                      (struct jobs_callbacks){.each_queue = fn, .over = done, .data = data});
}

enum stile_status stile_jobs_retry(size_t *n, struct stile_client *client, const char *queue,
                                   uint64_t id, struct stile_error *err)
{
    struct job_call call;
    enum stile_status status = begin_on_queue(&call, JOB_RETRY, client, queue, id, err);
    if (status)
        return error_wrap(err, status, "retrying a job");
    status = jobs_run(&call, 0, err);
    if (n)
        *n = status ? 0 : call.job.count;
    return status;
}

enum stile_status stile_jobs_drop(struct stile_client *client, const char *queue, uint64_t id,
                                  struct stile_error *err)
{
    struct job_call call;
    enum stile_status status = begin_on_queue(&call, JOB_DROP, client, queue, id, err);
    return status ? error_wrap(err, status, "dropping a job") : jobs_run(&call, 0, err);
}

static enum stile_status start_on_queue(enum job_verb verb, struct stile_client *client,
                                        const char *queue, uint64_t id, stile_jobs_done_fn *fn,
                                        void *data)
{
    struct job_call call;
    enum stile_status status =
        fn ? begin_on_queue(&call, verb, client, queue, id, NULL) : STILE_MISUSE;
    return status ? status
                  : jobs_start(&call, 0, (struct jobs_callbacks){.done = fn, .data = data});
}

enum stile_status stile_jobs_retry_async(struct stile_client *client, const char *queue,
                                         uint64_t id, stile_jobs_done_fn *fn, void *data)
{
    return start_on_queue(JOB_RETRY, client, queue, id, fn, data);
}

enum stile_status stile_jobs_drop_async(struct stile_client *client, const char *queue, uint64_t id,
                                        stile_jobs_done_fn *fn, void *data)
{
    return start_on_queue(JOB_DROP, client, queue, id, fn, data);
}
