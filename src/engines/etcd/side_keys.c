/* Ghosts: what keeps a name taken when its holder has gone. Each is a key beside the own one, put
 * in the same step, so that it has the same place in the line, for `etcdctl lock` as well. While
 * its claim waits it is bound to the claim's lease and goes with it. Once the claim is first it is
 * bound to a lease of its own: for hold_at_least one that nobody renews; for lock-delay one that
 * lasts so much longer than the claim's and is renewed together with it. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"

#define SLACK_NS (200 * NS_PER_MS) /* between asking for the lease and the grant */

static void arm_next(struct etcd_claim *part);

void ghosts_plan(struct etcd_claim *part)
{
    const struct claim *claim = claim_of(part);
    struct etcd *etcd = etcd_of_part(part);
    const uint64_t wanted[] = {[GHOST_HOLD] = claim->hold_ns, [GHOST_DELAY] = claim->delay_ns};
    for (int i = 0; i < GHOSTS; i++) {
        if (wanted[i] && !part->ghosts[i].number)
            part->ghosts[i].number = ++etcd->last_number;
    }
}

bool ghosts_any(const struct etcd_claim *part)
{
    return part->ghosts[GHOST_HOLD].number || part->ghosts[GHOST_DELAY].number;
}

void ghosts_put(struct etcd_claim *part, struct txn *txn, enum branch branch, const struct key *own,
                const char *value, struct key keys[GHOSTS])
{
    for (int i = 0; i < GHOSTS; i++) {
        const struct ghost *ghost = &part->ghosts[i];
        if (!ghost->number)
            continue;
        key_of_ghost(&keys[i], own, ghost->number);
        txn_put(txn, branch, &keys[i], value, ghost->lease ? ghost->lease : part->lease_id);
    }
}

/* ---- leases of their own ---- */

static uint64_t lasts_ns(struct etcd_claim *part, int i)
{
    const struct claim *claim = claim_of(part);
    return i == GHOST_HOLD ? claim->hold_ns : part->lease->ttl_ns + claim->delay_ns;
}

static void arm_again(struct timer *timer)
{
    arm_next(part_of_timer(timer));
}

static bool answered(struct etcd_claim *part, const struct stile_error *err)
{
    part->in_flight = false;
    if (part->leaving) {
        release_answered(part);
        return false;
    }
    if (!err)
        return true;
    if (fault_passes(err) && claim_of(part)->wait)
        claim_again_later(part, arm_again);
    else
        claim_fail(part, err);
    return false;
}

/* From now, if it was granted now. */
static bool lasts(struct etcd_claim *part, int i)
{
    const struct ghost *ghost = &part->ghosts[i];
    uint64_t now = loop_now(claim_of(part)->engine->loop);
    return ghost->lease && ghost->sent_ns + ghost->ttl_ns >= now + lasts_ns(part, i);
}

static void on_bound(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    if (!answered(part, err))
        return;
    if (!answer->succeeded) {
        ghosts_revoke(part);
        claim_start_over(part);
        return;
    }
    for (int i = 0; i < GHOSTS; i++) {
        if (part->ghosts[i].number && !lasts(part, i)) {
            arm_next(part); /* it all took too long */
            return;
        }
    }
    claim_go_on(part);
}

static void bind(struct etcd_claim *part)
{
    struct stile_error err;
    struct key own, keys[GHOSTS];
    char value[VALUE_MAX];
    struct txn txn;
    key_of_part(&own, part);
    value_of_claim(value, etcd_of_part(part), claim_of(part));
    txn_init(&txn);
    txn_if_created(&txn, &own, part->revision);
    ghosts_put(part, &txn, THEN, &own, value, keys);
    part->in_flight = true;
    if (txn_send(&txn, etcd_of_part(part), on_bound, part, &err))
        answered(part, &err);
}

static void on_leased(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    struct ghost *ghost = &part->ghosts[part->arming];
    const Pb__LeaseGrantResponse *answer = (const Pb__LeaseGrantResponse *)message;
    if (!err) {
        ghost->lease = answer->id;
        ghost->ttl_ns = (uint64_t)answer->ttl * NS_PER_SEC;
    }
    if (answered(part, err))
        arm_next(part);
}

static void revoke(struct etcd_claim *part, struct ghost *ghost);

static void ask_for(struct etcd_claim *part, unsigned i)
{
    Pb__LeaseGrantRequest request = PB__LEASE_GRANT_REQUEST__INIT;
    struct ghost *ghost = &part->ghosts[i];
    struct stile_error err;
    revoke(part, ghost); /* one that would end too early, not in use yet */
    request.ttl = (int64_t)((lasts_ns(part, (int)i) + SLACK_NS + NS_PER_SEC - 1) / NS_PER_SEC);
    ghost->sent_ns = loop_now(claim_of(part)->engine->loop);
    part->arming = i;
    part->in_flight = true;
    if (conn_ask(etcd_of_part(part)->conn, RPC_LEASE_GRANT, &request.base, on_leased, part, &err))
        answered(part, &err);
}

