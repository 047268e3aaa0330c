/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One record for each cell or guard there ever was: its version, what its guard has seen, and the
 * value. It stays when the cell is removed, so that neither a version nor a token comes back. */
#ifndef STILE_LOCAL_CELL_RECORDS_H
#define STILE_LOCAL_CELL_RECORDS_H

#include "base/guard.h"
#include "engines/local/cell_file.h"
#include "stile/cell.h"

struct cell_record {
    uint32_t nth;     /* cell_records.c's: which of its keys it has */
    bool is_there;    /* unset: it was removed, or is only a guard */
    uint64_t version; /* of its last write, even if that has removed it */
    uint64_t token;   /* 0: none */
    char issuer[STILE_ISSUER_MAX + 1];
    const void *value; /* in the file, or given; until the transaction ends */
    size_t size;
    uint64_t value_sum; /* as it was stored */
};

/* *record is all zero, but for nth, if there is none. */
enum stile_status local_record_find(struct cell_record *record, struct cell_tx *tx,
                                    const char *name, size_t len, struct stile_error *err);

/* Whether the value that was found is the one that was stored. Only a reader needs to know: a sum
 * over 64 KiB takes a while. */
bool local_record_has_sound_value(const struct cell_record *record);
void local_record_set_value(struct cell_record *record, const void *value, size_t size);

/* A record that was found, with changes. */
enum stile_status local_record_store(struct cell_tx *tx, const char *name, size_t len,
                                     const struct cell_record *record, struct stile_error *err);

/* In byte order of their names, removed ones included. */
typedef void cell_record_fn(const char *name, const struct cell_record *record, void *data);
enum stile_status local_record_each(struct cell_tx *tx, const char *prefix, size_t len,
                                    cell_record_fn *fn, void *data, struct stile_error *err);

#endif
