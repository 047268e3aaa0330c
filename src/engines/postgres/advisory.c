/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The advisory lock of a claim: the statements about it, what their answers say, and the keys that
 * this client holds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"
#include "engines/sql/inspect.h"

/* A session that is asked for one name this often in a row prepares statements for its key. */
#define OFTEN     64
#define ID_TRY    57
#define ID_UNLOCK 58

/* ---- one name again and again ----
 *
 * Reading the key from the request is most of what a pair costs the server on top of the bare
 * statements. So the first name that a session is asked for this often in a row gets statements
 * of its own, with its key in them, for as long as the session lives. */

/* In quotes: without them, the smallest bigint would be its negation, which is out of range. */
static void write_statements(struct hot_key *f)
{
    snprintf(f->try_sql, sizeof f->try_sql, "select pg_try_advisory_lock('%" PRId64 "'::bigint)",
             f->id);
    snprintf(f->unlock_sql, sizeof f->unlock_sql,
             "select pg_advisory_unlock('%" PRId64 "'::bigint)", f->id);
    f->take = (struct statement){ID_TRY, f->try_sql};
    f->unlock = (struct statement){ID_UNLOCK, f->unlock_sql};
}

static void count_try(struct hot_key *f, int64_t id)
{
    f->times = f->id == id ? f->times + 1 : 0;
    f->id = id;
    if (f->times == OFTEN)
        write_statements(f);
}

static const struct statement *for_hot_key(struct hot_key *f, enum sql kind, int64_t id)
{
    if (kind == SQL_TRY && f->times < OFTEN)
        count_try(f, id);
    if (f->times < OFTEN || f->id != id)
        return NULL;
    return kind == SQL_TRY ? &f->take : &f->unlock;
}

const struct statement *postgres_claim_statement(struct sql_claim *c, enum sql kind, int *n)
{
    const struct key *key = &pg_claim_of(c)->key;
    bool shared = claim_of(c)->mode == STILE_SHARED, bare = pg_of_claim(c)->bare;
    const struct statement *own = NULL;
    if (bare && !pg_of_claim(c)->pooled && !shared && key->form == KEY_ONE &&
        (kind == SQL_TRY || kind == SQL_UNLOCK))
        own = for_hot_key(&c->session->hot_key, kind, pg_claim_of(c)->id);
    if (own)
        *n = 0;
    return own ? own : postgres_sql_for(kind, key, shared, pg_of_claim(c)->schema);
}

/* ---- sending ---- */

/* What is known about a name is looked up again after this long, whether or not it has changed: the
 * counter may have been put back by hand, or by an older `stile setup`. */
#define CALM_NS NS_PER_SEC

struct values {
    const char *values[9];
    char hold[24], delay[24], ticket[24];
};

static int write_values(struct values *w, struct sql_claim *c, enum sql kind)
{
    struct pg *pg = pg_of_claim(c);
    struct claim *claim = claim_of(c);
    w->values[0] = pg_claim_of(c)->key.form == KEY_HASH ? c->stored : pg_claim_of(c)->key.number;
    if (kind == SQL_UNLOCK || kind == SQL_KEY || pg->bare)
        return 1;
    w->values[1] = c->stored;
    w->values[2] = postgres_sql_ms(w->hold, claim->hold_ns);
    w->values[3] = postgres_sql_ms(w->delay, claim->delay_ns);
    w->values[4] = pg->identity.owner;
    w->values[5] = pg->identity.host;
    w->values[6] = pg->identity.pid;
    w->values[7] = pg->identity.command;
    snprintf(w->ticket, sizeof w->ticket, "%" PRIu64, pg_claim_of(c)->ticket);
    w->values[8] = pg_claim_of(c)->ticket ? w->ticket : NULL;
    return pg->schema >= SCHEMA_QUEUE && kind != SQL_GRANT ? 9 : 8;
}

