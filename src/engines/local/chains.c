/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Hash chains, and how their number grows and shrinks. */
#include "engines/local/chains.h"

#include <string.h>

#include "engines/local/quick.h"

/* A chain that is longer than this is no accident, and is not split: the journal has an end. */
#define SPLIT_MAX 32

/* Other work of the transaction leaves room for a split. */
#define EDITS_BEFORE_SPLIT 150

/* How often a segment is asked for while the disk is full: with one name in so many. */
#define NAMES_PER_TRY 256

#define EDITS_FOR_JOINS 200

/* ---- which bucket ---- */

static const struct segments_cell *segments_of(struct tx *tx)
{
    const struct segments_cell *cell = &tx_read(tx, AT_SEGMENTS, CELL_SEGMENTS)->segments;
    if (tx_is_ok(tx) && (cell->n_buckets < BUCKETS || cell->n_buckets > BUCKETS_MAX))
        local_tx_fail(tx, STILE_CORRUPT, 0, "the number of hash chains is impossible");
    return cell;
}

/* The segment that ends the buckets, if the last of them is in one. */
static unsigned segment_of(uint32_t bucket)
{
    return 31 - (unsigned)__builtin_clz(bucket) - BUCKET_BITS;
}

static uint32_t first_of(unsigned segment)
{
    return (uint32_t)BUCKETS << segment;
}

uint32_t local_chain_segment_cells(unsigned segment)
{
    return (first_of(segment) + BUCKETS_PER_CELL - 1) / BUCKETS_PER_CELL;
}

/* Where a bucket is: its cell, and its place in there. */
struct place {
    uint32_t cell, at;
};

static struct place place_of(struct tx *tx, uint32_t bucket)
{
    if (bucket < BUCKETS)
        return (struct place){AT_BUCKETS + bucket / BUCKETS_PER_CELL, bucket % BUCKETS_PER_CELL};
    unsigned segment = segment_of(bucket);
    uint32_t within = bucket - first_of(segment);
    return (struct place){segments_of(tx)->first[segment] + within / BUCKETS_PER_CELL,
                          within % BUCKETS_PER_CELL};
}

uint64_t local_chain_key(const struct chained_cell *cell)
{
    return cell->kind == CELL_SESSION ? cell->key & QUICK_TAG_MASK : cell->key;
}

/* As it would be if there were as many buckets as there can be. */
static uint32_t finest_bucket(uint64_t key)
{
    uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t family = (uint32_t)(mixed >> (64 - BUCKET_BITS));
    uint32_t member = (uint32_t)(mixed << BUCKET_BITS >> (64 - SEGMENTS_MAX));
    return member << BUCKET_BITS | family;
}

uint32_t local_chain_bucket_among(uint32_t n_buckets, uint64_t key)
{
    uint32_t finest = finest_bucket(key);
    if (n_buckets <= BUCKETS)
        return finest % BUCKETS;
    uint32_t half = first_of(segment_of(n_buckets - 1)), bucket = finest & (2 * half - 1);
    return bucket < n_buckets ? bucket : bucket - half;
}

uint32_t local_chain_bucket(struct tx *tx, uint64_t key)
{
    return local_chain_bucket_among(segments_of(tx)->n_buckets, key);
}

uint32_t local_chain_relative(struct tx *tx, uint32_t bucket)
{
    return bucket + BUCKETS < segments_of(tx)->n_buckets ? bucket + BUCKETS : 0;
}

/* ---- chains ---- */

static const struct buckets_cell *read_buckets(struct tx *tx, uint32_t cell)
{
    return &tx_read(tx, cell, CELL_BUCKETS)->buckets;
}

/* A cell of an earlier generation is empty. */
uint32_t local_chain_first(struct tx *tx, uint32_t bucket)
{
    struct place place = place_of(tx, bucket);
    const struct buckets_cell *cell = read_buckets(tx, place.cell);
    uint32_t generation = cell->generation, first = cell->first[place.at];
    return first && generation == tx_ledger(tx)->generation ? first : 0;
}

