/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/file_place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

#define SUFFIX    ".stile"
#define LABEL_MAX 100

#define NS_PER_MS    INT64_C(1000000)
#define WAIT_MS      30000 /* by default */
#define PAUSE_MAX_NS (16 * NS_PER_MS)

#define FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NOCTTY)

/* What of a NAME fits between '.' and SUFFIX "-63", and of a longer one before '~' and its hash. */
#define WHOLE_MAX (FILE_NAME_MAX - 1 - (sizeof SUFFIX - 1) - 3)
#define HASH_LEN  17
#define PART_MAX  (WHOLE_MAX - HASH_LEN)

/* ---- names ---- */

const char *file_label(const struct file_place *place)
{
    size_t len = strlen(place->path);
    return len > LABEL_MAX ? place->path + len - LABEL_MAX : place->path;
}

/* Ours are ".*.stile" and ".*.stile-N". Guarding a guard would replace a file that others lock. */
static bool is_ours(const char *name)
{
    const char *end = name + strlen(name);
    const char *dash = strrchr(name, '-');
    if (dash && dash[1] && strspn(dash + 1, "0123456789") == strlen(dash + 1))
        end = dash;
    size_t len = (size_t)(end - name), suffix = strlen(SUFFIX);
    return name[0] == '.' && len > suffix && memcmp(end - suffix, SUFFIX, suffix) == 0;
}

static void name_guard(struct file_place *place)
{
    const char *name = place->name;
    size_t len = strlen(name), n = PART_MAX;
    if (len <= WHOLE_MAX) {
        snprintf(place->guard, sizeof place->guard, ".%s" SUFFIX, name);
        return;
    }
    while (n > PART_MAX - 4 && ((unsigned char)name[n] & 0xc0) == 0x80)
        n--; /* some file systems insist on whole characters */
    snprintf(place->guard, sizeof place->guard, ".%.*s~%016" PRIx64 SUFFIX, (int)n, name,
             fnv_add(FNV_START, name, len));
}

static enum stile_status check_name(const char *path, const char *name, struct stile_error *err)
{
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return error_set(err, STILE_MISUSE, 0, "`%.100s` is not the path of a file", path);
    if (strlen(name) > FILE_NAME_MAX)
        return error_set(err, STILE_MISUSE, ENAMETOOLONG,
                         "the file's name has %zu bytes, %d is the"
                         " limit",
                         strlen(name), FILE_NAME_MAX);
    if (is_ours(name))
        return error_set(err, STILE_MISUSE, 0,
                         "`%.100s` has the name of a guard: it is kept by stile itself", path);
    return STILE_OK;
}

/* ---- waiting ---- */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t end_of_wait(int64_t wait_ms)
{
    int64_t end;
    if (wait_ms < 0 || __builtin_mul_overflow(wait_ms, NS_PER_MS, &end) ||
        __builtin_add_overflow(end, now_ns(), &end))
        return INT64_MAX;
    return end;
}

/* By polling: an OFD lock cannot be waited for with a limit, unless by a signal. A writer holds it
 * for a few fsyncs. */
bool file_place_pause(const struct file_place *place, int64_t *pause_ns)
{
    int64_t left = place->until_ns - now_ns();
    if (left <= 0)
        return false;
    *pause_ns = *pause_ns == 0 ? NS_PER_MS / 4 : *pause_ns * 2;
    if (*pause_ns > PAUSE_MAX_NS)
        *pause_ns = PAUSE_MAX_NS;
    nanosleep(&(struct timespec){.tv_nsec = *pause_ns < left ? *pause_ns : left}, NULL);
    return true;
}

/* ---- the directory ---- */

enum stile_status file_place_open(struct file_place *place, const char *path, int64_t wait_ms,
                                  struct stile_error *err)
{
    char dir[PATH_MAX] = ".";
    place->dir = -1;
    place->readers = 0;
    if (wait_ms < -1)
        return error_set(err, STILE_MISUSE, 0, "wait_ms is %" PRId64, wait_ms);
    place->until_ns = end_of_wait(wait_ms ? wait_ms : WAIT_MS);
    if (!path)
        return error_set(err, STILE_MISUSE, 0, "no path is given");
    const char *slash = strrchr(path, '/');
    place->path = path;
    place->name = slash ? slash + 1 : path;
    enum stile_status status = check_name(path, place->name, err);
    if (status)
        return status;
    size_t len = slash ? (size_t)(place->name - path) : 0;
    if (len >= sizeof dir)
        return error_set(err, STILE_MISUSE, ENAMETOOLONG, "the path has %zu bytes, %d is the limit",
                         strlen(path), PATH_MAX - 1);
    if (len)
        snprintf(dir, sizeof dir, "%.*s", (int)len, path);
    name_guard(place);
    place->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->dir < 0)
        return error_errno(err, STILE_REFUSED, errno, "opening the directory of `%s`",
                           file_label(place));
    return STILE_OK;
}

void file_place_close(struct file_place *place)
{
    if (place->dir >= 0)
        close(place->dir);
}

enum stile_status file_place_stat(bool *found, struct stat *stat, const struct file_place *place,
                                  struct stile_error *err)
{
    int rc = fstatat(place->dir, place->name, stat, AT_SYMLINK_NOFOLLOW);
    *found = rc == 0;
    if (rc != 0 && errno != ENOENT)
        return error_errno(err, STILE_REFUSED, errno, "looking at `%s`", file_label(place));
    if (!*found || S_ISREG(stat->st_mode))
        return STILE_OK;
    if (S_ISLNK(stat->st_mode))
        return error_set(err, STILE_REFUSED, ELOOP,
                         "`%s` is a symbolic link, which is not followed: give the path of the file"
                         " itself",
                         file_label(place));
    return error_set(err, STILE_REFUSED, S_ISDIR(stat->st_mode) ? EISDIR : EINVAL,
                     "`%s` is not a regular file", file_label(place));
}

