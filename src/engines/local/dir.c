/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "engines/local/liveness.h"

/* Not in linux/magic.h. */
#define CIFS_MAGIC   0xff534d42
#define LUSTRE_MAGIC 0x0bd00bd0
#define GFS2_MAGIC   0x01161970
#define GPFS_MAGIC   0x47504653
#define BEEGFS_MAGIC 0x19830326

bool local_dir_is_network(uint64_t filesystem)
{
    static const uint32_t networks[] = {
        NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_MAGIC,       V9FS_MAGIC,
        AFS_SUPER_MAGIC, AFS_FS_MAGIC,    CEPH_SUPER_MAGIC, CODA_SUPER_MAGIC, OCFS2_SUPER_MAGIC,
        NCP_SUPER_MAGIC, LUSTRE_MAGIC,    GFS2_MAGIC,       GPFS_MAGIC,       BEEGFS_MAGIC,
    };
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if ((uint32_t)filesystem == networks[i])
            return true;
    return false;
}

enum stile_status local_dir_status(int number)
{
    switch (number) {
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
    case ENOTDIR:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return STILE_REFUSED;
    default:
        return STILE_UNREACHABLE;
    }
}

/* ---- where it is ---- */

/* From the user database alone: HOME and XDG_STATE_HOME differ between a login, cron and a service
 * of the same user, and these would not exclude each other. "" if there is none. */
static void home(char out[DIR_PATH_MAX])
{
    struct passwd user, *found = NULL;
    char space[DIR_PATH_MAX];
    out[0] = '\0';
    if (getpwuid_r(geteuid(), &user, space, sizeof space, &found) != 0 || !found)
        return;
    if (user.pw_dir[0] == '/' && user.pw_dir[1] != '\0')
        snprintf(out, DIR_PATH_MAX, "%s", user.pw_dir);
}

enum stile_status local_dir_default(char path[DIR_PATH_MAX], struct stile_error *err)
{
    char user[DIR_PATH_MAX];
    int n;

    home(user);
    if (geteuid() == 0)
        n = snprintf(path, DIR_PATH_MAX, "/var/lib/stile");
    else if (user[0])
        n = snprintf(path, DIR_PATH_MAX, "%s/.local/state/stile", user);
    else
        return error_set(err, STILE_REFUSED, 0,
                         "user %u has no home directory in the user database: name a directory as "
                         "local:/path",
                         (unsigned)geteuid());
    if (n >= DIR_PATH_MAX)
        return error_set(err, STILE_REFUSED, ENAMETOOLONG,
                         "the state directory's path is too long");
    return STILE_OK;
}

/* ---- where it used to be ---- */

static bool is_in_use(const char *path)
{
    char live[DIR_PATH_MAX + 8];
    snprintf(live, sizeof live, "%s/live", path);
    int fd = open(live, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    bool used = local_liveness_is_locked(fd, LIVE_IN_USE);
    close(fd);
    return used;
}

/* Earlier versions took the directory from the environment. A process that still holds a lock there
 * and this one would not exclude each other. */
static enum stile_status check_earlier(const char *base, const char *rest, const char *path,
                                       struct stile_error *err)
{
    char earlier[DIR_PATH_MAX];
    if (!base || base[0] != '/' ||
        snprintf(earlier, sizeof earlier, "%s%s", base, rest) >= (int)sizeof earlier ||
        strcmp(earlier, path) == 0 || !is_in_use(earlier))
        return STILE_OK;
    return error_set(err, STILE_REFUSED, 0,
                     "the default directory is now %s, but %s, which an earlier version took from "
                     "the environment, is in use: wait until its users have ended, or name one of "
                     "the two as local:/path everywhere",
                     path, earlier);
}

static enum stile_status find_default(char path[DIR_PATH_MAX], struct stile_error *err)
{
    enum stile_status status = local_dir_default(path, err);
    if (!status && geteuid() != 0)
        status = check_earlier(secure_getenv("XDG_STATE_HOME"), "/stile", path, err);
    if (!status && geteuid() != 0)
        status = check_earlier(secure_getenv("HOME"), "/.local/state/stile", path, err);
    return status;
}

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

/* ---- opening it ---- */

static enum stile_status check_owner(const struct stat *st, const char *path,
                                     struct stile_error *err)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return error_set(
            err, STILE_REFUSED, 0,
            "%s belongs to user %u and could change at any time; it must be yours or root's", path,
            (unsigned)st->st_uid);
    if (st->st_mode & S_IWOTH)
        return error_set(err, STILE_REFUSED, 0,
                         "all users can write to %s: chmod o-w, or use another directory", path);
    return STILE_OK;
}

