/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile jobs show: one job with its payload, and how its last try ended. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "jobs.h"

#define PREVIEW_TEXT  1024 /* bytes of a payload that are shown of text */
#define PREVIEW_BYTES 128  /* and of anything else */
#define HEX_COLUMNS   16

/* ---- text or not ---- */

/* Bytes that would show as text: UTF-8, and no control characters but those that lay it out. */
static bool is_text(const char *bytes, size_t size)
{
    char *copy = strndup(bytes, size);
    size_t len = strlen(must_alloc(copy)), n;
    uint32_t code = 0;
    for (const char *at = copy; len == size && (n = text_decode(&code, at)) > 0; at += n) {
        if ((code < 0x20 && code != '\n' && code != '\t' && code != '\r') || code == 0x7f)
            break;
        size -= n;
        len -= n;
    }
    free(copy);
    return size == 0;
}

static char *base64(const void *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    char *out = must_alloc(malloc((size + 2) / 3 * 4 + 1)), *to = out;
    for (size_t i = 0; i < size; i += 3) {
        unsigned left = (unsigned)(size - i < 3 ? size - i : 3);
        uint32_t word = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                        (left > 2 ? from[i + 2] : 0);
        for (unsigned k = 0; k < 4; k++)
            *to++ = k <= left ? digits[word >> (18 - 6 * k) & 63] : '=';
    }
    *to = '\0';
    return out;
}

/* ---- for people ---- */

#define HEAD "%-12s"

static void print_line(const char *head, const char *text)
{
    char *safe = text_escape(text);
    printf(HEAD "%s\n", head, safe);
    free(safe);
}

/* Line by line, each safe for a terminal. */
static void print_lines(const char *head, const char *text, size_t size)
{
    const char *end = text + size;
    while (text < end) {
        size_t len = 0;
        while (text + len < end && text[len] != '\n')
            len++;
        char *line = must_alloc(strndup(text, len));
        for (char *at = line; *at != '\0'; at++)
            *at = *at == '\t' ? ' ' : *at;
        if (len > 0 && line[len - 1] == '\r')
            line[len - 1] = '\0';
        print_line(head, line);
        free(line);
        text += len + 1;
        head = "";
    }
}

static void print_hex(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += HEX_COLUMNS) {
        size_t n = size - i < HEX_COLUMNS ? size - i : HEX_COLUMNS;
        printf(HEAD "%08zx ", "", i);
        for (size_t k = 0; k < HEX_COLUMNS; k++)
            k < n ? printf(" %02x", bytes[i + k]) : printf("   ");
        printf("  ");
        for (size_t k = 0; k < n; k++)
            putchar(bytes[i + k] >= ' ' && bytes[i + k] < 0x7f ? bytes[i + k] : '.');
        putchar('\n');
    }
}

