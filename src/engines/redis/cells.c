/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: the value is a string, stile:cell:{K}, that any client can GET. Beside it, in the same
 * slot, is the guard of the resource K (guard/), a hash with the fields token and issuer; version
 * counts the puts, and stays when the value is removed. Both expire together if the cell is put
 * with keep. Each request is one script.
 *
 * A list is made of SCAN on every primary, for the names, and then of one script for some of them
 * at a time, in byte order; in a Cluster for one at a time, because each has a slot of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/redis/errors.h"
#include "engines/redis/inspect.h"
#include "engines/redis/redis.h"

#define CELL_KEYS   2
#define CELL_ARGS   6
#define LISTED_ONCE 32

/* ---- one cell, from the reply of a script ---- */

/* Numbers are texts in a hash, and numbers where a command returns them. */
static uint64_t number_in(const redisReply *reply, size_t i)
{
    const char *text = text_at(reply, i);
    return text ? strtoull(text, NULL, 10) : token_at(reply, i);
}

static bool is_number_in(const redisReply *reply, size_t i)
{
    const char *text = text_at(reply, i);
    return text ? *text && strspn(text, "0123456789") == strlen(text)
                : is_number(element_at(reply, i)) && number_at(reply, i) >= 0;
}

/* {outcome, version, token, issuer, ...} */
static bool is_cell(const redisReply *reply)
{
    return is_array(reply, 4) && is_number(element_at(reply, 0)) && is_number_in(reply, 1) &&
           is_number_in(reply, 2) && text_at(reply, 3);
}

static struct stile_cell cell_in(const redisReply *reply, const char *key)
{
    return (struct stile_cell){.key = key,
                               .version = number_in(reply, 1),
                               .token = number_in(reply, 2),
                               .issuer = text_at(reply, 3)};
}

static enum stile_status set_corrupt(struct stile_error *err)
{
    return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
}

/* ---- answers ---- */

static bool is_read(const struct cell_request *request)
{
    return request->verb == CELL_GET || request->verb == CELL_LIST;
}

/* A read without an answer has changed nothing. */
static void end(struct cell_request *request, const struct stile_error *err)
{
    struct stile_error why;
    if (err)
        error_copy(&why, err);
    if (err && why.status == STILE_UNCERTAIN && is_read(request))
        why.status = STILE_UNREACHABLE;
    if (err && why.native == REDIS_ERROR_WRONG_TYPE)
        error_set(
            &why, STILE_REFUSED, why.native,
            "a key of the cell or of its guard holds something else: another program uses it");
    request->engine->events->cell_done(request, err ? &why : NULL);
}

/* ---- wait_replicas ---- */

/* In request->state. */
enum {
    WRITTEN, /* put: the version */
    GONE,    /* 1: the server has forgotten the write */
};

static void end_uncounted(struct cell_request *request, const char *why)
{
    struct stile_error err;
    error_set(&err, STILE_UNCERTAIN, 0,
              "it was written, but it is not known whether enough replicas have it "
              "(wait_replicas): %s",
              why);
    end(request, &err);
}

/* {token, version} of the guard, both of which only grow. */
static void on_proved(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct cell_request *request = data;
    bool there = !err && is_array(reply, 2) && number_in(reply, 0) >= request->token &&
                 number_in(reply, 1) >= request->state[WRITTEN];
    request->state[GONE] = !there && request->verb != CELL_RESET;
}

static void on_counted(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct cell_request *request = data;
    const struct redis *redis = redis_of(request->engine);
    long long reached = is_number(reply) ? reply->integer : 0;
    char few[64];
    snprintf(few, sizeof few, "only %lld of %u do", reached, redis->wait_replicas);
    if (err || request->state[GONE])
        end_uncounted(request, err ? err->message : "another server has replaced it");
    else if (reached < redis->wait_replicas)
        end_uncounted(request, few);
    else
        end(request, NULL);
}

static void count_replicas(struct cell_request *request, uint64_t version)
{
    struct redis *redis = redis_of(request->engine);
    char room[RESOURCE_ROOM];
    struct conn_arg args[] = {CONN_TEXT("HMGET"), {0}, CONN_TEXT("token"), CONN_TEXT("version")};
    struct stile_error err;
    redis_key_of_resource(&args[1], room, GUARD_STEM, request->key, request->key_len);
    request->state[WRITTEN] = request->verb == CELL_PUT ? version : 0;
    if (redis_replicas_count(redis->answering, args, 4, on_proved, on_counted, request, &err))
        end_uncounted(request, err.message);
}

/* ---- outcomes ---- */

static enum stile_status outcome_of(const redisReply *reply)
{
    static const enum stile_status outcomes[] = {STILE_OK, STILE_STALE, STILE_FOREIGN,
                                                 STILE_CONFLICT};
    long long outcome = number_at(reply, 0);
    return outcome >= 0 && outcome <= 3 ? outcomes[outcome] : STILE_CORRUPT;
}

