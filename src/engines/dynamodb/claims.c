/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A claim, from its first request to its end. */
#include "engines/dynamodb/claims.h"

#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "engines/dynamodb/item.h"
#include "engines/dynamodb/writes.h"

#define TRIES_MAX       8 /* of a claim whose write always meets another client's */
#define BUSY_AGAIN_NS   (20 * NS_PER_MS)
#define PATIENCE_MIN_NS (250 * NS_PER_MS)
#define GONE_MAX        32 /* marks of withdrawn claims; the oldest are long over */
#define UNCHANGED       UINT64_MAX

/* ---- the states ---- */

#define TO(state) (1u << (state))
#define TO_END    (TO(CLAIM_IDLE) | TO(CLAIM_UNDECIDED))

/* Where each state may lead. A new claim may follow UNDECIDED and UNRELEASED: core stops repeating
 * a release when the lease must be over. */
static const unsigned transitions[] = {
    [CLAIM_IDLE] = TO(CLAIM_ASKING) | TO(CLAIM_LOOKING) | TO(CLAIM_RESUMING) | TO(CLAIM_IDLE),
    [CLAIM_ASKING] =
        TO(CLAIM_HELD) | TO(CLAIM_COUNTING) | TO(CLAIM_LOOKING) | TO(CLAIM_ABANDONED) | TO_END,
    [CLAIM_LOOKING] = TO(CLAIM_HELD) | TO(CLAIM_COUNTING) | TO(CLAIM_ASKING) | TO(CLAIM_TAKING) |
                      TO(CLAIM_WITHDRAWING) | TO_END,
    [CLAIM_COUNTING] = TO(CLAIM_SEALING) | TO(CLAIM_WITHDRAWING) | TO_END,
    [CLAIM_SEALING] = TO(CLAIM_HELD) | TO(CLAIM_LOOKING) | TO(CLAIM_WITHDRAWING) | TO_END,
    [CLAIM_TAKING] =
        TO(CLAIM_HELD) | TO(CLAIM_COUNTING) | TO(CLAIM_LOOKING) | TO(CLAIM_ABANDONED) | TO_END,
    [CLAIM_RESUMING] = TO(CLAIM_HELD) | TO(CLAIM_RELEASING) | TO(CLAIM_IDLE),
    [CLAIM_HELD] = TO(CLAIM_RELEASING) | TO(CLAIM_IDLE),
    [CLAIM_UNDECIDED] = TO(CLAIM_WITHDRAWING) | TO(CLAIM_ASKING) | TO(CLAIM_LOOKING),
    [CLAIM_ABANDONED] = TO(CLAIM_WITHDRAWING) | TO(CLAIM_IDLE),
    [CLAIM_WITHDRAWING] = TO(CLAIM_MARKING) | TO_END,
    [CLAIM_MARKING] = TO(CLAIM_WITHDRAWING) | TO_END,
    [CLAIM_RELEASING] = TO(CLAIM_UNRELEASED) | TO(CLAIM_IDLE),
    [CLAIM_UNRELEASED] = TO(CLAIM_RELEASING) | TO(CLAIM_ASKING) | TO(CLAIM_LOOKING),
};

/* Core may forget a claim in the other states. */
static bool is_counted(enum claim_state state)
{
    return state != CLAIM_IDLE && state != CLAIM_UNDECIDED && state != CLAIM_UNRELEASED;
}

static void move_to(struct dynamo_claim *c, enum claim_state state)
{
    assert(transitions[c->state] & TO(state));
    c->dynamo->n_claims += (size_t)is_counted(state) - (size_t)is_counted(c->state);
    c->state = state;
}

static struct claim *base_of(struct dynamo_claim *c)
{
    return leased_base(&c->leased);
}

static const struct engine_events *events_of(struct dynamo_claim *c)
{
    return c->dynamo->engine.events;
}

static const struct dialect *dialect_of(struct dynamo_claim *c)
{
    return c->dynamo->dialect;
}

static uint64_t now_of(struct dynamo_claim *c)
{
    return loop_now(loop_of(c->dynamo));
}

