/* dialect=shedlock: the table of ShedLock, by its rules. A row a name that is never deleted, free
 * when lock_until is over, on the database's clock in UTC. What tells our claims apart, and tells
 * people who we are, is all in locked_by: the owner value, "pid@host", and the command.
 *
 * The rules stand in each database's own statements, which name the table as @T@. */
#ifndef STILE_SQL_SHEDLOCK_H
#define STILE_SQL_SHEDLOCK_H

#include "base/error.h"

struct url;

#define SHEDLOCK_TABLE     "shedlock"
#define SHEDLOCK_TABLE_MAX 128

/* table=, malloc()ed: a name, or a schema's and a name, that needs no quotes. */
enum stile_status shedlock_read_table(char **table, const struct url *url, struct stile_error *err);
/* There is no such table. */
enum stile_status shedlock_refuse_missing(int native, struct stile_error *err);

/* The pattern with the table for each @T@ and the other text for each @N@; NULL: out of memory. */
char *shedlock_expand(const char *pattern, const char *table, const char *other);

#endif
