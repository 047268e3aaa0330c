/* The parts of a lock's machine, for one another: lock.c moves it, events.c is told by the engine
 * what happened, answer.c tells the user. All with the mutex. */
#ifndef STILE_LOCK_INNER_H
#define STILE_LOCK_INNER_H

#include "core/lock.h"

static inline uint64_t lock_now(const struct stile_lock *lock)
{
    return loop_now(lock->client->loop);
}

/* ---- lock.c ---- */

/* The end of a wait that left nothing in the engine. */
void lock_end_wait(struct stile_lock *lock, enum stile_status status,
                   const struct stile_error *why);
/* To ask the engine again after a while; hint 0: it doesn't know when. */
void lock_pause(struct stile_lock *lock, uint64_t hint_ns);
bool lock_out_of_tries(const struct stile_lock *lock);
/* Once a claim that was in doubt, or granted too late, is out of the way, it is asked for again. */
bool lock_may_ask_again(const struct stile_lock *lock);
/* The claim goes; `outcome` is what its user hears once the engine has answered. */
void lock_withdraw(struct stile_lock *lock, enum stile_status outcome);
/* True: that was the answer to a resumption that nobody wants any more. */
bool lock_end_resuming(struct stile_lock *lock);
/* True: the engine could not say that the claim is gone, and is asked again after a pause. */
bool lock_repeat_release(struct stile_lock *lock, const struct stile_error *err);
void lock_let_next_in(struct stile_lock *lock);

/* ---- answer.c ---- */

/* Nobody may be waiting: then nobody hears it. why NULL: the status says it all. */
void lock_answer(struct stile_lock *lock, enum stile_status status, const struct stile_error *why);
void lock_tell_loss(struct stile_lock *lock);
/* Nobody wants to hear of a loss after the lock was freed, or acquired again. */
void lock_forget_loss(struct stile_lock *lock);

/* What lock->why says until the call is answered; NULL forgets it. */
void lock_remember_why(struct stile_lock *lock, const struct stile_error *err);
void lock_forget_why(struct stile_lock *lock);

/* A freed lock goes when the engine and all callbacks are done with it. */
void lock_bury_if_gone(struct stile_lock *lock);

#endif
