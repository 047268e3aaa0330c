/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a name: which of its keys are in the way of one claim, and watching for them to go.
 *
 * A queue may not fit into one answer: most keys of its range may be of longer names ("jobs/a/..."
 * for a claim on "jobs"), and the server cannot leave them out. Then it is scanned page by page.
 * Each page is read in one step with the proof that our key is still there, but the pages are of
 * different revisions. What was created before us can only go: if no page has shown anything in our
 * way, nothing is. One that was seen and has gone since is noticed by its watch, which counts from
 * the first page's revision. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engines/etcd/etcd.h"

/* Keys before ours that are read first: longer names may be among them. A claim that shares, or
 * wants a slot, has to see more of them. */
#define NEAREST         8
#define NEAREST_SHARING 256
#define PAGE            1000

/* ---- the position of a claim ---- */

static bool same(const struct key *key, const Etcd__KeyValue *kv)
{
    return kv->key.len == key->len && memcmp(kv->key.data, key->bytes, key->len) == 0;
}

/* What kv is on this name; false: it is on another, or not before us. */
static bool is_before(struct key_suffix *suffix, const struct key *name, int64_t below,
                      const Etcd__KeyValue *kv)
{
    return kv->create_revision < below && kv->key.len > name->len &&
           memcmp(kv->key.data, name->bytes, name->len) == 0 &&
           etcd_suffix_parse(suffix, kv->key.data + name->len, kv->key.len - name->len);
}

/* A reader waits only for earlier writers; slots are counted. */
static bool is_in_the_way(enum stile_mode mode, const struct key_suffix *suffix)
{
    return mode == STILE_EXCLUSIVE || suffix->mode != mode;
}

/* A claim and its ghosts were created by one revision, and take one slot. */
static bool is_counted(const Etcd__RangeResponse *range, size_t n, const struct key *name)
{
    struct key_suffix suffix;
    int64_t revision = range->kvs[n]->create_revision;
    for (size_t i = n; i-- > 0 && range->kvs[i]->create_revision == revision;) {
        if (is_before(&suffix, name, INT64_MAX, range->kvs[i]) && suffix.mode == STILE_SLOTS)
            return true;
    }
    return false;
}

static int compare_bytes(const ProtobufCBinaryData *one, const ProtobufCBinaryData *two)
{
    size_t n = one->len < two->len ? one->len : two->len;
    int order = n ? memcmp(one->data, two->data, n) : 0;
    return order ? order : (one->len > two->len) - (one->len < two->len);
}

/* A claim and its ghosts have one revision: they come in the order of their keys, as the server
 * sorts them. qsort() keeps the order of equals in some C libraries only, and a claim that sees
 * another one of them first begins another watch. */
static int last_first(const void *a, const void *b)
{
    const Etcd__KeyValue *const *one = a, *const *two = b;
    int64_t first = (*one)->create_revision, second = (*two)->create_revision;
    int order = (first < second) - (first > second);
    return order ? order : compare_bytes(&(*one)->key, &(*two)->key);
}

void etcd_queue_sort(const Etcd__RangeResponse *range)
{
    if (range->n_kvs > 1)
        qsort(range->kvs, range->n_kvs, sizeof *range->kvs, last_first);
}

void etcd_queue_locate(struct queue_position *position, const struct claim *base,
                       const struct key *name, const struct key *own, int64_t below,
                       const Etcd__RangeResponse *range)
{
    const struct etcd *etcd = etcd_of(base->engine);
    struct key_suffix suffix;
    *position = (struct queue_position){0};
    for (size_t i = 0; i < range->n_kvs; i++) {
        const Etcd__KeyValue *kv = range->kvs[i];
        if (own && same(own, kv))
            position->own = kv;
        if (!is_before(&suffix, name, below, kv) || etcd_suffix_is_plain(etcd, kv, name->len))
            continue;
        if (is_in_the_way(base->mode, &suffix)) {
            if (!position->nearest)
                position->nearest = kv;
            position->in_the_way++;
        } else if (base->mode == STILE_SLOTS && !is_counted(range, i, name)) {
            position->slots++;
        }
    }
    position->blocked =
        position->nearest || (base->mode == STILE_SLOTS && position->slots >= base->slots);
    /* One that must go is enough to know; slots have to be counted to the end, because any that
     * comes free is waited for. */
    position->unclear = range->more && !position->nearest;
}

/* ---- slots ---- */

static uint64_t hash_of(const ProtobufCBinaryData *key)
{
    return fnv_add(FNV_START, key->data, key->len) | 1;
}

