/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Being granted: one try on the shared session, then a wait inside the server on another. */
#include <mysqld_error.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"
#include "engines/mysql/tokens.h"
#include "engines/sql/inspect.h"

/* `stile break` on another client may end a hold, without a notification. */
#define HELD_BACK_MAX_MS 500

/* A claim that waited for longer than a statement takes met others. */
#define CONTENDED_NS (NS_PER_MS / 4)

/* An epoch that begins, and one that is read after it. More would be others' doing. */
#define DRAWS_MAX 4

static void confirm(struct sql_claim *c);
static void step_back(struct sql_claim *c, uint64_t hint_ms);

/* ---- answers ---- */

/* The last statement is the row's, or without a schema the lock's own. */
static enum draw read_grant(struct sql_claim *c, const struct answer *a, uint64_t *token)
{
    const struct my *my = my_of_claim(c);
    const struct outcome *last = answer_last(a);
    const char *text = maria_outcome_text(last, 0);
    *token = 0;
    if (my->epochs)
        return maria_draw_read(c, a, token);
    if (my->bare)
        return text && strcmp(text, "1") == 0 ? DRAW_GRANTED : DRAW_TAKEN;
    if (last->affected == 0)
        return DRAW_TAKEN;
    *token = last->insert_id;
    return *token ? DRAW_GRANTED : DRAW_HELD_BACK;
}

/* ---- held back by a hold ---- */

static uint64_t hold_left_ms(const struct answer *a)
{
    const char *text = a->err ? NULL : maria_outcome_text(answer_last(a), 0);
    uint64_t ms = text ? strtoull(text, NULL, 10) : 0;
    return ms ? ms : 1;
}

static enum stile_status read_hold(struct sql_claim *c, answer_fn *fn, struct stile_error *err)
{
    sql_claim_move_to(c, CLAIM_READING_HOLD);
    return maria_send(c->session, maria_sql_hold_left(c), fn, c, err);
}

/* ---- drawing ---- */

static char *words_of_try(struct sql_claim *c, uint64_t ttl_ns)
{
    return my_of_claim(c)->epochs ? maria_draw_try(c, ttl_ns) : maria_sql_try(c, ttl_ns);
}

static char *words_of_wait(struct sql_claim *c, uint64_t ttl_ns)
{
    return my_of_claim(c)->epochs ? maria_draw_wait(c, ttl_ns) : maria_sql_lock(c, ttl_ns);
}

static char *words_of_grant(struct sql_claim *c)
{
    return my_of_claim(c)->epochs ? maria_draw_again(c, false) : maria_sql_grant(c);
}

static bool is_shared(const struct sql_claim *c)
{
    return c->session && c->session == c->session->my->pool.shared;
}

/* The lock may be ours in the server. On the shared session it is given back, with anything else
 * that is left. */
static void give_up(struct sql_claim *c, const struct stile_error *err)
{
    if (!is_shared(c)) {
        sql_claim_abandon(c, err);
        return;
    }
    c->why = *err;
    step_back(c, 0);
}

/* `stile setup` has run since this client was opened: rows count no longer. */
static bool has_changed(struct sql_claim *c, const struct answer *a)
{
    struct my *my = my_of_claim(c);
    if (!a->err || a->code != ER_BAD_FIELD_ERROR || my->epochs || my->bare ||
        c->session->base.state != UP)
        return false;
    my->epochs = true;
    return true;
}

static void on_row_written(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    if (a->err)
        give_up(c, a->err);
    else if (c->withdrawn)
        sql_claim_withdraw(c, true);
    else
        sql_claim_grant(c, c->token, a->sent_ns);
}

/* A hold, or a delay, has to be on disk before the grant is reported. */
static bool keeps_back(struct sql_claim *c)
{
    const struct claim *claim = claim_of(c);
    return my_of_claim(c)->epochs && (claim->hold_ns || claim->delay_ns);
}

