/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the redis engine and of its claims, and what its files share. */
#ifndef STILE_REDIS_H
#define STILE_REDIS_H

#include "base/container.h"
#include "engines/engine.h"
#include "engines/kit/doctor.h"
#include "engines/kit/lease.h"
#include "engines/redis/address.h"
#include "engines/redis/identity.h"
#include "engines/redis/keys.h"
#include "engines/redis/loss.h"
#include "engines/redis/reply.h"
#include "engines/redis/scripts.h"
#include "engines/redis/topology.h"

#define SHARED_ROOM  32 /* for a key that all names share */
#define NAME_BUCKETS 512

/* Its transitions are in states.c. From TAKING to REPLICATING it is not granted yet, and has a
 * timer. */
enum claim_state {
    IDLE,
    TAKING,        /* take.lua was sent, which never adds to the queue */
    REQUESTED,     /* claim.lua was sent */
    GRANTED_EARLY, /* the same, but the message of the grant has overtaken the reply */
    WAITING,       /* in the queue: the server publishes a message when it grants */
    LOOKING,       /* the same, and look.lua was sent */
    UNANSWERED,    /* it may be in the queue: the last request got no answer, or was put off; it is
                    * sent again */
    CONFIRMING,    /* granted for a second: the confirmation extends it to the full TTL */
    RESUMING,      /* acquired by an earlier process: errors must not release it */
    REPLICATING,   /* granted, but not yet on enough replicas (wait_replicas) */
    HELD,
    RELEASING,
    RELEASE_FAILED,   /* it is still ours; core calls release() again */
    RELEASE_IN_DOUBT, /* the same, but it may be gone: the release was sent and not answered */
    RELEASING_AGAIN,  /* after RELEASE_IN_DOUBT: its absence is no loss */
    WITHDRAWING,      /* it was never held, so its absence is no loss */
};

struct redis_claim;

/* err NULL: enough replicas have the grant. */
typedef void replicated_fn(struct redis_claim *claim, const struct stile_error *err);

struct redis_claim {
    struct leased leased;
    enum claim_state state;
    bool has_waited; /* it may have an entry in the queue: later requests say so */
    bool contended;  /* others use the name, or did lately: take.lua would fail */
    bool check_due;  /* the message that it was broken may have come before it was held */
    uint64_t sent_ns, granted_ns, token;
    uint64_t renewed_ns;        /* held: when the request was sent that extended it last */
    uint64_t held_ns;           /* resumed: how long it was held before; else 0 */
    uint64_t foreign_hash;      /* of the value of another client's key */
    uint64_t foreign_ns;        /* when that value was first seen */
    uint64_t behind_ns;         /* since when another client's key blocks it; 0: none does */
    unsigned lease_kind;        /* while listed: for link_leases_remove() */
    struct timer timer;         /* the next look of a waiter */
    struct node *asked_at;      /* the node that claim.lua was last sent to */
    struct node *replicates_at; /* REPLICATING: the node that sends WAIT, else NULL */
    struct redis_claim *replicates_next; /* in a list of that node */
    replicated_fn *replicated;
    struct redis_claim *newest_next; /* in the same bucket of redis->newest */
};

enum opening_stage {
    OPENING_NOT,     /* it is open, or has failed, or open() has not begun */
    OPENING_PRIMARY, /* the Sentinels are asked, until the primary they name is connected */
    OPENING_INFO,    /* the server was sent INFO */
    OPENING_TABLE,   /* the Cluster's nodes are asked for its table */
};

/* The way to opened(): see redis.c. */
struct redis_opening {
    enum opening_stage stage;
    const struct url *url;
    struct timer patience;
    struct task look;
    bool late;     /* patience is over */
    bool answered; /* INFO, with error or info */
    struct stile_error error;
    char *info;
    size_t seed;    /* of a Cluster: the node of the URL that is asked */
    char said[160]; /* the errors of those before it */
};

struct redis {
    struct engine engine;
    struct redis_opening opening;
    struct tls_context *tls;
    const struct node_events *node_events;
    struct node home;          /* the one server, if it is one */
    struct sentinel *sentinel; /* NULL: the URL names no Sentinels */
    bool clustered;            /* the URL asks for a Cluster */
    struct cluster *cluster;   /* NULL: the server is not part of a Cluster */
    struct node *answering;    /* the node whose reply is being handled */
    char channel[CHANNEL_MAX];
    char prefix[PREFIX_MAX + 1];
    char info[INFO_MAX]; /* "pid host command", shown by list and show */
    unsigned wait_replicas, wait_ms;
    unsigned poll_ms;            /* how often the first waiter checks another client's key */
    bool has_detached;           /* a claim outlives this process: keep the client record */
    uint64_t *described_ns;      /* when the client record expires; in a Cluster, per slot */
    char *cli_flags;             /* for the doctor's advice, else NULL */
    struct doctor_visit *visits; /* of the doctor, under way */
    struct conn_options options; /* of all connections; owns its strings */
    char *user, *password, *path;
    struct leased_claims claims;
    struct link_leases leases;     /* of these claims */
    size_t coming_first;           /* of these claims: the waiting and the requested, see order.c */
    struct cell_listing *listings; /* of cells, under way */
    /* The newest of the waiting claims on each name, by the hash of the name. */
    struct redis_claim *newest[NAME_BUCKETS];
};

