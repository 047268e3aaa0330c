/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: only one at a time, across processes and machines.
 *
 * Caveats first:
 *
 *  1. A lease can run out while its holder is paused (SIGSTOP, VM migration, suspend). The
 *     library reports it as soon as the holder runs again, but cannot stop a write that is
 *     already on its way. Send stile_lock_token() along with each write, and let the resource
 *     refuse a token smaller than the largest it has seen.
 *  2. stile_lock_held() is true now, not later. Between the check and your next line
 *     anything may happen; see 1.
 *  3. Locks are not re-entrant. A second handle on the same name waits for the first, even
 *     in the same thread.
 *
 * Lifetimes and threads:
 *
 *  R1. A client owns its connections and outlives its locks: stile_client_close() releases and
 *      frees every lock that is still there. Strings given to a call are copied.
 *  R2. A returned pointer is borrowed; what comes through a pointer to a pointer is yours.
 *  R3. Every function may be called from any thread. One lock handle has one user at a time,
 *      except stile_lock_cancel(), _held(), _remaining_ms(), _ttl_ms() and _token(), which any
 *      thread may call while another one waits in stile_lock_acquire().
 *  R4. Callbacks run on the thread that happens to drive the client (a blocking caller, the
 *      background thread, or stile_client_dispatch()), with no internal lock held. They may call
 *      everything but blocking functions on the same client. Requests that a callback of a
 *      threadless client makes are sent when all callbacks of that dispatch have returned.
 *  R5. After fork() a child's handles are invalid: every call on them returns MISUSE and touches
 *      nothing of the parent's. The child need not close or free them.
 *  R6. An error struct belongs to the caller, may be NULL, and is written only on failure.
 *  R7. A freed lock or a closed client must not be used again. A second free or close of the
 *      same handle is detected and ignored as long as its memory has not been reused.
 */
#ifndef STILE_H
#define STILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STILE_VERSION     "0.2.0"
#define STILE_VERSION_NUM 0x000200 /* two hex digits each: major, minor, patch */

#if defined(__GNUC__)
#define STILE_API __attribute__((visibility("default")))
#else
#define STILE_API
#endif

/* For the option macros and functions below. */
#if !defined(__cplusplus)
#define STILE_HAS_DESIGNATORS 1
#define STILE_NO_OPTIONS                                                                           \
    {                                                                                              \
        0                                                                                          \
    }
#define STILE_OPTIONS_OF(type, ...) (&(struct type){.size = sizeof(struct type), __VA_ARGS__})
#else
#define STILE_HAS_DESIGNATORS (__cplusplus >= 202002L)
#define STILE_NO_OPTIONS                                                                           \
    {                                                                                              \
    }
#define STILE_OPTIONS_OF(type, ...) stile_address(type{.size = sizeof(type), __VA_ARGS__})
extern "C++" {
template <typename T> inline const T *stile_address(const T &value)
{
    return &value;
}
}
#endif

/* The one list of statuses: enum, texts and the manual's table all come from it. */
#define STILE_STATUS_MAP(X)                                                                        \
    X(OK, "ok")                                                                                    \
    X(HELD, "held by another")                                                                     \
    X(TIMEOUT, "not granted in time")                                                              \
    X(CANCELLED, "cancelled")                                                                      \
    X(LOST, "no longer held")                                                                      \
    X(STALE, "a newer token has been seen")                                                        \
    X(CONFLICT, "changed by another in the meantime")                                              \
    X(UNREACHABLE, "engine cannot be reached")                                                     \
    X(REFUSED, "refused by the engine")                                                            \
    X(UNCERTAIN, "outcome not known")                                                              \
    X(UNSUPPORTED, "not supported by this engine")                                                 \
    X(CORRUPT, "stored state is damaged")                                                          \
    X(MISUSE, "called in a way that cannot work")                                                  \
    X(NOMEM, "out of memory")                                                                      \
    X(FOREIGN, "token of another issuer")                                                          \
    X(MISMATCH, "key used with another fingerprint")

enum stile_status {
#define STILE_STATUS_ENUM(name, text) STILE_##name,
    STILE_STATUS_MAP(STILE_STATUS_ENUM)
#undef STILE_STATUS_ENUM
};

/* message reads "what was attempted: why it failed"; native is the errno or the engine's error
 * code behind it, or 0. */
struct stile_error {
    enum stile_status status;
    int native;
    char message[248];
};

struct stile_client;
struct stile_lock;

