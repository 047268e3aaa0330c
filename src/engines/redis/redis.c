/* redis: the plain dialect everybody speaks, with a token, a queue and a push.
 *
 * K = prefix + name holds the owner, set if absent and with an expiry, and is deleted only if it
 * still holds it: so node-redlock, redis-py and a tutorial's redis-cli on the same key exclude us
 * and we them. What they don't know is kept beside it: a counter that grows with each grant in the
 * same script (the token), a list of who waits, and who holds it, for people.
 *
 * Who releases grants to the next in line in the same step and tells it by PUBLISH on its session's
 * channel; nobody listening there is dead and skipped. The next one has a second to confirm, else
 * its grant expires. Only the first in line looks by itself, when what is in its way must have
 * expired, and the second a second later, should the first be dead; each renewal tells both that it
 * is not yet time, so that they send nothing while nothing changes. Readers and slots are a sorted
 * set by the time each ends; K then says so, and keeps the plain dialect out.
 *
 *     scripts.c  the steps, in Lua      claims.c, release.c, renew.c  the life of a claim
 *     conn.c     one connection         people.c                      list, show, watch, break
 *     vitals.c, verdict.c, doctor.c     is this server fit for locks?
 */
#include "engines/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#include "engines/redis/fault.h"
#include "engines/redis/place.h"
#include "engines/redis/vitals.h"

#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)

/* ---- the URL ---- */

static enum stile_status read_target(struct redis *redis, const struct url *url,
                                     struct stile_error *err)
{
    struct conn_options *o = &redis->options;
    o->user = url->user && *url->user ? url->user : NULL;
    o->password = url->password;
    if (strcmp(url->scheme, "redis+unix") == 0) {
        if (url->n_hosts || !*url->path)
            return error_set(err, STILE_MISUSE, 0, "write redis+unix:///path/of/the/socket");
        o->target.path = url->path;
        return place_number(&o->db, url, "db", 65535, err);
    }
    if (url->n_hosts > 1)
        return error_set(err, STILE_MISUSE, 0, "a redis URL names one server, not %zu",
                         url->n_hosts);
    o->target.host = url->n_hosts ? url->hosts[0].host : "127.0.0.1";
    o->target.port = url->n_hosts && url->hosts[0].port ? url->hosts[0].port : PLACE_PORT;
    return place_db(&o->db, url, err);
}

static enum stile_status read_tls(struct redis *redis, const struct url *url,
                                  struct stile_error *err)
{
    enum stile_status status = place_tls(&redis->tls, url, "rediss", err);
    redis->options.target.tls = redis->tls;
    return status;
}

static enum stile_status read_rest(struct redis *redis, const struct url *url,
                                   struct stile_error *err)
{
    redis->wait_ms = 1000;
    enum stile_status status = place_prefix(redis->prefix, url, err);
    if (!status)
        status = place_number(&redis->wait_replicas, url, "wait_replicas", 100, err);
    return status ? status : place_number(&redis->wait_ms, url, "wait_timeout", 60000, err);
}

/* ---- opening ---- */

struct opening {
    struct timer timer;
    bool over;
    struct stile_error error;
    char *info;
};

static void out_of_patience(struct timer *timer)
{
    struct opening *opening = (struct opening *)((char *)timer - offsetof(struct opening, timer));
    error_set(&opening->error, STILE_UNREACHABLE, 0, "the server does not answer");
    opening->over = true;
}

static void on_info(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct opening *opening = data;
    opening->over = true;
    if (err)
        error_copy(&opening->error, err);
    else if (reply->type == REDIS_REPLY_STRING)
        opening->info = strdup(reply->str);
}

