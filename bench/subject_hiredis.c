/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
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

#define NODES_MAX 9

static redisContext *nodes[NODES_MAX];
static int n_nodes;
static char sha1[41];

static redisReply *answer(redisContext *node)
{
    void *got;
    if (redisGetReply(node, &got) != REDIS_OK)
        bench_die("hiredis: %s", node->errstr);
    redisReply *reply = got;
    if (reply->type == REDIS_REPLY_ERROR)
        bench_die("hiredis: %s", reply->str);
    return reply;
}

static redisContext *connect_to(int port)
{
    redisContext *node = redisConnect("127.0.0.1", port);
    if (!node || node->err)
        bench_die("hiredis: %s", node ? node->errstr : "out of memory");
    redisAppendCommand(node, "SCRIPT LOAD %s",
                       "if redis.call('GET',KEYS[1])==ARGV[1] then "
                       "return redis.call('DEL',KEYS[1]) else return 0 end");
    redisReply *reply = answer(node);
    snprintf(sha1, sizeof sha1, "%s", reply->str);
    freeReplyObject(reply);
    return node;
}

/* scheme://host:port,host:port,... all on this machine */
static void connect_all(const char *url)
{
    for (const char *at = strstr(url, "//"); at && n_nodes < NODES_MAX; at = strchr(at, ',')) {
        at = strchr(at, ':');
        if (!at)
            bench_die("%s: want a port for each node", url);
        nodes[n_nodes++] = connect_to(atoi(at + 1));
    }
}

/* Written to all, then read from all. */
static void send_all(void)
{
    int done;
    for (int i = 0; i < n_nodes; i++)
        if (redisBufferWrite(nodes[i], &done) != REDIS_OK)
            bench_die("hiredis: %s", nodes[i]->errstr);
}

static void *open_hiredis(const char *place, const char *lock_name)
{
    struct bare *bare = calloc(1, sizeof *bare);
    if (!n_nodes)
        connect_all(place);
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
    for (int i = 0; i < n_nodes; i++)
        redisAppendCommand(nodes[i], "SET %s %s NX PX %d", bare->key, bare->owner, 10000);
    send_all();
    for (int i = 0; i < n_nodes; i++) {
        redisReply *reply = answer(nodes[i]);
        if (reply->type != REDIS_REPLY_STATUS)
            bench_die("hiredis: %s is not free", bare->key);
        freeReplyObject(reply);
    }
}

static void give_hiredis(void *handle)
{
    struct bare *bare = handle;
    for (int i = 0; i < n_nodes; i++)
        redisAppendCommand(nodes[i], "EVALSHA %s 1 %s %s", sha1, bare->key, bare->owner);
    send_all();
    for (int i = 0; i < n_nodes; i++) {
        redisReply *reply = answer(nodes[i]);
        if (reply->integer != 1)
            bench_die("hiredis: %s was not ours", bare->key);
        freeReplyObject(reply);
    }
}

/* ---- a value that is replaced if its version is the one before ---- */

#define SWAP                                                                                       \
    "if (redis.call('GET',KEYS[2]) or '0')~=ARGV[2] then return -1 end "                           \
    "redis.call('SET',KEYS[1],ARGV[1]) return redis.call('INCR',KEYS[2])"

struct swapped {
    char key[128], version_key[160], sha1[41];
    long long version;
};

static void *open_swapped(const char *place, const char *key)
{
    struct swapped *swapped = calloc(1, sizeof *swapped);
    if (!n_nodes)
        connect_all(place);
    snprintf(swapped->key, sizeof swapped->key, "bare:{%s}", key);
    snprintf(swapped->version_key, sizeof swapped->version_key, "%s:version", swapped->key);
    redisAppendCommand(nodes[0], "SCRIPT LOAD %s", SWAP);
    redisReply *reply = answer(nodes[0]);
    snprintf(swapped->sha1, sizeof swapped->sha1, "%s", reply->str);
    freeReplyObject(reply);
    return swapped;
}

static void swap(void *handle, const void *value, size_t size)
{
    struct swapped *swapped = handle;
    redisAppendCommand(nodes[0], "EVALSHA %s 2 %s %s %b %lld", swapped->sha1, swapped->key,
                       swapped->version_key, value, size, swapped->version);
    redisReply *reply = answer(nodes[0]);
    if (reply->integer < 0)
        bench_die("hiredis: %s has another version", swapped->key);
    swapped->version = reply->integer;
    freeReplyObject(reply);
}

const struct swap_subject swap_hiredis = {.name = "hiredis", .open = open_swapped, .swap = swap};

void hiredis_ping(const char *url)
{
    if (!n_nodes)
        connect_all(url);
    redisAppendCommand(nodes[0], "PING");
    freeReplyObject(answer(nodes[0]));
}

const struct subject subject_hiredis = {
    .name = "hiredis",
    .open = open_hiredis,
    .take = take_hiredis,
    .give = give_hiredis,
};
