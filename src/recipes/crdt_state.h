/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a CRDT consists of. Each kind uses its own part; the others stay empty. */
#ifndef STILE_CRDT_STATE_H
#define STILE_CRDT_STATE_H

#include "base/error.h"

#define CRDT_COUNT_MAX ((uint64_t)INT64_MAX)
#define CRDT_MS_MAX    ((UINT64_C(1) << 48) - 1)

/* What one replica has done. In a set, up counts its adds: together they are the version vector. */
struct crdt_count {
    unsigned char id[STILE_REPLICA_SIZE];
    uint64_t up, down;
};

struct crdt_counts {
    struct crdt_count *all; /* in order of their ids */
    size_t n, room;
};

/* One add: the replica that made it, and which of its adds it was. */
struct crdt_dot {
    unsigned char id[STILE_REPLICA_SIZE];
    uint64_t n;
};

/* An element is there because of at least one add, of each replica at most one. */
struct crdt_element {
    size_t size, n_dots;
    struct crdt_dot dots[]; /* in order of their ids; the bytes and a NUL follow the last one */
};

struct crdt_elements {
    struct crdt_element **all; /* in byte order */
    size_t n, room;
};

/* The time is ms, then n for writes in one millisecond, then the replica's id. */
struct crdt_register {
    uint64_t ms;
    uint32_t n;
    unsigned char id[STILE_REPLICA_SIZE];
    char *value; /* with a NUL behind it; NULL: never set */
    size_t size;
};

struct crdt_state {
    struct crdt_counts counts;
    struct crdt_elements elements;
    struct crdt_register last;
};

struct stile_crdt {
    enum stile_crdt_kind kind;
    unsigned char replica[STILE_REPLICA_SIZE];
    stile_clock_fn *clock;
    void *clock_data;
    int64_t drift_ms;
    struct crdt_state state;
};

static inline const char *crdt_element_bytes(const struct crdt_element *element)
{
    return (const char *)(element->dots + element->n_dots);
}

static inline const char *crdt_kind_text(enum stile_crdt_kind kind)
{
    static const char *const texts[] = {"nothing", "a counter that only grows", "a counter",
                                        "a set", "a register"};
    return kind <= STILE_CRDT_LWW ? texts[kind] : texts[0];
}

/* "adding to a counter": MISUSE unless crdt is of one of these two kinds. */
static inline enum stile_status crdt_check_kind(const struct stile_crdt *crdt,
                                                enum stile_crdt_kind kind, enum stile_crdt_kind or,
                                                const char *doing, struct stile_error *err)
{
    if (crdt && (crdt->kind == kind || crdt->kind == or))
        return STILE_OK;
    if (!crdt)
        return error_set(err, STILE_MISUSE, 0, "%s: no CRDT given", doing);
    return error_set(err, STILE_MISUSE, 0, "%s: it is of another kind: %s, not %s", doing,
                     crdt_kind_text(crdt->kind), crdt_kind_text(kind));
}

static inline enum stile_status crdt_check_bytes(const void *bytes, size_t size, const char *doing,
                                                 struct stile_error *err)
{
    if (size > STILE_CRDT_VALUE_MAX)
        return error_set(err, STILE_MISUSE, 0, "%s: %zu bytes, %d is the limit", doing, size,
                         STILE_CRDT_VALUE_MAX);
    if (size > 0 && !bytes)
        return error_set(err, STILE_MISUSE, 0, "%s: no bytes given", doing);
    return STILE_OK;
}

/* ---- crdt_counts.c ---- */

/* Where it is, or where it belongs. */
size_t crdt_counts_place(const struct crdt_counts *counts, const unsigned char *id);
bool crdt_counts_has(const struct crdt_counts *counts, size_t place, const unsigned char *id);
uint64_t crdt_counts_up(const struct crdt_counts *counts, const unsigned char *id); /* 0: none */
/* A new one, all zero, if there is none; NULL: out of memory. */
struct crdt_count *crdt_counts_make(struct crdt_counts *counts, const unsigned char *id);
/* out, which is empty, becomes the maximum of both. 0 or ENOMEM. */
int crdt_counts_merge(struct crdt_counts *out, const struct crdt_counts *a,
                      const struct crdt_counts *b);
bool crdt_counts_equal(const struct crdt_counts *a, const struct crdt_counts *b);

/* ---- crdt_elements.c ---- */

/* With room for these dots, and its bytes behind them. NULL: out of memory. */
struct crdt_element *crdt_element_new(const struct crdt_dot *dots, size_t n_dots, const void *bytes,
                                      size_t size);
size_t crdt_elements_place(const struct crdt_elements *elements, const void *bytes, size_t size);
bool crdt_elements_has(const struct crdt_elements *elements, size_t place, const void *bytes,
                       size_t size);
/* Makes room for one more. 0 or ENOMEM. */
int crdt_elements_reserve(struct crdt_elements *elements);
/* There is room. The one that is there already, if any, is replaced. */
void crdt_elements_put(struct crdt_elements *elements, struct crdt_element *element);
void crdt_elements_remove(struct crdt_elements *elements, size_t place);
void crdt_elements_free(struct crdt_elements *elements);
/* The elements of out, which is empty, from two states; counts are not looked at in out. 0 or
 * ENOMEM. */
int crdt_elements_merge(struct crdt_elements *out, const struct crdt_state *a,
                        const struct crdt_state *b);
bool crdt_elements_equal(const struct crdt_elements *a, const struct crdt_elements *b);

/* ---- crdt_register.c ---- */

/* Negative, 0 or positive: by time, and by value if a forged one has the same time. */
int crdt_register_compare(const struct crdt_register *a, const struct crdt_register *b);
/* *out, which is not freed before, nor changed after ENOMEM. */
int crdt_register_copy(struct crdt_register *out, const struct crdt_register *from);
/* REFUSED: its time is too far ahead of the clock. NOMEM. */
enum stile_status crdt_register_merge(struct stile_crdt *crdt, const struct crdt_register *other,
                                      struct stile_error *err);

#endif
