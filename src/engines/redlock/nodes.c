/* The nodes: the URL that names them, their connections, and what is said of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/vitals.h"
#include "engines/redlock/group.h"
#include "engines/redlock/redlock.h"

#define NODE_TIMEOUT_MS  1000
#define NODE_TIMEOUT_MAX 60000
#define WINDOW           512 /* requests that a node has to answer at once */
#define MESSAGE_MAX      (OWNER_LEN + PREFIX_MAX + STILE_NAME_MAX + 64)

/* ---- the URL ---- */

static uint16_t port_of(const struct url_host *host)
{
    return host->port ? host->port : PLACE_PORT;
}

/* The doctor tells of too few. */
static enum stile_status check_hosts(const struct url *url, bool examining, struct stile_error *err)
{
    if (url->n_hosts < (examining ? 1 : NODES_MIN) || url->n_hosts > NODES_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "redlock needs %d to %d independent nodes, not %zu: "
                         "redlock://host:port,host:port,host:port",
                         NODES_MIN, NODES_MAX, url->n_hosts);
    for (size_t i = 0; i < url->n_hosts; i++) {
        for (size_t k = 0; k < i; k++) {
            const struct url_host *a = &url->hosts[k], *b = &url->hosts[i];
            if (strcmp(a->host, b->host) == 0 && port_of(a) == port_of(b))
                return error_set(err, STILE_MISUSE, 0, "%s:%u is named twice", a->host, port_of(a));
        }
    }
    return STILE_OK;
}

static enum stile_status read_fence(struct redlock *redlock, const struct url *url,
                                    struct stile_error *err)
{
    redlock->fenced = true;
    return url_param_bool(&redlock->fenced, url, "fence", err);
}

enum stile_status nodes_read(struct redlock *redlock, const struct url *url,
                             struct stile_error *err)
{
    redlock->node_timeout_ms = NODE_TIMEOUT_MS;
    enum stile_status status = check_hosts(url, redlock->engine.examining, err);
    if (!status)
        status = read_fence(redlock, url, err);
    if (!status)
        status = place_prefix(redlock->prefix, url, err);
    if (!status)
        status = place_allow(url, err);
    if (!status)
        status = url_param_number(&redlock->node_timeout_ms, url, "node_timeout", 1,
                                  NODE_TIMEOUT_MAX, err);
    if (!status)
        status = place_tls(&redlock->tls, url, "redlocks", err);
    redlock->may_evict = url_param(url, "allow") != NULL;
    redlock->n = (unsigned)url->n_hosts;
    redlock->majority = redlock->n / 2 + 1;
    return status;
}

/* ---- connections ---- */

static void on_up(struct conn *conn)
{
    (void)conn;
}

/* It may have missed something. */
static void asks_up(struct conn *conn)
{
    struct node *node = conn_owner(conn);
    node->met = true;
    if (node->redlock->opened && !node->redlock->engine.examining)
        node_look_at(node); /* it may be another server than before */
    group_lead(node);
}

static void asks_down(struct conn *conn, const struct stile_error *why)
{
    node_failed(conn_owner(conn), why); /* and each request hears of it by itself */
}

static void hears_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = conn_owner(conn);
    (void)why;
    node->hearing = false;
}

static void hears_subscribed(struct conn *conn, const char *channel, size_t len)
{
    struct node *node = conn_owner(conn);
    (void)channel, (void)len;
    node->hearing = true;
    wait_look_again(node);
}

static void hears_message(struct conn *conn, const char *channel, size_t channel_len,
                          const char *bytes, size_t n)
{
    char text[MESSAGE_MAX + 1];
    (void)channel, (void)channel_len;
    if (n > MESSAGE_MAX)
        return;
    memcpy(text, bytes, n);
    text[n] = '\0';
    wait_hear(conn_owner(conn), text, n);
}

static const struct conn_events asks_events = {.up = asks_up, .down = asks_down};
static const struct conn_events hears_events = {
    .up = on_up, .down = hears_down, .subscribed = hears_subscribed, .message = hears_message};

static enum stile_status connect_to(struct redlock *redlock, struct conn_options *options,
                                    const struct url *url, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    char *flags = redlock->engine.examining ? vitals_flags(options, url) : NULL;
    for (unsigned i = 0; !status && i < redlock->n; i++) {
        struct node *node = &redlock->nodes[i];
        options->target.host = url->hosts[i].host;
        options->target.port = port_of(&url->hosts[i]);
        node->redlock = redlock;
        snprintf(node->where, sizeof node->where,
                 strchr(options->target.host, ':') ? "[%s]:%u" : "%s:%u", options->target.host,
                 options->target.port);
        if (flags)
            node->cli = vitals_cli(options, flags);
        status = conn_new(&node->asks, redlock->engine.loop, options, &asks_events, node, err);
    }
    free(flags);
    return status;
}

enum stile_status nodes_connect(struct redlock *redlock, const struct url *url,
                                struct stile_error *err)
{
    char secret[URL_SECRET_MAX];
    uint64_t timeout_ns = redlock->node_timeout_ms * NS_PER_MS;
    struct conn_options options = {.target.tls = redlock->tls,
                                   .target.timeout_ns = timeout_ns,
                                   .answer_ns = timeout_ns,
                                   .stakes = &redlock->stakes,
                                   .window = WINDOW,
                                   .user = url->user && *url->user ? url->user : NULL,
                                   .password = url->password};
    enum stile_status status = place_db(&options.db, url, err);
    if (!status)
        status = url_secret(&options.password, url, "password_file", secret, err);
    if (!status)
        status = connect_to(redlock, &options, url, err);
    explicit_bzero(secret, sizeof secret);
    return status;
}

