/* Renewing: one word with every session that holds something, however many locks that are. */
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"

/* Of a session that has died each lock is told by itself. */
static void on_renewed(void *data, const struct answer *a)
{
    struct session *session = data;
    struct engine *engine = &session->my->engine;
    session->probed = false;
    if (a->err)
        engine->events->session_unknown(engine, session);
    else
        engine->events->session_renewed(engine, session, a->sent_ns, session->probed_ttl_ns);
}

static void renew(struct session *session)
{
    struct my *my = session->my;
    uint64_t now = loop_now(session->loop);
    if (!session->claims || session->probed)
        return;
    if (session->waits) { /* in the server: it needs nothing, and could not be asked */
        my->engine.events->session_renewed(&my->engine, session, now, my->ttl_ns);
        return;
    }
    session->probed = true;
    session->probed_ttl_ns = my->ttl_ns;
    session->ttl_told_ns = my->ttl_ns;
    if (session_send(session, sql_ttl(my->ttl_ns), on_renewed, session, NULL)) {
        session->probed = false;
        my->engine.events->session_unknown(&my->engine, session);
    }
}

void sessions_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct my *my = my_of(engine);
    (void)claims, (void)n;
    for (struct session *session = my->sessions, *next; session; session = next) {
        next = session->next;
        renew(session);
    }
    if (my->shared)
        renew(my->shared);
}
