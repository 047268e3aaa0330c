/* Inside the etcd engine. */
#ifndef STILE_ETCD_H
#define STILE_ETCD_H

#include "engines/engine.h"
#include "engines/etcd/connection.h"

#define PREFIX_MAX   512
#define KEY_MAX      (PREFIX_MAX + 3 * STILE_NAME_MAX + 64)
#define INFO_MAX     320
#define SELF_MAX     96
#define VALUE_MAX    (STILE_PROCLAIM_MAX + 16)
#define WATCH_HEADS  256
#define TXN_OPS      100 /* the server allows 128 */
#define TXN_COMPARES 100

struct etcd;

/* ---- keys.c ---- */

struct key {
    size_t len;
    uint8_t bytes[KEY_MAX];
};

static inline ProtobufCBinaryData data_of(const struct key *key)
{
    return (ProtobufCBinaryData){.len = key->len, .data = (uint8_t *)key->bytes};
}

/* What the part of a key behind the name says. */
struct tail {
    enum stile_mode mode;
    bool ghost;
    bool plain; /* no tail: it is the name's plain key */
};

/* "<prefix><name>/", and the end of the range of all keys that start so. */
void key_of_name(struct key *key, const struct etcd *etcd, const char *name, size_t len);
/* Where all names start that begin with these bytes; an empty key becomes the first there is. */
void key_of_list(struct key *key, const struct etcd *etcd, const char *prefix, size_t len);
void key_end(struct key *end, const struct key *start);
/* The first key that may come behind this one; false: somebody else's, and too long for us. */
bool key_after(struct key *after, const ProtobufCBinaryData *key);
/* number: tells claims of one lease that share the name apart; 0: there is one at most. */
void key_of_claim(struct key *key, const struct etcd *etcd, const struct claim *claim,
                  int64_t lease, uint32_t number);
void key_of_ghost(struct key *key, const struct key *own, unsigned number);
void key_of_info(struct key *key, const struct etcd *etcd, int64_t lease);
void key_of_since(struct key *key, const struct etcd *etcd, int64_t lease, int64_t revision);
bool key_is_for_people(const struct etcd *etcd, const ProtobufCBinaryData *key);
/* tail: what stands behind key_of_name(). False: it belongs to a longer name. */
bool tail_read(struct tail *tail, const uint8_t *bytes, size_t n);
/* Where there are plain keys: whether that of a longer name is taken for a claim on this one. */
bool tail_is_plain(const struct etcd *etcd, const Pb__KeyValue *kv, size_t at);
/* The name as it stands: what etcd3's Lock locks. */
void key_of_plain(struct key *key, const struct etcd *etcd, const char *name, size_t len);
/* The range in which all keys of the name are, and maybe some of others. */
void keys_of_name(struct key *start, struct key *end, const struct etcd *etcd, const char *name,
                  size_t len);
/* What the key of a claim says to whoever reads it: "pid@host", or what its user proclaims. */
void value_of_claim(char value[VALUE_MAX], const struct etcd *etcd, const struct claim *claim);
/* The part of it that is for people; slots: 0 if it does not tell. */
const char *value_read(unsigned *slots, const struct tail *tail, const char *value);
/* name has room for KEY_MAX; false: no key of a lock. */
bool key_read(char *name, struct tail *tail, const struct etcd *etcd, const Pb__KeyValue *kv);
bool key_read_plain(char *name, struct tail *tail, const struct etcd *etcd, const Pb__KeyValue *kv);

/* One deletion with conditions of its own, inside a transaction. */
struct txn_inner {
    Pb__TxnRequest request;
    Pb__Compare compares[3], *compare_list[3];
    Pb__RequestOp op, *ops[1];
    Pb__DeleteRequest del;
};

#define TXN_INNER 2

/* ---- txn.c: a transaction while it is written; what it is given is borrowed until sent ---- */

struct txn {
    Pb__TxnRequest request;
    Pb__Compare compares[TXN_COMPARES], *compare_list[TXN_COMPARES];
    struct txn_op {
        Pb__RequestOp op;
        union {
            Pb__RangeRequest range;
            Pb__PutRequest put;
            Pb__DeleteRequest del;
        };
    } ops[2 * TXN_OPS];
    Pb__RequestOp *lists[2][TXN_OPS];
    size_t n_ops;
    struct txn_inner inner[TXN_INNER];
    size_t n_inner;
};

enum branch { THEN, ELSE };

