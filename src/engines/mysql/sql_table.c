/* What is said to the server in mode=table. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engines/mysql/sql.h"

/* ---- about a claim: the procedures of the schema, each a transaction ---- */

char *sql_table_claim(struct lease *lease)
{
    if (my_of(claim_of_lease(lease)->engine)->options.table)
        return sql_shed_claim(lease);
    static const char *const modes[] = {
        [STILE_EXCLUSIVE] = "exclusive", [STILE_SHARED] = "shared", [STILE_SLOTS] = "slots"};
    struct claim *claim = claim_of_lease(lease);
    struct my *my = my_of(claim->engine);
    char stored[STORED_HEX_MAX], ttl[24], hold[24], delay[24], bell[WHO_OWNER_LEN + 3] = "NULL";
    name_hex(stored, claim->name, claim->name_len);
    if (my->leases.hearing)
        snprintf(bell, sizeof bell, "'%s'", my->who.owner);
    return sql_written("CALL stile_table_claim(X'%s','%s','%s',%u,%s,%s,%s,%d,%s,X'%s',%s,X'%s')",
                       stored, lease->owner, modes[claim->mode], claim->slots,
                       sql_milliseconds(ttl, claim->ttl_ns), sql_milliseconds(hold, claim->hold_ns),
                       sql_milliseconds(delay, claim->delay_ns), claim->wait, bell, my->host_hex,
                       my->who.pid, my->command_hex);
}

/* When something before it has run out, the first one asks at once, and those behind it one after
 * the other within a second, should it be dead. No more than so many before it are counted. */
#define AHEAD_MAX     20
#define AHEAD_STEP_US 50000

#define TURN "MIN(IF(c.owner='%1$s',NULL,c.expires_at))+INTERVAL %3$d*m.ahead MICROSECOND"
#define LOOK                                                                                       \
    "SELECT IF(COALESCE(MAX(c.owner='%1$s' AND NOT c.held),0)=0 OR " TURN " IS NULL OR " TURN      \
    "<=UTC_TIMESTAMP(6),'a',CONCAT('w ',TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6)," TURN          \
    ") DIV 1000,' ',m.ahead)) FROM stile_claim c,(SELECT COUNT(*) AS ahead FROM (SELECT 1 FROM "   \
    "stile_claim b JOIN stile_claim me ON me.owner='%1$s' WHERE b.name=X'%2$s' AND "               \
    "b.place<me.place AND NOT b.held LIMIT %4$d) some) m WHERE c.name=X'%2$s'"

char *sql_table_look(struct lease *lease, uint64_t life_ms)
{
    struct claim *claim = claim_of_lease(lease);
    char stored[STORED_HEX_MAX], life[160 + LEASE_OWNER_LEN] = "";
    name_hex(stored, claim->name, claim->name_len);
    if (life_ms)
        snprintf(life, sizeof life,
                 "UPDATE stile_claim SET expires_at=UTC_TIMESTAMP(6)+INTERVAL 1000*%" PRIu64
                 " MICROSECOND WHERE owner='%s' AND NOT held;",
                 life_ms, lease->owner);
    char *text = sql_written(LOOK, lease->owner, stored, AHEAD_STEP_US, AHEAD_MAX);
    char *whole = text ? sql_written("%s%s", life, text) : NULL;
    free(text);
    return whole;
}

char *sql_table_release(struct lease *lease, bool unused)
{
    if (my_of(claim_of_lease(lease)->engine)->options.table)
        return sql_shed_release(lease, unused);
    struct claim *claim = claim_of_lease(lease);
    char stored[STORED_HEX_MAX];
    name_hex(stored, claim->name, claim->name_len);
    return sql_written("CALL stile_table_release(X'%s','%s',%d)", stored, lease->owner, unused);
}

#define ALIVE "held AND NOT ghost AND expires_at>UTC_TIMESTAMP(6)"

