/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells, as far as they are the same for all engines. The engine stores them and keeps the rules.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "recipes/cell_request.h"
#include "recipes/nap.h"

#define UPDATE_TRIES    20
#define UPDATE_PAUSE_NS (2 * NS_PER_MS)

static const struct options_kind kind = {
    .name = "cell options",
    .macro = "STILE_CELL_OPTIONS",
    .size = sizeof(struct stile_cell_options),
    .least = OPTIONS_UP_TO(struct stile_cell_options, tries),
};

static enum stile_status no_callback(struct stile_error *err)
{
    return error_set(err, STILE_MISUSE, 0, "no callback given");
}

/* ---- get ---- */

static enum stile_status begin_get(struct cell_call *call, struct stile_client *client,
                                   const char *key, struct stile_error *err)
{
    *call = (struct cell_call){.cell = {.verb = CELL_GET, .key = key, .issuer = ""}};
    enum stile_status status = cell_enter(call, client, err);
    return status ? error_wrap(err, status, "reading a cell") : STILE_OK;
}

enum stile_status stile_cell_get(struct stile_cell **cell, struct stile_client *client,
                                 const char *key, struct stile_error *err)
{
    struct cell_call call;
    if (!cell)
        return error_set(err, STILE_MISUSE, 0, "reading a cell: no place for it");
    *cell = NULL;
    enum stile_status status = begin_get(&call, client, key, err);
    if (status)
        return status;
    status = cell_run(&call, err);
    if (!status) {
        *cell = cell_copy(cell_reported(&call));
        if (!*cell)
            status = error_set(err, STILE_NOMEM, 0, "reading '%s': out of memory", key);
    }
    cell_call_free_cells(&call);
    return status;
}

enum stile_status stile_cell_get_async(struct stile_client *client, const char *key,
                                       stile_cell_done_fn *done, void *data)
{
    struct cell_call call;
    if (!done)
        return STILE_MISUSE;
    enum stile_status status = begin_get(&call, client, key, NULL);
    return status ? status
                  : cell_start(&call, client, (struct cell_callbacks){.done = done, .data = data});
}

void stile_cell_free(struct stile_cell *cell)
{
    free(cell);
}

/* ---- put and remove ---- */

static enum stile_status read_options(struct stile_cell_options *o,
                                      const struct stile_cell_options *options,
                                      struct stile_error *err)
{
    enum stile_status status = options_read(o, options, &kind, err);
    if (!status && (o->keep_ms < 0 || o->keep_ms > STILE_CELL_KEEP_MAX))
        status = error_set(err, STILE_MISUSE, 0,
                           "a cell is kept forever (0) or for up to ten years, not %" PRId64 " ms",
                           o->keep_ms);
    return status ? status : cell_check_token(&o->issuer, o->token, err);
}

static enum stile_status check_value(const void *value, size_t size, struct stile_error *err)
{
    if (size > STILE_CELL_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "the value has %zu bytes, %d is the limit; put a reference to it into the "
                         "cell instead",
                         size, STILE_CELL_MAX);
    if (size > 0 && !value)
        return error_set(err, STILE_MISUSE, 0, "no value given");
    return STILE_OK;
}

/* Remove: value NULL. */
static enum stile_status begin_write(struct cell_call *call, struct stile_client *client,
                                     const char *key, const void *value, size_t size,
                                     const struct stile_cell_options *o, struct stile_error *err)
{
    *call = (struct cell_call){.cell = {.verb = value ? CELL_PUT : CELL_REMOVE,
                                        .key = key,
                                        .value = value,
                                        .size = size,
                                        .any_version = !o->if_version,
                                        .if_version = o->if_version ? *o->if_version : 0,
                                        .token = o->token,
                                        .issuer = o->issuer,
                                        .strict = o->strict,
                                        .keep_ns = value ? (uint64_t)o->keep_ms * NS_PER_MS : 0}};
    return cell_enter(call, client, err);
}

static enum stile_status begin_put(struct cell_call *call, struct stile_client *client,
                                   const char *key, const void *value, size_t size,
                                   const struct stile_cell_options *options,
                                   struct stile_cell_options *o, struct stile_error *err)
{
    enum stile_status status = read_options(o, options, err);
    if (!status)
        status = check_value(value, size, err);
    if (!status)
        status = begin_write(call, client, key, value ? value : "", size, o, err);
    return status ? error_wrap(err, status, "putting a cell") : STILE_OK;
}

static enum stile_status begin_remove(struct cell_call *call, struct stile_client *client,
                                      const char *key, const struct stile_cell_options *options,
                                      struct stile_cell_options *o, struct stile_error *err)
{
    enum stile_status status = read_options(o, options, err);
    if (!status)
        status = begin_write(call, client, key, NULL, 0, o, err);
    return status ? error_wrap(err, status, "removing a cell") : STILE_OK;
}

/* Runs it and frees its cells. */
static enum stile_status finish_write(struct cell_call *call, uint64_t *version, uint64_t *highest,
                                      struct stile_error *err)
{
    enum stile_status status = cell_run(call, err);
    const struct stile_cell *now = cell_reported(call);
    if (version && now && (!status || status == STILE_CONFLICT))
        *version = now->version;
    cell_report_highest(call, highest);
    cell_call_free_cells(call);
    return status;
}

