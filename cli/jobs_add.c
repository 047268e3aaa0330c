/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile jobs add: a job for stdin, for each file, or for each line. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

/* The most that one call of stile_jobs_add_all() accepts. */
#define CALL_BYTES (4 * 1024 * 1024)

#define COUNT_MAX   (INT64_C(64) * 1024 * 1024) /* of a payload that is too large */
#define IDLE_MS     100                         /* lines that have come are then added */
#define PROGRESS_MS 5000

struct adding {
    const struct options *options;
    struct stile_client *client;
    struct stile_job_entry entries[STILE_JOBS_ADD_MAX];
    size_t n, bytes;
    uint64_t added;
};

/* ---- a batch ---- */

static void put_entry(struct adding *a, char *payload, size_t size)
{
    a->entries[a->n++] =
        (struct stile_job_entry){.payload = payload, .size = size, .key = a->options->key};
    a->bytes += size;
}

static bool is_full(const struct adding *a, size_t next)
{
    return a->n == STILE_JOBS_ADD_MAX || a->bytes + next > CALL_BYTES;
}

static void free_entries(struct adding *a)
{
    for (size_t i = 0; i < a->n; i++)
        free((void *)a->entries[i].payload);
    a->n = a->bytes = 0;
}

static enum stile_status add_batch(struct adding *a, struct stile_error *err)
{
    uint64_t ids[STILE_JOBS_ADD_MAX];
    enum stile_status status =
        stile_jobs_add_all(ids, a->client, a->options->args[0], a->entries, a->n,
                           STILE_JOBS_OPTIONS(.delay_ms = a->options->due_ms), err);
    for (size_t i = 0; status == STILE_OK && i < a->n; i++) {
        if (!(a->options->given & OPT_QUIET))
            printf("%" PRIu64 "\n", ids[i]);
    }
    a->added += status == STILE_OK ? a->n : 0;
    fflush(stdout); /* a reader sees them now, and a signal cannot lose them */
    free_entries(a);
    return status;
}

static int too_large(const char *where, int64_t size)
{
    say("jobs add: %s: has %s%" PRId64 " bytes, %d is the limit of a job; put a reference to it "
        "into the job instead",
        where, size > COUNT_MAX ? "more than " : "", size > COUNT_MAX ? COUNT_MAX : size,
        STILE_JOB_PAYLOAD_MAX);
    return EXIT_USAGE;
}

/* ---- files ---- */

/* All of it, or -1. */
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

/* How large it is, of which so much was read; a pipe without end is not read forever. */
static int64_t whole_size(int fd, int64_t n)
{
    char rest[65536];
    struct stat stat;
    if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size > n)
        return stat.st_size;
    for (ssize_t got = 1; got > 0 && n <= COUNT_MAX; n += got > 0 ? got : 0)
        got = read_all(fd, rest, sizeof rest);
    return n;
}

/* 0, or an exit code. */
static int read_payload(struct adding *a, int fd, const char *path)
{
    char *payload = must_alloc(malloc(STILE_JOB_PAYLOAD_MAX + 1));
    ssize_t size = read_all(fd, payload, STILE_JOB_PAYLOAD_MAX + 1);
    if (size >= 0 && size <= STILE_JOB_PAYLOAD_MAX) {
        put_entry(a, must_alloc(realloc(payload, (size_t)size + 1)), (size_t)size);
        return 0;
    }
    free(payload);
    if (size > STILE_JOB_PAYLOAD_MAX)
        return too_large(path, whole_size(fd, size));
    say("jobs add: reading %s: %s", path, strerror(errno));
    return EXIT_USAGE;
}

static int read_file(struct adding *a, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        say("jobs add: reading %s: %s", path, strerror(errno));
        return EXIT_USAGE;
    }
    int code = read_payload(a, fd, path);
    close(fd);
    return code;
}

static int send_files(struct adding *a)
{
    struct stile_error err = {0};
    enum stile_status status = add_batch(a, &err);
    return status == STILE_OK ? 0 : say_failure("jobs add", status, &err);
}

/* A batch is sent when the next file might exceed its limit. */
static int add_files(struct adding *a)
{
    size_t n_files = a->options->n_args - 1;
    int code = n_files ? 0 : read_payload(a, STDIN_FILENO, "stdin");
    for (size_t i = 1; i <= n_files && code == 0; i++) {
        code = read_file(a, a->options->args[i]);
        if (code == 0 && is_full(a, STILE_JOB_PAYLOAD_MAX))
            code = send_files(a);
    }
    if (code == 0 && a->n > 0)
        code = send_files(a);
    free_entries(a);
    return code;
}

/* ---- lines ---- */

struct lines {
    char delimiter;
    char *buffer; /* a line and what was read behind it */
    size_t begin, end;
    uint64_t line;  /* of the next one, from 1 */
    uint64_t first; /* of the batch */
    bool at_end;
    int64_t report_ms;
};

#define BUFFER_SIZE (2 * STILE_JOB_PAYLOAD_MAX)

/* False with errno: stdin cannot be read. */
static bool read_more(struct lines *l)
{
    memmove(l->buffer, l->buffer + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    ssize_t n;
    do
        n = read(STDIN_FILENO, l->buffer + l->end, BUFFER_SIZE - l->end);
    while (n < 0 && errno == EINTR);
    l->end += n > 0 ? (size_t)n : 0;
    l->at_end = n == 0;
    return n >= 0;
}

/* A line that is longer than a payload may be: counted to its end. */
static int64_t line_size(struct lines *l)
{
    int64_t size = 0;
    for (;;) {
        char *end = memchr(l->buffer + l->begin, l->delimiter, l->end - l->begin);
        size += (end != NULL ? end : l->buffer + l->end) - (l->buffer + l->begin);
        l->begin = l->end;
        if (end != NULL || l->at_end || size > COUNT_MAX || !read_more(l))
            return size;
    }
}

/* What has come is added when nothing follows for a moment: a program may write line by line. */
static bool nothing_follows(void)
{
    struct pollfd polled = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&polled, 1, IDLE_MS) == 0;
}

