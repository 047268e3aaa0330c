/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: when a grant or an answer is due, and whose turn it is. */
#include "sim/check_claims.h"

#include <inttypes.h>

/* When the name could last have been granted to this waiter, had the engine been prompt. */
static uint64_t due_since(const struct check *check, const struct claim_seen *claim)
{
    uint64_t asked = check->history->events[claim->asked].ns;
    uint64_t since = check->names[claim->name].free_ns;
    if (since < asked)
        since = asked;
    return since < check->fault_ns ? check->fault_ns : since;
}

/* A release has left the name free, and nothing that was wrong can delay the news. */
static void check_wake(struct check *check, const struct claim_seen *claim, uint64_t ns)
{
    const struct name_seen *name = &check->names[claim->name];
    uint64_t since = due_since(check, claim);
    if (since < name->kept_ns)
        since = name->kept_ns;
    if (name->hold_end_ns != 0 && since < name->hold_end_ns + HELD_ON_NS)
        since = name->hold_end_ns + HELD_ON_NS;
    if (check->promises->wake_ns == 0 || name->given_ns < name->free_ns || name->n_dead > 0 ||
        name->delayed || claim->excused || claim->cancelled || name->broken_ns != 0 ||
        (name->left_foreign && !check->promises->polls_foreign) ||
        !check_is_calm_since(check, claim->asked) || ns <= since + check->promises->wake_ns)
        return;
    check_violate(check, RULE_STARVED, claim->asked, NOWHERE,
                  "c%" PRIu32 " was not woken: %s was free from %.6f s to %.6f s.", claim->client,
                  check_name_of(check, claim->name), SECONDS(since), SECONDS(ns));
}

void check_promptness(struct check *check, const struct claim_seen *claim, uint64_t ns)
{
    check_wake(check, claim, ns);
    uint64_t since = due_since(check, claim) + check->names[claim->name].n_dead * DEAD_NS;
    if (claim->excused || check->faults > 0 || ns <= since ||
        ns - since <= check->promises->bound_ns)
        return;
    check_violate(check, RULE_STARVED, claim->asked, NOWHERE,
                  "c%" PRIu32 " waited for %s, which was free, from %.6f s to %.6f s.",
                  claim->client, check_name_of(check, claim->name), SECONDS(since), SECONDS(ns));
}

/* Nothing was broken, or had an effect, since this event. */
bool check_is_calm_since(const struct check *check, size_t event)
{
    return check->faults == 0 && (check->fault == NOWHERE || check->fault < event) &&
           check->history->events[event].ns >= check->fault_ns;
}

/* A claim that is being withdrawn has no place any longer (its client's clock may be ahead), and
 * one that an operator may have broken before its client learned of its grant has asked again. */
static bool wants_its_place(const struct check *check, const struct claim_seen *claim)
{
    uint64_t broken_ns = check->names[claim->name].broken_ns;
    if (broken_ns != 0 && check->history->events[claim->asked].ns <= broken_ns)
        return false;
    return claim->state == WAITING && claim->mode == STILE_EXCLUSIVE && !claim->excused &&
           !claim->cancelled &&
           (claim->until_ns == 0 || claim->until_ns > check_now(check) + TOLD_NS) &&
           check_is_calm_since(check, claim->asked);
}

/* The claims of one client arrive in the order in which it made them. */
static void check_order_in_client(struct check *check, const struct claim_seen *claim)
{
    uint32_t number = check->clients[claim->client].claims.first;
    for (; number != NO_NUMBER; number = check->claims[number].of_client.after) {
        const struct claim_seen *other = &check->claims[number];
        if (other->name != claim->name || other->asked >= claim->asked ||
            check->promises->claims_race || !wants_its_place(check, other))
            continue;
        check_violate(check, RULE_JUMPED, other->asked, claim->asked,
                      "c%" PRIu32 " was granted %s for its later claim first.", claim->client,
                      check_name_of(check, claim->name));
    }
}

void check_order(struct check *check, const struct claim_seen *claim)
{
    uint32_t first = check->names[claim->name].queue.first;
    bool in_queue = !check->history->events[claim->asked].foreign || claim->queued != NOWHERE;
    if (claim->mode != STILE_EXCLUSIVE || !in_queue)
        return;
    check_order_in_client(check, claim);
    if (first == NO_NUMBER)
        return;
    const struct claim_seen *other = &check->claims[first];
    if (other == claim || other->queued >= claim->asked || !wants_its_place(check, other))
        return;
    check_violate(check, RULE_JUMPED, other->queued, claim->asked,
                  "c%" PRIu32 " was granted %s before c%" PRIu32
                  ", which stood in the queue before c%" PRIu32 " asked.",
                  claim->client, check_name_of(check, claim->name), other->client, claim->client);
}

