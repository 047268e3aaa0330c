/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded files. The order of a replacement, and what a kill or a power cut leaves after each step:
 *
 *   1. write the content to a temporary file, sync it      a temporary file, which the next one
 * removes
 *   2. lock the guard, check the token                     the kernel frees the lock
 *   3. raise the guard, durably                            a raised guard and the old content: as
 * after stile_file_raise(), and nothing that was acknowledged is lost
 *   4. rename the temporary file                           old or new content, under a guard that
 * is on the disk already
 *   5. sync the directory                                  the new content
 *   6. unlock
 *
 * The guard is never behind the content: whatever content a reader finds, no smaller token than the
 * one that wrote it passes. Check and rename are one step because the guard's lock covers both. The
 * content is written before the lock is taken, so that a slow source, or a holder that is stopped
 * while it writes, keeps nobody waiting. */
#include "stile/file.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/options.h"
#include "recipes/cell_request.h"
#include "recipes/file_guard.h"

#define CHUNK 65536

/* One call. */
struct attempt {
    struct file_place place;
    struct stile_file_options options;
    uint64_t token;
    const char *issuer; /* "": not given */
};

static const struct options_kind kind = {
    .name = "file options",
    .macro = "STILE_FILE_OPTIONS",
    .size = sizeof(struct stile_file_options),
    .least = OPTIONS_UP_TO(struct stile_file_options, highest),
};

/* ---- what is given ---- */

static enum stile_status check_given(struct attempt *attempt, struct stile_error *err)
{
    if (attempt->token == 0)
        return error_set(err, STILE_MISUSE, 0, "a guard needs a token above 0");
    if (attempt->options.mode & ~(mode_t)0777)
        return error_set(err, STILE_MISUSE, 0, "the mode is %o, 777 is the limit",
                         (unsigned)attempt->options.mode);
    return cell_check_token(&attempt->issuer, attempt->token, err);
}

static enum stile_status begin(struct attempt *attempt, const char *path, uint64_t token,
                               const struct stile_file_options *options, struct stile_error *err)
{
    attempt->place.dir = -1;
    attempt->token = token;
    enum stile_status status = options_read(&attempt->options, options, &kind, err);
    if (status)
        return status;
    attempt->issuer = attempt->options.issuer;
    status = check_given(attempt, err);
    return status ? status : file_place_open(&attempt->place, path, attempt->options.wait_ms, err);
}

/* ---- the check ---- */

static enum stile_status judge(const struct attempt *attempt, const struct file_guard *guard,
                               struct stile_error *err)
{
    struct guard_seen seen = {.token = guard->highest, .issuer = guard->issuer};
    enum stile_status status =
        guard_judge(seen, attempt->token, attempt->issuer, attempt->options.strict);
    uint64_t highest = guard->highest;
    if (status == STILE_OK && attempt->token > highest)
        highest = attempt->token;
    if (attempt->options.highest)
        *attempt->options.highest = highest;
    if (status == STILE_FOREIGN)
        error_set(err, status, 0, "token of %.60s for `%s`, whose tokens come from %.60s",
                  attempt->issuer, file_label(&attempt->place), guard->issuer);
    else if (status)
        error_set(err, status, 0, "stale token %" PRIu64 " for `%s`: the highest seen is %" PRIu64,
                  attempt->token, file_label(&attempt->place), highest);
    return status;
}

/* A stale writer is refused before it has sent all its content. Only the check under the lock
 * counts; what goes wrong here is reported there. */
static enum stile_status judge_early(const struct attempt *attempt, struct stile_error *err)
{
    struct file_guard guard;
    if (file_guard_peek(&guard, &attempt->place, NULL) != STILE_OK)
        return STILE_OK;
    return judge(attempt, &guard, err);
}

static enum stile_status raise_guard(const struct attempt *attempt, struct file_guard *guard,
                                     struct stile_error *err)
{
    struct guard_seen seen = {.token = guard->highest, .issuer = guard->issuer};
    const char *issuer = guard_issuer(seen, attempt->token, attempt->issuer);
    uint64_t highest = attempt->token > guard->highest ? attempt->token : guard->highest;
    if (guard->whole && highest == guard->highest && strcmp(issuer, guard->issuer) == 0)
        return STILE_OK;
    return file_guard_write(guard, &attempt->place, highest, issuer, err);
}

/* OK: the token has passed and is remembered, durably, and the guard is locked. */
static enum stile_status pass(const struct attempt *attempt, struct file_guard *guard,
                              struct stile_error *err)
{
    enum stile_status status = file_guard_lock(guard, &attempt->place, err);
    if (!status)
        status = file_guard_read(guard, &attempt->place, err);
    if (!status)
        status = judge(attempt, guard, err);
    if (!status)
        status = raise_guard(attempt, guard, err);
    if (status)
        file_guard_unlock(guard);
    return status;
}

