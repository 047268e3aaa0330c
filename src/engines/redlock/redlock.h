/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the redlock engine. */
#ifndef STILE_REDLOCK_H
#define STILE_REDLOCK_H

#include "base/container.h"
#include "engines/engine.h"
#include "engines/kit/doctor.h"
#include "engines/kit/lease.h"
#include "engines/redis/address.h"
#include "engines/redis/connection.h"
#include "engines/redis/identity.h"
#include "engines/redis/keys.h"
#include "engines/redis/loss.h"
#include "engines/redis/reply.h"
#include "engines/redlock/scripts.h"

#define NODES_MIN  3
#define NODES_MAX  9
#define GROUP_ID   16              /* hex digits */
#define GROUP_MAX  (GROUP_ID + 24) /* "id.1", "id.2-random", "id.1.5": its epoch */
#define WAS_MAX    (8 * (GROUP_MAX + 1))
#define LABEL_LEN  12
#define LABELS_MAX (NODES_MAX * (LABEL_LEN + 1))
#define ENTRY_MAX  (OWNER_LEN + 1 + INFO_MAX)
#define REASON_MAX 96 /* "b pid host", of a loss */

/* The answer of one node to one claim. */
enum answer {
    NO_ANSWER,   /* not asked, or not answered yet */
    OURS,        /* the key is ours, but neither for the full time nor with our token */
    CONFIRMED,   /* ours, for the full time and with our token in the fence: a vote */
    TAKEN,       /* another's */
    OTHER_EPOCH, /* it has forgotten its group, or is in another epoch: does not count */
    DOWN,
};

struct vote {
    unsigned char node, answer;
    bool pending;   /* an answer is to come */
    bool pushed;    /* the key was handed over by a message that overtook the answer */
    bool queued;    /* our entry may be in the node's queue */
    bool touched;   /* something of ours may be on the node */
    bool check_due; /* the message that it was broken may have come before it was held */
    bool checking;  /* held: the node was asked whether it was broken; never while pending */
    int place;      /* in its queue; -1: none */
    int64_t ms;     /* TAKEN: until the key expires, -1: never */
    uint64_t fence;
    char holder[OWNER_LEN + 1]; /* TAKEN: its owner value; "" if the node did not report it */
};

/* Its transitions are in claims.c. */
enum claim_state {
    IDLE,
    ASKING,    /* phase 1: answers of all nodes are being collected */
    QUEUED,    /* in the nodes' queues, until a message comes or it is time to ask again */
    GATHERING, /* some keys are ours, but too few: the other nodes get a moment */
    VOTING,    /* phase 2: a majority of the keys is ours */
    RESUMING,
    PAUSED, /* the vote was split; asked again after a while */
    HELD,
};

struct redlock_claim {
    struct leased leased;
    enum claim_state state;
    bool has_waited; /* what fails now is asked again later */
    bool was_held;   /* until the next claim: a release that core repeats keeps hold_at_least */
    bool plain;      /* asked by SET alone: no node has reported its holder */
    bool broken;     /* held: a node says that it was broken, and broken_by whom */
    bool contended;  /* the last time it had to wait: asked so that it is queued at once */
    unsigned tries, looks, rounds;
    unsigned lease_kind;       /* while it is listed: for link_leases_remove() */
    char group[GROUP_MAX + 1]; /* the epoch of all votes that are counted together */
    uint64_t token;            /* that we ask for */
    uint64_t last_token;       /* of this handle's last grant; stays between claims */
    uint64_t sent_ns, granted_ns;
    uint64_t renewed_ns; /* held: when the requests were sent that extended it last */
    struct timer timer;
    char broken_by[REASON_MAX]; /* "pid host" */
    struct vote votes[NODES_MAX];
};

struct node {
    struct redlock *redlock;
    struct conn *requests, *pushes; /* pushes: made when first needed */
    bool subscribed;                /* pushes come */
    bool was_connected;
    bool silent;               /* it did not answer last: nothing waits for it if others answer */
    bool checking, checked;    /* INFO was asked for; and has been answered */
    char address[72];          /* host:port */
    char *cli;                 /* for the doctor's advice, else NULL */
    char group[GROUP_MAX + 1]; /* as it reported last; "": it has none */
    char run_id[41];
    struct stile_error error;   /* why it does not answer, or what it replied instead */
    struct stile_error refusal; /* why it can't be used for locks */
};

/* What the rest of the engine has to know of a node. */
struct node_events {
    void (*connected)(struct node *node);
    /* It has (again) become able to hand over or to vote: messages may have been missed. */
    void (*usable)(struct node *node);
    void (*message)(struct node *node, const char *text, size_t len);
};

