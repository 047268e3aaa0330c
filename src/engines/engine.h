/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The contract between core and an engine.
 *
 * An engine knows how its server keeps a lock, and nothing else. Waiting time, retries, renewal
 * cadence, loss and callbacks are decided by core, once, for all engines.
 *
 * Requests go down through struct engine_class, answers come back through struct engine_events.
 * Both run under the client's mutex on the thread that drives the loop. An answer may come from
 * inside the request (local does that) or at any later time. Engines have no threads and no clock
 * of their own: time, timers, fds and randomness come from the loop.
 *
 * The life of a claim, as core drives it:
 *
 *     claim() ──► granted ──► renew() ──► renewed | unknown | lost          (any number of times)
 *        │  └──► busy | failed     the engine has forgotten the claim
 *        └──► release() ──► released      also before any answer to claim(): that is a withdrawal
 *
 * After release() was called, released() is the only answer that may still come, exactly once.
 */
#ifndef STILE_ENGINE_H
#define STILE_ENGINE_H

#include "base/error.h"
#include "io/loop.h"
#include "stile.h"

struct url;
struct engine_class;

/* One open engine. The engine's own struct starts with it. */
struct engine {
    const struct engine_class *class;
    const struct engine_events *events;
    struct loop *loop;
    struct stile_caps caps; /* a copy of its class's; open() may lower it to what this URL gets */
    const char *label;      /* the command that show prints for our claims */
    int64_t pid;            /* the process that show prints as the one to signal */
    bool examining;         /* opened for examine() and adopt() only, so no claim and no other query
                             * comes: open() goes as far as it can, and refuses as little as
                             * possible */
    void *core;             /* core's */
};

/* One attempt of a lock to be granted. The engine's state of claim_size bytes follows it in memory.
 * Core zeroes that state when the lock is created and never touches it again. */
struct claim {
    struct engine *engine;
    void *core;       /* core's */
    const char *name; /* NUL-terminated; checked by name_check() */
    size_t name_len;
    uint64_t name_hash;
    enum stile_mode mode;
    uint32_t slots;
    uint64_t ttl_ns;
    bool ttl_given;       /* the caller gave it, so resume() changes the stored one */
    uint64_t hold_ns;     /* hold_at_least, or 0 */
    uint64_t delay_ns;    /* lock-delay, or 0 */
    const char *owner;    /* given by the user for resume(), else NULL */
    const char *proclaim; /* if caps.proclaims: the value shown to all clients, else NULL */
    bool wait;            /* false: answer busy at once if the lock is held */
    bool unused;          /* release: nothing was done under the lock, so no hold remains */
    bool lost;            /* release: the claim ended abnormally, so delay_ns begins */
    const void *session;  /* session leases, set by the engine: the session that the claim belongs
                           * to if the engine has several; NULL: the only one */
    uint64_t state[];     /* the engine's */
};

#define RECORD_MAX 1023 /* bytes of a record */

/* One query: list, show, break, examine, adopt, resize, record, proclaim; or a subscription to
 * changes of a name. */
struct query {
    struct engine *engine;
    const char *name; /* list: the prefix, may be "" */
    size_t name_len;
    uint64_t token;      /* break: only this grant; 0: any holder. record: its order */
    const char *record;  /* record: one line of text, NUL-terminated, RECORD_MAX bytes at most */
    struct claim *claim; /* proclaim: may be gone when the call has returned */
    void *core;          /* core's */
    unsigned looks;      /* the engine's: how often it has looked in vain */
    void *state; /* the engine's, NULL at the start; freed by the engine before the query ends */
};

/* One request to the table of jobs. Its strings stay valid until job_done(). */
enum job_verb {
    JOB_ADD,       /* queue, entries, delay_ms; fills ids */
    JOB_CLAIM,     /* queue, max, lease_ms, tries; reports each job(), or due_ms if there is none.
                    * Marks, if any, are acknowledged first, in the same transaction if possible */
    JOB_ACK,       /* marks; reports job_mark() for each whose token is still the job's latest */
    JOB_FAIL,      /* as JOB_ACK; text */
    JOB_GIVE_BACK, /* as JOB_ACK */
    JOB_EXTEND,    /* as JOB_ACK; lease_ms */
    JOB_LIST,      /* queue, max, filter; reports each job(), with the first line of its error */
    JOB_SHOW,      /* queue, id; reports one job() with its payload, or none */
    JOB_COUNT,     /* queue, or "" for all; reports each job_queue() */
    JOB_RETRY,     /* queue, id or 0; fills count */
    JOB_DROP,      /* queue, id; fills count */
    JOB_VERBS,
};

