/* Where a claim is: on which session, by which key, and how it ends there. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/postgres/pg.h"

void part_join(struct pg_claim *part, struct session *session)
{
    part->session = session;
    claim_of(part)->session = session;
    part->next = session->claims;
    part->link = &session->claims;
    if (part->next)
        part->next->link = &part->next;
    session->claims = part;
}

void part_leave(struct pg_claim *part)
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

struct pg_claim *part_with_id(struct pg *pg, const struct key *key, int64_t id)
{
    struct pg_claim *part = *head_of(pg, id);
    while (part && (part->id != id || (part->key.form == KEY_TWO) != (key->form == KEY_TWO)))
        part = part->key_next;
    return part;
}

void part_retire(struct pg_claim *part)
{
    struct pg *pg = pg_of_part(part);
    drop_from_index(part);
    part_leave(part);
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

bool part_begin(struct pg_claim *part)
{
    struct claim *claim = claim_of(part);
    struct pg *pg = pg_of_part(part);
    struct stile_error err;
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
    part->has_timer = loop_reserve(pg->engine.loop, 1) == 0;
    if (part->has_timer)
        return true;
    error_set(&err, STILE_NOMEM, 0, "out of memory");
    part_fail(part, &err);
    return false;
}

/* Nothing is left of it in the server. */
void part_fail(struct pg_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct stile_error why = *err;
    part_retire(part);
    claim->engine->events->failed(claim, &why);
}

void part_turn_away(struct pg_claim *part, uint64_t hint_ns)
{
    struct claim *claim = claim_of(part);
    part_retire(part);
    claim->engine->events->busy(claim, hint_ns);
}

/* ---- granted ---- */

void part_grant(struct pg_claim *part, uint64_t token, uint64_t sent_ns)
{
    struct claim *claim = claim_of(part);
    part->standing = HOLDING;
    part->token = token;
    index_by_key(part);
    claim->engine->events->granted(claim, token, sent_ns, part->session->ttl_told_ns);
}

/* A session that holds nothing but a claim that failed is given back clean, or not at all. */
void part_give_up(struct pg_claim *part, const struct stile_error *err)
{
    struct session *session = part->session;
    struct stile_error why = *err;
    part_leave(part);
    if (session && session->state != DOWN)
        pool_close(session);
    if (part->withdrawn)
        release_go_on(part, false);
    else
        part_fail(part, &why);
}

void part_alive(void *data, const struct answer *a)
{
    struct pg_claim *part = data;
    if (a->err)
        part_give_up(part, a->err);
    else if (part->withdrawn)
        release_go_on(part, true);
    else
        part_grant(part, part->token, a->sent_ns);
}

/* ---- losing it ---- */

void part_lose(struct pg_claim *part, const struct stile_error *why)
{
    struct stile_error err = *why;
    struct claim *claim = claim_of(part);
    err.status = STILE_LOST;
    drop_from_index(part);
    part->told = true;
    claim->engine->events->lost(claim, &err);
}

/* What was asked has been answered; what was held or sat has to be told. */
void part_go_down(struct session *session, const struct stile_error *why)
{
    struct stile_error err = *why;
    while (session->claims) {
        struct pg_claim *part = session->claims;
        enum standing standing = part->standing;
        part_leave(part);
        if (standing == COUNTING && session->pg->shared)
            session_forget(session->pg->shared, part);
        if (standing == HOLDING) {
            error_wrap(&err, err.status, "the session that held it has ended");
            part_lose(part, &err);
            err = *why;
        } else if (standing == COUNTING && part->withdrawn) {
            release_left(part, NULL);
        } else if (standing == SITTING || standing == COUNTING) {
            part_fail(part, &err);
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
            part->timer.fn(&part->timer);
        }
    }
}

/* "b form id token": anybody may say anything here, so all of it is checked. */
void part_break(struct pg *pg, const char *payload)
{
    struct stile_error err;
    int form;
    long long id;
    unsigned long long token;
    if (sscanf(payload, "b %d %lld %llu", &form, &id, &token) != 3)
        return;
    struct key key = {.form = form == 2 ? KEY_TWO : KEY_ONE};
    look_at_sitting(pg, id);
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    struct pg_claim *part = part_with_id(pg, &key, id), *next;
    for (; part; part = next) { /* in mode=row several of ours may share it */
        next = part->key_next;
        if (part->id == id && (part->key.form == KEY_TWO) == (form == 2) &&
            part->standing == HOLDING && (!token || token == part->token))
            part_lose(part, &err);
    }
}
