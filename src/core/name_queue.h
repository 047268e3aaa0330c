/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Queues inside a client, one per name: if an engine cannot distinguish two claims of one client
 * (class->apart unset), at most one claim per name and client reaches it. The others wait here,
 * first come, first served. */
#ifndef STILE_NAME_QUEUE_H
#define STILE_NAME_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

struct stile_lock;

struct name_queues {
    struct stile_lock **buckets; /* the heads, by name hash; chained by queue_link */
    size_t n_buckets, n;
    struct stile_lock *entering, **entering_tail; /* new heads that have not begun */
};

int name_queues_init(struct name_queues *queues); /* 0 or ENOMEM */
void name_queues_fini(struct name_queues *queues);

/* True: its turn has come, at once where the engine needs no queue. */
bool name_queue_enter(struct stile_lock *lock);
/* Calls begin() for the lock whose turn comes next, if there is one. */
typedef void name_queue_begin_fn(struct stile_lock *lock);
void name_queue_leave(struct stile_lock *lock, name_queue_begin_fn *begin);

#endif
