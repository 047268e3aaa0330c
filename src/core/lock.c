/* What moves a lock from state to state (lock.h): its user's wishes, and time. */
#include <unistd.h>

#include "core/lock_inner.h"
#include "mutant.h"

/* A withdrawal or release has a deadline of its own, never the caller's expired one. */
#define RELEASE_PATIENCE_NS (3 * NS_PER_SEC)
/* How long a single try waits for the engine's answer. */
#define ANSWER_PATIENCE_NS (5 * NS_PER_SEC)

static const struct stile_error held_by_ourselves = {
    .status = STILE_HELD, .message = "held by another lock handle of this client"};
static const struct stile_error no_answer = {
    .status = STILE_UNREACHABLE,
    .message = "the engine did not answer in time; what it still has ends with its lease"};

static void begin_claim(struct stile_lock *lock);

bool lock_is_held(const struct stile_lock *lock)
{
#ifdef MUTANT_CORE_HELD_PAST_DEADLINE
    return lock->state == HELD;
#endif
    return lock->state == HELD &&
           (lock->deadline_ns == NEVER || lock_now(lock) < lock->deadline_ns);
}

/* ---- taking turns ---- */

/* An engine may refuse the next one from inside the claim, and the next but one as well: one after
 * the other then, not one inside the other. */
void lock_let_next_in(struct stile_lock *lock)
{
    struct turns *turns = &lock->client->turns;
    struct stile_lock *next = turn_leave(lock);
    bool first = !turns->entering;
    if (!next)
        return;
    next->enter_next = NULL;
    *turns->entering_tail = next;
    turns->entering_tail = &next->enter_next;
    while (first && turns->entering) {
        begin_claim(turns->entering);
        turns->entering = turns->entering->enter_next;
    }
    if (!turns->entering)
        turns->entering_tail = &turns->entering;
}

void lock_end_wait(struct stile_lock *lock, enum stile_status status, const struct stile_error *why)
{
    lock->state = IDLE;
    lock_answer(lock, status, why);
    lock_forget_why(lock);
    lock_let_next_in(lock);
}

/* ---- asking for it ---- */

static void arm_wait(struct stile_lock *lock)
{
    uint64_t until = lock->wait_until_ns;
    if (lock->try_once)
        until = lock_now(lock) + ANSWER_PATIENCE_NS;
    if (until != NEVER)
        loop_arm(lock->client->loop, &lock->timer, until);
}

static void begin_claim(struct stile_lock *lock)
{
    struct engine *engine = lock->client->engine;
    lock->state = CLAIMING;
    lock->claim->wait = !lock->try_once;
    lock->claim->unused = lock->claim->lost = false;
    keeper_add_waiting(lock);
    engine->class->claim(engine, lock->claim);
    if (lock->state == CLAIMING)
        arm_wait(lock);
}

static void prepare_wait(struct stile_lock *lock, struct op *op, int64_t wait_ms)
{
    lock_forget_loss(lock);
    lock->op = op;
    lock->resuming = false;
    lock->tried = 0;
    lock->try_once = wait_ms == 0;
    lock->wait_until_ns = wait_ms < 0    ? NEVER
                          : wait_ms == 0 ? 0
                                         : client_after_ms(lock->client, wait_ms);
    if (lock->lost_fd >= 0) {
        uint64_t count;
        while (read(lock->lost_fd, &count, sizeof count) > 0)
            ;
    }
}

void lock_start(struct stile_lock *lock, struct op *op, int64_t wait_ms)
{
    prepare_wait(lock, op, wait_ms);
    if (turn_enter(lock)) {
        begin_claim(lock);
        return;
    }
    if (lock->try_once) {
        lock_end_wait(lock, STILE_HELD, &held_by_ourselves);
        return;
    }
    lock->state = TURN;
    arm_wait(lock);
}

