/* Claims: asking and standing in line. */
#include <string.h>

#include "engines/etcd/etcd.h"
#include "engines/etcd/line.h"
#include "mutant.h"

#define NEAREST   8 /* keys before ours that are looked at first: longer names may be among them */
#define TRIES_MAX 4
#define AGAIN_NS  (50 * NS_PER_MS)

static void look(struct etcd_claim *part);
static void send_claim(struct etcd_claim *part);

/* ---- small parts ---- */

static void attach(struct etcd_claim *part, struct lease *lease)
{
    part->lease = lease;
    part->next = lease->claims;
    part->link = &lease->claims;
    if (part->next)
        part->next->link = &part->next;
    lease->claims = part;
    claim_of(part)->session = lease;
}

static void detach(struct etcd_claim *part)
{
    if (!part->link)
        return;
    *part->link = part->next;
    if (part->next)
        part->next->link = part->link;
    part->link = NULL;
}

void claim_unwatch(struct etcd_claim *part)
{
    claim_unfresh(part);
    watching_stop(etcd_of_part(part), &part->watching);
    line_forget(part);
    if (part->has_timer)
        loop_disarm(claim_of(part)->engine->loop, &part->timer);
}

void claim_forget(struct etcd_claim *part)
{
    struct loop *loop = claim_of(part)->engine->loop;
    conn_forget(etcd_of_part(part)->conn, part);
    claim_unwatch(part);
    if (part->has_timer)
        loop_unreserve(loop, 1);
    part->has_timer = part->in_flight = false;
    detach(part);
    part->standing = NOWHERE;
}

/* Something of it may be in the queue: core withdraws it then. */
void claim_fail(struct etcd_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct stile_error why = *err;
    if (why.status == STILE_LOST || part->revision)
        why.status = STILE_UNCERTAIN;
    if (why.status == STILE_UNCERTAIN) {
        part->astray = part->astray || err->status == STILE_UNCERTAIN;
        claim_unwatch(part); /* the rest is kept for the withdrawal */
        part->standing = LEAVING;
    } else {
        claim_forget(part);
    }
    claim->engine->events->failed(claim, &why);
}

void claim_again_later(struct etcd_claim *part, void (*fn)(struct timer *timer))
{
    struct loop *loop = claim_of(part)->engine->loop;
    part->timer.fn = fn;
    loop_arm(loop, &part->timer,
             loop_now(loop) + (AGAIN_NS << (part->tries < 5 ? part->tries : 5)));
    part->tries++;
}

bool claim_has_left(struct etcd_claim *part, const struct stile_error *err)
{
    part->in_flight = false;
    part->astray = part->astray || (err && err->status == STILE_UNCERTAIN);
    if (part->leaving)
        release_answered(part);
    return part->leaving;
}

/* ---- first in line ---- */

/* The own key was seen, with its revision, in the same step in which nothing was before it. The
 * time counts from the lease's last renewal, which this did not move. */
void claim_go_on(struct etcd_claim *part)
{
    struct claim *claim = claim_of(part);
    struct lease *lease = part->lease;
    if (lease->state != LEASE_THERE || lease->id != part->lease_id) {
        claim_start_over(part);
        return;
    }
    part->standing = HOLDING;
    part->was_held = true;
    part->tries = 0;
    part->granted_ns = loop_now(claim->engine->loop);
    claim_be_fresh(part);
    claim->engine->events->granted(claim, (uint64_t)part->revision, lease->renewed_ns,
                                   lease->ttl_ns);
}

static void be_first(struct etcd_claim *part)
{
    claim_unwatch(part);
    part->tries = 0;
    if (ghosts_any(part))
        ghosts_arm(part);
    else
        claim_go_on(part);
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
    look(part_of_timer(timer));
}

/* What happens while we look may be later than what we see. */
static void on_before_event(struct watching *watching, const Pb__KeyValue *kv, bool deleted)
{
    struct etcd_claim *part = part_of_watching(watching);
    if ((kv && !deleted) || (kv && part->before && !line_has_room(part, kv)))
        return;
    if (part->standing == LOOKING)
        part->changed = true;
    else if (part->standing == IN_LINE)
        look(part);
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
    key_end(&end, name);
    part->watching.fn = on_before_event;
    return watching_start(etcd, &part->watching, wanted, line->nearest ? NULL : &end, revision + 1,
                          err);
}

