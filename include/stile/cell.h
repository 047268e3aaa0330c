/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile: cells, small values with a version and a guard, stored in an engine.
 *
 *  C1. Each write gives a cell a larger version. No version comes back, not even after the cell was
 *      removed and created again. 0: there is no cell.
 *  C2. A write with a token passes the cell's guard in the same step (guard.h). Once the guard has
 *      seen a token, a write without one is refused as STALE: it counts as token 0.
 *  C3. A write that was sent and not answered is UNCERTAIN: it may have happened, or happen a
 *      moment later. Read the cell before you write it again. With if_version a repetition is
 *      harmless: it ends in CONFLICT if the first one happened.
 *  C4. A refused write (STALE, FOREIGN, CONFLICT) changes nothing, the guard included.
 *  C5. A removed cell leaves its version and its highest token behind.
 *  C6. A cell that was put with keep_ms is dropped that long after the put, never earlier, with
 *      its version and its guard: nothing of it stays. From then on it is as if it had never
 *      been. A write with the version it had is a CONFLICT, and any token passes. The last put
 *      counts: one without keep_ms makes the cell permanent. Reads, a raise and a removal change
 *      nothing about its end. C1 holds beyond the end for keys that are always put with keep_ms;
 *      of others, versions from before the first put with keep_ms can come back after it. Which
 *      clock counts depends on the engine: docs/guarantees.md.
 *
 * Keys follow the rules of lock names, in a namespace of their own. Values are any bytes.
 */
#ifndef STILE_CELL_H
#define STILE_CELL_H

#include "../stile.h"
#include "guard.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STILE_CELL_MAX      (64 * 1024)                               /* bytes of a value */
#define STILE_CELL_KEEP_MAX (INT64_C(10) * 365 * 24 * 60 * 60 * 1000) /* of keep_ms */

struct stile_cell {
    const char *key;
    const void *value;  /* with a NUL behind it; NULL: there is no cell, or it was only listed */
    size_t size;        /* of the value */
    uint64_t version;   /* 0: there is no cell */
    uint64_t token;     /* the highest that its guard has seen; 0: none */
    const char *issuer; /* of the token; "": not known */
    void *memory;       /* used by the library */
    int64_t time_us;    /* get, update: the engine's clock when it was read, in microseconds since
                         * 1970; 0: not known (stile_caps.clock) */
};

/* Zero means default everywhere. */
struct stile_cell_options {
    size_t size;                /* sizeof this struct; STILE_CELL_OPTIONS fills it */
    const uint64_t *if_version; /* put, remove: only this version, else CONFLICT; 0: only if there
                                 * is none. NULL: any */
    uint64_t token;             /* put, remove, update: passes the guard with it; 0: none */
    const char *issuer;         /* of the token; NULL or "": not given, and not compared */
    bool strict;                /* refuse an equal token, too */
    uint64_t *highest;          /* may be NULL: set to the highest token seen if the status is OK,
                                 * STALE or FOREIGN */
    unsigned tries;             /* update: at most so often (20) */
    int64_t keep_ms;            /* put, update: the engine drops the cell this long after the write,
                                 * unless it is put again (C6); 0: never. Ten years at most */
};

static inline struct stile_cell_options stile_cell_options_init(void)
{
    struct stile_cell_options options = STILE_NO_OPTIONS;
    options.size = sizeof options;
    return options;
}

#if STILE_HAS_DESIGNATORS
#define STILE_CELL_OPTIONS(...) STILE_OPTIONS_OF(stile_cell_options, __VA_ARGS__)
#endif

/* *cell is yours to free. It is set, with version 0, if there is no such cell. */
STILE_API enum stile_status stile_cell_get(struct stile_cell **cell, struct stile_client *client,
                                           const char *key, struct stile_error *err);
STILE_API void stile_cell_free(struct stile_cell *cell);

/* *version, which may be NULL: the new one; with CONFLICT, the present one. */
STILE_API enum stile_status stile_cell_put(uint64_t *version, struct stile_client *client,
                                           const char *key, const void *value, size_t size,
                                           const struct stile_cell_options *options,
                                           struct stile_error *err);

