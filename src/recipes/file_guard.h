/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of a file: the highest token and its issuer, in a hidden file beside it.
 *
 * Two slots of one block each have the same text, which ends with a sum of itself. A change writes
 * the slot that is not in use, syncs it, and then does the same with the other one:
 *
 *   - A writer that is killed, or a power cut, can tear one slot; the other one is whole. Of two
 *     whole slots the larger sequence counts.
 *   - A damaged slot cannot lower the highest token: the other one has the same. With both damaged
 *     the guard is CORRUPT, never "as if no token had been seen".
 *   - Slots that differ were left by a writer that died, perhaps before its sync. Nothing may be
 *     acknowledged by what they say until they have been written and synced again (`whole`).
 *
 * A new guard is written and synced under another name, and linked to its own: it is never seen
 * half made, so an empty one is damaged. The file is never replaced, and its lock is the lock of
 * all writers. */
#ifndef STILE_FILE_GUARD_H
#define STILE_FILE_GUARD_H

#include "recipes/file_place.h"

struct file_guard {
    int fd;            /* locked; -1: none */
    uint64_t sequence; /* 0: made, and never raised */
    uint64_t highest;
    char issuer[STILE_ISSUER_MAX + 1];
    unsigned slot; /* that has it */
    bool whole;    /* both have it */
    bool raised;   /* by file_guard_write() */
};

/* Opens and locks it, and creates it if there is none. */
enum stile_status file_guard_lock(struct file_guard *guard, const struct file_place *place,
                                  struct stile_error *err);
/* CORRUPT: the guard is then as if new, for file_guard_write() to repair. */
enum stile_status file_guard_read(struct file_guard *guard, const struct file_place *place,
                                  struct stile_error *err);
/* Durable when it returns. issuer may be the guard's own. */
enum stile_status file_guard_write(struct file_guard *guard, const struct file_place *place,
                                   uint64_t highest, const char *issuer, struct stile_error *err);
void file_guard_unlock(struct file_guard *guard);

/* Reads it without its lock. What it returns was true at some moment of the call, but perhaps not
 * yet durable. Without a guard, one that has seen nothing. */
enum stile_status file_guard_peek(struct file_guard *guard, const struct file_place *place,
                                  struct stile_error *err);

#endif
