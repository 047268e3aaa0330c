/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: renewed in batches, and over at their deadline.
 *
 * Deadline = time read before the request was sent + TTL - drift (1 % + 2 ms) - margin. It passes
 * without any server's help. One loop timer serves all locks of a client: its tick declares the
 * loss of overdue locks, renews together all that are due or nearly so, and sleeps until the next
 * is due. */
#ifndef STILE_LEASE_H
#define STILE_LEASE_H

#include "io/loop.h"

struct stile_client;
struct stile_lock;

#define LEASE_BATCH 256

struct leases {
    struct timer tick;
    struct stile_lock *first; /* locks held; on session leases also those that wait */
    bool session_asked;       /* a session renewal is under way */
    uint64_t round;           /* numbers the rounds of renewals: no lock is renewed twice in one */
};

uint64_t lease_deadline(uint64_t sent_ns, uint64_t ttl_ns); /* ttl 0: NEVER */
bool lease_is_valid(const struct stile_lock *lock);         /* held, and before its deadline */

void lease_start(struct stile_lock *lock, uint64_t sent_ns, uint64_t ttl_ns);
void lease_keep_session(struct stile_lock *lock); /* nothing to do but on session leases */
void lease_stop(struct stile_lock *lock);

/* Answers to renewals; session NULL: of all there are. */
void lease_renewed(struct stile_lock *lock, uint64_t sent_ns, uint64_t ttl_ns);
void lease_unknown(struct stile_lock *lock);
void lease_session_renewed(struct stile_client *client, const void *session, uint64_t sent_ns,
                           uint64_t ttl_ns);
void lease_session_unknown(struct stile_client *client, const void *session);
/* Sets the deadline of all locks of the session to now. */
void lease_end_session(struct stile_client *client, const void *session);

/* Some of the locks whose deadline has passed: all, if fewer than LEASE_BATCH. */
size_t lease_overdue(struct stile_client *client, uint64_t now,
                     struct stile_lock *batch[LEASE_BATCH]);
/* Renews the locks that are due, and arms the tick for the next. */
void lease_renew_due(struct stile_client *client, uint64_t now);

#endif
