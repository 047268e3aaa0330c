/* mode=table: a claim is a row with an owner and an end, on the database's clock. */
#ifndef STILE_MYSQL_TABLE_H
#define STILE_MYSQL_TABLE_H

#include "engines/mysql/my.h"

extern const struct session_events table_events;
extern const struct lease_ops table_ops;

/* ---- bell.c ---- */

void bell_init(struct my *my);
void bell_hang(struct my *my); /* somebody waits */

void table_break(struct engine *engine, struct query *query);

#endif
