/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* mode=row: SELECT ... FOR UPDATE on a row of our own, in a transaction that is open for as long
 * as the lock is held.
 *
 * Each claim has a session of its own, where it opens a transaction and locks the row. A waiter
 * first queues for a GET_LOCK of the server, and only the first in that queue waits for the row,
 * a second at a time: during a wait for a row the server does not notice that a process has
 * died, and the queue would stop there.
 *
 * The shared session draws the token and commits it: a token drawn in the open transaction would
 * be rolled back with it, and issued again. Then the claim's own session is asked once more: its
 * answer proves that the row was ours when the token was drawn. The same packet marks the
 * session with a GET_LOCK of its own, by which others see which claims are alive. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"

/* ---- statements ---- */

#define SLICE_S 1 /* the shortest that InnoDB waits */
#define PAUSE   "DO SLEEP(1);"
#define MARK    "CONCAT('stile row ',CONNECTION_ID())"

static bool is_shared(struct sql_claim *c)
{
    return claim_of(c)->mode == STILE_SHARED;
}

static const char *how_to_lock(struct sql_claim *c)
{
    if (!is_shared(c))
        return "FOR UPDATE";
    return my_of_claim(c)->mariadb ? "LOCK IN SHARE MODE" : "FOR SHARE";
}

/* The lock that is the queue for a row. */
static const char *queue_lock_of(char hex[KEY_HEX_MAX], struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    char text[STILE_NAME_MAX + 16], key[KEY_MAX + 1];
    int n = snprintf(text, sizeof text, "stile line %s", claim->name);
    maria_name_key(key, my_of_claim(c)->mariadb, text, (size_t)n);
    maria_name_hex(hex, key, strlen(key));
    return hex;
}

/* Waits in the queue, with a text by which other clients see what is waited for and by whom. */
static void queue_prefix(char *out, size_t size, struct sql_claim *c, const char *identity)
{
    char queue[KEY_HEX_MAX];
    snprintf(out, size, "DO GET_LOCK(X'%s',%d) /* FROM stile_row WHERE name=X'%s' %s */%s;",
             queue_lock_of(queue, c), SQL_YEAR_S, c->stored, how_to_lock(c), identity);
}

/* All of it in one round trip. The row is inserted before the transaction, and only if it is not
 * there: an INSERT would have to wait for the holder. */
char *maria_sql_row_take(struct sql_claim *c, uint64_t ttl_ns)
{
    char before[96] = "", identity[SQL_IDENTITY_MAX];
    char turn[KEY_HEX_MAX + STORED_HEX_MAX + sizeof identity + 96] = "";
    bool wait = claim_of(c)->wait;
    maria_sql_identity(identity, c);
    int slice_s = SLICE_S;
    if (ttl_ns)
        snprintf(before, sizeof before, "SET SESSION wait_timeout=%lu,innodb_lock_wait_timeout=%d;",
                 maria_sql_lease_s(ttl_ns), slice_s);
    if (wait && !my_claim_of(c)->in_queue)
        queue_prefix(turn, sizeof turn, c, identity);
    return maria_sql_written(
        "%s%s%sINSERT IGNORE INTO stile_row SELECT X'%s' FROM DUAL WHERE NOT EXISTS "
        "(SELECT 1 FROM stile_row r WHERE r.name=X'%s');START TRANSACTION;"
        "SELECT 1 FROM stile_row WHERE name=X'%s' %s%s%s",
        before, turn, wait && my_claim_of(c)->hasty ? PAUSE : "", c->stored, c->stored, c->stored,
        how_to_lock(c), wait ? "" : " NOWAIT", wait ? identity : "");
}

char *maria_sql_row_grant(struct sql_claim *c)
{
    struct my *my = my_of_claim(c);
    struct claim *claim = claim_of(c);
    char hold[24], delay[24];
    return maria_sql_written("CALL stile_row_grant(X'%s',%" PRIu64 ",%d,%s,%s,'%s',X'%s',%s,X'%s')",
                             c->stored, c->session->base.backend, is_shared(c),
                             maria_sql_milliseconds(hold, claim->hold_ns),
                             maria_sql_milliseconds(delay, claim->delay_ns), my->identity.owner,
                             my->host_hex, my->identity.pid, my->command_hex);
}

