/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* list, show, break and record. */
#include <stdlib.h>
#include <string.h>

#include "engines/redis/inspect.h"
#include "engines/redis/redis.h"

#define NAMES_MAX 1000000

/* ---- one name ---- */

enum stile_status redis_view_init(struct view *view, const char *name, size_t most,
                                  struct stile_error *err)
{
    *view = (struct view){.info.name = name};
    view->claims = calloc(most, sizeof *view->claims);
    view->texts = calloc(most, sizeof *view->texts);
    if (!view->claims || !view->texts)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    return STILE_OK;
}

void redis_view_free(struct view *view)
{
    for (size_t i = 0; i < view->n_texts; i++)
        free(view->texts[i]);
    free(view->texts);
    free(view->claims);
}

char *redis_view_keep(struct view *view, const char *text)
{
    static char empty[1];
    char *copy = strdup(text ? text : "");
    if (!copy)
        return empty;
    view->texts[view->n_texts++] = copy;
    return copy;
}

/* 0 for NULL, or for no number. */
static uint64_t number_of(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

/* 0 if later_ms is not later. */
static int64_t ms_between(uint64_t earlier_ms, uint64_t later_ms)
{
    uint64_t ms = later_ms > earlier_ms ? later_ms - earlier_ms : 0;
    return ms < INT64_MAX ? (int64_t)ms : INT64_MAX;
}

uint64_t redis_view_take_number(char **text)
{
    char *end;
    uint64_t value = strtoull(*text, &end, 10);
    *text = *end == ' ' ? end + 1 : end;
    return value;
}

const char *redis_view_take_word(char **text)
{
    char *word = *text;
    size_t len = strcspn(word, " ");
    *text = word[len] ? word + len + 1 : word + len;
    word[len] = '\0';
    return word;
}

void redis_view_take_client(struct stile_claim_info *claim, char *text)
{
    claim->pid = (int64_t)redis_view_take_number(&text);
    claim->host = redis_view_take_word(&text);
    claim->command = text;
}

/* ---- names ---- */

bool redis_names_add(struct names *names, const char *name, size_t len)
{
    if (names->n == names->cap) {
        size_t cap = names->cap ? 2 * names->cap : 64;
        char **grown = cap > NAMES_MAX ? NULL : realloc(names->names, cap * sizeof *grown);
        if (!grown)
            return false;
        names->names = grown;
        names->cap = cap;
    }
    char *copy = strndup(name, len);
    if (copy)
        names->names[names->n++] = copy;
    return copy != NULL;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* SCAN may return a key twice. */
void redis_names_sort(struct names *names)
{
    size_t n = 0;
    if (names->n > 1)
        qsort(names->names, names->n, sizeof *names->names, by_bytes);
    for (size_t i = 0; i < names->n; i++) {
        if (n > 0 && strcmp(names->names[n - 1], names->names[i]) == 0)
            free(names->names[i]);
        else
            names->names[n++] = names->names[i];
    }
    names->n = n;
}

void redis_names_free(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->names[i]);
    free(names->names);
}

void redis_names_pattern(char *pattern, const char *prefix, const char *name)
{
    const char *const texts[] = {prefix, name}; /* may be one and the same, if both are empty */
    char *at = pattern;
    for (size_t i = 0; i < 2; i++) {
        for (const char *c = texts[i]; *c; c++) {
            if (strchr("*?[]\\", *c))
                *at++ = '\\';
            *at++ = *c;
        }
    }
    *at++ = '*';
    *at = '\0';
}

#define SHOWS_AT_ONCE 64

/* ---- one name, from the reply of show.lua ---- */

static void add_exclusive(struct view *view, const char *owner, const char *by, long long pttl,
                          uint64_t token, uint64_t now_ms)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    char *text = redis_view_keep(view, by);
    uint64_t since = redis_view_take_number(&text);
    *claim = (struct stile_claim_info){.held = true,
                                       .ghost = strcmp(owner, "~h") == 0,
                                       .token = token,
                                       .age_ms = AGE_UNKNOWN,
                                       .expires_ms = pttl < 0 ? STILE_NO_DEADLINE : pttl,
                                       .owner = owner,
                                       .host = "",
                                       .command = ""};
    if (!since) { /* another client's, which has no record and no token */
        claim->token = claim->ghost ? token : 0;
        return;
    }
    claim->age_ms = ms_between(since, now_ms);
    redis_view_take_client(claim, text);
}

