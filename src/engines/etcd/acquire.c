/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* From the first request to the grant: putting the claim's key, waiting in the queue, and checking
 * at the head of it that the key is still there. States and their transitions: claim.c. */
#include "engines/etcd/etcd.h"

#define TRIES_MAX 4
/* How many keys the answer to a claim may list: a queue up to this length needs no second look. */
#define SHORT_QUEUE 64
#define DOUBT_NS    (2 * NS_PER_MS) /* for each key before the claim's */
#define SURE_NS     (100 * NS_PER_MS)

static void send_claim(struct etcd_claim *claim, enum claim_state as);
static void clear_own(struct etcd_claim *claim, int64_t seen);
static void look(struct etcd_claim *claim);
static void ask_plain(struct etcd_claim *claim);
static void arm_next(struct etcd_claim *claim);

static bool is_leased(const struct etcd_claim *claim)
{
    return claim->lease->state == LEASE_LIVE && claim->lease->id == claim->lease_id;
}

static enum claim_state first_step(struct etcd_claim *claim)
{
    return base_of(claim)->wait ? JOINING : TRYING;
}

/* What is left of its key goes first: ghosts that are older than the key would be in its way. */
static void on_leased(struct etcd_claim *claim)
{
    bool again = claim->lease_id == claim->lease->id;
    claim->lease_id = claim->lease->id;
    if (again && etcd_ghosts_any(claim))
        clear_own(claim, 0);
    else
        send_claim(claim, first_step(claim));
}

static void await_lease(struct etcd_claim *claim)
{
    etcd_cohort_leave(claim);
    claim->revision = 0;
    claim->read_all = claim->since_put = false;
    etcd_claim_move(claim, LEASING);
}

/* Its place is gone, with its key: the lease ended, or somebody deleted the key. */
static void start_over(struct etcd_claim *claim)
{
    etcd_claim_unwatch(claim);
    claim->ghosts_left = etcd_ghosts_any(claim);
    await_lease(claim);
    if (etcd_lease_ensure(claim->lease))
        on_leased(claim);
}

/* What could not be sent, or may succeed later, by the state it was in. */
static void retry(struct timer *timer)
{
    struct etcd_claim *claim = claim_of_timer(timer);
    if (claim->state == ARMING)
        arm_next(claim);
    else if (claim->state == TAKING_PLAIN || claim->state == WAITING_PLAIN)
        ask_plain(claim);
    else
        look(claim);
}

static void retry_or_fail(struct etcd_claim *claim, const struct stile_error *err)
{
    if (etcd_error_is_temporary(err) && base_of(claim)->wait)
        etcd_claim_retry_later(claim, retry);
    else
        etcd_claim_fail(claim, err);
}

/* ---- the grant ---- */

/* The claim's key was seen, with its revision, in the same step in which nothing was before it. The
 * time counts from the lease's last renewal, which this did not move. */
static void grant(struct etcd_claim *claim)
{
    struct claim *base = base_of(claim);
    const struct lease *lease = claim->lease;
    if (!is_leased(claim)) {
        start_over(claim);
        return;
    }
    etcd_claim_move(claim, HELD);
    claim->was_held = true;
    claim->tries = 0;
    claim->granted_ns = loop_now(base->engine->loop);
    claim->interruptions = etcd_of_claim(claim)->interruptions;
    etcd_claim_add_recent(claim);
    etcd_ghosts_describe(claim);
    base->engine->events->granted(base, (uint64_t)claim->revision, lease->renewed_ns,
                                  lease->ttl_ns);
}

static void arm_or_grant(struct etcd_claim *claim)
{
    if (etcd_ghosts_any(claim))
        arm_next(claim);
    else
        grant(claim);
}

static void reached_head(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    etcd_watch_idle(etcd, &claim->watch);
    etcd_claim_unwatch(claim);
    claim->tries = 0;
    if (etcd->plain_key)
        ask_plain(claim);
    else
        arm_or_grant(claim);
}

/* ---- at the head: ghosts get leases of their own ---- */

