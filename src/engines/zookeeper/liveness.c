/* When the leader has surely heard of us: from then on a session lasts its timeout.
 *
 * A follower answers pings and reads by itself, also when it is cut off from its leader and has not
 * noticed yet, which takes many ticks; meanwhile the leader ends the session, and somebody else
 * gets our locks. So only what the leader has a part in proves anything: a sync, or a write. And
 * who is alive is told to the leader every half tick, on the same way as requests: an answered
 * request that the leader has seen proves that it knows of all that came half a tick before it, but
 * not that it knows of itself.
 *
 * So while something is claimed there is a sync every sixth of the timeout, and each proves the one
 * before it. A client that has no claims sends one where others would send a ping, so that its next
 * claim finds a proof that is not too old. A server that gives no proof is left for another. */
#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

/* Half a tick at least: a session lasts two ticks or more, and ticks are 2 s or less. */
#define UNTOLD_MAX_NS (1 * NS_PER_SEC)

static struct loop *loop_of(const struct session *session)
{
    return session->zoo->engine.loop;
}

static uint64_t untold_ns(const struct session *session)
{
    uint64_t ns = session->ttl_ns / 4;
    return ns < UNTOLD_MAX_NS ? ns : UNTOLD_MAX_NS;
}

static uint64_t gap_ns(const struct session *session)
{
    uint64_t ns = session->ttl_ns / 6;
    if (!session->claims)
        return session->ttl_ns / 10 * 3;
    return ns > untold_ns(session) ? ns : untold_ns(session);
}

/* What is not answered for so long makes us go elsewhere, while there is time. */
static uint64_t patience_ns(const struct session *session)
{
    return session->ttl_ns / 3;
}

static void arm(struct session *session)
{
    uint64_t ns = session->asking ? patience_ns(session) : gap_ns(session);
    if (session->state == SESSION_UP)
        loop_arm(loop_of(session), &session->told_timer, session->asked_ns + ns);
}

/* ---- what is proved ---- */

void told_answered(struct session *session, uint64_t sent_ns, bool by_leader)
{
    uint64_t touched_ns = session->touched_ns;
#ifdef MUTANT_ZOOKEEPER_FOLLOWER_BELIEVED
    session->told_ns = sent_ns;
#endif
    if (touched_ns && by_leader && sent_ns >= touched_ns + untold_ns(session)) {
        session->told_ns = touched_ns > session->told_ns ? touched_ns : session->told_ns;
        touched_ns = 0;
    }
    session->touched_ns = touched_ns ? touched_ns : sent_ns;
}

/* ---- asking for proofs ---- */

static void report(struct session *session, bool answered)
{
    struct engine *engine = &session->zoo->engine;
    bool wanted = session->renewing;
    session->renewing = false;
    if (answered && session->claims)
        engine->events->session_renewed(engine, session, session->told_ns, session->ttl_ns);
    else if (wanted)
        engine->events->session_unknown(engine, session);
}

/* It was the leader that made the session, or took it up again. */
void told_up(struct session *session)
{
    session->told_ns = session->connect_ns;
    session->touched_ns = 0;
    session->asked_ns = loop_now(loop_of(session));
    arm(session);
    report(session, true);
}

static void on_proof(struct asker *asker, const struct answer *answer)
{
    struct session *session = (struct session *)((char *)asker - offsetof(struct session, asker));
    session->asking = false;
    arm(session);
    report(session, answer->rc == ZOK && session->state == SESSION_UP);
}

void told_ask(struct timer *timer)
{
    struct session *session =
        (struct session *)((char *)timer - offsetof(struct session, told_timer));
    if (session->state != SESSION_UP)
        return;
    if (session->asking) {
        session_leave_server(session);
        return;
    }
    session->asked_ns = loop_now(loop_of(session));
#ifdef MUTANT_ZOOKEEPER_FOLLOWER_BELIEVED
    session->asking = ask_exists(session, &session->asker, "/", NULL, on_proof);
#else
    session->asking = ask_sync(session, &session->asker, "/", on_proof);
#endif
    arm(session);
    if (!session->asking)
        report(session, false);
}

void told_claimed(struct session *session)
{
    arm(session);
}

/* The slot of the engine. The next proof is the answer. */
void sessions_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    (void)claims, (void)n;
    for (struct session *session = zoo_of(engine)->sessions; session; session = session->next) {
        if (!session->claims || session->renewing)
            continue;
        session->renewing = session->state == SESSION_UP;
        if (!session->renewing)
            engine->events->session_unknown(engine, session);
    }
}
