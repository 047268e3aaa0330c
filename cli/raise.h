/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile run --guard: raises a guard between the grant and the command.
 *
 * The guard's engine is opened before the wait for the lock, so that a wrong URL is reported at
 * once, and is kept alive by a thread of its own meanwhile. The raise itself is waited for together
 * with signals and the lock's renewals: a guard that does not answer must not cost the lock. */
#ifndef STILE_CLI_RAISE_H
#define STILE_CLI_RAISE_H

#include "guard.h"
#include "process.h"

struct raise {
    struct guard_place place;
    int answered; /* an eventfd; -1: there is no guard */
    enum stile_status status;
    struct stile_error err;
};

/* 0, or an exit code after a message. Without --guard nothing is opened. */
int raise_open(struct raise *raise, const struct options *options, struct stile_client *client);
/* Raises it to the token of the lock. 0, or an exit code after a message; *sig: the signal that
 * ended it, or 0. */
int raise_guard(struct raise *raise, const struct options *options, struct stile_client *client,
                struct stile_lock *lock, struct inbox *inbox, int *sig);
void raise_close(struct raise *raise);
/* Returns EXIT_LOST, after a message: the command is not started. */
int raise_tell_lost(struct stile_lock *lock);

#endif
