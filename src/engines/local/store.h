/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The mapped state file and its transactions.
 *
 * A transaction is alone in the file. It writes the old content of a cell to the journal before it
 * changes the cell; after a process died in a transaction, the next one restores the old contents.
 * So a process killed at any instruction leaves the old state or the new one, never something
 * between.
 *
 * Errors stick to the transaction: after the first one, reads give a blank cell (whose indexes are
 * 0, "none"), edits go to a blank cell, and local_tx_commit() undoes everything and returns false.
 * Callers therefore check once, at the end, and use nothing they have read before that. */
#ifndef STILE_LOCAL_STORE_H
#define STILE_LOCAL_STORE_H

#include <stdbool.h>

#include "base/error.h"
#include "engines/local/layout.h"

struct store {
    const char *path;  /* of its directory, for messages */
    union cell *cells; /* mapped_bytes of them; the first n_cells may be touched */
    uint32_t n_cells;
    volatile bool is_torn;    /* the file was truncated, and zeros are mapped instead */
    bool is_size_fresh;       /* the next transaction need not check the size */
    uint64_t size_checked_ns; /* when the size was last checked, by store_note_time() */
    uint64_t mapped_bytes;    /* STATE_BYTES_MAX, or as much as the process's limits allow */
    uint32_t pid;
    uint64_t id; /* alive in `live` as long as this process is */
    int fd, live_fd;
    /* Makes an epoch durable, before the first of its tokens is granted. */
    enum stile_status (*next_epoch)(struct store *store, uint32_t epoch);
};

struct tx {
    struct store *store;
    enum stile_status status;
    int native;
    const char *why;
    uint32_t sequence;
    uint32_t n_edits;
    uint32_t n_reads;
    uint32_t whole;     /* the cell whose checksum was verified last */
    uint64_t marker;    /* the check word of cells that are in the journal */
    uint64_t *opens;    /* a word to be unfrozen once this is committed, or NULL */
    uint64_t open_word; /* what it will be */
    union cell blank;
};

/* 0 or an errno value. Maps an open state file without reading it. */
int local_store_map(struct store *store);
void local_store_unmap(struct store *store);

/* Writes an empty table into a mapped file that is STATE_BYTES_FIRST long. */
void local_store_format(struct store *store, const uint8_t boot[16], uint32_t epoch);

/* 0 or an errno value; raises no signal, and writes nothing unless there is room for all. */
int local_store_reserve(int fd, uint64_t from, uint64_t to);
bool local_store_exceeds_limit(uint64_t bytes); /* RLIMIT_FSIZE */

/* The surplus is what the file occupies beyond the n_cells that the ledger counts. The kernel needs
 * 0.1 ms to free a megabyte of it, and some devices milliseconds to discard any number of blocks,
 * so acquire and release leave it alone and a timer frees it in steps. */
#define GIVE_BACK_STEP (UINT64_C(4) << 20)

bool local_store_has_surplus(const struct store *store, uint32_t n_cells);
/* One step, inside a transaction: no other process may make the file grow meanwhile. True: there
 * may be more. */
bool local_store_give_back(const struct store *store, uint32_t n_cells);
/* One step of a process that is alone in the file. The file gets shorter; all at once if nothing
 * has to be freed. */
void local_store_cut(struct store *store, uint32_t n_cells);

/* False: the file has been truncated, and its pages must not be touched. */
bool local_store_is_whole(const struct store *store);

/* A guess without a transaction, which may see what another process or thread is writing. Only for
 * deciding whether a transaction is worth while, which then looks again. */
uint32_t local_store_guess(const uint32_t *field);

/* A program with a thousand transactions a second or more checks the size once a millisecond; one
 * with fewer, before each transaction. */
#define SIZE_CHECK_NS UINT64_C(1000000)

/* The clients of a process share the store, and each has its own mutex: hence atomics. It does no
 * harm if one of them sees what another has noted. */
static inline void store_set_size_fresh(struct store *store, bool fresh)
{
    __atomic_store_n(&store->is_size_fresh, fresh, __ATOMIC_RELAXED);
}

static inline bool store_is_size_fresh(const struct store *store)
{
    return __atomic_load_n(&store->is_size_fresh, __ATOMIC_RELAXED);
}

static inline void store_note_time(struct store *store, uint64_t now_ns)
{
    uint64_t checked_ns = __atomic_load_n(&store->size_checked_ns, __ATOMIC_RELAXED);
    bool fresh = now_ns - checked_ns < SIZE_CHECK_NS;
    store_set_size_fresh(store, fresh);
    if (!fresh)
        __atomic_store_n(&store->size_checked_ns, now_ns, __ATOMIC_RELAXED);
}

