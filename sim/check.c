/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the events, with what is known of each claim, name and client so far. */
#include "sim/check.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/check_claims.h"

/* ---- tokens ---- */

static struct token_seen *token_place(struct check *check, uint32_t name, uint64_t token)
{
    uint64_t hash = (token + name * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    for (size_t i = hash >> 20;; i++) {
        struct token_seen *place = &check->tokens[i & check->token_mask];
        if (place->event == NOWHERE || (place->name == name && place->token == token))
            return place;
    }
}

/* Where two may hold a lock, a client that stood still, or whose answer was slow, may learn of its
 * grant after the next one. */
static bool is_old_news(const struct check *check, const struct claim_seen *claim)
{
    size_t top = check->names[claim->name].top_event;
    bool slow = claim->asked < top && check_now(check) < check->history->events[top].ns + NEWS_NS;
    return (claim->excused || slow) && !(check->promises->rules & 1u << RULE_OVERLAP);
}

static void check_token(struct check *check, struct claim_seen *claim)
{
    const struct event *event = &check->history->events[check->at];
    struct name_seen *name = &check->names[claim->name];
    struct token_seen *place = token_place(check, claim->name, event->token);
    uint64_t floor = claim->mode == STILE_EXCLUSIVE ? name->top_token : claim->token_before;
    if (place->event != NOWHERE)
        check_violate(check, RULE_TOKEN_TWICE, place->event, NOWHERE,
                      "Token %" PRIu64 " of %s was issued twice: to c%" PRIu32 " and to c%" PRIu32
                      ".",
                      event->token, check_name_of(check, claim->name),
                      check->history->events[place->event].client, claim->client);
    else if (event->token <= floor && name->broken_ns <= event->ns && !is_old_news(check, claim))
        check_violate(check, RULE_TOKEN_ORDER, name->top_event, NOWHERE,
                      "c%" PRIu32 " was granted %s with token %" PRIu64 ", although %" PRIu64
                      " had been issued before.",
                      claim->client, check_name_of(check, claim->name), event->token, floor);
    *place = (struct token_seen){claim->name, event->token, check->at};
    if (event->token > name->top_token) {
        name->top_token = event->token;
        name->top_event = check->at;
    }
}

/* ---- events ---- */

static void on_asked(struct check *check, const struct event *event)
{
    struct name_seen *name = &check->names[event->name];
    check_expire(check, name, event->ns);
    check->claims[event->claim] =
        (struct claim_seen){.state = WAITING,
                            .client = event->client,
                            .name = event->name,
                            .mode = event->mode,
                            .slots = event->slots,
                            .asked = check->at,
                            .queued = NOWHERE,
                            .granted = NOWHERE,
                            .released = NOWHERE,
                            .until_ns = event->until_ns,
                            .excused = event->foreign && !check->promises->queues_foreign,
                            .unnamed = name->n_breaks == 0,
                            .alone = name->alive == 0 && name->still_ns + STILL_NS < event->ns,
                            .token_before = name->top_token};
    name->alive++;
    name->asked = check->at;
    check_list_append(check, &check->clients[event->client].claims, event->claim, OF_CLIENT);
}

static void on_queued(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    if (claim->state != WAITING || claim->queued != NOWHERE)
        return;
    claim->queued = check->at;
    if (claim->mode == STILE_EXCLUSIVE && !claim->excused)
        check_list_append(check, &check->names[claim->name].queue, event->claim, OF_NAME);
}

static void hold(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    bool foreign = check->history->events[claim->asked].foreign;
    uint64_t waited = event->ns - check->history->events[claim->asked].ns;
    if (waited > check->verdict->longest_wait_ns)
        check->verdict->longest_wait_ns = waited;
    check->verdict->grants++;
    claim->state = HELD;
    check->names[claim->name].delayed = false;
    check->names[claim->name].left_foreign = foreign;
    claim->granted = check->at;
    claim->slow =
        check->faults > 0 || (check->healed_ns != 0 && event->ns < check->healed_ns + HAND_NS);
    claim->deadline_ns = claim->first_until = event->deadline_ns;
    bool in_queue = !foreign || claim->queued != NOWHERE;
    if (in_queue && check->names[claim->name].dead_asked < claim->asked)
        check->names[claim->name].n_dead = 0; /* all in front of it in the queue had their turn */
    check_list_remove(check, event->claim, OF_NAME);
    check_list_append(check, &check->names[claim->name].holders, event->claim, OF_NAME);
}

/* A break has not come far enough to end all that was held, but far enough for another grant. */
static void pass_broken(struct check *check, struct name_seen *name, uint64_t ns)
{
    bool held_on = false;
    for (uint32_t i = 0; i < name->n_broken; i++)
        held_on |= check_is_held_on(check, &check->claims[name->broken[i]]);
    if (name->passed_ns != 0 || !held_on)
        return;
    name->passed_ns = ns;
    check->passed++;
}

static void check_kept(struct check *check, const struct claim_seen *claim,
                       const struct event *event)
{
    const struct name_seen *name = &check->names[claim->name];
    if (event->ns >= name->kept_ns || name->broken_ns > event->ns ||
        check->history->events[claim->asked].ignores_holds)
        return;
    const struct claim_seen *keeper = &check->claims[name->kept_by];
    check_violate(check, RULE_KEPT, keeper->granted, claim->asked,
                  "c%" PRIu32
                  " was granted %s at %.6f s, which was kept after the claim of c%" PRIu32
                  " until %.6f s.",
                  claim->client, check_name_of(check, claim->name), SECONDS(event->ns),
                  keeper->client, SECONDS(name->kept_ns));
}

static void on_broken(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    struct name_seen *name = &check->names[claim->name];
    if (claim->state == HELD)
        check_end_hold(check, event->claim, event->ns);
    else if (!check_is_held_on(check, claim))
        return;
    claim->broken = true;
    claim->state = BROKEN;
    if (name->n_broken < BROKEN_MAX)
        name->broken[name->n_broken++] = event->claim;
}

static bool may_be_passed(const struct check *check, const struct claim_seen *claim)
{
    const struct event *top = &check->history->events[check->names[claim->name].top_event];
    return (check->promises->rules & 1u << RULE_TOKEN_ORDER) &&
           (claim->mode == STILE_EXCLUSIVE || check->claims[top->claim].mode != claim->mode);
}

/* A break ended it before its client, which may have been paused, heard of the grant: a later token
 * is known by then. Readers and slots may hear of theirs in any order, and where tokens may go back
 * a smaller one says nothing. */
static bool was_passed(const struct check *check, const struct claim_seen *claim, uint64_t token)
{
    const struct name_seen *name = &check->names[claim->name];
    return name->broken_ns != 0 && name->breaks > claim->asked && token != 0 &&
           token < name->top_token && may_be_passed(check, claim);
}

static void on_granted(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    if (claim->state != WAITING || claim->client != event->client) {
        check_violate(check, RULE_UNASKED, claim->state == UNMADE ? NOWHERE : claim->asked, NOWHERE,
                      "c%" PRIu32 " was granted claim %" PRIu32 ", which it does not wait for.",
                      event->client, event->claim);
        return;
    }
    if (event->deadline_ns <= event->ns)
        check_violate(check, RULE_UNTOLD, claim->asked, NOWHERE,
                      "c%" PRIu32 " was granted %s when its own deadline had passed.",
                      claim->client, check_name_of(check, claim->name));
    uint32_t others = check_expire(check, &check->names[claim->name], event->ns);
    if (was_passed(check, claim, event->token)) {
        hold(check, event);
        on_broken(check, event);
        return;
    }
    check_kept(check, claim, event);
    check_answer_time(check, claim, event->ns);
    check_overlap(check, claim, others);
    if (others == 0)
        check_promptness(check, claim, event->ns);
    check_order(check, claim);
    if (event->token != 0)
        check_token(check, claim);
    hold(check, event);
    pass_broken(check, &check->names[claim->name], event->ns);
}

/* The deadline passed more than this long ago. A claim without one has UINT64_MAX. */
static bool is_past(uint64_t deadline_ns, uint64_t margin_ns, uint64_t ns)
{
    return deadline_ns < ns && ns - deadline_ns > margin_ns;
}

/* Its name is not free before its lease is over, unless it is released or lost earlier. */
static void held_on(struct check *check, struct claim_seen *claim, uint64_t deadline_ns)
{
    struct name_seen *name = &check->names[claim->name];
    uint64_t end_ns = deadline_ns + check->promises->takeover_ns;
    claim->held_on = true;
    if (name->free_ns < end_ns)
        name->free_ns = end_ns;
}

static void held_on_until(struct check *check, const struct claim_seen *claim, uint64_t ns)
{
    struct name_seen *name = &check->names[claim->name];
    if (claim->held_on && name->free_ns > ns)
        name->free_ns = ns;
}

/* Deadlines are known to the millisecond. */
static void on_renewed(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    if (check_is_held_on(check, claim))
        claim->deadline_ns = event->deadline_ns;
    if (claim->state == BROKEN) {
        held_on(check, claim, event->deadline_ns);
        return;
    }
    if (claim->state != HELD || is_past(claim->deadline_ns, ROUNDED_NS, event->ns))
        check_violate(check, RULE_UNASKED, claim->state == UNMADE ? NOWHERE : claim->asked, NOWHERE,
                      "c%" PRIu32 " renewed claim %" PRIu32 ", which it no longer held.",
                      event->client, event->claim);
    else
        claim->deadline_ns = event->deadline_ns;
}

/* Its client acts upon a lock that is gone. */
static void check_told(struct check *check, const struct claim_seen *claim,
                       const struct event *event)
{
    if (claim->granted == NOWHERE || claim->broken ||
        (!claim->told && !is_past(claim->deadline_ns, TOLD_NS, event->ns)))
        return;
    check_violate(check, RULE_UNTOLD, claim->granted, NOWHERE,
                  "c%" PRIu32 " was not told that it had lost %s at %.6f s.", claim->client,
                  check_name_of(check, claim->name), SECONDS(claim->deadline_ns));
}

static void on_acted(struct check *check, const struct event *event)
{
    check_told(check, &check->claims[event->claim], event);
}

static void check_false_loss(struct check *check, const struct claim_seen *claim, uint64_t ns)
{
    if (claim->granted == NOWHERE || check_was_broken(check, claim) || claim->told ||
        ns + TOLD_NS >= claim->deadline_ns)
        return;
    check_violate(check, RULE_FALSE_LOSS, claim->granted, NOWHERE,
                  "c%" PRIu32 " was told that it had lost %s, %.6f s before its deadline.",
                  claim->client, check_name_of(check, claim->name),
                  SECONDS(claim->deadline_ns - ns));
}

static void on_lost(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    const struct client_seen *client = &check->clients[claim->client];
    check->verdict->losses++;
    check_false_loss(check, claim, event->ns);
    if (!claim->told && claim->granted != NOWHERE && !claim->broken &&
        is_past(claim->deadline_ns, LOSS_NS, event->ns) &&
        client->excused_ns < check->history->events[claim->granted].ns)
        check_violate(check, RULE_UNTOLD, claim->granted, NOWHERE,
                      "c%" PRIu32 " was told only after %.6f s that it had lost %s.", claim->client,
                      SECONDS(event->ns - claim->deadline_ns), check_name_of(check, claim->name));
    claim->told = true;
    held_on_until(check, claim, event->ns);
    if (claim->state != HELD)
        return;
    if (claim->deadline_ns <= event->ns + TOLD_NS)
        check_keep_name(check, event->claim, false);
    check_end_hold(check, event->claim, check_lease_end(check, claim));
}

static void on_released(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    if (!claim->told)
        check_told(check, claim, event);
    claim->released = check->at;
    held_on_until(check, claim, event->ns);
    if (claim->state != HELD)
        return;
    check_keep_name(check, event->claim, true);
    uint64_t hold_ns = check->history->events[claim->asked].hold_ns;
    uint64_t until = check->history->events[claim->granted].ns + hold_ns + hold_ns / KEPT_SHARE;
    if (hold_ns > 0)
        check->names[claim->name].hold_end_ns = until;
    check_end_hold(check, event->claim, until > event->ns ? until : event->ns);
}

/* The release was answered. One that has failed may have kept nothing. */
static void on_ended(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    struct name_seen *name = &check->names[claim->name];
    claim->answered = true;
    if (event->status == STILE_LOST)
        check_false_loss(check, claim, event->ns);
    check_given_back(check, claim, event);
    if (event->status == STILE_OK)
        name->given_ns = event->ns;
    if (event->status != STILE_OK && name->kept_by == event->claim)
        name->kept_ns = 0;
    check_release_time(check, claim, event->ns);
}

/* Another program waits, and somebody has removed its place: a break does that if its claim was
 * first, and it had not noticed. */
static void check_place(struct check *check, const struct claim_seen *claim,
                        const struct event *event)
{
    const struct event *asked = &check->history->events[claim->asked];
    uint64_t broken_ns = check->names[claim->name].broken_ns;
    if (!asked->foreign || event->status != STILE_LOST ||
        (broken_ns != 0 && broken_ns >= asked->ns))
        return;
    check_violate(check, RULE_FALSE_LOSS, claim->asked, NOWHERE,
                  "What c%" PRIu32 ", another program, had in the queue of %s was removed.",
                  claim->client, check_name_of(check, claim->name));
}

static void on_answered(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    if (claim->state != WAITING)
        return;
    check_place(check, claim, event);
    check_given_up(check, claim, event);
    check_answer_time(check, claim, event->ns);
    check_busy(check, claim, event);
    check_end_wait(check, event->claim, event->ns);
}

static void on_cancelled(struct check *check, const struct event *event)
{
    struct claim_seen *claim = &check->claims[event->claim];
    claim->cancelled = true;
    if (claim->until_ns > event->ns)
        claim->until_ns = event->ns;
}

static void leave_place(struct check *check, uint32_t number)
{
    struct name_seen *name = &check->names[check->claims[number].name];
    size_t asked = check->claims[number].asked;
    if (name->n_dead++ == 0 || name->dead_asked < asked)
        name->dead_asked = asked;
}

static void on_died(struct check *check, const struct event *event)
{
    struct client_seen *client = &check->clients[event->client];
    uint32_t number;
    client->over = true;
    while ((number = client->claims.first) != NO_NUMBER) {
        if (check->claims[number].state == HELD) {
            check_keep_name(check, number, false);
            check_end_hold(check, number, check_lease_end(check, &check->claims[number]));
        } else {
            leave_place(check, number);
            check_end_wait(check, number, event->ns);
        }
    }
}

static void on_closed(struct check *check, const struct event *event)
{
    uint32_t number = check->clients[event->client].claims.first;
    for (; number != NO_NUMBER; number = check->claims[number].of_client.after) {
        if (check->claims[number].state == WAITING)
            check_violate(check, RULE_LATE, check->claims[number].asked, NOWHERE,
                          "c%" PRIu32 " had no answer about %s when its client was closed.",
                          event->client, check_name_of(check, check->claims[number].name));
    }
    on_died(check, event);
}

static void on_excused(struct check *check, const struct event *event)
{
    struct client_seen *client = &check->clients[event->client];
    client->excused_ns = event->ns;
    for (uint32_t number = client->claims.first; number != NO_NUMBER;
         number = check->claims[number].of_client.after) {
        if (check->claims[number].state != WAITING)
            continue;
        check->claims[number].excused = true;
        check_list_remove(check, number, OF_NAME);
    }
}

static void on_fault(struct check *check, const struct event *event)
{
    (void)event;
    check->faults++;
    check->fault = check->at;
}

static void on_healed(struct check *check, const struct event *event)
{
    check->faults--;
    check->fault_ns = event->ns + check->promises->takeover_ns;
    check->healed_ns = event->ns;
}

/* ---- breaks ---- */

static void on_breaks(struct check *check, const struct event *event)
{
    struct name_seen *name = &check->names[event->name];
    check->settling -= name->settling;
    name->settling = false;
    check->passed -= name->passed_ns != 0;
    name->passed_ns = 0;
    name->n_broken = 0;
    name->kept_ns = 0;
    name->breaks = check->at;
    name->n_breaks++;
    name->broken_ns = event->ns + 2 * check->promises->takeover_ns;
}

/* One that was not answered may still arrive, and so may another one under way, whose operator may
 * have stood still since it looked. */
static void on_broke(struct check *check, const struct event *event)
{
    struct name_seen *name = &check->names[event->name];
    bool known = event->status == STILE_OK || event->status == STILE_CONFLICT;
    name->n_breaks -= name->n_breaks > 0;
    if (name->n_breaks > 0) {
        name->broken_ns = event->ns + 4 * check->promises->takeover_ns;
        return;
    }
    name->broken_ns = event->ns + (known ? LOSS_NS : check->promises->takeover_ns);
    name->settling = event->status == STILE_OK && check_is_calm_since(check, name->breaks);
    check->settling += name->settling;
}

static void check_broken_told(struct check *check, const struct name_seen *name)
{
    for (uint32_t i = 0; i < name->n_broken; i++) {
        const struct claim_seen *claim = &check->claims[name->broken[i]];
        if (claim->told || claim->released != NOWHERE || check->clients[claim->client].over ||
            claim->deadline_ns <= name->broken_ns)
            continue;
        check_violate(check, RULE_UNTOLD, claim->granted, name->breaks,
                      "c%" PRIu32 " was not told within a second that its lock %s was broken.",
                      claim->client, check_name_of(check, claim->name));
    }
}

/* Those that hold now must agree. */
static void check_holders_left(struct check *check, struct name_seen *name, uint64_t ns)
{
    uint32_t n = check_expire(check, name, ns);
    const struct claim_seen *first = &check->claims[name->holders.first];
    if (n < 2)
        return;
    const struct claim_seen *other = &check->claims[name->holders.last];
    if (check_may_hold_with(first, other, n - 1))
        return;
    check_violate(check, RULE_OVERLAP, first->granted, other->granted,
                  "c%" PRIu32 " and c%" PRIu32
                  " both hold %s a second after an operator has broken it.",
                  first->client, other->client, check_name_of(check, first->name));
}

/* A second after a break, if nothing else was wrong meanwhile. */
static void settle(struct check *check, uint64_t ns)
{
    for (uint32_t i = 0; check->settling > 0 && i < check->history->n_names; i++) {
        struct name_seen *name = &check->names[i];
        if (!name->settling || name->broken_ns >= ns)
            continue;
        name->settling = false;
        check->settling--;
        if (!check_is_calm_since(check, name->breaks))
            continue;
        check_broken_told(check, name);
        check_holders_left(check, name, name->broken_ns);
    }
}

/* Nothing is wrong since the break, and all connections were there again by then. */
static bool is_mended_since(const struct check *check, size_t event)
{
    return check->faults == 0 && (check->fault == NOWHERE || check->fault < event) &&
           (check->healed_ns == 0 ||
            check->healed_ns + MENDED_NS <= check->history->events[event].ns);
}

static void check_passed_told(struct check *check, const struct name_seen *name)
{
    for (uint32_t i = 0; i < name->n_broken; i++) {
        const struct claim_seen *claim = &check->claims[name->broken[i]];
        if (!check_is_held_on(check, claim) || claim->deadline_ns <= name->passed_ns + LOSS_NS)
            continue;
        check_violate(check, RULE_UNTOLD, claim->granted, name->breaks,
                      "c%" PRIu32 " was not told that its lock %s was broken within a second of "
                      "the next grant, at %.6f s.",
                      claim->client, check_name_of(check, claim->name), SECONDS(name->passed_ns));
    }
}

/* A second after the grant that has passed those that were broken. */
static void pass(struct check *check, uint64_t ns)
{
    for (uint32_t i = 0; check->passed > 0 && i < check->history->n_names; i++) {
        struct name_seen *name = &check->names[i];
        if (name->passed_ns == 0 || name->passed_ns + LOSS_NS >= ns)
            continue;
        if (is_mended_since(check, name->breaks))
            check_passed_told(check, name);
        name->passed_ns = 0;
        check->passed--;
    }
}

/* ---- writes ---- */

/* The value that its writer should have read. */
static bool has_read_the_last(const struct name_seen *store, uint64_t seen)
{
    return seen == store->value || (store->maybe != 0 && seen == store->maybe);
}

static void accept_write(struct check *check, struct name_seen *store, const struct event *event)
{
    if (event->guarded && event->token < store->top_written)
        check_violate(
            check, RULE_WENT_BACK, store->written, NOWHERE,
            "The store of %s accepted token %" PRIu64 " of c%" PRIu32 " after token %" PRIu64 ".",
            check_name_of(check, event->name), event->token, event->client, store->top_written);
    if (!has_read_the_last(store, event->seen)) {
        if (event->guarded)
            check_violate(check, RULE_WRITE_LOST, store->written, NOWHERE,
                          "c%" PRIu32 " overwrote %" PRIu64 " in %s, which it had not read.",
                          event->client, store->value, check_name_of(check, event->name));
        else
            check->verdict->updates_lost++;
    }
    store->value = event->value;
    store->maybe = 0;
    store->written = check->at;
    if (event->token > store->top_written)
        store->top_written = event->token;
}

static void on_wrote(struct check *check, const struct event *event)
{
    struct name_seen *store = &check->names[event->name];
    if (event->outcome == WRITE_REFUSED) {
        check->verdict->writes_refused++;
    } else if (event->outcome == WRITE_UNKNOWN) {
        store->maybe = event->value;
    } else {
        check->verdict->writes_accepted++;
        accept_write(check, store, event);
    }
}

typedef void event_fn(struct check *check, const struct event *event);
static event_fn *const handlers[EVENT_KINDS] = {
    [EVENT_ASKED] = on_asked,         [EVENT_QUEUED] = on_queued,
    [EVENT_GRANTED] = on_granted,     [EVENT_RENEWED] = on_renewed,
    [EVENT_RELEASED] = on_released,   [EVENT_LOST] = on_lost,
    [EVENT_ANSWERED] = on_answered,   [EVENT_ENDED] = on_ended,
    [EVENT_CANCELLED] = on_cancelled, [EVENT_ACTED] = on_acted,
    [EVENT_BROKEN] = on_broken,       [EVENT_DIED] = on_died,
    [EVENT_CLOSED] = on_closed,       [EVENT_EXCUSED] = on_excused,
    [EVENT_FAULT] = on_fault,         [EVENT_HEALED] = on_healed,
    [EVENT_BREAKS] = on_breaks,       [EVENT_BROKE] = on_broke,
    [EVENT_WROTE] = on_wrote,
};

/* ---- the pass ---- */

static size_t count_grants(const struct history *history)
{
    size_t n = 0;
    for (size_t i = 0; i < history->n; i++)
        n += history->events[i].kind == EVENT_GRANTED;
    return n;
}

static bool check_begin(struct check *check)
{
    const struct history *history = check->history;
    size_t places = 16, grants = count_grants(history);
    while (places < 2 * grants)
        places *= 2;
    check->token_mask = places - 1;
    check->claims = calloc(history->n_claims + 1, sizeof *check->claims);
    check->names = calloc(history->n_names + 1, sizeof *check->names);
    check->clients = calloc(history->n_clients + 1, sizeof *check->clients);
    check->tokens = calloc(places, sizeof *check->tokens);
    if (!check->claims || !check->names || !check->clients || !check->tokens)
        return false;
    for (size_t i = 0; i < places; i++)
        check->tokens[i].event = NOWHERE;
    const struct list empty = {NO_NUMBER, NO_NUMBER, 0};
    for (uint32_t i = 0; i < history->n_names; i++) {
        struct name_seen *name = &check->names[i];
        name->holders = name->queue = empty;
        name->top_event = name->written = NOWHERE;
    }
    for (uint32_t i = 0; i < history->n_clients; i++)
        check->clients[i].claims = empty;
    check->fault = NOWHERE;
    return true;
}

/* Those that still wait when the history ends were owed an answer, too. */
static void check_unanswered(struct check *check, struct claim_seen *claim, uint64_t end)
{
    if (claim->state == UNMADE || check->clients[claim->client].over)
        return;
    if (claim->state == WAITING) {
        check_answer_time(check, claim, end);
        if (check_expire(check, &check->names[claim->name], end) == 0)
            check_promptness(check, claim, end);
    } else if (!claim->answered) {
        check_release_time(check, claim, end);
    }
}

static void check_end(struct check *check)
{
    uint64_t end = check->history->n > 0 ? check->history->events[check->history->n - 1].ns : 0;
    for (uint32_t i = 0; i < check->history->n_claims; i++)
        check_unanswered(check, &check->claims[i], end);
}

bool check_history(struct verdict *verdict, const struct history *history,
                   const struct promises *promises)
{
    struct check check = {.history = history, .promises = promises, .verdict = verdict};
    *verdict = (struct verdict){.holds = true};
    bool able = !history->out_of_memory && check_begin(&check);
    for (size_t i = 0; able && verdict->holds && i < history->n; i++) {
        check.at = i;
        if (check.settling > 0)
            settle(&check, history->events[i].ns);
        if (check.passed > 0)
            pass(&check, history->events[i].ns);
        handlers[history->events[i].kind](&check, &history->events[i]);
    }
    if (able && verdict->holds) {
        check.at = NOWHERE;
        check_end(&check);
    }
    free(check.claims);
    free(check.names);
    free(check.clients);
    free(check.tokens);
    return able;
}

const char *check_rule_text(enum rule rule)
{
    static const char *const texts[] = {
#define CHECK_TEXT(name, text) [RULE_##name] = text,
        CHECK_RULES(CHECK_TEXT)
#undef CHECK_TEXT
    };
    return texts[rule];
}

void check_print_violation(const struct verdict *verdict, const struct history *history, FILE *out)
{
    const struct violation *violation = &verdict->violation;
    fprintf(out, "%s: %s\n", check_rule_text(violation->rule), violation->sentence);
    for (size_t i = 0; i < violation->n_events; i++) {
        fputs("    ", out);
        history_print_event(history, violation->events[i], out);
    }
}
