/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Once: the lock "once:KEY" decides which caller runs, the cell "once:KEY" holds the result.
 *
 *   1. find: a stored result is returned without a lock.
 *   2. The lock is acquired; waiters queue for it.
 *   3. begin: the cell is read again. A result that came meanwhile is returned.
 *   4. begin: a record "running" is put with the lock's token. From then on the guard of the cell
 *      refuses whatever an earlier runner still writes.
 *   5. The caller runs.
 *   6. finish: the result is put, if the cell has the version of step 4, with the same token.
 *   7. The lock is released.
 *
 * Between 3 and 4 an earlier runner's result may still arrive. Step 4 is then a CONFLICT, and step
 * 3 is repeated. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/name.h"
#include "base/options.h"
#include "core/lock.h"
#include "recipes/nap.h"
#include "recipes/once_form.h"

#define KEEP_DEFAULT_MS (INT64_C(24) * 60 * 60 * 1000)
/* A record of a run must not end before the run does: its guard would end with it. */
#define RUN_MAX_MS     (INT64_C(7) * 24 * 60 * 60 * 1000)
#define BEGIN_TRIES    20
#define PAUSE_NS       (10 * NS_PER_MS)
#define PAUSE_GROWS    6                 /* to 640 ms */
#define PATIENCE_NS    (30 * NS_PER_SEC) /* a failover takes that long */
#define ONCE_NAME_SIZE (STILE_NAME_MAX + 1)

static const struct options_kind kind = {
    .name = "once options",
    .macro = "STILE_ONCE_OPTIONS",
    .size = sizeof(struct stile_once_options),
    .least = OPTIONS_UP_TO(struct stile_once_options, ttl_ms),
};

struct stile_once_run {
    struct stile_client *client;
    struct stile_lock *lock;
    char name[ONCE_NAME_SIZE], issuer[STILE_ISSUER_MAX + 1];
    char fingerprint[STILE_FINGERPRINT_MAX + 1];
    uint64_t token, version;
    int64_t keep_ms;
    bool keep_failures;
    bool in_doubt;     /* a write was sent and not answered */
    int64_t began_ms;  /* by the engine's clock, if it has one */
    uint64_t began_ns; /* by ours */
    char value[STILE_CELL_MAX];
};

/* ---- checks ---- */

static enum stile_status check_options(struct stile_once_options *o,
                                       const struct stile_once_options *options,
                                       struct stile_error *err)
{
    enum stile_status status = options_read(o, options, &kind, err);
    if (status)
        return status;
    if (!o->fingerprint)
        o->fingerprint = "";
    if (strlen(o->fingerprint) > STILE_FINGERPRINT_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "the fingerprint has more than %d bytes; use a hash of it instead",
                         STILE_FINGERPRINT_MAX);
    if (o->keep_ms < 0 || o->keep_ms > STILE_CELL_KEEP_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "a result is kept for up to ten years, not %" PRId64 " ms", o->keep_ms);
    if (o->wait_ms < 0)
        return error_set(err, STILE_MISUSE, 0, "wait_ms is negative");
    if (o->keep_ms == 0)
        o->keep_ms = KEEP_DEFAULT_MS;
    return STILE_OK;
}

static enum stile_status check_engine(struct stile_client *client, struct stile_error *err)
{
    const struct stile_caps *caps = stile_client_caps(client);
    if (!caps)
        return error_set(err, STILE_MISUSE, 0, "no client given");
    if (caps->token && caps->keeps)
        return STILE_OK;
    return error_set(err, STILE_UNSUPPORTED, 0,
                     "%s has no %s: use an engine that has them (see stile caps URL; a database "
                     "needs stile setup URL), or a lock with hold_at_least",
                     caps->engine, caps->token ? "cells with an end" : "fencing tokens");
}

