/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Claims that have a lease of their own: on redis, redlock, and in mode=table of the databases.
 *
 * Two things are alike there. Messages name a claim by its owner value, so the claims of a client
 * are found by that, and listed in the order in which they were made. And one request renews many
 * claims, whose answers differ.
 *
 * A claim that ends while its renewal is under way must leave it (leased_leave_renewal()): else the
 * answer would be about memory that core has freed. */
#ifndef STILE_KIT_LEASE_H
#define STILE_KIT_LEASE_H

#include "base/container.h"
#include "engines/engine.h"

#define LEASED_BUCKETS   512
#define LEASED_OWNER_MIN 8
#define LEASED_OWNER_MAX 40

/* The engine's state of a claim starts with it. */
struct leased {
    struct leased *next;          /* in the same bucket */
    struct leased *older, *newer; /* in the order in which they were added */
    struct leased_renewal *renewal;
    char owner[LEASED_OWNER_MAX + 1]; /* at least LEASED_OWNER_MIN random hex digits at the end */
};

/* All of one client. */
struct leased_claims {
    struct leased *by_owner[LEASED_BUCKETS];
    struct leased *oldest, *newest;
    struct leased_renewal *renewals; /* under way */
};

static inline struct leased *leased_of(struct claim *claim)
{
    return (struct leased *)claim->state;
}

static inline struct claim *leased_base(struct leased *leased)
{
    return container_of(leased, struct claim, state);
}

void leased_add(struct leased_claims *claims, struct leased *leased);
void leased_remove(struct leased_claims *claims, struct leased *leased);
/* NULL: it is not one of ours. */
struct leased *leased_find(const struct leased_claims *claims, const char *owner, size_t len);

/* For resume(): the owner value that the user gives must have len hex digits. */
enum stile_status leased_take_owner(struct claim *claim, size_t len, struct stile_error *err);

/* ---- renewals: many claims in one request ---- */

/* An engine's own struct may start with it. */
struct leased_renewal {
    struct leased_renewal *next, **link; /* link: what points to it */
    struct engine *engine;
    uint64_t sent_ns; /* read before it is sent */
    size_t n;
    struct leased **claims; /* NULL: the claim was answered, or has left */
};

enum leased_answer {
    LEASED_GONE,
    LEASED_RENEWED,
    LEASED_UNKNOWN,
};

/* Size: of the engine's struct, whose rest is zeroed. NULL: out of memory, and the answer of all
 * claims is that nothing is known. */
void *leased_renewal_new(struct leased_claims *all, size_t size, struct claim *const *claims,
                         size_t n);
/* The answer for the i-th claim; gone: the reason of the loss. */
void leased_renewal_answer(struct leased_renewal *renewal, size_t i, enum leased_answer answer,
                           const char *gone);
/* Of what was not answered nothing is known. Frees it. */
void leased_renewal_end(struct leased_renewal *renewal);
void leased_leave_renewal(struct leased *leased);
void leased_renewals_free(struct leased_claims *claims); /* for close(): answers nothing */

#endif
