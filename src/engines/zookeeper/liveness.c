/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which replies prove that the session is alive.
 *
 * A follower answers pings and reads by itself, even while it is cut off from the leader and has
 * not noticed, which takes many ticks. Meanwhile the leader may expire the session and grant our
 * locks to others. Only replies in which the leader takes part (sync, writes) prove anything.
 *
 * Followers report the sessions they hear from whenever the leader pings them, every half tick, on
 * the same channel as requests. So once the leader has answered a request, it has a report that
 * includes it half a tick later: a second answer, to a request that was sent then, proves what
 * was sent before the first. Times are counted from when the first answer has come, not from when
 * its request was sent: a leader that is stopped pings no followers, and when it continues it
 * answers what has been waiting before they can report.
 *
 * While the session has claims it sends a sync every sixth of its timeout, and each of them proves
 * the one before. A session without claims sends one where other clients would send a ping, so
 * that its next claim finds a recent proof. A server that does not answer a sync in time is left
 * for another one (session.c sends the probes). */
#include "engines/zookeeper/session.h"

/* At least half a tick: a session lasts two ticks or more, and a tick is 2 s or less. */
#define HEARTBEAT_LAG_MAX_NS (1 * NS_PER_SEC)

/* How long a follower may take to report to the leader that it has heard from us. */
static uint64_t max_heartbeat_lag_ns(const struct session *session)
{
    uint64_t ns = session->ttl_ns / 4;
    return ns < HEARTBEAT_LAG_MAX_NS ? ns : HEARTBEAT_LAG_MAX_NS;
}

static uint64_t probe_interval_ns(const struct session *session)
{
    uint64_t ns = session->ttl_ns / 6;
    if (!session->claims)
        return session->ttl_ns / 10 * 3;
    return ns > max_heartbeat_lag_ns(session) ? ns : max_heartbeat_lag_ns(session);
}

/* Short enough to find another server before the session expires. */
static uint64_t probe_timeout_ns(const struct session *session)
{
    return session->ttl_ns / 3;
}

uint64_t zk_liveness_due_ns(const struct session *session)
{
    return session->probing ? session->probed_ns + probe_timeout_ns(session)
                            : session->answered_ns + probe_interval_ns(session);
}

/* The leader created the session, or confirmed that it still exists. */
void zk_liveness_begin(struct session *session, uint64_t now_ns)
{
    session->proven_ns = session->connect_ns;
    session->heard_ns = 0;
    session->probed_ns = session->answered_ns = now_ns;
}

void zk_liveness_observe_reply(struct session *session, uint64_t sent_ns, uint64_t now_ns,
                               bool via_leader)
{
    bool proves =
        session->heard_ns && sent_ns >= session->leader_ns + max_heartbeat_lag_ns(session);
    if (!via_leader || (session->heard_ns && !proves))
        return;
    if (session->heard_ns > session->proven_ns)
        session->proven_ns = session->heard_ns;
    session->heard_ns = sent_ns;
    session->leader_ns = now_ns;
}