static void take(struct cell_request *request, const redisReply *reply)
{
    struct stile_cell cell = cell_in(reply, request->key);
    const redisReply *value = element_at(reply, 4);
    enum stile_status status = outcome_of(reply);
    struct stile_error refused = {.status = status};
    if (request->verb == CELL_GET)
        cell.time_us = (int64_t)(number_in(reply, 5) * 1000000 + number_in(reply, 6));
    if (request->verb == CELL_GET && text_of(value)) {
        cell.value = value->str;
        cell.size = value->len;
    }
    request->engine->events->cell(request, &cell);
    if (!status && !is_read(request) && redis_of(request->engine)->wait_replicas) {
        count_replicas(request, cell.version);
        return;
    }
    end(request, status ? &refused : NULL);
}

static bool is_sound(const redisReply *reply)
{
    return is_cell(reply) && outcome_of(reply) != STILE_CORRUPT;
}

static void on_answer(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct cell_request *request = data;
    struct stile_error why;
    if (!err && !is_sound(reply)) {
        error_set(&why, STILE_CORRUPT, 0,
                  "the server's answer has an unexpected form, or the cell's guard is damaged: "
                  "HGETALL " GUARD_STEM "{...} shows it");
        err = &why;
    }
    if (err)
        end(request, err);
    else
        take(request, reply);
}

/* ---- requests ---- */

static char *write_keys(struct conn_arg keys[CELL_KEYS], char *room, const char *key, size_t len)
{
    room = redis_key_of_resource(&keys[0], room, GUARD_STEM, key, len);
    return redis_key_of_resource(&keys[1], room, CELL_STEM, key, len);
}

/* first: the script's first argument; NULL: it has none. */
static void send(struct cell_request *request, const struct lua *script,
                 const struct conn_arg *first)
{
    struct redis *redis = redis_of(request->engine);
    struct conn_arg args[CELL_KEYS + CELL_ARGS];
    char room[CELL_KEYS * RESOURCE_ROOM], token[NUMBER_MAX], version[NUMBER_MAX] = "";
    char keep[NUMBER_MAX] = "";
    struct stile_error err;
    size_t n = CELL_KEYS;
    write_keys(args, room, request->key, request->key_len);
    redis_number_write(token, request->token);
    if (!request->any_version)
        redis_number_write(version, request->if_version);
    if (request->keep_ns)
        redis_number_write(keep, request->keep_ns / NS_PER_MS);
    if (first) {
        args[n++] = *first;
        args[n++] = CONN_TEXT(token);
        args[n++] = CONN_TEXT(request->issuer);
        args[n++] = CONN_TEXT(request->strict ? "1" : "");
        args[n++] = CONN_TEXT(version);
        args[n++] = CONN_TEXT(keep);
    }
    if (redis_node_eval(redis_route_to_key(redis, args), script, args, CELL_KEYS, n, on_answer,
                        request, &err))
        end(request, &err);
}

static void list(struct cell_request *request);

static void run(struct engine *engine, struct cell_request *request)
{
    static const char *const words[CELL_VERBS] = {
        [CELL_REMOVE] = "remove", [CELL_RAISE] = "raise", [CELL_RESET] = "reset"};
    struct conn_arg first = {request->value, request->size};
    (void)engine;
    if (request->verb == CELL_RAISE || request->verb == CELL_RESET)
        request->any_version = true;
    if (request->verb == CELL_PACE) {
        redis_pace(request);
    } else if (request->verb == CELL_LIST) {
        list(request);
    } else if (request->verb == CELL_GET) {
        send(request, &redis_script_cell_get, NULL);
    } else if (request->verb == CELL_PUT) {
        send(request, &redis_script_cell_put, &first);
    } else {
        first = CONN_TEXT(words[request->verb]);
        send(request, &redis_script_cell_guard, &first);
    }
}

/* ---- list ---- */

struct cell_listing {
    struct cell_listing *next, **link; /* of redis->listings */
    struct cell_request *request;
    struct node *node; /* the node being scanned */
    struct names names;
    size_t asked, shown; /* of the names */
    const char *damaged; /* one of the names, whose guard is; NULL: none */
    char pattern[PATTERN_ROOM(sizeof CELL_STEM, STILE_NAME_MAX)];
    struct conn_arg keys[LISTED_ONCE * CELL_KEYS];
    char room[LISTED_ONCE * CELL_KEYS * RESOURCE_ROOM];
};

static void drop(struct cell_listing *listing)
{
    *listing->link = listing->next;
    if (listing->next)
        listing->next->link = listing->link;
    redis_names_free(&listing->names);
    free(listing);
}

void redis_cells_close(struct redis *redis)
{
    while (redis->listings)
        drop(redis->listings);
}

static void end_list(struct cell_listing *listing, const struct stile_error *err)
{
    struct cell_request *request = listing->request;
    drop(listing);
    end(request, err);
}

static void end_shown(struct cell_listing *listing)
{
    struct stile_error why;
    if (listing->damaged)
        error_set(&why, STILE_CORRUPT, 0,
                  "the guard of '%.300s' is damaged: TYPE and HGETALL " GUARD_STEM "{...} show it",
                  listing->damaged);
    end_list(listing, listing->damaged ? &why : NULL);
}

