/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for programs: adding, claiming and finishing, as far as it is the same for all engines. The
 * engine keeps the table and its rules. */
#include "recipes/jobs.h"

#include <string.h>

#include "base/text.h"
#include "recipes/jobs_call.h"

#define PAUSE_MAX_MS       (INT64_C(3600) * 1000)
#define BACKOFF_DEFAULT_MS 1000
#define TRIES_DEFAULT      5

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
        status = jobs_enter_queue(&o, client, queue, options, err);
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
    return status ? status : jobs_run(&call, 0, err);
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
    return status ? status
                  : jobs_start(&call, 0, (struct jobs_callbacks){.done = fn, .data = data});
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
        status = jobs_enter_queue(&o, client, queue, options, err);
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
    return status ? status : jobs_run(&call, 0, err);
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
    return status ? status
                  : jobs_start(&call, 0, (struct jobs_callbacks){.done = fn, .data = data});
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
    call->job.lease_ms = o->lease_ms ? o->lease_ms : JOBS_LEASE_DEFAULT_MS;
    call->job.tries = o->tries ? o->tries : TRIES_DEFAULT;
    return STILE_OK;
}

static enum stile_status begin_claim(struct job_call *call, struct job_mark *marks,
                                     int64_t *wait_ms, struct stile_client *client,
                                     const char *queue, const struct stile_jobs_options *options,
                                     struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = jobs_enter_queue(&o, client, queue, options, err);
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
    status = jobs_run(&call, wait_ms, err);
    if (status)
        jobs_free_results(&call);
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
                  : jobs_start(&call, wait_ms, (struct jobs_callbacks){.jobs = fn, .data = data});
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
        status = jobs_enter(client, "", err);
    if (status)
        return error_wrap(err, status, "%s", jobs_doing(verb));
    put_marks(call, verb, client, marks, jobs, n);
    return STILE_OK;
}

static enum stile_status run_given(enum job_verb verb, struct stile_client *client,
                                   struct stile_job *jobs, size_t n, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = begin_given(&call, verb, marks, client, jobs, n, err);
    return status ? status : jobs_run(&call, 0, err);
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
    return status ? status
                  : jobs_start(&call, 0, (struct jobs_callbacks){.jobs = fn, .data = data});
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

void jobs_clean_text(char *out, size_t size, const char *text)
{
    size_t n = 0, left = strlen(text), len;
    for (; left > 0; text += len, left -= len) {
        uint32_t code = 0;
        len = utf8_length(&code, text, left);
        bool clean = code == '\n' || code == '\t' || (code >= ' ' && (code < 0x7f || code > 0x9f));
        if (n + (len > 0 ? len : 1) >= size)
            break;
        if (len > 0 && clean)
            memcpy(out + n, text, len);
        else
            out[n] = '?';
        n += len > 0 && clean ? len : 1;
        len = len > 0 ? len : 1;
    }
    out[n] = '\0';
}

/* What a failing call has on its stack. */
struct fail_room {
    struct job_mark marks[STILE_JOBS_MAX];
    char text[STILE_JOB_ERROR_MAX + 1];
};

static enum stile_status begin_fail(struct job_call *call, struct fail_room *room,
                                    struct stile_client *client, struct stile_job *jobs, size_t n,
                                    const char *why, const struct stile_jobs_options *options,
                                    struct stile_error *err)
{
    struct stile_jobs_options o;
    enum stile_status status = jobs_read_options(&o, options, err);
    if (status)
        return error_wrap(err, status, "failing a job");
    status = begin_given(call, JOB_FAIL, room->marks, client, jobs, n, err);
    if (status)
        return status;
    put_pauses(room->marks, jobs, n, &o, client->loop);
    jobs_clean_text(room->text, sizeof room->text, why ? why : "");
    call->job.text = room->text;
    return STILE_OK;
}

enum stile_status stile_jobs_fail(struct stile_client *client, struct stile_job *jobs, size_t n,
                                  const char *why, const struct stile_jobs_options *options,
                                  struct stile_error *err)
{
    struct fail_room room;
    struct job_call call;
    enum stile_status status = begin_fail(&call, &room, client, jobs, n, why, options, err);
    return status ? status : jobs_run(&call, 0, err);
}

enum stile_status stile_jobs_fail_async(struct stile_client *client, struct stile_job *jobs,
                                        size_t n, const char *why,
                                        const struct stile_jobs_options *options, stile_jobs_fn *fn,
                                        void *data)
{
    struct fail_room room;
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_fail(&call, &room, client, jobs, n, why, options, NULL);
    return status ? status
                  : jobs_start(&call, 0, (struct jobs_callbacks){.jobs = fn, .data = data});
}

static enum stile_status begin_extend(struct job_call *call, struct job_mark *marks,
                                      struct stile_client *client, struct stile_job *jobs, size_t n,
                                      int64_t lease_ms, struct stile_error *err)
{
    enum stile_status status = jobs_check_lease(lease_ms, err);
    if (status)
        return error_wrap(err, status, "extending a job");
    status = begin_given(call, JOB_EXTEND, marks, client, jobs, n, err);
    if (!status)
        call->job.lease_ms = lease_ms ? lease_ms : JOBS_LEASE_DEFAULT_MS;
    return status;
}

enum stile_status stile_jobs_extend(struct stile_client *client, struct stile_job *jobs, size_t n,
                                    int64_t lease_ms, struct stile_error *err)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    enum stile_status status = begin_extend(&call, marks, client, jobs, n, lease_ms, err);
    return status ? status : jobs_run(&call, 0, err);
}

enum stile_status stile_jobs_extend_async(struct stile_client *client, struct stile_job *jobs,
                                          size_t n, int64_t lease_ms, stile_jobs_fn *fn, void *data)
{
    struct job_mark marks[STILE_JOBS_MAX];
    struct job_call call;
    if (!fn)
        return STILE_MISUSE;
    enum stile_status status = begin_extend(&call, marks, client, jobs, n, lease_ms, NULL);
    return status ? status
                  : jobs_start(&call, 0, (struct jobs_callbacks){.jobs = fn, .data = data});
}
