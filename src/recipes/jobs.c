/* Jobs: adding, claiming, finishing and listing, as far as it is the same for all engines. The
 * engine keeps the table and its rules. */
#include "recipes/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "base/options.h"
#include "base/text.h"
#include "core/job_call.h"

#define LEASE_MIN_MS       10
#define DURATION_MAX_MS    (INT64_C(366) * 24 * 3600 * 1000)
#define PAUSE_MAX_MS       (INT64_C(3600) * 1000)
#define LIST_MAX           1000
#define LEASE_DEFAULT_MS   30000
#define BACKOFF_DEFAULT_MS 1000
#define TRIES_DEFAULT      5

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
static enum stile_status check_lease(int64_t lease_ms, struct stile_error *err)
{
    if (lease_ms != 0 && lease_ms < LEASE_MIN_MS)
        return error_set(err, STILE_MISUSE, 0, "a lease below %d ms can't be kept", LEASE_MIN_MS);
    return check_duration("lease", lease_ms, err);
}

static enum stile_status check_key(const char *key, struct stile_error *err)
{
    return name_check(key, strlen(key), err) ? error_wrap(err, STILE_MISUSE, "its key") : STILE_OK;
}

static enum stile_status read_options(struct stile_jobs_options *o,
                                      const struct stile_jobs_options *options,
                                      struct stile_error *err)
{
    enum stile_status status = options_read(o, options, &kind, err);
    if (status)
        return status;
    if (o->tries > STILE_JOB_TRIES_MAX)
        return error_set(err, STILE_MISUSE, 0, "at most %d tries can be counted",
                         STILE_JOB_TRIES_MAX);
    status = check_duration("delay", o->delay_ms, err);
    if (!status)
        status = check_duration("backoff", o->backoff_ms, err);
    if (!status)
        status = check_lease(o->lease_ms, err);
    if (!status && o->key)
        status = check_key(o->key, err);
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

/* Enters the client, if the engine has jobs. */
static enum stile_status enter(struct stile_client *client, const char *queue,
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

/* The same, with the caller's options, and only if the queue has a name. */
static enum stile_status enter_queue(struct stile_jobs_options *o, struct stile_client *client,
                                     const char *queue, const struct stile_jobs_options *options,
                                     struct stile_error *err)
{
    if (queue && !*queue)
        return error_set(err, STILE_MISUSE, 0, "the queue's name is empty");
    enum stile_status status = read_options(o, options, err);
    return status ? status : enter(client, queue, err);
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
    [JOB_LIST] = {"listing jobs of", true},   [JOB_COUNT] = {"counting jobs"},
    [JOB_RETRY] = {"retrying jobs of", true}, [JOB_DROP] = {"dropping a job of", true},
};

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
    if (err->status && verbs[verb].queue)
        error_wrap(err, err->status, "%s '%s'", verbs[verb].doing, call->job.queue);
    else if (err->status)
        error_wrap(err, err->status, "%s", verbs[verb].doing);
}

static void free_results(struct job_call *call)
{
    job_call_free_jobs(call->jobs, call->n);
    job_call_free_queues(call->queues, call->n_queues);
    call->jobs = NULL;
    call->n = 0;
}

/* Calls fn for each, without the mutex. */
static void hand_out_jobs(const struct job_call *call, stile_job_fn *fn, void *data)
{
    size_t n = call->error.status || !fn ? 0 : call->n;
    for (size_t i = 0; i < n && fn(&call->jobs[i], data) == 0; i++)
        ;
}

static void hand_out_queues(const struct job_call *call, stile_queue_fn *fn, void *data)
{
    size_t n = call->error.status || !fn ? 0 : call->n_queues;
    for (size_t i = 0; i < n && fn(&call->queues[i], data) == 0; i++)
        ;
}

/* ---- blocking calls ---- */

/* Runs it to its end and leaves the client. */
static enum stile_status run(struct job_call *call, int64_t wait_ms, struct stile_error *err)
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
    stile_jobs_fn *jobs_fn;     /* claim, ack, fail, give back, extend */
    stile_jobs_done_fn *done;   /* add, retry, drop */
    stile_query_done_fn *over;  /* list, count */
    stile_job_fn *each_job;     /* list */
    stile_queue_fn *each_queue; /* count */
    void *data;
    max_align_t copies[];
};