static void arm_next(struct etcd_claim *part)
{
    part->standing = ARMING;
    for (int i = 0; i < GHOSTS; i++) {
        if (part->ghosts[i].number && !lasts(part, i)) {
            ask_for(part, (unsigned)i);
            return;
        }
    }
    bind(part);
}

void ghosts_arm(struct etcd_claim *part)
{
    arm_next(part);
}

void ghosts_keep_alive(struct lease *lease)
{
    struct etcd *etcd = lease->etcd;
    Pb__LeaseKeepAliveRequest request = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    for (struct etcd_claim *part = lease->claims; part; part = part->next) {
        request.id = part->ghosts[GHOST_DELAY].lease;
        if (request.id && part->standing == HOLDING && etcd->keep_alive.open)
            conn_stream_send(&etcd->keep_alive, &request.base, NULL);
    }
}

/* ---- the end ---- */

/* Held for long enough, by our clock, which may run 1 % faster than the server's; or it did not end
 * as its holder wanted, which is what lock-delay is for. */
static bool is_over(struct etcd_claim *part, int i)
{
    const struct claim *claim = claim_of(part);
    uint64_t held_ns = loop_now(claim->engine->loop) - part->granted_ns;
    if (!part->was_held || claim->unused)
        return true;
    if (i == GHOST_DELAY)
        return !claim->lost;
    return held_ns >= claim->hold_ns + claim->hold_ns / 100;
}

void ghosts_remove(struct etcd_claim *part, struct txn *txn, const struct key *own,
                   struct key keys[GHOSTS])
{
    for (int i = 0; i < GHOSTS; i++) {
        struct ghost *ghost = &part->ghosts[i];
        if (!ghost->number || !is_over(part, i))
            continue;
        key_of_ghost(&keys[i], own, ghost->number);
        txn_delete(txn, THEN, &keys[i]);
        ghost->over = true;
    }
}

static void on_revoked(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    (void)data, (void)answer, (void)err; /* else it ends by itself */
}

static void say_revoke(struct etcd *etcd, int64_t lease)
{
    Pb__LeaseRevokeRequest request = PB__LEASE_REVOKE_REQUEST__INIT;
    request.id = lease;
    conn_ask(etcd->conn, RPC_LEASE_REVOKE, &request.base, on_revoked, etcd, NULL);
}

static void revoke(struct etcd_claim *part, struct ghost *ghost)
{
    if (ghost->lease)
        say_revoke(etcd_of_part(part), ghost->lease);
    ghost->lease = 0;
}

void ghosts_revoke(struct etcd_claim *part)
{
    for (int i = 0; i < GHOSTS; i++) {
        if (part->ghosts[i].over || !part->was_held)
            revoke(part, &part->ghosts[i]);
    }
}

/* ---- after the claim ---- */

/* A lease lasts whole seconds, and two at least. While we live, what is left of hold_at_least ends
 * when it should. */
struct haunt {
    struct haunt *next;
    struct etcd *etcd;
    int64_t lease;
    struct timer timer;
};

static void haunt_free(struct haunt *haunt)
{
    struct haunt **at = &haunt->etcd->haunts;
    struct loop *loop = haunt->etcd->engine.loop;
    while (*at != haunt)
        at = &(*at)->next;
    *at = haunt->next;
    loop_disarm(loop, &haunt->timer);
    loop_unreserve(loop, 1);
    free(haunt);
}

static void on_time(struct timer *timer)
{
    struct haunt *haunt = (struct haunt *)((char *)timer - offsetof(struct haunt, timer));
    say_revoke(haunt->etcd, haunt->lease);
    haunt_free(haunt);
}

void ghosts_leave(struct etcd_claim *part)
{
    const struct ghost *ghost = &part->ghosts[GHOST_HOLD];
    struct etcd *etcd = etcd_of_part(part);
    uint64_t hold_ns = claim_of(part)->hold_ns;
    if (!ghost->lease || ghost->over || !part->was_held || loop_reserve(etcd->engine.loop, 1))
        return;
    struct haunt *haunt = malloc(sizeof *haunt);
    if (!haunt) {
        loop_unreserve(etcd->engine.loop, 1);
        return;
    }
    *haunt = (struct haunt){
        .next = etcd->haunts, .etcd = etcd, .lease = ghost->lease, .timer.fn = on_time};
    etcd->haunts = haunt;
    loop_arm(etcd->engine.loop, &haunt->timer, part->granted_ns + hold_ns + hold_ns / 100);
}

void ghosts_close(struct etcd *etcd)
{
    while (etcd->haunts)
        haunt_free(etcd->haunts);
}
