#include "core/lock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/doctor.h"
#include "core/errand.h"
#include "core/query.h"
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

static uint64_t now_ns(const struct stile_lock *lock)
{
    return loop_now(lock->client->loop);
}

bool lock_is_held(const struct stile_lock *lock)
{
#ifdef MUTANT_CORE_HELD_PAST_DEADLINE
    return lock->state == HELD;
#endif
    return lock->state == HELD && (lock->deadline_ns == NEVER || now_ns(lock) < lock->deadline_ns);
}

/* ---- answering the user ---- */

/* The last one out puts out the light. */
static void bury_if_gone(struct stile_lock *lock)
{
    if (lock->zombie && !lock->withdrawing && !lock->renewing && lock->calls == 0)
        lock_bury(lock);
}

static void end_call(struct stile_lock *lock)
{
    struct stile_client *client = lock->client;
    pthread_mutex_lock(&client->mutex);
    lock->calls--;
    bury_if_gone(lock);
    pthread_mutex_unlock(&client->mutex);
}

static void deliver(struct note *note)
{
    struct op *op = (struct op *)((char *)note - offsetof(struct op, note));
    enum stile_status status = op->error.status;
    op->done(op->lock, status, status ? &op->error : NULL, op->data);
    end_call(op->lock);
    free(op);
}

static void finish(struct stile_lock *lock, enum stile_status status, const struct stile_error *why)
{
    struct op *op = lock->op;
    loop_disarm(lock->client->loop, &lock->timer);
    if (!op)
        return;
    lock->op = NULL;
#ifdef MUTANT_CORE_CANCELLED_IS_OK
    status = status == STILE_CANCELLED ? STILE_OK : status;
#endif
    op->error.status = status;
    if (why && status)
        op->error = *why;
    else if (status)
        error_set(&op->error, status, 0, "%s", stile_status_text(status));
    op->error.status = status;
    if (!op->done) {
        drive_done(&op->follower);
        return;
    }
    op->note.fn = deliver;
    lock->calls++;
    client_note(lock->client, &op->note);
}

/* Nobody wants to hear of a loss after the lock was freed, or acquired again. */
static void forget_loss(struct stile_lock *lock)
{
    lock->calls -= lock->lost_note.queued;
    client_forget_note(lock->client, &lock->lost_note);
}

static void forget_why(struct stile_lock *lock)
{
    free(lock->why);
    lock->why = NULL;
}

/* Without memory the status alone has to do. */
static void remember_why(struct stile_lock *lock, const struct stile_error *err)
{
    if (!err) {
        forget_why(lock);
        return;
    }
    if (!lock->why)
        lock->why = malloc(sizeof *lock->why);
    if (lock->why)
        error_copy(lock->why, err);
}

/* An engine may refuse the next one from inside the claim, and the next but one as well: one after
 * the other then, not one inside the other. */
static void let_next_in(struct stile_lock *lock)
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

/* The end of a wait that left nothing in the engine. */
static void end_wait(struct stile_lock *lock, enum stile_status status,
                     const struct stile_error *why)
{
    lock->state = IDLE;
    finish(lock, status, why);
    forget_why(lock);
    let_next_in(lock);
}

/* ---- asking for it ---- */

static void arm_wait(struct stile_lock *lock)
{
    uint64_t until = lock->wait_until_ns;
    if (lock->try_once)
        until = now_ns(lock) + ANSWER_PATIENCE_NS;
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
    forget_loss(lock);
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
        end_wait(lock, STILE_HELD, &held_by_ourselves);
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
        end_wait(lock, STILE_HELD, &held_by_ourselves);
        return;
    }
    lock->state = CLAIMING;
    lock->resuming = true;
    lock->claim->unused = lock->claim->lost = false;
    engine->class->resume(engine, lock->claim);
    if (lock->state == CLAIMING)
        arm_wait(lock);
}

static void pause_claim(struct stile_lock *lock, uint64_t hint_ns)
{
    uint64_t now = now_ns(lock);
    uint64_t pause = retry_pause(lock->client->loop, lock->policy.retry_ns, lock->tried++);
    if (hint_ns && hint_ns < pause)
        pause = hint_ns;
    uint64_t at = now + pause;
    lock->state = PAUSED;
    loop_arm(lock->client->loop, &lock->timer, at < lock->wait_until_ns ? at : lock->wait_until_ns);
}

static bool out_of_tries(const struct stile_lock *lock)
{
#ifdef MUTANT_CORE_TRIES_IGNORED
    return false;
#endif
    return lock->policy.tries && lock->tried + 1 >= lock->policy.tries;
}

/* Once a claim that was in doubt, or granted too late, is out of the way, it is asked for again. */
static bool may_ask_again(const struct stile_lock *lock)
{
    bool in_doubt = lock->outcome == STILE_UNCERTAIN || lock->outcome == STILE_UNREACHABLE;
    return in_doubt && !lock->zombie && lock->op && !lock->try_once && !out_of_tries(lock);
}