static void add_member(struct view *view, const redisReply *member, enum stile_mode mode,
                       uint64_t now_ms)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    const char *owner = text_at(member, 0), *ends = text_at(member, 1);
    char *text = redis_view_keep(view, text_at(member, 2));
    uint64_t token = redis_view_take_number(&text), since = redis_view_take_number(&text);
    *claim = (struct stile_claim_info){.held = true,
                                       .ghost = owner[0] == '~',
                                       .mode = mode,
                                       .token = token,
                                       .age_ms = since ? ms_between(since, now_ms) : AGE_UNKNOWN,
                                       .expires_ms = ms_between(now_ms, number_of(ends)),
                                       .owner = owner};
    redis_view_take_client(claim, text);
}

static void add_waiter(struct view *view, const char *entry, uint64_t now_ms)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    char *text = redis_view_keep(view, entry);
    const char *owner = redis_view_take_word(&text);
    char mode = *redis_view_take_word(&text);
    redis_view_take_number(&text); /* its slots */
    uint64_t since = redis_view_take_number(&text);
    *claim = (struct stile_claim_info){.age_ms = ms_between(since, now_ms),
                                       .mode = mode == 's'   ? STILE_SHARED
                                               : mode == 'n' ? STILE_SLOTS
                                                             : STILE_EXCLUSIVE,
                                       .expires_ms = STILE_NO_DEADLINE,
                                       .owner = owner};
    redis_view_take_client(claim, text);
}

static void fill(struct view *view, const redisReply *reply)
{
    const char *holder = text_at(reply, 0);
    const redisReply *members = element_at(reply, 5), *queue = element_at(reply, 6);
    uint64_t now_ms = number_of(text_at(reply, 4));
    view->info.token = number_of(text_at(reply, 2));
    if (length_of(members) > 0) {
        enum stile_mode mode = strcmp(holder, "~S") == 0 ? STILE_SHARED : STILE_SLOTS;
        for (size_t i = 0; i < length_of(members); i++)
            add_member(view, element_at(members, i), mode, now_ms);
    } else if (holder) {
        add_exclusive(view, holder, text_at(reply, 3), number_at(reply, 1), view->info.token,
                      now_ms);
    }
    view->info.holders = view->n;
    for (size_t i = 0; i < length_of(queue); i++)
        add_waiter(view, text_at(queue, i), now_ms);
    view->info.waiters = view->n - view->info.holders;
    view->info.claims = view->claims;
}

static bool are_members(const redisReply *members)
{
    bool sound = is_array(members, 0);
    for (size_t i = 0; sound && i < length_of(members); i++) {
        const redisReply *member = element_at(members, i);
        sound = text_at(member, 0) && text_at(member, 1) && text_at(member, 2);
    }
    return sound;
}

static bool are_texts(const redisReply *texts)
{
    bool sound = is_array(texts, 0);
    for (size_t i = 0; sound && i < length_of(texts); i++)
        sound = text_at(texts, i);
    return sound;
}

/* {holder, pttl, token, by, now, {{owner, end, record}, ...}, {entry, ...}, last} */
static bool is_view(const redisReply *reply)
{
    const redisReply *members = element_at(reply, 5);
    bool anonymous = length_of(members) > 0 && !text_at(reply, 0);
    return is_array(reply, 7) && is_number(element_at(reply, 1)) && are_members(members) &&
           !anonymous && are_texts(element_at(reply, 6));
}

static enum stile_status view_make(struct view *view, const redisReply *reply, const char *name,
                                   struct stile_error *err)
{
    if (!is_view(reply))
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    size_t most = length_of(element_at(reply, 5)) + length_of(element_at(reply, 6)) + 1;
    enum stile_status status = redis_view_init(view, name, most, err);
    if (!status)
        fill(view, reply);
    return status;
}

/* ---- show and break ---- */

/* n_keys: ALL_KEYS, or SCRIPT_KEYS without the name's record. */
static enum stile_status send_show(struct redis *redis, size_t n_keys, const char *name, size_t len,
                                   conn_fn *fn, void *data, struct stile_error *err)
{
    struct call call;
    char stem[SHARED_ROOM];
    redis_call_begin(&call, n_keys, redis, name, len);
    redis_key_of_clients(stem, redis, redis_route_slot(redis, name, len));
    redis_call_add(&call, stem);
    return redis_call_send(&call, redis, &redis_script_show, fn, data, err);
}

