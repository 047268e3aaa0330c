/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: job queues, stored in the engine (the databases have them).
 *
 *  J1. A job is one worker's at a time, for a lease that the worker extends. A worker that does not
 *      extend it in time (killed, stopped, cut off) has lost it, and it is claimed again.
 *  J2. Each claim has a larger token than the one before. Acknowledging, failing or extending a job
 *      requires the token of the claim, and is refused as STALE if that isn't the latest: a late
 *      worker can neither finish nor fail a job that another worker has by now. Tokens of later
 *      jobs with the same key are larger too, so a guard can use the key as its resource.
 *  J3. A job may run more than once: a worker can die between its work and its ack. Guard with the
 *      token what must not happen twice.
 *  J4. The engine's clock counts. Jobs are claimed in the order in which they are due.
 */
#ifndef STILE_JOBS_H
#define STILE_JOBS_H

#include "../stile.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STILE_JOB_PAYLOAD_MAX (1024 * 1024) /* bytes; any bytes */
#define STILE_JOB_KEY_MAX     STILE_NAME_MAX
#define STILE_JOBS_MAX        100  /* in one call */
#define STILE_JOBS_ADD_MAX    1000 /* in one call of stile_jobs_add_all() */
#define STILE_JOB_TRIES_MAX   1000 /* see struct stile_jobs_options */
#define STILE_JOB_ERROR_MAX   4096 /* bytes of an error that are kept */

enum stile_job_state {
    STILE_JOB_READY, /* or will be, when it is due */
    STILE_JOB_CLAIMED,
    STILE_JOB_DEAD, /* failed too often: it stays until stile_jobs_retry() or _drop() */
};

/* Which jobs stile_jobs_list() lists. */
enum stile_jobs_filter {
    STILE_JOBS_ALL,
    STILE_JOBS_READY, /* and due */
    STILE_JOBS_DELAYED,
    STILE_JOBS_CLAIMED,
    STILE_JOBS_DEAD,
};

struct stile_job {
    uint64_t id;
    uint64_t token;    /* of its last claim; 0: never claimed */
    const char *queue; /* the rules for names are those of locks */
    const char *key;   /* NULL: none */
    const void *payload;
    size_t payload_size;
    enum stile_job_state state;
    unsigned tries;           /* how often it was claimed, this claim included */
    int64_t due_ms;           /* ready: until it may be claimed; claimed: until its lease ends */
    int64_t age_ms;           /* since it was added */
    const char *last_error;   /* "" if there was none; UTF-8, may have several lines: the last
                               * ones are the end of its command's stderr. list: the first line */
    const char *host;         /* its worker's; "" while it isn't claimed */
    int64_t pid;              /* its worker's */
    uint64_t deadline_ns;     /* claimed by this client: CLOCK_BOOTTIME after which it is lost */
    enum stile_status status; /* its result in the last call: OK or STALE */
    void *memory;             /* used by the library */
};

struct stile_queue {
    const char *name;
    uint64_t ready, delayed, claimed, dead; /* delayed: ready, but not yet due */
    int64_t oldest_ms; /* how long the oldest ready job has been due; 0: none */
};

/* Zero means default everywhere. */
struct stile_jobs_options {
    size_t size;            /* sizeof this struct; STILE_JOBS_OPTIONS fills it */
    const char *key;        /* add: skipped if a job with this key waits, never claimed */
    int64_t delay_ms;       /* add: not to be claimed earlier than this from now */
    size_t max;             /* claim: at most this many at once (1); list: (1000) */
    int64_t wait_ms;        /* claim: 0 tries once, -1 waits for ever */
    int64_t lease_ms;       /* claim: how long the claim lasts unless extended (30 s) */
    unsigned tries;         /* claim, fail: dead after this many claims (5) */
    int64_t backoff_ms;     /* fail: the first pause; doubled each time, 1 h at most (1 s) */
    struct stile_job *done; /* claim: jobs to acknowledge first; see stile_jobs_claim() */
    size_t n_done;
    enum stile_jobs_filter filter; /* list: only these (all) */
};

