/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* mode=table: the procedures of the schema do the work, each in one transaction. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"
#include "engines/sql/inspect.h"

/* ---- statements: about a claim: the procedures of the schema, each one transaction ---- */

char *maria_sql_table_claim(struct lease *lease)
{
    if (my_of(claim_of_lease(lease)->engine)->options.table)
        return maria_sql_shed_claim(lease);
    static const char *const modes[] = {
        [STILE_EXCLUSIVE] = "exclusive", [STILE_SHARED] = "shared", [STILE_SLOTS] = "slots"};
    struct claim *claim = claim_of_lease(lease);
    struct my *my = my_of(claim->engine);
    char stored[STORED_HEX_MAX], ttl[24], hold[24], delay[24],
        wakeup[IDENTITY_OWNER_LEN + 3] = "NULL";
    maria_name_hex(stored, claim->name, claim->name_len);
    if (my->leases.hearing)
        snprintf(wakeup, sizeof wakeup, "'%s'", my->identity.owner);
    return maria_sql_written(
        "CALL stile_table_claim(X'%s','%s','%s',%u,%s,%s,%s,%d,%s,X'%s',%s,X'%s')", stored,
        lease->leased.owner, modes[claim->mode], claim->slots,
        maria_sql_milliseconds(ttl, claim->ttl_ns), maria_sql_milliseconds(hold, claim->hold_ns),
        maria_sql_milliseconds(delay, claim->delay_ns), claim->wait, wakeup, my->host_hex,
        my->identity.pid, my->command_hex);
}

/* When a lease before it has run out, the first waiter asks at once, and the others follow one
 * by one within a second, in case the first is dead. No more than this many are counted. */
#define AHEAD_MAX     20
#define AHEAD_STEP_US 50000

#define TURN "MIN(IF(c.owner='%1$s',NULL,c.expires_at))+INTERVAL %3$d*m.ahead MICROSECOND"
#define LOOK                                                                                       \
    "SELECT IF(COALESCE(MAX(c.owner='%1$s' AND NOT c.held),0)=0 OR " TURN " IS NULL OR " TURN      \
    "<=UTC_TIMESTAMP(6),'a',CONCAT('w ',TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6)," TURN          \
    ") DIV 1000,' ',m.ahead)) FROM stile_claim c,(SELECT COUNT(*) AS ahead FROM (SELECT 1 FROM "   \
    "stile_claim b JOIN stile_claim me ON me.owner='%1$s' WHERE b.name=X'%2$s' AND "               \
    "b.place<me.place AND NOT b.held LIMIT %4$d) some) m WHERE c.name=X'%2$s'"

char *maria_sql_table_look(struct lease *lease, uint64_t life_ms)
{
    struct claim *claim = claim_of_lease(lease);
    char stored[STORED_HEX_MAX], life[160 + LEASE_OWNER_LEN] = "";
    maria_name_hex(stored, claim->name, claim->name_len);
    if (life_ms)
        snprintf(life, sizeof life,
                 "UPDATE stile_claim SET expires_at=UTC_TIMESTAMP(6)+INTERVAL 1000*%" PRIu64
                 " MICROSECOND WHERE owner='%s' AND NOT held;",
                 life_ms, lease->leased.owner);
    char *text = maria_sql_written(LOOK, lease->leased.owner, stored, AHEAD_STEP_US, AHEAD_MAX);
    char *whole = text ? maria_sql_written("%s%s", life, text) : NULL;
    free(text);
    return whole;
}

char *maria_sql_table_keep(const struct leases *leases, uint64_t life_ms)
{
    const struct lease_rows *kept = &leases->kept;
    char owners[LEASE_KEPT_MAX * (LEASE_OWNER_LEN + 3) + 1] = "", *at = owners;
    for (size_t i = 0; i < kept->n; i++)
        at += sprintf(at, "%s'%s'", i ? "," : "", kept->owners[i]);
    return maria_sql_written("UPDATE stile_claim SET expires_at=UTC_TIMESTAMP(6)+INTERVAL "
                             "1000*%" PRIu64 " MICROSECOND WHERE owner IN (%s) AND NOT held",
                             life_ms, owners);
}

