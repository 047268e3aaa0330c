/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The order of one client's claims on a name.
 *
 * The server serves waiters in the order in which they join its queue. A claim joins by claim.lua,
 * but the first claim on a name sends take.lua before, and one without a subscription can't join
 * yet. Meanwhile a later claim, even a single try, must not be sent ahead of it. So the newest
 * waiting claim on each name is known here: the next claim on the name makes it join first. */
#include <string.h>

#include "engines/redis/redis.h"

static bool is_same_name(const struct claim *a, const struct claim *b)
{
    return a->name_hash == b->name_hash && a->name_len == b->name_len &&
           memcmp(a->name, b->name, a->name_len) == 0;
}

/* ---- the newest on each name ---- */

/* The link to it, or the NULL at the end of the bucket. */
static struct redis_claim **find_newest(struct redis_claim *claim)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct redis_claim **at = &redis->newest[base->name_hash % NAME_BUCKETS];
    while (*at && !is_same_name(base_of(*at), base))
        at = &(*at)->newest_next;
    return at;
}

struct redis_claim *redis_order_join(struct redis_claim *claim)
{
    struct redis_claim **at = find_newest(claim), *before = *at;
    claim->newest_next = before ? before->newest_next : NULL;
    *at = claim;
    return before;
}

struct redis_claim *redis_order_newest(struct redis_claim *claim)
{
    return *find_newest(claim);
}

void redis_order_leave(struct redis_claim *claim)
{
    struct redis_claim **at = find_newest(claim);
    if (*at == claim)
        *at = claim->newest_next;
}

/* ---- claims that come first ---- */

/* Later claims on its name may have to be put off. Readers and slots that were requested are no
 * reason: they may all be granted. */
static bool comes_first(struct redis_claim *claim, enum claim_state state)
{
    bool requested = state == REQUESTED || state == GRANTED_EARLY;
    return redis_claim_is_in_queue(state) || (requested && base_of(claim)->mode == STILE_EXCLUSIVE);
}

void redis_order_count(struct redis_claim *claim, enum claim_state before, enum claim_state state)
{
    struct redis *redis = redis_of_claim(claim);
    redis->coming_first += comes_first(claim, state);
    redis->coming_first -= comes_first(claim, before);
}

bool redis_order_would_overtake(struct redis_claim *claim)
{
    struct redis *redis = redis_of_claim(claim);
    struct claim *base = base_of(claim);
    if (!redis->coming_first || claim_node(claim)->subscribed)
        return false;
    for (struct leased *older = redis->claims.oldest; older && older != &claim->leased;
         older = older->newer) {
        struct redis_claim *other = (struct redis_claim *)older;
        if (comes_first(other, other->state) && base_of(other)->wait &&
            is_same_name(base_of(other), base))
            return true;
    }
    return false;
}
