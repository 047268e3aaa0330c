/* mode=row: SELECT ... FOR UPDATE on a row of the schema, in a transaction that is open for as long
 * as the lock is held.
 *
 * Each claim has a session of its own. There it opens a transaction, leaves a mark (a shared
 * advisory lock that nobody else wants: show finds claims by it) and locks the row. The token is
 * drawn by the session that all share, which commits it: drawn in the open transaction it would be
 * rolled back with it, and given again. Then the claim's own session is asked once more: its
 * transaction being open proves that the row was ours when the token was drawn.
 *
 * The lease is idle_in_transaction_session_timeout. Any error in the transaction ends it, and with
 * it the lock. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"

static void count(struct part *part);
static void on_stepped_back(void *data, const struct answer *a);
static void take(struct part *part);

static bool is_shared(struct part *part)
{
    return claim_of(part)->mode == STILE_SHARED;
}

/* ---- the end of its transaction ---- */

static void end_with(struct part *part, answer_fn *fn)
{
    struct session *session = part->session;
    struct stile_error err;
    session->seat.ttl_told_ns = 0; /* what was set in a transaction that fails is undone with it */
    if (session_send(session, &sql_row_end, NULL, 0, fn, part, &err))
        part_give_up(part, &err);
}

/* What can't be ended ends with its session. */
static bool has_ended(struct part *part, const struct answer *a)
{
    struct session *session = part->session;
    if (!a->err || !session || session->state != UP)
        return !a->err;
    part_leave(part);
    pool_close(session);
    return false;
}

static void on_withdrawn(void *data, const struct answer *a)
{
    has_ended(data, a);
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
    bool ours = has_ended(part, a) && strcmp(PQcmdStatus((PGresult *)a->result), "COMMIT") == 0;
    if (ours || part->told) {
        release_left(part, NULL);
        return;
    }
    error_set(&lost, STILE_LOST, 0, "%s", a->err ? a->err->message : "it was not ours any more");
    release_left(part, &lost);
}

/* What it could not be told keeps the name back for longer, not shorter. */
static void on_let_go(void *data, const struct answer *a)
{
    struct part *part = data;
    (void)a;
    if (part->session)
        end_with(part, on_given);
    else
        release_left(part, NULL);
}

/* With a hold or a delay in the name's row, that is told first. */
void rows_give(struct part *part)
{
    struct claim *claim = claim_of(part);
    struct pg *pg = pg_of_part(part);
    char token[24];
    const char *values[] = {part->stored, token, claim->unused ? "t" : "f"};
    snprintf(token, sizeof token, "%" PRIu64, part->token);
    bool kept = claim->hold_ns || claim->delay_ns;
    if (!kept || !pg->pool.shared ||
        session_send(pg->pool.shared, &sql_row_let_go, values, 3, on_let_go, part, NULL))
        end_with(part, on_given);
}

/* ---- the token ---- */

static void look_again(struct timer *timer)
{
    struct part *part = part_of_timer(timer);
    if (part->standing == SITTING)
        count(part);
}

/* Its session must be heard of meanwhile. */
static void sit(struct part *part, uint64_t ms)
{
    struct pg *pg = pg_of_part(part);
    struct loop *loop = pg->engine.loop;
    uint64_t pause = (ms + 1) * NS_PER_MS, most = pg->pool.ttl_ns / 3;
    struct stile_error err;
    part->standing = SITTING;
    claim_of(part)->engine->events->queued(claim_of(part));
    part->timer.fn = look_again;
    loop_arm(loop, &part->timer, loop_now(loop) + (pause < most ? pause : most));
    if (ttl_tell_is(part->session, pg->pool.ttl_ns, NULL, NULL, &err))
        part_give_up(part, &err);
}

