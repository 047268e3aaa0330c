/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* mode=row: SELECT ... FOR UPDATE on a row of the schema, in a transaction that is open for as
 * long as the lock is held.
 *
 * Each claim has a session of its own. There it opens a transaction, leaves a mark (a shared
 * advisory lock that no other claim takes: show finds claims by it) and locks the row. The shared
 * session draws the token and commits it: a token drawn in the open transaction would be rolled
 * back with it, and issued again. Then the claim's own session is asked once more: its open
 * transaction proves that the row was ours when the token was drawn.
 *
 * The lease is idle_in_transaction_session_timeout. Any error in the transaction ends it, and
 * with it the lock. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

static void count(struct sql_claim *c);
static void on_stepped_back(void *data, const struct answer *a);
static void take(struct sql_claim *c);

static bool is_shared(struct sql_claim *c)
{
    return claim_of(c)->mode == STILE_SHARED;
}

/* ---- the end of its transaction ---- */

static enum stile_status end(struct sql_claim *c, answer_fn *fn, struct stile_error *err)
{
    struct session *session = c->session;
    session->base.lease_ns =
        0; /* a setting made in a transaction that fails is rolled back with it */
    return postgres_send(session, &postgres_sql_row_end, NULL, 0, fn, c, err);
}

static void end_with(struct sql_claim *c, answer_fn *fn)
{
    struct stile_error err;
    if (end(c, fn, &err))
        sql_claim_abandon(c, &err);
}

/* A transaction that cannot be ended ends with its session. */
static bool has_ended(struct sql_claim *c, const struct answer *a)
{
    struct session *session = c->session;
    if (!a->err || !session || session->base.state != UP)
        return !a->err;
    sql_claim_leave(c);
    sql_pool_close(session);
    return false;
}

static void on_withdrawn(void *data, const struct answer *a)
{
    has_ended(data, a);
    sql_claim_released(data, NULL);
}

static void withdraw(struct sql_claim *c)
{
    end_with(c, on_withdrawn);
}

static void on_given(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error lost;
    bool ours = has_ended(c, a) && strcmp(PQcmdStatus((PGresult *)a->result), "COMMIT") == 0;
    if (ours || c->loss_reported) {
        sql_claim_released(c, NULL);
        return;
    }
    error_set(&lost, STILE_LOST, 0, "%s", a->err ? a->err->message : "the lock was no longer held");
    sql_claim_released(c, &lost);
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
static void on_hold_ended(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    (void)a;
    if (c->session)
        let_go(c);
    else
        sql_claim_released(c, NULL);
}

/* A hold or a delay in the name's row is settled first. */
void postgres_row_give_back(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct pg *pg = pg_of_claim(c);
    char token[24];
    const char *values[] = {c->stored, token, claim->unused ? "t" : "f"};
    snprintf(token, sizeof token, "%" PRIu64, c->token);
    bool has_hold = claim->hold_ns || claim->delay_ns;
    if (!has_hold || !pg->pool.shared ||
        postgres_send(pg->pool.shared, &postgres_sql_row_end_hold, values, 3, on_hold_ended, c,
                      NULL))
        let_go(c);
}

/* ---- the token ---- */

static void on_hold_over(struct timer *timer)
{
    struct sql_claim *c = sql_claim_of_timer(timer);
    if (c->state == CLAIM_HELD_BACK)
        count(c);
}

/* Its session has to be renewed meanwhile. */
static void hold_back(struct sql_claim *c, uint64_t ms)
{
    struct pg *pg = pg_of_claim(c);
    struct loop *loop = pg->engine.loop;
    uint64_t pause = (ms + 1) * NS_PER_MS, most = pg->pool.ttl_ns / 3;
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_HELD_BACK);
    claim_of(c)->engine->events->queued(claim_of(c));
    c->timer.fn = on_hold_over;
    loop_arm(loop, &c->timer, loop_now(loop) + (pause < most ? pause : most));
    if (postgres_lease_set_to(c->session, pg->pool.ttl_ns, NULL, NULL, &err))
        sql_claim_abandon(c, &err);
}

