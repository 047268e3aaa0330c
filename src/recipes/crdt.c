/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* CRDTs: what all kinds have in common. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/options.h"
#include "recipes/crdt_state.h"

#define DRIFT_MS 60000

static const struct options_kind kind_of_options = {
    .name = "CRDT options",
    .macro = "STILE_CRDT_OPTIONS",
    .size = sizeof(struct stile_crdt_options),
    .least = OPTIONS_UP_TO(struct stile_crdt_options, drift_ms),
};

static void state_free(struct crdt_state *state)
{
    free(state->counts.all);
    crdt_elements_free(&state->elements);
    free(state->last.value);
}

/* ---- new and free ---- */

static enum stile_status check(enum stile_crdt_kind kind, const struct stile_crdt_options *o,
                               struct stile_error *err)
{
    if (kind < STILE_CRDT_GCOUNTER || kind > STILE_CRDT_LWW)
        return error_set(err, STILE_MISUSE, 0, "there is no kind %d", (int)kind);
    if (o->drift_ms < 0)
        return error_set(err, STILE_MISUSE, 0, "drift_ms is negative");
    return STILE_OK;
}

static enum stile_status set_replica(struct stile_crdt *crdt, const void *replica,
                                     struct stile_error *err)
{
    ssize_t n;
    if (replica) {
        memcpy(crdt->replica, replica, sizeof crdt->replica);
        return STILE_OK;
    }
    do /* so few bytes come as a whole */
        n = getrandom(crdt->replica, sizeof crdt->replica, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? error_errno(err, STILE_REFUSED, errno, "getrandom") : STILE_OK;
}

enum stile_status stile_crdt_new(struct stile_crdt **crdt, enum stile_crdt_kind kind,
                                 const struct stile_crdt_options *options, struct stile_error *err)
{
    struct stile_crdt_options o;
    if (!crdt)
        return error_set(err, STILE_MISUSE, 0, "making a CRDT: no place for it");
    *crdt = NULL;
    enum stile_status status = options_read(&o, options, &kind_of_options, err);
    if (!status)
        status = check(kind, &o, err);
    struct stile_crdt *made = status ? NULL : calloc(1, sizeof *made);
    if (!status && !made)
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    if (!status)
        status = set_replica(made, o.replica, err);
    if (status) {
        free(made);
        return error_wrap(err, status, "making a CRDT");
    }
    made->kind = kind;
    made->clock = o.clock;
    made->clock_data = o.clock_data;
    made->drift_ms = o.drift_ms ? o.drift_ms : DRIFT_MS;
    *crdt = made;
    return STILE_OK;
}

void stile_crdt_free(struct stile_crdt *crdt)
{
    if (!crdt)
        return;
    state_free(&crdt->state);
    free(crdt);
}

enum stile_crdt_kind stile_crdt_kind(const struct stile_crdt *crdt)
{
    return crdt ? crdt->kind : (enum stile_crdt_kind)0;
}

const void *stile_crdt_replica(const struct stile_crdt *crdt)
{
    return crdt ? crdt->replica : NULL;
}

/* ---- merging ---- */

/* The result is made beside the old state: without memory, nothing has changed. */
static enum stile_status merge(struct stile_crdt *crdt, const struct stile_crdt *other,
                               struct stile_error *err)
{
    struct crdt_state merged = {0};
    if (crdt->kind == STILE_CRDT_LWW)
        return crdt_register_merge(crdt, &other->state.last, err);
    int failed = crdt_counts_merge(&merged.counts, &crdt->state.counts, &other->state.counts);
    if (!failed)
        failed = crdt_elements_merge(&merged.elements, &crdt->state, &other->state);
    if (failed) {
        state_free(&merged);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    state_free(&crdt->state);
    crdt->state = merged;
    return STILE_OK;
}

enum stile_status stile_crdt_merge(struct stile_crdt *crdt, const struct stile_crdt *other,
                                   struct stile_error *err)
{
    static const char doing[] = "merging CRDTs";
    if (!crdt || !other)
        return error_set(err, STILE_MISUSE, 0, "%s: no CRDT given", doing);
    enum stile_status status = crdt_check_kind(other, crdt->kind, crdt->kind, doing, err);
    if (status || crdt == other)
        return status;
    status = merge(crdt, other, err);
    return status ? error_wrap(err, status, "%s", doing) : STILE_OK;
}

bool stile_crdt_equal(const struct stile_crdt *a, const struct stile_crdt *b)
{
    if (!a || !b || a->kind != b->kind)
        return a == b;
    return crdt_counts_equal(&a->state.counts, &b->state.counts) &&
           crdt_elements_equal(&a->state.elements, &b->state.elements) &&
           crdt_register_compare(&a->state.last, &b->state.last) == 0;
}
