/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: small values with versions and guards. One item each:
 *
 *     key      S  "cell/KEY"
 *     version  N  of the last put; stays when the cell is removed
 *     live     BOOL
 *     value    B  missing: it is empty, or removed
 *     size     N  of the value
 *     fence    N  the highest token the guard has seen     issuer  S  of it
 *     change   S  drawn anew by every write
 *
 * A write reads the item, judges, and writes on the condition that `change` is still what it read,
 * so what was judged is what is replaced. A write whose first attempt got no answer finds its own
 * `change` in the item if it was executed. */
#include "engines/dynamodb/cells.h"

#include <stdlib.h>

#include "base/guard.h"
#include "base/text.h"
#include "engines/dynamodb/item.h"
#include "engines/dynamodb/scan.h"
#include "engines/dynamodb/writes.h"

#define TRIES_MAX      64 /* of a write that always meets another */
#define PAUSE_FIRST_NS (5 * NS_PER_MS)
#define PAUSE_MAX_NS   (100 * NS_PER_MS)
#define CHANGE_LEN     24
/* Without the values. */
#define LIST_PROJECTION                                                                            \
    ",\"#v\":\"version\",\"#s\":\"size\",\"#f\":\"fence\",\"#i\":\"issuer\",\"#h\":\"change\"},"   \
    "\"ProjectionExpression\":\"#k, #a, #v, #s, #f, #i, #h\""

/* As it was read; texts point into the reply. */
struct cell {
    bool exists, live;
    uint64_t version, token, size;
    const char *issuer, *change;
};

struct cell_work {
    struct cell_work *next, **link;
    struct dynamo *dynamo;
    struct cell_request *request;
    struct call call;
    struct scan scan;
    struct timer pause;
    bool reserved; /* the timer */
    bool doubt;    /* one of its writes may have been executed */
    unsigned tries;
    struct cell written; /* what it writes */
    char *issuer;        /* of that */
    char change[CHANGE_LEN + 1];
};

static void read_item(struct cell_work *work);

/* ---- the beginning and the end ---- */

static void work_free(struct cell_work *work)
{
    *work->link = work->next;
    if (work->next)
        work->next->link = work->link;
    ddb_call_cancel(&work->call);
    ddb_scan_free(&work->scan);
    loop_disarm(loop_of(work->dynamo), &work->pause);
    if (work->reserved)
        loop_unreserve(loop_of(work->dynamo), 1);
    free(work->issuer);
    free(work);
}

static void end(struct cell_work *work, const struct stile_error *err)
{
    struct cell_request *request = work->request;
    struct stile_error why;
    error_copy(&why, err);
    if (work->doubt && why.status == STILE_UNREACHABLE)
        why.status = STILE_UNCERTAIN;
    work_free(work);
    request->engine->events->cell_done(request, err ? &why : NULL);
}

static void end_with(struct cell_work *work, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    end(work, &err);
}

void ddb_cells_free(struct dynamo *d)
{
    while (d->cell_work)
        work_free(d->cell_work);
}

static struct cell_work *of_call(struct call *call)
{
    return container_of(call, struct cell_work, call);
}

/* ---- an item ---- */

static uint64_t number_of(const struct json *object, const char *name)
{
    uint64_t number;
    ddb_json_u64(&number, ddb_attribute(object, name, "N"));
    return number;
}

static const char *text_of(const struct json *object, const char *name)
{
    const char *text = ddb_json_text(ddb_attribute(object, name, "S"));
    return text ? text : "";
}

/* False: it is no cell. */
static bool read_cell(struct cell *cell, const struct json *item)
{
    uint64_t number;
    const struct json *live = ddb_attribute(item, "live", "BOOL");
    *cell = (struct cell){.exists = item != NULL,
                          .live = live && live->truth,
                          .version = number_of(item, "version"),
                          .size = number_of(item, "size"),
                          .token = number_of(item, "fence"),
                          .issuer = text_of(item, "issuer"),
                          .change = text_of(item, "change")};
    return !item ||
           (live && *cell->change && ddb_json_u64(&number, ddb_attribute(item, "version", "N")) &&
            ddb_json_u64(&number, ddb_attribute(item, "fence", "N")));
}

static void report(const struct cell_request *request, const char *key, const struct cell *cell,
                   const void *value)
{
    request->engine->events->cell((struct cell_request *)request,
                                  &(struct stile_cell){.key = key,
                                                       .value = value,
                                                       .size = cell->live ? cell->size : 0,
                                                       .version = cell->live ? cell->version : 0,
                                                       .token = cell->token,
                                                       .issuer = cell->issuer});
}

/* ---- get ---- */