static void on_ghosts_bound(void *data, const ProtobufCMessage *message,
                            const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    if (!etcd_claim_answered(claim, NULL))
        return;
    if (err) {
        retry_or_fail(claim, err);
    } else if (!((const Etcd__TxnResponse *)message)->succeeded) {
        etcd_ghosts_revoke(claim);
        start_over(claim);
    } else if (etcd_ghosts_unarmed(claim) < GHOSTS) {
        arm_next(claim); /* it all took too long */
    } else {
        grant(claim);
    }
}

static void on_ghost_leased(void *data, const ProtobufCMessage *message,
                            const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    if (!err)
        etcd_ghost_leased(claim, (const Etcd__LeaseGrantResponse *)message);
    if (!etcd_claim_answered(claim, NULL))
        return;
    if (err)
        retry_or_fail(claim, err);
    else
        arm_next(claim);
}

static void arm_next(struct etcd_claim *claim)
{
    struct stile_error err;
    unsigned i = etcd_ghosts_unarmed(claim);
    etcd_claim_move(claim, ARMING);
    claim->in_flight = true;
    if (i < GHOSTS ? etcd_ghost_request_lease(claim, i, on_ghost_leased, &err)
                   : etcd_ghosts_bind(claim, on_ghosts_bound, &err)) {
        claim->in_flight = false;
        retry_or_fail(claim, &err);
    }
}

/* ---- at the head: the plain key of etcd3's Lock ---- */

static void on_plain_event(struct key_watch *watch, const Etcd__KeyValue *kv, bool deleted)
{
    struct etcd_claim *claim = claim_of_watch(watch);
    if (kv && !deleted)
        return;
    if (claim->state == TAKING_PLAIN)
        claim->changed = true;
    else if (claim->state == WAITING_PLAIN)
        ask_plain(claim);
}

static void is_queued(struct etcd_claim *claim)
{
    claim->tries = 0;
    base_of(claim)->engine->events->queued(base_of(claim));
    if (!claim->recent_link && !claim->since_put)
        etcd_claim_add_recent(claim);
}

static void wait_for_plain(struct etcd_claim *claim, int64_t revision)
{
    etcd_claim_move(claim, WAITING_PLAIN);
    is_queued(claim);
    if (etcd_plain_watch(claim, revision, on_plain_event))
        etcd_claim_retry_later(claim, retry);
    else if (claim->changed)
        ask_plain(claim);
}

static void act_on_plain(struct etcd_claim *claim, const Etcd__TxnResponse *answer)
{
    switch (etcd_plain_read(claim, answer)) {
    case PLAIN_TAKEN:
        etcd_claim_unwatch(claim);
        claim->tries = 0;
        arm_or_grant(claim);
        break;
    case PLAIN_HELD:
        if (base_of(claim)->wait)
            wait_for_plain(claim, answer->header->revision);
        else
            etcd_claim_withdraw(claim);
        break;
    case PLAIN_STALE:
        ask_plain(claim);
        break;
    case PLAIN_OWN_KEY_GONE:
        start_over(claim);
        break;
    }
}

static void on_plain_answer(void *data, const ProtobufCMessage *message,
                            const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    if (!etcd_claim_answered(claim, err))
        return;
    if (err)
        retry_or_fail(claim, err);
    else
        act_on_plain(claim, (const Etcd__TxnResponse *)message);
}

static void ask_plain(struct etcd_claim *claim)
{
    struct stile_error err;
    loop_disarm(base_of(claim)->engine->loop, &claim->timer);
    etcd_claim_move(claim, TAKING_PLAIN);
    claim->changed = false;
    claim->in_flight = true;
    if (etcd_plain_request(claim, on_plain_answer, &err)) {
        claim->in_flight = false;
        etcd_claim_retry_later(claim, retry);
    }
}

/* ---- in the queue ---- */

/* A watch that begins in the moment of somebody's write is served by a loop of the server that runs
 * ten times a second, until it has caught up. So a claim that has not waited for long checks from
 * time to time, unless its turn is far away. */
