/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/file_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

#define SLOT_SIZE 4096 /* a block, so that a torn write cannot reach the other slot */
#define HEAD      "stile-guard "
#define FORMAT    HEAD "1\nsequence %" PRIu64 "\nhighest %" PRIu64 "\nissuer %s\n"

#define FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

/* ---- the text of a slot ---- */

static void slot_format(char slot[SLOT_SIZE], uint64_t sequence, uint64_t highest,
                        const char *issuer)
{
    memset(slot, 0, SLOT_SIZE);
    int n = snprintf(slot, SLOT_SIZE, FORMAT, sequence, highest, issuer);
    snprintf(slot + n, SLOT_SIZE - (size_t)n, "sum %016" PRIx64 "\n",
             fnv_add(FNV_START, slot, (size_t)n));
}

/* The issuer, which may be empty or have blanks, is the rest of its line. */
static bool parse_issuer(char issuer[STILE_ISSUER_MAX + 1], const char *text)
{
    size_t len = strcspn(text, "\n");
    if (len > STILE_ISSUER_MAX)
        return false;
    memcpy(issuer, text, len);
    issuer[len] = '\0';
    return true;
}

/* Valid is exactly what we would have written, to the last byte. */
static bool slot_parse(struct file_guard *guard, const char slot[SLOT_SIZE])
{
    char text[SLOT_SIZE + 1], again[SLOT_SIZE];
    int at = 0;
    memcpy(text, slot, SLOT_SIZE);
    text[SLOT_SIZE] = '\0';
    if (sscanf(text, HEAD "1 sequence %20" SCNu64 " highest %20" SCNu64 " issuer%n",
               &guard->sequence, &guard->highest, &at) != 2 ||
        at == 0 || text[at] != ' ' || !parse_issuer(guard->issuer, text + at + 1))
        return false;
    slot_format(again, guard->sequence, guard->highest, guard->issuer);
    return memcmp(slot, again, SLOT_SIZE) == 0;
}

static bool slot_is_of_later_version(const char slot[SLOT_SIZE])
{
    char text[sizeof HEAD + 10] = "";
    unsigned version = 0;
    memcpy(text, slot, sizeof text - 1);
    return sscanf(text, HEAD "%9u", &version) == 1 && version > 1;
}

/* ---- reading ---- */

static int read_slots(char slots[2][SLOT_SIZE], int fd)
{
    size_t have = 0;
    memset(slots, 0, 2 * sizeof slots[0]);
    while (have < 2 * sizeof slots[0]) {
        ssize_t n = pread(fd, slots[0] + have, 2 * sizeof slots[0] - have, (off_t)have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break; /* cut off: the slots that are missing are not valid */
        have += (size_t)n;
    }
    return 0;
}

static bool agree(const struct file_guard *a, const struct file_guard *b)
{
    return a->sequence == b->sequence && a->highest == b->highest &&
           strcmp(a->issuer, b->issuer) == 0;
}

/* The valid slot with the larger sequence. False: there is none. */
static bool choose(struct file_guard *guard, char slots[2][SLOT_SIZE])
{
    struct file_guard seen[2] = {{.fd = guard->fd}, {.fd = guard->fd}};
    bool valid[2] = {slot_parse(&seen[0], slots[0]), slot_parse(&seen[1], slots[1])};
    bool whole = valid[0] && valid[1] && agree(&seen[0], &seen[1]);
    if (valid[0] && valid[1] && !whole && seen[0].sequence == seen[1].sequence)
        return false; /* no writer of ours leaves that */
    if (!valid[0] && !valid[1])
        return false;
    unsigned best = valid[1] && (!valid[0] || seen[1].sequence > seen[0].sequence);
    *guard = seen[best];
    guard->slot = best;
    guard->whole = whole;
    return true;
}

enum stile_status file_guard_read(struct file_guard *guard, const struct file_place *place,
                                  struct stile_error *err)
{
    char slots[2][SLOT_SIZE];
    int rc = read_slots(slots, guard->fd);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "reading the guard of `%s`", file_label(place));
    if (choose(guard, slots))
        return STILE_OK;
    if (slot_is_of_later_version(slots[0]) || slot_is_of_later_version(slots[1]))
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "the guard of `%s` was written by a later version of stile",
                         file_label(place));
    *guard = (struct file_guard){.fd = guard->fd};
    return error_set(err, STILE_CORRUPT, 0,
                     "the guard of `%s` is damaged, so the highest token is not known: stop all"
                     " writers, then reset it",
                     file_label(place));
}

