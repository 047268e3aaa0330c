/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/sql/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/url.h"

#define SESSIONS_MAX 1000

enum stile_status sql_options_sessions(unsigned *sessions, bool *allow_pooler,
                                       const struct url *url, struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    *sessions = SESSIONS_DEFAULT;
    *allow_pooler = allow && strcmp(allow, "pooler") == 0;
    if (allow && !*allow_pooler)
        return error_set(err, STILE_MISUSE, 0, "allow= is pooler, or not given");
    return url_param_number(sessions, url, "sessions", 2, SESSIONS_MAX, err);
}

bool sql_host_is_local(const char *host, size_t len)
{
    return strncmp(host, "127.", 4) == 0 || (len == 9 && strncmp(host, "localhost", 9) == 0) ||
           (len == 3 && strncmp(host, "::1", 3) == 0);
}

/* A user or host name that equals the password is hidden as well. */
void sql_hide_secret(char *text, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0;
    for (char *at = text; len > 0 && (at = strstr(at, secret)); at += 3) {
        if (len < 3) { /* shorter than the stars, and found in many words: hide all of the text */
            strcpy(text, "(hidden: it contains the password)");
            return;
        }
        memmove(at + 3, at + len, strlen(at + len) + 1);
        memcpy(at, "***", 3);
    }
}

/* ---- dialect=shedlock ---- */

static enum stile_status check_table(const char *table, struct stile_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t head = strspn(table, allowed);
    const char *tail = table[head] == '.' ? table + head + 1 : "";
    bool good = strlen(table) <= SHEDLOCK_TABLE_MAX && strspn(table, letters) > 0 &&
                (!table[head] || (strspn(tail, letters) > 0 && !tail[strspn(tail, allowed)]));
    return good ? STILE_OK
                : error_set(err, STILE_MISUSE, 0,
                            "table= is a name of letters, digits and _, or schema.name");
}

enum stile_status sql_shedlock_read_table(char **table, const struct url *url,
                                          struct stile_error *err)
{
    const char *said = url_param(url, "table");
    *table = strdup(said ? said : SHEDLOCK_TABLE);
    return *table ? check_table(*table, err) : error_set(err, STILE_NOMEM, 0, "out of memory");
}

enum stile_status sql_shedlock_refuse_missing(int native, struct stile_error *err)
{
    return error_set(err, STILE_REFUSED, native,
                     "there is no such table: make it as ShedLock's manual says (name, lock_until, "
                     "locked_at, locked_by), or name another one (table=)");
}

static size_t count_of(const char *pattern, const char *mark)
{
    size_t n = 0;
    for (const char *at = strstr(pattern, mark); at; at = strstr(at + strlen(mark), mark))
        n++;
    return n;
}

char *sql_shedlock_expand(const char *pattern, const char *table, const char *other)
{
    char *text = malloc(strlen(pattern) + count_of(pattern, "@T@") * strlen(table) +
                        count_of(pattern, "@N@") * strlen(other) + 1);
    char *out = text;
    while (text && *pattern) {
        bool is_table = strncmp(pattern, "@T@", 3) == 0, is_other = strncmp(pattern, "@N@", 3) == 0;
        if (is_table || is_other) {
            out = stpcpy(out, is_table ? table : other);
            pattern += 3;
        } else {
            *out++ = *pattern++;
        }
    }
    if (text)
        *out = '\0';
    return text;
}
