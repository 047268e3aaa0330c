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

static void stand_in_line(struct pg_claim *part);
static void look(struct pg_claim *part);

/* ---- where it is ---- */

static void join_session(struct pg_claim *part, struct session *session)
{
    part->session = session;
    claim_of(part)->session = session;
    part->next = session->claims;
    part->link = &session->claims;
    if (part->next)
        part->next->link = &part->next;
    session->claims = part;
}

void claims_leave_session(struct pg_claim *part)
{
    if (!part->session)
        return;
    *part->link = part->next;
    if (part->next)
        part->next->link = part->link;
    part->session = NULL;
    claim_of(part)->session = NULL;
}

static struct pg_claim **head_of(struct pg *pg, int64_t id)
{
    return &pg->by_key[(uint64_t)id * UINT64_C(0x9e3779b97f4a7c15) >> 55];
}

static void index_by_key(struct pg_claim *part)
{
    struct pg_claim **head = head_of(pg_of_part(part), part->id);
    part->key_next = *head;
    part->key_link = head;
    if (*head)
        (*head)->key_link = &part->key_next;
    *head = part;
}

static void drop_from_index(struct pg_claim *part)
{
    if (!part->key_link)
        return;
    *part->key_link = part->key_next;
    if (part->key_next)
        part->key_next->key_link = part->key_link;
    part->key_link = NULL;
}

struct pg_claim *claims_with_id(struct pg *pg, const struct key *key, int64_t id)
{
    struct pg_claim *part = *head_of(pg, id);
    while (part && (part->id != id || (part->key.form == KEY_TWO) != (key->form == KEY_TWO)))
        part = part->key_next;
    return part;
}

void claims_retire(struct pg_claim *part)
{
    struct pg *pg = pg_of_part(part);
    drop_from_index(part);
    claims_leave_session(part);
    if (part->has_timer) {
        loop_disarm(pg->engine.loop, &part->timer);
        loop_unreserve(pg->engine.loop, 1);
        part->has_timer = false;
    }
    part->standing = NOWHERE;
    if (part->active) {
        part->active = false;
        if (--pg->n_active == 0)
            pool_sweep_later(pg);
    }
}

/* Nothing is left of it in the server. */
static void fail(struct pg_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct stile_error why = *err;
    claims_retire(part);
    claim->engine->events->failed(claim, &why);
}

static void turn_away(struct pg_claim *part, uint64_t hint_ns)
{
    struct claim *claim = claim_of(part);
    claims_retire(part);
    claim->engine->events->busy(claim, hint_ns);
}

/* ---- saying it ---- */

struct words {
    const char *values[8];
    char hold[24], delay[24];
};

static const char *number_or_null(char out[24], uint64_t ns)
{
    if (ns == 0)
        return NULL;
    snprintf(out, 24, "%" PRIu64, (ns + NS_PER_MS - 1) / NS_PER_MS);
    return out;
}

static int write_words(struct words *w, struct pg_claim *part)
{
    struct pg *pg = pg_of_part(part);
    struct claim *claim = claim_of(part);
    const char *key = part->key.form == KEY_HASH ? part->stored : part->key.number;
    const char *values[8] = {key,
                             part->stored,
                             number_or_null(w->hold, claim->hold_ns),
                             number_or_null(w->delay, claim->delay_ns),
                             pg->who.owner,
                             pg->who.host,
                             pg->who.pid,
                             pg->who.command};
    memcpy(w->values, values, sizeof values);
    return pg->bare ? 1 : 8;
}

static enum stile_status say(struct pg_claim *part, enum sql kind, answer_fn *fn,
                             struct stile_error *err)
{
    struct words w;
    int n = write_words(&w, part);
    bool shared = claim_of(part)->mode == STILE_SHARED;
    if (kind == SQL_UNLOCK || kind == SQL_KEY)
        n = 1;
    return session_send(part->session, sql_for(kind, &part->key, shared, pg_of_part(part)->bare),
                        w.values, n, fn, part, err);
}

/* ---- hearing it ---- */

enum verdict { TAKEN, GRANTED, KEPT_BACK, STRANGE };

