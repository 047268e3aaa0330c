/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: one for each TTL in use, whatever the number of locks, all kept alive over one stream.
 *
 * The server answers the keep-alives of one stream in the order in which they came, but does not
 * say which one an answer is for: one that is overdue is counted as late, so that its answer is not
 * taken for that to a younger request. The TTL the server reports is a lower bound only: the
 * deadline counts from before the request was sent. A lease without claims is not renewed.
 *
 * Audits: a claim that was not answered is withdrawn, but the server may execute it after the
 * withdrawal: a member that has to wait for the others keeps a request for some seconds. Its key
 * would stay in the queue for as long as other claims keep the lease alive, and nobody would remove
 * it. So once nothing can be on its way any longer, the keys of the lease are looked through, and
 * those that belong to no claim are deleted. The same after every interruption of the connection: a
 * snapshot that was restored meanwhile brings back keys that were deleted since it was made. */
#include "engines/etcd/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/hash.h"
#include "engines/etcd/etcd.h"

#define PATIENCE_MAX_NS (2 * NS_PER_SEC)
#define CLOSE_NS        (1 * NS_PER_SEC)
#define LEASES_MAX      64
#define RAISED_MAX_S    75 /* one and a half of the longest election timeout */
#define LEASE_TIMERS    2
/* The server gives up a request after 5 s and two election timeouts, by default of 1 s each. */
#define AUDIT_NS   (10 * NS_PER_SEC)
#define AUDIT_PAGE 1000

static void audit(struct timer *timer);
static void request_lease(struct lease *lease);

static uint64_t now_ns(const struct lease *lease)
{
    return loop_now(lease->etcd->engine.loop);
}

struct lease *etcd_lease_for(struct etcd *etcd, uint64_t ttl_ns)
{
    int64_t seconds = (int64_t)((ttl_ns + NS_PER_SEC - 1) / NS_PER_SEC);
    struct lease *lease = etcd->leases;
    size_t n = 0;
    for (; lease && (lease->seconds != seconds || lease->retired); lease = lease->next)
        n++;
    if (lease || n >= LEASES_MAX || loop_reserve(etcd->engine.loop, LEASE_TIMERS))
        return lease;
    lease = calloc(1, sizeof *lease);
    if (!lease) {
        loop_unreserve(etcd->engine.loop, LEASE_TIMERS);
        return NULL;
    }
    *lease = (struct lease){.next = etcd->leases, .etcd = etcd, .seconds = seconds};
    lease->audit.fn = audit;
    etcd->leases = lease;
    return lease;
}

/* ---- keeping alive ---- */

static enum stile_status send_keep_alive(struct lease *lease)
{
    struct etcd *etcd = lease->etcd;
    Etcd__LeaseKeepAliveRequest request = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    enum stile_status status = STILE_OK;
    if (!etcd->keep_alive.open)
        status = etcd_conn_stream_open(etcd->conn, &etcd->keep_alive, RPC_LEASE_KEEP_ALIVE, NULL);
    request.id = lease->id;
    lease->sent_ns = now_ns(lease);
    return status ? status : etcd_conn_stream_send(&etcd->keep_alive, &request.base, NULL);
}

/* Soon enough to repeat it a few times before the deadline. */
static uint64_t patience(const struct lease *lease)
{
    return lease->ttl_ns / 4 < PATIENCE_MAX_NS ? lease->ttl_ns / 4 : PATIENCE_MAX_NS;
}

uint64_t etcd_session_patience_ns(const struct etcd *etcd)
{
    uint64_t least_ns = UINT64_MAX;
    for (const struct lease *lease = etcd->leases; lease; lease = lease->next) {
        bool at_stake = lease->claims && lease->state == LEASE_LIVE &&
                        now_ns(lease) < lease->renewed_ns + lease->ttl_ns;
        if (at_stake && patience(lease) < least_ns)
            least_ns = patience(lease);
    }
    return least_ns;
}

static void unanswered(struct lease *lease, const struct stile_error *err)
{
    struct etcd *etcd = lease->etcd;
    lease->renewing = false;
    loop_disarm(etcd->engine.loop, &lease->timer);
    etcd->engine.events->session_unknown(&etcd->engine, lease);
    etcd->lease_events->failed(lease, err);
}