/* Fields of a line: id, parent, major:minor, ..., "-", type. */
void local_dir_mount_type(char type[DIR_TYPE_MAX], FILE *mountinfo, dev_t device)
{
    char *line = NULL;
    size_t size = 0;
    unsigned ids[2];
    type[0] = '\0';
    while (!type[0] && getline(&line, &size, mountinfo) > 0) {
        const char *rest = strstr(line, " - ");
        if (rest && sscanf(line, "%*u %*u %u:%u", &ids[0], &ids[1]) == 2 &&
            makedev(ids[0], ids[1]) == device)
            snprintf(type, DIR_TYPE_MAX, "%.*s", (int)strcspn(rest + 3, " "), rest + 3);
    }
    free(line);
}

bool local_dir_is_local_fuse(const char *type)
{
    return strcmp(type, "fuseblk") == 0 || strcmp(type, "fuse.fuse-overlayfs") == 0;
}

/* sshfs, virtiofs, gluster and others differ only in the type they are mounted with. */
static enum stile_status check_fuse(int fd, const char *path, struct stile_error *err)
{
    struct stat st;
    char type[DIR_TYPE_MAX] = "";
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (mounts && fstat(fd, &st) == 0)
        local_dir_mount_type(type, mounts, st.st_dev);
    if (mounts)
        fclose(mounts);
    if (local_dir_is_local_fuse(type))
        return STILE_OK;
    return error_set(err, STILE_REFUSED, 0,
                     "%s is on FUSE (%s), which may be shared between machines that do not see "
                     "each other's locks: use a local directory, a network engine, or, if only "
                     "this machine uses it, local:%s?allow=fuse",
                     path, type[0] ? type : "of unknown type", path);
}

static enum stile_status check_filesystem(int fd, const char *path, bool allow_fuse,
                                          struct stile_error *err)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return error_errno(err, STILE_UNREACHABLE, errno, "%s", path);
    if ((uint32_t)fs.f_type == FUSE_SUPER_MAGIC)
        return allow_fuse ? STILE_OK : check_fuse(fd, path, err);
    if (local_dir_is_network((uint64_t)fs.f_type))
        return error_set(err, STILE_REFUSED, 0,
                         "%s is on a network file system, where other machines do not see the "
                         "locks of this one: use a local directory, or a network engine",
                         path);
    return STILE_OK;
}

static enum stile_status inspect(struct dir *dir, const char *path, bool allow_fuse,
                                 struct stile_error *err)
{
    struct stat st;
    if (fstat(dir->fd, &st) != 0)
        return error_errno(err, STILE_UNREACHABLE, errno, "%s", path);
    enum stile_status status = check_owner(&st, path, err);
    if (status)
        return status;
    dir->shared = st.st_mode & S_IWGRP;
    dir->uid = st.st_uid;
    dir->gid = st.st_gid;
    dir->dev = st.st_dev;
    dir->ino = st.st_ino;
    return check_filesystem(dir->fd, path, allow_fuse, err);
}

static enum stile_status cannot_open(const char *path, struct stile_error *err)
{
    if (errno == ELOOP || errno == ENOTDIR)
        return error_set(err, STILE_REFUSED, errno,
                         "%s is not a directory (symbolic links are not followed)", path);
    return error_errno(err, local_dir_status(errno), errno, "%s", path);
}

