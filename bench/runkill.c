/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* `COMMAND...` runs a tree of processes under a lock and is killed with -9 while another one waits:
 * how long until the next tree's first process runs, and is anything of the old tree alive then?
 *
 *   bench-runkill DIR KILLS TREE COMMAND...    runs COMMAND... TREE DIR INDEX; TREE is bench-tree
 */
#include "runkill.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A tree and the command that runs it. */
struct plan {
    char *dir;
    char *tree;
    char **command;
    size_t length;
};

static pid_t start(const struct plan *plan, long index)
{
    char number[32];
    pid_t pid = bench_fork();
    if (pid > 0)
        return pid;
    snprintf(number, sizeof(number), "%ld", index);
    char **argv = calloc(plan->length + 4, sizeof(*argv));
    memcpy(argv, plan->command, plan->length * sizeof(*argv));
    argv[plan->length] = plan->tree;
    argv[plan->length + 1] = plan->dir;
    argv[plan->length + 2] = number;
    execvp(argv[0], argv);
    bench_die("%s: %s", argv[0], strerror(errno));
}

/* The trees look at this lock to see whether we are still there. */
static int be_there(const char *dir)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/driver", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB))
        bench_die("%s: %s", path, strerror(errno));
    return fd;
}

/* Orphans come to us: an init that doesn't reap would keep them for ever. */
static void adopt(void)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1))
        bench_die("prctl: %s", strerror(errno));
}

static void reap_all(void)
{
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
}

/* No event shows whether any command has come to wait. One that has not within this time is seen
 * to be slow, which is no worse than the truth. */
static void let_wait(pid_t pid)
{
    bench_await_asleep(pid);
    bench_sleep_us(20000);
}

static void run_kills(const struct plan *plan, struct tree *trees, long kills)
{
    pid_t runs = start(plan, 1);
    bench_word_await(&trees[1].runs, 1);
    for (long i = 2; i <= kills + 1; i++) {
        pid_t waits = start(plan, i);
        let_wait(waits);
        int64_t kill_ns = bench_now_ns();
        kill(runs, SIGKILL);
        bench_word_await(&trees[i].runs, 1);
        bench_reap(runs);
        printf("{\"took_ns\": %ld, \"both_alive\": %u}\n", (long)(trees[i].start_ns - kill_ns),
               trees[i].both_alive);
        runs = waits;
    }
    kill(runs, SIGKILL);
    bench_reap(runs);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        bench_die("usage: bench-runkill DIR KILLS TREE COMMAND...");
    struct plan plan = {argv[1], argv[3], argv + 4, (size_t)argc - 4};
    int there = be_there(plan.dir);
    adopt();
    run_kills(&plan, runkill_map(plan.dir, 0), bench_number(argv[2]));
    close(there);
    reap_all();
    return 0;
}
