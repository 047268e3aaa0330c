/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a lock (lock.h): moved by its user's calls, by time and by the engine. */
#include "core/lock.h"

#include <assert.h>
#include <unistd.h>

#include "base/container.h"
#include "core/lock_report.h"
#include "stile/guard.h"

/* A withdrawal or release has a deadline of its own, never the caller's expired one. */
#define RELEASE_PATIENCE_NS (3 * NS_PER_SEC)
/* How long a single try waits for the engine's answer. */
#define ANSWER_PATIENCE_NS (5 * NS_PER_SEC)
/* Pauses between releases whose answer was not final. */
#define REPEAT_FIRST_NS (20 * NS_PER_MS)
#define REPEAT_MAX_NS   NS_PER_SEC

static const struct stile_error held_by_ourselves = {
    .status = STILE_HELD, .message = "held by another lock handle of this client"};
static const struct stile_error no_answer = {
    .status = STILE_UNREACHABLE,
    .message = "the engine did not answer in time; a claim it may still hold ends with its lease"};
static const struct stile_error not_cleared = {
    .status = STILE_UNCERTAIN,
    .message = "the lock was lost, and the engine has not confirmed its release yet; try again"};

static void begin_claim(struct stile_lock *lock);

/* ---- the states ---- */

#define TO(state) (1u << (state))

/* Where each state may lead. */
static const unsigned transitions[] = {
    [IDLE] = TO(IDLE) | TO(IN_NAME_QUEUE) | TO(IN_ADMISSION) | TO(CLAIMING) | TO(RESUMING) |
             TO(PAUSED), /* PAUSED: acquired after a loss that has just been cleared away */
    [IN_NAME_QUEUE] = TO(IN_ADMISSION) | TO(CLAIMING) | TO(IDLE),
    [IN_ADMISSION] = TO(CLAIMING) | TO(IDLE),
    [CLAIMING] = TO(HELD) | TO(PAUSED) | TO(RELEASING) | TO(IDLE),
    [PAUSED] = TO(IN_ADMISSION) | TO(CLAIMING) | TO(IDLE),
    [RESUMING] = TO(HELD) | TO(DROPPED) | TO(IDLE),
    [DROPPED] = TO(IDLE),
    [HELD] = TO(RELEASING) | TO(CLEARING) | TO(IDLE), /* IDLE: detached */
    [RELEASING] = TO(RELEASE_PAUSED) | TO(PAUSED) | TO(IDLE),
    [RELEASE_PAUSED] = TO(RELEASING),
    [CLEARING] = TO(LOST) | TO(CLEARING_PAUSED) | TO(RELEASING),
    [CLEARING_PAUSED] = TO(CLEARING) | TO(RELEASE_PAUSED),
    [LOST] = TO(IDLE),
};

static void move_to(struct stile_lock *lock, enum lock_state state)
{
    assert(transitions[lock->state] & TO(state));
    lock->state = state;
}

/* What happens to a lock, for the user's log. */
#define LOCK_LOG(lock, level, format, ...)                                                         \
    CLIENT_LOG((lock)->client, level, "'%s': " format, (lock)->claim->name, __VA_ARGS__)

/* Only the first of several repetitions is worth a warning. */
static enum stile_log_level first_time(unsigned times)
{
    return times ? STILE_LOG_DEBUG : STILE_LOG_WARNING;
}

static bool is_claiming(const struct stile_lock *lock)
{
    return lock->state == CLAIMING || lock->state == RESUMING;
}

/* Its user has called release, or has given the claim up, and the engine has not answered. */
static bool is_releasing(const struct stile_lock *lock)
{
    return lock->state == RELEASING || lock->state == RELEASE_PAUSED;
}

bool lock_is_lost(const struct stile_lock *lock)
{
    return lock->state == CLEARING || lock->state == CLEARING_PAUSED || lock->state == LOST;
}

static uint64_t lock_now(const struct stile_lock *lock)
{
    return loop_now(lock->client->loop);
}

