/* A claim, and the parts of its life: claims.c (shared), queue.c (until it is granted, and while it
 * is held) and release.c (its end). */
#ifndef STILE_ZOOKEEPER_CLAIMS_H
#define STILE_ZOOKEEPER_CLAIMS_H

#include "engines/zookeeper/zookeeper.h"

enum claim_state {
    CLAIM_IDLE,
    CLAIM_CREATING, /* its node was asked for, and a listing behind it */
    CLAIM_WAITING,  /* watches the node before its own, or will list again */
    CLAIM_LISTING,
    CLAIM_HELD,
    CLAIM_WITHDRAWING, /* was not first and does not wait, or is refused */
    CLAIM_RELEASING,
};

/* Only an administrator can help: the claim is withdrawn, and fails. */
enum refusal { NOT_REFUSED, NUMBERS_USED_UP, NOT_A_CLAIM };

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
    char guid[GUID_SIZE];
    char *node;   /* its path; NULL: not known */
    size_t bytes; /* of its path, in its session's account */
    int64_t czxid, owner;
    int created; /* the server's code */
    bool created_maybe;
    unsigned in_flight;
    enum refusal refusal;
    bool leaving; /* release() was called */
    bool was_held;
    bool gone;     /* its node was removed by somebody else */
    bool doubtful; /* a request that deletes its node may have been executed */
    bool parents;  /* must be created first */
    bool has_timer;
    unsigned tries;
    uint64_t granted_ns;
    int64_t clock_ms; /* the server's clock when it last wrote for us */
    uint64_t clock_ns;
    bool recorded; /* its hold record may exist */
    bool armed;    /* and does */
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

/* ---- claims.c ---- */

void zk_claim_begin(struct zk_claim *zc, struct session *session);
void zk_claim_forget(struct zk_claim *zc);
void zk_claim_stop_waiting(struct zk_claim *zc); /* its watch and its timer */
void zk_claim_drop_node(struct zk_claim *zc);
void zk_claim_drop_orphans(struct zk_claim *zc);
void zk_claim_fail(struct zk_claim *zc, const struct stile_error *err);
void zk_claim_fail_code(struct zk_claim *zc, int rc, bool maybe);
void zk_claim_retry_later(struct zk_claim *zc, void (*fn)(struct timer *timer));
void zk_claim_record_path(char path[PATH_ROOM], struct zk_claim *zc);
void zk_claim_record_data(char data[INFO_MAX], struct zk_claim *zc, bool delays);

/* ---- queue.c ---- */

void zk_queue_claim(struct engine *engine, struct claim *claim);
void zk_queue_session_ended(struct session *session);
void zk_queue_watch_recent(struct timer *timer);

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