void txn_init(struct txn *txn);
void txn_if_created(struct txn *txn, const struct key *key, int64_t revision);
/* Created at this revision or before, or not there. */
void txn_if_not_after(struct txn *txn, const struct key *key, int64_t revision);
/* Created before this revision. */
void txn_if_before(struct txn *txn, const struct key *key, int64_t revision);
void txn_if_leased(struct txn *txn, const struct key *key, int64_t lease);
void txn_if_none(struct txn *txn, const struct key *start, const struct key *end);
Pb__PutRequest *txn_put(struct txn *txn, enum branch branch, const struct key *key,
                        const char *value, int64_t lease);
void txn_delete(struct txn *txn, enum branch branch, const struct key *key);
/* If it is bound to this lease, and whatever else is added to its conditions. */
struct txn_inner *txn_delete_leased(struct txn *txn, enum branch branch, const struct key *key,
                                    int64_t lease);
void inner_if_created(struct txn_inner *inner, const struct key *key, int64_t revision);
void inner_if_not_after(struct txn_inner *inner, const struct key *key, int64_t revision);
Pb__RangeRequest *txn_range(struct txn *txn, enum branch branch, const struct key *start,
                            const struct key *end);
enum stile_status txn_send(struct txn *txn, struct etcd *etcd, conn_fn *fn, void *data,
                           struct stile_error *err);
/* The n-th answer, if it is to a range; else NULL. */
const Pb__RangeResponse *txn_ranged(const Pb__TxnResponse *answer, size_t n);
/* Whether the n-th was a put of a key that was there already; its prev_kv was asked for. */
bool txn_overwrote(const Pb__TxnResponse *answer, size_t n);

/* ---- watches.c: many watches on one stream ---- */

struct watching;
/* kv NULL: something may have happened before the watch began, or while it was interrupted: look
 * for yourself. It goes on in any case. */
typedef void watching_fn(struct watching *watching, const Pb__KeyValue *kv, bool deleted);

/* Embedded by its owner; zeroed means not started. */
struct watching {
    struct watching *next, **link; /* in its head of etcd->watches */
    int64_t id;                    /* 0: not started */
    int64_t from;                  /* the first revision not heard of yet */
    uint64_t interruptions;        /* there had been so many when `from` was learned */
    watching_fn *fn;
    bool puts;             /* not deletions only */
    bool said;             /* asked for on the present stream */
    bool told;             /* something, there: so it is served at once */
    struct key *key, *end; /* end NULL: one key */
};

enum stile_status watching_start(struct etcd *etcd, struct watching *watching,
                                 const struct key *key, const struct key *end, int64_t from,
                                 struct stile_error *err);
void watching_stop(struct etcd *etcd, struct watching *watching);
void watching_move(struct watching *to, struct watching *from); /* to: not started; keeps its fn */
void watches_up(struct etcd *etcd); /* the connection is there (again) */
void watches_init(struct etcd *etcd);
void watches_close(struct etcd *etcd);

/* ---- kept.c ---- */

/* Stops it, a little later, unless somebody wants to watch the same key before. */
void watching_keep(struct etcd *etcd, struct watching *watching);
/* In place of watching_start(), if one was kept: true. What happened before now it does not tell:
 * see `from`. Those that were kept for other keys of this name are stopped. */
bool watching_resume(struct etcd *etcd, struct watching *watching, const struct key *name,
                     const struct key *key);
void kept_expire(struct timer *timer);
void kept_close(struct etcd *etcd);

/* ---- leases.c: one for each TTL, all kept alive over one stream ---- */

enum lease_state { LEASE_NONE, LEASE_ASKED, LEASE_THERE };

struct lease {
    struct lease *next;
    struct etcd *etcd;
    int64_t seconds; /* as asked for */
    enum lease_state state;
    int64_t id;
    uint64_t ttl_ns;     /* as given */
    uint64_t renewed_ns; /* when what renewed it last was sent */
    uint64_t asked_ns;
    bool renewing;
    bool retired;       /* takes no new claims, and is given up when nobody holds by it */
    unsigned late;      /* answers to keep-alives that nobody waits for any more */
    struct timer timer; /* patience with a keep-alive */
    struct timer audit;
    struct key *audit_at; /* where its next page begins, if it is read by pages */
    struct etcd_claim *claims;
};

struct lease *lease_for(struct etcd *etcd, uint64_t ttl_ns); /* NULL: out of memory */
/* True: it is there and lasts; else claims_leased() or claims_unleased() follows. */
bool lease_ensure(struct lease *lease);
/* The server has ended it. Ignored if it has another id by now. */
void lease_lost(struct lease *lease, int64_t id);
/* Something that lives by it can't be deleted. */
void lease_retire(struct lease *lease);
void leases_renew(struct engine *engine, struct claim *const *claims, size_t n);
/* A claim of this lease may be executed after its withdrawal: its keys are looked through later. */
void lease_audit_later(struct lease *lease); /* audit.c */
void leases_audit_later(struct etcd *etcd);
void lease_audit(struct timer *timer);
void leases_init(struct etcd *etcd);
void leases_close(struct etcd *etcd); /* revokes them, for a bounded time */

