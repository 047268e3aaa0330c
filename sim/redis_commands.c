/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of a simulated Redis server, and its answers as RESP2. */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/redis_keys.h"
#include "sim/redis_store.h"

/* ---- answers ---- */

static void put_text(struct buffer *out, const char *text)
{
    buffer_put(out, text, strlen(text));
}

void resp_error(struct buffer *out, const char *text)
{
    put_text(out, "-");
    put_text(out, text);
    put_text(out, "\r\n");
}

void resp_status(struct buffer *out, const char *text)
{
    put_text(out, "+");
    put_text(out, text);
    put_text(out, "\r\n");
}

static void put_head(struct buffer *out, char kind, long long number)
{
    char head[32];
    int n = snprintf(head, sizeof head, "%c%lld\r\n", kind, number);
    buffer_put(out, head, (size_t)n);
}

void resp_number(struct buffer *out, long long number)
{
    put_head(out, ':', number);
}

void resp_bulk(struct buffer *out, const void *bytes, size_t n)
{
    put_head(out, '$', (long long)n);
    buffer_put(out, bytes, n);
    put_text(out, "\r\n");
}

void resp_nil(struct buffer *out)
{
    put_text(out, "$-1\r\n");
}

void resp_array(struct buffer *out, size_t n)
{
    put_head(out, '*', (long long)n);
}

static void put_bytes(struct buffer *out, struct bytes bytes)
{
    resp_bulk(out, bytes.at, bytes.n);
}

static void put_score(struct buffer *out, double score)
{
    char text[40];
    int n = snprintf(text, sizeof text, "%.17g", score);
    resp_bulk(out, text, (size_t)n);
}

/* ---- words and numbers ---- */

static bool is_word(struct bytes bytes, const char *word)
{
    return bytes.n == strlen(word) && strncasecmp(bytes.at, word, bytes.n) == 0;
}

static struct bytes text_of(const char *format, long long number)
{
    char text[32];
    int n = snprintf(text, sizeof text, format, number);
    return bytes_copy((struct bytes){text, (size_t)n});
}

static bool read_number(long long *number, struct bytes bytes)
{
    char text[32], *end;
    if (bytes.n == 0 || bytes.n >= sizeof text)
        return false;
    memcpy(text, bytes.at, bytes.n);
    text[bytes.n] = '\0';
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0' && text[0] != ' ';
}

static bool read_score(double *score, struct bytes bytes)
{
    char text[64], *end;
    if (bytes.n == 0 || bytes.n >= sizeof text)
        return false;
    memcpy(text, bytes.at, bytes.n);
    text[bytes.n] = '\0';
    *score = strtod(text, &end);
    return *end == '\0';
}

/* ---- commands: keys ---- */

static const char WRONG_TYPE[] =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
static const char NOT_A_NUMBER[] = "ERR value is not an integer or out of range";

/* False: it has another kind, and the answer is given. */
static bool typed(const struct redis_call *call, struct redis_key **key, enum kind kind)
{
    *key = redis_key_find(call, call->args[1]);
    if (*key == NULL || (*key)->kind == kind)
        return true;
    resp_error(call->out, WRONG_TYPE);
    return false;
}

static void run_del(const struct redis_call *call)
{
    long long n = 0;
    for (size_t i = 1; i < call->n_args; i++)
        n += redis_key_drop(call, call->args[i]);
    resp_number(call->out, n);
}

static void run_exists(const struct redis_call *call)
{
    long long n = 0;
    for (size_t i = 1; i < call->n_args; i++)
        n += redis_key_find(call, call->args[i]) != NULL;
    resp_number(call->out, n);
}

static void run_pttl(const struct redis_call *call)
{
    const struct redis_key *key = redis_key_find(call, call->args[1]);
    if (key == NULL || key->ends_ms == NO_END)
        resp_number(call->out, key == NULL ? -2 : -1);
    else
        resp_number(call->out, key->ends_ms - call->now_us / 1000);
}

static void expire_at(const struct redis_call *call, int64_t ends_ms)
{
    struct redis_key *key = redis_key_find(call, call->args[1]);
    if (key != NULL && ends_ms <= call->now_us / 1000)
        redis_key_remove(call->store, (size_t)(key - call->store->keys));
    else if (key != NULL)
        key->ends_ms = ends_ms;
    resp_number(call->out, key != NULL);
}

