/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/mutex.h"

#include <endian.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engines/local/liveness.h"

#define WAITED_FOR  UINT64_C(1)
#define SPINS       100
#define NAP_MIN_NS  1000000L
#define NAP_MAX_NS  16000000L
#define PATIENCE_NS INT64_C(2000000000)

static uint64_t *mutex_word(const struct store *store)
{
    return &store->cells[AT_LOCK].lock.word;
}

/* The half of the word with the bit WAITED_FOR: a futex is 32 bits wide. */
static uint32_t *futex_half(uint64_t *word)
{
    return (uint32_t *)word + (BYTE_ORDER == BIG_ENDIAN);
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool swap(uint64_t *word, uint64_t *seen, uint64_t wanted)
{
    return __atomic_compare_exchange_n(word, seen, wanted, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void nap(uint64_t *word, uint64_t seen, long ns)
{
    struct timespec limit = {.tv_nsec = ns};
    syscall(SYS_futex, futex_half(word), FUTEX_WAIT, (uint32_t)seen, &limit, NULL, 0);
}

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static bool is_dead(const struct store *store, uint64_t seen)
{
    uint64_t id = seen >> 1;
    return id != store->id && !local_liveness_is_alive(store->live_fd, id);
}

/* A process can die before it wakes the next, so no sleep here is long. */
static bool enter_slowly(struct store *store)
{
    uint64_t *word = mutex_word(store), mine = store->id << 1 | WAITED_FOR;
    int64_t give_up_ns = clock_ns() + PATIENCE_NS;
    long ns = NAP_MIN_NS;

    while (clock_ns() < give_up_ns) {
        uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (seen == 0) {
            if (swap(word, &seen, mine))
                return true;
            continue;
        }
        if (!(seen & WAITED_FOR) && !swap(word, &seen, seen | WAITED_FOR))
            continue;
        seen |= WAITED_FOR;
        nap(word, seen, ns);
        if (__atomic_load_n(word, __ATOMIC_RELAXED) != seen)
            continue;
        if (is_dead(store, seen) && swap(word, &seen, mine))
            return true;
        ns = ns < NAP_MAX_NS ? 2 * ns : NAP_MAX_NS;
    }
    return false;
}

bool local_mutex_enter(struct store *store)
{
    uint64_t *word = mutex_word(store);

    for (int i = 0; i < SPINS; i++) {
        uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (seen == 0 && swap(word, &seen, store->id << 1))
            goto inside;
        cpu_relax();
    }
    if (!enter_slowly(store))
        return false;
inside:
    store->cells[AT_LOCK].lock.pid = store->pid;
    return true;
}

void local_mutex_leave(struct store *store)
{
    uint64_t *word = mutex_word(store);

    if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) & WAITED_FOR)
        syscall(SYS_futex, futex_half(word), FUTEX_WAKE, 1, NULL, NULL, 0);
}
