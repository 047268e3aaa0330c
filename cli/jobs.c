/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile jobs ls, retry, drop. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobs.h"

/* ---- ls ---- */

struct listing {
    struct table table;
    struct json json;
    bool as_json, begun; /* the JSON array: not before the engine has answered */
};

static struct json *element_of(struct listing *listing)
{
    if (!listing->begun)
        json_open(&listing->json, NULL, '[');
    listing->begun = true;
    return &listing->json;
}

static const char *const states[] = {
    [STILE_JOB_READY] = "ready",
    [STILE_JOB_CLAIMED] = "claimed",
    [STILE_JOB_DEAD] = "dead",
};

const char *job_state(const struct stile_job *job)
{
    return job->state == STILE_JOB_READY && job->due_ms > 0 ? "delayed" : states[job->state];
}

static int queue_row(const struct stile_queue *queue, void *data)
{
    struct table *table = &((struct listing *)data)->table;
    char oldest[DURATION_TEXT_MAX];
    table_add(table, queue->name);
    table_addf(table, "%" PRIu64, queue->ready);
    table_addf(table, "%" PRIu64, queue->delayed);
    table_addf(table, "%" PRIu64, queue->claimed);
    table_addf(table, "%" PRIu64, queue->dead);
    table_add(table, queue->ready > 0 ? duration_format(oldest, queue->oldest_ms) : "");
    return 0;
}

static int queue_json(const struct stile_queue *queue, void *data)
{
    struct json *json = element_of(data);
    json_open(json, NULL, '{');
    json_text(json, "queue", queue->name);
    json_uint(json, "ready", queue->ready);
    json_uint(json, "delayed", queue->delayed);
    json_uint(json, "claimed", queue->claimed);
    json_uint(json, "dead", queue->dead);
    json_int(json, "oldest_ms", queue->oldest_ms);
    json_close(json, '}');
    return 0;
}

static int job_row(const struct stile_job *job, void *data)
{
    struct table *table = &((struct listing *)data)->table;
    char due[DURATION_TEXT_MAX], age[DURATION_TEXT_MAX];
    table_addf(table, "%" PRIu64, job->id);
    table_add(table, job_state(job));
    table_addf(table, "%u", job->tries);
    table_add(table, duration_format(age, job->age_ms));
    table_add(table, job->state == STILE_JOB_DEAD ? ""
                     : job->due_ms <= 0           ? "now"
                                                  : duration_format(due, job->due_ms));
    table_add(table, job->key != NULL ? job->key : "");
    table_addf(table, "%zu", job->payload_size);
    if (job->state == STILE_JOB_CLAIMED)
        table_addf(table, "%" PRId64 "@%s", job->pid, job->host);
    else
        table_add(table, "");
    table_add(table, job->last_error);
    return 0;
}

/* The first line of it: what follows is the command's stderr. */
static void json_error(struct json *json, const char *error)
{
    char *line = must_alloc(strndup(error, strcspn(error, "\n")));
    json_text(json, "last_error", line);
    free(line);
}

void job_json_members(struct json *json, const struct stile_job *job)
{
    json_uint(json, "id", job->id);
    json_text(json, "queue", job->queue);
    json_text(json, "state", states[job->state]);
    json_uint(json, "tries", job->tries);
    json_uint(json, "token", job->token);
    json_int(json, "age_ms", job->age_ms);
    json_int(json, "due_ms", job->due_ms);
    if (job->key != NULL)
        json_text(json, "key", job->key);
    else
        json_null(json, "key");
    json_uint(json, "size", job->payload_size);
    if (job->state == STILE_JOB_CLAIMED) {
        json_text(json, "host", job->host);
        json_int(json, "pid", job->pid);
    }
    json_error(json, job->last_error);
}

static int job_json(const struct stile_job *job, void *data)
{
    struct json *json = element_of(data);
    json_open(json, NULL, '{');
    job_json_members(json, job);
    json_close(json, '}');
    return 0;
}

static const char *const filters[] = {
    [STILE_JOBS_READY] = "ready",
    [STILE_JOBS_DELAYED] = "delayed",
    [STILE_JOBS_CLAIMED] = "claimed",
    [STILE_JOBS_DEAD] = "dead",
};

static int parse_filter(enum stile_jobs_filter *filter, const struct options *options)
{
    *filter = STILE_JOBS_ALL;
    if (!(options->given & OPT_STATE))
        return 0;
    for (unsigned i = STILE_JOBS_READY; i <= STILE_JOBS_DEAD; i++) {
        if (strcmp(options->state, filters[i]) == 0)
            *filter = (enum stile_jobs_filter)i;
    }
    if (*filter != STILE_JOBS_ALL && options->n_args > 0)
        return 0;
    say("jobs ls: --state: %s; see stile jobs ls --help",
        *filter != STILE_JOBS_ALL ? "needs a QUEUE"
                                  : "not a state; there are ready, delayed, claimed and dead");
    return EXIT_USAGE;
}

static enum stile_status list(struct listing *listing, struct stile_client *client,
                              const char *queue, enum stile_jobs_filter filter,
                              struct stile_error *err)
{
    if (queue != NULL)
        return stile_jobs_list(client, queue, STILE_JOBS_OPTIONS(.filter = filter),
                               listing->as_json ? job_json : job_row, listing, err);
    return stile_jobs_count(client, NULL, listing->as_json ? queue_json : queue_row, listing, err);
}

