/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a, for sums by which one process detects a change. Names have a hash of their own
 * (base/name.h). */
#ifndef STILE_HASH_H
#define STILE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define FNV_START UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

/* Continues a sum that began with FNV_START. */
static inline uint64_t fnv_add(uint64_t sum, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ at[i]) * FNV_PRIME;
    return sum;
}

#endif
