/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The statements that are sent to the server. Every function returns a malloc()ed text, or NULL
 * without memory. Text from outside is written in hex. */
#ifndef STILE_MYSQL_STATEMENTS_H
#define STILE_MYSQL_STATEMENTS_H

#include "engines/mysql/my.h"

/* The statements of maria_sql_greeting() whose answers count, after two settings unless it is
 * mode=table, and the columns of the first of them. */
enum { GREETING_FACTS, GREETING_MULTI_PRIMARY, GREETING_UPTIME };
#define GREETING_SETTINGS 2
enum { FACT_ID, FACT_VERSION, FACT_READ_ONLY, FACT_SCHEMA, FACT_GUARD, FACT_ENDS };
char *maria_sql_greeting(const struct my *my);
/* marks the session as ours, for the show of other clients */
char *maria_sql_sign(const struct my *my);
char *maria_sql_version(void);

/* Sets the lease, before what follows; "" for 0. */
#define LEASE_MAX 64
const char *maria_sql_lease(char out[LEASE_MAX], uint64_t ttl_ns);

/* The lock that makes the row of a grant valid for as long as it is held. */
#define GRANT_MARK_MAX 64
const char *maria_sql_grant_mark(char out[GRANT_MARK_MAX], struct sql_claim *c);

/* about a claim, where rows count; ttl_ns not 0: the lease comes first */
char *maria_sql_try(struct sql_claim *c, uint64_t ttl_ns);
char *maria_sql_lock(struct sql_claim *c, uint64_t ttl_ns);
char *maria_sql_grant(struct sql_claim *c); /* the lock is ours in the server: count the grant */
char *maria_sql_hold_left(struct sql_claim *c); /* in ms: for how long the name is held back */
char *maria_sql_unlock(struct sql_claim *c);
char *maria_sql_end_hold(struct sql_claim *c, bool unused);

char *maria_sql_ttl(uint64_t ttl_ns);
/* its last statement returns: is it the same session, with its locks; is the server writable */
char *maria_sql_prove(const struct session *session, uint64_t ttl_ns);
char *maria_sql_kill(uint64_t backend, bool session);

/* for the doctor: maria_sql_facts() has two more statements behind the facts */
char *maria_sql_facts(void);
/* refused if this user lacks a privilege that the mode needs; its last statement counts the
 * procedures that may be used */
char *maria_sql_rights(const struct my *my);
char *maria_sql_record_rights(void); /* the same about records */

/* for inspection; names in hex */
char *maria_sql_show(struct my *my, const char *stored, const char *key);
char *maria_sql_list(struct my *my, const char *prefix);
char *maria_sql_break_hold(const struct my *my, const char *stored, uint64_t token);

/* the record of the last holder */
char *maria_sql_remember(const struct my *my, const struct query *query);
char *maria_sql_forget(void); /* some of the old ones */
/* The last column of show: the record of a name, which is in hex. */
#define SQL_RECORD_MAX (STORED_HEX_MAX + SHEDLOCK_TABLE_MAX + 128)
void maria_sql_record(char out[SQL_RECORD_MAX], const struct my *my, const char *stored);

/* mode=table, in table.c: nothing is set, as the next statement may run in another session */
char *maria_sql_table_settings(const struct my *my); /* where the session is ours alone */
char *maria_sql_table_claim(struct lease *lease);
/* "a": ask again; "w MS AHEAD": held by others for MS, with AHEAD waiters before it */
char *maria_sql_table_look(struct lease *lease, uint64_t life_ms);
char *maria_sql_table_keep(const struct leases *leases, uint64_t life_ms);
char *maria_sql_table_resume(struct lease *lease);
char *maria_sql_table_release(struct lease *lease, bool unused);
char *maria_sql_table_renew(struct leased_renewal *renewal); /* the owners that are left */
char *maria_sql_table_break(const struct query *query);
char *maria_sql_table_show(const struct my *my, const char *stored);
char *maria_sql_table_list(const char *prefix);
char *maria_sql_rollback(void);
char *maria_sql_wakeup_listen(const struct my *my);
char *maria_sql_wakeup_granted(const struct my *my);
char *maria_sql_wakeup_prepare(const struct my *my);
char *maria_sql_wakeup_test(const struct my *my);
char *maria_sql_wakeup_sleep(const struct my *my);

/* mode=table&dialect=shedlock, in shedlock.c */
char *maria_sql_shed_claim(struct lease *lease);
char *maria_sql_shed_resume(struct lease *lease);
char *maria_sql_shed_release(struct lease *lease, bool unused);
char *maria_sql_shed_renew(struct leased_renewal *renewal);
char *maria_sql_shed_break(const struct query *query);
char *maria_sql_shed_show(struct my *my, const char *name, size_t len);
char *maria_sql_shed_list(struct my *my, const char *prefix);

/* mode=row, in rows.c */
char *maria_sql_row_take(struct sql_claim *c, uint64_t ttl_ns);
char *maria_sql_row_grant(struct sql_claim *c); /* "g TOKEN", or "h MS": held back */
char *maria_sql_row_end_hold(struct sql_claim *c, bool unused);
char *maria_sql_row_mark(struct sql_claim *c, uint64_t ttl_ns);
char *maria_sql_row_end(struct sql_claim *c);
char *maria_sql_row_show(const struct my *my, const char *stored);
char *maria_sql_row_list(const struct my *my, const char *prefix);
char *maria_sql_row_break_hold(const struct my *my, const char *stored, uint64_t token);

/* The waiters inside the server, in their order; with maria_sql_waited_ms(). */
#define SQL_WAITERS                                                                                \
    "SELECT ID,%s,INFO,USER,HOST FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID() "   \
    "AND "
#define SQL_ROW_WAITERS                                                                            \
    SQL_WAITERS "INFO LIKE '%%FROM stile\\_row WHERE name=%%' ORDER BY STATE='User lock',2 "       \
                "DESC,ID"

/* What is for people to read: nothing behind it may have to wait for a table that someone has
 * locked. */
#define BRIEFLY "/*M!100102 SET STATEMENT lock_wait_timeout=1,innodb_lock_wait_timeout=1 FOR */"

#define SQL_YEAR_S   31536000 /* the longest that the server takes */
#define SQL_AGE(at)  "TIMESTAMPDIFF(MICROSECOND," at ",UTC_TIMESTAMP(6)) DIV 1000"
#define SQL_LEFT(at) "TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6)," at ") DIV 1000"
/* For how long its row keeps a name back, if it has no holder. */
#define SQL_KEPT(row) SQL_KEPT_UNTIL(row, SQL_LEFT(row ".hold_until"))
#define SQL_KEPT_UNTIL(row, left)                                                                  \
    "IF(" row ".delay_ms IS NULL," left ",GREATEST(" row ".delay_ms,COALESCE(" left ",0)))"

const char *maria_sql_waited_ms(const struct my *my);
const char *maria_sql_milliseconds(char out[24], uint64_t ns); /* "NULL" for 0 */
/* A comment in a statement that waits: the client, and for how long the claim has waited before. */
#define SQL_IDENTITY_MAX (sizeof(struct identity) + 40)
void maria_sql_identity(char out[SQL_IDENTITY_MAX], struct sql_claim *c);
unsigned long maria_sql_lease_s(uint64_t ttl_ns);
char *maria_sql_written(const char *format, ...) PRINTF_LIKE(1, 2);

#endif
