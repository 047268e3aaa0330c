/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The mutex of the state file: one process at a time, and a dead one does not keep it locked.
 *
 * It is a futex whose word holds the id in `live` of the process inside. A robust pthread mutex
 * would hold a thread id instead, which two containers may both have: the kernel would then take
 * the death of one for the death of the other and let two in. */
#ifndef STILE_LOCAL_MUTEX_H
#define STILE_LOCAL_MUTEX_H

#include "engines/local/store.h"

/* False: the process inside is alive but has not left for two seconds; it is probably stopped. */
bool local_mutex_enter(struct store *store);
void local_mutex_leave(struct store *store);

#endif
