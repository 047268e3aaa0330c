/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A claim's states, how it holds, and how it ends: releasing, withdrawing, clearing away.
 *
 * The claim's key lives by a lease that other claims keep alive, so it would not go by itself: core
 * repeats a release until it is answered. It is sent only when no other request of
 * the claim is under way: two requests on one connection are executed in any order, and a claim
 * that came after its withdrawal would stay.
 *
 * A request may be executed long after it was repeated over another connection, when a later claim
 * of ours has a key of the same name. So only the key of the revision that we mean is ever deleted;
 * if that is not known, because the claim was not answered, it is looked up first.
 *
 * A release that is refused again and again (our role was changed) must not keep the name for ever:
 * the lease takes no new claims, and is given up as soon as no claim holds by it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engines/etcd/etcd.h"

#define AGAIN_NS  (50 * NS_PER_MS)
#define RECENT_NS (100 * NS_PER_MS)
#define RECENT_MAX                                                                                 \
    100 /* in such a time: thousands that were claimed at once must not delay others */

/* ---- states ---- */

#define TO(state) (1u << (state))
#define TO_GRANT  (TO(TAKING_PLAIN) | TO(ARMING) | TO(HELD))
#define TO_END    (TO(FAILED) | TO(RELEASE_DUE) | TO(RELEASING))

/* From each state, those that may follow; besides, every one ends in IDLE when it is forgotten. */
static const uint32_t transitions[] = {
    [IDLE] = TO(LEASING),
    [LEASING] = TO(CLEARING) | TO(TRYING) | TO(JOINING) | TO(FAILED) | TO(RELEASING),
    [TRYING] = TO(LEASING) | TO(JOINING) | TO(CLEARING) | TO_GRANT | TO_END,
    [JOINING] = TO(LEASING) | TO(CLEARING) | TO(CHECKING) | TO(WAITING) | TO(WITHDRAWING) |
                TO_GRANT | TO_END,
    [CLEARING] = TO(TRYING) | TO(JOINING) | TO_END,
    [WAITING] = TO(LEASING) | TO(CHECKING) | TO_END,
    [CHECKING] = TO(LEASING) | TO(CHECKING) | TO(WAITING) | TO(WITHDRAWING) | TO_GRANT | TO_END,
    [TAKING_PLAIN] = TO(LEASING) | TO(WAITING_PLAIN) | TO(WITHDRAWING) | TO_GRANT | TO_END,
    [WAITING_PLAIN] = TO(LEASING) | TO(TAKING_PLAIN) | TO_END,
    [ARMING] = TO(LEASING) | TO(ARMING) | TO(HELD) | TO_END,
    [HELD] = TO(LOST) | TO(RELEASE_DUE) | TO(RELEASING),
    [LOST] = 0,
    [WITHDRAWING] = TO_END,
    [FAILED] = TO(RELEASING),
    [RELEASE_DUE] = TO(RELEASING),
    [RELEASING] = TO(RELEASING) | TO(REFUSED),
    [REFUSED] = TO(RELEASING),
};

void etcd_claim_move(struct etcd_claim *claim, enum claim_state to)
{
    assert(to == IDLE || (transitions[claim->state] & TO(to)));
    claim->state = to;
}

/* ---- on the list of its lease ---- */

void etcd_claim_attach(struct etcd_claim *claim, struct lease *lease)
{
    claim->lease = lease;
    claim->next = lease->claims;
    claim->link = &lease->claims;
    if (claim->next)
        claim->next->link = &claim->next;
    lease->claims = claim;
    base_of(claim)->session = lease;
}

static void detach(struct etcd_claim *claim)
{
    *claim->link = claim->next;
    if (claim->next)
        claim->next->link = claim->link;
    claim->link = NULL;
}

static void remove_recent(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    if (!claim->recent_link)
        return;
    *claim->recent_link = claim->recent_next;
    if (claim->recent_next)
        claim->recent_next->recent_link = claim->recent_link;
    else
        etcd->recent_tail = claim->recent_link;
    claim->recent_link = NULL;
}