static void on_counted(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error err;
    const char *text = a->err || PQntuples(a->result) != 1 ? "" : postgres_value(a->result, 0, 0);
    uint64_t number = *text ? strtoull(text + 1, NULL, 10) : 0;
    if (c->withdrawn) {
        sql_claim_move_to(c, CLAIM_RELEASING);
        c->token = *text == 'g' ? number : 0;
        claim_of(c)->unused = true;
        sql_claim_withdraw(c, true);
    } else if (a->err) {
        sql_claim_abandon(c, a->err);
    } else if (*text == 'h' && claim_of(c)->wait) {
        hold_back(c, number);
    } else if (*text == 'h') {
        sql_claim_move_to(c, CLAIM_UNDOING);
        c->token = number;
        end_with(c, on_stepped_back);
    } else if (*text == 'g') {
        c->token = number;
        sql_claim_move_to(c, CLAIM_CONFIRMING);
        if (postgres_lease_set_to(c->session, pg_of_claim(c)->pool.ttl_ns, postgres_claim_confirmed,
                                  c, &err))
            sql_claim_abandon(c, &err);
    } else {
        error_set(&err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        sql_claim_abandon(c, &err);
    }
}

static void count(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct pg *pg = pg_of_claim(c);
    struct session *shared;
    struct stile_error err;
    char backend[24], hold[24], delay[24];
    snprintf(backend, sizeof backend, "%" PRIu64, c->session->base.backend);
    const char *values[] = {c->stored,
                            backend,
                            is_shared(c) ? "t" : "f",
                            postgres_sql_ms(hold, claim->hold_ns),
                            postgres_sql_ms(delay, claim->delay_ns),
                            pg->identity.owner,
                            pg->identity.host,
                            pg->identity.pid,
                            pg->identity.command};
    sql_claim_move_to(c, CLAIM_COUNTING);
    if (sql_pool_shared(&shared, &pg->pool, &err) ||
        postgres_send(shared, &postgres_sql_row_count, values, 9, on_counted, c, &err))
        sql_claim_abandon(c, &err);
}

/* ---- the row ---- */

/* The row was not there: another holds it, or it was deleted during the wait. */
static void on_stepped_back(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct session *session = c->session;
    bool ended = has_ended(c, a);
    if (c->withdrawn) {
        sql_claim_released(c, NULL);
    } else if (a->err) {
        sql_claim_abandon(c, a->err);
    } else if (claim_of(c)->wait) {
        take(c);
    } else {
        sql_claim_busy(c, c->token * NS_PER_MS);
        if (ended)
            sql_pool_return(session);
    }
}

/* A waiter that finds no row can't get it if it could not be made either. */
static const struct stile_error *why_not_taken(struct sql_claim *c, const struct answer *a)
{
    bool absent = !a->err && PQntuples(a->result) != 1 && claim_of(c)->wait;
    if (a->err || !pg_claim_of(c)->in_transaction)
        return a->err ? a->err : &c->why;
    return absent && c->why.status ? &c->why : NULL;
}

static void on_taken(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    const struct stile_error *failed = why_not_taken(c, a);
    bool up = c->session && c->session->base.state == UP;
    if (c->session)
        c->session->base.waits = false;
    if (c->withdrawn && up) {
        withdraw(c);
    } else if (up && a->err && strcmp(a->sqlstate, "55P03") == 0) {
        sql_claim_move_to(c, CLAIM_UNDOING); /* a longer wait would keep its snapshot */
        c->token = 0;
        end_with(c, on_stepped_back);
    } else if (failed) {
        sql_claim_abandon(c, failed);
    } else if (PQntuples(a->result) != 1) {
        sql_claim_move_to(c, CLAIM_UNDOING);
        end_with(c, on_stepped_back);
    } else {
        pg_claim_of(c)->id = strtoll(postgres_value(a->result, 0, 0), NULL, 10);
        count(c);
    }
}

/* An error matters only if the row is not there: a role may lack the right to make it. */
static void on_made(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    if (a->err)
        c->why = *a->err;
}

/* Without a transaction the next statement locks the row as well, but only until its own end. */
static void on_begun(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    pg_claim_of(c)->in_transaction = !a->err;
    if (a->err)
        c->why = *a->err;
}

/* All of it in one round trip. The row is inserted before the transaction: another client that
 * inserts it at the same time would have to wait for the end of the transaction. */
static void take(struct sql_claim *c)
{
    struct session *session = c->session;
    bool wait = claim_of(c)->wait;
    char waited[24];
    const char *name[] = {c->stored, waited};
    struct stile_error err;
    snprintf(waited, sizeof waited, "%" PRIu64, sql_claim_waited_ms(c));
    sql_claim_move_to(c, wait ? CLAIM_WAITING : CLAIM_TRYING);
    if (wait)
        claim_of(c)->engine->events->queued(claim_of(c));
    session->base.waits = wait;
    pg_claim_of(c)->in_transaction = false;
    c->why.status = STILE_OK;
    if (postgres_lease_set(session, &err) ||
        postgres_send(session, &postgres_sql_row_make, name, 1, on_made, c, &err) ||
        postgres_send(session, &postgres_sql_row_begin, NULL, 0, on_begun, c, &err) ||
        postgres_send(session, &postgres_sql_row_take[is_shared(c)][wait], name, 2, on_taken, c,
                      &err))
        sql_claim_abandon(c, &err);
}

void postgres_row_claim(struct engine *engine, struct claim *claim)
{
    struct sql_claim *c = sql_claim_of(claim);
    struct session *session;
    struct stile_error err;
    if (!postgres_claim_begin(c))
        return;
    pg_claim_of(c)->key.form = KEY_ONE;
    if (sql_pool_take(&session, pool_of(engine), &err)) {
        sql_claim_fail(c, &err);
        return;
    }
    sql_claim_join(c, session);
    take(c);
}

/* ---- releasing ---- */

/* With a token, the name's row may have a hold to be ended. */
void postgres_row_clear(struct sql_claim *c)
{
    if (c->token)
        postgres_row_give_back(c);
    else
        withdraw(c);
}
