/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The session: one lease for each TTL in use, all kept alive over one stream. A claim's key is
 * bound to a lease and disappears with it. */
#ifndef STILE_ETCD_SESSION_H
#define STILE_ETCD_SESSION_H

#include "engines/etcd/connection.h"
#include "engines/etcd/keys.h"

enum lease_state { LEASE_NONE, LEASE_REQUESTED, LEASE_LIVE };

struct lease {
    struct lease *next;
    struct etcd *etcd;
    int64_t seconds; /* as asked for */
    enum lease_state state;
    int64_t id;
    uint64_t ttl_ns;     /* as granted */
    uint64_t renewed_ns; /* when the last successful renewal was sent */
    uint64_t sent_ns;    /* when the last request was */
    bool renewing;
    bool retired;       /* takes no new claims, and is given up when no claim holds by it */
    unsigned late;      /* keep-alives given up as unanswered: their answers are skipped */
    struct timer timer; /* patience with a keep-alive */
    struct timer audit;
    struct key *audit_at;      /* where its next page begins, if it is read by pages */
    struct etcd_claim *claims; /* that live by it */
};

/* For the claims of a lease. */
struct lease_events {
    void (*ready)(struct lease *lease);                                 /* granted, or renewed */
    void (*failed)(struct lease *lease, const struct stile_error *err); /* neither, for now */
    void (*ended)(struct lease *lease);                                 /* with all its keys */
};

/* What an answer makes of a lease that was asked for. */
uint64_t etcd_lease_ttl_ns(int64_t asked_s, int64_t answered_s);
struct lease *etcd_lease_for(struct etcd *etcd, uint64_t ttl_ns); /* NULL: out of memory */
/* True: it is live and lasts; else ready() or failed() follows. */
bool etcd_lease_ensure(struct lease *lease);
void etcd_lease_renew(struct lease *lease);
/* True: it was not renewed for so long that it has expired. */
bool etcd_lease_explain_end(const struct lease *lease, struct stile_error *err);
/* How long an attempt to connect may take, so that there is time for others before a lease that
 * claims live by ends; UINT64_MAX if there is none. */
uint64_t etcd_session_patience_ns(const struct etcd *etcd);
/* The server has ended it. Ignored if the lease has another id by now. */
void etcd_lease_lost(struct lease *lease, int64_t id);
/* Something that lives by it cannot be deleted. */
void etcd_lease_retire(struct lease *lease);
/* A claim of this lease may be executed after its withdrawal: its keys are checked later. */
void etcd_lease_audit_later(struct lease *lease);

void etcd_session_audit_later(struct etcd *etcd);
void etcd_session_init(struct etcd *etcd, const struct lease_events *events);
void etcd_session_close(struct etcd *etcd); /* revokes the leases, for a bounded time */

#endif
