/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What bench-runkill lets a command run: a process, a child of it that has left the session, and a
 * grandchild that ignores SIGTERM. All three share one flock on the file `alive`: as long as one of
 * them lives, it is taken, and the next one to start sees that both are alive. They end by
 * themselves when bench-runkill has ended.
 *
 *   bench-tree DIR INDEX
 */
#include "runkill.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int open_in(const char *dir, const char *file)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        bench_die("%s: %s", path, strerror(errno));
    return fd;
}

static noreturn void live(int driver)
{
    while (flock(driver, LOCK_EX | LOCK_NB))
        sleep(1);
    _exit(0);
}

static void grow(int driver)
{
    if (fork() == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        fork();
        live(driver);
    }
}

int main(int argc, char **argv)
{
    int64_t start_ns = bench_now_ns();
    if (argc != 3)
        bench_die("usage: bench-tree DIR INDEX");
    struct tree *tree = runkill_map(argv[1], bench_number(argv[2]));
    int driver = open_in(argv[1], "driver"), alive = open_in(argv[1], "alive");
    tree->both_alive = flock(alive, LOCK_EX | LOCK_NB) != 0;
    tree->start_ns = start_ns;
    grow(driver);
    bench_word_set(&tree->runs, 1);
    live(driver);
}
