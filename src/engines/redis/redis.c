/* redis: the plain protocol that most clients use, with a token, a queue and messages.
 *
 * K = prefix + name holds the owner, set if absent and with an expiry, and is deleted only if it
 * still holds it: so node-redlock, redis-py and a tutorial's redis-cli on the same
 * key exclude us and we them. What they don't use is kept beside it: a queue, and a record of each
 * claim. Tokens come from one counter that all names share, incremented in the script of the grant.
 *
 * A release grants to the next waiter in the same step and notifies it by PUBLISH on its session's
 * channel; a waiter without a subscriber is dead and skipped. The next one has a second to
 * confirm, else its grant expires. Every waiter also looks by itself once a second, and when what
 * is in its way must have expired. Readers and slots are a sorted set by the time each ends; K then
 * has a mark, which excludes plain clients.
 *
 *     scripts/                        the steps, in Lua
 *     claims.c, renew.c, replicas.c   the life of a claim
 *     connection.c, resp.c, node.c    one connection, one server
 *     route.c, sentinel.c, cluster.c  which server has a name
 *     keys.c, identity.c, address.c   keys, owner values, the URL
 *     inspect.c                       list, show, watch, break
 *     doctor_probe.c, doctor_rules.c  is this server fit for locks?
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/address.h"
#include "engines/redis/cluster.h"
#include "engines/redis/doctor_probe.h"
#include "engines/redis/errors.h"
#include "engines/redis/redis.h"
#include "engines/redis/sentinel.h"

/* ---- opening ---- */

#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)

struct opening {
    struct redis *redis;
    struct timer timer;
    bool over;
    struct stile_error error;
    char *info;
};

/* ---- waiting ---- */

static void out_of_patience(struct timer *timer)
{
    struct opening *opening = container_of(timer, struct opening, timer);
    error_set(&opening->error, STILE_UNREACHABLE, 0, "the server does not answer");
    opening->over = true;
}

static void turn(struct opening *opening)
{
    struct loop *loop = opening->redis->engine.loop;
    loop_prepare(loop);
    loop_wait(loop, true);
    loop_run(loop);
}

static void begin(struct opening *opening, uint64_t patience_ns)
{
    struct loop *loop = opening->redis->engine.loop;
    opening->over = false;
    opening->error.status = STILE_OK;
    loop_arm(loop, &opening->timer, loop_now(loop) + patience_ns);
}

/* ---- one server ---- */

static void on_info(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct opening *opening = data;
    opening->over = true;
    if (err)
        error_copy(&opening->error, err);
    else if (text_of(reply))
        opening->info = strdup(text_of(reply));
}

static enum stile_status ask_info(struct opening *opening, struct stile_error *err)
{
    struct redis *redis = opening->redis;
    struct conn_arg info[] = {CONN_TEXT("INFO")};
    if (!opening->over && redis_node_send(&redis->home, info, 1, on_info, opening, &opening->error))
        opening->over = true;
    while (!opening->over)
        turn(opening);
    redis_route_forget(redis, opening);
    bool for_the_doctor = redis->engine.examining && redis_error_is_denial(&opening->error);
    if (!opening->error.status || for_the_doctor)
        return STILE_OK;
    error_copy(err, &opening->error);
    return opening->error.status;
}

static enum stile_status reach_server(struct opening *opening, struct stile_error *err)
{
    begin(opening, OPEN_PATIENCE_NS);
    return ask_info(opening, err);
}

/* ---- Sentinels ---- */

/* A primary that can't be used yet may be replaced in a moment: only the timeout ends the attempt.
 */
static enum stile_status reach_primary(struct opening *opening, const struct url *url,
                                       struct stile_error *err)
{
    struct redis *redis = opening->redis;
    struct node *home = &redis->home;
    begin(opening, OPEN_PATIENCE_NS);
    enum stile_status status = redis_sentinel_new(&redis->sentinel, redis, url, err);
    if (status)
        return status;
    while (!opening->over && !(home->conn && redis_conn_is_up(home->conn))) {
        status = redis_sentinel_gave_up(redis->sentinel, err);
        if (status)
            return status;
        turn(opening);
    }
    if (opening->over)
        return redis_sentinel_explain(redis->sentinel, err);
    return ask_info(opening, err);
}

/* ---- a Cluster ---- */

static enum stile_status ask_seed(struct opening *opening, const char *host, uint16_t port,
                                  uint64_t patience_ns, struct stile_error *err)
{
    struct redis *redis = opening->redis;
    enum stile_status status =
        redis_node_init(&redis->home, redis, host, port ? port : ADDRESS_PORT, err);
    if (status)
        return status;
    begin(opening, patience_ns);
    return ask_info(opening, err);
}