/* Of a family that has more members nothing is known. */
uint32_t local_chain_next_family(struct tx *tx, uint32_t bucket)
{
    uint32_t generation = tx_ledger(tx)->generation, n_buckets = segments_of(tx)->n_buckets;
    while (bucket < BUCKETS && tx->n_reads < TX_READS_STEP && tx_is_ok(tx)) {
        if (bucket + BUCKETS < n_buckets)
            return bucket;
        const struct buckets_cell *cell = read_buckets(tx, AT_BUCKETS + bucket / BUCKETS_PER_CELL);
        do
            if (cell->generation == generation && cell->first[bucket % BUCKETS_PER_CELL])
                return bucket;
        while (++bucket % BUCKETS_PER_CELL && bucket < BUCKETS);
    }
    return bucket;
}

static uint32_t *edit_bucket(struct tx *tx, uint32_t bucket)
{
    struct place place = place_of(tx, bucket);
    uint32_t generation = tx_ledger(tx)->generation;
    struct buckets_cell *cell = &tx_edit(tx, place.cell, CELL_BUCKETS)->buckets;
    if (cell->generation != generation) {
        memset(cell->first, 0, sizeof cell->first);
        cell->generation = generation;
    }
    return &cell->first[place.at];
}

static const union cell nothing;

/* Names and sessions share the chains, so the kind is checked after the read. */
const struct chained_cell *local_chain_at(struct tx *tx, uint32_t index)
{
    const union cell *cell = local_tx_peek(tx, index);
    if (cell->kind != CELL_NAME && cell->kind != CELL_SESSION)
        local_tx_fail(tx, STILE_CORRUPT, 0, "a hash chain links to a wrong cell");
    return tx_is_ok(tx) ? &cell->chained : &nothing.chained;
}

static struct chained_cell *edit_chained(struct tx *tx, uint32_t index)
{
    return &tx_edit(tx, index, (enum cell_kind)local_tx_peek(tx, index)->kind)->chained;
}

void local_chain_insert(struct tx *tx, uint64_t key, uint32_t index, enum cell_kind kind)
{
    uint32_t bucket = local_chain_bucket(tx, key);
    uint32_t *first = edit_bucket(tx, bucket);
    tx_edit(tx, index, kind)->chained.chain = *first;
    *first = index;
}

void local_chain_remove(struct tx *tx, uint64_t key, uint32_t index)
{
    uint32_t bucket = local_chain_bucket(tx, key), at = local_chain_first(tx, bucket), before = 0;
    while (at && at != index) {
        before = at;
        at = local_chain_at(tx, at)->chain;
    }
    uint32_t rest = at ? local_chain_at(tx, at)->chain : 0;
    if (!at)
        local_tx_fail(tx, STILE_CORRUPT, 0, "a cell is missing in its hash chain");
    else if (before)
        edit_chained(tx, before)->chain = rest;
    else
        *edit_bucket(tx, bucket) = rest;
}

/* ---- more of them ---- */

static struct segments_cell *edit_segments(struct tx *tx)
{
    return &tx_edit(tx, AT_SEGMENTS, CELL_SEGMENTS)->segments;
}

/* Nothing refers to the cell yet, so it is written without the journal. */
static bool write_empty(struct tx *tx, uint32_t index)
{
    union cell *cell = local_tx_unused_cell(tx, index);
    if (!cell)
        return false;
    *cell = (union cell){.buckets = {.generation = tx_ledger(tx)->generation}};
    cell->kind = CELL_BUCKETS;
    cell->check = cell_sum(cell, index);
    return true;
}

/* The last cell of a segment is made at once: free cells are trimmed down to it. */
static bool add_segment(struct tx *tx, unsigned segment)
{
    uint32_t n_cells = local_chain_segment_cells(segment);
    if (tx_ledger(tx)->n_names % NAMES_PER_TRY)
        return false;
    uint32_t first = local_tx_take_run(tx, n_cells);
    if (!first || !write_empty(tx, first + n_cells - 1))
        return false;
    edit_segments(tx)->first[segment] = first;
    return true;
}

static bool is_splittable(struct tx *tx, uint32_t bucket)
{
    uint32_t n = 0;
    for (uint32_t i = local_chain_first(tx, bucket); i && n <= SPLIT_MAX; n++)
        i = local_chain_at(tx, i)->chain;
    return n <= SPLIT_MAX && tx_is_ok(tx);
}

/* Room for one more bucket. */
static bool make_bucket(struct tx *tx, uint32_t bucket)
{
    unsigned segment = segment_of(bucket);
    if (!segments_of(tx)->first[segment] && !add_segment(tx, segment))
        return false;
    struct place place = place_of(tx, bucket);
    if (place.at == 0 && !write_empty(tx, place.cell))
        return false;
    *edit_bucket(tx, bucket) = 0; /* it may have been one before, and been joined */
    return tx_is_ok(tx);
}

