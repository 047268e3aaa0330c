/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: counters, sets and registers that many change at once and that merge without a lock.
 *
 *  K1. No limit can be kept: two replicas that each see one unit left both take it. For stock,
 *      seats and balances use a lock, a version or one atomic statement.
 *  K2. A replica id belongs to one state at a time. Two states that change under one id lose
 *      changes when they merge: a copy, a fork, a backup that was restored. Random ids are safe.
 *  K3. Each id that ever added something stays in the state, 17 bytes and more. Give a long-lived
 *      replica one id, not a new one to each process.
 *  K4. A set forgets what was removed: there are no tombstones. Of an add and a removal that did
 *      not see each other, the add wins.
 *  K5. A register keeps the write with the latest time and drops the others without a word. Times
 *      never go back. A state whose time is more than drift_ms ahead of the local clock is not
 *      merged (REFUSED), so that one wrong clock cannot win for ever.
 *  K6. Bytes of others are checked for form, not for truth: a hostile replica can still count up,
 *      or remove what it has seen.
 *
 * Merging is commutative, associative and idempotent: messages may be lost, repeated and reordered,
 * and replicas that have merged the same states are equal. A call that fails changes nothing. An
 * object is used by one thread at a time.
 */
#include "../stile.h" /* before the rest: it includes cell.h, too */

#ifndef STILE_CRDT_H
#define STILE_CRDT_H

#ifdef __cplusplus
extern "C" {
#endif

#define STILE_CRDT_MAX       (1024 * 1024) /* bytes of an encoded state; in a cell: STILE_CELL_MAX */
#define STILE_CRDT_VALUE_MAX (64 * 1024)   /* bytes of an element or a register's value */
#define STILE_REPLICA_SIZE   16            /* bytes of an id */

enum stile_crdt_kind {
    STILE_CRDT_GCOUNTER = 1, /* grows only */
    STILE_CRDT_PNCOUNTER,    /* grows and shrinks */
    STILE_CRDT_ORSET,        /* add wins (ORSWOT) */
    STILE_CRDT_LWW,          /* the last write wins, by a hybrid logical clock */
};

struct stile_crdt;
struct stile_cell_options;

/* Unix milliseconds. */
typedef int64_t stile_clock_fn(void *data);

/* Zero means default everywhere. */
struct stile_crdt_options {
    size_t size;           /* sizeof this struct; STILE_CRDT_OPTIONS fills it */
    const void *replica;   /* STILE_REPLICA_SIZE bytes, copied; NULL: random */
    stile_clock_fn *clock; /* of a register; NULL: CLOCK_REALTIME */
    void *clock_data;
    int64_t drift_ms; /* how far ahead of the clock a merged register may be (60 s) */
};

static inline struct stile_crdt_options stile_crdt_options_init(void)
{
    struct stile_crdt_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_CRDT_OPTIONS(...) STILE_OPTIONS_OF(stile_crdt_options, __VA_ARGS__)
#endif

/* An empty state. *crdt is yours to free. */
STILE_API enum stile_status stile_crdt_new(struct stile_crdt **crdt, enum stile_crdt_kind kind,
                                           const struct stile_crdt_options *options,
                                           struct stile_error *err);
STILE_API void stile_crdt_free(struct stile_crdt *crdt);
STILE_API enum stile_crdt_kind stile_crdt_kind(const struct stile_crdt *crdt);
/* STILE_REPLICA_SIZE bytes, borrowed. */
STILE_API const void *stile_crdt_replica(const struct stile_crdt *crdt);

/* crdt becomes the union of both, which must be of one kind. */
STILE_API enum stile_status
stile_crdt_merge(struct stile_crdt *crdt, const struct stile_crdt *other, struct stile_error *err);
/* The same kind and state, whatever their replica ids. */
STILE_API bool stile_crdt_equal(const struct stile_crdt *a, const struct stile_crdt *b);

/* *size: the bytes needed. out NULL: only that. MISUSE: out_size is less, or more than
 * STILE_CRDT_MAX would be needed. Equal states give equal bytes. */
STILE_API enum stile_status stile_crdt_encode(size_t *size, void *out, size_t out_size,
                                              const struct stile_crdt *crdt,
                                              struct stile_error *err);
/* CORRUPT: no bytes that encode would write. Bytes from anywhere are safe to decode, and take at
 * most about 32 times their size of memory. *crdt is yours to free; the replica id is not part of
 * the bytes. */
STILE_API enum stile_status stile_crdt_decode(struct stile_crdt **crdt, const void *bytes,
                                              size_t size, const struct stile_crdt_options *options,
                                              struct stile_error *err);

/* ---- counters ---- */

/* MISUSE: n < 0 on a G-Counter, or this replica has counted to the end. */
STILE_API enum stile_status stile_counter_add(struct stile_crdt *crdt, int64_t n,
                                              struct stile_error *err);
/* INT64_MIN or INT64_MAX instead of what is beyond. 0: not a counter. */
STILE_API int64_t stile_counter_value(const struct stile_crdt *crdt);

/* ---- sets ---- */

STILE_API enum stile_status stile_orset_add(struct stile_crdt *crdt, const void *element,
                                            size_t size, struct stile_error *err);
/* OK if it is not there. Only the adds that this replica has seen are removed. */
STILE_API enum stile_status stile_orset_remove(struct stile_crdt *crdt, const void *element,
                                               size_t size, struct stile_error *err);
STILE_API bool stile_orset_has(const struct stile_crdt *crdt, const void *element, size_t size);
STILE_API size_t stile_orset_count(const struct stile_crdt *crdt);
/* Return non-zero to stop. The element has a NUL behind it and lasts until the set changes; fn must
 * not change it. */
typedef int stile_orset_fn(const void *element, size_t size, void *data);
/* In byte order. */
STILE_API void stile_orset_each(const struct stile_crdt *crdt, stile_orset_fn *fn, void *data);

/* ---- registers ---- */

STILE_API enum stile_status stile_lww_set(struct stile_crdt *crdt, const void *value, size_t size,
                                          struct stile_error *err);
/* With a NUL behind it, borrowed until crdt changes; NULL: never set. size may be NULL. */
STILE_API const void *stile_lww_get(size_t *size, const struct stile_crdt *crdt);
/* When it was set, by the clock of K5; 0: never. */
STILE_API uint64_t stile_lww_time_ms(const struct stile_crdt *crdt);

/* ---- stored in a cell ---- */

typedef enum stile_status stile_crdt_fn(struct stile_crdt *crdt, void *data,
                                        struct stile_error *err);

/* Reads the cell, merges it into crdt, calls fn, which may be NULL, and writes the result by
 * compare-and-swap (stile_cell_update); fn is called again, on a state without its change, if
 * another was faster. No lock is needed. Nothing is written if the cell has everything already; so
 * fn NULL reads, and a status of fn other than OK is returned and writes nothing.
 *
 * OK: crdt is what the cell holds. UNCERTAIN: crdt has the change, the cell may have it. Call again
 * with fn NULL, which counts nothing twice; unless others change this cell under the same id.
 * Otherwise crdt is as it was.
 *
 * Processes that only ever change a state through this call, in one cell, may share an id (K2). */
STILE_API enum stile_status stile_crdt_update(struct stile_crdt *crdt, struct stile_client *client,
                                              const char *key, stile_crdt_fn *fn, void *data,
                                              const struct stile_cell_options *options,
                                              struct stile_error *err);

#ifdef __cplusplus
}
#endif
#endif