/* A hold or a delay is written with the grant, and so is a shared one. */
static bool may_have_no_row(struct sql_claim *c)
{
    const struct pg *pg = pg_of_claim(c);
    const struct claim *claim = claim_of(c);
    return pg->schema >= SCHEMA_DRAWS && !pg->pooled && pg->options.mode == MODE_ADVISORY &&
           claim->mode == STILE_EXCLUSIVE && !claim->hold_ns && !claim->delay_ns &&
           pg_claim_of(c)->key.form != KEY_TWO;
}

static bool is_calm(const struct sql_claim *c)
{
    const struct calm *calm = &pg_claim_of((struct sql_claim *)c)->calm;
    return calm->session == c->session->number &&
           loop_now(c->session->base.loop) - calm->at_ns < CALM_NS;
}

/* A place in the queue is given up by the function that writes the row. */
static bool draws(struct sql_claim *c, enum sql kind)
{
    return (kind == SQL_TRY || kind == SQL_LOCK) && may_have_no_row(c) && !pg_claim_of(c)->ticket;
}

static enum stile_status send_draw(struct sql_claim *c, enum sql kind, answer_fn *fn,
                                   struct stile_error *err)
{
    struct pg_claim *own = pg_claim_of(c);
    bool hash = own->key.form == KEY_HASH;
    const char *values[] = {hash ? c->stored : own->key.number,
                            is_calm(c) ? own->calm.changes : NULL};
    enum draw draw = kind == SQL_TRY ? DRAW_TRY : DRAW_LOCK;
    return postgres_send(c->session, &postgres_sql_draw[draw][hash], values, hash ? 1 : 2, fn, c,
                         err);
}

/* A queued claim's try makes others look for it. */
static const struct statement *look_statement(struct sql_claim *c, enum sql kind)
{
    bool looks = kind == SQL_TRY && pg_of_claim(c)->schema >= SCHEMA_DRAWS &&
                 pg_claim_of(c)->ticket && pg_claim_of(c)->key.form == KEY_ONE;
    return looks ? &postgres_sql_draw[DRAW_LOOK][claim_of(c)->mode == STILE_SHARED] : NULL;
}

enum stile_status postgres_claim_decide(struct sql_claim *c, answer_fn *fn, struct stile_error *err)
{
    struct values w;
    bool hash = pg_claim_of(c)->key.form == KEY_HASH;
    int n = write_values(&w, c, SQL_TRY);
    pg_claim_of(c)->draws = false;
    return postgres_send(c->session, &postgres_sql_draw[DRAW_DECIDE][hash], w.values, n, fn, c,
                         err);
}

enum stile_status postgres_claim_send(struct sql_claim *c, enum sql kind, answer_fn *fn,
                                      struct stile_error *err)
{
    struct values w;
    if (draws(c, kind)) {
        pg_claim_of(c)->draws = true;
        postgres_describe_again(c);
        return send_draw(c, kind, fn, err);
    }
    if (kind != SQL_UNLOCK && kind != SQL_END_HOLD)
        pg_claim_of(c)->draws = false;
    const struct statement *look = look_statement(c, kind);
    int n = write_values(&w, c, kind);
    const struct statement *statement = look ? look : postgres_claim_statement(c, kind, &n);
    return postgres_send(c->session, statement, w.values, n, fn, c, err);
}

/* ---- answers ---- */

/* From now on the key is sent instead of the name, so that the server need not hash it again. */
static void learn_key(struct sql_claim *c, const char *text)
{
    pg_claim_of(c)->id = strtoll(text, NULL, 10);
    if (pg_claim_of(c)->key.form == KEY_HASH) {
        pg_claim_of(c)->key.form = KEY_ONE;
        snprintf(pg_claim_of(c)->key.number, sizeof pg_claim_of(c)->key.number, "%" PRId64,
                 pg_claim_of(c)->id);
    }
}

