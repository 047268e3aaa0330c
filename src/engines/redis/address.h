/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a redis URL, and the checks of the server it names. */
#ifndef STILE_REDIS_ADDRESS_H
#define STILE_REDIS_ADDRESS_H

#include "base/url.h"
#include "io/tls.h"

#define ADDRESS_PORT   6379
#define PREFIX_MAX     128
#define ADDRESS_DB_MAX 65535

/* A value that is not given is left as it is. The database is the path, or db= where the path has
 * another meaning. */
enum stile_status redis_address_db_param(unsigned *db, const struct url *url,
                                         struct stile_error *err);
/* Refuses an unknown word before anything is connected. */
enum stile_status redis_address_allow(const struct url *url, struct stile_error *err);
enum stile_status redis_address_db(unsigned *db, const struct url *url, struct stile_error *err);
enum stile_status redis_address_prefix(char prefix[PREFIX_MAX + 1], const struct url *url,
                                       struct stile_error *err);

/* secure: the scheme with TLS; with another one TLS parameters are MISUSE. */
enum stile_status redis_address_tls(struct tls_context **tls, const struct url *url,
                                    const char *secure, struct stile_error *err);

/* A line of INFO. */
bool redis_address_says(const char *info, const char *line);
/* Refuses a server on which exclusion would not hold, by its INFO. may_evict: the URL allows it. */
enum stile_status redis_address_check(const char *info, bool may_evict, struct stile_error *err);

#endif