/* A part of the lease: an answer that comes after it is of no use, and others wait. */
static uint64_t patience_ns(struct dynamo_claim *c)
{
    uint64_t part = base_of(c)->ttl_ns / 3;
    return part < PATIENCE_MIN_NS ? PATIENCE_MIN_NS : part < PATIENCE_NS ? part : PATIENCE_NS;
}

static void start(struct dynamo_claim *c, const char *operation, call_done *done)
{
    ddb_call_start(c->dynamo, &c->call, operation, patience_ns(c), done);
}

static struct dynamo_claim *of_call(struct call *call)
{
    return container_of(call, struct dynamo_claim, call);
}

/* ---- the grant ---- */

static bool is_ours(struct dynamo_claim *c, const struct json *attributes)
{
    const struct claim *claim = base_of(c);
    return ddb_item_is(c->dynamo, attributes, dialect_of(c)->kind, claim->name, claim->name_len);
}

static void grant(struct dynamo_claim *c, uint64_t token)
{
    struct claim *claim = base_of(c);
    move_to(c, CLAIM_HELD);
    c->was_busy = false;
    c->hold_until_ns = claim->hold_ns ? c->sent_ns + claim->hold_ns : 0;
    events_of(c)->granted(claim, token, c->sent_ns, claim->ttl_ns);
}

static void fail(struct dynamo_claim *c, const struct stile_error *err)
{
    struct stile_error why = *err;
    if (c->doubt)
        why.status = STILE_UNCERTAIN;
    else if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE;
    move_to(c, c->doubt ? CLAIM_UNDECIDED : CLAIM_IDLE);
    events_of(c)->failed(base_of(c), &why);
}

static void fail_with(struct dynamo_claim *c, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    fail(c, &err);
}

/* A write whose outcome is not known may arrive after this claim has been forgotten: so it is
 * failed in doubt, and withdrawn. */
static void be_busy(struct dynamo_claim *c, uint64_t hint_ns)
{
    if (c->doubt) {
        fail_with(c, STILE_UNCERTAIN, "the lock is held, and an earlier request may still arrive");
        return;
    }
    c->was_busy = true;
    move_to(c, CLAIM_IDLE);
    events_of(c)->busy(base_of(c), hint_ns);
}

/* ---- a token that is counted elsewhere ---- */

/* It stays in the item: core withdraws it. */
static void fail_taken(struct dynamo_claim *c, const struct stile_error *err)
{
    c->doubt = true;
    fail(c, err);
}

static void fail_taken_with(struct dynamo_claim *c, const char *why)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0, "%s", why);
    fail_taken(c, &err);
}

static void look(struct dynamo_claim *c);

/* Else it is the answer of another request. */
static bool is_sealed(struct dynamo_claim *c, const struct json *attributes)
{
    struct stile_error err;
    struct item item = {0};
    const struct item_claim *mine = NULL;
    if (is_ours(c, attributes) &&
        !dialect_of(c)->read(&item, c->dynamo, attributes, now_of(c), &err))
        mine = ddb_item_find(&item, c->leased.owner);
    bool sealed = mine && mine->token == c->counted;
    c->number = mine ? mine->number : 0;
    ddb_item_free(&item);
    return sealed;
}

static void on_sealed(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    if (call->result == CALL_CONDITION) { /* taken from us since */
        look(c);
    } else if (call->result == CALL_FAILED) {
        fail_taken(c, &call->err);
    } else if (!is_sealed(c, ddb_json_get(call->reply, "Attributes"))) {
        fail_taken_with(c, "the answer is about another claim");
    } else {
        c->sent_ns = call->first_ns;
        grant(c, c->counted);
    }
}

/* The first token of the block; 0: the answer is not about this claim. */
static uint64_t read_block(struct dynamo_claim *c, const struct json *attributes)
{
    uint64_t last, block = dialect_of(c)->block;
    const char *whose = ddb_json_text(ddb_attribute(attributes, "for", "S"));
    bool ours = whose && strcmp(whose, c->leased.owner) == 0;
    bool good = ddb_json_u64(&last, ddb_attribute(attributes, "token", "N"));
    return ours && good && last >= block ? last - block + 1 : 0;
}

static void on_counted(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    c->counted = read_block(c, ddb_json_get(call->reply, "Attributes"));
    if (call->result != CALL_OK) {
        fail_taken(c, &call->err);
    } else if (!c->counted) {
        fail_taken_with(c, "the answer has no token for this claim");
    } else {
        move_to(c, CLAIM_SEALING);
        dialect_of(c)->seal(c, c->counted);
        start(c, "UpdateItem", on_sealed);
    }
}

