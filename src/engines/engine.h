/* The contract between core and an engine.
 *
 * An engine knows how its server keeps a lock, and nothing else. It decides nothing about waiting
 * time, retries, renewal cadence, loss or callbacks: core does, once, for all engines.
 *
 * Requests go down through struct engine_class, answers come back through struct engine_events.
 * Both run under the client's mutex on the thread that drives the loop. An answer may come from
 * inside the request (local does) or any time later. Engines have no threads and no clock of their
 * own: time, timers, fds and randomness come from the loop.
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
    struct stile_caps caps; /* its class's; open() may promise less, as a URL asks for it */
    const char *label;      /* what show prints as our command */
    int64_t pid;            /* what show prints as the process to signal */
    bool examining;         /* for examine() only: open() as far as it goes, and refuse as little as
                             * possible. No claim comes, and no question but examine() and adopt() */
    void *core;             /* core's own */
};

/* One attempt of a lock to be granted. The engine's state of claim_size bytes, zeroed when the lock
 * is made and left alone by core afterwards, follows it in memory. */
struct claim {
    struct engine *engine;
    void *core;       /* core's own */
    const char *name; /* NUL-terminated; checked by name_check() */
    size_t name_len;
    uint64_t name_hash;
    enum stile_mode mode;
    uint32_t slots;
    uint64_t ttl_ns;
    bool ttl_given;       /* by the caller, so that resume() changes it */
    uint64_t hold_ns;     /* hold_at_least, or 0 */
    uint64_t delay_ns;    /* lock-delay, or 0 */
    const char *owner;    /* given by the user for resume(), else NULL */
    const char *proclaim; /* where caps.proclaims: what the user tells to all, else NULL */
    bool wait;            /* false: answer busy at once if it is held */
    bool unused;          /* release: nothing was done under it, so no hold is left behind */
    bool lost;            /* release: its end was abnormal, so delay_ns begins */
    const void *session;  /* session leases, set by the engine: which of its sessions it lives by,
                           * where it has several; NULL: the only one */
    uint64_t state[];     /* the engine's */
};

/* One question: list, show, watch, break, examine, adopt. */
struct query {
    struct engine *engine;
    const char *name; /* list: the prefix, may be "" */
    size_t name_len;
    uint64_t token; /* break: only this grant; 0: whoever holds it */
    void *core;     /* core's own */
    void *state;    /* the engine's, NULL at the start; freed by the engine before it ends */
};

/* One errand to the table of jobs, which every open engine with jobs has. Strings are the errand's
 * until it is done. */
enum job_verb {
    JOB_ADD,       /* queue, entries, delay_ms; fills ids */
    JOB_CLAIM,     /* queue, max, lease_ms, tries; tells job() each, due_ms if there is none;
                    * with marks, those are acked before it, in the same transaction if it can */
    JOB_ACK,       /* marks; tells mark() of each that was the last claim's */
    JOB_FAIL,      /* the same; text */
    JOB_GIVE_BACK, /* the same */
    JOB_EXTEND,    /* the same; lease_ms */
    JOB_LIST,      /* queue, max; tells job() each */
    JOB_COUNT,     /* queue, or "" for all; tells queue() each */
    JOB_RETRY,     /* queue, id or 0; tells count */
    JOB_DROP,      /* queue, id; tells count */
    JOB_VERBS,
};

struct job_mark {
    uint64_t token;
    int64_t delay_ms; /* fail: until it is due again */
    bool dead;        /* fail: never again */
};

struct job_errand {
    struct engine *engine;
    enum job_verb verb;
    const char *queue; /* NUL-terminated */
    size_t queue_len;
    const struct stile_job_entry *entries;
    size_t n_entries;
    uint64_t *ids; /* as many */
    const char *text;
    const struct job_mark *marks;
    size_t n, max;
    uint64_t id;
    int64_t delay_ms, lease_ms;
    unsigned tries;
    bool listen; /* claim: tell stir() of what comes into the queue, from before this errand on */

    /* the engine's answers */
    uint64_t count;
    int64_t due_ms;   /* until the first of those that are not due yet will be; -1: there is none */
    bool hearing;     /* stir() will be told; else core looks again by itself */
    uint64_t sent_ns; /* the loop's time before it was sent; 0: it was not */
    uint64_t state[4]; /* the engine's own, zero at the start */
    void *core;        /* core's own */
};

