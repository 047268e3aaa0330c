/* When servers are tried. The library goes from one to the next; it waits for one that is silent as
 * long as for an answer, and in between for a sixtieth of the session's timeout, always the same.
 *
 * So it is let go on when it should: at once while there is a server that was not tried, else after
 * a pause, longer from round to round. Servers that start again are not met by all of their clients
 * together, and who waits comes back within PAUSE_MAX_NS. And a silent one is left for the next one
 * soon, but later from round to round: what is slow, not dead, answers in the end. */
#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

#define PAUSE_FIRST_NS    (20 * NS_PER_MS)
#define PAUSE_MAX_NS      NS_PER_SEC
#define STEADY_NS         NS_PER_SEC /* who is up for less has been tried, and no more */
#define PATIENCE_FIRST_NS NS_PER_SEC
#define ROUNDS_MAX        7

static struct loop *loop_of(const struct session *session)
{
    return session->zoo->engine.loop;
}

/* That have failed. */
static unsigned rounds(const struct session *session)
{
    unsigned n = session->dials / session->zoo->n_addresses;
    return n < ROUNDS_MAX ? n : ROUNDS_MAX;
}

void dial_begins(struct session *session)
{
    session->dials++;
}

void dial_ends(struct session *session)
{
    uint64_t now_ns = loop_now(loop_of(session));
    if (session->up_ns && now_ns - session->up_ns >= STEADY_NS)
        session->dials = 0;
    session->up_ns = 0;
    session->dial_ns = now_ns;
#ifndef MUTANT_ZOOKEEPER_NO_PAUSE
    if (session->dials > 0 && session->dials % session->zoo->n_addresses == 0)
        session->dial_ns +=
            loop_backoff(loop_of(session), PAUSE_FIRST_NS, PAUSE_MAX_NS, rounds(session) - 1);
#endif
}

/* Where there is no other, one that is silent is all there is. */
uint64_t dial_patience_ns(const struct session *session)
{
#ifdef MUTANT_ZOOKEEPER_SILENT_AWAITED
    return NEVER;
#endif
    if (session->state != SESSION_DOWN || session->watch.fd < 0 || session->zoo->n_addresses < 2)
        return NEVER;
    return session->connect_ns + (PATIENCE_FIRST_NS << rounds(session));
}
