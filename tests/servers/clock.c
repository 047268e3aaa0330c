/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a server, it gives it a wall clock of its own, which a test can set at any moment:
 * $STILE_TEST_CLOCK names a file with the seconds that it is ahead, an int64_t.
 *
 * libfaketime can't do it: it allocates, and jemalloc, which Debian's redis-server comes with, asks
 * for the time when it is called first. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int64_t ahead_s(void)
{
    static const volatile int64_t *clock_file;
    const char *path = getenv("STILE_TEST_CLOCK");

    if (!clock_file && path) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        void *at = mmap(NULL, sizeof *clock_file, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        clock_file = at == MAP_FAILED ? NULL : at;
    }
    return clock_file ? *clock_file : 0;
}

EXPORT int clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);

    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        ts->tv_sec += ahead_s();
    return rc;
}

EXPORT int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &ts))
        return -1;
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

EXPORT time_t time(time_t *out)
{
    struct timespec ts = {0};

    clock_gettime(CLOCK_REALTIME, &ts);
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}