char *maria_sql_row_end_hold(struct sql_claim *c, bool unused)
{
    return maria_sql_written("CALL stile_row_let_go(X'%s',%" PRIu64 ",%d)", c->stored, c->token,
                             unused);
}

/* Once only: a lock that was taken twice has to be released twice. The next in the queue goes
 * on. */
char *maria_sql_row_mark(struct sql_claim *c, uint64_t ttl_ns)
{
    char queue[KEY_HEX_MAX];
    return maria_sql_written(
        "SET SESSION wait_timeout=%lu;DO RELEASE_LOCK(X'%s'),IF(IS_USED_LOCK(" MARK
        ")<=>CONNECTION_ID(),0,GET_LOCK(" MARK ",0))",
        maria_sql_lease_s(ttl_ns), queue_lock_of(queue, c));
}

char *maria_sql_row_end(struct sql_claim *c)
{
    char queue[KEY_HEX_MAX];
    return maria_sql_written("COMMIT;DO RELEASE_LOCK(X'%s'),RELEASE_LOCK(" MARK ")",
                             queue_lock_of(queue, c));
}

/* ---- for inspection ---- */

/* A claim whose session has marked itself is alive. One without a token waits for the end of a
 * hold. */
#define ALIVE    "IS_USED_LOCK(CONCAT('stile row ',c.backend))<=>c.backend"
#define MODE(of) "IF(" of ".shared,'shared','exclusive')"
#define CLAIM                                                                                      \
    "c.held,0," MODE("c") ",c.token," SQL_AGE("c.since") ",NULL,c.pid,c.host,c.command,c.owner,"   \
                                                         "n.token,c.backend"

/* Held back by a hold, or by a dead holder whose lock-delay begins now. */
#define GHOST                                                                                      \
    "1,1," MODE("n") ",n.token," SQL_AGE("n.since") "," SQL_KEPT(                                  \
        "n") ",n.pid,n.host,n.command,n.owner,n."                                                  \
             "token,0"
#define IS_GHOST                                                                                   \
    "(n.delay_ms IS NOT NULL OR n.hold_until>UTC_TIMESTAMP(6)) AND NOT EXISTS (SELECT 1 FROM "     \
    "stile_row_claim c WHERE c.name=n.name AND c.held AND " ALIVE ")"
#define IN_ORDER " ORDER BY 1,2 DESC,6 DESC;"

char *maria_sql_row_show(const struct my *my, const char *stored)
{
    char record[SQL_RECORD_MAX];
    maria_sql_record(record, my, stored);
    return maria_sql_written(
        "SELECT X'%s'," CLAIM
        "%s FROM (SELECT 1) one LEFT JOIN stile_row_count n ON n.name=X'%s' LEFT JOIN "
        "stile_row_claim c ON c.name=n.name AND " ALIVE " UNION ALL SELECT n.name," GHOST
        "%s FROM stile_row_count n WHERE n.name=X'%s' AND " IS_GHOST IN_ORDER SQL_ROW_WAITERS,
        stored, record, stored, record, stored, maria_sql_waited_ms(my));
}

char *maria_sql_row_list(const struct my *my, const char *prefix)
{
    size_t len = strlen(prefix) / 2;
    return maria_sql_written(
        "SELECT c.name," CLAIM
        " FROM stile_row_claim c JOIN stile_row_count n ON n.name=c.name WHERE "
        "LEFT(c.name,%zu)=X'%s' AND " ALIVE " UNION ALL SELECT n.name," GHOST
        " FROM stile_row_count n WHERE LEFT(n.name,%zu)=X'%s' AND " IS_GHOST IN_ORDER
            SQL_ROW_WAITERS,
        len, prefix, len, prefix, maria_sql_waited_ms(my));
}

char *maria_sql_row_break_hold(const struct my *my, const char *stored, uint64_t token)
{
    (void)my;
    return maria_sql_written(
        "UPDATE stile_row_count SET hold_until=NULL,delay_ms=NULL WHERE name=X'%s' "
        "AND %" PRIu64 " IN (0,token) AND (hold_until IS NOT NULL OR delay_ms IS NOT "
        "NULL)",
        stored, token);
}