/* What engines tell core. err may be NULL where a status says all; it is copied. */
struct engine_events {
    /* sent_ns: the loop's time read BEFORE the request that won it was sent; ttl_ns: what the
     * engine really keeps it for, counted from then; 0 on process leases. Core computes the
     * deadline. The engine must have verified at this moment that the claim is its own. */
    void (*granted)(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns);

    /* Held by another, and nothing of the claim is left in the engine. Try again no later than
     * hint_ns from now (0: no idea). Answers a claim with wait unset on every engine, and any
     * claim on engines that can't queue. */
    void (*busy)(struct claim *claim, uint64_t hint_ns);

    /* The claim waits in the server's queue: its request is answered and no longer counts as in
     * flight. Must come, once or more often, where in_flight is set: without it, waiters would use
     * up all places, and no release could pass them. */
    void (*queued)(struct claim *claim);

    /* Not granted. UNREACHABLE, REFUSED, CORRUPT, NOMEM ...: nothing is left in the engine.
     * UNCERTAIN: something may be; core calls release(). */
    void (*failed)(struct claim *claim, const struct stile_error *err);

    /* OK (err NULL), or LOST: it was no longer held. Both are final. Anything else says that the
     * claim may still be there: core calls release() again, with growing pauses, until the answer
     * is final or a claim's own lease must be over. So the engine keeps what it needs to try again,
     * and answers OK once the session the claim lived by is gone. */
    void (*released)(struct claim *claim, const struct stile_error *err);

    void (*renewed)(struct claim *claim, uint64_t sent_ns, uint64_t ttl_ns);
    void (*unknown)(struct claim *claim); /* renewal sent, answer not known; core tries again */

    /* A granted claim is not ours any more: seen in a renewal, or told by the engine at any time.
     * Core answers with release(), to clear away what may be left. */
    void (*lost)(struct claim *claim, const struct stile_error *err);

    /* Session leases: the same three for all claims of one session at once; session NULL: for all
     * there are. Once renew() was called, each session that has claims is answered for, even if
     * nothing could be asked. */
    void (*session_renewed)(struct engine *engine, const void *session, uint64_t sent_ns,
                            uint64_t ttl_ns);
    void (*session_unknown)(struct engine *engine, const void *session);
    void (*session_lost)(struct engine *engine, const void *session, const struct stile_error *err);

    /* list: once a name, in byte order. show: once. watch: once at the start and after every
     * change. The info and all it points to are copied. */
    void (*info)(struct query *query, const struct stile_info *info);

    /* examine, adopt: as they are found. Copied. Texts may be NULL. */
    void (*finding)(struct query *query, const struct stile_finding *finding);

    void (*done)(struct query *query, const struct stile_error *err); /* NULL: OK */

    /* Of jobs, before job_done(). All is copied. */
    void (*job)(struct job_errand *errand, const struct stile_job *job);
    void (*job_mark)(struct job_errand *errand, uint64_t token);
    void (*job_queue)(struct job_errand *errand, const struct stile_queue *queue);

    /* UNCERTAIN: it was sent, and what became of it is not known. */
    void (*job_done)(struct job_errand *errand, const struct stile_error *err); /* NULL: OK */

    /* There may be something to claim in this queue (NULL: in any) that was not there before. */
    void (*job_stir)(struct engine *engine, const char *queue);
};

struct engine_class {
    const char *scheme;        /* "local"; further ones separated by spaces */
    const char *const *params; /* URL parameters it knows, NULL-terminated; others are refused */
    struct stile_caps caps;
    bool apart;         /* several claims of one client on one name are kept apart; unset: core lets
                         * one at a time through (turn.c), since the engine would take the second
                         * for the first */
    bool apart_sharing; /* the same for those that share or want a slot: only exclusive claims take
                         * turns */
    size_t in_flight;   /* how many claims and releases may be unanswered at once (admission.h);
                         * 0: any number */
    size_t engine_size; /* of its struct, which starts with struct engine */
    size_t claim_size;  /* of its state behind struct claim */

    /* Must reach the engine and check that it can keep its promises, or refuse with a sentence that
     * says what to do. The only slot that may block, and for a bounded time. On failure nothing is
     * left behind and close() is not called. An engine whose promises depend on the URL or on the
     * server may put another class of its own in engine->class here; core reads it afterwards. */
    enum stile_status (*open)(struct engine *engine, const struct url *url,
                              struct stile_error *err);