static void run_pexpire(const struct redis_call *call)
{
    long long ms;
    if (!read_number(&ms, call->args[2]))
        resp_error(call->out, NOT_A_NUMBER);
    else
        expire_at(call, call->now_us / 1000 + ms);
}

static void run_pexpireat(const struct redis_call *call)
{
    long long ms;
    if (!read_number(&ms, call->args[2]))
        resp_error(call->out, NOT_A_NUMBER);
    else
        expire_at(call, ms);
}

static void run_persist(const struct redis_call *call)
{
    struct redis_key *key = redis_key_find(call, call->args[1]);
    bool had = key != NULL && key->ends_ms != NO_END;
    if (had)
        key->ends_ms = NO_END;
    resp_number(call->out, had);
}

/* ---- commands: strings ---- */

static void run_get(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, STRING))
        return;
    if (key == NULL)
        resp_nil(call->out);
    else
        put_bytes(call->out, key->string);
}

static void run_strlen(const struct redis_call *call)
{
    struct redis_key *key;
    if (typed(call, &key, STRING))
        resp_number(call->out, key != NULL ? (long long)key->string.n : 0);
}

static void set_string(const struct redis_call *call, struct bytes value, int64_t ends_ms)
{
    redis_key_drop(call, call->args[1]);
    struct redis_key *key = redis_key_make(call, call->args[1], STRING);
    key->string = bytes_copy(value);
    key->ends_ms = ends_ms;
}

static void run_psetex(const struct redis_call *call)
{
    long long ms;
    if (!read_number(&ms, call->args[2]) || ms <= 0) {
        resp_error(call->out, "ERR invalid expire time in 'psetex' command");
        return;
    }
    set_string(call, call->args[3], call->now_us / 1000 + ms);
    resp_status(call->out, "OK");
}

static void run_set(const struct redis_call *call)
{
    int64_t ends_ms = NO_END;
    bool absent = false, present = false;
    for (size_t i = 3; i < call->n_args; i++) {
        long long ms;
        if (is_word(call->args[i], "NX")) {
            absent = true;
        } else if (is_word(call->args[i], "XX")) {
            present = true;
        } else if (is_word(call->args[i], "PX") && i + 1 < call->n_args &&
                   read_number(&ms, call->args[i + 1]) && ms > 0) {
            ends_ms = call->now_us / 1000 + ms;
            i++;
        } else {
            resp_error(call->out, "ERR syntax error");
            return;
        }
    }
    bool exists = redis_key_find(call, call->args[1]) != NULL;
    if ((absent && exists) || (present && !exists)) {
        resp_nil(call->out);
        return;
    }
    set_string(call, call->args[2], ends_ms);
    resp_status(call->out, "OK");
}

static void run_incr(const struct redis_call *call)
{
    struct redis_key *key;
    long long number = 0;
    if (!typed(call, &key, STRING))
        return;
    if (key != NULL && !read_number(&number, key->string)) {
        resp_error(call->out, NOT_A_NUMBER);
        return;
    }
    if (key == NULL)
        key = redis_key_make(call, call->args[1], STRING);
    key->string = text_of("%lld", ++number);
    resp_number(call->out, number);
}

/* ---- commands: hashes ---- */

static void run_hget(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, HASH))
        return;
    const struct item *item = redis_item_find(key, call->args[2]);
    if (item == NULL)
        resp_nil(call->out);
    else
        put_bytes(call->out, item->value);
}

static void run_hmget(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, HASH))
        return;
    resp_array(call->out, call->n_args - 2);
    for (size_t i = 2; i < call->n_args; i++) {
        const struct item *item = redis_item_find(key, call->args[i]);
        if (item == NULL)
            resp_nil(call->out);
        else
            put_bytes(call->out, item->value);
    }
}

static bool set_field(struct redis_key *key, struct bytes field, struct bytes value)
{
    struct item *item = redis_item_find(key, field);
    if (item != NULL)
        item->value = bytes_copy(value);
    else
        redis_item_insert(key, key->n_items,
                          (struct item){.name = bytes_copy(field), .value = bytes_copy(value)});
    return item == NULL;
}

static void run_hset(const struct redis_call *call)
{
    struct redis_key *key;
    long long made = 0;
    if (!typed(call, &key, HASH))
        return;
    if (key == NULL)
        key = redis_key_make(call, call->args[1], HASH);
    for (size_t i = 2; i + 1 < call->n_args; i += 2)
        made += set_field(key, call->args[i], call->args[i + 1]);
    resp_number(call->out, made);
}

