/* A witness outside of the directory: while a session lives, a socket in the kernel's own name
 * space says which directory it uses. Whoever makes that directory anew, because it was removed,
 * finds out that it is still in use, and how far its tokens had come. Of one network namespace
 * only. */
#ifndef STILE_LOCAL_WITNESS_H
#define STILE_LOCAL_WITNESS_H

#include "engines/local/dir.h"

/* A file descriptor; -1: none could be made, which takes nothing away but this. */
int witness_make(const struct dir *dir, uint32_t epoch, uint64_t id);

struct witness {
    uint32_t epoch; /* the latest that any of them has seen */
    int pid;        /* of one of them */
};

/* Whether anybody uses a directory of this name in this place. */
bool witness_find(struct witness *witness, const struct dir *dir);

#endif
