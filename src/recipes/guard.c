/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Guards: the part of a cell that compares tokens, with or without a value in it. */
#include "base/guard.h"

#include <stdio.h>

#include "base/options.h"
#include "base/url.h"
#include "core/lock.h"
#include "recipes/cell_request.h"

static const struct options_kind kind = {
    .name = "guard options",
    .macro = "STILE_GUARD_OPTIONS",
    .size = sizeof(struct stile_guard_options),
    .least = OPTIONS_UP_TO(struct stile_guard_options, highest),
};

enum stile_status stile_lock_issuer(struct stile_lock *lock, char *out, size_t out_size)
{
    const char *name = stile_lock_name(lock);
    if (!out || out_size == 0)
        return STILE_MISUSE;
    *out = '\0';
    if (!name)
        return STILE_MISUSE;
    int length = snprintf(out, out_size, "%s:%s", lock->client->engine->caps.engine, name);
    return length >= 0 && (size_t)length < out_size ? STILE_OK : STILE_MISUSE;
}

static enum stile_status begin(struct cell_call *call, enum cell_verb verb,
                               struct stile_client *client, const char *resource, uint64_t token,
                               const struct stile_guard_options *options,
                               struct stile_guard_options *o, struct stile_error *err)
{
    enum stile_status status = options_read(o, options, &kind, err);
    if (!status)
        status = cell_check_token(&o->issuer, token, err);
    if (!status && token == 0)
        status = error_set(err, STILE_MISUSE, 0, "a guard needs a token above 0");
    *call = (struct cell_call){.cell = {.verb = verb,
                                        .key = resource,
                                        .token = token,
                                        .issuer = o->issuer,
                                        .strict = o->strict}};
    if (!status)
        status = cell_enter(call, client, err);
    return status ? error_wrap(err, status, "guarding a resource") : STILE_OK;
}

/* It has been asked. */
static enum stile_status finish(struct cell_call *call, uint64_t *highest, struct stile_error *err)
{
    enum stile_status status = cell_conclude(call, err);
    cell_report_highest(call, highest);
    cell_call_free_cells(call);
    return status;
}

enum stile_status stile_guard_raise(struct stile_client *client, const char *resource,
                                    uint64_t token, const struct stile_guard_options *options,
                                    struct stile_error *err)
{
    struct cell_call call;
    struct stile_guard_options o;
    enum stile_status status = begin(&call, CELL_RAISE, client, resource, token, options, &o, err);
    if (status)
        return status;
    cell_ask(&call);
    return finish(&call, o.highest, err);
}

enum stile_status stile_guard_raise_async(struct stile_client *client, const char *resource,
                                          uint64_t token, const struct stile_guard_options *options,
                                          stile_cell_done_fn *done, void *data)
{
    struct cell_call call;
    struct stile_guard_options o;
    if (!done)
        return STILE_MISUSE;
    enum stile_status status = begin(&call, CELL_RAISE, client, resource, token, options, &o, NULL);
    return status ? status
                  : cell_start(&call, client, (struct cell_callbacks){.done = done, .data = data});
}

static enum stile_status judge(const struct cell_call *call)
{
    const struct stile_cell *now = cell_reported(call);
    struct guard_seen seen = {.token = now->token, .issuer = now->issuer};
    return guard_judge(seen, call->cell.token, call->cell.issuer, call->cell.strict);
}

/* Reads what was seen, and judges here. */
enum stile_status stile_guard_check(struct stile_client *client, const char *resource,
                                    uint64_t token, const struct stile_guard_options *options,
                                    struct stile_error *err)
{
    struct cell_call call;
    struct stile_guard_options o;
    enum stile_status status = begin(&call, CELL_GET, client, resource, token, options, &o, err);
    if (status)
        return status;
    cell_ask(&call);
    if (!call.error.status)
        call.error.status = judge(&call);
    return finish(&call, o.highest, err);
}

enum stile_status stile_guard_reset(struct stile_client *client, const char *resource,
                                    uint64_t token, const char *issuer, struct stile_error *err)
{
    struct cell_call call;
    enum stile_status status = cell_check_token(&issuer, token, err);
    call = (struct cell_call){
        .cell = {.verb = CELL_RESET, .key = resource, .token = token, .issuer = issuer}};
    if (!status)
        status = cell_enter(&call, client, err);
    if (status)
        return error_wrap(err, status, "resetting a guard");
    cell_ask(&call);
    return finish(&call, NULL, err);
}