void lock_start_resume(struct stile_lock *lock, struct op *op)
{
    struct engine *engine = lock->client->engine;
    prepare_wait(lock, op, 0);
    if (!turn_enter(lock)) {
        lock_end_wait(lock, STILE_HELD, &held_by_ourselves);
        return;
    }
    lock->state = CLAIMING;
    lock->resuming = true;
    lock->claim->unused = lock->claim->lost = false;
    engine->class->resume(engine, lock->claim);
    if (lock->state == CLAIMING)
        arm_wait(lock);
}

void lock_pause(struct stile_lock *lock, uint64_t hint_ns)
{
    uint64_t now = lock_now(lock);
    uint64_t pause = retry_pause(lock->client->loop, lock->policy.retry_ns, lock->tried++);
    if (hint_ns && hint_ns < pause)
        pause = hint_ns;
    uint64_t at = now + pause;
    lock->state = PAUSED;
    loop_arm(lock->client->loop, &lock->timer, at < lock->wait_until_ns ? at : lock->wait_until_ns);
}

bool lock_out_of_tries(const struct stile_lock *lock)
{
#ifdef MUTANT_CORE_TRIES_IGNORED
    return false;
#endif
    return lock->policy.tries && lock->tried + 1 >= lock->policy.tries;
}

bool lock_may_ask_again(const struct stile_lock *lock)
{
    bool in_doubt = lock->outcome == STILE_UNCERTAIN || lock->outcome == STILE_UNREACHABLE;
    return in_doubt && !lock->zombie && lock->op && !lock->try_once && !lock_out_of_tries(lock);
}

/* ---- giving it back ---- */

/* What could not be resumed stays as it is: somebody works under it. We only wait for the engine's
 * answer, which nobody wants any more. */
static void give_up_resuming(struct stile_lock *lock, enum stile_status outcome)
{
    lock->state = RELEASING;
    lock->withdrawing = true;
    lock_answer(lock, outcome, lock->why);
    lock_forget_why(lock);
}

bool lock_end_resuming(struct stile_lock *lock)
{
    if (!lock->resuming || lock->state != RELEASING)
        return false;
    lock->withdrawing = false;
    lock->state = IDLE;
    lock_let_next_in(lock);
    lock_bury_if_gone(lock);
    return true;
}

/* Who wants to ask again once a claim in doubt is out of the way waits for that as for the lock
 * itself; everybody else goes on after a while. */
static void arm_withdrawal(struct stile_lock *lock)
{
    uint64_t until = lock_now(lock) + RELEASE_PATIENCE_NS;
#ifndef MUTANT_CORE_DOUBT_ENDS_WAIT
    if (lock_may_ask_again(lock) && until < lock->wait_until_ns)
        until = lock->wait_until_ns;
#endif
    loop_disarm(lock->client->loop, &lock->timer);
    if (until != NEVER)
        loop_arm(lock->client->loop, &lock->timer, until);
}

void lock_withdraw(struct stile_lock *lock, enum stile_status outcome)
{
    struct engine *engine = lock->client->engine;
#ifndef MUTANT_CORE_RESUME_RELEASES
    if (lock->resuming && lock->state == CLAIMING) {
        give_up_resuming(lock, outcome);
        return;
    }
#endif
    if (lock->state == CLAIMING)
        lock->claim->unused = true; /* granted or not, its user has never heard of it */
    lock->state = RELEASING;
#ifndef MUTANT_CORE_RENEWED_AFTER_RELEASE
    keeper_remove(lock);
#endif
    lock->outcome = outcome;
    lock->withdrawing = true;
    lock->given_up = false;
    lock->renewing = false; /* released() is the only answer from now on */
    engine->class->release(engine, lock->claim);
    if (lock->withdrawing)
        arm_withdrawal(lock);
}

