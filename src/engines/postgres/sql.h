/* What is said to the server. */
#ifndef STILE_POSTGRES_SQL_H
#define STILE_POSTGRES_SQL_H

#include "engines/postgres/names.h"
#include "engines/postgres/session.h"

/* Those that are about one key, in each of its forms and both modes. */
enum sql {
    SQL_TRY,    /* "g TOKEN", "h MS" (kept back for so long) or NULL; key */
    SQL_LOCK,   /* waits inside the server, then as SQL_GRANT */
    SQL_GRANT,  /* it is ours in the server: "g TOKEN" or "h MS"; key */
    SQL_UNLOCK, /* whether it was ours */
    SQL_LET_GO, /* the same, where a hold or a delay was written with the grant */
    SQL_KEY,    /* key */
    SQL_KINDS,
};

/* What the database has: nothing of ours; counters; and a line for those that wait. */
enum schema { SCHEMA_NONE, SCHEMA_COUNTS, SCHEMA_LINE };

const struct statement *sql_for(enum sql kind, const struct key *key, bool shared,
                                enum schema schema);

/* The same for a claim, in again.c. *n, how many values there are: 0 if its key is in the text. */
struct part;
const struct statement *again_for(struct part *part, enum sql kind, int *n);

/* The line: $1 the key, $2 its objsubid, $3 whether shared, $4 the channel; $1 the ticket; $1 the
 * key, $2 its objsubid. */
extern const struct statement sql_park, sql_unpark, sql_wake;

extern const struct statement sql_check_connection, sql_probe;

extern const struct statement sql_hail, sql_version, sql_ttl, sql_unlock_all, sql_cancel,
    sql_listen, sql_show, sql_show_line, sql_show_bare, sql_list_line, sql_list, sql_list_bare,
    sql_break, sql_break_bare, sql_terminate, sql_facts;

/* A duration in ms, rounded up; NULL for none. */
const char *sql_ms(char out[24], uint64_t ns);

/* mode=row. sql_row_take by whether it is shared and whether it waits: the mark, or no row. */
extern const struct statement sql_row_make, sql_row_begin, sql_row_take[2][2], sql_row_end,
    sql_row_ttl, sql_row_count, sql_row_let_go, sql_row_show, sql_row_list, sql_row_break;

/* mode=table: nothing is prepared and nothing set, for the next statement may be another session's.
 */
extern const struct statement sql_table_hail, sql_table_settings, sql_table_test, sql_table_claim,
    sql_table_look, sql_table_look_alive, sql_table_release, sql_table_renew, sql_table_resume,
    sql_table_break, sql_table_show, sql_table_list;

/* Columns of the answer to sql_hail. */
enum { HAIL_BACKEND, HAIL_RECOVERY, HAIL_SCHEMA };

#endif
