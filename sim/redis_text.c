/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engines/redis/scripts.h"
#include "engines/redlock/scripts.h"

#define WORD_MAX  64 /* bytes of a word that are shown */
#define DEPTH_MAX 4

struct reader {
    const char *at, *end;
    struct buffer *text;
};

static void put(struct reader *reader, const char *text, size_t n)
{
    buffer_put(reader->text, text, n);
}

static void put_line(struct reader *reader, const char *text)
{
    put(reader, text, strlen(text));
}

/* The line at the reader's place, which is then behind it. NULL: there is no whole one. */
static const char *take_line(struct reader *reader, size_t *n)
{
    const char *line = reader->at;
    const char *end = memchr(line, '\n', (size_t)(reader->end - line));
    if (end == NULL || end == line)
        return NULL;
    *n = (size_t)(end - line) - 1;
    reader->at = end + 1;
    return line;
}

/* A bulk string of this length. NULL: not all of it is there. */
static const char *take_bulk(struct reader *reader, size_t n)
{
    const char *bytes = reader->at;
    if ((size_t)(reader->end - bytes) < n + 2)
        return NULL;
    reader->at += n + 2;
    return bytes;
}

static void put_word(struct reader *reader, const char *bytes, size_t n)
{
    if (n == 0)
        put_line(reader, "''");
    put(reader, bytes, n < WORD_MAX ? n : WORD_MAX);
    if (n > WORD_MAX)
        put_line(reader, "...");
}

/* ---- answers ---- */

static bool put_answer(struct reader *reader, unsigned depth);

static bool put_array(struct reader *reader, long n, unsigned depth)
{
    put_line(reader, "[");
    for (long i = 0; i < n; i++) {
        if (i > 0)
            put_line(reader, ", ");
        if (!put_answer(reader, depth + 1))
            return false;
    }
    put_line(reader, "]");
    return true;
}

static bool put_bulk(struct reader *reader, long n)
{
    const char *bytes = n >= 0 ? take_bulk(reader, (size_t)n) : NULL;
    if (n >= 0 && bytes == NULL)
        return false;
    if (n < 0) {
        put_line(reader, "nil");
        return true;
    }
    const char *end = memchr(bytes, '\r', (size_t)n); /* INFO has many lines */
    put_word(reader, bytes, end != NULL ? (size_t)(end - bytes) : (size_t)n);
    return true;
}

static bool put_answer(struct reader *reader, unsigned depth)
{
    size_t n;
    const char *line = take_line(reader, &n);
    if (line == NULL || depth > DEPTH_MAX)
        return false;
    long number = strtol(line + 1, NULL, 10);
    if (*line == '*')
        return put_array(reader, number, depth);
    if (*line == '$')
        return put_bulk(reader, number);
    put_word(reader, line + 1, n - 1);
    return true;
}

/* ---- requests ---- */

static const char *name_in(const struct lua *const *scripts, const char *sha1, size_t *n)
{
    for (; *scripts != NULL; scripts++) {
        const char *title = (*scripts)->source + strlen("-- stile ");
        *n = strcspn(title, "\n");
        if (memcmp((*scripts)->sha1, sha1, 40) == 0)
            return title;
    }
    return NULL;
}

/* EVALSHA has the sum of the script, EVAL the script, whose first line is its name. */
static void put_script(struct reader *reader, const char *bytes, size_t n)
{
    size_t len = 0;
    const char *name = NULL;
    if (n == 40 && (name = name_in(redlock_scripts, bytes, &len)) == NULL)
        name = name_in(redis_scripts, bytes, &len);
    if (name == NULL && n > 9 && memcmp(bytes, "-- stile ", 9) == 0) {
        name = bytes + 9;
        len = strcspn(name, "\n");
    }
    put_word(reader, name != NULL ? name : "script", name != NULL ? len : 6);
}

/* A bulk string with its length. NULL: it is not all there. */
static const char *take_word(struct reader *reader, size_t *n)
{
    size_t head;
    const char *line = take_line(reader, &head);
    if (line == NULL || *line != '$')
        return NULL;
    *n = strtoul(line + 1, NULL, 10);
    return take_bulk(reader, *n);
}

static bool put_words(struct reader *reader, long n_words)
{
    for (long i = 0; i < n_words; i++) {
        size_t n;
        const char *word = take_word(reader, &n);
        if (word == NULL)
            return false;
        put_line(reader, " ");
        put_word(reader, word, n);
    }
    return true;
}

/* Its keys, then its arguments. */
static bool put_call(struct reader *reader, long n_words)
{
    size_t n;
    const char *script = take_word(reader, &n);
    if (script == NULL)
        return false;
    put_script(reader, script, n);
    const char *count = take_word(reader, &n);
    long keys = count != NULL ? strtol(count, NULL, 10) : -1;
    if (keys < 0 || keys > n_words - 2 || !put_words(reader, keys))
        return false;
    put_line(reader, " |");
    return put_words(reader, n_words - 2 - keys);
}

static bool put_request(struct reader *reader)
{
    size_t n;
    const char *head = take_line(reader, &n);
    long n_words = head != NULL && *head == '*' ? strtol(head + 1, NULL, 10) : 0;
    const char *verb = n_words > 0 ? take_word(reader, &n) : NULL;
    if (verb == NULL)
        return false;
    if (n >= 4 && n <= 7 && strncasecmp(verb, "EVAL", 4) == 0 && n_words >= 3)
        return put_call(reader, n_words - 1);
    put_word(reader, verb, n);
    return put_words(reader, n_words - 1);
}

void redis_describe(struct buffer *text, enum direction way, const void *bytes, size_t n)
{
    struct reader reader = {.at = bytes, .end = (const char *)bytes + n, .text = text};
    bool whole = true;
    while (whole && reader.at < reader.end) {
        if (reader.at != bytes)
            put_line(&reader, "\n");
        whole = way == TO_SERVER ? put_request(&reader) : put_answer(&reader, 0);
    }
    if (!whole)
        put_line(&reader, " ...");
}
