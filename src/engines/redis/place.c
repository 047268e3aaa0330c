#include "engines/redis/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum stile_status place_number(unsigned *out, const struct url *url, const char *key, unsigned max,
                               struct stile_error *err)
{
    const char *text = url_param(url, key);
    char *end;
    if (!text)
        return STILE_OK;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (!*text || strspn(text, "0123456789") != strlen(text) || errno || value > max)
        return error_set(err, STILE_MISUSE, 0, "%s= must be a number up to %u", key, max);
    *out = (unsigned)value;
    return STILE_OK;
}

enum stile_status place_db(unsigned *db, const struct url *url, struct stile_error *err)
{
    const char *path = url->path;
    if (!*path || strcmp(path, "/") == 0)
        return STILE_OK;
    if (strlen(path) > 6 || strspn(path + 1, "0123456789") != strlen(path + 1))
        return error_set(err, STILE_MISUSE, 0, "the path of a redis URL is its database number");
    *db = (unsigned)strtoul(path + 1, NULL, 10);
    return STILE_OK;
}

enum stile_status place_prefix(char prefix[PREFIX_MAX + 1], const struct url *url,
                               struct stile_error *err)
{
    const char *given = url_param(url, "prefix");
    if (given && strlen(given) > PREFIX_MAX)
        return error_set(err, STILE_MISUSE, 0, "prefix= has more than %d bytes", PREFIX_MAX);
    strcpy(prefix, given ? given : "lock:");
    return STILE_OK;
}

enum stile_status place_tls(struct tls_context **tls, const struct url *url, const char *secure,
                            struct stile_error *err)
{
    const struct tls_options options = {.ca = url_param(url, "ca"),
                                        .cert = url_param(url, "cert"),
                                        .key = url_param(url, "key"),
                                        .server_name = url_param(url, "server_name"),
                                        .insecure = url_param(url, "insecure") != NULL};
    if (strcmp(url->scheme, secure) == 0)
        return tls_context_new(tls, &options, err);
    if (options.ca || options.cert || options.key || options.server_name || options.insecure)
        return error_set(err, STILE_MISUSE, 0, "TLS parameters need a %s:// URL", secure);
    return STILE_OK;
}

bool place_says(const char *info, const char *line)
{
    const char *at = info ? strstr(info, line) : NULL;
    return at && (at == info || at[-1] == '\n');
}

enum stile_status place_check(const char *info, const struct url *url, struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    if (allow && strcmp(allow, "eviction") != 0)
        return error_set(err, STILE_MISUSE, 0, "allow= knows one word, eviction");
    /* Any node of a Cluster tells where the others are. */
    if (place_says(info, "role:slave") && !place_says(info, "cluster_enabled:1"))
        return error_set(err, STILE_REFUSED, 0,
                         "this server is a replica, where nothing can be locked: connect to its "
                         "primary");
    bool evicts =
        !place_says(info, "maxmemory:0\r") && !place_says(info, "maxmemory_policy:noeviction");
    if (evicts && !allow)
        return error_set(err, STILE_REFUSED, 0,
                         "this server may evict locks when its memory is full: CONFIG SET "
                         "maxmemory-policy noeviction (or say allow=eviction)");
    return STILE_OK;
}