static void report(struct later *later)
{
    struct job_call *call = &later->call;
    enum stile_status status = call->error.status;
    const struct stile_error *err = status ? &call->error : NULL;
    switch (call->job.verb) {
    case JOB_ADD:
        later->done(status ? NULL : call->job.ids, status ? 0 : call->job.n_entries, status, err,
                    later->data);
        break;
    case JOB_RETRY:
    case JOB_DROP:
        later->done(NULL, status ? 0 : call->job.count, status, err, later->data);
        break;
    case JOB_LIST:
        hand_out_jobs(call, later->each_job, later->data);
        later->over(call->client, status, err, later->data);
        break;
    case JOB_COUNT:
        hand_out_queues(call, later->each_queue, later->data);
        later->over(call->client, status, err, later->data);
        break;
    default:
        later->jobs_fn(call->given, call->n_given, status, err, later->data);
    }
}

/* The jobs are the user's from now on. */
static void report_claim(struct later *later)
{
    struct job_call *call = &later->call;
    enum stile_status status = call->error.status;
    struct stile_job *jobs = status ? NULL : call->jobs;
    size_t n = status ? 0 : call->n;
    if (!status) {
        call->jobs = NULL;
        call->n = 0;
    }
    later->jobs_fn(jobs, n, status, status ? &call->error : NULL, later->data);
}

