/* The least that a lock on a Redis server costs: SET NX PX with a value of its own for each time,
 * and the script that everybody knows to delete it. No token, no waiting. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bench.h"

struct bare {
    char owner[41];
    char key[128];
};

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
    struct bare *bare = calloc(1, sizeof *bare);
    if (!context)
        connect_to(place);
    snprintf(bare->key, sizeof bare->key, "bare:%s", lock_name);
    return bare;
}

static void draw_owner(char owner[41])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char random[20];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        bench_die("getrandom failed");
    for (int i = 0; i < 40; i++)
        owner[i] = digits[random[i / 2] >> (i % 2 ? 0 : 4) & 15];
}

static void take_hiredis(void *handle)
{
    struct bare *bare = handle;
    draw_owner(bare->owner);
    redisReply *reply =
        expect(redisCommand(context, "SET %s %s NX PX %d", bare->key, bare->owner, 10000));
    if (reply->type != REDIS_REPLY_STATUS)
        bench_die("hiredis: %s is not free", bare->key);
    freeReplyObject(reply);
}

static void give_hiredis(void *handle)
{
    struct bare *bare = handle;
    redisReply *reply =
        expect(redisCommand(context, "EVALSHA %s 1 %s %s", sha1, bare->key, bare->owner));
    if (reply->integer != 1)
        bench_die("hiredis: %s was not ours", bare->key);
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
