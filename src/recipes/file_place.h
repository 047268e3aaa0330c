/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Where a guarded file is: its directory, and the hidden files beside it.
 *
 *   NAME               the file, replaced by rename
 *   .NAME.stile        its guard: locked, rewritten in place, never replaced
 *   .NAME.stile-N      N from 0 to 63: what is being written. Its writer holds a lock on it, so one
 *                      that can be locked was left by a writer that died, and is removed
 *
 * If NAME is too long for that, its first bytes and a hash of all of them take its place. */
#ifndef STILE_FILE_PLACE_H
#define STILE_FILE_PLACE_H

#include <sys/stat.h>

#include "base/error.h"

#define FILE_NAME_MAX 255
#define FILE_TEMPS    64

struct file_place {
    const char *path;              /* as the caller gave it; borrowed, like name */
    const char *name;              /* its last component */
    int dir;                       /* the directory, open */
    mode_t readers;                /* the bits 0044 of a file that is about to be made */
    int64_t until_ns;              /* how long to wait for other writers, on CLOCK_MONOTONIC */
    char guard[FILE_NAME_MAX - 2]; /* with room for "-63" in a name of FILE_NAME_MAX */
};

/* The part of the path that messages have room for: its end. */
const char *file_label(const struct file_place *place);

/* wait_ms as in the options. */
enum stile_status file_place_open(struct file_place *place, const char *path, int64_t wait_ms,
                                  struct stile_error *err);
void file_place_close(struct file_place *place);

/* *found: it is there, with *stat; anything but a regular file is REFUSED. */
enum stile_status file_place_stat(bool *found, struct stat *stat, const struct file_place *place,
                                  struct stile_error *err);

int file_sync(int fd);      /* fsync(); 0 or an errno */
int file_sync_data(int fd); /* fdatasync() */

/* 0, EAGAIN if another process or thread has it, or another errno. The lock belongs to the open
 * file and not to the process: threads exclude each other, too. A write lock needs a descriptor
 * that can write, so a process that may only read the guard cannot keep its writers waiting. */
int file_lock_now(int fd, short type);
void file_unlock(int fd);

/* Sleeps for a moment, longer each time; *pause_ns starts at 0. False: the time to wait is over. */
bool file_place_pause(const struct file_place *place, int64_t *pause_ns);

/* Whether a write of n bytes at this offset would be answered with SIGXFSZ. */
bool file_exceeds_limit(uint64_t at, size_t n);

/* Whether the name still stands for this open, regular file. */
bool file_is_at(const struct file_place *place, const char *name, int fd);

/* ---- temporary files ---- */

struct file_temp {
    int fd; /* -1: none */
    char name[FILE_NAME_MAX + 1];
};

/* A new, empty, locked file. mode is that of open(2). */
enum stile_status file_temp_claim(struct file_temp *temp, const struct file_place *place,
                                  mode_t mode, struct stile_error *err);
/* Gives it owner, group and these permissions of another file, as far as the caller may. 0 or an
 * errno. */
int file_temp_resemble(const struct file_temp *temp, const struct stat *other, mode_t mode);
/* All bytes, before which `at` are in the file; 0 or an errno. */
int file_temp_write(const struct file_temp *temp, const void *bytes, size_t n, uint64_t at);
/* Removes it, unless `renamed`: then the name is gone already. */
void file_temp_close(struct file_temp *temp, const struct file_place *place, bool renamed);
/* Removes what dead writers left. */
void file_temp_sweep(const struct file_place *place);

#endif