static void wait_in_line(struct etcd_claim *part, const struct line *line, const struct key *name,
                         const Pb__RangeResponse *range, int64_t revision)
{
    struct stile_error err;
    part->standing = IN_LINE;
    part->tries = 0;
    if (!part->fresh_link && !part->since_said)
        claim_be_fresh(part);
    if (watch_line(part, line, name, range, revision, &err))
        claim_again_later(part, look_again);
    else if (part->changed)
        look(part);
}

/* What is before us, as of `revision`. */
static void weigh(struct etcd_claim *part, const Pb__RangeResponse *range, int64_t revision)
{
    struct claim *claim = claim_of(part);
    struct line line;
    struct key name;
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    line_weigh(&line, claim, &name, NULL, part->revision, range);
    if (line.unclear) {
        part->all = true;
        look(part);
    } else if (!line.blocked) {
        be_first(part);
    } else if (claim->wait) {
        wait_in_line(part, &line, &name, range, revision);
    } else {
        claim_withdraw(part);
    }
}

static bool may_pass(const struct stile_error *err)
{
    return err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
}

static void on_looked(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    if (claim_has_left(part, err))
        return;
    if (err && may_pass(err) && claim_of(part)->wait) {
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
        weigh(part, range, answer->header->revision);
}

static void nearest_first(struct etcd_claim *part, Pb__RangeRequest *range, size_t more)
{
    bool few = claim_of(part)->mode == STILE_EXCLUSIVE && !part->all;
    range->sort_order = PB__RANGE_REQUEST__ORDER__DESCEND;
    range->sort_target = PB__RANGE_REQUEST__TARGET__CREATE;
    range->limit = few ? (int64_t)(NEAREST + more) : 0;
    range->keys_only = true;
}

/* Whether the own key is still there, and what is before it, in one step. A keep-alive that went
 * well would prove nothing: servers before 3.4.38 answer so for a lease that is revoked. */
static void look(struct etcd_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    struct key own, name, end;
    struct txn txn;
    key_of_part(&own, part);
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    key_end(&end, &name);
    txn_init(&txn);
    txn_if_created(&txn, &own, part->revision);
    txn_if_leased(&txn, &own, part->lease_id);
    Pb__RangeRequest *range = txn_range(&txn, THEN, &name, &end);
    nearest_first(part, range, 0);
    range->max_create_revision = part->revision - 1;
#ifdef MUTANT_ETCD_GRANT_UNVERIFIED
    txn.request.n_compare = 0;
#endif
    part->standing = LOOKING;
    part->changed = false;
    part->in_flight = true;
    if (txn_send(&txn, etcd_of_part(part), on_looked, part, &err)) {
        part->in_flight = false;
        claim_again_later(part, look_again);
    }
}

/* ---- asking ---- */

static void on_cleared(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    (void)message;
    if (claim_has_left(part, err))
        return;
    if (err)
        claim_fail(part, err);
    else
        send_claim(part);
}

/* A request of an earlier claim of ours was executed after all. Its place and its token are not
 * ours: nobody may hold with a token that was given out before. */
static void clear_own(struct etcd_claim *part, const struct key *own)
{
    struct stile_error err;
    struct txn txn;
    txn_init(&txn);
    txn_delete(&txn, THEN, own);
    part->standing = CLEARING;
    part->in_flight = true;
    if (txn_send(&txn, etcd_of_part(part), on_cleared, part, &err)) {
        part->in_flight = false;
        claim_fail(part, &err);
    }
}

static void turned_away(struct etcd_claim *part)
{
    struct claim *claim = claim_of(part);
    claim_forget(part);
    claim->engine->events->busy(claim, 0);
}

/* Tried once, and the key was not put: what is there decides. */
static void weigh_try(struct etcd_claim *part, const Pb__RangeResponse *range)
{
    struct claim *claim = claim_of(part);
    struct line line;
    struct key name, own;
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    key_of_part(&own, part);
    line_weigh(&line, claim, &name, &own, INT64_MAX, range);
    if (line.own) {
        clear_own(part, &own);
    } else if (line.blocked) {
        turned_away(part);
    } else {
        part->enqueue = true;
        send_claim(part);
    }
}

/* The key is put, and this is the line with it. */
static void weigh_put(struct etcd_claim *part, const Pb__RangeResponse *range, int64_t revision)
{
    struct line line;
    struct key name, own;
    key_of_name(&name, etcd_of_part(part), claim_of(part)->name, claim_of(part)->name_len);
    key_of_part(&own, part);
    line_weigh(&line, claim_of(part), &name, &own, revision, range);
    if (!line.own || line.own->create_revision != revision) {
        clear_own(part, &own);
        return;
    }
    part->revision = revision;
    weigh(part, range, revision);
}

static void lease_is_gone(struct etcd_claim *part)
{
    lease_lost(part->lease, part->lease_id);
    if (part->standing != ASKED)
        return;
    part->standing = LEASING;
    if (lease_ensure(part->lease))
        claims_leased(part);
}

static void fail_strange(struct etcd_claim *part)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0, "the server's answer has an unexpected form");
    claim_fail(part, &err);
}

