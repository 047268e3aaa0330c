/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Claims, and how long they hold. */
#include "sim/check_claims.h"

#include <inttypes.h>
#include <stdarg.h>

/* ---- violations ---- */

static bool is_promised(const struct check *check, enum rule rule)
{
    return check->promises->rules & (1u << rule);
}

const char *check_name_of(const struct check *check, uint32_t name)
{
    return check->history->names[name];
}

/* Ends the check. first may be NOWHERE; the present event is shown last. */
void check_violate(struct check *check, enum rule rule, size_t first, size_t second,
                   const char *format, ...)
{
    struct violation *violation = &check->verdict->violation;
    if (!check->verdict->holds || !is_promised(check, rule))
        return;
    check->verdict->holds = false;
    violation->rule = rule;
    violation->at_end = check->at >= check->history->n;
    const size_t shown[] = {first, second, check->at};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        if (shown[i] < check->history->n)
            violation->events[violation->n_events++] = shown[i];
    }
    va_list args;
    va_start(args, format);
    vsnprintf(violation->sentence, sizeof violation->sentence, format, args);
    va_end(args);
}
/* ---- holding ---- */

static struct place *place_of(struct check *check, uint32_t claim, enum membership which)
{
    struct claim_seen *seen = &check->claims[claim];
    return which == OF_NAME ? &seen->of_name : &seen->of_client;
}

void check_list_append(struct check *check, struct list *list, uint32_t claim,
                       enum membership which)
{
    *place_of(check, claim, which) = (struct place){list->last, NO_NUMBER, list};
    if (list->last != NO_NUMBER)
        place_of(check, list->last, which)->after = claim;
    else
        list->first = claim;
    list->last = claim;
    list->n++;
}

void check_list_remove(struct check *check, uint32_t claim, enum membership which)
{
    struct place *place = place_of(check, claim, which);
    struct list *list = place->list;
    if (list == NULL)
        return;
    if (place->before != NO_NUMBER)
        place_of(check, place->before, which)->after = place->after;
    else
        list->first = place->after;
    if (place->after != NO_NUMBER)
        place_of(check, place->after, which)->before = place->before;
    else
        list->last = place->before;
    list->n--;
    place->list = NULL;
}

uint64_t check_now(const struct check *check)
{
    size_t at = check->at < check->history->n ? check->at : check->history->n - 1;
    return check->history->events[at].ns;
}

static uint64_t delay_of(const struct check *check, const struct claim_seen *claim)
{
    return check->history->events[claim->asked].delay_ns;
}

void check_claim_over(struct check *check, uint32_t number)
{
    struct name_seen *name = &check->names[check->claims[number].name];
    if (check->claims[number].state == WAITING || check->claims[number].state == HELD) {
        name->alive--;
        name->still_ns = check_now(check);
    }
    name->delayed |= delay_of(check, &check->claims[number]) > 0;
    check->claims[number].state = OVER;
    check_list_remove(check, number, OF_NAME);
    check_list_remove(check, number, OF_CLIENT);
}

/* Its holder no longer acts on it; the engine may keep it until until_ns. */
void check_end_hold(struct check *check, uint32_t number, uint64_t until_ns)
{
    struct name_seen *name = &check->names[check->claims[number].name];
    check_claim_over(check, number);
    if (name->free_ns < until_ns)
        name->free_ns = until_ns;
}

/* A dead or late holder's claim stays in the engine until its lease is over. */
uint64_t check_lease_end(const struct check *check, const struct claim_seen *claim)
{
    uint64_t ns = check_now(check);
    uint64_t end = claim->deadline_ns == UINT64_MAX ? ns : claim->deadline_ns;
    return (end > ns ? end : ns) + delay_of(check, claim) + check->promises->takeover_ns;
}

/* A break may have ended its grant while its client stood still and had not heard of the grant. */
static bool may_be_over_unheard(const struct check *check, const struct claim_seen *claim)
{
    size_t breaks = check->names[claim->name].breaks;
    return claim->excused && claim->asked < breaks && breaks < claim->granted;
}

/* An operator has broken it, or might have. */
bool check_was_broken(const struct check *check, const struct claim_seen *claim)
{
    const struct name_seen *name = &check->names[claim->name];
    bool unnamed = check->promises->breaks_named && claim->unnamed && name->breaks < claim->asked;
    if (claim->broken || unnamed)
        return claim->broken;
    return may_be_over_unheard(check, claim) ||
           (name->broken_ns != 0 && claim->granted != NOWHERE &&
            check->history->events[claim->granted].ns <= name->broken_ns);
}

