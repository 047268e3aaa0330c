/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: elections. One of several candidates leads, and everybody can see which.
 *
 *  E1. A leader is the holder of the lock of the same name, with its token. What a paused leader
 *      still writes only a guard can refuse (guard.h): send the token along.
 *  E2. A candidate that never led gets no report of a loss. A leader gets one.
 *  E3. A campaign ends in OK only if the lock was held at that moment. A candidate whose session
 *      has ended meanwhile does not lead: it campaigns again, behind the others, by itself.
 *  E4. A proclaimed value belongs to one leadership: to one token. etcd and ZooKeeper store it with
 *      the claim. Elsewhere it is in the cell "elect:NAME", which is written with the leader's
 *      token, so that a value that comes late is refused as STALE. Observers take no value of
 *      another token for the leader's.
 *  E5. An engine without cells and tokens elects leaders, but cannot proclaim: UNSUPPORTED.
 *
 * Lifetimes and threads are as for locks (R1 to R7): closing a client frees its elections.
 */
#ifndef STILE_ELECT_H
#define STILE_ELECT_H

#include "../stile.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stile_election;

enum stile_election_state {
    STILE_ELECTION_IDLE,        /* it does not take part */
    STILE_ELECTION_CAMPAIGNING, /* it waits to lead */
    STILE_ELECTION_PROCLAIMING, /* elected; its value is being stored, and it does not lead yet */
    STILE_ELECTION_LEADING,
    STILE_ELECTION_RESIGNING, /* it leads no longer; the engine has not answered yet */
    STILE_ELECTION_LOST,      /* it led, and lost that; it may campaign again */
};

/* Gained: LEADING. Lost: LOST. Called as callbacks are (R4), before the campaign itself is
 * answered; never for a leadership that was resigned. */
typedef void stile_election_fn(struct stile_election *election, enum stile_election_state state,
                               void *data);

/* Zero means default everywhere. */
struct stile_election_options {
    size_t size; /* sizeof this struct; STILE_ELECTION_OPTIONS fills it */
    enum stile_profile profile;
    int64_t ttl_ms;   /* as in stile_lock_options */
    int64_t renew_ms; /* as in stile_lock_options */
    stile_election_fn *on_change;
    void *data; /* for on_change */
};

static inline struct stile_election_options stile_election_options_init(void)
{
    struct stile_election_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_ELECTION_OPTIONS(...) STILE_OPTIONS_OF(stile_election_options, __VA_ARGS__)
#endif

STILE_API enum stile_status stile_election_new(struct stile_election **election,
                                               struct stile_client *client, const char *name,
                                               const struct stile_election_options *options,
                                               struct stile_error *err);

/* Never refuses. Resigns or withdraws without waiting for the engine's answer. A call on it that
 * waits in another thread ends with CANCELLED. */
STILE_API void stile_election_free(struct stile_election *election);

/* Returns OK when it leads. wait_ms as for stile_lock_acquire(). value NULL: nothing is proclaimed;
 * STILE_PROCLAIM_MAX bytes at most. If the value can't be stored, it resigns and the campaign
 * fails. MISUSE: it campaigns or leads already. */
STILE_API enum stile_status stile_election_campaign(struct stile_election *election,
                                                    const char *value, int64_t wait_ms,
                                                    struct stile_error *err);

/* Ends a campaign with CANCELLED; has no effect on a leader. For any thread. */
STILE_API enum stile_status stile_election_cancel(struct stile_election *election);

/* Another value, while it leads. LOST: it no longer leads. STALE: a later leader has proclaimed.
 * Nothing has changed in either case. */
STILE_API enum stile_status stile_election_proclaim(struct stile_election *election,
                                                    const char *value, struct stile_error *err);

/* LOST if it led no longer. It may campaign again whatever this returns. */
STILE_API enum stile_status stile_election_resign(struct stile_election *election,
                                                  struct stile_error *err);

/* *token, which may be NULL: the leader's, also after it was lost; else 0. LEADING is true now, not
 * later: it ends with the lease, whether or not the engine can be reached. */
STILE_API enum stile_election_state stile_election_state(struct stile_election *election,
                                                         uint64_t *token);

/* Readable once its leadership is lost, until the next campaign. The library closes it. */
STILE_API int stile_election_lost_fd(struct stile_election *election);

/* Borrowed, for stile_lock_remaining_ms(), stile_lock_issuer(), stile_lock_lost_reason() and the
 * like. Acquiring or releasing it is the election's business. */
STILE_API struct stile_lock *stile_election_lock(struct stile_election *election);

/* The same without waiting. OK: the callback comes exactly once, never from inside the call. */
typedef void stile_election_done_fn(struct stile_election *election, enum stile_status status,
                                    const struct stile_error *err, void *data);
STILE_API enum stile_status stile_election_campaign_async(struct stile_election *election,
                                                          const char *value, int64_t wait_ms,
                                                          stile_election_done_fn *done, void *data);
STILE_API enum stile_status stile_election_proclaim_async(struct stile_election *election,
                                                          const char *value,
                                                          stile_election_done_fn *done, void *data);
STILE_API enum stile_status stile_election_resign_async(struct stile_election *election,
                                                        stile_election_done_fn *done, void *data);

/* ---- observing ---- */

struct stile_leader {
    const char *name;
    bool leads;       /* false: nobody leads, and what follows is empty */
    const char *host; /* "": not known */
    int64_t pid;      /* 0: not known */
    const char *command;
    uint64_t token;    /* 0: the engine issues none */
    int64_t age_ms;    /* since it was elected, or on some engines since it campaigned; -1: not
                        * known */
    const char *value; /* what it proclaims; "": nothing, or nothing yet */
};

/* Return non-zero to stop. */
typedef int stile_leader_fn(const struct stile_leader *leader, void *data);

/* Calls fn once. */
STILE_API enum stile_status stile_leader_show(struct stile_client *client, const char *name,
                                              stile_leader_fn *fn, void *data,
                                              struct stile_error *err);

/* Calls fn once, then whenever the leader or its value changes, until it returns non-zero (OK) or
 * neither has changed for wait_ms (TIMEOUT; -1: never). That nobody leads
 * is a report of its own. As with stile_watch(), of changes that follow one another quickly the
 * last one is reported. A new leader may be reported without its value first. */
STILE_API enum stile_status stile_leader_watch(struct stile_client *client, const char *name,
                                               int64_t wait_ms, stile_leader_fn *fn, void *data,
                                               struct stile_error *err);

/* The same for event loops, as stile_show_async() and stile_watch_async(); stile_watch_cancel()
 * ends a watch by its number. */
STILE_API enum stile_status stile_leader_show_async(struct stile_client *client, const char *name,
                                                    stile_leader_fn *fn, stile_query_done_fn *done,
                                                    void *data, struct stile_error *err);
STILE_API enum stile_status stile_leader_watch_async(uint64_t *watch, struct stile_client *client,
                                                     const char *name, int64_t wait_ms,
                                                     stile_leader_fn *fn, stile_query_done_fn *done,
                                                     void *data, struct stile_error *err);

#ifdef __cplusplus
}
#endif
#endif
