/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a lock:
 *
 *     IDLE ─► IN_NAME_QUEUE ─► IN_ADMISSION ─► CLAIMING ◄─► PAUSED ─► IDLE
 *      │                                          │ │
 *      │                                          │ └──────────┐
 *      │                                          ▼            ▼
 *      └─► RESUMING ────────────────────────────► HELD ─► RELEASING ─► IDLE
 *             │                                    │         ▲
 *             └─► DROPPED ─► IDLE                  └─► CLEARING ─► LOST ─► IDLE
 *
 *     IN_NAME_QUEUE  another claim of this client on the name is ahead (name_queue.h)
 *     IN_ADMISSION   too many requests are in flight (admission.h)
 *     PAUSED         the claim is sent again later
 *     RESUMING       the claim is not held here until the engine answers
 *     DROPPED        no caller waits for the answer to a resumption any longer
 *     RELEASING      also withdraws an undecided claim; repeated until the engine has answered
 *     CLEARING       lost: the claim is released, while its user sees the loss
 *     LOST           cleared away; its user has neither released nor acquired it since
 *
 * RELEASE_PAUSED and CLEARING_PAUSED: the answer was not final, and the timer repeats the release.
 * A lost lock that is acquired again counts as released: its claim follows when the engine has
 * answered, from RELEASING through IDLE, IN_NAME_QUEUE or PAUSED.
 * The table of transitions is in lock.c. Renewal, release and loss are one machine: a renewal's
 * answer counts only while HELD. */
#ifndef STILE_LOCK_H
#define STILE_LOCK_H

#include "core/client.h"
#include "core/retry.h"

#define LOCK_MAGIC UINT64_C(0x7374696c656c6f63)
#define LOCK_DEAD  UINT64_C(0x7374696c65646561)

enum lock_state {
    IDLE,
    IN_NAME_QUEUE,
    IN_ADMISSION,
    CLAIMING,
    PAUSED,
    RESUMING,
    DROPPED,
    HELD,
    RELEASING,
    RELEASE_PAUSED,
    CLEARING,
    CLEARING_PAUSED,
    LOST,
};

/* One call of the user that has not been answered yet: on a blocking caller's stack, or allocated
 * for an async one. */
struct op {
    struct follower follower;
    struct stile_error error; /* status OK unless it failed */
    struct callback callback; /* async: delivers done() */
    struct stile_lock *lock;
    stile_done_fn *done; /* NULL: blocking */
    void *data;
};

struct stile_lock {
    uint64_t magic;
    struct stile_client *client;
    struct stile_lock *all_next, *all_before;
    struct claim *claim; /* in the same allocation */
    enum lock_state state;
    bool given_up; /* no caller waits for released() */
    bool freed;    /* by its user; it goes when the engine has answered */
    unsigned uses; /* calls that block in it, callbacks that are due or running */
    struct policy policy;
    struct op *op;

    /* waiting */
    struct timer timer; /* the wait's end, the next retry, or the end of patience with a release */
    uint64_t wait_until_ns;
    bool try_once;
    bool anew; /* acquired after a loss: claims when the release of what was lost is answered */
    unsigned tried;
    enum stile_status outcome;  /* what a withdrawal will be answered with */
    struct stile_error *reason; /* of the loss, or of no grant so far; NULL: held by another */
    struct stile_lock *queue_link, *queue_next, *queue_before;
    struct stile_lock *queue_last; /* of the queue whose head it is */
    struct stile_lock *enter_next; /* new heads that have not begun */

    enum admission_place admission;
    enum admission_queue admission_queue;
    struct stile_lock *request_next, *request_before;

    /* releasing */
    uint64_t release_until_ns;  /* from then on nothing can be left to release */
    uint64_t patience_until_ns; /* its caller waits no longer than this; 0: not begun */
    unsigned releases;          /* how often it was repeated */

    /* held, or waiting on a session */
    uint64_t token, sent_ns, deadline_ns, renew_at_ns; /* sent: what the deadline counts from */
    uint64_t lease_ns;                                 /* as the engine said; 0: none */
    bool renewing;        /* the engine has been asked and will answer */
    uint64_t renew_round; /* the last one it went with */
    bool in_leases;
    struct stile_lock *lease_next, *lease_before;

    void (*gone)(void *data); /* a recipe's, or NULL: the handle is about to be freed */
    void *gone_data;

    char *proclaim; /* what claim->proclaim points to since it was changed; owned, or NULL */
    int64_t record_from_ms;      /* Unix time of stile_lock_record_start(); 0: not called */
    struct record_write *record; /* what the engine has not answered, or NULL */

    /* lost */
    int lost_fd; /* -1: not asked for */
    stile_lost_fn *on_lost;
    void *on_lost_data;
    struct callback lost_callback;
};

/* Inputs from the user; all with the mutex. */
void lock_start(struct stile_lock *lock, struct op *op, int64_t wait_ms);
void lock_start_resume(struct stile_lock *lock, struct op *op);
void lock_give_back(struct stile_lock *lock, struct op *op); /* op NULL: no caller waits for it */
void lock_detach(struct stile_lock *lock);                   /* leave it in the engine */
void lock_cancel(struct stile_lock *lock);
/* err NULL: no reason is known. */
void lock_lose(struct stile_lock *lock, const struct stile_error *err);
void lock_lost_at_deadline(struct stile_lock *lock);
void lock_discard(struct stile_lock *lock); /* release what is left, then free */
/* Ends the caller's wait for a release: the claim is cleared away when the engine answers, and the
 * name's queue waits until then. */
void lock_give_up(struct stile_lock *lock);

/* What its next claim proclaims; NULL: nothing. */
enum stile_status lock_set_proclaim(struct stile_lock *lock, const char *value,
                                    struct stile_error *err);

/* Lost, and neither released nor acquired since. */
bool lock_is_lost(const struct stile_lock *lock);

/* Inputs from time. */
void lock_timer(struct timer *timer);
void lock_lease_tick(struct timer *timer);
void lock_send_admitted(struct task *task);

/* Inputs from the engine, as engine_events has them. */
void lock_granted(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns);
void lock_busy(struct claim *claim, uint64_t hint_ns);
void lock_queued(struct claim *claim);
void lock_failed(struct claim *claim, const struct stile_error *err);
void lock_released(struct claim *claim, const struct stile_error *err);
void lock_renewed(struct claim *claim, uint64_t sent_ns, uint64_t ttl_ns);
void lock_unknown(struct claim *claim);
void lock_lost(struct claim *claim, const struct stile_error *err);
void lock_session_lost(struct engine *engine, const void *session, const struct stile_error *err);

#endif