static void on_shown(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct query *query = data;
    struct stile_error why;
    struct view view = {0};
    const redisReply *record = element_at(reply, 7);
    if (!err && view_make(&view, reply, query->name, &why))
        err = &why;
    if (!err && text_of(record))
        query->engine->events->record(query, record->str, record->len);
    if (!err)
        query->engine->events->info(query, &view.info);
    redis_view_free(&view);
    query->engine->events->done(query, err);
}

void redis_inspect_show(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (send_show(redis_of(engine), ALL_KEYS, query->name, query->name_len, on_shown, query, &err))
        engine->events->done(query, &err);
}

static void on_broken(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct query *query = data;
    struct stile_error why;
    long long hit = is_number(reply) ? reply->integer : 0;
    if (!err && hit != 1) {
        error_set(&why, STILE_CONFLICT, 0, "%s",
                  hit == 0       ? "it isn't held"
                  : query->token ? "the grant with that token is over"
                                 : "that grant is over");
        err = &why;
    }
    query->engine->events->done(query, err);
}

static void break_grants(struct query *query, const char *first, const char *last)
{
    struct redis *redis = redis_of(query->engine);
    struct stile_error err;
    struct call call;
    redis_call_begin(&call, LOSS_KEYS, redis, query->name, query->name_len);
    redis_call_add(&call, first);
    redis_call_add(&call, last);
    redis_call_add(&call, redis->info);
    if (redis_call_send(&call, redis, &redis_script_break, on_broken, query, &err))
        query->engine->events->done(query, &err);
}

static void on_latest(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct query *query = data;
    struct stile_error why;
    if (!err && (!text_of(reply) || reply->len >= NUMBER_MAX)) {
        error_set(&why, STILE_CORRUPT, 0, "the counter of tokens is damaged");
        err = &why;
    }
    if (err)
        query->engine->events->done(query, err);
    else
        break_grants(query, "0", reply->str);
}

/* Without a token a break is meant for the grants there are now. One that a cut connection delivers
 * seconds later must not end another: the latest token is its limit. */
void redis_inspect_break(struct engine *engine, struct query *query)
{
    struct redis *redis = redis_of(engine);
    struct stile_error err;
    struct call call;
    char token[NUMBER_MAX];
    if (query->token) {
        redis_number_write(token, query->token);
        break_grants(query, token, token);
        return;
    }
    redis_call_begin(&call, SCRIPT_KEYS, redis, query->name, query->name_len);
    call.args[0] = call.args[COUNTER_KEY];
    call.n = call.n_keys = 1;
    if (redis_call_send(&call, redis, &redis_script_latest, on_latest, query, &err))
        engine->events->done(query, &err);
}

/* ---- the record of the last holder ---- */

/* A later holder's record that is there already is no error. */
static void on_recorded(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct query *query = data;
    (void)reply;
    query->engine->events->done(query, err);
}

void redis_inspect_record(struct engine *engine, struct query *query)
{
    struct redis *redis = redis_of(engine);
    struct stile_error err;
    struct call call;
    char token[NUMBER_MAX];
    redis_number_write(token, query->token);
    redis_call_begin(&call, ALL_KEYS, redis, query->name, query->name_len);
    call.args[0] = call.args[ALL_KEYS - 1]; /* it needs no other */
    call.n = call.n_keys = 1;
    redis_call_add(&call, token);
    redis_call_add(&call, query->record);
    if (redis_call_send(&call, redis, &redis_script_history, on_recorded, query, &err))
        engine->events->done(query, &err);
}

/* ---- list: SCAN for the names, then show of each, some at a time ---- */

struct listing {
    struct query *query;
    struct node *node; /* the node being scanned */
    struct names names;
    size_t asked, answered;
    char pattern[PATTERN_ROOM(PREFIX_MAX, STILE_NAME_MAX)];
    struct stile_error error;
};

static void listing_end(struct listing *listing, const struct stile_error *err)
{
    struct query *query = listing->query;
    redis_names_free(&listing->names);
    query->state = NULL;
    query->engine->events->done(query, err);
    free(listing);
}

