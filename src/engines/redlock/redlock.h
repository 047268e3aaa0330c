/* Inside the redlock engine. */
#ifndef STILE_REDLOCK_H
#define STILE_REDLOCK_H

#include "engines/engine.h"
#include "engines/redis/conn.h"
#include "engines/redis/family.h"
#include "engines/redis/place.h"
#include "engines/redis/reply.h"
#include "engines/redis/who.h"
#include "engines/redlock/scripts.h"

#define NODES_MIN   3
#define NODES_MAX   9
#define OWNER_HEADS 512
#define GROUP_ID    16              /* hex digits */
#define GROUP_MAX   (GROUP_ID + 24) /* "id.1", "id.2-random", "id.1.5": its epoch */
#define WAS_MAX     (8 * (GROUP_MAX + 1))
#define SEAT_LEN    12
#define SEATS_MAX   (NODES_MAX * (SEAT_LEN + 1))
#define ENTRY_MAX   (OWNER_LEN + 1 + INFO_MAX)

/* Of one claim on one node. */
enum answer {
    NOTHING, /* not asked, or not answered yet */
    MINE,    /* its key is ours; neither for the full time nor with our token, though */
    FIRM,    /* ours, for the full time and with our token in its fence: a vote */
    TAKEN,   /* another's */
    APART,   /* it has forgotten its group, or is in another epoch: does not count */
    DOWN,
};

struct vote {
    unsigned char node, answer;
    bool pending; /* an answer is to come */
    bool told;    /* it was granted by a message that overtook the answer */
    bool lined;   /* our entry may be in its queue */
    bool touched; /* something of ours may be there */
    int place;    /* there; -1: not in line */
    int64_t ms;   /* TAKEN: until it ends by itself, -1: never */
    uint64_t fence;
    char holder[OWNER_LEN + 1]; /* TAKEN: who; "" where it was not told */
};

enum standing {
    NOWHERE,
    ASKING,  /* the nodes are being asked, or (with wait) it is in their queues */
    FIRMING, /* a majority is ours: the votes */
    RESUMING,
    PAUSED, /* the vote was split; asked again after a while */
    HOLDING,
};

struct redlock_claim {
    struct redlock_claim *next;          /* with the same head in redlock->by_owner */
    struct redlock_claim *older, *newer; /* in the order in which they were asked for */
    char owner[OWNER_LEN + 1];
    enum standing standing;
    bool listed, has_timer;
    bool looking;   /* in line, and answers of all nodes are being collected */
    bool gathering; /* some nodes are ours: the others get a moment, then it looks */
    bool in_line;   /* it has waited already: what fails now, is asked again later */
    bool bare;      /* asked by SET alone: no node has told who holds it */
    bool contended; /* the last time it had to wait: asked so that it is in line at once */
    unsigned tries, looks, rounds;
    unsigned stake;            /* while it is listed: for stakes_remove() */
    char group[GROUP_MAX + 1]; /* the epoch of all votes that are counted together */
    uint64_t token;            /* that we ask for */
    uint64_t last_token;       /* of this handle's last grant; stays between claims */
    uint64_t sent_ns, granted_ns;
    struct timer timer;
    struct batch *batch;
    struct vote votes[NODES_MAX];
};

struct node {
    struct redlock *redlock;
    struct conn *asks, *hears; /* hears: made when first needed */
    bool hearing;              /* the subscription is in effect */
    bool met;                  /* it was connected once */
    char where[72];            /* host:port */
    char *cli;                 /* for the doctor's advice, else NULL */
    char group[GROUP_MAX + 1]; /* as it said last; "": it has none */
    struct stile_error why;    /* it does not answer, or what it said instead */
    bool silent;               /* it did not answer last: nobody waits for it if others do */
    bool looking, looked_at;   /* INFO was asked for; and has been answered */
    char run_id[41];
    struct stile_error refusal; /* what it is can't be used for locks */
};