enum stile_status etcd_queue_remember(struct etcd_claim *claim, const struct key *name,
                                      const Etcd__RangeResponse *range, struct stile_error *err)
{
    struct key_suffix suffix;
    etcd_queue_forget(claim);
    claim->before = calloc(range->n_kvs, sizeof *claim->before);
    if (!claim->before)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < range->n_kvs; i++) {
        const Etcd__KeyValue *kv = range->kvs[i];
        if (is_before(&suffix, name, claim->revision, kv) && suffix.mode == STILE_SLOTS)
            claim->before[claim->n_before++] =
                (struct slot_before){.hash = hash_of(&kv->key), .revision = kv->create_revision};
    }
    return STILE_OK;
}

void etcd_queue_forget(struct etcd_claim *claim)
{
    free(claim->before);
    claim->before = NULL;
    claim->n_before = 0;
}

bool etcd_queue_has_room(struct etcd_claim *claim, const Etcd__KeyValue *gone)
{
    uint64_t hash = hash_of(&gone->key);
    int64_t last = 0;
    size_t slots = 0;
    bool one_of_them = false;
    for (size_t i = 0; i < claim->n_before; i++) {
        struct slot_before *before = &claim->before[i];
        if (before->hash == hash) {
            before->hash = 0;
            one_of_them = true;
        }
        if (before->hash && before->revision != last) {
            last = before->revision;
            slots++;
        }
    }
    return one_of_them && slots < base_of(claim)->slots;
}

/* ---- a queue page by page ---- */

void etcd_queue_scan_free(struct queue_scan *scan)
{
    if (!scan)
        return;
    for (size_t i = 0; i < scan->range.n_kvs; i++)
        free(scan->range.kvs[i]);
    free(scan->range.kvs);
    free(scan);
}

void etcd_queue_scan_end(struct etcd_claim *claim)
{
    etcd_queue_scan_free(claim->scan);
    claim->scan = NULL;
}

bool etcd_queue_scan_begin(struct etcd_claim *claim)
{
    const struct claim *base = base_of(claim);
    etcd_queue_scan_end(claim);
    claim->scan = calloc(1, sizeof *claim->scan);
    if (!claim->scan)
        return false;
    etcd__range_response__init(&claim->scan->range);
    claim->scan->limit = PAGE;
    etcd_key_of_name(&claim->scan->at, etcd_of_claim(claim), base->name, base->name_len);
    return true;
}

static bool copy_kv(struct queue_scan *scan, const Etcd__KeyValue *kv)
{
    if (scan->range.n_kvs == scan->room) {
        size_t room = scan->room ? 2 * scan->room : 64;
        Etcd__KeyValue **kvs = realloc(scan->range.kvs, room * sizeof(void *));
        if (!kvs)
            return false;
        scan->range.kvs = kvs;
        scan->room = room;
    }
    Etcd__KeyValue *copy = malloc(sizeof *copy + kv->key.len);
    if (!copy)
        return false;
    etcd__key_value__init(copy);
    copy->create_revision = kv->create_revision;
    copy->lease = kv->lease;
    copy->key = (ProtobufCBinaryData){.len = kv->key.len, .data = (uint8_t *)(copy + 1)};
    memcpy(copy->key.data, kv->key.data, kv->key.len);
    scan->range.kvs[scan->range.n_kvs++] = copy;
    return true;
}

/* Whether the key is before us on this very name, be it in our way or not. */
static bool is_of_queue(struct etcd_claim *claim, const struct key *name, const Etcd__KeyValue *kv)
{
    struct key_suffix suffix;
    return is_before(&suffix, name, claim->revision, kv) &&
           !etcd_suffix_is_plain(etcd_of_claim(claim), kv, name->len);
}

bool etcd_queue_scan_add(struct etcd_claim *claim, const Etcd__RangeResponse *page,
                         int64_t revision)
{
    const struct claim *base = base_of(claim);
    struct key name;
    if (!claim->scan->revision)
        claim->scan->revision = revision;
    etcd_key_of_name(&name, etcd_of_claim(claim), base->name, base->name_len);
    for (size_t i = 0; i < page->n_kvs; i++) {
        if (is_of_queue(claim, &name, page->kvs[i]) && !copy_kv(claim->scan, page->kvs[i]))
            return false;
    }
    return true;
}

bool etcd_queue_scan_next(struct etcd_claim *claim, const Etcd__RangeResponse *page)
{
    const ProtobufCBinaryData *last = page->n_kvs ? &page->kvs[page->n_kvs - 1]->key : NULL;
    return page->more && last && etcd_key_after(&claim->scan->at, last);
}

bool etcd_queue_scan_less(struct etcd_claim *claim)
{
    if (!claim->scan || claim->scan->limit <= 1)
        return false;
    claim->scan->limit /= 4;
    return true;
}

/* ---- reading it ---- */

