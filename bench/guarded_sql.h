/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a guard adds to a transaction, on any database whose client sends statements as text. */
#ifndef GUARDED_SQL_H
#define GUARDED_SQL_H

#include <stddef.h>
#include <stdint.h>

/* before: "BEGIN;" or "". */
typedef void guarded_call_fn(char *sql, size_t size, const char *before, const char *resource,
                             int64_t token);

struct guarded_sql {
    void (*connect)(const char *port);
    void (*run)(const char *sql); /* one message; dies of an error */
    guarded_call_fn *guard;
    guarded_call_fn *guard_select; /* the guard as a function of a SELECT, or NULL */
    const char *locking_select;    /* BEGIN, and the guard's row read and locked in one message */
    const char *const *tables;     /* statements that make them, until NULL */
};

/* PROGRAM PORT small|usual|standard ROUNDS CALLS CORE */
int guarded_sql_main(int argc, char **argv, const struct guarded_sql *database);

#endif
