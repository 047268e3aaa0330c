/* Up and down: connecting, logging in, going on to the next member. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/conn_inner.h"
#include "mutant.h"

#define BACKOFF_FIRST_NS (20 * NS_PER_MS)
#define BACKOFF_MAX_NS   (2 * NS_PER_SEC)
/* One that was up for so long has not failed because of the server's load. */
#define STEADY_NS  NS_PER_SEC
#define CONNECT_NS (3 * NS_PER_SEC)
/* Where there are others to be asked within the patience of a request. */
#define CONNECT_ONE_NS (1 * NS_PER_SEC)
/* Never below 5 s: the server would take it for an attack and send GOAWAY. */
#define PULSE_NS (10 * NS_PER_SEC)

void conn_enter(struct conn *c)
{
    c->depth++;
}

void conn_leave(struct conn *c)
{
    if (--c->depth == 0 && c->freed)
        free(c);
}

/* ---- down ---- */

static void end_requests(struct conn *c)
{
    for (struct request *r; (r = line_pop(&c->sent));) {
#ifndef MUTANT_ETCD_DOUBT_IS_FAILURE
        r->in_doubt = h2_was_sent(&r->call);
#endif
        h2_cancel(&r->call);
        if (r == c->own)
            request_free(r);
        else
            line_push(&c->ended, r);
    }
    c->own = NULL;
}

/* What waits goes to the next member, until all of them have been tried. One that came up and broke
 * soon after counts as tried, else members without a leader would be asked in a circle. */
static void go_on(struct conn *c, bool was_up)
{
    bool steady = was_up && loop_now(c->loop) - c->up_ns >= STEADY_NS;
    if (c->why.native != FAULT_OTHER_CLUSTER)
        c->foreign_ids[c->at] = 0;
    c->at = (c->at + 1) % c->options.n_endpoints;
    c->tried++;
    if (steady)
        c->tried = c->attempt = 0;
    if (steady || c->tried < c->options.n_endpoints) {
        conn_connect(c);
        return;
    }
    c->tried = 0;
    loop_arm(c->loop, &c->retry,
             loop_now(c->loop) +
                 loop_backoff(c->loop, BACKOFF_FIRST_NS, BACKOFF_MAX_NS, c->attempt));
    c->attempt++;
    for (struct request *r; (r = line_pop(&c->waiting));)
        line_push(&c->ended, r);
}

void conn_go_down(struct conn *c)
{
    bool was_up = c->state == UP || c->state == GOING;
    struct h2 *h2 = c->h2;
    error_wrap(&c->why, c->why.status, "%s", c->address);
    struct stile_error why = c->why;
    if (c->state == UP)
        conn_restart_patience(c);
    c->state = PAUSED;
    loop_forget(c->loop, &c->break_task);
    loop_disarm(c->loop, &c->pulse);
    conn_enter(c);
    end_requests(c);
    conn_end_streams(c, &why);
    if (!c->freed) {
        c->h2 = NULL;
        h2_free(h2);
        go_on(c, was_up);
        conn_tell_ended(c, &why);
    }
    if (!c->freed && was_up)
        c->events->down(c, &why);
    conn_leave(c);
}

void conn_break_soon(struct conn *c)
{
    loop_soon(c->loop, &c->break_task);
}

static void on_break(struct task *task)
{
    conn_go_down((struct conn *)((char *)task - offsetof(struct conn, break_task)));
}

static void on_refuse(struct task *task)
{
    struct conn *c = (struct conn *)((char *)task - offsetof(struct conn, refuse_task));
    if (c->state != PAUSED)
        return; /* an attempt has begun meanwhile: they wait for it */
    conn_enter(c);
    for (struct request *r; (r = line_pop(&c->waiting));)
        line_push(&c->ended, r);
    conn_tell_ended(c, &c->why);
    conn_leave(c);
}

bool conn_try_another(struct conn *c, const struct stile_error *why)
{
    if (c->options.n_endpoints < 2 || c->state != UP)
        return false;
    if (!c->break_task.queued)
        c->why = *why;
    conn_break_soon(c);
    return true;
}

