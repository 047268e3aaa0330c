/* stile jobs add: a job whose payload is what comes on stdin. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* All of stdin, and one byte more than there may be. */
static ssize_t read_payload(char *out, size_t size)
{
    size_t n = 0;
    while (n < size) {
        ssize_t got = read(STDIN_FILENO, out + n, size - n);
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

static int add(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    uint64_t id = 0;
    char *payload = must_alloc(malloc(STILE_JOB_PAYLOAD_MAX + 1));
    ssize_t size = read_payload(payload, STILE_JOB_PAYLOAD_MAX + 1);
    int code = 0;
    if (size < 0) {
        say("jobs add: reading stdin: %s", strerror(errno));
        code = EXIT_USAGE;
    } else {
        code = engine_open(&client, options, 0, "stile jobs add");
    }
    if (code == 0) {
        enum stile_status status = stile_jobs_add(
            &id, client, options->args[0], payload, (size_t)size,
            STILE_JOBS_OPTIONS(.key = options->key, .delay_ms = options->due_ms), &err);
        code = status == STILE_OK ? 0 : say_failure("jobs add", status, &err);
        stile_client_close(client);
    }
    free(payload);
    if (code == 0)
        printf("%" PRIu64 "\n", id);
    return finish_output(code);
}

const struct verb verb_jobs_add = {
    .name = "jobs add",
    .argument = "QUEUE",
    .accepts = OPT_KEY | OPT_DUE,
    .min_args = 1,
    .max_args = 1,
    .usage = "[-e URL] [--delay T] [--key K] QUEUE < PAYLOAD",
    .about = "Adds a job to QUEUE, whose payload (any bytes, 1 MiB at most) comes from stdin, and\n"
             "prints its number. With --key nothing is added if a job with this key is ready or\n"
             "claimed in QUEUE: the number is that one's. Jobs that are done or dead don't count.",
    .run = add,
};