static void doubt_watch(struct etcd_claim *claim, const struct queue_position *position,
                        bool is_near)
{
    struct loop *loop = base_of(claim)->engine->loop;
    if (!claim->doubt_ns)
        claim->doubt_ns = DOUBT_NS * (1 + position->in_the_way);
    if (claim->watch.live || claim->doubt_ns > SURE_NS || !is_near)
        return;
    claim->timer.fn = retry;
    loop_arm(loop, &claim->timer, loop_now(loop) + claim->doubt_ns);
    claim->doubt_ns *= 2;
}

static void on_watched_read(void *data, const ProtobufCMessage *message,
                            const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    if (!etcd_claim_answered(claim, err))
        return;
    etcd_claim_move(claim, WAITING);
    if (err || claim->changed || !is_leased(claim) ||
        !((const Etcd__TxnResponse *)message)->succeeded)
        look(claim);
}

static void look_at_watched(struct etcd_claim *claim)
{
    struct stile_error err;
    etcd_claim_move(claim, CHECKING);
    claim->changed = false;
    claim->in_flight = true;
    if (etcd_queue_read_watched(claim, on_watched_read, &err)) {
        claim->in_flight = false;
        etcd_claim_retry_later(claim, retry);
    }
}

/* What happens while the claim is checking may be later than what it sees. */
static void on_queue_event(struct key_watch *watch, const Etcd__KeyValue *kv, bool deleted)
{
    struct etcd_claim *claim = claim_of_watch(watch);
    if ((kv && !deleted) || (kv && claim->before && !etcd_queue_has_room(claim, kv)))
        return;
    if (!kv && claim->timer.place && claim->distance != NEXT)
        return; /* it will check soon anyway */
    claim->doubt_ns = kv ? claim->doubt_ns : 0;
    if (claim->state == CHECKING)
        claim->changed = true;
    else if (claim->state == WAITING && !kv && claim->distance == FAR)
        look_at_watched(claim);
    else if (claim->state == WAITING)
        look(claim);
}

static void wait_in_queue(struct etcd_claim *claim, const struct queue_position *position,
                          const struct key *name, const Etcd__RangeResponse *range,
                          int64_t revision)
{
    struct stile_error err;
    etcd_claim_move(claim, WAITING);
    is_queued(claim);
    if (etcd_queue_watch(claim, position, name, range, revision, on_queue_event, &err))
        etcd_claim_retry_later(claim, retry);
    else if (claim->changed)
        look(claim);
    else
        doubt_watch(claim, position, !range->more);
}

/* What is before the claim's key, as of `revision`: it is first, waits, or is withdrawn. */
static void act_on_queue(struct etcd_claim *claim, const Etcd__RangeResponse *range,
                         int64_t revision)
{
    struct claim *base = base_of(claim);
    struct queue_position position;
    struct key name;
    etcd_key_of_name(&name, etcd_of_claim(claim), base->name, base->name_len);
    etcd_queue_locate(&position, base, &name, NULL, claim->revision, range);
    if (position.unclear) {
        claim->read_all = true;
        look(claim);
    } else if (!position.blocked) {
        reached_head(claim);
    } else if (base->wait) {
        wait_in_queue(claim, &position, &name, range, revision);
    } else {
        etcd_claim_withdraw(claim);
    }
}

/* ---- checking ---- */

static void send_look(struct etcd_claim *claim);

/* The scan is over before its result is used: that may begin another one. */
static void finish_scan(struct etcd_claim *claim)
{
    struct queue_scan *scan = claim->scan;
    claim->scan = NULL;
    etcd_queue_sort(&scan->range);
    act_on_queue(claim, &scan->range, scan->revision);
    etcd_queue_scan_free(scan);
}

static void take_page(struct etcd_claim *claim, const Etcd__RangeResponse *page, int64_t revision)
{
    struct stile_error err;
    if (!etcd_queue_scan_add(claim, page, revision)) {
        etcd_queue_scan_end(claim);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        retry_or_fail(claim, &err);
    } else if (etcd_queue_scan_next(claim, page)) {
        send_look(claim);
    } else {
        finish_scan(claim);
    }
}