/* ---- the end of a wait ---- */

static void let_next_in(struct stile_lock *lock)
{
    name_queue_leave(lock, begin_claim);
}

static void end_wait(struct stile_lock *lock, enum stile_status status,
                     const struct stile_error *why)
{
    move_to(lock, IDLE);
    admission_leave(lock);
    lock_complete(lock, status, why);
    lock_clear_reason(lock);
    let_next_in(lock);
}

/* ---- claiming ---- */

static void arm_wait(struct stile_lock *lock)
{
    uint64_t until = lock->wait_until_ns;
    if (lock->try_once)
        until = lock_now(lock) + ANSWER_PATIENCE_NS;
    if (until != NEVER)
        loop_arm(lock->client->loop, &lock->timer, until);
}

static void send_claim(struct stile_lock *lock)
{
    struct engine *engine = lock->client->engine;
    move_to(lock, CLAIMING);
    lock->claim->wait = !lock->try_once;
    lock->claim->unused = lock->claim->lost = false;
    lease_keep_session(lock);
    engine->class->claim(engine, lock->claim);
    if (lock->state == CLAIMING)
        arm_wait(lock);
}

static void begin_claim(struct stile_lock *lock)
{
    if (admission_enter(lock, CLAIM_QUEUE)) {
        send_claim(lock);
        return;
    }
    move_to(lock, IN_ADMISSION);
    arm_wait(lock);
}

