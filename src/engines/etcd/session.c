/* Leases: one for each TTL in use, whatever the number of locks, all kept alive over one stream.
 *
 * The server answers keep-alives of one stream in the order in which they came, but does not say
 * which one an answer is for: one that is overdue is counted as late, so that its answer is not
 * taken for that to a younger request. What the server says about a lease is a lower bound only:
 * the deadline counts from before the request was sent. A lease nobody lives by is not renewed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"

#define PATIENCE_MAX_NS (2 * NS_PER_SEC)
#define CLOSE_NS        (1 * NS_PER_SEC)
#define LEASES_MAX      64
#define LEASE_TIMERS    2

static void ask_for(struct lease *lease);

static uint64_t now_ns(const struct lease *lease)
{
    return loop_now(lease->etcd->engine.loop);
}

struct lease *lease_for(struct etcd *etcd, uint64_t ttl_ns)
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
    lease->audit.fn = lease_audit;
    etcd->leases = lease;
    return lease;
}

/* ---- keeping alive ---- */

static enum stile_status say_keep_alive(struct lease *lease)
{
    struct etcd *etcd = lease->etcd;
    Pb__LeaseKeepAliveRequest request = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    enum stile_status status = STILE_OK;
    if (!etcd->keep_alive.open)
        status = conn_stream_open(etcd->conn, &etcd->keep_alive, RPC_LEASE_KEEP_ALIVE, NULL);
    request.id = lease->id;
    lease->asked_ns = now_ns(lease);
    return status ? status : conn_stream_send(&etcd->keep_alive, &request.base, NULL);
}

/* Soon enough to be asked again a few times before the deadline. */
static uint64_t patience(const struct lease *lease)
{
    return lease->ttl_ns / 4 < PATIENCE_MAX_NS ? lease->ttl_ns / 4 : PATIENCE_MAX_NS;
}

static void serve_unleased(struct lease *lease, const struct stile_error *err)
{
    for (struct etcd_claim *part = lease->claims, *next; part; part = next) {
        next = part->next;
        if (part->standing == LEASING)
            claims_unleased(part, err);
    }
}

static void serve_leased(struct lease *lease)
{
    for (struct etcd_claim *part = lease->claims, *next; part && lease->id; part = next) {
        next = part->next;
        if (part->standing == LEASING)
            claims_leased(part);
    }
}

static void unanswered(struct lease *lease, const struct stile_error *err)
{
    struct etcd *etcd = lease->etcd;
    lease->renewing = false;
    loop_disarm(etcd->engine.loop, &lease->timer);
    etcd->engine.events->session_unknown(&etcd->engine, lease);
    serve_unleased(lease, err);
}

static void on_overdue(struct timer *timer)
{
    struct lease *lease = (struct lease *)((char *)timer - offsetof(struct lease, timer));
    struct stile_error err;
    error_set(&err, STILE_UNREACHABLE, 0, "%s: the lease could not be renewed in time",
              conn_address(lease->etcd->conn));
    lease->late++;
    conn_suspect(lease->etcd->conn, patience(lease));
    unanswered(lease, &err);
}

static void renew(struct lease *lease)
{
    struct stile_error err;
    if (lease->renewing)
        return;
    lease->renewing = true;
    if (say_keep_alive(lease)) {
        error_set(&err, STILE_UNREACHABLE, 0, "%s: not connected", conn_address(lease->etcd->conn));
        unanswered(lease, &err);
        return;
    }
    lease->timer.fn = on_overdue;
    loop_arm(lease->etcd->engine.loop, &lease->timer, lease->asked_ns + patience(lease));
}

static void renewed(struct lease *lease, int64_t seconds)
{
    struct etcd *etcd = lease->etcd;
    lease->renewing = false;
    loop_disarm(etcd->engine.loop, &lease->timer);
    if (seconds <= 0) {
        lease_lost(lease, lease->id);
        return;
    }
    lease->renewed_ns = lease->asked_ns;
    lease->ttl_ns = (uint64_t)seconds * NS_PER_SEC;
    etcd->engine.events->session_renewed(&etcd->engine, lease, lease->renewed_ns, lease->ttl_ns);
    serve_leased(lease);
}