static void look_failed(struct etcd_claim *claim, const struct stile_error *err)
{
    if (err->native == ETCD_ERROR_TOO_LONG && etcd_queue_scan_less(claim)) {
        send_look(claim);
    } else if (err->native == ETCD_ERROR_TOO_LONG && !claim->scan) {
        claim->read_all = true;
        look(claim);
    } else {
        etcd_queue_scan_end(claim);
        retry_or_fail(claim, err);
    }
}

static void on_looked(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    if (!etcd_claim_answered(claim, err))
        return;
    if (err) {
        look_failed(claim, err);
        return;
    }
    const Etcd__RangeResponse *range = etcd_txn_range_reply(answer, 0);
    bool ours = answer->succeeded;
    if (!ours || !range || !answer->header)
        start_over(claim);
    else if (claim->scan)
        take_page(claim, range, answer->header->revision);
    else
        act_on_queue(claim, range, answer->header->revision);
}

static void send_look(struct etcd_claim *claim)
{
    struct stile_error err;
    claim->in_flight = true;
    if (etcd_queue_read(claim, on_looked, &err)) {
        claim->in_flight = false;
        etcd_claim_retry_later(claim, retry);
    }
}

/* Its key exists: is it first by now? */
static void look(struct etcd_claim *claim)
{
    loop_disarm(base_of(claim)->engine->loop, &claim->timer);
    etcd_claim_move(claim, CHECKING);
    claim->changed = false;
    etcd_queue_scan_end(claim);
    if (claim->read_all && !etcd_queue_scan_begin(claim))
        etcd_claim_retry_later(claim, retry);
    else
        send_look(claim);
}

/* ---- a key of ours that was there already ---- */

static void on_cleared(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    (void)message;
    if (!etcd_claim_answered(claim, err))
        return;
    claim->ghosts_left = claim->ghosts_left && err;
    if (err)
        etcd_claim_fail(claim, err);
    else
        send_claim(claim, first_step(claim));
}

/* A request of an earlier claim of ours was executed after all. Its place and its token are not
 * this claim's: nobody may hold with a token that was given out before. The ghosts that were put
 * beside it are older than the key that comes next, and go with it. */
static void clear_own(struct etcd_claim *claim, int64_t seen)
{
    struct stile_error err;
    struct key own, plain, ghosts[GHOSTS];
    struct txn txn;
    key_of_own(&own, claim);
    etcd_txn_init(&txn);
    etcd_txn_if_not_after(&txn, &own, seen);
    etcd_txn_delete(&txn, THEN, &own);
    etcd_ghosts_delete(claim, &txn, &own, ghosts);
    if (etcd_of_claim(claim)->plain_key)
        etcd_plain_delete(claim, &txn, &own, &plain);
    etcd_claim_move(claim, CLEARING);
    claim->in_flight = true;
    if (etcd_txn_send(&txn, etcd_of_claim(claim), on_cleared, claim, &err)) {
        claim->in_flight = false;
        etcd_claim_fail(claim, &err);
    }
}

static bool overwrote_own(const Etcd__TxnResponse *answer)
{
    return etcd_txn_overwrote(answer, 0);
}

/* ---- the first request ---- */

static bool is_long(const Etcd__RangeResponse *range)
{
    return range->more;
}

static void answer_busy(struct etcd_claim *claim)
{
    struct claim *base = base_of(claim);
    etcd_claim_forget(claim);
    base->engine->events->busy(base, 0);
}

/* TRYING: the key was not put, because the name has others. Those may be of longer names. */
static void act_on_try(struct etcd_claim *claim, const Etcd__RangeResponse *range, int64_t revision)
{
    struct claim *base = base_of(claim);
    struct queue_position position;
    struct key name, own;
    etcd_key_of_name(&name, etcd_of_claim(claim), base->name, base->name_len);
    key_of_own(&own, claim);
    etcd_queue_locate(&position, base, &name, &own, INT64_MAX, range);
    if (position.own)
        clear_own(claim, revision);
    else if (position.blocked)
        answer_busy(claim);
    else
        send_claim(claim, JOINING);
}

