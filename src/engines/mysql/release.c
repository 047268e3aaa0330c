/* Leaving: giving back, withdrawing, clearing away. */
#include <string.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"
#include "mutant.h"

#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)

static void unlock(struct my_claim *part);

void release_left(struct my_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct session *session = part->session;
    part_retire(part);
    if (session)
        pool_give(session);
    claim->engine->events->released(claim, err);
}

/* A KILL may hit this instead of the wait that it was meant for, and what is written into the row
 * may fail: it is then given back without that. */
static bool try_again(struct my_claim *part, const struct answer *a)
{
    if (!a->err || !part->session || part->session->state != UP)
        return false;
    if (part->plainly && !fault_is_kill(a->code))
        return false;
    part->plainly = true;
    unlock(part);
    return true;
}

static void on_unlocked(void *data, const struct answer *a)
{
    struct my_claim *part = data;
    struct stile_error lost;
    const char *text = a->err ? NULL : outcome_text(answer_last(a), 0);
    bool ours = text && strcmp(text, "1") == 0;
    bool over = !part->session || part->session->state != UP;
    if (try_again(part, a))
        return;
    if (ours || part->withdrawn || part->told) {
        release_left(part, NULL);
    } else if (a->err && !over) {
        release_left(part, a->err);
    } else { /* a session that ends may have done so before this was read */
        error_set(&lost, STILE_LOST, 0, "%s",
                  a->err ? a->err->message : "it was not ours any more");
        release_left(part, &lost);
    }
}

/* With a hold or a delay in its row, the row is told first. */
static void unlock(struct my_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    if (my_of_part(part)->options.mode == MODE_ROW) {
        (part->withdrawn ? rows_withdraw : rows_give)(part);
        return;
    }
    bool kept = !my_of_part(part)->bare && (claim->hold_ns || claim->delay_ns) && !part->plainly;
    char *sql = kept ? sql_let_go(part, claim->unused || part->withdrawn) : sql_unlock(part);
    if (session_send(part->session, sql, on_unlocked, part, &err))
        release_left(part, &err);
}

void release_go_on(struct my_claim *part, bool there)
{
    if (!there || !part->session || part->session->state != UP)
        release_left(part, NULL);
    else
        unlock(part);
}

/* ---- out of the server's queue ---- */

static void on_killed(void *data, const struct answer *a)
{
    struct session *session = data;
    (void)a; /* it had ended by itself, or our patience will end it */
    session->kills--;
    if (!session->claims)
        pool_give(session);
}

/* Whatever is left in it ends when the server finds the connection closed. */
static void cut(struct my_claim *part)
{
    struct session *session = part->session;
    part_leave(part);
    pool_close(session);
    release_left(part, NULL);
}

static void out_of_patience(struct timer *timer)
{
    cut((struct my_claim *)((char *)timer - offsetof(struct my_claim, timer)));
}

static void kill_wait(struct my_claim *part)
{
    struct my *my = my_of_part(part);
    struct session *session = part->session;
    struct loop *loop = my->engine.loop;
#ifdef MUTANT_MYSQL_WAIT_STAYS
    session_forget(session, part);
    release_left(part, NULL);
    return;
#endif
    if (session->state != UP || !my->shared || my->shared->state != UP ||
        session_send(my->shared, sql_kill(session->backend, false), on_killed, session, NULL)) {
        cut(part);
        return;
    }
    session->kills++;
    part->timer.fn = out_of_patience;
    loop_arm(loop, &part->timer, loop_now(loop) + LEAVE_PATIENCE_NS);
}

void claims_release(struct engine *engine, struct claim *claim)
{
    struct my_claim *part = part_of(claim);
    enum standing standing = part->standing;
    if (part->has_timer)
        loop_disarm(engine->loop, &part->timer);
    part->withdrawn = standing != HOLDING;
    part->why.status = STILE_OK;
    if (standing == NOWHERE || !part->session) {
        release_left(part, NULL);
        return;
    }
    if (standing == HOLDING || standing == SITTING) {
        part->standing = LEAVING;
        unlock(part);
    } else if (standing == IN_LINE) {
        part->standing = LEAVING;
        kill_wait(part);
    } /* else an answer is to come, and release_go_on() with it */
}