struct job_mark {
    uint64_t token;
    int64_t delay_ms; /* fail: until the job is due again */
    bool dead;        /* fail: never again */
};

struct job_request {
    struct engine *engine;
    enum job_verb verb;
    const char *queue; /* NUL-terminated */
    size_t queue_len;
    const struct stile_job_entry *entries;
    size_t n_entries;
    uint64_t *ids;    /* as many */
    const char *text; /* fail: UTF-8 without control characters except \n and \t */
    const struct job_mark *marks;
    size_t n, max;
    uint64_t id;
    int64_t delay_ms, lease_ms;
    unsigned tries;
    enum stile_jobs_filter filter;
    bool listen; /* claim: report job_arrived() for every arrival in the queue from now on, so that
                  * no job can arrive unnoticed between this request and its answer */

    /* filled by the engine */
    uint64_t count;
    int64_t due_ms;    /* until the next job of the queue is due; -1: there is none */
    bool listening;    /* job_arrived() will come; if unset, core polls */
    uint64_t sent_ns;  /* the loop's time before the request was sent; 0: it was not sent */
    uint64_t state[4]; /* the engine's, zero at the start */
    void *core;        /* core's */
};

/* One request to the cells of an engine. Its strings stay valid until cell_done(). */
enum cell_verb {
    CELL_GET,    /* key; reports the cell() with its value */
    CELL_PUT,    /* key, value, if_version, token, issuer, strict, keep_ns */
    CELL_REMOVE, /* key, if_version, token, issuer, strict */
    CELL_RAISE,  /* key, token (never 0), issuer, strict: the guard alone, whether or not there is a
                  * cell */
    CELL_RESET,  /* key, token, issuer: the guard has seen exactly this from now on */
    CELL_LIST,   /* key: the prefix, may be ""; reports each cell() there is, in byte order, without
                  * its value but with its size. No tombstones, no bare guards */
    CELL_PACE,   /* key, a name of a namespace of its own; pace, which it fills. Only if
                  * engine_cells.paces; reports no cell() */
    CELL_VERBS,
};

/* A start that a caller of stile_pace() asks for, in microseconds of the server's clock. The rules
 * are those of recipes/pace_rule.c. */
enum pace_outcome {
    PACE_RESERVED,    /* from start_us to end_us */
    PACE_FAR,         /* it would be at start_us, and nothing was reserved */
    PACE_OTHER_TERMS, /* its terms are `used`, until start_us at least */
};

struct pace_terms {
    uint32_t count, burst;
    int64_t per_us;
};

struct pace_request {
    struct pace_terms terms;
    int64_t tolerance_us; /* how long after its start a reservation ends; */
    int64_t answer_us;    /* but no earlier than this from now, so that the answer can arrive */
    int64_t wait_us;      /* reserve nothing that is further away */

    /* filled by the engine */
    enum pace_outcome outcome;
    int64_t now_us, start_us, end_us;
    struct pace_terms used;
};

/* Writes (put, remove) and raise are judged by guard_judge() (base/guard.h) first and by if_version
 * second, both in one step with the write; what is refused changes nothing, the guard included.
 * What passes with a token stores the token and guard_issuer() in the same step.
 *
 * Versions grow with each put of a key, and none comes back: a removal leaves a tombstone with the
 * version (unless versions are the server's own, of all keys) and with what the guard has seen.
 *
 * A cell put with keep_ns ends that long after its last put, or later, and leaves nothing, no
 * tombstone either: from then on no request finds it, and what remains of it in the server goes in
 * bounded steps. */
struct cell_request {
    struct engine *engine;
    enum cell_verb verb;
    const char *key; /* NUL-terminated; checked by name_check() */
    size_t key_len;
    const void *value; /* STILE_CELL_MAX bytes at most; not NULL */
    size_t size;
    bool any_version; /* if unset, only the version if_version; 0: only if there is no cell */
    uint64_t if_version;
    uint64_t token;     /* 0: none */
    const char *issuer; /* NUL-terminated; "": not given */
    bool strict;
    uint64_t keep_ns; /* put, if its class keeps: how long it is kept after this; 0: for ever */
    bool clock;       /* get: with the server's time, even if that costs a write */
    struct pace_request *pace;

