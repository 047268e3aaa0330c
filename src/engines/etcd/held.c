/* Those who hold, or wait, for longer than a moment: their keys are watched, and people can see
 * since when. Most locks are held for less, and would pay for hearing what their release tells
 * them. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engines/etcd/etcd.h"

#define FRESH_NS (100 * NS_PER_MS)

/* ---- the own key ---- */

static void lose(struct etcd_claim *part)
{
    struct stile_error err;
    if (etcd_of_part(part)->plain_key)
        part->doubtful = true; /* that key may still be there: it leaves as always */
    else
        part->gone = true;
    claim_unwatch(part);
    error_set(&err, STILE_LOST, 0,
              "its key was deleted: by `stile break`, or the lease was revoked");
    claim_of(part)->engine->events->lost(claim_of(part), &err);
}

static void check_own(struct etcd_claim *part);

static void check_own_again(struct timer *timer)
{
    check_own(part_of_timer(timer));
}

static void on_own_checked(void *data, const ProtobufCMessage *message,
                           const struct stile_error *err)
{
    struct etcd_claim *part = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    if (claim_has_left(part, err))
        return;
    if (err)
        claim_again_later(part, check_own_again);
    else if (!answer->succeeded)
        lose(part);
    else
        part->tries = 0;
}

/* Its watch may have missed something. */
static void check_own(struct etcd_claim *part)
{
    struct key own;
    struct txn txn;
    key_of_part(&own, part);
    txn_init(&txn);
    txn_if_created(&txn, &own, part->revision);
    txn_range(&txn, THEN, &own, NULL);
    part->in_flight = true;
    if (txn_send(&txn, etcd_of_part(part), on_own_checked, part, NULL)) {
        part->in_flight = false;
        claim_again_later(part, check_own_again);
    }
}

static void on_own_event(struct watching *watching, const Pb__KeyValue *kv, bool deleted)
{
    struct etcd_claim *part = part_of_watching(watching);
    if (part->standing != HOLDING)
        return;
    if (!kv && !part->in_flight)
        check_own(part);
    else if (kv && deleted && kv->mod_revision > part->revision)
        lose(part);
}

/* Without memory for it the loss is heard of when the lease ends, or at the release. */
static void watch_own(struct etcd_claim *part)
{
    struct etcd *etcd = etcd_of_part(part);
    bool interrupted = part->interruptions != etcd->interruptions;
    struct key own;
    key_of_part(&own, part);
    part->watching.fn = on_own_event;
    watching_start(etcd, &part->watching, &own, NULL, interrupted ? 0 : part->revision + 1, NULL);
}

/* ---- since when ---- */

/* For people only. A role that covers just the name, as `etcdctl lock` needs it, does not allow it:
 * then `show` does not tell since when, and nothing else suffers. */
static void on_said(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct etcd *etcd = data;
    (void)answer;
    etcd->no_side_keys = etcd->no_side_keys || (err && err->native == FAULT_DENIED);
}

/* Bound to the lease, and removed with the own key; so it is put only while that is there. */
static void say_since(struct etcd_claim *part)
{
    struct etcd *etcd = etcd_of_part(part);
    struct timespec now;
    struct key own, key;
    struct txn txn;
    char value[24];
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t age_ms = (loop_now(etcd->engine.loop) - part->fresh_ns) / NS_PER_MS;
    snprintf(value, sizeof value, "%lld",
             (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000 - (long long)age_ms);
    key_of_part(&own, part);
    key_of_since(&key, etcd, part->lease_id, part->revision);
    txn_init(&txn);
    txn_if_created(&txn, &own, part->revision);
    txn_put(&txn, THEN, &key, value, part->lease_id);
    part->since_said = txn_send(&txn, etcd, on_said, etcd, NULL) == STILE_OK;
}

/* ---- the moment ---- */

void claim_unfresh(struct etcd_claim *part)
{
    struct etcd *etcd = etcd_of_part(part);
    if (!part->fresh_link)
        return;
    *part->fresh_link = part->fresh_next;
    if (part->fresh_next)
        part->fresh_next->fresh_link = part->fresh_link;
    else
        etcd->fresh_tail = part->fresh_link;
    part->fresh_link = NULL;
}

void claim_be_fresh(struct etcd_claim *part)
{
    struct etcd *etcd = etcd_of_part(part);
    claim_unfresh(part);
    part->fresh_ns = loop_now(etcd->engine.loop);
    part->fresh_next = NULL;
    part->fresh_link = etcd->fresh_tail;
    *etcd->fresh_tail = part;
    etcd->fresh_tail = &part->fresh_next;
    if (!etcd->sweep.place)
        loop_arm(etcd->engine.loop, &etcd->sweep, part->fresh_ns + FRESH_NS);
}

void claims_watch_fresh(struct timer *timer)
{
    struct etcd *etcd = (struct etcd *)((char *)timer - offsetof(struct etcd, sweep));
    struct loop *loop = etcd->engine.loop;
    uint64_t now = loop_now(loop);
    while (etcd->fresh && etcd->fresh->fresh_ns + FRESH_NS <= now) {
        struct etcd_claim *part = etcd->fresh;
        claim_unfresh(part);
        if (part->standing == HOLDING)
            watch_own(part);
        if (part->revision && !etcd->no_side_keys)
            say_since(part);
    }
    if (etcd->fresh)
        loop_arm(loop, timer, etcd->fresh->fresh_ns + FRESH_NS);
}
