/* What the server tells of locks, as people see it. */
#ifndef STILE_MYSQL_VIEW_H
#define STILE_MYSQL_VIEW_H

#include "engines/mysql/my.h"

/* The next row of an answer to sql_show() or sql_list(); *made false: there is none. */
enum stile_status view_next(struct view *view, bool *made, const struct answer *answer,
                            struct stile_error *err);
void view_rewind(const struct answer *answer);

#endif