/* "TOKEN" from a claim that knew the name, or "TOKEN CHANGES ENDS". */
static enum grant_reply read_drawn(struct sql_claim *c, const char *text, uint64_t *number)
{
    struct calm *calm = &pg_claim_of(c)->calm;
    unsigned long long token, ends;
    char changes[sizeof calm->changes];
    int n = sscanf(text, "%llu %23s %llu", &token, changes, &ends);
    if (n == 3) {
        *calm = (struct calm){.session = c->session->number,
                              .at_ns = loop_lately(c->session->base.loop),
                              .ends = ends};
        memcpy(calm->changes, changes, sizeof changes);
    }
    if (n < 1 || token >= calm->ends || token < calm->ends - EPOCH_TOKENS) {
        calm->session = 0;
        return REPLY_UNDECIDED;
    }
    *number = token;
    return REPLY_GRANTED;
}

/* The text of stile.granted(), the key, and after a wait whether there was one; or only whether it
 * was free. */
enum grant_reply postgres_read_grant(struct sql_claim *c, const PGresult *result, uint64_t *number)
{
    int n = result && PQntuples(result) == 1 ? PQnfields(result) : 0;
    bool draws = pg_claim_of(c)->draws;
    if (n == 0 || (PQgetisnull(result, 0, n > 1) && !(draws && n == 1)))
        return REPLY_STRANGE;
    if (n > 1)
        learn_key(c, postgres_value(result, 0, 1));
    if (PQgetisnull(result, 0, 0))
        return REPLY_TAKEN;
    const char *text = postgres_value(result, 0, 0);
    if (draws)
        return read_drawn(c, text, number);
    if (n == 1)
        return *text == 't' ? REPLY_GRANTED : REPLY_TAKEN;
    *number = strtoull(text + (*text != '\0'), NULL, 10);
    pg_claim_of(c)->has_waiters |= *text == 'g' && text[strlen(text) - 1] == 'w';
    return *text == 'g'   ? REPLY_GRANTED
           : *text == 'h' ? REPLY_HELD_BACK
           : *text == 'n' ? REPLY_NOT_FIRST
           : *text == 'b' ? REPLY_TAKEN
                          : REPLY_STRANGE;
}

/* ---- held keys: two names may have the same one, and `stile break` names a key ---- */

static struct sql_claim **head_of(struct pg *pg, int64_t id)
{
    return &pg->by_key[(uint64_t)id * UINT64_C(0x9e3779b97f4a7c15) >> 55];
}

static void add(struct sql_claim *c)
{
    struct sql_claim **head = head_of(pg_of_claim(c), pg_claim_of(c)->id);
    pg_claim_of(c)->same = *head;
    pg_claim_of(c)->link = head;
    if (*head)
        pg_claim_of(*head)->link = &pg_claim_of(c)->same;
    *head = c;
}

static void drop(struct sql_claim *c)
{
    struct pg_claim *claim = pg_claim_of(c);
    if (!claim->link)
        return;
    *claim->link = claim->same;
    if (claim->same)
        pg_claim_of(claim->same)->link = claim->link;
    claim->link = NULL;
}

void postgres_held_note(struct sql_claim *c, bool holds)
{
    if (holds)
        add(c);
    else
        drop(c);
    if (holds && pg_claim_of(c)->draws)
        postgres_describe_later(c);
    else
        postgres_describe_never(c);
    if (holds)
        pg_claim_of(c)->described = !pg_claim_of(c)->draws && may_have_no_row(c);
    if (c->state == CLAIM_RELEASING && pg_claim_of(c)->contention)
        pg_claim_of(c)->released_ns = loop_now(claim_of(c)->engine->loop);
}

static bool has(struct sql_claim *c, enum key_form form, int64_t id)
{
    return pg_claim_of(c)->id == id && (pg_claim_of(c)->key.form == KEY_TWO) == (form == KEY_TWO);
}

/* The server lets a session take a key that it has once more, and counts. So exclusion between
 * two claims of one session has to be decided here. Readers share. */
static bool excludes(struct sql_claim *held, struct sql_claim *c)
{
    bool readers = claim_of(held)->mode == STILE_SHARED && claim_of(c)->mode == STILE_SHARED;
    return held->session == c->session && !readers;
}

