/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* CRDTs as bytes. Equal states have equal bytes, and there is one way to write each state:
 *
 *   state    = "SC" version kind body
 *   version  = %x01
 *   kind     = %x01 G-Counter / %x02 PN-Counter / %x03 OR-Set / %x04 LWW-Register
 *   number   = LEB128 without needless bytes, below 2^63
 *   body     = number of replicas, then for each, in strict order of ids:
 *                id (16 bytes), count (1 or more); PN: up, down (not both 0); OR-Set: its adds
 *              OR-Set, behind them: number of elements, then for each, in strict byte order:
 *                size, bytes, number of dots (1 or more), then for each dot, in strict order:
 *                index of the replica, which of its adds (1 or more, at most its number of adds)
 *   body LWW = %x00: never set
 *            / %x01 milliseconds (below 2^48) n (below 2^32) id size bytes
 *
 * Nothing follows. What is read is counted against the bytes that are left before anything is
 * allocated for it. Nothing is nested. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recipes/crdt_state.h"

#define FORM_VERSION 1

/* ---- writing ---- */

/* Counts what has no room. */
struct writer {
    unsigned char *out;
    size_t room, size;
};

static void put_bytes(struct writer *w, const void *bytes, size_t n)
{
    if (w->size <= w->room && n <= w->room - w->size && n > 0)
        memcpy(w->out + w->size, bytes, n);
    w->size += n;
}

static void put_number(struct writer *w, uint64_t number)
{
    unsigned char bytes[10];
    size_t n = 0;
    do {
        bytes[n] = number & 0x7f;
        number >>= 7;
        bytes[n++] |= number ? 0x80 : 0;
    } while (number);
    put_bytes(w, bytes, n);
}

static void put_counts(struct writer *w, const struct crdt_counts *counts, bool both)
{
    put_number(w, counts->n);
    for (size_t i = 0; i < counts->n; i++) {
        put_bytes(w, counts->all[i].id, STILE_REPLICA_SIZE);
        put_number(w, counts->all[i].up);
        if (both)
            put_number(w, counts->all[i].down);
    }
}

static void put_element(struct writer *w, const struct crdt_element *element,
                        const struct crdt_counts *counts)
{
    put_number(w, element->size);
    put_bytes(w, crdt_element_bytes(element), element->size);
    put_number(w, element->n_dots);
    for (size_t i = 0; i < element->n_dots; i++) {
        put_number(w, crdt_counts_place(counts, element->dots[i].id));
        put_number(w, element->dots[i].n);
    }
}

static void put_elements(struct writer *w, const struct crdt_state *state)
{
    put_number(w, state->elements.n);
    for (size_t i = 0; i < state->elements.n; i++)
        put_element(w, state->elements.all[i], &state->counts);
}

static void put_register(struct writer *w, const struct crdt_register *last)
{
    put_number(w, last->value != NULL);
    if (!last->value)
        return;
    put_number(w, last->ms);
    put_number(w, last->n);
    put_bytes(w, last->id, STILE_REPLICA_SIZE);
    put_number(w, last->size);
    put_bytes(w, last->value, last->size);
}

static size_t write_state(unsigned char *out, size_t room, const struct stile_crdt *crdt)
{
    struct writer w = {.out = out, .room = room};
    const unsigned char head[] = {'S', 'C', FORM_VERSION, (unsigned char)crdt->kind};
    put_bytes(&w, head, sizeof head);
    if (crdt->kind == STILE_CRDT_LWW)
        put_register(&w, &crdt->state.last);
    else
        put_counts(&w, &crdt->state.counts, crdt->kind == STILE_CRDT_PNCOUNTER);
    if (crdt->kind == STILE_CRDT_ORSET)
        put_elements(&w, &crdt->state);
    return w.size;
}

enum stile_status stile_crdt_encode(size_t *size, void *out, size_t out_size,
                                    const struct stile_crdt *crdt, struct stile_error *err)
{
    if (!size || !crdt)
        return error_set(err, STILE_MISUSE, 0, "encoding a CRDT: no %s given",
                         crdt ? "size" : "CRDT");
    *size = write_state(out, out ? out_size : 0, crdt);
    if (*size > STILE_CRDT_MAX)
        return error_set(err, STILE_MISUSE, 0, "encoding a CRDT: it has %zu bytes, %d is the limit",
                         *size, STILE_CRDT_MAX);
    if (out && *size > out_size)
        return error_set(err, STILE_MISUSE, 0, "encoding a CRDT: %zu bytes needed, room for %zu",
                         *size, out_size);
    return STILE_OK;
}

