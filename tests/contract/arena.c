/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "contract.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 20
/* Every so often somebody falls asleep inside, so that others come by on few cores as well. */
#define NAP_EVERY 16

struct arena *arena_map(void)
{
    const char *path = getenv("STILE_CONTRACT_ARENA");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0)
        return NULL;
    void *at = mmap(NULL, sizeof(struct arena), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

void arena_reset(void)
{
    struct arena *a = suite.arena;
    a->inside = a->count = a->overlaps = 0;
    a->last_token = a->backwards = 0;
    a->within = a->most = 0;
    a->n_stamps = 0;
}

void arena_work(uint64_t worker, uint64_t token)
{
    struct arena *a = suite.arena;
    atomic_store(&a->inside, worker);
    uint64_t count = atomic_load(&a->count);
    if (count % NAP_EVERY == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1}, NULL);
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load(&a->inside) != worker) {
            atomic_fetch_add(&a->overlaps, 1);
            break;
        }
    }
    atomic_store(&a->count, count + 1);
    if (token && token <= atomic_load(&a->last_token))
        atomic_fetch_add(&a->backwards, 1);
    atomic_store(&a->last_token, token);
}

void arena_crowd_in(void)
{
    struct arena *a = suite.arena;
    int within = atomic_fetch_add(&a->within, 1) + 1;
    int most = atomic_load(&a->most);
    while (within > most && !atomic_compare_exchange_weak(&a->most, &most, within))
        ;
}

void arena_crowd_out(void)
{
    atomic_fetch_sub(&suite.arena->within, 1);
}

enum stile_status hammer(struct stile_lock *const *locks, size_t n, unsigned rounds,
                         uint64_t worker)
{
    for (unsigned i = 0; i < rounds || rounds == 0; i++) {
        uint64_t token = 0;
        enum stile_status status = stile_locks_acquire(locks, n, PATIENCE_MS, NULL);
        if (status)
            return status;
        stile_lock_token(locks[0], &token);
        arena_work(worker, token);
        status = stile_locks_release(locks, n, NULL);
        if (status)
            return status;
    }
    return STILE_OK;
}

void arena_stamp(uint64_t at_ns)
{
    uint64_t place = atomic_fetch_add(&suite.arena->n_stamps, 1);
    if (place < STAMPS_MAX)
        suite.arena->stamps[place] = at_ns;
}