#define STILE_NAME_MAX     512       /* bytes; no NUL and no control characters */
#define STILE_PROCLAIM_MAX 1024      /* bytes */
#define STILE_URL_MAX      4096      /* bytes */
#define STILE_NO_DEADLINE  INT64_MAX /* remaining time of a lock that ends with its process */

/* ---- clients ---- */

enum stile_log_level {
    STILE_LOG_DEFAULT, /* as WARNING */
    STILE_LOG_ERROR,   /* a lock is lost */
    STILE_LOG_WARNING, /* the engine does not answer as it should; the request is repeated */
    STILE_LOG_INFO,    /* clients are opened and closed, renewals are repeated */
    STILE_LOG_DEBUG,   /* what happens to each lock */
};

/* Receives log messages. It is called on any thread, with internal locks held: it must not call
 * this library, and should be quick. The message has neither secrets nor a newline. */
typedef void stile_log_fn(enum stile_log_level level, const char *message, void *data);

struct stile_client_options {
    size_t size;       /* sizeof this struct; STILE_CLIENT_OPTIONS fills it */
    bool threadless;   /* no background thread: you call stile_client_dispatch() */
    const char *label; /* what `stile show` prints as the command; NULL: the program's name. It is
                        * stored in the engine, where others read it: no secrets */
    bool examine;      /* for stile_doctor() only: open even an engine that would be refused */
    int64_t pid;       /* the process to signal, for `stile show`; 0: this one */
    stile_log_fn *log; /* NULL: nothing is logged */
    void *log_data;
    enum stile_log_level log_level; /* up to this one */
};

/* url NULL: the default engine, see stile_engine_default(). options NULL: defaults. */
STILE_API enum stile_status stile_client_open(struct stile_client **client, const char *url,
                                              const struct stile_client_options *options,
                                              struct stile_error *err);

/* The same without waiting. OK: the callback comes once, with the outcome. Until it does, only fd,
 * dispatch, interrupt and close may be called on *client; close ends the attempt, and the callback
 * reports CANCELLED. A client that could not be opened is closed as well. */
typedef void stile_open_fn(struct stile_client *client, enum stile_status status,
                           const struct stile_error *err, void *data);
STILE_API enum stile_status stile_client_open_async(struct stile_client **client, const char *url,
                                                    const struct stile_client_options *options,
                                                    stile_open_fn *fn, void *data,
                                                    struct stile_error *err);

/* If the file of local: is truncated while a program is inside a call, the kernel sends SIGBUS.
 * Opening local: installs a handler if SIGBUS has its default action: the call returns CORRUPT or
 * LOST, and any other SIGBUS ends the program as before. A program with a handler of its own keeps
 * it; to put the library's in front, it calls this after it has installed its own. The library
 * passes on every SIGBUS that is not its own. */
STILE_API enum stile_status stile_sigbus_trap(struct stile_error *err);

/* Never refuses. Calls on the client that wait in other threads end with CANCELLED, and have
 * returned when this does. Every lock is freed, and first released if it is held. This waits a few
 * seconds for the engine's answers; after that, leases end what is left. From a callback of the
 * client it returns at once, and the last call that is under way closes the client. */
STILE_API void stile_client_close(struct stile_client *client);

/* For signal handlers, and any thread: blocking calls on the client that wait for a lock, a change
 * or a job (acquire, resume, watch, jobs_claim) end with CANCELLED. If none is under way the next
 * one does, so that a signal just before it is not missed. Releases go on. Async-signal-safe; the
 * client must be open. */
STILE_API void stile_client_interrupt(struct stile_client *client);

/* A borrowed descriptor: this client's locks are kept until its last copy is closed, even if this
 * process is killed. -1: the engine has none (only local: does). */
STILE_API int stile_client_life_fd(struct stile_client *client);

/* For event loops: when fd is readable, call dispatch; it never blocks. */
STILE_API int stile_client_fd(struct stile_client *client);
STILE_API enum stile_status stile_client_dispatch(struct stile_client *client);

enum stile_mode {
    STILE_EXCLUSIVE,
    STILE_SHARED, /* many readers, no writer (a writer takes EXCLUSIVE); waits only for earlier
                     writers */
    STILE_SLOTS,  /* at most N at a time */
};

enum stile_lease {
    STILE_LEASE_PROCESS, /* no expiry: ends with the process */
    STILE_LEASE_SESSION, /* one lease for all locks of a client */
    STILE_LEASE_CLAIM,   /* each lock has its own */
};