/* How often a deadlock victim asks again: after that it is no longer bad luck. */
#define RETRIES_MAX 8

static void count(struct sql_claim *c);
static void take(struct sql_claim *c);
static void take_again(struct sql_claim *c, const struct answer *a);

static bool is_up(const struct sql_claim *c)
{
    return c->session && c->session->base.state == UP;
}

/* ---- the end of its transaction ---- */

static enum stile_status end(struct sql_claim *c, answer_fn *fn, struct stile_error *err)
{
    return maria_send(c->session, maria_sql_row_end(c), fn, c, err);
}

static void end_with(struct sql_claim *c, answer_fn *fn)
{
    struct stile_error err;
    if (end(c, fn, &err))
        sql_claim_abandon(c, &err);
}

/* A transaction that cannot be ended ends with its session. */
static void ensure_ended(struct sql_claim *c, const struct answer *a)
{
    struct session *session = c->session;
    if (!a->err || !is_up(c))
        return;
    sql_claim_leave(c);
    sql_pool_close(session);
}

static void on_withdrawn(void *data, const struct answer *a)
{
    ensure_ended(data, a);
    sql_claim_released(data, NULL);
}

void maria_row_clear(struct sql_claim *c)
{
    end_with(c, on_withdrawn);
}

static void on_given(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error lost;
    bool over = a->err && !is_up(c); /* perhaps before the server read this */
    if (over)
        error_set(&lost, STILE_LOST, 0, "%s", a->err->message);
    ensure_ended(c, a);
    sql_claim_released(c, over && !c->loss_reported ? &lost : NULL);
}

static void let_go(struct sql_claim *c)
{
    struct stile_error err;
    if (!end(c, on_given, &err))
        return;
    if (c->withdrawn)
        sql_claim_abandon(c, &err);
    else
        sql_claim_release_unsent(c, &err);
}

/* If this failed, the name is held back for longer, not shorter. */
static void on_row_told(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    (void)a;
    if (is_up(c))
        let_go(c);
    else
        sql_claim_released(c, NULL);
}

/* A hold or a delay in the name's row is settled first. */
void maria_row_give_back(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct my *my = my_of_claim(c);
    bool has_hold = claim->hold_ns || claim->delay_ns;
    if (!has_hold || !my->pool.shared ||
        maria_send(my->pool.shared, maria_sql_row_end_hold(c, claim->unused), on_row_told, c, NULL))
        let_go(c);
}

/* ---- not granted ---- */

static void on_stepped_back(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct session *session = c->session;
    ensure_ended(c, a);
    if (c->withdrawn) {
        sql_claim_released(c, NULL);
    } else if (a->err) {
        sql_claim_fail(c, a->err);
    } else if (claim_of(c)->wait) {
        take(c);
    } else {
        sql_claim_busy(c, c->token * NS_PER_MS);
        sql_pool_return(session);
    }
}

static void step_back(struct sql_claim *c, uint64_t hint_ms)
{
    my_claim_of(c)->in_queue = false;
    sql_claim_move_to(c, CLAIM_UNDOING);
    c->token = hint_ms;
    end_with(c, on_stepped_back);
}

/* ---- the token ---- */

static enum stile_status mark(struct sql_claim *c, answer_fn *fn, struct stile_error *err)
{
    struct session *session = c->session;
    session->base.lease_ns = my_of_claim(c)->pool.ttl_ns;
    return maria_send(session, maria_sql_row_mark(c, session->base.lease_ns), fn, c, err);
}

static void on_hold_over(struct timer *timer)
{
    struct sql_claim *c = sql_claim_of_timer(timer);
    if (c->state == CLAIM_HELD_BACK)
        count(c);
}

static void on_held_back(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    if (a->err && c->state == CLAIM_HELD_BACK)
        sql_claim_abandon(c, a->err);
}

