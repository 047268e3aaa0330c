/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/sql/pool.h"

/* ---- the pool of a client ---- */

static void sweep(struct timer *timer);

enum stile_status sql_pool_init(struct pool *pool, struct engine *engine, struct stile_error *err)
{
    if (loop_reserve(engine->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    pool->engine = engine;
    pool->sweep.fn = sweep;
    return STILE_OK;
}

void sql_pool_configure(struct pool *pool, const struct sql_database *database, unsigned most,
                        bool for_each)
{
    pool->database = database;
    pool->most = most;
    pool->for_each = for_each;
}

void sql_pool_end(struct pool *pool)
{
    while (pool->sessions)
        sql_pool_close(pool->sessions);
    sql_session_free(pool->shared);
    pool->shared = NULL;
    loop_disarm(pool->engine->loop, &pool->sweep);
    loop_unreserve(pool->engine->loop, 1);
}

void sql_pool_forked(struct pool *pool)
{
    if (pool->shared)
        pool->database->forked(pool->shared);
    for (struct session *session = pool->sessions; session; session = base_of(session)->next)
        pool->database->forked(session);
}

void sql_pool_forget(struct pool *pool, const void *data)
{
    if (pool->shared)
        sql_session_forget(pool->shared, data);
}

/* ---- taking and returning sessions ---- */

void sql_pool_remove(struct session *session)
{
    struct pool *pool = base_of(session)->pool;
    struct session **at = &pool->sessions;
    while (*at && *at != session)
        at = &base_of(*at)->next;
    if (!*at)
        return;
    *at = base_of(session)->next;
    pool->n--;
    sql_pool_forget(pool, session); /* stops of a statement that waited here */
}

static struct session *find_idle(const struct pool *pool)
{
    struct session *session = pool->sessions;
    while (session && !base_of(session)->idle)
        session = base_of(session)->next;
    return session;
}

bool sql_pool_has_idle(const struct pool *pool)
{
    return find_idle(pool);
}

static enum stile_status add(struct session **session, struct pool *pool, struct stile_error *err)
{
    if (pool->n + 1 >= pool->most)
        return error_set(err, STILE_REFUSED, 0,
                         "%u sessions are in use, one for each lock that is %s: set sessions=N in "
                         "the URL for more",
                         pool->most,
                         pool->for_each ? "held or waited for"
                                        : "waited for, or was granted after a wait");
    enum stile_status status = pool->database->connect(session, pool, pool->events, err);
    if (status)
        return status;
    base_of(*session)->next = pool->sessions;
    pool->sessions = *session;
    pool->n++;
    return STILE_OK;
}

enum stile_status sql_pool_take(struct session **out, struct pool *pool, struct stile_error *err)
{
    struct session *session = find_idle(pool);
    enum stile_status status = session ? STILE_OK : add(&session, pool, err);
    if (status)
        return status;
    base_of(session)->idle = false;
    *out = session;
    return STILE_OK;
}

void sql_pool_lend_shared(struct pool *pool)
{
    struct session *session = pool->shared;
    pool->shared = NULL;
    base_of(session)->next = pool->sessions;
    pool->sessions = session;
    pool->n++;
}

void sql_pool_share_idle(struct pool *pool)
{
    struct session *session = find_idle(pool);
    if (pool->shared || !pool->database->share || !session)
        return;
    sql_pool_remove(session);
    base_of(session)->idle = false;
    base_of(session)->next = NULL;
    pool->shared = session;
    pool->database->share(session);
}

enum stile_status sql_pool_shared(struct session **session, struct pool *pool,
                                  struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    sql_pool_share_idle(pool);
    if (!pool->shared)
        status = pool->database->connect(&pool->shared, pool, pool->shared_events, err);
    *session = pool->shared;
    return status;
}

/* A claim that waited on the shared session may hold its lock there: a record of it needs no
 * connection of its own. Where each claim has a session (for_each), that has an open transaction.
 */
enum stile_status sql_pool_at_hand(struct session **out, struct pool *pool, struct stile_error *err)
{
    sql_pool_share_idle(pool);
    struct session *session = pool->shared || pool->for_each ? NULL : pool->sessions;
    while (session && (!sql_session_is_up(session) || base_of(session)->waits))
        session = base_of(session)->next;
    if (!session)
        return sql_pool_shared(out, pool, err);
    *out = session;
    return STILE_OK;
}

void sql_pool_shared_down(struct session *session)
{
    base_of(session)->pool->shared = NULL;
}

void sql_pool_return(struct session *session)
{
    struct sql_session *base = base_of(session);
    base->waits = false;
    if (sql_session_is_over(session) || session == base->pool->shared || base->claims ||
        base->pending_stops)
        return;
    base->idle = true;
    base->used_ns = loop_now(base->pool->engine->loop);
    sql_pool_sweep_later(base->pool);
}

void sql_pool_close(struct session *session)
{
    sql_pool_remove(session);
    sql_session_free(session);
}

/* ---- closing unused sessions ---- */

/* A third of the lease, so that the server never has to end an idle session. */
static uint64_t idle_ns(const struct pool *pool)
{
    return pool->ttl_ns / 3;
}

void sql_pool_sweep_later(struct pool *pool)
{
    struct loop *loop = pool->engine->loop;
    if (!pool->sweep.place)
        loop_arm(loop, &pool->sweep, loop_now(loop) + idle_ns(pool));
}

/* True: it has been idle for too long. Else *next_ns is no later than when it will be. */
static bool is_stale(struct pool *pool, struct session *session, uint64_t *next_ns)
{
    uint64_t now = loop_now(pool->engine->loop), until = base_of(session)->used_ns + idle_ns(pool);
    if (base_of(session)->first) /* a record is not stored yet */
        until = now + idle_ns(pool);
    if (until <= now)
        return true;
    *next_ns = until < *next_ns ? until : *next_ns;
    return false;
}

static void sweep(struct timer *timer)
{
    struct pool *pool = (struct pool *)((char *)timer - offsetof(struct pool, sweep));
    uint64_t next_ns = NEVER;
    sql_pool_share_idle(pool); /* a client that holds nothing stays connected */
    struct session *shared = pool->shared;
    for (struct session *session = pool->sessions, *next; session; session = next) {
        next = base_of(session)->next;
        if (base_of(session)->idle && is_stale(pool, session, &next_ns))
            sql_pool_close(session);
    }
    if (shared && pool->n_active == 0 && base_of(shared)->lease_ns &&
        is_stale(pool, shared, &next_ns)) {
        pool->database->keep(shared);
        pool->ttl_ns = 0;
    }
    if (next_ns != NEVER)
        loop_arm(pool->engine->loop, &pool->sweep, next_ns);
}

/* ---- renewing ---- */

/* When a session has died, each of its locks is reported lost by itself. */
void sql_pool_renewed(struct session *session, uint64_t sent_ns, const struct stile_error *err)
{
    struct sql_session *base = base_of(session);
    struct engine *engine = base->pool->engine;
    base->renewing = false;
    if (err)
        engine->events->session_unknown(engine, session);
    else
        engine->events->session_renewed(engine, session, sent_ns, base->renewing_ttl_ns);
}

static void renew(struct session *session)
{
    struct sql_session *base = base_of(session);
    struct engine *engine = base->pool->engine;
    uint64_t ttl_ns = base->pool->ttl_ns;
    if (!base->claims || base->renewing)
        return;
    if (base->waits) { /* the server does not end a session with a statement under way, and it could
                          not answer */
        engine->events->session_renewed(engine, session, loop_now(engine->loop), ttl_ns);
        return;
    }
    base->renewing = true;
    base->renewing_ttl_ns = ttl_ns;
    if (base->pool->database->renew(session, ttl_ns)) {
        base->renewing = false;
        engine->events->session_unknown(engine, session);
    }
}

void sql_pool_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct pool *pool = pool_of(engine);
    (void)claims, (void)n;
    for (struct session *session = pool->sessions, *next; session; session = next) {
        next = base_of(session)->next;
        renew(session);
    }
    if (pool->shared)
        renew(pool->shared);
}
