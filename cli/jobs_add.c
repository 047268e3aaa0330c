/* stile jobs add: a job for stdin, or one for each file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* What one call of stile_jobs_add_all() takes. */
#define CALL_BYTES (4 * 1024 * 1024)

struct batch {
    struct stile_job_entry entries[STILE_JOBS_ADD_MAX];
    size_t n, bytes;
};

/* All there is, and one byte more than there may be. */
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

/* A batch goes when the next file might be too much for it. */
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
        "Adds a job to QUEUE for each FILE, or one for stdin, and prints its number. A payload\n"
        "is any bytes, 1 MiB at most. Many files are added up to a thousand and 4 MiB to a\n"
        "transaction, all of it or nothing. With --key nothing is added if a job with this key "
        "waits in QUEUE\n"
        "and was never claimed: the number is that one's. An event that comes while its job\n"
        "runs is queued once more.",
    .run = add,
};
