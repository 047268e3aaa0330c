/* What the user of a lock hears: how its call went, and that the lock was lost. A call that blocks
 * is woken; a callback is queued, and made by whoever drives, without the mutex. Until it has
 * returned, the handle stays: its user may free it from inside. */
#include <stdlib.h>
#include <sys/eventfd.h>

#include "core/lock_inner.h"
#include "mutant.h"

void lock_bury_if_gone(struct stile_lock *lock)
{
    if (lock->zombie && !lock->withdrawing && !lock->renewing && lock->calls == 0)
        lock_bury(lock);
}

static void end_call(struct stile_lock *lock)
{
    struct stile_client *client = lock->client;
    pthread_mutex_lock(&client->mutex);
    lock->calls--;
    lock_bury_if_gone(lock);
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

void lock_answer(struct stile_lock *lock, enum stile_status status, const struct stile_error *why)
{
    struct op *op = lock->op;
    loop_disarm(lock->client->loop, &lock->timer);
    if (!op)
        return;
    lock->op = NULL;
#ifdef MUTANT_CORE_CANCELLED_IS_OK
    status = status == STILE_CANCELLED ? STILE_OK : status;
#endif
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

/* ---- a loss ---- */

static void call_on_lost(struct note *note)
{
    struct stile_lock *lock =
        (struct stile_lock *)((char *)note - offsetof(struct stile_lock, lost_note));
    lock->on_lost(lock, lock->on_lost_data);
    end_call(lock);
}

void lock_tell_loss(struct stile_lock *lock)
{
#ifndef MUTANT_CORE_LOSS_NOT_TOLD
    if (lock->lost_fd >= 0)
        eventfd_write(lock->lost_fd, 1);
#endif
    if (lock->on_lost) {
        lock->calls += !lock->lost_note.queued;
        lock->lost_note.fn = call_on_lost;
        client_note(lock->client, &lock->lost_note);
    }
}

void lock_forget_loss(struct stile_lock *lock)
{
    lock->calls -= lock->lost_note.queued;
    client_forget_note(lock->client, &lock->lost_note);
}

/* ---- why ---- */

void lock_forget_why(struct stile_lock *lock)
{
    free(lock->why);
    lock->why = NULL;
}

/* Without memory the status alone has to do. */
void lock_remember_why(struct stile_lock *lock, const struct stile_error *err)
{
    if (!err) {
        lock_forget_why(lock);
        return;
    }
    if (!lock->why)
        lock->why = malloc(sizeof *lock->why);
    if (lock->why)
        error_copy(lock->why, err);
}
