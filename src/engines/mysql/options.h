/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The URL of a mysql engine. */
#ifndef STILE_MYSQL_OPTIONS_H
#define STILE_MYSQL_OPTIONS_H

#include <mysql.h>

#include "base/error.h"
#include "engines/sql/options.h"

struct url;

/* Affected rows are then all that were found, changed or not: a grant is recognised by that. */
#define OPTIONS_FLAGS (CLIENT_MULTI_STATEMENTS | CLIENT_FOUND_ROWS)

enum my_mode { MODE_GETLOCK, MODE_TABLE, MODE_ROW };

struct options {
    enum my_mode mode;
    char *table;       /* mode=table: ShedLock's, in its dialect; NULL: ours */
    unsigned sessions; /* at most, all together */
    bool allow_pooler; /* a proxy in between keeps one server session for each of ours */
    uint64_t patience_ns;
    char *host, *user, *password, *database, *socket, *ca, *cert, *key; /* NULL: not given */
    unsigned port;
    bool tls, insecure;
};

extern const char *const maria_options_params[]; /* all parameters of a URL */

enum stile_status maria_options_read(struct options *options, const struct url *url,
                                     struct stile_error *err);
/* A handle that is ready to connect; NULL: no memory. blocking: for setup only. */
MYSQL *maria_options_prepare(const struct options *options);
MYSQL *maria_options_prepare_blocking(const struct options *options);
void maria_options_free(struct options *options);

#endif
