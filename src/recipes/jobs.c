/* Jobs: adding, claiming, and what is said about a claim. The engine keeps the table and its rules;
 * here is what is the same for all of them. */
#include "recipes/jobs.h"

#include <stdlib.h>
#include <string.h>

#define LEASE_DEFAULT_MS   30000
#define BACKOFF_DEFAULT_MS 1000
#define TRIES_DEFAULT      5

static const struct stile_jobs_options defaults = {.size = sizeof defaults};

/* ---- add ---- */

/* What one packet to a server can carry, written in hex, with room to spare. */
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
    return entry->key ? jobs_check_key(entry->key, err) : STILE_OK;
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
    struct errand e = {.job = {.verb = JOB_ADD,
                               .queue = queue,
                               .queue_len = strlen(queue),
                               .entries = entries,
                               .n_entries = n,
                               .ids = ids,
                               .delay_ms = delay_ms}};
    enum stile_status status = jobs_run(&e, client, 0, err);
    return status ? error_wrap(err, status, "adding to '%s'", queue) : STILE_OK;
}

enum stile_status stile_jobs_add_all(uint64_t *ids, struct stile_client *client, const char *queue,
                                     const struct stile_job_entry *entries, size_t n,
                                     const struct stile_jobs_options *options,
                                     struct stile_error *err)
{
    uint64_t unheard[STILE_JOBS_ADD_MAX];
    enum stile_status status = check_entries(entries, n, err);
    if (!status && options && options->key)
        status = error_set(err, STILE_MISUSE, 0, "each of them has a key of its own, or none");
    if (!status)
        status = jobs_enter_named(client, queue, options, err);
    if (status)
        return error_wrap(err, status, "adding jobs");
    return add(ids ? ids : unheard, client, queue, entries, n, options ? options->delay_ms : 0,
               err);
}

enum stile_status stile_jobs_add(uint64_t *id, struct stile_client *client, const char *queue,
                                 const void *payload, size_t size,
                                 const struct stile_jobs_options *options, struct stile_error *err)
{
    const struct stile_jobs_options *o = options ? options : &defaults;
    const struct stile_job_entry entry = {.payload = payload, .size = size, .key = o->key};
    uint64_t unheard;
    enum stile_status status = check_entry(&entry, err);
    if (!status)
        status = jobs_enter_named(client, queue, options, err);
    if (status)
        return error_wrap(err, status, "adding a job");
    return add(id ? id : &unheard, client, queue, &entry, 1, o->delay_ms, err);
}

/* ---- claim ---- */

/* Refused, until the engine says otherwise. */
static void put_marks(struct errand *e, enum job_verb verb, struct job_mark *marks,
                      struct stile_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        jobs[i].status = STILE_STALE;
        marks[i].token = jobs[i].token;
    }
    *e = (struct errand){.job = {.verb = verb, .queue = "", .text = "", .marks = marks, .n = n},
                         .given = jobs};
}

static enum stile_status put_claim(struct errand *e, struct job_mark *marks, const char *queue,
                                   const struct stile_jobs_options *o, struct stile_error *err)
{
    if (o->max > STILE_JOBS_MAX)
        return error_set(err, STILE_MISUSE, 0, "at most %d jobs can be claimed at once",
                         STILE_JOBS_MAX);
    if (o->n_done > STILE_JOBS_MAX || (o->n_done > 0 && !o->done))
        return error_set(err, STILE_MISUSE, 0, "at most %d jobs can be finished at once",
                         STILE_JOBS_MAX);
    put_marks(e, JOB_CLAIM, marks, o->done, o->n_done);
    e->job.queue = queue;
    e->job.queue_len = strlen(queue);
    e->job.max = o->max ? o->max : 1;
    e->job.lease_ms = o->lease_ms ? o->lease_ms : LEASE_DEFAULT_MS;
    e->job.tries = o->tries ? o->tries : TRIES_DEFAULT;
    return STILE_OK;
}

/* Those that were finished have been told; what is left was refused, or is not known. */
static void tell_done(const struct stile_jobs_options *o, enum stile_status status)
{
    bool known = !status || status == STILE_TIMEOUT || status == STILE_CANCELLED;
    for (size_t i = 0; i < o->n_done && !known; i++)
        o->done[i].status = status;
}

enum stile_status stile_jobs_claim(struct stile_job **jobs, size_t *n, struct stile_client *client,
                                   const char *queue, const struct stile_jobs_options *options,
                                   struct stile_error *err)
{
    const struct stile_jobs_options *o = options ? options : &defaults;
    struct job_mark marks[STILE_JOBS_MAX];
    struct errand e;
    if (!jobs || !n)
        return error_set(err, STILE_MISUSE, 0, "claiming a job: no place for it");
    *jobs = NULL;
    *n = 0;
    enum stile_status status = jobs_enter_named(client, queue, options, err);
    if (status)
        return error_wrap(err, status, "claiming a job");
    status = put_claim(&e, marks, queue, o, err);
    if (status) {
        client_leave(client);
        return error_wrap(err, status, "claiming a job");
    }
    status = jobs_run(&e, client, o->wait_ms, err);
    tell_done(o, status);
    if (status) {
        errand_free_jobs(e.jobs, e.n);
        return error_wrap(err, status, "claiming a job of '%s'", queue);
    }
    *jobs = e.jobs;
    *n = e.n;
    return STILE_OK;
}

void stile_jobs_free(struct stile_job *jobs, size_t n)
{
    errand_free_jobs(jobs, n);
}

int64_t stile_jobs_remaining_ms(const struct stile_job *job)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
    return job && job->deadline_ns > ns ? (int64_t)((job->deadline_ns - ns) / NS_PER_MS) : 0;
}

/* ---- what is said about a claim ---- */

