/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A history: what the clients of some locks did and learned, with times on one clock.
 *
 * The simulator and `stile torture` write histories, and check.h judges them. Events are in the
 * order of their times. An event that a client reports carries the time at which the client knew:
 * a grant counts from then, and a claim that is released or lost no longer counts from then.
 */
#ifndef STILE_SIM_HISTORY_H
#define STILE_SIM_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "stile.h"

#define HISTORY_KINDS(X)                                                                           \
    X(ASKED, "asked")         /* a claim begins: client, name, mode, slots */                      \
    X(QUEUED, "queued")       /* the engine has confirmed its place in the queue */                \
    X(GRANTED, "granted")     /* token, deadline_ns */                                             \
    X(RENEWED, "renewed")     /* deadline_ns */                                                    \
    X(RELEASED, "released")   /* its holder stops acting on it and gives it back */                \
    X(LOST, "lost")           /* its holder was told that it is lost */                            \
    X(ANSWERED, "answered")   /* its wait ended without a grant: status */                         \
    X(ENDED, "ended")         /* its release was answered: status */                               \
    X(CANCELLED, "cancelled") /* its caller no longer waits */                                     \
    X(ACTED, "acted")         /* its holder was told that it is held */                            \
    X(BROKEN, "broken")       /* an operator took it away, or another program deleted it */        \
    X(DIED, "died")           /* the client: none of its claims counts any longer */               \
    X(CLOSED, "closed")       /* the client: all of its calls have been answered */                \
    X(EXCUSED, "excused")     /* the client was paused or cut off: its waits are owed nothing */   \
    X(FAULT, "fault")         /* something is broken from now on */                                \
    X(HEALED, "healed")       /* one of those faults is over */                                    \
    X(BREAKS, "breaks")       /* an operator begins to break the lock of this name */              \
    X(BROKE, "broke")         /* and is answered: name, status */                                  \
    X(WROTE, "wrote")         /* client, resource, token, seen, value, outcome */

enum event_kind {
#define HISTORY_KIND(name, text) EVENT_##name,
    HISTORY_KINDS(HISTORY_KIND)
#undef HISTORY_KIND
        EVENT_KINDS
};

/* What became of a write. */
enum write_outcome { WRITE_ACCEPTED, WRITE_REFUSED, WRITE_UNKNOWN };

#define NO_NUMBER UINT32_MAX /* of no client, name or claim */

struct event {
    uint64_t ns;
    enum event_kind kind;
    uint32_t client;      /* all but FAULT, HEALED, BREAKS and BROKE */
    uint32_t name;        /* ASKED, BREAKS, BROKE: of the lock; WROTE: of the resource */
    uint32_t claim;       /* from ASKED to BROKEN: as history_ask() numbered it */
    enum stile_mode mode; /* ASKED */
    uint32_t slots;       /* ASKED, with STILE_SLOTS */
    bool foreign;         /* ASKED: by another program */
    bool ignores_holds;   /* ASKED: what hold_at_least and lock-delay keep does not keep it out */
    uint64_t until_ns;    /* ASKED: when its wait ends by itself, at once for a try; UINT64_MAX:
                           * never; 0: not recorded */
    uint64_t lease_ns, hold_ns, delay_ns; /* ASKED: TTL, hold_at_least and lock-delay; 0: none */
    enum stile_status status;             /* ANSWERED, ENDED, BROKE */
    uint64_t token;                       /* GRANTED, WROTE */
    uint64_t deadline_ns;                 /* GRANTED, RENEWED; UINT64_MAX: it has none */
    bool guarded;                         /* WROTE: the store checks tokens */
    enum write_outcome outcome;
    uint64_t sent_ns;     /* WROTE: when it was sent; 0: not recorded */
    uint64_t seen, value; /* WROTE: the value that its writer had read, and the one it wrote. No two
                           * writes to a resource have the same value; 0 is there at the start */
};

struct history {
    struct event *events;
    size_t n, room;
    char **names; /* by number */
    uint32_t n_names, n_clients, n_claims;
    bool out_of_memory; /* an event is missing: nothing can be said about this history */
};

void history_init(struct history *history);
void history_free(struct history *history);

/* The number of a name, new or known. */
uint32_t history_name(struct history *history, const char *name);
/* The number of the claim that this client makes. */
uint32_t history_ask(struct history *history, uint64_t ns, uint32_t client, const char *name,
                     enum stile_mode mode, uint32_t slots);
/* The same with all that is known of it; kind, name and claim are filled in. */
uint32_t history_ask_more(struct history *history, const struct event *event, const char *name);
/* Any other event. Its time must not be before that of the last one. */
void history_add(struct history *history, const struct event *event);

const char *history_kind_text(enum event_kind kind);
/* One line: "12.345000000 c2 granted claim 7, token 8, until 22.300000000". */
void history_print_event(const struct history *history, size_t index, FILE *out);
void history_print(const struct history *history, FILE *out);

#endif
