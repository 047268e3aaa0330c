/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* dialect=shedlock: the statements about ShedLock's table, instead of those of table.c.
 *
 * Its columns may be TIMESTAMPs, which a session reads in its own time zone: ours then uses the
 * server's, as ShedLock does with usingDbTime. Names are text there; a name that does not fit
 * the column is refused by the server, never cut. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "engines/mysql/statements.h"

#define NOW       "UTC_TIMESTAMP(3)"
#define NAME_IS   "name=_utf8mb4 X'%s'"
#define OWNER     "LEFT(locked_by,32)"
#define LATER(ms) "TIMESTAMPADD(MICROSECOND,1000*" ms "," NOW ")"

#define COUNTER_MAX (2 * STILE_NAME_MAX + 1)

/* ShedLock's own claims have no token. Ours have one if the tables of stile are there: in the
 * table of counters their names begin with \3, and a hash replaces a name that does not fit. In
 * hex. */
static void counter_of(char out[COUNTER_MAX], const struct my *my, const char *name, size_t len)
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    char head[SHEDLOCK_TABLE_MAX + 3];
    int n = snprintf(head, sizeof head, "\3%s:", my->options.table);
    bool fits = (size_t)n + len <= STILE_NAME_MAX;
    maria_name_hex(out, head, (size_t)n);
    if (!fits)
        EVP_Digest(name, len, digest, NULL, EVP_sha256(), NULL);
    maria_name_hex(out + 2 * n, fits ? name : (const char *)digest, fits ? len : 32);
}

struct place {
    char name[STORED_HEX_MAX], counter[COUNTER_MAX];
    const char *table;
};

static void find_place(struct place *place, struct my *my, const char *name, size_t len)
{
    maria_name_hex(place->name, name, len);
    counter_of(place->counter, my, name, len);
    place->table = my->options.table;
}

static struct my *my_of_lease(struct lease *lease)
{
    return my_of(claim_of_lease(lease)->engine);
}

static void find_lease(struct place *place, struct lease *lease)
{
    struct claim *claim = claim_of_lease(lease);
    find_place(place, my_of_lease(lease), claim->name, claim->name_len);
}

static char *token_of(const struct my *my, const struct place *place)
{
    return my->bare ? maria_sql_written("0")
                    : maria_sql_written("COALESCE((SELECT n.token FROM stile_counter n WHERE "
                                        "n.name=X'%s'),0)",
                                        place->counter);
}

static uint64_t ms(uint64_t ns)
{
    return (ns + NS_PER_MS - 1) / NS_PER_MS;
}

/* ---- about a claim ---- */

#define IS_FREE "lock_until<=" NOW

/* Assignments are made from left to right, so what the condition needs is set last. */
#define IF_FREE(column) #column "=IF(" IS_FREE " OR " OWNER "='%s',VALUES(" #column ")," #column ")"
#define TAKE                                                                                       \
    "START TRANSACTION;INSERT INTO %s (name,lock_until,locked_at,locked_by) VALUES (_utf8mb4 "     \
    "X'%s'," LATER("%" PRIu64) "," NOW ",LEFT(CONCAT('%s ','%s','@',X'%s',' ',X'%s'),255)) ON "    \
                               "DUPLICATE KEY UPDATE " IF_FREE(locked_by) "," IF_FREE(             \
                                   locked_at) "," IF_FREE(lock_until) ";"
#define OWNS_IT "SET @g=(SELECT " OWNER "='%s' AND lock_until>" NOW " FROM %s WHERE " NAME_IS ");"
#define COUNT                                                                                      \
    "INSERT INTO stile_counter (name,token,turns) SELECT X'%s',LAST_INSERT_ID(f.token+1),0 FROM "  \
    "stile_floor f WHERE f.one=1 AND @g=1 ON DUPLICATE KEY UPDATE "                                \
    "token=LAST_INSERT_ID(stile_counter.token+1);"
