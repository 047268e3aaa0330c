/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every script of redis:// and redlock:// compiles on a real redis-server, under the name that the
 * build has given it; so do those of the guard, which name keys as we do. And which records of a
 * name's last holder replace which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "engines/redis/guard/texts.h"
#include "engines/redis/keys.h"
#include "engines/redis/scripts.h"
#include "engines/redlock/scripts.h"
#include "servers/redis_server.h"

static struct redis_server server;

static int set_up(void **state)
{
    redis_server_start(&server, NULL);
    *state = redisConnect("127.0.0.1", server.port);
    return 0;
}

static int tear_down(void **state)
{
    redisFree(*state);
    redis_server_stop(&server);
    return 0;
}

static void load(redisContext *context, const struct lua *script)
{
    redisReply *reply = redisCommand(context, "SCRIPT LOAD %b", script->source, script->len);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", reply->str, script->source);
    assert_string_equal(reply->str, script->sha1);
    assert_int_equal(strlen(script->source), script->len);
    freeReplyObject(reply);
}

static void load_all(redisContext *context, const struct lua *const *scripts)
{
    assert_non_null(scripts[0]);
    for (; *scripts; scripts++)
        load(context, *scripts);
}

static void scripts_of_redis_load(void **state)
{
    load_all(*state, redis_scripts);
}

static void scripts_of_redlock_load(void **state)
{
    load_all(*state, redlock_scripts);
}

/* ---- the guard ---- */

static const struct redis_guard_text *guard_script(const char *name)
{
    const struct redis_guard_text *script = redis_guard_scripts;
    while (script->name && strcmp(script->name, name) != 0)
        script++;
    assert_non_null(script->name);
    return script;
}

static void the_guard_loads(void **state)
{
    redisContext *context = *state;
    for (const struct redis_guard_text *one = redis_guard_scripts; one->name; one++) {
        struct lua lua = {.source = one->source, .len = one->len};
        strcpy(lua.sha1, one->sha1);
        load(context, &lua);
    }
    redisReply *reply = redisCommand(context, "FUNCTION LOAD REPLACE %b",
                                     redis_guard_library.source, redis_guard_library.len);
    assert_non_null(reply);
    assert_string_equal(reply->str, redis_guard_library.name);
    freeReplyObject(reply);
}

static void check_key(redisContext *context, const char *name)
{
    const struct redis_guard_text *script = guard_script("key");
    char room[RESOURCE_ROOM];
    struct conn_arg key;
    size_t len;
    redisReply *reply = redisCommand(context, "EVAL %b 1 %s", script->source, script->len, name);
    assert_non_null(reply);
    redis_key_of_resource(&key, room, GUARD_STEM, name, strlen(name));
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_int_equal(reply->len, key.len);
    assert_memory_equal(reply->str, key.bytes, key.len);
    const char *back = redis_resource_of_key(&len, GUARD_STEM, key.bytes, key.len);
    assert_non_null(back);
    assert_int_equal(len, strlen(name));
    assert_memory_equal(back, name, len);
    freeReplyObject(reply);
}

static void scripts_and_engine_name_the_same_keys(void **state)
{
    static const char *const parts[] = {"{", "}", "a", "{}", "stile:guard:{a}", "\xff "};
    char name[128], long_name[STILE_NAME_MAX + 1] = {0};
    for (size_t i = 0; i < 6 * 6 * 6; i++) {
        snprintf(name, sizeof name, "%s%s%s", parts[i % 6], parts[i / 6 % 6], parts[i / 36]);
        check_key(*state, name);
    }
    memset(long_name, 'n', STILE_NAME_MAX);
    check_key(*state, long_name);
    long_name[0] = '}';
    check_key(*state, long_name);
    memcpy(long_name, "{n", 2);
    long_name[STILE_NAME_MAX - 1] = '}';
    check_key(*state, long_name);
}