/* Cells whose key has this bit move. Only links that change are written. */
static void split(struct tx *tx, uint32_t from, uint32_t to, uint32_t bit)
{
    uint32_t before[2] = {0, 0};
    uint32_t bucket[2] = {from, to};
    uint32_t next = local_chain_first(tx, from);
    bool was_moved = false;
    while (next && tx_is_ok(tx)) {
        const struct chained_cell *cell = local_chain_at(tx, next);
        uint32_t index = next;
        bool moves = finest_bucket(local_chain_key(cell)) & bit;
        next = cell->chain;
        if (moves != was_moved && before[moves])
            edit_chained(tx, before[moves])->chain = index;
        else if (!before[moves] && (moves || was_moved))
            *edit_bucket(tx, bucket[moves]) = index;
        before[moves] = index;
        was_moved = moves;
    }
    if (!before[0])
        *edit_bucket(tx, from) = 0;
    for (int i = 0; i < 2; i++)
        if (before[i] && local_chain_at(tx, before[i])->chain)
            edit_chained(tx, before[i])->chain = 0;
}

/* The names that the next split will look at are fetched meanwhile. */
static void fetch_chain(struct tx *tx, uint32_t bucket)
{
    uint32_t first = local_chain_first(tx, bucket);
    if (first < tx->store->n_cells)
        __builtin_prefetch(&tx->store->cells[first], 1);
}

void local_chain_grow(struct tx *tx)
{
    uint32_t to = segments_of(tx)->n_buckets;
    if (tx_ledger(tx)->n_names <= to || to >= BUCKETS_MAX || tx->n_edits > EDITS_BEFORE_SPLIT ||
        !tx_is_ok(tx))
        return;
    uint32_t half = first_of(segment_of(to)), from = to - half;
    if (!is_splittable(tx, from) || !make_bucket(tx, to))
        return;
    split(tx, from, to, half);
    edit_segments(tx)->n_buckets = to + 1;
    fetch_chain(tx, from + 1);
}

/* ---- fewer ---- */

/* The last segment; false: there is none. */
static bool last_segment(struct tx *tx, unsigned *segment)
{
    const struct segments_cell *segments = segments_of(tx);
    for (*segment = SEGMENTS_MAX; *segment > 0; --*segment)
        if (segments->first[*segment - 1]) {
            --*segment;
            return tx_is_ok(tx);
        }
    return false;
}

static bool may_shrink(struct tx *tx)
{
    unsigned segment;
    const struct ledger_cell *ledger = tx_ledger(tx);
    return last_segment(tx, &segment) && ledger->n_names < first_of(segment) / 2 &&
           segments_of(tx)->first[segment] + local_chain_segment_cells(segment) == ledger->n_used;
}

/* The chain of the last bucket goes before that of the bucket it came from. */
static void join(struct tx *tx, uint32_t from, uint32_t to)
{
    uint32_t first = local_chain_first(tx, from), last = first;
    if (!first)
        return;
    for (uint32_t next = last; next && tx_is_ok(tx); next = local_chain_at(tx, next)->chain)
        last = next;
    uint32_t *bucket = edit_bucket(tx, to);
    edit_chained(tx, last)->chain = *bucket;
    *bucket = first;
}

bool local_chain_shrink(struct tx *tx)
{
    unsigned segment;
    if (!may_shrink(tx) || !last_segment(tx, &segment))
        return false;
    struct segments_cell *segments = edit_segments(tx);
    while (segments->n_buckets > first_of(segment) && tx->n_edits < EDITS_FOR_JOINS &&
           tx->n_reads < TX_READS_STEP && tx_is_ok(tx)) {
        uint32_t last = segments->n_buckets - 1;
        join(tx, last, last - first_of(segment));
        segments->n_buckets--;
    }
    if (segments->n_buckets <= first_of(segment)) {
        tx_edit_ledger(tx)->n_used = segments->first[segment];
        segments->first[segment] = 0;
    }
    return tx_is_ok(tx);
}

void local_chain_reset(struct tx *tx)
{
    struct segments_cell *segments = edit_segments(tx);
    segments->n_buckets = BUCKETS;
    memset(segments->first, 0, sizeof segments->first);
}
