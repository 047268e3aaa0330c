/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The register: the value with the latest time, by a hybrid logical clock.
 *
 * The time of a write is the wall clock's, or just behind the latest time that this replica has
 * seen if that is not earlier. So it never goes back, whatever the wall clock does, and a write
 * that has seen another one is later than that one. The latest time seen is the register's own: a
 * write sets it, and a merge keeps the later one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recipes/crdt_state.h"

static int compare_values(const struct crdt_register *a, const struct crdt_register *b)
{
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return memcmp(a->value, b->value, a->size);
}

int crdt_register_compare(const struct crdt_register *a, const struct crdt_register *b)
{
    if (!a->value || !b->value)
        return (a->value != NULL) - (b->value != NULL);
    if (a->ms != b->ms)
        return a->ms < b->ms ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    int order = memcmp(a->id, b->id, sizeof a->id);
    return order != 0 ? order : compare_values(a, b);
}

int crdt_register_copy(struct crdt_register *out, const struct crdt_register *from)
{
    char *value = malloc(from->size + 1);
    if (!value)
        return ENOMEM;
    if (from->size > 0)
        memcpy(value, from->value, from->size);
    value[from->size] = '\0';
    *out = *from;
    out->value = value;
    return 0;
}

static uint64_t wall_clock(const struct stile_crdt *crdt)
{
    struct timespec now = {0};
    int64_t ms;
    if (crdt->clock) {
        ms = crdt->clock(crdt->clock_data);
    } else {
        clock_gettime(CLOCK_REALTIME, &now);
        ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    return ms < 0 ? 0 : (uint64_t)ms > CRDT_MS_MAX ? CRDT_MS_MAX : (uint64_t)ms;
}

/* ---- merging ---- */

enum stile_status crdt_register_merge(struct stile_crdt *crdt, const struct crdt_register *other,
                                      struct stile_error *err)
{
    struct crdt_register merged;
    if (crdt_register_compare(other, &crdt->state.last) <= 0)
        return STILE_OK;
    uint64_t now = wall_clock(crdt);
    if (other->ms > now && other->ms - now > (uint64_t)crdt->drift_ms)
        return error_set(
            err, STILE_REFUSED, 0,
            "its time is %llu ms ahead of this clock, %lld is the limit; set the clock "
            "that is wrong",
            (unsigned long long)(other->ms - now), (long long)crdt->drift_ms);
    if (crdt_register_copy(&merged, other))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    free(crdt->state.last.value);
    crdt->state.last = merged;
    return STILE_OK;
}

/* ---- what programs call ---- */

/* false: there is no later time. */
static bool next_time(struct crdt_register *next, const struct crdt_register *last, uint64_t now)
{
    next->ms = now;
    next->n = 0;
    if (!last->value || now > last->ms)
        return true;
    next->ms = last->n < UINT32_MAX ? last->ms : last->ms + 1;
    next->n = last->n < UINT32_MAX ? last->n + 1 : 0;
    return next->ms <= CRDT_MS_MAX;
}

static enum stile_status set(struct stile_crdt *crdt, const void *value, size_t size,
                             struct stile_error *err)
{
    struct crdt_register *last = &crdt->state.last;
    struct crdt_register next = {.value = (char *)value, .size = size}, copy;
    memcpy(next.id, crdt->replica, sizeof next.id);
    if (!next_time(&next, last, wall_clock(crdt)))
        return error_set(err, STILE_MISUSE, 0, "its clock is at its end");
    if (crdt_register_copy(&copy, &next))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    free(last->value);
    *last = copy;
    return STILE_OK;
}

enum stile_status stile_lww_set(struct stile_crdt *crdt, const void *value, size_t size,
                                struct stile_error *err)
{
    static const char doing[] = "setting a register";
    enum stile_status status = crdt_check_kind(crdt, STILE_CRDT_LWW, STILE_CRDT_LWW, doing, err);
    if (!status)
        status = crdt_check_bytes(value, size, doing, err);
    if (status)
        return status;
    status = set(crdt, value, size, err);
    return status ? error_wrap(err, status, "%s", doing) : STILE_OK;
}

const void *stile_lww_get(size_t *size, const struct stile_crdt *crdt)
{
    if (size)
        *size = crdt ? crdt->state.last.size : 0;
    return crdt ? crdt->state.last.value : NULL;
}

uint64_t stile_lww_time_ms(const struct stile_crdt *crdt)
{
    return crdt ? crdt->state.last.ms : 0;
}