void nodes_listen(struct redlock *redlock)
{
    for (unsigned i = 0; i < redlock->n; i++) {
        struct node *node = &redlock->nodes[i];
        if (node->hears || conn_new(&node->hears, redlock->engine.loop, conn_options(node->asks),
                                    &hears_events, node, NULL))
            continue;
        if (conn_subscribe(node->hears, redlock->channel, strlen(redlock->channel), NULL)) {
            conn_free(node->hears);
            node->hears = NULL;
        }
    }
}

void nodes_free(struct redlock *redlock)
{
    for (unsigned i = 0; i < redlock->n; i++) {
        struct node *node = &redlock->nodes[i];
        if (node->asks)
            conn_flush(node->asks); /* what is given back without anybody waiting for it */
        conn_free(node->hears);
        conn_free(node->asks);
        free(node->cli);
    }
    tls_context_free(redlock->tls);
}

/* ---- what is said of them ---- */

void node_failed(struct node *node, const struct stile_error *err)
{
    error_copy(&node->why, err);
    node->silent = true;
}

void node_answered(struct node *node)
{
    node->silent = false;
}

/* ---- whether they are fit to vote ---- */

/* The votes of one server under two addresses would be one memory's. */
static void compare_run_ids(struct node *node)
{
    struct redlock *redlock = node->redlock;
    for (unsigned i = 0; i < redlock->n && *node->run_id && !node->refusal.status; i++) {
        const struct node *other = &redlock->nodes[i];
        if (other != node && strcmp(other->run_id, node->run_id) == 0)
            error_set(&node->refusal, STILE_REFUSED, 0,
                      "%s and %s are the same server: a majority must be of independent nodes",
                      other->where, node->where);
    }
}

void node_take_info(struct node *node, const char *info)
{
    const char *id = info ? strstr(info, "\nrun_id:") : NULL;
    node->looked_at = true;
    node->refusal = (struct stile_error){0};
    node->run_id[0] = '\0';
    if (info)
        place_check(info, node->redlock->may_evict, &node->refusal);
    if (id)
        snprintf(node->run_id, sizeof node->run_id, "%.40s", id + strlen("\nrun_id:"));
    compare_run_ids(node);
}

static void on_looked(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node *node = data;
    bool voted = node_may_vote(node, NULL);
    node->looking = false;
    if (!reply)
        return; /* it is down again, and will be looked at when it comes up */
    node_take_info(node, !err && reply->type == REDIS_REPLY_STRING ? reply->str : NULL);
    if (!voted && node->hearing && node_may_vote(node, NULL))
        wait_look_again(node);
}

void node_look_at(struct node *node)
{
    struct conn_arg info[] = {CONN_TEXT("INFO")};
    if (!node->looking)
        node->looking = !conn_send(node->asks, info, 1, on_looked, node, NULL);
}

bool node_may_vote(struct node *node, struct stile_error *err)
{
    if (node->looked_at && !node->refusal.status)
        return true;
    if (err && node->refusal.status)
        error_copy(err, &node->refusal);
    else if (err && conn_is_up(node->asks))
        error_set(err, STILE_UNREACHABLE, 0, "has just come up, and is being looked at");
    else if (err)
        error_set(err, STILE_UNREACHABLE, 0, "%s",
                  node->why.status ? node->why.message : "no connection yet");
    return false;
}

static bool is_passing(const struct stile_error *err)
{
    return !err->status || err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
}

#define AND_SO_ON ", ..."

/* Each with its address once, and what is behind that; one that does not fit is left out. */
static size_t add_node(char *list, size_t size, size_t used, const struct node *node)
{
    const char *message = node->why.status ? node->why.message : "no answer";
    const char *named = strstr(message, node->where);
    size_t room = size - used;
    int n = snprintf(list + used, room, "%s%s%s%s", used ? ", " : "", named ? "" : node->where,
                     named ? "" : ": ", named ? named : message);
    if (n >= 0 && (size_t)n + sizeof AND_SO_ON <= room)
        return used + (size_t)n;
    snprintf(list + used, room, "%s", used ? AND_SO_ON : node->where);
    return size - 1;
}

/* If nobody is unreachable, but all who should answer refuse to, that is the answer. */
enum stile_status nodes_explain(struct redlock *redlock, unsigned answering,
                                struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    unsigned n = 0;
    size_t used = 0;
    char list[200] = "";
    for (unsigned i = 0; i < redlock->n; i++) {
        struct node *node = &redlock->nodes[i];
        if (answering & 1u << i) {
            n++;
            continue;
        }
        if (used < sizeof list - 1)
            used = add_node(list, sizeof list, used, node);
        if (is_passing(&node->why))
            status = STILE_UNREACHABLE;
        else if (!status)
            status = node->why.status;
    }
    return error_set(err, status ? status : STILE_UNREACHABLE, 0, "%u of %u nodes answer: %s", n,
                     redlock->n, list);
}
