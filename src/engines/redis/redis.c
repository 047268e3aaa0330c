/* redis: the plain dialect everybody speaks, with a token, a queue and a push.
 *
 * K = prefix + name holds the owner, set if absent and with an expiry, and is deleted only if it
 * still holds it: so node-redlock, redis-py and a tutorial's redis-cli on the same key exclude us
 * and we them. What they don't know is kept beside it: a queue, and a record of each claim. Tokens
 * come from one counter that all names share, grown in the same script as the grant.
 *
 * A release grants to the next waiter in the same step and says so by PUBLISH on its session's
 * channel; a waiter that nobody listens for is dead and skipped. The next one has a second to
 * confirm, else its grant expires. Every waiter also looks by itself once a second, and when what
 * is in its way must have expired. Readers and slots are a sorted set by the time each ends; K then
 * says so, and keeps the plain dialect out.
 *
 *     scripts/   the steps, in Lua      claims.c, queue.c, grant.c,   the life of a claim
 *                                       release.c, renew.c
 *     conn.c     one connection         people.c                      list, show, watch, break
 *     route.c    which server to ask    open.c, sentinel.c, cluster.c who that is
 *     vitals.c, verdict.c, doctor.c     is this server fit for locks?
 */
#include "engines/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#include "engines/redis/cluster.h"
#include "engines/redis/place.h"
#include "engines/redis/sentinel.h"

/* A claim may have to wait for two of them (replicas.c), and its lease goes on. */
#define WAIT_MAX_MS 2500

/* redis-py polls every 100 ms unless it is told otherwise, node-redlock every 200 ms. Behind one
 * that releases and takes again at once, the key is free for some 100 us at a time. */
#define POLL_MS     20
#define POLL_MAX_MS 1000

/* ---- the URL ---- */

/* redis+kind or rediss+kind */
static bool is_scheme(const struct url *url, const char *kind)
{
    const char *plus = strchr(url->scheme, '+');
    return plus && strcmp(plus + 1, kind) == 0;
}

static enum stile_status read_target(struct redis *redis, const struct url *url,
                                     struct stile_error *err)
{
    struct conn_options *o = &redis->options;
    o->stakes = &redis->stakes;
    o->user = url->user && *url->user ? url->user : NULL;
    o->password = url->password;
    if (strcmp(url->scheme, "redis+unix") == 0) {
        if (url->n_hosts || !*url->path)
            return error_set(err, STILE_MISUSE, 0, "write redis+unix:///path/of/the/socket");
        o->target.path = url->path;
        return place_db_param(&o->db, url, err);
    }
    if (is_scheme(url, "sentinel")) {
        o->primary = true;
        return place_db_param(&o->db, url, err);
    }
    if (is_scheme(url, "cluster")) {
        redis->clustered = true;
        return place_db(&o->db, url, err);
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
    bool secure = strncmp(url->scheme, "rediss", 6) == 0;
    enum stile_status status = place_tls(&redis->tls, url, secure ? url->scheme : "rediss", err);
    redis->options.target.tls = redis->tls;
    return status;
}

static enum stile_status read_rest(struct redis *redis, const struct url *url,
                                   struct stile_error *err)
{
    bool sentinels = url_param(url, "sentinel_user") || url_param(url, "sentinel_password_file");
    if (sentinels && !is_scheme(url, "sentinel"))
        return error_set(err, STILE_MISUSE, 0, "sentinel_...= needs a redis+sentinel:// URL");
    redis->wait_ms = 1000;
    redis->poll_ms = POLL_MS;
    enum stile_status status = place_prefix(redis->prefix, url, err);
    if (!status)
        status = place_allow(url, err);
    if (!status)
        status = url_param_number(&redis->wait_replicas, url, "wait_replicas", 0, 100, err);
    if (!status)
        status = url_param_number(&redis->wait_ms, url, "wait_timeout", 0, WAIT_MAX_MS, err);
    return status ? status : url_param_number(&redis->poll_ms, url, "poll", 0, POLL_MAX_MS, err);
}

/* ---- the engine ---- */

static void dispose(struct redis *redis)
{
    describe_free(redis);
    sentinel_free(redis->sentinel);
    cluster_free(redis->cluster);
    node_close(&redis->home);
    batches_free(redis);
    tls_context_free(redis->tls);
    free(redis->cli_flags);
    if (redis->password)
        explicit_bzero(redis->password, strlen(redis->password));
    free(redis->password);
    free(redis->user);
    free(redis->path);
}

/* The class's own is that of one server. */
static const char *condition_of(const struct redis *redis)
{
    if (redis->cluster)
        return "each name on one node of the Cluster, where a failover may forget a lock or repeat "
               "a token (wait_replicas=N makes that rarer); while its slot moves, a name can't be "
               "locked, and who waits may lose its place";
    if (redis->sentinel)
        return "the primary that the Sentinels name: a failover may forget a lock or repeat a "
               "token (wait_replicas=N makes that rarer)";
    return redis->engine.caps.condition;
}

static enum stile_status redis_open(struct engine *engine, const struct url *url,
                                    struct stile_error *err)
{
    struct redis *redis = redis_of(engine);
    int rc = who_introduce(redis->channel, redis->info, engine);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    enum stile_status status = read_target(redis, url, err);
    if (!status)
        status = read_tls(redis, url, err);
    if (!status)
        status = read_rest(redis, url, err);
    if (!status)
        status = open_engine(redis, url, err);
    if (status)
        dispose(redis);
    else
        engine->caps.condition = condition_of(redis);
    return status;
}

static void redis_close(struct engine *engine)
{
    dispose(redis_of(engine));
}

static void redis_forked(struct engine *engine)
{
    route_forked(redis_of(engine));
}

static const char *const redis_params[] = {"prefix",
                                           "ca",
                                           "cert",
                                           "key",
                                           "server_name",
                                           "insecure",
                                           "db",
                                           "wait_replicas",
                                           "wait_timeout",
                                           "poll",
                                           "allow",
                                           "password_file",
                                           "sentinel_user",
                                           "sentinel_password_file",
                                           NULL};

static const struct engine_push push = {
    .watch = people_watch,
    .unwatch = people_unwatch,
};

static const struct engine_detached detached = {
    .resume = claims_resume,
    .detach = claims_detach,
    .owner = claims_owner,
};

static const struct engine_admin admin = {
    .examine = doctor_examine,
};

const struct engine_class redis_class = {
    .schemes = "redis rediss redis+unix redis+sentinel rediss+sentinel "
               "redis+cluster rediss+cluster",
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
            .restores = true,
            .token_is = "a counter that all names share, grown in the same script as the grant",
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
    .list = people_list,
    .show = people_show,
    .break_ = people_break,
    .push = &push,
    .detached = &detached,
    .admin = &admin,
};
