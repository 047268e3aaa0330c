/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guard_nginx.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define LISTEN    "8080"
#define UPSTREAM  "http://127.0.0.1:8000"
#define STATE     "/var/lib/stile-guard"
#define REQUIRE   "writes"
#define MEMORY    "10m"
#define WAIT_MS   10000
#define SETTLE_MS 60000

#define NUMBER_MAX 24
#define N_PLACES   7

extern const char guard_nginx_text[]; /* embed_nginx.py */

/* Each @NAME@ of the text is replaced by its value. */
struct place {
    const char *name, *value;
};

bool guard_nginx_accepts(const char *value)
{
    for (const char *at = value; *at != '\0'; at++) {
        if (!isgraph((unsigned char)*at) || strchr("\"'\\;{}#$", *at) != NULL)
            return false;
    }
    return *value != '\0';
}

static const char *or_else(const char *value, const char *otherwise)
{
    return value != NULL ? value : otherwise;
}

static const char *write_number(char text[NUMBER_MAX], int64_t number, int64_t otherwise)
{
    snprintf(text, NUMBER_MAX, "%" PRId64, number != 0 ? number : otherwise);
    return text;
}

/* What stands at `at`, up to and with its second @; NULL: an @ of the text itself. */
static const struct place *find_place(const struct place places[N_PLACES], const char *at)
{
    for (size_t i = 0; i < N_PLACES; i++) {
        size_t len = strlen(places[i].name);
        if (strncmp(at + 1, places[i].name, len) == 0 && at[len + 1] == '@')
            return &places[i];
    }
    return NULL;
}

static void print_filled(FILE *out, const char *text, const struct place places[N_PLACES])
{
    while (*text != '\0') {
        const struct place *place = *text == '@' ? find_place(places, text) : NULL;
        if (place != NULL) {
            fputs(place->value, out);
            text += strlen(place->name) + 2;
        } else {
            fputc(*text++, out);
        }
    }
}

void guard_nginx_print(FILE *out, const struct guard_nginx *values)
{
    char wait[NUMBER_MAX], settle[NUMBER_MAX];
    const struct place places[N_PLACES] = {
        {"LISTEN", or_else(values->listen, LISTEN)},
        {"UPSTREAM", or_else(values->upstream, UPSTREAM)},
        {"STATE", or_else(values->state, STATE)},
        {"REQUIRE", or_else(values->require, REQUIRE)},
        {"MEMORY", or_else(values->memory, MEMORY)},
        {"WAIT_MS", write_number(wait, values->wait_ms, WAIT_MS)},
        {"SETTLE_MS", write_number(settle, values->settle_ms, SETTLE_MS)},
    };
    print_filled(out, guard_nginx_text, places);
}