/* The nodes of the URL in turn. If one refuses, the others would, too. */
static enum stile_status reach_seed(struct opening *opening, const struct url *url,
                                    struct stile_error *err)
{
    size_t n = url->n_hosts;
    char said[160] = "";
    if (n < 2)
        return ask_seed(opening, n ? url->hosts[0].host : "127.0.0.1", n ? url->hosts[0].port : 0,
                        OPEN_PATIENCE_NS, err);
    for (size_t i = 0; i < n; i++) {
        struct stile_error why;
        enum stile_status status =
            ask_seed(opening, url->hosts[i].host, url->hosts[i].port, OPEN_PATIENCE_NS / n, &why);
        if (status != STILE_UNREACHABLE && status != STILE_UNCERTAIN) {
            error_copy(err, &why);
            return status;
        }
        size_t used = strlen(said);
        snprintf(said + used, sizeof said - used, "%s%.100s", used ? "; " : "", why.message);
        redis_node_close(&opening->redis->home);
    }
    return error_set(err, STILE_UNREACHABLE, 0, "no node of the cluster answers: %s", said);
}

static enum stile_status read_table(struct opening *opening, struct stile_error *err)
{
    struct redis *redis = opening->redis;
    if (redis->options.db)
        return error_set(err, STILE_MISUSE, 0,
                         "a Redis Cluster has database 0 only: leave the number out");
    begin(opening, OPEN_PATIENCE_NS);
    enum stile_status status = redis_cluster_new(&redis->cluster, redis, err);
    while (!status && !redis_cluster_is_loaded(redis->cluster)) {
        if (opening->over)
            return error_set(err, STILE_UNREACHABLE, 0, "the cluster does not answer");
        turn(opening);
        status = redis_cluster_gave_up(redis->cluster, err);
    }
    return status;
}

static enum stile_status check_cluster(struct opening *opening, struct stile_error *err)
{
    if (redis_address_says(opening->info, "cluster_enabled:1"))
        return read_table(opening, err);
    if (opening->redis->clustered)
        return error_set(err, STILE_REFUSED, 0,
                         "this server is not part of a Redis Cluster: use redis://");
    return STILE_OK;
}

/* ---- any of them ---- */

static bool keep(char **to, const char **option)
{
    *to = *option ? strdup(*option) : NULL;
    bool kept = *to || !*option;
    *option = *to;
    return kept;
}

/* The strings of the URL do not outlive it. */
static enum stile_status keep_options(struct redis *redis, const struct url *url,
                                      struct stile_error *err)
{
    struct conn_options *o = &redis->options;
    const char *host = o->target.host;
    char secret[URL_SECRET_MAX];
    enum stile_status status = url_secret(&o->password, url, "password_file", secret, err);
    bool kept = keep(&redis->user, &o->user) & keep(&redis->password, &o->password) &
                keep(&redis->path, &o->target.path);
    explicit_bzero(secret, sizeof secret);
    o->target.host = NULL;
    if (!status && !kept)
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    if (!status && !redis->clustered)
        status = redis_node_init(&redis->home, redis, host, o->target.port, err);
    return status;
}

static enum stile_status reach_one(struct opening *opening, const struct url *url,
                                   struct stile_error *err)
{
    if (opening->redis->clustered)
        return reach_seed(opening, url, err);
    if (opening->redis->options.primary)
        return reach_primary(opening, url, err);
    return reach_server(opening, err);
}

/* Any server is examined; of a Cluster without a table only the node that the URL names. */
static enum stile_status prepare_for_the_doctor(struct opening *opening, const struct url *url)
{
    struct redis *redis = opening->redis;
    redis->cli_flags = redis_probe_flags(redis_conn_options(redis->home.conn), url);
    if (check_cluster(opening, NULL) != STILE_OK) {
        redis_route_forget(redis, redis->cluster);
        redis_cluster_free(redis->cluster);
        redis->cluster = NULL;
    }
    return STILE_OK;
}

static enum stile_status reach(struct opening *opening, const struct url *url,
                               struct stile_error *err)
{
    struct redis *redis = opening->redis;
    enum stile_status status = reach_one(opening, url, err);
    if (!status && redis->engine.examining)
        return prepare_for_the_doctor(opening, url);
    if (!status)
        status = check_cluster(opening, err);
    if (!status)
        status = redis_address_check(opening->info, url_param(url, "allow") != NULL, err);
    return status;
}

