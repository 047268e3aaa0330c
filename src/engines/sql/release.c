/* Leaving: giving back, withdrawing, clearing away. */
#include "engines/sql/part.h"
#include "mutant.h"

#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)

void release_left(struct part *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct session *session = part->session;
    part_retire(part);
    if (session)
        pool_give(session);
    claim->engine->events->released(claim, err);
}

void release_answered(struct part *part, bool ours, const struct stile_error *err)
{
    struct stile_error lost;
    bool over = !part->session || !session_is_up(part->session);
    if (ours || part->withdrawn || part->told) {
        release_left(part, NULL);
    } else if (err && !over) { /* still ours: core asks again */
        part->standing = HOLDING;
        claim_of(part)->engine->events->released(claim_of(part), err);
    } else { /* a session that ends may have done so before this was read */
        error_set(&lost, STILE_LOST, 0, "%s", err ? err->message : "it was not ours any more");
        release_left(part, &lost);
    }
}

/* ---- out of the server's queue ---- */

/* If it could not be stopped it had ended by itself, or our patience will end it. */
void release_stopped(struct session *session)
{
    struct seat *seat = seat_of(session);
    seat->stops--;
    if (!seat->claims)
        pool_give(session);
}

/* Whatever is left in it ends when the server finds the connection closed. */
static void cut(struct part *part)
{
    struct session *session = part->session;
    part_leave(part);
    pool_close(session);
    release_left(part, NULL);
}

static void out_of_patience(struct timer *timer)
{
    cut(part_of_timer(timer));
}

static void stop(struct part *part)
{
    struct session *session = part->session;
    struct loop *loop = claim_of(part)->engine->loop;
#ifdef MUTANT_SQL_WAIT_STAYS
    session_forget(session, part);
    release_left(part, NULL);
    return;
#endif
    if (!session_is_up(session) || session_stop(session)) {
        cut(part);
        return;
    }
    seat_of(session)->stops++;
    part->timer.fn = out_of_patience;
    loop_arm(loop, &part->timer, loop_now(loop) + LEAVE_PATIENCE_NS);
}

void claims_release(struct engine *engine, struct claim *claim)
{
    struct part *part = part_of(claim);
    enum standing standing = part->standing;
    if (part->has_timer)
        loop_disarm(engine->loop, &part->timer);
    part->withdrawn = standing != HOLDING;
    part->why.status = STILE_OK;
    if (standing == NOWHERE || !part->session) {
        release_left(part, NULL);
        return;
    }
    if (standing == HOLDING || standing == SITTING || standing == PARKED) {
        part->standing = LEAVING;
        release_give(part);
    } else if (standing == IN_LINE) {
        part->standing = LEAVING;
        stop(part);
    } /* else an answer is to come, and release_go_on() with it */
}
