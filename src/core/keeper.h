/* The keeper: renews what is held, in batches, and declares it lost at its deadline.
 *
 * Deadline = time read before the request was sent + TTL - drift (1 % + 2 ms) - margin. It needs no
 * server to pass. One loop timer serves all locks of a client: at each tick the keeper takes every
 * lock that is due or nearly so, renews them together, and sleeps until the next is due. */
#ifndef STILE_KEEPER_H
#define STILE_KEEPER_H

#include "io/loop.h"

struct stile_client;
struct stile_error;
struct stile_lock;

struct keeper {
    struct timer tick;
    struct stile_lock *kept; /* what is held; of session leases also what waits for its grant */
    bool session_asked;      /* a session renewal is under way */
    uint64_t round;          /* of renewals: nothing is asked for twice in one */
};

uint64_t keeper_deadline(uint64_t sent_ns, uint64_t ttl_ns); /* ttl 0: NEVER */

void keeper_init(struct keeper *keeper);
void keeper_add(struct stile_lock *lock, uint64_t sent_ns, uint64_t ttl_ns);
void keeper_add_waiting(struct stile_lock *lock); /* nothing to do but on session leases */
void keeper_remove(struct stile_lock *lock);

/* Answers to renewals; session NULL: of all there are. */
void keeper_renewed(struct stile_lock *lock, uint64_t sent_ns, uint64_t ttl_ns);
void keeper_unknown(struct stile_lock *lock);
void keeper_session_renewed(struct stile_client *client, const void *session, uint64_t sent_ns,
                            uint64_t ttl_ns);
void keeper_session_unknown(struct stile_client *client, const void *session);
void keeper_session_lost(struct stile_client *client, const void *session,
                         const struct stile_error *err);

#endif
