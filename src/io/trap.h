/* Mapped files that others may cut off. The pages behind the new end are gone, and the next access
 * to one of them is a SIGBUS, which ends a program that doesn't handle it. Where the program leaves
 * the signal to its default, ours takes that place; a handler of the program's own is replaced only
 * where the program asks for it. */
#ifndef STILE_TRAP_H
#define STILE_TRAP_H

#include <stdbool.h>
#include <stddef.h>

/* From now on, if there is a handler, a lost page of this mapping makes all of it zeros, and sets
 * *is_torn. Of more than 64 mappings the last ones stay as they are. */
void trap_add(void *start, size_t bytes, volatile bool *is_torn);
void trap_remove(const void *start);

/* 0 or an errno value. A SIGBUS of anything else goes to what was there before, and ends the
 * program if that was the default. */
int trap_install(bool over_a_handler);

#endif