static void on_kept(struct conn_stream *stream, const ProtobufCMessage *message)
{
    struct etcd *etcd = conn_owner(stream->conn);
    const Pb__LeaseKeepAliveResponse *answer = (const Pb__LeaseKeepAliveResponse *)message;
    struct lease *lease = etcd->leases;
    while (lease && (lease->state != LEASE_THERE || lease->id != answer->id))
        lease = lease->next;
    if (!lease)
        return; /* a ghost's, or one of before */
    if (lease->late > 0)
        lease->late--;
    else if (lease->renewing)
        renewed(lease, answer->ttl);
}

static void on_ended(struct conn_stream *stream, const struct stile_error *err)
{
    struct etcd *etcd = conn_owner(stream->conn);
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
    for (const struct etcd_claim *part = lease->claims; part; part = part->next) {
        if (part->standing == HOLDING || part->standing == ARMING)
            return true;
    }
    return false;
}

/* A role that does not allow a deletion does not allow to revoke the lease either: then the keys
 * stay until it has run out. Waiters begin again, at the ends of their lines. */
static void lease_give_up_if_idle(struct lease *lease)
{
    Pb__LeaseRevokeRequest request = PB__LEASE_REVOKE_REQUEST__INIT;
    if (!lease->retired || lease->state != LEASE_THERE || is_held_by(lease))
        return;
    request.id = lease->id;
    conn_ask(lease->etcd->conn, RPC_LEASE_REVOKE, &request.base, on_given_up, lease->etcd, NULL);
    lease->retired = false;
    lease_lost(lease, lease->id);
}

void lease_retire(struct lease *lease)
{
    if (lease->state != LEASE_THERE)
        return;
    lease->retired = true;
    lease_give_up_if_idle(lease);
}

/* The slot of the engine: each session that has claims, and is answered for. */
void leases_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct etcd *etcd = etcd_of(engine);
    (void)claims, (void)n;
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        lease_give_up_if_idle(lease);
        if (!lease->claims)
            continue;
        if (lease->state == LEASE_NONE)
            ask_for(lease);
        else if (lease->state == LEASE_THERE)
            renew(lease);
        ghosts_keep_alive(lease);
    }
}

/* ---- asking for it ---- */

/* For people only: it may fail. */
static void on_introduced(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    const struct lease *lease = data;
    (void)answer;
    if (err && err->native == FAULT_DENIED)
        lease->etcd->no_side_keys = true;
}

static void introduce(struct lease *lease)
{
    Pb__PutRequest request = PB__PUT_REQUEST__INIT;
    struct key key;
    if (lease->etcd->no_side_keys)
        return;
    key_of_info(&key, lease->etcd, lease->id);
    request.key = data_of(&key);
    request.value.data = (uint8_t *)lease->etcd->info;
    request.value.len = strlen(lease->etcd->info);
    request.lease = lease->id;
    conn_ask(lease->etcd->conn, RPC_PUT, &request.base, on_introduced, lease, NULL);
}

static void not_given(struct lease *lease, const struct stile_error *err)
{
    struct etcd *etcd = lease->etcd;
    struct stile_error why = *err;
    lease->state = LEASE_NONE;
    /* A lease more or less: nothing that matters was left behind. */
    if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE;
    etcd->engine.events->session_unknown(&etcd->engine, lease);
    serve_unleased(lease, &why);
}

static void on_given(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct lease *lease = data;
    struct etcd *etcd = lease->etcd;
    const Pb__LeaseGrantResponse *answer = (const Pb__LeaseGrantResponse *)message;
    if (err || answer->id == 0 || answer->ttl <= 0) {
        struct stile_error strange;
        error_set(&strange, STILE_REFUSED, 0, "the server gives no lease");
        not_given(lease, err ? err : &strange);
        return;
    }
    lease->state = LEASE_THERE;
    lease->id = answer->id;
    lease->late = 0;
    lease->renewed_ns = lease->asked_ns;
    lease->ttl_ns = (uint64_t)answer->ttl * NS_PER_SEC;
    introduce(lease);
    etcd->engine.events->session_renewed(&etcd->engine, lease, lease->renewed_ns, lease->ttl_ns);
    serve_leased(lease);
}

