/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* wait_replicas: a grant counts when enough replicas have it.
 *
 * WAIT blocks its connection, so it has one of its own, and renewals and other requests are not
 * delayed. It counts what was written on that connection, therefore each grant is confirmed there
 * first, which also proves that it is still there.
 *
 *     granted ──► gathering ──► confirmed, one WAIT for all of them ──► granted to core | failed
 *
 * One WAIT is under way at a time; grants that come meanwhile share the next one. So a silent
 * replica costs a claim two timeouts at most, however many claims there are. */
#include <stdio.h>
#include <string.h>

#include "engines/redis/redis.h"

#define SPARE_NS (2 * NS_PER_SEC) /* for the answer, after the timeout of WAIT */

static void start(struct node *node);

/* ---- lists of claims ---- */

static void add(struct redis_claim **list, struct redis_claim *claim)
{
    while (*list)
        list = &(*list)->replicates_next;
    claim->replicates_next = NULL;
    *list = claim;
}

static bool drop(struct redis_claim **list, const struct redis_claim *claim)
{
    while (*list && *list != claim)
        list = &(*list)->replicates_next;
    if (!*list)
        return false;
    *list = claim->replicates_next;
    return true;
}

void redis_replicas_forget(struct redis_claim *claim)
{
    struct node *node = claim->replicates_at;
    if (node && !drop(&node->gathering, claim))
        drop(&node->replicating, claim);
    if (node && node->wait_conn)
        redis_conn_forget(node->wait_conn, claim);
    claim->replicates_at = NULL;
}

/* ---- confirming a grant ---- */

enum stile_status redis_replicas_confirm(struct redis_claim *claim, struct conn *conn, conn_fn *fn,
                                         struct stile_error *err)
{
    struct claim *base = base_of(claim);
    struct redis *redis = redis_of_claim(claim);
    struct numbers n;
    struct call call;
    size_t n_keys = base->mode == STILE_EXCLUSIVE ? TAKE_KEYS : SCRIPT_KEYS;
    redis_numbers_of(&n, base, 0);
    redis_call_begin(&call, n_keys, redis, base->name, base->name_len);
    redis_call_add(&call, claim->leased.owner);
    redis_call_add(&call, n.mode);
    redis_call_add(&call, n.px);
    const struct lua *script = &redis_script_confirm;
    return conn ? redis_conn_eval(conn, script, call.args, call.n_keys, call.n, fn, claim, err)
                : redis_call_send(&call, redis, script, fn, claim, err);
}

/* ---- replies ---- */

static void fail(struct redis_claim *claim, const struct stile_error *err)
{
    struct stile_error why;
    error_copy(&why, err);
    redis_replicas_forget(claim);
    claim->replicated(claim, &why);
}

static void end(struct redis_claim *claim, const redisReply *reply, const struct stile_error *err)
{
    struct redis *redis = redis_of_claim(claim);
    struct stile_error few;
    long long reached = is_number(reply) ? reply->integer : 0;
    if (!err && reached >= redis->wait_replicas) {
        redis_replicas_forget(claim);
        claim->replicated(claim, NULL);
        return;
    }
    if (!err) {
        error_set(&few, STILE_REFUSED, 0, "only %lld of %u replicas have it (wait_replicas)",
                  reached, redis->wait_replicas);
        err = &few;
    }
    fail(claim, err);
}

static void on_waited(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node *node = data;
    while (node->replicating)
        end(node->replicating, reply, err);
    node->waiting = false;
    start(node);
}

static void on_written(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *claim = data;
    struct stile_error gone;
    if (!err && !is_token(reply)) {
        error_set(&gone, STILE_UNCERTAIN, 0, "the grant ended before its replicas were counted");
        err = &gone;
    }
    if (err)
        fail(claim, err);
}

/* ---- requests ---- */

static void is_up(struct conn *conn)
{
    (void)conn;
}

/* Each request is answered by its own callback. */
static void is_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn, (void)why;
}

static const struct conn_events events = {.up = is_up, .down = is_down};

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* To where requests go now. What it has not answered is in doubt. */
static enum stile_status move_waits(struct node *node, const struct stream_target *target,
                                    struct stile_error *err)
{
    struct stile_error why;
    error_set(&why, STILE_UNREACHABLE, 0, "the primary is another server now");
    return redis_conn_move(node->wait_conn, target->host, target->port, &why, err);
}

/* After a failover requests go to another server, and so must WAIT. */
static enum stile_status connect_waits(struct node *node, struct stile_error *err)
{
    struct conn_options options = *redis_conn_options(node->conn);
    const struct conn_options *had = node->wait_conn ? redis_conn_options(node->wait_conn) : NULL;
    options.answer_ns = node->redis->wait_ms * NS_PER_MS + SPARE_NS;
    options.leases = NULL; /* no lease depends on it, and WAIT is silent for as long as it takes */
    if (had && same(had->target.host, options.target.host) &&
        had->target.port == options.target.port)
        return STILE_OK;
    if (had && !redis_conn_is_idle(node->wait_conn))
        return move_waits(node, &options.target, err);
    redis_conn_free(node->wait_conn);
    node->wait_conn = NULL;
    return redis_conn_new(&node->wait_conn, node->redis->engine.loop, &options, &events, node, err);
}

static enum stile_status send_wait(struct node *node, conn_fn *fn, void *data,
                                   struct stile_error *err)
{
    char replicas[NUMBER_MAX], ms[NUMBER_MAX];
    redis_number_write(replicas, node->redis->wait_replicas);
    redis_number_write(ms, node->redis->wait_ms);
    struct conn_arg args[] = {CONN_TEXT("WAIT"), CONN_TEXT(replicas), CONN_TEXT(ms)};
    return redis_conn_send(node->wait_conn, args, 3, fn, data, err);
}

static void fail_all(struct redis_claim **list, const struct stile_error *err)
{
    while (*list)
        fail(*list, err);
}

static void start(struct node *node)
{
    struct stile_error err;
    if (node->waiting || !node->gathering)
        return;
    if (connect_waits(node, &err)) {
        fail_all(&node->gathering, &err);
        return;
    }
    node->replicating = node->gathering;
    node->gathering = NULL;
    for (struct redis_claim *claim = node->replicating, *next; claim; claim = next) {
        next = claim->replicates_next;
        if (redis_replicas_confirm(claim, node->wait_conn, on_written, &err))
            fail(claim, &err);
    }
    node->waiting = true;
    if (send_wait(node, on_waited, node, &err)) {
        node->waiting = false;
        fail_all(&node->replicating, &err);
    }
}

void redis_replicas_await(struct redis_claim *claim, replicated_fn *replicated)
{
    struct redis *redis = redis_of_claim(claim);
    struct node *node = redis->answering;
    claim->replicated = replicated;
    claim->replicates_at = node;
    add(&node->gathering, claim);
    start(node);
}

/* ---- other writes ---- */

/* WAIT counts what the server had written when the command before it on this connection was
 * executed: by any client. */
enum stile_status redis_replicas_count(struct node *node, const struct conn_arg *args, size_t n,
                                       conn_fn *proved, conn_fn *counted, void *data,
                                       struct stile_error *err)
{
    enum stile_status status = connect_waits(node, err);
    if (!status)
        status = redis_conn_send(node->wait_conn, args, n, proved, data, err);
    if (!status && (status = send_wait(node, counted, data, err)))
        redis_conn_forget(node->wait_conn, data);
    return status;
}
