/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/local/cell_records.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

/* ---- keys ---- */

/* LMDB's keys have 511 bytes at most, one less than a name. A name up to HEAD_MAX bytes is its own
 * key. The key of a longer one is its head, a zero, and a number: its hash, or the next number that
 * no other name has. A record with a number is deleted only if the next number is free, so a search
 * that meets a free one is over. */
#define HEAD_MAX 500

_Static_assert(HEAD_MAX + 1 + sizeof(uint64_t) <= CELL_KEY_MAX, "a key with a number fits");

static void make_key(struct cell_key *key, const char *name, size_t len, uint32_t nth)
{
    size_t head = len < HEAD_MAX ? len : HEAD_MAX;
    memcpy(key->bytes, name, head);
    key->len = head;
    if (len <= HEAD_MAX)
        return;
    uint64_t number = htobe64(name_hash(name, len) + nth);
    key->bytes[head] = '\0';
    memcpy(key->bytes + head + 1, &number, sizeof number);
    key->len = head + 1 + sizeof number;
}

/* ---- records ---- */

struct head {
    uint64_t sum;       /* of all that follows but the value */
    uint64_t value_sum; /* of the value */
    uint64_t version, token;
    uint32_t size;
    uint16_t name_len, issuer_len;
    uint32_t nth; /* of its key */
    uint32_t flags;
};

/* Libraries that know no ends take a record with one for a damaged one. */
enum { IS_THERE = 1, HAS_END = 2 };

/* Behind the head: name, issuer, the end if it has one, value. */
static size_t end_bytes(const struct head *head)
{
    return head->flags & HAS_END ? sizeof(struct cell_end) : 0;
}

static size_t bytes_before_value(const struct head *head)
{
    return sizeof *head + head->name_len + head->issuer_len + end_bytes(head);
}

static size_t record_bytes(const struct head *head)
{
    return bytes_before_value(head) + head->size;
}

static bool has_sound_head(const struct head *head, size_t bytes)
{
    return head->name_len > 0 && head->name_len <= STILE_NAME_MAX &&
           head->issuer_len <= STILE_ISSUER_MAX && head->size <= STILE_CELL_MAX &&
           head->flags <= (IS_THERE | HAS_END) && record_bytes(head) == bytes;
}

static bool read_head(struct head *head, const void *data, size_t bytes)
{
    if (bytes < sizeof *head)
        return false;
    memcpy(head, data, sizeof *head);
    return has_sound_head(head, bytes);
}

static const char *record_name(const void *data)
{
    return (const char *)data + sizeof(struct head);
}

static uint64_t record_sum(const void *data, const struct head *head)
{
    size_t summed = bytes_before_value(head) - sizeof head->sum;
    return name_hash((const char *)data + sizeof head->sum, summed);
}

bool local_record_has_sound_value(const struct cell_record *record)
{
    return record->size == 0 || name_hash(record->value, record->size) == record->value_sum;
}

void local_record_set_value(struct cell_record *record, const void *value, size_t size)
{
    record->value = value;
    record->size = size;
    record->value_sum = size ? name_hash(value, size) : 0;
}

/* Names have no control characters; the keys of all else begin with one. */
static bool is_name(const void *key)
{
    return *(const unsigned char *)key >= ' ';
}

static bool is_one_of_ours(const void *key, size_t len)
{
    return (len == sizeof CELLS_FORMAT - 1 && memcmp(key, CELLS_FORMAT, len) == 0) ||
           (len == sizeof CELLS_VERSION - 1 && memcmp(key, CELLS_VERSION, len) == 0);
}

/* The names of records must fit their keys: otherwise a flipped bit in a key would hide a record.
 */
static const char *check_name(const void *key, size_t key_len, const void *data, size_t bytes)
{
    struct head head;
    struct cell_key own;
    if (!is_name(key))
        return is_one_of_ours(key, key_len) ? NULL : local_ends_check(key, key_len, data, bytes);
    if (!read_head(&head, data, bytes))
        return "a record is damaged";
    make_key(&own, record_name(data), head.name_len, head.nth);
    return own.len == key_len && memcmp(own.bytes, key, key_len) == 0
               ? NULL
               : "a record is not in its place";
}

static bool decode(struct cell_record *record, const void *data, size_t bytes)
{
    struct head head;
    if (!read_head(&head, data, bytes) || head.sum != record_sum(data, &head))
        return false;
    const char *issuer = record_name(data) + head.name_len;
    record->is_there = head.flags & IS_THERE;
    record->end = (struct cell_end){.boot = 0};
    memcpy(&record->end, issuer + head.issuer_len, end_bytes(&head));
    record->stored_end = record->end;
    record->nth = head.nth;
    record->version = head.version;
    record->token = head.token;
    memcpy(record->issuer, issuer, head.issuer_len);
    record->issuer[head.issuer_len] = '\0';
    record->value = (const char *)data + bytes_before_value(&head);
    record->size = head.size;
    record->value_sum = head.value_sum;
    return true;
}