static void granted(struct sql_claim *c, uint64_t token, uint64_t sent_ns)
{
    struct stile_error err;
    c->token = token;
    if (!keeps_back(c)) {
        sql_claim_grant(c, token, sent_ns);
        return;
    }
    sql_claim_move_to(c, CLAIM_CONFIRMING);
    if (maria_send(c->session, maria_describe_hold(c), on_row_written, c, &err))
        give_up(c, &err);
}

static void on_drawn(void *data, const struct answer *a);

static void draw_again(struct sql_claim *c, bool begin)
{
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_CONFIRMING);
    if (++my_claim_of(c)->draws > DRAWS_MAX) {
        error_set(&err, STILE_UNREACHABLE, 0, "epochs of tokens end as soon as they begin");
        give_up(c, &err);
    } else if (maria_send(c->session, maria_draw_again(c, begin), on_drawn, c, &err)) {
        give_up(c, &err);
    }
}

/* ---- on a session of its own ---- */

static void on_hold_over(struct timer *timer)
{
    struct sql_claim *c = sql_claim_of_timer(timer);
    if (c->state == CLAIM_HELD_BACK)
        confirm(c);
}

/* The lock is ours in the server, but a hold keeps the name back from everyone. */
static void on_hold_read(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct loop *loop = claim_of(c)->engine->loop;
    uint64_t ms = hold_left_ms(a);
    if (a->err) {
        sql_claim_abandon(c, a->err);
    } else if (c->withdrawn) {
        sql_claim_withdraw(c, true);
    } else {
        sql_claim_move_to(c, CLAIM_HELD_BACK);
        c->timer.fn = on_hold_over;
        ms = ms < HELD_BACK_MAX_MS ? ms + 1 : HELD_BACK_MAX_MS;
        loop_arm(loop, &c->timer, loop_now(loop) + ms * NS_PER_MS);
    }
}

static void on_hold_read_trying(void *data, const struct answer *a);

/* Our lock, in the server. */
static void on_drawn(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error err;
    uint64_t token = 0;
    if (has_changed(c, a)) {
        confirm(c);
        return;
    }
    enum draw draw = a->err ? DRAW_TAKEN : read_grant(c, a, &token);
    if (a->err) {
        give_up(c, a->err);
    } else if (draw == DRAW_TAKEN) {
        error_set(&err, STILE_UNREACHABLE, 0,
                  "the server has given the granted lock to another client");
        give_up(c, &err);
    } else if (c->withdrawn) {
        c->token = token;
        sql_claim_withdraw(c, true);
    } else if (draw == DRAW_GRANTED) {
        granted(c, token, a->sent_ns);
    } else if (draw != DRAW_HELD_BACK) {
        draw_again(c, draw == DRAW_BEGIN);
    } else if (read_hold(c, is_shared(c) ? on_hold_read_trying : on_hold_read, &err)) {
        give_up(c, &err);
    }
}

/* After the hold. The statement also proves that the lock is still this session's. */
static void confirm(struct sql_claim *c)
{
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_CONFIRMING);
    if (maria_send(c->session, words_of_grant(c), on_drawn, c, &err))
        sql_claim_abandon(c, &err);
}

static void on_alive(void *data, const struct answer *a)
{
    struct stile_error err;
    if (!a->err && maria_lease_check_proof(a, &err))
        sql_claim_confirmed(data, a->sent_ns, &err);
    else
        sql_claim_confirmed(data, a->sent_ns, a->err);
}

/* The lease counts from before a request that the server has read. After a long wait that is too
 * long ago, so the session is asked once more. */
static void grant_after_wait(struct sql_claim *c, uint64_t token, uint64_t sent_ns)
{
    struct session *session = c->session;
    uint64_t waited_ns = loop_now(session->base.loop) - sent_ns;
    struct stile_error err;
    c->token = token;
    my_claim_of(c)->contended = waited_ns > CONTENDED_NS;
    if (keeps_back(c) || waited_ns < session->base.lease_ns / 8) {
        granted(c, token, sent_ns);
        return;
    }
    sql_claim_move_to(c, CLAIM_CONFIRMING);
    if (maria_send(session, maria_sql_prove(session, session->base.lease_ns), on_alive, c, &err))
        sql_claim_abandon(c, &err);
}

