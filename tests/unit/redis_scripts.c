/* Every script of redis:// and redlock:// compiles on a real redis-server, under the name that the
 * build has given it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_of_redis_load),
        cmocka_unit_test(scripts_of_redlock_load),
    };

    return cmocka_run_group_tests_name("redis-scripts", tests, set_up, tear_down);
}