/* ---- reading ---- */

/* The first fault is kept; everything read behind it is 0. */
struct reader {
    const unsigned char *at, *end;
    enum stile_status status;
    const char *fault;
};

static void fault(struct reader *r, enum stile_status status, const char *what)
{
    if (r->status)
        return;
    r->status = status;
    r->fault = what;
    r->at = r->end;
}

static size_t left(const struct reader *r)
{
    return (size_t)(r->end - r->at);
}

/* NULL after a fault. */
static const unsigned char *get_bytes(struct reader *r, size_t n)
{
    const unsigned char *bytes = r->at;
    if (n > left(r))
        fault(r, STILE_CORRUPT, "it is cut off");
    if (r->status)
        return NULL;
    r->at += n;
    return bytes;
}

static uint64_t get_number(struct reader *r, uint64_t least, uint64_t most)
{
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 63; shift += 7) {
        const unsigned char *byte = get_bytes(r, 1);
        if (!byte)
            return 0;
        number |= (uint64_t)(*byte & 0x7f) << shift;
        if (*byte & 0x80)
            continue;
        if ((*byte == 0 && shift > 0) || number < least || number > most)
            break;
        return number;
    }
    fault(r, STILE_CORRUPT, "a number is out of range");
    return 0;
}

/* A number of things that take at least so many bytes each. */
static size_t get_length(struct reader *r, uint64_t least, size_t bytes_each)
{
    uint64_t n = get_number(r, least, CRDT_COUNT_MAX);
    if (n <= left(r) / bytes_each)
        return (size_t)n;
    fault(r, STILE_CORRUPT, "it is cut off");
    return 0;
}

static void get_count(struct reader *r, struct crdt_counts *counts, bool both)
{
    const unsigned char *id = get_bytes(r, STILE_REPLICA_SIZE);
    uint64_t up = get_number(r, both ? 0 : 1, CRDT_COUNT_MAX);
    uint64_t down = both ? get_number(r, up > 0 ? 0 : 1, CRDT_COUNT_MAX) : 0;
    if (r->status)
        return;
    size_t place = crdt_counts_place(counts, id);
    if (place < counts->n || crdt_counts_has(counts, place, id)) {
        fault(r, STILE_CORRUPT, "its replicas are not in order");
        return;
    }
    struct crdt_count *count = crdt_counts_make(counts, id);
    if (!count) {
        fault(r, STILE_NOMEM, "out of memory");
        return;
    }
    count->up = up;
    count->down = down;
}

static void get_counts(struct reader *r, struct crdt_counts *counts, bool both)
{
    size_t n = get_length(r, 0, STILE_REPLICA_SIZE + 1);
    for (size_t i = 0; i < n && !r->status; i++)
        get_count(r, counts, both);
}

static void get_dots(struct reader *r, struct crdt_dot *dots, size_t n,
                     const struct crdt_counts *counts)
{
    size_t least = 0;
    for (size_t i = 0; i < n; i++) {
        size_t place = get_number(r, least, CRDT_COUNT_MAX);
        if (place >= counts->n)
            fault(r, STILE_CORRUPT, "an element names a replica that is not there");
        if (r->status)
            return;
        memcpy(dots[i].id, counts->all[place].id, sizeof dots[i].id);
        dots[i].n = get_number(r, 1, counts->all[place].up);
        least = place + 1;
    }
}

static struct crdt_element *get_element(struct reader *r, const struct crdt_counts *counts)
{
    size_t size = get_length(r, 0, 1);
    const unsigned char *bytes = get_bytes(r, size);
    size_t n = get_length(r, 1, 2);
    if (size > STILE_CRDT_VALUE_MAX || n > counts->n)
        fault(r, STILE_CORRUPT, "an element is too large");
    if (r->status)
        return NULL;
    struct crdt_dot *dots = malloc(n * sizeof *dots);
    if (dots)
        get_dots(r, dots, n, counts);
    struct crdt_element *element =
        dots && !r->status ? crdt_element_new(dots, n, bytes, size) : NULL;
    free(dots);
    if (!element)
        fault(r, STILE_NOMEM, "out of memory");
    return element;
}

