/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/cell_request.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/name.h"
#include "base/text.h"

/* ---- checks ---- */

static bool has_control(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127)
            return true;
    }
    return false;
}

enum stile_status cell_check_token(const char **issuer, uint64_t token, struct stile_error *err)
{
    if (!*issuer)
        *issuer = "";
    if (token > STILE_TOKEN_MAX)
        return error_set(err, STILE_MISUSE, 0, "token %" PRIu64 " is above %" PRIu64, token,
                         STILE_TOKEN_MAX);
    if (strlen(*issuer) > STILE_ISSUER_MAX || has_control(*issuer))
        return error_set(err, STILE_MISUSE, 0,
                         "the issuer has control characters or more than %d bytes",
                         STILE_ISSUER_MAX);
    return STILE_OK;
}

static enum stile_status check_key(const struct cell_request *cell, struct stile_error *err)
{
    if (!cell->key)
        return error_set(err, STILE_MISUSE, 0, "no key given");
    if (cell->verb == CELL_LIST && !*cell->key)
        return STILE_OK;
    return name_check(cell->key, strlen(cell->key), err);
}

static enum stile_status check_engine(const struct engine *engine, const struct cell_request *cell,
                                      struct stile_error *err)
{
    if (!engine->class->cells)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "%s keeps no cells and no guards: use an engine that does (stile caps URL "
                         "prints it)",
                         engine->caps.engine);
    if (cell->keep_ns && !engine->class->caps.keeps)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "%s can't end a cell after a time (keep): put it without keep and remove "
                         "it yourself, or use an engine that can (stile caps URL prints it)",
                         engine->caps.engine);
    return STILE_OK;
}

enum stile_status cell_enter(struct cell_call *call, struct stile_client *client,
                             struct stile_error *err)
{
    enum stile_status status = check_key(&call->cell, err);
    if (!status)
        status = client_enter_for_locks(client, err);
    if (status)
        return status;
    call->client = client;
    call->cell.key_len = strlen(call->cell.key);
    status = check_engine(client->engine, &call->cell, err);
    if (status)
        client_leave(client);
    return status;
}

/* ---- the end of a call ---- */

/* For errors. */
static const char *const doing[CELL_VERBS] = {
    [CELL_GET] = "reading",
    [CELL_PUT] = "putting",
    [CELL_REMOVE] = "removing",
    [CELL_RAISE] = "guarding",
    [CELL_RESET] = "resetting the guard of",
    [CELL_LIST] = "listing cells",
};

const struct stile_cell *cell_reported(const struct cell_call *call)
{
    return call->n > 0 ? &call->cells[0] : NULL;
}

static void explain_stale(struct stile_error *err, const struct cell_request *cell, uint64_t seen)
{
    if (cell->token == 0)
        error_set(err, STILE_STALE, 0,
                  "no token was given, and its guard has seen %" PRIu64
                  ": write it with the token of the lock that protects it",
                  seen);
    else if (cell->token == seen)
        error_set(err, STILE_STALE, 0, "token %" PRIu64 " was used before, and the call is strict",
                  seen);
    else
        error_set(err, STILE_STALE, 0, "stale token %" PRIu64 ": the highest seen is %" PRIu64,
                  cell->token, seen);
}

static void explain_conflict(struct stile_error *err, const struct cell_request *cell,
                             uint64_t version)
{
    if (cell->if_version == 0)
        error_set(err, STILE_CONFLICT, 0, "it exists already, with version %" PRIu64, version);
    else if (version == 0)
        error_set(err, STILE_CONFLICT, 0, "there is no such cell");
    else
        error_set(err, STILE_CONFLICT, 0, "its version is %" PRIu64 ", not %" PRIu64, version,
                  cell->if_version);
}