#define RESULT                                                                                     \
    "COMMIT;SELECT IF(@g=1,CONCAT('g ',%s),CONCAT('b ',GREATEST(1,TIMESTAMPDIFF(MICROSECOND," NOW  \
    ",lock_until) DIV 1000))) FROM %s WHERE " NAME_IS

char *maria_sql_shed_claim(struct lease *lease)
{
    struct claim *claim = claim_of_lease(lease);
    struct my *my = my_of_lease(lease);
    const char *owner = lease->leased.owner;
    struct place place;
    char *count = NULL, *sql = NULL;
    uint64_t until = ms(claim->hold_ns > claim->ttl_ns ? claim->hold_ns : claim->ttl_ns);
    find_lease(&place, lease);
    count = my->bare ? maria_sql_written("%s", "") : maria_sql_written(COUNT, place.counter);
    if (count)
        sql = maria_sql_written(TAKE OWNS_IT "%s" RESULT, place.table, place.name, until, owner,
                                my->identity.pid, my->host_hex, my->command_hex, owner, owner,
                                owner, owner, place.table, place.name, count,
                                my->bare ? "0" : "LAST_INSERT_ID()", place.table, place.name);
    free(count);
    return sql;
}

/* A ~ in front of locked_by marks a name that is only held back, without a holder. */
char *maria_sql_shed_release(struct lease *lease, bool unused)
{
    struct place place;
    uint64_t hold = unused ? 0 : ms(claim_of_lease(lease)->hold_ns);
    find_lease(&place, lease);
    return maria_sql_written(
        "UPDATE %s SET locked_by=IF(TIMESTAMPADD(MICROSECOND,1000*%" PRIu64 ",locked_at)>" NOW
        ",LEFT(CONCAT('~',locked_by),255),locked_by),lock_until=GREATEST(" NOW
        ",TIMESTAMPADD(MICROSECOND,1000*%" PRIu64 ",locked_at)) WHERE " NAME_IS " AND " OWNER
        "='%s' AND lock_until>" NOW ";SELECT IF(ROW_COUNT()>0,'t','f')",
        place.table, hold, hold, place.name, lease->leased.owner);
}

char *maria_sql_shed_resume(struct lease *lease)
{
    struct place place;
    find_lease(&place, lease);
    char *token = token_of(my_of_lease(lease), &place), *sql = NULL;
    if (token)
        sql = maria_sql_written(
            "UPDATE %s SET lock_until=GREATEST(lock_until," LATER(
                "%" PRIu64) ") WHERE " NAME_IS " AND " OWNER "='%s' AND lock_until>" NOW
                            ";SELECT CONCAT('t ',%s) FROM "
                            "%s WHERE " NAME_IS " AND " OWNER "='%s' AND lock_until>" NOW,
            place.table, ms(claim_of_lease(lease)->ttl_ns), place.name, lease->leased.owner, token,
            place.table, place.name, lease->leased.owner);
    free(token);
    return sql;
}

/* Owners, and times for each, are few enough to be written out. */
char *maria_sql_shed_renew(struct leased_renewal *renewal)
{
    struct my *my = my_of(renewal->engine);
    size_t room = renewal->n * (STORED_HEX_MAX + 64) + 1;
    char *names = malloc(room), *times = malloc(room), *sql = NULL;
    size_t named = 0, timed = 0;
    for (size_t i = 0; names && times && i < renewal->n; i++) {
        struct claim *claim = leased_base(renewal->claims[i]);
        char hex[STORED_HEX_MAX];
        maria_name_hex(hex, claim->name, claim->name_len);
        named +=
            (size_t)snprintf(names + named, room - named, "%s_utf8mb4 X'%s'", i ? "," : "", hex);
        timed += (size_t)snprintf(times + timed, room - timed, " WHEN '%s' THEN %" PRIu64,
                                  renewal->claims[i]->owner, ms(claim->ttl_ns));
    }
    if (names && times)
        sql = maria_sql_written("UPDATE %s SET lock_until=GREATEST(lock_until," LATER(
                                    "COALESCE(CASE " OWNER
                                    "%s END,0)") ") WHERE name IN (%s) AND "
                                                 "lock_until>" NOW ";SELECT " OWNER
                                                 " FROM %s WHERE name IN (%s) AND "
                                                 "lock_until>" NOW,
                                my->options.table, times, names, my->options.table, names);
    free(names);
    free(times);
    return sql;
}