/* JOINING: the key is put, and this is the queue with it: all of it, or its first keys. */
static void act_on_join(struct etcd_claim *claim, const Etcd__TxnResponse *answer,
                        const Etcd__RangeResponse *range)
{
    struct claim *base = base_of(claim);
    struct queue_position position;
    struct key name;
    if (overwrote_own(answer)) {
        clear_own(claim, answer->header->revision);
        return;
    }
    claim->revision = answer->header->revision;
    if (!is_long(range)) {
        act_on_queue(claim, range, claim->revision);
        return;
    }
    etcd_key_of_name(&name, etcd_of_claim(claim), base->name, base->name_len);
    etcd_queue_locate(&position, base, &name, NULL, claim->revision, range);
    claim->read_all = position.unclear; /* most are of longer names */
    look(claim);
}

static void lease_is_gone(struct etcd_claim *claim)
{
    enum claim_state state = claim->state;
    etcd_lease_lost(claim->lease, claim->lease_id);
    if (claim->state != state)
        return; /* core has released it meanwhile */
    etcd_claim_move(claim, LEASING);
    if (etcd_lease_ensure(claim->lease))
        on_leased(claim);
}

static void fail_strange(struct etcd_claim *claim)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0, "the server's answer has an unexpected form");
    etcd_claim_fail(claim, &err);
}

static void act_on_claim(struct etcd_claim *claim, const Etcd__TxnResponse *answer)
{
    const Etcd__RangeResponse *range =
        answer->n_responses ? etcd_txn_range_reply(answer, answer->n_responses - 1) : NULL;
    bool won = answer->succeeded && claim->state == TRYING;
    if (!answer->header || (!won && !range)) {
        fail_strange(claim);
    } else if (won) {
        claim->revision = answer->header->revision;
        reached_head(claim);
    } else {
        etcd_queue_sort(range);
        if (claim->state == JOINING)
            act_on_join(claim, answer, range);
        else
            act_on_try(claim, range, answer->header->revision);
    }
}

static void on_claimed(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct etcd_claim *claim = data;
    if (!etcd_claim_answered(claim, err))
        return;
    if (err && err->native == ETCD_ERROR_NO_LEASE && claim->tries++ < TRIES_MAX)
        lease_is_gone(claim);
    else if (err)
        etcd_claim_fail(claim, err);
    else
        act_on_claim(claim, (const Etcd__TxnResponse *)message);
}

/* In the order of its keys: to sort it by creation the server reads all of it, and does so on every
 * member, as this is part of a write. */
static void start_of_queue(Etcd__RangeRequest *range)
{
    range->limit = SHORT_QUEUE + 1 + GHOSTS;
    range->keys_only = true;
}

static void write_join(struct etcd_claim *claim, struct txn *txn, struct batch_room *room)
{
    struct claim *base = base_of(claim);
    struct etcd *etcd = etcd_of_claim(claim);
    etcd_value_of_claim(room->value, etcd, base);
    key_of_own(&room->keys[0], claim);
    etcd_key_of_name(&room->keys[1], etcd, base->name, base->name_len);
    etcd_key_range_end(&room->keys[2], &room->keys[1]);
    etcd_txn_put(txn, THEN, &room->keys[0], room->value, claim->lease_id)->prev_kv = true;
    start_of_queue(etcd_txn_range(txn, THEN, &room->keys[1], &room->keys[2]));
}

static void join_alone(struct etcd_claim *claim)
{
    struct etcd *etcd = etcd_of_claim(claim);
    struct stile_error err;
    struct batch_room room;
    struct txn txn;
    etcd_txn_init(&txn);
    write_join(claim, &txn, &room);
    if (etcd_txn_send(&txn, etcd, on_claimed, claim, &err)) {
        claim->in_flight = false;
        etcd_claim_fail(claim, &err);
    }
}

static void on_join_answered(struct etcd_claim *claim, const ProtobufCMessage *answer,
                             const struct stile_error *err)
{
    on_claimed(claim, answer, err);
}

