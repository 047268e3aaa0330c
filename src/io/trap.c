/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "io/trap.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPPINGS_MAX 64

/* The handler may read it at any time, so `start` is written last when an entry is added and first
 * when it is removed. */
static struct mapping {
    void *start;
    size_t bytes;
    volatile bool *is_torn;
} mappings[MAPPINGS_MAX];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

void trap_add(void *start, size_t bytes, volatile bool *is_torn)
{
    bool added = false;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAPPINGS_MAX && !added; i++) {
        added = !mappings[i].start;
        if (!added)
            continue;
        mappings[i].bytes = bytes;
        mappings[i].is_torn = is_torn;
        __atomic_store_n(&mappings[i].start, start, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
}

void trap_remove(const void *start)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (mappings[i].start == start)
            __atomic_store_n(&mappings[i].start, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
}

/* Maps zeros in place of the whole file: no checksum fits, so nothing in it is trusted. */
static bool replace(const void *address)
{
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        char *start = __atomic_load_n(&mappings[i].start, __ATOMIC_ACQUIRE);
        if (!start || (uintptr_t)address - (uintptr_t)start >= mappings[i].bytes)
            continue;
        *mappings[i].is_torn = true;
        return mmap(start, mappings[i].bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }
    return false;
}

/* Not one of these mappings: as without this handler. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (before.sa_handler == SIG_DFL || info->si_code > 0) {
        signal(number,
               SIG_DFL); /* the same access raises it again; one that was sent is sent again */
        if (info->si_code <= 0)
            raise(number);
    }
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    if (info->si_code <= 0 || !replace(info->si_addr))
        pass_on(number, info, context);
    errno = kept;
}

static bool is_default(const struct sigaction *action)
{
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

static bool is_ours(const struct sigaction *action)
{
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_sigbus;
}

int trap_install(bool over_a_handler)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction now;
    int rc = 0;
    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&mutex);
    if (sigaction(SIGBUS, NULL, &now) != 0) {
        rc = errno;
    } else if (!is_ours(&now) && (over_a_handler || is_default(&now))) {
        before = now;
        rc = sigaction(SIGBUS, &action, NULL) != 0 ? errno : 0;
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}
