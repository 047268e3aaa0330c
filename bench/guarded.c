/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard adds to a SET from a script and from a function, batch by batch in turn:
 *
 *   script          EVALSHA of our script, with the token that the guard has seen last
 *   script_bare     EVALSHA of a script that only calls SET
 *   script_raised   EVALSHA of our script, each time with a larger token
 *   function, function_bare, function_raised   the same with FCALL
 *
 *   bench-guarded PORT ROUNDS CALLS
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "engines/redis/guard/texts.h"

#define BARE "return redis.call('SET', KEYS[1], ARGV[1])"
#define BARE_LIB                                                                                   \
    "#!lua name=bare\nredis.register_function('bare_set', "                                        \
    "function(keys, args) return redis.call('SET', keys[1], args[1]) end)"
#define GUARD "stile:guard:{accounts}"
#define FIRST INT64_C(1000000000000)

static redisContext *server;
static char bare_sha1[41];
static const char *guarded_sha1;
static int64_t token = FIRST;

static void check(redisReply *reply)
{
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        bench_die("hiredis: %s", reply ? reply->str : server->errstr);
    freeReplyObject(reply);
}

static void call_script(void)
{
    check(redisCommand(server, "EVALSHA %s 2 " GUARD " accounts %" PRId64 " redis:accounts value",
                       guarded_sha1, token));
}

static void call_script_bare(void)
{
    check(redisCommand(server, "EVALSHA %s 1 accounts value", bare_sha1));
}

static void call_script_raised(void)
{
    token++;
    call_script();
}

static void call_function(void)
{
    check(redisCommand(
        server, "FCALL stile_guard_set 2 " GUARD " accounts %" PRId64 " redis:accounts value",
        token));
}

static void call_function_bare(void)
{
    check(redisCommand(server, "FCALL bare_set 1 accounts value"));
}

static void call_function_raised(void)
{
    token++;
    call_function();
}

static const struct {
    const char *name;
    void (*call)(void);
} series[] = {
    {"script", call_script},
    {"script_bare", call_script_bare},
    {"script_raised", call_script_raised},
    {"function", call_function},
    {"function_bare", call_function_bare},
    {"function_raised", call_function_raised},
};
#define N_SERIES (sizeof series / sizeof *series)

static void load(void)
{
    const struct redis_guard_text *set = redis_guard_scripts;
    while (strcmp(set->name, "set") != 0)
        set++;
    guarded_sha1 = set->sha1;
    check(redisCommand(server, "SCRIPT LOAD %b", set->source, set->len));
    check(redisCommand(server, "FUNCTION LOAD REPLACE %b", redis_guard_library.source,
                       redis_guard_library.len));
    check(redisCommand(server, "FUNCTION LOAD REPLACE %s", BARE_LIB));
    redisReply *reply = redisCommand(server, "SCRIPT LOAD %s", BARE);
    if (reply && reply->type == REDIS_REPLY_STRING)
        snprintf(bare_sha1, sizeof bare_sha1, "%s", reply->str);
    check(reply);
}

static void run_batch(size_t which, size_t calls, int64_t *took_ns)
{
    for (size_t i = 0; i < calls; i++) {
        int64_t before_ns = bench_now_ns();
        series[which].call();
        took_ns[i] = bench_now_ns() - before_ns;
    }
    printf("{\"series\": \"%s\", \"p50_ns\": %" PRId64 "}\n", series[which].name,
           bench_percentile(took_ns, calls, 50));
}

int main(int argc, char **argv)
{
    if (argc != 4)
        bench_die("usage: bench-guarded PORT ROUNDS CALLS");
    long rounds = bench_number(argv[2]);
    size_t calls = (size_t)bench_number(argv[3]);
    server = redisConnect("127.0.0.1", (int)bench_number(argv[1]));
    if (!server || server->err)
        bench_die("hiredis: %s", server ? server->errstr : "out of memory");
    load();
    int64_t *took_ns = calloc(calls, sizeof *took_ns);
    for (long i = 0; i < rounds; i++)
        for (size_t which = 0; which < N_SERIES; which++)
            run_batch(which, calls, took_ns);
    free(took_ns);
    redisFree(server);
    return 0;
}
