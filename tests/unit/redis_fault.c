/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the errors of servers mean, by the texts that they really send: recorded from Redis 6.0.20,
 * 6.2.16 and 7.0.15, Valkey 8.0.1, and Dragonfly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engines/redis/errors.h"

#define SIX         "ERR Error running script (call to f_9282fe9cd1ad17b421df71a1d74837df7d50241a): "
#define SIX_FAILED  SIX "@user_script:1: "                    /* a command that was executed */
#define SIX_STOPPED SIX "@user_script:12: @user_script: 12: " /* one that was not let run */
#define SEVEN       " script: 9282fe9cd1ad17b421df71a1d74837df7d50241a, on @user_script:1."

static const struct recorded {
    const char *text;
    enum redis_error fault;
    enum stile_status status;
} recorded[] = {
    /* the way that passes */
    {SIX_STOPPED "-NOREPLICAS Not enough good replicas to write.", REDIS_ERROR_NO_REPLICAS,
     STILE_UNREACHABLE},
    {"NOREPLICAS Not enough good replicas to write." SEVEN, REDIS_ERROR_NO_REPLICAS,
     STILE_UNREACHABLE},
    {"NOREPLICAS Not enough good replicas to write.", REDIS_ERROR_NO_REPLICAS, STILE_UNREACHABLE},
    {SIX_STOPPED "-READONLY You can't write against a read only replica.", REDIS_ERROR_READ_ONLY,
     STILE_UNREACHABLE},
    {"ERR Error running script (call to d8f2fad9f8e86a53d2a6ebd960b33c4972cacc37): "
     "@user_script:2: -READONLY You can't write against a read only replica.",
     REDIS_ERROR_READ_ONLY, STILE_UNREACHABLE},
    {"READONLY You can't write against a read only replica." SEVEN, REDIS_ERROR_READ_ONLY,
     STILE_UNREACHABLE},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
     REDIS_ERROR_MASTER_DOWN, STILE_UNREACHABLE},
    {"LOADING Redis is loading the dataset in memory", REDIS_ERROR_LOADING, STILE_UNREACHABLE},
    {"LOADING Valkey is loading the dataset in memory", REDIS_ERROR_LOADING, STILE_UNREACHABLE},
    {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
     REDIS_ERROR_BUSY, STILE_UNREACHABLE},
    {"BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
     REDIS_ERROR_BUSY, STILE_UNREACHABLE},
    {"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
     REDIS_ERROR_DEMOTED, STILE_UNREACHABLE},
    {"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a "
     "replica is configured to be writable (which is not the default) writes to replicas are just "
     "local and are not propagated.",
     REDIS_ERROR_DEMOTED, STILE_UNREACHABLE},
    {SIX_FAILED "Script killed by user with SCRIPT KILL...", REDIS_ERROR_KILLED, STILE_UNREACHABLE},
    {"ERR Script killed by user with SCRIPT KILL..." SEVEN, REDIS_ERROR_KILLED, STILE_UNREACHABLE},
    /* what somebody has to do something about */
    {SIX_FAILED "WRONGTYPE Operation against a key holding the wrong kind of value",
     REDIS_ERROR_WRONG_TYPE, STILE_REFUSED},
    {"WRONGTYPE Operation against a key holding the wrong kind of value" SEVEN,
     REDIS_ERROR_WRONG_TYPE, STILE_REFUSED},
    {SIX_STOPPED "-OOM command not allowed when used memory > 'maxmemory'.", REDIS_ERROR_OOM,
     STILE_REFUSED},
    {"OOM command not allowed when used memory > 'maxmemory'." SEVEN, REDIS_ERROR_OOM,
     STILE_REFUSED},
    {SIX_STOPPED "-MISCONF Redis is configured to save RDB snapshots, but it is currently not able "
                 "to persist on disk.",
     REDIS_ERROR_MISCONF, STILE_REFUSED},
    /* what the user may not do */
    {SIX_STOPPED "The user executing the script can't run this command or subcommand",
     REDIS_ERROR_NO_PERMISSION, STILE_REFUSED},
    {SIX_STOPPED "The user executing the script can't access at least one of the keys mentioned in "
                 "the command arguments",
     REDIS_ERROR_NO_PERMISSION, STILE_REFUSED},
    {SIX_STOPPED "The user executing the script can't publish to the channel mentioned in the "
                 "command",
     REDIS_ERROR_NO_PERMISSION, STILE_REFUSED},
    {"ERR The user executing the script can't run this command or subcommand" SEVEN,
     REDIS_ERROR_NO_PERMISSION, STILE_REFUSED},
    {"ERR ACL failure in script: User u has no permissions to run the 'set' command" SEVEN,
     REDIS_ERROR_NO_PERMISSION, STILE_REFUSED},
    {"ERR ACL failure in script: No permissions to access a key" SEVEN, REDIS_ERROR_NO_PERMISSION,
     STILE_REFUSED},
    {"NOPERM this user has no permissions to run the 'info' command or its subcommand",
     REDIS_ERROR_NO_PERMISSION, STILE_REFUSED},
    {"NOPERM User u has no permissions to run the 'info' command", REDIS_ERROR_NO_PERMISSION,
     STILE_REFUSED},
    /* what the server does not have */
    {SIX_STOPPED "Unknown Redis command called from Lua script", REDIS_ERROR_UNKNOWN_COMMAND,
     STILE_UNSUPPORTED},
    {"ERR Unknown Redis command called from script" SEVEN, REDIS_ERROR_UNKNOWN_COMMAND,
     STILE_UNSUPPORTED},
    {"ERR Unknown command called from script" SEVEN, REDIS_ERROR_UNKNOWN_COMMAND,
     STILE_UNSUPPORTED},
    /* what nobody can name */
    {SIX_FAILED "user_script:1: attempt to perform arithmetic on a nil value", REDIS_ERROR_OTHER,
     STILE_REFUSED},
    {"ERR user_script:1: attempt to perform arithmetic on a nil value" SEVEN, REDIS_ERROR_OTHER,
     STILE_REFUSED},
};

