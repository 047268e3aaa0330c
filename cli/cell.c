/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile cell: get, put, rm, ls and watch. update is in cell_update.c. */
#include "cell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cell_say_failure(const char *verb, enum stile_status status, const struct stile_error *err)
{
    int code = say_failure(verb, status, err);
    return status == STILE_CONFLICT ? EXIT_NO : code;
}

/* ---- token and issuer ---- */

const char *fence_issuer(const struct options *options, uint64_t token)
{
    const char *text = secure_getenv("STILE_TOKEN"), *issuer = secure_getenv("STILE_ISSUER");
    char *end;
    if (options->given & OPT_ISSUER)
        return options->issuer;
    if (text == NULL || issuer == NULL || token == 0)
        return NULL;
    /* A token from elsewhere has nothing to do with the run around this command. */
    return strtoull(text, &end, 10) == token && *end == '\0' ? issuer : NULL;
}

struct stile_cell_options cell_options(const struct options *options)
{
    return (struct stile_cell_options){
        .size = sizeof(struct stile_cell_options),
        .if_version = options->given & OPT_IF_VERSION ? &options->if_version : NULL,
        .token = options->token,
        .issuer = fence_issuer(options, options->token),
        .strict = options->given & OPT_STRICT,
        .keep_ms = options->keep_ms,
    };
}

/* ---- printing ---- */

static void json_value(struct json *json, const struct stile_cell *cell)
{
    const unsigned char *bytes = cell->value;
    if (bytes == NULL) {
        json_null(json, "value");
        return;
    }
    if (strlen(cell->value) == cell->size) {
        json_text(json, "value", cell->value);
        return;
    }
    char *hex = must_alloc(malloc(2 * cell->size + 1));
    for (size_t i = 0; i < cell->size; i++)
        sprintf(hex + 2 * i, "%02x", bytes[i]);
    json_text(json, "value_hex", hex);
    free(hex);
}

static void json_members(struct json *json, const struct stile_cell *cell)
{
    json_text(json, "key", cell->key);
    json_uint(json, "version", cell->version);
    json_uint(json, "size", cell->size);
    if (cell->token != 0)
        json_uint(json, "token", cell->token);
    else
        json_null(json, "token");
    if (cell->issuer[0] != '\0')
        json_text(json, "issuer", cell->issuer);
    else
        json_null(json, "issuer");
}

static void print_version(const struct options *options, uint64_t version)
{
    struct json json = {.out = stdout};
    if (options->given & OPT_JSON) {
        json_open(&json, NULL, '{');
        json_text(&json, "key", options->args[0]);
        json_uint(&json, "version", version);
        json_close(&json, '}');
        putchar('\n');
    } else {
        printf("%" PRIu64 "\n", version);
    }
}

/* ---- get ---- */

static int print_cell(const struct options *options, const struct stile_cell *cell)
{
    struct json json = {.out = stdout};
    if (options->given & OPT_JSON) {
        json_open(&json, NULL, '{');
        json_members(&json, cell);
        json_value(&json, cell);
        json_close(&json, '}');
        putchar('\n');
    } else if (cell->version != 0) {
        fwrite(cell->value, 1, cell->size, stdout);
    } else {
        say("cell get: there is no cell %s", cell->key);
    }
    return finish_output(cell->version != 0 ? 0 : EXIT_NO);
}

static int get(struct options *options)
{
    struct stile_client *client;
    struct stile_cell *cell;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile cell");
    if (code != 0)
        return code;
    enum stile_status status = stile_cell_get(&cell, client, options->args[0], &err);
    stile_client_close(client);
    if (status != STILE_OK)
        return say_failure("cell get", status, &err);
    code = print_cell(options, cell);
    stile_cell_free(cell);
    return code;
}

const struct verb verb_cell_get = {
    .name = "cell get",
    .accepts = OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY",
    .about = "Prints the value of the cell KEY, byte for byte. Exits with 1 if there is none. With "
             "--json: its version and what its guard has seen, too.",
    .run = get,
};

/* ---- put ---- */

int cell_read_value(int fd, char *value, size_t *size, const char *verb, const char *from)
{
    *size = 0;
    for (;;) {
        ssize_t n = read(fd, value + *size, STILE_CELL_MAX + 1 - *size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            say("%s: %s: %s", verb, from, strerror(errno));
            return EXIT_ENGINE;
        }
        if (n == 0)
            return 0;
        *size += (size_t)n;
        if (*size > STILE_CELL_MAX) {
            say("%s: %s: more than %d bytes, the limit of a cell; put a reference to it into the "
                "cell instead",
                verb, from, STILE_CELL_MAX);
            return EXIT_USAGE;
        }
    }
}

/* Everything is read before the engine is opened: its client would wait without being driven. */
static int put(struct options *options)
{
    static char value[STILE_CELL_MAX + 1];
    const struct stile_cell_options how = cell_options(options);
    struct stile_client *client;
    struct stile_error err = {0};
    uint64_t version = 0;
    size_t size;
    int code = cell_read_value(STDIN_FILENO, value, &size, "cell put", "stdin");
    if (code == 0)
        code = engine_open(&client, options, 0, "stile cell");
    if (code != 0)
        return code;
    enum stile_status status =
        stile_cell_put(&version, client, options->args[0], value, size, &how, &err);
    stile_client_close(client);
    if (status != STILE_OK)
        return cell_say_failure("cell put", status, &err);
    print_version(options, version);
    return finish_output(0);
}