static void on_claimed(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    if (claim_has_left(part, err))
        return;
    if (err && err->native == FAULT_NO_LEASE && part->tries++ < TRIES_MAX) {
        lease_is_gone(part);
        return;
    }
    if (err) {
        claim_fail(part, err);
        return;
    }
    bool put = claim_of(part)->wait || part->enqueue;
    const Pb__RangeResponse *range =
        answer->n_responses ? txn_ranged(answer, answer->n_responses - 1) : NULL;
    if (!answer->header || (!answer->succeeded && !range)) {
        fail_strange(part);
    } else if (answer->succeeded) {
        part->revision = answer->header->revision;
        be_first(part);
    } else if (put) {
        weigh_put(part, range, answer->header->revision);
    } else {
        weigh_try(part, range);
    }
}

/* If nobody is there it is ours, else the key is put behind those who are: one step either way. */
static void send_claim(struct etcd_claim *part)
{
    struct claim *claim = claim_of(part);
    struct etcd *etcd = etcd_of_part(part);
    struct stile_error err;
    struct key own, name, end, ghosts[GHOSTS];
    char value[VALUE_MAX];
    struct txn txn;
    value_of_claim(value, etcd, claim);
    key_of_part(&own, part);
    key_of_name(&name, etcd, claim->name, claim->name_len);
    key_end(&end, &name);
    ghosts_plan(part);
    txn_init(&txn);
    txn_if_none(&txn, &name, &end);
    txn_put(&txn, THEN, &own, value, part->lease_id);
    ghosts_put(part, &txn, THEN, &own, value, ghosts);
    if (claim->wait || part->enqueue) {
        txn_put(&txn, ELSE, &own, value, part->lease_id);
        ghosts_put(part, &txn, ELSE, &own, value, ghosts);
    }
    nearest_first(part, txn_range(&txn, ELSE, &name, &end), 1 + GHOSTS);
    part->standing = ASKED;
    part->in_flight = true;
    if (txn_send(&txn, etcd, on_claimed, part, &err)) {
        part->in_flight = false;
        claim_fail(part, &err);
    }
}

void claims_leased(struct etcd_claim *part)
{
    part->lease_id = part->lease->id;
    send_claim(part);
}

void claims_unleased(struct etcd_claim *part, const struct stile_error *err)
{
    claim_fail(part, err);
}

void claims_lease_lost(struct etcd_claim *part)
{
    if (part->lease_id == 0)
        return;
    if (part->standing == HOLDING) {
        part->gone = true;
        claim_unwatch(part);
    } else if (part->standing == IN_LINE) {
        claim_unwatch(part);
        part->revision = 0;
        part->all = part->since_said = false;
        part->standing = LEASING;
    }
}

void claims_claim(struct engine *engine, struct claim *claim)
{
    struct etcd_claim *part = part_of(claim);
    struct stile_error err;
    struct lease *lease = lease_for(etcd_of(engine), claim->ttl_ns);
    *part = (struct etcd_claim){.standing = LEASING};
    part->has_timer = lease && loop_reserve(engine->loop, 1) == 0;
    if (!part->has_timer) {
        error_set(&err, STILE_NOMEM, 0, "out of memory, or too many different TTLs");
        engine->events->failed(claim, &err);
        return;
    }
    attach(part, lease);
    if (lease_ensure(lease))
        claims_leased(part);
}
