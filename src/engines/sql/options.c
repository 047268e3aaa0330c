#include "engines/sql/options.h"

#include <string.h>

#include "base/url.h"

#define SESSIONS_MAX 1000

enum stile_status options_read_sessions(unsigned *sessions, bool *allow_pooler,
                                        const struct url *url, struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    *sessions = SESSIONS_DEFAULT;
    *allow_pooler = allow && strcmp(allow, "pooler") == 0;
    if (allow && !*allow_pooler)
        return error_set(err, STILE_MISUSE, 0, "allow= is pooler, or not given");
    return url_param_number(sessions, url, "sessions", 2, SESSIONS_MAX, err);
}

bool options_is_near(const char *host, size_t len)
{
    return strncmp(host, "127.", 4) == 0 || (len == 9 && strncmp(host, "localhost", 9) == 0) ||
           (len == 3 && strncmp(host, "::1", 3) == 0);
}