/* A wait that ends without a grant was owed one if the name was free for long. */
void check_end_wait(struct check *check, uint32_t number, uint64_t ns)
{
    struct claim_seen *claim = &check->claims[number];
    if (check_expire(check, &check->names[claim->name], ns) == 0)
        check_promptness(check, claim, ns);
    check_claim_over(check, number);
}

/* A wait that is over by itself or for its caller is answered soon, whatever is broken. */
void check_answer_time(struct check *check, const struct claim_seen *claim, uint64_t ns)
{
    const struct client_seen *client = &check->clients[claim->client];
    uint64_t asked = check->history->events[claim->asked].ns, limit = check->promises->answer_ns;
    if (claim->until_ns == 0 || claim->until_ns == UINT64_MAX || limit == 0 ||
        client->excused_ns > asked || ns <= claim->until_ns + limit)
        return;
    check_violate(check, RULE_LATE, claim->asked, NOWHERE,
                  "c%" PRIu32 " had no answer about %s %.6f s after its wait had ended.",
                  claim->client, check_name_of(check, claim->name), SECONDS(ns - claim->until_ns));
}

static bool is_no_reason_to_give_up(enum stile_status status)
{
    return status == STILE_TIMEOUT || status == STILE_UNREACHABLE || status == STILE_UNCERTAIN ||
           status == STILE_HELD || status == STILE_LOST || status == STILE_CANCELLED;
}

void check_release_time(struct check *check, const struct claim_seen *claim, uint64_t ns)
{
    const struct client_seen *client = &check->clients[claim->client];
    uint64_t limit = check->promises->answer_ns;
    if (limit == 0 || claim->released == NOWHERE)
        return;
    uint64_t released = check->history->events[claim->released].ns;
    if (client->excused_ns > released || ns <= released + limit)
        return;
    check_violate(check, RULE_LATE, claim->released, NOWHERE,
                  "c%" PRIu32 " had no answer to its release of %s for %.6f s.", claim->client,
                  check_name_of(check, claim->name), SECONDS(ns - released));
}

void check_given_up(struct check *check, const struct claim_seen *claim, const struct event *event)
{
    if (claim->until_ns == 0 || claim->cancelled || event->ns + TOLD_NS >= claim->until_ns ||
        !is_no_reason_to_give_up(event->status))
        return;
    check_violate(check, RULE_GAVE_UP, claim->asked, NOWHERE,
                  "c%" PRIu32 " was answered %s about %s before its wait was over.", claim->client,
                  stile_status_name(event->status), check_name_of(check, claim->name));
}

/* A release is repeated for a while: its caller is not told of the first failure. */
void check_given_back(struct check *check, const struct claim_seen *claim,
                      const struct event *event)
{
    if (claim->released == NOWHERE ||
        (event->status != STILE_UNREACHABLE && event->status != STILE_UNCERTAIN))
        return;
    uint64_t due = check->history->events[claim->released].ns + REPEATED_NS;
    if (event->ns < due && event->ns < claim->deadline_ns)
        check_violate(check, RULE_GAVE_UP, claim->released, NOWHERE,
                      "c%" PRIu32 " was answered %s to its release of %s after %.6f s.",
                      claim->client, stile_status_name(event->status),
                      check_name_of(check, claim->name), SECONDS(event->ns - due + REPEATED_NS));
}

/* A break that was refused, or has not been answered, may have left it as it was. */
static bool may_be_held_after_all(const struct check *check, const struct name_seen *name)
{
    for (uint32_t i = 0; i < name->n_broken; i++) {
        const struct claim_seen *claim = &check->claims[name->broken[i]];
        if (!claim->told && claim->released == NOWHERE && claim->deadline_ns > check_now(check))
            return true;
    }
    return false;
}

/* Nobody else has used the name since long before the try, and nothing was broken. A dead waiter is
 * offered the name first for as long as the server has not noticed. */
void check_busy(struct check *check, const struct claim_seen *claim, const struct event *event)
{
    const struct name_seen *name = &check->names[claim->name];
    uint64_t asked = check->history->events[claim->asked].ns;
    if (event->status != STILE_HELD || !claim->alone || name->alive > 1 ||
        name->asked != claim->asked || name->free_ns > asked || name->kept_ns > asked ||
        (name->hold_end_ns != 0 && name->hold_end_ns + HELD_ON_NS > asked) ||
        (name->delayed && check->promises->late_delays) || name->n_dead > 0 ||
        may_be_held_after_all(check, name) || !check_is_calm_since(check, claim->asked))
        return;
    check_violate(check, RULE_BUSY, claim->asked, NOWHERE,
                  "c%" PRIu32 " was told that %s is held, which nobody had used since %.6f s.",
                  claim->client, check_name_of(check, claim->name), SECONDS(name->still_ns));
}