const struct batch_class etcd_batch_join = {write_join, join_alone, on_join_answered};

/* Keys that one transaction creates have one revision, which says nothing about which is first: so
 * they must be of different names. A client has one exclusive claim on a name at a time. */
static bool joins_with_others(struct etcd_claim *claim)
{
    return base_of(claim)->mode == STILE_EXCLUSIVE && !etcd_ghosts_any(claim);
}

/* JOINING puts the key behind those that are there: if there are none, the claim holds. TRYING puts
 * it only then. One step either way. */
static void send_claim(struct etcd_claim *claim, enum claim_state as)
{
    struct claim *base = base_of(claim);
    struct etcd *etcd = etcd_of_claim(claim);
    struct stile_error err;
    struct key own, name, end, ghosts[GHOSTS];
    char value[VALUE_MAX];
    struct txn txn;
    etcd_ghosts_plan(claim);
    etcd_claim_move(claim, as);
    claim->in_flight = true;
    if (as == JOINING && joins_with_others(claim)) {
        etcd_batch_add(claim, BATCH_JOIN);
        return;
    }
    etcd_value_of_claim(value, etcd, base);
    key_of_own(&own, claim);
    etcd_key_of_name(&name, etcd, base->name, base->name_len);
    etcd_key_range_end(&end, &name);
    etcd_txn_init(&txn);
    if (as == TRYING)
        etcd_txn_if_none(&txn, &name, &end);
    etcd_txn_put(&txn, THEN, &own, value, claim->lease_id)->prev_kv = true;
    etcd_ghosts_put(claim, &txn, THEN, &own, value, ghosts);
    start_of_queue(etcd_txn_range(&txn, as == TRYING ? ELSE : THEN, &name, &end));
    if (etcd_txn_send(&txn, etcd, on_claimed, claim, &err)) {
        claim->in_flight = false;
        etcd_claim_fail(claim, &err);
    }
}

static uint32_t next_sharer(struct etcd *etcd)
{
    if (++etcd->last_sharer == 0)
        ++etcd->last_sharer;
    return etcd->last_sharer;
}

void etcd_claim_acquire(struct engine *engine, struct claim *base)
{
    struct etcd_claim *claim = claim_of(base);
    struct stile_error err;
    struct lease *lease = etcd_lease_for(etcd_of(engine), base->ttl_ns);
    *claim = (struct etcd_claim){.state = IDLE};
    if (!lease || loop_reserve(engine->loop, 1)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory, or too many different TTLs");
        engine->events->failed(base, &err);
        return;
    }
    if (base->mode != STILE_EXCLUSIVE)
        claim->number = next_sharer(etcd_of(engine));
    etcd_claim_attach(claim, lease);
    etcd_claim_move(claim, LEASING);
    if (etcd_lease_ensure(lease))
        on_leased(claim);
}

/* ---- what the lease reports ---- */

static void on_lease_ready(struct lease *lease)
{
    for (struct etcd_claim *claim = lease->claims, *next; claim && lease->id; claim = next) {
        next = claim->next;
        if (claim->state == LEASING)
            on_leased(claim);
    }
}

static void on_lease_failed(struct lease *lease, const struct stile_error *err)
{
    for (struct etcd_claim *claim = lease->claims, *next; claim; claim = next) {
        next = claim->next;
        if (claim->state == LEASING)
            etcd_claim_fail(claim, err);
    }
}

static void on_lease_ended(struct lease *lease)
{
    for (struct etcd_claim *claim = lease->claims; claim; claim = claim->next) {
        if (claim->state != HELD && claim->state != WAITING && claim->state != WAITING_PLAIN)
            continue;
        etcd_claim_unwatch(claim);
        if (claim->state == HELD)
            etcd_claim_move(claim, LOST);
        else
            await_lease(claim);
    }
}

const struct lease_events etcd_claim_lease_events = {
    .ready = on_lease_ready, .failed = on_lease_failed, .ended = on_lease_ended};
