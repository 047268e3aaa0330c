/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The short way to take and give a lock that no other claim wants: one compare-and-swap of one word
 * each, without the mutex and without the journal. README.md has the argument.
 *
 *     FREE  token of the latest grant << 8 | flags
 *     HELD  low 24 bits of the session's id << 40 | low 32 bits of the token << 8 | flags
 *
 * A name is open while its cell says is_quick: then its word, frozen or not, names the
 * holder, and its list of claims is empty. Otherwise the list is the truth, and the word is
 * frozen, so that no compare-and-swap succeeds. Only transactions freeze and unfreeze; only
 * unfrozen words are changed without one. */
#ifndef STILE_LOCAL_QUICK_H
#define STILE_LOCAL_QUICK_H

#include "engines/local/store.h"

#define QUICK_STATE  UINT64_C(0x03)
#define QUICK_FREE   UINT64_C(0x01)
#define QUICK_HELD   UINT64_C(0x02)
#define QUICK_FROZEN UINT64_C(0x04)
#define QUICK_PARITY                                                                               \
    UINT64_C(0x08) /* makes the number of set bits even: a flipped bit is noticed */
#define QUICK_FLAGS UINT64_C(0xff)

#define QUICK_TAG_MASK UINT64_C(0xffffff)
#define QUICK_TOKENS   (UINT64_C(1) << 56)

/* Tokens are opened in blocks. `top` covers a whole block before its first token can be granted,
 * and a handle recognises its name by the block: none is ever opened in the same slot by two names.
 */
#define QUICK_BLOCK UINT64_C(4096)

/* A slot's mark: the latest block opened in it, and which of the names that share it had that
 * opened. The low bits, which the first token of a block does not need:
 *
 *     bit 0       makes the number of set bits even
 *     bits 1..11  1 + the number of the owner among the cells that share the slot; 0: none */
#define QUICK_OWNERS_MAX 2047
_Static_assert(STATE_CELLS_MAX / QUICK_SLOTS <= QUICK_OWNERS_MAX, "every owner fits into a mark");

static inline uint64_t quick_sealed(uint64_t word)
{
    return __builtin_parityll(word) ? word ^ QUICK_PARITY : word;
}

static inline bool quick_is_sound(uint64_t word)
{
    uint64_t state = word & QUICK_STATE;
    return !__builtin_parityll(word) && (state == QUICK_FREE || state == QUICK_HELD) &&
           !(word & QUICK_FLAGS & ~(QUICK_STATE | QUICK_FROZEN | QUICK_PARITY));
}

static inline uint64_t quick_free(uint64_t token)
{
    return quick_sealed(token << 8 | QUICK_FREE);
}

static inline uint64_t quick_held(uint64_t token, uint64_t session)
{
    return quick_sealed((session & QUICK_TAG_MASK) << 40 | (uint64_t)(uint32_t)token << 8 |
                        QUICK_HELD);
}

static inline bool quick_same_block(uint64_t a, uint64_t b)
{
    return a / QUICK_BLOCK == b / QUICK_BLOCK;
}

/* name: at least AT_FIRST. */
static inline struct quick *quick_slot(const struct store *store, uint32_t name)
{
    return (struct quick *)&store->cells[AT_QUICK] + (name - AT_FIRST) % QUICK_SLOTS;
}

/* *token: that of the caller's latest grant of this name, in a block of the name's own, and
 * afterwards that of this one. The name need not be in this cell any longer. */
static inline bool quick_take(const struct store *store, uint32_t name, uint64_t *token,
                              uint64_t session, uint64_t now_ns)
{
    struct quick *quick = quick_slot(store, name);
    uint64_t seen = __atomic_load_n(&quick->word, __ATOMIC_RELAXED), latest = seen >> 8;
    if ((seen & QUICK_FLAGS & ~QUICK_PARITY) != QUICK_FREE || __builtin_parityll(seen) ||
        !quick_same_block(latest, *token) || !quick_same_block(latest + 1, *token))
        return false;
    if (!__atomic_compare_exchange_n(&quick->word, &seen, quick_held(latest + 1, session), false,
                                     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return false;
    __atomic_store_n(&quick->since_ns, now_ns, __ATOMIC_RELAXED);
    *token = latest + 1;
    return true;
}

/* False: the word is frozen, because another claim has come. */
static inline bool quick_give(const struct store *store, uint32_t name, uint64_t token,
                              uint64_t session)
{
    uint64_t seen = quick_held(token, session);
    return __atomic_compare_exchange_n(&quick_slot(store, name)->word, &seen, quick_free(token),
                                       false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* ---- in transactions ---- */

/* What the word of an open name said when it was frozen. */
struct quick_truth {
    bool held;
    uint64_t token, tag, since_ns;
};

/* False: the word is damaged, and the transaction has failed. */
bool local_quick_freeze(struct quick_truth *truth, struct tx *tx, uint32_t name);
/* The same without freezing it. */
bool local_quick_read(struct quick_truth *truth, struct tx *tx, uint32_t name);

/* The transaction opens the name, which has neither claims nor observers, when it is committed.
 * False: it does not, because another open name has the slot or there is no block left. */
bool local_quick_open(struct tx *tx, uint32_t name);

/* Whether a handle with this token may take the name by its word once that is open. */
bool local_quick_is_own(struct tx *tx, uint32_t name, uint64_t token);

/* For check.c: whether the slot is marked as this name's. */
bool local_quick_is_marked(const struct store *store, uint32_t name);

#endif
