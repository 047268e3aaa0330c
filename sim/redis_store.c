/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_store.h"

#include <string.h>

#include "sim/redis_keys.h"

/* ---- bytes ---- */

static bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

static int bytes_compare(struct bytes a, struct bytes b)
{
    int order = memcmp(a.at, b.at, a.n < b.n ? a.n : b.n);
    if (order != 0 || a.n == b.n)
        return order;
    return a.n < b.n ? -1 : 1;
}

struct bytes bytes_copy(struct bytes bytes)
{
    char *at = world_alloc(bytes.n + 1);
    memcpy(at, bytes.at, bytes.n);
    return (struct bytes){at, bytes.n};
}

/* ---- keys ---- */

void redis_key_note(struct redis_store *store, struct bytes name)
{
    for (size_t i = 0; i < store->n_changed; i++) {
        if (bytes_equal(store->changed[i], name))
            return;
    }
    if (!store->noting)
        return;
    if (store->n_changed == store->changed_room) {
        struct bytes *had = store->changed;
        store->changed_room = had != NULL ? 2 * store->changed_room : 16;
        store->changed = world_alloc(store->changed_room * sizeof *had);
        if (had != NULL)
            memcpy(store->changed, had, store->n_changed * sizeof *had);
    }
    store->changed[store->n_changed++] = bytes_copy(name);
}

void redis_key_remove(struct redis_store *store, size_t i)
{
    redis_key_note(store, store->keys[i].name);
    store->keys[i] = store->keys[--store->n];
}

/* What has ended is gone. */
struct redis_key *redis_key_find(const struct redis_call *call, struct bytes name)
{
    struct redis_store *store = call->store;
    for (size_t i = 0; i < store->n; i++) {
        if (!bytes_equal(store->keys[i].name, name))
            continue;
        if (store->keys[i].ends_ms > call->now_us / 1000)
            return &store->keys[i];
        if (!call->read_only) /* a replica waits for its primary to say so */
            redis_key_remove(store, i);
        return NULL;
    }
    return NULL;
}

bool redis_key_drop(const struct redis_call *call, struct bytes name)
{
    struct redis_key *key = redis_key_find(call, name);
    if (key == NULL)
        return false;
    redis_key_remove(call->store, (size_t)(key - call->store->keys));
    return true;
}

static struct redis_key *add_key(struct redis_store *store)
{
    if (store->n == store->room) {
        struct redis_key *keys = store->keys;
        store->room = store->room != 0 ? 2 * store->room : 16;
        store->keys = world_alloc(store->room * sizeof *keys);
        if (store->n > 0)
            memcpy(store->keys, keys, store->n * sizeof *keys);
    }
    return &store->keys[store->n++];
}

struct redis_key *redis_key_make(const struct redis_call *call, struct bytes name, enum kind kind)
{
    struct redis_key *key = add_key(call->store);
    *key = (struct redis_key){.name = bytes_copy(name), .kind = kind, .ends_ms = NO_END};
    return key;
}

void redis_store_clear(struct redis_store *store)
{
    store->n = 0;
    store->flushed = store->noting;
    store->n_changed = 0;
}

static void copy_key(struct redis_key *to, const struct redis_key *from)
{
    *to = *from;
    to->room = to->n_items;
    to->items = world_alloc(to->n_items * sizeof *to->items);
    if (to->n_items > 0)
        memcpy(to->items, from->items, to->n_items * sizeof *to->items);
}

void redis_store_copy(struct redis_store *to, const struct redis_store *from)
{
    *to = (struct redis_store){.n = from->n, .room = from->n, .noting = to->noting};
    to->keys = world_alloc(from->n * sizeof *to->keys);
    for (size_t i = 0; i < from->n; i++)
        copy_key(&to->keys[i], &from->keys[i]);
}

static struct redis_key *key_of(const struct redis_store *store, struct bytes name)
{
    for (size_t i = 0; i < store->n; i++) {
        if (bytes_equal(store->keys[i].name, name))
            return &store->keys[i];
    }
    return NULL;
}

bool redis_store_peek(struct bytes *value, int64_t *ends_ms, const struct redis_store *store,
                      struct bytes name, int64_t now_us)
{
    const struct redis_key *key = key_of(store, name);
    if (key == NULL || key->kind != STRING || key->ends_ms <= now_us / 1000)
        return false;
    *value = key->string;
    *ends_ms = key->ends_ms;
    return true;
}