void conn_end_if_drained(struct conn *c)
{
    if (c->state != GOING || c->sent.n > 0 || c->break_task.queued)
        return;
    error_set(&c->why, STILE_UNREACHABLE, 0, "the server ends the connection");
    conn_break_soon(c);
}

void conn_suspect(struct conn *c, uint64_t for_ns)
{
    if (c->state != UP || c->break_task.queued || loop_now(c->loop) - h2_heard_ns(c->h2) < for_ns)
        return;
    error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    conn_break_soon(c);
}

/* ---- up ---- */

static bool has_streams(const struct conn *c)
{
    for (size_t i = 0; i < CONN_STREAMS_MAX; i++) {
        if (c->streams[i])
            return true;
    }
    return false;
}

/* Who only listens would not notice that nobody is there any more. */
static void on_pulse(struct timer *timer)
{
    struct conn *c = (struct conn *)((char *)timer - offsetof(struct conn, pulse));
    uint64_t silent_ns = loop_now(c->loop) - h2_heard_ns(c->h2);
    loop_arm(c->loop, &c->pulse, loop_now(c->loop) + PULSE_NS);
    if (!has_streams(c))
        return;
    if (silent_ns >= 2 * PULSE_NS)
        conn_suspect(c, PULSE_NS);
    else if (silent_ns >= PULSE_NS)
        h2_ping(c->h2);
}

static void come_up(struct conn *c)
{
    c->state = UP;
    c->up_ns = loop_now(c->loop);
    loop_arm(c->loop, &c->pulse, c->up_ns + PULSE_NS);
    conn_put_waiting(c);
    c->events->up(c);
}

static void on_login(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct conn *c = data;
    const Pb__AuthenticateResponse *login = (const Pb__AuthenticateResponse *)answer;
    c->own = NULL;
    if (c->state != LOGGING_IN)
        return;
    if (err && err->native != FAULT_NO_AUTH) {
        c->why = *err;
        /* nothing that matters was asked yet */
        if (c->why.status == STILE_UNCERTAIN)
            c->why.status = STILE_UNREACHABLE;
        conn_break_soon(c);
        return;
    }
    free(c->token);
    c->token = login ? strdup(login->token) : NULL;
    come_up(c);
}

static void ask_for_itself(struct conn *c, enum rpc rpc, const ProtobufCMessage *message,
                           conn_fn *fn)
{
    struct request *r = request_new(c, rpc, message);
    if (!r) {
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
        conn_break_soon(c);
        return;
    }
    r->fn = fn;
    r->data = c;
    r->until_ns = loop_now(c->loop) + c->options.answer_ns;
    c->own = r;
    request_put(r);
    conn_watch_time(c);
}

/* Requests wait meanwhile; streams go on. */
void conn_log_in(struct conn *c)
{
    Pb__AuthenticateRequest message = PB__AUTHENTICATE_REQUEST__INIT;
    message.name = (char *)c->options.user;
    message.password = (char *)c->options.password;
    if (c->state == UP)
        conn_restart_patience(c);
    c->state = LOGGING_IN;
    ask_for_itself(c, RPC_AUTHENTICATE, &message.base, on_login);
}

/* ---- which cluster it is ---- */

static void log_in_if_needed(struct conn *c)
{
    if (c->options.user)
        conn_log_in(c);
    else
        come_up(c);
}

static bool all_are(const struct conn *c, uint64_t cluster_id)
{
    for (size_t i = 0; i < c->options.n_endpoints; i++) {
        if (c->foreign_ids[i] != cluster_id)
            return false;
    }
    return true;
}

/* A URL that names members of two clusters would let two hold one lock. But a cluster that was
 * restored may have a new id: then every endpoint has. */
static bool may_be_used(struct conn *c, uint64_t cluster_id)
{
    if (cluster_id == 0)
        return true; /* a proxy that does not tell */
    c->foreign_ids[c->at] = cluster_id == c->cluster_id ? 0 : cluster_id;
    if (cluster_id == c->cluster_id)
        return true;
    if (all_are(c, cluster_id)) {
        conn_set_cluster(c, cluster_id);
        return true;
    }
    error_set(
        &c->why, STILE_UNREACHABLE, FAULT_OTHER_CLUSTER,
        "this member belongs to another cluster (%llx) than those before (%llx): the URL must "
        "name members of one cluster",
        (unsigned long long)cluster_id, (unsigned long long)c->cluster_id);
    return false;
}

