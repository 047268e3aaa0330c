/* Turns: where an engine can't tell two claims of one client apart (class->apart unset), at most
 * one claim per name and client reaches it. The others wait here, first come, first served. */
#ifndef STILE_TURN_H
#define STILE_TURN_H

#include <stdbool.h>
#include <stddef.h>

struct stile_lock;
struct stile_client;

struct turns {
    struct stile_lock **buckets; /* who has the turn, by name hash; chained by turn_link */
    size_t n_buckets, n;
    struct stile_lock *entering, **entering_tail; /* see lock.c */
};

int turn_init(struct turns *turns); /* 0 or ENOMEM */
void turn_fini(struct turns *turns);

bool turn_enter(struct stile_lock *lock);               /* true: it is our turn now */
struct stile_lock *turn_leave(struct stile_lock *lock); /* whose turn it is now, or NULL */

#endif
