/* What a URL says about a Redis server and how to speak to it. */
#ifndef STILE_REDIS_ADDRESS_H
#define STILE_REDIS_ADDRESS_H

#include "base/url.h"
#include "io/tls.h"

#define ADDRESS_PORT   6379
#define PREFIX_MAX     128
#define ADDRESS_DB_MAX 65535

/* What is not given is left as it is. Of the path, or where that says something else, of db=. */
enum stile_status redis_address_db_param(unsigned *db, const struct url *url,
                                         struct stile_error *err);
/* A word that redis_address_check() would not know is refused before anything is connected to. */
enum stile_status redis_address_allow(const struct url *url, struct stile_error *err);
enum stile_status redis_address_db(unsigned *db, const struct url *url, struct stile_error *err);
enum stile_status redis_address_prefix(char prefix[PREFIX_MAX + 1], const struct url *url,
                                       struct stile_error *err);

/* secure: the scheme that speaks TLS; without it TLS parameters are MISUSE. */
enum stile_status redis_address_tls(struct tls_context **tls, const struct url *url,
                                    const char *secure, struct stile_error *err);

/* A line of INFO. */
bool redis_address_says(const char *info, const char *line);
/* What INFO says: refuses where exclusion would be a lie. may_evict: the URL allows it. */
enum stile_status redis_address_check(const char *info, bool may_evict, struct stile_error *err);

#endif
