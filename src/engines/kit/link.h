/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a connection: it is made, breaks and is made again, while requests wait, are sent and
 * answered, or are in doubt.
 *
 * A protocol embeds a struct link and describes itself by a const struct link_class: how a request
 * becomes bytes, what to do with bytes that arrive, how a server is greeted, and which server comes
 * next. The link owns the stream, the queues, the time and the answer to one question: may the
 * server have executed a request that was not answered?
 *
 *     PAUSED ──► CONNECTING ──► GREETING ◄──► UP ──► LEAVING     any ──► PAUSED: it broke
 *
 *   PAUSED      between two attempts. New requests fail at once, with the reason of the last
 *               failure: the caller learns at once that the server is down.
 *   CONNECTING  until the stream is open. Requests wait.
 *   GREETING    opened() was called. The protocol logs in with link_send() and ends with
 *               link_come_up(), or with link_fail(). Requests wait.
 *   UP          requests are sent in the order of their submission.
 *   LEAVING     nothing new is sent. When all that was sent is answered, the next connection
 *               begins. Closing at once would leave those requests in doubt.
 *
 * Requests. A request is embedded by the protocol in an object of its own, and belongs to the link
 * from link_submit() until the protocol takes it back with link_take(), for the reply, or the link
 * ends it: failed() unless it is no longer wanted, then free_request(). Every wanted request is
 * answered exactly once, from the loop and never from inside link_submit(). failed() gets:
 *
 *   UNCERTAIN    it may have been sent, and the connection broke or no reply came in time: the
 *                server may have executed it, or may do so later
 *   any other    the server never executed it: its last byte has not left this machine. Mostly
 *                UNREACHABLE
 *
 * A request is in doubt if `end`, the place of its last byte in the stream, is among those that may
 * have left (stream_sent()). The protocol sets `end` when it writes; UINT64_MAX: not all is
 * written.
 *
 * Where replies come in the order of requests (in_order), an overdue request is answered with
 * UNCERTAIN but keeps its place, and its reply is dropped when it comes. Its connection stays, too,
 * so that a withdrawal sent after it can't overtake it: bytes of a closed connection may be read by
 * a stopped server after those of a newer one. Elsewhere it is taken back and freed, which cancels
 * it.
 *
 * Time. A request has answer_ns from its submission; with a window, from when it is sent, and those
 * before it in the queue have to be answered meanwhile. Without a window, where replies come in
 * order, it has answer_ns from the last reply if that is later: thousands may be ahead of it, and a
 * claim that was given up before its turn would lose its place in the server's queue. A server that
 * is silent for silence_ns while a request is unanswered is given up. While replies come, an
 * overdue request is no reason for that: the last of thousands would be lost with the connection,
 * though they were about to be executed. The pause after a failed attempt is random, up to 20 ms ×
 * 2ⁿ, 2 s at most.
 *
 * Patience is a fraction of the shortest lease at stake. A lease is renewed when a third of it is
 * over; a quarter for silence, and for connecting, leaves time for two more connections, and a
 * pause is at most an eighth.
 *
 * A link may be freed inside any of its callbacks; its memory stays until the last of them returns.
 * Whatever calls back sets nothing afterwards without a look at `freed`. */
#ifndef STILE_KIT_LINK_H
#define STILE_KIT_LINK_H

#include "engines/kit/link_index.h"
#include "io/stream.h"

struct link;

/* ---- leases ---- */

#define LINK_LEASE_KINDS 64

/* The leases that depend on a connection. All zero at the start. Counted by powers of two, so that
 * adding or removing one looks at no other. */
struct link_leases {
    uint32_t n[LINK_LEASE_KINDS];
    uint64_t used; /* bit KIND: n[KIND] isn't 0. Each request asks for the shortest */
};

/* Returns the kind that link_leases_remove() needs. */
unsigned link_leases_add(struct link_leases *leases, uint64_t lease_ns);
void link_leases_remove(struct link_leases *leases, unsigned kind);

/* At most the shortest lease and more than half of it; UINT64_MAX: there is none. */
uint64_t link_leases_shortest(const struct link_leases *leases);

/* ---- requests ---- */

/* Embedded by the protocol. len is set by it, the rest by the link. */
struct link_request {
    struct link_request *next, *prev;
    struct link_request *same_next, **same_prev; /* in the index, by data */
    void *data;        /* of the requester; for link_forget() and link_cancel() */
    uint64_t sent_ns;  /* when it was sent */
    uint64_t until_ns; /* its deadline */
    uint64_t end;      /* of its bytes in the stream; set by write() or let_go() */
    size_t len;        /* how much it counts towards pending_bytes */
    bool wanted;       /* it has not been answered or forgotten */
    bool in_doubt;     /* its connection broke after it was sent */
};

/* All zero: empty. */
struct link_queue {
    struct link_request *first, *last;
    size_t n, bytes;
};

void link_queue_push(struct link_queue *queue, struct link_request *request);
struct link_request *link_queue_pop(struct link_queue *queue);             /* NULL: empty */
void link_queue_append(struct link_queue *queue, struct link_queue *more); /* which is empty then */
void link_queue_forget(struct link_queue *queue, const void *data);

/* ---- links ---- */

enum link_state {
    LINK_PAUSED,
    LINK_CONNECTING,
    LINK_GREETING,
    LINK_UP,
    LINK_LEAVING,
};

struct link_class {
    bool in_order; /* replies come in the order of requests */