/* What the server has made of the name is said to it from now on: it need not do so again. */
static void learn_key(struct pg_claim *part, const char *text)
{
    part->id = strtoll(text, NULL, 10);
    if (part->key.form == KEY_HASH) {
        part->key.form = KEY_ONE;
        snprintf(part->key.number, sizeof part->key.number, "%" PRId64, part->id);
    }
}

/* The text of stile.granted(), the key, and after a wait whether there was one; or only whether it
 * was free. */
static enum verdict read_verdict(struct pg_claim *part, const PGresult *result, uint64_t *number)
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
    return *text == 'g' ? GRANTED : *text == 'h' ? KEPT_BACK : STRANGE;
}

static void grant(struct pg_claim *part, uint64_t token, uint64_t sent_ns)
{
    struct claim *claim = claim_of(part);
    part->standing = HOLDING;
    part->token = token;
    index_by_key(part);
    claim->engine->events->granted(claim, token, sent_ns, part->session->ttl_told_ns);
}

/* ---- sitting: it is ours in the server, and kept back from everybody ---- */

static void look_again(struct timer *timer)
{
    struct pg_claim *part = (struct pg_claim *)((char *)timer - offsetof(struct pg_claim, timer));
    if (part->standing == SITTING)
        look(part);
}

static void sit(struct pg_claim *part, uint64_t ms)
{
    struct loop *loop = claim_of(part)->engine->loop;
    part->standing = SITTING;
    part->timer.fn = look_again;
    loop_arm(loop, &part->timer, loop_now(loop) + (ms + 1) * NS_PER_MS);
}

/* ---- on a session of its own ---- */

/* A session that holds nothing but a claim that failed is given back clean, or not at all. */
static void give_up_session(struct pg_claim *part, const struct stile_error *err)
{
    struct session *session = part->session;
    struct stile_error why = *err;
    claims_leave_session(part);
    if (session && session->state != DOWN)
        pool_close(session);
    if (part->withdrawn)
        release_go_on(part, false);
    else
        fail(part, &why);
}

static void on_alive(void *data, const struct answer *a)
{
    struct pg_claim *part = data;
    if (a->err)
        give_up_session(part, a->err);
    else if (part->withdrawn)
        release_go_on(part, true);
    else
        grant(part, part->token, a->sent_ns);
}

/* The lease counts from the session's last sign of life, and of a wait only the beginning is known:
 * after a long one the session is asked once more, which proves that it is still ours, too. */
static void confirm(struct pg_claim *part, uint64_t token, uint64_t sent_ns)
{
    struct session *session = part->session;
    struct stile_error err;
    uint64_t now = loop_now(session->loop);
    part->token = token;
#ifdef MUTANT_POSTGRES_WAIT_IS_LEASE
    sent_ns = now;
#endif
    if (now - sent_ns < session->ttl_told_ns / FRESH_PART) {
        grant(part, token, sent_ns);
        return;
    }
    part->standing = CONFIRMING;
    if (pool_tell_ttl_is(session, pg_of_part(part)->ttl_ns, on_alive, part, &err))
        give_up_session(part, &err);
}

static void note_crowd(struct pg_claim *part, const PGresult *result)
{
    if (PQnfields(result) < 3)
        return;
    bool waited = PQgetvalue(result, 0, 2)[0] == 't';
    part->crowd = waited ? CROWD : part->crowd - (part->crowd > 0);
}

static void on_locked(void *data, const struct answer *a)
{
    struct pg_claim *part = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum verdict verdict = a->err ? STRANGE : read_verdict(part, a->result, &number);
    bool up = part->session && part->session->state == UP;
    if (part->session)
        part->session->waits = false;
    if (part->withdrawn && up) { /* cancelled, and perhaps granted all the same */
        part->token = verdict == GRANTED ? number : 0;
        release_go_on(part, true);
    } else if (a->err || verdict == STRANGE || verdict == TAKEN) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        give_up_session(part, a->err ? a->err : &strange);
    } else if (verdict == KEPT_BACK) {
        sit(part, number);
    } else {
        note_crowd(part, a->result);
        confirm(part, number, a->sent_ns);
    }
}

