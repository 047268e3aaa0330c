/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/jobs_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "base/options.h"
#include "base/text.h"

#define LEASE_MIN_MS    10
#define DURATION_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)

static const struct options_kind kind = {
    .name = "job options",
    .macro = "STILE_JOBS_OPTIONS",
    .size = sizeof(struct stile_jobs_options),
    .least = OPTIONS_UP_TO(struct stile_jobs_options, n_done),
};

/* ---- checking and calling ---- */

static enum stile_status check_duration(const char *what, int64_t ms, struct stile_error *err)
{
    if (ms < 0 || ms > DURATION_MAX_MS)
        return error_set(err, STILE_MISUSE, 0, "%s must be between 0 and 366 days", what);
    return STILE_OK;
}

/* Whether a lease of this length can be kept; 0: the default. */
enum stile_status jobs_check_lease(int64_t lease_ms, struct stile_error *err)
{
    if (lease_ms != 0 && lease_ms < LEASE_MIN_MS)
        return error_set(err, STILE_MISUSE, 0, "a lease below %d ms can't be kept", LEASE_MIN_MS);
    return check_duration("lease", lease_ms, err);
}

enum stile_status jobs_check_key(const char *key, struct stile_error *err)
{
    return name_check(key, strlen(key), err) ? error_wrap(err, STILE_MISUSE, "its key") : STILE_OK;
}

enum stile_status jobs_read_options(struct stile_jobs_options *o,
                                    const struct stile_jobs_options *options,
                                    struct stile_error *err)
{
    enum stile_status status = options_read(o, options, &kind, err);
    if (status)
        return status;
    if (o->filter > STILE_JOBS_DEAD)
        return error_set(err, STILE_MISUSE, 0, "%d is no filter", (int)o->filter);
    if (o->tries > STILE_JOB_TRIES_MAX)
        return error_set(err, STILE_MISUSE, 0, "at most %d tries can be counted",
                         STILE_JOB_TRIES_MAX);
    status = check_duration("delay", o->delay_ms, err);
    if (!status)
        status = check_duration("backoff", o->backoff_ms, err);
    if (!status)
        status = jobs_check_lease(o->lease_ms, err);
    if (!status && o->key)
        status = jobs_check_key(o->key, err);
    return status;
}

static enum stile_status check_jobs(struct stile_client *client, struct stile_error *err)
{
    if (client->engine->class->jobs)
        return STILE_OK;
    return error_set(err, STILE_UNSUPPORTED, 0,
                     "%s keeps no jobs: use an engine that does (stile caps URL prints it)",
                     client->engine->caps.engine);
}

enum stile_status jobs_enter(struct stile_client *client, const char *queue,
                             struct stile_error *err)
{
    if (!queue)
        return error_set(err, STILE_MISUSE, 0, "no queue given");
    enum stile_status status = *queue ? name_check(queue, strlen(queue), err) : STILE_OK;
    if (!status)
        status = client_enter_for_locks(client, err);
    if (status)
        return status;
    status = check_jobs(client, err);
    if (status)
        client_leave(client);
    return status;
}

enum stile_status jobs_enter_queue(struct stile_jobs_options *o, struct stile_client *client,
                                   const char *queue, const struct stile_jobs_options *options,
                                   struct stile_error *err)
{
    if (queue && !*queue)
        return error_set(err, STILE_MISUSE, 0, "the queue's name is empty");
    enum stile_status status = jobs_read_options(o, options, err);
    return status ? status : jobs_enter(client, queue, err);
}

/* ---- the end of a call ---- */

/* For errors. */
static const struct {
    const char *doing;
    bool queue; /* its name follows */
} verbs[JOB_VERBS] = {
    [JOB_ADD] = {"adding to", true},          [JOB_CLAIM] = {"claiming a job of", true},
    [JOB_ACK] = {"finishing a job"},          [JOB_FAIL] = {"failing a job"},
    [JOB_GIVE_BACK] = {"giving a job back"},  [JOB_EXTEND] = {"extending a job"},
    [JOB_LIST] = {"listing jobs of", true},   [JOB_SHOW] = {"showing a job of", true},
    [JOB_COUNT] = {"counting jobs"},          [JOB_RETRY] = {"retrying jobs of", true},
    [JOB_DROP] = {"dropping a job of", true},
};

