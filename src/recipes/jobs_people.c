/* Jobs, for people: what there is, and what becomes of dead ones. */
#include <string.h>

#include "recipes/jobs.h"

#define LIST_MAX 1000

enum stile_status stile_jobs_list(struct stile_client *client, const char *queue,
                                  const struct stile_jobs_options *options, stile_job_fn *fn,
                                  void *data, struct stile_error *err)
{
    enum stile_status status = jobs_enter(client, queue, options, err);
    if (status)
        return error_wrap(err, status, "listing jobs");
    struct errand e = {.job = {.verb = JOB_LIST,
                               .queue = queue,
                               .queue_len = strlen(queue),
                               .max = options && options->max ? options->max : LIST_MAX}};
    status = jobs_run(&e, client, 0, err);
    for (size_t i = 0; i < e.n && !status && fn; i++) {
        if (fn(&e.jobs[i], data))
            break;
    }
    errand_free_jobs(e.jobs, e.n);
    return status ? error_wrap(err, status, "listing jobs of '%s'", queue) : STILE_OK;
}

enum stile_status stile_jobs_count(struct stile_client *client, const char *queue,
                                   stile_queue_fn *fn, void *data, struct stile_error *err)
{
    queue = queue ? queue : "";
    enum stile_status status = jobs_enter(client, queue, NULL, err);
    if (status)
        return error_wrap(err, status, "counting jobs");
    struct errand e = {.job = {.verb = JOB_COUNT, .queue = queue, .queue_len = strlen(queue)}};
    status = jobs_run(&e, client, 0, err);
    for (size_t i = 0; i < e.n_queues && !status && fn; i++) {
        if (fn(&e.queues[i], data))
            break;
    }
    errand_free_queues(e.queues, e.n_queues);
    return status ? error_wrap(err, status, "counting jobs") : STILE_OK;
}

enum stile_status stile_jobs_retry(size_t *n, struct stile_client *client, const char *queue,
                                   uint64_t id, struct stile_error *err)
{
    enum stile_status status = jobs_enter(client, queue, NULL, err);
    if (status)
        return error_wrap(err, status, "retrying a job");
    struct errand e = {
        .job = {.verb = JOB_RETRY, .queue = queue, .queue_len = strlen(queue), .id = id}};
    status = jobs_run(&e, client, 0, err);
    if (!status && e.job.count == 0)
        status = error_set(err, STILE_CONFLICT, 0,
                           id ? "no dead job has the number %llu, or another one with its key "
                                "waits"
                              : "no job is dead, or others with their keys are waiting",
                           (unsigned long long)id);
    if (n)
        *n = status ? 0 : e.job.count;
    return status ? error_wrap(err, status, "retrying jobs of '%s'", queue) : STILE_OK;
}

enum stile_status stile_jobs_drop(struct stile_client *client, const char *queue, uint64_t id,
                                  struct stile_error *err)
{
    enum stile_status status = jobs_enter(client, queue, NULL, err);
    if (status)
        return error_wrap(err, status, "dropping a job");
    struct errand e = {
        .job = {.verb = JOB_DROP, .queue = queue, .queue_len = strlen(queue), .id = id}};
    status = jobs_run(&e, client, 0, err);
    if (!status && e.job.count == 0)
        status = error_set(err, STILE_CONFLICT, 0,
                           "no job has the number %llu, or a worker has it at this moment",
                           (unsigned long long)id);
    return status ? error_wrap(err, status, "dropping a job of '%s'", queue) : STILE_OK;
}
