#include "engines/sql/part.h"

static struct pool *pool_of_part(struct part *part)
{
    return pool_of(claim_of(part)->engine);
}

/* ---- on a session ---- */

void part_join(struct part *part, struct session *session)
{
    struct seat *seat = seat_of(session);
    part->session = session;
    claim_of(part)->session = session;
    part->next = seat->claims;
    part->link = &seat->claims;
    if (part->next)
        part->next->link = &part->next;
    seat->claims = part;
}

void part_leave(struct part *part)
{
    if (!part->session)
        return;
    *part->link = part->next;
    if (part->next)
        part->next->link = part->link;
    part->session = NULL;
    claim_of(part)->session = NULL;
}

/* ---- beginning and ending ---- */

static void note(struct part *part, bool holds)
{
    struct pool *pool = pool_of_part(part);
    if (pool->note)
        pool->note(part, holds);
}

bool part_begin(struct part *part)
{
    struct claim *claim = claim_of(part);
    struct pool *pool = pool_of_part(part);
    struct stile_error err;
    part->withdrawn = part->told = false;
    part->token = 0;
    part->why.status = STILE_OK;
    part->active = true;
    pool->n_active++;
    if (pool->ttl_ns < claim->ttl_ns)
        pool->ttl_ns = claim->ttl_ns;
    part->has_timer = loop_reserve(pool->engine->loop, 1) == 0;
    if (part->has_timer)
        return true;
    error_set(&err, STILE_NOMEM, 0, "out of memory");
    part_fail(part, &err);
    return false;
}

void part_retire(struct part *part)
{
    struct pool *pool = pool_of_part(part);
    note(part, false);
    part_leave(part);
    if (part->has_timer) {
        loop_disarm(pool->engine->loop, &part->timer);
        loop_unreserve(pool->engine->loop, 1);
        part->has_timer = false;
    }
    part->standing = NOWHERE;
    if (part->active) {
        part->active = false;
        if (--pool->n_active == 0)
            pool_sweep_later(pool);
    }
}

/* Nothing is left of it in the server. */
void part_fail(struct part *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct stile_error why = *err;
    part_retire(part);
    claim->engine->events->failed(claim, &why);
}

void part_turn_away(struct part *part, uint64_t hint_ns)
{
    struct claim *claim = claim_of(part);
    part_retire(part);
    claim->engine->events->busy(claim, hint_ns);
}

void part_stepped(struct part *part)
{
    uint64_t hint_ns = part->token * NS_PER_MS;
    struct stile_error why = part->why;
    part->token = 0;
    if (part->withdrawn)
        release_go_on(part, false);
    else if (why.status)
        part_fail(part, &why);
    else if (claim_of(part)->wait)
        claims_stand_in_line(part);
    else
        part_turn_away(part, hint_ns);
}

/* A session that holds nothing but a claim that failed is given back clean, or not at all. */
void part_give_up(struct part *part, const struct stile_error *err)
{
    struct session *session = part->session;
    struct stile_error why = *err;
    part_leave(part);
    if (session && !session_is_over(session))
        pool_close(session);
    if (part->withdrawn)
        release_go_on(part, false);
    else
        part_fail(part, &why);
}

/* ---- granted ---- */

void part_grant(struct part *part, uint64_t token, uint64_t sent_ns)
{
    struct claim *claim = claim_of(part);
    part->standing = HOLDING;
    part->token = token;
    note(part, true);
    claim->engine->events->granted(claim, token, sent_ns, seat_of(part->session)->ttl_told_ns);
}

void part_confirmed(struct part *part, uint64_t sent_ns, const struct stile_error *err)
{
    if (err)
        part_give_up(part, err);
    else if (part->withdrawn)
        release_go_on(part, true);
    else
        part_grant(part, part->token, sent_ns);
}

/* ---- losing it ---- */

void part_lose(struct part *part, const struct stile_error *why)
{
    struct claim *claim = claim_of(part);
    struct stile_error err = *why;
    err.status = STILE_LOST;
    note(part, false);
    part->told = true;
    claim->engine->events->lost(claim, &err);
}

/* What was asked has been answered; what was held or sat has to be told. */
void part_go_down(struct session *session, const struct stile_error *why)
{
    struct stile_error err = *why;
    while (seat_of(session)->claims) {
        struct part *part = seat_of(session)->claims;
        enum standing standing = part->standing;
        part_leave(part);
        if (standing == COUNTING)
            pool_unask(seat_of(session)->pool, part);
        if (standing == HOLDING) {
            error_wrap(&err, err.status, "the session that held it has ended");
            part_lose(part, &err);
            err = *why;
        } else if (standing == COUNTING && part->withdrawn) {
            release_left(part, NULL);
        } else if (standing == SITTING || standing == COUNTING || standing == PARKED) {
            part_fail(part, &err);
        }
    }
}
