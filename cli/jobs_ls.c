/* stile jobs ls: the queues, or the jobs of one. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli.h"

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
    table_add(table, states[job->state]);
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

static int job_json(const struct stile_job *job, void *data)
{
    struct json *json = element_of(data);
    json_open(json, NULL, '{');
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
    json_text(json, "last_error", job->last_error);
    json_close(json, '}');
    return 0;
}

static enum stile_status list(struct listing *listing, struct stile_client *client,
                              const char *queue, struct stile_error *err)
{
    if (queue != NULL)
        return stile_jobs_list(client, queue, NULL, listing->as_json ? job_json : job_row, listing,
                               err);
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
    int code = engine_open(&client, options, 0, "stile jobs ls");
    if (code != 0)
        return code;
    table_start(&listing.table, queue != NULL ? job_heads : queue_heads);
    enum stile_status status = list(&listing, client, queue, &err);
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
    .accepts = OPT_JSON,
    .max_args = 1,
    .usage = "[-e URL] [--json] [QUEUE]",
    .about =
        "Counts the jobs of each queue, or lists the first 1000 of QUEUE in the order in which "
        "they\nare due. OLDEST: how long ago the first of those that are ready was due.",
    .run = ls,
};
