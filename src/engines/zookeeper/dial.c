/* When servers are tried, which, and for how long: each at once while there is one that was not
 * tried, else after a pause, longer from round to round. So servers that start again are not met by
 * all of their clients together, and a client that waits comes back within PAUSE_MAX_NS. A silent
 * server is left for the next one soon, but later from round to round: what is slow, not dead,
 * answers in the end.
 *
 * Every attempt looks the server's name up again, beside the loop: it may have moved.
 *
 * A server that has lost its data, or was restored from an older copy, hangs up on sessions that
 * have seen more than it has, for ever. Servers that follow no leader hang up as well, on
 * everybody. So once a session has been down for its whole timeout, a server that hangs up on it is
 * asked for a new one at once: if it gives that, the old session is over. */
#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

#define PAUSE_FIRST_NS    (20 * NS_PER_MS)
#define PAUSE_MAX_NS      NS_PER_SEC
#define STEADY_NS         NS_PER_SEC /* one that is up for less has been tried, and no more */
#define PATIENCE_FIRST_NS NS_PER_SEC
#define ROUNDS_MAX        7

static struct loop *loop_of(const struct session *session)
{
    return session->zoo->engine.loop;
}

/* That have failed. */
static unsigned rounds(const struct session *session)
{
    unsigned n = session->dials / (unsigned)session->zoo->n_hosts;
    return n < ROUNDS_MAX ? n : ROUNDS_MAX;
}

void dial_begins(struct session *session)
{
    if (!session->fresh)
        session->dials++;
}

void dial_ends(struct session *session)
{
    uint64_t now_ns = loop_now(loop_of(session));
    if (session->up_ns && now_ns - session->up_ns >= STEADY_NS)
        session->dials = 0;
    if (session->up_ns)
        session->down_ns = now_ns;
    session->up_ns = 0;
    session->dial_ns = now_ns;
#ifndef MUTANT_ZOOKEEPER_NO_PAUSE
    if (!session->fresh && session->dials > 0 && session->dials % session->zoo->n_hosts == 0)
        session->dial_ns +=
            loop_backoff(loop_of(session), PAUSE_FIRST_NS, PAUSE_MAX_NS, rounds(session) - 1);
#endif
}

const struct zoo_host *dial_host(const struct session *session)
{
    const struct zoo *zoo = session->zoo;
    return &zoo->hosts[(session->first_host + session->dials) % zoo->n_hosts];
}

/* Where there is no other, one that is silent is all there is. */
uint64_t dial_patience_ns(const struct session *session)
{
    uint64_t most_ns = (uint64_t)session->timeout_ms * NS_PER_MS / 3 * 2;
    uint64_t ns = PATIENCE_FIRST_NS << rounds(session);
#ifdef MUTANT_ZOOKEEPER_SILENT_AWAITED
    return most_ns;
#endif
    return session->zoo->n_hosts < 2 || ns > most_ns ? most_ns : ns;
}

bool dial_wants_fresh(const struct session *session)
{
    return session->id.id && !session->fresh && session->connection &&
           connection_greeted_ns(session->connection) && session->state == SESSION_DOWN &&
           loop_now(loop_of(session)) >= session->down_ns + session->ttl_ns;
}
