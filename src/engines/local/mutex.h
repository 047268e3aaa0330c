/* The gate to the state file: one process at a time, and a dead one doesn't keep it shut.
 *
 * It is a futex whose word names who is inside by their id in `live`. A robust pthread mutex would
 * name a thread id instead, which two containers may both have: the kernel then takes the death of
 * one for the death of the other and lets two in. */
#ifndef STILE_LOCAL_MUTEX_H
#define STILE_LOCAL_MUTEX_H

#include "engines/local/store.h"

/* False: who is inside lives but hasn't come out for some seconds; they are stopped, probably. */
bool local_mutex_enter(struct store *store);
void local_mutex_leave(struct store *store);

#endif
