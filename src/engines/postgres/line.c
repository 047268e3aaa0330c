/* The line: waiting for longer than a statement may.
 *
 * A statement that waits inside the server keeps a snapshot, which holds up VACUUM and CREATE INDEX
 * CONCURRENTLY in the whole database. So a wait inside the server ends after less than a second,
 * and the claim is parked: a row of stile.waiting is its place, and all that are parked share one
 * session. The holder of ours that gives the lock back wakes the first; behind a holder that wakes
 * nobody the claim looks by itself. The row counts as long as the session has the lock of its mark:
 * so a place ends with its process.
 *
 *     PARKING ──► TRYING ──► PARKED ──► TRYING ──► ... ──► granted
 *     a ticket    a try      idle       woken, or it is time
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"

static void look(struct part *part);

static const char *sub_of(struct part *part)
{
    return mine(part)->key.form == KEY_TWO ? "2" : "1";
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a; /* its place ends with the session at the latest */
}

void line_leave(struct part *part)
{
    char ticket[24];
    const char *values[] = {ticket};
    if (mine(part)->ticket && part->session) {
        snprintf(ticket, sizeof ticket, "%" PRIu64, mine(part)->ticket);
        session_send(part->session, &sql_unpark, values, 1, ignore, NULL, NULL);
    }
    mine(part)->ticket = 0;
}

/* ---- parked ---- */

static void look_again(struct timer *timer)
{
    struct part *part = part_of_timer(timer);
    if (part->standing == PARKED)
        look(part);
}

static void stay(struct part *part, uint64_t ms)
{
    struct loop *loop = claim_of(part)->engine->loop;
    uint64_t poll_ns = pg_of_part(part)->options.poll_ns;
    uint64_t pause = ms && ms * NS_PER_MS < poll_ns ? ms * NS_PER_MS : poll_ns;
    part->standing = PARKED;
    part->timer.fn = look_again;
    loop_arm(loop, &part->timer, loop_now(loop) + pause);
}

static void stay_or_go(struct part *part, uint64_t ms)
{
    if (part->withdrawn) {
        line_leave(part);
        release_left(part, NULL);
    } else {
        stay(part, ms);
    }
}

static void on_given_back(void *data, const struct answer *a)
{
    struct part *part = data;
    uint64_t ms = part->token;
    part->token = 0;
    if (a->err) {
        line_leave(part);
        part->why = *a->err;
        part_stepped(part);
    } else {
        stay_or_go(part, ms);
    }
}

/* A hold keeps the name back: nobody sits on it meanwhile, those that look are refused. */
static void give_back(struct part *part, uint64_t ms)
{
    struct stile_error err;
    part->token = ms;
    if (claims_say(part, SQL_UNLOCK, on_given_back, &err)) {
        part->token = 0;
        part->why = err;
        part_stepped(part);
    }
}

static void on_looked(void *data, const struct answer *a)
{
    struct part *part = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum verdict verdict = a->err ? STRANGE : claims_read(part, a->result, &number);
    if (verdict == STRANGE) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        line_leave(part);
        claims_find_out(part, a->err ? a->err : &strange);
    } else if (verdict == TAKEN || verdict == NOT_FIRST) {
        stay_or_go(part, 0);
    } else if (verdict == KEPT_BACK || held_against(part, mine(part)->id, false)) {
        give_back(part, number);
    } else {
        mine(part)->ticket = 0; /* given up with the grant */
        part->token = number;
        if (part->withdrawn)
            release_go_on(part, true);
        else
            part_grant(part, number, a->sent_ns);
    }
}

static void look(struct part *part)
{
    struct stile_error err;
    part->standing = TRYING;
    if (ttl_tell(part->session, &err) || claims_say(part, SQL_TRY, on_looked, &err)) {
        line_leave(part);
        part_give_up(part, &err);
    }
}

/* ---- a place ---- */

/* The holder may have given it back before it heard that somebody waits: look once more. */
static void on_parked(void *data, const struct answer *a)
{
    struct part *part = data;
    if (!a->err && PQntuples(a->result) == 1)
        mine(part)->ticket = strtoull(PQgetvalue(a->result, 0, 0), NULL, 10);
    if (!mine(part)->ticket) {
        error_set(&part->why, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        if (a->err)
            part->why = *a->err;
        part_stepped(part);
    } else if (part->withdrawn) {
        stay_or_go(part, 0);
    } else {
        claim_of(part)->engine->events->queued(claim_of(part));
        look(part);
    }
}

void line_park(struct part *part)
{
    struct pg *pg = pg_of_part(part);
    struct session *shared;
    struct stile_error err;
    char id[24];
    snprintf(id, sizeof id, "%" PRId64, mine(part)->id);
    const char *values[] = {id, sub_of(part), claim_of(part)->mode == STILE_SHARED ? "t" : "f",
                            pg->channel};
    if (pg_shared(&shared, pg, &err)) {
        part_fail(part, &err);
        return;
    }
    part_join(part, shared);
    part->standing = PARKING;
    if (session_send(shared, &sql_park, values, 4, on_parked, part, &err))
        part_fail(part, &err);
}

/* ---- waking, and being woken ---- */

void line_wake_next(struct part *part)
{
    char id[24];
    const char *values[] = {id, sub_of(part)};
    if (!mine(part)->followed || pg_of_part(part)->schema != SCHEMA_LINE)
        return;
    snprintf(id, sizeof id, "%" PRId64, mine(part)->id);
    session_send(part->session, &sql_wake, values, 2, ignore, NULL, NULL);
}

static void wake_parked(struct pg *pg, int sub, int64_t id)
{
    struct session *shared = pg->pool.shared;
    for (struct part *part = shared ? shared->seat.claims : NULL, *next; part; part = next) {
        next = part->next;
        if (part->standing != PARKED || mine(part)->id != id ||
            (mine(part)->key.form == KEY_TWO) != (sub == 2))
            continue;
        loop_disarm(pg->engine.loop, &part->timer);
        look(part);
    }
}

/* "p sub key": somebody waits for it; "w sub key": it may be free. Hints, for anybody may send
 * them. */
void line_hear(struct pg *pg, const char *payload)
{
    int sub;
    long long id;
    char what;
    if (sscanf(payload, "%c %d %lld", &what, &sub, &id) != 3)
        return;
    struct key key = {.form = sub == 2 ? KEY_TWO : KEY_ONE};
    if (what == 'p')
        held_follow(pg, &key, id);
    else if (what == 'w')
        wake_parked(pg, sub, id);
}
