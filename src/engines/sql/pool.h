/* The sessions of a client whose locks end with a session.
 *
 * One is shared by all that is granted at once, and by all questions. Who has to wait does so
 * inside the server, on a session of its own from the pool, which then holds what it waited for.
 *
 * The server itself ends a session, and with it all its locks, that has not been heard of for its
 * lease. That is the longest TTL of what was asked for since nothing was held, and it is never made
 * shorter while something is: so no deadline of ours is ever later than the server's. A client that
 * has nothing in the server turns it off, and stays connected. */
#ifndef STILE_SQL_POOL_H
#define STILE_SQL_POOL_H

#include "engines/sql/lease.h"

struct part;
struct pool;
struct session;

/* What a session is to the pool and to claims. Each database's struct session starts with it. */
struct seat {
    struct pool *pool;
    struct session *next; /* in the pool's list */
    struct part *claims;  /* what is held here, or being worked on */
    uint64_t ttl_told_ns; /* the lease that the server was told last */
    uint64_t used_ns;
    uint64_t backend; /* the server's number of it */
    bool waits;       /* a statement waits inside the server */
    unsigned stops;   /* asked for and not yet answered */
    bool idle;        /* in the pool */
    bool probed;      /* a renewal is under way */
    uint64_t probed_ttl_ns;
};

/* All of one client: right behind struct leases in the struct of an engine's own. */
struct pool {
    struct engine *engine;
    struct session *shared;   /* holds what was granted at once; NULL: not connected */
    struct session *sessions; /* all others */
    unsigned n, most;         /* of all others; all together */
    bool for_each;            /* each lock needs one, not only who waits */
    unsigned n_active;        /* claims */
    uint64_t ttl_ns;          /* the longest of what is active: the lease of every session */
    struct timer sweep;
    void (*note)(struct part *part, bool holds); /* may, else NULL: it holds now, or not any more */
    void (*share)(struct session *session); /* may, else NULL: an idle one becomes the shared one */
};

enum stile_status pool_init(struct pool *pool, struct engine *engine, struct stile_error *err);
void pool_limit(struct pool *pool, unsigned most, bool for_each);
void pool_end(struct pool *pool); /* all sessions with it */
void pool_forked(struct pool *pool);

bool pool_has_idle(const struct pool *pool);
enum stile_status pool_take(struct session **session, struct pool *pool, struct stile_error *err);
/* The shared session is one of the others from now on; the next that is needed is another one. */
void pool_lend_shared(struct pool *pool);
/* An idle one becomes the shared one, where there is none. */
void pool_share_idle(struct pool *pool);
void pool_give(struct session *session);   /* nothing of ours is left in it */
void pool_close(struct session *session);  /* whatever is left in it ends with it */
void pool_forget(struct session *session); /* it is over */
void pool_sweep_later(struct pool *pool);
/* Answers on the shared session to what was asked with this data go to nobody. */
void pool_unask(struct pool *pool, const void *data);

/* One word with every session that holds something, however many locks that are. */
void pool_renew(struct engine *engine, struct claim *const *claims, size_t n);
/* err NULL: the lease counts from sent_ns. */
void pool_renewed(struct session *session, uint64_t sent_ns, const struct stile_error *err);

/* ---- each database's own ---- */

enum stile_status session_connect(struct session **session, struct pool *pool,
                                  struct stile_error *err);
void session_free(struct session *session); /* nothing is called any more; NULL allowed */
void session_forked(struct session *session);
void session_forget(struct session *session, const void *data); /* answers to nobody */
bool session_is_up(const struct session *session);
bool session_is_over(const struct session *session);
/* Ends in pool_renewed(); an error means that nothing was sent. */
enum stile_status session_renew(struct session *session, uint64_t ttl_ns);
void session_keep(struct session *session); /* it holds nothing: it has no lease any more */
/* What waits in it is stopped from the shared session. Ends in release_stopped(); an error means
 * that nothing was sent. */
enum stile_status session_stop(struct session *session);

static inline struct pool *pool_of(struct engine *engine)
{
    return (struct pool *)(leases_of(engine) + 1);
}

static inline struct seat *seat_of(struct session *session)
{
    return (struct seat *)session;
}

#endif