struct redlock {
    struct engine engine;
    const struct node_events *node_events;
    struct tls_context *tls;
    struct node nodes[NODES_MAX];
    unsigned n, majority;
    bool fenced, may_evict;
    bool opened;
    struct redlock_opening *opening; /* while it is being opened, see redlock.c */
    char group_id[GROUP_ID + 1];
    char group[GROUP_MAX + 1];   /* the present epoch */
    char was[WAS_MAX + 1];       /* epochs that are older, separated by spaces */
    char labels[LABELS_MAX + 1]; /* of the members of this epoch; "": none are on record */
    unsigned node_timeout_ms;
    char channel[CHANNEL_MAX];
    char prefix[PREFIX_MAX + 1];
    char info[INFO_MAX]; /* "pid host command", shown by stile show */
    uint64_t highest;    /* of the fences that nodes have reported and the tokens offered: names
                            without    a fence may well accept the next number */
    struct leased_claims claims;
    struct link_leases leases;   /* of these claims */
    struct removal *removals;    /* releases and withdrawals under way */
    struct doctor_visit *visits; /* of the doctor, under way */
};

static inline struct redlock *redlock_of(struct engine *engine)
{
    return (struct redlock *)engine;
}

/* Lua counts in doubles. */
#define NUMBER_EXACT (UINT64_C(1) << 53)

/* A fence of a name or a node: the next guess is larger. */
static inline void redlock_learn(struct redlock *redlock, uint64_t fence)
{
    if (fence < NUMBER_EXACT && fence > redlock->highest)
        redlock->highest = fence;
}

static inline struct redlock_claim *redlock_claim_of(struct claim *base)
{
    return (struct redlock_claim *)base->state;
}

static inline struct claim *redlock_base(struct redlock_claim *claim)
{
    return container_of(claim, struct claim, state);
}

static inline struct redlock *redlock_of_claim(struct redlock_claim *claim)
{
    return redlock_of(redlock_base(claim)->engine);
}

static inline struct redlock_claim *claim_of_vote(struct vote *vote)
{
    struct vote *first = vote - vote->node;
    return container_of(first, struct redlock_claim, votes);
}

static inline struct node *node_of_vote(struct vote *vote)
{
    return &redlock_of_claim(claim_of_vote(vote))->nodes[vote->node];
}

/* ---- nodes.c: the URL, connections, errors of nodes; keys of a name, and calls of scripts ---- */

enum stile_status redlock_nodes_read(struct redlock *redlock, const struct url *url,
                                     struct stile_error *err);
enum stile_status redlock_nodes_connect(struct redlock *redlock, const struct url *url,
                                        struct stile_error *err);
void redlock_nodes_free(struct redlock *redlock);
/* To their messages; what fails is tried again the next time. */
void redlock_nodes_subscribe(struct redlock *redlock);
void redlock_node_failed(struct node *node, const struct stile_error *err);
void redlock_node_answered(struct node *node);
/* The reply to INFO; NULL: the user may not send it, which the doctor reports. */
void redlock_node_take_info(struct node *node, const char *info);
/* Sends INFO: a node that has come up after open() does not vote before it was checked. */
void redlock_node_check(struct node *node);
/* False, and why: it was not checked yet, or can't be used for locks. */
bool redlock_node_may_vote(struct node *node, struct stile_error *err);
/* "2 of 5 nodes answer: ...". answering: one bit a node. */
enum stile_status redlock_nodes_explain(struct redlock *redlock, unsigned answering,
                                        struct stile_error *err);

enum { KEY, KEY_FENCE, KEY_QUEUE, KEY_BROKEN, KEY_LAST, NAME_KEYS };

#define KEYS_ROOM_MAX KEYS_ROOM(NAME_KEYS, PREFIX_MAX, STILE_NAME_MAX)

struct keys {
    struct conn_arg key[NAME_KEYS];
    char room[KEYS_ROOM_MAX];
};

void redlock_keys_of(struct keys *keys, const struct redlock *redlock, const char *name,
                     size_t len);
/* Whether the key of this name is one that the nodes themselves need. */
bool redlock_keys_are_reserved(const struct redlock *redlock, const char *name);

/* The arguments of one script; the texts are borrowed until it is sent. */
struct call {
    struct conn_arg args[NAME_KEYS + 2 + NODES_MAX];
    size_t n_keys, n;
};

/* which: of "KFQBLN" (lock, fence, queue, broken, last, node); without fences F and N are left out.
 */
void redlock_call_keys(struct call *call, const struct redlock *redlock, const struct keys *keys,
                       const char *which);
