/* Mapped files that others may cut off. The pages behind the new end are gone, and the next access
 * to one of them is a SIGBUS, which ends a program that doesn't handle it. The handler belongs to
 * the program, so it is installed only where the program asks for it. */
#ifndef STILE_TRAP_H
#define STILE_TRAP_H

#include <stdbool.h>
#include <stddef.h>

/* From now on, if there is a handler, a lost page of this mapping makes all of it zeros, and sets
 * *is_torn. Of more than 64 mappings the last ones stay as they are. */
void trap_add(void *start, size_t bytes, volatile bool *is_torn);
void trap_remove(const void *start);

/* 0 or an errno value. A SIGBUS of anything else goes to the handler that was there before. */
int trap_install(void);

#endif