static void encode(void *data, struct head *head, const char *name,
                   const struct cell_record *record)
{
    char *at = (char *)data + sizeof *head;
    memcpy(at, name, head->name_len);
    memcpy(at += head->name_len, record->issuer, head->issuer_len);
    memcpy(at + head->issuer_len, &record->end, end_bytes(head));
    if (head->size)
        memcpy((char *)data + bytes_before_value(head), record->value, head->size);
    memcpy(data, head, sizeof *head);
    head->sum = record_sum(data, head);
    memcpy(data, &head->sum, sizeof head->sum);
}

/* ---- finding and storing ---- */

static enum stile_status get(MDB_val *value, bool *found, struct cell_tx *tx,
                             const struct cell_key *key, struct stile_error *err)
{
    const void *own;
    const char *fault = local_pages_check_key(&own, &tx->pages, key->bytes, key->len, check_name);
    if (fault)
        return local_cells_damaged(fault, err);
    MDB_val wanted = {key->len, (void *)key->bytes};
    int rc = tx->lmdb->get(tx->txn, tx->dbi, &wanted, value);
    *found = rc == 0;
    return rc && rc != MDB_NOTFOUND ? local_cells_lmdb_error(tx, rc, err) : STILE_OK;
}

static bool is_of(const MDB_val *value, const char *name, size_t len)
{
    struct head head;
    return read_head(&head, value->mv_data, value->mv_size) && head.name_len == len &&
           memcmp(record_name(value->mv_data), name, len) == 0;
}

/* A long name looks further only if another one certainly has this number. */
static enum stile_status take_found(struct cell_record *record, bool *is_own, const MDB_val *value,
                                    const char *name, size_t len, struct stile_error *err)
{
    if (!decode(record, value->mv_data, value->mv_size))
        return local_cells_damaged("a record has a wrong sum", err);
    *is_own = is_of(value, name, len);
    if (!*is_own && len <= HEAD_MAX)
        return local_cells_damaged("a record is not in its place", err);
    return STILE_OK;
}

enum stile_status local_record_find(struct cell_record *record, struct cell_tx *tx,
                                    const char *name, size_t len, struct stile_error *err)
{
    struct cell_key key;
    MDB_val value;
    enum stile_status status = STILE_OK;
    bool found = tx->txn != NULL, is_own = false;
    *record = (struct cell_record){.nth = 0};
    for (uint32_t nth = 0; found && !is_own && !status; nth++) {
        make_key(&key, name, len, nth);
        *record = (struct cell_record){.nth = nth};
        status = get(&value, &found, tx, &key, err);
        if (!status && found)
            status = take_found(record, &is_own, &value, name, len, err);
    }
    if (!is_own)
        *record = (struct cell_record){.nth = record->nth};
    return status;
}

enum stile_status local_record_store(struct cell_tx *tx, const char *name, size_t len,
                                     const struct cell_record *record, struct stile_error *err)
{
    struct cell_key key;
    struct head head = {
        .value_sum = record->value_sum,
        .version = record->version,
        .token = record->token,
        .size = (uint32_t)record->size,
        .name_len = (uint16_t)len,
        .issuer_len = (uint16_t)strlen(record->issuer),
        .nth = record->nth,
        .flags = (record->is_there ? IS_THERE : 0u) | (record->end.boot ? HAS_END : 0u),
    };
    make_key(&key, name, len, record->nth);
    MDB_val place = {key.len, key.bytes}, value = {record_bytes(&head), NULL};
    int rc = tx->lmdb->put(tx->txn, tx->dbi, &place, &value, MDB_RESERVE);
    if (rc)
        return local_cells_lmdb_error(tx, rc, err);
    encode(value.mv_data, &head, name, record);
    return local_ends_move(tx, &key, &record->stored_end, &record->end, err);
}

/* ---- ends ---- */

void local_record_end(struct cell_record *record, const struct cell_now *now)
{
    if (!local_end_is_over(&record->end, now))
        return;
    *record = (struct cell_record){
        .nth = record->nth, .version = record->version, .stored_end = record->stored_end};
}

/* The largest version of the records that were deleted. */
struct floor {
    uint64_t sum, version;
};

static uint64_t floor_sum(const struct floor *at)
{
    return name_hash((const char *)&at->version, sizeof at->version);
}

