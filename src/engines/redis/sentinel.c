/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/redis/sentinel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/address.h"
#include "engines/redis/errors.h"
#include "engines/redis/redis.h"

#define ASK_ALL_NS  (4 * NS_PER_SEC) /* shared by all of them */
#define ASK_MAX_NS  (1 * NS_PER_SEC)
#define ASK_REST_NS (100 * NS_PER_MS) /* between two rounds */
#define SWITCHED    "+switch-master"

struct address {
    char *host;
    uint16_t port;
};

struct sentinel {
    struct redis *redis;
    struct conn_options options;
    char *primary, *user, *password;
    struct address addresses[URL_HOSTS_MAX];
    size_t n, at;      /* at: the Sentinel that is asked, or last answered */
    size_t tried;      /* in this round */
    struct conn *conn; /* NULL: none is asked */
    struct conn *pubsub;
    size_t pubsub_at;
    struct timer again;
    uint64_t began_ns;
    bool gave_up;
    char said[160];         /* the answers of this round */
    struct stile_error why; /* why the primary can't be used */
};

static void ask_one(struct sentinel *s);

/* ---- the primary ---- */

static enum stile_status move_to(struct node *home, const char *host, uint16_t port)
{
    struct stile_error why;
    char *copy = strdup(host);
    error_set(&why, STILE_UNREACHABLE, 0, "the primary has moved to %s:%u", host, port);
    /* The node last: one that has the new address is not moved again. */
    if (!copy || (home->conn && redis_conn_move(home->conn, host, port, &why, NULL)) ||
        (home->pubsub && redis_conn_move(home->pubsub, host, port, &why, NULL))) {
        free(copy);
        return STILE_NOMEM;
    }
    free(home->host);
    home->options.target.host = home->host = copy;
    home->options.target.port = port;
    return STILE_OK;
}

/* NULL, or why that does not help. If the address is the present one, nothing moves: its connection
 * retries by itself. */
static const char *named(struct sentinel *s, const char *host, const char *digits)
{
    struct node *home = &s->redis->home;
    unsigned port;
    if (!url_read_number(&port, digits, UINT16_MAX) || !port)
        return "does not know this primary";
    bool same = home->host && strcmp(home->host, host) == 0 && home->options.target.port == port;
    s->gave_up = false;
    bool moved = same || !move_to(home, host, (uint16_t)port);
    if (moved && !home->conn)
        s->redis->node_events->named(home);
    return home->conn && moved ? NULL : "named the primary, but there is no memory";
}

/* ---- asking ---- */

static void say(struct sentinel *s, const char *what)
{
    size_t used = strlen(s->said);
    snprintf(s->said + used, sizeof s->said - used, "%s%s", used ? "; " : "", what);
}

static void say_of(struct sentinel *s, const char *what)
{
    char text[120];
    snprintf(text, sizeof text, "%.60s:%u %s", s->addresses[s->at].host, s->addresses[s->at].port,
             what);
    say(s, text);
}

static void give_up(struct sentinel *s)
{
    s->gave_up = true;
    s->redis->node_events->gave_up(s->redis);
}

static void ask_next(struct sentinel *s)
{
    s->at = (s->at + 1) % s->n;
    if (++s->tried < s->n)
        ask_one(s);
    else
        give_up(s);
}

static bool is_address(const redisReply *reply)
{
    const char *host = text_at(reply, 0);
    return host && *host && text_at(reply, 1);
}

static void on_named(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct sentinel *s = data;
    const char *why = "does not know this primary";
    redis_conn_free(s->conn);
    s->conn = NULL;
    if (!err && is_address(reply))
        why = named(s, text_at(reply, 0), text_at(reply, 1));
    if (!why)
        return;
    if (err)
        say(s, err->message);
    else
        say_of(s, why);
    ask_next(s);
}

static void is_up(struct conn *conn)
{
    (void)conn;
}

static void is_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn, (void)why; /* the request is answered with it */
}

