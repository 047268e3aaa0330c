/* Jobs: whether what is asked makes sense, and asking it. */
#include <string.h>

#include "base/name.h"
#include "recipes/jobs.h"

#define LEASE_MIN_MS    10
#define DURATION_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)

static enum stile_status check_duration(const char *what, int64_t ms, struct stile_error *err)
{
    if (ms < 0 || ms > DURATION_MAX_MS)
        return error_set(err, STILE_MISUSE, 0, "%s must be between 0 and 366 days", what);
    return STILE_OK;
}

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

static enum stile_status check_options(const struct stile_jobs_options *o, struct stile_error *err)
{
    if (o->size != sizeof *o)
        return error_set(err, STILE_MISUSE, 0,
                         "job options have size %zu, this library knows %zu: use "
                         "STILE_JOBS_OPTIONS and compile against the header you link with",
                         o->size, sizeof *o);
    if (o->tries > STILE_JOB_TRIES_MAX)
        return error_set(err, STILE_MISUSE, 0, "at most %d tries can be counted",
                         STILE_JOB_TRIES_MAX);
    enum stile_status status = check_duration("delay", o->delay_ms, err);
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
                     "%s keeps no jobs: they are in a database, postgres:// or mysql://",
                     client->engine->caps.engine);
}

enum stile_status jobs_enter(struct stile_client *client, const char *queue,
                             const struct stile_jobs_options *options, struct stile_error *err)
{
    if (!queue)
        return error_set(err, STILE_MISUSE, 0, "no queue given");
    enum stile_status status = *queue ? name_check(queue, strlen(queue), err) : STILE_OK;
    if (!status && options)
        status = check_options(options, err);
    if (!status)
        status = client_enter_for_locks(client, err);
    if (status)
        return status;
    status = check_jobs(client, err);
    if (status)
        client_leave(client);
    return status;
}

enum stile_status jobs_enter_named(struct stile_client *client, const char *queue,
                                   const struct stile_jobs_options *options,
                                   struct stile_error *err)
{
    if (queue && !*queue)
        return error_set(err, STILE_MISUSE, 0, "the queue's name is empty");
    return jobs_enter(client, queue, options, err);
}

enum stile_status jobs_run(struct errand *errand, struct stile_client *client, int64_t wait_ms,
                           struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    if (loop_reserve(client->loop, 1)) {
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    } else {
        errand_start(errand, client, wait_ms);
        drive_until(client, &errand->follower);
        loop_unreserve(client->loop, 1);
        status = errand->error.status;
        if (status && err)
            *err = errand->error;
    }
    client_leave(client);
    return status;
}
