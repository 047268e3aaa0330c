/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: each request is one transaction in the file `cells`, and is answered inside its call. A
 * write ends with two syncs, and the client waits for them, as a program does that calls fsync(2).
 * A thread of its own would cost two switches of threads for each write, and save nothing: the
 * others of this client and of this machine wait for the disk all the same. */
#include <time.h>

#include "engines/local/cell_records.h"
#include "engines/local/local.h"

static struct guard_seen seen_by(const struct cell_record *record)
{
    return (struct guard_seen){record->token, record->issuer};
}

static uint64_t version_of(const struct cell_record *record)
{
    return record->is_there ? record->version : 0;
}

/* The wall clock: what is stored outlives a boot. */
static uint64_t time_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* To be asked inside the transaction: a request may have waited for its turn. */
static struct cell_now now_of(const struct cell_request *request)
{
    const struct local *local = local_of(request->engine);
    struct cell_now now = {.boot_ns = local_now(local), .wall_us = time_us()};
    memcpy(&now.boot, local->env->store.cells[AT_HEADER].header.boot, sizeof now.boot);
    now.boot |= 1; /* an end of boot 0 is none */
    return now;
}

static void report(struct cell_request *request, const char *key, const struct cell_record *record,
                   const void *value)
{
    struct stile_cell cell = {
        .key = key,
        .value = value,
        .size = record->size,
        .version = version_of(record),
        .token = record->token,
        .issuer = record->issuer,
        .time_us = request->verb == CELL_GET ? (int64_t)time_us() : 0,
    };
    request->engine->events->cell(request, &cell);
}

/* ---- reading ---- */

static enum stile_status get(struct cell_tx *tx, void *data, struct stile_error *err)
{
    struct cell_request *request = data;
    struct cell_record record;
    enum stile_status status = local_record_find(&record, tx, request->key, request->key_len, err);
    if (status)
        return status;
    if (!local_record_has_sound_value(&record))
        return local_cells_damaged("a value has a wrong sum", err);
    const struct cell_now now = now_of(request);
    local_record_end(&record, &now);
    request->ends_ns = local_end_left_ns(&record.end, &now);
    report(request, request->key, &record, record.is_there ? record.value : NULL);
    return STILE_OK;
}

static void list_one(const char *name, const struct cell_record *record, void *data)
{
    const struct cell_now now = now_of(data);
    if (record->is_there && !local_end_is_over(&record->end, &now))
        report(data, name, record, NULL);
}

static enum stile_status list(struct cell_tx *tx, void *data, struct stile_error *err)
{
    struct cell_request *request = data;
    return local_record_each(tx, request->key, request->key_len, list_one, request, err);
}

/* ---- writing ---- */

struct writing {
    struct cell_request *request;
    struct cell_record record; /* as it is afterwards, or what refused the write */
};

/* OK, STALE, FOREIGN or CONFLICT. */
static enum stile_status judge(const struct cell_request *request, const struct cell_record *record)
{
    if (request->verb == CELL_RESET)
        return STILE_OK;
    enum stile_status status =
        guard_judge(seen_by(record), request->token, request->issuer, request->strict);
    if (status || request->verb == CELL_RAISE || request->any_version)
        return status;
    return request->if_version == version_of(record) ? STILE_OK : STILE_CONFLICT;
}

/* Whether anything has changed. */
static bool guard(struct cell_record *record, const struct cell_request *request)
{
    const char *issuer = request->verb == CELL_RESET
                             ? request->issuer
                             : guard_issuer(seen_by(record), request->token, request->issuer);
    bool resets = request->verb == CELL_RESET;
    uint64_t token = resets || request->token ? request->token : record->token;
    bool changed = token != record->token || strcmp(issuer, record->issuer) != 0;
    record->token = token;
    if (issuer != record->issuer)
        strcpy(record->issuer, issuer);
    return changed;
}

/* The version of a removed cell stays, so that the next one's is larger. */
static bool change(struct cell_record *record, const struct cell_request *request,
                   const struct cell_now *now)
{
    bool changed = guard(record, request), was_there = record->is_there;
    switch (request->verb) {
    case CELL_PUT:
        record->is_there = true;
        record->version++;
        record->end = request->keep_ns ? local_end_after(now, request->keep_ns)
                                       : (struct cell_end){.boot = 0};
        local_record_set_value(record, request->value, request->size);
        return true;
    case CELL_REMOVE:
        record->is_there = false;
        local_record_set_value(record, NULL, 0);
        return changed || was_there;
    default:
        return changed;
    }
}

static enum stile_status write_cell(struct cell_tx *tx, void *data, struct stile_error *err)
{
    struct writing *writing = data;
    const struct cell_request *request = writing->request;
    struct cell_record *record = &writing->record;
    enum stile_status status = local_record_find(record, tx, request->key, request->key_len, err);
    if (status)
        return status;
    const struct cell_now now = now_of(request);
    local_record_end(record, &now);
    status = judge(request, record);
    if (status)
        return error_set(err, status, 0, "refused");
    status = local_record_first_version(record, tx, err);
    tx->is_idle = !status && !change(record, request, &now);
    if (!status && !tx->is_idle)
        status = local_record_store(tx, request->key, request->key_len, record, err);
    return status || !request->keep_ns ? status : local_record_drop_some(tx, &now, err);
}

static enum stile_status run_write(struct env *env, struct cell_request *request,
                                   struct stile_error *err)
{
    struct writing writing = {.request = request};
    enum stile_status status = local_cells_write(env, write_cell, &writing, err);
    if (!status || status == STILE_STALE || status == STILE_FOREIGN || status == STILE_CONFLICT)
        report(request, request->key, &writing.record, NULL);
    return status;
}

static void run(struct engine *engine, struct cell_request *request)
{
    struct local *local = local_of(engine);
    struct stile_error err;
    enum stile_status status = local_session_check(local, &err);
    if (!status && request->verb == CELL_GET)
        status = local_cells_read(local->env, get, request, &err);
    else if (!status && request->verb == CELL_LIST)
        status = local_cells_read(local->env, list, request, &err);
    else if (!status)
        status = run_write(local->env, request, &err);
    engine->events->cell_done(request, status ? &err : NULL);
}

const struct engine_cells local_cells = {
    .run = run,
    .watch = local_cells_watch,
    .unwatch = local_cells_unwatch,
};