const char *jobs_doing(enum job_verb verb)
{
    return verbs[verb].doing;
}

/* A claim that found nothing has acknowledged what it could: the other jobs were refused. */
static void conclude_given(struct job_call *call)
{
    struct stile_error *err = &call->error;
    bool claim = call->job.verb == JOB_CLAIM;
    bool known = claim && (err->status == STILE_TIMEOUT || err->status == STILE_CANCELLED);
    size_t refused = 0;
    for (size_t i = 0; i < call->n_given; i++) {
        if (err->status && !known)
            call->given[i].status = err->status;
        refused += call->given[i].status == STILE_STALE;
    }
    if (!err->status && !claim && refused > 0)
        error_set(err, STILE_STALE, 0,
                  call->n_given == 1
                      ? "its lease has run out; another worker may have the job"
                      : "some leases have run out; other workers may have those jobs");
}

static void conclude_count(struct job_call *call)
{
    unsigned long long id = call->job.id;
    if (call->error.status || call->job.count > 0)
        return;
    if (call->job.verb == JOB_DROP)
        error_set(&call->error, STILE_CONFLICT, 0,
                  "no job has the number %llu, or a worker has it at this moment", id);
    else
        error_set(&call->error, STILE_CONFLICT, 0,
                  id ? "no dead job has the number %llu, or another one with its key waits"
                     : "no job is dead, or others with their keys are waiting",
                  id);
}

static void conclude(struct job_call *call)
{
    enum job_verb verb = call->job.verb;
    struct stile_error *err = &call->error;
    conclude_given(call);
    if (verb == JOB_RETRY || verb == JOB_DROP)
        conclude_count(call);
    if (verb == JOB_SHOW && !err->status && call->n == 0)
        error_set(err, STILE_CONFLICT, 0,
                  "no job has the number %llu: it is done, was dropped or has got a new number "
                  "by a retry",
                  (unsigned long long)call->job.id);
    if (err->status && verbs[verb].queue)
        error_wrap(err, err->status, "%s '%s'", verbs[verb].doing, call->job.queue);
    else if (err->status)
        error_wrap(err, err->status, "%s", verbs[verb].doing);
}

void jobs_free_results(struct job_call *call)
{
    job_call_free_jobs(call->jobs, call->n);
    job_call_free_queues(call->queues, call->n_queues);
    call->jobs = NULL;
    call->n = 0;
}

void jobs_hand_out(const struct job_call *call, stile_job_fn *fn, void *data)
{
    size_t n = call->error.status || !fn ? 0 : call->n;
    for (size_t i = 0; i < n && fn(&call->jobs[i], data) == 0; i++)
        ;
}

void jobs_hand_out_queues(const struct job_call *call, stile_queue_fn *fn, void *data)
{
    size_t n = call->error.status || !fn ? 0 : call->n_queues;
    for (size_t i = 0; i < n && fn(&call->queues[i], data) == 0; i++)
        ;
}

/* ---- blocking calls ---- */

enum stile_status jobs_run(struct job_call *call, int64_t wait_ms, struct stile_error *err)
{
    struct stile_client *client = call->client;
    if (loop_reserve(client->loop, 1)) {
        error_set(&call->error, STILE_NOMEM, 0, "out of memory");
    } else {
        if (call->job.verb == JOB_CLAIM)
            call->follower.interrupt = job_call_interrupt;
        job_call_start(call, client, wait_ms);
        drive_until(client, &call->follower);
        loop_unreserve(client->loop, 1);
    }
    client_leave(client);
    conclude(call);
    if (call->error.status)
        error_copy(err, &call->error);
    return call->error.status;
}

/* ---- async calls ---- */

