/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is at the file `cells`: one process that writes, or any number that read.
 *
 * LMDB's own locks are switched off. They would wait forever for a process that was stopped inside
 * a write; they know readers by pid, which two containers may share; and a program linked
 * statically may have another C library, whose mutexes look different. These are byte locks on
 * `live`, which end with their process.
 *
 * A process takes the byte LIVE_CELLS_NEXT first and gives it back once it is in. So the one that
 * has waited is in before another gets its second turn, however quickly that one comes back. */
#ifndef STILE_LOCAL_CELL_TURN_H
#define STILE_LOCAL_CELL_TURN_H

#include <stdbool.h>

#include "base/error.h"

/* UNREACHABLE if another process stays inside for two seconds. fd: of `cells`, or -1; a change of
 * that file shows that others make progress, and is waited out. */
enum stile_status local_turn_take(int live_fd, int fd, bool to_write, struct stile_error *err);
void local_turn_end(int live_fd);

#endif