    /* filled by the engine */
    uint64_t ends_ns; /* get: until the cell ends, if that is not reported by changed(); 0: it does
                       * not, or it is reported */

    uint64_t state[4]; /* the engine's, zero at the start */
    void *core;        /* core's */
};

/* The answers of an engine. err may be NULL where the status is all there is to say; core copies
 * it. */
struct engine_events {
    /* NULL: open() has reached the engine, and claims may come. An error: nothing is left behind,
     * and close() is not called. */
    void (*opened)(struct engine *engine, const struct stile_error *err);

    /* sent_ns: the loop's time read BEFORE the request that won the lock was sent; ttl_ns: how long
     * the engine really keeps it, counted from then; 0 on process leases. Core computes the
     * deadline. The engine must have verified at this moment that the claim is its own. */
    void (*granted)(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns);

    /* Another claim holds the lock, and nothing of this one is left in the engine. Core tries
     * again no later than hint_ns from now (0: not known). Answers a claim with wait unset on every
     * engine, and any claim on engines that can't queue. */
    void (*busy)(struct claim *claim, uint64_t hint_ns);

    /* The claim waits in the server's queue: its request is answered and no longer counts as in
     * flight. Engines that set in_flight must report it at least once per waiting claim: otherwise
     * waiters would use up all places, and no release could pass them. */
    void (*queued)(struct claim *claim);

    /* Not granted. UNREACHABLE, REFUSED, CORRUPT, NOMEM ...: nothing is left in the engine.
     * UNCERTAIN: something may be left; core calls release(). */
    void (*failed)(struct claim *claim, const struct stile_error *err);

    /* OK (err NULL), or LOST: the lock was no longer held. Both are final. Any other status means
     * that the claim may still exist: core calls release() again, with growing pauses, until the
     * answer is final or the claim's own lease must have ended. So the engine keeps what it needs
     * to try again, and answers OK once the session that the claim belongs to is gone. */
    void (*released)(struct claim *claim, const struct stile_error *err);

    void (*renewed)(struct claim *claim, uint64_t sent_ns, uint64_t ttl_ns);
    void (*unknown)(struct claim *claim); /* renewal sent, answer not known; core tries again */

    /* A granted claim is no longer held: a renewal found out, or the server reported it. Core calls
     * release() to remove what may be left. */
    void (*lost)(struct claim *claim, const struct stile_error *err);

    /* Session leases: the same three for all claims of one session at once; session NULL: for all
     * claims. After renew(), each session that has claims is answered for, even if nothing could be
     * sent. */
    void (*session_renewed)(struct engine *engine, const void *session, uint64_t sent_ns,
                            uint64_t ttl_ns);
    void (*session_unknown)(struct engine *engine, const void *session);
    void (*session_lost)(struct engine *engine, const void *session, const struct stile_error *err);

    /* list: once per name, in byte order. show: once. Core copies the info and all it points to. */
    void (*info)(struct query *query, const struct stile_info *info);

    /* show, before info(): the name's record, if there is one. Core copies it, and refuses what it
     * has not written. */
    void (*record)(struct query *query, const char *text, size_t len);

    /* examine, adopt, resize: each finding as soon as it is known. Core copies it. Texts may be
     * NULL. */
    void (*finding)(struct query *query, const struct stile_finding *finding);

    void (*done)(struct query *query, const struct stile_error *err); /* NULL: OK */

    /* push: the name may have changed, and core shows it again soon, not from inside this call. */
    void (*changed)(struct query *query);

    /* The results of a job request, before job_done(). Core copies them. */
    void (*job)(struct job_request *request, const struct stile_job *job);
    void (*job_mark)(struct job_request *request, uint64_t token);
    void (*job_queue)(struct job_request *request, const struct stile_queue *queue);

    /* UNCERTAIN: the request was sent, and its outcome is not known. */
    void (*job_done)(struct job_request *request, const struct stile_error *err); /* NULL: OK */

    /* A job may have arrived in this queue (NULL: in any queue). */
    void (*job_arrived)(struct engine *engine, const char *queue);

    /* The results of a cell request, before cell_done(). Core copies them. Each verb but list
     * reports one: the cell as it is after the request, or, if it was refused, the one that refused
     * it; with version 0 if there is none. A NULL issuer counts as "". If caps.clock, or
     * if request->clock and caps.paces, that of a get carries the time of the server's clock,
     * asked for in the same round trip. */
    void (*cell)(struct cell_request *request, const struct stile_cell *cell);