/* ---- writing ---- */

static int write_all(int fd, const char *bytes, off_t at)
{
    for (size_t done = 0; done < SLOT_SIZE;) {
        ssize_t n = pwrite(fd, bytes + done, SLOT_SIZE - done, at + (off_t)done);
        if (n < 0 && errno != EINTR)
            return errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return file_sync_data(fd);
}

/* After a failed sync the kernel may show what the disk does not have. Such a slot is spoilt, so
 * that the next writer writes it again before it believes it. */
static int write_slot(int fd, const char slot[SLOT_SIZE], unsigned number)
{
    off_t at = (off_t)number * SLOT_SIZE;
    int rc = write_all(fd, slot, at);
    if (rc && pwrite(fd, "", 1, at) < 0)
        return rc; /* then the old one is still there */
    return rc;
}

enum stile_status file_guard_write(struct file_guard *guard, const struct file_place *place,
                                   uint64_t highest, const char *issuer, struct stile_error *err)
{
    char slot[SLOT_SIZE];
    slot_format(slot, guard->sequence + 1, highest, issuer);
    int rc = file_exceeds_limit(0, 2 * SLOT_SIZE) ? EFBIG : 0;
    /* Once, before the first change: a sequence of 1 or more says that a power cut leaves the
     * guard in its directory. */
    if (rc == 0 && guard->sequence == 0)
        rc = file_sync(place->dir);
    /* A writer that was killed may have written the slot in use without a sync. */
    if (rc == 0 && !guard->whole)
        rc = file_sync_data(guard->fd);
    if (rc == 0)
        rc = write_slot(guard->fd, slot, !guard->slot);
    if (rc == 0)
        rc = write_slot(guard->fd, slot, guard->slot);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "raising the guard of `%s`", file_label(place));
    guard->sequence++;
    guard->highest = highest;
    if (issuer != guard->issuer)
        snprintf(guard->issuer, sizeof guard->issuer, "%s", issuer);
    guard->whole = guard->raised = true;
    return STILE_OK;
}

/* ---- creating ---- */

/* Readable like the file itself, and writable by all users that may replace files in the directory.
 */
static int set_permissions(const struct file_temp *temp, const struct file_place *place)
{
    struct stat file, dir;
    bool found = fstatat(place->dir, place->name, &file, AT_SYMLINK_NOFOLLOW) == 0;
    if (fstat(place->dir, &dir) != 0)
        return errno;
    mode_t mode = 0600 | (found ? file.st_mode & 0044 : place->readers);
    if (dir.st_mode & 0020)
        mode |= 0060;
    if (found && !(dir.st_mode & S_IWOTH)) /* there a guard counts only with its user */
        return file_temp_resemble(temp, &file, mode);
    return fchmod(temp->fd, mode) == 0 ? 0 : errno;
}

static int fill(const struct file_temp *temp, const struct file_place *place)
{
    char slot[SLOT_SIZE];
    slot_format(slot, 0, 0, "");
    int rc = set_permissions(temp, place);
    for (unsigned i = 0; i < 2 && rc == 0; i++)
        rc = file_temp_write(temp, slot, sizeof slot, i * sizeof slot);
    return rc ? rc : file_sync(temp->fd);
}

/* Its lock is held when it appears. OK without a guard: another process was faster. */
static enum stile_status create(struct file_guard *guard, const struct file_place *place,
                                struct stile_error *err)
{
    struct file_temp temp;
    enum stile_status status = file_temp_claim(&temp, place, 0600, err);
    if (status)
        return status;
    int rc = fill(&temp, place);
    if (rc == 0 && linkat(place->dir, temp.name, place->dir, place->guard, 0) != 0)
        rc = errno;
    if (rc == 0) {
        unlinkat(place->dir, temp.name, 0);
        guard->fd = temp.fd;
        return STILE_OK;
    }
    file_temp_close(&temp, place, false);
    if (rc == EEXIST)
        return STILE_OK;
    if (rc == EPERM || rc == EOPNOTSUPP || rc == EMLINK)
        return error_errno(err, STILE_UNSUPPORTED, rc,
                           "making the guard of `%s`, whose file system needs hard links",
                           file_label(place));
    return error_errno(err, STILE_REFUSED, rc, "making the guard of `%s`", file_label(place));
}

/* ---- locking ---- */