static enum stile_status read_floor(uint64_t *version, struct cell_tx *tx, struct stile_error *err)
{
    static const struct cell_key key = {CELLS_VERSION, sizeof CELLS_VERSION - 1};
    struct floor stored;
    MDB_val value;
    bool found;
    *version = 0;
    enum stile_status status = get(&value, &found, tx, &key, err);
    if (status || !found)
        return status;
    if (value.mv_size != sizeof stored)
        return local_cells_damaged("the smallest version is damaged", err);
    memcpy(&stored, value.mv_data, sizeof stored);
    if (stored.sum != floor_sum(&stored))
        return local_cells_damaged("the smallest version is damaged", err);
    *version = stored.version;
    return STILE_OK;
}

static enum stile_status raise_floor(struct cell_tx *tx, uint64_t version, struct stile_error *err)
{
    struct floor stored = {.version = version};
    uint64_t present;
    enum stile_status status = read_floor(&present, tx, err);
    if (status || version <= present)
        return status;
    stored.sum = floor_sum(&stored);
    return local_cells_store(tx, CELLS_VERSION, sizeof CELLS_VERSION - 1, &stored, sizeof stored,
                             err);
}

enum stile_status local_record_first_version(struct cell_record *record, struct cell_tx *tx,
                                             struct stile_error *err)
{
    return record->version ? STILE_OK : read_floor(&record->version, tx, err);
}

/* Another name may have the number behind it: then the record stays, without its value. */
static enum stile_status drop(struct cell_tx *tx, const struct cell_key *key, const char *name,
                              size_t len, struct cell_record *record, struct stile_error *err)
{
    const struct cell_end never = {0};
    struct cell_key behind;
    MDB_val value;
    bool found = false;
    enum stile_status status = raise_floor(tx, record->version, err);
    if (!status && len > HEAD_MAX) {
        make_key(&behind, name, len, record->nth + 1);
        status = get(&value, &found, tx, &behind, err);
    }
    if (status)
        return status;
    if (found)
        return local_record_store(tx, name, len, record, err);
    status = local_ends_move(tx, key, &record->stored_end, &never, err);
    return status ? status : local_cells_delete(tx, key->bytes, key->len, err);
}

/* The wall clock was set forward since it was put: where that is now. */
static enum stile_status put_off(struct cell_tx *tx, const char *name, size_t len,
                                 struct cell_record *record, const struct cell_now *now,
                                 struct stile_error *err)
{
    void *value = malloc(record->size + 1);
    if (!value)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    memcpy(value, record->value, record->size); /* what is stored may take its place */
    record->value = value;
    record->end = local_end_after(now, local_end_left_ns(&record->end, now));
    enum stile_status status = local_record_store(tx, name, len, record, err);
    free(value);
    return status;
}

/* What has an entry in the index for another end was put again since. */
static enum stile_status drop_due(struct cell_tx *tx, const struct cell_key *key, uint64_t wall_us,
                                  const struct cell_now *now, struct stile_error *err)
{
    const struct cell_end entry = {.boot = now->boot, .wall_us = wall_us}, never = {0};
    char name[STILE_NAME_MAX];
    struct cell_record record;
    struct head head;
    MDB_val value;
    bool found;
    enum stile_status status = get(&value, &found, tx, key, err);
    if (status)
        return status;
    if (found && (!decode(&record, value.mv_data, value.mv_size) ||
                  !read_head(&head, value.mv_data, value.mv_size)))
        return local_cells_damaged("a record has a wrong sum", err);
    if (!found || record.end.wall_us != wall_us)
        return local_ends_move(tx, key, &entry, &never, err);
    memcpy(name, record_name(value.mv_data), head.name_len);
    if (!local_end_is_over(&record.end, now))
        return put_off(tx, name, head.name_len, &record, now, err);
    local_record_end(&record, now);
    return drop(tx, key, name, head.name_len, &record, err);
}

enum stile_status local_record_drop_some(struct cell_tx *tx, const struct cell_now *now,
                                         struct stile_error *err)
{
    struct ends_due due;
    enum stile_status status = local_ends_due(&due, tx, now, err);
    for (size_t i = 0; i < due.n && !status; i++)
        status = drop_due(tx, &due.all[i].record, due.all[i].wall_us, now, err);
    return status;
}

/* ---- listing ---- */

/* Names longer than HEAD_MAX that have the same head: their keys are in order of their numbers. */
struct group {
    MDB_val *values;
    size_t n, room;
};

struct listing {
    struct cell_tx *tx;
    const char *prefix;
    size_t len;
    cell_record_fn *fn;
    void *data;
    struct group group;
};

static bool has_prefix(const struct listing *listing, const MDB_val *value)
{
    struct head head;
    return read_head(&head, value->mv_data, value->mv_size) && head.name_len >= listing->len &&
           memcmp(record_name(value->mv_data), listing->prefix, listing->len) == 0;
}