void etcd_claim_unwatch(struct etcd_claim *claim)
{
    remove_recent(claim);
    etcd_batch_forget(claim, BATCH_SINCE);
    etcd_watch_stop(etcd_of_claim(claim), &claim->watch);
    etcd_queue_forget(claim);
    etcd_queue_scan_end(claim);
    if (claim->link)
        loop_disarm(base_of(claim)->engine->loop, &claim->timer);
}

/* Nothing here points to it afterwards, and no answer comes. */
static void let_go(struct etcd_claim *claim)
{
    etcd_conn_forget(etcd_of_claim(claim)->conn, claim);
    etcd_batch_forget(claim, BATCH_DELETE);
    etcd_batch_forget(claim, BATCH_JOIN);
    etcd_batch_forget(claim, BATCH_CHECK);
    etcd_cohort_leave(claim);
    etcd_claim_unwatch(claim);
    claim->in_flight = false;
    if (!claim->link)
        return;
    loop_unreserve(base_of(claim)->engine->loop, 1);
    detach(claim);
}

void etcd_claim_forget(struct etcd_claim *claim)
{
    let_go(claim);
    etcd_claim_move(claim, IDLE);
}

void etcd_claims_close(struct etcd *etcd)
{
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        while (lease->claims)
            etcd_claim_forget(lease->claims);
    }
}

void etcd_claim_retry_later(struct etcd_claim *claim, void (*fn)(struct timer *timer))
{
    struct loop *loop = base_of(claim)->engine->loop;
    claim->timer.fn = fn;
    loop_arm(loop, &claim->timer,
             loop_now(loop) + (AGAIN_NS << (claim->tries < 5 ? claim->tries : 5)));
    claim->tries++;
}

/* ---- failing ---- */

/* Exactly what is missing. Names are printable, and so is the prefix of a URL. */
static void explain_denied(struct etcd_claim *claim, struct stile_error *err)
{
    const struct claim *base = base_of(claim);
    struct key name;
    etcd_key_of_name(&name, etcd_of_claim(claim), base->name, base->name_len);
    error_set(err, STILE_REFUSED, ETCD_ERROR_DENIED,
              "the roles of this user do not allow it: `etcdctl role grant-permission ROLE "
              "--prefix=true readwrite '%.*s'` does",
              (int)name.len, (const char *)name.bytes);
}

/* If something of it may be in the queue, core withdraws it. */
void etcd_claim_fail(struct etcd_claim *claim, const struct stile_error *err)
{
    struct claim *base = base_of(claim);
    struct stile_error why = *err;
    if (why.native == ETCD_ERROR_DENIED)
        explain_denied(claim, &why);
    if (why.status == STILE_LOST || claim->revision || claim->ghosts_left)
        why.status = STILE_UNCERTAIN;
    if (why.status == STILE_UNCERTAIN) {
        claim->stray_request = claim->stray_request || err->status == STILE_UNCERTAIN;
        etcd_claim_unwatch(claim); /* the rest is kept for the withdrawal */
        etcd_claim_move(claim, FAILED);
    } else {
        etcd_claim_forget(claim);
    }
    base->engine->events->failed(base, &why);
}

/* ---- releasing ---- */

static void send_release(struct etcd_claim *claim);

static void released(struct etcd_claim *claim, const struct stile_error *err)
{
    struct claim *base = base_of(claim);
    if (claim->stray_request)
        etcd_lease_audit_later(claim->lease);
    etcd_ghosts_linger(claim);
    etcd_claim_forget(claim);
    base->engine->events->released(base, err);
}

/* Core calls release() again. It may also forget the claim: nothing here points to it meanwhile. */
static void refused(struct etcd_claim *claim, const struct stile_error *err)
{
    struct claim *base = base_of(claim);
    struct lease *lease = claim->lease;
    let_go(claim);
    etcd_claim_move(claim, REFUSED);
    base->engine->events->released(base, err);
    etcd_lease_retire(lease);
}