static void ask_one(struct sentinel *s)
{
    static const struct conn_events events = {.up = is_up, .down = is_down};
    struct conn_arg args[] = {CONN_TEXT("SENTINEL"), CONN_TEXT("get-master-addr-by-name"),
                              CONN_TEXT(s->primary)};
    struct stile_error err;
    s->options.target.host = s->addresses[s->at].host;
    s->options.target.port = s->addresses[s->at].port;
    if (!redis_conn_new(&s->conn, s->redis->engine.loop, &s->options, &events, s, &err) &&
        !redis_conn_send(s->conn, args, 3, on_named, s, &err))
        return;
    redis_conn_free(s->conn);
    s->conn = NULL;
    say_of(s, err.message);
    give_up(s);
}

static void begin(struct sentinel *s)
{
    s->began_ns = loop_now(s->redis->engine.loop);
    s->tried = 0;
    s->said[0] = '\0';
    ask_one(s);
}

/* With a pause between rounds, whatever they answer. */
static void seek(struct sentinel *s)
{
    struct loop *loop = s->redis->engine.loop;
    if (!s->conn && !s->again.place) {
        uint64_t now_ns = loop_now(loop), next_ns = s->began_ns + ASK_REST_NS;
        loop_arm(loop, &s->again, now_ns > next_ns ? now_ns : next_ns);
    }
}

static void seek_now(struct timer *timer)
{
    begin(container_of(timer, struct sentinel, again));
}

/* Another Sentinel is asked next: the one that named the failed primary may be outdated. */
void redis_sentinel_down(struct sentinel *s, const struct stile_error *why)
{
    s->why = *why;
    if (!s->conn && !s->again.place)
        s->at = (s->at + 1) % s->n;
    seek(s);
}

/* ---- messages ---- */

static void pubsub_down(struct conn *conn, const struct stile_error *why)
{
    struct sentinel *s = redis_conn_owner(conn);
    (void)why;
    s->pubsub_at = (s->pubsub_at + 1) % s->n;
    redis_conn_move(conn, s->addresses[s->pubsub_at].host, s->addresses[s->pubsub_at].port, NULL,
                    NULL);
}

/* Earlier messages were missed: ask. */
static void pubsub_subscribed(struct conn *conn, const char *channel, size_t len)
{
    (void)channel, (void)len;
    seek(redis_conn_owner(conn));
}

/* "name old-host old-port new-host new-port" */
static void pubsub_message(struct conn *conn, const char *channel, size_t channel_len,
                           const char *bytes, size_t n)
{
    struct sentinel *s = redis_conn_owner(conn);
    char text[512], *rest = text, *words[5];
    (void)channel, (void)channel_len;
    if (n >= sizeof text)
        return;
    memcpy(text, bytes, n);
    text[n] = '\0';
    for (size_t i = 0; i < 5; i++)
        words[i] = strsep(&rest, " ");
    if (words[4] && strcmp(words[0], s->primary) == 0 && named(s, words[3], words[4]))
        seek(s);
}

void redis_sentinel_listen(struct sentinel *s)
{
    static const struct conn_events events = {.up = is_up,
                                              .down = pubsub_down,
                                              .subscribed = pubsub_subscribed,
                                              .message = pubsub_message};
    if (s->pubsub)
        return;
    s->pubsub_at = s->at;
    s->options.target.host = s->addresses[s->at].host;
    s->options.target.port = s->addresses[s->at].port;
    if (!redis_conn_new(&s->pubsub, s->redis->engine.loop, &s->options, &events, s, NULL) &&
        !redis_conn_subscribe(s->pubsub, SWITCHED, strlen(SWITCHED), NULL))
        return;
    redis_conn_free(s->pubsub);
    s->pubsub = NULL;
}

/* ---- opening ---- */

