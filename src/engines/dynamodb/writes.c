/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/writes.h"

#include <stdio.h>

#include "engines/dynamodb/table.h"

#define REPLACED_MAX 20 /* claims that are over, in one write: expressions are limited to 4 KB */
#define DAY_S        INT64_C(86400)
#define KEPT_S       (30 * DAY_S)   /* an item, after its last claim */
#define SHARED_S     (1100 * DAY_S) /* after the last write, whatever the other claims are */

void ddb_write_begin(struct call *call, const struct dynamo *d, const char *prefix,
                     const char *name, size_t len)
{
    char key[KEY_ROOM];
    ddb_item_key(key, prefix, name, len);
    ddb_json_write(&call->body, "{'TableName':%s,'Key':{%s:{'S':%s}},", d->table, d->key, key);
}

static void begin_claim(struct dynamo_claim *c, struct call *call)
{
    struct claim *claim = leased_base(&c->leased);
    ddb_write_begin(call, c->dynamo, KEY_LOCK, claim->name, claim->name_len);
}

static uint64_t ms_up(uint64_t ns)
{
    return (ns + NS_PER_MS - 1) / NS_PER_MS;
}

/* When the table's TTL may delete the item: long after every claim in it has ended. Only an
 * exclusive claim is alone, and knows when that is; a resumed one does not know yet what it is. */
static int64_t ends_s(struct dynamo_claim *c)
{
    const struct claim *claim = leased_base(&c->leased);
    uint64_t life_ns = claim->ttl_ns + claim->delay_ns + claim->hold_ns;
    bool alone = claim->mode == STILE_EXCLUSIVE && c->state != CLAIM_RESUMING;
    return ddb_date(c->dynamo) + (alone ? KEPT_S + (int64_t)(life_ns / NS_PER_SEC) : SHARED_S);
}

/* token NULL: it is the item's. */
static void put_claim(struct dynamo_claim *c, struct call *call, const uint64_t *token)
{
    static const char *const letters[] = {
        [STILE_EXCLUSIVE] = "x", [STILE_SHARED] = "s", [STILE_SLOTS] = "n"};
    const struct claim *claim = leased_base(&c->leased);
    ddb_json_write(&call->body,
                   "{'M':{'m':{'S':%s},'n':{'N':%u},'r':{'N':'0'},'t':{'N':%u},'d':{'N':%u},"
                   "'h':{'N':%u},'a':{'N':%d},'s':{'N':%d},'i':{'S':%s}",
                   letters[claim->mode], (uint64_t)claim->slots, ms_up(claim->ttl_ns),
                   ms_up(claim->delay_ns), ms_up(claim->hold_ns), ddb_known_date(c->dynamo),
                   ddb_date(c->dynamo), c->dynamo->info);
    if (claim->proclaim)
        ddb_json_write(&call->body, ",'p':{'S':%s}", claim->proclaim);
    if (token)
        ddb_json_write(&call->body, ",'k':{'N':%u}", *token);
    ddb_json_write(&call->body, "}}");
}

void ddb_write_look(struct call *call, struct dynamo *d, const char *prefix, const char *name,
                    size_t len)
{
    ddb_write_begin(call, d, prefix, name, len);
    ddb_json_write(&call->body, "'ConsistentRead':true}");
}

static void write_ask(struct dynamo_claim *c)
{
    struct call *call = &c->call;
    begin_claim(c, call);
    ddb_json_write(&call->body,
                   "'UpdateExpression':'SET #c = :c, #e = :e ADD #t :1, #v :1',"
                   "'ConditionExpression':'(attribute_not_exists(#c) OR size(#c) = :0) AND NOT "
                   "contains(#g, :id)',"
                   "'ExpressionAttributeNames':{'#c':'claims','#t':'token','#v':'v','#g':'gone',"
                   "'#e':'" TTL_ATTRIBUTE "'},"
                   "'ReturnValues':'ALL_NEW','ReturnValuesOnConditionCheckFailure':'ALL_OLD',"
                   "'ExpressionAttributeValues':{':0':{'N':'0'},':1':{'N':'1'},':e':{'N':%d},"
                   "':id':{'S':%s},':c':{'M':{%s:",
                   ends_s(c), c->leased.owner, c->leased.owner);
    put_claim(c, call, NULL);
    ddb_json_write(&call->body, "}}}}");
}

