/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The URL of a postgres engine: the options that are ours, and those that are passed to libpq. */
#ifndef STILE_POSTGRES_OPTIONS_H
#define STILE_POSTGRES_OPTIONS_H

#include <libpq-fe.h>
#include <netdb.h>

#include "base/error.h"
#include "engines/postgres/names.h"
#include "engines/sql/options.h"

struct url;

#define KEYWORDS_MAX 64

enum pg_mode { MODE_ADVISORY, MODE_TABLE, MODE_ROW };

struct options {
    enum pg_mode mode;
    enum dialect dialect;
    char *table;       /* mode=table: ShedLock's, in its dialect; NULL: ours */
    unsigned sessions; /* at most, all together */
    uint64_t locks;    /* at most, of mode=advisory; 0: a quarter of what the server has room for */
    uint64_t poll_ns;  /* a queued waiter looks by itself this often */
    bool allow_pooler; /* a pooler in between keeps one server session for each of ours */
    uint64_t patience_ns;
    const char *keywords[KEYWORDS_MAX + 1]; /* for libpq */
    char *values[KEYWORDS_MAX + 1];
    size_t n;
    struct {
        char *host, *hostaddr, *port;
    } written; /* the values that the pin replaces; NULL: no pin, or not given */
    bool pinned;
};

extern const char *const postgres_options_params[]; /* all parameters of a URL */

enum stile_status postgres_options_read(struct options *options, const struct url *url,
                                        struct stile_error *err);
/* Replaces one keyword's value. */
enum stile_status postgres_options_set(struct options *options, const char *keyword,
                                       const char *value, struct stile_error *err);
const char *postgres_options_get(const struct options *options,
                                 const char *keyword); /* NULL: unset */
/* Further sessions go to the server that this one has reached, without resolving names again,
 * until it can no longer be reached: then the URL's own hosts count again. */
enum stile_status postgres_options_pin(struct options *options, const PGconn *conn,
                                       struct stile_error *err);
void postgres_options_unpin(struct options *options);
/* A host whose name is to be resolved: libpq would block while it resolves it. False: none is left.
 */
bool postgres_options_next_name(char name[NI_MAXHOST], const struct options *options);
/* found NULL: the name cannot be resolved, and the other hosts are tried. An error: there are none.
 */
enum stile_status postgres_options_set_addresses(struct options *options, const char *name,
                                                 const struct addrinfo *found,
                                                 struct stile_error *err);
void postgres_options_free(struct options *options);

#endif