static enum stile_status make_name(char name[ONCE_NAME_SIZE], const char *key,
                                   struct stile_error *err)
{
    if (!key)
        return error_set(err, STILE_MISUSE, 0, "no key given");
    if (strlen(key) > STILE_ONCE_KEY_MAX)
        return error_set(err, STILE_MISUSE, 0, "the key has %zu bytes, %d is the limit",
                         strlen(key), STILE_ONCE_KEY_MAX);
    if (!*key)
        return error_set(err, STILE_MISUSE, 0, "the key is empty");
    (void)snprintf(name, ONCE_NAME_SIZE, STILE_ONCE_PREFIX "%s", key);
    return name_check(name, strlen(name), err);
}

static const char *key_of(const char *name)
{
    return name + strlen(STILE_ONCE_PREFIX);
}

/* ---- results ---- */

static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* By the engine's clock, which is the same for all callers, if it has one. */
static int64_t time_of(const struct stile_cell *cell)
{
    return cell->time_us ? cell->time_us / 1000 : wall_ms();
}

static enum stile_status make_result(struct stile_once_result **result,
                                     const struct once_record *record, struct stile_error *err)
{
    size_t size = record->bytes ? record->size : 0;
    *result = malloc(sizeof **result + record->fingerprint_size + 1 + size + 1);
    if (!*result)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    char *fingerprint = (char *)(*result + 1), *bytes = fingerprint + record->fingerprint_size + 1;
    memcpy(fingerprint, record->fingerprint, record->fingerprint_size);
    fingerprint[record->fingerprint_size] = '\0';
    if (size)
        memcpy(bytes, record->bytes, size);
    bytes[size] = '\0';
    **result = (struct stile_once_result){.state = record->state,
                                          .code = record->code,
                                          .bytes = record->bytes ? bytes : NULL,
                                          .size = record->size,
                                          .token = record->token,
                                          .fingerprint = fingerprint};
    return STILE_OK;
}

void stile_once_free(struct stile_once_result *result)
{
    free(result);
}

/* ---- reading ---- */

/* *cell, which the record points into, is to be freed. */
static enum stile_status read_record(struct stile_cell **cell, struct once_record *record,
                                     struct stile_client *client, const char *name,
                                     struct stile_error *err)
{
    *record = (struct once_record){.fingerprint = "", .bytes = ""};
    enum stile_status status = stile_cell_get(cell, client, name, err);
    if (!status && (*cell)->version)
        status = once_read(record, (*cell)->value, (*cell)->size, err);
    return status;
}

static enum stile_status check_fingerprint(const struct once_record *record, const char *ours,
                                           struct stile_error *err)
{
    if (record->state == STILE_ONCE_NONE ||
        (strlen(ours) == record->fingerprint_size &&
         memcmp(ours, record->fingerprint, record->fingerprint_size) == 0))
        return STILE_OK;
    return error_set(err, STILE_MISMATCH, 0,
                     "the key belongs to a run with another fingerprint: give each run a key of "
                     "its own");
}

static enum stile_status result_in(struct stile_once_result **result, const struct stile_cell *cell,
                                   const struct once_record *record, struct stile_error *err)
{
    enum stile_status status = make_result(result, record, err);
    int64_t age_ms = time_of(cell) - record->at_ms;
    if (!status && record->state != STILE_ONCE_NONE)
        (*result)->age_ms = age_ms > 0 ? age_ms : 0;
    return status;
}

static enum stile_status find(struct stile_once_result **result, struct stile_client *client,
                              const char *name, const char *fingerprint, struct stile_error *err)
{
    struct stile_cell *cell = NULL;
    struct once_record record;
    enum stile_status status = read_record(&cell, &record, client, name, err);
    if (!status)
        status = check_fingerprint(&record, fingerprint, err);
    if (!status && record.state == STILE_ONCE_DONE)
        status = result_in(result, cell, &record, err);
    stile_cell_free(cell);
    return status;
}