static enum stile_status enter_given(struct stile_client *client, const struct stile_job *jobs,
                                     size_t n, const struct stile_jobs_options *options,
                                     struct stile_error *err)
{
    if (!jobs || n == 0)
        return error_set(err, STILE_MISUSE, 0, "no job given");
    if (n > STILE_JOBS_MAX)
        return error_set(err, STILE_MISUSE, 0, "%zu jobs at once, %d is the limit", n,
                         STILE_JOBS_MAX);
    return jobs_enter(client, "", options, err);
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
                           n == 1 ? "it is not ours any more: its lease has run out"
                                  : "some are not ours any more: their leases have run out");
    return status ? error_wrap(err, status, "%s", doing) : STILE_OK;
}

enum stile_status stile_jobs_ack(struct stile_client *client, struct stile_job *jobs, size_t n,
                                 struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct errand e;
    enum stile_status status = enter_given(client, jobs, n, NULL, err);
    if (status)
        return error_wrap(err, status, "finishing a job");
    put_marks(&e, JOB_ACK, marks, jobs, n);
    return outcome(jobs_run(&e, client, 0, err), jobs, n, "finishing a job", err);
}

enum stile_status stile_jobs_give_back(struct stile_client *client, struct stile_job *jobs,
                                       size_t n, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct errand e;
    enum stile_status status = enter_given(client, jobs, n, NULL, err);
    if (status)
        return error_wrap(err, status, "giving a job back");
    put_marks(&e, JOB_GIVE_BACK, marks, jobs, n);
    return outcome(jobs_run(&e, client, 0, err), jobs, n, "giving a job back", err);
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
    struct errand e;
    enum stile_status status = enter_given(client, jobs, n, options, err);
    if (status)
        return error_wrap(err, status, "failing a job");
    put_marks(&e, JOB_FAIL, marks, jobs, n);
    put_pauses(marks, jobs, n, options ? options : &defaults, client->loop);
    e.job.text = why ? why : "";
    return outcome(jobs_run(&e, client, 0, err), jobs, n, "failing a job", err);
}

static enum stile_status enter_to_extend(struct stile_client *client, const struct stile_job *jobs,
                                         size_t n, int64_t lease_ms, struct stile_error *err)
{
    enum stile_status status = jobs_check_lease(lease_ms, err);
    return status ? status : enter_given(client, jobs, n, NULL, err);
}

enum stile_status stile_jobs_extend(struct stile_client *client, struct stile_job *jobs, size_t n,
                                    int64_t lease_ms, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct errand e;
    enum stile_status status = enter_to_extend(client, jobs, n, lease_ms, err);
    if (status)
        return error_wrap(err, status, "extending a job");
    put_marks(&e, JOB_EXTEND, marks, jobs, n);
    e.job.lease_ms = lease_ms ? lease_ms : LEASE_DEFAULT_MS;
    return outcome(jobs_run(&e, client, 0, err), jobs, n, "extending a job", err);
}

/* ---- async ---- */

/* The strings and marks of an errand whose caller has gone on. */
struct later {
    struct errand e;
    struct job_mark marks[STILE_JOBS_MAX];
    char queue[STILE_NAME_MAX + 1];
};

static void answered(struct errand *e)
{
    struct later *later = (struct later *)e;
    struct stile_client *client = e->client;
    bool claim = e->job.verb == JOB_CLAIM;
    struct stile_job *jobs = claim ? e->jobs : e->given;
    size_t n = claim ? e->n : e->job.n;
    enum stile_status status = e->error.status;
    if (claim && status) {
        errand_free_jobs(jobs, n);
        jobs = NULL;
        n = 0;
    } else if (!claim) {
        status = outcome(status, jobs, n, "extending a job", &e->error);
    }
    pthread_mutex_lock(&client->mutex);
    loop_unreserve(client->loop, 1);
    pthread_mutex_unlock(&client->mutex);
    e->fn(jobs, n, status, status ? &e->error : NULL, e->data);
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
    later->e.answered = answered;
    later->e.fn = fn;
    later->e.data = data;
    errand_start(&later->e, client, wait_ms);
    client_leave(client);
    return STILE_OK;
}

enum stile_status stile_jobs_claim_async(struct stile_client *client, const char *queue,
                                         const struct stile_jobs_options *options,
                                         stile_jobs_fn *fn, void *data)
{
    const struct stile_jobs_options *o = options ? options : &defaults;
    enum stile_status status = fn ? jobs_enter_named(client, queue, options, NULL) : STILE_MISUSE;
    if (status)
        return status;
    struct later *later = calloc(1, sizeof *later);
    if (later) {
        status = put_claim(&later->e, later->marks, strcpy(later->queue, queue), o, NULL);
        if (status) {
            free(later);
            client_leave(client);
            return status;
        }
    }
    return start_later(later, client, o->wait_ms, fn, data);
}

enum stile_status stile_jobs_extend_async(struct stile_client *client, struct stile_job *jobs,
                                          size_t n, int64_t lease_ms, stile_jobs_fn *fn, void *data)
{
    enum stile_status status = fn ? enter_to_extend(client, jobs, n, lease_ms, NULL) : STILE_MISUSE;
    if (status)
        return status;
    struct later *later = calloc(1, sizeof *later);
    if (later) {
        put_marks(&later->e, JOB_EXTEND, later->marks, jobs, n);
        later->e.job.lease_ms = lease_ms ? lease_ms : LEASE_DEFAULT_MS;
    }
    return start_later(later, client, 0, fn, data);
}

enum stile_status stile_jobs_cancel(struct stile_client *client)
{
    enum stile_status status = client_enter(client, NULL);
    if (status)
        return status;
    errand_cancel_all(client);
    client_leave(client);
    return STILE_OK;
}
