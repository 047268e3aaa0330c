/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock of all processes: the linker sends calls of clock_gettime() here (--wrap),
 * natively and for the page. Engines show from it how old things are. What etcd stores of it has a
 * length, by which the windows of HTTP/2 fill up. */
#include <time.h>

#include "sim/world.h"

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_REALTIME)
        return __real_clock_gettime(clock, time);
    time->tv_sec = (time_t)(WORLD_EPOCH_S + world_now() / SEC);
    time->tv_nsec = (long)(world_now() % SEC);
    return 0;
}