char *maria_sql_table_release(struct lease *lease, bool unused)
{
    if (my_of(claim_of_lease(lease)->engine)->options.table)
        return maria_sql_shed_release(lease, unused);
    struct claim *claim = claim_of_lease(lease);
    char stored[STORED_HEX_MAX];
    maria_name_hex(stored, claim->name, claim->name_len);
    return maria_sql_written("CALL stile_table_release(X'%s','%s',%d)", stored, lease->leased.owner,
                             unused);
}

#define ALIVE "held AND NOT ghost AND expires_at>UTC_TIMESTAMP(6)"

char *maria_sql_table_resume(struct lease *lease)
{
    if (my_of(claim_of_lease(lease)->engine)->options.table)
        return maria_sql_shed_resume(lease);
    struct claim *claim = claim_of_lease(lease);
    char stored[STORED_HEX_MAX], ttl[24];
    maria_name_hex(stored, claim->name, claim->name_len);
    strcpy(ttl, "ttl_ms"); /* the TTL of the claim */
    if (claim->ttl_given)
        maria_sql_milliseconds(ttl, claim->ttl_ns);
    return maria_sql_written(
        "UPDATE stile_claim SET expires_at=UTC_TIMESTAMP(6)+INTERVAL 1000*%s "
        "MICROSECOND,ttl_ms=%s,confirmed=TRUE WHERE owner='%s' AND name=X'%s' AND " ALIVE
        ";SELECT CONCAT('t ',token,' ',ttl_ms) FROM stile_claim WHERE owner='%s' AND "
        "name=X'%s' AND " ALIVE,
        ttl, ttl, lease->leased.owner, stored, lease->leased.owner, stored);
}

/* A user with the privilege to write despite read_only would go on holding on a demoted primary. */
#define WRITABLE " AND @@GLOBAL.read_only=0"

/* A claim that had expired before the first statement is expired in the second as well. */
char *maria_sql_table_renew(struct leased_renewal *renewal)
{
    if (my_of(renewal->engine)->options.table)
        return maria_sql_shed_renew(renewal);
    size_t room = renewal->n * (LEASE_OWNER_LEN + 3) + 1;
    char *owners = malloc(room), *at = owners;
    if (!owners)
        return NULL;
    for (size_t i = 0; i < renewal->n; i++)
        at += snprintf(at, room - (size_t)(at - owners), "%s'%s'", i ? "," : "",
                       renewal->claims[i]->owner);
    char *sql =
        maria_sql_written("UPDATE stile_claim SET expires_at=UTC_TIMESTAMP(6)+INTERVAL "
                          "1000*ttl_ms MICROSECOND WHERE owner IN (%s) AND " ALIVE WRITABLE
                          ";SELECT owner FROM stile_claim WHERE owner IN (%s) AND " ALIVE WRITABLE,
                          owners, owners);
    free(owners);
    return sql;
}

char *maria_sql_wakeup_listen(const struct my *my)
{
    return maria_sql_written("SELECT GET_LOCK('stile bell %s',0)", my->identity.owner);
}

/* Owners of this client that were granted a lock and have not confirmed it yet. */
char *maria_sql_wakeup_granted(const struct my *my)
{
    return maria_sql_written(
        "SELECT owner FROM stile_claim WHERE bell='%s' AND held AND NOT confirmed",
        my->identity.owner);
}

/* Its one purpose is that the sleeping session can wait for it. Behind it: whether the procedures
 * are there by which no wake-up is missed. */
char *maria_sql_wakeup_prepare(const struct my *my)
{
    return maria_sql_written(
        "SELECT GET_LOCK('stile sleep %" PRIu64 "',0);"
        "SELECT COUNT(*)=2 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA=DATABASE() AND "
        "(ROUTINE_NAME='stile_table_await' OR ROUTINE_NAME='stile_table_ring' AND "
        "SECURITY_TYPE='DEFINER')",
        my->sleep_id);
}

/* Whether the creator of the procedure, and so anybody by it, may wake the sleeping session. */
char *maria_sql_wakeup_test(const struct my *my)
{
    return maria_sql_written("SET @stile_bells='%s';CALL stile_table_ring();SELECT @stile_rung",
                             my->identity.owner);
}

