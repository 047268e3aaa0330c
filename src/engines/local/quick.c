/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The words of the short way, as transactions see them. */
#include "engines/local/quick.h"

static bool fail(struct tx *tx)
{
    local_tx_fail(tx, STILE_CORRUPT, 0, "the word of a name is damaged");
    return false;
}

static bool understand(struct quick_truth *truth, struct tx *tx, uint32_t index, uint64_t word)
{
    uint64_t known = tx_name(tx, index)->token; /* when it was opened */
    truth->held = (word & QUICK_STATE) == QUICK_HELD;
    truth->token = truth->held ? known >> 32 << 32 | (uint32_t)(word >> 8) : word >> 8;
    truth->tag = word >> 40;
    truth->since_ns = __atomic_load_n(&quick_slot(tx->store, index)->since_ns, __ATOMIC_RELAXED);
    return (quick_is_sound(word) && quick_same_block(truth->token, known) &&
            truth->token >= known) ||
           fail(tx);
}

bool local_quick_read(struct quick_truth *truth, struct tx *tx, uint32_t index)
{
    if (index < AT_FIRST)
        return fail(tx);
    return understand(truth, tx, index,
                      __atomic_load_n(&quick_slot(tx->store, index)->word, __ATOMIC_ACQUIRE));
}

/* Frozen before the transaction is committed: if it is undone the name is still open, and the
 * frozen word still names the holder. A damaged word is not frozen: sealing it would hide the
 * damage. */
bool local_quick_freeze(struct quick_truth *truth, struct tx *tx, uint32_t index)
{
    if (index < AT_FIRST)
        return fail(tx);
    uint64_t *word = &quick_slot(tx->store, index)->word;
    uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (!(seen & QUICK_FROZEN) && quick_is_sound(seen) &&
           !__atomic_compare_exchange_n(word, &seen, seen ^ QUICK_FROZEN ^ QUICK_PARITY, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    return understand(truth, tx, index, seen);
}

/* ---- whose slot it is ---- */

static uint64_t *mark_of(const struct store *store, uint32_t index)
{
    return (uint64_t *)&store->cells[AT_QUICK_MARKS] + (index - AT_FIRST) % QUICK_SLOTS;
}

static uint64_t mark(uint64_t token, uint32_t index)
{
    uint64_t owner = 1 + (index - AT_FIRST) / QUICK_SLOTS;
    uint64_t mark = token / QUICK_BLOCK * QUICK_BLOCK | owner << 1;
    return mark | (uint64_t)__builtin_parityll(mark);
}

/* The cell of the owner; 0: none. */
static uint32_t owner_by(uint64_t mark, uint32_t index)
{
    uint32_t owner = (uint32_t)(mark % QUICK_BLOCK) >> 1;
    return owner ? AT_FIRST + (index - AT_FIRST) % QUICK_SLOTS + (owner - 1) * QUICK_SLOTS : 0;
}

bool local_quick_is_marked(const struct store *store, uint32_t index)
{
    uint64_t mark = *mark_of(store, index);
    return !__builtin_parityll(mark) && owner_by(mark, index) == index;
}

/* The owner may be anything by now. A cell that is not what it seems to be counts as an open name:
 * then this one is not opened, and nothing else happens. */
static bool is_taken(struct tx *tx, uint32_t owner, uint32_t index)
{
    if (!owner || owner == index || owner >= tx_ledger(tx)->n_used || owner >= tx->store->n_cells)
        return false;
    const union cell *cell = &tx->store->cells[owner];
    bool is_whole = cell->check == tx->marker || cell->check == cell_sum(cell, owner);
    return !is_whole || (cell->kind == CELL_NAME && cell->name.is_quick);
}

/* The first token of the name when it is open: 0 if the slot has none for it. A block that was
 * opened for the name stays its own. Another one must be later than all of this slot. */
static uint64_t token_to_open(struct tx *tx, uint32_t index)
{
    const struct name_cell *name = tx_name(tx, index);
    uint64_t seen = index < AT_FIRST ? 1 : *mark_of(tx->store, index);
    uint64_t latest = seen / QUICK_BLOCK * QUICK_BLOCK, token = name->token;
    if (__builtin_parityll(seen))
        return fail(tx);
    if (is_taken(tx, owner_by(seen, index), index))
        return 0;
    if (!name->was_quick && token / QUICK_BLOCK <= latest / QUICK_BLOCK)
        token = latest + QUICK_BLOCK;
    bool is_possible = token >> 32 == name->token >> 32 && token < QUICK_TOKENS;
    if (is_possible)
        *mark_of(tx->store, index) = mark(token > latest ? token : latest, index);
    return is_possible ? token : 0;
}

/* The word is written frozen: should the transaction be undone, the list of claims is still the
 * truth. The mark may stay then: a block is lost, and its owner is not open. */
bool local_quick_open(struct tx *tx, uint32_t index)
{
    uint64_t token = token_to_open(tx, index);
    if (!token)
        return false;
    struct name_cell *opened = tx_edit_name(tx, index);
    if (!tx_is_ok(tx))
        return false;
    opened->token = token;
    opened->is_quick = opened->was_quick = true;
    store_note_token(tx->store, token | (QUICK_BLOCK - 1));
    tx->opens = &quick_slot(tx->store, index)->word;
    tx->open_word = quick_free(token);
    __atomic_store_n(tx->opens, tx->open_word ^ QUICK_FROZEN ^ QUICK_PARITY, __ATOMIC_RELAXED);
    return true;
}

bool local_quick_is_own(struct tx *tx, uint32_t index, uint64_t token)
{
    const union cell *cell = local_tx_peek(tx, index);
    return cell->kind == CELL_NAME && cell->name.was_quick &&
           quick_same_block(cell->name.token, token);
}