/* The server has no index of creations: it reads the whole range for this. */
static void nearest_first(struct etcd_claim *claim, Etcd__RangeRequest *range)
{
    range->sort_order = ETCD__RANGE_REQUEST__ORDER__DESCEND;
    range->sort_target = ETCD__RANGE_REQUEST__TARGET__CREATE;
    range->limit = base_of(claim)->mode == STILE_EXCLUSIVE ? NEAREST : NEAREST_SHARING;
    range->max_create_revision = claim->revision - 1;
}

/* Whether the claim's key is still there, and what is before it, in one step. A keep-alive that
 * succeeds would prove nothing: servers before 3.4.38 answer so for a revoked lease.
 *
 * The quorum is asked, not just the member we are connected to: a former leader that was stopped
 * and goes on believes for a moment that it still leads. It renews leases that have ended, and
 * shows their keys. */
enum stile_status etcd_queue_read(struct etcd_claim *claim, conn_fn *fn, struct stile_error *err)
{
    const struct claim *base = base_of(claim);
    struct key own, name, end;
    struct txn txn;
    key_of_own(&own, claim);
    etcd_key_of_name(&name, etcd_of_claim(claim), base->name, base->name_len);
    etcd_key_range_end(&end, &name);
    etcd_txn_init(&txn);
    etcd_txn_if_created(&txn, &own, claim->revision);
    etcd_txn_if_leased(&txn, &own, claim->lease_id);
    Etcd__RangeRequest *range =
        etcd_txn_range(&txn, THEN, claim->scan ? &claim->scan->at : &name, &end);
    range->keys_only = true;
    if (claim->scan)
        range->limit = claim->scan->limit;
    else
        nearest_first(claim, range);
    return etcd_txn_send(&txn, etcd_of_claim(claim), fn, claim, err);
}

/* Far back in the queue it is enough to know that the watched key was still there when its watch
 * had begun. It must be the same claim: one that has come again stands behind us, and waits for us.
 * And our key must be there: a server that was restored from a snapshot may not have it. The member
 * that serves the watch can answer. */
enum stile_status etcd_queue_read_watched(struct etcd_claim *claim, conn_fn *fn,
                                          struct stile_error *err)
{
    struct key own;
    struct txn txn;
    key_of_own(&own, claim);
    etcd_txn_init(&txn);
    etcd_txn_if_created(&txn, &own, claim->revision);
    etcd_txn_if_before(&txn, claim->watch.key, claim->revision);
    return etcd_txn_send(&txn, etcd_of_claim(claim), fn, claim, err);
}

/* ---- watching it ---- */

static void key_of_kv(struct key *key, const Etcd__KeyValue *kv)
{
    key->len = kv->key.len < KEY_MAX ? kv->key.len : KEY_MAX;
    memcpy(key->bytes, kv->key.data, key->len);
}

static bool is_watched(const struct etcd_claim *claim, const struct key *key)
{
    const struct key *watched = claim->watch.id ? claim->watch.key : NULL;
    return watched && watched->len == key->len && memcmp(watched->bytes, key->bytes, key->len) == 0;
}

static enum distance distance_of(const struct queue_position *position,
                                 const Etcd__RangeResponse *range)
{
    if (position->in_the_way < 2)
        return NEXT;
    return position->nearest && range->n_kvs >= NEAREST ? FAR : NEAR;
}

/* A claim on a slot waits for any of those before it, every other claim for the last one before it:
 * so one that goes wakes one. A watch that exists already goes on. */
enum stile_status etcd_queue_watch(struct etcd_claim *claim, const struct queue_position *position,
                                   const struct key *name, const Etcd__RangeResponse *range,
                                   int64_t revision, key_watch_fn *fn, struct stile_error *err)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct key key, end;
    enum stile_status status = STILE_OK;
    claim->distance = distance_of(position, range);
    etcd_queue_forget(claim);
    if (position->nearest)
        key_of_kv(&key, position->nearest);
    else
        status = etcd_queue_remember(claim, name, range, err);
    const struct key *wanted = position->nearest ? &key : name;
    if (status || is_watched(claim, wanted)) {
        /* A slot that has gone since was reported before its key was remembered. */
        claim->changed = claim->changed || (claim->before && claim->watch.from > revision + 1);
        return status;
    }
    etcd_watch_stop(etcd, &claim->watch);
    claim->doubt_ns = 0;
    claim->watch.fn = fn;
    if (position->nearest && etcd_watch_reuse(etcd, &claim->watch, name, wanted)) {
        claim->changed = claim->changed || claim->watch.from > revision + 1;
        return STILE_OK;
    }
    etcd_key_range_end(&end, name);
    return etcd_watch_start(etcd, &claim->watch, wanted, position->nearest ? NULL : &end,
                            revision + 1, err);
}
