/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/amazon.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

#define UUID_ROOM sizeof(((struct dynamo_claim *)0)->version)
#define NAMES     "'ExpressionAttributeNames':{'#o':'ownerName','#r':'isReleased'"
#define IS_OURS   "#o = :o AND (attribute_not_exists(#r) OR #r <> :1)"

static void draw_version(struct dynamo_claim *c, char uuid[UUID_ROOM])
{
    unsigned char bytes[16] = {0};
    char hex[33];
    (void)loop_random(loop_of(c->dynamo), bytes, sizeof bytes);
    hex_encode(hex, bytes, sizeof bytes);
    snprintf(uuid, UUID_ROOM, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
}

static void begin(struct dynamo_claim *c, struct call *call, const char *kind)
{
    const struct claim *claim = leased_base(&c->leased);
    ddb_write_begin(call, c->dynamo, kind, claim->name, claim->name_len);
}

static void lease_text(struct dynamo_claim *c, char lease[24])
{
    const struct claim *claim = leased_base(&c->leased);
    snprintf(lease, 24, "%llu", (unsigned long long)(claim->ttl_ns / NS_PER_MS));
}

/* Takes the lock on this condition, which may name :s. */
static void take(struct dynamo_claim *c, const char *condition, const char *seen)
{
    char uuid[UUID_ROOM], lease[24];
    draw_version(c, uuid);
    lease_text(c, lease);
    begin(c, &c->call, KEY_AMAZON);
    ddb_json_write(
        &c->call.body,
        "'UpdateExpression':'SET #o = :o, #l = :l, #v = :v, #h = :h, #d = :d REMOVE #r, #t',"
        "'ConditionExpression':%s,'ReturnValues':'ALL_NEW',"
        "'ReturnValuesOnConditionCheckFailure':'ALL_OLD'," NAMES
        ",'#l':'leaseDuration','#v':'recordVersionNumber','#h':'stileHolder','#d':'stileSince',"
        "'#t':'stileToken'},'ExpressionAttributeValues':{':o':{'S':%s},':l':{'S':%s},"
        "':v':{'S':%s},':h':{'S':%s},':d':{'N':%d},%r:{'S':%s}}}",
        condition, c->leased.owner, lease, uuid, c->dynamo->info, ddb_date(c->dynamo),
        seen ? "\":s\"" : "\":1\"", seen ? seen : "1");
}

static void ask(struct dynamo_claim *c)
{
    take(c, "attribute_not_exists(#o) OR #r = :1", NULL);
}

/* The version that was seen for a whole lease must still be there. */
static void replace(struct dynamo_claim *c, const struct item *item)
{
    take(c, "#v = :s", item->version);
}

/* A heartbeat, with the token if there is one, and with the TTL that a resumption gives. */
static void beat(struct dynamo_claim *c, struct call *call, const uint64_t *token)
{
    char lease[24];
    bool ttl = c->state == CLAIM_RESUMING && leased_base(&c->leased)->ttl_given;
    draw_version(c, c->version);
    lease_text(c, lease);
    begin(c, call, KEY_AMAZON);
    ddb_json_write(&call->body,
                   "'UpdateExpression':'SET #v = :v%r%r','ConditionExpression':'" IS_OURS "',"
                   "'ReturnValues':'ALL_NEW'," NAMES ",'#v':'recordVersionNumber'%r%r},"
                   "'ExpressionAttributeValues':{':o':{'S':%s},':1':{'S':'1'},':v':{'S':%s}",
                   token ? ", #t = :t" : "", ttl ? ", #l = :l" : "",
                   token ? ",\"#t\":\"stileToken\"" : "", ttl ? ",\"#l\":\"leaseDuration\"" : "",
                   c->leased.owner, c->version);
    if (token)
        ddb_json_write(&call->body, ",':t':{'N':%u}", *token);
    if (ttl)
        ddb_json_write(&call->body, ",':l':{'S':%s}", lease);
    ddb_json_write(&call->body, "}}");
}

static void renew(struct dynamo_claim *c, struct call *call, uint64_t hold_ms)
{
    (void)hold_ms;
    beat(c, call, NULL);
}

static bool renewed(struct dynamo_claim *c, const struct json *attributes)
{
    const char *version = ddb_json_text(ddb_attribute(attributes, "recordVersionNumber", "S"));
    return version && strcmp(version, c->version) == 0;
}

static void seal(struct dynamo_claim *c, uint64_t token)
{
    beat(c, &c->call, &token);
}

static void release(struct dynamo_claim *c, uint64_t ghost_ms)
{
    (void)ghost_ms;
    begin(c, &c->call, KEY_AMAZON);
    ddb_json_write(&c->call.body,
                   "'UpdateExpression':'SET #r = :1','ConditionExpression':'" IS_OURS "',"
                   "'ReturnValues':'ALL_NEW'," NAMES "},"
                   "'ExpressionAttributeValues':{':o':{'S':%s},':1':{'S':'1'}}}",
                   c->leased.owner);
}

static void break_lock(struct call *call, struct dynamo *d, const char *name, size_t len,
                       const struct item *item, uint64_t token)
{
    (void)token;
    ddb_write_begin(call, d, KEY_AMAZON, name, len);
    ddb_json_write(&call->body,
                   "'UpdateExpression':'SET #r = :1','ConditionExpression':'#v = :v',"
                   "'ReturnValues':'ALL_NEW','ExpressionAttributeNames':{'#r':'isReleased',"
                   "'#v':'recordVersionNumber'},"
                   "'ExpressionAttributeValues':{':v':{'S':%s},':1':{'S':'1'}}}",
                   item->version);
}

/* ---- reading ---- */

static const char *text_of(const struct json *object, const char *name)
{
    const char *text = ddb_json_text(ddb_attribute(object, name, "S"));
    return text ? text : "";
}

static enum stile_status read_item(struct item *item, struct dynamo *d,
                                   const struct json *attributes, uint64_t seen_ns,
                                   struct stile_error *err)
{
    uint64_t lease, since;
    const char *owner = text_of(attributes, "ownerName");
    const char *holder = text_of(attributes, "stileHolder");
    *item = (struct item){.exists = attributes != NULL};
    item->version = text_of(attributes, "recordVersionNumber");
    ddb_json_u64(&item->token, ddb_attribute(attributes, "stileToken", "N"));
    if (!*owner || strcmp(text_of(attributes, "isReleased"), "1") == 0)
        return STILE_OK;
    if (!ddb_json_u64(&lease, ddb_attribute(attributes, "leaseDuration", "S")) ||
        lease > LEASE_MS_MAX || !*item->version)
        return error_set(err, STILE_CORRUPT, 0,
                         "the item is not of Amazon's lock client: no leaseDuration in ms, or no "
                         "recordVersionNumber");
    ddb_json_u64(&since, ddb_attribute(attributes, "stileSince", "N"));
    item->claims = calloc(1, sizeof *item->claims);
    if (!item->claims)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    item->n = 1;
    item->claims[0] = (struct item_claim){.id = owner,
                                          .mode = STILE_EXCLUSIVE,
                                          .token = item->token,
                                          .token_given = true,
                                          .granted_s = (int64_t)since,
                                          .ttl_ms = lease,
                                          .info = *holder ? holder : owner,
                                          .proclaimed = ""};
    struct item_claim *claim = item->claims;
    claim->ends_ns =
        ddb_observed_since(&d->observed, item->version, 0, seen_ns) + lease * NS_PER_MS + NS_PER_MS;
    claim->over = loop_now(loop_of(d)) >= claim->ends_ns;
    return STILE_OK;
}

static uint64_t token_of(const struct item *item, const struct item_claim *claim)
{
    (void)item, (void)claim;
    return 0;
}

static bool holds(const struct json *attributes, const char *owner)
{
    return strcmp(text_of(attributes, "ownerName"), owner) == 0 &&
           strcmp(text_of(attributes, "isReleased"), "1") != 0;
}

const struct dialect ddb_amazon = {
    .kind = KEY_AMAZON,
    .listed = "#a <> :x",
    .attribute = "ownerName",
    .value = "{\"S\":\"?\"}",
    .read = read_item,
    .holds = holds,
    .ask = ask,
    .take = replace,
    .token = token_of,
    .block = 1,
    .seal = seal,
    .renew = renew,
    .renewed = renewed,
    .release = release,
    .break_ = break_lock,
};