static void report_progress(const struct adding *a, struct lines *l)
{
    bool wanted = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    if (!wanted || (a->options->given & OPT_QUIET) || now_ms() < l->report_ms)
        return;
    say("jobs add: %" PRIu64 " jobs so far", a->added);
    l->report_ms = now_ms() + PROGRESS_MS;
}

static int send_lines(struct adding *a, struct lines *l)
{
    struct stile_error err = {0};
    size_t n = a->n;
    if (n == 0)
        return 0;
    enum stile_status status = add_batch(a, &err);
    if (status != STILE_OK) {
        say("jobs add: lines %" PRIu64 " to %" PRIu64 ": %s%s", l->first, l->first + n - 1,
            err.message, l->first > 1 ? "; the lines before have been added" : "");
        return exit_code_of(status);
    }
    l->first += n;
    report_progress(a, l);
    return 0;
}

static int refuse_line(struct lines *l)
{
    char where[64];
    snprintf(where, sizeof where, "line %" PRIu64, l->line);
    int code = too_large(where, line_size(l));
    if (l->first > 1)
        say("jobs add: lines 1 to %" PRIu64 " have been added, and none after them", l->first - 1);
    else
        say("jobs add: no line has been added");
    return code;
}

static int take_line(struct adding *a, struct lines *l, size_t size)
{
    int code = is_full(a, size) ? send_lines(a, l) : 0;
    if (code != 0)
        return code;
    char *payload = must_alloc(malloc(size + 1));
    memcpy(payload, l->buffer + l->begin, size);
    put_entry(a, payload, size);
    l->begin += size + (l->begin + size < l->end);
    l->line++;
    return 0;
}

/* All lines in the buffer; at the end of the input, what is left is one too. */
static int take_lines(struct adding *a, struct lines *l)
{
    int code = 0;
    while (code == 0 && l->begin < l->end) {
        size_t left = l->end - l->begin;
        char *end = memchr(l->buffer + l->begin, l->delimiter, left);
        size_t size = end != NULL ? (size_t)(end - l->buffer) - l->begin : left;
        if (size > STILE_JOB_PAYLOAD_MAX)
            return refuse_line(l);
        if (end == NULL && !l->at_end)
            break;
        code = take_line(a, l, size);
    }
    return code;
}

static int add_lines(struct adding *a)
{
    struct lines l = {.delimiter = a->options->given & OPT_NULL ? '\0' : '\n',
                      .buffer = must_alloc(malloc(BUFFER_SIZE)),
                      .line = 1,
                      .first = 1,
                      .report_ms = now_ms() + PROGRESS_MS};
    int code = 0;
    while (code == 0 && !l.at_end) {
        if (a->n > 0 && nothing_follows())
            code = send_lines(a, &l);
        if (code == 0 && !read_more(&l)) {
            say("jobs add: reading stdin, line %" PRIu64 ": %s", l.line, strerror(errno));
            code = EXIT_USAGE;
        }
        if (code == 0)
            code = take_lines(a, &l);
    }
    if (code == 0)
        code = send_lines(a, &l);
    free_entries(a);
    free(l.buffer);
    return code;
}

/* ---- the verb ---- */

static int check(const struct options *options)
{
    bool lines = options->given & (OPT_LINES | OPT_NULL);
    if (lines && (options->key || options->n_args > 1))
        say("jobs add: --lines reads its jobs from stdin and cannot go with %s",
            options->key ? "--key, which is for one job" : "a FILE: use < FILE");
    else if (options->key && options->n_args > 2)
        say("jobs add: --key is for one job, and %zu files are given", options->n_args - 1);
    else
        return 0;
    return EXIT_USAGE;
}

static int add(struct options *options)
{
    static struct adding adding;
    int code = check(options);
    if (code == 0)
        code = engine_open(&adding.client, options, 0, "stile jobs add");
    if (code != 0)
        return code;
    adding.options = options;
    code = options->given & (OPT_LINES | OPT_NULL) ? add_lines(&adding) : add_files(&adding);
    stile_client_close(adding.client);
    if (options->given & OPT_QUIET)
        printf("%" PRIu64 "\n", adding.added);
    return finish_output(code);
}

const struct verb verb_jobs_add = {
    .name = "jobs add",
    .argument = "QUEUE",
    .accepts = OPT_KEY | OPT_DUE | OPT_LINES | OPT_NULL | OPT_QUIET,
    .min_args = 1,
    .max_args = SIZE_MAX,
    .operands = "QUEUE [FILE...]",
    .about =
        "Adds a job to QUEUE for each FILE, for each line of stdin (--lines), or one for stdin, "
        "and prints its number; with -q, only how many were added. A payload is any bytes, up to 1 "
        "MiB; the end of a line is not part of it, and an empty line is a job as well. Many are "
        "added in transactions of up to 1,000 jobs and 4 MiB, each all or nothing. With --key, "
        "nothing is added if a job with this key waits in QUEUE and was never claimed; its number "
        "is printed instead. An event that arrives while its job is running queues one more.",
    .wording = jobs_wording,
    .run = add,
};
