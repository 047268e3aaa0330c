/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/inspect.h"

#include <stdio.h>
#include <stdlib.h>

#include "engines/dynamodb/item.h"
#include "engines/dynamodb/scan.h"
#include "engines/dynamodb/writes.h"

#define TRIES_MAX 16 /* of a break that always meets another write */

/* One query. */
struct inspection {
    struct inspection *next, **link;
    struct dynamo *dynamo;
    struct query *query;
    struct call call;
    unsigned tries;
    bool doubt;       /* break: an earlier write may have done it */
    struct scan scan; /* list */
};

/* ---- the beginning and the end ---- */

static void inspection_free(struct inspection *s)
{
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    ddb_call_cancel(&s->call);
    ddb_scan_free(&s->scan);
    s->query->state = NULL;
    free(s);
}

static void end(struct inspection *s, const struct stile_error *err)
{
    struct query *query = s->query;
    struct stile_error why;
    error_copy(&why, err);
    inspection_free(s);
    query->engine->events->done(query, err ? &why : NULL);
}

static void end_with(struct inspection *s, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    end(s, &err);
}

static struct inspection *begin(struct engine *engine, struct query *query)
{
    struct dynamo *d = dynamo_of(engine);
    struct inspection *s = calloc(1, sizeof *s);
    struct stile_error err;
    if (!s) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return NULL;
    }
    *s = (struct inspection){
        .next = d->inspections, .link = &d->inspections, .dynamo = d, .query = query};
    if (s->next)
        s->next->link = &s->next;
    d->inspections = s;
    query->state = s;
    return s;
}

static struct inspection *of_call(struct call *call)
{
    return container_of(call, struct inspection, call);
}

void ddb_cancel(struct engine *engine, struct query *query)
{
    (void)engine;
    inspection_free(query->state);
}

void ddb_inspections_free(struct dynamo *d)
{
    while (d->inspections)
        inspection_free(d->inspections);
}

/* ---- what is shown ---- */

#define INFO_ROOM 1024

/* "PID HOST COMMAND"; a text of another form is the command. */
static void put_info(struct stile_claim_info *shown, const struct item_claim *claim,
                     char room[INFO_ROOM])
{
    int host = 0, host_end = 0, command = 0;
    long long pid = 0;
    snprintf(room, INFO_ROOM, "%s", claim->info);
    if (sscanf(room, "%lld %n%*s%n %n", &pid, &host, &host_end, &command) < 1 || !command)
        host = host_end = (int)strlen(room), command = 0, pid = 0;
    shown->pid = pid > 0 ? pid : 0;
    shown->command = room + command;
    room[host_end] = '\0';
    shown->host = room + host;
}

static void put_claim(struct stile_claim_info *shown, const struct item_claim *claim,
                      struct dynamo *d, char room[INFO_ROOM])
{
    uint64_t now = loop_now(loop_of(d));
    int64_t age_s = claim->granted_s ? ddb_date(d) - claim->granted_s : -1;
    *shown = (struct stile_claim_info){
        .held = true,
        .ghost = claim->ghost,
        .mode = claim->mode,
        .token = claim->token,
        .age_ms = claim->granted_s ? (age_s > 0 ? age_s * 1000 : 0) : -1,
        .expires_ms = claim->ends_ns > now ? (int64_t)((claim->ends_ns - now) / NS_PER_MS) : 0,
        .owner = claim->id,
        .proclaimed = claim->proclaimed};
    put_info(shown, claim, room);
}

/* False: out of memory. */
static bool report(struct inspection *s, const char *name, const struct item *item)
{
    struct stile_claim_info *claims = calloc(item->n + 1, sizeof *claims);
    char(*rooms)[INFO_ROOM] = calloc(item->n + 1, sizeof *rooms);
    struct stile_info info = {.name = name, .token = item->token, .claims = claims};
    for (size_t i = 0; claims && rooms && i < item->n; i++) {
        if (item->claims[i].over)
            continue;
        put_claim(&claims[info.holders], &item->claims[i], s->dynamo, rooms[info.holders]);
        info.token = claims[info.holders++].token;
    }
    bool good = claims && rooms;
    if (good && (info.holders || !s->scan.n_pages)) /* list: names that are held */
        s->query->engine->events->info(s->query, &info);
    free(claims);
    free(rooms);
    return good;
}

/* ---- show ---- */

