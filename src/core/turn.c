#include "core/turn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/client.h"
#include "core/lock.h"
#include "mutant.h"

#define FIRST_BUCKETS 64

int turn_init(struct turns *turns)
{
    turns->buckets = calloc(FIRST_BUCKETS, sizeof *turns->buckets);
    turns->n_buckets = FIRST_BUCKETS;
    turns->entering_tail = &turns->entering;
    return turns->buckets ? 0 : ENOMEM;
}

void turn_fini(struct turns *turns)
{
    free(turns->buckets);
}

static struct stile_lock **bucket_of(struct turns *turns, const struct stile_lock *lock)
{
    return &turns->buckets[lock->claim->name_hash & (turns->n_buckets - 1)];
}

static bool same_name(const struct stile_lock *a, const struct stile_lock *b)
{
    return a->claim->name_hash == b->claim->name_hash && a->claim->name_len == b->claim->name_len &&
           memcmp(a->claim->name, b->claim->name, a->claim->name_len) == 0;
}

/* Where the turn's owner of this name hangs, or the NULL at the chain's end. */
static struct stile_lock **find_owner(struct turns *turns, const struct stile_lock *lock)
{
    struct stile_lock **at = bucket_of(turns, lock);
    while (*at && !same_name(*at, lock))
        at = &(*at)->turn_link;
    return at;
}

/* Without memory the chains just stay longer. */
static void grow(struct turns *turns)
{
    struct turns bigger = {.n_buckets = turns->n_buckets * 2};
    bigger.buckets = calloc(bigger.n_buckets, sizeof *bigger.buckets);
    if (!bigger.buckets)
        return;
    for (size_t i = 0; i < turns->n_buckets; i++) {
        for (struct stile_lock *lock = turns->buckets[i], *next; lock; lock = next) {
            next = lock->turn_link;
            struct stile_lock **to = bucket_of(&bigger, lock);
            lock->turn_link = *to;
            *to = lock;
        }
    }
    free(turns->buckets);
    turns->buckets = bigger.buckets;
    turns->n_buckets = bigger.n_buckets;
}

static bool goes_without_turns(const struct stile_lock *lock)
{
    const struct engine_class *class = lock->client->engine->class;
    return class->apart || (class->apart_sharing && lock->claim->mode != STILE_EXCLUSIVE);
}

bool turn_enter(struct stile_lock *lock)
{
    struct turns *turns = &lock->client->turns;
    lock->in_turn = true;
    lock->turn_next = lock->turn_before = NULL;
    lock->turn_last = lock;
    if (goes_without_turns(lock))
        return true;
    struct stile_lock **at = find_owner(turns, lock);
    if (!*at) {
        lock->turn_link = NULL;
        *at = lock;
        if (++turns->n > turns->n_buckets)
            grow(turns);
        return true;
    }
    struct stile_lock *head = *at;
    lock->turn_before = head->turn_last;
    lock->turn_before->turn_next = lock;
    head->turn_last = lock;
#ifdef MUTANT_CORE_TURN_NOT_KEPT
    return true;
#endif
    return false;
}

struct stile_lock *turn_leave(struct stile_lock *lock)
{
    struct turns *turns = &lock->client->turns;
    if (!lock->in_turn)
        return NULL;
    lock->in_turn = false;
    if (goes_without_turns(lock))
        return NULL;
    struct stile_lock **at = find_owner(turns, lock), *next = lock->turn_next;
    if (*at != lock) {
        lock->turn_before->turn_next = next;
        if (next)
            next->turn_before = lock->turn_before;
        else
            (*at)->turn_last = lock->turn_before;
        return NULL;
    }
    if (next) {
        next->turn_link = lock->turn_link;
        next->turn_before = NULL;
        next->turn_last = lock->turn_last;
        *at = next;
    } else {
        *at = lock->turn_link;
        turns->n--;
    }
    return next;
}
