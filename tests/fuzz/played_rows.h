/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as a database may return them to our statements: of any number of columns, with NULLs, huge,
 * negative and broken numbers, and texts where numbers are expected. */
#ifndef STILE_FUZZ_PLAYED_ROWS_H
#define STILE_FUZZ_PLAYED_ROWS_H

#include "fuzz/played.h"

/* One value, malloc()ed; NULL: SQL's. */
char *played_value(void);

struct played_rows {
    unsigned rows, columns;
    char ***values; /* each row in an allocation of just its size */
};

/* row: the values of one row, NULL-terminated, which come as they are most of the time, no values
 * for no row; NULL: the input decides. */
void played_rows_fill(struct played_rows *rows, const char *const *row);
void played_rows_free(struct played_rows *rows);

#endif
