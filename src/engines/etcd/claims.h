/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A claim: one key in the queue of a name, from the first request to the release.
 *
 *     IDLE ─► LEASING ─┬─► TRYING ──► HELD if it is first, else busy
 *                      └─► JOINING ─► HELD if it is first, else WAITING ◄─► CHECKING ─► HELD
 *
 *     HELD ─► RELEASING ─► IDLE         LOST, in place of RELEASING, if its key is gone
 *
 * release() may be called in every state; if a request is under way, the claim stays in RELEASE_DUE
 * until that is answered. claim.c lists all transitions. */
#ifndef STILE_ETCD_CLAIMS_H
#define STILE_ETCD_CLAIMS_H

#include "engines/etcd/session.h"
#include "engines/etcd/watch.h"

enum claim_state {
    IDLE,
    LEASING,       /* waits for its lease */
    TRYING,        /* its key is put if the name has no other */
    JOINING,       /* its key is put behind the others */
    CLEARING,      /* what is left of its key, or of an earlier claim, is being removed */
    WAITING,       /* in the queue: watches the key before it */
    CHECKING,      /* reads what is before its key */
    TAKING_PLAIN,  /* dialect=etcd3: first in the queue, and asks for the plain key */
    WAITING_PLAIN, /* watches the plain key */
    ARMING,        /* first, and its ghosts get their leases */
    HELD,
    LOST,        /* its key is gone */
    WITHDRAWING, /* tried once, and was not the first */
    FAILED,      /* reported UNCERTAIN: release() clears away what may be left */
    RELEASE_DUE, /* release() was called, but a request of the claim is not answered yet */
    RELEASING,
    REFUSED, /* its deletion was: release() tries again */
};

/* A key beside the claim's own that outlives it by a lease of its own. */
struct ghost {
    unsigned number; /* 0: none */
    int64_t lease;
    uint64_t sent_ns, ttl_ns;
    bool bound; /* its key may live by this lease */
    bool over;  /* removed, or being removed */
};

enum { GHOST_HOLD, GHOST_DELAY, GHOSTS };

/* Claims whose keys one transaction has created: they have one revision, and one key that says
 * since when. The last of them removes it. */
struct cohort {
    size_t claims;
    bool since_put;
};

/* One key that counts as a slot. A claim and its ghosts have one revision and are one. */
struct slot_before {
    uint64_t hash; /* of the key; 0: gone */
    int64_t revision;
};

/* How far from the head of the queue. */
enum distance {
    NEXT, /* when what it watches goes, it is probably first */
    NEAR,
    FAR, /* many are before it: to look at all of them is not cheap */
};

/* What many claims may ask for in one transaction (batch.c). */
enum batch_kind { BATCH_DELETE, BATCH_JOIN, BATCH_CHECK, BATCH_SINCE, BATCH_KINDS };

struct batch_place {
    struct batch_list *list; /* NULL: on none */
    struct batch_place *next, **link;
    size_t first_op, n_ops; /* its part of the transaction */
};

struct batch_list {
    struct batch_place *first, **last;
    size_t n;
};

struct etcd_claim {
    struct etcd_claim *next, **link; /* of its lease; link NULL: not on its list, without a timer */
    struct etcd_claim *recent_next, **recent_link; /* held, or waiting, for a short time so far */
    struct lease *lease;
    int64_t lease_id; /* what its key is bound to */
    uint32_t number;  /* of a reader, or of a claim for a slot; else 0 */
    int64_t revision; /* that created its key: place and token; 0: not known */
    enum claim_state state;
    bool in_flight; /* its last request is not answered */
    bool was_held;
    bool maybe_deleted; /* a request that removes its key may have been executed */
    bool stray_request; /* a request of it may still be on its way */
    bool changed;       /* something happened while it was checking */
    bool read_all;      /* reads everything before it, page by page, not just the nearest */
    bool since_put;     /* a key of its own says since when */
    bool ghosts_left;   /* it begins again: ghosts beside its last key may be there */
    enum distance distance;
    unsigned tries;
    uint64_t granted_ns, recent_ns;
    uint64_t interruptions;  /* there had been so many when it was granted */
    uint64_t doubt_ns;       /* how long it trusts its watch before it checks; 0: not set */
    uint64_t release_number; /* of its last request to be released */
    struct timer timer;      /* sends again what could not be sent */
    struct batch_place batched[BATCH_KINDS];
    struct cohort *cohort; /* NULL: its key was created alone */
    struct key_watch watch;
    struct queue_scan *scan;    /* under way */
    struct slot_before *before; /* slots: which keys are before it */
    size_t n_before;
    struct ghost ghosts[GHOSTS];
    unsigned arming; /* which ghost's lease was asked for */
};