char *maria_sql_shed_break(const struct query *query)
{
    struct my *my = my_of(query->engine);
    struct place place;
    find_place(&place, my, query->name, query->name_len);
    char *token = token_of(my, &place);
    char *sql = token ? maria_sql_written("SET @t=%s,@o=(SELECT " OWNER " FROM %s WHERE " NAME_IS
                                          " AND lock_until>" NOW ");UPDATE %s SET lock_until=" NOW
                                          " WHERE " NAME_IS " AND lock_until>" NOW " AND %" PRIu64
                                          " IN (0,@t);SELECT IF(@o IS NULL,-1,ROW_COUNT()),@o",
                                          token, place.table, place.name, place.table, place.name,
                                          query->token)
                      : NULL;
    free(token);
    return sql;
}

/* ---- for inspection ---- */

/* Ours: the owner value, "pid@host", the command. Any other locked_by is shown as it is. */
#define IS_OURS "s.locked_by REGEXP '^~?[0-9a-f]{32} [0-9]+@'"
#define TAIL    "SUBSTRING(s.locked_by,LOCATE('@',s.locked_by)+1)"
#define PID     "SUBSTRING_INDEX(SUBSTRING_INDEX(s.locked_by,'@',1),' ',-1)"
#define VIEW                                                                                       \
    "s.name IS NOT NULL,s.locked_by LIKE '~%%','exclusive',%s,TIMESTAMPDIFF(MICROSECOND,"          \
    "s.locked_at," NOW ") DIV 1000,TIMESTAMPDIFF(MICROSECOND," NOW ",s.lock_until) DIV 1000,"      \
    "IF(" IS_OURS "," PID ",0),IF(" IS_OURS ",SUBSTRING_INDEX(" TAIL ",' ',1),s.locked_by),"       \
    "IF(" IS_OURS ",SUBSTRING(" TAIL ",LOCATE(' '," TAIL ")+1),''),IF(" IS_OURS                    \
    ",LEFT(TRIM(LEADING '~' FROM s.locked_by),32),s.locked_by),%s"

char *maria_sql_shed_show(struct my *my, const char *name, size_t len)
{
    struct place place;
    char record[SQL_RECORD_MAX];
    find_place(&place, my, name, len);
    maria_sql_record(record, my, place.name);
    char *token = token_of(my, &place);
    char *sql =
        token ? maria_sql_written("SELECT X'%s'," VIEW "%s FROM (SELECT 1) one LEFT JOIN %s s ON "
                                  "s." NAME_IS " AND s.lock_until>" NOW,
                                  place.name, token, token, record, place.table, place.name)
              : NULL;
    free(token);
    return sql;
}

/* The counter of a name that was replaced by a hash is not shown. */
char *maria_sql_shed_list(struct my *my, const char *prefix)
{
    char head[2 * (SHEDLOCK_TABLE_MAX + 3) + 1], text[SHEDLOCK_TABLE_MAX + 3];
    snprintf(text, sizeof text, "\3%s:", my->options.table);
    maria_name_hex(head, text, strlen(text));
    char *token =
        my->bare
            ? maria_sql_written("0")
            : maria_sql_written("(SELECT n.token FROM stile_counter n WHERE n.name=CONCAT(X'%s',"
                                "CAST(s.name AS BINARY)))",
                                head);
    char *sql =
        token ? maria_sql_written("SELECT CAST(s.name AS BINARY)," VIEW
                                  " FROM %s s WHERE LEFT(CAST(s.name AS BINARY),%zu)=X'%s' AND "
                                  "s.lock_until>" NOW " ORDER BY 1",
                                  token, token, my->options.table, strlen(prefix) / 2, prefix)
              : NULL;
    free(token);
    return sql;
}
