/* Being granted: one try on the shared session, then a wait inside the server on another. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"
#include "mutant.h"

/* A wait that took less of its lease than this is as good as none. */
#define FRESH_PART 4
/* About what a hand-over takes, and how often somebody is waited for who does not come. */
#define MAKE_WAY_NS (NS_PER_MS / 20)
#define CROWD       16

static void look(struct part *part);

/* ---- saying it ---- */

struct words {
    const char *values[9];
    char hold[24], delay[24], ticket[24];
};

static int write_words(struct words *w, struct part *part, enum sql kind)
{
    struct pg *pg = pg_of_part(part);
    struct claim *claim = claim_of(part);
    w->values[0] = mine(part)->key.form == KEY_HASH ? part->stored : mine(part)->key.number;
    if (kind == SQL_UNLOCK || kind == SQL_KEY || pg->bare)
        return 1;
    w->values[1] = part->stored;
    w->values[2] = sql_ms(w->hold, claim->hold_ns);
    w->values[3] = sql_ms(w->delay, claim->delay_ns);
    w->values[4] = pg->who.owner;
    w->values[5] = pg->who.host;
    w->values[6] = pg->who.pid;
    w->values[7] = pg->who.command;
    snprintf(w->ticket, sizeof w->ticket, "%" PRIu64, mine(part)->ticket);
    w->values[8] = mine(part)->ticket ? w->ticket : NULL;
    return pg->schema == SCHEMA_LINE && kind != SQL_GRANT ? 9 : 8;
}

enum stile_status claims_say(struct part *part, enum sql kind, answer_fn *fn,
                             struct stile_error *err)
{
    struct words w;
    int n = write_words(&w, part, kind);
    const struct statement *statement = again_for(part, kind, &n);
    return session_send(part->session, statement, w.values, n, fn, part, err);
}

/* ---- hearing it ---- */

/* What the server has made of the name is said to it from now on: it need not do so again. */
static void learn_key(struct part *part, const char *text)
{
    mine(part)->id = strtoll(text, NULL, 10);
    if (mine(part)->key.form == KEY_HASH) {
        mine(part)->key.form = KEY_ONE;
        snprintf(mine(part)->key.number, sizeof mine(part)->key.number, "%" PRId64, mine(part)->id);
    }
}

/* The text of stile.granted(), the key, and after a wait whether there was one; or only whether it
 * was free. */
enum verdict claims_read(struct part *part, const PGresult *result, uint64_t *number)
{
    int n = result && PQntuples(result) == 1 ? PQnfields(result) : 0;
    if (n == 0 || PQgetisnull(result, 0, n > 1))
        return STRANGE;
    if (n > 1)
        learn_key(part, PQgetvalue(result, 0, 1));
    if (PQgetisnull(result, 0, 0))
        return TAKEN;
    const char *text = PQgetvalue(result, 0, 0);
    if (n == 1)
        return *text == 't' ? GRANTED : TAKEN;
    *number = strtoull(text + (*text != '\0'), NULL, 10);
    mine(part)->followed |= *text == 'g' && text[strlen(text) - 1] == 'w';
    return *text == 'g' ? GRANTED : *text == 'h' ? KEPT_BACK : *text == 'n' ? NOT_FIRST : STRANGE;
}

/* ---- sitting: it is ours in the server, and kept back from everybody ---- */

static void look_again(struct timer *timer)
{
    struct part *part = part_of_timer(timer);
    if (part->standing == SITTING)
        look(part);
}

static void sit(struct part *part, uint64_t ms)
{
    struct loop *loop = claim_of(part)->engine->loop;
    part->standing = SITTING;
    claim_of(part)->engine->events->queued(claim_of(part));
    part->timer.fn = look_again;
    loop_arm(loop, &part->timer, loop_now(loop) + (ms + 1) * NS_PER_MS);
}

/* ---- on a session of its own ---- */

/* The lease counts from the session's last sign of life, and of a wait only the beginning is known:
 * after a long one the session is asked once more, which proves that it is still ours, too. */
static void confirm(struct part *part, uint64_t token, uint64_t sent_ns)
{
    struct session *session = part->session;
    struct stile_error err;
    uint64_t now = loop_now(session->loop);
    part->token = token;
#ifdef MUTANT_POSTGRES_WAIT_IS_LEASE
    sent_ns = now;
#endif
    if (now - sent_ns < session->seat.ttl_told_ns / FRESH_PART) {
        part_grant(part, token, sent_ns);
        return;
    }
    part->standing = CONFIRMING;
    if (ttl_tell_is(session, pg_of_part(part)->pool.ttl_ns, claims_alive, part, &err))
        part_give_up(part, &err);
}

void claims_alive(void *data, const struct answer *a)
{
    part_confirmed(data, a->sent_ns, a->err);
}