/* The common beginning of the public calls. */
static enum stile_status prepare(char name[ONCE_NAME_SIZE], struct stile_once_options *o,
                                 struct stile_client *client, const char *key,
                                 const struct stile_once_options *options, struct stile_error *err)
{
    enum stile_status status = check_options(o, options, err);
    if (!status)
        status = make_name(name, key, err);
    return status ? status : check_engine(client, err);
}

enum stile_status stile_once_find(struct stile_once_result **result, struct stile_client *client,
                                  const char *key, const struct stile_once_options *options,
                                  struct stile_error *err)
{
    char name[ONCE_NAME_SIZE] = "";
    struct stile_once_options o;
    if (!result)
        return error_set(err, STILE_MISUSE, 0, "looking for a result: no place for it");
    *result = NULL;
    enum stile_status status = prepare(name, &o, client, key, options, err);
    if (!status)
        status = find(result, client, name, o.fingerprint, err);
    return status ? error_wrap(err, status, "looking for a result of '%.80s'", key ? key : "")
                  : STILE_OK;
}

enum stile_status stile_once_show(struct stile_once_result **result, struct stile_client *client,
                                  const char *key, struct stile_error *err)
{
    char name[ONCE_NAME_SIZE] = "";
    struct stile_cell *cell = NULL;
    struct once_record record;
    if (!result)
        return error_set(err, STILE_MISUSE, 0, "showing a result: no place for it");
    *result = NULL;
    enum stile_status status = make_name(name, key, err);
    if (!status)
        status = check_engine(client, err);
    if (!status)
        status = read_record(&cell, &record, client, name, err);
    if (!status)
        status = result_in(result, cell, &record, err);
    stile_cell_free(cell);
    return status ? error_wrap(err, status, "showing the result of '%.80s'", key ? key : "")
                  : STILE_OK;
}

/* ---- writing ---- */

static enum stile_status put(struct stile_once_run *run, const struct once_record *record,
                             uint64_t *version, int64_t keep_ms, struct stile_error *err)
{
    size_t size = once_write(run->value, record);
    return stile_cell_put(version, run->client, run->name, run->value, size,
                          STILE_CELL_OPTIONS(.if_version = &run->version, .token = run->token,
                                             .issuer = run->issuer, .keep_ms = keep_ms),
                          err);
}

static enum stile_status lost(struct stile_error *err)
{
    return error_set(err, STILE_LOST, 0,
                     "another runner with a larger token has replaced this one, or its record has "
                     "been removed");
}

static struct once_record record_of(const struct stile_once_run *run, enum stile_once_state state)
{
    return (struct once_record){.state = state,
                                .token = run->token,
                                .at_ms = run->began_ms,
                                .fingerprint = run->fingerprint,
                                .fingerprint_size = strlen(run->fingerprint),
                                .bytes = ""};
}

/* ---- begin ---- */

static enum stile_status put_running(struct stile_once_run *run, struct stile_error *err)
{
    const struct once_record record = record_of(run, STILE_ONCE_RUNNING);
    int64_t keep_ms = run->keep_ms > RUN_MAX_MS ? run->keep_ms : RUN_MAX_MS;
    uint64_t version = 0;
    enum stile_status status = put(run, &record, &version, keep_ms, err);
    if (!status)
        run->version = version;
    run->in_doubt |= status == STILE_UNCERTAIN;
    return status == STILE_STALE ? lost(err) : status;
}

/* Steps 3 and 4. CONFLICT or UNCERTAIN: it has to be done again. */
static enum stile_status try_begin(struct stile_once_run *run, struct stile_once_result **result,
                                   struct stile_error *err)
{
    struct stile_cell *cell = NULL;
    struct once_record record;
    enum stile_status status = read_record(&cell, &record, run->client, run->name, err);
    if (!status)
        status = check_fingerprint(&record, run->fingerprint, err);
    if (!status && record.state == STILE_ONCE_DONE) {
        status = result_in(result, cell, &record, err);
    } else if (!status) {
        run->version = cell->version;
        run->began_ms = time_of(cell);
        bool ours = record.state == STILE_ONCE_RUNNING && record.token == run->token;
        if (!run->in_doubt || !ours)
            status = put_running(run, err);
    }
    stile_cell_free(cell);
    return status;
}

