/* mode=row: SELECT ... FOR UPDATE on a row of our own, in a transaction that is open for as long as
 * the lock is held.
 *
 * Each claim has a session of its own, where it opens a transaction and locks the row. Who waits
 * for that stands in line for a lock of the server's first (GET_LOCK), and only the first in the
 * line waits for the row, a second at a time: while it waits for a row the server does not notice
 * that a process has died, and the line would end there. The token is drawn by the session that all
 * share, which commits it: drawn in the open transaction it would be rolled back with it, and given
 * again. Then the claim's own session is asked once more: that it answers proves that the row was
 * ours when the token was drawn. In the same breath it marks itself with a lock of its own
 * (GET_LOCK), by which others see which claims are alive. */
#include <stdlib.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"

/* A victim of a deadlock asks again, so often; then it is no bad luck any more. */
#define UNDONE_MAX 8

static void count(struct part *part);
static void take(struct part *part);

static bool is_up(const struct part *part)
{
    return part->session && part->session->state == UP;
}

/* ---- the end of its transaction ---- */

static void end_with(struct part *part, answer_fn *fn)
{
    struct stile_error err;
    if (session_send(part->session, sql_row_end(part), fn, part, &err))
        part_give_up(part, &err);
}

/* What can't be ended ends with its session. */
static void ensure_ended(struct part *part, const struct answer *a)
{
    struct session *session = part->session;
    if (!a->err || !is_up(part))
        return;
    part_leave(part);
    pool_close(session);
}

static void on_withdrawn(void *data, const struct answer *a)
{
    ensure_ended(data, a);
    release_left(data, NULL);
}

void rows_withdraw(struct part *part)
{
    end_with(part, on_withdrawn);
}

static void on_given(void *data, const struct answer *a)
{
    struct part *part = data;
    struct stile_error lost;
    bool over = a->err && !is_up(part); /* perhaps before this was read */
    if (over)
        error_set(&lost, STILE_LOST, 0, "%s", a->err->message);
    ensure_ended(part, a);
    release_left(part, over && !part->told ? &lost : NULL);
}

/* What it could not be told keeps the name back for longer, not shorter. */
static void on_let_go(void *data, const struct answer *a)
{
    struct part *part = data;
    (void)a;
    if (is_up(part))
        end_with(part, on_given);
    else
        release_left(part, NULL);
}

/* With a hold or a delay in the name's row, that is told first. */
void rows_give(struct part *part)
{
    struct claim *claim = claim_of(part);
    struct my *my = my_of_part(part);
    bool kept = claim->hold_ns || claim->delay_ns;
    if (!kept || !my->pool.shared ||
        session_send(my->pool.shared, sql_row_let_go(part, claim->unused), on_let_go, part, NULL))
        end_with(part, on_given);
}

/* ---- not yet ---- */

static void on_stepped_back(void *data, const struct answer *a)
{
    struct part *part = data;
    struct session *session = part->session;
    ensure_ended(part, a);
    if (part->withdrawn) {
        release_left(part, NULL);
    } else if (a->err) {
        part_fail(part, a->err);
    } else if (claim_of(part)->wait) {
        take(part);
    } else {
        part_turn_away(part, part->token * NS_PER_MS);
        pool_give(session);
    }
}

static void step_back(struct part *part, uint64_t hint_ms)
{
    mine(part)->in_line = false;
    part->standing = STEPPING;
    part->token = hint_ms;
    end_with(part, on_stepped_back);
}

/* ---- the token ---- */

static enum stile_status mark(struct part *part, answer_fn *fn, struct stile_error *err)
{
    struct session *session = part->session;
    session->seat.ttl_told_ns = my_of_part(part)->pool.ttl_ns;
    return session_send(session, sql_row_mark(part, session->seat.ttl_told_ns), fn, part, err);
}

static void look_again(struct timer *timer)
{
    struct part *part = part_of_timer(timer);
    if (part->standing == SITTING)
        count(part);
}