    /* May, where the engine needs something in its server first, else NULL: makes it, or brings it
     * up to date. *script is the text of what is run there, and lives for ever; with dry_run
     * nothing else happens. No engine is open; it may block, for a bounded time. */
    enum stile_status (*setup)(const struct url *url, bool dry_run, const char **script,
                               struct stile_error *err);

    /* Must give up everything it still has in the engine, for a bounded time, and free its parts
     * (not the struct itself). Core has released every claim before. */
    void (*close)(struct engine *engine);

    /* Must, in a forked child, close its file descriptors and nothing else: only close(2) and free
     * of memory are allowed. The process does not fork during open() or close(), and neither during
     * anything that runs under the client's mutex: an engine needs no fork handlers for its locks.
     */
    void (*forked)(struct engine *engine);

    /* May, else NULL: a descriptor whose open file description is the proof of this client's life.
     * Its locks last until the last copy of it is closed, whichever process has that. */
    int (*life_fd)(struct engine *engine);

    /* Must work on being granted, and end in granted, busy or failed, exactly once. With wait set,
     * an engine that can queue keeps the claim in its queue until granted or withdrawn. */
    void (*claim)(struct engine *engine, struct claim *claim);

    /* Must give a granted claim back, withdraw one that waits, and clear away one whose fate is
     * unknown. Idempotent in the engine: an unanswered request is repeated. hold_ns is kept even
     * if the process ends. */
    void (*release)(struct engine *engine, struct claim *claim);

    /* Claim leases must: renew each of n claims, batched. Session leases must: renew each session
     * that has claims (claims NULL, n 0), but none twice while it has not answered. Where
     * renewal is all that keeps a session, no claim joins one that was renewed more than half of
     * its TTL ago. Process leases leave it NULL. */
    void (*renew)(struct engine *engine, struct claim *const *claims, size_t n);

    /* May, where caps.detached, else NULL: make the claim of claim->owner ours again and renew it.
     * An engine that has stored with a claim what was requested for it puts that back into mode,
     * slots, hold_ns and delay_ns, and into ttl_ns unless ttl_given, before it says granted: the
     * caller need not know. hold_ns counts from the grant, not from here. Ends in granted or
     * failed(LOST). */
    void (*resume)(struct engine *engine, struct claim *claim);

    /* May, where caps.detached, else NULL: forget a granted claim, and leave it in the engine until
     * its lease runs out. No answer about it comes afterwards. */
    void (*detach)(struct engine *engine, struct claim *claim);

    /* May, where caps.detached, else NULL: the owner value of a granted claim. Borrowed. */
    const char *(*owner)(struct engine *engine, struct claim *claim);

    /* Must. Each ends in done(). */
    void (*list)(struct engine *engine, struct query *query);
    void (*show)(struct engine *engine, struct query *query);
    void (*break_)(struct engine *engine, struct query *query); /* the broken are told by lost() */

    /* Must: info() at the start and after every change, until unwatch(), which ends it without
     * done(). done(err) if it can't go on. */
    void (*watch)(struct engine *engine, struct query *query);
    void (*unwatch)(struct engine *engine, struct query *query);

    /* May, else NULL: that it could be opened is all there is to find. Looks at what the promises
     * of caps rest on, changes nothing, tells each finding(), and done() within a bounded time; an
     * error only if nothing could be looked at. */
    void (*examine)(struct engine *engine, struct query *query);

    /* May, else NULL: no server of this engine is ever out. Takes back servers that have lost their
     * data, where that is known to be safe, tells by finding() what it did or why it did not, and
     * done(). */
    void (*adopt)(struct engine *engine, struct query *query);

    /* May, else NULL: which servers there are is nothing that clients have to agree on. Makes those
     * of the URL the engine's servers, from whatever an attempt before has left, and reports by
     * finding() what it did or why it did not, and done(). */
    void (*resize)(struct engine *engine, struct query *query);

    /* May, else NULL: it keeps no jobs. Must end in job_done(), once, and within a bounded time.
     * Each errand is one transaction. A token is larger than that of the job's claim before, and
     * than any of an earlier job with the same key; it survives a crash of the server. */
    void (*jobs)(struct engine *engine, struct job_errand *errand);

    /* May. Of those that listened, nobody waits for this queue any more. */
    void (*jobs_left)(struct engine *engine, const char *queue);
};

/* The registry: NULL-terminated, one line an engine under its #ifdef. */
extern const struct engine_class *const engine_classes[];

#endif
