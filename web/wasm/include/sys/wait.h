/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* There are no processes: a child of the simulator has found nothing wrong (system.c). */
#ifndef STILE_WASM_WAIT_H
#define STILE_WASM_WAIT_H

#include <sys/types.h>

pid_t fork(void);
pid_t waitpid(pid_t pid, int *status, int flags);

#endif