static void other_keys_name_nothing(void **state)
{
    static const char *const keys[] = {"",
                                       "stile:guard:",
                                       "stile:guard:{",
                                       "stile:guard:{}",
                                       "stile:guard:{a",
                                       "stile:guard:a}",
                                       "stile:guard:{b}a",
                                       "stile:guard:{a}a",
                                       "stile:guard:{b}a{c}",
                                       "stile:guard:{abc}a}b",
                                       "stile:cell:{a}"};
    size_t len;
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_null(redis_resource_of_key(&len, GUARD_STEM, keys[i], strlen(keys[i])));
}

/* ---- records of the last holder ---- */

static long long record(redisContext *context, const struct lua *script, const char *token,
                        const char *text)
{
    redisReply *reply =
        redisCommand(context, "EVAL %b 1 last %s %s", script->source, script->len, token, text);
    assert_non_null(reply);
    if (reply->type != REDIS_REPLY_INTEGER)
        fail_msg("%s: %s", token, reply->str);
    long long stored = reply->integer;
    freeReplyObject(reply);
    return stored;
}

static void check_stored(redisContext *context, const char *expected)
{
    redisReply *reply = redisCommand(context, "GET last");
    assert_non_null(reply);
    assert_string_equal(reply->str, expected);
    freeReplyObject(reply);
}

static void make(redisContext *context, const char *command, const char *value)
{
    freeReplyObject(redisCommand(context, "DEL last"));
    redisReply *reply = redisCommand(context, command, value);
    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

static void check_expiry(redisContext *context)
{
    const long long month_ms = 30LL * 24 * 3600 * 1000;
    redisReply *reply = redisCommand(context, "PTTL last");
    assert_non_null(reply);
    assert_true(reply->integer > 0 && reply->integer <= month_ms);
    freeReplyObject(reply);
}

static void check_order(redisContext *context, const struct lua *script)
{
    /* Ascending; neighbours at 2^53 and 2^64 are the same number in Lua. */
    static const char *const tokens[] = {"1",
                                         "9",
                                         "10",
                                         "17948330840555",
                                         "9007199254740992",
                                         "9007199254740993",
                                         "9999999999999999",
                                         "10000000000000000",
                                         "18446744073709551614",
                                         "18446744073709551615"};
    make(context, "PING", NULL);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        char stored[64];
        snprintf(stored, sizeof stored, "%s text %zu", tokens[i], i);
        assert_int_equal(record(context, script, tokens[i], "begin"), 1);
        assert_int_equal(record(context, script, tokens[i], strchr(stored, ' ') + 1), 1);
        for (size_t k = 0; k < i; k++)
            assert_int_equal(record(context, script, tokens[k], "late"), 0);
        check_stored(context, stored);
    }
    check_expiry(context);
}

/* Whatever is in the key, the next record finds its place. */
static void check_damage(redisContext *context, const struct lua *script)
{
    static const struct {
        const char *command, *value;
    } damages[] = {{"RPUSH last %s", "9 text"},
                   {"HSET last %s a", "9 text"},
                   {"SET last %s", ""},
                   {"SET last %s", "text"},
                   {"SET last %s", "9text"},
                   {"SET last %s", "0000000000009 text"},
                   {"SET last %s", "999999999999999999999 text"}};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        make(context, damages[i].command, damages[i].value);
        assert_int_equal(record(context, script, "5", "text"), 1);
        check_stored(context, "5 text");
        check_expiry(context);
    }
}

static void later_records_stay(void **state)
{
    check_order(*state, &redis_script_history);
    check_order(*state, &redlock_script_history);
}

static void damaged_records_are_replaced(void **state)
{
    check_damage(*state, &redis_script_history);
    check_damage(*state, &redlock_script_history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_records_stay),
        cmocka_unit_test(damaged_records_are_replaced),
        cmocka_unit_test(scripts_of_redis_load),
        cmocka_unit_test(scripts_of_redlock_load),
        cmocka_unit_test(the_guard_loads),
        cmocka_unit_test(scripts_and_engine_name_the_same_keys),
        cmocka_unit_test(other_keys_name_nothing),
    };

    return cmocka_run_group_tests_name("redis-scripts", tests, set_up, tear_down);
}