static void on_locked(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error err;
    uint64_t token = 0;
    if (c->session) {
        c->session->base.waits = false;
        my_claim_of(c)->waited_ns = loop_now(c->session->base.loop) - a->sent_ns;
    }
    bool changed = c->session && has_changed(c, a);
    enum draw reply = a->err ? DRAW_TAKEN : read_grant(c, a, &token);
    if (c->withdrawn && c->session && c->session->base.state == UP) {
        sql_claim_withdraw(c, true); /* killed, and perhaps granted before that */
    } else if (changed) {
        confirm(c);
    } else if (a->err || reply == DRAW_TAKEN) {
        error_set(&err, STILE_UNREACHABLE, 0, "the wait was ended in the server");
        sql_claim_abandon(c, a->err ? a->err : &err);
    } else if (reply == DRAW_GRANTED) {
        grant_after_wait(c, token, a->sent_ns);
    } else if (reply != DRAW_HELD_BACK) {
        draw_again(c, reply == DRAW_BEGIN);
    } else if (read_hold(c, on_hold_read, &err)) {
        sql_claim_abandon(c, &err);
    }
}

void maria_claim_wait(struct sql_claim *c)
{
    struct my *my = my_of_claim(c);
    struct session *session;
    struct stile_error err;
    sql_claim_leave(c);
    if (sql_pool_take(&session, &my->pool, &err)) {
        sql_claim_fail(c, &err);
        return;
    }
    sql_claim_join(c, session);
    sql_claim_move_to(c, CLAIM_WAITING);
    my_claim_of(c)->contended = true;
    session->base.waits = true;
    claim_of(c)->engine->events->queued(claim_of(c));
    if (maria_send(session, words_of_wait(c, maria_lease_to_set(session)), on_locked, c, &err))
        sql_claim_abandon(c, &err);
}

/* ---- on the shared session ---- */

static void try(struct sql_claim *c);

static void on_stepped_back(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    (void)a; /* an error here ends the session, and with it the lock */
    if (my_claim_of(c)->changed && !c->withdrawn && c->session) {
        my_claim_of(c)->changed = false;
        try(c);
    } else {
        sql_claim_not_taken(c);
    }
}

/* Gives back what the try may have taken: an error is no proof that nothing was granted. The
 * server knows whose the lock is. */
static void step_back(struct sql_claim *c, uint64_t hint_ms)
{
    struct session *session = c->session;
    bool up = session && session->base.state == UP;
    char *sql = !up ? NULL : my_claim_of(c)->began ? maria_draw_undo(c) : maria_sql_unlock(c);
    sql_claim_move_to(c, CLAIM_UNDOING);
    c->token = hint_ms;
    if (!up || maria_send(session, sql, on_stepped_back, c, NULL))
        sql_claim_not_taken(c);
}

static void on_hold_read_trying(void *data, const struct answer *a)
{
    step_back(data, hold_left_ms(a));
}

static void on_tried(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    uint64_t token = 0;
    if (a->err) {
        my_claim_of(c)->changed = c->session && has_changed(c, a);
        if (!my_claim_of(c)->changed)
            c->why = *a->err;
        step_back(c, 0);
        return;
    }
    enum draw draw = read_grant(c, a, &token);
    switch (draw) {
    case DRAW_TAKEN:
        sql_claim_not_taken(c);
        break;
    case DRAW_HELD_BACK:
        if (c->withdrawn || read_hold(c, on_hold_read_trying, NULL))
            step_back(c, 1);
        break;
    case DRAW_GRANTED:
        c->token = token;
        if (c->withdrawn)
            sql_claim_withdraw(c, true);
        else
            granted(c, token, a->sent_ns);
        break;
    case DRAW_AGAIN:
    case DRAW_BEGIN:
        if (c->withdrawn)
            sql_claim_withdraw(c, true);
        else
            draw_again(c, draw == DRAW_BEGIN);
        break;
    }
}