static void on_counted(void *data, const struct answer *a)
{
    struct part *part = data;
    struct stile_error err;
    const char *text = a->err || PQntuples(a->result) != 1 ? "" : PQgetvalue(a->result, 0, 0);
    uint64_t number = *text ? strtoull(text + 1, NULL, 10) : 0;
    if (part->withdrawn) {
        part->standing = LEAVING;
        part->token = *text == 'g' ? number : 0;
        claim_of(part)->unused = true;
        release_go_on(part, true);
    } else if (a->err) {
        part_give_up(part, a->err);
    } else if (*text == 'h' && claim_of(part)->wait) {
        sit(part, number);
    } else if (*text == 'h') {
        part->standing = STEPPING;
        part->token = number;
        end_with(part, on_stepped_back);
    } else if (*text == 'g') {
        part->token = number;
        part->standing = CONFIRMING;
        if (ttl_tell_is(part->session, pg_of_part(part)->pool.ttl_ns, claims_alive, part, &err))
            part_give_up(part, &err);
    } else {
        error_set(&err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        part_give_up(part, &err);
    }
}

static void count(struct part *part)
{
    struct claim *claim = claim_of(part);
    struct pg *pg = pg_of_part(part);
    struct session *shared;
    struct stile_error err;
    char backend[24], hold[24], delay[24];
    snprintf(backend, sizeof backend, "%" PRIu64, part->session->seat.backend);
    const char *values[] = {part->stored,
                            backend,
                            is_shared(part) ? "t" : "f",
                            sql_ms(hold, claim->hold_ns),
                            sql_ms(delay, claim->delay_ns),
                            pg->who.owner,
                            pg->who.host,
                            pg->who.pid,
                            pg->who.command};
    part->standing = COUNTING;
    if (pg_shared(&shared, pg, &err) ||
        session_send(shared, &sql_row_count, values, 9, on_counted, part, &err))
        part_give_up(part, &err);
}

/* ---- the row ---- */

/* Not there: another has it, or it was cleared away while we waited. */
static void on_stepped_back(void *data, const struct answer *a)
{
    struct part *part = data;
    struct session *session = part->session;
    bool ended = has_ended(part, a);
    if (part->withdrawn) {
        release_left(part, NULL);
    } else if (a->err) {
        part_give_up(part, a->err);
    } else if (claim_of(part)->wait) {
        take(part);
    } else {
        part_turn_away(part, part->token * NS_PER_MS);
        if (ended)
            pool_give(session);
    }
}

static void on_taken(void *data, const struct answer *a)
{
    struct part *part = data;
    bool up = part->session && part->session->state == UP;
    if (part->session)
        part->session->seat.waits = false;
    if (part->withdrawn && up) {
        rows_withdraw(part);
    } else if (up && a->err && strcmp(a->sqlstate, "55P03") == 0) {
        part->standing = STEPPING; /* no statement waits for longer: it would keep its snapshot */
        part->token = 0;
        end_with(part, on_stepped_back);
    } else if (a->err) {
        part_give_up(part, a->err);
    } else if (PQntuples(a->result) != 1) {
        part->standing = STEPPING;
        end_with(part, on_stepped_back);
    } else {
        mine(part)->id = strtoll(PQgetvalue(a->result, 0, 0), NULL, 10);
        count(part);
    }
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a; /* the statement that comes after it fails as well */
}

/* All of it in one round trip. The row is made outside of the transaction: who makes it at the same
 * time would have to wait for its end. */
static void take(struct part *part)
{
    struct session *session = part->session;
    bool wait = claim_of(part)->wait;
    const char *name[] = {part->stored};
    struct stile_error err;
    part->standing = wait ? IN_LINE : ASKED;
    if (wait)
        claim_of(part)->engine->events->queued(claim_of(part));
    session->seat.waits = wait;
    if (ttl_tell(session, &err) ||
        session_send(session, &sql_row_make, name, 1, ignore, NULL, &err) ||
        session_send(session, &sql_row_begin, NULL, 0, ignore, NULL, &err) ||
        session_send(session, &sql_row_take[is_shared(part)][wait], name, 1, on_taken, part, &err))
        part_give_up(part, &err);
}

void rows_claim(struct engine *engine, struct claim *claim)
{
    struct part *part = part_of(claim);
    struct session *session;
    struct stile_error err;
    if (!claims_begin(part))
        return;
    mine(part)->key.form = KEY_ONE;
    if (pool_take(&session, pool_of(engine), &err)) {
        part_fail(part, &err);
        return;
    }
    part_join(part, session);
    take(part);
}
