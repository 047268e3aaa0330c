/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files that other processes may truncate. The pages behind the new end are gone, and the
 * next access to one of them raises SIGBUS, which ends a program that doesn't handle it. A handler
 * is installed if the signal has its default action; the program's own handler is replaced only if
 * the program asks for that. */
#ifndef STILE_TRAP_H
#define STILE_TRAP_H

#include <stdbool.h>
#include <stddef.h>

/* From now on, if the handler is installed, a lost page of this mapping turns all of it into zeros
 * and sets *is_torn. Only the first 64 mappings are covered. */
void trap_add(void *start, size_t bytes, volatile bool *is_torn);
void trap_remove(const void *start);

/* 0 or an errno value. Any other SIGBUS goes to the previous handler, or ends the program if
 * there was none. */
int trap_install(bool over_a_handler);

#endif
