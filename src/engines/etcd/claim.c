/* Leaving: giving back, withdrawing, clearing away. The own key lives by a lease that others of
 * ours keep alive, so it would not end by itself: what is not answered is said again until it is.
 * It is said only when nothing else about the claim is under way: two requests on one connection
 * are executed in any order, and a claim that came after its withdrawal would stay.
 *
 * What was said may be executed long after it was said again elsewhere, when a later claim of ours
 * has a key of the same name. So only the key of the revision that we mean is ever deleted; if that
 * is not known, because the claim was not answered, it is looked up first.
 *
 *     HOLDING, IN_LINE, … ── release() ──► LEAVING ── deleted, or gone ──► NOWHERE   released(OK)
 *                                            │  ▲
 *                                    refused │  │ release(), which core repeats
 *                                            ▼  │
 *                                          REFUSED   released(why); its lease is not for new claims
 *
 * What is refused again and again (our role was changed) must not keep the name for ever: the lease
 * is given up as soon as nobody holds by it. */
#include "engines/etcd/etcd.h"
#include "mutant.h"

static void say(struct etcd_claim *part);

static void left(struct etcd_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    if (part->astray)
        lease_audit_later(part->lease);
    ghosts_leave(part);
    claim_forget(part);
    claim->engine->events->released(claim, err);
}

/* Core asks again. It may also forget the claim: nothing here points to it meanwhile. */
static void refused(struct etcd_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct lease *lease = part->lease;
    claim_forget(part);
    part->standing = REFUSED;
    claim->engine->events->released(claim, err);
    lease_retire(lease);
}

/* With its lease the key has gone. */
static bool is_gone(const struct etcd_claim *part)
{
    return part->gone || part->lease->state != LEASE_THERE || part->lease->id != part->lease_id;
}

static void say_again(struct timer *timer)
{
    struct etcd_claim *part = part_of_timer(timer);
    if (is_gone(part))
        left(part, NULL);
    else
        say(part);
}

static void on_left(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    struct etcd *etcd = etcd_of_part(part);
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    struct stile_error lost;
    part->in_flight = false;
    if (err && fault_passes(err)) {
        part->doubtful = part->doubtful || err->status == STILE_UNCERTAIN;
        claim_again_later(part, say_again);
    } else if (err && err->native == FAULT_DENIED && part->since_said) {
        part->since_said = false; /* it goes with the lease */
        say(part);
    } else if (err) {
        refused(part, err);
    } else if (part->was_held && !answer->succeeded && !part->doubtful) {
        error_set(&lost, STILE_LOST, 0, "it was not ours any more");
        left(part, &lost);
    } else {
        ghosts_revoke(part);
        left(part, NULL);
    }
    people_leave_answered(etcd);
}

static enum stile_status send_leave(struct etcd_claim *part, conn_fn *fn, struct stile_error *err)
{
    struct key own, plain, since, keys[GHOSTS];
    struct txn txn;
    key_of_part(&own, part);
    txn_init(&txn);
#ifdef MUTANT_ETCD_LATE_WITHDRAWAL_DELETES
    if (part->was_held)
#endif
        txn_if_created(&txn, &own, part->revision);
    txn_delete(&txn, THEN, &own);
    ghosts_remove(part, &txn, &own, keys);
    if (etcd_of_part(part)->plain_key)
        gate_leave(part, &txn, &own, &plain);
    if (part->since_said) {
        key_of_since(&since, etcd_of_part(part), part->lease_id, part->revision);
        txn_delete(&txn, THEN, &since);
    }
    part->in_flight = true;
    enum stile_status status = txn_send(&txn, etcd_of_part(part), fn, part, err);
    part->in_flight = !status;
    part->left_as = ++etcd_of_part(part)->last_left;
    return status;
}

/* ---- what is there of a claim that was not answered ---- */

static void on_found(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    struct etcd *etcd = etcd_of_part(part);
    const Pb__RangeResponse *range = err ? NULL : txn_ranged((const Pb__TxnResponse *)message, 0);
    part->in_flight = false;
    if (err && fault_passes(err)) {
        claim_again_later(part, say_again);
    } else if (err) {
        refused(part, err);
    } else if (range && range->n_kvs > 0) {
        part->revision = range->kvs[0]->create_revision;
        say(part);
    } else {
        left(part, NULL);
    }
    people_leave_answered(etcd);
}

static enum stile_status send_find(struct etcd_claim *part, struct stile_error *err)
{
    struct key own;
    struct txn txn;
    key_of_part(&own, part);
    txn_init(&txn);
    txn_range(&txn, THEN, &own, NULL)->keys_only = true;
    enum stile_status status = txn_send(&txn, etcd_of_part(part), on_found, part, err);
    part->in_flight = !status;
    part->left_as = ++etcd_of_part(part)->last_left;
    return status;
}

static void say(struct etcd_claim *part)
{
    struct stile_error err;
    part->standing = LEAVING;
    if (part->revision ? send_leave(part, on_left, &err) : send_find(part, &err))
        claim_again_later(part, say_again);
}

void release_answered(struct etcd_claim *part)
{
    part->tries = 0;
    say(part);
}

/* After a refusal: it has its timer and its place on the lease's list again. */
static enum stile_status take_up_again(struct etcd_claim *part, struct stile_error *err)
{
    if (loop_reserve(claim_of(part)->engine->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    part->has_timer = true;
    claim_attach(part, part->lease);
    part->standing = LEAVING;
    return STILE_OK;
}

void claims_release(struct engine *engine, struct claim *claim)
{
    struct etcd_claim *part = part_of(claim);
    struct stile_error err;
    if (part->standing == REFUSED && is_gone(part))
        part->standing = NOWHERE;
    if (part->standing == NOWHERE) {
        engine->events->released(claim, NULL);
        return;
    }
    if (part->standing == REFUSED && take_up_again(part, &err)) {
        engine->events->released(claim, &err);
        return;
    }
    part->leaving = true;
    claim_unwatch(part);
    if (part->standing == LEASING || (part->gone && !part->in_flight)) {
        left(part, NULL);
        return;
    }
    part->tries = 0;
    if (!part->in_flight)
        say(part);
}

/* ---- tried once, and was not the first ---- */

static void on_withdrawn(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    struct claim *claim = claim_of(part);
    (void)message;
    part->in_flight = false;
    if (part->leaving) {
        release_answered(part);
    } else if (err) {
        claim_fail(part, err);
    } else {
        ghosts_revoke(part);
        claim_forget(part);
        claim->engine->events->busy(claim, 0);
    }
}

void claim_withdraw(struct etcd_claim *part)
{
    struct stile_error err;
    part->standing = WITHDRAWING;
    if (send_leave(part, on_withdrawn, &err))
        claim_fail(part, &err);
}
