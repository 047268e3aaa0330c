/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes: the URL that names them, their connections and errors, keys and calls of scripts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/doctor_probe.h"
#include "engines/redlock/redlock.h"

#define NODE_TIMEOUT_MS  1000
#define NODE_TIMEOUT_MAX 60000
#define WINDOW           512 /* requests that a node has to answer at once */
#define MESSAGE_MAX      (OWNER_LEN + PREFIX_MAX + STILE_NAME_MAX + 64)

/* ---- the URL ---- */

static uint16_t port_of(const struct url_host *host)
{
    return host->port ? host->port : ADDRESS_PORT;
}

/* The doctor reports too few. */
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

enum stile_status redlock_nodes_read(struct redlock *redlock, const struct url *url,
                                     struct stile_error *err)
{
    redlock->node_timeout_ms = NODE_TIMEOUT_MS;
    enum stile_status status = check_hosts(url, redlock->engine.examining, err);
    if (!status)
        status = read_fence(redlock, url, err);
    if (!status)
        status = redis_address_prefix(redlock->prefix, url, err);
    if (!status)
        status = redis_address_allow(url, err);
    if (!status)
        status = url_param_number(&redlock->node_timeout_ms, url, "node_timeout", 1,
                                  NODE_TIMEOUT_MAX, err);
    if (!status)
        status = redis_address_tls(&redlock->tls, url, "redlocks", err);
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

static void requests_up(struct conn *conn)
{
    struct node *node = redis_conn_owner(conn);
    node->was_connected = true;
    if (node->redlock->opened && !node->redlock->engine.examining)
        redlock_node_check(node); /* it may be another server than before */
    node->redlock->node_events->connected(node);
}

static void requests_down(struct conn *conn, const struct stile_error *why)
{
    redlock_node_failed(redis_conn_owner(conn), why); /* each request gets the error as well */
}

static void pushes_down(struct conn *conn, const struct stile_error *why)
{
    struct node *node = redis_conn_owner(conn);
    (void)why;
    node->subscribed = false;
}

static void pushes_subscribed(struct conn *conn, const char *channel, size_t len)
{
    struct node *node = redis_conn_owner(conn);
    (void)channel, (void)len;
    node->subscribed = true;
    node->redlock->node_events->usable(node);
}

static void pushes_message(struct conn *conn, const char *channel, size_t channel_len,
                           const char *bytes, size_t n)
{
    struct node *node = redis_conn_owner(conn);
    char text[MESSAGE_MAX + 1];
    (void)channel, (void)channel_len;
    if (n > MESSAGE_MAX)
        return;
    memcpy(text, bytes, n);
    text[n] = '\0';
    node->redlock->node_events->message(node, text, n);
}

static const struct conn_events request_events = {.up = requests_up, .down = requests_down};
static const struct conn_events push_events = {
    .up = on_up, .down = pushes_down, .subscribed = pushes_subscribed, .message = pushes_message};

static enum stile_status connect_to(struct redlock *redlock, struct conn_options *options,
                                    const struct url *url, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    char *flags = redlock->engine.examining ? redis_probe_flags(options, url) : NULL;
    for (unsigned i = 0; !status && i < redlock->n; i++) {
        struct node *node = &redlock->nodes[i];
        options->target.host = url->hosts[i].host;
        options->target.port = port_of(&url->hosts[i]);
        node->redlock = redlock;
        snprintf(node->address, sizeof node->address,
                 strchr(options->target.host, ':') ? "[%s]:%u" : "%s:%u", options->target.host,
                 options->target.port);
        if (flags)
            node->cli = redis_probe_cli(options, flags);
        status = redis_conn_new(&node->requests, redlock->engine.loop, options, &request_events,
                                node, err);
    }
    free(flags);
    return status;
}

enum stile_status redlock_nodes_connect(struct redlock *redlock, const struct url *url,
                                        struct stile_error *err)
{
    char secret[URL_SECRET_MAX];
    uint64_t timeout_ns = redlock->node_timeout_ms * NS_PER_MS;
    struct conn_options options = {.target.tls = redlock->tls,
                                   .target.timeout_ns = timeout_ns,
                                   .answer_ns = timeout_ns,
                                   .leases = &redlock->leases,
                                   .window = WINDOW,
                                   .user = url->user && *url->user ? url->user : NULL,
                                   .password = url->password};
    enum stile_status status = redis_address_db(&options.db, url, err);
    if (!status)
        status = url_secret(&options.password, url, "password_file", secret, err);
    if (!status)
        status = connect_to(redlock, &options, url, err);
    explicit_bzero(secret, sizeof secret);
    return status;
}

void redlock_nodes_subscribe(struct redlock *redlock)
{
    for (unsigned i = 0; i < redlock->n; i++) {
        struct node *node = &redlock->nodes[i];
        if (node->pushes ||
            redis_conn_new(&node->pushes, redlock->engine.loop, redis_conn_options(node->requests),
                           &push_events, node, NULL))
            continue;
        if (redis_conn_subscribe(node->pushes, redlock->channel, strlen(redlock->channel), NULL)) {
            redis_conn_free(node->pushes);
            node->pushes = NULL;
        }
    }
}

void redlock_nodes_free(struct redlock *redlock)
{
    for (unsigned i = 0; i < redlock->n; i++) {
        struct node *node = &redlock->nodes[i];
        if (node->requests)
            redis_conn_flush(node->requests); /* releases that nothing waits for */
        redis_conn_free(node->pushes);
        redis_conn_free(node->requests);
        free(node->cli);
    }
    tls_context_free(redlock->tls);
}

/* ---- errors ---- */

void redlock_node_failed(struct node *node, const struct stile_error *err)
{
    error_copy(&node->error, err);
    node->silent = true;
}

void redlock_node_answered(struct node *node)
{
    node->silent = false;
}

/* ---- whether they are fit to vote ---- */

/* One server under two addresses would vote twice from one memory. */
static void compare_run_ids(struct node *node)
{
    struct redlock *redlock = node->redlock;
    for (unsigned i = 0; i < redlock->n && *node->run_id && !node->refusal.status; i++) {
        const struct node *other = &redlock->nodes[i];
        if (other != node && strcmp(other->run_id, node->run_id) == 0)
            error_set(&node->refusal, STILE_REFUSED, 0,
                      "%s and %s are the same server: a majority must be of independent nodes",
                      other->address, node->address);
    }
}

void redlock_node_take_info(struct node *node, const char *info)
{
    const char *id = info ? strstr(info, "\nrun_id:") : NULL;
    node->checked = true;
    node->refusal = (struct stile_error){0};
    node->run_id[0] = '\0';
    if (info)
        redis_address_check(info, node->redlock->may_evict, &node->refusal);
    if (id)
        snprintf(node->run_id, sizeof node->run_id, "%.40s", id + strlen("\nrun_id:"));
    compare_run_ids(node);
}

static void on_checked(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node *node = data;
    bool voted = redlock_node_may_vote(node, NULL);
    node->checking = false;
    if (!reply)
        return; /* down again: it is checked when it comes up */
    redlock_node_take_info(node, !err && reply->type == REDIS_REPLY_STRING ? reply->str : NULL);
    if (!voted && node->subscribed && redlock_node_may_vote(node, NULL))
        node->redlock->node_events->usable(node);
}

void redlock_node_check(struct node *node)
{
    struct conn_arg info[] = {CONN_TEXT("INFO")};
    if (!node->checking)
        node->checking = !redis_conn_send(node->requests, info, 1, on_checked, node, NULL);
}

bool redlock_node_may_vote(struct node *node, struct stile_error *err)
{
    if (node->checked && !node->refusal.status)
        return true;
    if (err && node->refusal.status)
        error_copy(err, &node->refusal);
    else if (err && redis_conn_is_up(node->requests))
        error_set(err, STILE_UNREACHABLE, 0, "has just come up, and is being checked");
    else if (err)
        error_set(err, STILE_UNREACHABLE, 0, "%s",
                  node->error.status ? node->error.message : "no connection yet");
    return false;
}

static bool is_passing(const struct stile_error *err)
{
    return !err->status || err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
}

#define AND_SO_ON ", ..."

/* Each node with its address once and its error; one that does not fit is left out. */
static size_t add_node(char *list, size_t size, size_t used, const struct node *node)
{
    const char *message = node->error.status ? node->error.message : "no answer";
    const char *named = strstr(message, node->address);
    size_t room = size - used;
    int n = snprintf(list + used, room, "%s%s%s%s", used ? ", " : "", named ? "" : node->address,
                     named ? "" : ": ", named ? named : message);
    if (n >= 0 && (size_t)n + sizeof AND_SO_ON <= room)
        return used + (size_t)n;
    snprintf(list + used, room, "%s", used ? AND_SO_ON : node->address);
    return size - 1;
}

/* If no node is unreachable, but all that should answer refuse to, that is the error. */
enum stile_status redlock_nodes_explain(struct redlock *redlock, unsigned answering,
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
        if (is_passing(&node->error))
            status = STILE_UNREACHABLE;
        else if (!status)
            status = node->error.status;
    }
    return error_set(err, status ? status : STILE_UNREACHABLE, 0, "%u of %u nodes answer: %s", n,
                     redlock->n, list);
}

