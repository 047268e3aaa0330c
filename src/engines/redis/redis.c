/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* redis: the plain protocol that most clients use, with a token, a queue and messages.
 *
 * K = prefix + name holds the owner and the record of its grant, set if absent and with an expiry,
 * and is deleted only if it still holds that owner: so node-redlock, redis-py and a tutorial's
 * redis-cli on the same key exclude us and we them. What they don't use is kept beside it: a queue,
 * and the members of a shared lock. Tokens come from one counter that all names share, incremented
 * in the script of the grant.
 *
 * A release grants to the next waiter in the same step and notifies it by PUBLISH on its session's
 * channel; a waiter without a subscriber is dead and skipped. The next one has a second to
 * confirm, else its grant expires. Every waiter also looks by itself once a second, and when what
 * is in its way must have expired. Readers and slots are a sorted set by the time each ends; K then
 * has a mark, which excludes plain clients.
 *
 *     scripts/                        the steps, in Lua
 *     states.c, claims.c, release.c   the life of a claim
 *     renew.c, replicas.c             its renewals, its replicas
 *     connection.c, resp.c            one connection
 *     topology.c, sentinel.c          the servers, and which of them has a name
 *     keys.c, identity.c, address.c   keys, owner values, the URL
 *     inspect.c                       list, show, watch, break
 *     cells.c                         values with a version and a guard
 *     pace.c                          starts at a rate
 *     guard/, install.c               the guard for users' own data
 *     doctor_probe.c, doctor_rules.c  is this server fit for locks?
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/address.h"
#include "engines/redis/doctor_probe.h"
#include "engines/redis/errors.h"
#include "engines/redis/guard/texts.h"
#include "engines/redis/redis.h"
#include "engines/redis/sentinel.h"
#include "engines/redis/topology.h"

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

static enum stile_status read_url(struct redis *redis, const struct url *url,
                                  struct stile_error *err)
{
    enum stile_status status = read_target(redis, url, err);
    if (!status)
        status = read_tls(redis, url, err);
    if (!status)
        status = read_rest(redis, url, err);
    return status ? status : keep_options(redis, url, err);
}

/* ---- opening ----
 *
 * The server is sent INFO. Before that the Sentinels name it; after that a Cluster's table is read.
 * Replies, connections and the timer only record what has happened. The next step is taken from
 * the loop: it may close the connection that an event came from. */

#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)

static void look_soon(struct redis *redis)
{
    if (redis->opening.stage != OPENING_NOT)
        loop_soon(redis->engine.loop, &redis->opening.look);
}

static void out_of_patience(struct timer *timer)
{
    struct redis *redis = container_of(timer, struct redis, opening.patience);
    redis->opening.late = true;
    look_soon(redis);
}

static void begin_stage(struct redis *redis, enum opening_stage stage, uint64_t patience_ns)
{
    struct loop *loop = redis->engine.loop;
    redis->opening.stage = stage;
    redis->opening.late = false;
    loop_arm(loop, &redis->opening.patience, loop_now(loop) + patience_ns);
}

static void end_opening(struct redis *redis)
{
    struct loop *loop = redis->engine.loop;
    if (redis->opening.stage == OPENING_NOT)
        return;
    loop_disarm(loop, &redis->opening.patience);
    loop_unreserve(loop, 1);
    loop_forget(loop, &redis->opening.look);
    free(redis->opening.info);
    redis->opening = (struct redis_opening){0};
}

