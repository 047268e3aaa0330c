/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/kit/lease.h"

#include <stdlib.h>
#include <string.h>

/* ---- by owner ---- */

/* The beginning of an owner value may be the same in all of a client. */
static unsigned bucket_of(const char *owner, size_t len)
{
    unsigned hash = 0;
    for (size_t i = len - LEASED_OWNER_MIN; i < len; i++)
        hash = hash * 31 + (unsigned char)owner[i];
    return hash % LEASED_BUCKETS;
}

void leased_add(struct leased_claims *claims, struct leased *leased)
{
    struct leased **bucket = &claims->by_owner[bucket_of(leased->owner, strlen(leased->owner))];
    leased->next = *bucket;
    *bucket = leased;
    leased->older = claims->newest;
    leased->newer = NULL;
    *(claims->newest ? &claims->newest->newer : &claims->oldest) = leased;
    claims->newest = leased;
}

void leased_remove(struct leased_claims *claims, struct leased *leased)
{
    struct leased **at = &claims->by_owner[bucket_of(leased->owner, strlen(leased->owner))];
    while (*at != leased)
        at = &(*at)->next;
    *at = leased->next;
    *(leased->older ? &leased->older->newer : &claims->oldest) = leased->newer;
    *(leased->newer ? &leased->newer->older : &claims->newest) = leased->older;
}

struct leased *leased_find(const struct leased_claims *claims, const char *owner, size_t len)
{
    struct leased *leased = claims->by_owner[bucket_of(owner, len)];
    while (leased && memcmp(leased->owner, owner, len) != 0)
        leased = leased->next;
    return leased;
}

enum stile_status leased_take_owner(struct claim *claim, size_t len, struct stile_error *err)
{
    if (strlen(claim->owner) != len || strspn(claim->owner, "0123456789abcdef") != len)
        return error_set(err, STILE_MISUSE, 0, "an owner value has %zu lower-case hex digits", len);
    memcpy(leased_of(claim)->owner, claim->owner, len + 1);
    return STILE_OK;
}

/* ---- renewals ---- */

void *leased_renewal_new(struct leased_claims *all, size_t size, struct claim *const *claims,
                         size_t n)
{
    struct engine *engine = claims[0]->engine;
    struct leased_renewal *renewal = calloc(1, size);
    struct leased **list = malloc(n * sizeof *list);
    if (!renewal || !list) {
        free(renewal);
        free(list);
        for (size_t i = 0; i < n; i++)
            engine->events->unknown(claims[i]);
        return NULL;
    }
    *renewal = (struct leased_renewal){.next = all->renewals,
                                       .link = &all->renewals,
                                       .engine = engine,
                                       .sent_ns = loop_now(engine->loop),
                                       .n = n,
                                       .claims = list};
    if (renewal->next)
        renewal->next->link = &renewal->next;
    all->renewals = renewal;
    for (size_t i = 0; i < n; i++) {
        list[i] = leased_of(claims[i]);
        list[i]->renewal = renewal;
    }
    return renewal;
}

void leased_renewal_answer(struct leased_renewal *renewal, size_t i, enum leased_answer answer,
                           const char *gone)
{
    struct leased *leased = renewal->claims[i];
    struct stile_error err;
    if (!leased)
        return;
    struct claim *claim = leased_base(leased);
    const struct engine_events *events = renewal->engine->events;
    renewal->claims[i] = NULL;
    leased->renewal = NULL;
    if (answer == LEASED_RENEWED) {
        events->renewed(claim, renewal->sent_ns, claim->ttl_ns);
    } else if (answer == LEASED_GONE) {
        error_set(&err, STILE_LOST, 0, "%s", gone);
        events->lost(claim, &err);
    } else {
        events->unknown(claim);
    }
}

static void renewal_free(struct leased_renewal *renewal)
{
    *renewal->link = renewal->next;
    if (renewal->next)
        renewal->next->link = renewal->link;
    free(renewal->claims);
    free(renewal);
}

void leased_renewal_end(struct leased_renewal *renewal)
{
    for (size_t i = 0; i < renewal->n; i++)
        leased_renewal_answer(renewal, i, LEASED_UNKNOWN, NULL);
    renewal_free(renewal);
}

void leased_leave_renewal(struct leased *leased)
{
    struct leased_renewal *renewal = leased->renewal;
    for (size_t i = 0; renewal && i < renewal->n; i++) {
        if (renewal->claims[i] == leased)
            renewal->claims[i] = NULL;
    }
    leased->renewal = NULL;
}

void leased_renewals_free(struct leased_claims *claims)
{
    while (claims->renewals)
        renewal_free(claims->renewals);
}