static enum stile_status ask_info(struct redis *redis, struct opening *opening,
                                  struct stile_error *err)
{
    struct loop *loop = redis->engine.loop;
    struct conn_arg info[] = {CONN_TEXT("INFO")};
    if (loop_reserve(loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    opening->timer.fn = out_of_patience;
    loop_arm(loop, &opening->timer, loop_now(loop) + OPEN_PATIENCE_NS);
    enum stile_status status = node_send(&redis->home, info, 1, on_info, opening, err);
    while (!status && !opening->over) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    route_forget(redis, opening);
    loop_disarm(loop, &opening->timer);
    loop_unreserve(loop, 1);
    bool for_the_doctor = redis->engine.examining && fault_is_denial(&opening->error);
    if (status || !opening->error.status || for_the_doctor)
        return status;
    error_copy(err, &opening->error);
    return opening->error.status;
}

static void dispose(struct redis *redis)
{
    node_close(&redis->home);
    batches_free(redis);
    tls_context_free(redis->tls);
    free(redis->cli);
    if (redis->password)
        explicit_bzero(redis->password, strlen(redis->password));
    free(redis->password);
    free(redis->user);
    free(redis->path);
}

static bool keep(char **to, const char **option)
{
    *to = *option ? strdup(*option) : NULL;
    bool kept = *to || !*option;
    *option = *to;
    return kept;
}

/* What they point to was the URL's. */
static enum stile_status keep_options(struct redis *redis, struct stile_error *err)
{
    struct conn_options *o = &redis->options;
    const char *host = o->target.host;
    bool kept = keep(&redis->user, &o->user) & keep(&redis->password, &o->password) &
                keep(&redis->path, &o->target.path);
    o->target.host = NULL;
    if (!kept)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    return node_init(&redis->home, redis, host, o->target.port, err);
}

static enum stile_status connect_to(struct redis *redis, const struct url *url,
                                    struct stile_error *err)
{
    struct opening opening = {0};
    char secret[SECRET_MAX];
    enum stile_status status = place_secret(&redis->options.password, url, secret, err);
    if (!status && redis->engine.examining)
        redis->cli = vitals_cli(&redis->options, url);
    if (!status)
        status = keep_options(redis, err);
    explicit_bzero(secret, sizeof secret);
    if (!status)
        status = ask_info(redis, &opening, err);
    if (!status && !redis->engine.examining)
        status = place_check(opening.info, url, err);
    free(opening.info);
    return status;
}

static enum stile_status redis_open(struct engine *engine, const struct url *url,
                                    struct stile_error *err)
{
    struct redis *redis = redis_of(engine);
    scripts_init(&redis->scripts);
    int rc = who_introduce(redis->channel, redis->info, engine->loop, engine->label);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    enum stile_status status = read_target(redis, url, err);
    if (!status)
        status = read_tls(redis, url, err);
    if (!status)
        status = read_rest(redis, url, err);
    if (!status)
        status = connect_to(redis, url, err);
    if (status)
        dispose(redis);
    return status;
}

static void redis_close(struct engine *engine)
{
    dispose(redis_of(engine));
}

static void redis_forked(struct engine *engine)
{
    node_forked(&redis_of(engine)->home);
}

static const char *const redis_params[] = {
    "prefix",        "ca",           "cert",  "key",           "server_name", "insecure", "db",
    "wait_replicas", "wait_timeout", "allow", "password_file", NULL};

const struct engine_class redis_class = {
    .scheme = "redis rediss redis+unix",
    .params = redis_params,
    .caps =
        {
            .engine = "redis",
            .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
            .lease = STILE_LEASE_CLAIM,
            .fifo = true,
            .token = true,
            .hold_at_least = true,
            .lock_delay = true,
            .detached = true,
            .token_is = "a counter beside the key, grown in the same script as the grant",
            .survives =
                "a holder's crash: free after its TTL; a server's crash: what it had on its "
                "disk (appendonly yes, appendfsync always)",
            .condition =
                "one primary that does not forget: failover to a replica may forget a lock "
                "or repeat a token",
        },
    .apart = true,
    .engine_size = sizeof(struct redis),
    .claim_size = sizeof(struct redis_claim),
    .open = redis_open,
    .close = redis_close,
    .forked = redis_forked,
    .claim = claims_claim,
    .release = claims_release,
    .renew = claims_renew,
    .resume = claims_resume,
    .detach = claims_detach,
    .owner = claims_owner,
    .list = people_list,
    .show = people_show,
    .break_ = people_break,
    .watch = people_watch,
    .unwatch = people_unwatch,
    .examine = doctor_examine,
};