static enum stile_status begin(struct stile_once_run *run, struct stile_once_result **result,
                               struct stile_error *err)
{
    for (unsigned tried = 1;; tried++) {
        enum stile_status status = try_begin(run, result, err);
        bool again = status == STILE_CONFLICT ||
                     (run->in_doubt && (status == STILE_UNREACHABLE || status == STILE_UNCERTAIN));
        if (!again || tried == BEGIN_TRIES)
            return status;
        if (!stile_lock_held(run->lock))
            return lost(err);
        status = nap_take(run->client, PAUSE_NS, tried < PAUSE_GROWS ? tried : PAUSE_GROWS, err);
        if (status)
            return status;
    }
}

/* Checks the lock, and takes from it what all writes need. */
static enum stile_status read_lock(struct stile_once_run *run, struct stile_lock *lock,
                                   struct stile_error *err)
{
    const char *name = stile_lock_name(lock);
    if (!name || strncmp(name, STILE_ONCE_PREFIX, strlen(STILE_ONCE_PREFIX)) != 0)
        return error_set(err, STILE_MISUSE, 0, "its lock must be named " STILE_ONCE_PREFIX "KEY");
    if (lock->claim->mode != STILE_EXCLUSIVE)
        return error_set(err, STILE_MISUSE, 0, "its lock must be exclusive");
    (void)snprintf(run->name, sizeof run->name, "%s", name);
    run->lock = lock;
    run->client = lock->client;
    enum stile_status status = check_engine(run->client, err);
    if (!status && !stile_lock_held(lock))
        status = error_set(err, STILE_LOST, 0, "the lock is not held");
    if (!status)
        status = stile_lock_token(lock, &run->token);
    return status ? status : stile_lock_issuer(lock, run->issuer, sizeof run->issuer);
}

static void set_run(struct stile_once_run *run, const struct stile_once_options *o)
{
    (void)snprintf(run->fingerprint, sizeof run->fingerprint, "%s", o->fingerprint);
    run->keep_ms = o->keep_ms;
    run->keep_failures = o->keep_failures;
    run->began_ns = loop_now(run->client->loop);
}

enum stile_status stile_once_begin(struct stile_once_run **run, struct stile_once_result **result,
                                   struct stile_lock *lock,
                                   const struct stile_once_options *options,
                                   struct stile_error *err)
{
    struct stile_once_options o;
    if (!run || !result || !lock)
        return error_set(err, STILE_MISUSE, 0, "beginning a run: an argument is missing");
    *result = NULL;
    *run = NULL;
    struct stile_once_run *new = calloc(1, sizeof *new);
    enum stile_status status =
        new ? check_options(&o, options, err) : error_set(err, STILE_NOMEM, 0, "out of memory");
    if (!status)
        status = read_lock(new, lock, err);
    if (!status) {
        set_run(new, &o);
        status = begin(new, result, err);
    }
    if (!status && !*result)
        *run = new;
    else
        free(new);
    return status ? error_wrap(err, status, "beginning a run") : STILE_OK;
}

/* ---- finish ---- */

/* Whether a write that was not answered has happened: OK, LOST, or that it is not known yet. */
static enum stile_status check_written(struct stile_once_run *run, bool removed,
                                       struct stile_error *err)
{
    struct stile_cell *cell = NULL;
    struct once_record record;
    enum stile_status status = read_record(&cell, &record, run->client, run->name, err);
    bool ours = removed ? record.state == STILE_ONCE_NONE && cell && cell->token == run->token
                        : record.state == STILE_ONCE_DONE && record.token == run->token;
    stile_cell_free(cell);
    if (status == STILE_UNREACHABLE || status == STILE_UNCERTAIN)
        return status;
    return !status && ours ? STILE_OK : lost(err);
}