/* A call whose caller has gone on, with copies of what it was given. */
struct later {
    struct job_call call;
    struct jobs_callbacks to;
    max_align_t copies[];
};

static void report(struct later *later)
{
    struct job_call *call = &later->call;
    enum stile_status status = call->error.status;
    const struct stile_error *err = status ? &call->error : NULL;
    switch (call->job.verb) {
    case JOB_ADD:
        later->to.done(status ? NULL : call->job.ids, status ? 0 : call->job.n_entries, status, err,
                       later->to.data);
        break;
    case JOB_RETRY:
    case JOB_DROP:
        later->to.done(NULL, status ? 0 : call->job.count, status, err, later->to.data);
        break;
    case JOB_LIST:
        jobs_hand_out(call, later->to.each_job, later->to.data);
        later->to.over(call->client, status, err, later->to.data);
        break;
    case JOB_COUNT:
        jobs_hand_out_queues(call, later->to.each_queue, later->to.data);
        later->to.over(call->client, status, err, later->to.data);
        break;
    default:
        later->to.jobs(call->given, call->n_given, status, err, later->to.data);
    }
}

/* The jobs are the user's from now on. */
static void report_found(struct later *later)
{
    struct job_call *call = &later->call;
    enum stile_status status = call->error.status;
    struct stile_job *jobs = status ? NULL : call->jobs;
    size_t n = status ? 0 : call->n;
    if (!status) {
        call->jobs = NULL;
        call->n = 0;
    }
    later->to.jobs(jobs, n, status, status ? &call->error : NULL, later->to.data);
}

static void answered(struct job_call *call)
{
    struct later *later = (struct later *)call;
    struct stile_client *client = call->client;
    pthread_mutex_lock(&client->mutex);
    loop_unreserve(client->loop, 1);
    pthread_mutex_unlock(&client->mutex);
    conclude(call);
    if (call->job.verb == JOB_CLAIM || call->job.verb == JOB_SHOW)
        report_found(later);
    else
        report(later);
    jobs_free_results(call);
    free(later);
}

static size_t size_of_copies(const struct job_request *job)
{
    size_t size = job->n * sizeof *job->marks + text_size(job->queue) + text_size(job->text);
    for (size_t i = 0; i < job->n_entries; i++)
        size += sizeof *job->entries + sizeof *job->ids + job->entries[i].size +
                text_size(job->entries[i].key);
    return size;
}

/* What has to be aligned comes first. */
static void copy_arguments(struct later *later)
{
    struct job_request *job = &later->call.job;
    struct stile_job_entry *entries = (struct stile_job_entry *)later->copies;
    uint64_t *ids = (uint64_t *)(entries + job->n_entries);
    struct job_mark *marks = (struct job_mark *)(ids + job->n_entries);
    char *at = (char *)(marks + job->n);
    for (size_t i = 0; i < job->n_entries; i++) {
        const struct stile_job_entry *entry = &job->entries[i];
        entries[i] = *entry;
        if (entry->size > 0)
            entries[i].payload = memcpy(at, entry->payload, entry->size);
        at += entry->size;
        entries[i].key = text_pack(&at, entry->key);
    }
    if (job->n > 0)
        memcpy(marks, job->marks, job->n * sizeof *marks);
    job->entries = entries;
    job->ids = ids;
    job->marks = marks;
    job->queue = text_pack(&at, job->queue);
    job->text = text_pack(&at, job->text);
}

enum stile_status jobs_start(const struct job_call *call, int64_t wait_ms,
                             struct jobs_callbacks callbacks)
{
    struct stile_client *client = call->client;
    struct later *later = malloc(sizeof *later + size_of_copies(&call->job));
    if (!later || loop_reserve(client->loop, 1)) {
        free(later);
        client_leave(client);
        return STILE_NOMEM;
    }
    *later = (struct later){.call = *call, .to = callbacks};
    later->call.answered = answered;
    copy_arguments(later);
    job_call_start(&later->call, client, wait_ms);
    client_leave(client);
    return STILE_OK;
}