/* It was broken, and its client acts as its holder: the break may not have come far. */
bool check_is_held_on(const struct check *check, const struct claim_seen *claim)
{
    return check->promises->breaks_named && claim->state == BROKEN && !claim->told &&
           claim->released == NOWHERE && !check->clients[claim->client].over;
}

/* hold_at_least counts from the grant on the server, which came after the request was sent, and was
 * confirmed soon if nothing was wrong or the engine sees to it; a lock-delay, from the end of the
 * lease. */
void check_keep_name(struct check *check, uint32_t number, bool clean)
{
    const struct claim_seen *claim = &check->claims[number];
    const struct event *asked = &check->history->events[claim->asked];
    struct name_seen *name = &check->names[claim->name];
    uint64_t span = clean ? asked->hold_ns : asked->delay_ns;
    uint64_t from = clean ? claim->first_until - asked->lease_ns : claim->deadline_ns;
    if (span <= HAND_NS || (clean && claim->slow && !check->promises->exact_holds) ||
        claim->deadline_ns == UINT64_MAX || check_was_broken(check, claim) ||
        from + span - HAND_NS <= name->kept_ns)
        return;
    name->kept_ns = from + span - HAND_NS;
    name->kept_by = number;
}

static void expire_one(struct check *check, uint32_t number)
{
    const struct claim_seen *claim = &check->claims[number];
    uint64_t until = claim->deadline_ns + delay_of(check, claim) + check->promises->takeover_ns;
    check_keep_name(check, number, false);
    check_end_hold(check, number, until);
}

/* Ends the holds whose deadline has passed, and returns the number of those that remain. */
uint32_t check_expire(struct check *check, struct name_seen *name, uint64_t ns)
{
    uint32_t next;
    for (uint32_t number = name->holders.first; number != NO_NUMBER; number = next) {
        const struct claim_seen *claim = &check->claims[number];
        next = claim->of_name.after;
        if (claim->deadline_ns <= ns)
            expire_one(check, number);
    }
    return name->holders.n;
}

bool check_may_hold_with(const struct claim_seen *one, const struct claim_seen *other,
                         uint32_t others)
{
    if (one->mode != other->mode || one->mode == STILE_EXCLUSIVE)
        return false;
    return one->mode == STILE_SHARED || others < one->slots;
}

/* It may have been broken at once, and its client may have stood still since. */
static bool was_granted_during_break(const struct check *check, const struct claim_seen *claim)
{
    uint64_t over_ns = check->names[claim->name].broken_ns;
    return over_ns != 0 && check->history->events[claim->granted].ns + LOSS_NS <= over_ns;
}

/* Its client has run for too short a time since to have heard of the loss, too. */
static bool may_soon_be_told(const struct check *check, const struct claim_seen *claim)
{
    uint64_t heard_ns = check->history->events[claim->granted].ns;
    return may_be_over_unheard(check, claim) && check_now(check) <= heard_ns + LOSS_NS;
}

void check_overlap(struct check *check, const struct claim_seen *claim, uint32_t others)
{
    const struct event *event = &check->history->events[check->at];
    uint32_t holder = check->names[claim->name].holders.first;
    if (others == 0 || check_may_hold_with(claim, &check->claims[holder], others) ||
        check->names[claim->name].broken_ns > event->ns)
        return;
    const struct claim_seen *other = &check->claims[holder];
    if (was_granted_during_break(check, other) || may_soon_be_told(check, other))
        return;
    if (other->deadline_ns == UINT64_MAX)
        check_violate(check, RULE_OVERLAP, other->granted, NOWHERE,
                      "c%" PRIu32 " was granted %s at %.6f s while c%" PRIu32 " held it.",
                      claim->client, check_name_of(check, claim->name), SECONDS(event->ns),
                      other->client);
    else
        check_violate(check, RULE_OVERLAP, other->granted, NOWHERE,
                      "c%" PRIu32
                      " was granted %s at %.6f s, %.6f s before the deadline of c%" PRIu32
                      ", which had not given it back.",
                      claim->client, check_name_of(check, claim->name), SECONDS(event->ns),
                      SECONDS(other->deadline_ns - event->ns), other->client);
}