static inline struct redis *redis_of(struct engine *engine)
{
    return (struct redis *)engine;
}

static inline struct redis_claim *redis_claim_of(struct claim *base)
{
    return (struct redis_claim *)base->state;
}

static inline struct claim *base_of(struct redis_claim *claim)
{
    return container_of(claim, struct claim, state);
}

static inline struct redis *redis_of_claim(struct redis_claim *claim)
{
    return redis_of(base_of(claim)->engine);
}

static inline struct node *claim_node(struct redis_claim *claim)
{
    const struct claim *base = base_of(claim);
    return redis_route_to(redis_of_claim(claim), base->name, base->name_len);
}

/* ---- keys.c ---- */

/* The size of all keys of a name, at most. */
size_t redis_keys_room(const struct redis *redis, size_t name_len);
#define KEYS_ROOM_MAX (KEYS_ROOM(ALL_KEYS, PREFIX_MAX, STILE_NAME_MAX) + SHARED_ROOM)

/* As renew.lua needs them. Returns where it stopped writing. */
char *redis_keys_write(struct conn_arg args[LOSS_KEYS], char *room, const struct redis *redis,
                       const char *name, size_t name_len);
/* The stem of the keys of client records; a session follows it. slot counts in a Cluster only: the
 * record must be in the slot of the names that it is shown with. */
void redis_key_of_clients(char stem[SHARED_ROOM], const struct redis *redis, uint16_t slot);

/* The arguments of one script about one name. */
struct call {
    struct conn_arg args[ALL_KEYS + 9];
    size_t n, n_keys;
    char room[KEYS_ROOM_MAX];
};

void redis_call_begin(struct call *call, size_t n_keys, const struct redis *redis, const char *name,
                      size_t name_len);
void redis_call_add(struct call *call, const char *text); /* borrowed until it is sent */
#define NUMBER_MAX 24

struct numbers {
    char slots[NUMBER_MAX], px[NUMBER_MAX], ttl[NUMBER_MAX], hold[NUMBER_MAX], delay[NUMBER_MAX];
    char terms[4 * NUMBER_MAX]; /* " ttl hold delay slots", as the server stores it */
    char mode[2];
};

void redis_number_write(char out[NUMBER_MAX], uint64_t value);
void redis_numbers_of(struct numbers *n, const struct claim *claim, uint64_t held_ns);
/* The arguments that make an entry in the queue: owner, mode, px, terms. They are borrowed. */
void redis_call_add_entry(struct call *call, struct redis_claim *claim, struct numbers *n);
bool redis_claim_take_mode(struct claim *claim,
                           const char *letter); /* letter: as scripts write it */

/* ---- route.c ---- */

enum stile_status redis_call_send(const struct call *call, struct redis *redis,
                                  const struct lua *script, conn_fn *fn, void *data,
                                  struct stile_error *err);

/* ---- identity.c ---- */

enum stile_status redis_identity_init(struct redis *redis, struct stile_error *err);
void redis_identity_free(struct redis *redis);
/* Stores the client record, so that list and show can name the client of this claim for as long as
 * the claim lasts and some time more. */
/* Stores it for the claim's slot, if it is not there for long enough. */
void redis_identity_store(struct redis *redis, const struct claim *claim);

/* The record is stored again when less than this is left. */
#define IDENTITY_SPARE_NS (10 * 60 * NS_PER_SEC)

/* How long the claim can last. */
static inline uint64_t redis_identity_needed_ns(const struct claim *claim)
{
    uint64_t lease_ns = claim->ttl_ns + claim->delay_ns;
    return lease_ns > claim->hold_ns ? lease_ns : claim->hold_ns;
}

static inline bool redis_identity_lasts(const struct redis *redis, const struct claim *claim,
                                        size_t slot)
{
    return loop_now(redis->engine.loop) + redis_identity_needed_ns(claim) + IDENTITY_SPARE_NS <
           redis->described_ns[slot];
}

static inline void redis_identity_publish(struct redis *redis, const struct claim *claim)
{
    if (redis->cluster || !redis_identity_lasts(redis, claim, 0))
        redis_identity_store(redis, claim);
}
/* Extends the record of the session that acquired a resumed claim. */
void redis_identity_extend(struct redis *redis, struct redis_claim *claim);