static void report_value(struct cell_work *work, const struct cell *cell, const struct json *item)
{
    const struct json *stored = ddb_attribute(item, "value", "B");
    size_t size = 0, room = stored ? stored->len / 4 * 3 + 1 : 1;
    char *value = malloc(room);
    bool good = value && (!stored || ddb_json_base64(value, &size, stored)) && size == cell->size &&
                size <= STILE_CELL_MAX;
    if (!value) {
        end_with(work, STILE_NOMEM, "out of memory");
    } else if (!good) {
        end_with(work, STILE_CORRUPT, "its value is not of the size that is stored with it");
    } else {
        value[size] = '\0';
        report(work->request, work->request->key, cell, value);
        end(work, NULL);
    }
    free(value);
}

static void get(struct cell_work *work, const struct cell *cell, const struct json *item)
{
    if (cell->live) {
        report_value(work, cell, item);
        return;
    }
    report(work->request, work->request->key, cell, NULL);
    end(work, NULL);
}

/* ---- writing ---- */

static enum stile_status judge(const struct cell *now, const struct cell_request *request)
{
    struct guard_seen seen = {.token = now->token, .issuer = now->issuer};
    if (request->verb == CELL_RESET)
        return STILE_OK;
    enum stile_status status = guard_judge(seen, request->token, request->issuer, request->strict);
    if (status || request->verb == CELL_RAISE || request->any_version)
        return status;
    return request->if_version == (now->live ? now->version : 0) ? STILE_OK : STILE_CONFLICT;
}

/* What the item is after the write. */
static struct cell change(const struct cell *now, const struct cell_request *request)
{
    struct guard_seen seen = {.token = now->token, .issuer = now->issuer};
    struct cell next = *now;
    if (request->verb == CELL_RESET || request->token)
        next.token = request->token;
    next.issuer = request->verb == CELL_RESET ? request->issuer
                                              : guard_issuer(seen, request->token, request->issuer);
    if (request->verb == CELL_PUT) {
        next.live = true;
        next.version = now->version + 1;
        next.size = request->size;
    } else if (request->verb == CELL_REMOVE) {
        next.live = false;
        next.size = 0;
    }
    return next;
}

/* Its issuer may be part of the reply that was read. */
static bool set_next(struct cell_work *work, const struct cell *now)
{
    work->written = change(now, work->request);
    free(work->issuer);
    work->written.issuer = work->issuer = strdup(work->written.issuer);
    return work->issuer != NULL;
}

static void on_pause_over(struct timer *timer)
{
    read_item(container_of(timer, struct cell_work, pause));
}

/* Others were faster. */
static void again(struct cell_work *work)
{
    struct loop *loop = loop_of(work->dynamo);
    if (++work->tries > TRIES_MAX)
        end_with(work, STILE_CONFLICT, "others write to it all the time");
    else if (!work->reserved && loop_reserve(loop, 1))
        end_with(work, STILE_NOMEM, "out of memory");
    else {
        work->reserved = true;
        loop_arm(loop, &work->pause,
                 loop_now(loop) +
                     loop_backoff(loop, PAUSE_FIRST_NS, PAUSE_MAX_NS, work->tries - 1));
    }
}

/* Else the answer is that of another request. */
static bool is_written(const struct cell_work *work)
{
    return strcmp(text_of(ddb_json_get(work->call.reply, "Attributes"), "change"), work->change) ==
           0;
}

static void on_written(struct call *call)
{
    struct cell_work *work = of_call(call);
    bool foreign = call->result == CALL_OK && !is_written(work);
    work->doubt |= call->doubt || foreign;
    if (call->result == CALL_CONDITION || foreign) {
        again(work);
    } else if (call->result == CALL_FAILED) {
        end(work, &call->err);
    } else {
        report(work->request, work->request->key, &work->written, NULL);
        end(work, NULL);
    }
}

static bool draw_change(struct cell_work *work)
{
    unsigned char random[CHANGE_LEN / 2];
    if (loop_random(loop_of(work->dynamo), random, sizeof random))
        return false;
    hex_encode(work->change, random, sizeof random);
    return true;
}

