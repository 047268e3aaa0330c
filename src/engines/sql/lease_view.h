/* Rows of mode=table as people see them. */
#ifndef STILE_SQL_LEASE_VIEW_H
#define STILE_SQL_LEASE_VIEW_H

#include "engines/engine.h"

/* What an engine asks for, in this order. A row without an owner tells of a name that nobody has or
 * waits for. */
enum lease_column {
    ROW_NAME,
    ROW_HELD,
    ROW_GHOST,
    ROW_MODE,
    ROW_TOKEN,
    ROW_AGE_MS,
    ROW_LEFT_MS,
    ROW_PID,
    ROW_HOST,
    ROW_COMMAND,
    ROW_OWNER,
    ROW_COUNTER,
    ROW_COLUMNS,
};

/* Its texts point into the cells, of which each may be NULL. */
void lease_read(struct stile_claim_info *claim, const char *const cells[ROW_COLUMNS]);

#endif
