/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* An async call that may take long. It can be cancelled by its number, and closing the client
 * cancels it. */
#ifndef STILE_CANCELLABLE_H
#define STILE_CANCELLABLE_H

#include "core/client.h"

/* Embedded. */
struct cancellable {
    struct cancellable *next, **link;
    uint64_t number;
    /* With the mutex, and perhaps more than once. The call ends when its callback comes. */
    void (*cancel)(struct cancellable *call);
};

/* All with the mutex. */
void cancellable_add(struct stile_client *client, struct cancellable *call); /* gives its number */
void cancellable_remove(struct cancellable *call);
void cancellable_cancel(struct stile_client *client, uint64_t number); /* or nothing */
void cancellable_cancel_all(struct stile_client *client);

#endif