/* ---- order.c ---- */

static inline bool redis_claim_is_in_queue(enum claim_state state)
{
    return state == WAITING || state == LOOKING || state == UNANSWERED;
}

/* The claim, which will wait, is now the newest on its name. Returns the newest before it: NULL if
 * none is under way, or if that one was granted or has ended. */
struct redis_claim *redis_order_join(struct redis_claim *claim);
struct redis_claim *redis_order_newest(struct redis_claim *claim);
void redis_order_leave(struct redis_claim *claim); /* whether or not it joined */
/* Its state changes: counts the claims that come first. */
void redis_order_count(struct redis_claim *claim, enum claim_state before, enum claim_state state);
/* Without a subscription an older claim on the name is not in the server's queue, and this one
 * would overtake it if the lock were free by now. */
bool redis_order_would_overtake(struct redis_claim *claim);

/* ---- states.c ---- */

/* Only as the table of transitions allows. */
void redis_claim_move_to(struct redis_claim *claim, enum claim_state state);
/* Here, not on the server: no answer to it counts. */
void redis_claim_forget(struct redis_claim *claim, enum claim_state state);
/* Its TTL may be another than was assumed when it was listed. */
void redis_claim_relist(struct redis_claim *claim);
/* Asks whether it is still held, and if not, why: see scripts/check.lua. */
enum stile_status redis_claim_check(struct redis_claim *claim, conn_fn *fn,
                                    struct stile_error *err);

/* Why it is no longer held: reason is of lib/loss.lua. */
static inline void redis_claim_explain_loss(char text[LOSS_MAX], struct redis_claim *claim,
                                            const char *reason)
{
    const struct claim *base = base_of(claim);
    redis_loss_explain(text, reason, loop_now(base->engine->loop) - claim->renewed_ns,
                       redis_identity_needed_ns(base));
}

/* ---- claims.c ---- */

void redis_claims_claim(struct engine *engine, struct claim *base);
void redis_claims_resume(struct engine *engine, struct claim *base);
void redis_claims_detach(struct engine *engine, struct claim *base);
const char *redis_claims_owner(struct engine *engine, struct claim *base);

/* For struct node_events. */

/* The subscription has begun (again): messages may have been missed. */
void redis_claims_look_again(struct node *node);
/* Requests can be sent again: unanswered waiters need not wait for their next look. */
void redis_claims_request_again(struct node *node);
/* Names may have moved to other nodes: their waiters follow them. */
void redis_claims_follow(struct redis *redis);
void redis_claims_message(struct redis *redis, const char *text, size_t len);

/* ---- release.c ---- */

void redis_claims_release(struct engine *engine, struct claim *base);
/* Removes from the server what is left of a claim that has failed. Its answer is ignored. */
void redis_claim_retract(struct redis_claim *claim);

/* ---- replicas.c ---- */

/* The claim was granted by redis->answering, in the reply being handled. Ends in replicated(). */
void redis_replicas_await(struct redis_claim *claim, replicated_fn *replicated);
void redis_replicas_forget(struct redis_claim *claim);
/* Proves that a grant is still there, and extends it to the full TTL. conn NULL: the node of its
 * name. */
enum stile_status redis_replicas_confirm(struct redis_claim *claim, struct conn *conn, conn_fn *fn,
                                         struct stile_error *err);

/* After another write, answered by this node: sends a command that proves that it is still there,
 * and WAIT. If OK both are answered, in this order. */
enum stile_status redis_replicas_count(struct node *node, const struct conn_arg *args, size_t n,
                                       conn_fn *proved, conn_fn *counted, void *data,
                                       struct stile_error *err);

/* ---- renew.c ---- */

void redis_claims_renew(struct engine *engine, struct claim *const *claims, size_t n);

/* ---- inspect.c ---- */

void redis_inspect_list(struct engine *engine, struct query *query);
void redis_inspect_show(struct engine *engine, struct query *query);
void redis_inspect_break(struct engine *engine, struct query *query);
void redis_inspect_record(struct engine *engine, struct query *query);
void redis_inspect_cancel(struct engine *engine, struct query *query);

/* ---- pace.c ---- */

void redis_pace(struct cell_request *request); /* CELL_PACE */

/* ---- cells.c ---- */

extern const struct engine_cells redis_cells;
void redis_cells_close(struct redis *redis); /* no request is answered any longer */

/* ---- install.c ---- */

/* class: to open the servers with. */
enum stile_status redis_install(const struct engine_class *class, const struct url *url,
                                struct stile_error *err);

/* ---- doctor_rules.c ---- */

void redis_doctor_examine(struct engine *engine, struct query *query);

#endif