static void prepare_wait(struct stile_lock *lock, struct op *op, int64_t wait_ms)
{
    lock_cancel_loss_report(lock);
    lock->op = op;
    lock->tried = 0;
    lock->anew = false;
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

/* Another claim of this client is ahead of it. */
static void wait_in_name_queue(struct stile_lock *lock)
{
    if (lock->try_once) {
        end_wait(lock, STILE_HELD, &held_by_ourselves);
        return;
    }
    move_to(lock, IN_NAME_QUEUE);
    arm_wait(lock);
}

static void start_claim(struct stile_lock *lock, struct op *op, int64_t wait_ms)
{
    prepare_wait(lock, op, wait_ms);
    if (name_queue_enter(lock))
        begin_claim(lock);
    else
        wait_in_name_queue(lock);
}

void lock_start_resume(struct stile_lock *lock, struct op *op)
{
    struct engine *engine = lock->client->engine;
    prepare_wait(lock, op, 0);
    if (!name_queue_enter(lock)) {
        end_wait(lock, STILE_HELD, &held_by_ourselves);
        return;
    }
    move_to(lock, RESUMING);
    lock->claim->unused = lock->claim->lost = false;
    engine->class->detached->resume(engine, lock->claim);
    if (lock->state == RESUMING)
        arm_wait(lock);
}

static void pause_claim(struct stile_lock *lock, uint64_t hint_ns)
{
    uint64_t now = lock_now(lock);
    uint64_t pause = retry_pause(lock->client->loop, lock->policy.retry_ns, lock->tried++);
    if (hint_ns && hint_ns < pause)
        pause = hint_ns;
    uint64_t at = now + pause;
    move_to(lock, PAUSED);
    admission_leave(lock);
    loop_arm(lock->client->loop, &lock->timer, at < lock->wait_until_ns ? at : lock->wait_until_ns);
}

static bool out_of_tries(const struct stile_lock *lock)
{
    return lock->policy.tries && lock->tried + 1 >= lock->policy.tries;
}

static bool may_ask_again(const struct stile_lock *lock)
{
    bool in_doubt = lock->outcome == STILE_UNCERTAIN || lock->outcome == STILE_UNREACHABLE;
    if (lock->freed || !lock->op)
        return false;
    return lock->anew || (in_doubt && !lock->try_once && !out_of_tries(lock));
}

/* ---- releasing ---- */

/* A claim that was not resumed stays in the engine, because its owner works under it. The engine's
 * answer is still to come, and is ignored. */
static void drop_resumption(struct stile_lock *lock, enum stile_status outcome)
{
    move_to(lock, DROPPED);
    lock_complete(lock, outcome, lock->reason);
    lock_clear_reason(lock);
}

/* True: that was the answer to a resumption that no caller waits for. */
static bool end_dropped(struct stile_lock *lock)
{
    if (lock->state != DROPPED)
        return false;
    move_to(lock, IDLE);
    let_next_in(lock);
    lock_destroy_if_done(lock);
    return true;
}

/* Granted to a resumption that no caller waits for: it stays in the engine as it was. */
static bool leave_dropped(struct stile_lock *lock)
{
    const struct engine_detached *detached = lock->client->engine->class->detached;
    if (lock->state == DROPPED && detached->detach)
        detached->detach(lock->client->engine, lock->claim);
    return end_dropped(lock);
}

/* Repetitions do not prolong it. It begins when it is first needed: an answer from inside the
 * request does not read the clock. */
static uint64_t patience_ends(struct stile_lock *lock)
{
    if (!lock->patience_until_ns)
        lock->patience_until_ns = lock_now(lock) + RELEASE_PATIENCE_NS;
    return lock->patience_until_ns;
}

/* A caller that will claim again waits for the claim in doubt to be gone as long as for the lock
 * itself; any other caller continues after a while. */
static uint64_t answer_due(struct stile_lock *lock)
{
    if (lock->anew && !lock->try_once)
        return lock->wait_until_ns;
    uint64_t until = patience_ends(lock);
    return may_ask_again(lock) && until < lock->wait_until_ns ? lock->wait_until_ns : until;
}

static void arm_withdrawal(struct stile_lock *lock)
{
    if (lock->state != RELEASING)
        return; /* answered from inside the request */
    uint64_t until = answer_due(lock);
    loop_disarm(lock->client->loop, &lock->timer);
    if (until != NEVER)
        loop_arm(lock->client->loop, &lock->timer, until);
}

/* The queue may take longer than a TTL: the session is renewed meanwhile, or the last claims would
 * be found gone and look like losses. */
static void send_release(struct stile_lock *lock)
{
    struct engine *engine = lock->client->engine;
    if (admission_enter(lock, RELEASE_QUEUE))
        engine->class->release(engine, lock->claim);
    else
        lease_keep_session(lock);
}

/* A claim with a lease of its own is gone when that is over, counted from now: a renewal that was
 * not answered may have extended it. What lives by a session stays as long as the session does, so
 * its release is never abandoned. A process lease has no second answer. */
static uint64_t end_of_repetition(const struct stile_lock *lock)
{
    switch (lock->client->engine->caps.lease) {
    case STILE_LEASE_CLAIM:
        return lock_now(lock) + (lock->state == HELD ? lock->lease_ns : lock->claim->ttl_ns);
    case STILE_LEASE_SESSION:
        return NEVER;
    default:
        return 0;
    }
}

static void begin_release(struct stile_lock *lock)
{
    lock->given_up = false;
    lock->releases = 0;
    lock->patience_until_ns = 0;
    lock->renewing = false; /* released() is the only answer from now on */
    send_release(lock);
}

static bool is_final(const struct stile_error *err)
{
    return !err || err->status == STILE_OK || err->status == STILE_LOST;
}

/* A caller that waits for the claim in doubt to be gone keeps waiting. So does any other while
 * the next answer may be better: a lost connection is no reason to report a failed release. */
static void answer_unfinished_release(struct stile_lock *lock, const struct stile_error *err,
                                      uint64_t now)
{
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN ||
                   err->status == STILE_NOMEM;
    if (lock->state == RELEASING && may_ask_again(lock))
        return;
    if (lock->state == RELEASING && !lock->outcome)
        lock_set_reason(lock, err); /* else our reason for withdrawing comes first */
    if (passing && now < patience_ends(lock))
        return;
    enum stile_status status = passing ? STILE_UNREACHABLE : err->status;
    if (lock->state == RELEASING)
        lock_complete(lock, lock->outcome ? lock->outcome : status, lock->reason);
    lock->given_up = true;
}

/* True: the engine could not say that the claim is gone, and is asked again after a pause. */
static bool schedule_release(struct stile_lock *lock, const struct stile_error *err)
{
    struct loop *loop = lock->client->loop;
    if (is_final(err))
        return false; /* before the clock is read: that would cost a tenth of an uncontended pair */
    uint64_t now = lock_now(lock);
    if (now >= lock->release_until_ns)
        return false;
    LOCK_LOG(lock, first_time(lock->releases), "release is repeated: %s", err->message);
    answer_unfinished_release(lock, err, now);
    move_to(lock, lock->state == RELEASING ? RELEASE_PAUSED : CLEARING_PAUSED);
    uint64_t at = now + loop_backoff(loop, REPEAT_FIRST_NS, REPEAT_MAX_NS, lock->releases++);
    if (lock->op && answer_due(lock) < at)
        at = answer_due(lock);
    loop_arm(loop, &lock->timer, at);
    return true;
}

static void repeat_release(struct stile_lock *lock)
{
    move_to(lock, lock->state == RELEASE_PAUSED ? RELEASING : CLEARING);
    if (lock->op && lock_now(lock) >= answer_due(lock))
        lock_give_up(lock);
    send_release(lock);
    if (!lock->given_up)
        arm_withdrawal(lock);
}

/* The caller continues, and so does the repetition. */
static void leave_repetition(struct stile_lock *lock)
{
    uint64_t again_ns = lock->timer.at_ns;
    lock_give_up(lock);
    loop_arm(lock->client->loop, &lock->timer, again_ns);
}

static void withdraw(struct stile_lock *lock, enum stile_status outcome)
{
    if (lock->state == RESUMING) {
        drop_resumption(lock, outcome);
        return;
    }
    if (is_claiming(lock))
        lock->claim->unused = true; /* granted or not, its user never learned of it */
    lock->release_until_ns = end_of_repetition(lock);
    move_to(lock, RELEASING);
    lease_stop(lock);
    lock->outcome = outcome;
    begin_release(lock);
    arm_withdrawal(lock);
}

/* The claim is being cleared away, or has been. */
static void release_lost(struct stile_lock *lock)
{
    lock->outcome = STILE_LOST;
    if (lock->state == CLEARING_PAUSED) {
        move_to(lock, RELEASE_PAUSED);
        leave_repetition(lock);
    } else if (lock->state == CLEARING) {
        move_to(lock, RELEASING);
        lock->patience_until_ns = 0;
        arm_withdrawal(lock);
    } else {
        move_to(lock, IDLE);
        lock_complete(lock, STILE_LOST, lock->reason);
        lock_clear_reason(lock);
    }
}

/* The process was paused past the deadline and the tick has not run since: that is a loss, too. */
static void notice_deadline(struct stile_lock *lock)
{
    if (lock->state == HELD && !lease_is_valid(lock))
        lock_lost_at_deadline(lock);
}

void lock_give_back(struct stile_lock *lock, struct op *op)
{
    notice_deadline(lock);
    lock->op = op;
    if (lock->state == HELD)
        withdraw(lock, STILE_OK);
    else
        release_lost(lock);
}

/* ---- acquiring after a loss ---- */

/* Its caller has let the old grant go, and waits for the new one. A claim that overtook the release
 * of the old grant would be removed by it. */
static void start_after_loss(struct stile_lock *lock, struct op *op, int64_t wait_ms)
{
    bool paused = lock->state == CLEARING_PAUSED;
    uint64_t again_ns = lock->timer.at_ns;
    prepare_wait(lock, op, wait_ms);
    lock->anew = true;
    lock->given_up = false;
    lock->outcome = STILE_UNCERTAIN;
    lock->patience_until_ns = 0;
    lock_set_reason(lock, &not_cleared);
    move_to(lock, paused ? RELEASE_PAUSED : RELEASING);
    if (!paused)
        arm_withdrawal(lock);
    else if (answer_due(lock) < again_ns)
        loop_arm(lock->client->loop, &lock->timer, answer_due(lock));
}

/* It goes to the end of the name's queue. The claim is sent by the timer: the engine is still busy
 * with the answer to the release. */
static void claim_anew(struct stile_lock *lock)
{
    lock->anew = false;
    move_to(lock, IDLE);
    lock_clear_reason(lock);
    loop_disarm(lock->client->loop, &lock->timer);
    let_next_in(lock);
    if (!name_queue_enter(lock)) {
        wait_in_name_queue(lock);
        return;
    }
    move_to(lock, PAUSED);
    loop_arm(lock->client->loop, &lock->timer, lock_now(lock));
}

void lock_start(struct stile_lock *lock, struct op *op, int64_t wait_ms)
{
    notice_deadline(lock);
    if (lock->state == CLEARING || lock->state == CLEARING_PAUSED) {
        start_after_loss(lock, op, wait_ms);
        return;
    }
    if (lock->state == LOST) {
        move_to(lock, IDLE);
        lock_clear_reason(lock);
    }
    start_claim(lock, op, wait_ms);
}

/* ---- leaving it in the engine ---- */

/* The engine keeps it until its lease runs out; nothing of it is left here. A renewal that is under
 * way still has an answer to come: until then the handle is not free. */
void lock_detach(struct stile_lock *lock)
{
    struct engine *engine = lock->client->engine;
    const struct engine_detached *detached = engine->class->detached;
    lease_stop(lock);
    if (detached->detach) {
        detached->detach(engine, lock->claim);
        lock->renewing = false;
    }
    move_to(lock, IDLE);
    let_next_in(lock);
}

void lock_cancel(struct stile_lock *lock)
{
    if (lock->state == IN_NAME_QUEUE || lock->state == IN_ADMISSION || lock->state == PAUSED) {
        end_wait(lock, STILE_CANCELLED, NULL);
    } else if (is_claiming(lock)) {
        lock_clear_reason(lock);
        withdraw(lock, STILE_CANCELLED);
    } else if (is_releasing(lock) && may_ask_again(lock)) {
        lock_clear_reason(lock);
        lock->outcome = STILE_CANCELLED;
        lock->anew = false;
        lock->patience_until_ns = 0;
        if (lock->state == RELEASE_PAUSED)
            leave_repetition(lock);
        else
            arm_withdrawal(lock);
    }
}

void lock_discard(struct stile_lock *lock)
{
    lock_cancel(lock);
    if (lock->state == HELD)
        lock_give_back(lock, NULL);
    lock_cancel_loss_report(lock);
    lock->freed = true;
    lock_destroy_if_done(lock);
}

/* ---- loss ---- */

void lock_lose(struct stile_lock *lock, const struct stile_error *err)
{
    if (lock->state != HELD)
        return;
    lock->release_until_ns = end_of_repetition(lock);
    lease_stop(lock);
    move_to(lock, CLEARING);
    lock_set_reason(lock, err);
    LOCK_LOG(lock, STILE_LOG_ERROR, "lost: %s", err ? err->message : stile_status_text(STILE_LOST));
    lock_report_loss(lock);
    lock->claim->lost = true;
    begin_release(lock);
}

void lock_lost_at_deadline(struct stile_lock *lock)
{
    struct stile_error err;
    error_set(&err, STILE_LOST, 0,
              "the lease reached its deadline without a renewal (engine slow, cut off, or we were "
              "paused)");
    lock_lose(lock, &err);
}

/* ---- time ---- */

static void end_of_wait(struct stile_lock *lock, bool in_engine)
{
    if (lock->try_once)
        lock_set_reason(lock, &no_answer);
    enum stile_status status = lock->reason ? lock->reason->status : STILE_TIMEOUT;
    if (in_engine)
        withdraw(lock, status);
    else
        end_wait(lock, status, lock->reason);
}

void lock_give_up(struct stile_lock *lock)
{
    lock->given_up = true;
    lock_complete(lock, lock->outcome ? lock->outcome : STILE_UNREACHABLE,
                  lock->reason ? lock->reason : &no_answer);
}

static void send_request(struct stile_lock *lock)
{
    struct engine *engine = lock->client->engine;
    if (lock->state == IN_ADMISSION) {
        send_claim(lock);
        return;
    }
    lease_stop(lock);
    lock->patience_until_ns = 0; /* the engine's time to answer begins now */
    engine->class->release(engine, lock->claim);
    if (lock->state == RELEASING && !lock->given_up)
        arm_withdrawal(lock);
}

/* A task, not a call from admission_leave(): that runs inside an answer of the engine, and a
 * queue of requests that fail at once would nest one call per request. */
void lock_send_admitted(struct task *task)
{
    struct stile_client *client = container_of(task, struct stile_client, admission.admit);
    struct stile_lock *lock;
    while ((lock = admission_next(client)))
        send_request(lock);
}

/* True: the request is queued and the queue moves; the timer is armed in case it stops. */
static bool waits_in_moving_queue(struct stile_lock *lock, uint64_t patience_ns)
{
    if (lock->anew && !lock->try_once)
        return false; /* its caller said how long it waits */
    uint64_t until = admission_patience_ends(lock->client, patience_ns);
    if (lock->admission != IN_QUEUE || lock_now(lock) >= until)
        return false;
    loop_arm(lock->client->loop, &lock->timer, until);
    return true;
}

void lock_timer(struct timer *timer)
{
    struct stile_lock *lock = container_of(timer, struct stile_lock, timer);
    switch (lock->state) {
    case IN_NAME_QUEUE:
        end_of_wait(lock, false);
        break;
    case IN_ADMISSION:
        if (!lock->try_once || !waits_in_moving_queue(lock, ANSWER_PATIENCE_NS))
            end_of_wait(lock, false);
        break;
    case PAUSED:
        if (!lock->try_once && lock_now(lock) >= lock->wait_until_ns)
            end_of_wait(lock, false);
        else
            begin_claim(lock);
        break;
    case CLAIMING:
    case RESUMING:
        end_of_wait(lock, true);
        break;
    case RELEASING:
        if (!waits_in_moving_queue(lock, RELEASE_PATIENCE_NS)) {
            LOCK_LOG(lock, STILE_LOG_WARNING, "%s", "no answer to its release yet");
            lock_give_up(lock);
        }
        break;
    case RELEASE_PAUSED:
    case CLEARING_PAUSED:
        repeat_release(lock);
        break;
    default:
        break;
    }
}

/* ---- what the engine answers ----
 *
 * An answer may be late: each counts only in the state that waits for it, and is otherwise about
 * something that is over. */

static struct stile_lock *lock_of(struct claim *claim)
{
    return claim->core;
}

static void refuse_grant(struct stile_lock *lock, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    lock_set_reason(lock, &err);
    LOCK_LOG(lock, STILE_LOG_WARNING, "%s", why);
    withdraw(lock, status);
    (void)leave_dropped(lock);
}

/* What no guard could compare. A server may send anything, or another program may have stored it.
 */
static bool is_token(const struct stile_lock *lock, uint64_t token)
{
    return !lock->client->engine->caps.token || (token > 0 && token <= STILE_TOKEN_MAX);
}

void lock_granted(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns)
{
    struct stile_lock *lock = lock_of(claim);
    if (leave_dropped(lock) || !is_claiming(lock))
        return;
    admission_leave(lock);
    /* The answer took so long that the lease is nearly over: that must never count as held. */
    if (ttl_ns && lock_now(lock) >= lease_deadline(sent_ns, ttl_ns)) {
        refuse_grant(lock, STILE_UNREACHABLE, "granted, but the answer came after the deadline");
        return;
    }
    if (!is_token(lock, token)) {
        refuse_grant(lock, STILE_CORRUPT, "granted with a number that is no token");
        return;
    }
    if (lock->state == RESUMING)
        policy_resume(&lock->policy, ttl_ns);
    move_to(lock, HELD);
    lock->token = token;
    lock->record_from_ms = 0;
    LOCK_LOG(lock, STILE_LOG_DEBUG, "granted, token %llu", (unsigned long long)token);
    lease_start(lock, sent_ns, ttl_ns);
    lock_complete(lock, STILE_OK, NULL);
    lock_clear_reason(lock);
}

void lock_busy(struct claim *claim, uint64_t hint_ns)
{
    struct stile_lock *lock = lock_of(claim);
    if (!is_claiming(lock))
        return;
    lease_stop(lock);
    lock_clear_reason(lock);
    if (lock->try_once || out_of_tries(lock))
        end_wait(lock, STILE_HELD, NULL);
    else
        pause_claim(lock, hint_ns);
}

void lock_queued(struct claim *claim)
{
    struct stile_lock *lock = lock_of(claim);
    if (lock->state == CLAIMING)
        admission_leave(lock);
}

void lock_failed(struct claim *claim, const struct stile_error *err)
{
    struct stile_lock *lock = lock_of(claim);
    if (end_dropped(lock) || !is_claiming(lock))
        return;
    lease_stop(lock);
    lock_set_reason(lock, err);
    LOCK_LOG(lock, first_time(lock->tried), "not granted: %s", err->message);
    if (err->status == STILE_UNCERTAIN && lock->state == CLAIMING) {
        withdraw(lock, STILE_UNCERTAIN);
        return;
    }
    if (err->status == STILE_UNREACHABLE && !lock->try_once && !out_of_tries(lock))
        pause_claim(lock, 0); /* it may come back while we wait */
    else
        end_wait(lock, err->status, lock->reason);
}

static void end_release(struct stile_lock *lock, const struct stile_error *err)
{
    /* Our own reason comes first; a failed release matters to a caller that asked for just that. */
    bool ours = lock->outcome != STILE_OK || !err || !err->status;
    LOCK_LOG(lock, STILE_LOG_DEBUG, "%s", lock->outcome ? "withdrawn" : "released");
    move_to(lock, IDLE);
    lock_complete(lock, ours ? lock->outcome : err->status, ours ? lock->reason : err);
    lock_clear_reason(lock);
}

void lock_released(struct claim *claim, const struct stile_error *err)
{
    struct stile_lock *lock = lock_of(claim);
    if (lock->state != RELEASING && lock->state != CLEARING)
        return;
    admission_leave(lock);
    if (schedule_release(lock, err))
        return;
    lock->given_up = false;
    if (lock->state == RELEASING && may_ask_again(lock)) {
        if (lock->anew)
            claim_anew(lock);
        else
            pause_claim(lock, 0);
        return;
    }
    loop_disarm(lock->client->loop, &lock->timer);
    if (lock->state == RELEASING)
        end_release(lock, err);
    else
        move_to(lock, LOST);
    let_next_in(lock);
    lock_destroy_if_done(lock);
}

/* True: the answer is about a lock that is held. Else it was detached meanwhile. */
static bool still_held(struct stile_lock *lock)
{
    if (lock->state == HELD)
        return true;
    lock->renewing = false;
    lock_destroy_if_done(lock);
    return false;
}

void lock_renewed(struct claim *claim, uint64_t sent_ns, uint64_t ttl_ns)
{
    if (still_held(lock_of(claim)))
        lease_renewed(lock_of(claim), sent_ns, ttl_ns);
}

void lock_unknown(struct claim *claim)
{
    if (!still_held(lock_of(claim)))
        return;
    LOCK_LOG(lock_of(claim), STILE_LOG_INFO, "%s", "renewal not answered; it is repeated");
    lease_unknown(lock_of(claim));
}

void lock_lost(struct claim *claim, const struct stile_error *err)
{
    if (still_held(lock_of(claim)))
        lock_lose(lock_of(claim), err);
}
