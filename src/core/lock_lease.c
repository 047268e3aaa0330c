/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Leases that are over: every lock under them is lost. */
#include "base/container.h"
#include "core/lock.h"

/* In batches, because a loss may change the list. err NULL: the deadline has passed. */
static void lose_overdue(struct stile_client *client, uint64_t now, const struct stile_error *err)
{
    struct stile_lock *batch[LEASE_BATCH];
    size_t n;
    do {
        n = lease_overdue(client, now, batch);
        for (size_t i = 0; i < n; i++) {
            if (err)
                lock_lose(batch[i], err);
            else
                lock_lost_at_deadline(batch[i]);
        }
    } while (n == LEASE_BATCH);
}

/* Waiters of the session need the next one renewed soon. */
void lock_session_lost(struct engine *engine, const void *session, const struct stile_error *err)
{
    static const struct stile_error no_reason = {.status = STILE_LOST, .message = "no longer held"};
    struct stile_client *client = engine->core;
    lease_end_session(client, session);
    lose_overdue(client, loop_now(client->loop), err ? err : &no_reason);
    lease_session_unknown(client, session);
}

void lock_lease_tick(struct timer *timer)
{
    struct stile_client *client = container_of(timer, struct stile_client, leases.tick);
    uint64_t now = loop_now(client->loop);
    lose_overdue(client, now, NULL);
    lease_renew_due(client, now);
}
