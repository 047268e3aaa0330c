/* stile jobs add, ls, retry, drop. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* ---- add ---- */

/* The most that one call of stile_jobs_add_all() accepts. */
#define CALL_BYTES (4 * 1024 * 1024)

struct batch {
    struct stile_job_entry entries[STILE_JOBS_ADD_MAX];
    size_t n, bytes;
};

/* All of it, and one byte more than is allowed. */
static ssize_t read_all(int fd, char *out, size_t size)
{
    size_t n = 0;
    while (n < size) {
        ssize_t got = read(fd, out + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

/* path NULL: stdin. 0, or an exit code. */
static int read_entry(struct batch *batch, const char *path, const char *key)
{
    char *payload = must_alloc(malloc(STILE_JOB_PAYLOAD_MAX + 1));
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    ssize_t size = fd < 0 ? -1 : read_all(fd, payload, STILE_JOB_PAYLOAD_MAX + 1);
    int error = errno;
    if (path && fd >= 0)
        close(fd);
    if (size < 0) {
        free(payload);
        say("jobs add: reading %s: %s", path ? path : "stdin", strerror(error));
        return EXIT_USAGE;
    }
    batch->entries[batch->n++] =
        (struct stile_job_entry){.payload = must_alloc(realloc(payload, (size_t)size + 1)),
                                 .size = (size_t)size,
                                 .key = key};
    batch->bytes += (size_t)size;
    return 0;
}

static int add_batch(struct batch *batch, struct stile_client *client,
                     const struct options *options)
{
    uint64_t ids[STILE_JOBS_ADD_MAX];
    struct stile_error err = {0};
    enum stile_status status =
        stile_jobs_add_all(ids, client, options->args[0], batch->entries, batch->n,
                           STILE_JOBS_OPTIONS(.delay_ms = options->due_ms), &err);
    for (size_t i = 0; i < batch->n; i++) {
        free((void *)batch->entries[i].payload);
        if (status == STILE_OK)
            printf("%" PRIu64 "\n", ids[i]);
    }
    batch->n = batch->bytes = 0;
    return status == STILE_OK ? 0 : say_failure("jobs add", status, &err);
}

/* A batch is sent when the next file might exceed its limit. */
static int add_files(struct stile_client *client, const struct options *options)
{
    static struct batch batch;
    size_t n_files = options->n_args - 1;
    int code = n_files ? 0 : read_entry(&batch, NULL, options->key);
    for (size_t i = 1; i <= n_files && code == 0; i++) {
        code = read_entry(&batch, options->args[i], options->key);
        bool full =
            batch.n == STILE_JOBS_ADD_MAX || batch.bytes + STILE_JOB_PAYLOAD_MAX > CALL_BYTES;
        if (code == 0 && full)
            code = add_batch(&batch, client, options);
    }
    if (code == 0 && batch.n > 0)
        code = add_batch(&batch, client, options);
    return code;
}

static int add(struct options *options)
{
    struct stile_client *client;
    if (options->key && options->n_args > 2) {
        say("jobs add: --key is for one job, and %zu files are given", options->n_args - 1);
        return EXIT_USAGE;
    }
    int code = engine_open(&client, options, 0, "stile jobs add");
    if (code != 0)
        return code;
    code = add_files(client, options);
    stile_client_close(client);
    return finish_output(code);
}

const struct verb verb_jobs_add = {
    .name = "jobs add",
    .argument = "QUEUE",
    .accepts = OPT_KEY | OPT_DUE,
    .min_args = 1,
    .max_args = SIZE_MAX,
    .usage = "[-e URL] [--delay T] [--key K] QUEUE [FILE...] [< PAYLOAD]",
    .about =
        "Adds a job to QUEUE for each FILE, or one for stdin, and prints its number. A payload is\n"
        "any bytes, up to 1 MiB. Many files are added in transactions of up to 1,000 jobs and\n"
        "4 MiB, each all or nothing. With --key, nothing is added if a job with this key waits in\n"
        "QUEUE and was never claimed; its number is printed instead. An event that arrives while\n"
        "its job is running queues one more.",
    .run = add,
};

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
    .about = "Counts the jobs of each queue, or lists the first 1,000 jobs of QUEUE in due order.\n"
             "OLDEST: how long the first of the ready jobs has been due.",
    .run = ls,
};

/* ---- retry, drop ---- */

static bool parse_id(uint64_t *id, const char *text)
{
    char *end;
    errno = 0;
    *id = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *id > 0;
}

static int check_ids(const struct options *options, const char *verb)
{
    uint64_t id;
    for (size_t i = 1; i < options->n_args; i++) {
        if (!parse_id(&id, options->args[i])) {
            say("%s: %.40s: not a job's number; see stile jobs ls %.100s", verb, options->args[i],
                options->args[0]);
            return EXIT_USAGE;
        }
    }
    return 0;
}

/* Each is tried; the exit code is that of the first failure. */
static int for_each_id(const struct options *options, const char *verb,
                       enum stile_status (*fn)(struct stile_client *client, const char *queue,
                                               uint64_t id, struct stile_error *err))
{
    struct stile_client *client;
    int code = check_ids(options, verb);
    if (code == 0)
        code = engine_open(&client, options, 0, "stile jobs");
    if (code != 0)
        return code;
    for (size_t i = options->n_args > 1 ? 1 : 0; i < options->n_args; i++) {
        struct stile_error err = {0};
        uint64_t id = 0;
        if (i > 0)
            parse_id(&id, options->args[i]);
        enum stile_status status = fn(client, options->args[0], id, &err);
        int failed = status == STILE_OK ? 0 : say_failure(verb, status, &err);
        code = code != 0 ? code : failed;
    }
    stile_client_close(client);
    return code != 0 ? code : finish_output(0);
}

static enum stile_status retry_one(struct stile_client *client, const char *queue, uint64_t id,
                                   struct stile_error *err)
{
    size_t n;
    enum stile_status status = stile_jobs_retry(&n, client, queue, id, err);
    if (status == STILE_OK && id == 0)
        printf("%zu\n", n);
    return status;
}

static int retry(struct options *options)
{
    return for_each_id(options, "jobs retry", retry_one);
}

static int drop(struct options *options)
{
    return for_each_id(options, "jobs drop", stile_jobs_drop);
}

const struct verb verb_jobs_retry = {
    .name = "jobs retry",
    .argument = "QUEUE",
    .min_args = 1,
    .max_args = 1000,
    .usage = "[-e URL] QUEUE [ID...]",
    .about = "Makes dead jobs ready again with a fresh count of tries: those with these numbers, "
             "or all\n"
             "of QUEUE. Prints how many. Exits with 75 if there is none.",
    .run = retry,
};

const struct verb verb_jobs_drop = {
    .name = "jobs drop",
    .argument = "QUEUE ID",
    .min_args = 2,
    .max_args = 1000,
    .usage = "[-e URL] QUEUE ID...",
    .about = "Removes jobs that no worker has claimed. Exits with 75 if there is no such job.",
    .run = drop,
};
