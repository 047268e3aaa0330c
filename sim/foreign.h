/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Another program that uses the same locks and stands in the same queue: its life, from claim to
 * claim, whatever the engine.
 *
 * It has a session for each claim, as a program that wraps a command in a lock. It waits, gives up,
 * holds, and gives back. A careless one also stands still for longer than its session may last, and
 * dies without giving back. It counts on its lock until deadline_ns, which the engine's part must
 * never set later than its servers keep the session.
 *
 * The engine's part talks to the simulated servers one request at a time, without the network: a
 * request or an answer takes a moment, and a server that is down or stopped does not answer.
 */
#ifndef STILE_SIM_FOREIGN_H
#define STILE_SIM_FOREIGN_H

#include "sim/world.h"

#define FOREIGN_MAX 3 /* of them in a run */

struct foreign;
typedef void foreign_fn(struct foreign *foreign);

struct foreign_class {
    /* Begins a claim. It ends in foreign_granted() or foreign_turn_away(). */
    foreign_fn *enter;
    /* Gives it back or withdraws it, and ends in foreign_left(). */
    foreign_fn *leave;
    bool readers;       /* it may also ask for a shared lock */
    bool never_waits;   /* its lock has no queue */
    bool ignores_holds; /* what hold_at_least and lock-delay keep does not concern it */
};

struct foreign {
    const struct foreign_class *class;
    struct random random;
    uint64_t end_ns; /* no claims from then on */
    uint64_t cycle;  /* grows when a claim is over */
    enum foreign_state { RESTING, ENTERING, HOLDING, LEAVING } state;
    uint32_t client, claim;
    const char *name; /* of the lock */
    enum stile_mode mode;
    bool waits, queued, was_held, careless;
    enum stile_status status; /* LEAVING without having held: why */
    uint64_t ttl_ns;
    uint64_t token;
    uint64_t deadline_ns; /* of its session; 0: it has none yet */
    uint64_t paused_until_ns;
};

/* Several of them begin; make() returns the next one's memory, zeroed. */
void foreign_begin(const struct foreign_class *class, uint64_t end_ns, struct random *random,
                   struct foreign *(*make)(void));

/* Calls fn then, unless its claim is over. What is due while it stands still comes later. */
void foreign_at(struct foreign *foreign, uint64_t at_ns, foreign_fn *fn);
/* A request or an answer is under way for so long. */
uint64_t foreign_moment(struct foreign *foreign);

/* ---- what the engine's part reports ---- */

void foreign_queued(struct foreign *foreign);
void foreign_granted(struct foreign *foreign, uint64_t token);
/* Its servers keep the session at least until then. */
void foreign_renewed(struct foreign *foreign, uint64_t deadline_ns);
/* It does not wait, and somebody is before it. */
void foreign_turn_away(struct foreign *foreign);
/* What it has in the queue is gone, although its session should live. */
void foreign_lose(struct foreign *foreign);
void foreign_left(struct foreign *foreign);

#endif
