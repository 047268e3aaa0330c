/* list, show, watch and break: ask, collect copies, and hand them to the user without the mutex. */
#ifndef STILE_QUERY_H
#define STILE_QUERY_H

#include "engines/engine.h"

void query_info(struct query *query, const struct stile_info *info);
void query_done(struct query *query, const struct stile_error *err);

#endif