static void count(struct dynamo_claim *c)
{
    move_to(c, CLAIM_COUNTING);
    ddb_write_count(c, dialect_of(c)->block);
    start(c, "UpdateItem", on_counted);
}

static void grant_or_count(struct dynamo_claim *c, uint64_t token)
{
    if (token)
        grant(c, token);
    else
        count(c);
}

/* ---- asking, looking, taking ---- */

static void note_write(struct dynamo_claim *c)
{
    if (!c->sent_ns)
        c->sent_ns = c->call.first_ns;
    c->doubt |=
        c->call.doubt || (c->call.result == CALL_FAILED && c->call.err.status == STILE_UNCERTAIN);
}

/* The answer of a write that took effect has the claim in it; else it answers another request. */
static void check_written(struct dynamo_claim *c)
{
    const struct json *attributes = ddb_json_get(c->call.reply, "Attributes");
    struct stile_error err = {0};
    struct item item = {0};
    const struct item_claim *mine = NULL;
    if (is_ours(c, attributes) &&
        !dialect_of(c)->read(&item, c->dynamo, attributes, now_of(c), &err))
        mine = ddb_item_find(&item, c->leased.owner);
    bool written = mine != NULL;
    uint64_t token = mine ? dialect_of(c)->token(&item, mine) : 0;
    c->number = mine ? mine->number : 0;
    c->sweep = item.gone > GONE_MAX;
    ddb_item_free(&item);
    if (written) {
        grant_or_count(c, token);
        return;
    }
    c->doubt = true;
    fail_with(c, STILE_UNCERTAIN, "the answer is about another claim");
}

static void on_written(struct call *call);

static void ask(struct dynamo_claim *c)
{
    move_to(c, CLAIM_ASKING);
    dialect_of(c)->ask(c);
    start(c, "UpdateItem", on_written);
}

static void wait_for(struct dynamo_claim *c, uint64_t ends_ns)
{
    uint64_t now = now_of(c), poll = c->dynamo->poll_ms * NS_PER_MS;
    uint64_t left = ends_ns > now ? ends_ns - now : BUSY_AGAIN_NS;
    be_busy(c, left < poll ? left : poll);
}

static void take_item(struct dynamo_claim *c, const struct item *item)
{
    const struct claim *claim = base_of(c);
    const struct item_claim *mine = ddb_item_find(item, c->leased.owner);
    uint64_t ends_ns;
    if (mine && ++c->tries > TRIES_MAX) {
        fail_taken_with(c, "the counter of the table's tokens went back");
    } else if (mine) {
        c->number = mine->number;
        grant_or_count(c, dialect_of(c)->token(item, mine));
    } else if (!ddb_item_admits(item, claim->mode, claim->slots, &ends_ns)) {
        wait_for(c, ends_ns);
    } else if (++c->tries > TRIES_MAX) {
        be_busy(c, BUSY_AGAIN_NS);
    } else if (item->n == 0) {
        ask(c);
    } else {
        move_to(c, CLAIM_TAKING);
        dialect_of(c)->take(c, item);
        start(c, "UpdateItem", on_written);
    }
}

static void take_attributes(struct dynamo_claim *c, const struct json *attributes)
{
    struct stile_error err;
    struct item item = {0};
    if (attributes && !is_ours(c, attributes))
        fail_with(c, STILE_UNREACHABLE, "the answer is about another item");
    else if (dialect_of(c)->read(&item, c->dynamo, attributes, now_of(c), &err))
        fail(c, &err);
    else
        take_item(c, &item);
    ddb_item_free(&item);
}

static void on_looked(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    if (call->result == CALL_OK)
        take_attributes(c, ddb_json_get(call->reply, "Item"));
    else
        fail(c, &call->err);
}

static void look(struct dynamo_claim *c)
{
    const struct claim *claim = base_of(c);
    move_to(c, CLAIM_LOOKING);
    ddb_write_look(&c->call, c->dynamo, dialect_of(c)->kind, claim->name, claim->name_len);
    start(c, "GetItem", on_looked);
}