bool redis_store_has(const struct redis_store *store, struct bytes name, int64_t now_us)
{
    const struct redis_key *key = key_of(store, name);
    return key != NULL && key->ends_ms > now_us / 1000;
}

/* ---- changes ---- */

/* Keys as they are afterwards; those that are gone have only a name. */
struct redis_change {
    bool flushed;
    size_t n, n_gone;
    struct redis_key *keys;
    struct bytes *gone;
};

struct redis_change *redis_store_changes(struct redis_store *store)
{
    if (store->n_changed == 0 && !store->flushed)
        return NULL;
    struct redis_change *change = world_alloc(sizeof *change);
    change->flushed = store->flushed;
    change->keys = world_alloc(store->n_changed * sizeof *change->keys);
    change->gone = world_alloc(store->n_changed * sizeof *change->gone);
    for (size_t i = 0; i < store->n_changed; i++) {
        const struct redis_key *key = key_of(store, store->changed[i]);
        if (key != NULL)
            copy_key(&change->keys[change->n++], key);
        else
            change->gone[change->n_gone++] = store->changed[i];
    }
    store->flushed = false;
    store->n_changed = 0;
    return change;
}

static void lose(struct redis_store *store, struct bytes name)
{
    struct redis_key *key = key_of(store, name);
    if (key != NULL)
        redis_key_remove(store, (size_t)(key - store->keys));
}

void redis_store_apply(struct redis_store *store, const struct redis_change *change)
{
    if (change->flushed)
        redis_store_clear(store);
    for (size_t i = 0; i < change->n_gone; i++)
        lose(store, change->gone[i]);
    for (size_t i = 0; i < change->n; i++) {
        lose(store, change->keys[i].name);
        copy_key(add_key(store), &change->keys[i]);
    }
}

bool redis_store_migrate(struct redis_store *to, struct redis_store *from, redis_wanted_fn *wanted,
                         unsigned what, int64_t later_ms)
{
    for (size_t i = 0; i < from->n; i++) {
        struct redis_key *key = &from->keys[i], *made;
        if (!wanted(key->name, what))
            continue;
        lose(to, key->name);
        made = add_key(to);
        copy_key(made, key);
        if (made->ends_ms != NO_END)
            made->ends_ms += later_ms;
        redis_key_note(to, made->name);
        redis_key_remove(from, i);
        return true;
    }
    return false;
}

bool redis_store_drop(struct redis_store *store, size_t n)
{
    if (store->n == 0)
        return false;
    redis_key_remove(store, n % store->n);
    return true;
}

/* ---- items ---- */

struct item *redis_item_find(const struct redis_key *key, struct bytes name)
{
    for (size_t i = 0; key != NULL && i < key->n_items; i++) {
        if (bytes_equal(key->items[i].name, name))
            return &key->items[i];
    }
    return NULL;
}

void redis_item_insert(struct redis_key *key, size_t at, struct item item)
{
    if (key->n_items == key->room) {
        struct item *items = key->items;
        key->room = key->room != 0 ? 2 * key->room : 4;
        key->items = world_alloc(key->room * sizeof *items);
        if (key->n_items > 0)
            memcpy(key->items, items, key->n_items * sizeof *items);
    }
    memmove(&key->items[at + 1], &key->items[at], (key->n_items - at) * sizeof item);
    key->items[at] = item;
    key->n_items++;
}

/* A collection without items is gone. */
void redis_item_remove(const struct redis_call *call, struct redis_key *key, size_t at)
{
    key->n_items--;
    memmove(&key->items[at], &key->items[at + 1], (key->n_items - at) * sizeof *key->items);
    if (key->n_items == 0)
        redis_key_remove(call->store, (size_t)(key - call->store->keys));
}

void redis_item_insert_by_score(struct redis_key *key, struct bytes name, double score)
{
    size_t at = 0;
    while (at < key->n_items &&
           (key->items[at].score < score ||
            (key->items[at].score == score && bytes_compare(key->items[at].name, name) < 0)))
        at++;
    redis_item_insert(key, at, (struct item){.name = bytes_copy(name), .score = score});
}
