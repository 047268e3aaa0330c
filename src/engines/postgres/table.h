/* mode=table: a claim is a row with an owner and an end, on the database's clock. */
#ifndef STILE_POSTGRES_TABLE_H
#define STILE_POSTGRES_TABLE_H

#include "engines/postgres/pg.h"

extern const struct session_events table_events;
extern const struct lease_ops table_ops;

void table_break(struct engine *engine, struct query *query);

#endif
