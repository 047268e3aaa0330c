/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* In place of scarcity.c: system calls are refused, not memory. The functions here come before
 * those of the C library, for this program and for the libraries that it loads. What cannot fail
 * with the arguments it gets is left alone: clocks, the timer and the counter of a loop, signals,
 * positions in a file, munmap().
 *
 * Each place that makes a call is refused with each of its errors, one a time, and once at least in
 * each scene: what `at` counts is passed over. With STILE_SOAK every call is refused in turn. */
#include "support/scarcity.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PLACES_MAX 1024
#define SHORT      (-1) /* not an error: one byte goes through */

struct scarcity scarcity;
_Atomic long scarcity_outstanding; /* descriptors */
const bool scarcity_of_memory = false;

static struct place {
    const void *from;
    unsigned refused;      /* how many of its errors have been used */
    bool refused_in_scene; /* in this one */
} places[PLACES_MAX];
static size_t n_places;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static long count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    long n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* Functions that are hidden would be the program's own, and its libraries would be refused
 * nothing. */
__attribute__((constructor)) static void begin(void)
{
    void *found = dlsym(RTLD_DEFAULT, "recv");
    if (found != (void *)recv)
        abort();
    scarcity_outstanding = count_descriptors();
}

void scarcity_begin(unsigned at, bool and_all_that_follow)
{
    scarcity = (struct scarcity){.at = at, .and_all_that_follow = and_all_that_follow};
    for (size_t i = 0; at == 0 && i < n_places; i++)
        places[i].refused_in_scene = false; /* another one */
    scarcity.armed = true;
}

void scarcity_end(void)
{
    scarcity.armed = false;
    scarcity_outstanding = count_descriptors();
}

static struct place *place_of(const void *from)
{
    size_t i = 0;
    while (i < n_places && places[i].from != from)
        i++;
    if (i == PLACES_MAX)
        return NULL;
    if (i == n_places)
        places[n_places++] = (struct place){.from = from};
    return &places[i];
}

/* 0: no error of this place is left. */
static int next_error(struct place *place, const int *errors, unsigned n)
{
    if (place->refused == n && place->refused_in_scene)
        return 0;
    place->refused_in_scene = true;
    return errors[place->refused < n ? place->refused++ : scarcity.at % n];
}

static int choose(const char *name, const int *errors, const void *from)
{
    unsigned now = scarcity.seen++, n = 0;
    while (errors[n])
        n++;
    struct place *place = place_of(from);
    int error = 0;
    if (place && !scarcity.failed && getenv("STILE_SOAK"))
        error = now == scarcity.at ? errors[now % n] : 0;
    else if (place && !scarcity.failed)
        error = next_error(place, errors, n);
    if (!error)
        return 0;
    scarcity.failed++;
    if (getenv("STILE_VERBOSE"))
        fprintf(stderr, "# %u: %s from %p: %s\n", scarcity.at, name, from,
                error == SHORT ? "one byte" : strerror(error));
    return error;
}

/* 0, or what the call fails with. */
static int refused(const char *name, const int *errors, const void *from)
{
    int error = 0, saved = errno;
    pthread_mutex_lock(&mutex);
    if (scarcity.armed)
        error = choose(name, errors, from);
    pthread_mutex_unlock(&mutex);
    errno = saved;
    return error;
}