static void on_sitting(void *data, const struct answer *a)
{
    struct part *part = data;
    if (a->err && part->standing == SITTING)
        part_give_up(part, a->err);
}

/* It is ours in the server, and kept back from everybody. */
static void sit(struct part *part, uint64_t ms)
{
    struct my *my = my_of_part(part);
    struct loop *loop = my->engine.loop;
    uint64_t pause = (ms + 1) * NS_PER_MS, most = my->pool.ttl_ns / 3;
    struct stile_error err;
    part->standing = SITTING;
    part->timer.fn = look_again;
    loop_arm(loop, &part->timer, loop_now(loop) + (pause < most ? pause : most));
    if (mark(part, on_sitting, &err))
        part_give_up(part, &err);
}

static void on_marked(void *data, const struct answer *a)
{
    part_confirmed(data, a->sent_ns, a->err);
}

static void hear_verdict(struct part *part, const char *text)
{
    struct stile_error err;
    uint64_t number = *text ? strtoull(text + 1, NULL, 10) : 0;
    if (*text == 'h' && claim_of(part)->wait) {
        sit(part, number);
    } else if (*text == 'h') {
        step_back(part, number);
    } else if (*text == 'g') {
        part->token = number;
        part->standing = CONFIRMING;
        if (mark(part, on_marked, &err))
            part_give_up(part, &err);
    } else {
        error_set(&err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        part_give_up(part, &err);
    }
}

static void on_counted(void *data, const struct answer *a)
{
    struct part *part = data;
    const char *text = a->err ? NULL : outcome_text(&a->outcomes[0], 0);
    if (part->withdrawn) {
        part->token = text && *text == 'g' ? strtoull(text + 1, NULL, 10) : 0;
        claim_of(part)->unused = true;
        part->standing = LEAVING;
        release_go_on(part, true);
    } else if (a->err) {
        part_give_up(part, a->err);
    } else {
        hear_verdict(part, text ? text : "");
    }
}

static void count(struct part *part)
{
    struct session *shared;
    struct stile_error err;
    part->standing = COUNTING;
    if (my_shared(&shared, my_of_part(part), &err) ||
        session_send(shared, sql_row_grant(part), on_counted, part, &err))
        part_give_up(part, &err);
}

/* ---- the row ---- */

static void on_taken(void *data, const struct answer *a)
{
    struct part *part = data;
    bool refused = a->err && (fault_is_undone(a->code) || fault_is_busy(a->code));
    if (part->session)
        part->session->seat.waits = false;
    if (part->withdrawn && is_up(part))
        rows_withdraw(part);
    else if (a->err && fault_is_busy(a->code) && is_up(part) && claim_of(part)->wait)
        take(part); /* it stays the first in the line */
    else if (refused && is_up(part) && (!claim_of(part)->wait || mine(part)->undone++ < UNDONE_MAX))
        step_back(part, 0);
    else if (a->err)
        part_give_up(part, a->err);
    else if (!outcome_text(answer_last(a), 0))
        step_back(part, 0); /* it was cleared away while we waited */
    else
        count(part);
}

static void take(struct part *part)
{
    struct session *session = part->session;
    bool wait = claim_of(part)->wait;
    struct stile_error err;
    part->standing = wait ? IN_LINE : ASKED;
    session->seat.waits = wait;
    char *sql = sql_row_take(part, ttl_to_tell(session));
    mine(part)->in_line = wait;
    if (session_send(session, sql, on_taken, part, &err))
        part_give_up(part, &err);
}

void rows_claim(struct engine *engine, struct claim *claim)
{
    struct part *part = part_of(claim);
    struct session *session;
    struct stile_error err;
    if (!claims_begin(part))
        return;
    mine(part)->undone = 0;
    mine(part)->in_line = false;
    if (pool_take(&session, pool_of(engine), &err)) {
        part_fail(part, &err);
        return;
    }
    part_join(part, session);
    take(part);
}