static enum stile_status reach_and_check(struct redis *redis, const struct url *url,
                                         struct stile_error *err)
{
    struct opening opening = {.redis = redis, .timer.fn = out_of_patience};
    if (loop_reserve(redis->engine.loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    enum stile_status status = keep_options(redis, url, err);
    if (!status)
        status = reach(&opening, url, err);
    if (!status)
        status = redis_identity_init(redis, err);
    loop_disarm(redis->engine.loop, &opening.timer);
    loop_unreserve(redis->engine.loop, 1);
    free(opening.info);
    return status;
}

/* A claim may have to wait twice as long (replicas.c) while its lease runs. */
#define WAIT_MAX_MS 2500

/* By default redis-py polls every 100 ms, node-redlock every 200 ms. If a client releases and takes
 * again at once, the key is free for some 100 us at a time. */
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
    o->leases = &redis->leases;
    o->user = url->user && *url->user ? url->user : NULL;
    o->password = url->password;
    if (strcmp(url->scheme, "redis+unix") == 0) {
        if (url->n_hosts || !*url->path)
            return error_set(err, STILE_MISUSE, 0, "write redis+unix:///path/of/the/socket");
        o->target.path = url->path;
        return redis_address_db_param(&o->db, url, err);
    }
    if (is_scheme(url, "sentinel")) {
        o->primary = true;
        return redis_address_db_param(&o->db, url, err);
    }
    if (is_scheme(url, "cluster")) {
        redis->clustered = true;
        return redis_address_db(&o->db, url, err);
    }
    if (url->n_hosts > 1)
        return error_set(err, STILE_MISUSE, 0, "a redis URL names one server, not %zu",
                         url->n_hosts);
    o->target.host = url->n_hosts ? url->hosts[0].host : "127.0.0.1";
    o->target.port = url->n_hosts && url->hosts[0].port ? url->hosts[0].port : ADDRESS_PORT;
    return redis_address_db(&o->db, url, err);
}

static enum stile_status read_tls(struct redis *redis, const struct url *url,
                                  struct stile_error *err)
{
    bool secure = strncmp(url->scheme, "rediss", 6) == 0;
    enum stile_status status =
        redis_address_tls(&redis->tls, url, secure ? url->scheme : "rediss", err);
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
    enum stile_status status = redis_address_prefix(redis->prefix, url, err);
    if (!status)
        status = redis_address_allow(url, err);
    if (!status)
        status = url_param_number(&redis->wait_replicas, url, "wait_replicas", 0, 100, err);
    if (!status)
        status = url_param_number(&redis->wait_ms, url, "wait_timeout", 0, WAIT_MAX_MS, err);
    return status ? status : url_param_number(&redis->poll_ms, url, "poll", 0, POLL_MAX_MS, err);
}

/* ---- the engine ---- */

static void dispose(struct redis *redis)
{
    redis_identity_free(redis);
    redis_sentinel_free(redis->sentinel);
    redis_cluster_free(redis->cluster);
    redis_node_close(&redis->home);
    redis_batches_free(redis);
    tls_context_free(redis->tls);
    free(redis->cli_flags);
    if (redis->password)
        explicit_bzero(redis->password, strlen(redis->password));
    free(redis->password);
    free(redis->user);
    free(redis->path);
}

/* The default of the class is for one server. */
static const char *condition_of(const struct redis *redis)
{
    if (redis->cluster)
        return "each name on one node of the Cluster, where a failover may forget a lock or repeat "
               "a token (wait_replicas=N makes that rarer); while its slot moves, a name can't be "
               "locked, and waiters may lose their place";
    if (redis->sentinel)
        return "the primary that the Sentinels name: a failover may forget a lock or repeat a "
               "token (wait_replicas=N makes that rarer)";
    return redis->engine.caps.condition;
}

static const struct node_events node_events = {
    .up = redis_claims_request_again,
    .subscribed = redis_claims_look_again,
    .message = redis_claims_message,
    .down = redis_route_down,
    .answers = redis_route_answers,
    .moved = redis_claims_follow,
};

static enum stile_status open_now(struct engine *engine, const struct url *url,
                                  struct stile_error *err)
{
    struct redis *redis = redis_of(engine);
    redis->node_events = &node_events;
    int rc = redis_identity_new(redis->channel, redis->info, engine);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "drawing a session id");
    enum stile_status status = read_target(redis, url, err);
    if (!status)
        status = read_tls(redis, url, err);
    if (!status)
        status = read_rest(redis, url, err);
    if (!status)
        status = reach_and_check(redis, url, err);
    if (status)
        dispose(redis);
    else
        engine->caps.condition = condition_of(redis);
    return status;
}

static void redis_open(struct engine *engine, const struct url *url)
{
    struct stile_error err;
    enum stile_status status = open_now(engine, url, &err);
    engine->events->opened(engine, status ? &err : NULL);
}

static void redis_close(struct engine *engine)
{
    dispose(redis_of(engine));
}

static void redis_forked(struct engine *engine)
{
    redis_route_forked(redis_of(engine));
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
    .watch = redis_inspect_watch,
    .unwatch = redis_inspect_unwatch,
};

static const struct engine_detached detached = {
    .resume = redis_claims_resume,
    .detach = redis_claims_detach,
    .owner = redis_claims_owner,
};

static const struct engine_admin admin = {
    .examine = redis_doctor_examine,
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
            .token_is =
                "a counter that all names share, incremented in the same script as the grant",
            .survives =
                "a holder's crash: free after its TTL; a server's crash: whatever it had on "
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
    .claim = redis_claims_claim,
    .release = redis_claims_release,
    .renew = redis_claims_renew,
    .list = redis_inspect_list,
    .show = redis_inspect_show,
    .break_ = redis_inspect_break,
    .push = &push,
    .detached = &detached,
    .admin = &admin,
};