char *maria_sql_wakeup_sleep(const struct my *my)
{
    if (my->sure)
        return maria_sql_written("CALL stile_table_await('%s','stile sleep %" PRIu64 "',60)",
                                 my->identity.owner, my->sleep_id);
    return maria_sql_written("SELECT GET_LOCK('stile sleep %" PRIu64 "',60)", my->sleep_id);
}

char *maria_sql_rollback(void)
{
    return maria_sql_written("ROLLBACK");
}

/* ---- for inspection ---- */

/* A claim that has expired while a hold lasts is a ghost, whether or not a client has marked it
 * as one. */
#define ENDS                                                                                       \
    "IF(c.held AND c.confirmed AND NOT c.ghost,GREATEST(c.expires_at+INTERVAL "                    \
    "1000*COALESCE(c.delay_ms,0) MICROSECOND,COALESCE(c.hold_until,c.expires_at)),c.expires_at)"
#define VIEW                                                                                       \
    "c.held,c.ghost OR c.expires_at<=UTC_TIMESTAMP(6),c.mode,c.token," SQL_AGE(                    \
        "c.since") "," SQL_LEFT("IF(c.expires_at<=UTC_TIMESTAMP(6)," ENDS                          \
                                ",c.expires_at)") ",c.pid,c.host,c.command,c.owner,n.token"

char *maria_sql_table_show(const struct my *my, const char *stored)
{
    char record[SQL_RECORD_MAX];
    maria_sql_record(record, my, stored);
    return maria_sql_written(
        "SELECT X'%s'," VIEW
        "%s FROM (SELECT 1) one LEFT JOIN stile_counter n ON n.name=X'%s' LEFT JOIN "
        "stile_claim c ON c.name=n.name AND " ENDS ">UTC_TIMESTAMP(6) "
        "ORDER BY c.held DESC,c.place",
        stored, record, stored);
}

char *maria_sql_table_list(const char *prefix)
{
    return maria_sql_written("SELECT c.name," VIEW
                             " FROM stile_claim c JOIN stile_counter n ON n.name=c.name WHERE "
                             "LEFT(c.name,%zu)=X'%s' AND " ENDS ">UTC_TIMESTAMP(6) "
                             "ORDER BY c.name,c.held DESC,c.place",
                             strlen(prefix) / 2, prefix);
}

char *maria_sql_table_break(const struct query *query)
{
    if (my_of(query->engine)->options.table)
        return maria_sql_shed_break(query);
    char stored[STORED_HEX_MAX];
    maria_name_hex(stored, query->name, query->name_len);
    return maria_sql_written("CALL stile_table_break(X'%s',%" PRIu64 ")", stored, query->token);
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a;
}

/* ---- wake-ups ---- */

/* MySQL has no NOTIFY. But another session can end a statement that waits in the server (KILL
 * QUERY): that is how a release wakes the next waiter. The session that sleeps for a client is
 * found by a GET_LOCK that ends with it, so no other statement is ever hit.
 *
 * It sleeps by waiting for a lock that the client's shared session has. It does not call SLEEP():
 * measured on MariaDB 10.11, one in two hundred KILLs of such a session took two seconds while
 * others slept, and the release with it.
 *
 * One session sleeps for all waiting claims of a client. A KILL between two of its statements is
 * lost. So each of them begins with a look at which claims were granted (stile_table_await()): a
 * grant is committed before its KILL, so it is seen by that look, or its KILL ends the statement.
 *
 * Where that procedure is missing, where a user or a node may be unable to end the sleep, and where
 * that was not tried, a wake-up may be missed: then a query asks for grants a few times a second.
 */

#define WAKEUP_CHECK_NS (300 * NS_PER_MS) /* a granted claim has a second to confirm */
#define WAKEUP_AGAIN_NS (5 * NS_PER_SEC)  /* after a session that could not be opened */

/* ---- finding out which claims were granted ---- */

static void on_granted(void *data, const struct answer *a)
{
    struct my *my = data;
    MYSQL_RES *rows = a->err ? NULL : answer_last(a)->rows;
    MYSQL_ROW row;
    while ((row = maria_next_row(rows, 1)))
        sql_lease_hear_granted(&my->leases, row[0] ? row[0] : "");
}