#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (!real)                                                                                     \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define REFUSED(name, ...)                                                                         \
    refused(#name, (const int[]){__VA_ARGS__, 0}, __builtin_return_address(0))

/* The call, its arguments, and with what it may fail. */
#define REFUSABLE(type, name, params, args, ...)                                                   \
    type name params                                                                               \
    {                                                                                              \
        REAL(name);                                                                                \
        int error = REFUSED(name, __VA_ARGS__);                                                    \
        if (error) {                                                                               \
            errno = error;                                                                         \
            return (type)-1;                                                                       \
        }                                                                                          \
        return real args;                                                                          \
    }

/* The same, where fewer bytes than asked for may go through. */
#define REFUSABLE_IN_PART(name, params, n, args, ...)                                              \
    ssize_t name params                                                                            \
    {                                                                                              \
        REAL(name);                                                                                \
        int error = REFUSED(name, __VA_ARGS__);                                                    \
        if (error > 0) {                                                                           \
            errno = error;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        if (error == SHORT && n > 1)                                                               \
            n = 1;                                                                                 \
        return real args;                                                                          \
    }

#pragma GCC visibility push(default)

/* ---- sockets ---- */

REFUSABLE(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE,
          ENOBUFS)
REFUSABLE(int, connect, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len),
          ECONNREFUSED, ENETUNREACH, EINTR)
REFUSABLE(int, bind, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len), EADDRINUSE)
REFUSABLE(int, listen, (int fd, int n), (fd, n), EADDRINUSE)
REFUSABLE(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len),
          (fd, level, name, value, len), ENOBUFS)
REFUSABLE(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len),
          (fd, level, name, value, len), ENOBUFS)
REFUSABLE(int, getsockname, (int fd, struct sockaddr *name, socklen_t *len), (fd, name, len),
          ENOBUFS)
REFUSABLE(int, getpeername, (int fd, struct sockaddr *name, socklen_t *len), (fd, name, len),
          ENOTCONN)
REFUSABLE(int, socketpair, (int domain, int type, int protocol, int fds[2]),
          (domain, type, protocol, fds), EMFILE)
REFUSABLE(int, shutdown, (int fd, int how), (fd, how), ENOTCONN)
REFUSABLE_IN_PART(recv, (int fd, void *bytes, size_t n, int flags), n, (fd, bytes, n, flags),
                  ECONNRESET, EINTR, EAGAIN, SHORT)
/* A connection that is broken for sending ends for reading as well. */
ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
    REAL(send);
    int error = REFUSED(send, EPIPE, ENOBUFS, EINTR, EAGAIN, SHORT);
    if (error == EPIPE)
        shutdown(fd, SHUT_RDWR);
    if (error > 0) {
        errno = error;
        return -1;
    }
    return real(fd, bytes, error == SHORT && n > 1 ? 1 : n, flags);
}

REFUSABLE_IN_PART(sendto,
                  (int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to,
                   socklen_t len),
                  n, (fd, bytes, n, flags, to, len), ENOBUFS, EINTR, EAGAIN)
REFUSABLE(int, recvmmsg,
          (int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout),
          (fd, messages, n, flags, timeout), EINTR, EAGAIN)

/* Not errors of errno, except of EAI_SYSTEM. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    REAL(getaddrinfo);
    static const int errors[] = {0, EAI_AGAIN, EAI_MEMORY, EAI_SYSTEM};
    int error = REFUSED(getaddrinfo, 1, 2, 3);
    if (errors[error] == EAI_SYSTEM)
        errno = EMFILE;
    return error ? errors[error] : real(host, port, hints, found);
}

int getnameinfo(const struct sockaddr *address, socklen_t len, char *host, socklen_t host_size,
                char *port, socklen_t port_size, int flags)
{
    REAL(getnameinfo);
    int error = REFUSED(getnameinfo, ENOMEM);
    return error ? EAI_MEMORY : real(address, len, host, host_size, port, port_size, flags);
}

/* ---- the loop ---- */

REFUSABLE(int, epoll_create1, (int flags), (flags), EMFILE, ENOMEM)
REFUSABLE(int, epoll_ctl, (int epoll, int op, int fd, struct epoll_event *event),
          (epoll, op, fd, event), ENOSPC, ENOMEM)
REFUSABLE(int, epoll_wait, (int fd, struct epoll_event *events, int n, int timeout),
          (fd, events, n, timeout), EINTR)
REFUSABLE(int, eventfd, (unsigned count, int flags), (count, flags), EMFILE)
REFUSABLE(int, timerfd_create, (clockid_t clock, int flags), (clock, flags), EMFILE)
REFUSABLE(ssize_t, getrandom, (void *bytes, size_t n, unsigned flags), (bytes, n, flags), ENOSYS)
REFUSABLE(int, inotify_init1, (int flags), (flags), EMFILE)
REFUSABLE(int, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask),
          ENOSPC)