/* record NULL: removes the one of step 4. */
static enum stile_status write_once(struct stile_once_run *run, const struct once_record *record,
                                    struct stile_error *err)
{
    enum stile_status status =
        record ? put(run, record, NULL, run->keep_ms, err)
               : stile_cell_remove(run->client, run->name,
                                   STILE_CELL_OPTIONS(.if_version = &run->version,
                                                      .token = run->token, .issuer = run->issuer),
                                   err);
    run->in_doubt |= status == STILE_UNCERTAIN;
    if (status != STILE_STALE && status != STILE_CONFLICT)
        return status;
    return run->in_doubt ? check_written(run, !record, err) : lost(err);
}

/* Repeated while it is in doubt: with if_version a repetition is harmless. */
static enum stile_status settle(struct stile_once_run *run, const struct once_record *record,
                                struct stile_error *err)
{
    uint64_t end_ns = loop_now(run->client->loop) + PATIENCE_NS;
    run->in_doubt = false;
    for (unsigned tried = 1;; tried++) {
        enum stile_status status = write_once(run, record, err);
        if (status != STILE_UNCERTAIN && status != STILE_UNREACHABLE)
            return status;
        if (loop_now(run->client->loop) >= end_ns ||
            nap_take(run->client, PAUSE_NS, tried < PAUSE_GROWS ? tried : PAUSE_GROWS, NULL))
            return run->in_doubt ? STILE_UNCERTAIN : status;
    }
}

enum stile_status stile_once_finish(struct stile_once_run *run, int code, const void *bytes,
                                    size_t size, struct stile_error *err)
{
    if (!run)
        return error_set(err, STILE_MISUSE, 0, "storing a result: no run given");
    if (code && !run->keep_failures)
        return stile_once_abandon(run, err);
    struct once_record record = record_of(run, STILE_ONCE_DONE);
    record.code = code;
    record.bytes = bytes;
    record.size = size;
    record.at_ms += (int64_t)((loop_now(run->client->loop) - run->began_ns) / NS_PER_MS);
    enum stile_status status = settle(run, &record, err);
    if (status)
        error_wrap(err, status, "storing the result of '%.80s'", key_of(run->name));
    free(run);
    return status;
}

enum stile_status stile_once_abandon(struct stile_once_run *run, struct stile_error *err)
{
    if (!run)
        return error_set(err, STILE_MISUSE, 0, "abandoning a run: none given");
    enum stile_status status = settle(run, NULL, err);
    if (status)
        error_wrap(err, status, "abandoning the run of '%.80s'", key_of(run->name));
    free(run);
    return status;
}

void stile_once_leave(struct stile_once_run *run)
{
    free(run);
}

/* ---- all of it ---- */

struct work {
    stile_once_fn *fn;
    void *data;
    const struct stile_once_options *o;
};

/* Step 5 and 6, for a caller that has begun. */
static enum stile_status run_fn(struct stile_once_result **result, struct stile_once_run *run,
                                const struct work *work, struct stile_error *err)
{
    struct stile_once_output output = {0};
    struct once_record record = record_of(run, STILE_ONCE_DONE);
    record.code = work->fn(&output, run->lock, work->data);
    record.bytes = output.bytes ? output.bytes : "";
    record.size = output.bytes ? output.size : 0;
    enum stile_status status = make_result(result, &record, err);
    if (!status)
        (*result)->ran = true;
    enum stile_status stored =
        stile_once_finish(run, record.code, record.bytes, record.size, status ? NULL : err);
    return status ? status : stored;
}