void redlock_call_add(struct call *call, const char *text);
enum stile_status redlock_call_send(const struct call *call, struct node *node,
                                    const struct lua *script, conn_fn *fn, void *data,
                                    struct stile_error *err);

/* ---- votes.c: what one claim asks of the nodes, and their answers ---- */

struct count {
    unsigned confirmed, ours, taken, other_epoch, down; /* ours: confirmed or not */
    unsigned pending, awaited;                          /* awaited: of nodes that are not silent */
    unsigned answering;                                 /* nodes, one bit each */
};

void redlock_votes_count(struct count *count, const struct redlock_claim *claim);
/* It could still be won by answers that are worth waiting for. */
bool redlock_votes_are_open(const struct count *count, unsigned majority);
void redlock_votes_clear(struct redlock_claim *claim);
/* fn gets the vote as its data, and passes reply and error on to redlock_vote_take(). */
void redlock_votes_ask(struct redlock_claim *claim, bool again, conn_fn *fn); /* all nodes */
void redlock_vote_ask(struct vote *vote, bool again, conn_fn *fn);            /* one of them */
void redlock_votes_phase2(struct redlock_claim *claim, conn_fn *fn);  /* where the key is ours */
void redlock_vote_phase2(struct vote *vote, conn_fn *fn);             /* a node that came later */
void redlock_votes_confirm(struct redlock_claim *claim, conn_fn *fn); /* for resume */
/* True: a message has handed the key over since the request. */
bool redlock_vote_take(struct vote *vote, const redisReply *reply, const struct stile_error *err);
void redlock_vote_yield(struct vote *vote, const char *to); /* to: "" for the next waiter */
/* Of a held claim: whether the node still has its key. */
void redlock_vote_check(struct vote *vote, conn_fn *fn);
void redlock_vote_cancel(struct vote *vote); /* its answer no longer matters */
uint64_t redlock_claim_px(const struct claim *base, uint64_t held_ns); /* ms */
void redlock_entry_write(char entry[ENTRY_MAX], const struct redlock *redlock, const char *owner);
/* The other claim with most nodes. Returns how many, and one of its votes. */
unsigned redlock_votes_rival(const struct redlock_claim *claim, const struct vote **vote);

/* ---- claims.c: asking, waiting, being granted ---- */

void redlock_claim(struct engine *engine, struct claim *base);
void redlock_release(struct engine *engine, struct claim *base);
void redlock_resume(struct engine *engine, struct claim *base);
void redlock_detach(struct engine *engine, struct claim *base);
const char *redlock_owner(struct engine *engine, struct claim *base);
/* This node may have handed over without our hearing of it: waiting claims ask it again. */
void redlock_claims_ask_again(struct node *node);
void redlock_claims_message(struct node *node, const char *text, size_t len);

/* ---- broken.c: a held claim that was broken ---- */

/* The node says so. by: "pid host". */
void redlock_vote_broken(struct vote *vote, const char *by);
/* Asks the node whether the claim was broken, once its answer counts and the claim is held. */
void redlock_check_if_due(struct vote *vote);
/* True: it is lost, since no majority can be left. */
bool redlock_broken_lose(struct redlock_claim *claim);

/* ---- release.c: releasing and withdrawing ---- */

/* A copy of what is needed; the claim may go on to something else. NULL: out of memory. */
struct removal *redlock_removal_prepare(struct redlock_claim *claim);
/* notify: its released() comes when a majority has answered, or none will. */
void redlock_removal_start(struct removal *removal, struct claim *notify);
/* Removes what is on the nodes under this owner value. Its outcome is not reported. */
void redlock_removal_withdraw(struct redlock_claim *claim);
/* The same on one node, of a claim that this client no longer knows. */
void redlock_removal_return(struct node *node, const char *owner, const char *name,
                            size_t name_len);
/* Before closing: requests not yet sent to a node that may have something of ours get a moment. */
void redlock_removals_finish(struct redlock *redlock);
void redlock_removals_free(struct redlock *redlock);

/* ---- renew.c ---- */

void redlock_renew(struct engine *engine, struct claim *const *claims, size_t n);

/* ---- inspect.c ---- */

void redlock_list(struct engine *engine, struct query *query);
void redlock_show(struct engine *engine, struct query *query);
void redlock_break(struct engine *engine, struct query *query);
void redlock_record(struct engine *engine, struct query *query);
void redlock_inspect_cancel(struct engine *engine, struct query *query);

/* ---- doctor.c, membership.c ---- */

void redlock_examine(struct engine *engine, struct query *query);

void redlock_adopt(struct engine *engine, struct query *query);
void redlock_resize(struct engine *engine, struct query *query);

#endif
