/* What a URL says about a Redis server and how to speak to it. */
#ifndef STILE_REDIS_PLACE_H
#define STILE_REDIS_PLACE_H

#include "base/url.h"
#include "io/tls.h"

#define PLACE_PORT   6379
#define PREFIX_MAX   128
#define PLACE_DB_MAX 65535

/* What is not given is left as it is. Of the path, or where that says something else, of db=. */
enum stile_status place_db_param(unsigned *db, const struct url *url, struct stile_error *err);
/* A word that place_check() would not know is refused before anything is connected to. */
enum stile_status place_allow(const struct url *url, struct stile_error *err);
enum stile_status place_db(unsigned *db, const struct url *url, struct stile_error *err);
enum stile_status place_prefix(char prefix[PREFIX_MAX + 1], const struct url *url,
                               struct stile_error *err);

/* secure: the scheme that speaks TLS; without it TLS parameters are MISUSE. */
enum stile_status place_tls(struct tls_context **tls, const struct url *url, const char *secure,
                            struct stile_error *err);

/* A line of INFO. */
bool place_says(const char *info, const char *line);
/* What INFO says: refuses where exclusion would be a lie. may_evict: the URL allows it. */
enum stile_status place_check(const char *info, bool may_evict, struct stile_error *err);

#endif