    /* Writes it to link->stream and sets its end. 0, or an errno value: part of it may be in the
     * stream, so nothing may follow; the link breaks. */
    int (*write)(struct link *link, struct link_request *request);
    void (*opened)(struct link *link); /* in GREETING */
    void (*received)(struct link *link, const void *bytes, size_t n);

    /* Calls the requester back. */
    void (*failed)(struct link *link, struct link_request *request, const struct stile_error *err);
    void (*free_request)(struct link_request *request);
    /* May be NULL. The connection of a sent request ends: sets its end, if write() could not. */
    void (*let_go)(struct link_request *request);
    /* May be NULL. A request is overdue; the connection is still there. */
    void (*late)(struct link *link);

    /* The connection has ended: drops what belonged to it. why NULL: the link is being freed, and
     * no callback may be made. */
    void (*closed)(struct link *link, const struct stile_error *why);
    /* Sets link->target for the next attempt, if it is another one. True: it is made at once, and
     * what waits goes on waiting; false: after a pause, and what waits fails. steady: the broken
     * connection was up for a second or more. */
    bool (*next)(struct link *link, bool steady);
    /* All requests of the connection are answered. Also after an attempt that failed. */
    void (*down)(struct link *link, const struct stile_error *why, bool was_up);

    void (*free)(struct link *link); /* the memory that it is part of */
};

struct link_options {
    struct stream_target target;      /* borrowed; timeout_ns 0: 5 s */
    uint64_t answer_ns;               /* how long a request may go unanswered */
    uint64_t silence_ns;              /* how long the server may be silent then */
    const struct link_leases *leases; /* at stake; borrowed; NULL: none */
    size_t window; /* how many may be sent and unanswered; the rest wait; 0: any number */
    size_t pending_max, pending_bytes; /* for link_has_room() */
};

struct link {
    const struct link_class *class;
    struct loop *loop;
    struct link_options options;
    char address[300]; /* of the present target, for messages */

    enum link_state state;
    struct stream *stream;     /* NULL: PAUSED, or it could not be opened */
    struct link_queue sent;    /* in the order of sending */
    struct link_queue again;   /* to be sent again, before those that wait, when sent is empty */
    struct link_queue waiting; /* not sent yet */
    struct link_queue ended;   /* their connection broke; they are being answered */
    struct link_index index;   /* of the requests in all four */
    struct link_request *first_on_time; /* of sent: the first that is not reported as overdue */

    struct timer overdue, retry;
    struct task overdue_task; /* what is overdue is judged once the sockets are read */
    struct task break_task;   /* goes down from the loop; why is set */
    struct task refuse_task;  /* refuses requests that came in PAUSED */
    unsigned attempt;         /* how many have failed in a row */
    bool left;                /* the last connection was left with all requests answered */
    uint64_t up_ns;
    uint64_t heard_ns;    /* when the server last sent anything, or the attempt began */
    uint64_t answered_ns; /* when it last answered a request */
    bool proven; /* the server has spoken the protocol once: if something else does, it will pass */
    struct stile_error why;
    unsigned depth; /* callbacks under way */
    bool freed;
};

/* 0 or ENOMEM. All zero before. The target's strings must live until they are replaced. */
int link_init(struct link *link, struct loop *loop, const struct link_class *class,
              const struct link_options *options);
void link_start(struct link *link);  /* the first attempt */
void link_hurry(struct link *link);  /* the next attempt is made now, and pauses begin anew */
void link_free(struct link *link);   /* no callback follows but closed() and free() */
void link_forked(struct link *link); /* in a child: closes the fd and nothing else */

static inline bool link_is_open(const struct link *link) /* it was up and has not broken */
{
    return link->state == LINK_UP || link->state == LINK_LEAVING;
}

bool link_is_idle(const struct link *link); /* no request is unanswered */
/* usual_ns, or less if a lease at stake asks for it. */
uint64_t link_patience(const struct link *link, uint64_t usual_ns);

/* One more request of that length is within the limits. */
bool link_has_room(const struct link *link, size_t len);
void link_submit(struct link *link, struct link_request *request, void *data);
/* One that was taken back, behind all that wait; its deadline stays. */
void link_resubmit(struct link *link, struct link_request *request);
/* One that was taken back and not executed: before all that wait, once no other is unanswered. */
void link_repeat(struct link *link, struct link_request *request);
/* Now, whatever waits: for greetings, and what must precede another request. The caller has set
 * data, wanted and the deadline. */
void link_send(struct link *link, struct link_request *request);
/* Writes only: for what is never answered. It stays the caller's. */
void link_write(struct link *link, struct link_request *request);

void link_take(struct link *link, struct link_request *request); /* out of sent */
void link_go_on(struct link *link); /* sends what has room now; after each reply */

void link_forget(struct link *link, const void *data); /* they are no longer wanted */
/* The same, but those that have not been sent are removed. True: there was one. */
bool link_cancel(struct link *link, const void *data);

void link_come_up(struct link *link);
void link_greet_again(struct link *link); /* UP: requests wait until it comes up again */
/* Goes to the next server when all is answered, with down(why). */
void link_leave(struct link *link, const struct stile_error *why);
/* The connection is of no use. Calls back; fail_soon() does so from the loop, and the first reason
 * counts. */
void link_fail(struct link *link, const struct stile_error *why);
void link_fail_soon(struct link *link, const struct stile_error *why);

#endif