static inline struct stile_jobs_options stile_jobs_options_init(void)
{
    struct stile_jobs_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_JOBS_OPTIONS(...) STILE_OPTIONS_OF(stile_jobs_options, __VA_ARGS__)
#endif

/* *id, which may be NULL: the new job, or the waiting one with the same key. UNCERTAIN: the job may
 * have been added; with a key, adding it again is safe. */
STILE_API enum stile_status stile_jobs_add(uint64_t *id, struct stile_client *client,
                                           const char *queue, const void *payload, size_t size,
                                           const struct stile_jobs_options *options,
                                           struct stile_error *err);

/* Adds many jobs, with 4 MiB of payload at most, in one transaction: all of them, or none (MySQL,
 * unlike MariaDB, adds them one by one). ids, which may be NULL, has room for n. options->key must
 * be unset: each job has its own. */
struct stile_job_entry {
    const void *payload;
    size_t size;
    const char *key; /* NULL: none */
};
STILE_API enum stile_status stile_jobs_add_all(uint64_t *ids, struct stile_client *client,
                                               const char *queue,
                                               const struct stile_job_entry *entries, size_t n,
                                               const struct stile_jobs_options *options,
                                               struct stile_error *err);

/* OK: *n jobs, at least one, yours to free. TIMEOUT: no job was due in that time. The jobs in
 * options->done are first acknowledged as by stile_jobs_ack(), whatever becomes of the claim: on
 * postgres in the same transaction (one commit per job instead of two), on mysql just before. Their
 * status is set. */
STILE_API enum stile_status stile_jobs_claim(struct stile_job **jobs, size_t *n,
                                             struct stile_client *client, const char *queue,
                                             const struct stile_jobs_options *options,
                                             struct stile_error *err);
STILE_API void stile_jobs_free(struct stile_job *jobs, size_t n);

/* How long a claimed job's lease still lasts, by the local clock; 0: it has run out. */
STILE_API int64_t stile_jobs_remaining_ms(const struct stile_job *job);

/* For claimed jobs, by their tokens, in one statement. STALE: at least one was refused, as its
 * status shows; the call took effect on the others. After UNCERTAIN it may be repeated.
 *
 * ack: the job is done and removed. fail: it is due again after a pause (random, from 0 to
 * backoff_ms * 2^(tries - 1)), or dead; the first STILE_JOB_ERROR_MAX bytes of why are kept, with
 * control characters (but for line breaks and tabs) and what isn't UTF-8 replaced. give_back: as if
 * it had not been claimed. extend: the lease lasts lease_ms from now. */
STILE_API enum stile_status stile_jobs_ack(struct stile_client *client, struct stile_job *jobs,
                                           size_t n, struct stile_error *err);
STILE_API enum stile_status stile_jobs_fail(struct stile_client *client, struct stile_job *jobs,
                                            size_t n, const char *why,
                                            const struct stile_jobs_options *options,
                                            struct stile_error *err);
STILE_API enum stile_status stile_jobs_give_back(struct stile_client *client,
                                                 struct stile_job *jobs, size_t n,
                                                 struct stile_error *err);
STILE_API enum stile_status stile_jobs_extend(struct stile_client *client, struct stile_job *jobs,
                                              size_t n, int64_t lease_ms, struct stile_error *err);

/* Listing: payloads are left out, only their sizes are given. Return non-zero to stop. */
typedef int stile_job_fn(const struct stile_job *job, void *data);
typedef int stile_queue_fn(const struct stile_queue *queue, void *data);
STILE_API enum stile_status stile_jobs_list(struct stile_client *client, const char *queue,
                                            const struct stile_jobs_options *options,
                                            stile_job_fn *fn, void *data, struct stile_error *err);
/* One job with its payload, yours to free: stile_jobs_free(job, 1). It is not claimed by that. A
 * payload above STILE_JOB_PAYLOAD_MAX, which only SQL can have added, is NULL; its size is given.
 * CONFLICT: no job of this queue has this number. */
STILE_API enum stile_status stile_jobs_show(struct stile_job **job, struct stile_client *client,
                                            const char *queue, uint64_t id,
                                            struct stile_error *err);
/* queue NULL: all that have jobs. */
STILE_API enum stile_status stile_jobs_count(struct stile_client *client, const char *queue,
                                             stile_queue_fn *fn, void *data,
                                             struct stile_error *err);
/* Makes a dead job ready again, with all its tries; id 0: all dead jobs of the queue. It gets a new
 * id, so that its tokens are larger than those of later jobs with its key. *n, which may be NULL:
 * how many. CONFLICT: there is none, or another one with its key waits. */
STILE_API enum stile_status stile_jobs_retry(size_t *n, struct stile_client *client,
                                             const char *queue, uint64_t id,
                                             struct stile_error *err);
/* CONFLICT: there is no such job, or it is claimed. */
STILE_API enum stile_status stile_jobs_drop(struct stile_client *client, const char *queue,
                                            uint64_t id, struct stile_error *err);

/* ---- for event loops ----
 *
 * The same without waiting. OK: the callback comes exactly once, never from inside the call itself;
 * err is NULL if the status is OK. What is given is copied, but jobs must stay allocated until the
 * callback comes. Closing the client ends waiting claims with CANCELLED, and what the engine does
 * not answer in some seconds with UNCERTAIN. */

/* claim, show: the jobs are yours to free. The others: the jobs that were given. */
typedef void stile_jobs_fn(struct stile_job *jobs, size_t n, enum stile_status status,
                           const struct stile_error *err, void *data);
STILE_API enum stile_status stile_jobs_claim_async(struct stile_client *client, const char *queue,
                                                   const struct stile_jobs_options *options,
                                                   stile_jobs_fn *fn, void *data);
/* Ends every waiting stile_jobs_claim() of this client with CANCELLED. */
STILE_API enum stile_status stile_jobs_cancel(struct stile_client *client);
STILE_API enum stile_status stile_jobs_ack_async(struct stile_client *client,
                                                 struct stile_job *jobs, size_t n,
                                                 stile_jobs_fn *fn, void *data);
STILE_API enum stile_status stile_jobs_fail_async(struct stile_client *client,
                                                  struct stile_job *jobs, size_t n, const char *why,
                                                  const struct stile_jobs_options *options,
                                                  stile_jobs_fn *fn, void *data);
STILE_API enum stile_status stile_jobs_give_back_async(struct stile_client *client,
                                                       struct stile_job *jobs, size_t n,
                                                       stile_jobs_fn *fn, void *data);
STILE_API enum stile_status stile_jobs_extend_async(struct stile_client *client,
                                                    struct stile_job *jobs, size_t n,
                                                    int64_t lease_ms, stile_jobs_fn *fn,
                                                    void *data);

STILE_API enum stile_status stile_jobs_show_async(struct stile_client *client, const char *queue,
                                                  uint64_t id, stile_jobs_fn *fn, void *data);

/* add: the ids of the n jobs. retry: n were made ready, drop: n were removed; ids is NULL. */
typedef void stile_jobs_done_fn(const uint64_t *ids, size_t n, enum stile_status status,
                                const struct stile_error *err, void *data);
STILE_API enum stile_status stile_jobs_add_async(struct stile_client *client, const char *queue,
                                                 const void *payload, size_t size,
                                                 const struct stile_jobs_options *options,
                                                 stile_jobs_done_fn *fn, void *data);
STILE_API enum stile_status stile_jobs_add_all_async(struct stile_client *client, const char *queue,
                                                     const struct stile_job_entry *entries,
                                                     size_t n,
                                                     const struct stile_jobs_options *options,
                                                     stile_jobs_done_fn *fn, void *data);
STILE_API enum stile_status stile_jobs_retry_async(struct stile_client *client, const char *queue,
                                                   uint64_t id, stile_jobs_done_fn *fn, void *data);
STILE_API enum stile_status stile_jobs_drop_async(struct stile_client *client, const char *queue,
                                                  uint64_t id, stile_jobs_done_fn *fn, void *data);

/* done comes after the last call of fn. */
STILE_API enum stile_status stile_jobs_list_async(struct stile_client *client, const char *queue,
                                                  const struct stile_jobs_options *options,
                                                  stile_job_fn *fn, stile_query_done_fn *done,
                                                  void *data);
STILE_API enum stile_status stile_jobs_count_async(struct stile_client *client, const char *queue,
                                                   stile_queue_fn *fn, stile_query_done_fn *done,
                                                   void *data);

#ifdef __cplusplus
}
#endif
#endif