void lock_give_back(struct stile_lock *lock, struct op *op)
{
    /* Paused past its deadline, and the keeper has not run since: that is a loss, too. */
    if (lock->state == HELD && !lock_is_held(lock))
        lock_lost_at_deadline(lock);
    lock->op = op;
    if (lock->state == HELD) {
        lock_withdraw(lock, STILE_OK);
        return;
    }
    /* LOST: its claim is being cleared away, or has been. */
    lock->outcome = STILE_LOST;
    lock->state = RELEASING;
    if (lock->withdrawing) {
        loop_arm(lock->client->loop, &lock->timer, lock_now(lock) + RELEASE_PATIENCE_NS);
        return;
    }
    lock->state = IDLE;
    lock_answer(lock, STILE_LOST, lock->why);
    lock_forget_why(lock);
}

/* The engine keeps it until its lease runs out; we know nothing of it any more. A renewal that is
 * under way still has an answer to come: until then the handle is not free. */
void lock_detach(struct stile_lock *lock)
{
    struct engine *engine = lock->client->engine;
    keeper_remove(lock);
    if (engine->class->detach) {
        engine->class->detach(engine, lock->claim);
        lock->renewing = false;
    }
    lock->state = IDLE;
    lock_let_next_in(lock);
}

void lock_cancel(struct stile_lock *lock)
{
    if (lock->state == TURN || lock->state == PAUSED) {
        lock_end_wait(lock, STILE_CANCELLED, NULL);
    } else if (lock->state == CLAIMING) {
        lock_forget_why(lock);
        lock_withdraw(lock, STILE_CANCELLED);
    } else if (lock->state == RELEASING && lock_may_ask_again(lock)) {
        lock_forget_why(lock);
        lock->outcome = STILE_CANCELLED;
        arm_withdrawal(lock);
    }
}

void lock_discard(struct stile_lock *lock)
{
    lock_cancel(lock);
    if (lock->state == HELD)
        lock_give_back(lock, NULL);
    lock_forget_loss(lock);
    lock->zombie = true;
    lock_bury_if_gone(lock);
}

/* ---- losing it ---- */

void lock_lost(struct stile_lock *lock, const struct stile_error *err)
{
    struct engine *engine = lock->client->engine;
    if (lock->state != HELD)
        return;
    keeper_remove(lock);
    lock->state = LOST;
    lock_remember_why(lock, err);
    lock_tell_loss(lock);
    lock->withdrawing = true;
    lock->renewing = false;
    lock->claim->lost = true;
    engine->class->release(engine, lock->claim);
}

void lock_lost_at_deadline(struct stile_lock *lock)
{
    struct stile_error err;
    error_set(&err, STILE_LOST, 0,
              "the lease reached its deadline without a renewal (engine slow, cut off, or we were "
              "paused)");
    lock_lost(lock, &err);
}

/* ---- time ---- */

static void end_of_wait(struct stile_lock *lock, bool in_engine)
{
    if (lock->try_once)
        lock_remember_why(lock, &no_answer);
    enum stile_status status = lock->why ? lock->why->status : STILE_TIMEOUT;
#ifdef MUTANT_CORE_TIMEOUT_STAYS_IN_QUEUE
    in_engine = false;
#endif
    if (in_engine)
        lock_withdraw(lock, status);
    else
        lock_end_wait(lock, status, lock->why);
}

void lock_give_up(struct stile_lock *lock)
{
    lock->given_up = true;
    lock_answer(lock, lock->outcome ? lock->outcome : STILE_UNREACHABLE,
                lock->why ? lock->why : &no_answer);
}

void lock_timer(struct timer *timer)
{
    struct stile_lock *lock =
        (struct stile_lock *)((char *)timer - offsetof(struct stile_lock, timer));
    switch (lock->state) {
    case TURN:
        end_of_wait(lock, false);
        break;
    case PAUSED:
        if (lock_now(lock) >= lock->wait_until_ns)
            end_of_wait(lock, false);
        else
            begin_claim(lock);
        break;
    case CLAIMING:
        end_of_wait(lock, true);
        break;
    case RELEASING:
        lock_give_up(lock);
        break;
    default:
        break;
    }
}
