#include "engines/sql/options.h"

#include <stdlib.h>
#include <string.h>

#include "core/url.h"

#define SESSIONS_MAX 1000

enum stile_status options_read_sessions(unsigned *sessions, bool *allow_pooler,
                                        const struct url *url, struct stile_error *err)
{
    const char *text = url_param(url, "sessions"), *allow = url_param(url, "allow");
    char *end;
    *sessions = SESSIONS_DEFAULT;
    *allow_pooler = allow && strcmp(allow, "pooler") == 0;
    if (allow && !*allow_pooler)
        return error_set(err, STILE_MISUSE, 0, "allow= is pooler, or not given");
    if (!text)
        return STILE_OK;
    unsigned long n = strtoul(text, &end, 10);
    if (!*text || *text == '-' || *end || n < 2 || n > SESSIONS_MAX)
        return error_set(err, STILE_MISUSE, 0, "sessions= is a number from 2 to %d", SESSIONS_MAX);
    *sessions = (unsigned)n;
    return STILE_OK;
}

bool options_is_near(const char *host, size_t len)
{
    return strncmp(host, "127.", 4) == 0 || (len == 9 && strncmp(host, "localhost", 9) == 0) ||
           (len == 3 && strncmp(host, "::1", 3) == 0);
}
