/* Sessions for those who wait inside the server, and what their lease is.
 *
 * A session's lease is its idle_session_timeout: the server itself ends a session, and with it all
 * its locks, that has not been heard of for so long. It is the longest TTL of what was asked for
 * since nothing was held, and never made shorter while something is: so no deadline of ours is ever
 * later than the server's. A client that has nothing in the server turns it off and stays
 * connected. */
#include <inttypes.h>
#include <stdio.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"
#include "mutant.h"

#define TTL_MAX_MS INT32_MAX

static void on_ttl(void *data, const struct answer *a)
{
    struct session *session = data;
    if (!a->err || session->state != UP)
        return;
    session->broken = true; /* its lease is not what we count on */
    loop_soon(session->loop, &session->task);
}

enum stile_status pool_tell_ttl_is(struct session *session, uint64_t ttl_ns, answer_fn *fn,
                                   void *data, struct stile_error *err)
{
    char text[24];
    const char *values[] = {text};
    uint64_t ms = ttl_ns / NS_PER_MS;
    snprintf(text, sizeof text, "%" PRIu64, ms < TTL_MAX_MS ? ms : TTL_MAX_MS);
    session->ttl_told_ns = ttl_ns;
    const struct statement *statement =
        session->pg->options.mode == MODE_ROW ? &sql_row_ttl : &sql_ttl;
    return session_send(session, statement, values, 1, fn ? fn : on_ttl, fn ? data : session, err);
}

enum stile_status pool_tell_ttl(struct session *session, struct stile_error *err)
{
    uint64_t ttl_ns = session->pg->ttl_ns;
#ifdef MUTANT_POSTGRES_NO_LEASE
    session->ttl_told_ns = ttl_ns;
    return STILE_OK;
#endif
    if (session->ttl_told_ns >= ttl_ns)
        return STILE_OK;
    return pool_tell_ttl_is(session, ttl_ns, NULL, NULL, err);
}

/* ---- taking and giving ---- */

static void on_up(struct session *session)
{
    (void)session;
}

static void on_down(struct session *session)
{
    pool_forget(session);
}

static const struct session_events events = {.up = on_up, .down = on_down, .ended = part_go_down};

void pool_forget(struct session *session)
{
    struct pg *pg = session->pg;
    struct session **at = &pg->sessions;
    while (*at && *at != session)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = session->next;
    pg->n_sessions--;
    if (pg->shared)
        session_forget(pg->shared, session); /* cancels of what waited here */
}

bool pool_has_idle(const struct pg *pg)
{
    const struct session *session = pg->sessions;
    while (session && !session->idle)
        session = session->next;
    return session != NULL;
}

enum stile_status pool_take(struct session **out, struct pg *pg, struct stile_error *err)
{
    struct session *session = pg->sessions;
    while (session && !session->idle)
        session = session->next;
    if (!session) {
        if (pg->n_sessions + 1 >= pg->options.sessions)
            return error_set(err, STILE_REFUSED, 0,
                             "%u sessions are in use, one for each lock that is waited for or %s: "
                             "say sessions=N in the URL for more",
                             pg->options.sessions,
                             pg->options.mode == MODE_ROW ? "held" : "was granted after a wait");
        enum stile_status status = pg_connect(&session, pg, &events, err);
        if (status)
            return status;
        session->next = pg->sessions;
        pg->sessions = session;
        pg->n_sessions++;
    }
    session->idle = false;
    *out = session;
    return STILE_OK;
}

void pool_give(struct session *session)
{
    session->waits = false;
    if (session->state == DOWN || session == session->pg->shared || session->claims ||
        session->cancels)
        return;
    session->idle = true;
    session->used_ns = loop_now(session->loop);
    pool_sweep_later(session->pg);
}

void pool_close(struct session *session)
{
    pool_forget(session);
    session_free(session);
}

/* ---- what is not used any more ---- */

/* A third of the lease, so that the server never has to end what is only idle. */
static uint64_t idle_ns(const struct pg *pg)
{
    return pg->ttl_ns / 3;
}

void pool_sweep_later(struct pg *pg)
{
    if (!pg->sweep.place)
        loop_arm(pg->engine.loop, &pg->sweep, loop_now(pg->engine.loop) + idle_ns(pg));
}

/* True: it has been idle for long. */
static bool is_stale(struct pg *pg, const struct session *session, uint64_t *next_ns)
{
    uint64_t until = session->used_ns + idle_ns(pg);
    if (until <= loop_now(pg->engine.loop))
        return true;
    *next_ns = until < *next_ns ? until : *next_ns;
    return false;
}

void pool_sweep(struct timer *timer)
{
    struct pg *pg = (struct pg *)((char *)timer - offsetof(struct pg, sweep));
    uint64_t next_ns = NEVER;
    for (struct session *session = pg->sessions, *next; session; session = next) {
        next = session->next;
        if (session->idle && is_stale(pg, session, &next_ns))
            pool_close(session);
    }
    struct session *shared = pg->shared;
    if (shared && pg->n_active == 0 && shared->ttl_told_ns && is_stale(pg, shared, &next_ns)) {
        pool_tell_ttl_is(shared, 0, NULL, NULL, NULL);
        pg->ttl_ns = 0;
    }
    if (next_ns != NEVER)
        loop_arm(pg->engine.loop, &pg->sweep, next_ns);
}