static void answered(struct job_call *call)
{
    struct later *later = (struct later *)call;
    struct stile_client *client = call->client;
    pthread_mutex_lock(&client->mutex);
    loop_unreserve(client->loop, 1);
    pthread_mutex_unlock(&client->mutex);
    conclude(call);
    if (call->job.verb == JOB_CLAIM)
        report_claim(later);
    else
        report(later);
    free_results(call);
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

/* Starts it and leaves the client. `like` has the callbacks. */
static enum stile_status start_later(const struct job_call *call, int64_t wait_ms,
                                     struct later like)
{
    struct stile_client *client = call->client;
    struct later *later = malloc(sizeof *later + size_of_copies(&call->job));
    if (!later || loop_reserve(client->loop, 1)) {
        free(later);
        client_leave(client);
        return STILE_NOMEM;
    }
    *later = like;
    later->call = *call;
    later->call.answered = answered;
    copy_arguments(later);
    job_call_start(&later->call, client, wait_ms);
    client_leave(client);
    return STILE_OK;
}

/* ---- add ---- */

/* What one packet to a server can carry in hex, with room to spare. */
#define ADD_BYTES_MAX (4 * 1024 * 1024)

static enum stile_status check_entry(const struct stile_job_entry *entry, struct stile_error *err)
{
    if (entry->size > STILE_JOB_PAYLOAD_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "its payload has %zu bytes, %d is the limit; put a reference to it into "
                         "the job instead",
                         entry->size, STILE_JOB_PAYLOAD_MAX);
    if (entry->size > 0 && !entry->payload)
        return error_set(err, STILE_MISUSE, 0, "no payload given");
    return entry->key ? check_key(entry->key, err) : STILE_OK;
}

static enum stile_status check_entries(const struct stile_job_entry *entries, size_t n,
                                       struct stile_error *err)
{
    size_t bytes = 0;
    if (!entries || n == 0 || n > STILE_JOBS_ADD_MAX)
        return error_set(err, STILE_MISUSE, 0, "%zu jobs at once; 1 to %d can be added", n,
                         STILE_JOBS_ADD_MAX);
    for (size_t i = 0; i < n; i++) {
        enum stile_status status = check_entry(&entries[i], err);
        if (status)
            return n == 1 ? status : error_wrap(err, status, "job %zu of %zu", i + 1, n);
        bytes += entries[i].size;
    }
    if (n > 1 && bytes > ADD_BYTES_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "%zu bytes of payload at once, %d is the limit: add fewer jobs a call",
                         bytes, ADD_BYTES_MAX);
    return STILE_OK;
}

static void put_add(struct job_call *call, struct stile_client *client, const char *queue,
                    const struct stile_job_entry *entries, size_t n, uint64_t *ids,
                    int64_t delay_ms)
{
    *call = (struct job_call){.client = client,
                              .job = {.verb = JOB_ADD,
                                      .queue = queue,
                                      .queue_len = strlen(queue),
                                      .entries = entries,
                                      .n_entries = n,
                                      .ids = ids,
                                      .delay_ms = delay_ms}};
}

static enum stile_status begin_add_all(struct job_call *call, uint64_t *ids,
                                       struct stile_client *client, const char *queue,
                                       const struct stile_job_entry *entries, size_t n,
                                       const struct stile_jobs_options *options,
                                       struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = check_entries(entries, n, err);
    if (!status)
        status = enter_queue(&o, client, queue, options, err);
    if (!status && o.key) {
        client_leave(client);
        status = error_set(err, STILE_MISUSE, 0, "each of them has a key of its own, or none");
    }
    if (status)
        return error_wrap(err, status, "adding jobs");
    put_add(call, client, queue, entries, n, ids, o.delay_ms);
    return STILE_OK;
}

enum stile_status stile_jobs_add_all(uint64_t *ids, struct stile_client *client, const char *queue,
                                     const struct stile_job_entry *entries, size_t n,
                                     const struct stile_jobs_options *options,
                                     struct stile_error *err)
{
    uint64_t unwanted[STILE_JOBS_ADD_MAX];
    struct job_call call;
    enum stile_status status =
        begin_add_all(&call, ids ? ids : unwanted, client, queue, entries, n, options, err);
    return status ? status : run(&call, 0, err);
}

enum stile_status stile_jobs_add_all_async(struct stile_client *client, const char *queue,
                                           const struct stile_job_entry *entries, size_t n,
                                           const struct stile_jobs_options *options,
                                           stile_jobs_done_fn *fn, void *data)
{
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_add_all(&call, NULL, client, queue, entries, n, options, NULL);
    return status ? status : start_later(&call, 0, (struct later){.done = fn, .data = data});
}

/* entry has the payload, and gets the key of the options. */
static enum stile_status begin_add(struct job_call *call, struct stile_job_entry *entry,
                                   uint64_t *id, struct stile_client *client, const char *queue,
                                   const struct stile_jobs_options *options,
                                   struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = check_entry(entry, err);
    if (!status)
        status = enter_queue(&o, client, queue, options, err);
    if (status)
        return error_wrap(err, status, "adding a job");
    entry->key = o.key;
    put_add(call, client, queue, entry, 1, id, o.delay_ms);
    return STILE_OK;
}

enum stile_status stile_jobs_add(uint64_t *id, struct stile_client *client, const char *queue,
                                 const void *payload, size_t size,
                                 const struct stile_jobs_options *options, struct stile_error *err)
{
    struct stile_job_entry entry = {.payload = payload, .size = size};
    struct job_call call;
    uint64_t unwanted;
    enum stile_status status =
        begin_add(&call, &entry, id ? id : &unwanted, client, queue, options, err);
    return status ? status : run(&call, 0, err);
}

enum stile_status stile_jobs_add_async(struct stile_client *client, const char *queue,
                                       const void *payload, size_t size,
                                       const struct stile_jobs_options *options,
                                       stile_jobs_done_fn *fn, void *data)
{
    struct stile_job_entry entry = {.payload = payload, .size = size};
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_add(&call, &entry, NULL, client, queue, options, NULL);
    return status ? status : start_later(&call, 0, (struct later){.done = fn, .data = data});
}

/* ---- claim ---- */

/* Refused, unless the engine reports otherwise. */
static void put_marks(struct job_call *call, enum job_verb verb, struct stile_client *client,
                      struct job_mark *marks, struct stile_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        jobs[i].status = STILE_STALE;
        marks[i].token = jobs[i].token;
    }
    *call =
        (struct job_call){.client = client,
                          .job = {.verb = verb, .queue = "", .text = "", .marks = marks, .n = n},
                          .given = jobs,
                          .n_given = n};
}