    /* STALE, FOREIGN, CONFLICT: it was refused, and changed nothing; core writes the message.
     * UNREACHABLE: it was not sent. UNCERTAIN: it was sent, and its outcome is not known. */
    void (*cell_done)(struct cell_request *request, const struct stile_error *err); /* NULL: OK */
};

/* ---- optional parts ---- */

/* The engine reports changes of a name. Without it core shows a watched name several times a
 * second. */
struct engine_push {
    /* Must report changed() after every change of query->name, and whenever one may have been
     * missed: after a reconnect, and once the subscription is in place, unless every show() that
     * follows this call sees what happened before. A report too many costs one show(). The end of a
     * lease or a hold that show() has announced (expires_ms) need not be reported: core shows the
     * name again by itself. Ends with unwatch(), or with done(err) if the engine can't go on. */
    void (*watch)(struct engine *engine, struct query *query);
    /* Never called from inside changed(). No report comes afterwards. */
    void (*unwatch)(struct engine *engine, struct query *query);
};

/* Claims that outlive their process: caps.detached. */
struct engine_detached {
    /* Must take over the claim of claim->owner and renew it. An engine that stores a claim's
     * options restores mode, slots, hold_ns and delay_ns, and ttl_ns unless ttl_given, before it
     * reports granted: the caller need not repeat them. hold_ns counts from the first grant. Ends
     * in granted or failed(LOST). */
    void (*resume)(struct engine *engine, struct claim *claim);

    /* May: forget a granted claim and leave it in the engine until its lease runs out. No answer
     * about it comes afterwards. NULL: core forgets the claim and ignores such answers. */
    void (*detach)(struct engine *engine, struct claim *claim);

    /* Must return the owner value of a granted claim. Borrowed. */
    const char *(*owner)(struct engine *engine, struct claim *claim);
};

/* Tables of jobs. */
struct engine_jobs {
    /* Must end in job_done(), once, and within a bounded time. Each request is one transaction. A
     * job's token is larger than that of its claim before, and larger than any of an earlier job
     * with the same key; it survives a crash of the server. */
    void (*run)(struct engine *engine, struct job_request *request);

    /* May: the last claim that listened to this queue is over. */
    void (*left)(struct engine *engine, const char *queue);
};

/* Small values with versions and guards: caps.cells. */
struct engine_cells {
    /* Must end in cell_done(), once, and within a bounded time. A write that was answered survives
     * what a token survives. */
    void (*run)(struct engine *engine, struct cell_request *request);

    bool paces; /* CELL_PACE is one round trip; if unset, it is made of CELL_GET and CELL_PUT */

    /* The unit of the server's clock, in microseconds, to which the time of a get is rounded up.
     * Less than that is 0. */
    uint32_t clock_unit_us;

    /* May, else NULL both, and core reads a watched cell several times a second: as the slots of
     * struct engine_push, for the cell query->name and its guard. */
    void (*watch)(struct engine *engine, struct query *query);
    void (*unwatch)(struct engine *engine, struct query *query);
};

/* What `stile setup` and `stile doctor` do. Each slot may be NULL. */
struct engine_admin {
    /* Creates what the engine needs in its server, or brings it up to date. *script is the text of
     * what runs there, and stays valid; with dry_run nothing else happens. No engine is open. May
     * block, for a bounded time. NULL: the engine needs nothing. */
    enum stile_status (*setup)(const struct url *url, bool dry_run, const char **script,
                               struct stile_error *err);

    /* The same for what the guards of users' own transactions or scripts need, and for nothing
     * else. */
    enum stile_status (*install_guard)(const struct url *url, bool dry_run, const char **script,
                                       struct stile_error *err);

    /* Checks the conditions of the promises in caps, changes nothing, reports each finding() and
     * then done(), within a bounded time; an error only if nothing could be checked. NULL: open()
     * has checked everything. */
    void (*examine)(struct engine *engine, struct query *query);

    /* Takes back servers that have lost their data, where that is known to be safe. Reports by
     * finding() what it did or why it did not, then done(). NULL: a server never has to be taken
     * back. */
    void (*adopt)(struct engine *engine, struct query *query);

    /* Makes the URL's servers the engine's servers, whatever an earlier attempt has left. Reports
     * by finding() what it did or why it did not, then done(). NULL: clients need not agree on a
     * list of servers. */
    void (*resize)(struct engine *engine, struct query *query);
};