REFUSABLE(int, inotify_rm_watch, (int fd, int id), (fd, id), EINVAL)

REFUSABLE(int, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout), EINTR, ENOMEM)
REFUSABLE(int, nanosleep, (const struct timespec *pause, struct timespec *left), (pause, left),
          EINTR)

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *data)
{
    REAL(pthread_create);
    int error = REFUSED(pthread_create, EAGAIN);
    return error ? error : real(thread, attr, fn, data);
}

/* pthread_atfork() to its callers. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso)
{
    REAL(__register_atfork);
    int error = REFUSED(pthread_atfork, ENOMEM);
    return error ? error : real(prepare, parent, child, dso);
}

/* Only what waits: a futex. */
long syscall(long number, ...)
{
    long args[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        args[i] = va_arg(rest, long);
    va_end(rest);
    REAL(syscall);
    int error = number == SYS_futex ? REFUSED(syscall, EINTR, EAGAIN) : 0;
    if (error) {
        errno = error;
        return -1;
    }
    return real(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

/* ---- files ---- */

REFUSABLE_IN_PART(read, (int fd, void *bytes, size_t n), n, (fd, bytes, n), EIO, EINTR, SHORT)
REFUSABLE_IN_PART(write, (int fd, const void *bytes, size_t n), n, (fd, bytes, n), EIO, EINTR,
                  SHORT)
REFUSABLE(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n), EIO, ENOSPC)
REFUSABLE_IN_PART(pread64, (int fd, void *bytes, size_t n, off64_t at), n, (fd, bytes, n, at), EIO,
                  EINTR)
REFUSABLE_IN_PART(pwrite64, (int fd, const void *bytes, size_t n, off64_t at), n,
                  (fd, bytes, n, at), EIO, ENOSPC, EINTR)
REFUSABLE(int, fstat64, (int fd, struct stat64 *out), (fd, out), ENOMEM)
REFUSABLE(int, statx, (int fd, const char *path, int flags, unsigned mask, struct statx *out),
          (fd, path, flags, mask, out), ENOMEM)
REFUSABLE(int, fstatat64, (int fd, const char *path, struct stat64 *out, int flags),
          (fd, path, out, flags), ENOMEM)
REFUSABLE(int, ftruncate64, (int fd, off64_t n), (fd, n), ENOSPC)
REFUSABLE(int, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n), ENOSPC,
          EOPNOTSUPP)
REFUSABLE(int, fsync, (int fd), (fd), EIO)
REFUSABLE(int, fdatasync, (int fd), (fd), EIO)
REFUSABLE(int, linkat, (int from, const char *a, int to, const char *b, int flags),
          (from, a, to, b, flags), ENOSPC)
REFUSABLE(int, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b), EIO)
REFUSABLE(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags), EIO)
REFUSABLE(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode), ENOSPC)
REFUSABLE(int, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC)
REFUSABLE(int, renameat2, (int from, const char *a, int to, const char *b, unsigned flags),
          (from, a, to, b, flags), EIO, EINVAL)
REFUSABLE(int, fchownat, (int fd, const char *path, uid_t user, gid_t group, int flags),
          (fd, path, user, group, flags), EPERM)
REFUSABLE(int, fchmodat, (int fd, const char *path, mode_t mode, int flags),
          (fd, path, mode, flags), EPERM)
REFUSABLE(int, stat64, (const char *path, struct stat64 *out), (path, out), ENOMEM)
REFUSABLE(int, lstat64, (const char *path, struct stat64 *out), (path, out), ENOMEM)
REFUSABLE(int, fstatfs64, (int fd, struct statfs64 *out), (fd, out), ENOMEM)
REFUSABLE(int, access, (const char *path, int mode), (path, mode), ENOMEM)
REFUSABLE(ssize_t, readlink, (const char *path, char *out, size_t n), (path, out, n), ENOMEM)
REFUSABLE(int, getrlimit64, (__rlimit_resource_t which, struct rlimit64 *out), (which, out), EPERM)
REFUSABLE(int, dup, (int fd), (fd), EMFILE)
REFUSABLE(int, madvise, (void *at, size_t n, int advice), (at, n, advice), EINVAL, ENOMEM)
REFUSABLE(void *, mmap64, (void *at, size_t n, int prot, int flags, int fd, off64_t from),
          (at, n, prot, flags, fd, from), ENOMEM)