static enum stile_status put_claim(struct job_call *call, struct job_mark *marks,
                                   struct stile_client *client, const char *queue,
                                   const struct stile_jobs_options *o, struct stile_error *err)
{
    if (o->max > STILE_JOBS_MAX)
        return error_set(err, STILE_MISUSE, 0, "at most %d jobs can be claimed at once",
                         STILE_JOBS_MAX);
    if (o->n_done > STILE_JOBS_MAX || (o->n_done > 0 && !o->done))
        return error_set(err, STILE_MISUSE, 0, "at most %d jobs can be finished at once",
                         STILE_JOBS_MAX);
    put_marks(call, JOB_CLAIM, client, marks, o->done, o->n_done);
    call->job.queue = queue;
    call->job.queue_len = strlen(queue);
    call->job.max = o->max ? o->max : 1;
    call->job.lease_ms = o->lease_ms ? o->lease_ms : LEASE_DEFAULT_MS;
    call->job.tries = o->tries ? o->tries : TRIES_DEFAULT;
    return STILE_OK;
}

static enum stile_status begin_claim(struct job_call *call, struct job_mark *marks,
                                     int64_t *wait_ms, struct stile_client *client,
                                     const char *queue, const struct stile_jobs_options *options,
                                     struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = enter_queue(&o, client, queue, options, err);
    if (status)
        return error_wrap(err, status, "claiming a job");
    *wait_ms = o.wait_ms;
    status = put_claim(call, marks, client, queue, &o, err);
    if (!status)
        return STILE_OK;
    client_leave(client);
    return error_wrap(err, status, "claiming a job");
}

enum stile_status stile_jobs_claim(struct stile_job **jobs, size_t *n, struct stile_client *client,
                                   const char *queue, const struct stile_jobs_options *options,
                                   struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    int64_t wait_ms;
    if (!jobs || !n)
        return error_set(err, STILE_MISUSE, 0, "claiming a job: no place for it");
    *jobs = NULL;
    *n = 0;
    enum stile_status status = begin_claim(&call, marks, &wait_ms, client, queue, options, err);
    if (status)
        return status;
    status = run(&call, wait_ms, err);
    if (status)
        free_results(&call);
    *jobs = call.jobs;
    *n = call.n;
    return status;
}

enum stile_status stile_jobs_claim_async(struct stile_client *client, const char *queue,
                                         const struct stile_jobs_options *options,
                                         stile_jobs_fn *fn, void *data)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    int64_t wait_ms;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_claim(&call, marks, &wait_ms, client, queue, options, NULL);
    return status ? status
                  : start_later(&call, wait_ms, (struct later){.jobs_fn = fn, .data = data});
}

enum stile_status stile_jobs_cancel(struct stile_client *client)
{
    enum stile_status status = client_enter(client, NULL);
    if (status)
        return status;
    job_call_cancel_all(client);
    client_leave(client);
    return STILE_OK;
}

void stile_jobs_free(struct stile_job *jobs, size_t n)
{
    job_call_free_jobs(jobs, n);
}

int64_t stile_jobs_remaining_ms(const struct stile_job *job)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
    return job && job->deadline_ns > ns ? (int64_t)((job->deadline_ns - ns) / NS_PER_MS) : 0;
}

/* ---- ending and extending a claim ---- */

