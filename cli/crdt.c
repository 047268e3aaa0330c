/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile crdt: counters and sets in cells, changed without a lock. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A change only waits for those of others, which are as short. */
static const struct stile_cell_options patient = {.size = sizeof patient, .tries = 1000};

/* ---- the replica ---- */

/* FNV-1a, with the NUL that ends the text. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    while (*text++ != '\0');
    return hash;
}

/* The same for all commands on this host that use this cell: compare-and-swap keeps them apart, and
 * the state does not grow with each of them. Another one for each cell, so that states which are
 * copied from cell to cell may be merged. */
static void name_replica(unsigned char id[STILE_REPLICA_SIZE], const struct options *options)
{
    char host[256] = "", url[STILE_URL_MAX + 1] = "";
    uint64_t halves[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4)};
    gethostname(host, sizeof host - 1);
    stile_url_redact(url, sizeof url, engine_url(options));
    for (size_t i = 0; i < 2; i++) {
        halves[i] = hash_text(halves[i], host);
        halves[i] = hash_text(halves[i], url);
        halves[i] = hash_text(halves[i], options->args[0]);
    }
    memcpy(id, halves, STILE_REPLICA_SIZE);
}

/* ---- what all verbs do ---- */

typedef void print_fn(const struct options *options, const struct stile_crdt *crdt);

static enum stile_status update(struct stile_crdt **crdt, struct options *options,
                                struct stile_client *client, enum stile_crdt_kind kind,
                                stile_crdt_fn *fn, struct stile_error *err)
{
    unsigned char id[STILE_REPLICA_SIZE];
    name_replica(id, options);
    enum stile_status status = stile_crdt_new(crdt, kind, STILE_CRDT_OPTIONS(.replica = id), err);
    return status ? status
                  : stile_crdt_update(*crdt, client, options->args[0], fn, options, &patient, err);
}

/* fn NULL: only read. */
static int run(const char *verb, struct options *options, enum stile_crdt_kind kind,
               stile_crdt_fn *fn, print_fn *print)
{
    struct stile_client *client;
    struct stile_crdt *crdt = NULL;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile crdt");
    if (code != 0)
        return code;
    enum stile_status status = update(&crdt, options, client, kind, fn, &err);
    stile_client_close(client);
    if (status != STILE_OK) {
        code = say_failure(verb, status, &err);
    } else {
        print(options, crdt);
        code = finish_output(0);
    }
    stile_crdt_free(crdt);
    return code;
}

/* ---- counters ---- */

static void print_counter(const struct options *options, const struct stile_crdt *crdt)
{
    struct json json = {.out = stdout};
    if (options->given & OPT_JSON) {
        json_open(&json, NULL, '{');
        json_text(&json, "key", options->args[0]);
        json_int(&json, "value", stile_counter_value(crdt));
        json_close(&json, '}');
        putchar('\n');
    } else {
        printf("%" PRId64 "\n", stile_counter_value(crdt));
    }
}

/* What is added: 1 unless a number is given. */
static bool read_number(int64_t *number, const struct options *options)
{
    char *end;
    const char *text = options->n_args > 1 ? options->args[1] : "1";
    errno = 0;
    *number = strtoll(text, &end, 10);
    return text[0] != '\0' && strchr("+-0123456789", text[0]) != NULL && *end == '\0' && errno == 0;
}

static enum stile_status add_number(struct stile_crdt *crdt, void *data, struct stile_error *err)
{
    int64_t number = 0;
    read_number(&number, data);
    return stile_counter_add(crdt, number, err);
}

static int counter_add(struct options *options)
{
    int64_t number;
    if (!read_number(&number, options)) {
        say("crdt counter add: %.40s: not a whole number; see stile crdt counter add --help",
            options->args[1]);
        return EXIT_USAGE;
    }
    return run("crdt counter add", options, STILE_CRDT_PNCOUNTER, add_number, print_counter);
}

static int counter_get(struct options *options)
{
    return run("crdt counter get", options, STILE_CRDT_PNCOUNTER, NULL, print_counter);
}

const struct verb verb_crdt_counter_add = {
    .name = "crdt counter add",
    .accepts = OPT_JSON,
    .min_args = 1,
    .max_args = 2,
    .negatives = true,
    .argument = "KEY",
    .operands = "KEY [NUMBER]",
    .about = "Adds NUMBER, or 1, to the counter in the cell KEY and prints its value. NUMBER may "
             "be negative. No lock is needed. If the outcome is not known (exit 69), a repetition "
             "may count twice.",
    .run = counter_add,
};

