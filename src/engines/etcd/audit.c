/* A claim that was not answered is withdrawn, but the server may execute it after the withdrawal:
 * a member that has to wait for the others keeps a request for some seconds. Its key would stand in
 * line for as long as others of ours keep the lease alive, and nobody would take it away. So once
 * nothing can be on its way any more, the keys of the lease are looked through, and those that are
 * nobody's go.
 *
 * The same after every interruption of the connection: a snapshot that was restored meanwhile
 * brings back keys that were deleted since it was made. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"
#include "mutant.h"

/* The server gives up a request after 5 s and two election timeouts, of 1 s unless set otherwise.
 */
#define LATER_NS (10 * NS_PER_SEC)
#define PAGE     1000

static uint64_t hash_of(const uint8_t *bytes, size_t n)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static int by_value(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;
    return (one > two) - (one < two);
}

struct known {
    uint64_t *hashes;
    size_t n;
};

static void know(struct known *known, const struct key *key)
{
    known->hashes[known->n++] = hash_of(key->bytes, key->len);
}

static void know_claim(struct known *known, struct etcd_claim *part)
{
    struct key own, plain, ghost;
    key_of_claim(&own, etcd_of_part(part), claim_of(part), part->lease->id, part->number);
    know(known, &own);
    if (etcd_of_part(part)->plain_key) {
        key_of_plain(&plain, etcd_of_part(part), claim_of(part)->name, claim_of(part)->name_len);
        know(known, &plain);
    }
    for (int i = 0; i < GHOSTS; i++) {
        key_of_ghost(&ghost, &own, part->ghosts[i].number);
        know(known, &ghost);
    }
}

static bool know_all(struct known *known, struct lease *lease)
{
    size_t n = 1;
    for (struct etcd_claim *part = lease->claims; part; part = part->next)
        n += 2 + GHOSTS;
    *known = (struct known){.hashes = malloc(n * sizeof *known->hashes)};
    if (!known->hashes)
        return false;
    for (struct etcd_claim *part = lease->claims; part; part = part->next)
        know_claim(known, part);
    qsort(known->hashes, known->n, sizeof *known->hashes, by_value);
    return true;
}

static void on_removed(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    if (err || !((const Pb__TxnResponse *)message)->succeeded)
        lease_audit_later(data);
}

/* Only what was there when we looked: executed late, this meets a younger claim of the same name.
 */
static void remove_key(struct lease *lease, const ProtobufCBinaryData *found, int64_t seen)
{
    struct key key;
    struct txn txn;
    if (found->len > KEY_MAX)
        return;
    key.len = found->len;
    memcpy(key.bytes, found->data, found->len);
    txn_init(&txn);
    txn_if_leased(&txn, &key, lease->id);
    txn_if_not_after(&txn, &key, seen);
    txn_delete(&txn, THEN, &key);
    if (txn_send(&txn, lease->etcd, on_removed, lease, NULL))
        lease_audit_later(lease);
}

static bool is_there(const struct lease *lease, int64_t id)
{
    return lease->state == LEASE_THERE && lease->id == id;
}

static void remove_unknown(struct lease *lease, const struct known *known,
                           const ProtobufCBinaryData *key, const Pb__Header *header)
{
    uint64_t hash = hash_of(key->data, key->len);
    if (!key_is_for_people(lease->etcd, key) &&
        !bsearch(&hash, known->hashes, known->n, sizeof hash, by_value))
        remove_key(lease, key, header ? header->revision : 0);
}

/* ---- more of them than an answer can name: all below the prefix are looked through ---- */

static void ask_page(struct lease *lease);

static void end_pages(struct lease *lease)
{
    free(lease->audit_at);
    lease->audit_at = NULL;
}

static void on_page(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct lease *lease = data;
    const Pb__RangeResponse *range = (const Pb__RangeResponse *)message;
    struct known known;
    if (err || !know_all(&known, lease)) {
        end_pages(lease);
        if (!err || fault_passes(err))
            lease_audit_later(lease);
        return;
    }
    for (size_t i = 0; i < range->n_kvs; i++) {
        if (lease->state == LEASE_THERE && range->kvs[i]->lease == lease->id)
            remove_unknown(lease, &known, &range->kvs[i]->key, range->header);
    }
    free(known.hashes);
    if (range->more && range->n_kvs > 0 &&
        key_after(lease->audit_at, &range->kvs[range->n_kvs - 1]->key))
        ask_page(lease);
    else
        end_pages(lease);
}

static void ask_page(struct lease *lease)
{
    Pb__RangeRequest request = PB__RANGE_REQUEST__INIT;
    struct key start, end;
    key_of_list(&start, lease->etcd, "", 0);
    key_end(&end, &start);
    request.key = data_of(lease->audit_at);
    request.range_end = data_of(&end);
    request.limit = PAGE;
    request.keys_only = true;
    if (conn_ask(lease->etcd->conn, RPC_RANGE, &request.base, on_page, lease, NULL)) {
        end_pages(lease);
        lease_audit_later(lease);
    }
}

static void look_through_pages(struct lease *lease)
{
    if (lease->audit_at)
        return;
    lease->audit_at = malloc(sizeof *lease->audit_at);
    if (!lease->audit_at) {
        lease_audit_later(lease);
        return;
    }
    key_of_list(lease->audit_at, lease->etcd, "", 0);
    ask_page(lease);
}

/* ---- the keys of the lease ---- */

static void on_keys(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct lease *lease = data;
    const Pb__LeaseTimeToLiveResponse *answer = (const Pb__LeaseTimeToLiveResponse *)message;
    struct known known;
    if (err && err->native == FAULT_TOO_LONG) {
        look_through_pages(lease);
        return;
    }
    if (err && !fault_passes(err))
        return; /* our roles do not allow it */
    if (err || (is_there(lease, answer->id) && !know_all(&known, lease))) {
        lease_audit_later(lease);
        return;
    }
    if (!is_there(lease, answer->id))
        return; /* they have gone with it */
    for (size_t i = 0; i < answer->n_keys; i++)
        remove_unknown(lease, &known, &answer->keys[i], answer->header);
    free(known.hashes);
}

void lease_audit(struct timer *timer)
{
    struct lease *lease = (struct lease *)((char *)timer - offsetof(struct lease, audit));
    Pb__LeaseTimeToLiveRequest request = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
    if (lease->state != LEASE_THERE)
        return;
    request.id = lease->id;
    request.keys = true;
    if (conn_ask(lease->etcd->conn, RPC_LEASE_TTL, &request.base, on_keys, lease, NULL))
        lease_audit_later(lease);
}

void lease_audit_later(struct lease *lease)
{
    struct loop *loop = lease->etcd->engine.loop;
#ifdef MUTANT_ETCD_LATE_CLAIM_STAYS
    return;
#endif
    loop_arm(loop, &lease->audit, loop_now(loop) + LATER_NS);
}

/* The server may have been restored from a snapshot in which there are keys that we have deleted
 * since. */
void leases_audit_later(struct etcd *etcd)
{
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        if (lease->state == LEASE_THERE && !lease->audit.place)
            lease_audit_later(lease);
    }
}