static void show_some(struct listing *listing);

static void on_listed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct listing *listing = data;
    struct stile_error why;
    struct view view = {0};
    const char *name = listing->names.names[listing->answered++];
    if (!err && view_make(&view, reply, name, &why))
        err = &why;
    if (err && !listing->error.status)
        error_copy(&listing->error, err);
    if (!err && view.n > 0)
        listing->query->engine->events->info(listing->query, &view.info);
    redis_view_free(&view);
    if (listing->answered == listing->asked)
        show_some(listing);
}

static void show_some(struct listing *listing)
{
    struct redis *redis = redis_of(listing->query->engine);
    struct stile_error err;
    /* Replies of one connection come in the order of requests; those of several don't. */
    size_t until = listing->asked + (redis->cluster || redis->sentinel ? 1 : SHOWS_AT_ONCE);
    if (listing->error.status || listing->asked == listing->names.n) {
        listing_end(listing, listing->error.status ? &listing->error : NULL);
        return;
    }
    for (; listing->asked < until && listing->asked < listing->names.n; listing->asked++) {
        const char *name = listing->names.names[listing->asked];
        if (send_show(redis, SCRIPT_KEYS, name, strlen(name), on_listed, listing, &err)) {
            error_copy(&listing->error, &err);
            break;
        }
    }
    if (listing->answered == listing->asked)
        listing_end(listing, &listing->error);
}

static void scan(struct listing *listing, const char *cursor);

static bool take_keys(struct listing *listing, const redisReply *keys)
{
    const struct redis *redis = redis_of(listing->query->engine);
    size_t prefix_len = strlen(redis->prefix);
    for (size_t i = 0; i < length_of(keys); i++) {
        const redisReply *key = element_at(keys, i);
        if (!text_of(key) || key->len <= prefix_len || strlen(key->str) != key->len ||
            key->len - prefix_len > STILE_NAME_MAX ||
            memcmp(key->str, redis->prefix, prefix_len) != 0 ||
            redis_key_is_derived(key->str, key->len))
            continue;
        if (!redis_names_add(&listing->names, key->str + prefix_len, key->len - prefix_len))
            return false;
    }
    return true;
}

static void on_scanned(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct listing *listing = data;
    struct stile_error why;
    if (err) {
        listing_end(listing, err);
        return;
    }
    bool sound = text_at(reply, 0) && is_array(element_at(reply, 1), 0);
    if (!sound || !take_keys(listing, element_at(reply, 1))) {
        error_set(&why, sound ? STILE_NOMEM : STILE_CORRUPT, 0,
                  sound ? "too many names" : "the server's answer has an unexpected form");
        listing_end(listing, &why);
        return;
    }
    if (strcmp(text_at(reply, 0), "0") != 0) {
        scan(listing, text_at(reply, 0));
        return;
    }
    listing->node = redis_route_next(redis_of(listing->query->engine), listing->node);
    if (listing->node) {
        scan(listing, "0");
        return;
    }
    redis_names_sort(&listing->names);
    show_some(listing);
}

static void scan(struct listing *listing, const char *cursor)
{
    struct stile_error err;
    struct conn_arg args[] = {CONN_TEXT("SCAN"),           CONN_TEXT(cursor),  CONN_TEXT("MATCH"),
                              CONN_TEXT(listing->pattern), CONN_TEXT("COUNT"), CONN_TEXT("512"),
                              CONN_TEXT("TYPE"),           CONN_TEXT("string")};
    if (redis_node_send(listing->node, args, sizeof args / sizeof *args, on_scanned, listing, &err))
        listing_end(listing, &err);
}

void redis_inspect_list(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    listing->query = query;
    listing->node = redis_route_next(redis_of(engine), NULL);
    query->state = listing;
    redis_names_pattern(listing->pattern, redis_of(engine)->prefix, query->name);
    scan(listing, "0");
}

/* ---- cancelling ---- */

void redis_inspect_cancel(struct engine *engine, struct query *query)
{
    struct listing *listing = query->state;
    redis_route_forget(redis_of(engine), listing ? (void *)listing : query);
    if (!listing)
        return;
    redis_names_free(&listing->names);
    free(listing);
    query->state = NULL;
}
