/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile guard: check, raise, show, reset, install. What it prints for others to run is in
 * guard_print.c. */
#include "guard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

/* Nothing but digits. */
static bool parse_token(uint64_t *token, const char *text)
{
    uint64_t number = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
            return false;
    }
    *token = number;
    return number <= STILE_TOKEN_MAX;
}

/* URL RESOURCE TOKEN, or $STILE_TOKEN. */
static int read_token(uint64_t *token, const struct options *options, const char *verb)
{
    const char *text = options->n_args > 2 ? options->args[2] : secure_getenv("STILE_TOKEN");
    if (text == NULL) {
        say("%s: no TOKEN given, and $STILE_TOKEN is not set; see stile %s --help", verb, verb);
        return EXIT_USAGE;
    }
    if (parse_token(token, text) && *token > 0)
        return 0;
    say("%s: %.40s: not a token, a whole number from 1 to %" PRIu64, verb, text, STILE_TOKEN_MAX);
    return EXIT_USAGE;
}

static int open_place(struct guard_place *place, struct options *options, const char *verb)
{
    engine_from_argument(options);
    return guard_place_open(place, verb, engine_url(options), options->args[1]);
}

/* ---- raise and check ---- */

static enum stile_status raise_file(const struct guard_place *place, uint64_t token,
                                    const struct stile_guard_options *how, struct stile_error *err)
{
    return stile_file_raise(
        place->path, token,
        STILE_FILE_OPTIONS(.issuer = how->issuer, .strict = how->strict, .highest = how->highest),
        err);
}

static enum stile_status raise_guard(const struct guard_place *place, uint64_t token,
                                     const struct stile_guard_options *how, struct stile_error *err)
{
    return place->client == NULL
               ? raise_file(place, token, how, err)
               : stile_guard_raise(place->client, place->resource, token, how, err);
}

static enum stile_status check_file(const struct guard_place *place, uint64_t token,
                                    const struct stile_guard_options *how, struct stile_error *err)
{
    return stile_file_check(
        place->path, token,
        STILE_FILE_OPTIONS(.issuer = how->issuer, .strict = how->strict, .highest = how->highest),
        err);
}

static enum stile_status check_guard(const struct guard_place *place, uint64_t token,
                                     const struct stile_guard_options *how, struct stile_error *err)
{
    return place->client == NULL
               ? check_file(place, token, how, err)
               : stile_guard_check(place->client, place->resource, token, how, err);
}

typedef enum stile_status guard_fn(const struct guard_place *place, uint64_t token,
                                   const struct stile_guard_options *how, struct stile_error *err);

static void print_highest(const struct options *options, uint64_t highest)
{
    struct json json = {.out = stdout};
    if (!(options->given & OPT_JSON))
        return;
    json_open(&json, NULL, '{');
    json_text(&json, "resource", options->args[1]);
    json_uint(&json, "highest", highest);
    json_close(&json, '}');
    putchar('\n');
}

static int pass(struct options *options, const char *verb, guard_fn *fn)
{
    struct guard_place place = {.client = NULL};
    struct stile_error err = {0};
    uint64_t token, highest = 0;
    int code = read_token(&token, options, verb);
    if (code == 0)
        code = open_place(&place, options, verb);
    if (code == 0) {
        struct stile_guard_options how = {.size = sizeof how,
                                          .issuer = fence_issuer(options, token),
                                          .strict = options->given & OPT_STRICT,
                                          .highest = &highest};
        enum stile_status status = fn(&place, token, &how, &err);
        if (status != STILE_OK)
            code = say_failure(verb, status, &err);
        if (status == STILE_OK || status == STILE_STALE || status == STILE_FOREIGN)
            print_highest(options, highest);
    }
    guard_place_close(&place);
    return finish_output(code);
}

static int check(struct options *options)
{
    return pass(options, "guard check", check_guard);
}

static int raise_verb(struct options *options)
{
    return pass(options, "guard raise", raise_guard);
}

#define PASSING                                                                                    \
    .accepts = OPT_ISSUER | OPT_STRICT | OPT_JSON, .without_engine = true, .min_args = 2,          \
    .max_args = 3, .argument = "URL and RESOURCE", .operands = "URL RESOURCE [TOKEN]"

const struct verb verb_guard_check = {
    .name = "guard check",
    PASSING,
    .about = "Compares TOKEN (default: $STILE_TOKEN) with the highest one that the guard of "
             "RESOURCE has seen, and remembers nothing. Enough to stop early, never enough to "
             "protect a write: that takes a check in the same step.\n\n"
             "Exits with 0 if it would pass, 77 if it is stale, 78 if the guard's tokens come from "
             "another lock.",
    .run = check,
};

const struct verb verb_guard_raise = {
    .name = "guard raise",
    PASSING,
    .about =
        "As guard check, and remembers TOKEN if it passes: from then on smaller tokens are "
        "refused. A new holder does this before it reads; stile run --guard does it before CMD "
        "starts.\n\n"
        "URL is an engine, or file:DIR for a file RESOURCE in the directory DIR.",
    .run = raise_verb,
};

/* ---- show ---- */

struct seen {
    uint64_t token;
    char issuer[STILE_ISSUER_MAX + 1];
};

