/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/once_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX 160

static const char begins[] = "stile-once ";

/* ---- writing ---- */

static size_t write_line(char line[LINE_MAX], const struct once_record *record)
{
    return (size_t)snprintf(line, LINE_MAX, "%s1 %s %d %" PRIu64 " %" PRId64 " %zu %zu %s\n",
                            begins, record->state == STILE_ONCE_DONE ? "done" : "running",
                            record->code, record->token, record->at_ms, record->fingerprint_size,
                            record->size, record->bytes ? "whole" : "cut");
}

size_t once_write(char *out, const struct once_record *record)
{
    struct once_record fitting = *record;
    char line[LINE_MAX];
    if (fitting.size > STILE_ONCE_OUTPUT_MAX)
        fitting.bytes = NULL;
    size_t n = write_line(line, &fitting);
    memcpy(out, line, n);
    if (fitting.fingerprint_size)
        memcpy(out + n, fitting.fingerprint, fitting.fingerprint_size);
    n += fitting.fingerprint_size;
    if (!fitting.bytes || fitting.size == 0)
        return n;
    memcpy(out + n, fitting.bytes, fitting.size);
    return n + fitting.size;
}

/* ---- reading ---- */

/* The next word of the line; NULL: there is none. */
static const char *take_word(char **at)
{
    return strsep(at, " ");
}

/* A number that is wrong in any way does not survive being written again. */
static int64_t take_number(char **at)
{
    const char *word = take_word(at);
    return word ? strtoll(word, NULL, 10) : 0;
}

static void parse_line(struct once_record *record, char *line)
{
    char *at = line + strlen(begins);
    take_word(&at); /* the version */
    const char *state = take_word(&at);
    record->state = state && strcmp(state, "done") == 0 ? STILE_ONCE_DONE : STILE_ONCE_RUNNING;
    record->code = (int)take_number(&at);
    record->token = (uint64_t)take_number(&at);
    record->at_ms = take_number(&at);
    record->fingerprint_size = (size_t)take_number(&at);
    record->size = (size_t)take_number(&at);
    const char *form = take_word(&at);
    record->bytes = form && strcmp(form, "cut") == 0 ? NULL : "";
}

/* Copies the line, with its end; its length, or 0. */
static size_t find_line(char line[LINE_MAX], const char *value, size_t size)
{
    const char *end = memchr(value, '\n', size < LINE_MAX - 1 ? size : LINE_MAX - 1);
    size_t n = end ? (size_t)(end - value) + 1 : 0;
    memcpy(line, value, n);
    line[n] = '\0';
    return n;
}

static bool is_possible(const struct once_record *record, size_t left)
{
    if (record->fingerprint_size > STILE_FINGERPRINT_MAX || record->token > STILE_TOKEN_MAX ||
        record->at_ms < 0 || record->size > INT64_MAX)
        return false;
    if (record->state == STILE_ONCE_RUNNING && (record->code || record->size || !record->bytes))
        return false;
    if (!record->bytes)
        return left == record->fingerprint_size;
    return record->size <= STILE_ONCE_OUTPUT_MAX && left == record->fingerprint_size + record->size;
}

static enum stile_status foreign(struct stile_error *err, const char *why)
{
    return error_set(err, STILE_CORRUPT, 0,
                     "its cell holds no record of once (%s): another program has written it, or it "
                     "is damaged; stile once --forget removes it",
                     why);
}

enum stile_status once_read(struct once_record *record, const void *value, size_t size,
                            struct stile_error *err)
{
    char line[LINE_MAX], again[LINE_MAX], words[LINE_MAX];
    const char *from = value;
    *record = (struct once_record){0};
    size_t n = size ? find_line(line, from, size) : 0;
    if (n <= sizeof begins || memcmp(line, begins, strlen(begins)) != 0)
        return foreign(err, "it does not begin like one");
    memcpy(words, line, n);
    words[n - 1] = '\0';
    if (strlen(words) != n - 1)
        return foreign(err, "its first line is wrong");
    parse_line(record, words);
    if (write_line(again, record) != n || memcmp(line, again, n) != 0)
        return foreign(err, "its first line is wrong, or of a later version");
    if (!is_possible(record, size - n) || memchr(from + n, '\0', record->fingerprint_size))
        return foreign(err, "its sizes are wrong");
    record->fingerprint = from + n;
    if (record->bytes)
        record->bytes = from + n + record->fingerprint_size;
    return STILE_OK;
}