static redisReply error_of(const char *text)
{
    return (redisReply){.type = REDIS_REPLY_ERROR, .str = (char *)text, .len = strlen(text)};
}

static void each_text_has_its_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const struct recorded *r = &recorded[i];
        redisReply reply = error_of(r->text);
        struct stile_error err;
        if (redis_error_of(&reply) != r->fault || redis_error_explain(&reply, &err) != r->status)
            fail_msg("%s: fault %d, \"%s\"", r->text, (int)redis_error_of(&reply), err.message);
        assert_int_equal(err.native, r->fault);
        /* Only the error is quoted, not what an old server puts around it. */
        assert_null(strstr(err.message, "f_9282"));
    }
}

/* A value or a name inside an error is no code: only the start of the error counts. */
static void what_stands_inside_a_text_is_no_code(void **state)
{
    static const char *const texts[] = {
        "ERR value is READONLY ",
        "ERR Error running script (call to f_92): no place NOREPLICAS ",
        "ERR Error running script (call to f_92): @user_script:x: NOREPLICAS ",
        "ERR Error running script NOREPLICAS ",
        SIX_FAILED,
        SIX_FAILED "@user_script",
        SIX_FAILED "@user_script:",
        SIX_FAILED "@user_script: 1",
        SIX_FAILED "@user_script: 1:",
        SIX_FAILED "-",
        "",
        "-",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        redisReply reply = error_of(texts[i]);
        struct stile_error err;
        assert_int_equal(redis_error_of(&reply), REDIS_ERROR_OTHER);
        assert_int_equal(redis_error_explain(&reply, &err), STILE_REFUSED);
    }
}

static void replicas_are_recognised(void **state)
{
    (void)state;
    assert_true(redis_error_is_replica(REDIS_ERROR_READ_ONLY));
    assert_true(redis_error_is_replica(REDIS_ERROR_MASTER_DOWN));
    assert_true(redis_error_is_replica(REDIS_ERROR_DEMOTED));
    assert_false(redis_error_is_replica(REDIS_ERROR_NO_REPLICAS));
    assert_false(redis_error_is_replica(REDIS_ERROR_NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_text_has_its_meaning),
        cmocka_unit_test(what_stands_inside_a_text_is_no_code),
        cmocka_unit_test(replicas_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
