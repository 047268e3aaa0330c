/* From a member back to the struct it is embedded in: how a timer's, task's or callback's function
 * finds what it belongs to. */
#ifndef STILE_CONTAINER_H
#define STILE_CONTAINER_H

#include <stddef.h>

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
