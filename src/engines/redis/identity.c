/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a client: owner values, and a record of the client for people to read.
 *
 * The record is stored once for all claims, for as long as one of them can last. In a Cluster it is
 * stored once for each slot in use, since the script that shows a name reads it there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/self.h"
#include "base/text.h"
#include "engines/redis/identity.h"
#include "engines/redis/keys.h"
#include "engines/redis/redis.h"

/* ---- owner values ---- */

int redis_identity_new(char channel[CHANNEL_MAX], char info[INFO_MAX], const struct engine *engine)
{
    unsigned char random[SESSION_LEN / 2];
    char host[SELF_HOST_MAX + 1];
    int rc = loop_random(engine->loop, random, sizeof random);
    strcpy(channel, "stile:");
    hex_encode(channel + strlen(channel), random, sizeof random);
    self_host(host);
    int n = snprintf(info, INFO_MAX, "%lld %s ", (long long)engine->pid, host);
    self_command(info + n, INFO_MAX - (size_t)n, engine->label);
    return rc;
}

/* ---- the client record ---- */

#define RECORD_MS UINT64_C(3000000) /* 50 minutes more than any claim needs it */

static void on_described(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err; /* only list and show need it, and it is stored again */
}

#define CLIENT_KEY (SHARED_ROOM + SESSION_LEN + 1)

static void write_key(char key[CLIENT_KEY], const struct redis *redis, size_t slot,
                      const char *session)
{
    redis_key_of_clients(key, redis, (uint16_t)slot);
    char *end = memcpy(key + strlen(key), session, SESSION_LEN);
    end[SESSION_LEN] = '\0';
}

static const char *own_session(const struct redis *redis)
{
    return redis->channel + strlen("stile:");
}

static size_t slot_of_claim(const struct redis *redis, const struct claim *claim)
{
    return redis->cluster ? redis_route_slot(redis, claim->name, claim->name_len) : 0;
}

static void send(struct redis *redis, const struct conn_arg *args, size_t n)
{
    redis_node_send(redis_route_to_key(redis, &args[1]), args, n, on_described, redis, NULL);
}

void redis_identity_store(struct redis *redis, const struct claim *claim)
{
    uint64_t now_ns = loop_now(redis->engine.loop), need_ns = redis_identity_needed_ns(claim);
    size_t slot = slot_of_claim(redis, claim);
    char key[CLIENT_KEY], ms[NUMBER_MAX];
    if (redis->cluster && redis_identity_lasts(redis, claim, slot))
        return;
    write_key(key, redis, slot, own_session(redis));
    redis_number_write(ms, need_ns / NS_PER_MS + RECORD_MS);
    struct conn_arg args[] = {CONN_TEXT("SET"), CONN_TEXT(key), CONN_TEXT(redis->info),
                              CONN_TEXT("PX"), CONN_TEXT(ms)};
    redis->described_ns[slot] = now_ns + need_ns + RECORD_MS * NS_PER_MS;
    send(redis, args, 5);
}

void redis_identity_extend(struct redis *redis, struct redis_claim *claim)
{
    const struct claim *base = base_of(claim);
    char key[CLIENT_KEY], ms[NUMBER_MAX];
    write_key(key, redis, slot_of_claim(redis, base), claim->leased.owner);
    redis_number_write(ms, redis_identity_needed_ns(base) / NS_PER_MS + RECORD_MS);
    struct conn_arg args[] = {CONN_TEXT("PEXPIRE"), CONN_TEXT(key), CONN_TEXT(ms)};
    send(redis, args, 3);
}

/* ---- init and free ---- */

enum stile_status redis_identity_init(struct redis *redis, struct stile_error *err)
{
    redis->described_ns = calloc(redis->cluster ? SLOTS : 1, sizeof *redis->described_ns);
    return redis->described_ns ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

/* The answer is not awaited: a record that stays expires within the hour. */
static void take_back(struct redis *redis, size_t slot)
{
    char key[CLIENT_KEY];
    write_key(key, redis, slot, own_session(redis));
    struct conn_arg args[] = {CONN_TEXT("DEL"), CONN_TEXT(key)};
    struct node *node = redis_route_to_key(redis, &args[1]);
    if (node->conn && redis_conn_is_up(node->conn) &&
        !redis_conn_send(node->conn, args, 2, on_described, redis, NULL))
        redis_conn_flush(node->conn);
}

void redis_identity_free(struct redis *redis)
{
    size_t n = redis->cluster ? SLOTS : 1;
    for (size_t slot = 0; redis->described_ns && !redis->has_detached && slot < n; slot++) {
        if (redis->described_ns[slot])
            take_back(redis, slot);
    }
    free(redis->described_ns);
    redis->described_ns = NULL;
}