/* What an engine promises. The texts say on what condition. */
struct stile_caps {
    const char *engine;
    unsigned modes; /* bit 1 << enum stile_mode */
    enum stile_lease lease;
    bool fifo;          /* first come, first served; else waiters are granted in no strict order */
    bool token;         /* grants carry a fencing token */
    bool hold_at_least; /* honoured, on the engine's clock */
    bool lock_delay;
    bool proclaims;        /* a claim can carry a value that all clients can see */
    bool detached;         /* a claim can outlive its process: stile acquire, renew, release */
    bool jobs;             /* it stores jobs: stile_jobs_add() and the others */
    bool restores;         /* resume restores the mode, TTL and hold_at_least of a detached claim */
    unsigned most_locks;   /* the most that one client can hold at once; 0: no limit */
    const char *token_is;  /* where the token comes from */
    const char *survives;  /* which crashes the locks and tokens survive */
    const char *condition; /* what the promise of exclusion depends on */
    const char *instead;   /* an alternative that offers the missing features; NULL: none */
    bool history;          /* it keeps a record of each name's last holder for stile_show() */
    bool cells;            /* it stores cells, and guards for resources: cell.h, guard.h */
    bool clock;            /* reading a cell returns the engine's time, the same for all clients */
    bool keeps;            /* a cell can have an end: stile_cell_options.keep_ms */
    bool paces;            /* it has cells, and a clock for stile_pace() */
};

STILE_API const struct stile_caps *stile_client_caps(struct stile_client *client);

/* The same without opening it: what the engine of this URL promises at best, however its server is
 * set up. url as for stile_client_open(). The caps stay valid. */
STILE_API enum stile_status stile_engine_caps(const struct stile_caps **caps, const char *url,
                                              struct stile_error *err);

/* ---- locks ---- */

enum stile_profile {
    STILE_PROFILE_DEFAULT,   /* TTL 10 s, renewed every 3 s, first retry after 100 ms, no limit */
    STILE_PROFILE_FINANCIAL, /* TTL 5 s, 1.5 s, 200 ms, 5 tries */
    STILE_PROFILE_CACHE,     /* TTL 2 s, 0.8 s, 50 ms, 2 tries */
    STILE_PROFILE_BATCH,     /* TTL 30 s, 5 s, 500 ms, 10 tries */
};

typedef void stile_lost_fn(struct stile_lock *lock, void *data);
typedef void stile_done_fn(struct stile_lock *lock, enum stile_status status,
                           const struct stile_error *err, void *data);

/* Zero means default everywhere; what is set overrides the profile. */
struct stile_lock_options {
    size_t size; /* sizeof this struct; STILE_LOCK_OPTIONS fills it */
    enum stile_mode mode;
    unsigned slots; /* with STILE_SLOTS: how many at a time */
    enum stile_profile profile;
    int64_t ttl_ms;           /* how long the engine keeps it without a renewal */
    int64_t renew_ms;         /* how often it is renewed */
    int64_t retry_ms;         /* first back-off where the engine has to be polled */
    unsigned tries;           /* at most, where the engine has to be polled */
    int64_t hold_at_least_ms; /* release takes effect no earlier than this after the grant */
    int64_t lock_delay_ms;    /* if its holder dies, it is not granted for this long */
    const char *owner;        /* the value that proves ownership of a detached claim */
    const char *proclaim;     /* value shown to other clients, as a leader's in an election */
    stile_lost_fn *on_lost;
    void *data; /* for on_lost */
};

/* Options with their size set and all else default, to be changed member by member: for C++ from
 * C++11 on, and wherever an expression does not suit. */
static inline struct stile_lock_options stile_lock_options_init(void)
{
    struct stile_lock_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}
