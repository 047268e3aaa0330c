#include <string.h>

#include "base/name.h"
#include "engines/local/life.h"
#include "engines/local/table.h"
#include "mutant.h"

#define READS_FOR_SWEEPS 96
#define READS_ON_INSERT  16

/* ---- hash chains ---- */

uint32_t names_bucket_of(uint64_t key)
{
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - BUCKET_BITS));
}

static uint32_t bucket_cell(uint32_t bucket)
{
    return AT_BUCKETS + bucket / BUCKETS_PER_CELL;
}

/* A cell of an earlier generation is empty. */
uint32_t names_bucket(struct tx *tx, uint32_t bucket)
{
    const struct buckets_cell *cell = &tx_read(tx, bucket_cell(bucket), CELL_BUCKETS)->buckets;
    uint32_t generation = cell->generation, first = cell->first[bucket % BUCKETS_PER_CELL];
    return first && generation == tx_ledger(tx)->generation ? first : 0;
}

uint32_t names_next_bucket(struct tx *tx, uint32_t bucket)
{
    uint32_t generation = tx_ledger(tx)->generation;
    while (bucket < BUCKETS && tx->n_reads < TX_READS_STEP && tx_is_ok(tx)) {
        const struct buckets_cell *cell = &tx_read(tx, bucket_cell(bucket), CELL_BUCKETS)->buckets;
        do
            if (cell->generation == generation && cell->first[bucket % BUCKETS_PER_CELL])
                return bucket;
        while (++bucket % BUCKETS_PER_CELL && bucket < BUCKETS);
    }
    return bucket;
}

static uint32_t *edit_bucket(struct tx *tx, uint32_t bucket)
{
    uint32_t generation = tx_ledger(tx)->generation;
    struct buckets_cell *cell = &tx_edit(tx, bucket_cell(bucket), CELL_BUCKETS)->buckets;
    if (cell->generation != generation) {
        memset(cell->first, 0, sizeof cell->first);
        cell->generation = generation;
    }
    return &cell->first[bucket % BUCKETS_PER_CELL];
}

static const union cell nothing;

/* Names and sessions hang in the same chains, so the kind is looked at after the read. */
static const struct chained_cell *chained(struct tx *tx, uint32_t index)
{
    const union cell *cell = tx_peek(tx, index);
    if (cell->kind != CELL_NAME && cell->kind != CELL_SESSION)
        tx_fail(tx, STILE_CORRUPT, 0, "a hash chain leads astray");
    return tx_is_ok(tx) ? &cell->chained : &nothing.chained;
}

uint32_t chain_find(struct tx *tx, uint64_t key, enum cell_kind kind)
{
    uint32_t next = names_bucket(tx, names_bucket_of(key));
    while (next) {
        const struct chained_cell *cell = chained(tx, next);
        if (cell->key == key && cell->kind == kind)
            return next;
        next = cell->chain;
    }
    return 0;
}

void chain_insert(struct tx *tx, uint64_t key, uint32_t index, enum cell_kind kind)
{
    uint32_t bucket = names_bucket_of(key);
    uint32_t *first = edit_bucket(tx, bucket);
    tx_edit(tx, index, kind)->chained.chain = *first;
    *first = index;
}

void chain_remove(struct tx *tx, uint64_t key, uint32_t index)
{
    uint32_t bucket = names_bucket_of(key), at = names_bucket(tx, bucket), before = 0;
    while (at && at != index) {
        before = at;
        at = chained(tx, at)->chain;
    }
    uint32_t rest = at ? chained(tx, at)->chain : 0;
    if (!at)
        tx_fail(tx, STILE_CORRUPT, 0, "a cell is missing in its hash chain");
    else if (before)
        tx_edit(tx, before, (enum cell_kind)tx_peek(tx, before)->kind)->chained.chain = rest;
    else
        *edit_bucket(tx, bucket) = rest;
}

/* ---- texts ---- */

uint32_t text_store(struct tx *tx, const char *bytes, size_t len)
{
    uint32_t first = 0;
    size_t n_cells = (len + TEXT_BYTES - 1) / TEXT_BYTES;
    while (n_cells-- > 0) {
        uint32_t index = tx_alloc(tx, CELL_TEXT);
        struct text_cell *text = &tx_edit(tx, index, CELL_TEXT)->text;
        size_t from = n_cells * TEXT_BYTES, n = len - from < TEXT_BYTES ? len - from : TEXT_BYTES;
        memcpy(text->bytes, bytes + from, n);
        text->next = first;
        first = index;
    }
    return first;
}

