/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lock_report.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/container.h"
#include "core/record.h"

/* ---- the end of a handle ---- */

void lock_destroy(struct stile_lock *lock)
{
    struct stile_client *client = lock->client;
    if (lock->gone)
        lock->gone(lock->gone_data);
    if (lock->all_before)
        lock->all_before->all_next = lock->all_next;
    else
        client->locks = lock->all_next;
    if (lock->all_next)
        lock->all_next->all_before = lock->all_before;
    record_lock_freed(lock);
    admission_leave(lock);
    loop_disarm(client->loop, &lock->timer);
    loop_unreserve(client->loop, 1);
    callback_cancel(client, &lock->lost_callback);
    if (lock->lost_fd >= 0)
        close(lock->lost_fd);
    free(lock->reason);
    free(lock->proclaim);
    lock->magic = LOCK_DEAD;
    /* Not freed at once: a second free of the same handle still finds LOCK_DEAD. */
    struct stile_lock **oldest = &client->freed_locks[client->next_freed++ % FREED_KEPT];
    free(*oldest);
    *oldest = lock;
}

/* No answer of the engine to a claim, a release or a resumption is to come. */
static bool is_at_rest(const struct stile_lock *lock)
{
    return lock->state == IDLE || lock->state == LOST;
}

void lock_destroy_if_done(struct stile_lock *lock)
{
    if (lock->freed && is_at_rest(lock) && !lock->renewing && lock->uses == 0)
        lock_destroy(lock);
}

/* ---- answering a call ---- */

static void end_callback(struct stile_lock *lock)
{
    struct stile_client *client = lock->client;
    pthread_mutex_lock(&client->mutex);
    lock->uses--;
    lock_destroy_if_done(lock);
    pthread_mutex_unlock(&client->mutex);
}

static void deliver(struct callback *callback)
{
    struct op *op = container_of(callback, struct op, callback);
    enum stile_status status = op->error.status;
    op->done(op->lock, status, status ? &op->error : NULL, op->data);
    end_callback(op->lock);
    free(op);
}

void lock_complete(struct stile_lock *lock, enum stile_status status, const struct stile_error *why)
{
    struct op *op = lock->op;
    loop_disarm(lock->client->loop, &lock->timer);
    if (!op)
        return;
    lock->op = NULL;
    if (why && status)
        op->error = *why;
    else if (status)
        error_set(&op->error, status, 0, "%s", stile_status_text(status));
    op->error.status = status;
    if (!op->done) {
        drive_done(&op->follower);
        return;
    }
    op->callback.fn = deliver;
    lock->uses++;
    callback_queue(lock->client, &op->callback);
}

/* ---- reporting a loss ---- */

static void call_on_lost(struct callback *callback)
{
    struct stile_lock *lock = container_of(callback, struct stile_lock, lost_callback);
    lock->on_lost(lock, lock->on_lost_data);
    end_callback(lock);
}

void lock_report_loss(struct stile_lock *lock)
{
    if (lock->lost_fd >= 0)
        eventfd_write(lock->lost_fd, 1);
    if (lock->on_lost) {
        lock->uses += !lock->lost_callback.queued;
        lock->lost_callback.fn = call_on_lost;
        callback_queue(lock->client, &lock->lost_callback);
    }
}

void lock_cancel_loss_report(struct stile_lock *lock)
{
    lock->uses -= lock->lost_callback.queued;
    callback_cancel(lock->client, &lock->lost_callback);
}

/* ---- the reason ---- */

void lock_clear_reason(struct stile_lock *lock)
{
    free(lock->reason);
    lock->reason = NULL;
}

/* Without memory the status alone must do. */
void lock_set_reason(struct stile_lock *lock, const struct stile_error *err)
{
    if (!err) {
        lock_clear_reason(lock);
        return;
    }
    if (!lock->reason)
        lock->reason = malloc(sizeof *lock->reason);
    if (lock->reason)
        error_copy(lock->reason, err);
}
