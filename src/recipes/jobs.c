/* Jobs: adding, claiming, finishing and listing, as far as it is the same for all engines. The
 * engine keeps the table and its rules. */
#include "recipes/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "base/options.h"
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

/* Runs a blocking call to its end and leaves. */
static enum stile_status run(struct job_call *call, struct stile_client *client, int64_t wait_ms,
                             struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    if (loop_reserve(client->loop, 1)) {
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    } else {
        if (call->job.verb == JOB_CLAIM)
            call->follower.interrupt = job_call_interrupt;
        job_call_start(call, client, wait_ms);
        drive_until(client, &call->follower);
        loop_unreserve(client->loop, 1);
        status = call->error.status;
        if (status && err)
            *err = call->error;
    }
    client_leave(client);
    return status;
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

static enum stile_status add(uint64_t *ids, struct stile_client *client, const char *queue,
                             const struct stile_job_entry *entries, size_t n, int64_t delay_ms,
                             struct stile_error *err)
{
    struct job_call call = {.job = {.verb = JOB_ADD,
                                    .queue = queue,
                                    .queue_len = strlen(queue),
                                    .entries = entries,
                                    .n_entries = n,
                                    .ids = ids,
                                    .delay_ms = delay_ms}};
    enum stile_status status = run(&call, client, 0, err);
    return status ? error_wrap(err, status, "adding to '%s'", queue) : STILE_OK;
}

enum stile_status stile_jobs_add_all(uint64_t *ids, struct stile_client *client, const char *queue,
                                     const struct stile_job_entry *entries, size_t n,
                                     const struct stile_jobs_options *options,
                                     struct stile_error *err)
{
    uint64_t unwanted[STILE_JOBS_ADD_MAX];
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
    return add(ids ? ids : unwanted, client, queue, entries, n, o.delay_ms, err);
}

enum stile_status stile_jobs_add(uint64_t *id, struct stile_client *client, const char *queue,
                                 const void *payload, size_t size,
                                 const struct stile_jobs_options *options, struct stile_error *err)
{
    struct stile_job_entry entry = {.payload = payload, .size = size};
    struct stile_jobs_options o;
    uint64_t unwanted;
    enum stile_status status = check_entry(&entry, err);
    if (!status)
        status = enter_queue(&o, client, queue, options, err);
    if (status)
        return error_wrap(err, status, "adding a job");
    entry.key = o.key;
    return add(id ? id : &unwanted, client, queue, &entry, 1, o.delay_ms, err);
}

/* ---- claim ---- */

/* Refused, unless the engine reports otherwise. */
static void put_marks(struct job_call *call, enum job_verb verb, struct job_mark *marks,
                      struct stile_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        jobs[i].status = STILE_STALE;
        marks[i].token = jobs[i].token;
    }
    *call = (struct job_call){
        .job = {.verb = verb, .queue = "", .text = "", .marks = marks, .n = n}, .given = jobs};
}

static enum stile_status put_claim(struct job_call *call, struct job_mark *marks, const char *queue,
                                   const struct stile_jobs_options *o, struct stile_error *err)
{
    if (o->max > STILE_JOBS_MAX)
        return error_set(err, STILE_MISUSE, 0, "at most %d jobs can be claimed at once",
                         STILE_JOBS_MAX);
    if (o->n_done > STILE_JOBS_MAX || (o->n_done > 0 && !o->done))
        return error_set(err, STILE_MISUSE, 0, "at most %d jobs can be finished at once",
                         STILE_JOBS_MAX);
    put_marks(call, JOB_CLAIM, marks, o->done, o->n_done);
    call->job.queue = queue;
    call->job.queue_len = strlen(queue);
    call->job.max = o->max ? o->max : 1;
    call->job.lease_ms = o->lease_ms ? o->lease_ms : LEASE_DEFAULT_MS;
    call->job.tries = o->tries ? o->tries : TRIES_DEFAULT;
    return STILE_OK;
}

/* Jobs that were finished are marked already; the others were refused, or it is not known. */
static void mark_done(const struct stile_jobs_options *o, enum stile_status status)
{
    bool known = !status || status == STILE_TIMEOUT || status == STILE_CANCELLED;
    for (size_t i = 0; i < o->n_done && !known; i++)
        o->done[i].status = status;
}

