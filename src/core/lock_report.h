/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a lock's user learns: its call is answered, or a loss is reported.
 *
 * A call that blocks is woken. A callback is queued, and made by the leader without the mutex. The
 * handle stays until the callback has returned: its user may free it from inside. */
#ifndef STILE_LOCK_REPORT_H
#define STILE_LOCK_REPORT_H

#include "core/lock.h"

/* Answers the call that is under way, if there is one. reason NULL: the status says it all. */
void lock_complete(struct stile_lock *lock, enum stile_status status,
                   const struct stile_error *reason);
void lock_report_loss(struct stile_lock *lock);
/* After the lock was freed, or acquired again, its user wants no report of an earlier loss. */
void lock_cancel_loss_report(struct stile_lock *lock);

/* Sets lock->reason until the call is answered; NULL clears it. */
void lock_set_reason(struct stile_lock *lock, const struct stile_error *err);
void lock_clear_reason(struct stile_lock *lock);

/* Take it off its client's list and free it; the second, if the engine and all callbacks are done
 * with a handle that its user has freed. */
void lock_destroy(struct stile_lock *lock);
void lock_destroy_if_done(struct stile_lock *lock);

#endif