const struct verb verb_crdt_counter_get = {
    .name = "crdt counter get",
    .accepts = OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY",
    .about = "Prints the value of the counter in the cell KEY: 0 if there is none.",
    .run = counter_get,
};

/* ---- sets ---- */

/* Elements are any bytes; those that a program has added may contain a NUL. */
static int print_element(const void *element, size_t size, void *data)
{
    const char *at = element, *end = at + size;
    (void)data;
    for (;; fputs("\\x00", stdout)) {
        char *text = text_escape(at);
        fputs(text, stdout);
        free(text);
        at += strlen(at) + 1;
        if (at > end)
            break;
    }
    putchar('\n');
    return 0;
}

static int print_element_json(const void *element, size_t size, void *data)
{
    struct json *json = data;
    json_open(json, NULL, '{');
    if (strlen(element) == size) {
        json_text(json, "element", element);
    } else {
        char *hex = must_alloc(malloc(2 * size + 1));
        for (size_t i = 0; i < size; i++)
            sprintf(hex + 2 * i, "%02x", ((const unsigned char *)element)[i]);
        json_text(json, "element_hex", hex);
        free(hex);
    }
    json_close(json, '}');
    return 0;
}

static void print_set_json(const struct options *options, const struct stile_crdt *crdt)
{
    struct json json = {.out = stdout};
    json_open(&json, NULL, '{');
    json_text(&json, "key", options->args[0]);
    json_open(&json, "elements", '[');
    stile_orset_each(crdt, print_element_json, &json);
    json_close(&json, ']');
    json_close(&json, '}');
    putchar('\n');
}

static void print_set(const struct options *options, const struct stile_crdt *crdt)
{
    if (options->given & OPT_JSON)
        print_set_json(options, crdt);
    else
        stile_orset_each(crdt, print_element, NULL);
}

static void print_set_if_json(const struct options *options, const struct stile_crdt *crdt)
{
    if (options->given & OPT_JSON)
        print_set_json(options, crdt);
}

static enum stile_status add_elements(struct stile_crdt *crdt, void *data, struct stile_error *err)
{
    const struct options *options = data;
    enum stile_status status = STILE_OK;
    for (size_t i = 1; i < options->n_args && !status; i++)
        status = stile_orset_add(crdt, options->args[i], strlen(options->args[i]), err);
    return status;
}

static enum stile_status remove_elements(struct stile_crdt *crdt, void *data,
                                         struct stile_error *err)
{
    const struct options *options = data;
    enum stile_status status = STILE_OK;
    for (size_t i = 1; i < options->n_args && !status; i++)
        status = stile_orset_remove(crdt, options->args[i], strlen(options->args[i]), err);
    return status;
}

static int set_add(struct options *options)
{
    return run("crdt set add", options, STILE_CRDT_ORSET, add_elements, print_set_if_json);
}

static int set_rm(struct options *options)
{
    return run("crdt set rm", options, STILE_CRDT_ORSET, remove_elements, print_set_if_json);
}

static int set_ls(struct options *options)
{
    return run("crdt set ls", options, STILE_CRDT_ORSET, NULL, print_set);
}

const struct verb verb_crdt_set_add = {
    .name = "crdt set add",
    .accepts = OPT_JSON,
    .min_args = 2,
    .max_args = SIZE_MAX,
    .argument = "KEY or ELEMENT",
    .operands = "KEY ELEMENT...",
    .about = "Adds each ELEMENT to the set in the cell KEY. No lock is needed, and it may be "
             "repeated. With --json: prints the set.",
    .run = set_add,
};

const struct verb verb_crdt_set_rm = {
    .name = "crdt set rm",
    .accepts = OPT_JSON,
    .min_args = 2,
    .max_args = SIZE_MAX,
    .argument = "KEY or ELEMENT",
    .operands = "KEY ELEMENT...",
    .about = "Removes each ELEMENT from the set in the cell KEY, if it is there. With --json: "
             "prints the set.",
    .run = set_rm,
};

const struct verb verb_crdt_set_ls = {
    .name = "crdt set ls",
    .accepts = OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY",
    .about = "Prints the elements of the set in the cell KEY, one in a line and in byte order; "
             "nothing if there is none.",
    .run = set_ls,
};