char *sql_table_resume(struct lease *lease)
{
    if (my_of(claim_of_lease(lease)->engine)->options.table)
        return sql_shed_resume(lease);
    struct claim *claim = claim_of_lease(lease);
    char stored[STORED_HEX_MAX], ttl[24];
    name_hex(stored, claim->name, claim->name_len);
    strcpy(ttl, "ttl_ms"); /* as it was acquired with */
    if (claim->ttl_given)
        sql_milliseconds(ttl, claim->ttl_ns);
    return sql_written(
        "UPDATE stile_claim SET expires_at=UTC_TIMESTAMP(6)+INTERVAL 1000*%s "
        "MICROSECOND,ttl_ms=%s,confirmed=TRUE WHERE owner='%s' AND name=X'%s' AND " ALIVE
        ";SELECT CONCAT('t ',token,' ',ttl_ms) FROM stile_claim WHERE owner='%s' AND "
        "name=X'%s' AND " ALIVE,
        ttl, ttl, lease->owner, stored, lease->owner, stored);
}

/* A user who may write where read_only is set would go on holding on a demoted primary. */
#define WRITABLE " AND @@GLOBAL.read_only=0"

/* What had run out before the first statement is so in the second as well. */
char *sql_table_renew(struct lease_batch *batch)
{
    if (my_of(batch->leases->engine)->options.table)
        return sql_shed_renew(batch);
    size_t room = batch->n * (LEASE_OWNER_LEN + 3) + 1;
    char *owners = malloc(room), *at = owners;
    if (!owners)
        return NULL;
    for (size_t i = 0; i < batch->n; i++)
        at +=
            snprintf(at, room - (size_t)(at - owners), "%s'%s'", i ? "," : "", batch->of[i]->owner);
    char *sql =
        sql_written("UPDATE stile_claim SET expires_at=UTC_TIMESTAMP(6)+INTERVAL "
                    "1000*ttl_ms MICROSECOND WHERE owner IN (%s) AND " ALIVE WRITABLE
                    ";SELECT owner FROM stile_claim WHERE owner IN (%s) AND " ALIVE WRITABLE,
                    owners, owners);
    free(owners);
    return sql;
}

char *sql_hang_bell(const struct my *my)
{
    return sql_written("SELECT GET_LOCK('stile bell %s',0)", my->who.owner);
}

/* Owners of ours that were granted it and have not said yet that they know. */
char *sql_rung(const struct my *my)
{
    return sql_written("SELECT owner FROM stile_claim WHERE bell='%s' AND held AND NOT confirmed",
                       my->who.owner);
}

char *sql_sleep(void)
{
    return sql_written("DO SLEEP(60)");
}

char *sql_rollback(void)
{
    return sql_written("ROLLBACK");
}

/* ---- for people ---- */

/* What has run out and is kept back is a ghost, whether somebody has settled it or not. */
#define ENDS                                                                                       \
    "IF(c.held AND c.confirmed AND NOT c.ghost,GREATEST(c.expires_at+INTERVAL "                    \
    "1000*COALESCE(c.delay_ms,0) MICROSECOND,COALESCE(c.hold_until,c.expires_at)),c.expires_at)"
#define VIEW                                                                                       \
    "c.held,c.ghost OR c.expires_at<=UTC_TIMESTAMP(6),c.mode,c.token," SQL_AGE(                    \
        "c.since") "," SQL_LEFT("IF(c.expires_at<=UTC_TIMESTAMP(6)," ENDS                          \
                                ",c.expires_at)") ",c.pid,c.host,c.command,c.owner,n.token"

char *sql_table_show(const char *stored)
{
    return sql_written("SELECT X'%s'," VIEW
                       " FROM (SELECT 1) one LEFT JOIN stile_counter n ON n.name=X'%s' LEFT JOIN "
                       "stile_claim c ON c.name=n.name AND " ENDS ">UTC_TIMESTAMP(6) "
                       "ORDER BY c.held DESC,c.place",
                       stored, stored);
}

char *sql_table_list(const char *prefix)
{
    return sql_written("SELECT c.name," VIEW
                       " FROM stile_claim c JOIN stile_counter n ON n.name=c.name WHERE "
                       "LEFT(c.name,%zu)=X'%s' AND " ENDS ">UTC_TIMESTAMP(6) "
                       "ORDER BY c.name,c.held DESC,c.place",
                       strlen(prefix) / 2, prefix);
}

char *sql_table_break(const struct query *query)
{
    if (my_of(query->engine)->options.table)
        return sql_shed_break(query);
    char stored[STORED_HEX_MAX];
    name_hex(stored, query->name, query->name_len);
    return sql_written("CALL stile_table_break(X'%s',%" PRIu64 ")", stored, query->token);
}
