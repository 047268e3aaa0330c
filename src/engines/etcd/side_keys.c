/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Keys beside a claim's own.
 *
 * Ghosts keep a name taken when its holder has gone. Each is a key put in the same step as the
 * claim's own, so that it has the same place in the queue, for `etcdctl lock` as well. While its
 * claim waits it is bound to the claim's lease and goes with it. Once the claim is first it is
 * bound to a lease of its own: for hold_at_least one that nobody renews; for lock-delay one that
 * lasts so much longer than the claim's and is renewed together with it.
 *
 * The plain key, with dialect=etcd3: the Lock of npm's etcd3 is one key, the name itself, which a
 * client creates if it is missing, and which goes with its creator's lease. It has no queue. So our
 * claims queue among themselves, and the first takes that key as well before it holds. The plain
 * key is bound to the lease of the claim. It is put only while the claim's key exists, and every
 * deletion of a claim's key deletes in the same step the plain key of the same lease: so a request
 * of a claim that has ended does nothing, however late it is executed. A plain key that is older
 * than the claim's key was left behind when somebody deleted just the claim's key by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"

#define SLACK_NS (200 * NS_PER_MS) /* between asking for a ghost's lease and the grant */

/* ---- ghosts: their keys ---- */

void etcd_ghosts_plan(struct etcd_claim *claim)
{
    const struct claim *base = base_of(claim);
    struct etcd *etcd = etcd_of_claim(claim);
    const uint64_t wanted[] = {[GHOST_HOLD] = base->hold_ns, [GHOST_DELAY] = base->delay_ns};
    for (int i = 0; i < GHOSTS; i++) {
        if (wanted[i] && !claim->ghosts[i].number)
            claim->ghosts[i].number = ++etcd->last_ghost;
    }
}

bool etcd_ghosts_any(const struct etcd_claim *claim)
{
    return claim->ghosts[GHOST_HOLD].number || claim->ghosts[GHOST_DELAY].number;
}

void etcd_ghosts_put(struct etcd_claim *claim, struct txn *txn, enum branch branch,
                     const struct key *own, const char *value, struct key keys[GHOSTS])
{
    for (int i = 0; i < GHOSTS; i++) {
        const struct ghost *ghost = &claim->ghosts[i];
        if (!ghost->number)
            continue;
        etcd_key_of_ghost(&keys[i], own, ghost->number);
        etcd_txn_put(txn, branch, &keys[i], value, ghost->lease ? ghost->lease : claim->lease_id);
    }
}

void etcd_ghosts_delete(const struct etcd_claim *claim, struct txn *txn, const struct key *own,
                        struct key keys[GHOSTS])
{
    for (int i = 0; i < GHOSTS; i++) {
        if (!claim->ghosts[i].number)
            continue;
        etcd_key_of_ghost(&keys[i], own, claim->ghosts[i].number);
        etcd_txn_delete(txn, THEN, &keys[i]);
    }
}

/* ---- ghosts: their leases ---- */

static void on_revoked(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    (void)data, (void)answer, (void)err; /* else it runs out */
}

static void send_revoke(struct etcd *etcd, int64_t lease)
{
    Etcd__LeaseRevokeRequest request = ETCD__LEASE_REVOKE_REQUEST__INIT;
    request.id = lease;
    etcd_conn_request(etcd->conn, RPC_LEASE_REVOKE, &request.base, on_revoked, etcd, NULL);
}

static void revoke(struct etcd_claim *claim, struct ghost *ghost)
{
    if (ghost->lease)
        send_revoke(etcd_of_claim(claim), ghost->lease);
    ghost->lease = 0;
}

static uint64_t lasts_ns(struct etcd_claim *claim, unsigned i)
{
    const struct claim *base = base_of(claim);
    return i == GHOST_HOLD ? base->hold_ns : claim->lease->ttl_ns + base->delay_ns;
}

/* From now, if the claim was granted now. */
static bool lasts(struct etcd_claim *claim, unsigned i)
{
    const struct ghost *ghost = &claim->ghosts[i];
    uint64_t now = loop_now(base_of(claim)->engine->loop);
    return ghost->lease && ghost->sent_ns + ghost->ttl_ns >= now + lasts_ns(claim, i);
}

unsigned etcd_ghosts_unarmed(struct etcd_claim *claim)
{
    unsigned i = 0;
    while (i < GHOSTS && (!claim->ghosts[i].number || lasts(claim, i)))
        i++;
    return i;
}

enum stile_status etcd_ghost_request_lease(struct etcd_claim *claim, unsigned i, conn_fn *fn,
                                           struct stile_error *err)
{
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    struct ghost *ghost = &claim->ghosts[i];
    /* One that would end too early. If the key lives by it, it runs out when the key has left it: a
     * key that went with it would come back behind those that wait. */
    if (!ghost->bound)
        revoke(claim, ghost);
    ghost->lease = 0;
    request.ttl = (int64_t)((lasts_ns(claim, i) + SLACK_NS + NS_PER_SEC - 1) / NS_PER_SEC);
    ghost->sent_ns = loop_now(base_of(claim)->engine->loop);
    claim->arming = i;
    return etcd_conn_request(etcd_of_claim(claim)->conn, RPC_LEASE_GRANT, &request.base, fn, claim,
                             err);
}