static void look(struct pg_claim *part)
{
    struct stile_error err;
    part->standing = CONFIRMING;
    if (say(part, SQL_GRANT, on_locked, &err))
        give_up_session(part, &err);
}

static void wait_on(struct pg_claim *part, struct session *session)
{
    struct stile_error err;
    join_session(part, session);
    part->standing = IN_LINE;
    session->waits = true;
    if (pool_tell_ttl(session, &err) || say(part, SQL_LOCK, on_locked, &err))
        give_up_session(part, &err);
}

static void stand_in_line(struct pg_claim *part)
{
    struct session *session;
    struct stile_error err;
    claims_leave_session(part);
    part->crowd = CROWD;
    if (pool_take(&session, pg_of_part(part), &err))
        fail(part, &err);
    else
        wait_on(part, session);
}

/* ---- on the shared session ---- */

static void after_step(struct pg_claim *part)
{
    uint64_t hint_ns = part->token * NS_PER_MS;
    struct stile_error why = part->why;
    part->token = 0;
    if (part->withdrawn)
        release_go_on(part, false);
    else if (why.status)
        fail(part, &why);
    else if (claim_of(part)->wait)
        stand_in_line(part);
    else
        turn_away(part, hint_ns);
}

static void on_stepped_back(void *data, const struct answer *a)
{
    (void)a; /* an error here is the session's end */
    after_step(data);
}

/* What the try has taken is given back, one level of it: the session may have it for another name
 * with the same key. */
static void step_back(struct pg_claim *part, uint64_t hint_ms)
{
    struct stile_error err;
    part->standing = STEPPING;
    part->token = hint_ms;
    if (say(part, SQL_UNLOCK, on_stepped_back, &err))
        after_step(part);
}

/* LESSONS 20: an error is no proof that nothing was granted. */
static void on_checked(void *data, const struct answer *a)
{
    struct pg_claim *part = data;
    struct pg *pg = pg_of_part(part);
    bool known = !a->err && PQntuples(a->result) == 1 && !PQgetisnull(a->result, 0, 0);
    int64_t id = known ? strtoll(PQgetvalue(a->result, 0, 0), NULL, 10) : 0;
    struct pg_claim *other = known ? claims_with_id(pg, &part->key, id) : NULL;
    if (known && (!other || other->session != part->session))
        step_back(part, 0);
    else
        after_step(part);
}

static void find_out(struct pg_claim *part, const struct stile_error *err)
{
    struct stile_error none;
    part->why = *err;
#ifdef MUTANT_POSTGRES_ERROR_IS_NO_GRANT
    after_step(part);
    return;
#endif
    part->standing = CHECKING;
    if (!part->session || part->session->state != UP || say(part, SQL_KEY, on_checked, &none))
        after_step(part);
}

static void on_tried(void *data, const struct answer *a)
{
    struct pg_claim *part = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum verdict verdict = a->err ? STRANGE : read_verdict(part, a->result, &number);
    if (a->err || verdict == STRANGE) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        find_out(part, a->err ? a->err : &strange);
        return;
    }
    struct pg_claim *same = claims_with_id(pg_of_part(part), &part->key, part->id);
#ifdef MUTANT_POSTGRES_KEY_TWICE
    same = NULL;
#endif
    if (verdict == TAKEN)
        after_step(part);
    else if (verdict == KEPT_BACK || (same && same->session == part->session))
        step_back(part, verdict == KEPT_BACK ? number : 0);
    else if (part->withdrawn) {
        part->token = number;
        release_go_on(part, true);
    } else
        grant(part, number, a->sent_ns);
}

static void begin(struct pg_claim *part)
{
    struct claim *claim = claim_of(part);
    struct pg *pg = pg_of_part(part);
    part->withdrawn = part->told = false;
    part->token = 0;
    part->why.status = STILE_OK;
    part->active = true;
    pg->n_active++;
    if (pg->ttl_ns < claim->ttl_ns)
        pg->ttl_ns = claim->ttl_ns;
    if (part->server != pg->server) {
        part->server = pg->server;
        name_store(part->stored, claim->name, claim->name_len);
        key_make(&part->key, pg->options.dialect, claim->name, claim->name_len);
        part->id = strtoll(part->key.number, NULL, 10);
    }
}

