/* What the server tells of locks, as people see it. */
#ifndef STILE_POSTGRES_VIEW_H
#define STILE_POSTGRES_VIEW_H

#include "engines/postgres/pg.h"

/* Rows first .. first + n - 1 of an answer to sql_show or sql_list are about this name. */
enum stile_status view_make(struct view *view, const PGresult *result, int first, int n,
                            const char *name, struct stile_error *err);

/* The backend of a row whose lock is granted and counts; 0: it waits, or is none. */
uint64_t view_holder(const PGresult *result, int row, bool *foreign);
uint64_t view_token(const PGresult *result); /* of the name's row, or 0 */

/* How a name is named to sql_show and sql_break. */
struct place {
    char stored[STORED_MAX], id[28];
    const char *values[4]; /* stored name, key or NULL, objsubid; the fourth is the caller's */
};

void place_of(struct place *place, const struct pg *pg, const char *name, size_t len);

#endif
