/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Signals never arrive; what blocks them compiles. */
#ifndef STILE_WASM_SIGNAL_H
#define STILE_WASM_SIGNAL_H

#define __NEED_sigset_t
#include <bits/alltypes.h>

#include_next <signal.h>

#define SIG_SETMASK 2

int sigfillset(sigset_t *set);
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before);

#endif