static void find_granted(struct my *my)
{
    struct session *shared;
    if (!sql_pool_shared(&shared, &my->pool, NULL))
        maria_send(shared, maria_sql_wakeup_granted(my), on_granted, my, NULL);
    loop_arm(my->engine.loop, &my->wakeup_check, loop_now(my->engine.loop) + WAKEUP_CHECK_NS);
}

/* ---- the sleeping session ---- */

static bool is_one(const struct outcome *outcome)
{
    const char *text = maria_outcome_text(outcome, 0);
    return text && strcmp(text, "1") == 0;
}

static bool has_got_lock(const struct answer *a)
{
    return !a->err && is_one(a->outcomes);
}

static void forget_sleeper(struct my *my)
{
    sql_pool_forget(&my->pool, my->sleeper);
    my->sleeper = NULL;
    my->leases.hearing = my->awake = false;
}

static void stop_wakeups(struct session *session)
{
    forget_sleeper(session->my);
    sql_session_free(session);
}

static void on_woken(void *data, const struct answer *a);

static void sleep_again(struct session *session)
{
    session->base.waits = true;
    session->my->awake = false;
    maria_send(session, maria_sql_wakeup_sleep(session->my), on_woken, session, NULL);
}

/* Until then the next look would find the same claims. */
static void stay_awake(struct my *my)
{
    my->awake = true;
    loop_arm(my->engine.loop, &my->wakeup_check, loop_now(my->engine.loop) + WAKEUP_CHECK_NS);
}

static void sleep_if_confirmed(struct my *my)
{
    if (my->awake && my->leases.n_heard == 0)
        sleep_again(my->sleeper);
}

static void on_check(struct timer *timer)
{
    struct my *my = (struct my *)((char *)timer - offsetof(struct my, wakeup_check));
    if (my->awake)
        sleep_again(my->sleeper);
    else if (!my->sure && my->leases.hearing && sql_lease_is_waiting(&my->leases))
        find_granted(my);
}

static bool hear_all(struct my *my, const char *owners)
{
    char owner[LEASE_OWNER_LEN + 1];
    for (const char *at = owners; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        snprintf(owner, sizeof owner, "%.*s", (int)strcspn(at, " "), at);
        sql_lease_hear_granted(&my->leases, owner);
    }
    return owners;
}

/* It was ended, or slept long enough, or claims were granted. If it has got the lock, the shared
 * session is gone, and it could not sleep any longer. */
static void on_woken(void *data, const struct answer *a)
{
    struct session *session = data;
    struct my *my = session->my;
    if (session->base.state != UP)
        return;
    if (has_got_lock(a) || (a->err && !maria_error_is_kill(a->code)) ||
        !sql_lease_is_waiting(&my->leases)) {
        stop_wakeups(session);
        return;
    }
    session->base.waits = false;
    const char *state = a->err ? NULL : maria_outcome_text(a->outcomes, 0);
    if (!my->sure) {
        sleep_again(session);
        find_granted(my);
    } else if (hear_all(my, a->err ? NULL : maria_outcome_text(a->outcomes, 1)) ||
               (!state && sql_lease_hear_only(&my->leases))) {
        stay_awake(my);
    } else {
        sleep_again(session);
    }
}

static void begin_to_sleep(struct session *session, bool sure)
{
    struct my *my = session->my;
    my->sure = sure;
    my->leases.hearing = true;
    sleep_again(session);
    if (!sure)
        find_granted(my);
    sql_lease_ask_again(&my->leases); /* their rows do not have the sleeping session yet */
}

static void on_tested(void *data, const struct answer *a)
{
    begin_to_sleep(data, !a->err && is_one(answer_last(a)));
}

static void on_prepared(void *data, const struct answer *a)
{
    struct session *session = data;
    struct my *my = session->my;
    if (!has_got_lock(a))
        stop_wakeups(session);
    else if (my->several || !is_one(answer_last(a)))
        begin_to_sleep(session, false);
    else if (maria_send(my->pool.shared, maria_sql_wakeup_test(my), on_tested, session, NULL))
        stop_wakeups(session);
}

/* Behind a proxy the sleep would block a session that others need. */
static bool is_direct(const struct my *my)
{
    const struct session *shared = my->pool.shared;
    return shared && shared->base.state == UP &&
           shared->base.backend == mysql_thread_id(shared->conn);
}

