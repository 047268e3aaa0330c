/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/scan.h"

#include <stdlib.h>

#include "base/text.h"
#include "engines/dynamodb/item.h"

static void read_page(struct scan *scan, const char *after);

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct scanned *)a)->name, ((const struct scanned *)b)->name);
}

static void end(struct scan *scan, const struct stile_error *err)
{
    if (scan->n)
        qsort(scan->items, scan->n, sizeof *scan->items, by_name);
    scan->done(scan, err);
}

/* Of the same size for all, so that it can be sorted in place. */
static bool add_item(struct scan *scan, const struct json *attributes)
{
    const char *key = ddb_json_text(ddb_attribute(attributes, scan->dynamo->key, "S"));
    if (scan->n == scan->cap) {
        size_t cap = scan->cap ? 2 * scan->cap : 64;
        struct scanned *more = realloc(scan->items, cap * sizeof *more);
        if (!more)
            return false;
        scan->items = more;
        scan->cap = cap;
    }
    struct scanned *at = &scan->items[scan->n];
    at->attributes = attributes;
    if (key && ddb_item_name(at->name, scan->kind, key) &&
        strncmp(at->name, scan->prefix, scan->prefix_len) == 0)
        scan->n++;
    return true;
}

static bool keep_page(struct scan *scan, struct reply *page)
{
    struct reply *pages = realloc(scan->pages, (scan->n_pages + 1) * sizeof *pages);
    if (!pages)
        return false;
    scan->pages = pages;
    scan->pages[scan->n_pages++] = *page;
    *page = (struct reply){0};
    return true;
}

static void on_page(struct call *call)
{
    struct scan *scan = container_of(call, struct scan, call);
    const struct json *reply = call->reply, *items = ddb_json_get(reply, "Items");
    struct stile_error err = call->err;
    bool good = call->result == CALL_OK;
    if (good && !keep_page(scan, call->whole))
        good = !error_set(&err, STILE_NOMEM, 0, "out of memory");
    for (const struct json *at = items ? items->child : NULL; good && at; at = at->next) {
        if (!add_item(scan, at))
            good = !error_set(&err, STILE_NOMEM, 0, "out of memory");
    }
    const char *last = ddb_json_text(
        ddb_attribute(ddb_json_get(reply, "LastEvaluatedKey"), scan->dynamo->key, "S"));
    if (good && last && scan->after && strcmp(last, scan->after) == 0)
        good = !error_set(&err, STILE_CORRUPT, 0, "the same page came twice");
    scan->after = last;
    if (good && last)
        read_page(scan, last);
    else
        end(scan, good ? NULL : &err);
}

/* What of the prefix is UTF-8 narrows the scan; add_item() compares all of it. */
static void put_prefix(char key[KEY_ROOM], const struct scan *scan)
{
    size_t len = 0, n = 1;
    while (len < scan->prefix_len && n) {
        n = utf8_length(NULL, scan->prefix + len, scan->prefix_len - len);
        len += n;
    }
    ddb_item_key(key, scan->kind, scan->prefix, len);
}

static void read_page(struct scan *scan, const char *after)
{
    char prefix[KEY_ROOM];
    put_prefix(prefix, scan);
    ddb_json_write(&scan->call.body,
                   "{'TableName':%s,'ConsistentRead':true,'Limit':500,"
                   "'FilterExpression':'%r%r',"
                   "'ExpressionAttributeValues':{':x':%r",
                   scan->dynamo->table, *prefix ? "begins_with(#k, :p) AND " : "", scan->condition,
                   scan->value);
    if (*prefix)
        ddb_json_write(&scan->call.body, ",':p':{'S':%s}", prefix);
    ddb_json_write(&scan->call.body, "},'ExpressionAttributeNames':{'#a':%s", scan->attribute);
    if (*prefix || scan->projection)
        ddb_json_write(&scan->call.body, ",'#k':%s", scan->dynamo->key);
    ddb_json_write(&scan->call.body, "%r", scan->projection ? scan->projection : "}");
    if (after)
        ddb_json_write(&scan->call.body, ",'ExclusiveStartKey':{%s:{'S':%s}}", scan->dynamo->key,
                       after);
    ddb_json_write(&scan->call.body, "}");
    ddb_call_start(scan->dynamo, &scan->call, "Scan", PATIENCE_NS, on_page);
}

void ddb_scan_start(struct dynamo *d, struct scan *scan)
{
    scan->dynamo = d;
    read_page(scan, NULL);
}

void ddb_scan_free(struct scan *scan)
{
    ddb_call_cancel(&scan->call);
    for (size_t i = 0; i < scan->n_pages; i++)
        ddb_reply_free(&scan->pages[i]);
    free(scan->pages);
    free(scan->items);
    scan->pages = NULL;
    scan->items = NULL;
    scan->after = NULL;
    scan->n_pages = scan->n = scan->cap = 0;
}