static void on_overdue(struct timer *timer)
{
    struct lease *lease = container_of(timer, struct lease, timer);
    struct stile_error err;
    error_set(&err, STILE_UNREACHABLE, 0, "%s: the lease could not be renewed in time",
              etcd_conn_address(lease->etcd->conn));
    lease->late++;
    etcd_conn_suspect(lease->etcd->conn, patience(lease));
    unanswered(lease, &err);
}

static void renew(struct lease *lease)
{
    struct stile_error err;
    if (lease->renewing)
        return;
    lease->renewing = true;
    if (send_keep_alive(lease)) {
        error_set(&err, STILE_UNREACHABLE, 0, "%s: not connected",
                  etcd_conn_address(lease->etcd->conn));
        unanswered(lease, &err);
        return;
    }
    lease->timer.fn = on_overdue;
    loop_arm(lease->etcd->engine.loop, &lease->timer, lease->sent_ns + patience(lease));
}

/* A longer one than asked for and than servers raise leases to is not believed. */
uint64_t etcd_lease_ttl_ns(int64_t asked_s, int64_t answered_s)
{
    int64_t most_s = asked_s > RAISED_MAX_S ? asked_s : RAISED_MAX_S;
    return (uint64_t)(answered_s < most_s ? answered_s : most_s) * NS_PER_SEC;
}

static void renewed(struct lease *lease, int64_t seconds)
{
    struct etcd *etcd = lease->etcd;
    lease->renewing = false;
    loop_disarm(etcd->engine.loop, &lease->timer);
    if (seconds <= 0) {
        etcd_lease_lost(lease, lease->id);
        return;
    }
    lease->renewed_ns = lease->sent_ns;
    lease->ttl_ns = etcd_lease_ttl_ns(lease->seconds, seconds);
    etcd->engine.events->session_renewed(&etcd->engine, lease, lease->renewed_ns, lease->ttl_ns);
    etcd->lease_events->ready(lease);
}

static void on_keep_alive(struct conn_stream *stream, const ProtobufCMessage *message)
{
    struct etcd *etcd = etcd_conn_owner(stream->conn);
    const Etcd__LeaseKeepAliveResponse *answer = (const Etcd__LeaseKeepAliveResponse *)message;
    struct lease *lease = etcd->leases;
    while (lease && (lease->state != LEASE_LIVE || lease->id != answer->id))
        lease = lease->next;
    if (!lease)
        return; /* a ghost's, or an earlier one */
    if (lease->late > 0)
        lease->late--;
    else if (lease->renewing)
        renewed(lease, answer->ttl);
}

static void on_ended(struct conn_stream *stream, const struct stile_error *err)
{
    struct etcd *etcd = etcd_conn_owner(stream->conn);
    etcd->interruptions++;
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        lease->late = 0;
        if (lease->renewing)
            unanswered(lease, err);
    }
}

/* ---- giving it up ---- */

static void on_given_up(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    (void)data, (void)answer, (void)err; /* it runs out: nobody renews it */
}

static bool is_held_by(const struct lease *lease)
{
    for (const struct etcd_claim *claim = lease->claims; claim; claim = claim->next) {
        if (claim->state == HELD || claim->state == ARMING)
            return true;
    }
    return false;
}

/* A role that does not allow a deletion does not allow revoking the lease either: then the keys
 * stay until it has run out. Waiters begin again, at the ends of their queues. */
static void give_up_if_idle(struct lease *lease)
{
    Etcd__LeaseRevokeRequest request = ETCD__LEASE_REVOKE_REQUEST__INIT;
    if (!lease->retired || lease->state != LEASE_LIVE || is_held_by(lease))
        return;
    request.id = lease->id;
    etcd_conn_request(lease->etcd->conn, RPC_LEASE_REVOKE, &request.base, on_given_up, lease->etcd,
                      NULL);
    lease->retired = false;
    etcd_lease_lost(lease, lease->id);
}

void etcd_lease_retire(struct lease *lease)
{
    if (lease->state != LEASE_LIVE)
        return;
    lease->retired = true;
    give_up_if_idle(lease);
}

void etcd_lease_renew(struct lease *lease)
{
    give_up_if_idle(lease);
    if (lease->claims && lease->state == LEASE_NONE)
        request_lease(lease);
    else if (lease->claims && lease->state == LEASE_LIVE)
        renew(lease);
}

/* ---- asking for it ---- */

/* For `show` only: it may fail. */
static void on_owner_put(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    const struct lease *lease = data;
    (void)answer;
    if (err && err->native == ETCD_ERROR_DENIED)
        lease->etcd->no_info_keys = true;
}

