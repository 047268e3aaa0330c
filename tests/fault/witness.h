/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by programs that report when they held a lock: the clock, and error messages. */
#ifndef STILE_TEST_WITNESS_H
#define STILE_TEST_WITNESS_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "stile.h"

/* A clock that all processes of a machine share. */
static inline uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void complain(const char *what, const struct stile_error *err)
{
    (void)fprintf(stderr, "%s: %s: %s\n", what, stile_status_name(err->status), err->message);
}

#endif