/* With its lease the key has gone. */
static bool is_gone(const struct etcd_claim *claim)
{
    return claim->lease->state != LEASE_LIVE || claim->lease->id != claim->lease_id;
}

/* Core calls release() again. The claim stays with its lease: it must not look like a stray key. */
static void unanswered(struct etcd_claim *claim, const struct stile_error *err)
{
    struct claim *base = base_of(claim);
    base->engine->events->released(base, err);
}

static void on_deleted(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    struct etcd *etcd = etcd_of_claim(claim);
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    struct stile_error lost;
    claim->in_flight = false;
    if (err && etcd_error_is_temporary(err)) {
        claim->maybe_deleted = claim->maybe_deleted || err->status == STILE_UNCERTAIN;
        unanswered(claim, err);
    } else if (err && err->native == ETCD_ERROR_DENIED && claim->since_put) {
        claim->since_put = false; /* it goes with the lease */
        send_release(claim);
    } else if (err) {
        refused(claim, err);
    } else if (claim->was_held && !answer->succeeded && !claim->maybe_deleted) {
        error_set(&lost, STILE_LOST, 0, "the lock was no longer held");
        released(claim, &lost);
    } else {
        etcd_ghosts_revoke(claim);
        released(claim, NULL);
    }
    etcd_inspect_released(etcd);
}

static bool has_side_keys(struct etcd_claim *claim)
{
    return etcd_of_claim(claim)->plain_key || etcd_ghosts_any(claim);
}

static void write_delete(struct etcd_claim *claim, struct txn *txn, struct batch_room *room)
{
    key_of_own(&room->keys[0], claim);
    etcd_txn_if_created(txn, &room->keys[0], claim->revision);
    etcd_txn_delete(txn, THEN, &room->keys[0]);
    etcd_cohort_leave(claim);
    if (claim->since_put) {
        etcd_key_of_since(&room->keys[1], etcd_of_claim(claim), claim->lease_id, claim->revision);
        etcd_txn_delete(txn, THEN, &room->keys[1]);
    }
}

static enum stile_status send_delete(struct etcd_claim *claim, conn_fn *fn, struct stile_error *err)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct key plain, keys[GHOSTS];
    struct batch_room room;
    struct txn txn;
    etcd_txn_init(&txn);
    write_delete(claim, &txn, &room);
    etcd_ghosts_remove(claim, &txn, &room.keys[0], keys);
    if (etcd->plain_key)
        etcd_plain_delete(claim, &txn, &room.keys[0], &plain);
    enum stile_status status = etcd_txn_send(&txn, etcd, fn, claim, err);
    claim->in_flight = !status;
    claim->release_number = ++etcd->last_release;
    return status;
}

/* ---- what exists of a claim that was not answered ---- */

static void on_found(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    struct etcd *etcd = etcd_of_claim(claim);
    const Etcd__RangeResponse *range =
        err ? NULL : etcd_txn_range_reply((const Etcd__TxnResponse *)message, 0);
    struct stile_error why;
    claim->in_flight = false;
    if (err && etcd_error_is_temporary(err)) {
        unanswered(claim, err);
    } else if (err) {
        refused(claim, err);
    } else if (range && range->n_kvs > 0) {
        claim->revision = range->kvs[0]->create_revision;
        send_release(claim);
    } else if (claim->ghosts_left) {
        if (send_delete(claim, on_deleted, &why))
            unanswered(claim, &why);
    } else {
        released(claim, NULL);
    }
    etcd_inspect_released(etcd);
}

static enum stile_status send_find(struct etcd_claim *claim, struct stile_error *err)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct key own;
    struct txn txn;
    key_of_own(&own, claim);
    etcd_txn_init(&txn);
    etcd_txn_range(&txn, THEN, &own, NULL)->keys_only = true;
    enum stile_status status = etcd_txn_send(&txn, etcd, on_found, claim, err);
    claim->in_flight = !status;
    claim->release_number = ++etcd->last_release;
    return status;
}