static void run_hsetnx(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, HASH))
        return;
    if (redis_item_find(key, call->args[2]) != NULL) {
        resp_number(call->out, 0);
        return;
    }
    if (key == NULL)
        key = redis_key_make(call, call->args[1], HASH);
    resp_number(call->out, set_field(key, call->args[2], call->args[3]));
}

static void run_hincrby(const struct redis_call *call)
{
    struct redis_key *key;
    long long number = 0, by;
    if (!typed(call, &key, HASH))
        return;
    const struct item *item = redis_item_find(key, call->args[2]);
    if (!read_number(&by, call->args[3]) || (item != NULL && !read_number(&number, item->value))) {
        resp_error(call->out, "ERR hash value is not an integer");
        return;
    }
    if (key == NULL)
        key = redis_key_make(call, call->args[1], HASH);
    number += by;
    set_field(key, call->args[2], text_of("%lld", number));
    resp_number(call->out, number);
}

/* HDEL and ZREM. */
static void remove_items(const struct redis_call *call, enum kind kind)
{
    struct redis_key *key;
    long long n = 0;
    if (!typed(call, &key, kind))
        return;
    for (size_t i = 2; i < call->n_args && key != NULL; i++) {
        const struct item *item = redis_item_find(key, call->args[i]);
        if (item == NULL)
            continue;
        redis_item_remove(call, key, (size_t)(item - key->items));
        n++;
        key = redis_key_find(call, call->args[1]);
    }
    resp_number(call->out, n);
}

static void run_hdel(const struct redis_call *call)
{
    remove_items(call, HASH);
}

/* ---- commands: sorted sets ---- */

static void run_zrem(const struct redis_call *call)
{
    remove_items(call, ZSET);
}

static void run_zadd(const struct redis_call *call)
{
    struct redis_key *key;
    bool absent = is_word(call->args[2], "NX");
    long long made = 0;
    double score = 0;
    for (size_t i = absent ? 3 : 2; i + 1 < call->n_args; i += 2) {
        if (!read_score(&score, call->args[i])) {
            resp_error(call->out, "ERR value is not a valid float");
            return;
        }
    }
    if (!typed(call, &key, ZSET))
        return;
    for (size_t i = absent ? 3 : 2; i + 1 < call->n_args; i += 2) {
        read_score(&score, call->args[i]);
        if (key == NULL)
            key = redis_key_make(call, call->args[1], ZSET);
        struct item *item = redis_item_find(key, call->args[i + 1]);
        made += item == NULL;
        if (item != NULL && absent)
            continue;
        if (item != NULL) {
            size_t at = (size_t)(item - key->items);
            memmove(item, item + 1, (--key->n_items - at) * sizeof *item);
        }
        redis_item_insert_by_score(key, call->args[i + 1], score);
    }
    resp_number(call->out, made);
}

static void run_zcard(const struct redis_call *call)
{
    struct redis_key *key;
    if (typed(call, &key, ZSET))
        resp_number(call->out, key != NULL ? (long long)key->n_items : 0);
}

static void run_zscore(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, ZSET))
        return;
    const struct item *item = redis_item_find(key, call->args[2]);
    if (item == NULL)
        resp_nil(call->out);
    else
        put_score(call->out, item->score);
}

static void run_zrank(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, ZSET))
        return;
    const struct item *item = redis_item_find(key, call->args[2]);
    if (item == NULL)
        resp_nil(call->out);
    else
        resp_number(call->out, item - key->items);
}

/* From and to as Redis counts them: negative ones from the end. False: not numbers. */
static bool read_range(const struct redis_call *call, size_t n, long long *from, long long *to)
{
    if (!read_number(from, call->args[2]) || !read_number(to, call->args[3])) {
        resp_error(call->out, NOT_A_NUMBER);
        return false;
    }
    if (*from < 0)
        *from = *from + (long long)n < 0 ? 0 : *from + (long long)n;
    if (*to < 0)
        *to += (long long)n;
    if (*to >= (long long)n)
        *to = (long long)n - 1;
    return true;
}

