/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a claim:
 *
 *     IDLE ─► CREATING ─► LISTING ◄─► WAITING
 *                 │           │
 *                 ├───────────┴─► HELD ─► LOST
 *                 └─► WITHDRAWING ─► IDLE
 *
 *     any of them ─► UNCERTAIN, if it failed and may have left something on the server
 *     any of them ─► DRAINING ─► RELEASING ─► IDLE, when core calls release()
 *
 * The table of transitions is in claims.c, with what all parts of a claim's life share. queue.c
 * leads up to the grant, line.c knows the neighbours of a claim, held.c watches the holder's node;
 * release.c is the end. */
#ifndef STILE_ZOOKEEPER_CLAIMS_H
#define STILE_ZOOKEEPER_CLAIMS_H

#include "engines/zookeeper/zookeeper.h"

enum claim_state {
    CLAIM_IDLE,
    CLAIM_CREATING, /* its node was requested, and a listing behind it */
    CLAIM_LISTING,  /* reads the queue, and the hold records in its way */
    CLAIM_WAITING,  /* watches the node before its own, or will list again */
    CLAIM_HELD,
    CLAIM_LOST,        /* its node went while it was held */
    CLAIM_WITHDRAWING, /* was not first and does not wait, or is refused */
    CLAIM_UNCERTAIN,   /* its claim or release failed; core calls release() next */
    CLAIM_DRAINING,    /* release() was called; earlier requests are still under way */
    CLAIM_RELEASING,
};

/* Only an administrator can help: the claim is withdrawn, and fails. */
enum refusal { NOT_REFUSED, NUMBERS_USED_UP, NOT_A_CLAIM };

/* What is known of its node on the server. */
enum node_state {
    NODE_NONE,             /* it does not exist */
    NODE_UNCERTAIN,        /* its creation was sent; its path is not known */
    NODE_PRESENT,          /* under a known path */
    NODE_DELETE_UNCERTAIN, /* a request that deletes it may have been executed */
};

/* What is known of its hold record on the server. */
enum record_state { RECORD_NONE, RECORD_UNCERTAIN, RECORD_WRITTEN };

/* The claims of one session on one name (line.c). */
struct line;

/* On one list of its line at most. */
struct line_place {
    struct zk_claim *next, **link; /* link NULL: on none */
};

/* A hold record whose claim has gone. */
struct orphan {
    struct requester requester;
    struct zk_claim *zc;
    char *path, *data;
    bool exists, unmarked;
    int64_t until_ms;
};

/* Those in the way of one claim. */
struct orphans {
    size_t n, pending;
    int rc;
    struct orphan list[];
};

struct zk_claim {
    struct requester requester;
    struct zk_claim *next, **link;               /* of its session */
    struct zk_claim *recent_next, **recent_link; /* held for a moment so far */
    struct session *session;
    unsigned generation; /* of the session its node belongs to */
    enum claim_state state;
    enum node_state node_state;
    enum record_state record_state;
    enum refusal refusal;
    char guid[GUID_SIZE];
    char *node;   /* its path; NULL: not known */
    size_t bytes; /* of its path, in its session's account */
    int64_t czxid, owner;
    int created;   /* the server's code */
    bool parents;  /* must be created first */
    bool was_held; /* whatever became of it */
    bool recorded; /* its record was written together with the present listing */
    struct line *line;
    struct zk_claim *before, *behind; /* exclusive claims of the line, in the queue's order */
    int64_t number;                   /* of its node */
    bool adjacent;                    /* in the queue nothing is between `before` and this one */
    bool ordered;                     /* it has a place in that order */
    bool creating;                    /* and its line counts that */
    bool lists_later;                 /* no listing was requested together with its node */
    bool deleted;                     /* by our own request, which found the node */
    unsigned granted_after;           /* so many interruptions of its session */
    struct line_place looking;        /* waits for a listing, or for any change */
    unsigned in_flight;
    unsigned tries;
    uint64_t granted_ns;
    int64_t clock_ms; /* the server's clock when it last wrote for us */
    uint64_t clock_ns;
    struct orphans *orphans;
    struct timer timer;
    struct node_watch *watch;
};

static inline struct zk_claim *zk_claim_of(struct claim *claim)
{
    return (struct zk_claim *)claim->state;
}

