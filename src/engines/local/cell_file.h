/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file `cells`: an LMDB file, opened by the first request for a cell, once per process and
 * directory. Each request is one transaction, and finds and leaves a file that is sound.
 *
 * The file is exactly as long as its map. It grows in steps whose blocks are reserved first, so
 * that a full disk is an error and no signal, and a file that is shorter than its map was
 * truncated. A transaction writes new pages and one of the two pages at the start that describe the
 * file, in this order, each synced: a process killed at any instruction leaves the old state or the
 * new one. */
#ifndef STILE_LOCAL_CELL_FILE_H
#define STILE_LOCAL_CELL_FILE_H

#include "engines/local/cell_pages.h"
#include "engines/local/env.h"
#include "engines/local/lmdb_library.h"

/* Keys of what is no cell: no name begins with this byte. */
#define CELLS_FORMAT                                                                               \
    "\x01"                                                                                         \
    "format"
#define CELLS_VERSION                                                                              \
    "\x01"                                                                                         \
    "version"

struct cell_tx {
    const struct lmdb *lmdb;
    MDB_txn *txn; /* NULL: there is no file yet, and so no cell */
    MDB_dbi dbi;
    struct pages pages;
    bool is_idle; /* set by a write that has nothing to change */
    bool is_full; /* the file must grow, and the request is run again */
};

/* OK: what it has written is committed. Anything else: nothing is, and that is the result. May be
 * called more than once. */
typedef enum stile_status cell_tx_fn(struct cell_tx *tx, void *data, struct stile_error *err);

enum stile_status local_cells_read(struct env *env, cell_tx_fn *fn, void *data,
                                   struct stile_error *err);
/* Durable when it returns OK. UNCERTAIN: the disk failed at the last step. */
enum stile_status local_cells_write(struct env *env, cell_tx_fn *fn, void *data,
                                    struct stile_error *err);

/* One entry, in a transaction that writes. The pages that LMDB will touch are checked first. */
enum stile_status local_cells_store(struct cell_tx *tx, const void *key, size_t len,
                                    const void *data, size_t size, struct stile_error *err);
/* OK, too, if there is none. */
enum stile_status local_cells_delete(struct cell_tx *tx, const void *key, size_t len,
                                     struct stile_error *err);

/* For what LMDB returns. */
enum stile_status local_cells_lmdb_error(struct cell_tx *tx, int rc, struct stile_error *err);
/* For what is wrong with the file. */
enum stile_status local_cells_damaged(const char *fault, struct stile_error *err);

#endif