static void withdraw(struct dynamo_claim *c);

static void on_abandoned(struct dynamo_claim *c)
{
    bool written = c->call.result == CALL_OK;
    if (written || c->doubt) {
        withdraw(c);
        return;
    }
    move_to(c, CLAIM_IDLE);
    events_of(c)->released(base_of(c), NULL);
}

static void on_written(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    const struct json *item = ddb_json_get(call->reply, "Item");
    note_write(c);
    if (c->state == CLAIM_ABANDONED) {
        on_abandoned(c);
    } else if (call->result == CALL_OK) {
        check_written(c);
    } else if (call->result == CALL_FAILED) {
        fail(c, &call->err);
    } else if (item) {
        move_to(c, CLAIM_LOOKING);
        take_attributes(c, item);
    } else {
        look(c);
    }
}

/* ---- beginning ---- */

static bool draw(struct dynamo_claim *c, void *random, size_t size)
{
    struct stile_error err;
    int rc = loop_random(loop_of(c->dynamo), random, size);
    if (!rc)
        return true;
    error_errno(&err, STILE_REFUSED, rc, "drawing an owner value");
    events_of(c)->failed(base_of(c), &err);
    return false;
}

static bool draw_owner(struct dynamo_claim *c)
{
    unsigned char random[OWNER_LEN / 2];
    if (!draw(c, random, sizeof random) || !draw(c, &c->ghost_number, sizeof c->ghost_number))
        return false;
    hex_encode(c->leased.owner, random, sizeof random);
    return true;
}

static void begin(struct dynamo_claim *c, struct engine *engine)
{
    c->dynamo = dynamo_of(engine);
    c->doubt = c->doubtful_release = c->sweep = false;
    c->tries = 0;
    c->sent_ns = 0;
}

/* dialect=amazon stores a name as it is. */
static bool is_allowed(struct dynamo_claim *c)
{
    const struct claim *claim = base_of(c);
    char key[KEY_ROOM];
    struct stile_error err;
    if (c->dynamo->n_claims >= DDB_LOCKS_MAX) {
        error_set(&err, STILE_REFUSED, 0,
                  "this client has %d locks, and renews each with a write of its own; open another",
                  DDB_LOCKS_MAX);
        events_of(c)->failed(base_of(c), &err);
        return false;
    }
    ddb_item_key(key, dialect_of(c)->kind, claim->name, claim->name_len);
    if (dialect_of(c) == &ddb_own ||
        (strcmp(key, claim->name) == 0 && strcmp(key, KEY_TOKENS) != 0))
        return true;
    error_set(&err, STILE_REFUSED, 0, "with dialect=amazon a name is UTF-8, and not " KEY_TOKENS);
    events_of(c)->failed(base_of(c), &err);
    return false;
}

/* A waiter that has seen the lock held reads first: a write that fails costs five times a read. */
void ddb_claim(struct engine *engine, struct claim *claim)
{
    struct dynamo_claim *c = dynamo_claim_of(claim);
    begin(c, engine);
    if (!is_allowed(c) || !draw_owner(c))
        return;
    if (c->was_busy)
        look(c);
    else
        ask(c);
}

/* ---- renewals ---- */

static uint64_t hold_left_ms(struct dynamo_claim *c)
{
    uint64_t now = now_of(c);
    if (c->hold_until_ns <= now)
        return 0;
    return (c->hold_until_ns - now + NS_PER_MS - 1) / NS_PER_MS;
}

static void lose(struct dynamo_claim *c)
{
    struct stile_error err;
    error_set(&err, STILE_LOST, 0,
              "its claim is gone from the item: taken by stile break, or its lease ran out");
    events_of(c)->lost(base_of(c), &err);
}

static bool is_renewed(struct dynamo_claim *c, const struct json *reply)
{
    const struct json *attributes = ddb_json_get(reply, "Attributes");
    return is_ours(c, attributes) && dialect_of(c)->holds(attributes, c->leased.owner) &&
           dialect_of(c)->renewed(c, attributes);
}

