#include "engines/sql/pool.h"

/* ---- the client's ---- */

static void sweep(struct timer *timer);

enum stile_status pool_init(struct pool *pool, struct engine *engine, struct stile_error *err)
{
    if (loop_reserve(engine->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    pool->engine = engine;
    pool->sweep.fn = sweep;
    return STILE_OK;
}

void pool_limit(struct pool *pool, unsigned most, bool for_each)
{
    pool->most = most;
    pool->for_each = for_each;
}

void pool_end(struct pool *pool)
{
    while (pool->sessions)
        pool_close(pool->sessions);
    session_free(pool->shared);
    pool->shared = NULL;
    loop_disarm(pool->engine->loop, &pool->sweep);
    loop_unreserve(pool->engine->loop, 1);
}

void pool_forked(struct pool *pool)
{
    session_forked(pool->shared);
    for (struct session *session = pool->sessions; session; session = seat_of(session)->next)
        session_forked(session);
}

void pool_unask(struct pool *pool, const void *data)
{
    if (pool->shared)
        session_forget(pool->shared, data);
}

/* ---- taking and giving ---- */

void pool_forget(struct session *session)
{
    struct pool *pool = seat_of(session)->pool;
    struct session **at = &pool->sessions;
    while (*at && *at != session)
        at = &seat_of(*at)->next;
    if (!*at)
        return;
    *at = seat_of(session)->next;
    pool->n--;
    pool_unask(pool, session); /* stops of what waited here */
}

static struct session *find_idle(const struct pool *pool)
{
    struct session *session = pool->sessions;
    while (session && !seat_of(session)->idle)
        session = seat_of(session)->next;
    return session;
}

bool pool_has_idle(const struct pool *pool)
{
    return find_idle(pool);
}

static enum stile_status add(struct session **session, struct pool *pool, struct stile_error *err)
{
    if (pool->n + 1 >= pool->most)
        return error_set(err, STILE_REFUSED, 0,
                         "%u sessions are in use, one for each lock that is %s: say sessions=N in "
                         "the URL for more",
                         pool->most,
                         pool->for_each ? "held or waited for"
                                        : "waited for or was granted after a wait");
    enum stile_status status = session_connect(session, pool, err);
    if (status)
        return status;
    seat_of(*session)->next = pool->sessions;
    pool->sessions = *session;
    pool->n++;
    return STILE_OK;
}

enum stile_status pool_take(struct session **out, struct pool *pool, struct stile_error *err)
{
    struct session *session = find_idle(pool);
    enum stile_status status = session ? STILE_OK : add(&session, pool, err);
    if (status)
        return status;
    seat_of(session)->idle = false;
    *out = session;
    return STILE_OK;
}

void pool_lend_shared(struct pool *pool)
{
    struct session *session = pool->shared;
    pool->shared = NULL;
    seat_of(session)->next = pool->sessions;
    pool->sessions = session;
    pool->n++;
}

void pool_share_idle(struct pool *pool)
{
    struct session *session = find_idle(pool);
    if (pool->shared || !pool->share || !session)
        return;
    pool_forget(session);
    seat_of(session)->idle = false;
    seat_of(session)->next = NULL;
    pool->shared = session;
    pool->share(session);
}

void pool_give(struct session *session)
{
    struct seat *seat = seat_of(session);
    seat->waits = false;
    if (session_is_over(session) || session == seat->pool->shared || seat->claims || seat->stops)
        return;
    seat->idle = true;
    seat->used_ns = loop_now(seat->pool->engine->loop);
    pool_sweep_later(seat->pool);
}

void pool_close(struct session *session)
{
    pool_forget(session);
    session_free(session);
}

/* ---- what is not used any more ---- */

/* A third of the lease, so that the server never has to end what is only idle. */
static uint64_t idle_ns(const struct pool *pool)
{
    return pool->ttl_ns / 3;
}

void pool_sweep_later(struct pool *pool)
{
    struct loop *loop = pool->engine->loop;
    if (!pool->sweep.place)
        loop_arm(loop, &pool->sweep, loop_now(loop) + idle_ns(pool));
}

/* True: it has been idle for long. */
static bool is_stale(struct pool *pool, struct session *session, uint64_t *next_ns)
{
    uint64_t until = seat_of(session)->used_ns + idle_ns(pool);
    if (until <= loop_now(pool->engine->loop))
        return true;
    *next_ns = until < *next_ns ? until : *next_ns;
    return false;
}

static void sweep(struct timer *timer)
{
    struct pool *pool = (struct pool *)((char *)timer - offsetof(struct pool, sweep));
    uint64_t next_ns = NEVER;
    pool_share_idle(pool); /* a client that has nothing stays connected */
    struct session *shared = pool->shared;
    for (struct session *session = pool->sessions, *next; session; session = next) {
        next = seat_of(session)->next;
        if (seat_of(session)->idle && is_stale(pool, session, &next_ns))
            pool_close(session);
    }
    if (shared && pool->n_active == 0 && seat_of(shared)->ttl_told_ns &&
        is_stale(pool, shared, &next_ns)) {
        session_keep(shared);
        pool->ttl_ns = 0;
    }
    if (next_ns != NEVER)
        loop_arm(pool->engine->loop, &pool->sweep, next_ns);
}

/* ---- renewing ---- */

/* Of a session that has died each lock is told by itself. */
void pool_renewed(struct session *session, uint64_t sent_ns, const struct stile_error *err)
{
    struct seat *seat = seat_of(session);
    struct engine *engine = seat->pool->engine;
    seat->probed = false;
    if (err)
        engine->events->session_unknown(engine, session);
    else
        engine->events->session_renewed(engine, session, sent_ns, seat->probed_ttl_ns);
}

static void renew(struct session *session)
{
    struct seat *seat = seat_of(session);
    struct engine *engine = seat->pool->engine;
    uint64_t ttl_ns = seat->pool->ttl_ns;
    if (!seat->claims || seat->probed)
        return;
    if (seat->waits) { /* in the server: it needs nothing, and could not be asked */
        engine->events->session_renewed(engine, session, loop_now(engine->loop), ttl_ns);
        return;
    }
    seat->probed = true;
    seat->probed_ttl_ns = ttl_ns;
    if (session_renew(session, ttl_ns)) {
        seat->probed = false;
        engine->events->session_unknown(engine, session);
    }
}

void pool_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct pool *pool = pool_of(engine);
    (void)claims, (void)n;
    for (struct session *session = pool->sessions, *next; session; session = next) {
        next = seat_of(session)->next;
        renew(session);
    }
    if (pool->shared)
        renew(pool->shared);
}
