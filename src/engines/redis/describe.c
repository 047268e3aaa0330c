/* Who we are, for people: stored once for all our claims, and for as long as one of them can last.
 * In a Cluster once for each slot that we use, as the script that shows a name reads it there. */
#include <stdlib.h>
#include <string.h>

#include "engines/redis/redis.h"
#include "engines/redis/slot.h"

#define KEPT_MS  UINT64_C(3000000)      /* 50 minutes more than any claim needs it */
#define SPARE_NS (10 * 60 * NS_PER_SEC) /* of which so many are left when it is said again */

static void on_described(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err; /* people can do without; the next time comes */
}

#define CLIENT_KEY (SHARED_ROOM + SESSION_LEN + 1)

static void write_key(char key[CLIENT_KEY], const struct redis *redis, size_t slot,
                      const char *session)
{
    key_of_clients(key, redis, (uint16_t)slot);
    char *end = memcpy(key + strlen(key), session, SESSION_LEN);
    end[SESSION_LEN] = '\0';
}

static const char *own_session(const struct redis *redis)
{
    return redis->channel + strlen("stile:");
}

static size_t slot_of_claim(const struct redis *redis, const struct claim *claim)
{
    return redis->cluster ? route_slot(redis, claim->name, claim->name_len) : 0;
}

static uint64_t claim_ns(const struct claim *claim)
{
    uint64_t lease = claim->ttl_ns + claim->delay_ns;
    return lease > claim->hold_ns ? lease : claim->hold_ns;
}

static void send(struct redis *redis, const struct conn_arg *args, size_t n)
{
    node_send(route_to_key(redis, &args[1]), args, n, on_described, redis, NULL);
}

void describe_to(struct redis *redis, const struct claim *claim)
{
    uint64_t now_ns = loop_now(redis->engine.loop), need_ns = claim_ns(claim);
    size_t slot = slot_of_claim(redis, claim);
    char key[CLIENT_KEY], ms[NUMBER_MAX];
    if (now_ns + need_ns + SPARE_NS < redis->described_ns[slot])
        return;
    write_key(key, redis, slot, own_session(redis));
    number_write(ms, need_ns / NS_PER_MS + KEPT_MS);
    struct conn_arg args[] = {CONN_TEXT("SET"), CONN_TEXT(key), CONN_TEXT(redis->info),
                              CONN_TEXT("PX"), CONN_TEXT(ms)};
    redis->described_ns[slot] = now_ns + need_ns + KEPT_MS * NS_PER_MS;
    send(redis, args, 5);
}

void describe_prolong(struct redis *redis, struct redis_claim *part)
{
    const struct claim *claim = claim_of(part);
    char key[CLIENT_KEY], ms[NUMBER_MAX];
    write_key(key, redis, slot_of_claim(redis, claim), part->owner);
    number_write(ms, claim_ns(claim) / NS_PER_MS + KEPT_MS);
    struct conn_arg args[] = {CONN_TEXT("PEXPIRE"), CONN_TEXT(key), CONN_TEXT(ms)};
    send(redis, args, 3);
}

/* ---- the beginning and the end ---- */

enum stile_status describe_init(struct redis *redis, struct stile_error *err)
{
    redis->described_ns = calloc(redis->cluster ? SLOTS : 1, sizeof *redis->described_ns);
    return redis->described_ns ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

/* Nobody waits for the answer: what stays is gone within the hour. */
static void take_back(struct redis *redis, size_t slot)
{
    char key[CLIENT_KEY];
    write_key(key, redis, slot, own_session(redis));
    struct conn_arg args[] = {CONN_TEXT("DEL"), CONN_TEXT(key)};
    struct node *node = route_to_key(redis, &args[1]);
    if (node->asks && conn_is_up(node->asks) &&
        !conn_send(node->asks, args, 2, on_described, redis, NULL))
        conn_flush(node->asks);
}

void describe_free(struct redis *redis)
{
    size_t n = redis->cluster ? SLOTS : 1;
    for (size_t slot = 0; redis->described_ns && !redis->has_detached && slot < n; slot++) {
        if (redis->described_ns[slot])
            take_back(redis, slot);
    }
    free(redis->described_ns);
    redis->described_ns = NULL;
}