/* A character that the limit would cut is left out. */
static size_t text_preview(const char *text, size_t size)
{
    size_t n = size < PREVIEW_TEXT ? size : PREVIEW_TEXT;
    while (n > 0 && n < size && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void print_payload(const struct stile_job *job)
{
    bool text = job->payload != NULL && is_text(job->payload, job->payload_size);
    size_t most = text ? text_preview(job->payload, job->payload_size) : PREVIEW_BYTES;
    size_t n = job->payload_size < most ? job->payload_size : most;
    printf(HEAD "%zu bytes%s\n", "payload", job->payload_size,
           job->payload == NULL     ? ", more than is shown: read it in the database"
           : n < job->payload_size  ? ", which begin with (--payload prints all):"
           : job->payload_size == 0 ? ""
                                    : ":");
    if (job->payload == NULL)
        return;
    if (text)
        print_lines("", job->payload, n);
    else
        print_hex(job->payload, n);
}

static void print_due(const struct stile_job *job)
{
    char time[DURATION_TEXT_MAX];
    const char *word = duration_format(time, job->due_ms > 0 ? job->due_ms : 0);
    if (job->state == STILE_JOB_CLAIMED)
        printf(HEAD "%s%s\n", "lease", job->due_ms > 0 ? "ends in " : "has ended",
               job->due_ms > 0 ? word : "");
    else if (job->state == STILE_JOB_READY)
        printf(HEAD "%s%s\n", "due", job->due_ms > 0 ? "in " : "now", job->due_ms > 0 ? word : "");
}

static void print_job(const struct stile_job *job)
{
    char age[DURATION_TEXT_MAX];
    printf(HEAD "%" PRIu64 "\n", "job", job->id);
    print_line("queue", job->queue);
    if (job->key != NULL)
        print_line("key", job->key);
    print_line("state", job_state(job));
    printf(HEAD "%u\n", "tries", job->tries);
    printf(HEAD "%s ago\n", "added", duration_format(age, job->age_ms));
    print_due(job);
    if (job->token != 0)
        printf(HEAD "%" PRIu64 "\n", "token", job->token);
    if (job->state == STILE_JOB_CLAIMED) {
        char *host = text_escape(job->host);
        printf(HEAD "%" PRId64 "@%s\n", "worker", job->pid, host);
        free(host);
    }
    if (job->last_error[0] != '\0')
        print_lines("last error", job->last_error, strlen(job->last_error));
    print_payload(job);
}

/* ---- for programs ---- */

static void json_payload(struct json *json, const struct stile_job *job)
{
    if (job->payload == NULL) {
        json_null(json, "payload");
    } else if (is_text(job->payload, job->payload_size)) {
        char *text = must_alloc(strndup(job->payload, job->payload_size));
        json_text(json, "payload", text);
        free(text);
    } else {
        char *text = base64(job->payload, job->payload_size);
        json_text(json, "payload_base64", text);
        free(text);
    }
}

static void print_json(const struct stile_job *job)
{
    struct json json = {.out = stdout};
    const char *rest = strchr(job->last_error, '\n');
    json_open(&json, NULL, '{');
    job_json_members(&json, job);
    json_text(&json, "stderr", rest != NULL ? rest + 1 : "");
    json_payload(&json, job);
    json_close(&json, '}');
    putchar('\n');
}

/* ---- the verb ---- */

static int print(const struct options *options, const struct stile_job *job)
{
    if (options->given & OPT_JSON) {
        print_json(job);
    } else if (!(options->given & OPT_PAYLOAD)) {
        print_job(job);
    } else if (job->payload != NULL) {
        fwrite(job->payload, 1, job->payload_size, stdout);
    } else {
        say("jobs show: the payload of job %" PRIu64
            " has %zu bytes, and %d is the limit of a job: "
            "read it in the database",
            job->id, job->payload_size, STILE_JOB_PAYLOAD_MAX);
        return EXIT_ENGINE;
    }
    return finish_output(0);
}

static int show(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    struct stile_job *job;
    uint64_t id;
    int code = job_ids_check(options, "jobs show");
    if (code == 0)
        code = engine_open(&client, options, 0, "stile jobs show");
    if (code != 0)
        return code;
    job_id_parse(&id, options->args[1]);
    enum stile_status status = stile_jobs_show(&job, client, options->args[0], id, &err);
    stile_client_close(client);
    if (status != STILE_OK)
        return say_failure("jobs show", status, &err);
    code = print(options, job);
    stile_jobs_free(job, 1);
    return code;
}

const struct verb verb_jobs_show = {
    .name = "jobs show",
    .argument = "QUEUE ID",
    .accepts = OPT_JSON | OPT_PAYLOAD,
    .min_args = 2,
    .max_args = 2,
    .operands = "QUEUE ID",
    .about = "Shows a job: its state, worker and last error, with the end of what its command "
             "wrote to stderr, and the beginning of its payload. --payload prints the payload and "
             "nothing else. Exits with 75 if there is no such job.",
    .run = show,
};
