/* Inside the redis engine. */
#ifndef STILE_REDIS_H
#define STILE_REDIS_H

#include "engines/engine.h"
#include "engines/redis/address.h"
#include "engines/redis/identity.h"
#include "engines/redis/keys.h"
#include "engines/redis/reply.h"
#include "engines/redis/route.h"
#include "engines/redis/scripts.h"

#define OWNER_HEADS 512

#define SHARED_ROOM 32 /* of a key that names share */

enum standing {
    NOWHERE,
    ASKED,       /* a claim is on its way, or waits for the subscription */
    IN_LINE,     /* the server will tell */
    CONFIRMING,  /* it has; we make it ours for the full time */
    REPLICATING, /* granted, and to be told when enough replicas have it */
    HOLDING,
    LEAVING,
};

struct redis_claim;

/* NULL: enough replicas have the grant. */
typedef void replicated_fn(struct redis_claim *claim, const struct stile_error *err);

struct redis_claim {
    struct redis_claim *next;          /* with the same head in redis->by_owner */
    struct redis_claim *older, *newer; /* in the order in which they were asked for */
    char owner[OWNER_LEN + 1];
    enum standing standing;
    bool listed, has_timer;
    bool has_waited;   /* its entry may be in line: what is asked now, is asked again */
    bool unanswered;   /* and what it asked last was not answered */
    bool taking;       /* what was asked is the short way, which puts nobody in line */
    bool wanted;       /* others want it, too, or did lately: the long way is the shorter one */
    bool told;         /* granted by a message that overtook the answer to the claim */
    bool looking;      /* in line, and asked how things stand */
    bool may_be_there; /* release: what the server does not know was not ours to lose */
    bool resumed;      /* its owner has it, and keeps it whatever we hear */
    bool may_be_gone;  /* release: an earlier one was sent and not answered */
    uint64_t sent_ns, granted_ns, give_up_ns, token;
    uint64_t held_ns;                  /* resumed: for how long it was held before, else 0 */
    uint64_t foreign_hash, foreign_ns; /* of that key's value, and when it was seen first */
    uint64_t behind_ns; /* since when another client's key is in its way; 0: it is not */
    unsigned looks;
    unsigned stake;     /* while it is listed: for redis_leases_remove() */
    struct timer timer; /* in line: when to look by ourselves; leaving: when to say it again */
    struct batch *batch;
    struct node *asked_at;               /* in line: where */
    struct node *replicates_at;          /* REPLICATING: where, else NULL */
    struct redis_claim *replicates_next; /* in a list of that node */
    replicated_fn *replicated;
};

struct redis {
    struct engine engine;
    struct tls_context *tls;
    const struct node_events *node_events;
    struct node home;          /* the one server, if it is one */
    struct sentinel *sentinel; /* NULL: not by Sentinels */
    bool clustered;            /* the URL says so */
    struct cluster *cluster;   /* NULL: it is none */
    struct node *speaker;      /* whose answer is being told */
    char channel[CHANNEL_MAX];
    char prefix[PREFIX_MAX + 1];
    char info[INFO_MAX]; /* "pid host command", for people */
    unsigned wait_replicas, wait_ms;
    unsigned poll_ms;       /* how often the first waiter looks behind another client's key */
    bool has_detached;      /* a claim that goes on without us */
    uint64_t *described_ns; /* until when who we are is known there; in a Cluster, one a slot */
    char *cli_flags;        /* for the doctor's advice, else NULL */
    struct conn_options options; /* of all connections; strings are the redis's own */
    char *user, *password, *path;
    struct redis_claim *by_owner[OWNER_HEADS];
    struct redis_claim *oldest, *newest;
    struct leases stakes;  /* the leases of all that are listed */
    struct batch *batches; /* renewals under way */
};

static inline struct redis *redis_of(struct engine *engine)
{
    return (struct redis *)engine;
}

static inline struct redis_claim *part_of(struct claim *claim)
{
    return (struct redis_claim *)claim->state;
}

