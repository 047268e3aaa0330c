/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/redis/address.h"

#include <string.h>

#include "base/name.h"

enum stile_status redis_address_db(unsigned *db, const struct url *url, struct stile_error *err)
{
    const char *path = url->path;
    if (url_param(url, "db")) /* if ignored, locks would be in another database than meant */
        return error_set(err, STILE_MISUSE, 0,
                         "db= belongs to redis+unix and redis+sentinel URLs; here the database is "
                         "the path: redis://host/3");
    if (!*path || strcmp(path, "/") == 0)
        return STILE_OK;
    if (!url_read_number(db, path + 1, ADDRESS_DB_MAX))
        return error_set(err, STILE_MISUSE, 0,
                         "the path of a redis URL is its database number, 0 to %d", ADDRESS_DB_MAX);
    return STILE_OK;
}

enum stile_status redis_address_db_param(unsigned *db, const struct url *url,
                                         struct stile_error *err)
{
    return url_param_number(db, url, "db", 0, ADDRESS_DB_MAX, err);
}

enum stile_status redis_address_allow(const struct url *url, struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    if (allow && strcmp(allow, "eviction") != 0)
        return error_set(err, STILE_MISUSE, 0, "allow= takes one word: eviction");
    return STILE_OK;
}

enum stile_status redis_address_prefix(char prefix[PREFIX_MAX + 1], const struct url *url,
                                       struct stile_error *err)
{
    const char *given = url_param(url, "prefix");
    if (given && strlen(given) > PREFIX_MAX)
        return error_set(err, STILE_MISUSE, 0, "prefix= has more than %d bytes", PREFIX_MAX);
    if (given && *given && name_check(given, strlen(given), NULL))
        return error_set(err, STILE_MISUSE, 0, "prefix= has a control character");
    strcpy(prefix, given ? given : "lock:");
    return STILE_OK;
}

enum stile_status redis_address_tls(struct tls_context **tls, const struct url *url,
                                    const char *secure, struct stile_error *err)
{
    struct tls_options options = {.ca = url_param(url, "ca"),
                                  .cert = url_param(url, "cert"),
                                  .key = url_param(url, "key"),
                                  .server_name = url_param(url, "server_name")};
    enum stile_status status = url_param_bool(&options.insecure, url, "insecure", err);
    if (status)
        return status;
    if (strcmp(url->scheme, secure) == 0)
        return tls_context_new(tls, &options, err);
    if (options.ca || options.cert || options.key || options.server_name || options.insecure)
        return error_set(err, STILE_MISUSE, 0, "TLS parameters need a %s:// URL", secure);
    return STILE_OK;
}

bool redis_address_says(const char *info, const char *line)
{
    const char *at = info ? strstr(info, line) : NULL;
    return at && (at == info || at[-1] == '\n');
}

enum stile_status redis_address_check(const char *info, bool may_evict, struct stile_error *err)
{
    /* Any node of a Cluster can name the others. */
    if (redis_address_says(info, "role:slave") && !redis_address_says(info, "cluster_enabled:1"))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "this server is a replica, where nothing can be locked: wait for the "
                         "failover to end, or name its primary in the URL");
    if (redis_address_says(info, "role:active-replica"))
        return error_set(
            err, STILE_REFUSED, 0,
            "this server is a KeyDB active replica: each of its servers takes writes, so "
            "two of them grant the same lock; use a primary without active-replica");
    bool evicts = !redis_address_says(info, "maxmemory:0\r") &&
                  !redis_address_says(info, "maxmemory_policy:noeviction");
    if (evicts && !may_evict)
        return error_set(err, STILE_REFUSED, 0,
                         "this server may evict locks when its memory is full: CONFIG SET "
                         "maxmemory-policy noeviction (or say allow=eviction)");
    return STILE_OK;
}