static void ask_for(struct lease *lease)
{
    Pb__LeaseGrantRequest request = PB__LEASE_GRANT_REQUEST__INIT;
    struct stile_error err;
    lease->state = LEASE_ASKED;
    lease->id = 0;
    lease->asked_ns = now_ns(lease);
    request.ttl = lease->seconds;
    if (conn_ask(lease->etcd->conn, RPC_LEASE_GRANT, &request.base, on_given, lease, &err))
        not_given(lease, &err);
}

bool lease_ensure(struct lease *lease)
{
    uint64_t age_ns = now_ns(lease) - lease->renewed_ns;
    if (lease->state == LEASE_THERE && age_ns < lease->ttl_ns / 2)
        return true;
    /* Nobody has lived by it for so long; if others do, its keep-alive will tell. */
    if (lease->state == LEASE_THERE && age_ns >= lease->ttl_ns && !lease->claims->next)
        lease->state = LEASE_NONE;
    if (lease->state == LEASE_NONE)
        ask_for(lease);
    else if (lease->state == LEASE_THERE)
        renew(lease);
    return false;
}

/* ---- losing it ---- */

void lease_lost(struct lease *lease, int64_t id)
{
    struct etcd *etcd = lease->etcd;
    struct stile_error err;
    bool wanted = false;
    if (lease->state != LEASE_THERE || lease->id != id)
        return;
    lease->state = LEASE_NONE;
    lease->id = 0;
    lease->renewing = false;
    loop_disarm(etcd->engine.loop, &lease->timer);
    for (struct etcd_claim *part = lease->claims, *next; part; part = next) {
        next = part->next;
        claims_lease_lost(part);
    }
    error_set(&err, STILE_LOST, FAULT_NO_LEASE,
              "the server has ended our lease (it ran out, or somebody revoked it)");
    etcd->engine.events->session_lost(&etcd->engine, lease, &err);
    for (struct etcd_claim *part = lease->claims; part; part = part->next)
        wanted = wanted || part->standing == LEASING;
    if (wanted && lease->state == LEASE_NONE)
        ask_for(lease);
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
    Pb__LeaseRevokeRequest request = PB__LEASE_REVOKE_REQUEST__INIT;
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        request.id = lease->id;
        if (lease->state == LEASE_THERE && conn_is_up(etcd->conn) &&
            conn_ask(etcd->conn, RPC_LEASE_REVOKE, &request.base, on_revoked, left, NULL) == 0)
            ++*left;
    }
    return *left;
}

/* Nobody is there any more to be told of them. */
static void forget_claims(struct etcd *etcd)
{
    for (struct lease *lease = etcd->leases; lease; lease = lease->next) {
        while (lease->claims)
            claim_forget(lease->claims);
    }
}

void leases_close(struct etcd *etcd)
{
    struct loop *loop = etcd->engine.loop;
    struct timer timer = {.fn = enough};
    uint64_t until_ns = loop_now(loop) + CLOSE_NS;
    size_t left = 0;
    forget_claims(etcd);
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
    conn_forget(etcd->conn, &left);
    conn_stream_close(&etcd->keep_alive);
    while (etcd->leases) {
        struct lease *lease = etcd->leases;
        etcd->leases = lease->next;
        conn_forget(etcd->conn, lease);
        loop_disarm(loop, &lease->timer);
        loop_disarm(loop, &lease->audit);
        loop_unreserve(loop, LEASE_TIMERS);
        free(lease->audit_at);
        free(lease);
    }
}

void leases_init(struct etcd *etcd)
{
    etcd->keep_alive.message = on_kept;
    etcd->keep_alive.ended = on_ended;
}