const struct verb verb_cell_put = {
    .name = "cell put",
    .accepts = OPT_IF_VERSION | OPT_KEEP | OPT_TOKEN | OPT_ISSUER | OPT_STRICT | OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY <VALUE",
    .about = "Writes standard input, up to 64 KiB, to the cell KEY and prints its new version. "
             "--if-version 0 only creates it. Once the cell was written with a token, every later "
             "write needs one. With --keep, the engine drops the cell after that time, with its "
             "version and its guard, unless it is written again.\n\n"
             "Exits with 1 if the version is another one, 77 if a larger token was seen, 78 if its "
             "tokens come from another lock.",
    .run = put,
};

/* ---- rm ---- */

static int rm(struct options *options)
{
    const struct stile_cell_options how = cell_options(options);
    struct stile_client *client;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile cell");
    if (code != 0)
        return code;
    enum stile_status status = stile_cell_remove(client, options->args[0], &how, &err);
    stile_client_close(client);
    return status == STILE_OK ? 0 : cell_say_failure("cell rm", status, &err);
}

const struct verb verb_cell_rm = {
    .name = "cell rm",
    .accepts = OPT_IF_VERSION | OPT_TOKEN | OPT_ISSUER | OPT_STRICT,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY",
    .about = "Removes the cell KEY, if there is one. Its version and its highest token stay, so "
             "that a late writer is refused. Exit codes as for cell put.",
    .run = rm,
};

/* ---- ls ---- */

struct listing {
    struct table table;
    struct json json;
};

static int add_row(const struct stile_cell *cell, void *data)
{
    struct table *table = &((struct listing *)data)->table;
    table_add(table, cell->key);
    table_addf(table, "%" PRIu64, cell->version);
    table_addf(table, "%zu", cell->size);
    if (cell->token != 0)
        table_addf(table, "%" PRIu64, cell->token);
    else
        table_add(table, "");
    table_add(table, cell->issuer);
    return 0;
}

static int add_json(const struct stile_cell *cell, void *data)
{
    struct json *json = &((struct listing *)data)->json;
    json_open(json, NULL, '{');
    json_members(json, cell);
    json_close(json, '}');
    return 0;
}

/* The JSON array is printed as a whole, once the engine has answered. Cells that are not damaged
 * are printed even if another one is. */
static enum stile_status list(struct stile_client *client, const struct options *options,
                              struct stile_error *err)
{
    static const char *const heads[] = {"KEY", "VERSION", "SIZE", "TOKEN", "ISSUER", NULL};
    struct listing listing = {.json = {.out = NULL}};
    const char *prefix = options->n_args > 0 ? options->args[0] : NULL;
    bool as_json = options->given & OPT_JSON;
    char *text = NULL;
    size_t size;
    if (!as_json)
        table_start(&listing.table, heads);
    listing.json.out = must_alloc(open_memstream(&text, &size));
    enum stile_status status =
        stile_cell_list(client, prefix, as_json ? add_json : add_row, &listing, err);
    fclose(listing.json.out);
    bool listed = status == STILE_OK || status == STILE_CORRUPT;
    if (!as_json)
        table_finish(&listing.table, listed ? stdout : NULL);
    else if (listed)
        printf("[%s]\n", text);
    free(text);
    return status;
}

static int ls(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile cell");
    if (code != 0)
        return code;
    enum stile_status status = list(client, options, &err);
    stile_client_close(client);
    return status == STILE_OK ? finish_output(0) : say_failure("cell ls", status, &err);
}

const struct verb verb_cell_ls = {
    .name = "cell ls",
    .accepts = OPT_JSON,
    .max_args = 1,
    .operands = "[PREFIX]",
    .about = "Lists the cells whose keys begin with PREFIX, or all: version, size in bytes, the "
             "highest token its guard has seen and which lock that came from.",
    .run = ls,
};

/* ---- watch ---- */

static int print_change_json(const struct stile_cell *cell, void *data)
{
    struct json json = {.out = stdout};
    char stamp[STAMP_MAX];
    (void)data;
    stamp_write(stamp);
    json_open(&json, NULL, '{');
    json_text(&json, "at", stamp);
    json_members(&json, cell);
    json_value(&json, cell);
    json_close(&json, '}');
    return stamp_end_line();
}

static int print_change(const struct stile_cell *cell, void *data)
{
    char stamp[STAMP_MAX];
    char *key = text_escape(cell->key), *issuer = text_escape(cell->issuer);
    (void)data;
    stamp_write(stamp);
    printf("%s  %s  ", stamp, key);
    if (cell->version != 0)
        printf("version %" PRIu64 ", %zu bytes", cell->version, cell->size);
    else
        printf("no cell");
    if (cell->token != 0)
        printf(", token %" PRIu64 "%s%s", cell->token, issuer[0] != '\0' ? " of " : "", issuer);
    free(key);
    free(issuer);
    return stamp_end_line();
}

static int watch(struct options *options)
{
    struct stile_client *client;
    struct stile_error err = {0};
    int code = engine_open(&client, options, 0, "stile cell");
    if (code != 0)
        return code;
    enum stile_status status =
        stile_cell_watch(client, options->args[0], -1,
                         options->given & OPT_JSON ? print_change_json : print_change, NULL, &err);
    stile_client_close(client);
    return status == STILE_OK ? finish_output(0) : say_failure("cell watch", status, &err);
}

const struct verb verb_cell_watch = {
    .name = "cell watch",
    .accepts = OPT_JSON,
    .min_args = 1,
    .max_args = 1,
    .argument = "KEY",
    .operands = "KEY",
    .about = "Prints a line for the cell KEY, now and after every change of it or its guard, until "
             "interrupted. With --json: its value, too.",
    .run = watch,
};
