/* Leaving: giving back, withdrawing, clearing away. */
#include <inttypes.h>
#include <stdio.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"
#include "mutant.h"

#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)

void release_left(struct pg_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct session *session = part->session;
    part_retire(part);
    if (part->crowd)
        part->left_ns = loop_now(claim->engine->loop);
    if (session)
        pool_give(session);
    claim->engine->events->released(claim, err);
}

static void unlock(struct pg_claim *part);

static void on_unlocked(void *data, const struct answer *a)
{
    struct pg_claim *part = data;
    struct stile_error lost;
    bool ours = !a->err && PQntuples(a->result) == 1 && PQgetvalue(a->result, 0, 0)[0] == 't';
    bool over = !part->session || part->session->state != UP;
    if (ours || part->withdrawn || part->told) {
        release_left(part, NULL);
    } else if (a->err && !over &&
               part->token) { /* its row could not be told: what is held must go */
        part->token = 0;
        unlock(part);
    } else if (a->err && !over) {
        release_left(part, a->err);
    } else { /* a session that ends may have done so before this was read */
        error_set(&lost, STILE_LOST, 0, "%s",
                  a->err ? a->err->message : "it was not ours any more");
        release_left(part, &lost);
    }
}

static bool is_row(struct pg_claim *part)
{
    return pg_of_part(part)->options.mode == MODE_ROW;
}

/* A session of one claim is cleared of everything; a cancel may hit this instead of the wait. */
static void clear(struct pg_claim *part);

static void on_cleared(void *data, const struct answer *a)
{
    struct pg_claim *part = data;
    if (a->err && part->session && part->session->state == UP)
        clear(part);
    else
        release_left(part, NULL);
}

static void clear(struct pg_claim *part)
{
    if (is_row(part))
        rows_withdraw(part);
    else if (session_send(part->session, &sql_unlock_all, NULL, 0, on_cleared, part, NULL))
        release_left(part, NULL);
}

/* With a hold or a delay in its row, the row is told first. */
static void unlock(struct pg_claim *part)
{
    struct claim *claim = claim_of(part);
    struct pg *pg = pg_of_part(part);
    struct stile_error err;
    char token[24];
    if (is_row(part)) {
        rows_give(part);
        return;
    }
    bool kept = !pg->bare && (claim->hold_ns || claim->delay_ns) && part->token;
    bool unused = claim->unused || part->withdrawn;
    const char *key = part->key.form == KEY_HASH ? part->stored : part->key.number;
    const char *values[] = {key, part->stored, token, unused ? "t" : "f"};
    if (kept)
        snprintf(token, sizeof token, "%" PRIu64, part->token);
    enum sql kind = kept ? SQL_LET_GO : SQL_UNLOCK;
    const struct statement *statement =
        sql_for(kind, &part->key, claim->mode == STILE_SHARED, pg->bare);
    if (session_send(part->session, statement, values, kept ? 4 : 1, on_unlocked, part, &err))
        release_left(part, &err);
}

void release_go_on(struct pg_claim *part, bool there)
{
    if (!there || !part->session || part->session->state != UP)
        release_left(part, NULL);
    else if (part->session == pg_of_part(part)->shared || part->token)
        unlock(part);
    else
        clear(part);
}

/* ---- out of the server's queue ---- */

static void on_cancelled(void *data, const struct answer *a)
{
    struct session *session = data;
    (void)a;
    session->cancels--;
    if (!session->claims)
        pool_give(session);
}

/* Whatever is left in it ends when the server finds the connection closed. */
static void cut(struct pg_claim *part)
{
    struct session *session = part->session;
    part_leave(part);
    pool_close(session);
    release_left(part, NULL);
}

static void out_of_patience(struct timer *timer)
{
    cut((struct pg_claim *)((char *)timer - offsetof(struct pg_claim, timer)));
}

static void cancel(struct pg_claim *part)
{
    struct pg *pg = pg_of_part(part);
    struct session *session = part->session;
    struct loop *loop = pg->engine.loop;
    char backend[16];
    const char *values[] = {backend};
    snprintf(backend, sizeof backend, "%d", session->backend);
    if (session->state != UP || !pg->shared || pg->shared->state != UP ||
        session_send(pg->shared, &sql_cancel, values, 1, on_cancelled, session, NULL)) {
        cut(part);
        return;
    }
    session->cancels++;
    part->timer.fn = out_of_patience;
    loop_arm(loop, &part->timer, loop_now(loop) + LEAVE_PATIENCE_NS);
}

void claims_release(struct engine *engine, struct claim *claim)
{
    struct pg_claim *part = part_of(claim);
    enum standing standing = part->standing;
    if (part->has_timer)
        loop_disarm(engine->loop, &part->timer);
    part->withdrawn = standing != HOLDING;
    part->why.status = STILE_OK;
    if (standing == NOWHERE || !part->session) {
        release_left(part, NULL);
        return;
    }
    if (standing == HOLDING) {
        part->standing = LEAVING;
        unlock(part);
    } else if (standing == SITTING) {
        part->standing = LEAVING;
        clear(part);
    } else if (standing == IN_LINE) {
        part->standing = LEAVING;
        cancel(part);
    } /* else an answer is to come, and release_go_on() with it */
}
