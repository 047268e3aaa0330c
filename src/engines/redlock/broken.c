/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A held claim that was broken: whether a majority of its votes can be left.
 *
 * A break may reach one node alone, and that node may have had the vote that makes the majority.
 * The renewals, which count the nodes, would notice, but the next holder may have a majority long
 * before they do. So the first node that says "broken" has the claim ask all others. */
#include <stdio.h>
#include <string.h>

#include "engines/redlock/redlock.h"

/* Nodes that have no vote for this holder, and will have none: the key is another's, or has come
 * back from another one and ends in a second. A node whose fence is smaller confirms such a key. */
static unsigned count_gone(const struct redlock *redlock, const struct redlock_claim *claim)
{
    unsigned n = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct vote *vote = &claim->votes[i];
        n += vote->answer == TAKEN || vote->answer == OURS;
    }
    return n;
}

bool redlock_broken_lose(struct redlock_claim *claim)
{
    const struct redlock *redlock = redlock_of_claim(claim);
    struct claim *base = redlock_base(claim);
    char why[LOSS_MAX];
    struct stile_error err;
    if (claim->state != HELD || !claim->broken ||
        count_gone(redlock, claim) <= redlock->n - redlock->majority)
        return false;
    redis_loss_broken(why, claim->broken_by);
    error_set(&err, STILE_LOST, 0, "%s", why);
    base->engine->events->lost(base, &err);
    return true;
}

static bool counts(const struct vote *vote)
{
    return vote->answer == OURS || vote->answer == CONFIRMED;
}

/* A node whose key is gone for another reason has no vote either. But only a break is a reason to
 * count: all else is up to the renewals. */
static void on_checked(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct vote *vote = data;
    struct redlock_claim *claim = claim_of_vote(vote);
    const char *reason = err ? NULL : text_of(reply);
    vote->checking = false;
    if (!reason)
        return;
    if (strncmp(reason, "b ", 2) == 0) {
        redlock_vote_broken(vote, reason + 2);
    } else if (claim->broken) {
        vote->answer = TAKEN;
        redlock_broken_lose(claim);
    }
}

void redlock_check_if_due(struct vote *vote)
{
    bool asks = counts(vote) || (claim_of_vote(vote)->broken && vote->answer != TAKEN);
    if (vote->check_due && asks && !vote->pending && claim_of_vote(vote)->state == HELD)
        redlock_vote_check(vote, on_checked);
}

static void check_others(struct redlock_claim *claim)
{
    for (unsigned i = 0; i < redlock_of_claim(claim)->n; i++) {
        claim->votes[i].check_due |= !claim->votes[i].checking;
        redlock_check_if_due(&claim->votes[i]);
    }
}

void redlock_vote_broken(struct vote *vote, const char *by)
{
    struct redlock_claim *claim = claim_of_vote(vote);
    bool first = !claim->broken;
    if (first)
        snprintf(claim->broken_by, sizeof claim->broken_by, "%s", by);
    claim->broken = true;
    redlock_vote_cancel(vote);
    vote->answer = TAKEN;
    if (!redlock_broken_lose(claim) && first)
        check_others(claim);
}