/* ---- queue.c: which keys of a name are before a claim ---- */

struct queue_position {
    const Etcd__KeyValue *nearest; /* the last one before us that must go; NULL: none */
    const Etcd__KeyValue *own;
    size_t in_the_way;
    size_t slots; /* of those before us, how many hold or will hold one */
    bool blocked;
    bool unclear; /* there is more before us than was read */
};

/* Last created first, as etcd_queue_locate() wants it. */
void etcd_queue_sort(const Etcd__RangeResponse *range);
/* own NULL: not looked for; below: only keys created before this revision count. */
void etcd_queue_locate(struct queue_position *position, const struct claim *base,
                       const struct key *name, const struct key *own, int64_t below,
                       const Etcd__RangeResponse *range);

/* Slots: remembers which keys are before us. OK or NOMEM. */
enum stile_status etcd_queue_remember(struct etcd_claim *claim, const struct key *name,
                                      const Etcd__RangeResponse *range, struct stile_error *err);
void etcd_queue_forget(struct etcd_claim *claim);
/* True: one of them has gone, and there is room now. */
bool etcd_queue_has_room(struct etcd_claim *claim, const Etcd__KeyValue *gone);

/* Asks what is before the claim, and whether its own key is still there, in one step. With a scan
 * under way this reads its next page. */
enum stile_status etcd_queue_read(struct etcd_claim *claim, conn_fn *fn, struct stile_error *err);
/* Asks whether the watched key is still before the claim. */
enum stile_status etcd_queue_read_watched(struct etcd_claim *claim, conn_fn *fn,
                                          struct stile_error *err);

/* A queue that does not fit into one answer, page by page. */
struct queue_scan {
    struct key at; /* where the next page begins */
    int64_t limit;
    int64_t revision;          /* of the first page */
    Etcd__RangeResponse range; /* the keys of this very name so far */
    size_t room;
};

bool etcd_queue_scan_begin(struct etcd_claim *claim); /* false: out of memory */
bool etcd_queue_scan_add(struct etcd_claim *claim, const Etcd__RangeResponse *page,
                         int64_t revision);
bool etcd_queue_scan_next(struct etcd_claim *claim, const Etcd__RangeResponse *page);
bool etcd_queue_scan_less(struct etcd_claim *claim); /* smaller pages, if they can be */
void etcd_queue_scan_free(struct queue_scan *scan);
void etcd_queue_scan_end(struct etcd_claim *claim);

/* Watches what must go before the claim may hold. */
enum stile_status etcd_queue_watch(struct etcd_claim *claim, const struct queue_position *position,
                                   const struct key *name, const Etcd__RangeResponse *range,
                                   int64_t revision, key_watch_fn *fn, struct stile_error *err);

/* ---- side_keys.c: ghosts, and the plain key of etcd3's Lock ---- */

void etcd_ghosts_plan(struct etcd_claim *claim);
bool etcd_ghosts_any(const struct etcd_claim *claim);
/* With the value of the claim's own key: an election's observers see one leader in both. */
void etcd_ghosts_put(struct etcd_claim *claim, struct txn *txn, enum branch branch,
                     const struct key *own, const char *value, struct key keys[GHOSTS]);
/* In the transaction that removes the claim's key, before it is put once more. */
void etcd_ghosts_delete(const struct etcd_claim *claim, struct txn *txn, const struct key *own,
                        struct key keys[GHOSTS]);
/* The first whose lease would end too early if the claim was granted now; GHOSTS: none. */
unsigned etcd_ghosts_unarmed(struct etcd_claim *claim);
enum stile_status etcd_ghost_request_lease(struct etcd_claim *claim, unsigned i, conn_fn *fn,
                                           struct stile_error *err);
