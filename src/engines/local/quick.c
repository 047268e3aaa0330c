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
    if (!quick_has_slot(index))
        return fail(tx);
    return understand(truth, tx, index,
                      __atomic_load_n(&quick_slot(tx->store, index)->word, __ATOMIC_ACQUIRE));
}

/* Frozen before the transaction is committed: if it is undone the name is still open, and the
 * frozen word still names the holder. A damaged word is not frozen: sealing it would hide the
 * damage. */
bool local_quick_freeze(struct quick_truth *truth, struct tx *tx, uint32_t index)
{
    if (!quick_has_slot(index))
        return fail(tx);
    uint64_t *word = &quick_slot(tx->store, index)->word;
    uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (!(seen & QUICK_FROZEN) && quick_is_sound(seen) &&
           !__atomic_compare_exchange_n(word, &seen, seen ^ QUICK_FROZEN ^ QUICK_PARITY, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    return understand(truth, tx, index, seen);
}

/* A name begins a block when it is opened for the first time, so that no handle of an earlier name
 * in this cell can take it for its own. The word is written frozen: should the transaction be
 * undone, the list of claims is still the truth. */
void local_quick_open(struct tx *tx, uint32_t index)
{
    const struct name_cell *name = tx_name(tx, index);
    uint64_t token = name->was_quick ? name->token : (name->token | (QUICK_BLOCK - 1)) + 1;
    if (!quick_has_slot(index) || token >> 32 != name->token >> 32 || token >= QUICK_TOKENS)
        return;
    struct name_cell *opened = tx_edit_name(tx, index);
    if (!tx_is_ok(tx))
        return;
    opened->token = token;
    opened->is_quick = opened->was_quick = true;
    store_note_token(tx->store, token | (QUICK_BLOCK - 1));
    tx->opens = &quick_slot(tx->store, index)->word;
    tx->open_word = quick_free(token);
    __atomic_store_n(tx->opens, tx->open_word ^ QUICK_FROZEN ^ QUICK_PARITY, __ATOMIC_RELAXED);
}
