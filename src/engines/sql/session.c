/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/sql/session.h"

#include <stdlib.h>

#include "engines/sql/pool.h"

/* A server that is silent for this long is considered gone. Locks it still keeps for us end when
 * it finds the connection closed, or with their lease. */
#define STALL_MIN_NS (6 * NS_PER_SEC)

static const struct sql_database *database_of(struct session *session)
{
    return base_of(session)->pool->database;
}

bool sql_session_is_up(const struct session *session)
{
    return ((const struct sql_session *)session)->state == UP;
}

bool sql_session_is_over(const struct session *session)
{
    return ((const struct sql_session *)session)->state == DOWN;
}

/* ---- requests ---- */

void sql_session_append(struct session *session, struct request *request)
{
    struct sql_session *s = base_of(session);
    *s->last = request;
    s->last = &request_base(request)->next;
}

void sql_session_prepend(struct session *session, struct request *request)
{
    struct sql_session *s = base_of(session);
    request_base(request)->next = s->first;
    if (!s->first)
        s->last = &request_base(request)->next;
    s->first = request;
}

struct request *sql_session_take_first(struct session *session)
{
    struct sql_session *s = base_of(session);
    struct request *request = s->first;
    s->first = request_base(request)->next;
    if (!s->first)
        s->last = &s->first;
    return request;
}

void sql_session_forget(struct session *session, const void *data)
{
    for (struct request *request = base_of(session)->first; request;
         request = request_base(request)->next) {
        if (request_base(request)->data == data)
            request_base(request)->fn = NULL;
    }
    if (database_of(session)->forget)
        database_of(session)->forget(session, data);
}

/* ---- the end ---- */

static void close_connection(struct session *session)
{
    struct sql_session *s = base_of(session);
    loop_unwatch(s->loop, &s->watch);
    loop_disarm(s->loop, &s->timer);
    loop_forget(s->loop, &s->task);
    database_of(session)->close(session);
    s->state = DOWN;
}

static void dispose(struct session *session)
{
    struct sql_session *s = base_of(session);
    while (s->first)
        database_of(session)->drop(session, sql_session_take_first(session));
    if (database_of(session)->dispose)
        database_of(session)->dispose(session);
    free(s->spare);
    loop_unreserve(s->loop, 1);
    free(session);
}

void sql_session_enter(struct session *session)
{
    base_of(session)->depth++;
}

bool sql_session_leave(struct session *session)
{
    struct sql_session *s = base_of(session);
    s->depth--;
    if (s->depth > 0 || !s->doomed)
        return !s->doomed;
    dispose(session);
    return false;
}

void sql_session_free(struct session *session)
{
    if (!session)
        return;
    struct sql_session *s = base_of(session);
    if (s->state != DOWN)
        close_connection(session);
    s->doomed = true;
    if (s->depth == 0)
        dispose(session);
}

/* A session that was up could be reached: the reason for its end may pass. */
void sql_session_fail(struct session *session, const struct stile_error *why)
{
    struct sql_session *s = base_of(session);
    struct stile_error err = *why;
    if (s->state == DOWN)
        return;
    if (s->state == UP)
        err.status = STILE_UNREACHABLE;
    close_connection(session);
    sql_session_enter(session);
    s->events->down(session);
    while (s->first && !s->doomed)
        database_of(session)->answer(session, sql_session_take_first(session), &err);
    if (!s->doomed)
        s->events->ended(session, &err);
    s->doomed = true;
    sql_session_leave(session);
}

/* ---- a server that does not answer ---- */

static uint64_t stall_ns(const struct sql_session *s)
{
    return s->lease_ns > STALL_MIN_NS ? s->lease_ns : STALL_MIN_NS;
}

/* Stays armed for the next request: setting it anew for each would cost as much as the request. */
void sql_session_arm_stall(struct session *session)
{
    struct sql_session *s = base_of(session);
    if (s->state == UP && s->first && !s->timer.place)
        loop_arm(s->loop, &s->timer, loop_now(s->loop) + stall_ns(s));
}

/* The server has not answered, or could not be reached, in time. */
static void on_time(struct timer *timer)
{
    struct sql_session *s =
        (struct sql_session *)((char *)timer - offsetof(struct sql_session, timer));
    struct stile_error err;
    uint64_t now = loop_now(s->loop);
    if (s->state == UP && (!s->first || s->waits))
        return;
    uint64_t until = s->state == UP ? request_base(s->first)->sent_ns + stall_ns(s) : now;
    if (until > now) {
        loop_arm(s->loop, timer, until);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, 0, "the server does not answer");
    sql_session_fail((struct session *)s, &err);
}

/* ---- the beginning ---- */

void sql_session_init(struct session *session, struct pool *pool,
                      const struct session_events *events)
{
    struct sql_session *s = base_of(session);
    s->pool = pool;
    s->loop = pool->engine->loop;
    s->events = events;
    s->watch.fd = -1;
    s->timer.fn = on_time;
    s->last = &s->first;
    s->used_ns = loop_now(s->loop);
}

void sql_session_greeted(struct session *session, const struct stile_error *refused)
{
    struct sql_session *s = base_of(session);
    if (s->state == DOWN)
        return; /* it failed by itself */
    if (refused) {
        sql_session_fail(session, refused);
        return;
    }
    s->state = UP;
    s->was_up = true;
    loop_disarm(s->loop, &s->timer);
    s->events->up(session);
}
