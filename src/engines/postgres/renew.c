/* Renewing: one word with every session that holds something, however many locks that are. */
#include "engines/postgres/pg.h"

/* Of a session that has died each lock is told by itself. */
static void on_renewed(void *data, const struct answer *a)
{
    struct session *session = data;
    struct engine *engine = &session->pg->engine;
    session->probed = false;
    if (a->err && session->state == UP && session->pg->options.mode == MODE_ROW) {
        session->broken = true; /* its transaction has ended with this, and so has the lock */
        loop_soon(session->loop, &session->task);
    }
    if (a->err)
        engine->events->session_unknown(engine, session);
    else
        engine->events->session_renewed(engine, session, a->sent_ns, session->probed_ttl_ns);
}

static void renew(struct session *session)
{
    struct pg *pg = session->pg;
    uint64_t now = loop_now(session->loop);
    if (!session->claims || session->probed)
        return;
    if (session->waits) { /* in the server: it needs nothing, and could not be asked */
        pg->engine.events->session_renewed(&pg->engine, session, now, pg->ttl_ns);
        return;
    }
    session->probed = true;
    session->probed_ttl_ns = pg->ttl_ns;
    if (pool_tell_ttl_is(session, pg->ttl_ns, on_renewed, session, NULL)) {
        session->probed = false;
        pg->engine.events->session_unknown(&pg->engine, session);
    }
}

void sessions_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct pg *pg = pg_of(engine);
    (void)claims, (void)n;
    for (struct session *session = pg->sessions, *next; session; session = next) {
        next = session->next;
        renew(session);
    }
    if (pg->shared)
        renew(pg->shared);
}
