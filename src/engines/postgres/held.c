/* What is held, by its key: two names may have the same one, and others name it when they want it
 * to end. */
#include <stdio.h>

#include "engines/postgres/pg.h"

static struct part **head_of(struct pg *pg, int64_t id)
{
    return &pg->by_key[(uint64_t)id * UINT64_C(0x9e3779b97f4a7c15) >> 55];
}

static void add(struct part *part)
{
    struct part **head = head_of(pg_of_part(part), mine(part)->id);
    mine(part)->same = *head;
    mine(part)->link = head;
    if (*head)
        mine(*head)->link = &mine(part)->same;
    *head = part;
}

static void drop(struct part *part)
{
    struct pg_claim *claim = mine(part);
    if (!claim->link)
        return;
    *claim->link = claim->same;
    if (claim->same)
        mine(claim->same)->link = claim->link;
    claim->link = NULL;
}

void held_note(struct part *part, bool holds)
{
    if (holds)
        add(part);
    else
        drop(part);
    if (part->standing == LEAVING && mine(part)->crowd)
        mine(part)->left_ns = loop_now(claim_of(part)->engine->loop);
}

static bool has(struct part *part, enum key_form form, int64_t id)
{
    return mine(part)->id == id && (mine(part)->key.form == KEY_TWO) == (form == KEY_TWO);
}

/* The server counts how often a session has a key, and never keeps a session from taking it once
 * more: what its own claims exclude has to be known here. Readers share. */
static bool excludes(struct part *held, struct part *part)
{
    bool readers = claim_of(held)->mode == STILE_SHARED && claim_of(part)->mode == STILE_SHARED;
    return held->session == part->session && !readers;
}

bool held_against(struct part *part, int64_t id, bool even_by_readers)
{
    for (struct part *held = *head_of(pg_of_part(part), id); held; held = mine(held)->same) {
        if (has(held, mine(part)->key.form, id) &&
            (excludes(held, part) || (even_by_readers && held->session == part->session)))
            return true;
    }
    return false;
}

void held_follow(struct pg *pg, const struct key *key, int64_t id)
{
    for (struct part *held = *head_of(pg, id); held; held = mine(held)->same) {
        if (has(held, key->form, id))
            mine(held)->followed = true;
    }
}

/* ---- `stile break` ---- */

/* What kept a name back may not do so any longer. */
static void look_at_sitting(struct pg *pg, int64_t id)
{
    for (struct session *session = pg->pool.sessions, *next; session; session = next) {
        struct part *part = session->seat.claims;
        next = session->seat.next;
        if (part && part->standing == SITTING && mine(part)->id == id) {
            loop_disarm(pg->engine.loop, &part->timer);
            part->timer.fn(&part->timer);
        }
    }
}

/* "b form id token": anybody may say anything here, so all of it is checked. */
void held_break(struct pg *pg, const char *payload, bool stale)
{
    struct stile_error err;
    int form;
    long long id;
    unsigned long long token;
    if (sscanf(payload, "b %d %lld %llu", &form, &id, &token) != 3)
        return;
    look_at_sitting(pg, id);
    error_set(&err, STILE_LOST, 0, "taken over by `stile break`");
    for (struct part *part = stale ? NULL : *head_of(pg, id), *next; part; part = next) {
        next = mine(part)->same; /* in mode=row several of ours may share it */
        if (has(part, form == 2 ? KEY_TWO : KEY_ONE, id) && part->standing == HOLDING &&
            (!token || token == part->token))
            part_lose(part, &err);
    }
}