static void on_listening(void *data, const struct answer *a)
{
    struct session *session = data;
    struct my *my = session->my;
    if (a->err || session->base.state != UP)
        return;
    my->sleep_id = is_direct(my) ? my->pool.shared->base.backend : 0;
    if (!my->sleep_id ||
        maria_send(my->pool.shared, maria_sql_wakeup_prepare(my), on_prepared, session, NULL))
        stop_wakeups(session);
}

static void wakeup_up(struct session *session)
{
    maria_send(session, maria_sql_table_settings(session->my), ignore, NULL, NULL);
    maria_send(session, maria_sql_wakeup_listen(session->my), on_listening, session, NULL);
}

static void wakeup_down(struct session *session)
{
    forget_sleeper(session->my);
}

static void wakeup_ended(struct session *session, const struct stile_error *why)
{
    (void)session, (void)why;
}

static const struct session_events wakeup_events = {
    .up = wakeup_up, .down = wakeup_down, .ended = wakeup_ended};

void maria_wakeup_init(struct my *my)
{
    my->wakeup_check.fn = on_check;
}

static void start_wakeups(struct my *my)
{
    uint64_t now = loop_now(my->engine.loop);
    if (my->sleeper || my->options.table || now < my->wakeup_again_ns || !is_direct(my))
        return;
    my->wakeup_again_ns = now + WAKEUP_AGAIN_NS;
    if (maria_session_new(&my->sleeper, &my->pool, &wakeup_events, NULL))
        my->sleeper = NULL;
}

/* ---- sending ---- */

static enum stile_status send_shared(struct engine *engine, char *sql, answer_fn *fn, void *data,
                                     struct stile_error *err)
{
    struct session *shared;
    enum stile_status status = sql_pool_shared(&shared, pool_of(engine), err);
    if (status) {
        free(sql);
        return status;
    }
    return maria_send(shared, sql, fn, data, err);
}

/* A procedure rolls back when a statement in it fails, but not when it was killed: the row would
 * stay locked. */
static void take_back(struct engine *engine, const struct answer *a)
{
    struct session *shared = my_of(engine)->pool.shared;
    if (a->err && a->code && shared && shared->base.state == UP)
        maria_send(shared, maria_sql_rollback(), ignore, NULL, NULL);
}

/* Of the statement that has rows. */
static const char *column_of(const struct answer *a, unsigned column)
{
    for (size_t i = 0; !a->err && i < a->n; i++) {
        if (a->outcomes[i].rows)
            return maria_outcome_text(&a->outcomes[i], column);
    }
    return NULL;
}

static const char *text_of(const struct answer *a)
{
    const char *text = column_of(a, 0);
    return text ? text : "";
}

static struct lease_answer read_answer(struct engine *engine, const struct answer *a)
{
    const char *text = text_of(a);
    take_back(engine, a);
    return (struct lease_answer){.err = a->err,
                                 .undone = a->err && maria_error_is_undone(a->code),
                                 .again = a->err && maria_error_is_kill(a->code),
                                 .sent_ns = a->sent_ns,
                                 .reply = *text,
                                 .number = *text ? strtoull(text + 1, NULL, 10) : 0};
}

static struct engine *engine_of(struct lease *lease)
{
    return lease->leases->engine;
}

static void on_asked(void *data, const struct answer *a)
{
    struct my *my = my_of(engine_of(data));
    struct lease_answer answer = read_answer(&my->engine, a);
    if (answer.reply == 'b' && claim_of_lease(data)->wait)
        start_wakeups(my);
    sql_lease_asked(data, &answer);
    sleep_if_confirmed(my);
}

static enum stile_status ask(struct lease *lease, struct stile_error *err)
{
    return send_shared(engine_of(lease), maria_sql_table_claim(lease), on_asked, lease, err);
}

static void on_checked(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(engine_of(data), a);
    const char *ahead = strrchr(text_of(a), ' ');
    answer.ahead = ahead ? (unsigned)strtoul(ahead, NULL, 10) : 0;
    sql_lease_checked(data, &answer);
}