/* ---- giving it back ---- */

/* What could not be resumed stays as it is: somebody works under it. We only wait for the engine's
 * answer, which nobody wants any more. */
static void give_up_resuming(struct stile_lock *lock, enum stile_status outcome)
{
    lock->state = RELEASING;
    lock->withdrawing = true;
    finish(lock, outcome, lock->why);
    forget_why(lock);
}

/* True: that was the answer nobody wanted. */
static bool end_resuming(struct stile_lock *lock)
{
    if (!lock->resuming || lock->state != RELEASING)
        return false;
    lock->withdrawing = false;
    lock->state = IDLE;
    let_next_in(lock);
    bury_if_gone(lock);
    return true;
}

/* Who wants to ask again once a claim in doubt is out of the way waits for that as for the lock
 * itself; everybody else goes on after a while. */
static void arm_withdrawal(struct stile_lock *lock)
{
    uint64_t until = now_ns(lock) + RELEASE_PATIENCE_NS;
#ifndef MUTANT_CORE_DOUBT_ENDS_WAIT
    if (may_ask_again(lock) && until < lock->wait_until_ns)
        until = lock->wait_until_ns;
#endif
    loop_disarm(lock->client->loop, &lock->timer);
    if (until != NEVER)
        loop_arm(lock->client->loop, &lock->timer, until);
}

/* The claim goes; `outcome` is what its user hears once the engine has answered. */
static void withdraw(struct stile_lock *lock, enum stile_status outcome)
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
        withdraw(lock, STILE_OK);
        return;
    }
    /* LOST: its claim is being cleared away, or has been. */
    lock->outcome = STILE_LOST;
    lock->state = RELEASING;
    if (lock->withdrawing) {
        loop_arm(lock->client->loop, &lock->timer, now_ns(lock) + RELEASE_PATIENCE_NS);
        return;
    }
    lock->state = IDLE;
    finish(lock, STILE_LOST, lock->why);
    forget_why(lock);
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
    let_next_in(lock);
}

void lock_cancel(struct stile_lock *lock)
{
    if (lock->state == TURN || lock->state == PAUSED) {
        end_wait(lock, STILE_CANCELLED, NULL);
    } else if (lock->state == CLAIMING) {
        forget_why(lock);
        withdraw(lock, STILE_CANCELLED);
    } else if (lock->state == RELEASING && may_ask_again(lock)) {
        forget_why(lock);
        lock->outcome = STILE_CANCELLED;
        arm_withdrawal(lock);
    }
}

void lock_discard(struct stile_lock *lock)
{
    lock_cancel(lock);
    if (lock->state == HELD)
        lock_give_back(lock, NULL);
    forget_loss(lock);
    lock->zombie = true;
    bury_if_gone(lock);
}

/* ---- losing it ---- */

static void call_on_lost(struct note *note)
{
    struct stile_lock *lock =
        (struct stile_lock *)((char *)note - offsetof(struct stile_lock, lost_note));
    lock->on_lost(lock, lock->on_lost_data);
    end_call(lock);
}

