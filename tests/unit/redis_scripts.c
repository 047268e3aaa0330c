/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every script of redis:// and redlock:// compiles on a real redis-server, under the name that the
 * build has given it. And which records of a name's last holder replace which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

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
    };

    return cmocka_run_group_tests_name("redis-scripts", tests, set_up, tear_down);
}