static enum stile_status report(struct listing *listing, const MDB_val *value,
                                struct stile_error *err)
{
    struct cell_record record;
    struct head head;
    char name[STILE_NAME_MAX + 1];
    if (!read_head(&head, value->mv_data, value->mv_size) ||
        !decode(&record, value->mv_data, value->mv_size))
        return local_cells_damaged("a record has a wrong sum", err);
    memcpy(name, record_name(value->mv_data), head.name_len);
    name[head.name_len] = '\0';
    if (has_prefix(listing, value))
        listing->fn(name, &record, listing->data);
    return STILE_OK;
}

static int by_name(const void *a, const void *b)
{
    const MDB_val *x = a, *y = b;
    struct head hx, hy;
    memcpy(&hx, x->mv_data, sizeof hx);
    memcpy(&hy, y->mv_data, sizeof hy);
    size_t shorter = hx.name_len < hy.name_len ? hx.name_len : hy.name_len;
    int order = memcmp(record_name(x->mv_data), record_name(y->mv_data), shorter);
    return order ? order : (int)hx.name_len - (int)hy.name_len;
}

static enum stile_status end_group(struct listing *listing, struct stile_error *err)
{
    struct group *group = &listing->group;
    enum stile_status status = STILE_OK;
    if (group->n > 1)
        qsort(group->values, group->n, sizeof *group->values, by_name);
    for (size_t i = 0; i < group->n && !status; i++)
        status = report(listing, &group->values[i], err);
    group->n = 0;
    return status;
}

static enum stile_status add_to_group(struct group *group, const MDB_val *value,
                                      struct stile_error *err)
{
    if (group->n == group->room) {
        size_t room = group->room ? 2 * group->room : 8;
        MDB_val *grown = realloc(group->values, room * sizeof *grown);
        if (!grown)
            return error_set(err, STILE_NOMEM, 0, "out of memory");
        group->values = grown;
        group->room = room;
    }
    group->values[group->n++] = *value;
    return STILE_OK;
}

static bool is_in_group(const struct group *group, const MDB_val *value)
{
    return group->n > 0 && memcmp(record_name(group->values[0].mv_data),
                                  record_name(value->mv_data), HEAD_MAX) == 0;
}

static enum stile_status take(struct listing *listing, const MDB_val *key, const MDB_val *value,
                              struct stile_error *err)
{
    const char *fault = check_name(key->mv_data, key->mv_size, value->mv_data, value->mv_size);
    if (fault)
        return local_cells_damaged(fault, err);
    if (!is_name(key->mv_data))
        return STILE_OK;
    bool is_long = key->mv_size > HEAD_MAX;
    enum stile_status status =
        is_long && is_in_group(&listing->group, value) ? STILE_OK : end_group(listing, err);
    if (status)
        return status;
    return is_long ? add_to_group(&listing->group, value, err) : report(listing, value, err);
}

/* Never beyond the keys with the prefix: what follows was not checked. */
static enum stile_status walk(struct listing *listing, MDB_cursor *cursor, MDB_val key,
                              size_t count, struct stile_error *err)
{
    const struct lmdb *lmdb = listing->tx->lmdb;
    MDB_cursor_op step = key.mv_size ? MDB_SET_RANGE : MDB_FIRST;
    MDB_val value;
    enum stile_status status = STILE_OK;
    for (; count > 0 && !status; count--, step = MDB_NEXT) {
        int rc = lmdb->cursor_get(cursor, &key, &value, step);
        status =
            rc ? local_cells_lmdb_error(listing->tx, rc, err) : take(listing, &key, &value, err);
    }
    return status ? status : end_group(listing, err);
}

enum stile_status local_record_each(struct cell_tx *tx, const char *prefix, size_t len,
                                    cell_record_fn *fn, void *data, struct stile_error *err)
{
    struct listing listing = {.tx = tx, .prefix = prefix, .len = len, .fn = fn, .data = data};
    MDB_val key = {len < HEAD_MAX ? len : HEAD_MAX, (void *)prefix};
    MDB_cursor *cursor;
    size_t count;
    if (!tx->txn)
        return STILE_OK;
    const char *fault = local_pages_check_prefix(&count, &tx->pages, prefix, key.mv_size);
    if (fault)
        return local_cells_damaged(fault, err);
    int rc = tx->lmdb->cursor_open(tx->txn, tx->dbi, &cursor);
    if (rc)
        return local_cells_lmdb_error(tx, rc, err);
    enum stile_status status = walk(&listing, cursor, key, count, err);
    tx->lmdb->cursor_close(cursor);
    free(listing.group.values);
    return status;
}