void etcd_ghost_leased(struct etcd_claim *claim, const Etcd__LeaseGrantResponse *answer);
enum stile_status etcd_ghosts_bind(struct etcd_claim *claim, conn_fn *fn, struct stile_error *err);
/* For `show`: what is left when the claim has gone still has its holder's name and age. */
void etcd_ghosts_describe(struct etcd_claim *claim);
void etcd_ghosts_keep_alive(struct lease *lease);
/* Deletes, together with the claim's key, those that are no longer needed. If somebody else has
 * deleted that key, they would keep the name for as long as other claims keep the lease. */
void etcd_ghosts_remove(struct etcd_claim *claim, struct txn *txn, const struct key *own,
                        struct key keys[GHOSTS]);
void etcd_ghosts_revoke(struct etcd_claim *claim); /* those that were removed */
void etcd_ghosts_linger(struct etcd_claim *claim); /* the others: until their time is over */
void etcd_ghosts_close(struct etcd *etcd);

enum plain_answer { PLAIN_TAKEN, PLAIN_HELD, PLAIN_STALE, PLAIN_OWN_KEY_GONE };

void etcd_plain_set_caps(struct stile_caps *caps);
enum stile_status etcd_plain_request(struct etcd_claim *claim, conn_fn *fn,
                                     struct stile_error *err);
enum plain_answer etcd_plain_read(struct etcd_claim *claim, const Etcd__TxnResponse *answer);
enum stile_status etcd_plain_watch(struct etcd_claim *claim, int64_t revision, key_watch_fn *fn);
/* Every deletion of a claim's own key deletes in the same step the plain key that belongs to it. */
void etcd_plain_delete(struct etcd_claim *claim, struct txn *txn, const struct key *own,
                       struct key *plain);

/* ---- batch.c: requests of many claims as one transaction ---- */

/* What a claim's part of a transaction points to. */
struct batch_room {
    struct key keys[3];
    char value[VALUE_MAX];
};

struct batch_class {
    /* Adds one condition at most, and two operations at most. */
    void (*write)(struct etcd_claim *claim, struct txn *txn, struct batch_room *room);
    void (*alone)(struct etcd_claim *claim); /* sends a transaction of its own */
    /* The whole has succeeded, and answer has its part; or err: nothing is known of it. */
    void (*answered)(struct etcd_claim *claim, const ProtobufCMessage *answer,
                     const struct stile_error *err);
};

void etcd_batch_add(struct etcd_claim *claim, enum batch_kind kind);
void etcd_cohort_leave(struct etcd_claim *claim); /* since_put: the key is its to remove */
void etcd_batch_forget(struct etcd_claim *claim, enum batch_kind kind);
void etcd_batches_init(struct etcd *etcd, const struct batch_class *const classes[BATCH_KINDS]);
void etcd_batches_close(struct etcd *etcd);

/* ---- claim.c: states, holding and releasing ---- */

void etcd_claim_move(struct etcd_claim *claim, enum claim_state to);
void etcd_claim_attach(struct etcd_claim *claim, struct lease *lease);
void etcd_claim_forget(struct etcd_claim *claim); /* here, not on the server */
void etcd_claim_unwatch(struct etcd_claim *claim);
void etcd_claim_fail(struct etcd_claim *claim, const struct stile_error *err);
void etcd_claim_retry_later(struct etcd_claim *claim, void (*fn)(struct timer *timer));
/* A request of the claim is answered. False: release() was called meanwhile, and goes on now. */
bool etcd_claim_answered(struct etcd_claim *claim, const struct stile_error *err);
void etcd_claim_withdraw(struct etcd_claim *claim);   /* tried once; ends in busy() */
void etcd_claim_add_recent(struct etcd_claim *claim); /* from now on it holds, or waits */
void etcd_claims_watch_recent(struct timer *timer);
extern const struct batch_class etcd_batch_delete, etcd_batch_check, etcd_batch_since;
void etcd_claim_release(struct engine *engine, struct claim *base);
void etcd_claims_close(struct etcd *etcd);

/* ---- acquire.c: from the first request to the grant ---- */

void etcd_claim_acquire(struct engine *engine, struct claim *base);
extern const struct lease_events etcd_claim_lease_events;
extern const struct batch_class etcd_batch_join;

#endif