void etcd_ghost_leased(struct etcd_claim *claim, const Etcd__LeaseGrantResponse *answer)
{
    struct ghost *ghost = &claim->ghosts[claim->arming];
    ghost->lease = answer->id;
    ghost->ttl_ns = (uint64_t)answer->ttl * NS_PER_SEC;
    ghost->bound = false;
}

/* Not those that have gone: they would come back behind those that wait. */
enum stile_status etcd_ghosts_bind(struct etcd_claim *claim, conn_fn *fn, struct stile_error *err)
{
    struct key own, keys[GHOSTS];
    char value[VALUE_MAX];
    struct txn txn;
    key_of_own(&own, claim);
    etcd_value_of_claim(value, etcd_of_claim(claim), base_of(claim));
    etcd_txn_init(&txn);
    etcd_txn_if_created(&txn, &own, claim->revision);
    etcd_ghosts_put(claim, &txn, THEN, &own, value, keys);
    for (int i = 0; i < GHOSTS; i++) {
        if (claim->ghosts[i].number)
            etcd_txn_if_created(&txn, &keys[i], claim->revision);
        claim->ghosts[i].bound = true;
    }
    return etcd_txn_send(&txn, etcd_of_claim(claim), fn, claim, err);
}

static void on_described(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct etcd *etcd = data;
    (void)answer;
    etcd->no_info_keys = etcd->no_info_keys || (err && err->native == ETCD_ERROR_DENIED);
}

void etcd_ghosts_describe(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct key own, owners[GHOSTS], since[GHOSTS];
    struct txn txn;
    char value[24];
    if (!etcd_ghosts_any(claim) || etcd->no_info_keys)
        return;
    snprintf(value, sizeof value, "%lld", (long long)etcd_wall_ms());
    key_of_own(&own, claim);
    etcd_txn_init(&txn);
    etcd_txn_if_created(&txn, &own, claim->revision);
    for (int i = 0; i < GHOSTS; i++) {
        int64_t lease = claim->ghosts[i].lease;
        if (!lease)
            continue;
        etcd_key_of_owner(&owners[i], etcd, lease);
        etcd_txn_put(&txn, THEN, &owners[i], etcd->info, lease);
        etcd_key_of_since(&since[i], etcd, lease, claim->revision);
        etcd_txn_put(&txn, THEN, &since[i], value, lease);
    }
    etcd_txn_send(&txn, etcd, on_described, etcd, NULL);
}

void etcd_ghosts_keep_alive(struct lease *lease)
{
    struct etcd *etcd = lease->etcd;
    Etcd__LeaseKeepAliveRequest request = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    for (struct etcd_claim *claim = lease->claims; claim; claim = claim->next) {
        request.id = claim->ghosts[GHOST_DELAY].lease;
        if (request.id && claim->state == HELD && etcd->keep_alive.open)
            etcd_conn_stream_send(&etcd->keep_alive, &request.base, NULL);
    }
}

/* ---- ghosts: the end ---- */

/* Held for long enough, by our clock, which may run 1 % faster than the server's; or it did not end
 * as its holder wanted, which is what lock-delay is for. */
static bool is_over(struct etcd_claim *claim, int i)
{
    const struct claim *base = base_of(claim);
    uint64_t held_ns = loop_now(base->engine->loop) - claim->granted_ns;
    if (!claim->was_held || base->unused)
        return true;
    if (i == GHOST_DELAY)
        return !base->lost;
    return held_ns >= base->hold_ns + base->hold_ns / 100;
}

void etcd_ghosts_remove(struct etcd_claim *claim, struct txn *txn, const struct key *own,
                        struct key keys[GHOSTS])
{
    for (int i = 0; i < GHOSTS; i++) {
        struct ghost *ghost = &claim->ghosts[i];
        if (!ghost->number || !is_over(claim, i))
            continue;
        etcd_key_of_ghost(&keys[i], own, ghost->number);
        etcd_txn_delete(txn, THEN, &keys[i]);
        etcd_txn_delete(txn, ELSE, &keys[i]);
        ghost->over = true;
    }
}

void etcd_ghosts_revoke(struct etcd_claim *claim)
{
    for (int i = 0; i < GHOSTS; i++) {
        if (claim->ghosts[i].over || !claim->was_held)
            revoke(claim, &claim->ghosts[i]);
    }
}

/* A lease lasts whole seconds, and at least two. While this process lives, what is left of
 * hold_at_least ends when it should. */
struct lingering {
    struct lingering *next;
    struct etcd *etcd;
    int64_t lease;
    struct timer timer;
};

static void lingering_free(struct lingering *ghost)
{
    struct lingering **at = &ghost->etcd->lingering;
    struct loop *loop = ghost->etcd->engine.loop;
    while (*at != ghost)
        at = &(*at)->next;
    *at = ghost->next;
    loop_disarm(loop, &ghost->timer);
    loop_unreserve(loop, 1);
    free(ghost);
}

