/* The least that a lock on a Redis server costs: SET NX PX with one value for ever, and the script
 * that everybody knows to delete it. No token, no waiting. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define OWNER "00112233445566778899aabbccddeeff00112233"

static redisContext *context;
static char sha1[41];

static redisReply *expect(redisReply *reply)
{
    if (!reply)
        bench_die("hiredis: %s", context->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        bench_die("hiredis: %s", reply->str);
    return reply;
}

static void connect_to(const char *url)
{
    const char *colon = strrchr(url, ':');
    context = redisConnect("127.0.0.1", (int)bench_number(colon ? colon + 1 : url));
    if (!context || context->err)
        bench_die("hiredis: %s", context ? context->errstr : "out of memory");
    redisReply *reply = expect(redisCommand(context, "SCRIPT LOAD %s",
                                            "if redis.call('GET',KEYS[1])==ARGV[1] then "
                                            "return redis.call('DEL',KEYS[1]) else return 0 end"));
    snprintf(sha1, sizeof sha1, "%s", reply->str);
    freeReplyObject(reply);
}

static void *open_hiredis(const char *place, const char *lock_name)
{
    char key[128];
    if (!context)
        connect_to(place);
    snprintf(key, sizeof key, "bare:%s", lock_name);
    return strdup(key);
}

static void take_hiredis(void *handle)
{
    redisReply *reply =
        expect(redisCommand(context, "SET %s %s NX PX %d", (const char *)handle, OWNER, 10000));
    if (reply->type != REDIS_REPLY_STATUS)
        bench_die("hiredis: %s is not free", (const char *)handle);
    freeReplyObject(reply);
}

static void give_hiredis(void *handle)
{
    redisReply *reply =
        expect(redisCommand(context, "EVALSHA %s 1 %s %s", sha1, (const char *)handle, OWNER));
    if (reply->integer != 1)
        bench_die("hiredis: %s was not ours", (const char *)handle);
    freeReplyObject(reply);
}

void bench_ping(const char *url)
{
    if (!context)
        connect_to(url);
    freeReplyObject(expect(redisCommand(context, "PING")));
}

const struct subject subject_hiredis = {
    .name = "hiredis",
    .open = open_hiredis,
    .take = take_hiredis,
    .give = give_hiredis,
};
