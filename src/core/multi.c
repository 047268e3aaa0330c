/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks as one: taken in canonical order, so that two callers never deadlock; all or none;
 * one deadline for all of them. */
#include <stdlib.h>
#include <string.h>

#include "core/lock.h"

static int by_name(const void *a, const void *b)
{
    struct stile_lock *const *x = a, *const *y = b;
    return strcmp((*x)->claim->name, (*y)->claim->name);
}

/* How many of them are locks, up to the first that isn't. */
static size_t count_valid(struct stile_lock *const *locks, size_t n)
{
    size_t valid = 0;
    while (valid < n && locks[valid] && locks[valid]->magic == LOCK_MAGIC)
        valid++;
    return valid;
}

static enum stile_status sort_locks(struct stile_lock ***out, struct stile_lock *const *locks,
                                    size_t n, struct stile_error *err)
{
    size_t valid = n && locks ? count_valid(locks, n) : 0;
    if (n == 0 || !locks)
        return error_set(err, STILE_MISUSE, 0, "no locks given");
    if (valid < n)
        return error_set(err, STILE_MISUSE, 0, "number %zu isn't a lock", valid + 1);
    struct stile_lock **sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    memcpy(sorted, locks, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n; i++) {
        if (sorted[i]->client == sorted[i - 1]->client &&
            by_name(&sorted[i], &sorted[i - 1]) == 0) {
            error_set(err, STILE_MISUSE, 0, "'%s' is named twice, and would wait for itself",
                      sorted[i]->claim->name);
            free(sorted);
            return STILE_MISUSE;
        }
    }
    *out = sorted;
    return STILE_OK;
}

/* ---- the clients of several locks ---- */

/* One for each lock; a client of several locks is held as often. */
static void let_go_of_clients(struct outside *holds, size_t n)
{
    while (n-- > 0)
        client_let_go(&holds[n]);
    free(holds);
}

/* Otherwise a client could be closed between two locks, and free the rest of them. */
static enum stile_status hold_clients(struct outside **out, struct stile_lock *const *locks,
                                      size_t n, struct stile_error *err)
{
    struct outside *holds = malloc(n * sizeof *holds);
    enum stile_status status = holds ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
    size_t held = 0;
    while (!status && held < n) {
        status = client_hold(locks[held]->client, &holds[held], err);
        held += !status;
    }
    if (status) {
        let_go_of_clients(holds, held);
        return status;
    }
    *out = holds;
    return STILE_OK;
}

/* ---- all or none ---- */

static int64_t left_ms(struct loop *loop, int64_t wait_ms, uint64_t started_ns)
{
    if (wait_ms <= 0)
        return wait_ms;
    int64_t spent_ms = (int64_t)((loop_now(loop) - started_ns) / NS_PER_MS);
    return spent_ms < wait_ms ? wait_ms - spent_ms : 0;
}

/* A lock taken early may be lost during the wait for a later one: then not all are held. */
static enum stile_status check_all_held(struct stile_lock **sorted, size_t n,
                                        struct stile_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!stile_lock_held(sorted[i]))
            return error_set(err, STILE_LOST, 0, "'%s' was lost while waiting for the others",
                             sorted[i]->claim->name);
    }
    return STILE_OK;
}

static enum stile_status acquire_sorted(struct stile_lock **sorted, size_t n, int64_t wait_ms,
                                        struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    struct loop *loop = sorted[0]->client->loop;
    uint64_t started_ns = loop_now(loop);
    size_t got = 0;
    while (!status && got < n) {
        status = stile_lock_acquire(sorted[got], left_ms(loop, wait_ms, started_ns), err);
        got += !status;
    }
    if (!status)
        status = check_all_held(sorted, n, err);
    /* Out of time before the last was even asked for is a time-out, even if another holds that one.
     */
    if (status == STILE_HELD && wait_ms != 0 && left_ms(loop, wait_ms, started_ns) == 0) {
        status = STILE_TIMEOUT;
        if (err)
            err->status = status;
    }
    while (status && got > 0)
        stile_lock_abandon(sorted[--got], NULL);
    return status;
}

enum stile_status stile_locks_acquire(struct stile_lock *const *locks, size_t n, int64_t wait_ms,
                                      struct stile_error *err)
{
    struct stile_lock **sorted = NULL;
    struct outside *holds = NULL;
    enum stile_status status = sort_locks(&sorted, locks, n, err);
    if (!status)
        status = hold_clients(&holds, sorted, n, err);
    if (status) {
        free(sorted);
        return error_wrap(err, status, "acquiring several locks");
    }
    status = acquire_sorted(sorted, n, wait_ms, err);
    let_go_of_clients(holds, n);
    free(sorted);
    return status;
}

enum stile_status stile_locks_release(struct stile_lock *const *locks, size_t n,
                                      struct stile_error *err)
{
    enum stile_status first = STILE_OK;
    struct outside *holds = NULL;
    if (!locks && n > 0)
        return error_set(err, STILE_MISUSE, 0, "releasing several locks: no locks given");
    /* Without memory, or with one that isn't a lock, what can be released is. */
    if (n > 0 && count_valid(locks, n) == n)
        (void)hold_clients(&holds, locks, n, NULL);
    for (size_t i = n; i > 0; i--) {
        enum stile_status status = stile_lock_release(locks[i - 1], first ? NULL : err);
        first = first ? first : status;
    }
    if (holds)
        let_go_of_clients(holds, n);
    return first;
}

enum stile_status stile_with(struct stile_client *client, const char *name,
                             const struct stile_lock_options *options, stile_with_fn *fn,
                             void *data, int *result, struct stile_error *err)
{
    struct outside hold;
    struct stile_lock *lock;
    if (!fn)
        return error_set(err, STILE_MISUSE, 0, "no function given to call under the lock");
    enum stile_status status = client_hold(client, &hold, err);
    if (status)
        return error_wrap(err, status, "making a lock");
    status = stile_lock_new(&lock, client, name, options, err);
    if (status) {
        client_let_go(&hold);
        return status;
    }
    status = stile_lock_acquire(lock, -1, err);
    if (!status) {
        int answer = fn(lock, data);
        if (result)
            *result = answer;
        status = stile_lock_release(lock, err);
    }
    stile_lock_free(lock);
    client_let_go(&hold);
    return status;
}