/* ---- claims.c ---- */

enum standing {
    NOWHERE,
    LEASING, /* waits for its lease */
    ASKED,
    CLEARING, /* an own key of before is being removed */
    IN_LINE,  /* watches what is in its way */
    LOOKING,  /* whether anything still is */
    ARMING,   /* first, and its ghosts get their leases */
    HOLDING,
    WITHDRAWING, /* tried once, and was not the first */
    LEAVING,
    REFUSED, /* its deletion was: release() tries again */
};

/* A key beside the own one, that outlives it by a lease of its own. */
struct ghost {
    unsigned number; /* 0: none */
    int64_t lease;
    uint64_t sent_ns, ttl_ns;
    bool over; /* removed, or being removed */
};

enum { GHOST_HOLD, GHOST_DELAY, GHOSTS };

/* One key that counts as a slot. A claim and its ghosts have one revision and are one. */
struct before {
    uint64_t hash; /* of the key; 0: gone */
    int64_t revision;
};

struct etcd_claim {
    struct etcd_claim *next, **link;             /* of its lease */
    struct etcd_claim *fresh_next, **fresh_link; /* held for a short time so far */
    struct lease *lease;
    int64_t lease_id; /* what its key is bound to */
    uint32_t number;  /* of a reader, or of a claim for a slot; else 0 */
    int64_t revision; /* of the own key's creation: place and token; 0: not known */
    enum standing standing;
    bool in_flight; /* the answer to what was asked has not come */
    bool leaving;   /* release() was called */
    bool was_held;
    bool gone;     /* its key was taken from it */
    bool doubtful; /* a request that removes it may have been executed */
    bool astray;   /* what was asked for it may still be on its way */
    bool enqueue;  /* tried once: nothing visible is in the way, so the key is put */
    bool changed;  /* something happened while it looked */
    bool all;      /* look at everything before it, page by page, not just the nearest */
    bool is_next;  /* when what it watches goes, it is probably first */
    bool is_far;   /* many are before it: to look at all of them is not cheap */
    bool has_timer;
    unsigned tries;
    uint64_t granted_ns, fresh_ns;
    uint64_t interruptions; /* there had been so many when it was granted */
    uint64_t doubt_ns;  /* how long it trusts its watch before it looks for itself; 0: not set */
    bool since_said;    /* a key of its own says since when */
    uint64_t left_as;   /* the how-manieth request to leave */
    struct timer timer; /* what could not be asked is asked again */
    struct watching watching;
    struct scan *scan;     /* under way */
    struct before *before; /* slots: who else is before it */
    size_t n_before;
    struct ghost ghosts[GHOSTS];
    unsigned arming; /* which ghost's lease was asked for */
};

void claims_claim(struct engine *engine, struct claim *claim);
void claims_leased(struct etcd_claim *part);
void claims_unleased(struct etcd_claim *part, const struct stile_error *err);
void claims_lease_lost(struct etcd_claim *part); /* its key is gone with it */

/* For the other parts of a claim's life. */
void claim_attach(struct etcd_claim *part, struct lease *lease);
void claim_fail(struct etcd_claim *part, const struct stile_error *err);
void claim_forget(struct etcd_claim *part); /* here, not on the server */
void claim_unwatch(struct etcd_claim *part);
void claim_again_later(struct etcd_claim *part, void (*fn)(struct timer *timer));

/* True: the answer is nobody's any more but the withdrawal's. */
bool claim_has_left(struct etcd_claim *part, const struct stile_error *err);

/* ---- standing.c ---- */

void claim_go_on(struct etcd_claim *part); /* it is first, and its ghosts are there */
void claim_start_over(struct etcd_claim *part);
void claim_be_first(struct etcd_claim *part);
void claim_enter(struct etcd_claim *part); /* nothing is in its way, but ghosts are to be armed */
/* What is before it, as of `revision`: it is first, waits in line, or is withdrawn. */
void claim_weigh(struct etcd_claim *part, const Pb__RangeResponse *range, int64_t revision);
/* Its key is there. Ends as claim_weigh() does. */
void claim_look(struct etcd_claim *part);

/* ---- scan.c: a line that does not fit into one answer ---- */

/* As claim_look(), and ends as that does. */
void scan_begin(struct etcd_claim *part);
void scan_end(struct etcd_claim *part);

/* ---- gate.c: where etcd->plain_key ---- */