/* OK if there is no cell any longer, or never was. */
STILE_API enum stile_status stile_cell_remove(struct stile_client *client, const char *key,
                                              const struct stile_cell_options *options,
                                              struct stile_error *err);

/* Reads, calls fn, and writes what it returns if nothing has changed meanwhile; otherwise again,
 * after a random pause that grows. fn fills *next, whose value must stay valid until the next call
 * of fn or until this returns; next->remove removes the cell. If fn returns non-zero nothing is
 * written, and that is CANCELLED. CONFLICT: others were always faster, options->tries times.
 * options->if_version must be NULL. *version as for put; 0 after a removal. */
struct stile_cell_next {
    const void *value;
    size_t size;
    bool remove;
};
typedef int stile_cell_update_fn(struct stile_cell_next *next, const struct stile_cell *now,
                                 void *data);
STILE_API enum stile_status stile_cell_update(uint64_t *version, struct stile_client *client,
                                              const char *key, stile_cell_update_fn *fn, void *data,
                                              const struct stile_cell_options *options,
                                              struct stile_error *err);

/* Return non-zero to stop. */
typedef int stile_cell_fn(const struct stile_cell *cell, void *data);

/* The cells there are, in byte order of their keys, without values; prefix NULL: all. CORRUPT: the
 * error names a damaged cell, and fn was called for those that could be read. */
STILE_API enum stile_status stile_cell_list(struct stile_client *client, const char *prefix,
                                            stile_cell_fn *fn, void *data, struct stile_error *err);

/* Calls fn once, then after every change of the cell or its guard, until it returns non-zero (OK)
 * or nothing has changed for wait_ms (TIMEOUT; -1: never). Of changes that follow one another
 * quickly the last one is reported. Where an engine can't report changes, the cell is read up to
 * every 20 ms, and five times a second while nothing changes. Once it has reported, it waits out a
 * server that can't be reached. */
STILE_API enum stile_status stile_cell_watch(struct stile_client *client, const char *key,
                                             int64_t wait_ms, stile_cell_fn *fn, void *data,
                                             struct stile_error *err);

/* ---- for event loops ----
 *
 * The same without waiting. OK: the callback comes exactly once, never from inside the call itself;
 * err is NULL if the status is OK. What is given is copied, but options->highest is not used.
 *
 * cell: as it was read (get), as it is now (put, remove), or what refused the write (STALE,
 * FOREIGN, CONFLICT), without its value, and on etcd without its size; NULL if that is not known.
 * It lasts until the callback returns. Closing the client ends what the engine does not answer in
 * some seconds with UNCERTAIN.
 */
STILE_API enum stile_status stile_cell_get_async(struct stile_client *client, const char *key,
                                                 stile_cell_done_fn *done, void *data);
STILE_API enum stile_status stile_cell_put_async(struct stile_client *client, const char *key,
                                                 const void *value, size_t size,
                                                 const struct stile_cell_options *options,
                                                 stile_cell_done_fn *done, void *data);
STILE_API enum stile_status stile_cell_remove_async(struct stile_client *client, const char *key,
                                                    const struct stile_cell_options *options,
                                                    stile_cell_done_fn *done, void *data);
/* done comes after the last call of fn. */
STILE_API enum stile_status stile_cell_list_async(struct stile_client *client, const char *prefix,
                                                  stile_cell_fn *fn, stile_query_done_fn *done,
                                                  void *data);
/* *watch, which may be NULL: its number, for stile_cell_watch_cancel(). */
STILE_API enum stile_status stile_cell_watch_async(uint64_t *watch, struct stile_client *client,
                                                   const char *key, int64_t wait_ms,
                                                   stile_cell_fn *fn, stile_query_done_fn *done,
                                                   void *data);
/* Ends it with CANCELLED; does nothing to one that has ended. */
STILE_API enum stile_status stile_cell_watch_cancel(struct stile_client *client, uint64_t watch);

#ifdef __cplusplus
}
#endif
#endif
