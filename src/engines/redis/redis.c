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
 */
#include "engines/redis/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/url.h"
#include "io/tls.h"

#define DEFAULT_PORT     6379
#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)
#define SECRET_MAX       512

/* ---- who we are ---- */

static void write_command(char *out, size_t size, const char *label)
{
    char line[256] = "?";
    if (label) {
        snprintf(line, sizeof line, "%s", label);
    } else {
        int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        if (fd >= 0)
            close(fd);
        line[n > 0 ? n : 1] = '\0';
        for (ssize_t i = 0; i + 1 < n; i++)
            line[i] = line[i] ? line[i] : ' ';
    }
    for (char *c = line; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    snprintf(out, size, "%s", line);
}

static int introduce(struct redis *redis)
{
    unsigned char random[SESSION_LEN / 2];
    char host[65] = "?";
    int rc = loop_random(redis->engine.loop, random, sizeof random);
    strcpy(redis->channel, "stile:");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(redis->channel + 6 + 2 * i, 3, "%02x", random[i]);
    gethostname(host, sizeof host - 1);
    host[strcspn(host, " ")] = '\0';
    int n = snprintf(redis->info, sizeof redis->info, "%ld %s ", (long)getpid(), host);
    write_command(redis->info + n, sizeof redis->info - (size_t)n, redis->engine.label);
    return rc;
}

/* ---- the URL ---- */

static enum stile_status number_param(unsigned *out, const struct url *url, const char *key,
                                      unsigned max, struct stile_error *err)
{
    const char *text = url_param(url, key);
    char *end;
    if (!text)
        return STILE_OK;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (!*text || strspn(text, "0123456789") != strlen(text) || errno || value > max)
        return error_set(err, STILE_MISUSE, 0, "%s= must be a number up to %u", key, max);
    *out = (unsigned)value;
    return STILE_OK;
}

static enum stile_status read_db(struct redis *redis, const struct url *url,
                                 struct stile_error *err)
{
    const char *path = url->path;
    if (!*path || strcmp(path, "/") == 0)
        return STILE_OK;
    if (strlen(path) > 6 || strspn(path + 1, "0123456789") != strlen(path + 1))
        return error_set(err, STILE_MISUSE, 0, "the path of a redis URL is its database number");
    redis->options.db = (unsigned)strtoul(path + 1, NULL, 10);
    return STILE_OK;
}

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
        return number_param(&o->db, url, "db", 65535, err);
    }
    if (url->n_hosts > 1)
        return error_set(err, STILE_MISUSE, 0, "a redis URL names one server, not %zu",
                         url->n_hosts);
    o->target.host = url->n_hosts ? url->hosts[0].host : "127.0.0.1";
    o->target.port = url->n_hosts && url->hosts[0].port ? url->hosts[0].port : DEFAULT_PORT;
    return read_db(redis, url, err);
}

static enum stile_status read_tls(struct redis *redis, const struct url *url,
                                  struct stile_error *err)
{
    const struct tls_options tls = {.ca = url_param(url, "ca"),
                                    .cert = url_param(url, "cert"),
                                    .key = url_param(url, "key"),
                                    .server_name = url_param(url, "server_name"),
                                    .insecure = url_param(url, "insecure") != NULL};
    if (strcmp(url->scheme, "rediss") != 0) {
        if (tls.ca || tls.cert || tls.key || tls.server_name || tls.insecure)
            return error_set(err, STILE_MISUSE, 0, "TLS parameters need a rediss:// URL");
        return STILE_OK;
    }
    enum stile_status status = tls_context_new(&redis->tls, &tls, err);
    redis->options.target.tls = redis->tls;
    return status;
}

/* So that a password need not stand in a URL. */
static enum stile_status read_secret(struct redis *redis, const struct url *url,
                                     char secret[SECRET_MAX], struct stile_error *err)
{
    const char *path = url_param(url, "password_file");
    if (!path)
        return STILE_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, secret, SECRET_MAX - 1);
    int number = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return error_errno(err, STILE_REFUSED, number, "reading password_file");
    secret[n] = '\0';
    secret[strcspn(secret, "\r\n")] = '\0';
    redis->options.password = secret;
    return STILE_OK;
}