static void put_range(const struct redis_call *call, bool backwards)
{
    struct redis_key *key;
    long long from, to;
    bool scores = call->n_args > 4 && is_word(call->args[4], "WITHSCORES");
    if (!typed(call, &key, ZSET))
        return;
    size_t n = key != NULL ? key->n_items : 0;
    if (!read_range(call, n, &from, &to))
        return;
    size_t count = to < from ? 0 : (size_t)(to - from + 1);
    resp_array(call->out, scores ? 2 * count : count);
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)from + i;
        const struct item *item = &key->items[backwards ? n - 1 - at : at];
        put_bytes(call->out, item->name);
        if (scores)
            put_score(call->out, item->score);
    }
}

static void run_zrange(const struct redis_call *call)
{
    put_range(call, false);
}

static void run_zrevrange(const struct redis_call *call)
{
    put_range(call, true);
}

static double read_bound(struct bytes bytes)
{
    double score = 0;
    if (is_word(bytes, "-inf"))
        return -INFINITY;
    if (is_word(bytes, "+inf"))
        return INFINITY;
    read_score(&score, bytes);
    return score;
}

static void run_zrangebyscore(const struct redis_call *call)
{
    struct redis_key *key;
    double low = read_bound(call->args[2]), high = read_bound(call->args[3]);
    size_t from = 0, to = 0;
    if (!typed(call, &key, ZSET))
        return;
    if (key != NULL) {
        while (from < key->n_items && key->items[from].score < low)
            from++;
        for (to = from; to < key->n_items && key->items[to].score <= high; to++)
            ;
    }
    resp_array(call->out, to - from);
    for (; from < to; from++)
        put_bytes(call->out, key->items[from].name);
}

static void run_zpopmin(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, ZSET))
        return;
    resp_array(call->out, key != NULL ? 2 : 0);
    if (key == NULL)
        return;
    put_bytes(call->out, key->items[0].name);
    put_score(call->out, key->items[0].score);
    redis_item_remove(call, key, 0);
}

/* ---- commands: lists ---- */

static void push(const struct redis_call *call, bool left)
{
    struct redis_key *key;
    if (!typed(call, &key, LIST))
        return;
    if (key == NULL)
        key = redis_key_make(call, call->args[1], LIST);
    for (size_t i = 2; i < call->n_args; i++)
        redis_item_insert(key, left ? 0 : key->n_items,
                          (struct item){.name = bytes_copy(call->args[i])});
    resp_number(call->out, (long long)key->n_items);
}

static void run_lpush(const struct redis_call *call)
{
    push(call, true);
}

static void run_rpush(const struct redis_call *call)
{
    push(call, false);
}

static void run_lpop(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, LIST))
        return;
    if (key == NULL) {
        resp_nil(call->out);
        return;
    }
    put_bytes(call->out, key->items[0].name);
    redis_item_remove(call, key, 0);
}

static void run_lindex(const struct redis_call *call)
{
    struct redis_key *key;
    long long at;
    if (!typed(call, &key, LIST))
        return;
    if (!read_number(&at, call->args[2])) {
        resp_error(call->out, NOT_A_NUMBER);
        return;
    }
    if (key != NULL && at < 0)
        at += (long long)key->n_items;
    if (key == NULL || at < 0 || (size_t)at >= key->n_items)
        resp_nil(call->out);
    else
        put_bytes(call->out, key->items[at].name);
}

static void run_lpos(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, LIST))
        return;
    const struct item *item = redis_item_find(key, call->args[2]);
    if (item == NULL)
        resp_nil(call->out);
    else
        resp_number(call->out, item - key->items);
}

static void run_lrange(const struct redis_call *call)
{
    struct redis_key *key;
    long long from, to;
    if (!typed(call, &key, LIST) || !read_range(call, key != NULL ? key->n_items : 0, &from, &to))
        return;
    size_t count = to < from ? 0 : (size_t)(to - from + 1);
    resp_array(call->out, count);
    for (size_t i = 0; i < count; i++)
        put_bytes(call->out, key->items[(size_t)from + i].name);
}

/* LREM key 1 element. */
static void run_lrem(const struct redis_call *call)
{
    struct redis_key *key;
    if (!typed(call, &key, LIST))
        return;
    const struct item *item = redis_item_find(key, call->args[3]);
    if (item != NULL)
        redis_item_remove(call, key, (size_t)(item - key->items));
    resp_number(call->out, item != NULL);
}

/* ---- commands: the rest ---- */

static void run_time(const struct redis_call *call)
{
    struct bytes seconds = text_of("%lld", call->now_us / 1000000);
    struct bytes micros = text_of("%lld", call->now_us % 1000000);
    resp_array(call->out, 2);
    put_bytes(call->out, seconds);
    put_bytes(call->out, micros);
}