/* ---- where it had to wait the last time ---- */

/* It stands in line at once then, if a session is there for that: one request instead of two. */
static bool goes_straight(struct pg_claim *part)
{
    struct session *session;
    bool straight = part->crowd && claim_of(part)->wait && pool_has_idle(pg_of_part(part)) &&
                    !pool_take(&session, pg_of_part(part), NULL);
    if (straight)
        wait_on(part, session);
    return straight;
}

static void ask(struct pg_claim *part)
{
    struct session *shared;
    struct stile_error err;
    if (goes_straight(part))
        return;
    if (pg_shared(&shared, pg_of_part(part), &err)) {
        fail(part, &err);
        return;
    }
    join_session(part, shared);
    part->standing = ASKED;
    if (pool_tell_ttl(shared, &err) || say(part, SQL_TRY, on_tried, &err))
        fail(part, &err);
}

static void way_made(struct timer *timer)
{
    ask((struct pg_claim *)((char *)timer - offsetof(struct pg_claim, timer)));
}

/* Others wanted it a moment ago and were not in line: they wait for a core, not for the lock. Who
 * comes back at once would get it again and again until the scheduler lets them run. */
static bool makes_way(struct pg_claim *part)
{
    struct loop *loop = claim_of(part)->engine->loop;
    bool makes = part->crowd > 0 && part->crowd < CROWD && claim_of(part)->wait &&
                 loop_now(loop) - part->left_ns < MAKE_WAY_NS;
    if (makes) {
        part->standing = MAKING_WAY;
        part->timer.fn = way_made;
        loop_arm(loop, &part->timer, part->left_ns + MAKE_WAY_NS);
    }
    return makes;
}

void claims_claim(struct engine *engine, struct claim *claim)
{
    struct pg_claim *part = part_of(claim);
    struct stile_error err;
    begin(part);
    if (loop_reserve(engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        fail(part, &err);
        return;
    }
    part->has_timer = true;
    if (!makes_way(part))
        ask(part);
}

/* ---- losing it ---- */

static void lose(struct pg_claim *part, const struct stile_error *why)
{
    struct stile_error err = *why;
    struct claim *claim = claim_of(part);
    err.status = STILE_LOST;
    drop_from_index(part);
    part->told = true;
    claim->engine->events->lost(claim, &err);
}

/* What was asked has been answered; what was held or sat has to be told. */
void claims_go_down(struct session *session, const struct stile_error *why)
{
    struct stile_error err = *why;
    while (session->claims) {
        struct pg_claim *part = session->claims;
        bool held = part->standing == HOLDING;
        claims_leave_session(part);
        if (held) {
            error_wrap(&err, err.status, "the session that held it has ended");
            lose(part, &err);
            err = *why;
        } else if (part->standing == SITTING) {
            fail(part, &err);
        }
    }
}

/* What kept a name back may not do so any longer. */
static void look_at_sitting(struct pg *pg, int64_t id)
{
    for (struct session *session = pg->sessions, *next; session; session = next) {
        struct pg_claim *part = session->claims;
        next = session->next;
        if (part && part->standing == SITTING && part->id == id) {
            loop_disarm(pg->engine.loop, &part->timer);
            look(part);
        }
    }
}

/* "b form id token": anybody may say anything here, so all of it is checked. */
void claims_break(struct pg *pg, const char *payload)
{
    struct stile_error err;
    int form;
    long long id;
    unsigned long long token;
    if (sscanf(payload, "b %d %lld %llu", &form, &id, &token) != 3)
        return;
    struct key key = {.form = form == 2 ? KEY_TWO : KEY_ONE};
    look_at_sitting(pg, id);
    struct pg_claim *part = claims_with_id(pg, &key, id);
    if (!part || part->standing != HOLDING || (token && token != part->token))
        return;
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    lose(part, &err);
}
