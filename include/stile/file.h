/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: files that refuse the late writes of a holder that has lost its lock.
 *
 *  F1. A file is replaced as a whole. Readers see the old content or the new, never a mixture, and
 *      what was acknowledged survives a power cut.
 *  F2. The guard belongs to the path, not to the content: the highest token and its issuer are in a
 *      hidden file beside it, ".NAME.stile". It stays when the file is removed. If it is
 *      deleted the guard has forgotten; a directory restored from a backup has the guard of that
 *      day.
 *  F3. Only writers that go through these functions are refused. An editor or a shell's `>` is not;
 *      use permissions against those.
 *  F4. The last component of the path is never followed: a symbolic link there is refused. The
 *      directories before it may be links, as an administrator made them. One directory reached by
 *      two paths is one directory, with one guard for each file; a hard link is a name of its own.
 *  F5. A new holder raises the guard before it reads. Otherwise the old holder can still write
 *      between that read and the new holder's first write.
 *  F6. On NFS the guard is as good as the server's locks: a client that is cut off or paused in the
 *      middle of a call for longer than the server's lease can lose its lock and still rename.
 *      Local file systems have no such gap.
 *
 * Calls may come from any number of threads and processes. No signal handler is installed.
 */
#ifndef STILE_FILE_H
#define STILE_FILE_H

#include <sys/types.h>

#include "../stile.h"
#include "guard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero means default everywhere. */
struct stile_file_options {
    size_t size;        /* sizeof this struct; STILE_FILE_OPTIONS fills it */
    const char *issuer; /* of the token; NULL or "": not given, and not compared */
    bool strict;        /* refuse an equal token, too: each token writes once */
    mode_t mode;        /* replace: permissions of the file, up to 0777. 0: those of the file that
                         * is replaced; of a new one, 0666 without the umask */
    int64_t wait_ms;    /* how long to wait for other writers of the file (30 s); -1: for ever */
    uint64_t *highest;  /* may be NULL: set to the highest token seen if the status is OK, STALE or
                         * FOREIGN */
};

static inline struct stile_file_options stile_file_options_init(void)
{
    struct stile_file_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_FILE_OPTIONS(...) STILE_OPTIONS_OF(stile_file_options, __VA_ARGS__)
#endif

/* Replaces the file, or creates it, if the token passes the guard. The content is written to a
 * temporary file beside it first, without the guard's lock, so that a writer that is slow or
 * stopped keeps nobody waiting. Owner and group of a file that is replaced are kept where the
 * caller may set them (otherwise the new group gets no more than all others); ACLs and extended
 * attributes are not.
 *
 * OK: it is on the disk. STALE, FOREIGN: nothing was changed. REFUSED: the operating system
 * refused, err->native is its errno; the token may have been remembered, the file is as it was.
 * UNCERTAIN: the file was replaced, but that may not survive a crash. TIMEOUT: another writer of
 * the file did not finish. CORRUPT: the guard's file is damaged; see stile_file_guard_reset().
 * UNSUPPORTED: the file system has no hard links or locks, or the guard's file is of a later
 * version. */
STILE_API enum stile_status stile_file_replace(const char *path, const void *data, size_t size,
                                               uint64_t token,
                                               const struct stile_file_options *options,
                                               struct stile_error *err);

/* The same with all that can be read from fd, of any size. */
STILE_API enum stile_status stile_file_replace_from_fd(const char *path, int fd, uint64_t token,
                                                       const struct stile_file_options *options,
                                                       struct stile_error *err);

/* Checks the token and remembers it, without a write: for a new holder, before it reads. The file
 * need not exist. */
STILE_API enum stile_status stile_file_raise(const char *path, uint64_t token,
                                             const struct stile_file_options *options,
                                             struct stile_error *err);

/* The same answer, but nothing is remembered. Enough to stop early; never enough to protect. */
STILE_API enum stile_status stile_file_check(const char *path, uint64_t token,
                                             const struct stile_file_options *options,
                                             struct stile_error *err);

/* Removes the file if the token passes; OK if there is none. The guard stays. */
STILE_API enum stile_status stile_file_remove(const char *path, uint64_t token,
                                              const struct stile_file_options *options,
                                              struct stile_error *err);

/* What the guard of a file has seen. */
struct stile_file_guard {
    uint64_t highest;                  /* 0: no token */
    char issuer[STILE_ISSUER_MAX + 1]; /* "": not known */
};
STILE_API enum stile_status stile_file_guard_show(struct stile_file_guard *guard, const char *path,
                                                  struct stile_error *err);

/* For migrations to another lock or engine, and for a damaged guard: from now on it has seen
 * exactly this token of this issuer; 0 and NULL: none at all. A late write of an earlier holder may
 * pass afterwards: stop those first. */
STILE_API enum stile_status stile_file_guard_reset(const char *path, uint64_t token,
                                                   const char *issuer, struct stile_error *err);

#ifdef __cplusplus
}
#endif
#endif