static void delete_alone(struct etcd_claim *claim)
{
    struct stile_error err;
    claim->in_flight = false;
    if (send_delete(claim, on_deleted, &err))
        unanswered(claim, &err);
}

static void on_delete_answered(struct etcd_claim *claim, const ProtobufCMessage *answer,
                               const struct stile_error *err)
{
    on_deleted(claim, answer, err);
}

static void send_release(struct etcd_claim *claim)
{
    struct stile_error err;
    etcd_claim_move(claim, RELEASING);
    if (claim->revision && !has_side_keys(claim)) {
        claim->in_flight = true;
        claim->release_number = ++etcd_of_claim(claim)->last_release;
        etcd_batch_add(claim, BATCH_DELETE);
    } else if (claim->revision ? send_delete(claim, on_deleted, &err) : send_find(claim, &err))
        unanswered(claim, &err);
}

bool etcd_claim_answered(struct etcd_claim *claim, const struct stile_error *err)
{
    claim->in_flight = false;
    claim->stray_request = claim->stray_request || (err && err->status == STILE_UNCERTAIN);
    if (claim->state != RELEASE_DUE)
        return true;
    send_release(claim);
    return false;
}

/* After a refusal: it gets its timer and its place on the lease's list again. */
static enum stile_status attach_again(struct etcd_claim *claim, struct stile_error *err)
{
    if (loop_reserve(base_of(claim)->engine->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    etcd_claim_attach(claim, claim->lease);
    return STILE_OK;
}

void etcd_claim_release(struct engine *engine, struct claim *base)
{
    struct etcd_claim *claim = claim_of(base);
    struct stile_error err;
    if (claim->state == REFUSED && is_gone(claim))
        etcd_claim_move(claim, IDLE);
    if (claim->state == IDLE) {
        engine->events->released(base, NULL);
        return;
    }
    if (claim->state == REFUSED && attach_again(claim, &err)) {
        engine->events->released(base, &err);
        return;
    }
    etcd_claim_unwatch(claim);
    if ((claim->state == LEASING && !claim->ghosts_left) || claim->state == LOST ||
        ((claim->state == LEASING || claim->state == RELEASING) && is_gone(claim)))
        released(claim, NULL);
    else if (claim->in_flight)
        etcd_claim_move(claim, RELEASE_DUE);
    else
        send_release(claim);
}

/* ---- tried once, and was not the first ---- */

static void on_withdrawn(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    struct claim *base = base_of(claim);
    (void)message;
    if (!etcd_claim_answered(claim, NULL))
        return;
    if (err) {
        etcd_claim_fail(claim, err);
    } else {
        etcd_ghosts_revoke(claim);
        etcd_claim_forget(claim);
        base->engine->events->busy(base, 0);
    }
}

void etcd_claim_withdraw(struct etcd_claim *claim)
{
    struct stile_error err;
    etcd_claim_move(claim, WITHDRAWING);
    if (send_delete(claim, on_withdrawn, &err))
        etcd_claim_fail(claim, &err);
}

/* ---- the reason of a loss ---- */

static bool explain_break(struct stile_error *err, const uint8_t *bytes, size_t n)
{
    char by[SELF_MAX] = "";
    int64_t pid;
    memcpy(by, bytes, n < sizeof by ? n : sizeof by - 1);
    for (char *c = by; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    const char *host = etcd_value_self(&pid, by);
    if (host)
        error_set(err, STILE_LOST, 0, "taken by stile break (%s pid %lld)", host, (long long)pid);
    return host != NULL;
}

/* By the last value of its key. */
static bool was_broken(struct stile_error *err, struct etcd_claim *claim,
                       const ProtobufCBinaryData *value)
{
    char mark[VALUE_MAX + sizeof BROKEN_BY];
    etcd_value_of_claim(mark, etcd_of_claim(claim), base_of(claim));
    strcat(mark, BROKEN_BY);
    size_t n = strlen(mark);
    return value->len > n && memcmp(value->data, mark, n) == 0 &&
           explain_break(err, value->data + n, value->len - n);
}

/* ---- holding: the claim's own key is watched ---- */

static void lose(struct etcd_claim *claim, const struct stile_error *why)
{
    struct claim *base = base_of(claim);
    struct stile_error err;
    if (why->status)
        err = *why;
    else if (!etcd_lease_explain_end(claim->lease, &err))
        error_set(&err, STILE_LOST, 0,
                  "its key was removed by another client, or its lease was revoked");
    etcd_claim_unwatch(claim);
    if (etcd_of_claim(claim)->plain_key)
        claim->maybe_deleted = true; /* that key may still be there: it is released as always */
    else
        etcd_claim_move(claim, LOST);
    base->engine->events->lost(base, &err);
}

static void check_own(struct etcd_claim *claim);

static void check_own_again(struct timer *timer)
{
    check_own(claim_of_timer(timer));
}

static void on_own_checked(void *data, const ProtobufCMessage *message,
                           const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    struct etcd *etcd = etcd_of_claim(claim);
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    struct stile_error why = {0};
    if (!etcd_claim_answered(claim, err) || claim->state != HELD)
        return; /* its lease may have ended meanwhile */
    if (err) {
        etcd->no_info_keys = etcd->no_info_keys || err->native == ETCD_ERROR_DENIED;
        etcd_claim_retry_later(claim, check_own_again);
    } else if (!answer->succeeded) {
        const Etcd__RangeResponse *range = etcd_txn_range_reply(answer, 0);
        if (range && range->n_kvs == 1)
            explain_break(&why, range->kvs[0]->value.data, range->kvs[0]->value.len);
        lose(claim, &why);
    } else {
        claim->tries = 0;
    }
}

/* If the key has gone, the same answer says why. */
static void check_alone(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct key own, mark;
    struct txn txn;
    key_of_own(&own, claim);
    etcd_key_of_break(&mark, etcd, claim->lease_id, claim->revision);
    etcd_txn_init(&txn);
    etcd_txn_if_created(&txn, &own, claim->revision);
    etcd_txn_range(&txn, THEN, &own, NULL);
    if (!etcd->no_info_keys)
        etcd_txn_range(&txn, ELSE, &mark, NULL);
    if (etcd_txn_send(&txn, etcd, on_own_checked, claim, NULL)) {
        claim->in_flight = false;
        etcd_claim_retry_later(claim, check_own_again);
    }
}

/* A transaction that only compares would be answered by any member from what it knows. */
static void write_check(struct etcd_claim *claim, struct txn *txn, struct batch_room *room)
{
    key_of_own(&room->keys[0], claim);
    etcd_txn_if_created(txn, &room->keys[0], claim->revision);
    if (txn->n_ops == 0)
        etcd_txn_range(txn, THEN, &room->keys[0], NULL)->keys_only = true;
}

static void on_check_answered(struct etcd_claim *claim, const ProtobufCMessage *answer,
                              const struct stile_error *err)
{
    on_own_checked(claim, answer, err);
}

/* Its watch may have missed something. */
static void check_own(struct etcd_claim *claim)
{
    claim->in_flight = true;
    etcd_batch_add(claim, BATCH_CHECK);
}

static void on_own_event(struct key_watch *watch, const Etcd__KeyValue *kv, bool deleted)
{
    struct etcd_claim *claim = claim_of_watch(watch);
    struct stile_error why = {0};
    if (claim->state != HELD)
        return;
    if (!kv && !claim->in_flight) {
        check_own(claim);
    } else if (kv && deleted && kv->mod_revision > claim->revision) {
        was_broken(&why, claim, &kv->value);
        lose(claim, &why);
    }
}

/* Without memory for it the loss is noticed when the lease ends, or at the release. */
static void watch_own(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    bool interrupted = claim->interruptions != etcd->interruptions;
    struct key own;
    key_of_own(&own, claim);
    claim->watch.fn = on_own_event;
    claim->watch.last_values = true;
    etcd_watch_start(etcd, &claim->watch, &own, NULL, interrupted ? 0 : claim->revision + 1, NULL);
}

/* ---- since when ---- */

/* For `show` only. A role that covers just the name, as `etcdctl lock` needs it, does not allow it:
 * then `show` prints no age, and nothing else suffers. */
static void on_since_put(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct etcd *etcd = data;
    (void)answer;
    etcd->no_info_keys = etcd->no_info_keys || (err && err->native == ETCD_ERROR_DENIED);
}

/* Bound to the lease, and removed with the claim's key; so it is put only while that exists. */
static void write_since(struct etcd_claim *claim, struct txn *txn, struct batch_room *room)
{
    struct etcd *etcd = etcd_of_claim(claim);
    uint64_t age_ms = (loop_now(etcd->engine.loop) - claim->recent_ns) / NS_PER_MS;
    snprintf(room->value, sizeof room->value, "%lld",
             (long long)etcd_wall_ms() - (long long)age_ms);
    key_of_own(&room->keys[0], claim);
    etcd_key_of_since(&room->keys[1], etcd, claim->lease_id, claim->revision);
    etcd_txn_if_created(txn, &room->keys[0], claim->revision);
    etcd_txn_put(txn, THEN, &room->keys[1], room->value, claim->lease_id);
    claim->since_put = !claim->cohort;
}

static void put_since_alone(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct batch_room room;
    struct txn txn;
    if (etcd->no_info_keys)
        return;
    etcd_txn_init(&txn);
    write_since(claim, &txn, &room);
    if (etcd_txn_send(&txn, etcd, on_since_put, etcd, NULL))
        claim->since_put = false;
}

static void on_since_answered(struct etcd_claim *claim, const ProtobufCMessage *answer,
                              const struct stile_error *err)
{
    (void)claim, (void)answer, (void)err; /* without an answer `show` may print no age */
}

const struct batch_class etcd_batch_delete = {write_delete, delete_alone, on_delete_answered};
const struct batch_class etcd_batch_check = {write_check, check_alone, on_check_answered};
const struct batch_class etcd_batch_since = {write_since, put_since_alone, on_since_answered};

/* ---- for longer than a moment ----
 *
 * Only claims that hold, or wait, for longer than a moment have their keys watched and say since
 * when. Most locks are held for less, and would pay for a watch whose only event is their own
 * release. A watch costs the server more than a claim. */

void etcd_claim_add_recent(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    remove_recent(claim);
    claim->recent_ns = loop_now(etcd->engine.loop);
    claim->recent_next = NULL;
    claim->recent_link = etcd->recent_tail;
    *etcd->recent_tail = claim;
    etcd->recent_tail = &claim->recent_next;
    if (!etcd->recent_timer.place)
        loop_arm(etcd->engine.loop, &etcd->recent_timer, claim->recent_ns + RECENT_NS);
}

static void record_since(struct etcd_claim *claim)
{
    if (claim->cohort && claim->cohort->since_put)
        return;
    if (claim->cohort)
        claim->cohort->since_put = true;
    etcd_batch_add(claim, BATCH_SINCE);
}

void etcd_claims_watch_recent(struct timer *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, recent_timer);
    struct loop *loop = etcd->engine.loop;
    uint64_t now = loop_now(loop);
    size_t n = 0;
    while (etcd->recent && etcd->recent->recent_ns + RECENT_NS <= now && n++ < RECENT_MAX) {
        struct etcd_claim *claim = etcd->recent;
        remove_recent(claim);
        if (claim->state == HELD)
            watch_own(claim);
        if (claim->revision && !etcd->no_info_keys)
            record_since(claim);
    }
    if (etcd->recent)
        loop_arm(loop, timer, (n > RECENT_MAX ? now : etcd->recent->recent_ns) + RECENT_NS);
}
