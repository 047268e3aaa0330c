/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: how many requests of one client an engine has to answer at once.
 *
 * Fifty thousand claims at once would be fifty thousand requests in flight. The last answers would
 * arrive after their timeouts, every timeout would repeat its request, and the backlog would only
 * grow. So core sends at most class->in_flight claims and releases at a time, in order of arrival,
 * releases first because others may wait for the name. The rest wait here. A claim that waits in
 * the server's own queue (queued()) is not in flight. */
#ifndef STILE_ADMISSION_H
#define STILE_ADMISSION_H

#include "io/loop.h"

struct stile_client;
struct stile_lock;

/* The two queues. */
enum admission_queue { RELEASE_QUEUE, CLAIM_QUEUE, ADMISSION_QUEUES };

/* Where a lock's request is. */
enum admission_place { NO_REQUEST, IN_QUEUE, IN_FLIGHT };

struct admission {
    size_t in_flight;
    struct stile_lock *first[ADMISSION_QUEUES], *last[ADMISSION_QUEUES];
    uint64_t progress_ns; /* when a queue last moved, or began */
    struct task admit;    /* lock_send_admitted(), once a place is free */
};

/* Nothing is admitted after this: the engine is about to be closed. */
void admission_close(struct stile_client *client);

/* True: send the request now, always so if the class has no in_flight. False: admission_next()
 * returns it when its turn has come. */
bool admission_enter(struct stile_lock *lock, enum admission_queue queue);
/* Its request is answered, or no longer wanted. */
void admission_leave(struct stile_lock *lock);
/* The next request that may be sent, from now on in flight; NULL: none may. */
struct stile_lock *admission_next(struct stile_client *client);

/* When a queued request is given up: patience begins anew whenever a queue moves. */
uint64_t admission_patience_ends(const struct stile_client *client, uint64_t patience_ns);

#endif