static void fail_list(struct cell_listing *listing)
{
    struct stile_error why;
    set_corrupt(&why);
    end_list(listing, &why);
}

static void show_some(struct cell_listing *listing);

/* A cell that was removed since its key was seen has version 0. */
static void show_one(struct cell_listing *listing, const redisReply *reply, const char *name)
{
    struct cell_request *request = listing->request;
    if (!is_cell(reply)) {
        listing->damaged = name;
        return;
    }
    struct stile_cell cell = cell_in(reply, name);
    cell.size = (size_t)token_at(reply, 4);
    if (cell.version)
        request->engine->events->cell(request, &cell);
}

static void on_shown(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct cell_listing *listing = data;
    if (err) {
        end_list(listing, err);
        return;
    }
    if (length_of(reply) != listing->asked - listing->shown) {
        fail_list(listing);
        return;
    }
    for (size_t i = 0; i < length_of(reply); i++)
        show_one(listing, element_at(reply, i), listing->names.names[listing->shown++]);
    show_some(listing);
}

static void show_some(struct cell_listing *listing)
{
    struct redis *redis = redis_of(listing->request->engine);
    size_t most = redis->cluster ? 1 : LISTED_ONCE, n = 0;
    char *at = listing->room;
    struct stile_error err;
    if (listing->asked == listing->names.n) {
        end_shown(listing);
        return;
    }
    for (; n < most * CELL_KEYS && listing->asked < listing->names.n; n += CELL_KEYS) {
        const char *name = listing->names.names[listing->asked++];
        at = write_keys(&listing->keys[n], at, name, strlen(name));
    }
    if (redis_node_eval(redis_route_to_key(redis, listing->keys), &redis_script_cell_list,
                        listing->keys, n, n, on_shown, listing, &err))
        end_list(listing, &err);
}

static bool is_wanted(const struct cell_listing *listing, const char *name, size_t len)
{
    const struct cell_request *request = listing->request;
    return len >= request->key_len && memcmp(name, request->key, request->key_len) == 0 &&
           name_check(name, len, NULL) == STILE_OK;
}

static bool take_keys(struct cell_listing *listing, const redisReply *keys)
{
    for (size_t i = 0; i < length_of(keys); i++) {
        const redisReply *key = element_at(keys, i);
        size_t len;
        const char *name =
            text_of(key) ? redis_resource_of_key(&len, CELL_STEM, key->str, key->len) : NULL;
        if (name && is_wanted(listing, name, len) && !redis_names_add(&listing->names, name, len))
            return false;
    }
    return true;
}

static void scan(struct cell_listing *listing, const char *cursor);

static void on_scanned(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct cell_listing *listing = data;
    struct stile_error why;
    const char *cursor = text_at(reply, 0);
    if (err) {
        end_list(listing, err);
    } else if (!cursor || !is_array(element_at(reply, 1), 0)) {
        fail_list(listing);
    } else if (!take_keys(listing, element_at(reply, 1))) {
        error_set(&why, STILE_NOMEM, 0, "too many cells");
        end_list(listing, &why);
    } else if (strcmp(cursor, "0") != 0) {
        scan(listing, cursor);
    } else {
        listing->node = redis_route_next(redis_of(listing->request->engine), listing->node);
        if (listing->node) {
            scan(listing, "0");
            return;
        }
        redis_names_sort(&listing->names);
        show_some(listing);
    }
}

static void scan(struct cell_listing *listing, const char *cursor)
{
    struct stile_error err;
    struct conn_arg args[] = {CONN_TEXT("SCAN"),           CONN_TEXT(cursor),  CONN_TEXT("MATCH"),
                              CONN_TEXT(listing->pattern), CONN_TEXT("COUNT"), CONN_TEXT("512"),
                              CONN_TEXT("TYPE"),           CONN_TEXT("string")};
    if (redis_node_send(listing->node, args, sizeof args / sizeof *args, on_scanned, listing, &err))
        end_list(listing, &err);
}

/* The name follows the first brace, or the tag in it: stile:cell:{*name*. */
static void write_pattern(struct cell_listing *listing)
{
    char *at = stpcpy(listing->pattern, CELL_STEM "{*");
    redis_names_pattern(at, listing->request->key, "");
}

static void list(struct cell_request *request)
{
    struct redis *redis = redis_of(request->engine);
    struct cell_listing *listing = calloc(1, sizeof *listing);
    struct stile_error err;
    if (!listing) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        end(request, &err);
        return;
    }
    listing->request = request;
    listing->node = redis_route_next(redis, NULL);
    listing->next = redis->listings;
    listing->link = &redis->listings;
    if (listing->next)
        listing->next->link = &listing->next;
    redis->listings = listing;
    write_pattern(listing);
    scan(listing, "0");
}

const struct engine_cells redis_cells = {
    .run = run,
    .paces = true,
};
