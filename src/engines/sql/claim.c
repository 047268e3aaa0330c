/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/sql/claim.h"

#include <assert.h>

#define RELEASE_PATIENCE_NS (2500 * NS_PER_MS)

static struct pool *pool_of_claim(struct sql_claim *c)
{
    return pool_of(claim_of(c)->engine);
}

/* ---- the states ---- */

#define TO(state) (1u << (state))

/* Where each state may lead, other than to CLAIM_IDLE: that is the end of every claim. */
static const unsigned transitions[] = {
    [CLAIM_IDLE] = TO(CLAIM_STARTING),
    [CLAIM_STARTING] = TO(CLAIM_YIELDING) | TO(CLAIM_TRYING) | TO(CLAIM_WAITING),
    [CLAIM_YIELDING] = TO(CLAIM_TRYING) | TO(CLAIM_WAITING),
    [CLAIM_TRYING] = TO(CLAIM_HELD) | TO(CLAIM_WAITING) | TO(CLAIM_QUEUEING) | TO(CLAIM_COUNTING) |
                     TO(CLAIM_CHECKING) | TO(CLAIM_CONFIRMING) | TO(CLAIM_READING_HOLD) |
                     TO(CLAIM_UNDOING),
    [CLAIM_CHECKING] = TO(CLAIM_UNDOING),
    [CLAIM_READING_HOLD] = TO(CLAIM_HELD_BACK) | TO(CLAIM_UNDOING),
    [CLAIM_UNDOING] = TO(CLAIM_TRYING) | TO(CLAIM_WAITING) | TO(CLAIM_QUEUEING),
    [CLAIM_WAITING] = TO(CLAIM_HELD) | TO(CLAIM_WAITING) | TO(CLAIM_QUEUEING) | TO(CLAIM_COUNTING) |
                      TO(CLAIM_CONFIRMING) | TO(CLAIM_READING_HOLD) | TO(CLAIM_HELD_BACK) |
                      TO(CLAIM_UNDOING) | TO(CLAIM_RELEASING),
    [CLAIM_COUNTING] =
        TO(CLAIM_CONFIRMING) | TO(CLAIM_HELD_BACK) | TO(CLAIM_UNDOING) | TO(CLAIM_RELEASING),
    [CLAIM_CONFIRMING] = TO(CLAIM_HELD) | TO(CLAIM_CONFIRMING) | TO(CLAIM_WAITING) |
                         TO(CLAIM_QUEUEING) | TO(CLAIM_READING_HOLD) | TO(CLAIM_HELD_BACK) |
                         TO(CLAIM_UNDOING),
    [CLAIM_HELD_BACK] = TO(CLAIM_CONFIRMING) | TO(CLAIM_COUNTING) | TO(CLAIM_RELEASING),
    [CLAIM_QUEUEING] = TO(CLAIM_RETRYING),
    [CLAIM_QUEUED] = TO(CLAIM_RETRYING) | TO(CLAIM_RELEASING),
    [CLAIM_RETRYING] = TO(CLAIM_HELD) | TO(CLAIM_QUEUED) | TO(CLAIM_CHECKING),
    [CLAIM_HELD] = TO(CLAIM_RELEASING),
    [CLAIM_RELEASING] = TO(CLAIM_HELD) | TO(CLAIM_UNDOING),
};

void sql_claim_move_to(struct sql_claim *c, enum claim_state state)
{
    assert(state == CLAIM_IDLE || transitions[c->state] & TO(state));
    c->state = state;
}

/* ---- on a session ---- */

void sql_claim_join(struct sql_claim *c, struct session *session)
{
    struct sql_session *base = base_of(session);
    c->session = session;
    claim_of(c)->session = session;
    c->next = base->claims;
    c->link = &base->claims;
    if (c->next)
        c->next->link = &c->next;
    base->claims = c;
}

void sql_claim_leave(struct sql_claim *c)
{
    if (!c->session)
        return;
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    c->session = NULL;
    claim_of(c)->session = NULL;
}

/* ---- beginning and ending ---- */

static void note(struct sql_claim *c, bool holds)
{
    const struct sql_database *database = pool_of_claim(c)->database;
    if (database->note)
        database->note(c, holds);
}