static void on_held_long_enough(struct timer *timer)
{
    struct lingering *ghost = container_of(timer, struct lingering, timer);
    send_revoke(ghost->etcd, ghost->lease);
    lingering_free(ghost);
}

void etcd_ghosts_linger(struct etcd_claim *claim)
{
    const struct ghost *hold = &claim->ghosts[GHOST_HOLD];
    struct etcd *etcd = etcd_of_claim(claim);
    uint64_t hold_ns = base_of(claim)->hold_ns;
    if (!hold->lease || hold->over || !claim->was_held || loop_reserve(etcd->engine.loop, 1))
        return;
    struct lingering *ghost = malloc(sizeof *ghost);
    if (!ghost) {
        loop_unreserve(etcd->engine.loop, 1);
        return;
    }
    *ghost = (struct lingering){.next = etcd->lingering,
                                .etcd = etcd,
                                .lease = hold->lease,
                                .timer.fn = on_held_long_enough};
    etcd->lingering = ghost;
    loop_arm(etcd->engine.loop, &ghost->timer, claim->granted_ns + hold_ns + hold_ns / 100);
}

void etcd_ghosts_close(struct etcd *etcd)
{
    while (etcd->lingering)
        lingering_free(etcd->lingering);
}

/* ---- the plain key ---- */

void etcd_plain_set_caps(struct stile_caps *caps)
{
    caps->modes = 1u << STILE_EXCLUSIVE;
    caps->condition =
        "the members keep what is on their disks; a TTL is rounded up to whole seconds, and to "
        "the shortest the servers allow; etcd3's Lock does not respect hold_at_least and "
        "lock_delay";
}

static void key_of_plain(struct key *plain, struct etcd_claim *claim)
{
    const struct claim *base = base_of(claim);
    etcd_key_of_plain(plain, etcd_of_claim(claim), base->name, base->name_len);
}

void etcd_plain_delete(struct etcd_claim *claim, struct txn *txn, const struct key *own,
                       struct key *plain)
{
    key_of_plain(plain, claim);
    etcd_txn_delete_leased(txn, THEN, plain, claim->lease_id);
    etcd_nested_if_created(etcd_txn_delete_leased(txn, ELSE, plain, claim->lease_id), own, 0);
}

static void write_request(struct txn *txn, struct etcd_claim *claim, const struct key *own,
                          const struct key *plain, const char *value)
{
    etcd_txn_init(txn);
    etcd_txn_if_created(txn, own, claim->revision);
    etcd_txn_if_created(txn, plain, 0);
    etcd_txn_put(txn, THEN, plain, value, claim->lease_id);
    etcd_txn_range(txn, ELSE, own, NULL)->keys_only = true;
    etcd_txn_range(txn, ELSE, plain, NULL)->keys_only = true;
    struct nested_txn *left_behind = etcd_txn_delete_leased(txn, ELSE, plain, claim->lease_id);
    etcd_nested_if_created(left_behind, own, claim->revision);
    etcd_nested_if_not_after(left_behind, plain, claim->revision);
}

enum stile_status etcd_plain_request(struct etcd_claim *claim, conn_fn *fn, struct stile_error *err)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct key own, plain;
    struct txn txn;
    char value[VALUE_MAX];
    key_of_own(&own, claim);
    key_of_plain(&plain, claim);
    etcd_value_of_claim(value, etcd, base_of(claim));
    write_request(&txn, claim, &own, &plain, value);
    return etcd_txn_send(&txn, etcd, fn, claim, err);
}

static const Etcd__KeyValue *only_key(const Etcd__TxnResponse *answer, size_t n)
{
    const Etcd__RangeResponse *range = etcd_txn_range_reply(answer, n);
    return range && range->n_kvs == 1 ? range->kvs[0] : NULL;
}

enum plain_answer etcd_plain_read(struct etcd_claim *claim, const Etcd__TxnResponse *answer)
{
    if (answer->succeeded)
        return PLAIN_TAKEN;
    const Etcd__KeyValue *own = only_key(answer, 0), *plain = only_key(answer, 1);
    bool ours = plain && plain->lease == claim->lease_id;
    if (!own || own->create_revision != claim->revision || !answer->header)
        return PLAIN_OWN_KEY_GONE;
    if (ours && plain->create_revision > claim->revision)
        return PLAIN_TAKEN; /* by an earlier request that was not answered */
    if (ours)
        return PLAIN_STALE; /* it was left behind, and has been removed in this step */
    return PLAIN_HELD;
}

enum stile_status etcd_plain_watch(struct etcd_claim *claim, int64_t revision, key_watch_fn *fn)
{
    struct key plain;
    struct stile_error err;
    if (claim->watch.id)
        return STILE_OK;
    key_of_plain(&plain, claim);
    claim->watch.fn = fn;
    return etcd_watch_start(etcd_of_claim(claim), &claim->watch, &plain, NULL, revision + 1, &err);
}
