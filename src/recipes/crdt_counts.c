/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Counts by replica: a G-Counter, both halves of a PN-Counter, the version vector of a set. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/crdt_state.h"

static int compare_ids(const unsigned char *a, const unsigned char *b)
{
    return memcmp(a, b, STILE_REPLICA_SIZE);
}

size_t crdt_counts_place(const struct crdt_counts *counts, const unsigned char *id)
{
    size_t low = 0, high = counts->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_ids(counts->all[middle].id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool crdt_counts_has(const struct crdt_counts *counts, size_t place, const unsigned char *id)
{
    return place < counts->n && compare_ids(counts->all[place].id, id) == 0;
}

uint64_t crdt_counts_up(const struct crdt_counts *counts, const unsigned char *id)
{
    size_t place = crdt_counts_place(counts, id);
    return crdt_counts_has(counts, place, id) ? counts->all[place].up : 0;
}

static int reserve(struct crdt_counts *counts)
{
    if (counts->n < counts->room)
        return 0;
    size_t room = counts->room ? 2 * counts->room : 4;
    struct crdt_count *all = realloc(counts->all, room * sizeof *all);
    if (!all)
        return ENOMEM;
    counts->all = all;
    counts->room = room;
    return 0;
}

struct crdt_count *crdt_counts_make(struct crdt_counts *counts, const unsigned char *id)
{
    size_t place = crdt_counts_place(counts, id);
    if (crdt_counts_has(counts, place, id))
        return &counts->all[place];
    if (reserve(counts))
        return NULL;
    struct crdt_count *count = &counts->all[place];
    memmove(count + 1, count, (counts->n - place) * sizeof *count);
    counts->n++;
    *count = (struct crdt_count){0};
    memcpy(count->id, id, sizeof count->id);
    return count;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

int crdt_counts_merge(struct crdt_counts *out, const struct crdt_counts *a,
                      const struct crdt_counts *b)
{
    size_t i = 0, j = 0, room = a->n + b->n;
    if (room == 0)
        return 0;
    out->all = malloc(room * sizeof *out->all);
    if (!out->all)
        return ENOMEM;
    out->room = room;
    while (i < a->n || j < b->n) {
        int order = i == a->n ? 1 : j == b->n ? -1 : compare_ids(a->all[i].id, b->all[j].id);
        struct crdt_count *to = &out->all[out->n++];
        *to = order <= 0 ? a->all[i++] : b->all[j++];
        if (order == 0) {
            to->up = larger(to->up, b->all[j].up);
            to->down = larger(to->down, b->all[j++].down);
        }
    }
    return 0;
}

bool crdt_counts_equal(const struct crdt_counts *a, const struct crdt_counts *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct crdt_count *x = &a->all[i], *y = &b->all[i];
        if (compare_ids(x->id, y->id) != 0 || x->up != y->up || x->down != y->down)
            return false;
    }
    return true;
}

/* ---- what programs call ---- */

static enum stile_status add(struct stile_crdt *crdt, int64_t n, struct stile_error *err)
{
    struct crdt_counts *counts = &crdt->state.counts;
    size_t place = crdt_counts_place(counts, crdt->replica);
    bool known = crdt_counts_has(counts, place, crdt->replica);
    uint64_t more = n < 0 ? -(uint64_t)n : (uint64_t)n;
    uint64_t before = !known ? 0 : n < 0 ? counts->all[place].down : counts->all[place].up;
    if (more > CRDT_COUNT_MAX - before)
        return error_set(err, STILE_MISUSE, 0, "this replica cannot count any further");
    struct crdt_count *count = crdt_counts_make(counts, crdt->replica);
    if (!count)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    *(n < 0 ? &count->down : &count->up) = before + more;
    return STILE_OK;
}

enum stile_status stile_counter_add(struct stile_crdt *crdt, int64_t n, struct stile_error *err)
{
    static const char doing[] = "adding to a counter";
    enum stile_status status =
        crdt_check_kind(crdt, STILE_CRDT_GCOUNTER, STILE_CRDT_PNCOUNTER, doing, err);
    if (status || n == 0) /* a replica that has counted nothing has no entry */
        return status;
    if (n < 0 && crdt->kind == STILE_CRDT_GCOUNTER)
        status = error_set(err, STILE_MISUSE, 0, "a G-Counter only grows; use a PN-Counter");
    else
        status = add(crdt, n, err);
    return status ? error_wrap(err, status, "%s", doing) : STILE_OK;
}

int64_t stile_counter_value(const struct stile_crdt *crdt)
{
    __extension__ __int128 sum = 0; /* of counts below 2^63 */
    if (crdt_check_kind(crdt, STILE_CRDT_GCOUNTER, STILE_CRDT_PNCOUNTER, "", NULL))
        return 0;
    for (size_t i = 0; i < crdt->state.counts.n; i++) {
        sum += crdt->state.counts.all[i].up;
        sum -= crdt->state.counts.all[i].down;
    }
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}