static bool is_last(const struct crdt_elements *elements, const struct crdt_element *element)
{
    const char *bytes = crdt_element_bytes(element);
    size_t place = crdt_elements_place(elements, bytes, element->size);
    return place == elements->n;
}

static void get_elements(struct reader *r, struct crdt_state *state)
{
    size_t n = get_length(r, 0, 4);
    for (size_t i = 0; i < n && !r->status; i++) {
        if (crdt_elements_reserve(&state->elements)) {
            fault(r, STILE_NOMEM, "out of memory");
            return;
        }
        struct crdt_element *element = get_element(r, &state->counts);
        if (!element)
            return;
        if (is_last(&state->elements, element)) {
            crdt_elements_put(&state->elements, element);
        } else {
            fault(r, STILE_CORRUPT, "its elements are not in order");
            free(element);
        }
    }
}

static void get_register(struct reader *r, struct crdt_register *last)
{
    if (get_number(r, 0, 1) == 0)
        return;
    struct crdt_register read = {.ms = get_number(r, 0, CRDT_MS_MAX),
                                 .n = (uint32_t)get_number(r, 0, UINT32_MAX)};
    const unsigned char *id = get_bytes(r, STILE_REPLICA_SIZE);
    read.size = get_length(r, 0, 1);
    if (read.size > STILE_CRDT_VALUE_MAX)
        fault(r, STILE_CORRUPT, "the value is too large");
    read.value = (char *)get_bytes(r, read.size);
    if (r->status)
        return;
    memcpy(read.id, id, sizeof read.id);
    if (crdt_register_copy(last, &read))
        fault(r, STILE_NOMEM, "out of memory");
}

static enum stile_crdt_kind get_head(struct reader *r)
{
    const unsigned char *head = get_bytes(r, 4);
    if (!head)
        return 0;
    if (head[0] != 'S' || head[1] != 'C' || head[3] < STILE_CRDT_GCOUNTER ||
        head[3] > STILE_CRDT_LWW)
        fault(r, STILE_CORRUPT, "it does not begin like one");
    else if (head[2] != FORM_VERSION)
        fault(r, STILE_CORRUPT, "it was written by a later version of stile");
    return (enum stile_crdt_kind)head[3];
}

static void get_body(struct reader *r, struct stile_crdt *crdt)
{
    if (crdt->kind == STILE_CRDT_LWW)
        get_register(r, &crdt->state.last);
    else
        get_counts(r, &crdt->state.counts, crdt->kind == STILE_CRDT_PNCOUNTER);
    if (crdt->kind == STILE_CRDT_ORSET)
        get_elements(r, &crdt->state);
    if (!r->status && left(r) > 0)
        fault(r, STILE_CORRUPT, "something follows it");
}

enum stile_status stile_crdt_decode(struct stile_crdt **crdt, const void *bytes, size_t size,
                                    const struct stile_crdt_options *options,
                                    struct stile_error *err)
{
    if (!crdt || (!bytes && size > 0))
        return error_set(err, STILE_MISUSE, 0, "decoding a CRDT: no %s",
                         crdt ? "bytes given" : "place for it");
    *crdt = NULL;
    const unsigned char *start = bytes ? bytes : (const void *)"";
    struct reader r = {.at = start, .end = start + size};
    if (size > STILE_CRDT_MAX)
        fault(&r, STILE_CORRUPT, "it is too large");
    enum stile_crdt_kind kind = get_head(&r);
    if (!r.status) {
        enum stile_status status = stile_crdt_new(crdt, kind, options, err);
        if (status)
            return error_wrap(err, status, "decoding a CRDT");
        get_body(&r, *crdt);
    }
    if (!r.status)
        return STILE_OK;
    stile_crdt_free(*crdt);
    *crdt = NULL;
    return error_set(err, r.status, 0, "decoding a CRDT: %s", r.fault);
}