static inline struct stile_client_options stile_client_options_init(void)
{
    struct stile_client_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

/* The same as an argument: STILE_LOCK_OPTIONS(.ttl_ms = 5000). In C++ they need C++20, which wants
 * the members in the order of their struct. They last until the end of the statement. */
#if STILE_HAS_DESIGNATORS
#define STILE_LOCK_OPTIONS(...)   STILE_OPTIONS_OF(stile_lock_options, __VA_ARGS__)
#define STILE_OPTIONS             STILE_LOCK_OPTIONS /* its name until 0.1 */
#define STILE_CLIENT_OPTIONS(...) STILE_OPTIONS_OF(stile_client_options, __VA_ARGS__)
#endif

STILE_API enum stile_status stile_lock_new(struct stile_lock **lock, struct stile_client *client,
                                           const char *name,
                                           const struct stile_lock_options *options,
                                           struct stile_error *err);

/* Never refuses. Releases it if it is held, withdraws it if it waits; does not wait for the
 * engine's answer. A call on it that waits in another thread ends with CANCELLED. */
STILE_API void stile_lock_free(struct stile_lock *lock);

/* wait_ms: 0 tries once (HELD if taken), -1 waits for ever; else TIMEOUT after that long. A lost
 * lock may be acquired again without a release, also from on_lost. The engine must first answer the
 * release of what is left of the old grant; UNCERTAIN if it does not within the wait. */
STILE_API enum stile_status stile_lock_acquire(struct stile_lock *lock, int64_t wait_ms,
                                               struct stile_error *err);

/* LOST if it was no longer held. The handle may be acquired again whatever this returns; while the
 * engine has not answered the release, acquire returns UNCERTAIN. */
STILE_API enum stile_status stile_lock_release(struct stile_lock *lock, struct stile_error *err);

/* Releases a grant under which nothing was done: hold_at_least does not apply. */
STILE_API enum stile_status stile_lock_abandon(struct stile_lock *lock, struct stile_error *err);

/* Ends a wait with CANCELLED; has no effect on a lock that isn't waiting. */
STILE_API enum stile_status stile_lock_cancel(struct stile_lock *lock);

STILE_API bool stile_lock_held(struct stile_lock *lock);
STILE_API int64_t stile_lock_remaining_ms(struct stile_lock *lock); /* 0: not held */
/* How long the engine really keeps it without a renewal: some engines round a TTL up, or have
 * limits of their own. Where there is no TTL, the same as remaining_ms. */
STILE_API int64_t stile_lock_ttl_ms(struct stile_lock *lock);
/* UNSUPPORTED: the engine issues none. *token is 0 unless the status is OK. */
STILE_API enum stile_status stile_lock_token(struct stile_lock *lock, uint64_t *token);
STILE_API const char *stile_lock_name(struct stile_lock *lock);

/* Readable once the lock is lost, until the next acquire. The library closes it; -1: no fd left. */
STILE_API int stile_lock_lost_fd(struct stile_lock *lock);

/* Why it was lost: LOST with a message, until it is released. OK: it is not lost. */
STILE_API enum stile_status stile_lock_lost_reason(struct stile_lock *lock,
                                                   struct stile_error *err);

/* Keep a record for `stile show`: which process had the lock, from when, until when and with what
 * result. It outlives the lock and its holder. Both return at once; stile_client_close() waits for
 * the answers, a second at most. Call start once it is held, and end before the release, with an
 * exit code from 0 to 255, or -1: none. A holder that was paused and comes late does not overwrite
 * the record of a later one. What the engine keeps is bounded: an old record may be gone.
 * UNSUPPORTED: this engine keeps none. */
STILE_API enum stile_status stile_lock_record_start(struct stile_lock *lock,
                                                    struct stile_error *err);
STILE_API enum stile_status stile_lock_record_end(struct stile_lock *lock, int exit_code,
                                                  struct stile_error *err);

/* Changes the value that other clients see (stile_lock_options.proclaim) of a lock that is held.
 * LOST: it was no longer held, and nothing has changed. UNSUPPORTED: see stile_caps.proclaims.
 * Make the next change when the last is answered: an engine may execute two in any order. The
 * async form reports as stile_break_async() does. */
STILE_API enum stile_status stile_lock_proclaim(struct stile_lock *lock, const char *value,
                                                struct stile_error *err);

/* The callback comes exactly once, never from inside the call itself. */
STILE_API enum stile_status stile_lock_acquire_async(struct stile_lock *lock, int64_t wait_ms,
                                                     stile_done_fn *done, void *data);
STILE_API enum stile_status stile_lock_release_async(struct stile_lock *lock, stile_done_fn *done,
                                                     void *data);

/* Claims that outlive their process, where stile_caps.detached: with the owner value, another
 * process can continue the claim. resume makes the lock held again; detach forgets it here and
 * leaves it in the engine until its lease runs out. */
STILE_API const char *stile_lock_owner(struct stile_lock *lock); /* NULL: engine has none */
STILE_API enum stile_status stile_lock_resume(struct stile_lock *lock, struct stile_error *err);
STILE_API enum stile_status stile_lock_detach(struct stile_lock *lock, struct stile_error *err);

/* All or none, in canonical order (bytewise by name), so that two callers can't deadlock. The
 * array's order is left as it is. */
STILE_API enum stile_status stile_locks_acquire(struct stile_lock *const *locks, size_t n,
                                                int64_t wait_ms, struct stile_error *err);
STILE_API enum stile_status stile_locks_release(struct stile_lock *const *locks, size_t n,
                                                struct stile_error *err);

/* Acquire (waiting for ever), call, release on every path. The callback's result goes to *result
 * if that isn't NULL; LOST if the lock did not last until the callback's end. */
typedef int stile_with_fn(struct stile_lock *lock, void *data);
STILE_API enum stile_status stile_with(struct stile_client *client, const char *name,
                                       const struct stile_lock_options *options, stile_with_fn *fn,
                                       void *data, int *result, struct stile_error *err);

/* ---- inspecting ---- */

struct stile_claim_info {
    bool held;  /* else it waits */
    bool ghost; /* without a holder: kept by hold_at_least or lock-delay until its end */
    enum stile_mode mode;
    uint64_t token;     /* 0 while waiting */
    int64_t age_ms;     /* since granted or enqueued; -1: not known */
    int64_t expires_ms; /* STILE_NO_DEADLINE, or when it ends if its holder does not renew it */
    int64_t pid;        /* 0: not known */
    const char *host;   /* "": not known */
    const char *command;
    const char *owner;
    const char *proclaimed; /* its public value; "": none */
};

/* The holder that was recorded last: see stile_lock_record_start(). */
struct stile_last_holder {
    const char *host;
    int64_t pid;
    const char *command;
    uint64_t token;   /* 0: the engine issues none */
    int64_t from_ms;  /* Unix time by the clock of its host; 0: not recorded */
    int64_t until_ms; /* 0: its end was not recorded. It holds the lock still, or died */
    int exit_code;    /* -1: not recorded */
};

struct stile_info {
    const char *name;
    uint64_t token; /* the holder's; if there is none, no larger token has been granted so far */
    size_t holders; /* claims[0 .. holders-1], ghosts included */
    size_t waiters; /* claims[holders ..], in queue order */
    const struct stile_claim_info *claims;
    const struct stile_last_holder *last; /* show and watch only. NULL: none was recorded */
};

/* Return non-zero to stop. */
typedef int stile_info_fn(const struct stile_info *info, void *data);

/* Names that are held or waited for, in byte order; prefix NULL: all. */
STILE_API enum stile_status stile_list(struct stile_client *client, const char *prefix,
                                       stile_info_fn *fn, void *data, struct stile_error *err);
STILE_API enum stile_status stile_show(struct stile_client *client, const char *name,
                                       stile_info_fn *fn, void *data, struct stile_error *err);

/* Calls fn once, then after every change, until it returns non-zero (OK) or nothing has changed
 * for wait_ms (TIMEOUT; -1: never). Of changes that follow one another quickly the last one is
 * reported, and a hold that was over at once perhaps not at all. Where an engine can't report
 * changes (Redis, databases), the name is looked at up to every 20 ms, and five times a second
 * while nothing changes. Once it has reported, it waits out a server that can't be reached. */
STILE_API enum stile_status stile_watch(struct stile_client *client, const char *name,
                                        int64_t wait_ms, stile_info_fn *fn, void *data,
                                        struct stile_error *err);

/* Takes the lock from its holders, which lose it; later tokens are larger, so a guard refuses what
 * they still write. token 0: any holder; else only that grant. CONFLICT if it is not held,
 * or that grant is over. */
STILE_API enum stile_status stile_break(struct stile_client *client, const char *name,
                                        uint64_t token, struct stile_error *err);

/* The same for event loops. OK: done comes exactly once, never from inside the call itself, after
 * the last call of fn; err is NULL if the status is OK. Closing the client ends them with
 * CANCELLED; a break may then have taken effect. */
typedef void stile_query_done_fn(struct stile_client *client, enum stile_status status,
                                 const struct stile_error *err, void *data);
STILE_API enum stile_status stile_list_async(struct stile_client *client, const char *prefix,
                                             stile_info_fn *fn, stile_query_done_fn *done,
                                             void *data, struct stile_error *err);
STILE_API enum stile_status stile_show_async(struct stile_client *client, const char *name,
                                             stile_info_fn *fn, stile_query_done_fn *done,
                                             void *data, struct stile_error *err);
STILE_API enum stile_status stile_break_async(struct stile_client *client, const char *name,
                                              uint64_t token, stile_query_done_fn *done, void *data,
                                              struct stile_error *err);

STILE_API enum stile_status stile_lock_proclaim_async(struct stile_lock *lock, const char *value,
                                                      stile_query_done_fn *done, void *data,
                                                      struct stile_error *err);

/* *watch, which may be NULL: its number, for stile_watch_cancel(). */
STILE_API enum stile_status stile_watch_async(uint64_t *watch, struct stile_client *client,
                                              const char *name, int64_t wait_ms, stile_info_fn *fn,
                                              stile_query_done_fn *done, void *data,
                                              struct stile_error *err);
/* Ends it with CANCELLED; does nothing to one that has ended. */
STILE_API enum stile_status stile_watch_cancel(struct stile_client *client, uint64_t watch);

/* Can the engine keep its promises as it is set up now? */
enum stile_severity {
    STILE_FINE,    /* checked, and as it should be */
    STILE_NOTE,    /* good to know */
    STILE_WARNING, /* a promise is weaker than it could be */
    STILE_DANGER,  /* one mishap away from a second holder or a repeated token; or no lock can be
                      granted at all */
};

struct stile_finding {
    enum stile_severity severity;
    const char *id;    /* for programs: the same word in every version */
    const char *where; /* which server, which directory */
    const char *what;  /* what was found */
    const char *why;   /* why it matters for locks */
    const char *cure;  /* what to do, in words; "" if command is enough, or nothing is to be done */
    const char *command; /* the commands to run, one per line; "" if there is none */
};

/* Return non-zero to stop. */
typedef int stile_finding_fn(const struct stile_finding *finding, void *data);

/* Flags of stile_doctor(), of which one may be set. ADOPT: first take back servers that have lost
 * their data. RESIZE: make the servers of the URL the members of the group. */
#define STILE_ADOPT  1u
#define STILE_RESIZE 2u

/* Examines the live engine, and changes nothing without a flag. Reports what it changed, then its
 * findings, worst first. OK: it was examined, whatever was found. A client opened with `examine`
 * can do nothing else. UNSUPPORTED: this engine has nothing to adopt or resize. */
STILE_API enum stile_status stile_doctor(struct stile_client *client, unsigned flags,
                                         stile_finding_fn *fn, void *data, struct stile_error *err);

/* Creates what the engine needs in its server to keep all its promises (the schema of a database),
 * or brings it up to date; may be repeated. url as for stile_client_open(). script, if not NULL, is
 * set to the text of what is run there; with dry_run nothing else happens. UNSUPPORTED: this engine
 * needs nothing. */
STILE_API enum stile_status stile_setup(const char *url, bool dry_run, const char **script,
                                        struct stile_error *err);

/* ---- everything else ---- */

STILE_API const char *stile_status_name(enum stile_status status); /* "TIMEOUT" */
STILE_API const char *stile_status_text(enum stile_status status); /* "not granted in time" */
STILE_API const char *stile_version(void);

/* An engine that this library knows, whether it is installed or not. */
struct stile_engine {
    const char *name;    /* "redis" */
    const char *schemes; /* of its URLs, separated by spaces */
    const char *module;  /* the file it is loaded from; "": inside the library; NULL: not found */
};
/* Return non-zero to stop. */
typedef int stile_engine_fn(const struct stile_engine *engine, void *data);
STILE_API void stile_engines_list(stile_engine_fn *fn, void *data);

/* The engine that a NULL url stands for: $STILE_ENGINE, else `engine = URL` in the user's file
 * ($XDG_CONFIG_HOME/stile.conf, or ~/.config/stile.conf) or in /etc/stile.conf, else "local:". A
 * program with more rights than its user (set-user-ID) reads only the last file. url may contain a
 * password; STILE_URL_MAX + 1 bytes are always enough. from says where it is set: "$STILE_ENGINE",
 * "PATH:LINE", or "" for the default; STILE_FROM_MAX bytes are enough. MISUSE: a file has an error.
 * REFUSED: a file cannot be read, could have been changed by others, or shows them a password. */
#define STILE_FROM_MAX 1100
STILE_API enum stile_status stile_engine_default(char *url, size_t url_size, char *from,
                                                 size_t from_size, struct stile_error *err);

/* The URL without user, password and secret parameters, for logs and environments. MISUSE if it
 * can't be parsed; out is then "?". */
STILE_API enum stile_status stile_url_redact(char *out, size_t out_size, const char *url);

#ifdef __cplusplus
}
#endif

#include "stile/cell.h"
#include "stile/crdt.h"
#include "stile/elect.h"
#include "stile/file.h"
#include "stile/guard.h"
#include "stile/jobs.h"
#include "stile/once.h"
#include "stile/pace.h"

#endif
