/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Proof of life: a lock on one byte of the file `live`, which the kernel drops when its holder
 * ends, however it ends. Byte locks of open file descriptions do not depend on pids, so they also
 * work between containers that share the directory, and between two clients of one process. */
#ifndef STILE_LOCAL_LIVENESS_H
#define STILE_LOCAL_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "engines/local/dir.h"

enum live_byte {
    LIVE_OPENING = 0, /* exclusive while a process opens the directory */
    LIVE_IN_USE = 1, /* shared by all processes that have the directory open, and by each session */
    LIVE_CELLS = 2,  /* exclusive by a process that writes cells, shared by those that read */
    LIVE_CELLS_NEXT = 3, /* exclusive by the one that is next (cell_turn.h) */
    LIVE_IDS = 4096,     /* + id: that id is alive */
};

#define LIVE_ID_MASK ((UINT64_C(1) << 62) - 1)

/* Each returns 0 or an errno value; EAGAIN: another file description has the lock. */
int local_liveness_lock(int fd, uint64_t byte, bool exclusive);
int local_liveness_unlock(int fd, uint64_t byte);

/* Whether another file description has the byte, exclusively or shared. */
bool local_liveness_is_locked(int fd, uint64_t byte);

/* fd: a file description other than the one that holds the lock. In doubt: alive. */
bool local_liveness_is_alive(int fd, uint64_t id);

/* A witness outside of the directory: while a session lives, an abstract socket names the directory
 * it uses. If the directory was removed, the process that makes it again finds it still in use, and
 * how far its tokens had come. Works within one network namespace only. */

/* A file descriptor; -1: there is no witness, and the session works without. */
int local_witness_make(const struct dir *dir, uint32_t epoch, uint64_t id);

struct witness {
    uint32_t epoch; /* the latest of all witnesses found */
    int pid;        /* of one of them */
};

/* Whether any process uses a directory of this name in this place. */
bool local_witness_find(struct witness *witness, const struct dir *dir);

#endif
