/* Standing in line: what is in the way, waiting until it has gone, and being the first. */
#include <string.h>

#include "engines/etcd/etcd.h"
#include "engines/etcd/line.h"
#include "mutant.h"

/* Keys before ours that are looked at first: longer names may be among them. Who shares, or wants a
 * slot, has to see more of them. */
#define NEAREST         8
#define NEAREST_SHARING 256
#define DOUBT_NS        (2 * NS_PER_MS) /* for each one that is before it */
#define SURE_NS         (100 * NS_PER_MS)

static bool is_leased(const struct etcd_claim *part)
{
    return part->lease->state == LEASE_THERE && part->lease->id == part->lease_id;
}

/* ---- first in line ---- */

/* The own key was seen, with its revision, in the same step in which nothing was before it. The
 * time counts from the lease's last renewal, which this did not move. */
void claim_go_on(struct etcd_claim *part)
{
    struct claim *claim = claim_of(part);
    struct lease *lease = part->lease;
    if (!is_leased(part)) {
        claim_start_over(part);
        return;
    }
    part->standing = HOLDING;
    part->was_held = true;
    part->tries = 0;
    part->granted_ns = loop_now(claim->engine->loop);
    part->interruptions = etcd_of_part(part)->interruptions;
    claim_be_fresh(part);
    claim->engine->events->granted(claim, (uint64_t)part->revision, lease->renewed_ns,
                                   lease->ttl_ns);
}

void claim_enter(struct etcd_claim *part)
{
    if (ghosts_any(part))
        ghosts_arm(part);
    else
        claim_go_on(part);
}

void claim_be_first(struct etcd_claim *part)
{
    struct etcd *etcd = etcd_of_part(part);
    watching_keep(etcd, &part->watching);
    claim_unwatch(part);
    part->tries = 0;
    if (etcd->plain_key)
        gate_ask(part);
    else
        claim_enter(part);
}

/* ---- in line ---- */

/* Its place is gone, with its key: by the end of the lease, or by somebody's hand. */
void claim_start_over(struct etcd_claim *part)
{
    claim_unwatch(part);
    part->revision = 0;
    part->all = part->since_said = false;
    part->standing = LEASING;
    if (lease_ensure(part->lease))
        claims_leased(part);
}

static void look_again(struct timer *timer)
{
    claim_look(part_of_timer(timer));
}

/* A watch that begins in the moment of somebody's write is served by a loop of the server's that
 * runs ten times a second, until that has come by. So who has not waited for long looks from time
 * to time, unless its turn is far away. */
static void doubt_watch(struct etcd_claim *part, const struct line *line, bool is_near)
{
    struct loop *loop = claim_of(part)->engine->loop;
    if (!part->doubt_ns)
        part->doubt_ns = DOUBT_NS * (1 + line->in_the_way);
    if (part->watching.told || part->doubt_ns > SURE_NS || !is_near)
        return;
    part->timer.fn = look_again;
    loop_arm(loop, &part->timer, loop_now(loop) + part->doubt_ns);
    part->doubt_ns *= 2;
}

static void on_nearest_checked(void *data, const ProtobufCMessage *message,
                               const struct stile_error *err)
{
    struct etcd_claim *part = data;
    if (claim_has_left(part, err))
        return;
    part->standing = IN_LINE;
#ifdef MUTANT_ETCD_FAR_MISSES
    return;
#endif
    if (err || part->changed || !is_leased(part) || !((const Pb__TxnResponse *)message)->succeeded)
        claim_look(part);
}

/* Far behind it is enough to know that what is watched was still there when its watch had begun. It
 * must be the same claim: one that has come again stands behind us, and waits for us. And our key
 * must be there: a server that was restored from a snapshot may not have it. The member that serves
 * the watch can tell. */
static void check_nearest(struct etcd_claim *part)
{
    struct stile_error err;
    struct key own;
    struct txn txn;
    key_of_part(&own, part);
    txn_init(&txn);
    txn_if_created(&txn, &own, part->revision);
    txn_if_before(&txn, part->watching.key, part->revision);
    part->standing = LOOKING;
    part->changed = false;
    part->in_flight = true;
    if (txn_send(&txn, etcd_of_part(part), on_nearest_checked, part, &err)) {
        part->in_flight = false;
        claim_again_later(part, look_again);
    }
}

/* What happens while we look may be later than what we see. */
static void on_before_event(struct watching *watching, const Pb__KeyValue *kv, bool deleted)
{
    struct etcd_claim *part = part_of_watching(watching);
    if ((kv && !deleted) || (kv && part->before && !line_has_room(part, kv)))
        return;
    if (!kv && part->timer.place && !part->is_next)
        return; /* it will look soon anyway */
    part->doubt_ns = kv ? part->doubt_ns : 0;
    if (part->standing == LOOKING)
        part->changed = true;
    else if (part->standing == IN_LINE && !kv && part->is_far && !part->is_next)
        check_nearest(part);
    else if (part->standing == IN_LINE)
        claim_look(part);
}

static void key_of_kv(struct key *key, const Pb__KeyValue *kv)
{
    key->len = kv->key.len < KEY_MAX ? kv->key.len : KEY_MAX;
    memcpy(key->bytes, kv->key.data, key->len);
}

