/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Judges a history (history.h): does it keep what was promised?
 *
 * - overlap: No two claims of a name hold together: an exclusive one with any other, a shared one
 *   with an exclusive one, or more than N slots. A claim holds from the moment its client knew of
 *   the grant until its deadline, release, loss or death. A second after an operator has broken a
 *   lock, the holders that are left must agree again.
 * - token-order: Tokens of a name grow in grant order. An exclusive grant has a larger token than
 *   all before it; a shared one or a slot, than all that were known when it was asked for.
 *   While a lock is being broken, the grant of one that is over may be reported late.
 * - token-twice: No two grants of a name have the same token.
 * - unasked: Only a claim that was made and still waits is granted, and only one that is held is
 *   renewed.
 * - untold: A holder whose deadline has passed is told that it has lost its lock before it does
 *   anything else with it, in time if it runs, and in every way in which it can ask; one whose lock
 *   was broken is told within a second, and where breaks are named also within a second of the
 *   next grant, however far its break came. No claim is granted after its own deadline.
 * - false-loss: A holder gets a report of a loss only if its deadline has passed or its lock was
 *   broken. Where a break names the grant that it ends, one that was answered before a claim was
 *   asked for is no reason for its loss. What another program has in the queue is not removed
 *   while it waits.
 * - starved: A waiter is granted or answered within a bound after its name became free, it asked,
 *   or the last fault, whichever came last. Waiters that have died may cost two seconds each. If
 *   nothing is wrong, a release wakes the next waiter: the bound after it is shorter.
 * - busy: A try is not turned away from a name that nobody has held or waited for in a while.
 * - gave-up: A wait ends without a grant only when its time is over, its caller has cancelled it,
 *   or the engine refuses it. A release that is not answered is repeated for two seconds.
 * - late: A call is answered within a bound after its wait has ended, whatever is broken.
 * - kept: A name is not granted while hold_at_least or a lock-delay keeps it, except to programs
 *   that ignore that.
 * - jumped: A claim whose place in the queue was confirmed before another one asked, or which
 *   the same client made earlier, is granted first (exclusive claims, where the engine promises
 *   order, without faults). Where claims of one client may overtake each other, only
 *   the confirmed place counts.
 * - went-back: A guarded store accepts no smaller token after a larger one.
 * - write-lost: A guarded store accepts no write whose writer had not read the last accepted value.
 *
 * The simulator reports four more: server (a simulated server has failed, or a script on it),
 * endless (a run in which requests and answers follow each other without an end), deadline (a
 * holder counts on its lock for longer than its servers keep it) and forked (a child that did not
 * exec could use what its parent holds).
 *
 * A run that has broken an engine's own assumption (a clock that jumped, a store that forgot) asks
 * only for the rules that are still promised. Time and memory are linear in the number of events,
 * except that a grant of a slot looks at the other slots, and a grant at its client's other claims.
 */
#ifndef STILE_SIM_CHECK_H
#define STILE_SIM_CHECK_H

#include "sim/history.h"

#define CHECK_RULES(X)                                                                             \
    X(OVERLAP, "overlap")                                                                          \
    X(TOKEN_ORDER, "token-order")                                                                  \
    X(TOKEN_TWICE, "token-twice")                                                                  \
    X(UNASKED, "unasked")                                                                          \
    X(UNTOLD, "untold")                                                                            \
    X(FALSE_LOSS, "false-loss")                                                                    \
    X(STARVED, "starved")                                                                          \
    X(BUSY, "busy")                                                                                \
    X(GAVE_UP, "gave-up")                                                                          \
    X(LATE, "late")                                                                                \
    X(KEPT, "kept")                                                                                \
    X(JUMPED, "jumped")                                                                            \
    X(WENT_BACK, "went-back")                                                                      \
    X(WRITE_LOST, "write-lost")                                                                    \
    X(SERVER, "server")                                                                            \
    X(ENDLESS, "endless")                                                                          \
    X(DEADLINE, "deadline")                                                                        \
    X(FORKED, "forked")

enum rule {
#define CHECK_RULE(name, text) RULE_##name,
    CHECK_RULES(CHECK_RULE)
#undef CHECK_RULE
        RULES
};

#define ALL_RULES ((1u << RULES) - 1)

struct promises {
    unsigned rules;       /* bits 1 << enum rule */
    bool claims_race;     /* jumped: those of one client may overtake each other on their way */
    bool exact_holds;     /* kept: hold_at_least counts from the grant, however slow that was */
    bool late_delays;     /* busy: a lock-delay begins when the next claim finds its holder gone */
    bool breaks_named;    /* false-loss, untold: a break ends no claim that was asked for after its
                           * answer, and its holder is told within a second of the next grant */
    bool polls_foreign;   /* starved: a waiter behind another program is woken, or looks often */
    bool queues_foreign;  /* other programs stand in the queue, and are owed what others are */
    uint64_t bound_ns;    /* starved: the longest a waiter of a free name may wait */
    uint64_t takeover_ns; /* starved: how long a claim may last after its deadline, its holder's
                           * death, or the end of a fault */
    uint64_t wake_ns;     /* starved: the same if nothing is wrong, after a release that was
                           * answered; 0: not asked for */
    uint64_t answer_ns;   /* late: how long an answer may take once it is due; 0: not asked for */
};

#define WITNESSES_MAX 4

/* The first rule that was broken. */
struct violation {
    enum rule rule;
    char sentence[320];
    size_t events[WITNESSES_MAX]; /* indexes of the few that show it, in order */
    size_t n_events;
    bool at_end; /* it shows only when the history ends */
};

struct verdict {
    bool holds;
    struct violation violation; /* if it does not */
    size_t grants, losses, writes_accepted, writes_refused;
    size_t updates_lost; /* by writes to a store without a guard */
    uint64_t longest_wait_ns;
};

/* False: there is no memory to judge it. */
bool check_history(struct verdict *verdict, const struct history *history,
                   const struct promises *promises);
const char *check_rule_text(enum rule rule);
/* The sentence, and the events that show it. */
void check_print_violation(const struct verdict *verdict, const struct history *history, FILE *out);

#endif