/* The lock is ours in the server, but a hold keeps the name back from everyone. */
static void hold_back(struct sql_claim *c, uint64_t ms)
{
    struct my *my = my_of_claim(c);
    struct loop *loop = my->engine.loop;
    uint64_t pause = (ms + 1) * NS_PER_MS, most = my->pool.ttl_ns / 3;
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_HELD_BACK);
    c->timer.fn = on_hold_over;
    loop_arm(loop, &c->timer, loop_now(loop) + (pause < most ? pause : most));
    if (mark(c, on_held_back, &err))
        sql_claim_abandon(c, &err);
}

static void on_marked(void *data, const struct answer *a)
{
    sql_claim_confirmed(data, a->sent_ns, a->err);
}

static void take_grant(struct sql_claim *c, const char *text)
{
    struct stile_error err;
    uint64_t number = *text ? strtoull(text + 1, NULL, 10) : 0;
    if (*text == 'h' && claim_of(c)->wait) {
        hold_back(c, number);
    } else if (*text == 'h') {
        step_back(c, number);
    } else if (*text == 'g') {
        c->token = number;
        sql_claim_move_to(c, CLAIM_CONFIRMING);
        if (mark(c, on_marked, &err))
            sql_claim_abandon(c, &err);
    } else {
        error_set(&err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        sql_claim_abandon(c, &err);
    }
}

static void on_counted(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    const char *text = a->err ? NULL : maria_outcome_text(&a->outcomes[0], 0);
    if (c->withdrawn) {
        c->token = text && *text == 'g' ? strtoull(text + 1, NULL, 10) : 0;
        claim_of(c)->unused = true;
        sql_claim_move_to(c, CLAIM_RELEASING);
        sql_claim_withdraw(c, true);
    } else if (a->err) {
        sql_claim_abandon(c, a->err);
    } else {
        take_grant(c, text ? text : "");
    }
}

static void count(struct sql_claim *c)
{
    struct session *shared;
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_COUNTING);
    if (sql_pool_shared(&shared, &my_of_claim(c)->pool, &err) ||
        maria_send(shared, maria_sql_row_grant(c), on_counted, c, &err))
        sql_claim_abandon(c, &err);
}

/* ---- the row ---- */

static void on_taken(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    bool refused = a->err && (maria_error_is_undone(a->code) || maria_error_is_busy(a->code));
    if (c->session)
        c->session->base.waits = false;
    if (c->withdrawn && is_up(c))
        maria_row_clear(c);
    else if (a->err && maria_error_is_busy(a->code) && is_up(c) && claim_of(c)->wait)
        take_again(c, a);
    else if (refused && is_up(c) && (!claim_of(c)->wait || my_claim_of(c)->retries++ < RETRIES_MAX))
        step_back(c, 0);
    else if (a->err)
        sql_claim_abandon(c, a->err);
    else if (!maria_outcome_text(answer_last(a), 0))
        step_back(c, 0); /* it was deleted during the wait */
    else
        count(c);
}

static void take(struct sql_claim *c)
{
    struct session *session = c->session;
    bool wait = claim_of(c)->wait;
    struct stile_error err;
    sql_claim_move_to(c, wait ? CLAIM_WAITING : CLAIM_TRYING);
    session->base.waits = wait;
    char *sql = maria_sql_row_take(c, maria_lease_to_set(session));
    my_claim_of(c)->in_queue = wait;
    if (maria_send(session, sql, on_taken, c, &err))
        sql_claim_abandon(c, &err);
}

/* It stays the first in the queue. A server, or what is in front of it, may answer without having
 * waited: then the wait is a sleep. */
static void take_again(struct sql_claim *c, const struct answer *a)
{
    uint64_t waited_ns = loop_now(my_of_claim(c)->engine.loop) - a->sent_ns;
    my_claim_of(c)->hasty = waited_ns < SLICE_S * NS_PER_SEC / 2;
    take(c);
}

void maria_row_claim(struct engine *engine, struct claim *claim)
{
    struct sql_claim *c = sql_claim_of(claim);
    struct session *session;
    struct stile_error err;
    if (!maria_claim_begin(c))
        return;
    my_claim_of(c)->retries = 0;
    my_claim_of(c)->in_queue = my_claim_of(c)->hasty = false;
    if (sql_pool_take(&session, pool_of(engine), &err)) {
        sql_claim_fail(c, &err);
        return;
    }
    sql_claim_join(c, session);
    take(c);
}