/* A record of each name's last holder, which outlives it: "who ran last night?" */
struct engine_history {
    /* Must store query->record for query->name, in place of the one that is stored, unless that has
     * a larger query->token: a holder that was paused must not overwrite its successor's. show()
     * reports it, also for a name that is free. It survives what a token survives; but it is
     * information, not a promise, so it need not be synced to disk, and may be dropped after 30
     * days or to make room for others. A million names must not fill the server for ever. Ends in
     * done(). */
    void (*record)(struct engine *engine, struct query *query);
};

/* Claims that carry a value for all clients to see: caps.proclaims. */
struct engine_proclaims {
    /* Must make claim->proclaim of the granted query->claim its public value, in one step with the
     * comparison that the claim still exists, and change nothing otherwise. Ends in done(): LOST if
     * the claim is gone, UNCERTAIN if the request was sent and its outcome is not known. */
    void (*proclaim)(struct engine *engine, struct query *query);
};

/* ---- the class ---- */

struct engine_class {
    const char *schemes;       /* "local"; several are separated by spaces */
    const char *const *params; /* its URL parameters, NULL-terminated; others are refused */
    struct stile_caps caps;
    /* May, else NULL: what it promises with this URL, whose parameters are known but not checked.
     * No server is asked. NULL: caps, for every URL. */
    const struct stile_caps *(*promises)(const struct url *url);
    bool apart;         /* the engine keeps several claims of one client on one name apart; unset:
                         * core lets one at a time through (name_queue.c), since the engine would take the
                         * second for the first */
    bool apart_sharing; /* the same for shared claims and slots: only exclusive claims take turns */
    size_t in_flight;   /* how many claims and releases may be unanswered at once (admission.h);
                         * 0: any number */
    size_t engine_size; /* of its struct, which starts with struct engine */
    size_t claim_size;  /* of its state behind struct claim */

    /* Must reach the engine and check that it can keep its promises, or refuse with an error that
     * says what to do. Ends in opened(), once and within a bounded time. The URL stays valid until
     * then. An engine whose promises depend on the URL or on the server may put another class of
     * its own in engine->class; core reads it afterwards. */
    void (*open)(struct engine *engine, const struct url *url);

    /* Must give up everything it still has in the engine, within a bounded time, and free all it
     * has allocated but the struct itself. Core has released every claim before. Before opened() it
     * ends the attempt to open: opened() must not come any longer. */
    void (*close)(struct engine *engine);

    /* Must, in a forked child, close its file descriptors and nothing else: only close(2) and free
     * of memory are allowed. The process does not fork during close(), nor during anything that
     * runs under the client's mutex: an engine needs no fork handlers for its locks. It may come
     * before opened(). */
    void (*forked)(struct engine *engine);

    /* May, else NULL: a descriptor whose open file description proves that this client is alive.
     * Its locks last until the last copy of the descriptor is closed, in any process. */
    int (*life_fd)(struct engine *engine);

    /* Must work on being granted, and end in granted, busy or failed, exactly once. With wait set,
     * an engine that can queue keeps the claim in its queue until it is granted or withdrawn. */
    void (*claim)(struct engine *engine, struct claim *claim);

    /* Must give a granted claim back, withdraw a waiting one, and remove one whose fate is unknown.
     * Idempotent in the engine: core repeats it until the answer is final. hold_ns is kept even if
     * the process ends. */
    void (*release)(struct engine *engine, struct claim *claim);

    /* Claim leases: must renew each of n claims, batched. Session leases: must renew each session
     * that has claims (claims NULL, n 0), but none again before it has answered. Where renewal is
     * all that keeps a session alive, no claim joins a session that was renewed more than half of
     * its TTL ago. Process leases: NULL. */
    void (*renew)(struct engine *engine, struct claim *const *claims, size_t n);

    /* Must. Each ends in done(). */
    void (*list)(struct engine *engine, struct query *query);
    void (*show)(struct engine *engine, struct query *query);
    void (*break_)(struct engine *engine, struct query *query); /* the holder is sent lost() */

    /* Must end one of these three, a record() or a proclaim() that is under way, without done().
     * What was sent may still be executed. NULL: they all end inside their calls. */
    void (*cancel)(struct engine *engine, struct query *query);

    /* Optional parts, NULL where the engine lacks them. */
    const struct engine_push *push;
    const struct engine_detached *detached;
    const struct engine_cells *cells;
    const struct engine_jobs *jobs;
    const struct engine_admin *admin;
    const struct engine_history *history;
    const struct engine_proclaims *proclaims;
};

#endif