void lock_lost(struct stile_lock *lock, const struct stile_error *err)
{
    struct engine *engine = lock->client->engine;
    if (lock->state != HELD)
        return;
    keeper_remove(lock);
    lock->state = LOST;
    remember_why(lock, err);
#ifndef MUTANT_CORE_LOSS_NOT_TOLD
    if (lock->lost_fd >= 0)
        eventfd_write(lock->lost_fd, 1);
#endif
    if (lock->on_lost) {
        lock->calls += !lock->lost_note.queued;
        lock->lost_note.fn = call_on_lost;
        client_note(lock->client, &lock->lost_note);
    }
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

/* ---- what the engine says ---- */

static struct stile_lock *lock_of(struct claim *claim)
{
    return claim->core;
}

static void granted(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns)
{
    struct stile_lock *lock = lock_of(claim);
    if (end_resuming(lock) || lock->state != CLAIMING)
        return;
#ifndef MUTANT_CORE_LATE_GRANT_TAKEN
    /* The answer took so long that the lease is as good as over: never call that held. */
    if (ttl_ns && now_ns(lock) >= keeper_deadline(sent_ns, ttl_ns)) {
        struct stile_error late;
        error_set(&late, STILE_UNREACHABLE, 0, "granted, but the answer came after the deadline");
        remember_why(lock, &late);
        withdraw(lock, STILE_UNREACHABLE);
        (void)end_resuming(lock);
        return;
    }
#endif
    lock->state = HELD;
    lock->resuming = false;
    lock->token = token;
    keeper_add(lock, sent_ns, ttl_ns);
    finish(lock, STILE_OK, NULL);
    forget_why(lock);
}

static void busy(struct claim *claim, uint64_t hint_ns)
{
    struct stile_lock *lock = lock_of(claim);
    if (lock->state != CLAIMING)
        return;
    keeper_remove(lock);
    forget_why(lock);
    if (lock->try_once || out_of_tries(lock))
        end_wait(lock, STILE_HELD, NULL);
    else
        pause_claim(lock, hint_ns);
}

static void failed(struct claim *claim, const struct stile_error *err)
{
    struct stile_lock *lock = lock_of(claim);
    if (end_resuming(lock) || lock->state != CLAIMING)
        return;
    keeper_remove(lock);
    remember_why(lock, err);
#ifndef MUTANT_CORE_DOUBT_NOT_WITHDRAWN
    if (err->status == STILE_UNCERTAIN && !lock->resuming) {
        withdraw(lock, STILE_UNCERTAIN);
        return;
    }
#endif
    if (err->status == STILE_UNREACHABLE && !lock->try_once && !out_of_tries(lock))
        pause_claim(lock, 0); /* it may come back while we wait */
    else
        end_wait(lock, err->status, lock->why);
}

static void released(struct claim *claim, const struct stile_error *err)
{
    struct stile_lock *lock = lock_of(claim);
    enum stile_status outcome = lock->outcome;
    bool answered = lock->state == RELEASING;
    lock->withdrawing = lock->given_up = false;
    if (answered && may_ask_again(lock)) {
        pause_claim(lock, 0);
        return;
    }
    loop_disarm(lock->client->loop, &lock->timer);
    if (answered) {
        lock->state = IDLE;
        /* Our own reason comes first; a failed release matters to who asked for just that. */
        bool ours = outcome != STILE_OK || !err || !err->status;
        finish(lock, ours ? outcome : err->status, ours ? lock->why : err);
        forget_why(lock);
    }
    let_next_in(lock);
    bury_if_gone(lock);
}

/* True: the answer is about a lock that we hold. Else it was detached meanwhile. */
static bool still_held(struct stile_lock *lock)
{
    if (lock->state == HELD)
        return true;
    lock->renewing = false;
    bury_if_gone(lock);
    return false;
}

static void renewed(struct claim *claim, uint64_t sent_ns, uint64_t ttl_ns)
{
    if (still_held(lock_of(claim)))
        keeper_renewed(lock_of(claim), sent_ns, ttl_ns);
}

static void unknown(struct claim *claim)
{
#ifdef MUTANT_CORE_UNKNOWN_IS_LOSS
    lock_of(claim)->deadline_ns = 0;
#endif
    if (still_held(lock_of(claim)))
        keeper_unknown(lock_of(claim));
}

static void lost(struct claim *claim, const struct stile_error *err)
{
    if (still_held(lock_of(claim)))
        lock_lost(lock_of(claim), err);
}

static void session_renewed(struct engine *engine, const void *session, uint64_t sent_ns,
                            uint64_t ttl_ns)
{
    keeper_session_renewed(engine->core, session, sent_ns, ttl_ns);
}

static void session_unknown(struct engine *engine, const void *session)
{
    keeper_session_unknown(engine->core, session);
}

static void session_lost(struct engine *engine, const void *session, const struct stile_error *err)
{
    keeper_session_lost(engine->core, session, err);
}

/* ---- time ---- */

static void end_of_wait(struct stile_lock *lock, bool in_engine)
{
    if (lock->try_once)
        remember_why(lock, &no_answer);
    enum stile_status status = lock->why ? lock->why->status : STILE_TIMEOUT;
#ifdef MUTANT_CORE_TIMEOUT_STAYS_IN_QUEUE
    in_engine = false;
#endif
    if (in_engine)
        withdraw(lock, status);
    else
        end_wait(lock, status, lock->why);
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
        if (now_ns(lock) >= lock->wait_until_ns)
            end_of_wait(lock, false);
        else
            begin_claim(lock);
        break;
    case CLAIMING:
        end_of_wait(lock, true);
        break;
    case RELEASING:
        /* Out of patience: the user goes on, the claim is cleared away when the engine answers, and
         * the turn stays taken until then. */
        lock->given_up = true;
        finish(lock, lock->outcome ? lock->outcome : STILE_UNREACHABLE,
               lock->why ? lock->why : &no_answer);
        break;
    default:
        break;
    }
}

const struct engine_events core_events = {
    .granted = granted,
    .busy = busy,
    .failed = failed,
    .released = released,
    .renewed = renewed,
    .unknown = unknown,
    .lost = lost,
    .session_renewed = session_renewed,
    .session_unknown = session_unknown,
    .session_lost = session_lost,
    .info = query_info,
    .finding = doctor_finding,
    .done = query_done,
    .job = errand_job,
    .job_mark = errand_mark,
    .job_queue = errand_queue,
    .job_done = errand_done,
    .job_stir = errand_stir,
};
