#include "engines/sql/shedlock.h"

#include <stdlib.h>
#include <string.h>

#include "base/url.h"

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

enum stile_status shedlock_read_table(char **table, const struct url *url, struct stile_error *err)
{
    const char *said = url_param(url, "table");
    *table = strdup(said ? said : SHEDLOCK_TABLE);
    return *table ? check_table(*table, err) : error_set(err, STILE_NOMEM, 0, "out of memory");
}

enum stile_status shedlock_refuse_missing(int native, struct stile_error *err)
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

char *shedlock_expand(const char *pattern, const char *table, const char *other)
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