enum stile_status stile_jobs_claim(struct stile_job **jobs, size_t *n, struct stile_client *client,
                                   const char *queue, const struct stile_jobs_options *options,
                                   struct stile_error *err)
{
    struct stile_jobs_options o;
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    if (!jobs || !n)
        return error_set(err, STILE_MISUSE, 0, "claiming a job: no place for it");
    *jobs = NULL;
    *n = 0;
    enum stile_status status = enter_queue(&o, client, queue, options, err);
    if (status)
        return error_wrap(err, status, "claiming a job");
    status = put_claim(&call, marks, queue, &o, err);
    if (status) {
        client_leave(client);
        return error_wrap(err, status, "claiming a job");
    }
    status = run(&call, client, o.wait_ms, err);
    mark_done(&o, status);
    if (status) {
        job_call_free_jobs(call.jobs, call.n);
        return error_wrap(err, status, "claiming a job of '%s'", queue);
    }
    *jobs = call.jobs;
    *n = call.n;
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

static enum stile_status enter_given(struct stile_client *client, const struct stile_job *jobs,
                                     size_t n, struct stile_error *err)
{
    if (!jobs || n == 0)
        return error_set(err, STILE_MISUSE, 0, "no job given");
    if (n > STILE_JOBS_MAX)
        return error_set(err, STILE_MISUSE, 0, "%zu jobs at once, %d is the limit", n,
                         STILE_JOBS_MAX);
    return enter(client, "", err);
}

static enum stile_status outcome(enum stile_status status, struct stile_job *jobs, size_t n,
                                 const char *doing, struct stile_error *err)
{
    size_t refused = 0;
    for (size_t i = 0; i < n && status; i++)
        jobs[i].status = status;
    for (size_t i = 0; i < n && !status; i++)
        refused += jobs[i].status == STILE_STALE;
    if (refused > 0)
        status = error_set(err, STILE_STALE, 0,
                           n == 1 ? "its lease has run out; another worker may have the job"
                                  : "some leases have run out; other workers may have those jobs");
    return status ? error_wrap(err, status, "%s", doing) : STILE_OK;
}

enum stile_status stile_jobs_ack(struct stile_client *client, struct stile_job *jobs, size_t n,
                                 struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = enter_given(client, jobs, n, err);
    if (status)
        return error_wrap(err, status, "finishing a job");
    put_marks(&call, JOB_ACK, marks, jobs, n);
    return outcome(run(&call, client, 0, err), jobs, n, "finishing a job", err);
}

enum stile_status stile_jobs_give_back(struct stile_client *client, struct stile_job *jobs,
                                       size_t n, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = enter_given(client, jobs, n, err);
    if (status)
        return error_wrap(err, status, "giving a job back");
    put_marks(&call, JOB_GIVE_BACK, marks, jobs, n);
    return outcome(run(&call, client, 0, err), jobs, n, "giving a job back", err);
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

enum stile_status stile_jobs_fail(struct stile_client *client, struct stile_job *jobs, size_t n,
                                  const char *why, const struct stile_jobs_options *options,
                                  struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    struct stile_jobs_options o;
    enum stile_status status = read_options(&o, options, err);
    if (!status)
        status = enter_given(client, jobs, n, err);
    if (status)
        return error_wrap(err, status, "failing a job");
    put_marks(&call, JOB_FAIL, marks, jobs, n);
    put_pauses(marks, jobs, n, &o, client->loop);
    call.job.text = why ? why : "";
    return outcome(run(&call, client, 0, err), jobs, n, "failing a job", err);
}

static enum stile_status enter_to_extend(struct stile_client *client, const struct stile_job *jobs,
                                         size_t n, int64_t lease_ms, struct stile_error *err)
{
    enum stile_status status = check_lease(lease_ms, err);
    return status ? status : enter_given(client, jobs, n, err);
}

enum stile_status stile_jobs_extend(struct stile_client *client, struct stile_job *jobs, size_t n,
                                    int64_t lease_ms, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = enter_to_extend(client, jobs, n, lease_ms, err);
    if (status)
        return error_wrap(err, status, "extending a job");
    put_marks(&call, JOB_EXTEND, marks, jobs, n);
    call.job.lease_ms = lease_ms ? lease_ms : LEASE_DEFAULT_MS;
    return outcome(run(&call, client, 0, err), jobs, n, "extending a job", err);
}

/* ---- inspecting, and retrying dead jobs ---- */

enum stile_status stile_jobs_list(struct stile_client *client, const char *queue,
                                  const struct stile_jobs_options *options, stile_job_fn *fn,
                                  void *data, struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = read_options(&o, options, err);
    if (!status)
        status = enter(client, queue, err);
    if (status)
        return error_wrap(err, status, "listing jobs");
    struct job_call call = {.job = {.verb = JOB_LIST,
                                    .queue = queue,
                                    .queue_len = strlen(queue),
                                    .max = o.max ? o.max : LIST_MAX}};
    status = run(&call, client, 0, err);
    for (size_t i = 0; i < call.n && !status && fn; i++) {
        if (fn(&call.jobs[i], data))
            break;
    }
    job_call_free_jobs(call.jobs, call.n);
    return status ? error_wrap(err, status, "listing jobs of '%s'", queue) : STILE_OK;
}

enum stile_status stile_jobs_count(struct stile_client *client, const char *queue,
                                   stile_queue_fn *fn, void *data, struct stile_error *err)
{
    queue = queue ? queue : "";
    enum stile_status status = enter(client, queue, err);
    if (status)
        return error_wrap(err, status, "counting jobs");
    struct job_call call = {.job = {.verb = JOB_COUNT, .queue = queue, .queue_len = strlen(queue)}};
    status = run(&call, client, 0, err);
    for (size_t i = 0; i < call.n_queues && !status && fn; i++) {
        if (fn(&call.queues[i], data))
            break;
    }
    job_call_free_queues(call.queues, call.n_queues);
    return status ? error_wrap(err, status, "counting jobs") : STILE_OK;
}

enum stile_status stile_jobs_retry(size_t *n, struct stile_client *client, const char *queue,
                                   uint64_t id, struct stile_error *err)
{
    enum stile_status status = enter(client, queue, err);
    if (status)
        return error_wrap(err, status, "retrying a job");
    struct job_call call = {
        .job = {.verb = JOB_RETRY, .queue = queue, .queue_len = strlen(queue), .id = id}};
    status = run(&call, client, 0, err);
    if (!status && call.job.count == 0)
        status = error_set(err, STILE_CONFLICT, 0,
                           id ? "no dead job has the number %llu, or another one with its key "
                                "waits"
                              : "no job is dead, or others with their keys are waiting",
                           (unsigned long long)id);
    if (n)
        *n = status ? 0 : call.job.count;
    return status ? error_wrap(err, status, "retrying jobs of '%s'", queue) : STILE_OK;
}

enum stile_status stile_jobs_drop(struct stile_client *client, const char *queue, uint64_t id,
                                  struct stile_error *err)
{
    enum stile_status status = enter(client, queue, err);
    if (status)
        return error_wrap(err, status, "dropping a job");
    struct job_call call = {
        .job = {.verb = JOB_DROP, .queue = queue, .queue_len = strlen(queue), .id = id}};
    status = run(&call, client, 0, err);
    if (!status && call.job.count == 0)
        status = error_set(err, STILE_CONFLICT, 0,
                           "no job has the number %llu, or a worker has it at this moment",
                           (unsigned long long)id);
    return status ? error_wrap(err, status, "dropping a job of '%s'", queue) : STILE_OK;
}

/* ---- async ---- */

/* The strings and marks of an async call: its caller does not keep them. */
struct later {
    struct job_call call;
    struct job_mark marks[STILE_JOBS_MAX];
    char queue[STILE_NAME_MAX + 1];
};

static void answered(struct job_call *call)
{
    struct later *later = (struct later *)call;
    struct stile_client *client = call->client;
    bool claim = call->job.verb == JOB_CLAIM;
    struct stile_job *jobs = claim ? call->jobs : call->given;
    size_t n = claim ? call->n : call->job.n;
    enum stile_status status = call->error.status;
    if (claim && status) {
        job_call_free_jobs(jobs, n);
        jobs = NULL;
        n = 0;
    } else if (!claim) {
        status = outcome(status, jobs, n, "extending a job", &call->error);
    }
    pthread_mutex_lock(&client->mutex);
    loop_unreserve(client->loop, 1);
    pthread_mutex_unlock(&client->mutex);
    call->fn(jobs, n, status, status ? &call->error : NULL, call->data);
    free(later);
}

static enum stile_status start_later(struct later *later, struct stile_client *client,
                                     int64_t wait_ms, stile_jobs_fn *fn, void *data)
{
    if (!later || loop_reserve(client->loop, 1)) {
        free(later);
        client_leave(client);
        return STILE_NOMEM;
    }
    later->call.answered = answered;
    later->call.fn = fn;
    later->call.data = data;
    job_call_start(&later->call, client, wait_ms);
    client_leave(client);
    return STILE_OK;
}

enum stile_status stile_jobs_claim_async(struct stile_client *client, const char *queue,
                                         const struct stile_jobs_options *options,
                                         stile_jobs_fn *fn, void *data)
{
    struct stile_jobs_options o;
    enum stile_status status = fn ? enter_queue(&o, client, queue, options, NULL) : STILE_MISUSE;
    if (status)
        return status;
    struct later *later = calloc(1, sizeof *later);
    if (later) {
        status = put_claim(&later->call, later->marks, strcpy(later->queue, queue), &o, NULL);
        if (status) {
            free(later);
            client_leave(client);
            return status;
        }
    }
    return start_later(later, client, o.wait_ms, fn, data);
}

enum stile_status stile_jobs_extend_async(struct stile_client *client, struct stile_job *jobs,
                                          size_t n, int64_t lease_ms, stile_jobs_fn *fn, void *data)
{
    enum stile_status status = fn ? enter_to_extend(client, jobs, n, lease_ms, NULL) : STILE_MISUSE;
    if (status)
        return status;
    struct later *later = calloc(1, sizeof *later);
    if (later) {
        put_marks(&later->call, JOB_EXTEND, later->marks, jobs, n);
        later->call.job.lease_ms = lease_ms ? lease_ms : LEASE_DEFAULT_MS;
    }
    return start_later(later, client, 0, fn, data);
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
