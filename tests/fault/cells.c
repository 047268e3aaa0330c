/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One client that does with cells what it reads: cells URL. Each line is a verb, a key, and words
 * behind them, separated by tabs; each answer is one line, "STATUS VERSION TOKEN ISSUER REST", also
 * separated by tabs. REST is the value (get), or what an error says.
 *
 *     get KEY
 *     put KEY VALUE [version=N] [token=N] [issuer=TEXT] [strict] [keep=MS]
 *     remove KEY [...]    raise KEY [...]
 *     reset KEY [token=N] [issuer=TEXT]
 *     list PREFIX         one line for each, with its key and size as REST, then the status
 *     watch KEY           one line for each change, until its value is "end"; then the status
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stile.h"

#define LINE_MAX_BYTES (2 * STILE_CELL_MAX)

static struct stile_client *client;

static void print(enum stile_status status, const struct stile_cell *cell, const char *rest)
{
    printf("%s\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\n", stile_status_name(status),
           cell ? cell->version : 0, cell ? cell->token : 0, cell ? cell->issuer : "", rest);
    fflush(stdout);
}

static void print_status(enum stile_status status, uint64_t version, uint64_t highest,
                         const struct stile_error *err)
{
    struct stile_cell cell = {.version = version, .token = highest, .issuer = ""};
    print(status, &cell, status ? err->message : "");
}

/* ---- verbs ---- */

static void get(const char *key)
{
    struct stile_cell *cell = NULL;
    struct stile_error err;
    enum stile_status status = stile_cell_get(&cell, client, key, &err);
    print(status, cell, status ? err.message : cell->value ? cell->value : "");
    stile_cell_free(cell);
}

static int print_listed(const struct stile_cell *cell, void *data)
{
    char rest[STILE_NAME_MAX + 32];
    (void)data;
    snprintf(rest, sizeof rest, "%s %zu", cell->key, cell->size);
    print(STILE_OK, cell, rest);
    return 0;
}

static int print_watched(const struct stile_cell *cell, void *data)
{
    (void)data;
    print(STILE_OK, cell, cell->value ? cell->value : "");
    return cell->value && strcmp(cell->value, "end") == 0;
}

struct words {
    uint64_t version, token, highest;
    int64_t keep_ms;
    const char *issuer;
    bool has_version, strict;
};

static struct words read_words(char *rest)
{
    struct words words = {0};
    for (char *word; (word = strsep(&rest, "\t"));) {
        char *is = strchr(word, '=');
        if (strncmp(word, "version=", 8) == 0) {
            words.version = strtoull(is + 1, NULL, 10);
            words.has_version = true;
        } else if (strncmp(word, "token=", 6) == 0) {
            words.token = strtoull(is + 1, NULL, 10);
        } else if (strncmp(word, "issuer=", 7) == 0) {
            words.issuer = is + 1;
        } else if (strncmp(word, "keep=", 5) == 0) {
            words.keep_ms = strtoll(is + 1, NULL, 10);
        } else {
            words.strict = strcmp(word, "strict") == 0;
        }
    }
    return words;
}

static enum stile_status write_it(const char *verb, const char *key, const char *value,
                                  struct words *words, uint64_t *version, struct stile_error *err)
{
    const struct stile_cell_options *options =
        STILE_CELL_OPTIONS(.if_version = words->has_version ? &words->version : NULL,
                           .token = words->token, .issuer = words->issuer, .strict = words->strict,
                           .highest = &words->highest, .keep_ms = words->keep_ms);
    if (strcmp(verb, "put") == 0)
        return stile_cell_put(version, client, key, value, strlen(value), options, err);
    if (strcmp(verb, "remove") == 0)
        return stile_cell_remove(client, key, options, err);
    if (strcmp(verb, "raise") == 0)
        return stile_guard_raise(client, key, words->token,
                                 STILE_GUARD_OPTIONS(.issuer = words->issuer,
                                                     .strict = words->strict,
                                                     .highest = &words->highest),
                                 err);
    return stile_guard_reset(client, key, words->token, words->issuer, err);
}

static void obey(char *line)
{
    char *rest = line, *verb = strsep(&rest, "\t"), *key = strsep(&rest, "\t");
    struct stile_error err;
    uint64_t version = 0;
    if (strcmp(verb, "get") == 0) {
        get(key);
    } else if (strcmp(verb, "list") == 0) {
        print_status(stile_cell_list(client, key, print_listed, NULL, &err), 0, 0, &err);
    } else if (strcmp(verb, "watch") == 0) {
        print_status(stile_cell_watch(client, key, -1, print_watched, NULL, &err), 0, 0, &err);
    } else {
        const char *value = strcmp(verb, "put") == 0 ? strsep(&rest, "\t") : "";
        struct words words = read_words(rest);
        enum stile_status status = write_it(verb, key, value, &words, &version, &err);
        print_status(status, version, words.highest, &err);
    }
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    struct stile_error err;
    if (argc != 2)
        return 2;
    enum stile_status status = stile_client_open(&client, argv[1], NULL, &err);
    print_status(status, 0, 0, &err);
    if (status)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        obey(line);
    }
    stile_client_close(client);
    return 0;
}