static void put_owner(struct lease *lease)
{
    Etcd__PutRequest request = ETCD__PUT_REQUEST__INIT;
    struct key key;
    if (lease->etcd->no_info_keys)
        return;
    etcd_key_of_owner(&key, lease->etcd, lease->id);
    request.key = data_of(&key);
    request.value.data = (uint8_t *)lease->etcd->info;
    request.value.len = strlen(lease->etcd->info);
    request.lease = lease->id;
    etcd_conn_request(lease->etcd->conn, RPC_PUT, &request.base, on_owner_put, lease, NULL);
}

static void not_granted(struct lease *lease, const struct stile_error *err)
{
    struct etcd *etcd = lease->etcd;
    struct stile_error why = *err;
    lease->state = LEASE_NONE;
    /* At worst an unused lease is left behind, and runs out. */
    if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE;
    etcd->engine.events->session_unknown(&etcd->engine, lease);
    etcd->lease_events->failed(lease, &why);
}

static void on_granted(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct lease *lease = data;
    struct etcd *etcd = lease->etcd;
    const Etcd__LeaseGrantResponse *answer = (const Etcd__LeaseGrantResponse *)message;
    if (err || answer->id == 0 || answer->ttl <= 0) {
        struct stile_error strange;
        error_set(&strange, STILE_REFUSED, 0, "the server grants no lease");
        not_granted(lease, err ? err : &strange);
        return;
    }
    lease->state = LEASE_LIVE;
    lease->id = answer->id;
    lease->late = 0;
    lease->renewed_ns = lease->sent_ns;
    lease->ttl_ns = etcd_lease_ttl_ns(lease->seconds, answer->ttl);
    put_owner(lease);
    etcd->engine.events->session_renewed(&etcd->engine, lease, lease->renewed_ns, lease->ttl_ns);
    etcd->lease_events->ready(lease);
}

static void request_lease(struct lease *lease)
{
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    struct stile_error err;
    lease->state = LEASE_REQUESTED;
    lease->id = 0;
    lease->sent_ns = now_ns(lease);
    request.ttl = lease->seconds;
    if (etcd_conn_request(lease->etcd->conn, RPC_LEASE_GRANT, &request.base, on_granted, lease,
                          &err))
        not_granted(lease, &err);
}

bool etcd_lease_ensure(struct lease *lease)
{
    uint64_t age_ns = now_ns(lease) - lease->renewed_ns;
    if (lease->state == LEASE_LIVE && age_ns < lease->ttl_ns / 2)
        return true;
    /* It has run out without claims. If other claims live by it, its keep-alive will show. */
    if (lease->state == LEASE_LIVE && age_ns >= lease->ttl_ns && !lease->claims->next)
        lease->state = LEASE_NONE;
    if (lease->state == LEASE_NONE)
        request_lease(lease);
    else if (lease->state == LEASE_LIVE)
        renew(lease);
    return false;
}

/* ---- losing it ---- */

bool etcd_lease_explain_end(const struct lease *lease, struct stile_error *err)
{
    uint64_t age_ns = now_ns(lease) - lease->renewed_ns;
    if (age_ns < lease->ttl_ns)
        return false;
    error_set(err, STILE_LOST, ETCD_ERROR_NO_LEASE,
              "the lease of %.0f s expired: not renewed for %.1f s",
              (double)lease->ttl_ns / NS_PER_SEC, (double)age_ns / NS_PER_SEC);
    return true;
}

void etcd_lease_lost(struct lease *lease, int64_t id)
{
    struct etcd *etcd = lease->etcd;
    struct stile_error err;
    bool wanted = false;
    if (lease->state != LEASE_LIVE || lease->id != id)
        return;
    if (!etcd_lease_explain_end(lease, &err))
        error_set(&err, STILE_LOST, ETCD_ERROR_NO_LEASE,
                  "the server has ended the lease before its time: somebody revoked it, or the "
                  "server has lost data");
    lease->state = LEASE_NONE;
    lease->id = 0;
    lease->renewing = false;
    loop_disarm(etcd->engine.loop, &lease->timer);
    etcd->lease_events->ended(lease);
    etcd->engine.events->session_lost(&etcd->engine, lease, &err);
    for (struct etcd_claim *claim = lease->claims; claim; claim = claim->next)
        wanted = wanted || claim->state == LEASING;
    if (wanted && lease->state == LEASE_NONE)
        request_lease(lease);
}

/* ---- the end ---- */

static void on_revoked(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    size_t *left = data;
    (void)answer, (void)err;
    --*left;
}

