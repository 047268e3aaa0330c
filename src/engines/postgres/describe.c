/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of grants that were made without one.
 *
 * A row that describes the holder costs the server more than all the rest of a grant, and most
 * locks are over before anybody asks. So a grant draws its token and writes nothing. What is still
 * held some milliseconds later, or when this client looks, is described in a statement of its own,
 * many names at once; nobody waits for it. After its release the row no longer names the session,
 * because that session's next grant may have no row. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

/* A lock that is held for longer is described. Shows wait for that: inspect.c. */
#define BRIEF_NS (10 * NS_PER_MS)
/* Names in one statement. */
#define AT_ONCE 256

/* ---- those that are not described yet, by the time of their grant ---- */

static void arm(struct pg *pg, uint64_t now_ns)
{
    if (pg->undescribed.armed || (!pg->undescribed.first && !pg->undescribed.over))
        return;
    pg->undescribed.armed = true;
    loop_arm(pg->engine.loop, &pg->undescribed.timer, now_ns + BRIEF_NS);
}

/* The timer stays armed when the lock is given back: a pair of acquire and release sets none. */
void postgres_describe_later(struct sql_claim *c)
{
    struct pg *pg = pg_of_claim(c);
    struct pg_claim *own = pg_claim_of(c);
    own->granted_ns = loop_lately(pg->engine.loop);
    own->later = NULL;
    own->later_link = pg->undescribed.end;
    *pg->undescribed.end = c;
    pg->undescribed.end = &own->later;
    arm(pg, own->granted_ns);
}

void postgres_describe_never(struct sql_claim *c)
{
    struct pg *pg = pg_of_claim(c);
    struct pg_claim *own = pg_claim_of(c);
    if (!own->later_link)
        return;
    *own->later_link = own->later;
    if (own->later)
        pg_claim_of(own->later)->later_link = own->later_link;
    else
        pg->undescribed.end = own->later_link;
    own->later_link = NULL;
}

/* ---- arrays ---- */

enum { NAMES, TOKENS, KEYS, AGES, ARRAYS };

static int put_number(struct buffer *to, int64_t number)
{
    char text[24];
    return buffer_put(to, text, (size_t)snprintf(text, sizeof text, "%" PRId64, number));
}

/* An element of an array: in quotes, as a name may contain what separates them. */
static int put_name(struct buffer *to, const char *name)
{
    int failed = buffer_put(to, "\"", 1);
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            failed |= buffer_put(to, "\\", 1);
        failed |= buffer_put(to, name, 1);
    }
    return failed | buffer_put(to, "\"", 1);
}

static int put_name_and_token(struct buffer *arrays, int n, const char *name, uint64_t token)
{
    int failed = 0;
    for (int i = 0; i < n; i++)
        failed |= buffer_put(&arrays[i], buffer_len(&arrays[i]) ? "," : "{", 1);
    failed |= put_name(&arrays[NAMES], name);
    return failed | put_number(&arrays[TOKENS], (int64_t)token);
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a; /* it is only shown: the lock is held in any case */
}

/* Without memory nothing is sent. */
static void send_arrays(struct session *session, const struct statement *statement,
                        struct buffer *arrays, int n, int failed)
{
    const struct identity *me = &session->pg->identity;
    const char *values[ARRAYS + 4] = {[ARRAYS] = me->owner, me->host, me->pid, me->command};
    for (int i = 0; i < n; i++) {
        failed |= buffer_put(&arrays[i], "}", 2); /* with its NUL */
        values[i] = failed ? NULL : buffer_at(&arrays[i]);
    }
    if (!failed)
        postgres_send(session, statement, values, n == ARRAYS ? ARRAYS + 4 : n, ignore, NULL, NULL);
    for (int i = 0; i < n; i++)
        buffer_free(&arrays[i]);
}

/* ---- describing ---- */

static int put(struct buffer arrays[ARRAYS], struct sql_claim *c, uint64_t now_ns)
{
    const struct pg_claim *own = pg_claim_of(c);
    int failed = put_name_and_token(arrays, ARRAYS, c->stored, c->token);
    failed |= put_number(&arrays[KEYS], own->id);
    return failed | put_number(&arrays[AGES], (int64_t)((now_ns - own->granted_ns) / NS_PER_MS));
}

/* Those of one session, from the oldest on. */
static void describe_some(struct pg *pg, uint64_t before_ns)
{
    struct session *session = pg->undescribed.first->session;
    struct buffer arrays[ARRAYS] = {{0}};
    uint64_t now_ns = loop_now(pg->engine.loop);
    struct sql_claim *c;
    int failed = 0;
    for (int n = 0; n < AT_ONCE && (c = pg->undescribed.first) && c->session == session &&
                    pg_claim_of(c)->granted_ns <= before_ns;
         n++) {
        failed |= put(arrays, c, now_ns);
        pg_claim_of(c)->described = true;
        postgres_describe_never(c);
    }
    send_arrays(session, &postgres_sql_describe, arrays, ARRAYS, failed);
}

