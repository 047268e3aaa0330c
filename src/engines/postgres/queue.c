/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The queue: waiting for longer than a statement may.
 *
 * A statement that waits inside the server keeps a snapshot, which delays VACUUM and CREATE INDEX
 * CONCURRENTLY in the whole database. So a wait inside the server ends after less than a second,
 * and the claim is queued: a row of stile.waiting is its place, and all queued claims share one
 * session. A stile client that releases the lock wakes the first; behind a foreign holder, which
 * sends no wake-up, the claim tries by itself. The row counts as long as the session has the lock
 * of its mark: so a place ends with its process.
 *
 *     QUEUEING ──► RETRYING ──► QUEUED ──► RETRYING ──► ... ──► granted
 *     a ticket     a try        idle       woken, or it is time
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"

static void look(struct sql_claim *c);

static const char *sub_of(struct sql_claim *c)
{
    return pg_claim_of(c)->key.form == KEY_TWO ? "2" : "1";
}

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a; /* the place ends with the session at the latest */
}

void postgres_queue_leave(struct sql_claim *c)
{
    char ticket[24];
    const char *values[] = {ticket};
    if (pg_claim_of(c)->ticket && c->session) {
        snprintf(ticket, sizeof ticket, "%" PRIu64, pg_claim_of(c)->ticket);
        postgres_send(c->session, &postgres_sql_queue_leave, values, 1, ignore, NULL, NULL);
    }
    pg_claim_of(c)->ticket = 0;
}

/* ---- queued ---- */

static void look_again(struct timer *timer)
{
    struct sql_claim *c = sql_claim_of_timer(timer);
    if (c->state == CLAIM_QUEUED)
        look(c);
}

static void stay_queued(struct sql_claim *c, uint64_t ms)
{
    struct loop *loop = claim_of(c)->engine->loop;
    uint64_t poll_ns = pg_of_claim(c)->options.poll_ns;
    uint64_t pause = ms && ms * NS_PER_MS < poll_ns ? ms * NS_PER_MS : poll_ns;
    sql_claim_move_to(c, CLAIM_QUEUED);
    c->timer.fn = look_again;
    loop_arm(loop, &c->timer, loop_now(loop) + pause);
}

static void stay_or_leave(struct sql_claim *c, uint64_t ms)
{
    if (c->withdrawn) {
        postgres_queue_leave(c);
        sql_claim_released(c, NULL);
    } else {
        stay_queued(c, ms);
    }
}

static void on_given_back(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    uint64_t ms = c->token;
    c->token = 0;
    if (a->err) {
        postgres_queue_leave(c);
        c->why = *a->err;
        sql_claim_not_taken(c);
    } else {
        stay_or_leave(c, ms);
    }
}

/* A hold keeps the name back. The lock is given back meanwhile: the hold refuses every try. */
static void give_back(struct sql_claim *c, uint64_t ms)
{
    struct stile_error err;
    c->token = ms;
    if (postgres_claim_send(c, SQL_UNLOCK, on_given_back, &err)) {
        c->token = 0;
        c->why = err;
        sql_claim_not_taken(c);
    }
}

static void on_looked(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    struct stile_error strange;
    uint64_t number = 0;
    enum grant_reply reply = a->err ? REPLY_STRANGE : postgres_read_grant(c, a->result, &number);
    if (reply == REPLY_STRANGE) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        postgres_queue_leave(c);
        postgres_claim_undo(c, a->err ? a->err : &strange);
    } else if (reply == REPLY_TAKEN || reply == REPLY_NOT_FIRST) {
        stay_or_leave(c, 0);
    } else if (reply == REPLY_HELD_BACK || postgres_held_against(c, pg_claim_of(c)->id, false)) {
        give_back(c, number);
    } else {
        pg_claim_of(c)->ticket = 0; /* the grant has given up its place */
        c->token = number;
        if (c->withdrawn)
            sql_claim_withdraw(c, true);
        else
            sql_claim_grant(c, number, a->sent_ns);
    }
}

static void look(struct sql_claim *c)
{
    struct stile_error err;
    sql_claim_move_to(c, CLAIM_RETRYING);
    if (postgres_lease_set(c->session, &err) || postgres_claim_send(c, SQL_TRY, on_looked, &err)) {
        postgres_queue_leave(c);
        sql_claim_abandon(c, &err);
    }
}

/* ---- getting a place ---- */

/* The holder may have released it before it heard of this waiter: try once more. */
static void on_joined(void *data, const struct answer *a)
{
    struct sql_claim *c = data;
    if (!a->err && PQntuples(a->result) == 1)
        pg_claim_of(c)->ticket = strtoull(postgres_value(a->result, 0, 0), NULL, 10);
    if (!pg_claim_of(c)->ticket) {
        error_set(&c->why, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        if (a->err)
            c->why = *a->err;
        sql_claim_not_taken(c);
    } else if (c->withdrawn) {
        stay_or_leave(c, 0);
    } else {
        claim_of(c)->engine->events->queued(claim_of(c));
        look(c);
    }
}

void postgres_queue_join(struct sql_claim *c)
{
    struct pg *pg = pg_of_claim(c);
    struct session *shared;
    struct stile_error err;
    char id[24], waited[24];
    snprintf(id, sizeof id, "%" PRId64, pg_claim_of(c)->id);
    snprintf(waited, sizeof waited, "%" PRIu64, sql_claim_waited_ms(c));
    const char *values[] = {id, sub_of(c), claim_of(c)->mode == STILE_SHARED ? "t" : "f",
                            pg->channel, waited};
    if (sql_pool_shared(&shared, &pg->pool, &err)) {
        sql_claim_fail(c, &err);
        return;
    }
    sql_claim_join(c, shared);
    sql_claim_move_to(c, CLAIM_QUEUEING);
    if (postgres_send(shared, &postgres_sql_queue_join, values, 5, on_joined, c, &err))
        sql_claim_fail(c, &err);
}

/* ---- waking ---- */

void postgres_queue_wake_next(struct sql_claim *c)
{
    char id[24];
    const char *values[] = {id, sub_of(c)};
    if (!pg_claim_of(c)->has_waiters || pg_of_claim(c)->schema < SCHEMA_QUEUE)
        return;
    snprintf(id, sizeof id, "%" PRId64, pg_claim_of(c)->id);
    postgres_send(c->session, &postgres_sql_queue_wake, values, 2, ignore, NULL, NULL);
}

static void wake_queued(struct pg *pg, int sub, int64_t id)
{
    struct session *shared = pg->pool.shared;
    for (struct sql_claim *c = shared ? shared->base.claims : NULL, *next; c; c = next) {
        next = c->next;
        if (c->state != CLAIM_QUEUED || pg_claim_of(c)->id != id ||
            (pg_claim_of(c)->key.form == KEY_TWO) != (sub == 2))
            continue;
        loop_disarm(pg->engine.loop, &c->timer);
        look(c);
    }
}

/* "p sub key": it has a waiter; "w sub key": it may be free. Only hints: any role may send them. */
void postgres_queue_notified(struct pg *pg, const char *payload)
{
    int sub;
    long long id;
    char what;
    if (sscanf(payload, "%c %d %lld", &what, &sub, &id) != 3)
        return;
    struct key key = {.form = sub == 2 ? KEY_TWO : KEY_ONE};
    if (what == 'p')
        postgres_held_note_waiter(pg, &key, id);
    else if (what == 'w')
        wake_queued(pg, sub, id);
}
