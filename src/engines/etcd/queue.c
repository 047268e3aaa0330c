#include "engines/etcd/line.h"

#include <stdlib.h>
#include <string.h>

#include "mutant.h"

static bool same(const struct key *key, const Pb__KeyValue *kv)
{
    return kv->key.len == key->len && memcmp(kv->key.data, key->bytes, key->len) == 0;
}

/* What kv is on this name; false: it is on another, or not before us. */
static bool is_before(struct tail *tail, const struct key *name, int64_t below,
                      const Pb__KeyValue *kv)
{
    return kv->create_revision < below && kv->key.len > name->len &&
           memcmp(kv->key.data, name->bytes, name->len) == 0 &&
           tail_read(tail, kv->key.data + name->len, kv->key.len - name->len);
}

/* A reader waits only for earlier writers; slots are counted. */
static bool is_in_the_way(enum stile_mode mode, const struct tail *tail)
{
#ifdef MUTANT_ETCD_READERS_WAIT_FOR_READERS
    return true;
#endif
    return mode == STILE_EXCLUSIVE || tail->mode != mode;
}

static bool seen_before(const Pb__RangeResponse *range, size_t n, const struct key *name)
{
    struct tail tail;
    int64_t revision = range->kvs[n]->create_revision;
    for (size_t i = n; i-- > 0 && range->kvs[i]->create_revision == revision;) {
        if (is_before(&tail, name, INT64_MAX, range->kvs[i]) && tail.mode == STILE_SLOTS)
            return true;
    }
    return false;
}

static int last_first(const void *a, const void *b)
{
    const Pb__KeyValue *const *one = a, *const *two = b;
    int64_t first = (*one)->create_revision, second = (*two)->create_revision;
    return (first < second) - (first > second);
}

void line_order(const Pb__RangeResponse *range)
{
    if (range->n_kvs > 1)
        qsort(range->kvs, range->n_kvs, sizeof *range->kvs, last_first);
}

bool line_has(const struct claim *claim, const struct key *name, int64_t below,
              const Pb__KeyValue *kv)
{
    struct tail tail;
    return is_before(&tail, name, below, kv) &&
           !tail_is_plain(etcd_of(claim->engine), kv, name->len);
}

/* The range comes sorted by creation, last first. */
void line_weigh(struct line *line, const struct claim *claim, const struct key *name,
                const struct key *own, int64_t below, const Pb__RangeResponse *range)
{
    const struct etcd *etcd = etcd_of(claim->engine);
    struct tail tail;
    *line = (struct line){0};
    for (size_t i = 0; i < range->n_kvs; i++) {
        const Pb__KeyValue *kv = range->kvs[i];
        if (own && same(own, kv))
            line->own = kv;
        if (!is_before(&tail, name, below, kv) || tail_is_plain(etcd, kv, name->len))
            continue;
        if (is_in_the_way(claim->mode, &tail)) {
            if (!line->nearest)
                line->nearest = kv;
            line->in_the_way++;
        } else if (claim->mode == STILE_SLOTS && !seen_before(range, i, name)) {
            line->slots++;
        }
    }
    line->blocked = line->nearest || (claim->mode == STILE_SLOTS && line->slots >= claim->slots);
    /* One that must go is enough to know; slots have to be counted to the end, for any that comes
     * free is waited for. */
    line->unclear = range->more && !line->nearest;
}

/* ---- slots ---- */

static uint64_t hash_of(const ProtobufCBinaryData *key)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < key->len; i++)
        sum = (sum ^ key->data[i]) * UINT64_C(0x100000001b3);
    return sum | 1;
}

enum stile_status line_remember(struct etcd_claim *part, const struct key *name,
                                const Pb__RangeResponse *range, struct stile_error *err)
{
    struct tail tail;
    line_forget(part);
    part->before = calloc(range->n_kvs, sizeof *part->before);
    if (!part->before)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < range->n_kvs; i++) {
        const Pb__KeyValue *kv = range->kvs[i];
        if (is_before(&tail, name, part->revision, kv) && tail.mode == STILE_SLOTS)
            part->before[part->n_before++] =
                (struct before){.hash = hash_of(&kv->key), .revision = kv->create_revision};
    }
    return STILE_OK;
}

void line_forget(struct etcd_claim *part)
{
    free(part->before);
    part->before = NULL;
    part->n_before = 0;
}

bool line_has_room(struct etcd_claim *part, const Pb__KeyValue *gone)
{
    uint64_t hash = hash_of(&gone->key);
    int64_t last = 0;
    size_t slots = 0;
    bool one_of_them = false;
    for (size_t i = 0; i < part->n_before; i++) {
        struct before *before = &part->before[i];
        if (before->hash == hash) {
            before->hash = 0;
            one_of_them = true;
        }
        if (before->hash && before->revision != last) {
            last = before->revision;
            slots++;
        }
    }
    return one_of_them && slots < claim_of(part)->slots;
}