/* Records a token that is about to be granted: before the transaction ends, and not undone with it,
 * because too high a value does no harm. */
static inline uint64_t store_top_check(uint64_t top)
{
    return ~top ^ UINT64_C(0x746f706f66616c6c);
}

static inline void store_note_token(const struct store *store, uint64_t token)
{
    struct lock_cell *lock = &store->cells[AT_LOCK].lock;
    if (token <= lock->top)
        return;
    lock->top = token;
    lock->top_check = store_top_check(token);
}

/* Undoes an unfinished transaction of a dead process and frees its mutex. Only for a process that
 * is alone in the file. False: the journal or the record of the highest token is damaged. */
bool local_store_recover(struct store *store);

uint32_t local_store_abi(void);

/* False: nothing has begun; the transaction has the error. */
bool local_tx_begin(struct tx *tx, struct store *store);
bool local_tx_commit(struct tx *tx);
void local_tx_abort(struct tx *tx);
void local_tx_fail(struct tx *tx, enum stile_status status, int native, const char *why);
enum stile_status local_tx_error(const struct tx *tx, struct stile_error *err);

const union cell *local_tx_peek(struct tx *tx, uint32_t index); /* of any kind */
const union cell *local_tx_read_first(struct tx *tx, uint32_t index, enum cell_kind kind);
union cell *local_tx_edit_first(struct tx *tx, uint32_t index, enum cell_kind kind);

/* A limit for lists that a damaged index has bent into a circle. The longest valid transaction
 * reads every claim of a name a few times; work on more than one name is done in steps of about
 * TX_READS_STEP. */
#define TX_READS_MAX  (1u << 19)
#define TX_READS_STEP 1024

/* Whether the cell is in the journal, and so has been checked. */
static inline bool tx_has_edited(struct tx *tx, uint32_t index, enum cell_kind kind)
{
    const union cell *cell = &tx->store->cells[index];
    return index < tx->store->n_cells && cell->check == tx->marker && cell->kind == kind &&
           ++tx->n_reads < TX_READS_MAX;
}

static inline const union cell *tx_read(struct tx *tx, uint32_t index, enum cell_kind kind)
{
    return tx_has_edited(tx, index, kind) ? &tx->store->cells[index]
                                          : local_tx_read_first(tx, index, kind);
}

static inline union cell *tx_edit(struct tx *tx, uint32_t index, enum cell_kind kind)
{
    return tx_has_edited(tx, index, kind) ? &tx->store->cells[index]
                                          : local_tx_edit_first(tx, index, kind);
}

/* A new cell is zeroed but for its kind. 0: failed. */
uint32_t local_tx_alloc(struct tx *tx, enum cell_kind kind);
/* n cells that stand together, behind all others and not yet valid. 0: there is no room for them,
 * and the transaction goes on. They are not given back one by one: n_used is set back. */
uint32_t local_tx_take_run(struct tx *tx, uint32_t n);
/* One of them, for what has to be written before anything refers to it. NULL: failed. */
union cell *local_tx_unused_cell(struct tx *tx, uint32_t index);
void local_tx_free(struct tx *tx, uint32_t index, enum cell_kind kind);

/* Takes free cells from the end of the file, as many as one transaction can. */
void local_tx_trim(struct tx *tx);

static inline bool tx_is_ok(const struct tx *tx)
{
    return tx->status == STILE_OK;
}

static inline const struct ledger_cell *tx_ledger(struct tx *tx)
{
    return &tx_read(tx, AT_LEDGER, CELL_LEDGER)->ledger;
}

/* To be asked before a look at a cell that was known from an earlier transaction. Behind those in
 * use the file may have no blocks any longer, and on a full disk a look would raise SIGBUS. */
static inline bool tx_has_cell(struct tx *tx, uint32_t index)
{
    return index && index < tx_ledger(tx)->n_used;
}

static inline const struct name_cell *tx_name(struct tx *tx, uint32_t index)
{
    return &tx_read(tx, index, CELL_NAME)->name;
}

static inline const struct claim_cell *tx_claim(struct tx *tx, uint32_t index)
{
    return &tx_read(tx, index, CELL_CLAIM)->claim;
}

static inline struct ledger_cell *tx_edit_ledger(struct tx *tx)
{
    return &tx_edit(tx, AT_LEDGER, CELL_LEDGER)->ledger;
}

static inline struct name_cell *tx_edit_name(struct tx *tx, uint32_t index)
{
    return &tx_edit(tx, index, CELL_NAME)->name;
}

static inline struct claim_cell *tx_edit_claim(struct tx *tx, uint32_t index)
{
    return &tx_edit(tx, index, CELL_CLAIM)->claim;
}

#endif