/* ---- in place of others ---- */

/* Calls put for each claim that is over, up to the limit. */
static size_t each_over(struct dynamo_claim *c, const struct item *item,
                        void (*put)(struct json_out *out, const struct item_claim *claim,
                                    const char *number))
{
    char number[24];
    size_t n = 0;
    for (size_t i = 0; i < item->n && n < REPLACED_MAX; i++) {
        if (!item->claims[i].over)
            continue;
        snprintf(number, sizeof number, "%zu", n++);
        if (put)
            put(&c->call.body, &item->claims[i], number);
    }
    return n;
}

static void put_removal(struct json_out *out, const struct item_claim *claim, const char *number)
{
    (void)claim;
    ddb_json_write(out, *number == '0' ? " REMOVE #c.#d%r" : ", #c.#d%r", number);
}

static void put_condition(struct json_out *out, const struct item_claim *claim, const char *number)
{
    (void)claim;
    ddb_json_write(out, " AND #c.#d%r.#r = :r%r", number, number);
}

static void put_name(struct json_out *out, const struct item_claim *claim, const char *number)
{
    ddb_json_write(out, ",'#d%r':%s", number, claim->id);
}

static void put_number(struct json_out *out, const struct item_claim *claim, const char *number)
{
    ddb_json_write(out, ",':r%r':{'N':%u}", number, claim->number);
}

/* Its token is the item's, which is about to grow. At most one: each later one has its own. */
static const struct item_claim *without_token(const struct item *item)
{
    for (size_t i = 0; i < item->n; i++) {
        if (!item->claims[i].token_given && !item->claims[i].over)
            return &item->claims[i];
    }
    return NULL;
}

static void write_take(struct dynamo_claim *c, const struct item *item)
{
    struct json_out *out = &c->call.body;
    const struct item_claim *first = without_token(item);
    uint64_t token = item->token + 1;
    begin_claim(c, &c->call);
    ddb_json_write(out, "'UpdateExpression':'SET #c.#me = :me, #e = :e%r",
                   first ? ", #c.#f.#k = :f" : "");
    size_t n = each_over(c, item, put_removal);
    ddb_json_write(out,
                   " ADD #t :1, #v :1','ConditionExpression':'#v = :v AND NOT contains(#g, :id)");
    each_over(c, item, put_condition);
    ddb_json_write(out,
                   "','ExpressionAttributeNames':{'#c':'claims','#t':'token','#v':'v','#g':'gone',"
                   "'#e':'" TTL_ATTRIBUTE "'");
    ddb_json_write(out, "%r,'#me':%s", n ? ",\"#r\":\"r\"" : "", c->leased.owner);
    each_over(c, item, put_name);
    if (first)
        ddb_json_write(out, ",'#k':'k','#f':%s", first->id);
    ddb_json_write(out,
                   "},'ReturnValues':'ALL_NEW','ReturnValuesOnConditionCheckFailure':'ALL_OLD',"
                   "'ExpressionAttributeValues':{':1':{'N':'1'},':v':{'N':%u},':e':{'N':%d},"
                   "':id':{'S':%s}",
                   item->v, ends_s(c), c->leased.owner);
    each_over(c, item, put_number);
    if (first)
        ddb_json_write(out, ",':f':{'N':%u}", item->token);
    ddb_json_write(out, ",':me':");
    put_claim(c, &c->call, &token);
    ddb_json_write(out, "}}");
}

/* ---- tokens ---- */

/* The write names the claim that it is for, so that its answer can be compared. A counter that was
 * deleted starts again where it cannot have been yet. */
void ddb_write_count(struct dynamo_claim *c, uint64_t n)
{
    ddb_write_begin(&c->call, c->dynamo, KEY_TOKENS, "", 0);
    ddb_json_write(&c->call.body,
                   "'UpdateExpression':'SET #t = if_not_exists(#t, :s) + :n, #w = :w',"
                   "'ReturnValues':'ALL_NEW','ExpressionAttributeNames':{'#t':'token','#w':'for'},"
                   "'ExpressionAttributeValues':{':s':{'N':%u},':n':{'N':%u},':w':{'S':%s}}}",
                   (uint64_t)ddb_date(c->dynamo) * TOKENS_PER_S, n, c->leased.owner);
}

