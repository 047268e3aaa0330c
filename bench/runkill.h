/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Between bench-runkill and the trees that it has started: a mapped file `trees` in DIR. */
#ifndef RUNKILL_H
#define RUNKILL_H

#include "bench.h"

#define RUNKILL_TREES 1024

struct tree {
    int64_t start_ns; /* when its first process ran */
    uint32_t both_alive;
    uint32_t runs; /* 1: the fields above are valid, and all its processes are there */
};

struct tree *runkill_map(const char *dir, long index);

#endif
