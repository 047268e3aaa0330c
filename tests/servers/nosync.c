/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a server, it keeps the server from waiting for the disk. What the server has
 * written survives the death of its process, and no test crashes the machine. */
#undef _FILE_OFFSET_BITS /* it would give sync_file_range() another name */
#include <fcntl.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int fsync(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

EXPORT int fdatasync(int fd)
{
    return fsync(fd);
}

EXPORT int sync_file_range(int fd, off_t at, off_t n, unsigned flags)
{
    (void)at, (void)n, (void)flags;
    return fsync(fd);
}