bool postgres_held_against(struct sql_claim *c, int64_t id, bool even_by_readers)
{
    for (struct sql_claim *held = *head_of(pg_of_claim(c), id); held;
         held = pg_claim_of(held)->same) {
        if (has(held, pg_claim_of(c)->key.form, id) &&
            (excludes(held, c) || (even_by_readers && held->session == c->session)))
            return true;
    }
    return false;
}

void postgres_held_note_waiter(struct pg *pg, const struct key *key, int64_t id)
{
    for (struct sql_claim *held = *head_of(pg, id); held; held = pg_claim_of(held)->same) {
        if (has(held, key->form, id))
            pg_claim_of(held)->has_waiters = true;
    }
}

/* The hold that keeps the name back may have been ended. */
static void retry_held_back(struct pg *pg, int64_t id)
{
    for (struct session *session = pg->pool.sessions, *next; session; session = next) {
        struct sql_claim *c = session->base.claims;
        next = session->base.next;
        if (c && c->state == CLAIM_HELD_BACK && pg_claim_of(c)->id == id) {
            loop_disarm(pg->engine.loop, &c->timer);
            c->timer.fn(&c->timer);
        }
    }
}

/* "b form id token host pid", from older libraries without the last two: any role may send this, so
 * all of it is checked. */
void postgres_held_break(struct pg *pg, const char *payload, bool stale)
{
    struct stile_error err;
    int form, end = 0;
    long long id;
    unsigned long long token;
    if (sscanf(payload, "b %d %lld %llu%n", &form, &id, &token, &end) != 3)
        return;
    retry_held_back(pg, id);
    sql_break_blame(&err, payload + end);
    for (struct sql_claim *c = stale ? NULL : *head_of(pg, id), *next; c; c = next) {
        next = pg_claim_of(c)->same; /* in mode=row several of ours may share it */
        if (has(c, form == 2 ? KEY_TWO : KEY_ONE, id) && c->state == CLAIM_HELD &&
            (!token || token == c->token))
            sql_claim_lose(c, &err);
    }
}

/* ---- undoing a try ---- */

static void on_stepped_back(void *data, const struct answer *a)
{
    (void)a; /* an error here ends the session, and with it the lock */
    sql_claim_not_taken(data);
}

/* Gives back what the try has taken, one level of it: the session may hold the key for another
 * name. */
void postgres_claim_step_back(struct sql_claim *c, uint64_t hint_ms)
{
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_UNDOING);
    c->token = hint_ms;
    if (postgres_claim_send(c, SQL_UNLOCK, on_stepped_back, &err))
        sql_claim_not_taken(c);
}

/* An error is no proof that nothing was granted. */
static void on_checked(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    bool known = !a->err && PQntuples(a->result) == 1 && !PQgetisnull(a->result, 0, 0);
    int64_t id = known ? strtoll(postgres_value(a->result, 0, 0), NULL, 10) : 0;
    if (known && !postgres_held_against(c, id, true))
        postgres_claim_step_back(c, 0);
    else
        sql_claim_not_taken(c);
}

void postgres_claim_undo(struct sql_claim *c, const struct stile_error *err)
{
    struct stile_error none;
    c->why = *err;
    sql_claim_move_to(c, CLAIM_CHECKING);
    if (!c->session || c->session->base.state != UP ||
        postgres_claim_send(c, SQL_KEY, on_checked, &none))
        sql_claim_not_taken(c);
}

/* ---- beginning ---- */

bool postgres_claim_begin(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct pg *pg = pg_of_claim(c);
    struct pg_claim *own = pg_claim_of(c);
    own->has_waiters = own->draws = own->described = false;
    own->ticket = 0;
    if (own->server != pg->server) {
        own->server = pg->server;
        postgres_name_store(c->stored, claim->name, claim->name_len);
        postgres_key_make(&own->key, pg->options.dialect, claim->name, claim->name_len);
        own->id = strtoll(own->key.number, NULL, 10);
    }
    return sql_claim_begin(c);
}
