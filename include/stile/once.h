/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: once: work that is done once for a key, and whose result is kept for later callers.
 *
 *  O1. The first caller runs. Callers that come meanwhile wait, and get its result. Later callers
 *      get the stored result until its time (keep_ms) is over.
 *  O2. A runner that dies halfway is replaced by the next caller, with a larger token. So work that
 *      was begun may be begun again: only its result is stored once. An effect outside (a payment,
 *      a mail) must be idempotent, or take the token along and be refused if it is stale, or be
 *      part of the same database transaction as its key (docs/once.md).
 *  O3. The result of a runner that has been replaced is refused, however late it comes: LOST.
 *  O4. A key belongs to one fingerprint, and none at all counts as one. The same key with another
 *      is MISMATCH, from the beginning of the first run until its result is dropped.
 *  O5. A run that fails (its code is not 0) stores nothing, and the next caller runs again, unless
 *      failures are kept, too.
 *  O6. A run may last as long as its result is kept, and always a week. The result of a longer one
 *      is refused: LOST.
 *
 * The result of KEY is the cell "once:KEY"; its runner holds the lock "once:KEY". The engine must
 * have tokens and cells with an end (stile_caps.token and .keeps).
 */
#ifndef STILE_ONCE_H
#define STILE_ONCE_H

#include "../stile.h"
#include "cell.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STILE_ONCE_PREFIX     "once:" /* before the key, in names of locks and cells */
#define STILE_ONCE_KEY_MAX    507     /* bytes, so that the name fits STILE_NAME_MAX */
#define STILE_ONCE_OUTPUT_MAX (60 * 1024)
#define STILE_FINGERPRINT_MAX 512 /* bytes */

/* Zero means default everywhere. */
struct stile_once_options {
    size_t size;             /* sizeof this struct; STILE_ONCE_OPTIONS fills it */
    int64_t keep_ms;         /* how long the result is kept (24 h); STILE_CELL_KEEP_MAX at most */
    const char *fingerprint; /* of what is asked for; NULL or "": none */
    int64_t wait_ms;         /* wait at most this long for another run, then TIMEOUT (forever) */
    bool no_wait;            /* do not wait: HELD if another runs it now */
    bool keep_failures;      /* store a result whose code is not 0, too */
    int64_t ttl_ms;          /* of the lock, as in stile_lock_options */
};

static inline struct stile_once_options stile_once_options_init(void)
{
    struct stile_once_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_ONCE_OPTIONS(...) STILE_OPTIONS_OF(stile_once_options, __VA_ARGS__)
#endif

enum stile_once_state {
    STILE_ONCE_NONE,
    STILE_ONCE_RUNNING, /* it was begun; whether its runner lives, the lock shows */
    STILE_ONCE_DONE,
};

struct stile_once_result {
    enum stile_once_state state;
    int code;
    const void *bytes; /* with a NUL behind them; NULL: not stored, because they were too many */
    size_t size;       /* of all bytes, stored or not */
    bool ran;          /* by this call */
    uint64_t token;    /* of the run */
    int64_t age_ms;    /* since it was begun or done, by the engine's clock where it has one */
    const char *fingerprint;
    void *memory; /* used by the library */
};

/* Does the work, with the lock held: fills *output, whose bytes must stay valid until stile_once()
 * returns, and returns the code. Bytes beyond STILE_ONCE_OUTPUT_MAX reach this caller only. The
 * lock is for stile_lock_token(), _held(), _issuer() and the like; it is released later. */
struct stile_once_output {
    const void *bytes;
    size_t size;
};
typedef int stile_once_fn(struct stile_once_output *output, struct stile_lock *lock, void *data);

/* *result is yours to free, and set if the status is OK. Beside the statuses of O1 to O6:
 * UNSUPPORTED, the engine lacks what is needed. CORRUPT, the cell holds something else. UNCERTAIN,
 * it was run, but the engine did not confirm that the result is stored. */
STILE_API enum stile_status stile_once(struct stile_once_result **result,
                                       struct stile_client *client, const char *key,
                                       stile_once_fn *fn, void *data,
                                       const struct stile_once_options *options,
                                       struct stile_error *err);
STILE_API void stile_once_free(struct stile_once_result *result);

/* What is stored, whatever its fingerprint; nothing is changed. */
STILE_API enum stile_status stile_once_show(struct stile_once_result **result,
                                            struct stile_client *client, const char *key,
                                            struct stile_error *err);
/* Removes what is stored, so that the next caller runs. HELD if it is being run. */
STILE_API enum stile_status stile_once_forget(struct stile_client *client, const char *key,
                                              struct stile_error *err);

/* ---- the steps of stile_once(), for callers that wait and run in their own way ----
 *
 *     find ── a result ──► done
 *       │
 *     acquire the lock "once:KEY" ──► begin ── a result ──► release
 *                                       │
 *                                      run ──► finish, abandon or leave ──► release
 *
 * Of the options, find uses the fingerprint; begin uses all but those about the lock.
 */

/* *result is NULL if there is none yet. */
STILE_API enum stile_status stile_once_find(struct stile_once_result **result,
                                            struct stile_client *client, const char *key,
                                            const struct stile_once_options *options,
                                            struct stile_error *err);
/* Of the two one is set: the result of another run, or *run, yours to finish, abandon or leave
 * before the lock is released. An earlier runner's result is refused from now on. */
struct stile_once_run;
STILE_API enum stile_status stile_once_begin(struct stile_once_run **run,
                                             struct stile_once_result **result,
                                             struct stile_lock *lock,
                                             const struct stile_once_options *options,
                                             struct stile_error *err);
/* Stores the result, or nothing if it is a failure that is not to be kept. bytes NULL: they are not
 * stored, and later callers learn the size only. Frees the run, whatever the status. Repeats what
 * the engine does not answer for half a minute. */
STILE_API enum stile_status stile_once_finish(struct stile_once_run *run, int code,
                                              const void *bytes, size_t size,
                                              struct stile_error *err);
/* The same with nothing to store, as if it had never begun. */
STILE_API enum stile_status stile_once_abandon(struct stile_once_run *run, struct stile_error *err);
/* Frees the run and writes nothing, as if its runner had died. */
STILE_API void stile_once_leave(struct stile_once_run *run);

#ifdef __cplusplus
}
#endif
#endif
