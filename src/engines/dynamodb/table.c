/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/table.h"

#include <stdio.h>

void ddb_table_ask(struct call *call, struct dynamo *d, const char *operation, uint64_t patience_ns,
                   call_done *done)
{
    ddb_json_write(&call->body, "{'TableName':%s}", d->table);
    ddb_call_start(d, call, operation, patience_ns, done);
}

static const char *text_of(const struct json *object, const char *key)
{
    const char *text = ddb_json_text(ddb_json_get(object, key));
    return text ? text : "";
}

static const char *type_of(const struct json *table, const char *name)
{
    const struct json *all = ddb_json_get(table, "AttributeDefinitions");
    for (const struct json *at = all ? all->child : NULL; at; at = at->next) {
        if (strcmp(text_of(at, "AttributeName"), name) == 0)
            return text_of(at, "AttributeType");
    }
    return "?";
}

static void read_keys(struct table_facts *facts, const struct dynamo *d, const struct json *table)
{
    const struct json *schema = ddb_json_get(table, "KeySchema");
    size_t n = 0, len = 0;
    for (const struct json *at = schema ? schema->child : NULL; at && n < 2; at = at->next) {
        const char *name = text_of(at, "AttributeName");
        len += (size_t)snprintf(facts->keys + len, sizeof facts->keys - len, "%s%.60s (%.2s)",
                                n ? " and " : "", name, type_of(table, name));
        facts->key_fits =
            n++ == 0 && strcmp(name, d->key) == 0 && strcmp(type_of(table, name), "S") == 0;
    }
}

static size_t count_replicas(const struct dynamo *d, const struct json *table)
{
    const struct json *replicas = ddb_json_get(table, "Replicas");
    size_t n = 0;
    for (const struct json *at = replicas ? replicas->child : NULL; at; at = at->next)
        n += strcmp(text_of(at, "RegionName"), d->region) != 0;
    return n;
}

void ddb_table_read(struct table_facts *facts, const struct dynamo *d, const struct json *reply)
{
    const struct json *table = ddb_json_get(reply, "Table");
    const struct json *protection = ddb_json_get(table, "DeletionProtectionEnabled");
    const struct json *billing = ddb_json_get(table, "BillingModeSummary");
    *facts = (struct table_facts){0};
    snprintf(facts->status, sizeof facts->status, "%.31s", text_of(table, "TableStatus"));
    read_keys(facts, d, table);
    facts->replicas = count_replicas(d, table);
    facts->strong = strcmp(text_of(table, "MultiRegionConsistency"), "STRONG") == 0;
    facts->provisioned = strcmp(text_of(billing, "BillingMode"), "PAY_PER_REQUEST") != 0;
    facts->unprotected = protection && !protection->truth;
}

enum stile_status ddb_table_check(const struct table_facts *facts, const struct dynamo *d,
                                  struct stile_error *err)
{
    if (!facts->key_fits)
        return error_set(err, STILE_REFUSED, 0,
                         "the key of the table %s is %s; it must be %s (S) alone, as stile setup "
                         "creates it",
                         d->table, facts->keys, d->key);
    if (facts->replicas && !facts->strong && !d->allow_global)
        return error_set(err, STILE_REFUSED, 0,
                         "%s is a global table, on which the last writer wins: two regions would "
                         "grant the same lock. Use a table of one region; allow=global if all "
                         "clients use this region only",
                         d->table);
    return STILE_OK;
}
