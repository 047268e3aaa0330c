/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/name_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/client.h"
#include "core/lock.h"

#define FIRST_BUCKETS 64

int name_queues_init(struct name_queues *queues)
{
    queues->buckets = calloc(FIRST_BUCKETS, sizeof *queues->buckets);
    queues->n_buckets = FIRST_BUCKETS;
    queues->entering_tail = &queues->entering;
    return queues->buckets ? 0 : ENOMEM;
}

void name_queues_fini(struct name_queues *queues)
{
    free(queues->buckets);
}

static struct stile_lock **bucket_of(struct name_queues *queues, const struct stile_lock *lock)
{
    return &queues->buckets[lock->claim->name_hash & (queues->n_buckets - 1)];
}

static bool same_name(const struct stile_lock *a, const struct stile_lock *b)
{
    return a->claim->name_hash == b->claim->name_hash && a->claim->name_len == b->claim->name_len &&
           memcmp(a->claim->name, b->claim->name, a->claim->name_len) == 0;
}

/* The link to the head of this name's queue, or the NULL at the chain's end. */
static struct stile_lock **find_head(struct name_queues *queues, const struct stile_lock *lock)
{
    struct stile_lock **at = bucket_of(queues, lock);
    while (*at && !same_name(*at, lock))
        at = &(*at)->queue_link;
    return at;
}

/* Out of memory: the chains stay longer, nothing else. */
static void grow(struct name_queues *queues)
{
    struct name_queues bigger = {.n_buckets = queues->n_buckets * 2};
    bigger.buckets = calloc(bigger.n_buckets, sizeof *bigger.buckets);
    if (!bigger.buckets)
        return;
    for (size_t i = 0; i < queues->n_buckets; i++) {
        for (struct stile_lock *lock = queues->buckets[i], *next; lock; lock = next) {
            next = lock->queue_link;
            struct stile_lock **to = bucket_of(&bigger, lock);
            lock->queue_link = *to;
            *to = lock;
        }
    }
    free(queues->buckets);
    queues->buckets = bigger.buckets;
    queues->n_buckets = bigger.n_buckets;
}

static bool has_queue(const struct stile_lock *lock)
{
    const struct engine_class *class = lock->client->engine->class;
    return !class->apart && (!class->apart_sharing || lock->claim->mode == STILE_EXCLUSIVE);
}

bool name_queue_enter(struct stile_lock *lock)
{
    if (!has_queue(lock))
        return true;
    struct name_queues *queues = &lock->client->name_queues;
    lock->queue_next = lock->queue_before = NULL;
    lock->queue_last = lock;
    struct stile_lock **at = find_head(queues, lock);
    if (!*at) {
        lock->queue_link = NULL;
        *at = lock;
        if (++queues->n > queues->n_buckets)
            grow(queues);
        return true;
    }
    struct stile_lock *head = *at;
    lock->queue_before = head->queue_last;
    lock->queue_before->queue_next = lock;
    head->queue_last = lock;
    return false;
}

/* Returns the new head, or NULL. */
static struct stile_lock *take_out(struct stile_lock *lock)
{
    struct name_queues *queues = &lock->client->name_queues;
    struct stile_lock **at = find_head(queues, lock), *next = lock->queue_next;
    if (*at != lock) {
        lock->queue_before->queue_next = next;
        if (next)
            next->queue_before = lock->queue_before;
        else
            (*at)->queue_last = lock->queue_before;
        return NULL;
    }
    if (next) {
        next->queue_link = lock->queue_link;
        next->queue_before = NULL;
        next->queue_last = lock->queue_last;
        *at = next;
    } else {
        *at = lock->queue_link;
        queues->n--;
    }
    return next;
}

/* An engine may refuse the new head's claim from inside begin(), and that of the next as well: they
 * begin one after the other, not one inside the other. */
void name_queue_leave(struct stile_lock *lock, name_queue_begin_fn *begin)
{
    struct name_queues *queues = &lock->client->name_queues;
    struct stile_lock *next = has_queue(lock) ? take_out(lock) : NULL;
    bool first = !queues->entering;
    if (!next)
        return;
    next->enter_next = NULL;
    *queues->entering_tail = next;
    queues->entering_tail = &next->enter_next;
    while (first && queues->entering) {
        begin(queues->entering);
        queues->entering = queues->entering->enter_next;
    }
    if (!queues->entering)
        queues->entering_tail = &queues->entering;
}
