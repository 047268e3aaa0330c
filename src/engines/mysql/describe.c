/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A grant is described in the row of its name a little later, if it is still held then: most locks
 * are held for less than writing a row takes. The row is valid as long as its session has a lock
 * that is named after the grant. So a later grant of the same session is not taken for it, and a
 * release writes nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/statements.h"
#include "engines/mysql/tokens.h"

/* show waits for a row that is missing, for longer than this. */
#define DESCRIBED_AFTER_NS (20 * NS_PER_MS)
#define AGAIN_AFTER_NS     (100 * NS_PER_MS)
#define BATCH              256

#define COLUMNS                                                                                    \
    "INSERT INTO stile_lock (name,lock_name,last_token,owner,host,pid,command,since,backend,"      \
    "hold_until,delay_ms) VALUES "
/* Assignments are made from left to right, so the token comes last. */
#define IF_LATER(column)                                                                           \
#column "=IF(last_token<VALUES(last_token),VALUES(" #column ")," #column "),"
#define REPLACING                                                                                  \
    " ON DUPLICATE KEY UPDATE " IF_LATER(lock_name) IF_LATER(owner) IF_LATER(host) IF_LATER(pid)   \
        IF_LATER(command) IF_LATER(since) IF_LATER(backend) IF_LATER(hold_until)                   \
            IF_LATER(delay_ms) "last_token=GREATEST(last_token,VALUES(last_token))"
/* A lock can be taken twice by one session, and would then have to be released twice. */
#define MARK "IF(IS_USED_LOCK(%s)<=>CONNECTION_ID(),1,GET_LOCK(%s,0))"

/* ---- the statements ---- */

static void put_row(FILE *out, struct sql_claim *c, uint64_t age_ns)
{
    const struct claim *claim = claim_of(c);
    const struct my *my = my_of_claim(c);
    char hold[24], delay[24];
    fprintf(out,
            "(X'%s',X'%s',%" PRIu64 ",'%s',X'%s',%s,X'%s',UTC_TIMESTAMP(6)-INTERVAL %" PRIu64
            " MICROSECOND,CONNECTION_ID(),UTC_TIMESTAMP(6)+INTERVAL 1000*%s MICROSECOND,%s)",
            c->stored, my_claim_of(c)->key, c->token, my->identity.owner, my->host_hex,
            my->identity.pid, my->command_hex, age_ns / 1000,
            maria_sql_milliseconds(hold, claim->hold_ns),
            maria_sql_milliseconds(delay, claim->delay_ns));
}

static char *describe(struct sql_claim *const *claims, size_t n, const char *before, uint64_t now,
                      bool is_for_show)
{
    char *sql = NULL, mark[GRANT_MARK_MAX];
    size_t size;
    FILE *out = open_memstream(&sql, &size);
    if (!out)
        return NULL;
    fputs(before, out);
    for (size_t i = 0; i < n; i++) {
        maria_sql_grant_mark(mark, claims[i]);
        fprintf(out, "%s" MARK, i ? "," : "DO ", mark, mark);
    }
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s", i ? "," : is_for_show ? ";" BRIEFLY COLUMNS : ";" COLUMNS);
        put_row(out, claims[i], now - my_claim_of(claims[i])->granted_ns);
    }
    fputs(REPLACING, out);
    bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(sql);
        return NULL;
    }
    return sql;
}

/* The first one of the database waits until every client looks for holds. */
char *maria_describe_hold(struct sql_claim *c)
{
    uint64_t now = loop_now(c->session->base.loop);
    my_claim_of(c)->granted_ns = now;
    my_claim_of(c)->described = true;
    return describe(&c, 1, c->session->epoch.holds > 1 ? "" : "CALL stile_use_holds();", now,
                    false);
}

/* ---- one session ---- */