static enum stile_status check(struct lease *lease, uint64_t life_ms, struct stile_error *err)
{
    return send_shared(engine_of(lease), maria_sql_table_look(lease, life_ms), on_checked, lease,
                       err);
}

static void on_kept(void *data, const struct answer *a)
{
    sql_lease_kept(data, a->err ? 0 : answer_last(a)->affected, a->err);
}

static enum stile_status keep(struct leases *leases, uint64_t life_ms, struct stile_error *err)
{
    return send_shared(leases->engine, maria_sql_table_keep(leases, life_ms), on_kept, leases, err);
}

static void on_resumed(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(engine_of(data), a);
    const char *token = strchr(text_of(a), ' '), *ttl = token ? strchr(token + 1, ' ') : NULL;
    answer.ttl_ms = ttl ? strtoull(ttl, NULL, 10) : 0;
    sql_lease_resumed(data, &answer);
}

static enum stile_status resume(struct lease *lease, struct stile_error *err)
{
    return send_shared(engine_of(lease), maria_sql_table_resume(lease), on_resumed, lease, err);
}

static void on_released(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(engine_of(data), a);
    sql_lease_released(data, &answer);
}

static enum stile_status release(struct lease *lease, bool unused, struct stile_error *err)
{
    return send_shared(engine_of(lease), maria_sql_table_release(lease, unused), on_released, lease,
                       err);
}

static bool is_among(const void *rows, const char *owner)
{
    const struct answer *a = rows;
    MYSQL_RES *result = answer_last(a)->rows;
    MYSQL_ROW row = NULL;
    if (!result)
        return false;
    mysql_data_seek(result, 0);
    while ((row = maria_next_row(result, 1)) && (!row[0] || strcmp(row[0], owner) != 0))
        ;
    return row;
}

static void on_renewed(void *data, const struct answer *a)
{
    struct lease_answer answer = {.err = a->err, .sent_ns = a->sent_ns};
    sql_lease_renewed(data, &answer, is_among, a);
}

static enum stile_status renew(struct leased_renewal *renewal, struct stile_error *err)
{
    return send_shared(renewal->engine, maria_sql_table_renew(renewal), on_renewed, renewal, err);
}

const struct lease_ops maria_table_ops = {
    .ask = ask,
    .check = check,
    .keep = keep,
    .resume = resume,
    .release = release,
    .renew = renew,
};

/* ShedLock's table has no rows of waiters that could be checked: they ask. */
const struct lease_ops maria_shedlock_ops = {
    .ask = ask,
    .resume = resume,
    .release = release,
    .renew = renew,
};

/* ---- breaking ---- */

/* Claims of this client hear of it at once, others when they renew. */
static void report_broken(struct engine *engine, const char *owners)
{
    char owner[LEASE_OWNER_LEN + 1], by[SELF_HOST_MAX + 32];
    sql_identity_blame(by, &my_of(engine)->identity);
    while (owners && *owners) {
        size_t len = strcspn(owners, " ");
        if (len == LEASE_OWNER_LEN) {
            memcpy(owner, owners, len);
            owner[len] = '\0';
            sql_lease_hear_broken(leases_of(engine), owner, by);
        }
        owners += len + (owners[len] == ' ');
    }
}

static void on_broken(void *data, const struct answer *a)
{
    struct query *query = data;
    int n = atoi(text_of(a));
    take_back(query->engine, a);
    if (n > 0)
        report_broken(query->engine, column_of(a, 1));
    sql_break_done(query, n, a->err);
}

void maria_table_break(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (send_shared(engine, maria_sql_table_break(query), on_broken, query, &err))
        engine->events->done(query, &err);
}

/* ---- the shared session ---- */

/* Behind a proxy nothing is set: the next statement may run in another session. */
static void on_up(struct session *session)
{
    if (session->base.backend == mysql_thread_id(session->conn))
        maria_send(session, maria_sql_table_settings(session->my), ignore, NULL, NULL);
    sql_opening_answered(&session->my->opening, NULL);
}

static void on_ended(struct session *session, const struct stile_error *why)
{
    sql_opening_answered(&session->my->opening, why);
    sql_lease_disconnected(&session->my->leases);
}

const struct session_events maria_table_events = {
    .up = on_up, .down = sql_pool_shared_down, .ended = on_ended};