static enum stile_status begin_given(struct job_call *call, enum job_verb verb,
                                     struct job_mark *marks, struct stile_client *client,
                                     struct stile_job *jobs, size_t n, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    if (!jobs || n == 0)
        status = error_set(err, STILE_MISUSE, 0, "no job given");
    else if (n > STILE_JOBS_MAX)
        status =
            error_set(err, STILE_MISUSE, 0, "%zu jobs at once, %d is the limit", n, STILE_JOBS_MAX);
    else
        status = enter(client, "", err);
    if (status)
        return error_wrap(err, status, "%s", verbs[verb].doing);
    put_marks(call, verb, client, marks, jobs, n);
    return STILE_OK;
}

static enum stile_status run_given(enum job_verb verb, struct stile_client *client,
                                   struct stile_job *jobs, size_t n, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = begin_given(&call, verb, marks, client, jobs, n, err);
    return status ? status : run(&call, 0, err);
}

static enum stile_status start_given(enum job_verb verb, struct stile_client *client,
                                     struct stile_job *jobs, size_t n, stile_jobs_fn *fn,
                                     void *data)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_given(&call, verb, marks, client, jobs, n, NULL);
    return status ? status : start_later(&call, 0, (struct later){.jobs_fn = fn, .data = data});
}

enum stile_status stile_jobs_ack(struct stile_client *client, struct stile_job *jobs, size_t n,
                                 struct stile_error *err)
{
    return run_given(JOB_ACK, client, jobs, n, err);
}

enum stile_status stile_jobs_ack_async(struct stile_client *client, struct stile_job *jobs,
                                       size_t n, stile_jobs_fn *fn, void *data)
{
    return start_given(JOB_ACK, client, jobs, n, fn, data);
}

enum stile_status stile_jobs_give_back(struct stile_client *client, struct stile_job *jobs,
                                       size_t n, struct stile_error *err)
{
    return run_given(JOB_GIVE_BACK, client, jobs, n, err);
}

enum stile_status stile_jobs_give_back_async(struct stile_client *client, struct stile_job *jobs,
                                             size_t n, stile_jobs_fn *fn, void *data)
{
    return start_given(JOB_GIVE_BACK, client, jobs, n, fn, data);
}

int64_t jobs_pause_ms(int64_t first_ms, unsigned tries, uint64_t random)
{
    int64_t most = first_ms < PAUSE_MAX_MS ? first_ms : PAUSE_MAX_MS;
    for (unsigned i = 1; i < tries && most < PAUSE_MAX_MS; i++)
        most *= 2;
    if (most > PAUSE_MAX_MS)
        most = PAUSE_MAX_MS;
    return (int64_t)(random % ((uint64_t)most + 1));
}

static void put_pauses(struct job_mark *marks, const struct stile_job *jobs, size_t n,
                       const struct stile_jobs_options *o, struct loop *loop)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t random = 0;
        loop_random(loop, &random, sizeof random);
        marks[i].dead = jobs[i].tries >= (o->tries ? o->tries : TRIES_DEFAULT);
        marks[i].delay_ms = jobs_pause_ms(o->backoff_ms ? o->backoff_ms : BACKOFF_DEFAULT_MS,
                                          jobs[i].tries, random);
    }
}

static enum stile_status begin_fail(struct job_call *call, struct job_mark *marks,
                                    struct stile_client *client, struct stile_job *jobs, size_t n,
                                    const char *why, const struct stile_jobs_options *options,
                                    struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = read_options(&o, options, err);
    if (status)
        return error_wrap(err, status, "failing a job");
    status = begin_given(call, JOB_FAIL, marks, client, jobs, n, err);
    if (status)
        return status;
    put_pauses(marks, jobs, n, &o, client->loop);
    call->job.text = why ? why : "";
    return STILE_OK;
}

enum stile_status stile_jobs_fail(struct stile_client *client, struct stile_job *jobs, size_t n,
                                  const char *why, const struct stile_jobs_options *options,
                                  struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = begin_fail(&call, marks, client, jobs, n, why, options, err);
    return status ? status : run(&call, 0, err);
}

