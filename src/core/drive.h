/* Who drives the loop: leader and followers.
 *
 * The seat is the right to sleep in loop_wait(). A blocking caller takes it if it is free and
 * drives until its own operation is decided; so an uncontended call costs no context switch.
 * Callers who come meanwhile follow: they sleep until their operation is decided or the seat is
 * theirs. The background thread drives only while nobody else does. It is asked out of its seat
 * with a kick, and then stays away for GRACE_NS after the last caller, so that a busy caller meets
 * an empty seat. */
#ifndef STILE_DRIVE_H
#define STILE_DRIVE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct stile_client;

#define GRACE_NS UINT64_C(2000000)

/* Somebody who waits for something; on its stack. */
struct follower {
    bool done;
    bool asleep;            /* in pthread_cond_wait(): the condition is initialised */
    struct loop *sleeps_in; /* it leads, and is in loop_wait(): whoever decides for it must kick */
    pthread_cond_t woken;
    struct follower *next;
};

struct seat {
    bool taken, by_background;
    pthread_t driver; /* who has taken it */
    bool asked;       /* the background thread is wanted at once */
    bool waiting;     /* it sleeps until the seat is free; else it looks again by itself */
    bool stop;
    bool has_background;
    uint64_t last_use_ns;
    struct follower *followers;
    pthread_t background;
    pthread_cond_t background_woken;
};

int drive_start(struct stile_client *client); /* the background thread; 0 or errno */
void drive_stop(struct stile_client *client);
/* A call is under way: another thread's, or the one whose callback we are in. */
bool drive_in_use(struct stile_client *client);

/* All with the mutex. */
void drive_until(struct stile_client *client, struct follower *me); /* until me->done */
void drive_done(struct follower *follower);
void drive_step(struct stile_client *client);  /* once, sleeping; with nobody else around */
void drive_once(struct stile_client *client);  /* what is ready, without sleeping */
void drive_nudge(struct stile_client *client); /* something is due; somebody must drive */
/* In a callback whose turn sends what it has asked for when it ends. */
bool drive_is_inside(const struct stile_client *client);

#endif