/* Several attempts may have been executed; the first was sent first. */
static void on_renewed(struct call *call)
{
    struct dynamo_claim *c = container_of(call, struct dynamo_claim, renewal);
    struct claim *claim = base_of(c);
    if (call->result == CALL_OK && is_renewed(c, call->reply))
        events_of(c)->renewed(claim, call->first_ns, claim->ttl_ns);
    else if (call->result == CALL_CONDITION)
        lose(c);
    else
        events_of(c)->unknown(claim);
}

void ddb_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct dynamo_claim *c = dynamo_claim_of(claims[i]);
        ddb_call_cancel(&c->renewal);
        c->renewal.transfer.bulk = true;
        dialect_of(c)->renew(c, &c->renewal, c->hold_until_ns ? hold_left_ms(c) : UNCHANGED);
        ddb_call_start(dynamo_of(engine), &c->renewal, "UpdateItem", patience_ns(c), on_renewed);
    }
}

/* ---- releasing ---- */

static void end_release(struct dynamo_claim *c, enum claim_state state,
                        const struct stile_error *err)
{
    struct stile_error why;
    error_copy(&why, err);
    move_to(c, state);
    events_of(c)->released(base_of(c), err ? &why : NULL);
}

/* After a release in doubt a missing claim is no loss: that release removed it. */
static void end_missing(struct dynamo_claim *c)
{
    struct stile_error lost;
    bool ours = c->doubtful_release || c->call.doubt;
    error_set(&lost, STILE_LOST, 0, "the lock was no longer held");
    end_release(c, CLAIM_IDLE, ours ? NULL : &lost);
}

/* Whether the answer shows what the write of a release leaves; else it answers another request. */
static bool is_given_back(struct dynamo_claim *c)
{
    const struct json *attributes = ddb_json_get(c->call.reply, "Attributes");
    return is_ours(c, attributes) && !dialect_of(c)->holds(attributes, c->leased.owner);
}

static void fail_release(struct dynamo_claim *c, enum claim_state state)
{
    if (c->call.result == CALL_OK)
        error_set(&c->call.err, STILE_UNCERTAIN, 0, "the answer is about another claim");
    end_release(c, state, &c->call.err);
}

static void on_released(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    if (call->result == CALL_OK && is_given_back(c)) {
        ddb_observed_since(&c->dynamo->observed, c->leased.owner, c->ghost_number, call->first_ns);
        end_release(c, CLAIM_IDLE, NULL);
    } else if (call->result == CALL_CONDITION) {
        end_missing(c);
    } else {
        c->doubtful_release |=
            call->doubt || call->result == CALL_OK || call->err.status == STILE_UNCERTAIN;
        fail_release(c, CLAIM_UNRELEASED);
    }
}

static void give_back(struct dynamo_claim *c)
{
    const struct claim *claim = base_of(c);
    uint64_t ghost_ms = claim->unused ? 0 : hold_left_ms(c);
    uint64_t delay_ms = claim->lost ? claim->delay_ns / NS_PER_MS : 0;
    move_to(c, CLAIM_RELEASING);
    dialect_of(c)->release(c, ghost_ms > delay_ms ? ghost_ms : delay_ms);
    start(c, "UpdateItem", on_released);
}

/* ---- withdrawing ---- */

static void on_marked(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    if (call->result == CALL_CONDITION) /* it has arrived meanwhile */
        withdraw(c);
    else if (call->result == CALL_OK && is_given_back(c))
        end_release(c, CLAIM_IDLE, NULL);
    else
        fail_release(c, CLAIM_UNDECIDED);
}

static void on_withdrawn(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    if (call->result == CALL_FAILED || (call->result == CALL_OK && !is_given_back(c))) {
        fail_release(c, CLAIM_UNDECIDED);
    } else if (call->result == CALL_OK || !c->doubt || !dialect_of(c)->mark) {
        end_release(c, CLAIM_IDLE, NULL);
    } else {
        move_to(c, CLAIM_MARKING);
        dialect_of(c)->mark(c);
        start(c, "UpdateItem", on_marked);
    }
}

static void withdraw(struct dynamo_claim *c)
{
    move_to(c, CLAIM_WITHDRAWING);
    dialect_of(c)->release(c, 0);
    start(c, "UpdateItem", on_withdrawn);
}

static void end_unsent(struct dynamo_claim *c)
{
    move_to(c, CLAIM_IDLE);
    events_of(c)->released(base_of(c), NULL);
}