static void describe(struct pg *pg, uint64_t before_ns)
{
    while (pg->undescribed.first && pg_claim_of(pg->undescribed.first)->granted_ns <= before_ns)
        describe_some(pg, before_ns);
}

void postgres_describe_all(struct pg *pg)
{
    describe(pg, UINT64_MAX);
}

/* ---- after the release ---- */

/* A row that names a session which has given the lock back. */
struct over {
    struct over *next;
    uint64_t session, since_ns, token;
    int64_t id;
    char name[];
};

static struct session *find(const struct pg *pg, uint64_t number)
{
    struct session *session = pg->pool.shared;
    if (session && session->number == number)
        return session;
    for (session = pg->pool.sessions; session; session = session->base.next) {
        if (session->number == number)
            return session;
    }
    return NULL;
}

static void remove_over(struct pg *pg, struct over **at)
{
    struct over *over = *at;
    *at = over->next;
    pg->undescribed.n_over--;
    free(over);
}

/* Those of one session, of any age, if id is NULL. */
static void correct(struct pg *pg, struct session *session, const int64_t *id)
{
    struct buffer arrays[KEYS] = {{0}};
    int failed = 0, n = 0;
    for (struct over **at = &pg->undescribed.over; *at && n < AT_ONCE;) {
        if ((*at)->session != session->number || (id && (*at)->id != *id)) {
            at = &(*at)->next;
            continue;
        }
        failed |= put_name_and_token(arrays, KEYS, (*at)->name, (*at)->token);
        remove_over(pg, at);
        n++;
    }
    if (n)
        send_arrays(session, &postgres_sql_undescribe, arrays, KEYS, failed);
}

/* Not at the release, where the statement would compete with the next holder for a processor. A
 * session that waits in the server is left alone. */
static void correct_older(struct pg *pg, uint64_t before_ns)
{
    for (struct over **at = &pg->undescribed.over; *at;) {
        struct session *session = find(pg, (*at)->session);
        if ((*at)->since_ns > before_ns || (session && session->base.waits)) {
            at = &(*at)->next;
        } else if (!session) {
            remove_over(pg, at);
        } else {
            correct(pg, session, NULL);
            at = &pg->undescribed.over;
        }
    }
}

void postgres_describe_again(struct sql_claim *c)
{
    struct pg *pg = pg_of_claim(c);
    if (pg->undescribed.over)
        correct(pg, c->session, &pg_claim_of(c)->id);
}

void postgres_describe_over(struct sql_claim *c)
{
    struct claim *claim = claim_of(c);
    struct pg *pg = pg_of_claim(c);
    size_t size = strlen(c->stored) + 1;
    uint64_t now_ns = loop_now(pg->engine.loop);
    if (!pg_claim_of(c)->described || claim->hold_ns || claim->delay_ns)
        return;
    pg_claim_of(c)->described = false;
    struct over *over = malloc(sizeof *over + size);
    if (!over) /* its next grant corrects the row, some milliseconds later */
        return;
    *over = (struct over){.next = pg->undescribed.over,
                          .session = c->session->number,
                          .since_ns = now_ns,
                          .token = c->token,
                          .id = pg_claim_of(c)->id};
    memcpy(over->name, c->stored, size);
    pg->undescribed.over = over;
    if (++pg->undescribed.n_over % AT_ONCE == 0)
        correct_older(pg, UINT64_MAX);
    arm(pg, now_ns);
}

static void on_time(struct timer *timer)
{
    struct pg *pg = (struct pg *)((char *)timer - offsetof(struct pg, undescribed.timer));
    uint64_t now_ns = loop_now(pg->engine.loop);
    pg->undescribed.armed = false;
    describe(pg, now_ns - BRIEF_NS);
    correct_older(pg, now_ns - BRIEF_NS);
    arm(pg, now_ns);
}

/* ---- of the client ---- */

enum stile_status postgres_describe_init(struct pg *pg, struct stile_error *err)
{
    pg->undescribed.end = &pg->undescribed.first;
    pg->undescribed.timer.fn = on_time;
    if (loop_reserve(pg->engine.loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    pg->undescribed.reserved = true;
    return STILE_OK;
}

void postgres_describe_end(struct pg *pg)
{
    if (!pg->undescribed.reserved)
        return;
    loop_disarm(pg->engine.loop, &pg->undescribed.timer);
    loop_unreserve(pg->engine.loop, 1);
    pg->undescribed.reserved = false;
    while (pg->undescribed.over)
        remove_over(pg, &pg->undescribed.over);
}
