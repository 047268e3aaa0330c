/* Claims: asking, and what becomes of the answer. */
#include "engines/etcd/etcd.h"
#include "engines/etcd/line.h"
#include "mutant.h"

#define TRIES_MAX 4
#define AGAIN_NS  (50 * NS_PER_MS)
/* How much of a line the answer to a claim may tell: up to so many it is all that is needed. */
#define SHORT_LINE 64

static void send_claim(struct etcd_claim *part);

/* ---- small parts ---- */

void claim_attach(struct etcd_claim *part, struct lease *lease)
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
    scan_end(part);
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

/* Exactly what is missing. Names are printable, and so is the prefix of a URL. */
static void explain_denied(struct etcd_claim *part, struct stile_error *err)
{
    const struct claim *claim = claim_of(part);
    struct key name;
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    error_set(err, STILE_REFUSED, FAULT_DENIED,
              "the roles of this user do not allow it: `etcdctl role grant-permission ROLE "
              "--prefix=true readwrite '%.*s'` does",
              (int)name.len, (const char *)name.bytes);
}

/* Something of it may be in the queue: core withdraws it then. */
void claim_fail(struct etcd_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    struct stile_error why = *err;
    if (why.native == FAULT_DENIED)
        explain_denied(part, &why);
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

/* ---- asking ---- */

/* Its key is put whatever there is. */
static bool is_joining(const struct etcd_claim *part)
{
    return claim_of((struct etcd_claim *)part)->wait || part->enqueue;
}

static bool overwrote_own(const Pb__TxnResponse *answer)
{
#ifdef MUTANT_ETCD_OLD_KEY_TAKEN
    return false;
#endif
    return txn_overwrote(answer, 0);
}

static bool is_long(const Pb__RangeResponse *range)
{
#ifdef MUTANT_ETCD_LONG_LINE_NOT_LOOKED_AT
    return false;
#endif
    return range->more;
}

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
static void clear_own(struct etcd_claim *part, const struct key *own, int64_t seen)
{
    struct stile_error err;
    struct key plain;
    struct txn txn;
    txn_init(&txn);
    txn_if_not_after(&txn, own, seen);
    txn_delete(&txn, THEN, own);
    if (etcd_of_part(part)->plain_key)
        gate_leave(part, &txn, own, &plain);
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
static void weigh_try(struct etcd_claim *part, const Pb__RangeResponse *range, int64_t revision)
{
    struct claim *claim = claim_of(part);
    struct line line;
    struct key name, own;
    key_of_name(&name, etcd_of_part(part), claim->name, claim->name_len);
    key_of_part(&own, part);
    line_weigh(&line, claim, &name, &own, INT64_MAX, range);
    if (line.own) {
        clear_own(part, &own, revision);
    } else if (line.blocked) {
        turned_away(part);
    } else {
        part->enqueue = true;
        send_claim(part);
    }
}

/* The key is put, and this is the line with it: all of it, or what it begins with. */
static void weigh_put(struct etcd_claim *part, const Pb__TxnResponse *answer,
                      const Pb__RangeResponse *range)
{
    struct line line;
    struct key name, own;
    if (overwrote_own(answer)) {
        key_of_part(&own, part);
        clear_own(part, &own, answer->header->revision);
        return;
    }
    part->revision = answer->header->revision;
    if (!is_long(range)) {
        claim_weigh(part, range, part->revision);
        return;
    }
    key_of_name(&name, etcd_of_part(part), claim_of(part)->name, claim_of(part)->name_len);
    line_weigh(&line, claim_of(part), &name, NULL, part->revision, range);
    part->all = line.unclear; /* most are of longer names */
    claim_look(part);
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
    const Pb__RangeResponse *range =
        answer->n_responses ? txn_ranged(answer, answer->n_responses - 1) : NULL;
    bool won = answer->succeeded && !is_joining(part);
    if (!answer->header || (!won && !range)) {
        fail_strange(part);
    } else if (won) {
        part->revision = answer->header->revision;
        claim_be_first(part);
    } else {
        line_order(range);
        if (is_joining(part))
            weigh_put(part, answer, range);
        else
            weigh_try(part, range, answer->header->revision);
    }
}

/* In the order of its keys: to sort it by creation the server reads all of it, and does so on every
 * member, as this is part of a write. */
static void begin_of_line(Pb__RangeRequest *range)
{
    range->limit = SHORT_LINE + 1 + GHOSTS;
    range->keys_only = true;
}

/* The key is put behind those who are there: if nobody is, it holds. Who tries once puts it only
 * then. One step either way. */
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
    if (!is_joining(part))
        txn_if_none(&txn, &name, &end);
    txn_put(&txn, THEN, &own, value, part->lease_id)->prev_kv = true;
    ghosts_put(part, &txn, THEN, &own, value, ghosts);
    begin_of_line(txn_range(&txn, is_joining(part) ? THEN : ELSE, &name, &end));
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

static uint32_t next_sharer(struct etcd *etcd)
{
    if (++etcd->last_sharer == 0)
        ++etcd->last_sharer;
    return etcd->last_sharer;
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
    if (claim->mode != STILE_EXCLUSIVE)
        part->number = next_sharer(etcd_of(engine));
    claim_attach(part, lease);
    if (lease_ensure(lease))
        claims_leased(part);
}