void text_load(struct tx *tx, uint32_t index, char *bytes, size_t len)
{
    while (len > 0) {
        const struct text_cell *text = &tx_read(tx, index, CELL_TEXT)->text;
        size_t n = len < TEXT_BYTES ? len : TEXT_BYTES;
        memcpy(bytes, text->bytes, n);
        bytes += n;
        len -= n;
        index = text->next;
    }
}

void text_free(struct tx *tx, uint32_t index)
{
    while (index) {
        uint32_t next = tx_read(tx, index, CELL_TEXT)->text.next;
        tx_free(tx, index, CELL_TEXT);
        index = next;
    }
}

/* Exactly these bytes: behind them there is a NUL, or nothing. */
static bool text_equals(struct tx *tx, uint32_t index, const char *bytes, size_t len)
{
    while (index) {
        const struct text_cell *text = &tx_read(tx, index, CELL_TEXT)->text;
        size_t n = len < TEXT_BYTES ? len : TEXT_BYTES;
        if (memcmp(bytes, text->bytes, n) != 0)
            return false;
        if (n < TEXT_BYTES)
            return text->bytes[n] == '\0';
        bytes += n;
        len -= n;
        index = text->next;
    }
    return len == 0;
}

/* ---- names ---- */

/* The hash only leads there; it is the bytes that make a name. */
static bool is_named(struct tx *tx, const struct chained_cell *cell, uint64_t hash,
                     const char *text, size_t len)
{
    const struct name_cell *name = (const struct name_cell *)cell;
    if (cell->kind != CELL_NAME || name->hash != hash)
        return false;
#ifdef MUTANT_LOCAL_NAME_BY_HASH
    return true;
#endif
    return text_equals(tx, name->text, text, len);
}

uint32_t names_find(struct tx *tx, uint64_t hash, const char *text, size_t len)
{
    uint32_t next = names_bucket(tx, names_bucket_of(hash));
    while (next) {
        const struct chained_cell *cell = chained(tx, next);
        if (is_named(tx, cell, hash, text, len))
            return next;
        next = cell->chain;
    }
    return 0;
}

void names_text(struct tx *tx, char *text, const struct name_cell *name)
{
    size_t len = 0;
    for (uint32_t index = name->text; index && len + TEXT_BYTES <= NAME_TEXT_MAX;) {
        const struct text_cell *cell = &tx_read(tx, index, CELL_TEXT)->text;
        memcpy(text + len, cell->bytes, TEXT_BYTES);
        len += TEXT_BYTES;
        index = cell->next;
    }
    text[len] = '\0';
}

static void forget(struct tx *tx, uint32_t index)
{
    struct name_cell name = *tx_name(tx, index);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
#ifndef MUTANT_LOCAL_FLOOR_FORGOTTEN
    if (ledger->floor < name.token)
        ledger->floor = name.token;
#endif
    ledger->n_names--;
    if (name.spare)
        tx_free(tx, name.spare, CELL_CLAIM);
    chain_remove(tx, name.hash, index);
    text_free(tx, name.text);
    tx_free(tx, index, CELL_NAME);
}

static bool is_idle(const struct name_cell *name)
{
    return name->kind == CELL_NAME && !name->first && !name->n_watched;
}

static bool is_far_up(uint32_t index, const struct name_cell *name)
{
    return index > KEPT_CELLS || name->text > KEPT_CELLS || name->spare > KEPT_CELLS;
}

static bool is_to_go(uint32_t index, const struct chained_cell *cell, uint32_t now_s)
{
    const struct name_cell *name = (const struct name_cell *)cell;
    return is_idle(name) && (is_far_up(index, name) || name->touched_s + FORGET_AFTER_S < now_s);
}

void names_drop_if_idle(struct tx *tx, uint32_t index)
{
    const struct name_cell *name = tx_name(tx, index);
    if (is_far_up(index, name) && is_idle(name))
        forget(tx, index);
}

static bool is_dead(struct tx *tx, const struct chained_cell *cell)
{
    return cell->kind == CELL_SESSION && !life_is_alive(tx->store->live_fd, cell->key);
}

/* How far one transaction goes. */
struct sweep {
    uint64_t now_ns;
    struct swept *swept;
    uint32_t reads, edits;
};

static bool may_go_on(const struct tx *tx, const struct sweep *sweep)
{
    return tx->n_reads < sweep->reads && tx->n_edits < sweep->edits && tx_is_ok(tx);
}