static void enough(struct timer *timer)
{
    (void)timer; /* the loop below looks at the clock */
}

static size_t revoke_all(struct etcd *etcd, size_t *left)
{
    Etcd__LeaseRevokeRequest request = ETCD__LEASE_REVOKE_REQUEST__INIT;
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        request.id = lease->id;
        if (lease->state == LEASE_LIVE && etcd_conn_is_up(etcd->conn) &&
            etcd_conn_request(etcd->conn, RPC_LEASE_REVOKE, &request.base, on_revoked, left,
                              NULL) == 0)
            ++*left;
    }
    return *left;
}

void etcd_session_close(struct etcd *etcd)
{
    struct loop *loop = etcd->engine.loop;
    struct timer timer = {.fn = enough};
    uint64_t until_ns = loop_now(loop) + CLOSE_NS;
    size_t left = 0;
    if (revoke_all(etcd, &left) > 0 && loop_reserve(loop, 1) == 0) {
        loop_arm(loop, &timer, until_ns);
        while (left > 0 && loop_now(loop) < until_ns) {
            loop_prepare(loop);
            loop_wait(loop, true);
            loop_run(loop);
        }
        loop_disarm(loop, &timer);
        loop_unreserve(loop, 1);
    }
    etcd_conn_forget(etcd->conn, &left);
    etcd_conn_stream_close(&etcd->keep_alive);
    while (etcd->leases) {
        struct lease *lease = etcd->leases;
        etcd->leases = lease->next;
        etcd_conn_forget(etcd->conn, lease);
        loop_disarm(loop, &lease->timer);
        loop_disarm(loop, &lease->audit);
        loop_unreserve(loop, LEASE_TIMERS);
        free(lease->audit_at);
        free(lease);
    }
}

void etcd_session_init(struct etcd *etcd, const struct lease_events *events)
{
    etcd->lease_events = events;
    etcd->keep_alive.message = on_keep_alive;
    etcd->keep_alive.ended = on_ended;
}

/* ---- audits ---- */