enum stile_status local_dir_open(struct dir *dir, const char *name, bool allow_fuse,
                                 struct stile_error *err)
{
    char path[DIR_PATH_MAX];
    enum stile_status status = STILE_OK;

    *dir = (struct dir){.fd = -1, .sockets_fd = -1};
    if (name[0] == '\0')
        status = find_default(path, err);
    else if (snprintf(path, sizeof path, "%s", name) >= (int)sizeof path)
        status = error_set(err, STILE_REFUSED, ENAMETOOLONG, "the directory's path is too long");
    if (status)
        return status;
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    if (name[0] == '\0')
        make_parents(path);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return cannot_open(path, err);
    dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir->fd < 0)
        return cannot_open(path, err);
    status = inspect(dir, path, allow_fuse, err);
    dir->path = status ? NULL : strdup(path);
    if (!status && !dir->path)
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    if (status)
        local_dir_close(dir);
    return status;
}

void local_dir_close(struct dir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    if (dir->sockets_fd >= 0)
        close(dir->sockets_fd);
    dir->fd = dir->sockets_fd = -1;
    free(dir->path);
    dir->path = NULL;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The kernel could not look, which says nothing about what is there. */
static bool is_unknown(int rc)
{
    return rc != 0 && (errno == ENOMEM || errno == EIO || errno == EINTR);
}

/* Not by fstat(2): once it has told a file's times, Linux from 6.13 on gives each write a time of
 * its own, and without a journal that is one more block for the next sync. */
bool local_dir_has(const struct dir *dir, const char *name, int fd)
{
    struct statx named, open;
    int rc = statx(dir->fd, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &named);
    if (rc == 0)
        rc = statx(fd, "", AT_EMPTY_PATH, STATX_INO, &open);
    if (rc != 0)
        return is_unknown(rc);
    return named.stx_ino == open.stx_ino && named.stx_dev_major == open.stx_dev_major &&
           named.stx_dev_minor == open.stx_dev_minor;
}

static bool is_in_place(const struct dir *dir)
{
    struct stat named, open;
    int rc = stat(dir->path, &named);
    if (rc == 0)
        rc = fstat(dir->fd, &open);
    return rc == 0 ? is_same(&named, &open) : is_unknown(rc);
}

bool local_dir_is_intact(const struct dir *dir, int state_fd, int live_fd)
{
    return is_in_place(dir) && local_dir_has(dir, "state", state_fd) &&
           local_dir_has(dir, "live", live_fd);
}

/* ---- its files ---- */

int local_dir_hand_over(const struct dir *dir, int at_fd, const char *name)
{
    struct stat st;
    if (!dir->shared)
        return 0;
    if (fstatat(at_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    mode_t mode = S_ISDIR(st.st_mode) ? 0770 : 0660;
    if (st.st_gid != dir->gid && fchownat(at_fd, name, -1, dir->gid, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    if ((st.st_mode & 0777) != mode && fchmodat(at_fd, name, mode, 0) != 0)
        return errno;
    return 0;
}

static enum stile_status check_file(const struct dir *dir, const struct stat *st, const char *name,
                                    struct stile_error *err)
{
    bool is_dir = S_ISDIR(st->st_mode);
    bool trusted = st->st_uid == geteuid() || st->st_uid == 0 || dir->shared;
    mode_t too_much = dir->shared ? S_IWOTH : S_IWOTH | S_IWGRP;

    if (!is_dir && (!S_ISREG(st->st_mode) || st->st_nlink != 1))
        return error_set(
            err, STILE_REFUSED, 0,
            "`%s` in the state directory is not a regular file with a single link; remove it",
            name);
    if (!trusted || (st->st_mode & too_much))
        return error_set(err, STILE_REFUSED, 0,
                         "`%s` in the state directory can be changed by others (user %u, mode "
                         "%04o); remove it",
                         name, (unsigned)st->st_uid, (unsigned)(st->st_mode & 07777));
    return STILE_OK;
}

static enum stile_status check_fd(int fd, const struct dir *dir, const char *name,
                                  struct stile_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_errno(err, STILE_UNREACHABLE, errno, "`%s`", name);
    return check_file(dir, &st, name, err);
}

#define OPEN_HOW (O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

static void name_for_now(char made[64], const char *name)
{
    static unsigned count;
    snprintf(made, 64, "%s.%ld.%u", name, (long)getpid(),
             __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
}

/* A shared file gets its final name only once it belongs to the group: a process killed on the way
 * leaves nothing that locks the others out. 0 or an errno value; EEXIST: another process was
 * quicker. */
static int publish(const struct dir *dir, const char *made, const char *name, int unlink_flags)
{
    int rc = local_dir_hand_over(dir, dir->fd, made);
    if (!rc && renameat2(dir->fd, made, dir->fd, name, RENAME_NOREPLACE) != 0)
        rc = errno;
    if (rc)
        (void)unlinkat(dir->fd, made, unlink_flags);
    return rc;
}

static int make_shared(const struct dir *dir, const char *name)
{
    char made[64];
    name_for_now(made, name);
    int fd = openat(dir->fd, made, OPEN_HOW | O_CREAT | O_EXCL, 0600);
    int rc = fd < 0 ? errno : publish(dir, made, name, 0);
    if (rc && fd >= 0)
        close(fd);
    errno = rc;
    return rc ? -1 : fd;
}

/* made: the file is new; false: it was there before. */
static int open_or_make(bool *made, const struct dir *dir, const char *name, int flags)
{
    for (;;) {
        *made = false;
        int fd = flags & O_EXCL ? -1 : openat(dir->fd, name, OPEN_HOW);
        if (fd >= 0 || !(flags & O_CREAT) || (!(flags & O_EXCL) && errno != ENOENT))
            return fd;
        *made = true;
        fd = dir->shared && !(flags & O_EXCL)
                 ? make_shared(dir, name)
                 : openat(dir->fd, name, OPEN_HOW | O_CREAT | O_EXCL, 0600);
        if (fd >= 0 || errno != EEXIST || (flags & O_EXCL))
            return fd;
    }
}

/* Repairs what an earlier version left half-made, if this user is allowed to. */
static void repair(const struct dir *dir, const char *name)
{
    struct stat st;
    if (dir->shared && fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (st.st_uid == geteuid() || geteuid() == 0) && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        (void)local_dir_hand_over(dir, dir->fd, name);
}

enum stile_status local_dir_open_file(int *fd, const struct dir *dir, const char *name, int flags,
                                      struct stile_error *err)
{
    bool made;
    if (flags == O_CREAT)
        repair(dir, name);
    *fd = open_or_make(&made, dir, name, flags);
    if (*fd < 0)
        return error_errno(err, local_dir_status(errno), errno,
                           "opening `%s` in the state directory", name);
    int rc = made ? local_dir_hand_over(dir, dir->fd, name) : 0;
    enum stile_status status = rc ? error_errno(err, local_dir_status(rc), rc,
                                                "giving `%s` to the directory's group", name)
                                  : check_fd(*fd, dir, name, err);
    if (status) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* 0 or an errno value; EEXIST: it exists already. */
static int make_sockets_dir(const struct dir *dir)
{
    char made[64];
    struct stat st;
    if (!dir->shared)
        return mkdirat(dir->fd, "s", 0700) ? errno : 0;
    if (fstatat(dir->fd, "s", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return EEXIST;
    name_for_now(made, "s");
    if (mkdirat(dir->fd, made, 0700) != 0)
        return errno;
    return publish(dir, made, "s", AT_REMOVEDIR);
}

enum stile_status local_dir_open_sockets(struct dir *dir, struct stile_error *err)
{
    int rc = make_sockets_dir(dir);
    if (rc && rc != EEXIST)
        return error_errno(err, local_dir_status(rc), rc, "making `s` in the state directory");
    repair(dir, "s");
    dir->sockets_fd = openat(dir->fd, "s", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir->sockets_fd < 0)
        return error_errno(err, local_dir_status(errno), errno,
                           "opening `s` in the state directory");
    return check_fd(dir->sockets_fd, dir, "s", err);
}