static void explain(struct cell_call *call)
{
    const struct cell_request *cell = &call->cell;
    const struct stile_cell *now = cell_reported(call);
    struct stile_error *err = &call->error;
    if (now && err->status == STILE_STALE)
        explain_stale(err, cell, now->token);
    else if (now && err->status == STILE_FOREIGN)
        error_set(err, STILE_FOREIGN, 0,
                  "the token is of %.90s, but its tokens come from %.90s (see stile guard reset)",
                  cell->issuer, now->issuer);
    else if (now && err->status == STILE_CONFLICT)
        explain_conflict(err, cell, now->version);
    if (err->status && cell->verb == CELL_LIST)
        error_wrap(err, err->status, "%s", doing[cell->verb]);
    else if (err->status)
        error_wrap(err, err->status, "%s '%s'", doing[cell->verb], cell->key);
}

void cell_report_highest(const struct cell_call *call, uint64_t *highest)
{
    enum stile_status status = call->error.status;
    if (highest && cell_reported(call) &&
        (!status || status == STILE_STALE || status == STILE_FOREIGN))
        *highest = cell_reported(call)->token;
}

/* One damaged cell does not hide the others. */
void cell_hand_out(const struct cell_call *call, stile_cell_fn *fn, void *data)
{
    enum stile_status status = call->error.status;
    size_t n = fn && (!status || status == STILE_CORRUPT) ? call->n : 0;
    for (size_t i = 0; i < n && fn(&call->cells[i], data) == 0; i++)
        ;
}

/* ---- blocking calls ---- */

void cell_ask(struct cell_call *call)
{
    cell_call_run(call, call->client);
    client_leave(call->client);
}

enum stile_status cell_conclude(struct cell_call *call, struct stile_error *err)
{
    explain(call);
    if (call->error.status && err)
        *err = call->error;
    return call->error.status;
}

enum stile_status cell_run(struct cell_call *call, struct stile_error *err)
{
    cell_ask(call);
    return cell_conclude(call, err);
}

/* ---- async calls ---- */

/* A call whose caller has gone on, with copies of what it was given. */
struct later {
    struct cell_call call;
    struct cell_callbacks to;
    struct callback callback;
    char copies[];
};

static void report(struct later *later)
{
    struct cell_call *call = &later->call;
    const struct stile_error *err = call->error.status ? &call->error : NULL;
    explain(call);
    if (call->cell.verb == CELL_LIST) {
        cell_hand_out(call, later->to.each, later->to.data);
        later->to.over(call->client, call->error.status, err, later->to.data);
    } else {
        later->to.done(cell_reported(call), call->error.status, err, later->to.data);
    }
    cell_call_free_cells(call);
    free(later);
}

static void deliver(struct callback *callback)
{
    report(container_of(callback, struct later, callback));
}

static void answered(struct cell_call *call)
{
    struct later *later = container_of(call, struct later, call);
    later->callback.fn = deliver;
    callback_queue(call->client, &later->callback);
}

static void abandoned(struct cell_call *call)
{
    report(container_of(call, struct later, call));
}

static void copy_arguments(struct later *later)
{
    struct cell_request *cell = &later->call.cell;
    char *at = later->copies;
    cell->key = text_pack(&at, cell->key);
    cell->issuer = text_pack(&at, cell->issuer);
    if (cell->value)
        cell->value = cell->size ? memcpy(at, cell->value, cell->size) : "";
}

enum stile_status cell_start(const struct cell_call *call, struct stile_client *client,
                             struct cell_callbacks to)
{
    const struct cell_request *cell = &call->cell;
    size_t size = text_size(cell->key) + text_size(cell->issuer) + cell->size;
    struct later *later = malloc(sizeof *later + size);
    if (later) {
        *later = (struct later){.call = *call, .to = to};
        later->call.answered = answered;
        later->call.abandoned = abandoned;
        copy_arguments(later);
        cell_call_start(&later->call, client);
    }
    client_leave(client);
    return later ? STILE_OK : STILE_NOMEM;
}
