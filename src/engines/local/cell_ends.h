/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* When cells end, and an index of the ends in the file `cells`.
 *
 * Within one boot CLOCK_BOOTTIME counts: it runs while the machine sleeps, and nobody can set it.
 * After a reboot only the wall clock can tell how long the machine was off. So an end has both
 * times, and the boot that the first one belongs to.
 *
 * The index has one entry per cell with an end, in order of the wall clock. It only says where to
 * look: a cell is dropped for what its own record says, so a damaged entry drops nothing. */
#ifndef STILE_LOCAL_CELL_ENDS_H
#define STILE_LOCAL_CELL_ENDS_H

#include "engines/local/cell_file.h"

/* All zero: it never ends. */
struct cell_end {
    uint64_t boot, boot_ns; /* CLOCK_BOOTTIME of this boot */
    uint64_t wall_us;       /* of any other */
};

/* The clocks now. boot is not 0. */
struct cell_now {
    uint64_t boot, boot_ns, wall_us;
};

struct cell_end local_end_after(const struct cell_now *now, uint64_t keep_ns);
/* 0: it is over, or never. */
uint64_t local_end_left_ns(const struct cell_end *end, const struct cell_now *now);
bool local_end_is_over(const struct cell_end *end, const struct cell_now *now);

/* The key of a record in LMDB. */
#define CELL_KEY_MAX 511

struct cell_key {
    char bytes[CELL_KEY_MAX];
    size_t len;
};

/* NULL: the entry is sound, or is none of the index; otherwise what is wrong with it. */
const char *local_ends_check(const void *key, size_t key_len, const void *data, size_t size);

/* Moves the entry of this record from one end to another; either may be never. */
enum stile_status local_ends_move(struct cell_tx *tx, const struct cell_key *record,
                                  const struct cell_end *from, const struct cell_end *to,
                                  struct stile_error *err);

#define ENDS_DUE_MAX 4

/* Records whose ends the wall clock has passed, as of the last transaction. */
struct ends_due {
    struct {
        struct cell_key record;
        uint64_t wall_us;
    } all[ENDS_DUE_MAX];
    size_t n;
};

enum stile_status local_ends_due(struct ends_due *due, struct cell_tx *tx,
                                 const struct cell_now *now, struct stile_error *err);

#endif
