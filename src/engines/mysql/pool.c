/* Sessions for those who wait inside the server, and what their lease is.
 *
 * A session's lease is its wait_timeout: the server itself ends a session, and with it all its
 * locks, that has not been heard of for so long. It is the longest TTL of what was asked for since
 * nothing was held, in whole seconds and never made shorter while something is held: so no deadline
 * of ours is ever later than the server's. A client that has nothing in the server sets it to a
 * year and stays connected. */
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"
#include "mutant.h"

uint64_t pool_lease(struct session *session)
{
    uint64_t ttl_ns = session->my->ttl_ns;
    if (session->ttl_told_ns >= ttl_ns)
        return 0;
    session->ttl_told_ns = ttl_ns;
#ifdef MUTANT_MYSQL_NO_LEASE
    return 0;
#endif
    return ttl_ns;
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

static const struct session_events events = {.up = on_up, .down = on_down, .ended = claims_go_down};

void pool_forget(struct session *session)
{
    struct my *my = session->my;
    struct session **at = &my->sessions;
    while (*at && *at != session)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = session->next;
    my->n_sessions--;
    if (my->shared)
        session_forget(my->shared, session); /* kills of what waited here */
}

bool pool_has_idle(const struct my *my)
{
    const struct session *session = my->sessions;
    while (session && !session->idle)
        session = session->next;
    return session;
}

enum stile_status pool_take(struct session **out, struct my *my, struct stile_error *err)
{
    struct session *session = my->sessions;
    while (session && !session->idle)
        session = session->next;
    if (!session) {
        if (my->n_sessions + 1 >= my->options.sessions)
            return error_set(err, STILE_REFUSED, 0,
                             "%u sessions are in use, one for each lock that is %s: say sessions=N "
                             "in the URL for more",
                             my->options.sessions,
                             my->options.mode == MODE_ROW
                                 ? "held or waited for"
                                 : "waited for or was granted after a wait");
        enum stile_status status = my_connect(&session, my, &events, err);
        if (status)
            return status;
        session->next = my->sessions;
        my->sessions = session;
        my->n_sessions++;
    }
    session->idle = false;
    *out = session;
    return STILE_OK;
}

void pool_give(struct session *session)
{
    session->waits = false;
    if (session->state == DOWN || session == session->my->shared || session->claims ||
        session->kills)
        return;
    session->idle = true;
    session->used_ns = loop_now(session->loop);
    pool_sweep_later(session->my);
}

void pool_close(struct session *session)
{
    pool_forget(session);
    session_free(session);
}

/* ---- what is not used any more ---- */

/* A third of the lease, so that the server never has to end what is only idle. */
static uint64_t idle_ns(const struct my *my)
{
    return my->ttl_ns / 3;
}

void pool_sweep_later(struct my *my)
{
    if (!my->sweep.place)
        loop_arm(my->engine.loop, &my->sweep, loop_now(my->engine.loop) + idle_ns(my));
}

/* True: it has been idle for long. */
static bool is_stale(struct my *my, const struct session *session, uint64_t *next_ns)
{
    uint64_t until = session->used_ns + idle_ns(my);
    if (until <= loop_now(my->engine.loop))
        return true;
    *next_ns = until < *next_ns ? until : *next_ns;
    return false;
}

static void on_lengthened(void *data, const struct answer *a)
{
    (void)data, (void)a; /* else the session ends, and the next claim connects again */
}

void pool_sweep(struct timer *timer)
{
    struct my *my = (struct my *)((char *)timer - offsetof(struct my, sweep));
    uint64_t next_ns = NEVER;
    for (struct session *session = my->sessions, *next; session; session = next) {
        next = session->next;
        if (session->idle && is_stale(my, session, &next_ns))
            pool_close(session);
    }
    struct session *shared = my->shared;
    if (shared && my->n_active == 0 && shared->ttl_told_ns && is_stale(my, shared, &next_ns)) {
        session_send(shared, sql_ttl(0), on_lengthened, NULL, NULL);
        shared->ttl_told_ns = 0;
        my->ttl_ns = 0;
    }
    if (next_ns != NEVER)
        loop_arm(my->engine.loop, &my->sweep, next_ns);
}
