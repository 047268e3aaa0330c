/* What engines say, and what becomes of the lock by it. An answer may be late: each counts only in
 * the state that waits for it, and is else about something that is over. */
#include "core/doctor.h"
#include "core/errand.h"
#include "core/lock_inner.h"
#include "core/query.h"
#include "mutant.h"

static struct stile_lock *lock_of(struct claim *claim)
{
    return claim->core;
}

static void granted(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns)
{
    struct stile_lock *lock = lock_of(claim);
    if (lock_end_resuming(lock) || lock->state != CLAIMING)
        return;
    admission_leave(lock);
#ifndef MUTANT_CORE_LATE_GRANT_TAKEN
    /* The answer took so long that the lease is as good as over: never call that held. */
    if (ttl_ns && lock_now(lock) >= keeper_deadline(sent_ns, ttl_ns)) {
        struct stile_error late;
        error_set(&late, STILE_UNREACHABLE, 0, "granted, but the answer came after the deadline");
        lock_remember_why(lock, &late);
        lock_withdraw(lock, STILE_UNREACHABLE);
        (void)lock_end_resuming(lock);
        return;
    }
#endif
    if (lock->resuming)
        policy_resume(&lock->policy, ttl_ns);
    lock->state = HELD;
    lock->resuming = false;
    lock->token = token;
    keeper_add(lock, sent_ns, ttl_ns);
    lock_answer(lock, STILE_OK, NULL);
    lock_forget_why(lock);
}

static void busy(struct claim *claim, uint64_t hint_ns)
{
    struct stile_lock *lock = lock_of(claim);
    if (lock->state != CLAIMING)
        return;
    keeper_remove(lock);
    lock_forget_why(lock);
    if (lock->try_once || lock_out_of_tries(lock))
        lock_end_wait(lock, STILE_HELD, NULL);
    else
        lock_pause(lock, hint_ns);
}

static void queued(struct claim *claim)
{
    struct stile_lock *lock = lock_of(claim);
    if (lock->state == CLAIMING)
        admission_leave(lock);
}

static void failed(struct claim *claim, const struct stile_error *err)
{
    struct stile_lock *lock = lock_of(claim);
    if (lock_end_resuming(lock) || lock->state != CLAIMING)
        return;
    keeper_remove(lock);
    lock_remember_why(lock, err);
#ifndef MUTANT_CORE_DOUBT_NOT_WITHDRAWN
    if (err->status == STILE_UNCERTAIN && !lock->resuming) {
        lock_withdraw(lock, STILE_UNCERTAIN);
        return;
    }
#endif
    if (err->status == STILE_UNREACHABLE && !lock->try_once && !lock_out_of_tries(lock))
        lock_pause(lock, 0); /* it may come back while we wait */
    else
        lock_end_wait(lock, err->status, lock->why);
}

static void released(struct claim *claim, const struct stile_error *err)
{
    struct stile_lock *lock = lock_of(claim);
    enum stile_status outcome = lock->outcome;
    bool answered = lock->state == RELEASING;
    admission_leave(lock);
    if (lock_repeat_release(lock, err))
        return;
    lock->withdrawing = lock->given_up = false;
    if (answered && lock_may_ask_again(lock)) {
        lock_pause(lock, 0);
        return;
    }
    loop_disarm(lock->client->loop, &lock->timer);
    if (answered) {
        lock->state = IDLE;
        /* Our own reason comes first; a failed release matters to who asked for just that. */
        bool ours = outcome != STILE_OK || !err || !err->status;
        lock_answer(lock, ours ? outcome : err->status, ours ? lock->why : err);
        lock_forget_why(lock);
    }
    lock_let_next_in(lock);
    lock_bury_if_gone(lock);
}

/* True: the answer is about a lock that we hold. Else it was detached meanwhile. */
static bool still_held(struct stile_lock *lock)
{
    if (lock->state == HELD)
        return true;
    lock->renewing = false;
    lock_bury_if_gone(lock);
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

const struct engine_events core_events = {
    .granted = granted,
    .busy = busy,
    .queued = queued,
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
