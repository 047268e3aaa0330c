/* What is said to the server in mode=row. */
#include <inttypes.h>
#include <stdio.h>

#include "engines/mysql/sql.h"
#include "mutant.h"

#define SLICE_S 1 /* the shortest that InnoDB waits */
#define MARK    "CONCAT('stile row ',CONNECTION_ID())"

static bool is_shared(struct part *part)
{
    return claim_of(part)->mode == STILE_SHARED;
}

static const char *how_to_lock(struct part *part)
{
    if (!is_shared(part))
        return "FOR UPDATE";
    return my_of_part(part)->mariadb ? "LOCK IN SHARE MODE" : "FOR SHARE";
}

/* The line that leads to a row. */
static const char *line_of(char hex[KEY_HEX_MAX], struct part *part)
{
    struct claim *claim = claim_of(part);
    char text[STILE_NAME_MAX + 16], key[KEY_MAX + 1];
    int n = snprintf(text, sizeof text, "stile line %s", claim->name);
    name_key(key, my_of_part(part)->mariadb, text, (size_t)n);
    name_hex(hex, key, strlen(key));
    return hex;
}

/* In the line, as the server shows it to others: what is waited for, and who waits. */
static void stand_in_line(char *out, size_t size, struct part *part, const char *who)
{
    char line[KEY_HEX_MAX];
    snprintf(out, size, "DO GET_LOCK(X'%s',%d) /* FROM stile_row WHERE name=X'%s' %s */%s;",
             line_of(line, part), SQL_YEAR_S, part->stored, how_to_lock(part), who);
}

/* All of it in one round trip. The row is made outside of the transaction, and only if it isn't
 * there: who makes it would have to wait for who holds it. */
char *sql_row_take(struct part *part, uint64_t ttl_ns)
{
    struct my *my = my_of_part(part);
    char before[96] = "", who[SQL_WHO_MAX];
    char turn[KEY_HEX_MAX + STORED_HEX_MAX + sizeof who + 96] = "";
    bool wait = claim_of(part)->wait;
    sql_who(who, my);
    int slice_s = SLICE_S;
#ifdef MUTANT_MYSQL_ROW_WAITS_UNSEEN
    slice_s = 1000;
#endif
    if (ttl_ns)
        snprintf(before, sizeof before, "SET SESSION wait_timeout=%lu,innodb_lock_wait_timeout=%d;",
                 sql_lease_s(ttl_ns), slice_s);
    if (wait && !mine(part)->in_line)
        stand_in_line(turn, sizeof turn, part, who);
    return sql_written("%s%sINSERT IGNORE INTO stile_row SELECT X'%s' FROM DUAL WHERE NOT EXISTS "
                       "(SELECT 1 FROM stile_row r WHERE r.name=X'%s');START TRANSACTION;"
                       "SELECT 1 FROM stile_row WHERE name=X'%s' %s%s%s",
                       before, turn, part->stored, part->stored, part->stored, how_to_lock(part),
                       wait ? "" : " NOWAIT", wait ? who : "");
}

char *sql_row_grant(struct part *part)
{
    struct my *my = my_of_part(part);
    struct claim *claim = claim_of(part);
    char hold[24], delay[24];
    return sql_written("CALL stile_row_grant(X'%s',%" PRIu64 ",%d,%s,%s,'%s',X'%s',%s,X'%s')",
                       part->stored, part->session->seat.backend, is_shared(part),
                       sql_milliseconds(hold, claim->hold_ns),
                       sql_milliseconds(delay, claim->delay_ns), my->who.owner, my->host_hex,
                       my->who.pid, my->command_hex);
}

char *sql_row_let_go(struct part *part, bool unused)
{
    return sql_written("CALL stile_row_let_go(X'%s',%" PRIu64 ",%d)", part->stored, part->token,
                       unused);
}

/* Once only: a lock that was taken twice has to be given back twice. The line goes on. */
char *sql_row_mark(struct part *part, uint64_t ttl_ns)
{
    char line[KEY_HEX_MAX];
    return sql_written("SET SESSION wait_timeout=%lu;DO RELEASE_LOCK(X'%s'),IF(IS_USED_LOCK(" MARK
                       ")<=>CONNECTION_ID(),0,GET_LOCK(" MARK ",0))",
                       sql_lease_s(ttl_ns), line_of(line, part));
}

char *sql_row_end(struct part *part)
{
    char line[KEY_HEX_MAX];
    return sql_written("COMMIT;DO RELEASE_LOCK(X'%s'),RELEASE_LOCK(" MARK ")", line_of(line, part));
}

/* ---- for people ---- */

/* A claim whose session has marked itself is alive; who has not yet a token waits for the end of a
 * hold. */
#define ALIVE    "IS_USED_LOCK(CONCAT('stile row ',c.backend))<=>c.backend"
#define MODE(of) "IF(" of ".shared,'shared','exclusive')"
#define CLAIM                                                                                      \
    "c.held,0," MODE("c") ",c.token," SQL_AGE("c.since") ",NULL,c.pid,c.host,c.command,c.owner,"   \
                                                         "n.token,c.backend"

/* Kept back by a hold, or by a holder that has not released it and whose delay begins now. */
#define GHOST                                                                                      \
    "1,1," MODE("n") ",n.token," SQL_AGE("n.since") "," SQL_KEPT(                                  \
        "n") ",n.pid,n.host,n.command,n.owner,n."                                                  \
             "token,0"
#define IS_GHOST                                                                                   \
    "(n.delay_ms IS NOT NULL OR n.hold_until>UTC_TIMESTAMP(6)) AND NOT EXISTS (SELECT 1 FROM "     \
    "stile_row_claim c WHERE c.name=n.name AND c.held AND " ALIVE ")"
#define IN_ORDER " ORDER BY 1,2 DESC,6 DESC;"

char *sql_row_show(const struct my *my, const char *stored)
{
    return sql_written(
        "SELECT X'%s'," CLAIM
        " FROM (SELECT 1) one LEFT JOIN stile_row_count n ON n.name=X'%s' LEFT JOIN "
        "stile_row_claim c ON c.name=n.name AND " ALIVE " UNION ALL SELECT n.name," GHOST
        " FROM stile_row_count n WHERE n.name=X'%s' AND " IS_GHOST IN_ORDER SQL_ROW_WAITERS,
        stored, stored, stored, sql_waited_ms(my));
}

char *sql_row_list(const struct my *my, const char *prefix)
{
    size_t len = strlen(prefix) / 2;
    return sql_written("SELECT c.name," CLAIM
                       " FROM stile_row_claim c JOIN stile_row_count n ON n.name=c.name WHERE "
                       "LEFT(c.name,%zu)=X'%s' AND " ALIVE " UNION ALL SELECT n.name," GHOST
                       " FROM stile_row_count n WHERE LEFT(n.name,%zu)=X'%s' AND " IS_GHOST IN_ORDER
                           SQL_ROW_WAITERS,
                       len, prefix, len, prefix, sql_waited_ms(my));
}

char *sql_row_unhold(const char *stored, uint64_t token)
{
    return sql_written("UPDATE stile_row_count SET hold_until=NULL,delay_ms=NULL WHERE name=X'%s' "
                       "AND %" PRIu64
                       " IN (0,token) AND (hold_until IS NOT NULL OR delay_ms IS NOT "
                       "NULL)",
                       stored, token);
}