static void run_publish(const struct redis_call *call)
{
    resp_number(call->out, call->publish(call->data, call->args[1], call->args[2]));
}

/* All in one step: SCAN 0 MATCH pattern COUNT n [TYPE string]. */
static bool is_listed(const struct redis_call *call, const struct redis_key *key)
{
    char name[600], pattern[600];
    snprintf(name, sizeof name, "%.*s", (int)key->name.n, key->name.at);
    snprintf(pattern, sizeof pattern, "%.*s", (int)call->args[3].n, call->args[3].at);
    return key->ends_ms > call->now_us / 1000 && fnmatch(pattern, name, 0) == 0 &&
           (call->n_args < 8 || key->kind == STRING);
}

static void run_scan(const struct redis_call *call)
{
    const struct redis_store *store = call->store;
    size_t n = 0;
    for (size_t i = 0; i < store->n; i++)
        n += is_listed(call, &store->keys[i]);
    resp_array(call->out, 2);
    resp_bulk(call->out, "0", 1);
    resp_array(call->out, n);
    for (size_t i = 0; i < store->n; i++) {
        if (is_listed(call, &store->keys[i]))
            put_bytes(call->out, store->keys[i].name);
    }
}

static void run_flushall(const struct redis_call *call)
{
    redis_store_clear(call->store);
    resp_status(call->out, "OK");
}

static const struct command {
    const char *name;
    size_t least; /* arguments, the name included */
    void (*run)(const struct redis_call *call);
    bool writes;
} commands[] = {
    {"DEL", 2, run_del, true},
    {"EXISTS", 2, run_exists, false},
    {"FLUSHALL", 1, run_flushall, true},
    {"GET", 2, run_get, false},
    {"HDEL", 3, run_hdel, true},
    {"HGET", 3, run_hget, false},
    {"HINCRBY", 4, run_hincrby, true},
    {"HMGET", 3, run_hmget, false},
    {"HSET", 4, run_hset, true},
    {"HSETNX", 4, run_hsetnx, true},
    {"INCR", 2, run_incr, true},
    {"LINDEX", 3, run_lindex, false},
    {"LPOP", 2, run_lpop, true},
    {"LPOS", 3, run_lpos, false},
    {"LPUSH", 3, run_lpush, true},
    {"LRANGE", 4, run_lrange, false},
    {"LREM", 4, run_lrem, true},
    {"PERSIST", 2, run_persist, true},
    {"PEXPIRE", 3, run_pexpire, true},
    {"PEXPIREAT", 3, run_pexpireat, true},
    {"PSETEX", 4, run_psetex, true},
    {"PTTL", 2, run_pttl, false},
    {"PUBLISH", 3, run_publish, false},
    {"RPUSH", 3, run_rpush, true},
    {"SCAN", 6, run_scan, false},
    {"SET", 3, run_set, true},
    {"STRLEN", 2, run_strlen, false},
    {"TIME", 1, run_time, false},
    {"ZADD", 4, run_zadd, true},
    {"ZCARD", 2, run_zcard, false},
    {"ZPOPMIN", 2, run_zpopmin, true},
    {"ZRANGE", 4, run_zrange, false},
    {"ZRANGEBYSCORE", 4, run_zrangebyscore, false},
    {"ZRANK", 3, run_zrank, false},
    {"ZREM", 3, run_zrem, true},
    {"ZREVRANGE", 4, run_zrevrange, false},
    {"ZSCORE", 3, run_zscore, false},
};

static void run_command(const struct command *command, const struct redis_call *call)
{
    bool several = command->run == run_del;
    command->run(call);
    for (size_t i = 1; command->writes && i < call->n_args && (i == 1 || several); i++)
        redis_key_note(call->store, call->args[i]);
}

void redis_store_run(const struct redis_call *call)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (!is_word(call->args[0], commands[i].name))
            continue;
        if (call->n_args < commands[i].least)
            resp_error(call->out, "ERR wrong number of arguments");
        else if (call->read_only && commands[i].writes)
            resp_error(call->out, "READONLY You can't write against a read only replica.");
        else
            run_command(&commands[i], call);
        return;
    }
    char text[80];
    snprintf(text, sizeof text, "ERR unknown command '%.*s'", (int)call->args[0].n,
             call->args[0].at);
    resp_error(call->out, text);
}
