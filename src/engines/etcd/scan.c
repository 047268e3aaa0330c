/* A line that does not fit into one answer, read page by page: most of its keys may be of longer
 * names ("jobs/a/..." for a claim of "jobs"), and the server can't leave them out.
 *
 * Each page is read in one step with the proof that our key is still there, but the pages are of
 * different revisions. What was created before us can only go: if no page has shown anything in our
 * way, nothing is. One that was seen and has gone since is found out by its watch, which counts
 * from the first page's revision. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/line.h"

#define PAGE 1000

struct scan {
    struct key at; /* where the next page begins */
    int64_t limit;
    int64_t revision;        /* of the first page */
    Pb__RangeResponse range; /* the keys of this very name so far */
    size_t room;
};

static void ask_page(struct etcd_claim *part);

static void scan_free(struct scan *scan)
{
    if (!scan)
        return;
    for (size_t i = 0; i < scan->range.n_kvs; i++)
        free(scan->range.kvs[i]);
    free(scan->range.kvs);
    free(scan);
}

void scan_end(struct etcd_claim *part)
{
    scan_free(part->scan);
    part->scan = NULL;
}

static bool keep(struct scan *scan, const Pb__KeyValue *kv)
{
    if (scan->range.n_kvs == scan->room) {
        size_t room = scan->room ? 2 * scan->room : 64;
        Pb__KeyValue **kvs = realloc(scan->range.kvs, room * sizeof(void *));
        if (!kvs)
            return false;
        scan->range.kvs = kvs;
        scan->room = room;
    }
    Pb__KeyValue *copy = malloc(sizeof *copy + kv->key.len);
    if (!copy)
        return false;
    pb__key_value__init(copy);
    copy->create_revision = kv->create_revision;
    copy->lease = kv->lease;
    copy->key = (ProtobufCBinaryData){.len = kv->key.len, .data = (uint8_t *)(copy + 1)};
    memcpy(copy->key.data, kv->key.data, kv->key.len);
    scan->range.kvs[scan->range.n_kvs++] = copy;
    return true;
}

static bool keep_page(struct etcd_claim *part, const Pb__RangeResponse *page)
{
    const struct claim *claim = claim_of(part);
    struct key name;
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    for (size_t i = 0; i < page->n_kvs; i++) {
        if (line_has(claim, &name, part->revision, page->kvs[i]) && !keep(part->scan, page->kvs[i]))
            return false;
    }
    return true;
}

static void look_again(struct timer *timer)
{
    claim_look(part_of_timer(timer));
}

static void fail(struct etcd_claim *part, const struct stile_error *err)
{
    scan_end(part);
    if (fault_passes(err) && claim_of(part)->wait)
        claim_again_later(part, look_again);
    else
        claim_fail(part, err);
}

static void fail_memory(struct etcd_claim *part)
{
    struct stile_error err;
    error_set(&err, STILE_NOMEM, 0, "out of memory");
    fail(part, &err);
}

/* The scan is over before its result is used: that may begin another one. */
static void finish(struct etcd_claim *part)
{
    struct scan *scan = part->scan;
    part->scan = NULL;
    line_order(&scan->range);
    claim_weigh(part, &scan->range, scan->revision);
    scan_free(scan);
}

static bool go_on(struct scan *scan, const Pb__RangeResponse *page)
{
    const ProtobufCBinaryData *last = page->n_kvs ? &page->kvs[page->n_kvs - 1]->key : NULL;
    if (!page->more || !last)
        return false;
    return key_after(&scan->at, last);
}

static void on_page(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    if (claim_has_left(part, err))
        return;
    if (err && err->native == FAULT_TOO_LONG && part->scan->limit > 1) {
        part->scan->limit /= 4;
        ask_page(part);
        return;
    }
    if (err) {
        fail(part, err);
        return;
    }
    const Pb__RangeResponse *page = answer->succeeded ? txn_ranged(answer, 0) : NULL;
    if (!page || !answer->header) {
        claim_start_over(part);
        return;
    }
    if (!part->scan->revision)
        part->scan->revision = answer->header->revision;
    if (!keep_page(part, page))
        fail_memory(part);
    else if (go_on(part->scan, page))
        ask_page(part);
    else
        finish(part);
}

static void ask_page(struct etcd_claim *part)
{
    const struct claim *claim = claim_of(part);
    struct stile_error err;
    struct key own, name, end;
    struct txn txn;
    key_of_part(&own, part);
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    key_end(&end, &name);
    txn_init(&txn);
    txn_if_created(&txn, &own, part->revision);
    txn_if_leased(&txn, &own, part->lease_id);
    Pb__RangeRequest *range = txn_range(&txn, THEN, &part->scan->at, &end);
    range->limit = part->scan->limit;
    range->keys_only = true;
    part->in_flight = true;
    if (txn_send(&txn, etcd_of_part(part), on_page, part, &err)) {
        part->in_flight = false;
        fail(part, &err);
    }
}

void scan_begin(struct etcd_claim *part)
{
    const struct claim *claim = claim_of(part);
    loop_disarm(claim->engine->loop, &part->timer);
    part->standing = LOOKING;
    part->changed = false;
    scan_end(part);
    part->scan = calloc(1, sizeof *part->scan);
    if (!part->scan) {
        fail_memory(part);
        return;
    }
    pb__range_response__init(&part->scan->range);
    part->scan->limit = PAGE;
    key_of_name(&part->scan->at, etcd_of_part(part), claim->name, claim->name_len);
    ask_page(part);
}
