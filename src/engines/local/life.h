/* Proof of life: a lock on one byte of the file `live`, which the kernel drops when its holder
 * ends, however it ends. Byte locks of open file descriptions know nothing of pids, so containers
 * that share the directory can tell each other's life, and two clients of one process too. */
#ifndef STILE_LOCAL_LIFE_H
#define STILE_LOCAL_LIFE_H

#include <stdbool.h>
#include <stdint.h>

enum life_byte {
    LIFE_OPENING = 0, /* exclusive while somebody opens the directory */
    LIFE_IN_USE = 1,  /* shared by all who have it open, and by each session */
    LIFE_IDS = 4096,  /* + id: that id is alive */
};

#define LIFE_ID_MASK ((UINT64_C(1) << 62) - 1)

/* Each answers 0 or an errno value; EAGAIN: somebody else has it. */
int life_lock(int fd, uint64_t byte, bool exclusive);
int life_unlock(int fd, uint64_t byte);

/* Whether another file description has the byte, exclusively or shared. */
bool life_is_locked(int fd, uint64_t byte);

/* Through a file description other than the one that holds it. In doubt: alive. */
bool life_is_alive(int fd, uint64_t id);

#endif
