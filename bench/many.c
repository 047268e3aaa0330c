/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many locks of one client: time to make, take and give each, what all of them cost in memory, and
 * how large the state directory is. The peer opens a file for each and takes it with flock(2).
 *
 *   bench-many DIR stile|flock LOCKS      DIR should be empty
 */
#include "bench.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is ours alone; the mapped state file is counted as a file. */
static int64_t memory_bytes(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (!file)
        bench_die("cannot read /proc/self/status");
    while (fgets(line, sizeof(line), file))
        sscanf(line, "RssAnon: %ld kB", &kib);
    fclose(file);
    return kib * INT64_C(1024);
}

static int64_t directory_bytes(const char *path)
{
    int64_t blocks = 0;
    DIR *dir = opendir(path);
    struct dirent *entry;
    if (!dir)
        bench_die("cannot read %s", path);
    while ((entry = readdir(dir))) {
        struct stat st;
        if (!fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
            blocks += st.st_blocks;
    }
    closedir(dir);
    return blocks * 512;
}

static void make_all(void **locks, size_t n, const struct subject *subject, const char *dir)
{
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "many-%zu", i);
        locks[i] = subject->open(dir, name);
    }
}

static double each_ns(int64_t *since_ns, size_t n)
{
    int64_t now_ns = bench_now_ns(), took_ns = now_ns - *since_ns;
    *since_ns = now_ns;
    return (double)took_ns / (double)n;
}

static void measure(void **locks, size_t n, const struct subject *subject, const char *dir)
{
    int64_t memory = memory_bytes();
    int64_t clock_ns = bench_now_ns();
    make_all(locks, n, subject, dir);
    double make_ns = each_ns(&clock_ns, n);
    for (size_t i = 0; i < n; i++)
        subject->take(locks[i]);
    double take_ns = each_ns(&clock_ns, n);
    memory = memory_bytes() - memory;
    clock_ns = bench_now_ns();
    for (size_t i = 0; i < n; i++)
        subject->give(locks[i]);
    double give_ns = each_ns(&clock_ns, n);
    printf("{\"subject\": \"%s\", \"locks\": %zu, \"make_ns\": %.1f, \"take_ns\": %.1f, "
           "\"give_ns\": %.1f, \"memory_bytes\": %ld, \"file_bytes\": %ld}\n",
           subject->name, n, make_ns, take_ns, give_ns, (long)memory, (long)directory_bytes(dir));
}

int main(int argc, char **argv)
{
    if (argc != 4)
        bench_die("usage: bench-many DIR stile|flock LOCKS");
    const struct subject *subject = subject_find(argv[2]);
    size_t n = (size_t)bench_number(argv[3]);
    void **locks = malloc(n * sizeof(*locks));
    /* Not part of what a lock costs: the array's pages, and the client. */
    memset(locks, 0xff, n * sizeof(*locks));
    bench_many_files();
    void *first = subject->open(argv[1], "first");
    subject->take(first);
    measure(locks, n, subject, argv[1]);
    free(locks);
    return 0;
}