enum stile_status stile_cell_put(uint64_t *version, struct stile_client *client, const char *key,
                                 const void *value, size_t size,
                                 const struct stile_cell_options *options, struct stile_error *err)
{
    struct cell_call call;
    struct stile_cell_options o;
    enum stile_status status = begin_put(&call, client, key, value, size, options, &o, err);
    return status ? status : finish_write(&call, version, o.highest, err);
}

enum stile_status stile_cell_put_async(struct stile_client *client, const char *key,
                                       const void *value, size_t size,
                                       const struct stile_cell_options *options,
                                       stile_cell_done_fn *done, void *data)
{
    struct cell_call call;
    struct stile_cell_options o;
    if (!done)
        return STILE_MISUSE;
    enum stile_status status = begin_put(&call, client, key, value, size, options, &o, NULL);
    return status ? status
                  : cell_start(&call, client, (struct cell_callbacks){.done = done, .data = data});
}

enum stile_status stile_cell_remove(struct stile_client *client, const char *key,
                                    const struct stile_cell_options *options,
                                    struct stile_error *err)
{
    struct cell_call call;
    struct stile_cell_options o;
    enum stile_status status = begin_remove(&call, client, key, options, &o, err);
    return status ? status : finish_write(&call, NULL, o.highest, err);
}

enum stile_status stile_cell_remove_async(struct stile_client *client, const char *key,
                                          const struct stile_cell_options *options,
                                          stile_cell_done_fn *done, void *data)
{
    struct cell_call call;
    struct stile_cell_options o;
    if (!done)
        return STILE_MISUSE;
    enum stile_status status = begin_remove(&call, client, key, options, &o, NULL);
    return status ? status
                  : cell_start(&call, client, (struct cell_callbacks){.done = done, .data = data});
}

/* ---- list ---- */

static enum stile_status begin_list(struct cell_call *call, struct stile_client *client,
                                    const char *prefix, struct stile_error *err)
{
    *call =
        (struct cell_call){.cell = {.verb = CELL_LIST, .key = prefix ? prefix : "", .issuer = ""}};
    enum stile_status status = cell_enter(call, client, err);
    return status ? error_wrap(err, status, "listing cells") : STILE_OK;
}

enum stile_status stile_cell_list(struct stile_client *client, const char *prefix,
                                  stile_cell_fn *fn, void *data, struct stile_error *err)
{
    struct cell_call call;
    enum stile_status status = begin_list(&call, client, prefix, err);
    if (status)
        return status;
    status = cell_run(&call, err);
    cell_hand_out(&call, fn, data);
    cell_call_free_cells(&call);
    return status;
}

enum stile_status stile_cell_list_async(struct stile_client *client, const char *prefix,
                                        stile_cell_fn *fn, stile_query_done_fn *done, void *data)
{
    struct cell_call call;
    if (!done)
        return STILE_MISUSE;
    enum stile_status status = begin_list(&call, client, prefix, NULL);
    return status ? status
                  : cell_start(&call, client,
                               (struct cell_callbacks){.over = done, .each = fn, .data = data});
}

/* ---- update ---- */

/* One read, one call of fn, one write. */
static enum stile_status try_update(uint64_t *version, struct stile_client *client, const char *key,
                                    stile_cell_update_fn *fn, void *data,
                                    const struct stile_cell_options *o, struct stile_error *err)
{
    struct stile_cell *now;
    struct stile_cell_next next = {0};
    struct stile_cell_options write = *o;
    enum stile_status status = stile_cell_get(&now, client, key, err);
    if (status)
        return status;
    uint64_t seen = now->version;
    write.if_version = &seen;
    if (fn(&next, now, data))
        status = error_set(err, STILE_CANCELLED, 0, "the caller decided against it");
    else if (next.remove)
        status = stile_cell_remove(client, key, &write, err);
    else
        status = stile_cell_put(version, client, key, next.value, next.size, &write, err);
    if (!status && next.remove && version)
        *version = 0;
    stile_cell_free(now);
    return status;
}

static enum stile_status update(uint64_t *version, struct stile_client *client, const char *key,
                                stile_cell_update_fn *fn, void *data,
                                const struct stile_cell_options *o, struct stile_error *err)
{
    unsigned tries = o->tries ? o->tries : UPDATE_TRIES;
    for (unsigned tried = 1;; tried++) {
        enum stile_status status = try_update(version, client, key, fn, data, o, err);
        if (status != STILE_CONFLICT)
            return status;
        if (tried == tries)
            return error_wrap(err, STILE_CONFLICT, "%u times in a row others were faster", tries);
        status = nap_take(client, UPDATE_PAUSE_NS, tried, err);
        if (status)
            return status;
    }
}

enum stile_status stile_cell_update(uint64_t *version, struct stile_client *client, const char *key,
                                    stile_cell_update_fn *fn, void *data,
                                    const struct stile_cell_options *options,
                                    struct stile_error *err)
{
    struct stile_cell_options o;
    struct outside outside;
    enum stile_status status = fn ? read_options(&o, options, err) : no_callback(err);
    if (!status && o.if_version)
        status = error_set(err, STILE_MISUSE, 0, "if_version is the update's own");
    if (!status)
        status = client_hold(client, &outside, err);
    if (status)
        return error_wrap(err, status, "updating a cell");
    status = update(version, client, key, fn, data, &o, err);
    client_let_go(&outside);
    return status ? error_wrap(err, status, "updating '%s'", key) : STILE_OK;
}
