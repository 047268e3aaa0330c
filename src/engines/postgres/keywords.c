/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* libpq's keyword strings, `host=db dbname='my app' password=...`, as the URL that means the same.
 * As there, a backslash takes the next character as it is, inside quotes and outside.
 *
 * It is a part of the library, not of the module: such a string is also redacted, for which no
 * module is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/keywords.h"

#define SCHEME "postgres:"

static bool is_space(char c)
{
    return c == ' '; /* no control character comes this far */
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static const char *past_spaces(const char *at)
{
    while (is_space(*at))
        at++;
    return at;
}

/* No URL begins like this: its scheme has no '=', and ends with ':'. */
static bool is_keywords(const char *text)
{
    const char *at = past_spaces(text), *word = at;
    while (is_word(*at))
        at++;
    return at > word && *past_spaces(at) == '=';
}

static void put(char **to, char c)
{
    if (strchr("%&#", c))
        *to += sprintf(*to, "%%%02X", (unsigned char)c);
    else
        *(*to)++ = c;
}

static enum stile_status refuse(struct stile_error *err, const char *why)
{
    return error_set(err, STILE_MISUSE, 0, "the keyword string %s", why);
}

static enum stile_status put_value(char **to, const char **from, struct stile_error *err)
{
    const char *at = *from;
    bool quoted = *at == '\'';
    for (at += quoted; *at && (quoted ? *at != '\'' : !is_space(*at)); at++) {
        if (*at == '\\' && at[1])
            at++;
        put(to, *at);
    }
    if (quoted && *at != '\'')
        return refuse(err, "has a ' that nothing ends: write one inside a value as \\'");
    *from = at + quoted;
    return STILE_OK;
}

static enum stile_status put_pair(char **to, const char **from, struct stile_error *err)
{
    const char *at = *from;
    while (is_word(*at))
        put(to, *at++);
    if (at == *from || *past_spaces(at) != '=')
        return refuse(err, "is not made of keyword=value: quote what has spaces, dbname='my app'");
    put(to, '=');
    *from = past_spaces(past_spaces(at) + 1);
    return put_value(to, from, err);
}

enum stile_status postgres_url_from_keywords(char **url, const char *text, struct stile_error *err)
{
    if (!is_keywords(text))
        return STILE_OK;
    /* Each byte becomes three at most. */
    char *out = malloc(sizeof SCHEME + 3 * strlen(text) + 1), *to = out, separator = '?';
    enum stile_status status = STILE_OK;
    if (!out)
        return error_set(err, STILE_NOMEM, 0, "no memory to read the keyword string");
    to += sprintf(to, "%s", SCHEME);
    for (text = past_spaces(text); *text && !status; text = past_spaces(text)) {
        *to++ = separator;
        separator = '&';
        status = put_pair(&to, &text, err);
    }
    *to = '\0';
    *url = out;
    return status;
}