static void sweep_bucket(struct tx *tx, uint32_t bucket, const struct sweep *sweep)
{
    struct swept *swept = sweep->swept;
    uint32_t now_s = (uint32_t)(sweep->now_ns / NS_PER_SEC);
    uint32_t next = names_bucket(tx, bucket);
    while (next && tx->n_edits < sweep->edits) {
        const struct chained_cell *cell = chained(tx, next);
        uint32_t index = next;
        next = cell->chain;
        if (cell->kind == CELL_NAME)
            queue_expire(tx, index, sweep->now_ns);
        if (is_to_go(index, cell, now_s)) {
            forget(tx, index);
        } else if (swept && cell->kind == CELL_NAME) {
            queue_tidy(tx, index, swept, sweep->now_ns);
        } else if (swept && swept->n < SWEPT_MAX && is_dead(tx, cell)) {
            swept->sessions[swept->n++] = cell->key;
            sessions_drop(tx, cell->key);
        }
    }
}

/* Where chains are long, only some of the cell's buckets come to their turn; which ones differs
 * from round to round. */
static void sweep_cell(struct tx *tx, uint32_t cell, const struct sweep *sweep)
{
    uint32_t first = tx->sequence * UINT32_C(0x9e3779b1) >> 16;
    for (uint32_t i = 0; i < BUCKETS_PER_CELL && may_go_on(tx, sweep); i++) {
        uint32_t bucket = cell * BUCKETS_PER_CELL + (first + i) % BUCKETS_PER_CELL;
        if (bucket < BUCKETS)
            sweep_bucket(tx, bucket, sweep);
    }
}

/* Most are: one read instead of one for each bucket. */
static bool is_empty(struct tx *tx, uint32_t cell)
{
    uint32_t generation = tx_ledger(tx)->generation, any = 0;
    const struct buckets_cell *buckets = &tx_read(tx, AT_BUCKETS + cell, CELL_BUCKETS)->buckets;
    for (uint32_t i = 0; i < BUCKETS_PER_CELL; i++)
        any |= buckets->first[i];
    return any == 0 || buckets->generation != generation;
}

/* The cell at which it had to stop is the first of the next round. */
static void sweep_cells(struct tx *tx, unsigned n_cells, const struct sweep *sweep)
{
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    for (unsigned i = 0; i < n_cells && may_go_on(tx, sweep); i++) {
        uint32_t cell = ledger->sweep % BUCKET_CELLS;
        if (!is_empty(tx, cell))
            sweep_cell(tx, cell, sweep);
        if (i == 0 || may_go_on(tx, sweep))
            ledger->sweep = (uint16_t)((cell + 1) % BUCKET_CELLS);
    }
}

void names_sweep(struct tx *tx, unsigned n_cells, uint32_t edits, uint64_t now_ns,
                 struct swept *swept)
{
    struct sweep sweep = {now_ns, swept, tx->n_reads + READS_FOR_SWEEPS, tx->n_edits + edits};
    sweep_cells(tx, n_cells, &sweep);
}

static uint32_t insert(struct tx *tx, uint64_t hash, const char *text, size_t len, uint64_t now_ns)
{
    uint32_t index = tx_alloc(tx, CELL_NAME);
    uint32_t stored = text_store(tx, text, len);
    struct name_cell *name = tx_edit_name(tx, index);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    name->hash = hash;
    name->text = stored;
    name->token = ledger->floor;
    name->touched_s = (uint32_t)(now_ns / NS_PER_SEC);
    name->born = ++ledger->n_born;
    ledger->n_names++;
    chain_insert(tx, hash, index, CELL_NAME);
    return tx_is_ok(tx) ? index : 0;
}

bool names_is_still(struct tx *tx, uint32_t index, uint32_t born, uint64_t hash)
{
    if (!index || index >= tx->store->n_cells)
        return false;
    const union cell *cell = &tx->store->cells[index];
    return cell->kind == CELL_NAME && cell->name.born == born && cell->name.hash == hash;
}

uint32_t names_open(struct tx *tx, uint64_t hash, const char *text, size_t len, uint64_t now_ns)
{
    uint32_t index = names_find(tx, hash, text, len);
    if (index || !tx_is_ok(tx))
        return index;
    struct sweep sweep = {now_ns, NULL, tx->n_reads + READS_ON_INSERT,
                          tx->n_edits + EDITS_FOR_SWEEPS};
    sweep_cells(tx, 1, &sweep);
    return insert(tx, hash, text, len, now_ns);
}