static void write_item(struct cell_work *work, const struct cell *now)
{
    const struct cell *next = &work->written;
    struct json_out *out = &work->call.body;
    bool put = work->request->verb == CELL_PUT && work->request->size;
    bool keep = work->request->verb == CELL_RAISE || work->request->verb == CELL_RESET;
    ddb_write_begin(&work->call, work->dynamo, KEY_CELL, work->request->key,
                    work->request->key_len);
    ddb_json_write(
        out,
        "'UpdateExpression':'SET #l = :l, #v = :v, #s = :s, #f = :f, #i = :i, #h = :h%r',"
        "'ConditionExpression':'%r','ReturnValues':'UPDATED_NEW',"
        "'ExpressionAttributeNames':{'#l':'live','#v':'version',"
        "'#s':'size','#f':'fence','#i':'issuer','#h':'change'",
        put    ? ", #b = :b"
        : keep ? ""
               : " REMOVE #b",
        now->exists ? "#h = :o" : "attribute_not_exists(#h)");
    if (!keep)
        ddb_json_write(out, ",'#b':'value'");
    ddb_json_write(out,
                   "},'ExpressionAttributeValues':{':l':{'BOOL':%r},':v':{'N':%u},':s':{'N':%u},"
                   "':f':{'N':%u},':i':{'S':%s},':h':{'S':%s}",
                   next->live ? "true" : "false", next->version, next->size, next->token,
                   next->issuer, work->change);
    if (now->exists)
        ddb_json_write(out, ",':o':{'S':%s}", now->change);
    if (put)
        ddb_json_write(out, ",':b':{'B':%b}", work->request->value, work->request->size);
    ddb_json_write(out, "}}");
    ddb_call_start(work->dynamo, &work->call, "UpdateItem", PATIENCE_NS, on_written);
}

static void refuse(struct cell_work *work, const struct cell *now, enum stile_status status)
{
    report(work->request, work->request->key, now, NULL);
    end_with(work, status, "refused"); /* core explains it */
}

/* Of a write in doubt the item shows whether it was executed, unless another has followed. */
static void change_item(struct cell_work *work, const struct cell *now)
{
    enum stile_status status = judge(now, work->request);
    if (work->doubt && strcmp(now->change, work->change) == 0) {
        report(work->request, work->request->key, now, NULL);
        end(work, NULL);
    } else if (work->doubt && now->exists) {
        end_with(work, STILE_UNCERTAIN, "an earlier request may have been executed");
    } else if (status) {
        refuse(work, now, status);
    } else if (!draw_change(work)) {
        end_with(work, STILE_REFUSED, "no randomness");
    } else if (!set_next(work, now)) {
        end_with(work, STILE_NOMEM, "out of memory");
    } else {
        write_item(work, now);
    }
}

/* ---- reading ---- */

static void on_read(struct call *call)
{
    struct cell_work *work = of_call(call);
    const struct cell_request *request = work->request;
    const struct json *item = ddb_json_get(call->reply, "Item");
    struct cell now;
    if (call->result != CALL_OK)
        end(work, &call->err);
    else if (item && !ddb_item_is(work->dynamo, item, KEY_CELL, request->key, request->key_len))
        end_with(work, STILE_UNREACHABLE, "the answer is about another item");
    else if (!read_cell(&now, item))
        end_with(work, STILE_CORRUPT, "its item is damaged, or of another program");
    else if (request->verb == CELL_GET)
        get(work, &now, item);
    else
        change_item(work, &now);
}

static void read_item(struct cell_work *work)
{
    const struct cell_request *request = work->request;
    ddb_write_look(&work->call, work->dynamo, KEY_CELL, request->key, request->key_len);
    ddb_call_start(work->dynamo, &work->call, "GetItem", PATIENCE_NS, on_read);
}

/* ---- list ---- */

static void on_listed(struct scan *scan, const struct stile_error *err)
{
    struct cell_work *work = container_of(scan, struct cell_work, scan);
    struct cell cell;
    for (size_t i = 0; !err && i < scan->n; i++) {
        if (read_cell(&cell, scan->items[i].attributes))
            report(work->request, scan->items[i].name, &cell, NULL);
    }
    end(work, err);
}

/* ---- requests ---- */

static void run(struct engine *engine, struct cell_request *request)
{
    struct dynamo *d = dynamo_of(engine);
    struct cell_work *work = calloc(1, sizeof *work);
    struct stile_error err;
    if (!work) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->cell_done(request, &err);
        return;
    }
    *work = (struct cell_work){.next = d->cell_work,
                               .link = &d->cell_work,
                               .dynamo = d,
                               .request = request,
                               .pause.fn = on_pause_over,
                               .scan = {.kind = KEY_CELL,
                                        .condition = "#a = :x",
                                        .attribute = "live",
                                        .value = "{\"BOOL\":true}",
                                        .projection = LIST_PROJECTION,
                                        .prefix = request->key,
                                        .prefix_len = request->key_len,
                                        .done = on_listed}};
    if (work->next)
        work->next->link = &work->next;
    d->cell_work = work;
    if (request->verb == CELL_LIST)
        ddb_scan_start(d, &work->scan);
    else
        read_item(work);
}

const struct engine_cells ddb_cells = {.run = run};