/* It is closed all the same. */
int close(int fd)
{
    REAL(close);
    int error = REFUSED(close, EIO, EINTR), rc = real(fd);
    if (error)
        errno = error;
    return error ? -1 : rc;
}

#define REFUSABLE_POINTER(type, name, params, args, ...)                                           \
    type *name params                                                                              \
    {                                                                                              \
        REAL(name);                                                                                \
        int error = REFUSED(name, __VA_ARGS__);                                                    \
        if (error)                                                                                 \
            errno = error;                                                                         \
        return error ? NULL : real args;                                                           \
    }

REFUSABLE_POINTER(FILE, fopen64, (const char *path, const char *mode), (path, mode), EMFILE)
REFUSABLE_POINTER(FILE, fdopen, (int fd, const char *mode), (fd, mode), ENOMEM)
REFUSABLE_POINTER(DIR, opendir, (const char *path), (path), EMFILE)
REFUSABLE_POINTER(DIR, fdopendir, (int fd), (fd), ENOMEM)
REFUSABLE_POINTER(struct dirent64, readdir64, (DIR * dir), (dir), EIO)

int getpwuid_r(uid_t uid, struct passwd *user, char *space, size_t n, struct passwd **found)
{
    REAL(getpwuid_r);
    int error = REFUSED(getpwuid_r, EMFILE);
    *found = NULL;
    return error ? error : real(uid, user, space, n, found);
}

/* Locks and duplicates. What reads and sets flags cannot fail on a descriptor that is open. */
#define FCNTL(name)                                                                                \
    int name(int fd, int command, ...)                                                             \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, command);                                                                   \
        void *value = va_arg(rest, void *);                                                        \
        va_end(rest);                                                                              \
        REAL(name);                                                                                \
        bool locks = command == F_OFD_SETLK || command == F_OFD_SETLKW ||                          \
                     command == F_OFD_GETLK || command == F_SETLK || command == F_SETLKW;          \
        int error = locks                        ? REFUSED(name, ENOLCK, EINTR)                    \
                    : command == F_DUPFD_CLOEXEC ? REFUSED(name, EMFILE)                           \
                                                 : 0;                                              \
        if (error) {                                                                               \
            errno = error;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        return real(fd, command, value);                                                           \
    }

FCNTL(fcntl) /* fcntl64() to the linker, as in all programs with large files */

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *value = va_arg(rest, void *);
    va_end(rest);
    REAL(ioctl);
    int error = REFUSED(ioctl, ENOTTY, EPERM);
    if (error) {
        errno = error;
        return -1;
    }
    return real(fd, request, value);
}

#define REFUSABLE_OPEN(name, params, args)                                                         \
    int name params                                                                                \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                  \
        va_end(rest);                                                                              \
        REAL(name);                                                                                \
        int error = REFUSED(name, EMFILE, EIO);                                                    \
        if (error) {                                                                               \
            errno = error;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        return real args;                                                                          \
    }

REFUSABLE_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
REFUSABLE_OPEN(openat64, (int fd, const char *path, int flags, ...), (fd, path, flags, mode))

/* ---- the same for libraries without large files ---- */

#define ALSO(plain, name)                                                                          \
    __asm__(".globl " #plain "\n.type " #plain ", @function\n.set " #plain ", " #name)

#if __WORDSIZE == 64
ALSO(fcntl, fcntl64);
ALSO(fopen, fopen64);
ALSO(fstat, fstat64);
ALSO(fstatfs, fstatfs64);
ALSO(ftruncate, ftruncate64);
ALSO(lstat, lstat64);
ALSO(mmap, mmap64);
ALSO(open, open64);
ALSO(pread, pread64);
ALSO(pwrite, pwrite64);
ALSO(stat, stat64);
#endif
