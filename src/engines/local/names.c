/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a name, and sweeping away names, claims and sessions that are no longer needed. */
#include <string.h>
#include <unistd.h>

#include "base/name.h"
#include "engines/local/liveness.h"
#include "engines/local/table.h"

#define READS_FOR_SWEEPS 96
#define READS_ON_INSERT  16
#define NAMES_PER_SWEEP  16
#define EDITS_FOR_ENDING 200

/* ---- sweeping ---- */

static bool is_dead(struct tx *tx, const struct chained_cell *cell)
{
    return cell->kind == CELL_SESSION && !local_liveness_is_alive(tx->store->live_fd, cell->key);
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

/* An open name that has been used since it was opened stays. The claim of a dead holder becomes one
 * that is cleared away like others. */
static void close_if_idle(struct tx *tx, uint32_t index, const struct sweep *sweep)
{
    const struct name_cell *name = tx_name(tx, index);
    uint32_t now_s = (uint32_t)(sweep->now_ns / NS_PER_SEC);
    uint64_t token = name->token, holder = local_queue_quick_holder(tx, index);
    if (name->touched_s + FORGET_AFTER_S >= now_s &&
        (!sweep->swept || !holder || local_liveness_is_alive(tx->store->live_fd, holder)))
        return;
    local_queue_close(tx, index);
    if (name->token != token)
        tx_edit_name(tx, index)->touched_s = now_s;
}

static void settle_name(struct tx *tx, uint32_t index, const struct sweep *sweep)
{
    if (tx_name(tx, index)->is_quick)
        close_if_idle(tx, index, sweep);
    local_queue_expire(tx, index, sweep->now_ns);
}

static void sweep_bucket(struct tx *tx, uint32_t bucket, const struct sweep *sweep)
{
    struct swept *swept = sweep->swept;
    uint32_t now_s = (uint32_t)(sweep->now_ns / NS_PER_SEC);
    uint32_t next = local_chain_first(tx, bucket);
    while (next && tx->n_edits < sweep->edits) {
        const struct chained_cell *cell = local_chain_at(tx, next);
        uint32_t index = next;
        next = cell->chain;
        if (cell->kind == CELL_NAME)
            settle_name(tx, index, sweep);
        if (local_names_is_to_go(index, cell, now_s)) {
            local_names_forget(tx, index);
        } else if (swept && cell->kind == CELL_NAME) {
            local_queue_tidy(tx, index, swept, sweep->now_ns);
        } else if (swept && swept->n < SWEPT_MAX && is_dead(tx, cell)) {
            swept->sessions[swept->n++] = cell->key;
            local_sessions_drop(tx, cell->key);
        }
    }
}

static void sweep_family(struct tx *tx, uint32_t bucket, const struct sweep *sweep)
{
    do {
        sweep_bucket(tx, bucket, sweep);
        bucket = local_chain_relative(tx, bucket);
    } while (bucket && may_go_on(tx, sweep));
}

/* Where there are many names, only some of the cell's families are swept; which ones differs from
 * round to round. */
static void sweep_cell(struct tx *tx, uint32_t cell, const struct sweep *sweep)
{
    uint32_t first = tx->sequence * UINT32_C(0x9e3779b1) >> 16;
    for (uint32_t i = 0; i < BUCKETS_PER_CELL && may_go_on(tx, sweep); i++) {
        uint32_t bucket = cell * BUCKETS_PER_CELL + (first + i) % BUCKETS_PER_CELL;
        if (bucket < BUCKETS)
            sweep_family(tx, bucket, sweep);
    }
}

/* Most are: one read instead of one for each bucket. */
static bool is_empty(struct tx *tx, uint32_t cell)
{
    uint32_t generation = tx_ledger(tx)->generation, any = 0;
    if (local_chain_relative(tx, cell * BUCKETS_PER_CELL))
        return false;
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

void local_names_sweep(struct tx *tx, unsigned n_cells, uint32_t edits, uint64_t now_ns,
                       struct swept *swept)
{
    struct sweep sweep = {now_ns, swept, tx->n_reads + READS_FOR_SWEEPS, tx->n_edits + edits};
    sweep_cells(tx, n_cells, &sweep);
}

static uint32_t insert(struct tx *tx, uint64_t hash, const char *text, size_t len, uint64_t now_ns)
{
    uint32_t index = local_tx_alloc(tx, CELL_NAME);
    uint32_t stored = local_text_store(tx, text, len);
    struct name_cell *name = tx_edit_name(tx, index);
    struct ledger_cell *ledger = tx_edit_ledger(tx);
    name->hash = hash;
    name->text = stored;
    name->token = ledger->floor;
    name->touched_s = (uint32_t)(now_ns / NS_PER_SEC);
    name->born = ++ledger->n_born;
    ledger->n_names++;
    local_chain_insert(tx, hash, index, CELL_NAME);
    local_chain_grow(tx);
    return tx_is_ok(tx) ? index : 0;
}

/* What an insertion's sweep can find are unused names in the cells that keep them, and names that a
 * hold or delay has kept. Among many more that are in use it would mostly wait for the memory, so
 * it does no more there than look at as many names as come. */
static bool is_time_to_sweep(struct tx *tx)
{
    const struct ledger_cell *ledger = tx_ledger(tx);
    uint64_t some = (KEPT_CELLS - AT_FIRST) / 2 + (uint64_t)ledger->n_kept;
    return ledger->n_names < 2 * some || ledger->n_born % NAMES_PER_SWEEP == 0;
}

uint32_t local_names_open(struct tx *tx, uint64_t hash, const char *text, size_t len,
                          uint64_t now_ns)
{
    uint32_t index = local_names_find(tx, hash, text, len);
    local_queue_close(tx, index);
    if (index || !tx_is_ok(tx))
        return index;
    struct sweep sweep = {now_ns, NULL, tx->n_reads + READS_ON_INSERT,
                          tx->n_edits + EDITS_FOR_SWEEPS};
    if (is_time_to_sweep(tx))
        sweep_cells(tx, 1, &sweep);
    return insert(tx, hash, text, len, now_ns);
}

/* ---- ending everything ---- */

static void end_bucket(struct tx *tx, uint32_t bucket, uint64_t now_ns)
{
    uint32_t next = local_chain_first(tx, bucket);
    while (next && tx->n_edits < EDITS_FOR_ENDING && tx_is_ok(tx)) {
        const union cell *cell = local_tx_peek(tx, next);
        uint32_t index = next;
        next = cell->chained.chain;
        if (cell->kind == CELL_SESSION)
            local_sessions_drop(tx, cell->session.id);
        else if (cell->kind == CELL_NAME)
            local_queue_end_all(tx, index, now_ns);
    }
}

static void end_family(struct tx *tx, uint32_t bucket, uint64_t now_ns)
{
    do {
        end_bucket(tx, bucket, now_ns);
        bucket = local_chain_relative(tx, bucket);
    } while (bucket && tx_is_ok(tx));
}

static void remove_observers(struct tx *tx)
{
    uint32_t first;
    while ((first = tx_ledger(tx)->first_observer) && tx->n_edits < EDITS_FOR_ENDING)
        local_observers_remove(tx, first);
}

/* Each family until there is nothing left to change in it. */
static void end_some(struct tx *tx, uint32_t *bucket, uint64_t now_ns)
{
    remove_observers(tx);
    while (*bucket < BUCKETS && tx->n_edits == 0 && tx->n_reads < TX_READS_STEP && tx_is_ok(tx)) {
        *bucket = local_chain_next_family(tx, *bucket);
        if (*bucket == BUCKETS || tx->n_reads >= TX_READS_STEP)
            break;
        end_family(tx, *bucket, now_ns);
        *bucket += tx->n_edits == 0;
    }
}

enum stile_status local_table_remove_observers(struct store *store, struct stile_error *err)
{
    while (store->cells[AT_LEDGER].ledger.first_observer) {
        struct tx tx;
        if (!local_tx_begin(&tx, store))
            return local_tx_error(&tx, err);
        remove_observers(&tx);
        if (!local_tx_commit(&tx))
            return local_tx_error(&tx, err);
    }
    return STILE_OK;
}

/* All sessions are gone, even if there were more than the counter could count. */
static enum stile_status forget_sessions(struct store *store, struct stile_error *err)
{
    struct tx tx;
    if (!local_tx_begin(&tx, store))
        return local_tx_error(&tx, err);
    tx_edit_ledger(&tx)->n_sessions = 0;
    return local_tx_commit(&tx) ? STILE_OK : local_tx_error(&tx, err);
}

enum stile_status local_table_end_all(struct store *store, uint64_t now_ns, struct stile_error *err)
{
    uint32_t bucket = 0;
    while (bucket < BUCKETS) {
        struct tx tx;
        if (!local_tx_begin(&tx, store))
            return local_tx_error(&tx, err);
        end_some(&tx, &bucket, now_ns);
        if (!local_tx_commit(&tx))
            return local_tx_error(&tx, err);
    }
    return forget_sessions(store, err);
}

/* ---- room ---- */

/* Peeks without a check first: usually there is nothing to do. */
bool local_table_trim(struct store *store)
{
    struct tx tx;
    if (!local_store_is_whole(store) ||
        local_store_guess(&store->cells[AT_LEDGER].ledger.n_used) <= KEPT_CELLS ||
        !local_tx_begin(&tx, store))
        return false;
    uint32_t n_used = tx_ledger(&tx)->n_used;
    bool more = tx_is_ok(&tx) && n_used > KEPT_CELLS && n_used <= store->n_cells;
    if (more && store->cells[n_used - 1].kind == CELL_FREE)
        local_tx_trim(&tx);
    else
        more = more && local_chain_shrink(&tx);
    return local_tx_commit(&tx) && more;
}

bool local_table_give_back(struct store *store)
{
    struct tx tx;
    if (!local_store_is_whole(store) ||
        !local_store_has_surplus(store,
                                 local_store_guess(&store->cells[AT_LEDGER].ledger.n_cells)) ||
        !local_tx_begin(&tx, store))
        return false;
    uint32_t n_cells = tx_ledger(&tx)->n_cells;
    bool more = tx_is_ok(&tx) && local_store_give_back(store, n_cells);
    return local_tx_commit(&tx) && more;
}

/* ---- a table that is not needed ---- */

enum stile_status local_table_reset(struct store *store, struct stile_error *err)
{
    struct tx tx;
    if (!local_tx_begin(&tx, store))
        return local_tx_error(&tx, err);
    struct ledger_cell *ledger = tx_edit_ledger(&tx);
    uint64_t top = store->cells[AT_LOCK].lock.top;
    if (top >> 32 > ledger->epoch || ledger->generation == UINT32_MAX)
        local_tx_fail(&tx, STILE_CORRUPT, 0, "the record of the highest token is impossible");
    ledger->floor = ledger->floor < top ? top : ledger->floor;
    ledger->generation++;
    ledger->first_free = ledger->n_free = ledger->n_names = ledger->n_kept = 0;
    ledger->first_observer = ledger->n_observers = ledger->n_sessions = ledger->sweep = 0;
    ledger->n_used = AT_FIRST;
    ledger->n_cells = STATE_BYTES_FIRST / CELL_BYTES;
    local_chain_reset(&tx);
    return local_tx_commit(&tx) ? STILE_OK : local_tx_error(&tx, err);
}
