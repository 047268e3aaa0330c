/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a cell's node holds, and what a request makes of it. */
#ifndef STILE_ZOOKEEPER_CELL_FORM_H
#define STILE_ZOOKEEPER_CELL_FORM_H

#include "engines/engine.h"

#define CELL_HEAD_MAX (STILE_ISSUER_MAX + 64)

/* All zero: there is no node. */
struct zk_cell {
    bool live;        /* there is a cell; unset: a tombstone, or a guard alone */
    uint64_t version; /* of the cell, or the last one it had; 0: it never had one */
    uint64_t token;   /* the highest that its guard has seen */
    char issuer[STILE_ISSUER_MAX + 1];
    const char *value; /* borrowed */
    size_t size;
    int64_t time_us; /* of the server, when it was read; 0: not asked for */
};

/* CORRUPT: err says what is wrong with the data. */
enum stile_status zk_cell_read(struct zk_cell *cell, const char *data, size_t n,
                               struct stile_error *err);
/* Returns its length. The value follows it in the node. */
size_t zk_cell_write_head(char head[CELL_HEAD_MAX], const struct zk_cell *cell);
/* The data begins as that of a cell does, damaged or not. */
bool zk_cell_is_ours(const char *data, size_t n);

/* What the request makes of the cell; its value is borrowed from either. STALE, FOREIGN, CONFLICT:
 * it is refused. zxid: the latest transaction seen; the versions of a new cell begin behind it. */
enum stile_status zk_cell_change(struct zk_cell *next, const struct zk_cell *now,
                                 const struct cell_request *request, uint64_t zxid);
/* There is nothing that the servers would have to remember. */
bool zk_cell_is_unchanged(const struct zk_cell *now, const struct cell_request *request);

#endif
