/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in a database: `jobs add TEXT...` adds them, `jobs` works on them until none is left.
 *
 *     export STILE_ENGINE=postgres://localhost/app        (once: stile setup)
 */
#include <stdio.h>
#include <string.h>

#include <stile.h>

#define QUEUE "greetings"
#define BATCH 10

static int fail(const struct stile_error *err)
{
    fprintf(stderr, "jobs: %s\n", err->message);
    return 1;
}

static int add(struct stile_client *client, char **texts)
{
    struct stile_error err;
    for (; *texts; texts++) {
        /* The text is also the key: while the job waits unclaimed, it is not added twice. */
        if (stile_jobs_add(NULL, client, QUEUE, *texts, strlen(*texts),
                           STILE_JOBS_OPTIONS(.key = *texts), &err))
            return fail(&err);
    }
    return 0;
}

/* The token is part of the output: a reader can refuse a greeting from an earlier claim. */
static bool greet(const struct stile_job *job)
{
    return printf("hello, %.*s (token %llu, try %u)\n", (int)job->payload_size,
                  (const char *)job->payload, (unsigned long long)job->token, job->tries) > 0;
}

/* Successful jobs are acknowledged at once; the others are tried again after a pause. */
static void finish(struct stile_client *client, struct stile_job *jobs, size_t n)
{
    struct stile_error err;
    for (size_t i = 0; i < n; i++) {
        enum stile_status status = STILE_OK;
        if (stile_jobs_remaining_ms(&jobs[i]) == 0)
            continue; /* its lease is over: another worker may have it */
        if (greet(&jobs[i]))
            status = stile_jobs_ack(client, &jobs[i], 1, &err);
        else
            status = stile_jobs_fail(client, &jobs[i], 1, "nobody listens", NULL, &err);
        if (status)
            fail(&err); /* STALE: another worker has it by now, with a larger token */
    }
}

static int work(struct stile_client *client)
{
    struct stile_job *jobs;
    struct stile_error err;
    enum stile_status status;
    size_t n;
    while (!(status = stile_jobs_claim(&jobs, &n, client, QUEUE,
                                       STILE_JOBS_OPTIONS(.max = BATCH, .wait_ms = 1000), &err))) {
        finish(client, jobs, n);
        stile_jobs_free(jobs, n);
    }
    return status == STILE_TIMEOUT ? 0 : fail(&err);
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_error err;
    if (stile_client_open(&client, NULL, NULL, &err))
        return fail(&err);
    int code = argc > 1 && strcmp(argv[1], "add") == 0 ? add(client, argv + 2) : work(client);
    stile_client_close(client);
    return code;
}