/* ---- the content ---- */

struct source {
    const void *data; /* NULL: it is read from fd */
    size_t size;
    int fd;
};

/* As read(2), but waits where the descriptor would not. */
static ssize_t read_some(int fd, char *out, size_t size)
{
    for (;;) {
        ssize_t n = read(fd, out, size);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
        if (errno == EAGAIN)
            poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
    }
}

static enum stile_status copy(const struct attempt *attempt, const struct file_temp *temp, int fd,
                              char *chunk, struct stile_error *err)
{
    uint64_t at = 0;
    for (;;) {
        ssize_t n = read_some(fd, chunk, CHUNK);
        if (n < 0)
            return error_errno(err, STILE_REFUSED, errno, "reading what to write to `%s`",
                               file_label(&attempt->place));
        if (n == 0)
            return STILE_OK;
        int rc = file_temp_write(temp, chunk, (size_t)n, at);
        if (rc)
            return error_errno(err, STILE_REFUSED, rc, "writing `%s`", file_label(&attempt->place));
        at += (uint64_t)n;
    }
}

static enum stile_status fill(const struct attempt *attempt, const struct file_temp *temp,
                              const struct source *source, struct stile_error *err)
{
    if (source->data) {
        int rc = file_temp_write(temp, source->data, source->size, 0);
        return rc ? error_errno(err, STILE_REFUSED, rc, "writing `%s`", file_label(&attempt->place))
                  : STILE_OK;
    }
    char *chunk = malloc(CHUNK);
    if (!chunk)
        return error_set(err, STILE_NOMEM, ENOMEM, "out of memory");
    enum stile_status status = copy(attempt, temp, source->fd, chunk, err);
    free(chunk);
    return status;
}

/* 0 or an errno. old: the file that is replaced, or NULL. */
static int set_permissions(struct attempt *attempt, const struct file_temp *temp,
                           const struct stat *old)
{
    mode_t mode = attempt->options.mode;
    struct stat now;
    int rc = 0;
    if (old)
        rc = file_temp_resemble(temp, old, mode ? mode : old->st_mode & 0777);
    else if (mode)
        rc = fchmod(temp->fd, mode) == 0 ? 0 : errno;
    if (!rc && fstat(temp->fd, &now) != 0)
        rc = errno;
    attempt->place.readers = rc ? 0 : now.st_mode & 0044;
    return rc;
}

/* Permissions come before the content: no user reads it that could not read the old one. */
static enum stile_status prepare(struct attempt *attempt, struct file_temp *temp,
                                 const struct source *source, struct stile_error *err)
{
    struct stat old;
    bool found;
    enum stile_status status = file_place_stat(&found, &old, &attempt->place, err);
    if (!status)
        status = file_temp_claim(temp, &attempt->place,
                                 found || attempt->options.mode ? 0600 : 0666, err);
    if (status)
        return status;
    int rc = set_permissions(attempt, temp, found ? &old : NULL);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "setting the permissions of `%s`",
                           file_label(&attempt->place));
    status = fill(attempt, temp, source, err);
    if (!status && (rc = file_sync(temp->fd)) != 0)
        status = error_errno(err, STILE_REFUSED, rc, "writing `%s`", file_label(&attempt->place));
    return status;
}

/* ---- replacing ---- */

/* Also where there was no memory for it, the change has been made. */
static enum stile_status sync_change(const struct attempt *attempt, struct stile_error *err)
{
    int rc = file_sync(attempt->place.dir);
    if (!rc)
        return STILE_OK;
    error_errno(err, STILE_UNCERTAIN, rc, "`%s` is changed, but perhaps not on the disk",
                file_label(&attempt->place));
    if (err)
        err->status = STILE_UNCERTAIN;
    return STILE_UNCERTAIN;
}

static enum stile_status commit(const struct attempt *attempt, struct file_temp *temp,
                                struct stile_error *err)
{
    const struct file_place *place = &attempt->place;
    if (renameat(place->dir, temp->name, place->dir, place->name) != 0)
        return error_errno(err, STILE_REFUSED, errno, "replacing `%s`", file_label(place));
    file_temp_close(temp, place, true);
    return sync_change(attempt, err);
}

static enum stile_status replace(struct attempt *attempt, const struct source *source,
                                 struct stile_error *err)
{
    struct file_guard guard = {.fd = -1};
    struct file_temp temp = {.fd = -1};
    enum stile_status status = judge_early(attempt, err);
    if (!status)
        status = prepare(attempt, &temp, source, err);
    if (!status)
        status = pass(attempt, &guard, err);
    if (!status)
        status = commit(attempt, &temp, err);
    file_guard_unlock(&guard);
    file_temp_close(&temp, &attempt->place, false);
    if (guard.raised) /* once for each holder: its predecessor may have died */
        file_temp_sweep(&attempt->place);
    return status;
}

