/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The hash chains of names and sessions, whose number grows with the names.
 *
 * Linear hashing: each name that comes while there are as many names as buckets splits one bucket
 * in two. The first BUCKETS are beside the cells. Those that are added stand in segments, runs of
 * cells of which each doubles the number of buckets. All buckets that have come from one of the
 * first are its family; a name never leaves its family, whatever is split or joined. */
#ifndef STILE_LOCAL_CHAINS_H
#define STILE_LOCAL_CHAINS_H

#include "engines/local/store.h"

/* The key of a name is its hash, that of a session what a word has of its id. */
uint64_t local_chain_key(const struct chained_cell *cell);

uint32_t local_chain_bucket(struct tx *tx, uint64_t key);
uint32_t local_chain_first(struct tx *tx, uint32_t bucket); /* the first cell of its chain */
/* The next bucket of the same family; 0: there is none. */
uint32_t local_chain_relative(struct tx *tx, uint32_t bucket);
/* The next family, this one included, that may have a chain; or how far the transaction's step
 * went. BUCKETS: there is none. */
uint32_t local_chain_next_family(struct tx *tx, uint32_t bucket);

/* The name or session in this cell of a chain. */
const struct chained_cell *local_chain_at(struct tx *tx, uint32_t cell);

void local_chain_insert(struct tx *tx, uint64_t key, uint32_t cell, enum cell_kind kind);
void local_chain_remove(struct tx *tx, uint64_t key, uint32_t cell);

/* Splits a bucket if there are many names. Without room on the disk there are fewer buckets. */
void local_chain_grow(struct tx *tx);

/* The last segment, if it is the end of the table and there are few names: joins some of its
 * buckets with those they came from, and gives it back when all are. True: there may be more. */
bool local_chain_shrink(struct tx *tx);

/* For a table that is emptied. */
void local_chain_reset(struct tx *tx);

/* For check.c. */
uint32_t local_chain_bucket_among(uint32_t n_buckets, uint64_t key);
uint32_t local_chain_segment_cells(unsigned segment);

#endif