/* ---- keys and scripts ---- */

/* No name or prefix contains the mark, so no lock's key is another lock's derived key. */
static const char *const suffixes[NAME_KEYS] = {"", KEY_MARK "fence", KEY_MARK "queue",
                                                BROKEN_SUFFIX, LAST_SUFFIX};

void redlock_keys_of(struct keys *keys, const struct redlock *redlock, const char *name, size_t len)
{
    redis_keys_of_name(keys->key, keys->room, suffixes, NAME_KEYS, redlock->prefix, name, len);
}

bool redlock_keys_are_reserved(const struct redlock *redlock, const char *name)
{
    size_t len = strlen(redlock->prefix);
    return strncmp(NODE_KEY, redlock->prefix, len) == 0 && strcmp(NODE_KEY + len, name) == 0;
}

/* Without fences, F and N are left out. */
void redlock_call_keys(struct call *call, const struct redlock *redlock, const struct keys *keys,
                       const char *which)
{
    call->n = 0;
    for (; *which; which++) {
        if (*which == 'K')
            call->args[call->n++] = keys->key[KEY];
        else if (*which == 'Q')
            call->args[call->n++] = keys->key[KEY_QUEUE];
        else if (*which == 'B')
            call->args[call->n++] = keys->key[KEY_BROKEN];
        else if (*which == 'L')
            call->args[call->n++] = keys->key[KEY_LAST];
        else if (*which == 'F' && redlock->fenced)
            call->args[call->n++] = keys->key[KEY_FENCE];
        else if (*which == 'N' && redlock->fenced)
            call->args[call->n++] = CONN_TEXT(NODE_KEY);
    }
    call->n_keys = call->n;
}

void redlock_call_add(struct call *call, const char *text)
{
    call->args[call->n++] = CONN_TEXT(text);
}

enum stile_status redlock_call_send(const struct call *call, struct node *node,
                                    const struct lua *script, conn_fn *fn, void *data,
                                    struct stile_error *err)
{
    return redis_conn_eval(node->requests, script, call->args, call->n_keys, call->n, fn, data,
                           err);
}