static enum stile_status run_locked(struct stile_once_result **result, struct stile_lock *lock,
                                    const struct work *work, struct stile_error *err)
{
    struct stile_once_run *run;
    enum stile_status status = stile_once_begin(&run, result, lock, work->o, err);
    return status || *result ? status : run_fn(result, run, work, err);
}

static enum stile_status take_and_run(struct stile_once_result **result,
                                      struct stile_client *client, const char *name,
                                      const struct work *work, struct stile_error *err)
{
    struct stile_lock *lock;
    const struct stile_once_options *o = work->o;
    enum stile_status status =
        stile_lock_new(&lock, client, name, STILE_LOCK_OPTIONS(.ttl_ms = o->ttl_ms), err);
    if (status)
        return status;
    status = stile_lock_acquire(lock, o->no_wait ? 0 : o->wait_ms ? o->wait_ms : -1, err);
    if (!status) {
        status = run_locked(result, lock, work, err);
        stile_lock_release(lock, NULL);
    } else if (status == STILE_HELD || status == STILE_TIMEOUT) {
        /* Another waiter may have had the lock only to read the result. */
        enum stile_status found = find(result, client, name, o->fingerprint, NULL);
        status = !found && *result ? STILE_OK : status;
    }
    stile_lock_free(lock);
    return status;
}

enum stile_status stile_once(struct stile_once_result **result, struct stile_client *client,
                             const char *key, stile_once_fn *fn, void *data,
                             const struct stile_once_options *options, struct stile_error *err)
{
    char name[ONCE_NAME_SIZE] = "";
    struct stile_once_options o;
    struct outside outside;
    if (!result || !fn)
        return error_set(err, STILE_MISUSE, 0,
                         "running once: no place for the result, or no "
                         "callback");
    *result = NULL;
    enum stile_status status = prepare(name, &o, client, key, options, err);
    if (!status)
        status = client_hold(client, &outside, err);
    if (status)
        return error_wrap(err, status, "running '%.80s' once", key ? key : "");
    const struct work work = {.fn = fn, .data = data, .o = &o};
    status = find(result, client, name, o.fingerprint, err);
    if (!status && !*result)
        status = take_and_run(result, client, name, &work, err);
    client_let_go(&outside);
    if (status) {
        stile_once_free(*result);
        *result = NULL;
        error_wrap(err, status, "running '%.80s' once", key);
    }
    return status;
}

/* The lock's token refuses what an earlier runner still writes. */
static enum stile_status forget(struct stile_lock *lock, const char *name, struct stile_error *err)
{
    char issuer[STILE_ISSUER_MAX + 1];
    uint64_t token;
    enum stile_status status = stile_lock_token(lock, &token);
    if (!status)
        status = stile_lock_issuer(lock, issuer, sizeof issuer);
    if (!status)
        status = stile_cell_remove(lock->client, name,
                                   STILE_CELL_OPTIONS(.token = token, .issuer = issuer), err);
    return status;
}

enum stile_status stile_once_forget(struct stile_client *client, const char *key,
                                    struct stile_error *err)
{
    char name[ONCE_NAME_SIZE] = "";
    struct stile_once_options o;
    struct stile_lock *lock = NULL;
    struct outside outside;
    enum stile_status status = prepare(name, &o, client, key, NULL, err);
    if (!status)
        status = client_hold(client, &outside, err);
    if (status)
        return error_wrap(err, status, "forgetting '%.80s'", key ? key : "");
    status = stile_lock_new(&lock, client, name, NULL, err);
    if (!status)
        status = stile_lock_acquire(lock, 0, err);
    if (!status) {
        status = forget(lock, name, err);
        stile_lock_release(lock, NULL);
    } else if (status == STILE_HELD) {
        error_set(err, STILE_HELD, 0, "it is being run at this moment");
    }
    stile_lock_free(lock);
    client_let_go(&outside);
    return status ? error_wrap(err, status, "forgetting '%.80s'", key) : STILE_OK;
}