enum stile_status redis_sentinel_explain(const struct sentinel *s, struct stile_error *err)
{
    const struct node *home = &s->redis->home;
    enum stile_status status = s->why.status == STILE_REFUSED ? STILE_REFUSED : STILE_UNREACHABLE;
    if (!home->host)
        return error_set(err, STILE_UNREACHABLE, 0, "the Sentinels of '%.40s' do not answer%s%s",
                         s->primary, *s->said ? ": " : "", s->said);
    return error_set(err, status, s->why.native,
                     "the Sentinels name %.60s:%u the primary of '%.40s', but: %s", home->host,
                     home->options.target.port, s->primary,
                     s->why.status ? s->why.message : "it does not answer");
}

enum stile_status redis_sentinel_gave_up(const struct sentinel *s, struct stile_error *err)
{
    if (s->why.status == STILE_REFUSED)
        return redis_sentinel_explain(s, err);
    if (!s->gave_up)
        return STILE_OK;
    return error_set(err, STILE_UNREACHABLE, 0, "no Sentinel names the primary of '%.40s': %s",
                     s->primary, s->said);
}

static bool keep_addresses(struct sentinel *s, const struct url *url)
{
    for (size_t i = 0; i < url->n_hosts; i++, s->n++) {
        s->addresses[i].host = strdup(url->hosts[i].host);
        s->addresses[i].port = url->hosts[i].port ? url->hosts[i].port : SENTINEL_PORT;
        if (!s->addresses[i].host)
            return false;
    }
    return true;
}

static enum stile_status keep_credentials(struct sentinel *s, const struct url *url,
                                          struct stile_error *err)
{
    const char *user = url_param(url, "sentinel_user"), *password = NULL;
    char secret[URL_SECRET_MAX];
    enum stile_status status = url_secret(&password, url, "sentinel_password_file", secret, err);
    s->user = user ? strdup(user) : NULL;
    s->password = password ? strdup(password) : NULL;
    explicit_bzero(secret, sizeof secret);
    s->options.user = s->user;
    s->options.password = s->password;
    if (!status && ((user && !s->user) || (password && !s->password)))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (!status && user && !password)
        return error_set(err, STILE_MISUSE, 0, "sentinel_user= needs sentinel_password_file=");
    return status;
}

static enum stile_status read_url(struct sentinel *s, const struct url *url,
                                  struct stile_error *err)
{
    uint64_t share_ns = ASK_ALL_NS / (url->n_hosts ? url->n_hosts : 1);
    if (!url->n_hosts || strlen(url->path) < 2 || strchr(url->path + 1, '/'))
        return error_set(err, STILE_MISUSE, 0,
                         "write redis+sentinel://host,host,host/NAME, with "
                         "the name that the Sentinels have for the primary");
    s->options.target.tls = s->redis->tls;
    s->options.answer_ns = share_ns < ASK_MAX_NS ? share_ns : ASK_MAX_NS;
    s->options.target.timeout_ns = s->options.answer_ns;
    s->primary = strdup(url->path + 1);
    if (!s->primary || !keep_addresses(s, url))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    return keep_credentials(s, url, err);
}

enum stile_status redis_sentinel_new(struct sentinel **out, struct redis *redis,
                                     const struct url *url, struct stile_error *err)
{
    struct sentinel *s = calloc(1, sizeof *s);
    if (!s || loop_reserve(redis->engine.loop, 1)) {
        free(s);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *out = s;
    s->redis = redis;
    s->again.fn = seek_now;
    enum stile_status status = read_url(s, url, err);
    if (!status)
        begin(s);
    return status;
}

void redis_sentinel_free(struct sentinel *s)
{
    if (!s)
        return;
    redis_conn_free(s->conn);
    redis_conn_free(s->pubsub);
    loop_disarm(s->redis->engine.loop, &s->again);
    loop_unreserve(s->redis->engine.loop, 1);
    for (size_t i = 0; i < URL_HOSTS_MAX; i++)
        free(s->addresses[i].host);
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    free(s->password);
    free(s->user);
    free(s->primary);
    free(s);
}

void redis_sentinel_forked(struct sentinel *s)
{
    if (!s)
        return;
    redis_conn_forked(s->conn);
    redis_conn_forked(s->pubsub);
}