static void note_crowd(struct part *part, const PGresult *result)
{
    if (PQnfields(result) < 3)
        return;
    bool waited = PQgetvalue(result, 0, 2)[0] == 't';
    mine(part)->crowd = waited ? CROWD : mine(part)->crowd - (mine(part)->crowd > 0);
}

/* ---- a wait in the server is short ---- */

static void wait_again(struct part *part, struct session *session);

/* Its session is clean. */
static void slice_over(struct part *part)
{
    struct session *session = part->session;
    if (part->withdrawn) {
        release_left(part, NULL);
    } else if (pg_of_part(part)->schema == SCHEMA_LINE) {
        part_leave(part);
        pool_give(session);
        line_park(part);
    } else {
        wait_again(part, session);
    }
}

static void on_slice_cleared(void *data, const struct answer *a)
{
    struct part *part = data;
    if (a->err)
        part_give_up(part, a->err);
    else
        slice_over(part);
}

/* lock_timeout may have come between the lock and its row. */
static void end_slice(struct part *part)
{
    struct stile_error err;
    part->standing = STEPPING;
    if (session_send(part->session, &sql_unlock_all, NULL, 0, on_slice_cleared, part, &err))
        part_give_up(part, &err);
}

static bool is_slice_over(const struct answer *a)
{
    return a->err && strcmp(a->sqlstate, "55P03") == 0;
}

static void on_locked(void *data, const struct answer *a)
{
    struct part *part = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum verdict verdict = a->err ? STRANGE : claims_read(part, a->result, &number);
    bool up = part->session && part->session->state == UP;
    if (part->session)
        part->session->seat.waits = false;
    if (up && is_slice_over(a)) {
        end_slice(part);
    } else if (up && verdict == NOT_FIRST) {
        slice_over(part);
    } else if (part->withdrawn && up) { /* cancelled, and perhaps granted all the same */
        part->token = verdict == GRANTED ? number : 0;
        release_go_on(part, true);
    } else if (a->err || verdict == STRANGE || verdict == TAKEN) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        part_give_up(part, a->err ? a->err : &strange);
    } else if (verdict == KEPT_BACK) {
        sit(part, number);
    } else {
        note_crowd(part, a->result);
        confirm(part, number, a->sent_ns);
    }
}

static void look(struct part *part)
{
    struct stile_error err;
    part->standing = CONFIRMING;
    if (claims_say(part, SQL_GRANT, on_locked, &err))
        part_give_up(part, &err);
}

static void wait_again(struct part *part, struct session *session)
{
    struct engine *engine = claim_of(part)->engine;
    struct stile_error err;
    part->standing = IN_LINE;
    session->seat.waits = session->deaf = true;
    engine->events->queued(claim_of(part));
    if (ttl_tell(session, &err) || claims_say(part, SQL_LOCK, on_locked, &err))
        part_give_up(part, &err);
}

static void wait_on(struct part *part, struct session *session)
{
    part_join(part, session);
    wait_again(part, session);
}

/* Where nothing else is on the shared session, it is the one that waits: a client that wants one
 * lock has one connection. */
static bool may_lend(const struct part *part)
{
    const struct session *session = part->session;
    const struct pool *pool = session ? session->seat.pool : NULL;
    return session && session == pool->shared && session->seat.claims == part && !part->next &&
           !session->first && session->state == UP;
}

void claims_stand_in_line(struct part *part)
{
    struct pool *pool = &pg_of_part(part)->pool;
    bool line = pg_of_part(part)->schema == SCHEMA_LINE;
    struct session *session;
    struct stile_error err;
    mine(part)->crowd = CROWD;
    if (may_lend(part)) {
        session = part->session;
        pool_lend_shared(pool);
        session->events = &pooled_events;
        wait_again(part, session);
        return;
    }
    part_leave(part);
    if (!pool_take(&session, pool, &err))
        wait_on(part, session);
    else if (line)
        line_park(part);
    else
        part_fail(part, &err);
}

/* ---- on the shared session ---- */

static void on_stepped_back(void *data, const struct answer *a)
{
    (void)a; /* an error here is the session's end */
    part_stepped(data);
}

/* What the try has taken is given back, one level of it: the session may have it for another name
 * with the same key. */
static void step_back(struct part *part, uint64_t hint_ms)
{
    struct stile_error err;
    part->standing = STEPPING;
    part->token = hint_ms;
    if (claims_say(part, SQL_UNLOCK, on_stepped_back, &err))
        part_stepped(part);
}

/* LESSONS 20: an error is no proof that nothing was granted. */
static void on_checked(void *data, const struct answer *a)
{
    struct part *part = data;
    bool known = !a->err && PQntuples(a->result) == 1 && !PQgetisnull(a->result, 0, 0);
    int64_t id = known ? strtoll(PQgetvalue(a->result, 0, 0), NULL, 10) : 0;
    if (known && !held_against(part, id, true))
        step_back(part, 0);
    else
        part_stepped(part);
}