static uint64_t hash_of(const uint8_t *bytes, size_t n)
{
    return fnv_add(FNV_START, bytes, n);
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

static void know_claim(struct known *known, struct etcd_claim *claim)
{
    struct key own, plain, ghost;
    etcd_key_of_claim(&own, etcd_of_claim(claim), base_of(claim), claim->lease->id, claim->number);
    know(known, &own);
    if (etcd_of_claim(claim)->plain_key) {
        etcd_key_of_plain(&plain, etcd_of_claim(claim), base_of(claim)->name,
                          base_of(claim)->name_len);
        know(known, &plain);
    }
    for (int i = 0; i < GHOSTS; i++) {
        etcd_key_of_ghost(&ghost, &own, claim->ghosts[i].number);
        know(known, &ghost);
    }
}

static bool know_all(struct known *known, struct lease *lease)
{
    size_t n = 1;
    for (struct etcd_claim *claim = lease->claims; claim; claim = claim->next)
        n += 2 + GHOSTS;
    *known = (struct known){.hashes = malloc(n * sizeof *known->hashes)};
    if (!known->hashes)
        return false;
    for (struct etcd_claim *claim = lease->claims; claim; claim = claim->next)
        know_claim(known, claim);
    qsort(known->hashes, known->n, sizeof *known->hashes, by_value);
    return true;
}

static void on_removed(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    if (err || !((const Etcd__TxnResponse *)message)->succeeded)
        etcd_lease_audit_later(data);
}

/* Only what existed when we looked: executed late, this meets a younger claim of the same name. */
static void remove_key(struct lease *lease, const ProtobufCBinaryData *found, int64_t seen)
{
    struct key key;
    struct txn txn;
    if (found->len > KEY_MAX)
        return;
    key.len = found->len;
    memcpy(key.bytes, found->data, found->len);
    etcd_txn_init(&txn);
    etcd_txn_if_leased(&txn, &key, lease->id);
    etcd_txn_if_not_after(&txn, &key, seen);
    etcd_txn_delete(&txn, THEN, &key);
    if (etcd_txn_send(&txn, lease->etcd, on_removed, lease, NULL))
        etcd_lease_audit_later(lease);
}

static bool is_live(const struct lease *lease, int64_t id)
{
    return lease->state == LEASE_LIVE && lease->id == id;
}

static void remove_unknown(struct lease *lease, const struct known *known,
                           const ProtobufCBinaryData *key, const Etcd__Header *header)
{
    uint64_t hash = hash_of(key->data, key->len);
    if (!etcd_key_is_informational(lease->etcd, key) &&
        !bsearch(&hash, known->hashes, known->n, sizeof hash, by_value))
        remove_key(lease, key, header ? header->revision : 0);
}

/* ---- more keys than fit into one answer: all below the prefix are read ---- */

static void audit_page(struct lease *lease);

static void end_audit_pages(struct lease *lease)
{
    free(lease->audit_at);
    lease->audit_at = NULL;
}

static void on_audit_page(void *data, const ProtobufCMessage *message,
                          const struct stile_error *err)
{
    struct lease *lease = data;
    const Etcd__RangeResponse *range = (const Etcd__RangeResponse *)message;
    struct known known;
    if (err || !know_all(&known, lease)) {
        end_audit_pages(lease);
        if (!err || etcd_error_is_temporary(err))
            etcd_lease_audit_later(lease);
        return;
    }
    for (size_t i = 0; i < range->n_kvs; i++) {
        if (lease->state == LEASE_LIVE && range->kvs[i]->lease == lease->id)
            remove_unknown(lease, &known, &range->kvs[i]->key, range->header);
    }
    free(known.hashes);
    if (range->more && range->n_kvs > 0 &&
        etcd_key_after(lease->audit_at, &range->kvs[range->n_kvs - 1]->key))
        audit_page(lease);
    else
        end_audit_pages(lease);
}

static void audit_page(struct lease *lease)
{
    Etcd__RangeRequest request = ETCD__RANGE_REQUEST__INIT;
    struct key start, end;
    etcd_keys_of_list(&start, &end, lease->etcd, "", 0);
    request.key = data_of(lease->audit_at);
    request.range_end = data_of(&end);
    request.limit = AUDIT_PAGE;
    request.keys_only = true;
    if (etcd_conn_request(lease->etcd->conn, RPC_RANGE, &request.base, on_audit_page, lease,
                          NULL)) {
        end_audit_pages(lease);
        etcd_lease_audit_later(lease);
    }
}

static void audit_by_pages(struct lease *lease)
{
    struct key end;
    if (lease->audit_at)
        return;
    lease->audit_at = malloc(sizeof *lease->audit_at);
    if (!lease->audit_at) {
        etcd_lease_audit_later(lease);
        return;
    }
    etcd_keys_of_list(lease->audit_at, &end, lease->etcd, "", 0);
    audit_page(lease);
}

/* ---- the keys of the lease ---- */

static void on_lease_keys(void *data, const ProtobufCMessage *message,
                          const struct stile_error *err)
{
    struct lease *lease = data;
    const Etcd__LeaseTimeToLiveResponse *answer = (const Etcd__LeaseTimeToLiveResponse *)message;
    struct known known;
    if (err && err->native == ETCD_ERROR_TOO_LONG) {
        audit_by_pages(lease);
        return;
    }
    if (err && !etcd_error_is_temporary(err))
        return; /* our roles do not allow it */
    if (err || (is_live(lease, answer->id) && !know_all(&known, lease))) {
        etcd_lease_audit_later(lease);
        return;
    }
    if (!is_live(lease, answer->id))
        return; /* they are gone with it */
    for (size_t i = 0; i < answer->n_keys; i++)
        remove_unknown(lease, &known, &answer->keys[i], answer->header);
    free(known.hashes);
}

static void audit(struct timer *timer)
{
    struct lease *lease = container_of(timer, struct lease, audit);
    Etcd__LeaseTimeToLiveRequest request = ETCD__LEASE_TIME_TO_LIVE_REQUEST__INIT;
    if (lease->state != LEASE_LIVE)
        return;
    request.id = lease->id;
    request.keys = true;
    if (etcd_conn_request(lease->etcd->conn, RPC_LEASE_TTL, &request.base, on_lease_keys, lease,
                          NULL))
        etcd_lease_audit_later(lease);
}

void etcd_lease_audit_later(struct lease *lease)
{
    struct loop *loop = lease->etcd->engine.loop;
    loop_arm(loop, &lease->audit, loop_now(loop) + AUDIT_NS);
}

/* The server may have been restored from a snapshot in which there are keys that we have deleted
 * since. */
void etcd_session_audit_later(struct etcd *etcd)
{
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        if (lease->state == LEASE_LIVE && !lease->audit.place)
            etcd_lease_audit_later(lease);
    }
}