static enum stile_status replace_with(const char *path, const struct source *source, uint64_t token,
                                      const struct stile_file_options *options,
                                      struct stile_error *err)
{
    struct attempt attempt;
    enum stile_status status = begin(&attempt, path, token, options, err);
    if (!status)
        status = replace(&attempt, source, err);
    file_place_close(&attempt.place);
    return status;
}

enum stile_status stile_file_replace(const char *path, const void *data, size_t size,
                                     uint64_t token, const struct stile_file_options *options,
                                     struct stile_error *err)
{
    if (!data && size)
        return error_set(err, STILE_MISUSE, 0, "%zu bytes are to be written, and none are given",
                         size);
    struct source source = {.data = data ? data : "", .size = size};
    return replace_with(path, &source, token, options, err);
}

enum stile_status stile_file_replace_from_fd(const char *path, int fd, uint64_t token,
                                             const struct stile_file_options *options,
                                             struct stile_error *err)
{
    struct source source = {.fd = fd};
    return replace_with(path, &source, token, options, err);
}

/* ---- without content ---- */

enum stile_status stile_file_raise(const char *path, uint64_t token,
                                   const struct stile_file_options *options,
                                   struct stile_error *err)
{
    struct file_guard guard = {.fd = -1};
    struct attempt attempt;
    enum stile_status status = begin(&attempt, path, token, options, err);
    if (!status)
        status = pass(&attempt, &guard, err);
    file_guard_unlock(&guard);
    file_place_close(&attempt.place);
    return status;
}

enum stile_status stile_file_check(const char *path, uint64_t token,
                                   const struct stile_file_options *options,
                                   struct stile_error *err)
{
    struct file_guard guard;
    struct attempt attempt;
    enum stile_status status = begin(&attempt, path, token, options, err);
    if (!status)
        status = file_guard_peek(&guard, &attempt.place, err);
    if (!status)
        status = judge(&attempt, &guard, err);
    file_place_close(&attempt.place);
    return status;
}

static enum stile_status unlink_file(const struct attempt *attempt, struct stile_error *err)
{
    if (unlinkat(attempt->place.dir, attempt->place.name, 0) != 0 && errno != ENOENT)
        return error_errno(err, STILE_REFUSED, errno, "removing `%s`", file_label(&attempt->place));
    return sync_change(attempt, err);
}

enum stile_status stile_file_remove(const char *path, uint64_t token,
                                    const struct stile_file_options *options,
                                    struct stile_error *err)
{
    struct file_guard guard = {.fd = -1};
    struct attempt attempt;
    struct stat stat;
    bool found;
    enum stile_status status = begin(&attempt, path, token, options, err);
    if (!status)
        status = file_place_stat(&found, &stat, &attempt.place, err);
    if (!status)
        status = pass(&attempt, &guard, err);
    if (!status)
        status = unlink_file(&attempt, err);
    file_guard_unlock(&guard);
    file_place_close(&attempt.place);
    return status;
}

/* ---- the guard ---- */

enum stile_status stile_file_guard_show(struct stile_file_guard *guard, const char *path,
                                        struct stile_error *err)
{
    struct file_place place;
    struct file_guard seen;
    if (!guard)
        return error_set(err, STILE_MISUSE, 0, "showing a guard: no place for it");
    *guard = (struct stile_file_guard){0};
    enum stile_status status = file_place_open(&place, path, 0, err);
    if (!status)
        status = file_guard_peek(&seen, &place, err);
    if (!status) {
        guard->highest = seen.highest;
        memcpy(guard->issuer, seen.issuer, sizeof guard->issuer);
    }
    file_place_close(&place);
    return status;
}

static enum stile_status reset(const struct file_place *place, uint64_t token, const char *issuer,
                               struct stile_error *err)
{
    struct file_guard guard;
    enum stile_status status = file_guard_lock(&guard, place, err);
    if (!status)
        status = file_guard_read(&guard, place, err);
    if (!status || status == STILE_CORRUPT)
        status = file_guard_write(&guard, place, token, issuer, err);
    file_guard_unlock(&guard);
    return status;
}

enum stile_status stile_file_guard_reset(const char *path, uint64_t token, const char *issuer,
                                         struct stile_error *err)
{
    struct file_place place = {.dir = -1};
    enum stile_status status = cell_check_token(&issuer, token, err);
    if (!status)
        status = file_place_open(&place, path, 0, err);
    if (!status)
        status = reset(&place, token, issuer, err);
    file_place_close(&place);
    return status;
}