void claims_find_out(struct part *part, const struct stile_error *err)
{
    struct stile_error none;
    part->why = *err;
#ifdef MUTANT_POSTGRES_ERROR_IS_NO_GRANT
    part_stepped(part);
    return;
#endif
    part->standing = CHECKING;
    if (!part->session || part->session->state != UP ||
        claims_say(part, SQL_KEY, on_checked, &none))
        part_stepped(part);
}

static void on_tried(void *data, const struct answer *a)
{
    struct part *part = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum verdict verdict = a->err ? STRANGE : claims_read(part, a->result, &number);
    if (a->err && strcmp(a->sqlstate, "40P01") == 0) { /* asked again, it would be so again */
        error_set(&strange, STILE_REFUSED, 0,
                  "deadlock: a transaction that has this name's row in stile.lock locked waits for "
                  "a lock that we hold");
        claims_find_out(part, &strange);
        return;
    }
    if (a->err || verdict == STRANGE) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        claims_find_out(part, a->err ? a->err : &strange);
        return;
    }
    bool ours = held_against(part, mine(part)->id, false);
#ifdef MUTANT_POSTGRES_KEY_TWICE
    ours = false;
#endif
    if (verdict == NOT_FIRST && claim_of(part)->wait && !part->withdrawn) {
        part_leave(part);
        line_park(part);
    } else if (verdict == TAKEN || verdict == NOT_FIRST)
        part_stepped(part);
    else if (verdict == KEPT_BACK || ours)
        step_back(part, verdict == KEPT_BACK ? number : 0);
    else if (part->withdrawn) {
        part->token = number;
        release_go_on(part, true);
    } else
        part_grant(part, number, a->sent_ns);
}

/* ---- where it had to wait the last time ---- */

/* It stands in line at once then, if a session is there for that: one request instead of two. */
static bool goes_straight(struct part *part)
{
    struct session *session;
    bool straight = mine(part)->crowd && claim_of(part)->wait &&
                    pool_has_idle(&pg_of_part(part)->pool) &&
                    !pool_take(&session, &pg_of_part(part)->pool, NULL);
    if (straight)
        wait_on(part, session);
    return straight;
}

static void ask(struct part *part)
{
    struct session *shared;
    struct stile_error err;
    if (goes_straight(part))
        return;
    if (pg_shared(&shared, pg_of_part(part), &err)) {
        part_fail(part, &err);
        return;
    }
    part_join(part, shared);
    part->standing = ASKED;
    if (ttl_tell(shared, &err) || claims_say(part, SQL_TRY, on_tried, &err))
        part_fail(part, &err);
}

static void way_made(struct timer *timer)
{
    ask(part_of_timer(timer));
}

/* Others wanted it a moment ago and were not in line: they wait for a core, not for the lock. Who
 * comes back at once would get it again and again until the scheduler lets them run. */
static bool makes_way(struct part *part)
{
    struct loop *loop = claim_of(part)->engine->loop;
    bool makes = mine(part)->crowd > 0 && mine(part)->crowd < CROWD && claim_of(part)->wait &&
                 loop_now(loop) - mine(part)->left_ns < MAKE_WAY_NS;
    if (makes) {
        part->standing = MAKING_WAY;
        part->timer.fn = way_made;
        loop_arm(loop, &part->timer, mine(part)->left_ns + MAKE_WAY_NS);
    }
    return makes;
}

bool claims_begin(struct part *part)
{
    struct claim *claim = claim_of(part);
    struct pg *pg = pg_of_part(part);
    struct pg_claim *own = mine(part);
    own->followed = false;
    own->ticket = 0;
    if (own->server != pg->server) {
        own->server = pg->server;
        name_store(part->stored, claim->name, claim->name_len);
        key_make(&own->key, pg->options.dialect, claim->name, claim->name_len);
        own->id = strtoll(own->key.number, NULL, 10);
    }
    return part_begin(part);
}

static bool has_room(struct pg *pg, struct claim *claim)
{
    struct stile_error err;
    if (pg->pool.n_active < pg->most_locks)
        return true;
    error_set(&err, STILE_REFUSED, 0,
              "this client has %" PRIu64 " locks, its part of the server's room for them "
              "(max_locks_per_transaction): raise that, say locks=N in the URL for a larger part, "
              "or mode=table, which needs none",
              pg->most_locks);
    claim->engine->events->failed(claim, &err);
    return false;
}

void claims_claim(struct engine *engine, struct claim *claim)
{
    struct part *part = part_of(claim);
    if (!has_room(pg_of(engine), claim))
        return;
    if (claims_begin(part) && !makes_way(part))
        ask(part);
}