/* ---- open files ---- */

int file_lock_now(int fd, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    int rc;
    do
        rc = fcntl(fd, F_OFD_SETLK, &lock);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : errno == EACCES ? EAGAIN : errno;
}

/* Explicitly: a child that was forked meanwhile has copies of the descriptor, and would keep it. */
void file_unlock(int fd)
{
    file_lock_now(fd, F_UNLCK);
}

bool file_exceeds_limit(uint64_t at, size_t n)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           (at > limit.rlim_cur || n > limit.rlim_cur - at);
}

bool file_is_at(const struct file_place *place, const char *name, int fd)
{
    struct stat there, here;
    return fstatat(place->dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &here) == 0 &&
           S_ISREG(here.st_mode) && there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

int file_sync(int fd)
{
    int rc;
    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc ? errno : 0;
}

int file_sync_data(int fd)
{
    int rc;
    do
        rc = fdatasync(fd);
    while (rc != 0 && errno == EINTR);
    return rc ? errno : 0;
}

/* ---- temporary files ---- */

static void temp_name(char name[FILE_NAME_MAX + 1], const struct file_place *place, unsigned number)
{
    snprintf(name, FILE_NAME_MAX + 1, "%s-%u", place->guard, number % FILE_TEMPS);
}

/* With its lock held, and the name still its own, nobody else removes or uses it. True: gone. */
static bool remove_left_over(const struct file_place *place, const char *name)
{
    int fd = openat(place->dir, name, O_RDWR | O_NONBLOCK | FLAGS);
    if (fd < 0)
        return errno == ENOENT;
    bool dead = file_lock_now(fd, F_WRLCK) == 0;
    bool gone = dead && file_is_at(place, name, fd) && unlinkat(place->dir, name, 0) == 0;
    if (dead)
        file_unlock(fd);
    close(fd);
    return gone;
}

/* 0, EAGAIN if another writer or cleaner has this name, or an errno. */
static int claim_name(struct file_temp *temp, const struct file_place *place, mode_t mode)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | FLAGS;
    temp->fd = openat(place->dir, temp->name, flags, mode);
    if (temp->fd < 0 && errno == EEXIST) {
        if (!remove_left_over(place, temp->name))
            return EAGAIN;
        temp->fd = openat(place->dir, temp->name, flags, mode);
    }
    if (temp->fd < 0)
        return errno == EEXIST ? EAGAIN : errno;
    int rc = file_lock_now(temp->fd, F_WRLCK);
    /* Before it was locked it looked like a left-over, and may have been removed. */
    if (rc == 0 && file_is_at(place, temp->name, temp->fd))
        return 0;
    if (rc != 0 && rc != EAGAIN)
        unlinkat(place->dir, temp->name, 0);
    close(temp->fd);
    temp->fd = -1;
    return rc ? rc : EAGAIN;
}

static int claim_any(struct file_temp *temp, const struct file_place *place, mode_t mode)
{
    int rc = EAGAIN;
    for (unsigned i = 0; i < FILE_TEMPS && rc == EAGAIN; i++) {
        temp_name(temp->name, place, i);
        rc = claim_name(temp, place, mode);
    }
    return rc;
}

enum stile_status file_temp_claim(struct file_temp *temp, const struct file_place *place,
                                  mode_t mode, struct stile_error *err)
{
    int64_t pause_ns = 0;
    int rc;
    do
        rc = claim_any(temp, place, mode);
    while (rc == EAGAIN && file_place_pause(place, &pause_ns));
    if (rc == EAGAIN)
        return error_set(err, STILE_TIMEOUT, EAGAIN, "`%s` has %d other writers at the moment",
                         file_label(place), FILE_TEMPS);
    if (rc)
        return error_errno(err, rc == ENOLCK || rc == EINVAL ? STILE_UNSUPPORTED : STILE_REFUSED,
                           rc, "making a temporary file beside `%s`", file_label(place));
    return STILE_OK;
}

int file_temp_resemble(const struct file_temp *temp, const struct stat *other, mode_t mode)
{
    bool same_group = fchown(temp->fd, other->st_uid, other->st_gid) == 0 ||
                      fchown(temp->fd, (uid_t)-1, other->st_gid) == 0;
    if (!same_group) /* the file's readers would change with its group */
        mode &= (mode_t)(~0070 | (mode & 0007) << 3);
    return fchmod(temp->fd, mode) == 0 ? 0 : errno;
}

int file_temp_write(const struct file_temp *temp, const void *bytes, size_t n, uint64_t at)
{
    if (file_exceeds_limit(at, n))
        return EFBIG;
    for (const char *from = bytes; n > 0;) {
        ssize_t done = write(temp->fd, from, n);
        if (done < 0 && errno != EINTR)
            return errno;
        from += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

void file_temp_close(struct file_temp *temp, const struct file_place *place, bool renamed)
{
    if (temp->fd < 0)
        return;
    if (!renamed)
        unlinkat(place->dir, temp->name, 0);
    file_unlock(temp->fd);
    close(temp->fd);
    temp->fd = -1;
}

void file_temp_sweep(const struct file_place *place)
{
    char name[FILE_NAME_MAX + 1];
    for (unsigned i = 0; i < FILE_TEMPS; i++) {
        temp_name(name, place, i);
        remove_left_over(place, name);
    }
}