static void dispose(struct redis *redis)
{
    end_opening(redis);
    doctor_visits_drop(&redis->visits);
    redis_cells_close(redis);
    redis_identity_free(redis);
    redis_sentinel_free(redis->sentinel);
    redis_cluster_free(redis->cluster);
    redis_node_close(&redis->home);
    leased_renewals_free(&redis->claims);
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

/* The only way out: err NULL, the server can be used. */
static void finish(struct redis *redis, const struct stile_error *err)
{
    struct engine *engine = &redis->engine;
    struct stile_error why = {0};
    if (err)
        error_copy(&why, err);
    else
        redis_identity_init(redis, &why);
    end_opening(redis);
    if (why.status)
        dispose(redis);
    else
        engine->caps.condition = condition_of(redis);
    engine->events->opened(engine, why.status ? &why : NULL);
}

/* ---- a Cluster's table ---- */

/* Of a Cluster without a table the doctor examines the node that the URL names. */
static void give_up_table(struct redis *redis, const struct stile_error *why)
{
    if (!redis->engine.examining) {
        finish(redis, why);
        return;
    }
    if (redis->cluster)
        redis_route_forget(redis, redis->cluster);
    redis_cluster_free(redis->cluster);
    redis->cluster = NULL;
    finish(redis, NULL);
}

static void read_table(struct redis *redis)
{
    struct stile_error err;
    if (redis->options.db) {
        error_set(&err, STILE_MISUSE, 0,
                  "a Redis Cluster has database 0 only: leave the number out");
        give_up_table(redis, &err);
        return;
    }
    begin_stage(redis, OPENING_TABLE, OPEN_PATIENCE_NS);
    if (redis_cluster_new(&redis->cluster, redis, &err))
        give_up_table(redis, &err);
}

static void check_server(struct redis *redis)
{
    struct stile_error err = {0};
    bool may_evict = url_param(redis->opening.url, "allow") != NULL;
    if (!redis->engine.examining)
        redis_address_check(redis->opening.info, may_evict, &err);
    finish(redis, err.status ? &err : NULL);
}

static void look_for_table(struct redis *redis)
{
    struct stile_error err;
    if (redis_cluster_is_loaded(redis->cluster)) {
        check_server(redis);
    } else if (redis_cluster_gave_up(redis->cluster, &err)) {
        give_up_table(redis, &err);
    } else if (redis->opening.late) {
        error_set(&err, STILE_UNREACHABLE, 0, "the cluster does not answer");
        give_up_table(redis, &err);
    }
}

static void check_cluster(struct redis *redis)
{
    struct stile_error err;
    if (redis->engine.examining)
        redis->cli_flags =
            redis_probe_flags(redis_conn_options(redis->home.conn), redis->opening.url);
    if (redis_address_says(redis->opening.info, "cluster_enabled:1")) {
        read_table(redis);
    } else if (redis->clustered) {
        error_set(&err, STILE_REFUSED, 0,
                  "this server is not part of a Redis Cluster: use redis://");
        give_up_table(redis, &err);
    } else {
        check_server(redis);
    }
}

/* ---- one server ---- */

static void on_info(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_opening *opening = data;
    opening->answered = true;
    if (err)
        error_copy(&opening->error, err);
    else if (text_of(reply) && !(opening->info = strdup(text_of(reply))))
        error_set(&opening->error, STILE_NOMEM, 0, "out of memory");
    look_soon(container_of(opening, struct redis, opening));
}

static void ask_info(struct redis *redis)
{
    struct redis_opening *opening = &redis->opening;
    struct conn_arg info[] = {CONN_TEXT("INFO")};
    opening->error = (struct stile_error){0};
    opening->answered =
        redis_node_send(&redis->home, info, 1, on_info, opening, &opening->error) != STILE_OK;
    if (opening->answered)
        look_soon(redis);
}

/* The nodes of the URL in turn. */
static void ask_seed(struct redis *redis)
{
    const struct url *url = redis->opening.url;
    size_t n = url->n_hosts ? url->n_hosts : 1;
    const char *host = url->n_hosts ? url->hosts[redis->opening.seed].host : "127.0.0.1";
    uint16_t port = url->n_hosts ? url->hosts[redis->opening.seed].port : 0;
    struct stile_error err;
    begin_stage(redis, OPENING_INFO, OPEN_PATIENCE_NS / n);
    if (redis_node_init(&redis->home, redis, host, port ? port : ADDRESS_PORT, &err))
        finish(redis, &err);
    else
        ask_info(redis);
}

static void ask_next_seed(struct redis *redis)
{
    struct redis_opening *opening = &redis->opening;
    struct stile_error err;
    size_t used = strlen(opening->said);
    snprintf(opening->said + used, sizeof opening->said - used, "%s%.100s", used ? "; " : "",
             opening->error.message);
    redis_node_close(&redis->home);
    if (++opening->seed < opening->url->n_hosts) {
        ask_seed(redis);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, 0, "no node of the cluster answers: %s", opening->said);
    finish(redis, &err);
}

/* If one node of a Cluster refuses, the others would, too. */
static bool may_ask_another(const struct redis *redis)
{
    enum stile_status status = redis->opening.error.status;
    return redis->clustered && redis->opening.url->n_hosts > 1 &&
           (status == STILE_UNREACHABLE || status == STILE_UNCERTAIN);
}

static void look_for_info(struct redis *redis)
{
    struct redis_opening *opening = &redis->opening;
    if (!opening->answered && !opening->late)
        return;
    redis_route_forget(redis, opening);
    if (!opening->answered)
        error_set(&opening->error, STILE_UNREACHABLE, 0, "the server does not answer");
    bool for_the_doctor = redis->engine.examining && redis_error_is_denial(&opening->error);
    if (!opening->error.status || for_the_doctor)
        check_cluster(redis);
    else if (may_ask_another(redis))
        ask_next_seed(redis);
    else
        finish(redis, &opening->error);
}

/* ---- Sentinels ---- */

/* A primary that can't be used yet may be replaced in a moment: only the timeout ends the attempt.
 * It is the same for INFO. */
static void look_for_primary(struct redis *redis)
{
    const struct node *home = &redis->home;
    struct stile_error err;
    if (home->conn && redis_conn_is_up(home->conn)) {
        redis->opening.stage = OPENING_INFO;
        ask_info(redis);
    } else if (redis_sentinel_gave_up(redis->sentinel, &err)) {
        finish(redis, &err);
    } else if (redis->opening.late) {
        redis_sentinel_explain(redis->sentinel, &err);
        finish(redis, &err);
    }
}

static void ask_sentinels(struct redis *redis)
{
    struct stile_error err;
    begin_stage(redis, OPENING_PRIMARY, OPEN_PATIENCE_NS);
    if (redis_sentinel_new(&redis->sentinel, redis, redis->opening.url, &err))
        finish(redis, &err);
}

/* ---- any of them ---- */

static void look(struct task *task)
{
    static void (*const looks[])(struct redis *) = {
        [OPENING_PRIMARY] = look_for_primary,
        [OPENING_INFO] = look_for_info,
        [OPENING_TABLE] = look_for_table,
    };
    struct redis *redis = container_of(task, struct redis, opening.look);
    looks[redis->opening.stage](redis);
}

static void begin_opening(struct redis *redis, const struct url *url)
{
    redis->opening =
        (struct redis_opening){.url = url, .patience.fn = out_of_patience, .look.fn = look};
    if (redis->clustered) {
        ask_seed(redis);
    } else if (redis->options.primary) {
        ask_sentinels(redis);
    } else {
        begin_stage(redis, OPENING_INFO, OPEN_PATIENCE_NS);
        ask_info(redis);
    }
}

/* ---- the engine ---- */

static void node_up(struct node *node)
{
    redis_claims_request_again(node);
    look_soon(node->redis);
}

static void node_down(struct node *node, const struct stile_error *why)
{
    redis_route_down(node, why);
    look_soon(node->redis);
}

static void names_moved(struct redis *redis)
{
    redis_claims_follow(redis);
    look_soon(redis);
}

static void connect_to_primary(struct node *home)
{
    redis_node_connect(home, NULL);
}

static const struct node_events node_events = {
    .up = node_up,
    .subscribed = redis_claims_look_again,
    .message = redis_claims_message,
    .down = node_down,
    .answers = redis_route_answers,
    .moved = names_moved,
    .gave_up = look_soon,
    .named = connect_to_primary,
};

static void redis_open(struct engine *engine, const struct url *url)
{
    struct redis *redis = redis_of(engine);
    struct stile_error err = {0};
    redis->node_events = &node_events;
    int rc = redis_identity_new(redis->channel, redis->info, engine);
    if (rc)
        error_errno(&err, STILE_REFUSED, rc, "drawing a session id");
    else if (!read_url(redis, url, &err) && loop_reserve(engine->loop, 1))
        error_set(&err, STILE_NOMEM, 0, "out of memory");
    if (err.status)
        finish(redis, &err);
    else
        begin_opening(redis, url);
}

static void redis_close(struct engine *engine)
{
    dispose(redis_of(engine));
}

static void redis_forked(struct engine *engine)
{
    redis_route_forked(redis_of(engine));
    doctor_visits_forked(redis_of(engine)->visits);
}

extern const struct engine_class redis_class;

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

static const struct engine_detached detached = {
    .resume = redis_claims_resume,
    .detach = redis_claims_detach,
    .owner = redis_claims_owner,
};

static enum stile_status install_guard(const struct url *url, bool dry_run, const char **script,
                                       struct stile_error *err)
{
    *script = redis_guard_library.source;
    return dry_run ? STILE_OK : redis_install(&redis_class, url, err);
}

static const struct engine_admin admin = {
    .install_guard = install_guard,
    .examine = redis_doctor_examine,
};

static const struct engine_history history = {
    .record = redis_inspect_record,
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
            .cells = true,
            .clock = true,
            .keeps = true,
            .paces = true,
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
    .in_flight = 4096, /* more would find no room on a connection if their names are long */
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
    .cancel = redis_inspect_cancel,
    .detached = &detached,
    .cells = &redis_cells,
    .admin = &admin,
    .history = &history,
};