/* A new item counts from 1, and a block that is used up is counted over: neither is a token. */
static uint64_t token_of(const struct item *item, const struct item_claim *claim)
{
    bool counted = item->until >= TOKEN_BLOCK && claim->token <= item->until &&
                   claim->token > item->until - TOKEN_BLOCK;
    return counted ? claim->token : 0;
}

/* It renews the claim, too. Blocks are stored in the order in which they were counted: one that is
 * overtaken by another claim's is given up. */
static void write_seal(struct dynamo_claim *c, uint64_t token)
{
    begin_claim(c, &c->call);
    ddb_json_write(&c->call.body,
                   "'UpdateExpression':'SET #t = :t, #u = :u, #c.#me.#k = :t, #c.#me.#a = :a, "
                   "#c.#me.#r = #c.#me.#r + :1 ADD #v :1','ConditionExpression':'"
                   "attribute_exists(#c.#me) AND (attribute_not_exists(#u) OR #u < :t)',"
                   "'ReturnValues':'ALL_NEW','ExpressionAttributeNames':{'#c':'claims','#me':%s,"
                   "'#t':'token','#u':'until','#k':'k','#r':'r','#a':'a','#v':'v'},"
                   "'ExpressionAttributeValues':{':1':{'N':'1'},':t':{'N':%u},':u':{'N':%u},"
                   "':a':{'N':%d}}}",
                   c->leased.owner, token, token + TOKEN_BLOCK - 1, ddb_known_date(c->dynamo));
}

/* ---- a claim of ours ---- */

static void write_renew(struct dynamo_claim *c, struct call *call, uint64_t hold_ms)
{
    const struct claim *claim = leased_base(&c->leased);
    bool ttl = c->state == CLAIM_RESUMING && claim->ttl_given;
    begin_claim(c, call);
    ddb_json_write(
        &call->body,
        "'UpdateExpression':'SET #c.#me.#r = #c.#me.#r + :1, #c.#me.#a = :a, #e = :e%r%r',"
        "'ConditionExpression':'attribute_exists(#c.#me) AND "
        "attribute_not_exists(#c.#me.#g)','ReturnValues':'ALL_NEW',"
        "'ExpressionAttributeNames':{'#c':'claims','#me':%s,'#r':'r','#a':'a','#g':'g',"
        "'#e':'" TTL_ATTRIBUTE "'%r%r},"
        "'ExpressionAttributeValues':{':1':{'N':'1'},':a':{'N':%d},':e':{'N':%d}",
        hold_ms == UINT64_MAX ? "" : ", #c.#me.#h = :h", ttl ? ", #c.#me.#t = :t" : "",
        c->leased.owner, hold_ms == UINT64_MAX ? "" : ",\"#h\":\"h\"", ttl ? ",\"#t\":\"t\"" : "",
        ddb_known_date(c->dynamo), ends_s(c));
    if (hold_ms != UINT64_MAX)
        ddb_json_write(&call->body, ",':h':{'N':%u}", hold_ms);
    if (ttl)
        ddb_json_write(&call->body, ",':t':{'N':%u}", ms_up(claim->ttl_ns));
    ddb_json_write(&call->body, "}}");
}

static bool renewed(struct dynamo_claim *c, const struct json *attributes)
{
    uint64_t number;
    const struct json *claims = ddb_attribute(attributes, "claims", "M");
    const struct json *claim = ddb_attribute(claims, c->leased.owner, "M");
    if (!ddb_json_u64(&number, ddb_attribute(claim, "r", "N")) || number <= c->number)
        return false;
    c->number = number;
    return true;
}

static void write_ghost(struct dynamo_claim *c, uint64_t ghost_ms)
{
    ddb_json_write(
        &c->call.body,
        "'UpdateExpression':'SET #c.#me.#g = :g, #c.#me.#h = :h, #c.#me.#r = :r, #c.#me.#a "
        "= :a ADD #v :1','ConditionExpression':'attribute_exists(#c.#me)',"
        "'ReturnValues':'ALL_NEW','ExpressionAttributeNames':{'#c':'claims','#v':'v',"
        "'#me':%s,'#g':'g','#h':'h','#r':'r','#a':'a'},"
        "'ExpressionAttributeValues':{':1':{'N':'1'},':g':{'BOOL':true},':h':{'N':%u},"
        "':r':{'N':%u},':a':{'N':%d}}}",
        c->leased.owner, ghost_ms, c->ghost_number, ddb_known_date(c->dynamo));
}

