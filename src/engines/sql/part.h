/* The state of a claim whose lock ends with a session: where it is, and how it ends there. */
#ifndef STILE_SQL_PART_H
#define STILE_SQL_PART_H

#include "engines/sql/pool.h"

#define PART_NAME_MAX (2 * STILE_NAME_MAX + 2)

enum standing {
    NOWHERE,
    MAKING_WAY, /* nothing is asked yet */
    ASKED,      /* one try is under way, on the shared session or in mode=row on its own */
    CHECKING,   /* it failed in the middle: what the server has is being found out */
    WEIGHING,   /* kept back: for how long is being asked */
    STEPPING,   /* not granted by that, and what it may have taken is being given back */
    IN_LINE,    /* it waits inside the server */
    COUNTING,   /* mode=row: its row is locked; the token is being drawn elsewhere */
    CONFIRMING, /* the server has granted it; the token is being drawn */
    SITTING,    /* ours in the server, but kept back by a hold until its end */
    PARKING,    /* it gets a place in the line, where it waits without a statement */
    PARKED,     /* it has one, and looks now and then, or when it is woken */
    TRYING,     /* from there: one try is under way */
    HOLDING,
    LEAVING,
};

/* Each database's own state of a claim starts with it. */
struct part {
    struct part *next, **link; /* of its session */
    struct session *session;   /* NULL: none */
    enum standing standing;
    bool has_timer;
    bool withdrawn; /* released before it was answered */
    bool told;      /* that it is lost, by us */
    bool active;
    uint64_t token;
    struct timer timer;         /* sitting: the end of the hold; leaving: the end of our patience */
    struct stile_error why;     /* stepping back: why it has failed, if it has */
    char stored[PART_NAME_MAX]; /* the name, as the database has it */
};

bool part_begin(struct part *part); /* false: it has failed already */
void part_join(struct part *part, struct session *session);
void part_leave(struct part *part);
void part_retire(struct part *part); /* nothing of it is in the server, or will be */
void part_fail(struct part *part, const struct stile_error *err);
void part_turn_away(struct part *part, uint64_t hint_ns);
void part_grant(struct part *part, uint64_t token, uint64_t sent_ns);
/* The session that was asked once more is alive, or isn't (err): granted. */
void part_confirmed(struct part *part, uint64_t sent_ns, const struct stile_error *err);
/* A try on the shared session has left nothing in the server; part->token is when to come again, in
 * ms. */
void part_stepped(struct part *part);
void part_give_up(struct part *part, const struct stile_error *err); /* and its session */
void part_lose(struct part *part, const struct stile_error *why);
void part_go_down(struct session *session, const struct stile_error *why);

/* ---- release.c ---- */

void claims_release(struct engine *engine, struct claim *claim);
void release_left(struct part *part, const struct stile_error *err);
/* What has become of giving it back. */
void release_answered(struct part *part, bool ours, const struct stile_error *err);
void release_stopped(struct session *session); /* or it could not be */

/* ---- each database's own ---- */

void claims_stand_in_line(struct part *part); /* on a session of its own */
/* It is ours in the server: held, or if it was withdrawn, on the way there. */
void release_give(struct part *part);
/* The answer that a withdrawn claim was waiting for: it is in the server, or it isn't. */
void release_go_on(struct part *part, bool there);

static inline struct part *part_of(struct claim *claim)
{
    return (struct part *)claim->state;
}

static inline struct claim *claim_of(struct part *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

static inline struct part *part_of_timer(struct timer *timer)
{
    return (struct part *)((char *)timer - offsetof(struct part, timer));
}

#endif