static bool is_watched(const struct etcd_claim *part, const struct key *key)
{
    const struct key *watched = part->watching.id ? part->watching.key : NULL;
    return watched && watched->len == key->len && memcmp(watched->bytes, key->bytes, key->len) == 0;
}

/* Who wants a slot waits for any of those before it, everybody else for the last one before it: so
 * one that goes wakes one. A watch that is there already goes on. */
static enum stile_status watch_line(struct etcd_claim *part, const struct line *line,
                                    const struct key *name, const Pb__RangeResponse *range,
                                    int64_t revision, struct stile_error *err)
{
    struct etcd *etcd = etcd_of_part(part);
    struct key key, end;
    enum stile_status status = STILE_OK;
    line_forget(part);
    if (line->nearest)
        key_of_kv(&key, line->nearest);
    else
        status = line_remember(part, name, range, err);
    const struct key *wanted = line->nearest ? &key : name;
    if (status || is_watched(part, wanted))
        return status;
    watching_stop(etcd, &part->watching);
    part->doubt_ns = 0;
    part->watching.fn = on_before_event;
    if (line->nearest && watching_resume(etcd, &part->watching, name, wanted)) {
#ifndef MUTANT_ETCD_KEPT_WATCH_MISSES
        part->changed = part->changed || part->watching.from > revision + 1;
#endif
        return STILE_OK;
    }
    key_end(&end, name);
    return watching_start(etcd, &part->watching, wanted, line->nearest ? NULL : &end, revision + 1,
                          err);
}

static void wait_in_line(struct etcd_claim *part, const struct line *line, const struct key *name,
                         const Pb__RangeResponse *range, int64_t revision)
{
    struct stile_error err;
    part->standing = IN_LINE;
    part->tries = 0;
    claim_of(part)->engine->events->queued(claim_of(part));
    if (!part->fresh_link && !part->since_said)
        claim_be_fresh(part);
    part->is_next = line->in_the_way < 2;
    part->is_far = line->nearest && range->n_kvs >= NEAREST;
    if (watch_line(part, line, name, range, revision, &err))
        claim_again_later(part, look_again);
    else if (part->changed)
        claim_look(part);
    else
        doubt_watch(part, line, !range->more);
}

/* What is before us, as of `revision`. */
void claim_weigh(struct etcd_claim *part, const Pb__RangeResponse *range, int64_t revision)
{
    struct claim *claim = claim_of(part);
    struct line line;
    struct key name;
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    line_weigh(&line, claim, &name, NULL, part->revision, range);
    if (line.unclear) {
        part->all = true;
        claim_look(part);
    } else if (!line.blocked) {
        claim_be_first(part);
    } else if (claim->wait) {
        wait_in_line(part, &line, &name, range, revision);
    } else {
        claim_withdraw(part);
    }
}

static void on_looked(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    if (claim_has_left(part, err))
        return;
    if (err && err->native == FAULT_TOO_LONG) {
        part->all = true;
        claim_look(part);
        return;
    }
    if (err && fault_passes(err) && claim_of(part)->wait) {
        claim_again_later(part, look_again);
        return;
    }
    if (err) {
        claim_fail(part, err);
        return;
    }
    const Pb__RangeResponse *range = txn_ranged(answer, 0);
#ifdef MUTANT_ETCD_GRANT_UNVERIFIED
    bool ours = true;
#else
    bool ours = answer->succeeded;
#endif
    if (!ours || !range || !answer->header)
        claim_start_over(part);
    else
        claim_weigh(part, range, answer->header->revision);
}

/* The server has no index of creations: it reads the whole line for this. */
static void nearest_first(struct etcd_claim *part, Pb__RangeRequest *range)
{
    range->sort_order = PB__RANGE_REQUEST__ORDER__DESCEND;
    range->sort_target = PB__RANGE_REQUEST__TARGET__CREATE;
    range->limit = claim_of(part)->mode == STILE_EXCLUSIVE ? NEAREST : NEAREST_SHARING;
    range->keys_only = true;
    range->max_create_revision = part->revision - 1;
}

/* Whether the own key is still there, and what is before it, in one step. A keep-alive that went
 * well would prove nothing: servers before 3.4.38 answer so for a lease that is revoked.
 *
 * The quorum is asked, not just the member we are at: one that led, was stopped and goes on
 * believes for a moment that it still leads. It renews leases that have ended, and shows their
 * keys. */
void claim_look(struct etcd_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    struct key own, name, end;
    struct txn txn;
    if (part->all) {
        scan_begin(part);
        return;
    }
    key_of_part(&own, part);
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    key_end(&end, &name);
    txn_init(&txn);
    txn_if_created(&txn, &own, part->revision);
    txn_if_leased(&txn, &own, part->lease_id);
    nearest_first(part, txn_range(&txn, THEN, &name, &end));
#ifdef MUTANT_ETCD_GRANT_UNVERIFIED
    txn.request.n_compare = 0;
#endif
    loop_disarm(claim->engine->loop, &part->timer);
    part->standing = LOOKING;
    part->changed = false;
    part->in_flight = true;
    if (txn_send(&txn, etcd_of_part(part), on_looked, part, &err)) {
        part->in_flight = false;
        claim_again_later(part, look_again);
    }
}
