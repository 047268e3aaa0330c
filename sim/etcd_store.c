/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/etcd_store.h"

#include <string.h>

#include "sim/world.h"

/* ---- lists that grow ---- */

/* The old one stays until the end of the run. */
static void *grown(const void *list, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return (void *)list;
    *room = *room != 0 ? 2 * *room : 64;
    void *larger = world_alloc(*room * size);
    if (n > 0)
        memcpy(larger, list, n * size);
    return larger;
}

static etcd_bytes copy_bytes(etcd_bytes bytes)
{
    etcd_bytes copy = {.len = bytes.len, .data = world_alloc(bytes.len + 1)};
    if (bytes.len > 0)
        memcpy(copy.data, bytes.data, bytes.len);
    return copy;
}

/* ---- the log ---- */

static void note_revision(struct etcd_store *store)
{
    store->revisions =
        grown(store->revisions, store->index, &store->revisions_room, sizeof *store->revisions);
    store->revisions[store->index++] = store->revision;
}

void etcd_store_begin(struct etcd_store *store)
{
    *store = (struct etcd_store){.revision = 1};
    note_revision(store);
}

static bool has_changed(const struct etcd_store *store)
{
    return store->n_changes > 0 && store->changes[store->n_changes - 1]->revision > store->revision;
}

int64_t etcd_store_present(const struct etcd_store *store)
{
    return store->revision + (has_changed(store) ? 1 : 0);
}

void etcd_store_commit(struct etcd_store *store)
{
    store->revision = etcd_store_present(store);
    note_revision(store);
}

int64_t etcd_store_revision_at(const struct etcd_store *store, uint64_t index)
{
    return store->revisions[index - 1];
}

/* Versions never change, so both stores have the same ones. */
static void copy_keys(struct etcd_store *to, const struct etcd_store *from)
{
    to->n_keys = to->keys_room = from->n_keys;
    to->keys = world_alloc(from->n_keys * sizeof *to->keys);
    for (size_t i = 0; i < from->n_keys; i++) {
        to->keys[i] = world_alloc(sizeof **to->keys);
        *to->keys[i] = *from->keys[i];
    }
}

static void copy_leases(struct etcd_store *to, const struct etcd_store *from)
{
    struct etcd_lease **last = &to->leases;
    for (const struct etcd_lease *each = from->leases; each != NULL; each = each->next) {
        if (each->ended != 0)
            continue;
        *last = world_alloc(sizeof **last);
        **last = *each;
        (*last)->revoking = false;
        (*last)->next = NULL;
        last = &(*last)->next;
    }
}

void etcd_store_copy(struct etcd_store *to, const struct etcd_store *from)
{
    *to = (struct etcd_store){.revision = from->revision, .compacted = from->compacted};
    copy_keys(to, from);
    copy_leases(to, from);
}

void etcd_store_restore(struct etcd_store *store, const struct etcd_store *saved, int64_t bump)
{
    store->revision = saved->revision + bump;
    store->compacted = bump != 0 ? store->revision : saved->compacted;
    store->n_changes = 0;
    store->leases = NULL;
    copy_keys(store, saved);
    copy_leases(store, saved);
    note_revision(store);
}

/* ---- keys ---- */

int etcd_bytes_compare(etcd_bytes a, etcd_bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

bool etcd_range_has(etcd_bytes start, etcd_bytes end, etcd_bytes key)
{
    if (end.len == 0)
        return etcd_bytes_compare(start, key) == 0;
    if (etcd_bytes_compare(key, start) < 0)
        return false;
    return (end.len == 1 && end.data[0] == 0) || etcd_bytes_compare(key, end) < 0;
}

size_t etcd_store_find(const struct etcd_store *store, etcd_bytes name)
{
    size_t low = 0, high = store->n_keys;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (etcd_bytes_compare(store->keys[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct etcd_key *key_of(struct etcd_store *store, etcd_bytes name)
{
    size_t at = etcd_store_find(store, name);
    if (at < store->n_keys && etcd_bytes_compare(store->keys[at]->name, name) == 0)
        return store->keys[at];
    struct etcd_key *key = world_alloc(sizeof *key);
    key->name = copy_bytes(name);
    store->keys = grown(store->keys, store->n_keys, &store->keys_room, sizeof *store->keys);
    memmove(store->keys + at + 1, store->keys + at, (store->n_keys - at) * sizeof *store->keys);
    store->keys[at] = key;
    store->n_keys++;
    return key;
}

struct etcd_version *etcd_version_at(const struct etcd_key *key, int64_t revision)
{
    struct etcd_version *version = key->latest;
    while (version != NULL && version->revision > revision)
        version = version->older;
    return version == NULL || version->deleted ? NULL : version;
}

static struct etcd_version *change(struct etcd_store *store, struct etcd_key *key)
{
    struct etcd_version *version = world_alloc(sizeof *version);
    *version =
        (struct etcd_version){.older = key->latest, .key = key, .revision = store->revision + 1};
    key->latest = version;
    store->changes =
        grown(store->changes, store->n_changes, &store->changes_room, sizeof *store->changes);
    store->changes[store->n_changes++] = version;
    return version;
}

void etcd_store_put(struct etcd_store *store, etcd_bytes name, etcd_bytes value, int64_t lease)
{
    struct etcd_key *key = key_of(store, name);
    const struct etcd_version *before = etcd_version_at(key, store->revision + 1);
    struct etcd_version *version = change(store, key);
    version->created = before != NULL ? before->created : version->revision;
    version->version = before != NULL ? before->version + 1 : 1;
    version->lease = lease;
    version->value = copy_bytes(value);
}

static int64_t delete_key(struct etcd_store *store, struct etcd_key *key)
{
    if (etcd_version_at(key, store->revision + 1) == NULL)
        return 0;
    change(store, key)->deleted = true;
    return 1;
}

int64_t etcd_store_delete(struct etcd_store *store, etcd_bytes start, etcd_bytes end)
{
    int64_t deleted = 0;
    for (size_t i = etcd_store_find(store, start);
         i < store->n_keys && etcd_range_has(start, end, store->keys[i]->name); i++)
        deleted += delete_key(store, store->keys[i]);
    return deleted;
}

/* ---- leases ---- */

struct etcd_lease *etcd_store_lease(const struct etcd_store *store, int64_t id, uint64_t index)
{
    struct etcd_lease *lease = store->leases;
    while (lease != NULL && (lease->id != id || lease->granted > index ||
                             (lease->ended != 0 && lease->ended <= index)))
        lease = lease->next;
    return lease;
}

struct etcd_lease *etcd_store_grant(struct etcd_store *store, int64_t id, int64_t ttl_s)
{
    struct etcd_lease *lease = world_alloc(sizeof *lease);
    *lease = (struct etcd_lease){
        .next = store->leases, .id = id, .ttl_s = ttl_s, .granted = store->index + 1};
    store->leases = lease;
    return lease;
}

void etcd_store_revoke(struct etcd_store *store, struct etcd_lease *lease)
{
    lease->ended = store->index + 1;
    for (size_t i = 0; i < store->n_keys; i++) {
        const struct etcd_version *version = etcd_version_at(store->keys[i], store->revision + 1);
        if (version != NULL && version->lease == lease->id)
            delete_key(store, store->keys[i]);
    }
}
