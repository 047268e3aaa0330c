/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The statements that are sent to the server. */
#ifndef STILE_POSTGRES_STATEMENTS_H
#define STILE_POSTGRES_STATEMENTS_H

#include "engines/postgres/names.h"
#include "engines/postgres/session.h"

/* Those that are about one key, in each of its forms and both modes. */
enum sql {
    SQL_TRY,      /* "g TOKEN", "h MS" (held back for that long) or NULL; key */
    SQL_LOCK,     /* waits inside the server, then as SQL_GRANT */
    SQL_GRANT,    /* the lock is ours in the server: "g TOKEN" or "h MS"; key */
    SQL_UNLOCK,   /* whether it was ours */
    SQL_END_HOLD, /* the same, where a hold or a delay was written with the grant */
    SQL_KEY,      /* key */
    SQL_KINDS,
};

/* Those of a grant without a row. The first three by whether the key is a hash. */
enum draw {
    DRAW_TRY,    /* "TOKEN", "TOKEN CHANGES ENDS", "-" or NULL; of a hash also the key */
    DRAW_LOCK,   /* waits inside the server; with the key, and whether it has waited */
    DRAW_DECIDE, /* after "-": as SQL_GRANT, in line */
    DRAW_LOOK,   /* of a queued claim, by whether it is shared: as SQL_TRY, "b" instead of NULL */
    DRAW_KINDS,
};

/* What the database has: no schema; one with counters; one with a queue for waiters, too; one with
 * tokens for which no grant waits for the disk; one where a grant need not write a row. */
enum schema { SCHEMA_NONE, SCHEMA_COUNTS, SCHEMA_QUEUE, SCHEMA_TOKENS, SCHEMA_DRAWS };

const struct statement *postgres_sql_for(enum sql kind, const struct key *key, bool shared,
                                         enum schema schema);

/* $1: the key, or the name, $2: stile.changes as it was when nothing was known about the name, or
 * NULL. The parameters of DRAW_DECIDE and DRAW_LOOK are those of SQL_TRY. */
extern const struct statement postgres_sql_draw[DRAW_KINDS][2];
/* $1: the names, $2: their tokens, $3: keys, $4: ages in ms, $5 to $8: their holder; $1: names,
 * $2: their tokens. */
extern const struct statement postgres_sql_describe, postgres_sql_undescribe;
/* How many locks of stile's sessions have no row yet. */
extern const struct statement postgres_sql_undescribed;

/* The queue: $1 the key, $2 its objsubid, $3 whether shared, $4 the channel, $5 for how
 * many ms it has waited already; $1 the ticket; $1
 * the key, $2 its objsubid. */
extern const struct statement postgres_sql_queue_join, postgres_sql_queue_leave,
    postgres_sql_queue_wake;

extern const struct statement postgres_sql_check_connection, postgres_sql_probe;

extern const struct statement postgres_sql_greeting, postgres_sql_version, postgres_sql_ttl,
    postgres_sql_unlock_all, postgres_sql_cancel, postgres_sql_listen, postgres_sql_show,
    postgres_sql_show_queue[2], postgres_sql_show_draws[2], postgres_sql_show_bare,
    postgres_sql_list_queue, postgres_sql_list, postgres_sql_list_bare, postgres_sql_break,
    postgres_sql_break_bare, postgres_sql_terminate, postgres_sql_facts;

/* $1: the name as it is stored, $2: the mode, $3: the token, $4: the record. */
extern const struct statement postgres_sql_remember;

/* A duration in ms, rounded up; NULL for none. */
const char *postgres_sql_ms(char out[24], uint64_t ns);

/* mode=row. postgres_sql_row_take by whether it is shared and whether it waits: the mark, or no
 * row. */
extern const struct statement postgres_sql_row_make, postgres_sql_row_begin,
    postgres_sql_row_take[2][2], postgres_sql_row_end, postgres_sql_row_ttl, postgres_sql_row_count,
    postgres_sql_row_end_hold, postgres_sql_row_show[2], postgres_sql_row_list,
    postgres_sql_row_break;

/* mode=table: nothing is prepared and nothing set, as the next statement may run in another
 * session. */
extern const struct statement postgres_sql_table_greeting, postgres_sql_table_settings,
    postgres_sql_table_test, postgres_sql_table_claim, postgres_sql_table_look,
    postgres_sql_table_look_alive, postgres_sql_table_keep, postgres_sql_table_release,
    postgres_sql_table_sync, postgres_sql_table_renew, postgres_sql_table_resume,
    postgres_sql_table_break, postgres_sql_table_show[2], postgres_sql_table_list;

/* The name of a column of a show whose locks may be without a row: whether the row is the lock's.
 */
#define OURS_OR_NO_ROW "ours_or_no_row"

/* Columns of the answer to postgres_sql_greeting. */
enum { GREETING_BACKEND, GREETING_RECOVERY, GREETING_SCHEMA, GREETING_CELLS, GREETING_KEEPS };

#endif
