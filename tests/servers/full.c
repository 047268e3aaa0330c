/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a server, it gives it a disk that a test can fill at any moment: while the file
 * that $STILE_TEST_FULL names exists, no file grows. */
#undef _FILE_OFFSET_BITS /* it would give two of these functions one name */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int is_full(void)
{
    const char *path = getenv("STILE_TEST_FULL");
    return path && access(path, F_OK) == 0;
}

/* Pipes and sockets have no size, and no disk. */
static int would_grow(int fd, off_t end)
{
    struct stat now;
    int before = errno;
    int grows = fstat(fd, &now) == 0 && S_ISREG(now.st_mode) && end > now.st_size && is_full();
    errno = before;
    return grows;
}

static int refuse(void)
{
    errno = ENOSPC;
    return -1;
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return would_grow(fd, at + (off_t)n) ? refuse() : syscall(SYS_pwrite64, fd, data, n, at);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return pwrite(fd, data, n, at);
}

EXPORT ssize_t write(int fd, const void *data, size_t n)
{
    off_t at = fd > 2 ? lseek(fd, 0, SEEK_CUR) : -1;
    return at >= 0 && would_grow(fd, at + (off_t)n) ? refuse() : syscall(SYS_write, fd, data, n);
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t n)
{
    return would_grow(fd, at + n) ? refuse() : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

EXPORT int fallocate64(int fd, int mode, off_t at, off_t n)
{
    return fallocate(fd, mode, at, n);
}

EXPORT int posix_fallocate(int fd, off_t at, off_t n)
{
    return fallocate(fd, 0, at, n) ? errno : 0;
}

EXPORT int posix_fallocate64(int fd, off_t at, off_t n)
{
    return posix_fallocate(fd, at, n);
}

EXPORT int ftruncate(int fd, off_t n)
{
    return would_grow(fd, n) ? refuse() : (int)syscall(SYS_ftruncate, fd, n);
}

EXPORT int ftruncate64(int fd, off_t n)
{
    return ftruncate(fd, n);
}
