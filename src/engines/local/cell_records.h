/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One record for each cell or guard there ever was: its version, what its guard has seen, and the
 * value. It stays when the cell is removed, so that neither a version nor a token comes back. One
 * with an end is deleted some time after it; the file remembers the largest version of those. */
#ifndef STILE_LOCAL_CELL_RECORDS_H
#define STILE_LOCAL_CELL_RECORDS_H

#include "base/guard.h"
#include "engines/local/cell_ends.h"
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
    struct cell_end end;
    struct cell_end stored_end; /* cell_records.c's: the one in the file */
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

/* Makes a record whose end is over one of nothing but the version it had. */
void local_record_end(struct cell_record *record, const struct cell_now *now);

/* Gives a record that was not found the largest version of those that were deleted. */
enum stile_status local_record_first_version(struct cell_record *record, struct cell_tx *tx,
                                             struct stile_error *err);

/* Deletes up to ENDS_DUE_MAX records whose ends are over. */
enum stile_status local_record_drop_some(struct cell_tx *tx, const struct cell_now *now,
                                         struct stile_error *err);

/* In byte order of their names, with those that were removed or have ended. */
typedef void cell_record_fn(const char *name, const struct cell_record *record, void *data);
enum stile_status local_record_each(struct cell_tx *tx, const char *prefix, size_t len,
                                    cell_record_fn *fn, void *data, struct stile_error *err);

#endif