static inline struct claim *claim_of(struct redis_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

static inline struct redis *redis_of_part(struct redis_claim *part)
{
    return redis_of(claim_of(part)->engine);
}

static inline struct node *claim_node(struct redis_claim *part)
{
    const struct claim *claim = claim_of(part);
    return redis_route_to(redis_of_part(part), claim->name, claim->name_len);
}

/* ---- keys.c ---- */

/* What all keys of a name need at most. */
size_t redis_keys_room(const struct redis *redis, size_t name_len);
#define KEYS_ROOM_MAX (KEYS_ROOM(SCRIPT_KEYS, PREFIX_MAX, STILE_NAME_MAX) + SHARED_ROOM)

/* Returns where it stopped writing. */
char *redis_keys_write(struct conn_arg args[SCRIPT_KEYS], char *room, const struct redis *redis,
                       const char *name, size_t name_len);
/* Behind it comes a session: where that describes itself to those who look at names in this slot,
 * which counts in a Cluster only. */
void redis_key_of_clients(char stem[SHARED_ROOM], const struct redis *redis, uint16_t slot);
bool redis_key_is_derived(const char *key, size_t len);

/* The arguments of one script about one name. */
struct call {
    struct conn_arg args[SCRIPT_KEYS + 9];
    size_t n, n_keys;
    char room[KEYS_ROOM_MAX];
};

void redis_call_begin(struct call *call, size_t n_keys, const struct redis *redis, const char *name,
                      size_t name_len);
void redis_call_add(struct call *call, const char *text); /* borrowed until it is sent */
#define NUMBER_MAX 24

struct numbers {
    char slots[NUMBER_MAX], px[NUMBER_MAX], ttl[NUMBER_MAX], hold[NUMBER_MAX], delay[NUMBER_MAX];
    char terms[4 * NUMBER_MAX]; /* " ttl hold delay slots", as it is kept */
    char mode[2];
};

void redis_number_write(char out[NUMBER_MAX], uint64_t value);
void redis_numbers_of(struct numbers *n, const struct claim *claim, uint64_t held_ns);
bool redis_claim_take_mode(struct claim *claim, const char *letter); /* as a script writes it */

/* ---- route.c ---- */

enum stile_status redis_call_send(const struct call *call, struct redis *redis,
                                  const struct lua *script, conn_fn *fn, void *data,
                                  struct stile_error *err);

/* ---- owners.c ---- */

void redis_claim_enlist(struct redis_claim *part);
void redis_claim_unlist(struct redis_claim *part);
struct redis_claim *redis_claim_find(struct redis *redis, const char *owner); /* or NULL */

/* ---- describe.c ---- */

enum stile_status redis_identity_init(struct redis *redis, struct stile_error *err);
void redis_identity_free(struct redis *redis);
/* Whoever looks at this claim can read who we are, for as long as it lasts and some time more. */
void redis_identity_publish(struct redis *redis, const struct claim *claim);
/* The same of the session that has made a claim which we go on with. */
void redis_identity_extend(struct redis *redis, struct redis_claim *part);

/* ---- claims.c ---- */

void redis_claims_claim(struct engine *engine, struct claim *claim);
void redis_claims_resume(struct engine *engine, struct claim *claim);
void redis_claims_detach(struct engine *engine, struct claim *claim);
const char *redis_claims_owner(struct engine *engine, struct claim *claim);

void redis_claim_request(
    struct redis_claim *part); /* the long way; also whoever is in line already */
/* The arguments that an entry in line is made of: owner, mode, px, terms. */
void redis_claim_add_entry(struct call *call, struct redis_claim *part, struct numbers *n);
void redis_claim_confirm(struct redis_claim *part);

/* ---- queue.c ---- */

void redis_claim_wait_in_queue(struct redis_claim *part, const redisReply *reply);
void redis_claim_look(struct timer *timer);
/* No answer to who waits already: its place is kept and it asks again, which finds whatever the
 * server has made of it. Refused, it leaves nothing behind. */
void redis_claim_unanswered(struct redis_claim *part, const struct stile_error *err);

/* The subscription has begun (again): messages may have been missed. */
void redis_claims_look_again(struct node *node);
/* Requests can be sent again: who was not answered need not wait for its next look. */
void redis_claims_request_again(struct node *node);
/* Names may have moved to other nodes: who waits goes with them. */
void redis_claims_follow(struct redis *redis);
void redis_claims_message(struct redis *redis, const char *text, size_t len);

/* ---- grant.c ---- */

void redis_claim_granted(struct redis_claim *part, uint64_t token);
void redis_claim_hold(struct redis_claim *part); /* granted, and where it has to be */
/* In doubt, it keeps its owner value: core's withdrawal needs it. */
void redis_claim_fail(struct redis_claim *part, const struct stile_error *err);
/* Never in doubt: core would withdraw what its owner has and wants to keep. */
void redis_claim_fail_to_resume(struct redis_claim *part, const struct stile_error *err);
void redis_claim_forget(struct redis_claim *part); /* here, not on the server */

/* ---- replicas.c ---- */

/* Granted by redis->speaker, in the answer before. Ends in replicated(). */
void redis_replicas_await(struct redis_claim *part, replicated_fn *replicated);
void redis_replicas_forget(struct redis_claim *part);
/* Proves that a grant is still there, and makes it ours for the full time. conn NULL: wherever its
 * name is kept. */
enum stile_status redis_replicas_confirm(struct redis_claim *part, struct conn *conn, conn_fn *fn,
                                         struct stile_error *err);

/* ---- release.c ---- */

void redis_claims_release(struct engine *engine, struct claim *claim);
/* Takes back what is left on the server of a claim that has failed. Nobody hears how it went. */
void redis_claim_retract(struct redis_claim *part);

/* ---- renew.c ---- */

void redis_claims_renew(struct engine *engine, struct claim *const *claims, size_t n);
void redis_claim_leave_batch(struct redis_claim *part);
void redis_batches_free(struct redis *redis);

/* ---- people.c ---- */

void redis_inspect_list(struct engine *engine, struct query *query);
void redis_inspect_show(struct engine *engine, struct query *query);
void redis_inspect_break(struct engine *engine, struct query *query);
void redis_inspect_watch(struct engine *engine, struct query *query);
void redis_inspect_unwatch(struct engine *engine, struct query *query);

/* ---- doctor.c ---- */

void redis_doctor_examine(struct engine *engine, struct query *query);

#endif
