/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A claim whose lock ends with a session: which session it is on, its state, and how it ends. */
#ifndef STILE_SQL_CLAIM_H
#define STILE_SQL_CLAIM_H

#include "engines/sql/pool.h"

#define SQL_STORED_MAX (2 * STILE_NAME_MAX + 2)

enum claim_state {
    CLAIM_IDLE,
    CLAIM_STARTING,
    CLAIM_YIELDING,     /* it lets others go first; nothing has been sent */
    CLAIM_TRYING,       /* one try is under way, on the shared session or in mode=row on its own */
    CLAIM_CHECKING,     /* the try failed half-way: finding out what the server has */
    CLAIM_READING_HOLD, /* a hold keeps the name back: reading for how long */
    CLAIM_UNDOING,      /* not granted, and what the try may have taken is being given back */
    CLAIM_WAITING,      /* a statement waits inside the server */
    CLAIM_COUNTING,     /* mode=row: its row is locked; another session draws the token */
    CLAIM_CONFIRMING,   /* the server has granted it; checking, or drawing the token */
    CLAIM_HELD_BACK, /* the lock is ours in the server, but a hold keeps the name back until its end
                      */
    CLAIM_QUEUEING,  /* getting a place in the queue, where it waits without a statement */
    CLAIM_QUEUED,    /* it has one, and tries now and then, or when it is woken */
    CLAIM_RETRYING,  /* in the queue: one try is under way */
    CLAIM_HELD,
    CLAIM_RELEASING,
};

/* Each database's own state of a claim starts with it. */
struct sql_claim {
    struct sql_claim *next, **link; /* of its session */
    struct session *session;        /* NULL: none */
    enum claim_state state;
    bool withdrawn;     /* released before it was answered */
    bool loss_reported; /* core knows that it is lost */
    uint64_t token;
    uint64_t begun_ns;  /* when core asked for it */
    struct timer timer; /* held back: when to look again; releasing: when to close the session */
    struct stile_error why;      /* undoing: why it has failed, if it has */
    char stored[SQL_STORED_MAX]; /* the name, as the database has it */
};

void sql_claim_move_to(struct sql_claim *c, enum claim_state state);

bool sql_claim_begin(struct sql_claim *c); /* false: it has failed already */
uint64_t sql_claim_waited_ms(struct sql_claim *c);
void sql_claim_join(struct sql_claim *c, struct session *session);
void sql_claim_leave(struct sql_claim *c);
void sql_claim_retire(
    struct sql_claim *c); /* the server has nothing of it, and gets nothing more */
void sql_claim_fail(struct sql_claim *c, const struct stile_error *err);
void sql_claim_busy(struct sql_claim *c, uint64_t hint_ns);
void sql_claim_grant(struct sql_claim *c, uint64_t token, uint64_t sent_ns);
/* Its session was asked once more, and is alive: granted. err: it is not. */
void sql_claim_confirmed(struct sql_claim *c, uint64_t sent_ns, const struct stile_error *err);
/* A try on the shared session has left nothing in the server. c->token: when to try again, in ms.
 */
void sql_claim_not_taken(struct sql_claim *c);
void sql_claim_abandon(struct sql_claim *c, const struct stile_error *err); /* and its session */
void sql_claim_lose(struct sql_claim *c, const struct stile_error *why);
void sql_claim_session_ended(struct session *session, const struct stile_error *why);

/* ---- releasing ---- */

void sql_claim_release(struct engine *engine, struct claim *claim);
void sql_claim_released(struct sql_claim *c, const struct stile_error *err);
/* ours: the server had it. err: the statement failed. */
void sql_claim_release_answered(struct sql_claim *c, bool ours, const struct stile_error *err);
/* The release could not be sent, so what the session has is still there: core releases again. */
void sql_claim_release_unsent(struct sql_claim *c, const struct stile_error *err);
/* The answer that a withdrawn claim was waiting for. there: the server may have something of it. */
void sql_claim_withdraw(struct sql_claim *c, bool there);
void sql_claim_stopped(struct session *session); /* the stop was answered */

static inline struct sql_claim *sql_claim_of(struct claim *claim)
{
    return (struct sql_claim *)claim->state;
}

static inline struct claim *claim_of(struct sql_claim *c)
{
    return (struct claim *)((char *)c - offsetof(struct claim, state));
}

static inline struct sql_claim *sql_claim_of_timer(struct timer *timer)
{
    return (struct sql_claim *)((char *)timer - offsetof(struct sql_claim, timer));
}

#endif
