/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/cell_ends.h"

#include <endian.h>
#include <string.h>

#include "base/name.h"

/* ---- clocks ---- */

struct cell_end local_end_after(const struct cell_now *now, uint64_t keep_ns)
{
    return (struct cell_end){
        .boot = now->boot,
        .boot_ns = now->boot_ns + keep_ns,
        .wall_us = now->wall_us + keep_ns / 1000,
    };
}

static uint64_t left(uint64_t end, uint64_t now)
{
    return end > now ? end - now : 0;
}

uint64_t local_end_left_ns(const struct cell_end *end, const struct cell_now *now)
{
    if (end->boot == now->boot)
        return left(end->boot_ns, now->boot_ns);
    uint64_t us = left(end->wall_us, now->wall_us);
    return us < UINT64_MAX / 1000 ? us * 1000 : UINT64_MAX;
}

bool local_end_is_over(const struct cell_end *end, const struct cell_now *now)
{
    return end->boot && local_end_left_ns(end, now) == 0;
}

/* ---- entries ---- */

/* No name begins with this byte. */
#define FIRST_BYTE 2

#define END_DAMAGED "an end is damaged"

struct entry_key {
    char bytes[1 + 2 * sizeof(uint64_t)]; /* FIRST_BYTE, wall_us, the sum of the record's key */
};

/* Behind it: the record's key. */
struct entry {
    uint64_t sum; /* of both keys */
    char record[CELL_KEY_MAX];
};

#define ENTRY_HEAD offsetof(struct entry, record)

static void make_key(struct entry_key *key, uint64_t wall_us, const struct cell_key *record)
{
    uint64_t numbers[2] = {htobe64(wall_us), htobe64(name_hash(record->bytes, record->len))};
    key->bytes[0] = FIRST_BYTE;
    memcpy(key->bytes + 1, numbers, sizeof numbers);
}

static uint64_t sum_of(const struct entry_key *key, const struct cell_key *record)
{
    return name_hash(key->bytes, sizeof key->bytes) ^ name_hash(record->bytes, record->len);
}

/* False: it is damaged. */
static bool read_entry(struct cell_key *record, uint64_t *wall_us, const void *key, size_t key_len,
                       const void *data, size_t size)
{
    struct entry_key own, expected;
    uint64_t sum;
    if (key_len != sizeof own.bytes || size <= ENTRY_HEAD || size > ENTRY_HEAD + CELL_KEY_MAX)
        return false;
    memcpy(own.bytes, key, key_len);
    memcpy(wall_us, own.bytes + 1, sizeof *wall_us);
    *wall_us = be64toh(*wall_us);
    memcpy(&sum, data, sizeof sum);
    record->len = size - ENTRY_HEAD;
    memcpy(record->bytes, (const char *)data + ENTRY_HEAD, record->len);
    make_key(&expected, *wall_us, record);
    return memcmp(own.bytes, expected.bytes, sizeof own.bytes) == 0 && sum == sum_of(&own, record);
}

const char *local_ends_check(const void *key, size_t key_len, const void *data, size_t size)
{
    struct cell_key record;
    uint64_t wall_us;
    if (*(const char *)key != FIRST_BYTE)
        return NULL;
    return read_entry(&record, &wall_us, key, key_len, data, size) ? NULL : END_DAMAGED;
}

static enum stile_status add(struct cell_tx *tx, const struct cell_key *record, uint64_t wall_us,
                             struct stile_error *err)
{
    struct entry_key key;
    struct entry entry;
    make_key(&key, wall_us, record);
    entry.sum = sum_of(&key, record);
    memcpy(entry.record, record->bytes, record->len);
    return local_cells_store(tx, key.bytes, sizeof key.bytes, &entry, ENTRY_HEAD + record->len,
                             err);
}

static enum stile_status drop(struct cell_tx *tx, const struct cell_key *record, uint64_t wall_us,
                              struct stile_error *err)
{
    struct entry_key key;
    make_key(&key, wall_us, record);
    return local_cells_delete(tx, key.bytes, sizeof key.bytes, err);
}

enum stile_status local_ends_move(struct cell_tx *tx, const struct cell_key *record,
                                  const struct cell_end *from, const struct cell_end *to,
                                  struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    if (from->boot && to->boot && from->wall_us == to->wall_us)
        return STILE_OK;
    if (from->boot)
        status = drop(tx, record, from->wall_us, err);
    if (!status && to->boot)
        status = add(tx, record, to->wall_us, err);
    return status;
}

enum stile_status local_ends_due(struct ends_due *due, struct cell_tx *tx,
                                 const struct cell_now *now, struct stile_error *err)
{
    static const char first = FIRST_BYTE;
    struct page_entry found[ENDS_DUE_MAX];
    size_t n;
    due->n = 0;
    const char *fault = local_pages_check_first(found, &n, ENDS_DUE_MAX, &tx->pages, &first, 1);
    for (size_t i = 0; i < n && !fault; i++) {
        if (!read_entry(&due->all[i].record, &due->all[i].wall_us, found[i].key, found[i].key_len,
                        found[i].data, found[i].size))
            fault = END_DAMAGED;
        else if (due->all[i].wall_us <= now->wall_us)
            due->n = i + 1; /* they are in order */
    }
    return fault ? local_cells_damaged(fault, err) : STILE_OK;
}
