/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runkill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct tree *runkill_map(const char *dir, long index)
{
    size_t size = RUNKILL_TREES * sizeof(struct tree);
    char path[512];
    snprintf(path, sizeof(path), "%s/trees", dir);
    if (index < 0 || index >= RUNKILL_TREES)
        bench_die("at most %d trees", RUNKILL_TREES - 1);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size))
        bench_die("%s: %s", path, strerror(errno));
    struct tree *trees = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (trees == MAP_FAILED)
        bench_die("mmap %s: %s", path, strerror(errno));
    close(fd);
    return &trees[index];
}
