/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The sessions of a client whose locks end with a session.
 *
 * One session is shared by all locks that are granted at once, and by all queries. A claim that
 * has to wait does so inside the server, on a session of its own from the pool, which then holds
 * the lock.
 *
 * The server ends a session that it has not heard from for the session's lease, and with it all
 * its locks. The lease is the longest TTL that was asked for since the client held nothing, and
 * it is never shortened while something is held: so no deadline of ours is ever later than the
 * server's. A client that has nothing in the server turns the lease off, and stays connected. */
#ifndef STILE_SQL_POOL_H
#define STILE_SQL_POOL_H

#include "engines/sql/database.h"
#include "engines/sql/lease.h"

/* All of one client: right behind struct leases in the engine's own struct. */
struct pool {
    struct engine *engine;
    const struct sql_database *database;
    const struct session_events *shared_events, *events; /* of the shared session, of all others */
    struct session *shared;   /* holds what was granted at once; NULL: not connected */
    struct session *sessions; /* all others */
    unsigned n, most;         /* of all others; all together */
    bool for_each;            /* each lock needs a session, not only waiters */
    unsigned n_active;        /* claims */
    uint64_t ttl_ns;          /* the longest of the active claims: the lease of every session */
    struct timer sweep;
};

enum stile_status sql_pool_init(struct pool *pool, struct engine *engine, struct stile_error *err);
void sql_pool_configure(struct pool *pool, const struct sql_database *database, unsigned most,
                        bool for_each);
void sql_pool_end(struct pool *pool); /* all sessions with it */
void sql_pool_forked(struct pool *pool);

/* Connects the shared session if need be: requests wait until it is up. */
enum stile_status sql_pool_shared(struct session **session, struct pool *pool,
                                  struct stile_error *err);
void sql_pool_shared_down(struct session *session); /* the shared session is over */

bool sql_pool_has_idle(const struct pool *pool);
enum stile_status sql_pool_take(struct session **session, struct pool *pool,
                                struct stile_error *err);
/* For a short statement that any session can run: the shared one, or another if that was lent. */
enum stile_status sql_pool_at_hand(struct session **session, struct pool *pool,
                                   struct stile_error *err);
/* The shared session becomes one of the others. When one is needed again, another is opened. */
void sql_pool_lend_shared(struct pool *pool);
/* An idle one becomes the shared one, where there is none. */
void sql_pool_share_idle(struct pool *pool);
void sql_pool_return(struct session *session); /* nothing of ours is left in it */
void sql_pool_close(struct session *session);  /* whatever is left in it ends with it */
void sql_pool_remove(struct session *session); /* it is over */
void sql_pool_sweep_later(struct pool *pool);
/* Drops the answers on the shared session to requests with this data. */
void sql_pool_forget(struct pool *pool, const void *data);

/* One statement for each session that holds something, however many locks that are. */
void sql_pool_renew(struct engine *engine, struct claim *const *claims, size_t n);
/* err NULL: the lease counts from sent_ns. */
void sql_pool_renewed(struct session *session, uint64_t sent_ns, const struct stile_error *err);

static inline struct pool *pool_of(struct engine *engine)
{
    return (struct pool *)(leases_of(engine) + 1);
}

#endif