static int ls(struct options *options)
{
    static const char *const queue_heads[] = {"QUEUE", "READY",  "DELAYED", "CLAIMED",
                                              "DEAD",  "OLDEST", NULL};
    static const char *const job_heads[] = {"ID",  "STATE", "TRIES",  "AGE",        "DUE",
                                            "KEY", "SIZE",  "WORKER", "LAST-ERROR", NULL};
    struct stile_client *client;
    struct stile_error err = {0};
    const char *queue = options->n_args > 0 ? options->args[0] : NULL;
    struct listing listing = {.json = {.out = stdout}, .as_json = options->given & OPT_JSON};
    enum stile_jobs_filter filter;
    int code = parse_filter(&filter, options);
    if (code == 0)
        code = engine_open(&client, options, 0, "stile jobs ls");
    if (code != 0)
        return code;
    table_start(&listing.table, queue != NULL ? job_heads : queue_heads);
    enum stile_status status = list(&listing, client, queue, filter, &err);
    stile_client_close(client);
    if (status == STILE_OK && listing.as_json) {
        json_close(element_of(&listing), ']');
        putchar('\n');
    }
    table_finish(&listing.table, status == STILE_OK && !listing.as_json ? stdout : NULL);
    return status != STILE_OK ? say_failure("jobs ls", status, &err) : finish_output(0);
}

const struct verb verb_jobs_ls = {
    .name = "jobs ls",
    .accepts = OPT_JSON | OPT_STATE,
    .max_args = 1,
    .operands = "[QUEUE]",
    .about = "Counts the jobs of each queue, or lists the first 1,000 jobs of QUEUE in due order, "
             "with --state only those that are ready, delayed, claimed or dead. OLDEST: how long "
             "the first of the ready jobs has been due.",
    .run = ls,
};

/* ---- retry, drop ---- */

bool job_id_parse(uint64_t *id, const char *text)
{
    char *end;
    errno = 0;
    *id = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *id > 0;
}

int job_ids_check(const struct options *options, const char *verb)
{
    uint64_t id;
    for (size_t i = 1; i < options->n_args; i++) {
        if (!job_id_parse(&id, options->args[i])) {
            say("%s: %.40s: not a job's number; see stile jobs ls %.100s", verb, options->args[i],
                options->args[0]);
            return EXIT_USAGE;
        }
    }
    return 0;
}

typedef enum stile_status id_fn(size_t *n, struct stile_client *client, const char *queue,
                                uint64_t id, struct stile_error *err);

/* Each is tried; the exit code is that of the first failure. *total: how many jobs were changed. */
static int for_each_id(size_t *total, const struct options *options, const char *verb, id_fn *fn)
{
    struct stile_client *client;
    int code = job_ids_check(options, verb);
    *total = 0;
    if (code == 0)
        code = engine_open(&client, options, 0, "stile jobs");
    if (code != 0)
        return code;
    for (size_t i = options->n_args > 1 ? 1 : 0; i < options->n_args; i++) {
        struct stile_error err = {0};
        uint64_t id = 0;
        size_t n = 0;
        if (i > 0)
            job_id_parse(&id, options->args[i]);
        enum stile_status status = fn(&n, client, options->args[0], id, &err);
        int failed = status == STILE_OK ? 0 : say_failure(verb, status, &err);
        code = code != 0 ? code : failed;
        *total += n;
    }
    stile_client_close(client);
    return code;
}

static void say_count(const struct options *options, const char *verb, size_t n, const char *one,
                      const char *many)
{
    if (n > 0 && !(options->given & OPT_QUIET))
        say("%s: %zu %s", verb, n, n == 1 ? one : many);
}

/* A script reads the count of a retry without numbers; a person reads the sentence. */
static int retry(struct options *options)
{
    size_t n;
    int code = for_each_id(&n, options, "jobs retry", stile_jobs_retry);
    if (n > 0 && options->n_args == 1 && !isatty(STDOUT_FILENO))
        printf("%zu\n", n);
    say_count(options, "jobs retry", n, "job is ready again", "jobs are ready again");
    return code != 0 ? code : finish_output(0);
}

static enum stile_status drop_one(size_t *n, struct stile_client *client, const char *queue,
                                  uint64_t id, struct stile_error *err)
{
    enum stile_status status = stile_jobs_drop(client, queue, id, err);
    *n = status == STILE_OK;
    return status;
}

static int drop(struct options *options)
{
    size_t n;
    int code = for_each_id(&n, options, "jobs drop", drop_one);
    say_count(options, "jobs drop", n, "job is removed", "jobs are removed");
    return code;
}

const struct wording jobs_wording[] = {
    {OPT_QUIET, "print no messages; jobs add: a count instead of numbers"},
    {0},
};

const struct verb verb_jobs_retry = {
    .name = "jobs retry",
    .argument = "QUEUE",
    .accepts = OPT_QUIET,
    .wording = jobs_wording,
    .min_args = 1,
    .max_args = 1000,
    .operands = "QUEUE [ID...]",
    .about =
        "Makes dead jobs ready again, with all their tries: those with the given IDs, or all of "
        "QUEUE. Prints how many. Exits with 75 if there is none.",
    .run = retry,
};

const struct verb verb_jobs_drop = {
    .name = "jobs drop",
    .argument = "QUEUE ID",
    .accepts = OPT_QUIET,
    .wording = jobs_wording,
    .min_args = 2,
    .max_args = 1000,
    .operands = "QUEUE ID...",
    .about = "Removes jobs that no worker has claimed, and says how many. Exits with 75 if there "
             "is no such job.",
    .run = drop,
};
