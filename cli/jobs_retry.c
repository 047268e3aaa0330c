/* stile jobs retry, stile jobs drop: what becomes of jobs that need a person. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "cli.h"

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

/* Each is tried, and the first failure is what we end with. */
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
    .about =
        "Makes dead jobs ready again, as if they had never been tried: those with these numbers,\n"
        "or all of QUEUE, and prints how many that were. Exits with 75 if there is none.",
    .run = retry,
};

const struct verb verb_jobs_drop = {
    .name = "jobs drop",
    .argument = "QUEUE ID",
    .min_args = 2,
    .max_args = 1000,
    .usage = "[-e URL] QUEUE ID...",
    .about = "Removes jobs that nobody has claimed. Exits with 75 if there is no such job.",
    .run = drop,
};