struct redlock {
    struct engine engine;
    struct tls_context *tls;
    struct node nodes[NODES_MAX];
    unsigned n, majority;
    bool fenced, may_evict;
    bool opened;
    char group_id[GROUP_ID + 1];
    char group[GROUP_MAX + 1]; /* the present epoch */
    char was[WAS_MAX + 1];     /* epochs that are older, separated by spaces */
    char seats[SEATS_MAX + 1]; /* of the members of this epoch; "": none are on record */
    unsigned node_timeout_ms;
    char channel[CHANNEL_MAX];
    char prefix[PREFIX_MAX + 1];
    char info[INFO_MAX]; /* "pid host command", for people */
    struct redlock_claim *by_owner[OWNER_HEADS];
    struct redlock_claim *oldest, *newest;
    struct stakes stakes;   /* the leases of all that are listed */
    struct batch *batches;  /* renewals under way */
    struct errand *errands; /* releases and withdrawals under way */
};

static inline struct redlock *redlock_of(struct engine *engine)
{
    return (struct redlock *)engine;
}

static inline struct redlock_claim *part_of(struct claim *claim)
{
    return (struct redlock_claim *)claim->state;
}

static inline struct claim *claim_of(struct redlock_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

static inline struct redlock *redlock_of_part(struct redlock_claim *part)
{
    return redlock_of(claim_of(part)->engine);
}

static inline struct redlock_claim *part_of_vote(struct vote *vote)
{
    struct vote *first = vote - vote->node;
    return (struct redlock_claim *)((char *)first - offsetof(struct redlock_claim, votes));
}

static inline struct node *node_of_vote(struct vote *vote)
{
    return &redlock_of_part(part_of_vote(vote))->nodes[vote->node];
}

/* ---- nodes.c: the URL, connections, and what is said of them ---- */

enum stile_status nodes_read(struct redlock *redlock, const struct url *url,
                             struct stile_error *err);
enum stile_status nodes_connect(struct redlock *redlock, const struct url *url,
                                struct stile_error *err);
void nodes_free(struct redlock *redlock);
void nodes_listen(struct redlock *redlock); /* to their messages; what fails is tried again */
/* What came instead of an answer. */
void node_failed(struct node *node, const struct stile_error *err);
void node_answered(struct node *node);
/* What INFO says of it; NULL: it may not be asked for, which the doctor reports. */
void node_take_info(struct node *node, const char *info);
/* Asks for it: a node that has come up after open() does not vote before it was looked at. */
void node_look_at(struct node *node);
/* False, and why: it was not looked at yet, or can't be used for locks. */
bool node_may_vote(struct node *node, struct stile_error *err);
/* "2 of 5 nodes answer: ...". answering: one bit a node. */
enum stile_status nodes_explain(struct redlock *redlock, unsigned answering,
                                struct stile_error *err);

/* ---- keys.c ---- */

enum { KEY, KEY_FENCE, KEY_QUEUE, NAME_KEYS };

#define KEYS_ROOM_MAX FAMILY_ROOM(NAME_KEYS, PREFIX_MAX, STILE_NAME_MAX)

struct keys {
    struct conn_arg key[NAME_KEYS];
    char room[KEYS_ROOM_MAX];
};

void keys_of(struct keys *keys, const struct redlock *redlock, const char *name, size_t len);
bool keys_derive(const struct redlock *redlock, const char *key, size_t len);
/* Whether the key of this name is one that the nodes themselves need. */
bool keys_are_ours(const struct redlock *redlock, const char *name);

/* The arguments of one script; the texts are borrowed until it is sent. */
struct call {
    struct conn_arg args[12];
    size_t n_keys, n;
};

void script_keys(struct call *call, const struct redlock *redlock, const struct keys *keys,
                 const char *which); /* of "KFQN" */
void script_add(struct call *call, const char *text);
enum stile_status script_send(const struct call *call, struct node *node, const struct lua *script,
                              conn_fn *fn, void *data, struct stile_error *err);

/* ---- claims.c: asking, and being granted ---- */

void redlock_claim(struct engine *engine, struct claim *claim);
void redlock_resume(struct engine *engine, struct claim *claim);
void redlock_detach(struct engine *engine, struct claim *claim);
const char *redlock_owner(struct engine *engine, struct claim *claim);
struct redlock_claim *part_find(struct redlock *redlock, const char *owner);
void part_forget(struct redlock_claim *part); /* here, not on the nodes */
/* Not granted: withdrawn everywhere, and told. */
void part_fail(struct redlock_claim *part, const struct stile_error *err);
void part_busy(struct redlock_claim *part);
/* Another owner value, after a pause, as the vote was split; or busy, after too many of them. */
void part_try_again(struct redlock_claim *part);
/* Something has changed: granted, or the votes, or neither (yet). */
void part_weigh(struct redlock_claim *part);

/* ---- votes.c: what is asked of the nodes, and what they say ---- */

struct count {
    unsigned firm, mine, taken, apart, down; /* mine: firm or not */
    unsigned pending, awaited;               /* awaited: of nodes that are not silent */
    unsigned answering;                      /* nodes, one bit each */
};

void votes_count(struct count *count, const struct redlock_claim *part);
/* It could still be won by answers that are worth waiting for. */
bool votes_are_open(const struct count *count, unsigned majority);
void votes_clear(struct redlock_claim *part);
void votes_ask(struct redlock_claim *part, bool again); /* all nodes */
void vote_ask(struct vote *vote, bool again);           /* one of them */
void votes_firm_up(struct redlock_claim *part);         /* phase 2, where it is ours */
void vote_firm_up(struct vote *vote);                   /* a node that came later */
void votes_confirm(struct redlock_claim *part);         /* for resume */
void vote_yield(struct vote *vote, const char *to);     /* to: "" for the next in line */
void vote_unasked(struct vote *vote);                   /* its answer does not matter any more */
uint64_t part_px(const struct claim *claim, uint64_t held_ns);
void entry_write(char entry[ENTRY_MAX], const struct redlock *redlock, const char *owner);
/* The largest share of one who is not us. Returns its size, and one of its votes. */
unsigned votes_rival(const struct redlock_claim *part, const struct vote **vote);

/* ---- wait.c: in line ---- */

void wait_weigh(struct redlock_claim *part, const struct count *count);
void wait_timer(struct redlock_claim *part);
void wait_again(struct redlock_claim *part); /* the votes have failed: look, a little later */
/* Subscribed at this node (again): messages may have been missed. */
void wait_look_again(struct node *node);
void wait_hear(struct node *node, const char *text, size_t len);

/* ---- errand.c: releasing and withdrawing ---- */

void redlock_release(struct engine *engine, struct claim *claim);
/* Takes back what is on the nodes under this owner value. Nobody hears how it went. */
void errand_withdraw(struct redlock_claim *part);
/* The same at one node, of a claim that we do not know (any more). */
void errand_return(struct node *node, const char *owner, const char *name, size_t name_len);
/* Before we close: what is not said yet to a node that may have something of ours gets a moment. */
void errands_finish(struct redlock *redlock);
void errands_free(struct redlock *redlock);

/* ---- renew.c ---- */

void redlock_renew(struct engine *engine, struct claim *const *claims, size_t n);
void part_leave_batch(struct redlock_claim *part);
void batches_drop(struct redlock *redlock);

/* ---- people.c ---- */

void redlock_list(struct engine *engine, struct query *query);
void redlock_show(struct engine *engine, struct query *query);
void redlock_break(struct engine *engine, struct query *query);
void redlock_watch(struct engine *engine, struct query *query);
void redlock_unwatch(struct engine *engine, struct query *query);

/* ---- doctor.c, adopt.c, resize.c ---- */

void redlock_examine(struct engine *engine, struct query *query);

void redlock_adopt(struct engine *engine, struct query *query);
void redlock_resize(struct engine *engine, struct query *query);

#endif