static enum stile_status read_rest(struct redis *redis, const struct url *url,
                                   struct stile_error *err)
{
    const char *prefix = url_param(url, "prefix");
    if (prefix && strlen(prefix) > PREFIX_MAX)
        return error_set(err, STILE_MISUSE, 0, "prefix= has more than %d bytes", PREFIX_MAX);
    strcpy(redis->prefix, prefix ? prefix : "lock:");
    redis->wait_ms = 1000;
    enum stile_status status = number_param(&redis->wait_replicas, url, "wait_replicas", 100, err);
    return status ? status : number_param(&redis->wait_ms, url, "wait_timeout", 60000, err);
}

/* ---- connections ---- */

static void asks_up(struct conn *conn)
{
    (void)conn;
}

static void asks_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn, (void)why; /* each request hears of it by itself */
}

static void hears_down(struct conn *conn, const struct stile_error *why)
{
    struct redis *redis = conn_owner(conn);
    (void)why;
    redis->hearing = false;
}

static void hears_subscribed(struct conn *conn, const char *channel, size_t len)
{
    struct redis *redis = conn_owner(conn);
    (void)channel, (void)len;
    redis->hearing = true;
    claims_look_again(redis);
}

static void hears_message(struct conn *conn, const char *channel, size_t channel_len,
                          const char *bytes, size_t n)
{
    char text[128];
    (void)channel, (void)channel_len;
    if (n >= sizeof text)
        return;
    memcpy(text, bytes, n);
    text[n] = '\0';
    claims_hear(conn_owner(conn), text, n);
}

static const struct conn_events asks_events = {.up = asks_up, .down = asks_down};
static const struct conn_events hears_events = {
    .up = asks_up, .down = hears_down, .subscribed = hears_subscribed, .message = hears_message};

enum stile_status redis_listen(struct redis *redis, struct stile_error *err)
{
    if (redis->hears)
        return STILE_OK;
    enum stile_status status = conn_new(&redis->hears, redis->engine.loop,
                                        conn_options(redis->asks), &hears_events, redis, err);
    if (!status)
        status = conn_subscribe(redis->hears, redis->channel, strlen(redis->channel), err);
    if (status) {
        conn_free(redis->hears);
        redis->hears = NULL;
    }
    return status;
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
    enum stile_status status = conn_send(redis->asks, info, 1, on_info, opening, err);
    while (!status && !opening->over) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    conn_forget(redis->asks, opening);
    loop_disarm(loop, &opening->timer);
    loop_unreserve(loop, 1);
    if (!status && opening->error.status)
        error_copy(err, &opening->error);
    return status ? status : opening->error.status;
}

static bool info_says(const char *info, const char *line)
{
    const char *at = info ? strstr(info, line) : NULL;
    return at && (at == info || at[-1] == '\n');
}

/* Where exclusion would be a lie. */
static enum stile_status check_server(const char *info, const struct url *url,
                                      struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    if (info_says(info, "role:slave"))
        return error_set(err, STILE_REFUSED, 0,
                         "this server is a replica, where nothing can be locked: connect to its "
                         "primary");
    bool evicts =
        !info_says(info, "maxmemory:0\r") && !info_says(info, "maxmemory_policy:noeviction");
    if (evicts && !(allow && strcmp(allow, "eviction") == 0))
        return error_set(err, STILE_REFUSED, 0,
                         "this server may evict locks when its memory is full: CONFIG SET "
                         "maxmemory-policy noeviction (or say allow=eviction)");
    return STILE_OK;
}

static void dispose(struct redis *redis)
{
    conn_free(redis->hears);
    conn_free(redis->asks);
    batches_free(redis);
    tls_context_free(redis->tls);
}

static enum stile_status connect_to(struct redis *redis, const struct url *url,
                                    struct stile_error *err)
{
    struct opening opening = {0};
    char secret[SECRET_MAX];
    enum stile_status status = read_secret(redis, url, secret, err);
    if (!status)
        status =
            conn_new(&redis->asks, redis->engine.loop, &redis->options, &asks_events, redis, err);
    explicit_bzero(secret, sizeof secret);
    redis->options = (struct conn_options){0}; /* its strings were the URL's */
    if (!status)
        status = ask_info(redis, &opening, err);
    if (!status)
        status = check_server(opening.info, url, err);
    free(opening.info);
    return status;
}

static enum stile_status redis_open(struct engine *engine, const struct url *url,
                                    struct stile_error *err)
{
    struct redis *redis = redis_of(engine);
    scripts_init(&redis->scripts);
    int rc = introduce(redis);
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
    conn_forked(redis_of(engine)->asks);
    conn_forked(redis_of(engine)->hears);
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
};
