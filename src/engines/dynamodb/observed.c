/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/observed.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static void sum_up(uint64_t sum[2], const char *id, uint64_t number)
{
    sum[0] = fnv_add(fnv_add(FNV_START, &number, sizeof number), id, strlen(id));
    sum[1] = fnv_add(fnv_add(~FNV_START, id, strlen(id)), &number, sizeof number);
}

static struct observation *find(struct observation *set, const uint64_t sum[2])
{
    for (size_t i = 0; i < OBSERVED_WAYS; i++) {
        if (set[i].last_ns && set[i].sum[0] == sum[0] && set[i].sum[1] == sum[1])
            return &set[i];
    }
    return NULL;
}

static struct observation *oldest(struct observation *set)
{
    struct observation *found = set;
    for (size_t i = 1; i < OBSERVED_WAYS; i++) {
        if (set[i].last_ns < found->last_ns)
            found = &set[i];
    }
    return found;
}

uint64_t ddb_observed_since(struct observations *o, const char *id, uint64_t number,
                            uint64_t now_ns)
{
    uint64_t sum[2];
    if (!o->table)
        o->table = calloc(OBSERVED_SETS * OBSERVED_WAYS, sizeof *o->table);
    if (!o->table)
        return now_ns;
    sum_up(sum, id, number);
    struct observation *set = &o->table[(sum[0] ^ sum[0] >> 32) % OBSERVED_SETS * OBSERVED_WAYS];
    struct observation *seen = find(set, sum);
    if (!seen) {
        seen = oldest(set);
        *seen = (struct observation){.sum = {sum[0], sum[1]}, .first_ns = now_ns};
    }
    seen->last_ns = now_ns;
    return seen->first_ns;
}

void ddb_observed_free(struct observations *o)
{
    free(o->table);
    o->table = NULL;
}