static void write_removal(struct dynamo_claim *c)
{
    const char *add = c->doubt ? ", #g :g" : "", *remove = c->sweep && !c->doubt ? ", #g" : "";
    begin_claim(c, &c->call);
    ddb_json_write(&c->call.body,
                   "'UpdateExpression':'REMOVE #c.#me%r ADD #v :1%r',"
                   "'ConditionExpression':'attribute_exists(#c.#me)','ReturnValues':'ALL_NEW',"
                   "'ExpressionAttributeNames':{'#c':'claims','#v':'v','#me':%s%r},"
                   "'ExpressionAttributeValues':{':1':{'N':'1'}",
                   remove, add, c->leased.owner, *add || *remove ? ",\"#g\":\"gone\"" : "");
    if (c->doubt)
        ddb_json_write(&c->call.body, ",':g':{'SS':[%s]}", c->leased.owner);
    ddb_json_write(&c->call.body, "}}");
}

static void write_release(struct dynamo_claim *c, uint64_t ghost_ms)
{
    if (!ghost_ms) {
        write_removal(c);
        return;
    }
    begin_claim(c, &c->call);
    write_ghost(c, ghost_ms);
}

static void write_mark(struct dynamo_claim *c)
{
    begin_claim(c, &c->call);
    ddb_json_write(&c->call.body,
                   "'UpdateExpression':'SET #e = if_not_exists(#e, :e) ADD #g :g',"
                   "'ConditionExpression':'attribute_not_exists(#c.#me)','ReturnValues':'ALL_NEW',"
                   "'ExpressionAttributeNames':{'#c':'claims','#me':%s,'#g':'gone',"
                   "'#e':'" TTL_ATTRIBUTE "'},"
                   "'ExpressionAttributeValues':{':g':{'SS':[%s]},':e':{'N':%d}}}",
                   c->leased.owner, c->leased.owner, ends_s(c));
}

/* ---- break ---- */

static bool is_meant(const struct item_claim *claim, uint64_t token)
{
    return token == 0 || claim->token == token;
}

/* All of them, or the one with the token. The claims are the ones that were read: their version is
 * compared. */
static void write_break(struct call *call, struct dynamo *d, const char *name, size_t len,
                        const struct item *item, uint64_t token)
{
    const char *id = "";
    for (size_t i = 0; token && i < item->n; i++)
        id = is_meant(&item->claims[i], token) ? item->claims[i].id : id;
    ddb_write_begin(call, d, KEY_LOCK, name, len);
    ddb_json_write(&call->body,
                   "'UpdateExpression':'REMOVE %r ADD #v :1','ConditionExpression':'#v = :v',"
                   "'ReturnValues':'ALL_NEW','ExpressionAttributeNames':{'#c':'claims','#v':'v'",
                   token ? "#c.#i" : "#c");
    if (token)
        ddb_json_write(&call->body, ",'#i':%s", id);
    ddb_json_write(&call->body, "},'ExpressionAttributeValues':{':1':{'N':'1'},':v':{'N':%u}}}",
                   item->v);
}

static bool holds(const struct json *attributes, const char *owner)
{
    const struct json *claim = ddb_json_get(ddb_attribute(attributes, "claims", "M"), owner);
    const struct json *ghost = ddb_attribute(ddb_json_get(claim, "M"), "g", "BOOL");
    return claim && !(ghost && ghost->truth);
}

const struct dialect ddb_own = {
    .kind = KEY_LOCK,
    .listed = "size(#a) > :x",
    .attribute = "claims",
    .value = "{\"N\":\"0\"}",
    .read = ddb_item_read,
    .holds = holds,
    .ask = write_ask,
    .take = write_take,
    .token = token_of,
    .block = TOKEN_BLOCK,
    .seal = write_seal,
    .renew = write_renew,
    .renewed = renewed,
    .release = write_release,
    .mark = write_mark,
    .break_ = write_break,
};
