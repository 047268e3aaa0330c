/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: guards, which refuse the late writes of a holder that has lost its lock.
 *
 *  G1. A guard remembers, for each resource, the highest token it has seen and its issuer. A
 * smaller token is refused as STALE. An equal one passes, because one holder writes often, unless
 * the call is strict. A larger one passes and is remembered. G2. A guard protects only what is
 * written in the same step as its check: a cell (cell.h), a file (file.h), a transaction that calls
 * stile.guard() first, a script in Redis. Between a stile_guard_check() and a write of your own
 * anything may happen. G3. A new holder raises the guard before it reads. Otherwise the old holder
 * can still write between that read and the new holder's first write. G4. Tokens of different locks
 * cannot be compared. With an issuer, a token of another lock is refused as FOREIGN; without one,
 * only the numbers are compared. G5. Removing a resource does not forget its highest token.
 * stile_guard_reset() does.
 *
 * Resources follow the rules of lock names. The guard of the resource K is that of the cell K, and
 * on the databases and Redis that of stile.guard('K', ...) in your own SQL or scripts.
 */
#include "../stile.h" /* before the rest: it includes cell.h, which needs this file whole */

#ifndef STILE_GUARD_H
#define STILE_GUARD_H

#ifdef __cplusplus
extern "C" {
#endif

#define STILE_TOKEN_MAX  UINT64_C(0x7fffffffffffffff) /* so that it fits a database's bigint */
#define STILE_ISSUER_MAX 600                          /* bytes; no NUL and no control characters */

/* Which lock a token comes from: "ENGINE:NAME". STILE_ISSUER_MAX + 1 bytes are always enough. */
STILE_API enum stile_status stile_lock_issuer(struct stile_lock *lock, char *out, size_t out_size);

struct stile_cell;

/* Zero means default everywhere. */
struct stile_guard_options {
    size_t size;        /* sizeof this struct; STILE_GUARD_OPTIONS fills it */
    const char *issuer; /* of the token; NULL or "": not given, and not compared */
    bool strict;        /* refuse an equal token, too */
    uint64_t *highest;  /* may be NULL: set to the highest token seen if the status is OK, STALE or
                         * FOREIGN */
};

static inline struct stile_guard_options stile_guard_options_init(void)
{
    struct stile_guard_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_GUARD_OPTIONS(...) STILE_OPTIONS_OF(stile_guard_options, __VA_ARGS__)
#endif

/* Checks the token and remembers it. OK, STALE or FOREIGN; UNCERTAIN: it may have been remembered,
 * and the call may be repeated unless it is strict. UNSUPPORTED: this engine keeps no guards. */
STILE_API enum stile_status stile_guard_raise(struct stile_client *client, const char *resource,
                                              uint64_t token,
                                              const struct stile_guard_options *options,
                                              struct stile_error *err);

/* The same answer, but nothing is remembered. Enough to stop early; never enough to protect. */
STILE_API enum stile_status stile_guard_check(struct stile_client *client, const char *resource,
                                              uint64_t token,
                                              const struct stile_guard_options *options,
                                              struct stile_error *err);

/* For migrations to another lock or engine: from now on the guard has seen exactly this token of
 * this issuer; 0 and NULL: none at all. A late write of an earlier holder may pass afterwards: stop
 * those first. */
STILE_API enum stile_status stile_guard_reset(struct stile_client *client, const char *resource,
                                              uint64_t token, const char *issuer,
                                              struct stile_error *err);

/* What it has seen: stile_cell_get() returns it with the cell. */

/* Creates what the guards of this engine need in its server (functions and tables in a database, a
 * library of functions in Redis), and nothing else of stile; may be repeated. url as for
 * stile_client_open(), script and dry_run as for stile_setup(). UNSUPPORTED: nothing is needed. */
STILE_API enum stile_status stile_guard_install(const char *url, bool dry_run, const char **script,
                                                struct stile_error *err);

/* The same without waiting. The callback comes exactly once, never from inside the call itself.
 * cell: what the guard has seen, or NULL if that is not known; it lasts until the callback returns.
 * What is given is copied, but options->highest is not used. */
typedef void stile_cell_done_fn(const struct stile_cell *cell, enum stile_status status,
                                const struct stile_error *err, void *data);
STILE_API enum stile_status stile_guard_raise_async(struct stile_client *client,
                                                    const char *resource, uint64_t token,
                                                    const struct stile_guard_options *options,
                                                    stile_cell_done_fn *done, void *data);

#ifdef __cplusplus
}
#endif
#endif