static inline struct zk_claim *claim_of_requester(struct requester *requester)
{
    return container_of(requester, struct zk_claim, requester);
}

static inline struct zk_claim *claim_of_timer(struct timer *timer)
{
    return container_of(timer, struct zk_claim, timer);
}

static inline struct claim *core_claim(struct zk_claim *zc)
{
    return container_of(zc, struct claim, state);
}

static inline struct zk *zk_of_claim(struct zk_claim *zc)
{
    return zk_of(core_claim(zc)->engine);
}

static inline bool zk_claim_wants_record(struct zk_claim *zc)
{
    return core_claim(zc)->hold_ns || core_claim(zc)->delay_ns;
}

/* ---- line.c ---- */

/* Called for a claim that has left its list; none of them may free the line. */
struct line_events {
    /* The reply to a listing that was sent after zk_line_look(). queue NULL: see reply->rc. */
    void (*listed)(struct zk_claim *zc, const struct node_list *queue, const struct reply *reply);
    void (*changed)(struct zk_claim *zc); /* the end of zk_line_await_change() */
    /* The claim before it has held, and its node was deleted: nothing else is before this one. */
    void (*turn)(struct zk_claim *zc);
    /* The claim before it has gone, and something else may be before this one. */
    void (*unsure)(struct zk_claim *zc);
};

/* False: out of memory. */
bool zk_line_join(struct zk_claim *zc, const struct line_events *events);
void zk_line_leave(struct zk_claim *zc);
/* The claim's node is being requested. True: a listing together with it would not grant the claim,
 * or there would be too many of them. */
bool zk_line_creating(struct zk_claim *zc);
void zk_line_created(struct zk_claim *zc);   /* or failed */
void zk_line_append(struct zk_claim *zc);    /* its node was created, the last one of its session */
void zk_line_drop_node(struct zk_claim *zc); /* its node has gone, or is no longer known */
/* The node is that of the claim before it, and still exists as far as we know. */
bool zk_line_is_before(const struct zk_claim *zc, const char *node);
void zk_line_look(struct zk_claim *zc); /* shares the next listing */
/* False: the watch that the last listing has set is no longer there; look again. */
bool zk_line_await_change(struct zk_claim *zc);
void zk_line_stop(struct zk_claim *zc); /* it looks and waits no longer */

/* ---- claims.c ---- */

void zk_claim_move_to(struct zk_claim *zc, enum claim_state state);
void zk_claim_begin(struct zk_claim *zc, struct session *session);
void zk_claim_forget(struct zk_claim *zc);
void zk_claim_stop_waiting(struct zk_claim *zc); /* its watch and its timer */
void zk_claim_drop_node(struct zk_claim *zc);    /* it no longer exists */
void zk_claim_drop_orphans(struct zk_claim *zc);
void zk_claim_fail(struct zk_claim *zc, const struct stile_error *err);
void zk_claim_fail_code(struct zk_claim *zc, int rc, bool maybe);
void zk_claim_retry_later(struct zk_claim *zc, void (*fn)(struct timer *timer));
void zk_claim_record_path(char path[PATH_ROOM], struct zk_claim *zc);
void zk_claim_record_data(char data[INFO_MAX], struct zk_claim *zc, bool delays);

/* What its node shows to others: the process behind it, and what it proclaims. */
void zk_claim_node_data(char data[DATA_MAX], struct zk_claim *zc);

/* ---- held.c ---- */

void zk_held_begin(struct zk_claim *zc);
void zk_held_watch_recent(struct timer *timer);

/* ---- queue.c ---- */

void zk_queue_claim(struct engine *engine, struct claim *claim);
void zk_queue_session_ended(struct session *session);

/* ---- strays.c ---- */

void zk_strays_remove(struct session *session);

/* ---- release.c ---- */

void zk_release(struct engine *engine, struct claim *claim);
/* Ends in busy(), or in failed() if the claim is refused. */
void zk_release_withdraw(struct zk_claim *zc);
/* Counts one request of the claim as answered. True: the claim is being released or its session
 * ends, and the reply has no other consequence. */
bool zk_release_owns_reply(struct zk_claim *zc);
void zk_release_session_ended(struct zk_claim *zc);
void zk_release_drop_record(struct zk_claim *zc); /* the claim takes another GUID */
void zk_release_close(struct zk *zk);

#endif
