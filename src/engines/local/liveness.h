/* Proof of life: a lock on one byte of the file `live`, which the kernel drops when its holder
 * ends, however it ends. Byte locks of open file descriptions know nothing of pids, so containers
 * that share the directory can tell each other's life, and two clients of one process too. */
#ifndef STILE_LOCAL_LIVENESS_H
#define STILE_LOCAL_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "engines/local/dir.h"

enum live_byte {
    LIVE_OPENING = 0, /* exclusive while somebody opens the directory */
    LIVE_IN_USE = 1,  /* shared by all who have it open, and by each session */
    LIVE_IDS = 4096,  /* + id: that id is alive */
};

#define LIVE_ID_MASK ((UINT64_C(1) << 62) - 1)

/* Each answers 0 or an errno value; EAGAIN: somebody else has it. */
int local_liveness_lock(int fd, uint64_t byte, bool exclusive);
int local_liveness_unlock(int fd, uint64_t byte);

/* Whether another file description has the byte, exclusively or shared. */
bool local_liveness_is_locked(int fd, uint64_t byte);

/* Through a file description other than the one that holds it. In doubt: alive. */
bool local_liveness_is_alive(int fd, uint64_t id);

/* A witness outside of the directory: while a session lives, a socket in the kernel's own name
 * space says which directory it uses. Whoever makes that directory anew, because it was removed,
 * finds out that it is still in use, and how far its tokens had come. Of one network namespace
 * only. */

/* A file descriptor; -1: none could be made, which takes nothing away but this. */
int local_witness_make(const struct dir *dir, uint32_t epoch, uint64_t id);

struct witness {
    uint32_t epoch; /* the latest that any of them has seen */
    int pid;        /* of one of them */
};

/* Whether anybody uses a directory of this name in this place. */
bool local_witness_find(struct witness *witness, const struct dir *dir);

#endif
