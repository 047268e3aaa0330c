/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/file_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct calls calls;

/* Each is declared as __real_NAME and __wrap_NAME. The names with 64 are those the C library has
 * for files of any size. */
#define WRAPPED(X)                                                                                 \
    X(int, open64, (const char *path, int flags, ...))                                             \
    X(int, openat64, (int dir, const char *path, int flags, ...))                                  \
    X(int, fcntl64, (int fd, int command, ...))                                                    \
    X(int, fstat64, (int fd, struct stat *stat))                                                   \
    X(int, fstatat64, (int dir, const char *path, struct stat *stat, int flags))                   \
    X(ssize_t, read, (int fd, void *to, size_t n))                                                 \
    X(ssize_t, write, (int fd, const void *from, size_t n))                                        \
    X(ssize_t, pread64, (int fd, void *to, size_t n, off_t at))                                    \
    X(ssize_t, pwrite64, (int fd, const void *from, size_t n, off_t at))                           \
    X(int, fsync, (int fd))                                                                        \
    X(int, fdatasync, (int fd))                                                                    \
    X(int, linkat, (int from, const char *old, int to, const char *new, int flags))                \
    X(int, renameat, (int from, const char *old, int to, const char *new))                         \
    X(int, unlinkat, (int dir, const char *path, int flags))                                       \
    X(int, fchmod, (int fd, mode_t mode))                                                          \
    X(int, fchown, (int fd, uid_t uid, gid_t gid))                                                 \
    X(int, close, (int fd))

#define DECLARE(type, name, arguments)                                                             \
    type __real_##name arguments;                                                                  \
    type __wrap_##name arguments;
WRAPPED(DECLARE)

void calls_begin(enum calls_end end, unsigned at, int error)
{
    calls.armed = true;
    calls.end = end;
    calls.at = at;
    calls.error = error;
    calls.seen = 0;
}

void calls_finish(void)
{
    calls.armed = false;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    abort();
}

/* This call is the one. */
static bool is_it(void)
{
    return calls.armed && calls.seen - 1 == calls.at;
}

static bool refuse(bool half_done)
{
    if (!calls.armed)
        return false;
    calls.seen++;
    if (calls.seen - 1 < calls.at || (calls.seen - 1 > calls.at && calls.end != CALLS_FAIL_ON))
        return false;
    if (calls.end == CALLS_KILL || (calls.end == CALLS_KILL_HALF && !half_done))
        die();
    if (calls.end == CALLS_LEAVE) {
        calls.armed = false;
        longjmp(calls.away, 1);
    }
    errno = calls.error;
    return calls.end == CALLS_FAIL || calls.end == CALLS_FAIL_ON;
}

/* Observers make calls of their own. */
static void report(void (*hook)(int fd), int fd)
{
    bool armed = calls.armed;
    int error = errno;
    if (armed && calls.end == CALLS_KILL_LATE && is_it())
        die();
    calls.armed = false;
    if (armed && hook)
        hook(fd);
    if (armed && calls.changed)
        calls.changed();
    calls.armed = armed;
    errno = error;
}

static mode_t mode_from(int flags, va_list args)
{
    return flags & O_CREAT ? va_arg(args, mode_t) : 0;
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_from(flags, args);
    va_end(args);
    return refuse(false) ? -1 : __real_open64(path, flags, mode);
}

int __wrap_openat64(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_from(flags, args);
    va_end(args);
    if (refuse(false))
        return -1;
    int fd = __real_openat64(dir, path, flags, mode);
    report(fd >= 0 && flags & O_CREAT ? calls.created : NULL, fd);
    return fd;
}

int __wrap_fcntl64(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return refuse(false) ? -1 : __real_fcntl64(fd, command, argument);
}

int __wrap_fstat64(int fd, struct stat *stat)
{
    return refuse(false) ? -1 : __real_fstat64(fd, stat);
}

int __wrap_fstatat64(int dir, const char *path, struct stat *stat, int flags)
{
    return refuse(false) ? -1 : __real_fstatat64(dir, path, stat, flags);
}

ssize_t __wrap_read(int fd, void *to, size_t n)
{
    return refuse(false) ? -1 : __real_read(fd, to, n);
}

ssize_t __wrap_pread64(int fd, void *to, size_t n, off_t at)
{
    return refuse(false) ? -1 : __real_pread64(fd, to, n, at);
}

ssize_t __wrap_write(int fd, const void *from, size_t n)
{
    if (refuse(true))
        return -1;
    bool half = calls.end == CALLS_KILL_HALF && is_it();
    ssize_t done = __real_write(fd, from, half ? n / 2 : n);
    if (half)
        die();
    report(calls.written, fd);
    return done;
}

ssize_t __wrap_pwrite64(int fd, const void *from, size_t n, off_t at)
{
    if (refuse(true))
        return -1;
    bool half = calls.end == CALLS_KILL_HALF && is_it();
    ssize_t done = __real_pwrite64(fd, from, half ? n / 2 : n, at);
    if (half)
        die();
    report(calls.written, fd);
    return done;
}

int __wrap_fsync(int fd)
{
    int rc = refuse(false) ? -1 : __real_fsync(fd);
    report(rc == 0 ? calls.synced : calls.not_synced, fd);
    return rc;
}

int __wrap_fdatasync(int fd)
{
    int rc = refuse(false) ? -1 : __real_fdatasync(fd);
    report(rc == 0 ? calls.synced : calls.not_synced, fd);
    return rc;
}

int __wrap_linkat(int from, const char *old, int to, const char *new, int flags)
{
    int rc = refuse(false) ? -1 : __real_linkat(from, old, to, new, flags);
    report(NULL, -1);
    return rc;
}

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
    int rc = refuse(false) ? -1 : __real_renameat(from, old, to, new);
    report(NULL, -1);
    return rc;
}

int __wrap_unlinkat(int dir, const char *path, int flags)
{
    int rc = refuse(false) ? -1 : __real_unlinkat(dir, path, flags);
    report(NULL, -1);
    return rc;
}

int __wrap_fchmod(int fd, mode_t mode)
{
    return refuse(false) ? -1 : __real_fchmod(fd, mode);
}

int __wrap_fchown(int fd, uid_t uid, gid_t gid)
{
    return refuse(false) ? -1 : __real_fchown(fd, uid, gid);
}

/* A close that reports an error has closed all the same. */
int __wrap_close(int fd)
{
    bool refused = refuse(false);
    int rc = __real_close(fd);
    return refused ? -1 : rc;
}
