/* Opening: reaching what the URL names, within a bounded time, and a first look at it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/cluster.h"
#include "engines/redis/fault.h"
#include "engines/redis/redis.h"
#include "engines/redis/sentinel.h"
#include "engines/redis/vitals.h"

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
    struct opening *opening = (struct opening *)((char *)timer - offsetof(struct opening, timer));
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
    if (!opening->over && node_send(&redis->home, info, 1, on_info, opening, &opening->error))
        opening->over = true;
    while (!opening->over)
        turn(opening);
    route_forget(redis, opening);
    bool for_the_doctor = redis->engine.examining && fault_is_denial(&opening->error);
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

/* A primary that can't be used yet may be replaced in a moment: only time ends that. */
static enum stile_status reach_primary(struct opening *opening, const struct url *url,
                                       struct stile_error *err)
{
    struct redis *redis = opening->redis;
    struct node *home = &redis->home;
    begin(opening, OPEN_PATIENCE_NS);
    enum stile_status status = sentinel_new(&redis->sentinel, redis, url, err);
    if (status)
        return status;
    while (!opening->over && !(home->asks && conn_is_up(home->asks))) {
        status = sentinel_gave_up(redis->sentinel, err);
        if (status)
            return status;
        turn(opening);
    }
    if (opening->over)
        return sentinel_explain(redis->sentinel, err);
    return ask_info(opening, err);
}

/* ---- a Cluster ---- */

static enum stile_status ask_seed(struct opening *opening, const char *host, uint16_t port,
                                  uint64_t patience_ns, struct stile_error *err)
{
    struct redis *redis = opening->redis;
    enum stile_status status = node_init(&redis->home, redis, host, port ? port : PLACE_PORT, err);
    if (status)
        return status;
    begin(opening, patience_ns);
    return ask_info(opening, err);
}

/* The nodes of the URL in turn. What one refuses, the others would, too. */
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
        node_close(&opening->redis->home);
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
    enum stile_status status = cluster_new(&redis->cluster, redis, err);
    while (!status && !cluster_is_loaded(redis->cluster)) {
        if (opening->over)
            return error_set(err, STILE_UNREACHABLE, 0, "the cluster does not answer");
        turn(opening);
        status = cluster_gave_up(redis->cluster, err);
    }
    return status;
}

static enum stile_status check_cluster(struct opening *opening, struct stile_error *err)
{
    if (place_says(opening->info, "cluster_enabled:1"))
        return read_table(opening, err);
    if (opening->redis->clustered)
        return error_set(err, STILE_REFUSED, 0,
                         "this server is not part of a Redis Cluster: use redis://");
    return STILE_OK;
}

/* ---- whatever it is ---- */

static bool keep(char **to, const char **option)
{
    *to = *option ? strdup(*option) : NULL;
    bool kept = *to || !*option;
    *option = *to;
    return kept;
}

/* What they point to was the URL's. */
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
        status = node_init(&redis->home, redis, host, o->target.port, err);
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

/* Whatever it is; of a Cluster without a table only the node that was named is looked at. */
static enum stile_status prepare_for_the_doctor(struct opening *opening, const struct url *url)
{
    struct redis *redis = opening->redis;
    redis->cli_flags = vitals_flags(conn_options(redis->home.asks), url);
    if (check_cluster(opening, NULL) != STILE_OK) {
        route_forget(redis, redis->cluster);
        cluster_free(redis->cluster);
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
        status = place_check(opening->info, url_param(url, "allow") != NULL, err);
    return status;
}

enum stile_status open_engine(struct redis *redis, const struct url *url, struct stile_error *err)
{
    struct opening opening = {.redis = redis, .timer.fn = out_of_patience};
    if (loop_reserve(redis->engine.loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    enum stile_status status = keep_options(redis, url, err);
    if (!status)
        status = reach(&opening, url, err);
    if (!status)
        status = describe_init(redis, err);
    loop_disarm(redis->engine.loop, &opening.timer);
    loop_unreserve(redis->engine.loop, 1);
    free(opening.info);
    return status;
}
