/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the library expects of Linux and WebAssembly does not have: threads that are never started,
 * locks that are always free, and the descriptors that report a loss. */
#include <errno.h>
#include <lualib.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/config.h"
#include "core/modules.h"
#include "io/resolve.h"

/* ---- one thread ---- */

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    (void)mutex, (void)attributes;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    (void)cond, (void)attributes;
    return 0;
}

/* Nobody else could end the wait. */
int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    (void)cond, (void)mutex;
    abort();
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    (void)cond, (void)mutex, (void)until;
    return ETIMEDOUT;
}

int pthread_cond_signal(pthread_cond_t *cond)
{
    (void)cond;
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *cond)
{
    (void)cond;
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *cond)
{
    (void)cond;
    return 0;
}

int pthread_condattr_init(pthread_condattr_t *attributes)
{
    (void)attributes;
    return 0;
}

int pthread_condattr_setclock(pthread_condattr_t *attributes, clockid_t clock)
{
    (void)attributes, (void)clock;
    return 0;
}

int pthread_condattr_destroy(pthread_condattr_t *attributes)
{
    (void)attributes;
    return 0;
}

int pthread_once(pthread_once_t *once, void (*fn)(void))
{
    if (*once == 0)
        fn();
    *once = 1;
    return 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *),
                   void *data)
{
    (void)thread, (void)attributes, (void)fn, (void)data;
    return EAGAIN;
}

int pthread_join(pthread_t thread, void **result)
{
    (void)thread, (void)result;
    return EINVAL;
}

int pthread_detach(pthread_t thread)
{
    (void)thread;
    return EINVAL;
}

int pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    (void)before, (void)parent, (void)child;
    return 0;
}

pthread_t pthread_self(void)
{
    return NULL;
}

int pthread_equal(pthread_t one, pthread_t other)
{
    return one == other;
}

int sigfillset(sigset_t *set)
{
    memset(set, 0, sizeof *set);
    return 0;
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    (void)how, (void)set, (void)before;
    return 0;
}

int madvise(void *bytes, size_t n, int advice)
{
    (void)bytes, (void)n, (void)advice;
    return 0;
}

/* ---- processes ---- */

#define CHILD 2

/* What a child does changes nothing in its parent, so a run is the same without one. */
pid_t fork(void)
{
    return CHILD;
}

pid_t waitpid(pid_t pid, int *status, int flags)
{
    (void)flags;
    *status = 0;
    return pid;
}

/* ---- eventfd ---- */

#define FD_FIRST 1000
#define FDS_MAX  4096

static struct {
    bool open, readable;
} fds[FDS_MAX];

static int number_of(int fd)
{
    return fd >= FD_FIRST && fd < FD_FIRST + FDS_MAX && fds[fd - FD_FIRST].open ? fd - FD_FIRST
                                                                                : -1;
}

int eventfd(unsigned value, int flags)
{
    (void)flags;
    for (int i = 0; i < FDS_MAX; i++) {
        if (fds[i].open)
            continue;
        fds[i].open = true;
        fds[i].readable = value > 0;
        return FD_FIRST + i;
    }
    errno = EMFILE;
    return -1;
}

int eventfd_write(int fd, uint64_t value)
{
    int i = number_of(fd);
    if (i < 0)
        return -1;
    fds[i].readable = value > 0;
    return 0;
}

int poll(struct pollfd *polled, nfds_t n, int timeout_ms)
{
    int ready = 0;
    (void)timeout_ms;
    for (nfds_t k = 0; k < n; k++) {
        int i = number_of(polled[k].fd);
        polled[k].revents = i >= 0 && fds[i].readable ? POLLIN : 0;
        ready += polled[k].revents != 0;
    }
    return ready;
}

ssize_t read(int fd, void *bytes, size_t n)
{
    int i = number_of(fd);
    if (i < 0 || n < sizeof(uint64_t) || !fds[i].readable) {
        errno = i < 0 ? EBADF : EAGAIN;
        return -1;
    }
    memset(bytes, 0, n);
    fds[i].readable = false;
    return sizeof(uint64_t);
}

int close(int fd)
{
    int i = number_of(fd);
    if (i >= 0)
        fds[i].open = fds[i].readable = false;
    return 0;
}

/* ---- errors ---- */

/* Errors of the simulator's network and of the engines that wasi-libc describes in other words. */
const char *glibc_strerror(int number)
{
    switch (number) {
    case EHOSTUNREACH:
        return "No route to host";
    case EMFILE:
        return "Too many open files";
    case ENOMEM:
        return "Cannot allocate memory";
    case ETIMEDOUT:
        return "Connection timed out";
    default:
        return (strerror)(number);
    }
}

/* ---- sorting ---- */

/* Equal items keep their order, as in glibc: a run must not differ. */
void qsort_r(void *items, size_t n, size_t size,
             int (*compare)(const void *one, const void *other, void *data), void *data)
{
    char *first = items, *moved = malloc(size);
    if (moved == NULL)
        abort();
    for (size_t i = 1; i < n; i++) {
        size_t to = i;
        while (to > 0 && compare(first + (to - 1) * size, first + i * size, data) > 0)
            to--;
        memcpy(moved, first + i * size, size);
        memmove(first + (to + 1) * size, first + to * size, (i - to) * size);
        memcpy(first + to * size, moved, size);
    }
    free(moved);
}

/* ---- what a page lacks ---- */

/* The doctor would look up addresses; a page examines nothing. */
int resolve_numeric(struct addrinfo **found, const char *host, uint16_t port)
{
    (void)found, (void)host, (void)port;
    return -1;
}

enum stile_status resolve_start(struct resolve **resolve, struct loop *loop, const char *host,
                                uint16_t port, resolve_fn *fn, void *data, struct stile_error *err)
{
    (void)resolve, (void)loop, (void)port, (void)fn, (void)data;
    return error_set(err, STILE_UNSUPPORTED, 0, "%s is not looked up in a page", host);
}

void resolve_free(struct resolve *resolve)
{
    (void)resolve;
}

void resolve_forked(struct resolve *resolve)
{
    (void)resolve;
}

void freeaddrinfo(struct addrinfo *found)
{
    (void)found;
}

/* As in Redis, scripts have neither files nor processes. */
int luaopen_io(lua_State *lua)
{
    (void)lua;
    return 0;
}

int luaopen_os(lua_State *lua)
{
    (void)lua;
    return 0;
}

enum stile_status config_find(struct default_engine *found, struct stile_error *err)
{
    (void)found;
    return error_set(err, STILE_UNSUPPORTED, 0, "there is no default engine in a page");
}

void config_forget(struct default_engine *found)
{
    (void)found;
}

enum stile_status module_load(const struct engine_module **module, const char *name,
                              const char *engine, struct stile_error *err)
{
    (void)module, (void)name;
    return error_set(err, STILE_UNSUPPORTED, 0, "%s is not in this page", engine);
}
