/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a database, as far as the databases are alike: its state, the requests that are
 * not answered yet, its place in the pool, and the claims that live by it.
 *
 * A callback may end the session that it was called for. Such a session is freed when the last
 * callback has returned: sql_session_enter() and sql_session_leave() count them. */
#ifndef STILE_SQL_SESSION_H
#define STILE_SQL_SESSION_H

#include "engines/engine.h"

struct pool;
struct sql_claim;

/* Each database's own. */
struct answer;
struct request;
struct session;

typedef void answer_fn(void *data, const struct answer *answer);

enum session_state {
    CONNECTING,
    GREETING, /* connected: the answer to its first statement decides whether it is up */
    UP,
    DOWN,
};

struct session_events {
    void (*up)(struct session *session);
    /* It is over: nothing is asked of it from now on. Its requests then fail one by one. */
    void (*down)(struct session *session);
    /* All that was asked has been answered; afterwards the session is gone. */
    void (*ended)(struct session *session, const struct stile_error *why);
    void (*notified)(struct session *session, const char *payload); /* may, else NULL */
};

/* Each database's struct request starts with it. */
struct sql_request {
    struct request *next;
    answer_fn *fn; /* NULL: the answer is dropped */
    void *data;
    uint64_t sent_ns;         /* the time before it was sent; 0: it was not */
    struct stile_error error; /* if it has a status */
};

/* The rest of the error is not cleared, as this is done for each request. */
static inline void sql_request_init(struct sql_request *request, answer_fn *fn, void *data)
{
    request->next = NULL;
    request->fn = fn;
    request->data = data;
    request->sent_ns = 0;
    request->error.status = STILE_OK;
}

/* Each database's struct session starts with it. */
struct sql_session {
    enum session_state state;
    struct loop *loop;
    const struct session_events *events;
    struct watch watch;
    uint32_t watched; /* for which events */
    struct timer timer;
    struct task task;
    struct request *first, **last; /* in the order in which they are answered */
    struct request *spare;         /* kept for the next: most sessions have one at a time */
    unsigned depth;                /* of callbacks under way */
    bool doomed;                   /* freed when the last of them returns */
    bool was_up;

    /* in the pool */
    struct pool *pool;
    struct session *next;     /* in the pool's list */
    struct sql_claim *claims; /* held here, or being worked on */
    uint64_t lease_ns;        /* the lease that was set in the server last */
    uint64_t used_ns;
    uint64_t backend;       /* the server's number of it */
    unsigned pending_stops; /* sent and not yet answered */
    bool waits;             /* a statement waits inside the server */
    bool idle;              /* it can be taken from the pool */
    bool renewing;          /* a renewal is under way */
    uint64_t renewing_ttl_ns;
};

/* Ready to connect; state, watch and task are the caller's to fill in. */
void sql_session_init(struct session *session, struct pool *pool,
                      const struct session_events *events);
/* The answer to its first statement. refused NULL: it is up. */
void sql_session_greeted(struct session *session, const struct stile_error *refused);
void sql_session_free(struct session *session); /* no event follows; NULL allowed */
/* Answers all requests with this error, then ends. */
void sql_session_fail(struct session *session, const struct stile_error *why);

void sql_session_enter(struct session *session);
bool sql_session_leave(struct session *session); /* false: it is gone */

void sql_session_append(struct session *session, struct request *request);
void sql_session_prepend(struct session *session, struct request *request);
struct request *sql_session_take_first(struct session *session);
/* Drops the answers to requests with this data. */
void sql_session_forget(struct session *session, const void *data);

/* To be called after sending: a server that is silent for too long is taken for gone. */
void sql_session_arm_stall(struct session *session);

bool sql_session_is_up(const struct session *session);
bool sql_session_is_over(const struct session *session);

static inline struct sql_session *base_of(struct session *session)
{
    return (struct sql_session *)session;
}

static inline struct sql_request *request_base(struct request *request)
{
    return (struct sql_request *)request;
}

#endif
