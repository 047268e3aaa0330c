/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which sessions are alive, and a witness that survives the removal of `live`. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/name.h"
#include "engines/local/liveness.h"

static int byte_lock(int fd, int command, struct flock *lock)
{
    int rc;
    do
        rc = fcntl(fd, command, lock);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return 0;
    return errno == EACCES ? EAGAIN : errno;
}

static struct flock one_byte(short type, uint64_t byte)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

int local_liveness_lock(int fd, uint64_t byte, bool exclusive)
{
    struct flock lock = one_byte(exclusive ? F_WRLCK : F_RDLCK, byte);
    return byte_lock(fd, F_OFD_SETLK, &lock);
}

int local_liveness_unlock(int fd, uint64_t byte)
{
    struct flock lock = one_byte(F_UNLCK, byte);
    return byte_lock(fd, F_OFD_SETLK, &lock);
}

bool local_liveness_is_locked(int fd, uint64_t byte)
{
    struct flock lock = one_byte(F_WRLCK, byte);
    return byte_lock(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool local_liveness_is_alive(int fd, uint64_t id)
{
    struct flock lock = one_byte(F_WRLCK, LIVE_IDS + (id & LIVE_ID_MASK));
    if (byte_lock(fd, F_OFD_GETLK, &lock) != 0)
        return true;
    return lock.l_type != F_UNLCK;
}

/* ---- the witness ---- */

#define NAME_MAX_BYTES      80
#define LINE_BYTES          512
#define ACCEPTS_CONNECTIONS 0x10000u /* the kernel's __SO_ACCEPTCON */
#define BACKLOG             1024     /* each check by a newcomer takes one place */

/* ---- names ---- */

/* Names the directory by its place, not its inode: a directory made again in the same place gets
 * the same name. The parent's inode is unique, whatever is mounted where. False: the place is
 * unknown. */
static bool place_name(char name[NAME_MAX_BYTES], const struct dir *dir)
{
    struct stat parent;
    char link[64], path[DIR_PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir->fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || fstatat(dir->fd, "..", &parent, 0) != 0)
        return false;
    snprintf(name, NAME_MAX_BYTES, "stile-local/%jx-%jx-%016" PRIx64 "/", (uintmax_t)parent.st_dev,
             (uintmax_t)parent.st_ino, (uint64_t)name_hash(slash + 1, strlen(slash + 1)));
    return true;
}

/* An abstract address: a NUL first, and only as long as its name. */
static socklen_t abstract(struct sockaddr_un *address, const char *name)
{
    size_t len = strnlen(name, sizeof address->sun_path - 1);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

int local_witness_make(const struct dir *dir, uint32_t epoch, uint64_t id)
{
    struct sockaddr_un address;
    char place[NAME_MAX_BYTES], name[NAME_MAX_BYTES + 32];
    if (!place_name(place, dir))
        return -1;
    snprintf(name, sizeof name, "%s%" PRIx32 "/%" PRIx64, place, epoch, id);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t len = abstract(&address, name);
    if (fd < 0 || (bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, BACKLOG) == 0))
        return fd;
    close(fd);
    return -1;
}

/* ---- finding the witnesses of others ---- */

/* Any user can bind such a name, so the owner of the socket is checked. 0: not a trusted one. */
static int trusted_pid(const struct dir *dir, const char *name)
{
    struct sockaddr_un address;
    struct ucred peer;
    socklen_t size = sizeof peer, len = abstract(&address, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), pid = 0;
    if (fd < 0)
        return 0;
    if (connect(fd, (struct sockaddr *)&address, len) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0 || dir->shared))
        pid = peer.pid ? peer.pid : -1;
    close(fd);
    return pid;
}

static bool add_witness(struct witness *witness, const struct dir *dir, const char *name,
                        size_t place_len)
{
    int pid = trusted_pid(dir, name);
    if (!pid)
        return false;
    uint32_t epoch = (uint32_t)strtoul(name + place_len, NULL, 16);
    if (epoch > witness->epoch)
        witness->epoch = epoch;
    witness->pid = pid;
    return true;
}

/* Fields: address, references, protocol, flags, ..., name. Connections that wait to be accepted are
 * listed under the same name, without the flag. */
static bool is_listening(const char *line)
{
    unsigned flags;
    return sscanf(line, "%*s %*s %*s %x", &flags) == 1 && flags & ACCEPTS_CONNECTIONS;
}

bool local_witness_find(struct witness *witness, const struct dir *dir)
{
    char place[NAME_MAX_BYTES], line[LINE_BYTES];
    bool found = false;
    FILE *list = place_name(place, dir) ? fopen("/proc/net/unix", "re") : NULL;
    if (!list)
        return false;
    witness->pid = 0;
    while (fgets(line, sizeof line, list)) {
        char *name = strchr(line, '@');
        line[strcspn(line, "\n")] = '\0';
        if (name && is_listening(line) && strncmp(name + 1, place, strlen(place)) == 0)
            found |= add_witness(witness, dir, name + 1, strlen(place));
    }
    fclose(list);
    return found;
}