/* What read_item() was answered. False: err says why. */
static bool take_item(struct inspection *s, struct item *item, struct stile_error *err)
{
    struct dynamo *d = s->dynamo;
    const struct query *query = s->query;
    const struct json *attributes = ddb_json_get(s->call.reply, "Item");
    error_copy(err, &s->call.err);
    if (s->call.result != CALL_OK)
        return false;
    if (attributes && !ddb_item_is(d, attributes, d->dialect->kind, query->name, query->name_len))
        return !error_set(err, STILE_UNREACHABLE, 0, "the answer is about another item");
    return !d->dialect->read(item, d, attributes, loop_now(loop_of(d)), err);
}

static void on_shown(struct call *call)
{
    struct inspection *s = of_call(call);
    struct stile_error err;
    struct item item = {0};
    bool failed = !take_item(s, &item, &err);
    if (!failed && !report(s, s->query->name, &item))
        failed = error_set(&err, STILE_NOMEM, 0, "out of memory");
    ddb_item_free(&item);
    end(s, failed ? &err : NULL);
}

static void read_item(struct inspection *s, call_done *done)
{
    const struct query *query = s->query;
    ddb_write_look(&s->call, s->dynamo, s->dynamo->dialect->kind, query->name, query->name_len);
    ddb_call_start(s->dynamo, &s->call, "GetItem", PATIENCE_NS, done);
}

void ddb_show(struct engine *engine, struct query *query)
{
    struct inspection *s = begin(engine, query);
    if (s)
        read_item(s, on_shown);
}

/* ---- list ---- */

/* One item of another program hides none of the others: show says what is wrong with it. */
static enum stile_status report_item(struct inspection *s, const struct scanned *at,
                                     struct stile_error *err)
{
    struct item item;
    struct dynamo *d = s->dynamo;
    enum stile_status status =
        d->dialect->read(&item, d, at->attributes, loop_now(loop_of(d)), err);
    if (!status && !report(s, at->name, &item))
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    ddb_item_free(&item);
    return status == STILE_CORRUPT ? STILE_OK : status;
}

static enum stile_status report_listed(struct inspection *s, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    for (size_t i = 0; i < s->scan.n && !status; i++)
        status = report_item(s, &s->scan.items[i], err);
    return status;
}

static void on_listed(struct scan *scan, const struct stile_error *why)
{
    struct inspection *s = container_of(scan, struct inspection, scan);
    struct stile_error err;
    if (why || !report_listed(s, &err))
        end(s, why);
    else
        end(s, &err);
}

void ddb_list(struct engine *engine, struct query *query)
{
    struct inspection *s = begin(engine, query);
    if (!s)
        return;
    s->scan = (struct scan){.kind = s->dynamo->dialect->kind,
                            .condition = s->dynamo->dialect->listed,
                            .attribute = s->dynamo->dialect->attribute,
                            .value = s->dynamo->dialect->value,
                            .prefix = query->name,
                            .prefix_len = query->name_len,
                            .done = on_listed};
    ddb_scan_start(s->dynamo, &s->scan);
}

/* ---- break ---- */

static void on_found(struct call *call);

static void on_broken(struct call *call)
{
    struct inspection *s = of_call(call);
    s->doubt |= call->doubt;
    if (call->result == CALL_CONDITION && ++s->tries < TRIES_MAX)
        read_item(s, on_found);
    else if (call->result == CALL_CONDITION)
        end_with(s, STILE_CONFLICT, "the holders change too quickly");
    else
        end(s, call->result == CALL_OK ? NULL : &call->err);
}

static bool is_held_by(const struct item *item, uint64_t token)
{
    for (size_t i = 0; i < item->n; i++) {
        if (!item->claims[i].over && (!token || item->claims[i].token == token))
            return true;
    }
    return false;
}

static void break_item(struct inspection *s, const struct item *item)
{
    const struct query *query = s->query;
    if (is_held_by(item, query->token)) {
        s->dynamo->dialect->break_(&s->call, s->dynamo, query->name, query->name_len, item,
                                   query->token);
        ddb_call_start(s->dynamo, &s->call, "UpdateItem", PATIENCE_NS, on_broken);
    } else if (s->doubt) {
        end(s, NULL);
    } else {
        end_with(s, STILE_CONFLICT,
                 is_held_by(item, 0) ? "the grant with that token is over" : "it isn't held");
    }
}

static void on_found(struct call *call)
{
    struct inspection *s = of_call(call);
    struct stile_error err;
    struct item item = {0};
    if (take_item(s, &item, &err))
        break_item(s, &item);
    else
        end(s, &err);
    ddb_item_free(&item);
}

void ddb_break(struct engine *engine, struct query *query)
{
    struct inspection *s = begin(engine, query);
    if (s)
        read_item(s, on_found);
}
