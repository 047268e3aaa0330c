/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Leader and followers: which thread drives a client's loop.
 *
 * The leader is the one thread that may sleep in loop_wait(). A blocking caller becomes it if there
 * is none, and drives until its own operation is decided; so an uncontended call costs no context
 * switch. Callers that come meanwhile follow: they sleep until their operation is decided or the
 * leader leaves. The background thread leads only while no caller does. A kick makes it leave, and
 * it then stays away for GRACE_NS after the last caller, so that a busy caller finds no leader. */
#ifndef STILE_DRIVE_H
#define STILE_DRIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct stile_client;

#define GRACE_NS UINT64_C(2000000)

/* A caller that waits for something; on its stack. */
struct follower {
    bool done;
    bool asleep;            /* in pthread_cond_wait(): the condition is initialised */
    struct loop *sleeps_in; /* it leads, and is in loop_wait(): deciding for it takes a kick */
    pthread_cond_t woken;
    struct follower *next;

    /* Ends the wait early, with CANCELLED; NULL: it ends by itself within a bounded time. */
    void (*interrupt)(struct follower *follower);
    struct follower *wait_next, **wait_link; /* of those that can be interrupted */
};

struct drive {
    bool led, by_background;
    pthread_t leader;
    bool asked;   /* the background thread is wanted at once */
    bool waiting; /* the background thread sleeps until no thread leads; else it wakes by itself */
    bool stop;
    bool has_background;
    uint64_t last_use_ns;
    struct follower *followers;
    struct follower *waits;  /* those that can be interrupted */
    atomic_bool interrupted; /* by a signal handler, and no wait has ended for it yet */
    pthread_t background;
    pthread_cond_t background_woken;
};

int drive_start(struct stile_client *client); /* the background thread; 0 or errno */
void drive_stop(struct stile_client *client);
/* Ends all waits that can be interrupted. */
void drive_interrupt(struct stile_client *client);
/* We are in a callback that the leader makes. */
bool drive_is_leader(const struct stile_client *client);

/* All with the mutex. */
void drive_until(struct stile_client *client, struct follower *me); /* until me->done */
void drive_done(struct follower *follower);
void drive_step(struct stile_client *client);  /* once, sleeping; with no other thread around */
void drive_once(struct stile_client *client);  /* what is ready, without sleeping */
void drive_nudge(struct stile_client *client); /* something is due; some thread must drive */
/* In a callback whose turn of the loop sends what it has asked for when it ends. */
bool drive_is_inside(const struct stile_client *client);

/* Lets go of the mutex. The last thread to leave a client that is closed from a callback closes it:
 * the client may be gone afterwards. */
void drive_unlock(struct stile_client *client);

/* A callback of the user that is due. Embedded; run once, by the leader, without the mutex. */
struct callback {
    struct callback *next;
    bool queued;
    void (*fn)(struct callback *callback);
};

struct callbacks {
    struct callback *first, **end;
};

void callback_queue(struct stile_client *client, struct callback *callback);
void callback_cancel(struct stile_client *client, struct callback *callback);

#endif
