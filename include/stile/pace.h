/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: a pace, so many starts in a time, across all processes and machines.
 *
 *  P1. No window of per_ms holds more than count starts, whatever its beginning. With a burst, no
 *      interval of length t holds more than burst + count * (t + tolerance_ms) / per_ms + 1.
 *  P2. A start is the moment at which stile_pace() returns OK, or its callback is called. What is
 *      done much later counts as late: start->until_ns says until when P1 holds for it.
 *  P3. A start is reserved in one step and waited for. Reservations are first come, first served.
 *  P4. A start that is reserved and not used (a killed process, a lost answer) costs its turn, and
 *      nothing else. If the wait would be too long, nothing is reserved.
 *  P5. Times are those of the engine's clock. If that jumps ahead, or the engine loses its data,
 *      up to count further starts can follow at once. If it goes back, no start is early, and none
 *      is later by more than per_ms.
 *
 * Names follow the rules of lock names, in a namespace of their own, and have STILE_PACE_NAME_MAX
 * bytes at most. All callers of a name give the same rate: another one is a CONFLICT until the last
 * start is a window ago. Engines need cells and a clock (stile_caps.paces): others are UNSUPPORTED.
 */
#ifndef STILE_PACE_H
#define STILE_PACE_H

#include "../stile.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STILE_PACE_NAME_MAX  (STILE_NAME_MAX - 5)
#define STILE_PACE_COUNT_MAX 1000

/* Zero means default everywhere, except that a rate must be given. */
struct stile_pace_options {
    size_t size;    /* sizeof this struct; STILE_PACE_OPTIONS fills it */
    uint32_t count; /* so many starts, 1 to STILE_PACE_COUNT_MAX, ... */
    int64_t per_ms; /* ... in any window of this length: 10 ms to 366 days */
    uint32_t burst; /* 0: that, exactly. Else evenly spread, and so many at once after a pause */
    int64_t tolerance_ms; /* how late a start may be (a hundredth of per_ms; more if the engine is
                           * slow). A later one is not used, and reserved anew with twice of it.
                           * The rate reached is count / (per_ms + tolerance_ms) */
};

static inline struct stile_pace_options stile_pace_options_init(void)
{
    struct stile_pace_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_PACE_OPTIONS(...) STILE_OPTIONS_OF(stile_pace_options, __VA_ARGS__)
#endif

struct stile_pace_start {
    int64_t delay_ms; /* OK: how long the call has waited. HELD, TIMEOUT: when the next start would
                       * be, counted from now. CONFLICT: when the rate can be changed */
    uint64_t
        until_ns; /* OK: when the paced call must have begun, in nanoseconds of CLOCK_BOOTTIME */
};

/* Returns OK at the moment to start. wait_ms: how long it may wait for it; 0: not at all, else
 * HELD; -1: any time, up to 366 days. TIMEOUT, at once: it would take longer. While it waits, it
 * outlasts an engine that can't be reached. start may be NULL. */
STILE_API enum stile_status stile_pace(struct stile_pace_start *start, struct stile_client *client,
                                       const char *name, const struct stile_pace_options *options,
                                       int64_t wait_ms, struct stile_error *err);

/* For event loops: the same without waiting. OK: done comes exactly once, at the moment to start,
 * and never from inside the call itself; err is NULL if the status is OK. *number, which may be
 * NULL, is for stile_pace_cancel(). */
typedef void stile_pace_fn(const struct stile_pace_start *start, enum stile_status status,
                           const struct stile_error *err, void *data);
STILE_API enum stile_status stile_pace_async(uint64_t *number, struct stile_client *client,
                                             const char *name,
                                             const struct stile_pace_options *options,
                                             int64_t wait_ms, stile_pace_fn *done, void *data);
/* Ends it with CANCELLED; does nothing to one that has ended. */
STILE_API enum stile_status stile_pace_cancel(struct stile_client *client, uint64_t number);

#ifdef __cplusplus
}
#endif
#endif