static void try(struct sql_claim *c)
{
    struct session *shared = c->session;
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_TRYING);
    if (maria_send(shared, words_of_try(c, maria_lease_to_set(shared)), on_tried, c, &err))
        sql_claim_fail(c, &err);
}

bool maria_claim_begin(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    char key[KEY_MAX + 1];
    struct my_claim *mine = my_claim_of(c);
    mine->skip_row = mine->described = mine->describing = mine->began = mine->changed = false;
    mine->draws = 0;
    if (!*c->stored) {
        maria_name_hex(c->stored, claim->name, claim->name_len);
        maria_name_key(key, my_of_claim(c)->mariadb, claim->name, claim->name_len);
        maria_name_hex(my_claim_of(c)->key, key, strlen(key));
    }
    return sql_claim_begin(c);
}

void maria_claim(struct engine *engine, struct claim *claim)
{
    struct sql_claim *c = sql_claim_of(claim);
    struct session *shared;
    struct stile_error err;
    if (!maria_claim_begin(c))
        return;
    if (claim->wait && my_claim_of(c)->contended && sql_pool_has_idle(pool_of(engine))) {
        maria_claim_wait(c); /* a try would most likely fail */
        return;
    }
    my_claim_of(c)->contended = false;
    if (sql_pool_shared(&shared, pool_of(engine), &err)) {
        sql_claim_fail(c, &err);
        return;
    }
    sql_claim_join(c, shared);
    try(c);
}

/* ---- broken by `stile break` ---- */

static bool is_it(struct sql_claim *c, const char *stored)
{
    return c->state == CLAIM_HELD && !c->loss_reported && strcmp(c->stored, stored) == 0;
}

static bool break_in(struct session *session, const char *stored)
{
    struct stile_error err;
    char by[SELF_HOST_MAX + 32];
    struct sql_claim *c = session->base.claims;
    while (c && !is_it(c, stored))
        c = c->next;
    if (!c)
        return false;
    sql_identity_blame(by, &session->my->identity);
    sql_break_blame(&err, by);
    sql_claim_lose(c, &err);
    return true;
}

bool maria_claim_break(struct my *my, uint64_t backend, const char *stored)
{
    if (my->pool.shared && my->pool.shared->base.backend == backend)
        return break_in(my->pool.shared, stored);
    for (struct session *session = my->pool.sessions; session; session = session->base.next) {
        if (session->base.backend == backend)
            return break_in(session, stored);
    }
    return false;
}

/* ---- releasing ---- */

/* A late KILL may hit this statement instead of the wait it was meant for, or the row cannot be
 * written: then the lock is released without writing the row. */
static bool try_again(struct sql_claim *c, const struct answer *a)
{
    if (!a->err || !c->session || c->session->base.state != UP)
        return false;
    if (my_claim_of(c)->skip_row && !maria_error_is_kill(a->code))
        return false;
    my_claim_of(c)->skip_row = true;
    maria_claim_give_back(c);
    return true;
}

static void on_unlocked(void *data, const struct answer *a)
{
    const char *text = a->err ? NULL : maria_outcome_text(answer_last(a), 0);
    if (!try_again(data, a))
        sql_claim_release_answered(data, text && strcmp(text, "1") == 0, a->err);
}

/* A hold or a delay in the name's row is settled first. */
void maria_claim_give_back(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct stile_error err;
    bool has_hold =
        !my_of_claim(c)->bare && (claim->hold_ns || claim->delay_ns) && !my_claim_of(c)->skip_row;
    char *sql =
        has_hold ? maria_sql_end_hold(c, claim->unused || c->withdrawn) : maria_sql_unlock(c);
    if (maria_send(c->session, sql, on_unlocked, c, &err))
        sql_claim_release_unsent(c, &err);
}

static void on_killed(void *data, const struct answer *a)
{
    (void)a;
    sql_claim_stopped(data);
}

enum stile_status maria_session_stop(struct session *session)
{
    struct session *shared = session->my->pool.shared;
    if (!shared || !sql_session_is_up(shared))
        return STILE_UNREACHABLE;
    return maria_send(shared, maria_sql_kill(session->base.backend, false), on_killed, session,
                      NULL);
}
