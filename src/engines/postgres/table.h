/* mode=table: a claim is a row with an owner and an end, on the database's clock. */
#ifndef STILE_POSTGRES_TABLE_H
#define STILE_POSTGRES_TABLE_H

#include "engines/postgres/pg.h"

extern const struct session_events table_events;
extern const struct lease_ops table_ops;

/* The statements of mode=table, or of ShedLock's table. */
void table_prepare(struct pg *pg);
enum stile_status shedlock_prepare(struct pg *pg, struct stile_error *err);
void shedlock_free(struct pg *pg);

void table_break(struct engine *engine, struct query *query);

#endif