/* A request on its way is waited for: ending it would cost its connection, and leave a doubt. */
static void abandon(struct dynamo_claim *c)
{
    if (c->call.state == CALL_SENT) {
        move_to(c, CLAIM_ABANDONED);
        return;
    }
    c->doubt |= ddb_call_cancel(&c->call);
    move_to(c, CLAIM_ABANDONED);
    if (c->doubt)
        withdraw(c);
    else
        end_unsent(c);
}

static void stop_looking(struct dynamo_claim *c)
{
    ddb_call_cancel(&c->call);
    if (c->doubt)
        withdraw(c);
    else
        end_unsent(c);
}

/* The lock is taken, though not granted; a seal that arrives late finds it gone. */
static void stop_counting(struct dynamo_claim *c)
{
    ddb_call_cancel(&c->call);
    withdraw(c);
}

void ddb_release(struct engine *engine, struct claim *claim)
{
    struct dynamo_claim *c = dynamo_claim_of(claim);
    c->dynamo = dynamo_of(engine);
    ddb_call_cancel(&c->renewal);
    if (c->state == CLAIM_ASKING || c->state == CLAIM_TAKING)
        abandon(c);
    else if (c->state == CLAIM_LOOKING)
        stop_looking(c);
    else if (c->state == CLAIM_COUNTING || c->state == CLAIM_SEALING)
        stop_counting(c);
    else if (c->state == CLAIM_UNDECIDED)
        withdraw(c);
    else if (c->state == CLAIM_IDLE)
        end_unsent(c);
    else
        give_back(c);
}

/* ---- detached claims ---- */

static void restore(struct dynamo_claim *c, const struct item_claim *stored)
{
    struct claim *claim = base_of(c);
    claim->mode = stored->mode;
    claim->slots = (uint32_t)stored->slots;
    claim->hold_ns = stored->hold_ms * NS_PER_MS;
    claim->delay_ns = stored->delay_ms * NS_PER_MS;
    claim->ttl_ns = stored->ttl_ms * NS_PER_MS;
    c->number = stored->number;
    c->sent_ns = c->call.first_ns;
    grant(c, stored->token);
}

/* Never fails in doubt: core would withdraw a claim that its owner wants to keep. */
static void on_resumed(struct call *call)
{
    struct dynamo_claim *c = of_call(call);
    struct item item = {0};
    struct stile_error err = call->err;
    const struct item_claim *mine = NULL;
    const struct json *attributes = ddb_json_get(call->reply, "Attributes");
    if (call->result == CALL_CONDITION)
        error_set(&err, STILE_LOST, 0, "this owner value does not hold it, or no longer");
    else if (call->result == CALL_OK &&
             !dialect_of(c)->read(&item, c->dynamo, attributes, now_of(c), &err))
        mine = ddb_item_find(&item, c->leased.owner);
    if (mine) {
        restore(c, mine);
    } else {
        if (!err.status || err.status == STILE_UNCERTAIN)
            error_set(&err, STILE_UNREACHABLE, 0, "no answer about this claim came");
        move_to(c, CLAIM_IDLE);
        events_of(c)->failed(base_of(c), &err);
    }
    ddb_item_free(&item);
}

static void resume(struct engine *engine, struct claim *claim)
{
    struct dynamo_claim *c = dynamo_claim_of(claim);
    struct stile_error err;
    begin(c, engine);
    if (leased_take_owner(claim, OWNER_LEN, &err)) {
        engine->events->failed(claim, &err);
        return;
    }
    if (!draw(c, &c->ghost_number, sizeof c->ghost_number))
        return;
    move_to(c, CLAIM_RESUMING);
    dialect_of(c)->renew(c, &c->call, UNCHANGED);
    start(c, "UpdateItem", on_resumed);
}

static void detach(struct engine *engine, struct claim *claim)
{
    struct dynamo_claim *c = dynamo_claim_of(claim);
    (void)engine;
    ddb_call_cancel(&c->renewal);
    move_to(c, CLAIM_IDLE);
}

static const char *owner_of(struct engine *engine, struct claim *claim)
{
    (void)engine;
    return leased_of(claim)->owner;
}

const struct engine_detached ddb_detached = {
    .resume = resume,
    .detach = detach,
    .owner = owner_of,
};