enum stile_status stile_jobs_fail_async(struct stile_client *client, struct stile_job *jobs,
                                        size_t n, const char *why,
                                        const struct stile_jobs_options *options, stile_jobs_fn *fn,
                                        void *data)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_fail(&call, marks, client, jobs, n, why, options, NULL);
    return status ? status : start_later(&call, 0, (struct later){.jobs_fn = fn, .data = data});
}

static enum stile_status begin_extend(struct job_call *call, struct job_mark *marks,
                                      struct stile_client *client, struct stile_job *jobs, size_t n,
                                      int64_t lease_ms, struct stile_error *err)
{
    enum stile_status status = check_lease(lease_ms, err);
    if (status)
        return error_wrap(err, status, "extending a job");
    status = begin_given(call, JOB_EXTEND, marks, client, jobs, n, err);
    if (!status)
        call->job.lease_ms = lease_ms ? lease_ms : LEASE_DEFAULT_MS;
    return status;
}

enum stile_status stile_jobs_extend(struct stile_client *client, struct stile_job *jobs, size_t n,
                                    int64_t lease_ms, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = begin_extend(&call, marks, client, jobs, n, lease_ms, err);
    return status ? status : run(&call, 0, err);
}

enum stile_status stile_jobs_extend_async(struct stile_client *client, struct stile_job *jobs,
                                          size_t n, int64_t lease_ms, stile_jobs_fn *fn, void *data)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_extend(&call, marks, client, jobs, n, lease_ms, NULL);
    return status ? status : start_later(&call, 0, (struct later){.jobs_fn = fn, .data = data});
}

/* ---- inspecting, and retrying dead jobs ---- */

/* A call on a queue, or on all ("") where the verb allows it. */
static enum stile_status begin_on_queue(struct job_call *call, enum job_verb verb,
                                        struct stile_client *client, const char *queue, uint64_t id,
                                        struct stile_error *err)
{
    enum stile_status status = enter(client, queue, err);
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
    enum stile_status status = read_options(&o, options, err);
    if (!status)
        status = begin_on_queue(call, JOB_LIST, client, queue, 0, err);
    if (status)
        return error_wrap(err, status, "listing jobs");
    call->job.max = o.max ? o.max : LIST_MAX;
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
    status = run(&call, 0, err);
    hand_out_jobs(&call, fn, data);
    free_results(&call);
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
    return start_later(&call, 0, (struct later){.each_job = fn, .over = done, .data = data});
}

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
    status = run(&call, 0, err);
    hand_out_queues(&call, fn, data);
    free_results(&call);
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
    return start_later(&call, 0, (struct later){.each_queue = fn, .over = done, .data = data});
}

enum stile_status stile_jobs_retry(size_t *n, struct stile_client *client, const char *queue,
                                   uint64_t id, struct stile_error *err)
{
    struct job_call call;
    enum stile_status status = begin_on_queue(&call, JOB_RETRY, client, queue, id, err);
    if (status)
        return error_wrap(err, status, "retrying a job");
    status = run(&call, 0, err);
    if (n)
        *n = status ? 0 : call.job.count;
    return status;
}

enum stile_status stile_jobs_drop(struct stile_client *client, const char *queue, uint64_t id,
                                  struct stile_error *err)
{
    struct job_call call;
    enum stile_status status = begin_on_queue(&call, JOB_DROP, client, queue, id, err);
    return status ? error_wrap(err, status, "dropping a job") : run(&call, 0, err);
}

static enum stile_status start_on_queue(enum job_verb verb, struct stile_client *client,
                                        const char *queue, uint64_t id, stile_jobs_done_fn *fn,
                                        void *data)
{
    struct job_call call;
    enum stile_status status =
        fn ? begin_on_queue(&call, verb, client, queue, id, NULL) : STILE_MISUSE;
    return status ? status : start_later(&call, 0, (struct later){.done = fn, .data = data});
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