bool sql_claim_begin(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct pool *pool = pool_of_claim(c);
    struct stile_error err;
    if (loop_reserve(pool->engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        claim->engine->events->failed(claim, &err);
        return false;
    }
    sql_claim_move_to(c, CLAIM_STARTING);
    c->withdrawn = c->loss_reported = false;
    c->token = 0;
    c->begun_ns = loop_lately(pool->engine->loop);
    c->why.status = STILE_OK;
    pool->n_active++;
    if (pool->ttl_ns < claim->ttl_ns)
        pool->ttl_ns = claim->ttl_ns;
    return true;
}

uint64_t sql_claim_waited_ms(struct sql_claim *c)
{
    return (loop_now(claim_of(c)->engine->loop) - c->begun_ns) / NS_PER_MS;
}

void sql_claim_retire(struct sql_claim *c)
{
    struct pool *pool = pool_of_claim(c);
    note(c, false);
    sql_claim_leave(c);
    if (c->state == CLAIM_IDLE)
        return;
    loop_disarm(pool->engine->loop, &c->timer);
    loop_unreserve(pool->engine->loop, 1);
    sql_claim_move_to(c, CLAIM_IDLE);
    if (--pool->n_active == 0)
        sql_pool_sweep_later(pool);
}

/* Nothing is left of it in the server. */
void sql_claim_fail(struct sql_claim *c, const struct stile_error *err)
{
    struct claim *claim = claim_of(c);
    struct stile_error why = *err;
    sql_claim_retire(c);
    claim->engine->events->failed(claim, &why);
}

void sql_claim_busy(struct sql_claim *c, uint64_t hint_ns)
{
    struct claim *claim = claim_of(c);
    sql_claim_retire(c);
    claim->engine->events->busy(claim, hint_ns);
}

void sql_claim_not_taken(struct sql_claim *c)
{
    uint64_t hint_ns = c->token * NS_PER_MS;
    struct stile_error why = c->why;
    c->token = 0;
    if (c->withdrawn)
        sql_claim_withdraw(c, false);
    else if (why.status)
        sql_claim_fail(c, &why);
    else if (claim_of(c)->wait)
        pool_of_claim(c)->database->wait(c);
    else
        sql_claim_busy(c, hint_ns);
}

/* The claim was alone on its session, which may still have something of it: the session is
 * closed. */
void sql_claim_abandon(struct sql_claim *c, const struct stile_error *err)
{
    struct session *session = c->session;
    struct stile_error why = *err;
    sql_claim_leave(c);
    if (session && !sql_session_is_over(session))
        sql_pool_close(session);
    if (c->withdrawn)
        sql_claim_withdraw(c, false);
    else
        sql_claim_fail(c, &why);
}

/* ---- granted ---- */

void sql_claim_grant(struct sql_claim *c, uint64_t token, uint64_t sent_ns)
{
    struct claim *claim = claim_of(c);
    sql_claim_move_to(c, CLAIM_HELD);
    c->token = token;
    note(c, true);
    claim->engine->events->granted(claim, token, sent_ns, base_of(c->session)->lease_ns);
}

void sql_claim_confirmed(struct sql_claim *c, uint64_t sent_ns, const struct stile_error *err)
{
    if (err)
        sql_claim_abandon(c, err);
    else if (c->withdrawn)
        sql_claim_withdraw(c, true);
    else
        sql_claim_grant(c, c->token, sent_ns);
}

/* ---- loss ---- */

void sql_claim_lose(struct sql_claim *c, const struct stile_error *why)
{
    struct claim *claim = claim_of(c);
    struct stile_error err = *why;
    err.status = STILE_LOST;
    note(c, false);
    c->loss_reported = true;
    claim->engine->events->lost(claim, &err);
}

/* Its requests have been answered already. A claim that had none under way is notified here. */
void sql_claim_session_ended(struct session *session, const struct stile_error *why)
{
    struct stile_error err = *why;
    while (base_of(session)->claims) {
        struct sql_claim *c = base_of(session)->claims;
        enum claim_state state = c->state;
        sql_claim_leave(c);
        if (state == CLAIM_COUNTING)
            sql_pool_forget(base_of(session)->pool, c);
        if (state == CLAIM_HELD) {
            error_wrap(&err, err.status, "the session that held it has ended");
            sql_claim_lose(c, &err);
            err = *why;
        } else if (state == CLAIM_COUNTING && c->withdrawn) {
            sql_claim_released(c, NULL);
        } else if (state == CLAIM_HELD_BACK || state == CLAIM_COUNTING || state == CLAIM_QUEUED) {
            sql_claim_fail(c, &err);
        }
    }
}

/* ---- releasing: giving back, withdrawing, clearing away ---- */

void sql_claim_released(struct sql_claim *c, const struct stile_error *err)
{
    struct claim *claim = claim_of(c);
    struct session *session = c->session;
    sql_claim_retire(c);
    if (session)
        sql_pool_return(session);
    claim->engine->events->released(claim, err);
}

void sql_claim_release_answered(struct sql_claim *c, bool ours, const struct stile_error *err)
{
    struct stile_error lost;
    bool over = !c->session || !sql_session_is_up(c->session);
    if (ours || c->withdrawn || c->loss_reported) {
        sql_claim_released(c, NULL);
    } else if (err && !over) { /* still held: core releases it again */
        sql_claim_move_to(c, CLAIM_HELD);
        claim_of(c)->engine->events->released(claim_of(c), err);
    } else { /* the session may have ended before the server read this */
        error_set(&lost, STILE_LOST, 0, "%s", err ? err->message : "the lock was no longer held");
        sql_claim_released(c, &lost);
    }
}

void sql_claim_release_unsent(struct sql_claim *c, const struct stile_error *err)
{
    if (!c->session || !sql_session_is_up(c->session)) {
        sql_claim_release_answered(c, false, err);
        return;
    }
    sql_claim_move_to(c, CLAIM_HELD);
    claim_of(c)->engine->events->released(claim_of(c), err);
}

void sql_claim_withdraw(struct sql_claim *c, bool there)
{
    if (!there || !c->session || !sql_session_is_up(c->session))
        sql_claim_released(c, NULL);
    else
        pool_of_claim(c)->database->clear(c);
}

/* ---- leaving the server's queue ---- */

/* If the stop failed, the statement had ended already, or the release's timer ends the session. */
void sql_claim_stopped(struct session *session)
{
    struct sql_session *base = base_of(session);
    base->pending_stops--;
    if (!base->claims)
        sql_pool_return(session);
}

/* What is left in the session ends when the server finds the connection closed. */
static void cut(struct sql_claim *c)
{
    struct session *session = c->session;
    sql_claim_leave(c);
    sql_pool_close(session);
    sql_claim_released(c, NULL);
}

static void out_of_patience(struct timer *timer)
{
    cut(sql_claim_of_timer(timer));
}

static void stop(struct sql_claim *c)
{
    struct session *session = c->session;
    struct loop *loop = claim_of(c)->engine->loop;
    if (!sql_session_is_up(session) || base_of(session)->pool->database->stop(session)) {
        cut(c);
        return;
    }
    base_of(session)->pending_stops++;
    c->timer.fn = out_of_patience;
    loop_arm(loop, &c->timer, loop_now(loop) + RELEASE_PATIENCE_NS);
}

void sql_claim_release(struct engine *engine, struct claim *claim)
{
    struct sql_claim *c = sql_claim_of(claim);
    enum claim_state state = c->state;
    if (state != CLAIM_IDLE)
        loop_disarm(engine->loop, &c->timer);
    c->withdrawn = c->withdrawn || state != CLAIM_HELD;
    c->why.status = STILE_OK;
    if (state == CLAIM_IDLE || !c->session) {
        sql_claim_released(c, NULL);
        return;
    }
    if (state == CLAIM_HELD) {
        sql_claim_move_to(c, CLAIM_RELEASING);
        pool_of_claim(c)->database->give_back(c);
    } else if (state == CLAIM_HELD_BACK || state == CLAIM_QUEUED) {
        sql_claim_move_to(c, CLAIM_RELEASING);
        sql_claim_withdraw(c, true);
    } else if (state == CLAIM_WAITING) {
        sql_claim_move_to(c, CLAIM_RELEASING);
        stop(c);
    } /* else a request is under way, and its answer leads to sql_claim_withdraw() */
}