static void on_identified(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct conn *c = data;
    const Pb__StatusResponse *status = (const Pb__StatusResponse *)answer;
    c->own = NULL;
    if (c->state != IDENTIFYING)
        return;
    if (err && fault_passes(err)) {
        c->why = *err;
        c->why.status = STILE_UNREACHABLE;
        conn_break_soon(c);
    } else if (!err && status->header && !may_be_used(c, status->header->cluster_id)) {
        conn_break_soon(c);
    } else {
        log_in_if_needed(c);
    }
}

void conn_set_cluster(struct conn *c, uint64_t cluster_id)
{
    c->cluster_id = cluster_id;
    memset(c->foreign_ids, 0, sizeof c->foreign_ids);
}

/* Before anything is asked of it, and before it hears our password. */
static void identify(struct conn *c)
{
    Pb__StatusRequest message = PB__STATUS_REQUEST__INIT;
    c->state = IDENTIFYING;
    ask_for_itself(c, RPC_STATUS, &message.base, on_identified);
}

static void on_up(struct h2 *h2)
{
    struct conn *c = h2_owner(h2);
    conn_enter(c);
    loop_disarm(c->loop, &c->retry);
    if (c->cluster_id)
        identify(c);
    else
        log_in_if_needed(c);
    conn_leave(c);
}

static void on_going(struct h2 *h2)
{
    struct conn *c = h2_owner(h2);
    if (c->state == UP)
        conn_restart_patience(c);
    if (c->state == UP || c->state == LOGGING_IN || c->state == IDENTIFYING)
        c->state = GOING;
    conn_end_if_drained(c);
}

static void on_closed(struct h2 *h2, const struct stile_error *why)
{
    struct conn *c = h2_owner(h2);
    c->why = *why;
    if (c->known && c->why.status == STILE_REFUSED)
        c->why.status = STILE_UNREACHABLE;
    conn_go_down(c);
}

static const struct h2_events h2_events = {.up = on_up, .going = on_going, .closed = on_closed};

void conn_connect(struct conn *c)
{
    const struct conn_endpoint *to = &c->options.endpoints[c->at];
    uint64_t timeout_ns = c->options.n_endpoints > 1 ? CONNECT_ONE_NS : CONNECT_NS;
    const struct stream_target target = {
        .host = to->host, .port = to->port, .tls = c->options.tls, .timeout_ns = timeout_ns};
    snprintf(c->address, sizeof c->address, strchr(to->host, ':') ? "[%s]:%u" : "%s:%u", to->host,
             to->port);
    c->state = CONNECTING;
    /* A peer that takes the connection and then says nothing. */
    loop_arm(c->loop, &c->retry, loop_now(c->loop) + timeout_ns);
    if (h2_open(&c->h2, c->loop, &target, &h2_events, c, &c->why))
        conn_break_soon(c);
}

static void on_retry(struct timer *timer)
{
    struct conn *c = (struct conn *)((char *)timer - offsetof(struct conn, retry));
    if (c->state == PAUSED) {
        conn_connect(c);
        return;
    }
    error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    conn_go_down(c);
}

void conn_init_life(struct conn *c)
{
    c->overdue.fn = conn_on_overdue;
    c->retry.fn = on_retry;
    c->pulse.fn = on_pulse;
    c->break_task.fn = on_break;
    c->refuse_task.fn = on_refuse;
}

enum stile_status conn_new_beside(struct conn **out, const struct conn *like, size_t i,
                                  bool anonymous, const struct conn_events *events, void *owner,
                                  struct stile_error *err)
{
    struct conn_options options = like->options;
    options.endpoints[0] = like->options.endpoints[i];
    options.n_endpoints = 1;
    if (anonymous)
        options.user = options.password = NULL;
    return conn_new(out, like->loop, &options, events, owner, err);
}
