/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Whole processes: how long from starting a command until it has ended, two commands in turn.
 *
 *   bench-spawn TIMES NAME COMMAND... --- NAME COMMAND...
 */
#include "bench.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t run_once(char *const *command)
{
    pid_t pid;
    int status;
    int64_t start_ns = bench_now_ns();
    int error = posix_spawnp(&pid, command[0], NULL, NULL, command, environ);
    if (error)
        bench_die("%s: %s", command[0], strerror(error));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    int64_t took_ns = bench_now_ns() - start_ns;
    if (status)
        bench_die("%s ended with status 0x%x", command[0], (unsigned)status);
    return took_ns;
}

int main(int argc, char **argv)
{
    int second = 3;
    while (second < argc && strcmp(argv[second], "---"))
        second++;
    if (second < 4 || second + 2 >= argc)
        bench_die("usage: bench-spawn TIMES NAME COMMAND... --- NAME COMMAND...");
    argv[second] = NULL;
    char **commands[] = {argv + 2, argv + second + 1};
    for (long i = bench_number(argv[1]); i > 0; i--)
        for (int c = 0; c < 2; c++)
            printf("{\"command\": \"%s\", \"took_ns\": %ld}\n", commands[c][0],
                   (long)run_once(commands[c] + 1));
    return 0;
}
