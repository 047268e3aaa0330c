/* dialect=etcd3: the Lock of npm's etcd3 is one key, the name itself, which is created by who finds
 * it missing, and goes with its creator's lease. Nobody stands in line for it. So ours stand in
 * line among themselves, and who is first takes that key as well, before it holds.
 *
 * The plain key is bound to the lease of the claim. It is put only while the own key is there, and
 * whoever deletes an own key deletes with it, in one step, the plain key of the same lease: so what
 * is asked for a claim that has ended does nothing, however late it is executed. One that is older
 * than the own key was left behind when somebody deleted just the own key by hand. */
#include "engines/etcd/etcd.h"
#include "mutant.h"

void gate_set_caps(struct stile_caps *caps)
{
    caps->modes = 1u << STILE_EXCLUSIVE;
    caps->condition =
        "the members keep what they have on their disks; a TTL is rounded up to whole "
        "seconds, and to the least the servers allow; what hold_at_least and "
        "lock_delay keep is kept from all but etcd3's Lock";
}

static void key_of_gate(struct key *plain, struct etcd_claim *part)
{
    const struct claim *claim = claim_of(part);
    key_of_plain(plain, etcd_of_part(part), claim->name, claim->name_len);
}

void gate_leave(struct etcd_claim *part, struct txn *txn, const struct key *own, struct key *plain)
{
    key_of_gate(plain, part);
#ifndef MUTANT_ETCD_PLAIN_KEY_STAYS
    txn_delete_leased(txn, THEN, plain, part->lease_id);
#endif
    inner_if_created(txn_delete_leased(txn, ELSE, plain, part->lease_id), own, 0);
}

/* ---- somebody else has it ---- */

static void ask_again(struct timer *timer)
{
    gate_ask(part_of_timer(timer));
}

static void on_plain_event(struct watching *watching, const Pb__KeyValue *kv, bool deleted)
{
    struct etcd_claim *part = part_of_watching(watching);
    if (kv && !deleted)
        return;
    if (part->standing == LOOKING)
        part->changed = true;
    else if (part->standing == IN_LINE)
        gate_ask(part);
}

static enum stile_status watch(struct etcd_claim *part, int64_t revision)
{
    struct key plain;
    struct stile_error err;
    if (part->watching.id)
        return STILE_OK;
    key_of_gate(&plain, part);
    part->watching.fn = on_plain_event;
    return watching_start(etcd_of_part(part), &part->watching, &plain, NULL, revision + 1, &err);
}

static void wait_outside(struct etcd_claim *part, int64_t revision)
{
    part->standing = IN_LINE;
    part->tries = 0;
    claim_of(part)->engine->events->queued(claim_of(part));
    if (!part->fresh_link && !part->since_said)
        claim_be_fresh(part);
    if (watch(part, revision))
        claim_again_later(part, ask_again);
    else if (part->changed)
        gate_ask(part);
}

/* ---- asking ---- */

static const Pb__KeyValue *only_key(const Pb__TxnResponse *answer, size_t n)
{
    const Pb__RangeResponse *range = txn_ranged(answer, n);
    return range && range->n_kvs == 1 ? range->kvs[0] : NULL;
}

static void pass(struct etcd_claim *part)
{
    claim_unwatch(part);
    part->tries = 0;
    claim_enter(part);
}

static void turned_away(struct etcd_claim *part, const Pb__TxnResponse *answer)
{
    const Pb__KeyValue *own = only_key(answer, 0), *plain = only_key(answer, 1);
    bool ours = plain && plain->lease == part->lease_id;
    if (!own || own->create_revision != part->revision || !answer->header)
        claim_start_over(part);
    else if (ours && plain->create_revision > part->revision)
        pass(part); /* by a request of before, that was not answered */
    else if (ours)
        gate_ask(part); /* it was left behind, and has been removed in this step */
    else if (claim_of(part)->wait)
        wait_outside(part, answer->header->revision);
    else
        claim_withdraw(part);
}

static void on_answer(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *part = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    if (claim_has_left(part, err))
        return;
    if (err && fault_passes(err) && claim_of(part)->wait)
        claim_again_later(part, ask_again);
    else if (err)
        claim_fail(part, err);
    else if (answer->succeeded)
        pass(part);
    else
        turned_away(part, answer);
}

static void write_question(struct txn *txn, struct etcd_claim *part, const struct key *own,
                           const struct key *plain, const char *value)
{
    txn_init(txn);
    txn_if_created(txn, own, part->revision);
#ifndef MUTANT_ETCD_PLAIN_KEY_OVERWRITTEN
    txn_if_created(txn, plain, 0);
#endif
    txn_put(txn, THEN, plain, value, part->lease_id);
    txn_range(txn, ELSE, own, NULL)->keys_only = true;
    txn_range(txn, ELSE, plain, NULL)->keys_only = true;
    struct txn_inner *left_behind = txn_delete_leased(txn, ELSE, plain, part->lease_id);
    inner_if_created(left_behind, own, part->revision);
    inner_if_not_after(left_behind, plain, part->revision);
}

void gate_ask(struct etcd_claim *part)
{
    struct claim *claim = claim_of(part);
    struct etcd *etcd = etcd_of_part(part);
    struct stile_error err;
    struct key own, plain;
    struct txn txn;
    char value[VALUE_MAX];
    key_of_part(&own, part);
    key_of_gate(&plain, part);
    value_of_claim(value, etcd, claim);
    write_question(&txn, part, &own, &plain, value);
    loop_disarm(claim->engine->loop, &part->timer);
    part->standing = LOOKING;
    part->changed = false;
    part->in_flight = true;
    if (txn_send(&txn, etcd, on_answer, part, &err)) {
        part->in_flight = false;
        claim_again_later(part, ask_again);
    }
}
