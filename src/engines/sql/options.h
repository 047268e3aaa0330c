/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Options that the URLs of both databases share. */
#ifndef STILE_SQL_OPTIONS_H
#define STILE_SQL_OPTIONS_H

#include "base/error.h"

struct url;

#define SESSIONS_DEFAULT 20

/* sessions=, and whether allow= says pooler. */
enum stile_status sql_options_sessions(unsigned *sessions, bool *allow_pooler,
                                       const struct url *url, struct stile_error *err);

/* A host on this machine needs no encryption on the way there. */
bool sql_host_is_local(const char *host, size_t len);

/* In place, the password becomes stars. secret may be NULL; text has room for 40 bytes. */
void sql_hide_secret(char *text, const char *secret);

/* dialect=shedlock: the table of ShedLock, by its rules. Each name has a row that is never
 * deleted, and is free when lock_until is over, on the database's clock in UTC. locked_by
 * identifies a claim of ours, by its owner value, and shows its "pid@host" and command.
 *
 * The rules are in each database's own statements, which name the table as @T@. */
#define SHEDLOCK_TABLE     "shedlock"
#define SHEDLOCK_TABLE_MAX 128

/* table=, malloc()ed: a name, or a schema's and a name, that needs no quotes. */
enum stile_status sql_shedlock_read_table(char **table, const struct url *url,
                                          struct stile_error *err);
/* There is no such table. */
enum stile_status sql_shedlock_refuse_missing(int native, struct stile_error *err);

/* The pattern with the table for each @T@ and the other text for each @N@; NULL: out of memory. */
char *sql_shedlock_expand(const char *pattern, const char *table, const char *other);

#endif
