/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/mysql/statements.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *maria_sql_written(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

/* ---- about a session ---- */

/* A lock of its own is the only mark of a session that others can see and that ends with it. */
#define SIGN "SELECT GET_LOCK(CONCAT('stile%s session ',CONNECTION_ID()),0)"

static const char *plus(const struct my *my)
{
    return my->bare ? "" : "+";
}

char *maria_sql_sign(const struct my *my)
{
    return maria_sql_written(SIGN, plus(my));
}

/* Overrides the defaults of the server and the user; completion_type comes first, as the commit
 * implied by autocommit could end the session. A row is locked for one statement only, so a long
 * wait for one means a server in trouble. */
#define SETTINGS                                                                                   \
    "SET SESSION completion_type=0,sql_mode='',autocommit=1,time_zone='+00:00',"                   \
    "wait_timeout=%d,interactive_timeout=%d,net_read_timeout=60,net_write_timeout=60,"             \
    "lock_wait_timeout=%d,innodb_lock_wait_timeout=5"                                              \
    "/*!50708 ,max_execution_time=0 *//*M!100101 ,max_statement_time=0 */"                         \
    "/*M!100300 ,idle_transaction_timeout=0 */"
/* A look at information_schema.COLUMNS would need a table on disk, which may be full. */
#define FACTS                                                                                      \
    "SELECT CONNECTION_ID(),VERSION(),@@GLOBAL.read_only,"                                         \
    "(SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND "           \
    "TABLE_NAME='stile_version'),"                                                                 \
    "(SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND "           \
    "TABLE_NAME='stile_guard'),"                                                                   \
    "(SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA=DATABASE() AND "       \
    "TABLE_NAME='stile_guard' AND COLUMN_NAME='ends_at');"                                         \
    "SHOW GLOBAL VARIABLES WHERE Variable_name='wsrep_on' AND Value<>'OFF' OR "                    \
    "Variable_name='group_replication_single_primary_mode' AND Value='OFF';"                       \
    "SHOW GLOBAL STATUS LIKE 'Uptime'"

/* ShedLock's columns are read in the time zone that its other clients use; a name that does not
 * fit must not be cut. */
char *maria_sql_table_settings(const struct my *my)
{
    return maria_sql_written(SETTINGS "%s", SQL_YEAR_S, SQL_YEAR_S, SQL_YEAR_S,
                             my->options.table
                                 ? ",time_zone=@@GLOBAL.time_zone,sql_mode="
                                   "'STRICT_ALL_TABLES';SET SESSION TRANSACTION ISOLATION "
                                   "LEVEL REPEATABLE READ"
                                 : "");
}

char *maria_sql_greeting(const struct my *my)
{
    char sign[128] = "";
    if (my->options.mode == MODE_TABLE)
        return maria_sql_written(FACTS);
    if (!sql_opening_is_under_way(&my->opening))
        snprintf(sign, sizeof sign, ";" SIGN, plus(my));
    return maria_sql_written(
        SETTINGS ";SET SESSION TRANSACTION ISOLATION LEVEL %s;" FACTS "%s", SQL_YEAR_S, SQL_YEAR_S,
        SQL_YEAR_S, my->options.mode == MODE_ROW ? "READ COMMITTED" : "REPEATABLE READ", sign);
}

char *maria_sql_version(void)
{
    return maria_sql_written("SELECT MAX(version),(SELECT COUNT(*) FROM information_schema.TABLES "
                             "WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='stile_last_holder') "
                             "FROM stile_version");
}

/* ---- for the doctor ---- */

#define TABLES                                                                                     \
    "information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME IN "                   \
    "('stile_version','stile_lock','stile_floor','stile_counter','stile_claim','stile_row',"       \
    "'stile_row_count','stile_row_claim','stile_job')"

/* Sessions of replicas that read the log; a user that may not see other sessions sees none. */
char *maria_sql_facts(void)
{
    return maria_sql_written(
        "SELECT VERSION(),@@GLOBAL.read_only,CONNECTION_ID(),(SELECT COUNT(*) FROM " TABLES
        "),(SELECT COUNT(*) FROM " TABLES " AND ENGINE<>'InnoDB'),"
        "@@GLOBAL.innodb_flush_log_at_trx_commit,@@GLOBAL.max_connections,"
        "(SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE "
        "'Binlog Dump%%'),DATABASE(),@@GLOBAL.log_bin AND @@GLOBAL.binlog_format='STATEMENT',"
        "@@GLOBAL.log_bin AND @@GLOBAL.sync_binlog<>1,"
        "(SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND "
        "TABLE_NAME='stile_life' AND ENGINE<>'MEMORY');"
        "SHOW GLOBAL VARIABLES WHERE Variable_name='wsrep_on' AND Value<>'OFF' OR "
        "Variable_name='group_replication_single_primary_mode' AND Value='OFF';"
        "SHOW GLOBAL STATUS LIKE 'Threads_connected'");
}

/* EXPLAIN needs the privileges of the statement, and changes nothing. */
char *maria_sql_rights(const struct my *my)
{
    static const char *const tries[] = {
        [MODE_GETLOCK] = "EXPLAIN INSERT INTO stile_lock(name) VALUES('');"
                         "EXPLAIN UPDATE stile_lock SET since=since WHERE name=''",
        [MODE_TABLE] = "EXPLAIN INSERT INTO stile_counter(name) VALUES('');"
                       "EXPLAIN UPDATE stile_counter SET token=token WHERE name='';"
                       "EXPLAIN DELETE FROM stile_claim WHERE name=''",
        [MODE_ROW] = "EXPLAIN INSERT INTO stile_row(name) VALUES('');"
                     "EXPLAIN UPDATE stile_row_count SET token=token WHERE name=''",
    };
    bool draws = my->epochs && my->options.mode == MODE_GETLOCK;
    return maria_sql_written("%s%s;SELECT COUNT(*) FROM information_schema.ROUTINES WHERE "
                             "ROUTINE_SCHEMA=DATABASE() AND ROUTINE_NAME LIKE 'stile\\_%%'",
                             tries[my->options.mode],
                             draws ? ";EXPLAIN UPDATE stile_epoch SET bound=bound;"
                                     "EXPLAIN INSERT INTO stile_life VALUES (0,0,0)"
                                   : "");
}

char *maria_sql_record_rights(void)
{
    return maria_sql_written("EXPLAIN INSERT INTO stile_last_holder(name) VALUES('');"
                             "EXPLAIN UPDATE stile_last_holder SET token=token WHERE name='';"
                             "EXPLAIN DELETE FROM stile_last_holder WHERE name=''");
}

/* ---- the lease ---- */

unsigned long maria_sql_lease_s(uint64_t ttl_ns)
{
    uint64_t seconds = (ttl_ns + NS_PER_SEC - 1) / NS_PER_SEC;
    return ttl_ns == 0 || seconds > SQL_YEAR_S ? SQL_YEAR_S : (unsigned long)seconds;
}

char *maria_sql_ttl(uint64_t ttl_ns)
{
    return maria_sql_written("SET SESSION wait_timeout=%lu", maria_sql_lease_s(ttl_ns));
}

/* The session's own mark was taken like all its other locks, and ends only with them: if it is
 * gone, a proxy has put another connection in this one's place. */
#define MARKED                                                                                     \
    "COALESCE(IS_USED_LOCK(CONCAT('stile%s session ',CONNECTION_ID()))=CONNECTION_ID(),0)"

char *maria_sql_prove(const struct session *session, uint64_t ttl_ns)
{
    return maria_sql_written("SET SESSION wait_timeout=%lu;SELECT CONNECTION_ID()=%" PRIu64
                             " AND " MARKED ",@@GLOBAL.read_only=0",
                             maria_sql_lease_s(ttl_ns), session->base.backend, plus(session->my));
}

char *maria_sql_kill(uint64_t backend, bool session)
{
    return maria_sql_written("KILL %s %" PRIu64, session ? "CONNECTION" : "QUERY", backend);
}

/* ---- about a claim ---- */

const char *maria_sql_lease(char out[LEASE_MAX], uint64_t ttl_ns)
{
    out[0] = '\0';
    if (ttl_ns)
        snprintf(out, LEASE_MAX, "SET SESSION wait_timeout=%lu;", maria_sql_lease_s(ttl_ns));
    return out;
}

const char *maria_sql_milliseconds(char out[24], uint64_t ns)
{
    if (ns == 0)
        return "NULL";
    snprintf(out, 24, "%" PRIu64, (ns + NS_PER_MS - 1) / NS_PER_MS);
    return out;
}

#define FREE                                                                                       \
    "(stile_lock.delay_ms IS NULL AND (stile_lock.hold_until IS NULL OR "                          \
    "stile_lock.hold_until<=UTC_TIMESTAMP(6)))"
#define IF_FREE(column) #column "=IF(" FREE ",VALUES(" #column "),stile_lock." #column "),"

/* If @g, counts the grant in the name's row, unless a hold keeps the name back. No row affected:
 * the lock is not ours. The insert id is the token; 0: held back. Assignments are made from left
 * to right, so what the condition needs is set last; by then the time shows whether it was met. */
#define COUNT_IT                                                                                   \
    "INSERT INTO stile_lock (name,lock_name,token,owner,host,pid,command,since,backend,"           \
    "hold_until,delay_ms) "                                                                        \
    "SELECT X'%s',X'%s',LAST_INSERT_ID(f.token+1),'%s',X'%s',%s,X'%s',UTC_TIMESTAMP(6),"           \
    "CONNECTION_ID(),UTC_TIMESTAMP(6)+INTERVAL 1000*%s MICROSECOND,%s "                            \
    "FROM stile_floor f WHERE f.one=1 AND @g=1 AND @@GLOBAL.read_only=0 "                          \
    "ON DUPLICATE KEY UPDATE token=IF(" FREE ",LAST_INSERT_ID(stile_lock.token+1),"                \
    "stile_lock.token+LAST_INSERT_ID(0)),"
#define KEEP_IT                                                                                    \
    IF_FREE(lock_name)                                                                             \
    IF_FREE(owner)                                                                                 \
    IF_FREE(host)                                                                                  \
    IF_FREE(pid)                                                                                   \
    IF_FREE(command)                                                                               \
    IF_FREE(backend)                                                                               \
    IF_FREE(since)                                                                                 \
    IF_FREE(hold_until)                                                                            \
    "delay_ms=IF(stile_lock.since=UTC_TIMESTAMP(6),VALUES(delay_ms),stile_lock.delay_ms)"

static char *counted(struct sql_claim *c, const char *before, const char *lock)
{
    struct my *my = my_of_claim(c);
    struct claim *claim = claim_of(c);
    char hold[24], delay[24];
    return maria_sql_written("%sSET @g=%s;" COUNT_IT KEEP_IT, before, lock, c->stored,
                             my_claim_of(c)->key, my->identity.owner, my->host_hex,
                             my->identity.pid, my->command_hex,
                             maria_sql_milliseconds(hold, claim->hold_ns),
                             maria_sql_milliseconds(delay, claim->delay_ns));
}

/* On the path of every pair: printf() would be a third of the client's work. */
static char *about_key(const char *before, struct sql_claim *c, const char *behind)
{
    const char *key = my_claim_of(c)->key;
    char *text = malloc(strlen(before) + strlen(key) + strlen(behind) + 1);
    if (text)
        stpcpy(stpcpy(stpcpy(text, before), key), behind);
    return text;
}

/* Takes nothing on a primary that has been demoted since this session connected. */
#define WRITABLE(lock) "IF(@@GLOBAL.read_only,0," lock

/* Nowhere else could other clients see the waiters. The server shows only the statement that waits.
 */
void maria_sql_identity(char out[SQL_IDENTITY_MAX], struct sql_claim *c)
{
    const struct identity *identity = &my_of_claim(c)->identity;
    snprintf(out, SQL_IDENTITY_MAX, " /* stile:%s+%" PRIu64 "@%s %s */", identity->pid,
             sql_claim_waited_ms(c), identity->host, identity->command);
}

char *maria_sql_try(struct sql_claim *c, uint64_t ttl_ns)
{
    char before[LEASE_MAX], lock[KEY_HEX_MAX + 64];
    if (my_of_claim(c)->bare && !ttl_ns)
        return about_key("SELECT " WRITABLE("GET_LOCK(X'"), c, "',0))");
    snprintf(lock, sizeof lock, WRITABLE("GET_LOCK(X'%s',0)") ")", my_claim_of(c)->key);
    if (my_of_claim(c)->bare)
        return maria_sql_written("%sSELECT %s", maria_sql_lease(before, ttl_ns), lock);
    return counted(c, maria_sql_lease(before, ttl_ns), lock);
}

/* Counts in the same packet: a grant after a wait needs no further round trip. */
char *maria_sql_lock(struct sql_claim *c, uint64_t ttl_ns)
{
    struct my *my = my_of_claim(c);
    char before[LEASE_MAX], lock[KEY_HEX_MAX + 64 + SQL_IDENTITY_MAX], identity[SQL_IDENTITY_MAX];
    maria_sql_identity(identity, c);
    snprintf(lock, sizeof lock, "GET_LOCK(X'%s',%d)%s", my_claim_of(c)->key, SQL_YEAR_S, identity);
    if (my->bare)
        return maria_sql_written("%sSELECT %s", maria_sql_lease(before, ttl_ns), lock);
    return counted(c, maria_sql_lease(before, ttl_ns), lock);
}

char *maria_sql_grant(struct sql_claim *c)
{
    char lock[KEY_HEX_MAX + 64];
    snprintf(lock, sizeof lock, "IS_USED_LOCK(X'%s')<=>CONNECTION_ID()", my_claim_of(c)->key);
    return my_of_claim(c)->bare ? maria_sql_written("SELECT %s", lock) : counted(c, "", lock);
}

/* A delay that is still there was left by a holder that died: it begins now. */
char *maria_sql_hold_left(struct sql_claim *c)
{
    return maria_sql_written(
        "UPDATE stile_lock SET hold_until=GREATEST(COALESCE(hold_until,UTC_TIMESTAMP(6)),"
        "UTC_TIMESTAMP(6)+INTERVAL 1000*delay_ms MICROSECOND),delay_ms=NULL,backend=NULL "
        "WHERE name=X'%s' AND delay_ms IS NOT NULL;"
        "SELECT GREATEST(1,CEIL(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),hold_until)/1000)) "
        "FROM stile_lock WHERE name=X'%s'",
        c->stored, c->stored);
}

const char *maria_sql_grant_mark(char out[GRANT_MARK_MAX], struct sql_claim *c)
{
    snprintf(out, GRANT_MARK_MAX, "'stile grant %" PRIu64 " %" PRIu64 "'", c->token,
             c->session ? c->session->base.backend : 0);
    return out;
}

char *maria_sql_unlock(struct sql_claim *c)
{
    char release[GRANT_MARK_MAX + 32], mark[GRANT_MARK_MAX];
    if (my_claim_of(c)->described) {
        snprintf(release, sizeof release, "'),RELEASE_LOCK(%s)", maria_sql_grant_mark(mark, c));
        return about_key("SELECT RELEASE_LOCK(X'", c, release);
    }
    return about_key("SELECT RELEASE_LOCK(X'", c, "')");
}

/* Ends what a grant of this session has written, even if the answer to the grant was lost. */
char *maria_sql_end_hold(struct sql_claim *c, bool unused)
{
    char mark[GRANT_MARK_MAX];
    return maria_sql_written(
        "UPDATE stile_lock SET backend=NULL,delay_ms=NULL%s WHERE name=X'%s' AND "
        "backend=CONNECTION_ID() AND owner='%s';SELECT RELEASE_LOCK(X'%s'),RELEASE_LOCK(%s)",
        unused ? ",hold_until=NULL" : "", c->stored, my_of_claim(c)->identity.owner,
        my_claim_of(c)->key, maria_sql_grant_mark(mark, c));
}

/* ---- for inspection ---- */

/* The row; whether it is about the session that has the lock, in this run of the server; and
 * whether that session counts its grants. */
#define VIEW(token) token ",r.owner,r.host,r.pid,r.command," SQL_AGE("r.since") "," SQL_KEPT("r")

#define SIGNED(id) "IS_USED_LOCK(CONCAT('stile+ session '," id "))<=>" id

#define WAITERS SQL_WAITERS "STATE='User lock' AND INFO LIKE '%%GET\\_LOCK(%%' ORDER BY 2 DESC,ID"

const char *maria_sql_waited_ms(const struct my *my)
{
    return my->mariadb ? "CAST(TIME_MS AS SIGNED)" : "TIME*1000";
}

/* Rounded up: the server counts whole seconds. */
static uint64_t uptime_s(const struct my *my)
{
    return (uint64_t)((int64_t)loop_now(my->engine.loop) - my->started_ns) / NS_PER_SEC + 2;
}

/* Where tokens have epochs: the row is about the session's present grant; the name is kept back, so
 * that a session that has the lock waits; else a grant is about to be described. */
#define IS_KEPT "COALESCE(" SQL_KEPT("r") ",0)>0"
#define IS_DESCRIBED(used)                                                                         \
    "COALESCE(r.backend=" used " AND IS_USED_LOCK(CONCAT('stile grant ',r.last_token,' ',"         \
    "r.backend))<=>r.backend,0)"
/* Of a name whose row is old: no grant had a larger token than the next draw has, and each later
 * one will. */
#define TOKEN_OF_EPOCHS(used)                                                                      \
    "IF(" IS_DESCRIBED(                                                                            \
        used) " OR " IS_KEPT ",r.last_token,COALESCE((SELECT e.base+UUID_SHORT()-"                 \
              "l.first FROM stile_epoch e JOIN stile_life l ON l.base=e.base AND l.server="        \
              "@@GLOBAL.server_id WHERE e.one=1 LIMIT 1),(SELECT e.bound FROM stile_epoch e "      \
              "WHERE "                                                                             \
              "e.one=1)))"
#define STATE_OF_EPOCHS(used) IS_DESCRIBED(used) ",IF(" SIGNED(used) ",IF(" IS_KEPT ",1,2),0)"
#define SETTLE(seconds)                                                                            \
    "DO IF((SELECT COUNT(*) FROM (SELECT 1) one LEFT JOIN stile_lock r ON r.name=X'%s' WHERE "     \
    "@u:=IS_USED_LOCK(X'%s') AND " SIGNED("@u") " AND NOT " IS_DESCRIBED("@u") " AND NOT " IS_KEPT \
                                                                               "),SLEEP(" seconds  \
                                                                               "),0);"

/* A grant that is not described yet is waited for, for a tenth of a second each time. */
static char *show_of_epochs(struct my *my, const char *stored, const char *key)
{
    char record[SQL_RECORD_MAX];
    maria_sql_record(record, my, stored);
    return maria_sql_written(
        SETTLE("0.03")
            SETTLE("0.07") "SET @u=IS_USED_LOCK(X'%s');"
                           "SELECT X'%s',X'%s',@u," STATE_OF_EPOCHS("@u") ",p.USER,p.HOST," VIEW(
                               TOKEN_OF_EPOCHS(
                                   "@u")) "%s FROM (SELECT 1) one LEFT JOIN stile_lock r ON "
                                          "r.name=X'%s' LEFT JOIN "
                                          "information_schema.PROCESSLIST p ON p.ID=@u;" WAITERS,
        stored, key, stored, key, key, stored, key, record, stored, maria_sql_waited_ms(my));
}

char *maria_sql_show(struct my *my, const char *stored, const char *key)
{
    if (my->epochs)
        return show_of_epochs(my, stored, key);
    if (my->bare)
        return maria_sql_written(
            "SET @u=IS_USED_LOCK(X'%s');"
            "SELECT X'%s',X'%s',@u,0,0,p.USER,p.HOST,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL "
            "FROM (SELECT 1) one LEFT JOIN information_schema.PROCESSLIST p ON "
            "p.ID=@u;" WAITERS,
            key, stored, key, maria_sql_waited_ms(my));
    char record[SQL_RECORD_MAX];
    maria_sql_record(record, my, stored);
    return maria_sql_written(
        "SET @u=IS_USED_LOCK(X'%s');"
        "SELECT X'%s',X'%s',@u,COALESCE(r.backend=@u AND "
        "r.since>=UTC_TIMESTAMP(6)-INTERVAL %" PRIu64
        " SECOND,0)," SIGNED("@u") ",p.USER,p.HOST," VIEW(
            "r.token") "%s FROM (SELECT 1) one LEFT JOIN stile_lock r ON r.name=X'%s' LEFT "
                       "JOIN information_schema.PROCESSLIST p ON p.ID=@u;" WAITERS,
        key, stored, key, uptime_s(my), record, stored, maria_sql_waited_ms(my));
}

/* What was granted within the last moments is not described yet. */
#define SETTLE_ALL(seconds)                                                                        \
    "DO IF((SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID() AND "    \
    "COALESCE(%s,0)<100 AND " SIGNED("ID") "),SLEEP(" seconds "),0);"

static char *list_of_epochs(struct my *my, const char *prefix)
{
    const char *waited_ms = maria_sql_waited_ms(my);
    return maria_sql_written(
        SETTLE_ALL("0.05") SETTLE_ALL("0.1") SETTLE_ALL("0.15")
            SETTLE_ALL("0.2") "SELECT r.name,r.lock_name,r.used," STATE_OF_EPOCHS(
                "r.used") ",NULL,NULL," VIEW(TOKEN_OF_EPOCHS("r.used")) ",NULL FROM (SELECT "
                                                                        "l.*,IS_USED_LOCK(l.lock_"
                                                                        "name) "
                                                                        "AS used FROM stile_lock l "
                                                                        "WHERE "
                                                                        "LEFT(l.name,%zu)=X'%s' "
                                                                        "LIMIT "
                                                                        "18446744073709551615) r "
                                                                        "WHERE r.used IS NOT NULL "
                                                                        "OR "
                                                                        "r.hold_until>UTC_"
                                                                        "TIMESTAMP(6) "
                                                                        "OR r.delay_ms IS NOT NULL "
                                                                        "ORDER BY r.name;" WAITERS,
        waited_ms, waited_ms, waited_ms, waited_ms, strlen(prefix) / 2, prefix, waited_ms);
}

char *maria_sql_list(struct my *my, const char *prefix)
{
    if (my->epochs)
        return list_of_epochs(my, prefix);
    return maria_sql_written(
        "SELECT r.name,r.lock_name,r.used,COALESCE(r.backend=r.used AND "
        "r.since>=UTC_TIMESTAMP(6)-INTERVAL %" PRIu64
        " SECOND,0)," SIGNED("r.used") ",NULL,NULL," VIEW(
            "r.token") ",NULL FROM (SELECT l.*,IS_USED_LOCK(l.lock_name) AS used "
                       "FROM stile_lock l WHERE "
                       "LEFT(l.name,%zu)=X'%s' LIMIT 18446744073709551615) r WHERE r.used IS NOT "
                       "NULL OR r.hold_until>UTC_TIMESTAMP(6) OR r.delay_ms IS NOT NULL "
                       "ORDER BY r.name;" WAITERS,
        uptime_s(my), strlen(prefix) / 2, prefix, maria_sql_waited_ms(my));
}

/* ---- the record of the last holder ---- */

/* Counters of the modes are apart, so their records are. */
static const char *mode_of(const struct my *my)
{
    return my->options.table                ? "shedlock "
           : my->options.mode == MODE_TABLE ? "table"
           : my->options.mode == MODE_ROW   ? "row"
                                            : "getlock";
}

static const char *table_of(const struct my *my)
{
    return my->options.table ? my->options.table : "";
}

void maria_sql_record(char out[SQL_RECORD_MAX], const struct my *my, const char *stored)
{
    strcpy(out, ",NULL");
    if (my->remembers)
        snprintf(out, SQL_RECORD_MAX,
                 ",(SELECT h.record FROM stile_last_holder h WHERE h.name=X'%s' AND "
                 "h.mode='%s%s')",
                 stored, mode_of(my), table_of(my));
}

/* It is for people to read: no renewal behind it may have to wait for a table that someone has
 * locked. Assignments are made from left to right, so the token is set last. */
#define IF_LATER(column) #column "=IF(token<=VALUES(token),VALUES(" #column ")," #column "),"

char *maria_sql_remember(const struct my *my, const struct query *query)
{
    char stored[STORED_HEX_MAX], record[2 * RECORD_MAX + 1];
    maria_name_hex(stored, query->name, query->name_len);
    maria_name_hex(record, query->record, strnlen(query->record, RECORD_MAX));
    return maria_sql_written(
        BRIEFLY "INSERT INTO stile_last_holder (name,mode,token,record,stored_on) VALUES "
                "(X'%s','%s%s',%" PRIu64 ",X'%s',UTC_DATE()) ON DUPLICATE KEY "
                "UPDATE " IF_LATER(record)
                    IF_LATER(stored_on) "token=GREATEST(token,VALUES(token))",
        stored, mode_of(my), table_of(my), query->token, record);
}

char *maria_sql_forget(void)
{
    return maria_sql_written(BRIEFLY "CALL stile_forget()");
}

char *maria_sql_break_hold(const struct my *my, const char *stored, uint64_t token)
{
    return maria_sql_written(
        "UPDATE stile_lock SET hold_until=NULL,delay_ms=NULL WHERE name=X'%s' AND "
        "%" PRIu64 " IN (0,%s) AND (hold_until IS NOT NULL OR delay_ms IS NOT NULL)",
        stored, token, my->epochs ? "last_token" : "token");
}