static enum stile_status see_cell(struct seen *seen, const struct guard_place *place,
                                  struct stile_error *err)
{
    struct stile_cell *cell;
    enum stile_status status = stile_cell_get(&cell, place->client, place->resource, err);
    if (status != STILE_OK)
        return status;
    seen->token = cell->token;
    snprintf(seen->issuer, sizeof seen->issuer, "%s", cell->issuer);
    stile_cell_free(cell);
    return STILE_OK;
}

static enum stile_status see_file(struct seen *seen, const struct guard_place *place,
                                  struct stile_error *err)
{
    struct stile_file_guard guard;
    enum stile_status status = stile_file_guard_show(&guard, place->path, err);
    if (status != STILE_OK)
        return status;
    seen->token = guard.highest;
    snprintf(seen->issuer, sizeof seen->issuer, "%s", guard.issuer);
    return STILE_OK;
}

static void print_seen(const struct options *options, const struct seen *seen)
{
    struct json json = {.out = stdout};
    char *resource = text_escape(options->args[1]), *issuer = text_escape(seen->issuer);
    if (options->given & OPT_JSON) {
        json_open(&json, NULL, '{');
        json_text(&json, "resource", options->args[1]);
        json_uint(&json, "highest", seen->token);
        if (seen->issuer[0] != '\0')
            json_text(&json, "issuer", seen->issuer);
        else
            json_null(&json, "issuer");
        json_close(&json, '}');
        putchar('\n');
    } else if (seen->token == 0) {
        printf("%s: no token seen\n", resource);
    } else {
        printf("%s: token %" PRIu64 "%s%s\n", resource, seen->token, issuer[0] ? " of " : "",
               issuer);
    }
    free(resource);
    free(issuer);
}

static int show(struct options *options)
{
    struct guard_place place = {.client = NULL};
    struct stile_error err = {0};
    struct seen seen = {.token = 0};
    int code = open_place(&place, options, "guard show");
    if (code == 0) {
        enum stile_status status =
            place.client == NULL ? see_file(&seen, &place, &err) : see_cell(&seen, &place, &err);
        if (status != STILE_OK)
            code = say_failure("guard show", status, &err);
        else
            print_seen(options, &seen);
    }
    guard_place_close(&place);
    return finish_output(code);
}

const struct verb verb_guard_show = {
    .name = "guard show",
    .accepts = OPT_JSON,
    .without_engine = true,
    .min_args = 2,
    .max_args = 2,
    .argument = "URL and RESOURCE",
    .operands = "URL RESOURCE",
    .about = "Prints the highest token that the guard of RESOURCE has seen, and which lock it came "
             "from.",
    .run = show,
};

/* ---- reset ---- */

static int read_reset(uint64_t *token, const struct options *options)
{
    *token = 0;
    if (options->n_args < 3 || parse_token(token, options->args[2]))
        return 0;
    say("guard reset: %.40s: not a token, a whole number up to %" PRIu64, options->args[2],
        STILE_TOKEN_MAX);
    return EXIT_USAGE;
}

static int reset(struct options *options)
{
    struct guard_place place = {.client = NULL};
    struct stile_error err = {0};
    uint64_t token;
    const char *issuer = options->given & OPT_ISSUER ? options->issuer : NULL;
    int code = read_reset(&token, options);
    if (code == 0)
        code = open_place(&place, options, "guard reset");
    if (code == 0) {
        enum stile_status status =
            place.client == NULL
                ? stile_file_guard_reset(place.path, token, issuer, &err)
                : stile_guard_reset(place.client, place.resource, token, issuer, &err);
        if (status != STILE_OK)
            code = say_failure("guard reset", status, &err);
    }
    guard_place_close(&place);
    return code;
}

const struct verb verb_guard_reset = {
    .name = "guard reset",
    .accepts = OPT_ISSUER,
    .without_engine = true,
    .min_args = 2,
    .max_args = 3,
    .argument = "URL and RESOURCE",
    .operands = "URL RESOURCE [TOKEN]",
    .about =
        "For a migration to another lock or engine: from now on the guard of RESOURCE has seen "
        "exactly TOKEN of --issuer; without them, no token at all. Stop all holders first: a "
        "late write of one of them may pass afterwards.",
    .run = reset,
};

/* ---- install ---- */

static int install(struct options *options)
{
    struct stile_error err = {0};
    const char *script = NULL;
    engine_from_argument(options);
    enum stile_status status =
        stile_guard_install(engine_url(options), options->given & OPT_PRINT, &script, &err);
    if (status == STILE_UNSUPPORTED) {
        say("%s", err.message);
        return EXIT_ENGINE;
    }
    if (status != STILE_OK)
        return engine_say_failure(options, status, &err);
    if (options->given & OPT_PRINT)
        fputs(script, stdout);
    return finish_output(0);
}

const struct verb verb_guard_install = {
    .name = "guard install",
    .accepts = OPT_PRINT,
    .without_engine = true,
    .min_args = 1,
    .max_args = 1,
    .argument = "URL",
    .operands = "URL",
    .about =
        "Creates what guards in your own transactions or scripts need, and nothing else of "
        "stile: functions and tables in PostgreSQL and MySQL, a library of functions in Redis. "
        "May be repeated. stile setup does the same and more.",
    .run = install,
};