void gate_set_caps(struct stile_caps *caps);
void gate_ask(struct etcd_claim *part); /* it is first; ends as claim_weigh() does */
/* Whoever deletes an own key deletes with it, in one step, the plain key that it stands for. */
void gate_leave(struct etcd_claim *part, struct txn *txn, const struct key *own, struct key *plain);

/* ---- held.c ---- */

void claim_be_fresh(struct etcd_claim *part); /* from now on it holds, or waits */
void claim_unfresh(struct etcd_claim *part);
void claims_watch_fresh(struct timer *timer);

/* ---- ghosts.c ---- */

void ghosts_plan(struct etcd_claim *part);
bool ghosts_any(const struct etcd_claim *part);
/* With the value of the own key: to who watches an election both have the same leader. */
void ghosts_put(struct etcd_claim *part, struct txn *txn, enum branch branch, const struct key *own,
                const char *value, struct key keys[GHOSTS]);
void ghosts_arm(struct etcd_claim *part); /* ends in claim_go_on(), _start_over() or _fail() */
void ghosts_keep_alive(struct lease *lease);
/* Removes with the own key those that nobody needs any more. */
void ghosts_remove(struct etcd_claim *part, struct txn *txn, const struct key *own,
                   struct key keys[GHOSTS]);
void ghosts_revoke(struct etcd_claim *part); /* those that were removed */
void ghosts_leave(struct etcd_claim *part);  /* the others: they go when their time is over */
void ghosts_close(struct etcd *etcd);

/* ---- release.c ---- */

void claims_release(struct engine *engine, struct claim *claim);
void release_answered(struct etcd_claim *part); /* what was in flight is not any more */
void claim_withdraw(struct etcd_claim *part);   /* tried once; ends in busy() */

/* ---- people.c ---- */

/* Requests on one connection are executed in any order: who asks after it gave back must see that,
 * so a look begins when every earlier request to leave is answered. */
void people_leave_answered(struct etcd *etcd);
void people_list(struct engine *engine, struct query *query);
void people_show(struct engine *engine, struct query *query);
void people_break(struct engine *engine, struct query *query);
void people_watch(struct engine *engine, struct query *query);
void people_unwatch(struct engine *engine, struct query *query);

/* ---- doctor.c ---- */

void doctor_examine(struct engine *engine, struct query *query);
void doctor_forked(struct etcd *etcd);

/* ---- etcd.c ---- */

struct etcd {
    struct engine engine;
    struct conn *conn;
    size_t n_members; /* that the URL names */
    struct tls_context *tls;
    char prefix[PREFIX_MAX + 1];
    char info[INFO_MAX];  /* "pid host command", for people */
    char self[SELF_MAX];  /* "pid@host" */
    bool plain_key;       /* exclusive claims take the key of etcd3's Lock as well: gate.c */
    bool rwmutex;         /* exclusive claims where the recipe's readers look for writers */
    bool no_side_keys;    /* our roles do not allow the keys that are for people only */
    unsigned last_number; /* of ghosts */
    uint32_t last_sharer;

    struct lease *leases;
    struct conn_stream keep_alive;

    struct conn_stream watch_stream;
    struct watching *watches[WATCH_HEADS];
    int64_t last_watch;
    struct timer rewatch;
    uint64_t interruptions; /* of the connection or a stream: what is known may be past */
    struct kept *kept;      /* watches without an owner, the oldest first */
    size_t n_kept;
    struct timer keeping;
    struct etcd_claim *fresh, **fresh_tail;
    uint64_t last_left;
    struct looking *patient; /* looks that have not begun */
    struct haunt *haunts;    /* ghosts of claims that have ended */
    struct timer sweep;
    struct visit *visits; /* of the doctor, under way */
};

static inline struct etcd *etcd_of(struct engine *engine)
{
    return (struct etcd *)engine;
}

static inline struct etcd_claim *part_of(struct claim *claim)
{
    return (struct etcd_claim *)claim->state;
}

static inline struct claim *claim_of(struct etcd_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

static inline struct etcd *etcd_of_part(struct etcd_claim *part)
{
    return etcd_of(claim_of(part)->engine);
}

static inline struct etcd_claim *part_of_timer(struct timer *timer)
{
    return (struct etcd_claim *)((char *)timer - offsetof(struct etcd_claim, timer));
}

static inline struct etcd_claim *part_of_watching(struct watching *watching)
{
    return (struct etcd_claim *)((char *)watching - offsetof(struct etcd_claim, watching));
}

static inline void key_of_part(struct key *key, struct etcd_claim *part)
{
    key_of_claim(key, etcd_of_part(part), claim_of(part), part->lease_id, part->number);
}

#endif
