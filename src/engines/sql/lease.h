/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* mode=table of the databases: a claim is a row with an owner and an end, on the database's
 * clock.
 *
 * Here is what a client does about its rows: asking, waiting, being notified, releasing,
 * renewing. The engine writes and sends the statements; each of them ends in one of the
 * functions below. The owner value makes every statement safe to repeat. */
#ifndef STILE_SQL_LEASE_H
#define STILE_SQL_LEASE_H

#include "engines/kit/lease.h"

#define LEASE_OWNER_LEN 32
#define LEASE_KEPT_MAX  256

/* Its transitions are in lease.c. */
enum lease_state {
    LEASE_IDLE,
    LEASE_ASKING,
    LEASE_WAITING,  /* its row waits */
    LEASE_CHECKING, /* its row waits, and a look at it is under way */
    LEASE_HELD,
    LEASE_RELEASING,
    LEASE_RELEASE_FAILED,   /* it is still ours; core calls release() again */
    LEASE_RELEASE_IN_DOUBT, /* the same, but it may be gone */
    LEASE_RELEASING_AGAIN,  /* after LEASE_RELEASE_IN_DOUBT: a missing row is no loss */
    LEASE_WITHDRAWING,      /* it was never held, so a missing row is no loss */
};

/* The state of a claim. */
struct lease {
    struct leased leased;
    struct leases *leases;
    enum lease_state state;
    bool far_back;   /* waiting: several others come first, so it looks less often */
    bool has_waited; /* its row may be there already: a claim is a repetition */
    bool ask_again;  /* a notification overtook the answer under way: ask after it */
    bool must_look;  /* waiting: it has not looked yet, or not since a request failed */
    bool heard;      /* waiting: a notification came, and the question after it is not answered */
    unsigned tries, undone;
    uint64_t renewed_ns; /* held: before the last request that succeeded was sent */
    uint64_t alive_ns;   /* waiting: when its row has to be renewed */
    uint64_t look_ns;    /* waiting: when to look */
    struct timer timer;  /* waiting: the first of the two */
};

struct leases;

/* Rows of waiters that are renewed together. */
struct lease_rows {
    bool under_way;
    size_t n;
    char owners[LEASE_KEPT_MAX][LEASE_OWNER_LEN + 1];
};

struct lease_answer {
    const struct stile_error *err; /* NULL: the rest counts */
    bool undone;                   /* err: the server has rolled it back, for the sake of others */
    bool again;                    /* err: it was interrupted, perhaps after it was carried out */
    uint64_t sent_ns;              /* before it was sent; 0: it was not */
    char reply;                    /* asked: 'g' granted, 'b' busy; looked: 'w' wait, 'a' ask again;
                                    * the others: 't' or 'f' */
    uint64_t number; /* 'g', resumed: the token; 'b', 'w': for how many milliseconds */
    unsigned ahead;  /* 'w': how many wait before it, as far as that matters */
    uint64_t ttl_ms; /* resumed: the TTL stored with it; 0: none is */
};

/* Each sends one statement; an error means that nothing was sent. */
struct lease_ops {
    enum stile_status (*ask)(struct lease *lease, struct stile_error *err);
    /* May, else NULL: finds out, without writing the name's row, whether asking makes sense.
     * life_ms: renews the waiter's row for this long; 0: not due yet. */
    enum stile_status (*check)(struct lease *lease, uint64_t life_ms, struct stile_error *err);
    /* May, else NULL: renews the rows of leases->kept for this long. */
    enum stile_status (*keep)(struct leases *leases, uint64_t life_ms, struct stile_error *err);
    enum stile_status (*resume)(struct lease *lease, struct stile_error *err);
    enum stile_status (*release)(struct lease *lease, bool unused, struct stile_error *err);
    enum stile_status (*renew)(struct leased_renewal *renewal, struct stile_error *err);
};

/* All of one client: right behind struct engine in the engine's own struct. */
struct leases {
    struct engine *engine;
    const struct lease_ops *ops;
    struct leased_claims claims;
    bool hearing;   /* notifications of grants arrive */
    size_t n_heard; /* claims that ask because of one */
    struct lease_rows kept;
};

/* ---- what core asks for ---- */

void sql_lease_claim(struct engine *engine, struct claim *claim);
void sql_lease_release(struct engine *engine, struct claim *claim);
void sql_lease_renew(struct engine *engine, struct claim *const *claims, size_t n);
extern const struct engine_detached sql_lease_detached;

#define LEASE_SLOTS                                                                                \
    .claim_size = sizeof(struct lease), .claim = sql_lease_claim, .release = sql_lease_release,    \
    .renew = sql_lease_renew, .detached = &sql_lease_detached

/* ---- answers ---- */

void sql_lease_asked(struct lease *lease, const struct lease_answer *answer);
void sql_lease_checked(struct lease *lease, const struct lease_answer *answer);
/* n: of the rows that were to be kept, how many are there and wait. */
void sql_lease_kept(struct leases *leases, uint64_t n, const struct stile_error *err);
void sql_lease_resumed(struct lease *lease, const struct lease_answer *answer);
void sql_lease_released(struct lease *lease, const struct lease_answer *answer);
/* found: whether the rows of the answer, which only the engine can read, have this owner. */
void sql_lease_renewed(struct leased_renewal *renewal, const struct lease_answer *answer,
                       bool (*found)(const void *rows, const char *owner), const void *rows);

/* ---- notifications: only hints, as any role may send them ---- */

void sql_lease_hear_granted(struct leases *leases, const char *owner);
/* One that does not say which of the waiting claims: false if there are several, or none. */
bool sql_lease_hear_only(struct leases *leases);
/* by: as sql_break_blame() takes it. */
void sql_lease_hear_broken(struct leases *leases, const char *owner, const char *by);
/* All waiters ask again, so that the server learns how to notify this client. */
void sql_lease_ask_again(struct leases *leases);
bool sql_lease_is_waiting(const struct leases *leases); /* any of them */
/* How long an attempt to connect may take: the usual time, or less while a lease is running out. */
uint64_t sql_lease_patience_ns(const struct leases *leases, uint64_t usual_ns);
void sql_lease_disconnected(struct leases *leases); /* the connection has ended */

static inline struct leases *leases_of(struct engine *engine)
{
    return (struct leases *)(engine + 1);
}

static inline struct lease *lease_of(struct claim *claim)
{
    return (struct lease *)claim->state;
}

static inline struct claim *claim_of_lease(struct lease *lease)
{
    return (struct claim *)((char *)lease - offsetof(struct claim, state));
}

#endif