static void on_described(void *data, const struct answer *a)
{
    struct session *session = data;
    uint64_t again_ns = loop_now(session->base.loop) + AGAIN_AFTER_NS;
    session->describing--;
    for (struct sql_claim *c = session->base.claims; c; c = c->next) {
        struct my_claim *mine = my_claim_of(c);
        if (a->err && mine->describing) {
            mine->described = false;
            mine->describe_ns = again_ns;
        }
        mine->describing = false;
    }
    maria_describe_later(session->my); /* there may be more than one batch */
}

static bool is_due(struct sql_claim *c, uint64_t now)
{
    const struct my_claim *mine = my_claim_of(c);
    return c->state == CLAIM_HELD && !mine->described && mine->describe_ns <= now;
}

/* In one order, so that no two sessions block each other. */
static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct sql_claim *const *)a)->stored, (*(struct sql_claim *const *)b)->stored);
}

/* If it fails, show has only the session to name. */
static bool describe_some(struct session *session, uint64_t now, uint64_t until_ns)
{
    struct sql_claim *due[BATCH];
    size_t n = 0;
    for (struct sql_claim *c = session->base.claims; c && n < BATCH; c = c->next) {
        if (is_due(c, until_ns))
            due[n++] = c;
    }
    if (n == 0)
        return false;
    qsort(due, n, sizeof *due, by_name);
    char *sql = describe(due, n, "", now, true);
    if (!sql || maria_send(session, sql, on_described, session, NULL))
        return false;
    session->describing++;
    for (size_t i = 0; i < n; i++)
        my_claim_of(due[i])->described = my_claim_of(due[i])->describing = true;
    return true;
}

/* ---- all of a client ---- */

typedef void visit_fn(struct session *session, uint64_t now, void *data);

static void each_session(struct my *my, visit_fn *visit, void *data)
{
    uint64_t now = loop_now(my->engine.loop);
    for (struct session *session = my->pool.sessions, *next; session; session = next) {
        next = session->base.next;
        visit(session, now, data);
    }
    if (my->pool.shared)
        visit(my->pool.shared, now, data);
}

static void describe_due(struct session *session, uint64_t now, void *data)
{
    (void)data;
    if (sql_session_is_up(session) && !session->base.waits && !session->describing)
        describe_some(session, now, now);
}

static void describe_all(struct session *session, uint64_t now, void *data)
{
    (void)data;
    bool more = sql_session_is_up(session) && !session->base.waits;
    while (more)
        more = describe_some(session, now, NEVER);
}

static void find_next(struct session *session, uint64_t now, void *data)
{
    (void)now;
    uint64_t *next_ns = data;
    if (session->describing || session->base.waits)
        return;
    for (struct sql_claim *c = session->base.claims; c; c = c->next) {
        if (is_due(c, NEVER) && my_claim_of(c)->describe_ns < *next_ns)
            *next_ns = my_claim_of(c)->describe_ns;
    }
}

static void arm(struct my *my, uint64_t at_ns)
{
    if (at_ns != NEVER && !my->describe.place)
        loop_arm(my->engine.loop, &my->describe, at_ns);
}

void maria_describe_later(struct my *my)
{
    uint64_t next_ns = NEVER;
    each_session(my, find_next, &next_ns);
    arm(my, next_ns);
}

static void on_time(struct timer *timer)
{
    struct my *my = (struct my *)((char *)timer - offsetof(struct my, describe));
    each_session(my, describe_due, NULL);
    maria_describe_later(my);
}

void maria_describe_init(struct my *my)
{
    my->describe.fn = on_time;
}

void maria_describe_now(struct my *my)
{
    if (my->epochs)
        each_session(my, describe_all, NULL);
}

void maria_note(struct sql_claim *c, bool holds)
{
    struct my *my = my_of_claim(c);
    struct my_claim *mine = my_claim_of(c);
    if (!my->epochs || !holds || mine->described)
        return;
    mine->granted_ns = loop_lately(my->engine.loop);
    mine->describe_ns = mine->granted_ns + DESCRIBED_AFTER_NS;
    arm(my, mine->describe_ns);
}
