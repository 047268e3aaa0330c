/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Since when this client has seen a claim as it is now.
 *
 * A claim carries a number that changes with each renewal. A client that has seen the same number
 * for as long as the claim's lease, on its own clock, has seen the lease end: the holder wrote the
 * number before that, and no clocks are compared. What is forgotten here for want of room is seen
 * again later, which only makes a waiter wait longer. */
#ifndef STILE_DYNAMODB_OBSERVED_H
#define STILE_DYNAMODB_OBSERVED_H

#include <stdint.h>

#define OBSERVED_SETS 1024
#define OBSERVED_WAYS 4

struct observation {
    uint64_t sum[2];            /* of the claim's id and number */
    uint64_t first_ns, last_ns; /* 0: free */
};

/* All zero at the start. */
struct observations {
    struct observation *table; /* NULL: nothing was seen yet */
};

/* When it was first seen; notes now_ns if that is now. */
uint64_t ddb_observed_since(struct observations *observations, const char *id, uint64_t number,
                            uint64_t now_ns);
void ddb_observed_free(struct observations *observations);

#endif
