/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program, it lets fork() fail after as many times as $STILE_TEST_FORKS says, and
 * ends the program when it would signal more than one process. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT pid_t fork(void)
{
    static int forks;
    const char *most = getenv("STILE_TEST_FORKS");
    if (most != NULL && forks++ >= atoi(most)) {
        errno = EAGAIN;
        return -1;
    }
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

EXPORT int kill(pid_t pid, int number)
{
    if (pid <= 0)
        _exit(99);
    return (int)syscall(SYS_kill, pid, number);
}