/* In a directory that everybody may write to, anybody could have put it there. */
static enum stile_status check_owner(const struct file_guard *guard, const struct file_place *place,
                                     struct stile_error *err)
{
    struct stat file, dir;
    if (fstat(guard->fd, &file) != 0 || fstat(place->dir, &dir) != 0)
        return error_errno(err, STILE_REFUSED, errno, "looking at the guard of `%s`",
                           file_label(place));
    if (!S_ISREG(file.st_mode))
        return error_set(err, STILE_REFUSED, EINVAL, "the guard of `%s` is not a regular file",
                         file_label(place));
    if ((dir.st_mode & S_IWOTH) && file.st_uid != geteuid() && file.st_uid != 0)
        return error_set(err, STILE_REFUSED, EPERM,
                         "the guard of `%s` belongs to user %u, and every user can write to its"
                         " directory",
                         file_label(place), (unsigned)file.st_uid);
    return STILE_OK;
}

/* *gone: it is not the guard any longer, or never was; then the next one is looked for. */
static enum stile_status lock_open(bool *gone, struct file_guard *guard,
                                   const struct file_place *place, struct stile_error *err)
{
    int64_t pause_ns = 0;
    int rc;
    enum stile_status status = check_owner(guard, place, err);
    if (status)
        return status;
    do
        rc = file_lock_now(guard->fd, F_WRLCK);
    while (rc == EAGAIN && file_place_pause(place, &pause_ns));
    if (rc == EAGAIN)
        return error_set(err, STILE_TIMEOUT, 0, "another writer of `%s` does not finish",
                         file_label(place));
    if (rc)
        return error_errno(err, rc == ENOLCK || rc == EINVAL ? STILE_UNSUPPORTED : STILE_REFUSED,
                           rc, "locking the guard of `%s`", file_label(place));
    *gone = !file_is_at(place, place->guard, guard->fd);
    return STILE_OK;
}

static enum stile_status try_lock(bool *gone, struct file_guard *guard,
                                  const struct file_place *place, struct stile_error *err)
{
    *gone = true;
    guard->fd = openat(place->dir, place->guard, O_RDWR | FLAGS);
    if (guard->fd >= 0)
        return lock_open(gone, guard, place, err);
    if (errno != ENOENT)
        return error_errno(err, STILE_REFUSED, errno, "opening the guard of `%s`",
                           file_label(place));
    enum stile_status status = create(guard, place, err);
    *gone = guard->fd < 0;
    return status;
}

enum stile_status file_guard_lock(struct file_guard *guard, const struct file_place *place,
                                  struct stile_error *err)
{
    enum stile_status status;
    bool gone;
    *guard = (struct file_guard){.fd = -1};
    do {
        status = try_lock(&gone, guard, place, err);
        if (status || gone)
            file_guard_unlock(guard);
    } while (!status && gone);
    return status;
}

void file_guard_unlock(struct file_guard *guard)
{
    if (guard->fd < 0)
        return;
    file_unlock(guard->fd);
    close(guard->fd);
    guard->fd = -1;
}

/* ---- without the lock ---- */

/* A writer may be in one slot while the other is read, and then the other way round: with its lock
 * there is no such doubt. */
static enum stile_status read_again(struct file_guard *guard, const struct file_place *place,
                                    struct stile_error *err)
{
    int64_t pause_ns = 0;
    int rc;
    do
        rc = file_lock_now(guard->fd, F_RDLCK);
    while (rc == EAGAIN && file_place_pause(place, &pause_ns));
    if (rc == EAGAIN)
        return error_set(err, STILE_TIMEOUT, 0, "another writer of `%s` does not finish",
                         file_label(place));
    return file_guard_read(guard, place, err);
}

enum stile_status file_guard_peek(struct file_guard *guard, const struct file_place *place,
                                  struct stile_error *err)
{
    *guard = (struct file_guard){.fd = -1};
    guard->fd = openat(place->dir, place->guard, O_RDONLY | FLAGS);
    if (guard->fd < 0 && errno == ENOENT)
        return STILE_OK;
    if (guard->fd < 0)
        return error_errno(err, STILE_REFUSED, errno, "opening the guard of `%s`",
                           file_label(place));
    enum stile_status status = check_owner(guard, place, err);
    if (!status && file_guard_read(guard, place, NULL) != STILE_OK)
        status = read_again(guard, place, err);
    file_guard_unlock(guard);
    return status;
}
