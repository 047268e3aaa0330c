/* Inside the redis engine. */
#ifndef STILE_REDIS_H
#define STILE_REDIS_H

#include "engines/engine.h"
#include "engines/redis/conn.h"
#include "engines/redis/scripts.h"

#define OWNER_LEN   40
#define SESSION_LEN 16
#define OWNER_HEADS 512
#define PREFIX_MAX  128
#define INFO_MAX    320

/* K with a suffix and, where it has no hash tag of its own, braces around it. */
#define KEY_MAX (PREFIX_MAX + STILE_NAME_MAX + sizeof "{}:members")

enum standing {
    NOWHERE,
    ASKED,       /* a claim is on its way, or waits for the subscription */
    IN_LINE,     /* the server will tell */
    CONFIRMING,  /* it has; we make it ours for the full time */
    REPLICATING, /* granted, and to be told when enough replicas have it */
    HOLDING,
    LEAVING,
};

struct redis_claim {
    struct redis_claim *next; /* with the same head in redis->by_owner */
    char owner[OWNER_LEN + 1];
    enum standing standing;
    bool listed, has_timer;
    bool told;         /* granted by a message that overtook the answer to the claim */
    bool may_be_there; /* release: what the server does not know was ours to lose */
    uint64_t sent_ns, granted_ns, give_up_ns, token;
    unsigned looks;
    struct timer timer; /* in line: when to look by ourselves; leaving: when to say it again */
    struct batch *batch;
};

struct redis {
    struct engine engine;
    struct scripts scripts;
    struct tls_context *tls;
    struct conn *asks, *hears; /* hears: made when first needed */
    bool hearing;              /* the subscription is in effect */
    char channel[sizeof "stile:" + SESSION_LEN];
    char prefix[PREFIX_MAX + 1];
    char info[INFO_MAX]; /* "pid host command", for people */
    unsigned wait_replicas, wait_ms;
    struct conn_options options;
    struct redis_claim *by_owner[OWNER_HEADS];
    struct batch *batches; /* renewals under way */
};

static inline struct redis *redis_of(struct engine *engine)
{
    return (struct redis *)engine;
}

static inline struct redis_claim *part_of(struct claim *claim)
{
    return (struct redis_claim *)claim->state;
}

static inline struct claim *claim_of(struct redis_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

/* ---- keys.c ---- */

struct keys {
    char text[SCRIPT_KEYS][KEY_MAX];
    struct conn_arg args[SCRIPT_KEYS];
};

void keys_of(struct keys *keys, const struct redis *redis, const char *name, size_t name_len);
bool key_is_derived(const char *key, size_t len);

/* ---- claims.c ---- */

void claims_claim(struct engine *engine, struct claim *claim);
void claims_release(struct engine *engine, struct claim *claim);
void claims_renew(struct engine *engine, struct claim *const *claims, size_t n);
void claims_resume(struct engine *engine, struct claim *claim);
void claims_detach(struct engine *engine, struct claim *claim);
const char *claims_owner(struct engine *engine, struct claim *claim);
void claims_close(struct redis *redis);

/* The subscription has begun (again): messages may have been missed. */
void claims_look_again(struct redis *redis);
void claims_hear(struct redis *redis, const char *text, size_t len);
enum stile_status redis_listen(struct redis *redis, struct stile_error *err); /* redis.c */

/* ---- people.c ---- */

void people_list(struct engine *engine, struct query *query);
void people_show(struct engine *engine, struct query *query);
void people_break(struct engine *engine, struct query *query);
void people_watch(struct engine *engine, struct query *query);
void people_unwatch(struct engine *engine, struct query *query);

#endif
