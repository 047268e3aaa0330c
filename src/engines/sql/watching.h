/* watch: looks again and again, as what plain SQL does tells nobody. The engine asks for one name,
 * and has what it sees told here. */
#ifndef STILE_SQL_WATCHING_H
#define STILE_SQL_WATCHING_H

#include "engines/engine.h"

struct watching;

struct watching_ops {
    /* Ends in watching_saw(); an error means that nothing was asked. */
    enum stile_status (*ask)(struct query *query, struct watching *watching,
                             struct stile_error *err);
    void (*forget)(struct engine *engine, const void *data); /* answers to it go to nobody */
};

void watching_begin(struct query *query, const struct watching_ops *ops);
void watching_end(struct query *query);
struct query *watching_query(const struct watching *watching);
/* err NULL: info is what there is. */
void watching_saw(struct watching *watching, const struct stile_info *info,
                  const struct stile_error *err);

#endif
