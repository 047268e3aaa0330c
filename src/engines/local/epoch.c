/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The epoch: the upper half of all tokens granted since the state file was last made. It is on the
 * disk before the first of them is granted, so no token is granted twice, even after a power cut,
 * and ordinary grants do not wait for a disk. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engines/local/dir.h"
#include "engines/local/store.h"

#define EPOCH_FORMAT   "stile-epoch 1 %" PRIu32 " %08" PRIx32 "\n"
#define EPOCH_TEXT_MAX 64

static uint32_t check_of(uint32_t epoch)
{
    uint32_t h = (epoch ^ UINT32_C(0x5bd1e995)) * UINT32_C(0x9e3779b1);
    h = (h ^ h >> 15) * UINT32_C(0x85ebca6b);
    return h ^ h >> 13;
}

static ssize_t read_all(int fd, char *text, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t n = read(fd, text + have, size - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        have += (size_t)n;
    }
    return (ssize_t)have;
}

/* The text must be exactly what we would have written, to the last byte. */
static bool parse(uint32_t *epoch, const char *text, size_t n)
{
    char again[EPOCH_TEXT_MAX];
    if (sscanf(text, "stile-epoch 1 %10" SCNu32, epoch) != 1)
        return false;
    int len = snprintf(again, sizeof again, EPOCH_FORMAT, *epoch, check_of(*epoch));
    return len == (int)n && memcmp(text, again, n) == 0;
}

enum stile_status local_epoch_read(uint32_t *epoch, bool *found, const struct dir *dir,
                                   struct stile_error *err)
{
    char text[EPOCH_TEXT_MAX + 1] = "";
    struct stile_error why = {0};
    int fd;

    *found = false;
    *epoch = 0;
    enum stile_status status = local_dir_open_file(&fd, dir, "epoch", 0, &why);
    if (status && why.native == ENOENT)
        return STILE_OK;
    if (status) {
        error_copy(err, &why);
        return status;
    }
    ssize_t n = read_all(fd, text, EPOCH_TEXT_MAX);
    int rc = n < 0 ? errno : 0;
    close(fd);
    if (rc)
        return error_errno(err, STILE_UNREACHABLE, rc, "reading `epoch`");
    if (!parse(epoch, text, (size_t)n))
        return error_set(err, STILE_CORRUPT, 0,
                         "`epoch` is damaged, so tokens could be granted again: restore it, or if "
                         "no guard has seen a token yet, remove the directory's files");
    *found = true;
    return STILE_OK;
}

static int write_durably(int fd, const char *text, size_t n)
{
    if (local_store_exceeds_limit(n))
        return EFBIG;
    while (n > 0) {
        ssize_t done = write(fd, text, n);
        if (done < 0 && errno != EINTR)
            return errno;
        text += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return fsync(fd) ? errno : 0;
}

static int replace(const struct dir *dir, int fd, const char *text, size_t n)
{
    int rc = write_durably(fd, text, n);
    if (rc)
        return rc;
    if (renameat(dir->fd, "epoch.new", dir->fd, "epoch") != 0)
        return errno;
    return fsync(dir->fd) ? errno : 0;
}

enum stile_status local_epoch_write(const struct dir *dir, uint32_t epoch, struct stile_error *err)
{
    char text[EPOCH_TEXT_MAX];
    int len = snprintf(text, sizeof text, EPOCH_FORMAT, epoch, check_of(epoch)), fd;

    (void)unlinkat(dir->fd, "epoch.new", 0);
    enum stile_status status = local_dir_open_file(&fd, dir, "epoch.new", O_CREAT | O_EXCL, err);
    if (status)
        return status;
    int rc = replace(dir, fd, text, (size_t)len);
    close(fd);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "making the next token epoch durable");
    return STILE_OK;
}
