/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A CRDT in a cell: read, merged, changed and written by compare-and-swap. */
#include <stdlib.h>
#include <string.h>

#include "recipes/crdt_state.h"

struct change {
    struct stile_crdt *crdt; /* the caller's, as it was */
    struct stile_crdt *next; /* with what the cell holds and what fn did */
    char *bytes;             /* of next, while they are written */
    stile_crdt_fn *fn;
    void *data;
    bool unchanged;           /* nothing had to be written */
    enum stile_status status; /* why nothing is written */
    struct stile_error err;
};

static enum stile_status copy(struct stile_crdt **out, const struct stile_crdt *from,
                              struct stile_error *err)
{
    const struct stile_crdt_options options = {.size = sizeof options,
                                               .replica = from->replica,
                                               .clock = from->clock,
                                               .clock_data = from->clock_data,
                                               .drift_ms = from->drift_ms};
    enum stile_status status = stile_crdt_new(out, from->kind, &options, err);
    if (status)
        return status;
    /* What the caller has is not judged again: its clock may have gone back since. */
    (*out)->drift_ms = INT64_MAX;
    status = stile_crdt_merge(*out, from, err);
    (*out)->drift_ms = from->drift_ms;
    return status;
}

static enum stile_status merge_cell(struct stile_crdt *into, const struct stile_cell *now,
                                    struct stile_error *err)
{
    struct stile_crdt *stored;
    if (now->version == 0)
        return STILE_OK;
    enum stile_status status =
        stile_crdt_decode(&stored, now->value, now->size,
                          &(struct stile_crdt_options){.size = sizeof(struct stile_crdt_options),
                                                       .replica = into->replica},
                          err);
    if (!status)
        status = stile_crdt_merge(into, stored, err);
    stile_crdt_free(stored);
    return status;
}

static enum stile_status write_bytes(struct change *change, struct stile_cell_next *next)
{
    size_t size;
    enum stile_status status = stile_crdt_encode(&size, NULL, 0, change->next, &change->err);
    if (status)
        return status;
    change->bytes = malloc(size);
    if (!change->bytes)
        return error_set(&change->err, STILE_NOMEM, 0, "out of memory");
    next->value = change->bytes;
    next->size = size;
    return stile_crdt_encode(&size, change->bytes, size, change->next, &change->err);
}

static void forget(struct change *change)
{
    free(change->bytes);
    stile_crdt_free(change->next);
    change->bytes = NULL;
    change->next = NULL;
}

/* The bytes of equal states are equal. An absent cell has everything that an empty state has. */
static bool has_all(const struct stile_cell *now, const struct stile_cell_next *next,
                    const struct crdt_state *state)
{
    if (now->version == 0)
        return state->counts.n == 0 && !state->last.value;
    return now->size == next->size && memcmp(now->value, next->value, next->size) == 0;
}

static int step(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    struct change *change = data;
    forget(change);
    change->unchanged = false;
    change->status = copy(&change->next, change->crdt, &change->err);
    if (!change->status)
        change->status = merge_cell(change->next, now, &change->err);
    if (!change->status && change->fn)
        change->status = change->fn(change->next, change->data, &change->err);
    if (!change->status)
        change->status = write_bytes(change, next);
    if (!change->status)
        change->unchanged = has_all(now, next, &change->next->state);
    return change->status || change->unchanged;
}

static void adopt(struct change *change)
{
    struct crdt_state before = change->crdt->state;
    change->crdt->state = change->next->state;
    change->next->state = before;
}

/* fn may have returned a status without an error. */
static enum stile_status stopped(struct change *change, struct stile_error *why)
{
    if (change->err.status == change->status)
        *why = change->err;
    else
        error_set(why, change->status, 0, "the caller decided against it");
    return change->status;
}

enum stile_status stile_crdt_update(struct stile_crdt *crdt, struct stile_client *client,
                                    const char *key, stile_crdt_fn *fn, void *data,
                                    const struct stile_cell_options *options,
                                    struct stile_error *err)
{
    struct change change = {.crdt = crdt, .fn = fn, .data = data};
    struct stile_error why = {0};
    if (!crdt)
        return error_set(err, STILE_MISUSE, 0, "updating a CRDT: none given");
    enum stile_status status = stile_cell_update(NULL, client, key, step, &change, options, &why);
    if (change.status)
        status = error_wrap(&why, stopped(&change, &why), "updating '%s'", key);
    else if (change.unchanged)
        status = STILE_OK;
    if (change.next && (!status || status == STILE_UNCERTAIN))
        adopt(&change);
    forget(&change);
    if (status)
        error_copy(err, &why);
    return status;
}
