#include "engines/etcd/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"

#define DEFAULT_ANSWER_NS (3 * NS_PER_SEC)
#define CONN_TIMERS       3
#define BACKOFF_FIRST_NS  (20 * NS_PER_MS)
#define BACKOFF_MAX_NS    (2 * NS_PER_SEC)
/* A connection that was up for so long did not fail because of the server's load. */
#define STEADY_NS  NS_PER_SEC
#define CONNECT_NS (3 * NS_PER_SEC)
/* Where other members can be tried within the patience of a request. */
#define CONNECT_ONE_NS (1 * NS_PER_SEC)
/* Never below 5 s: the server would take it for an attack and send GOAWAY. */
#define PULSE_NS (10 * NS_PER_SEC)

static void send_waiting(struct conn *conn); /* as many as may be on the wire */
static void log_in(struct conn *conn);
static void go_down(struct conn *conn); /* why is set */
static void connect_to_endpoint(struct conn *conn);

void *etcd_conn_owner(const struct conn *c)
{
    return c->owner;
}

bool etcd_conn_is_up(const struct conn *c)
{
    return c->state == UP;
}

const char *etcd_conn_address(const struct conn *c)
{
    return c->address;
}

/* ---- leaving a member ---- */

static void enter(struct conn *c)
{
    c->depth++;
}

static void leave(struct conn *c)
{
    if (--c->depth == 0 && c->freed)
        free(c);
}

static void break_soon(struct conn *c)
{
    loop_soon(c->loop, &c->break_task);
}

bool etcd_conn_try_another(struct conn *c, const struct stile_error *why)
{
    if (c->options.n_endpoints < 2 || c->state != UP)
        return false;
    if (!c->break_task.queued)
        c->why = *why;
    break_soon(c);
    return true;
}

static void end_if_drained(struct conn *c)
{
    if (c->state != DRAINING || c->sent.n > 0 || c->break_task.queued)
        return;
    error_set(&c->why, STILE_UNREACHABLE, 0, "the server ends the connection");
    break_soon(c);
}

void etcd_conn_suspect(struct conn *c, uint64_t for_ns)
{
    if (c->state != UP || c->break_task.queued ||
        loop_now(c->loop) - etcd_h2_heard_ns(c->h2) < for_ns)
        return;
    error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    break_soon(c);
}

/* ---- requests ---- */

static uint64_t earlier(uint64_t at_ns, const struct request_list *list)
{
    return list->first && list->first->until_ns < at_ns ? list->first->until_ns : at_ns;
}

/* The timer stays where it is while requests come and go; it looks again when it fires. */
static void arm_overdue(struct conn *c)
{
    uint64_t at_ns = earlier(NEVER, &c->sent);
    if (c->state != UP)
        at_ns = earlier(at_ns, &c->waiting);
    if (c->overdue.place ? at_ns < c->overdue.at_ns : at_ns != NEVER)
        loop_arm(c->loop, &c->overdue, at_ns);
}

static void forget_data(struct request_list *list, const void *data)
{
    for (struct request *r = list->first; r; r = r->next) {
        if (r->data == data)
            r->fn = NULL;
    }
}

static void clear_list(struct request_list *list)
{
    for (struct request *r; (r = etcd_request_pop(list));)
        etcd_request_free(r);
}

static void on_message(struct h2_call *call, const uint8_t *bytes, size_t n)
{
    struct request *r = container_of(call, struct request, call);
    if (!r->answer)
        r->answer = protobuf_c_message_unpack(etcd_rpc_classes[r->rpc].answer, NULL, n, bytes);
}

static bool is_worth_another(const struct stile_error *err)
{
    return err->native == FAULT_NO_LEADER || err->native == FAULT_LEARNER ||
           err->native == FAULT_TIMED_OUT || err->native == FAULT_PROXY;
}

static void finish(struct request *r, const struct stile_error *err)
{
    conn_fn *fn = r->fn;
    void *data = r->data;
    ProtobufCMessage *answer = r->answer;
    r->answer = NULL;
    etcd_request_free(r);
    if (fn)
        fn(data, err ? NULL : answer, err);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
}

/* Without a token if authentication was not enabled when we logged in. */
static bool is_logged_out(const struct conn *c, const struct stile_error *err)
{
    return c->options.user &&
           (err->native == FAULT_TOKEN || (err->native == FAULT_LOGIN && !c->token));
}

/* Once: a login that is refused again and again must not hold up requests. */
static bool log_in_again(struct conn *c, struct request *r, const struct stile_error *err)
{
    if (!is_logged_out(c, err) || r->again || r == c->own_request)
        return false;
    r->again = true;
    etcd_request_push(&c->waiting, r);
    if (c->state == UP)
        log_in(c);
    return true;
}

static void on_request_ended(struct h2_call *call)
{
    struct request *r = container_of(call, struct request, call);
    struct conn *c = r->conn;
    struct stile_error err;
    enum stile_status status = etcd_fault_explain(call, &err);
    if (status == STILE_REFUSED && c->known && call->status == H2_NO_STATUS)
        status = err.status = STILE_UNCERTAIN;
    if (status == STILE_UNCERTAIN && err.native == FAULT_PROXY && etcd_rpc_classes[r->rpc].reads)
        status = err.status = STILE_UNREACHABLE;
    c->known = c->known || (!status && r->answer);
    etcd_request_remove(r);
    if (!status && !r->answer)
        status = error_set(&err, STILE_UNCERTAIN, FAULT_OTHER, "the answer is damaged");
    if (status && log_in_again(c, r, &err))
        return;
    if (status)
        error_wrap(&err, status, "%s", c->address);
    enter(c);
    finish(r, status ? &err : NULL);
    if (!c->freed && status && is_worth_another(&err))
        etcd_conn_try_another(c, &err);
    if (!c->freed) {
        send_waiting(c);
        arm_overdue(c);
        end_if_drained(c);
    }
    leave(c);
}

static const struct h2_call_events request_events = {.message = on_message,
                                                     .ended = on_request_ended};

static void send_request(struct request *r)
{
    struct conn *c = r->conn;
    const char *token = r->rpc == RPC_AUTHENTICATE ? NULL : c->token;
    r->sent_ns = loop_now(c->loop);
    r->until_ns = r->sent_ns + c->options.answer_ns;
    r->call.events = &request_events;
    etcd_request_push(&c->sent, r);
    int rc = etcd_h2_start(c->h2, &r->call, etcd_rpc_classes[r->rpc].path, token,
                           !etcd_rpc_classes[r->rpc].alone);
    if (!rc)
        rc = etcd_h2_send(&r->call, r->bytes, r->len, true);
    if (rc && !c->break_task.queued) {
        error_errno(&c->why, STILE_UNREACHABLE, rc, "sending");
        break_soon(c);
    }
}

static void send_waiting(struct conn *c)
{
    while (c->state == UP && c->waiting.first && c->sent.n < CONN_SENT_MAX && !c->break_task.queued)
        send_request(etcd_request_pop(&c->waiting));
}

static void restart_patience(struct conn *c)
{
    for (struct request *r = c->waiting.first; r; r = r->next)
        r->until_ns = loop_now(c->loop) + c->options.answer_ns;
}

enum stile_status etcd_conn_request(struct conn *c, enum rpc rpc, const ProtobufCMessage *message,
                                    conn_fn *fn, void *data, struct stile_error *err)
{
    if (c->sent.n + c->waiting.n >= CONN_PENDING_MAX)
        return error_set(err, STILE_UNREACHABLE, FAULT_BUSY,
                         "%s: too many requests wait for their answers", c->address);
    struct request *r = etcd_request_new(c, rpc, message);
    if (!r)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    r->fn = fn;
    r->data = data;
    r->until_ns = loop_now(c->loop) + c->options.answer_ns;
    etcd_request_push(&c->waiting, r);
    send_waiting(c);
    if (c->state == PAUSED)
        loop_soon(c->loop, &c->refuse_task);
    arm_overdue(c);
    return STILE_OK;
}

void etcd_conn_forget(struct conn *c, const void *data)
{
    forget_data(&c->sent, data);
    forget_data(&c->waiting, data);
    forget_data(&c->ended, data);
}

static void finish_ended(struct conn *c, const struct stile_error *why)
{
    struct stile_error never = *why, doubt;
    error_set(&doubt, STILE_UNCERTAIN, never.native, "no answer, the connection broke: %s",
              never.message);
    for (struct request *r; !c->freed && (r = etcd_request_pop(&c->ended));)
        finish(r, r->in_doubt ? &doubt : &never);
}

/* ---- time ---- */

static void end_overdue(struct conn *c, struct request_list *list, const struct stile_error *err,
                        uint64_t now_ns)
{
    while (!c->freed && list->first && list->first->until_ns <= now_ns)
        finish(etcd_request_pop(list), err);
}

/* One request may be slow because of what it asks; if nothing at all came since it was sent, the
 * member is to blame. */
static void on_overdue(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, overdue);
    uint64_t now_ns = loop_now(c->loop);
    struct stile_error doubt, never;
    bool overdue = c->sent.first && c->sent.first->until_ns <= now_ns;
    bool silent = overdue && c->h2 && etcd_h2_heard_ns(c->h2) < c->sent.first->sent_ns;
    enter(c);
    error_set(&doubt, STILE_UNCERTAIN, ETIMEDOUT, "%s: no answer in time", c->address);
    error_set(&never, STILE_UNREACHABLE, ETIMEDOUT, "%s: no connection in time", c->address);
    if (silent) {
        error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
        go_down(c);
    }
    end_overdue(c, &c->sent, &doubt, now_ns);
    if (!c->freed && c->state != UP)
        end_overdue(c, &c->waiting, &never, now_ns);
    if (!c->freed) {
        send_waiting(c);
        end_if_drained(c);
        arm_overdue(c);
    }
    leave(c);
}

/* ---- streams ---- */

static struct conn_stream *stream_of(struct h2_call *call)
{
    return container_of(call, struct conn_stream, call);
}

static void unlist(struct conn_stream *s)
{
    for (size_t i = 0; i < CONN_STREAMS_MAX; i++) {
        if (s->conn->streams[i] == s)
            s->conn->streams[i] = NULL;
    }
    s->open = false;
}

static void on_stream_message(struct h2_call *call, const uint8_t *bytes, size_t n)
{
    struct conn_stream *s = stream_of(call);
    struct conn *c = s->conn;
    ProtobufCMessage *message =
        protobuf_c_message_unpack(etcd_rpc_classes[s->rpc].answer, NULL, n, bytes);
    if (!message) {
        if (!c->break_task.queued)
            error_set(&c->why, STILE_UNREACHABLE, 0, "the server sent a damaged message");
        break_soon(c);
        return;
    }
    enter(c);
    s->message(s, message);
    leave(c);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_stream_ended(struct h2_call *call)
{
    struct conn_stream *s = stream_of(call);
    struct conn *c = s->conn;
    struct stile_error err;
    if (!etcd_fault_explain(call, &err))
        error_set(&err, STILE_UNREACHABLE, 0, "the server ended the stream");
    unlist(s);
    enter(c);
    if (is_logged_out(c, &err) && c->state == UP)
        log_in(c);
    s->ended(s, &err);
    if (!c->freed && is_worth_another(&err))
        etcd_conn_try_another(c, &err);
    leave(c);
}

static const struct h2_call_events stream_events = {.message = on_stream_message,
                                                    .ended = on_stream_ended};

enum stile_status etcd_conn_stream_open(struct conn *c, struct conn_stream *s, enum rpc rpc,
                                        struct stile_error *err)
{
    size_t i = 0;
    while (i < CONN_STREAMS_MAX && c->streams[i])
        i++;
    if (c->state != UP || c->break_task.queued || i == CONN_STREAMS_MAX)
        return error_set(err, STILE_UNREACHABLE, 0, "%s: not connected", c->address);
    s->conn = c;
    s->rpc = rpc;
    s->call.events = &stream_events;
    int rc = etcd_h2_start(c->h2, &s->call, etcd_rpc_classes[rpc].path, c->token, true);
    if (rc)
        return error_errno(err, STILE_UNREACHABLE, rc, "%s: opening a stream", c->address);
    c->streams[i] = s;
    s->open = true;
    return STILE_OK;
}

/* Half a message may be in the way of the next one. Everything on streams begins again over the
 * next connection, and what was not sent is sent then. */
static enum stile_status break_off(struct conn *c, int rc, struct stile_error *err)
{
    if (!c->break_task.queued)
        error_errno(&c->why, STILE_UNREACHABLE, rc, "sending");
    break_soon(c);
    return error_errno(err, STILE_UNREACHABLE, rc, "sending");
}

enum stile_status etcd_conn_stream_send(struct conn_stream *s, const ProtobufCMessage *message,
                                        struct stile_error *err)
{
    uint8_t small[1024], *bytes = small;
    size_t len = protobuf_c_message_get_packed_size(message);
    if (len > sizeof small)
        bytes = malloc(len);
    if (!bytes)
        return break_off(s->conn, ENOMEM, err);
    protobuf_c_message_pack(message, bytes);
    int rc = etcd_h2_send(&s->call, bytes, len, false);
    if (bytes != small)
        free(bytes);
    return rc ? break_off(s->conn, rc, err) : STILE_OK;
}

void etcd_conn_stream_close(struct conn_stream *s)
{
    if (!s->open)
        return;
    unlist(s);
    etcd_h2_cancel(&s->call);
}

static void end_streams(struct conn *c, const struct stile_error *why)
{
    for (size_t i = 0; i < CONN_STREAMS_MAX && !c->freed; i++) {
        struct conn_stream *s = c->streams[i];
        if (s) {
            etcd_conn_stream_close(s);
            s->ended(s, why);
        }
    }
}

/* ---- down ---- */

static void end_requests(struct conn *c)
{
    for (struct request *r; (r = etcd_request_pop(&c->sent));) {
        r->in_doubt = etcd_h2_was_sent(&r->call);
        etcd_h2_cancel(&r->call);
        if (r == c->own_request)
            etcd_request_free(r);
        else
            etcd_request_push(&c->ended, r);
    }
    c->own_request = NULL;
}

/* Waiting requests go to the next member, until all members have been tried. One whose connection
 * came up and broke soon after counts as tried, else members without a leader would be asked in a
 * circle. */
static void try_next(struct conn *c, bool was_up)
{
    bool steady = was_up && loop_now(c->loop) - c->up_ns >= STEADY_NS;
    if (c->why.native != FAULT_OTHER_CLUSTER)
        c->foreign_ids[c->at] = 0;
    c->at = (c->at + 1) % c->options.n_endpoints;
    c->tried++;
    if (steady)
        c->tried = c->attempt = 0;
    if (steady || c->tried < c->options.n_endpoints) {
        connect_to_endpoint(c);
        return;
    }
    c->tried = 0;
    loop_arm(c->loop, &c->retry,
             loop_now(c->loop) +
                 loop_backoff(c->loop, BACKOFF_FIRST_NS, BACKOFF_MAX_NS, c->attempt));
    c->attempt++;
    for (struct request *r; (r = etcd_request_pop(&c->waiting));)
        etcd_request_push(&c->ended, r);
}

static void go_down(struct conn *c)
{
    bool was_up = c->state == UP || c->state == DRAINING;
    struct h2 *h2 = c->h2;
    error_wrap(&c->why, c->why.status, "%s", c->address);
    struct stile_error why = c->why;
    if (c->state == UP)
        restart_patience(c);
    c->state = PAUSED;
    loop_forget(c->loop, &c->break_task);
    loop_disarm(c->loop, &c->pulse);
    enter(c);
    end_requests(c);
    end_streams(c, &why);
    if (!c->freed) {
        c->h2 = NULL;
        etcd_h2_free(h2);
        try_next(c, was_up);
        finish_ended(c, &why);
    }
    if (!c->freed && was_up)
        c->events->down(c, &why);
    leave(c);
}

static void on_break(struct task *task)
{
    go_down(container_of(task, struct conn, break_task));
}

static void on_refuse(struct task *task)
{
    struct conn *c = container_of(task, struct conn, refuse_task);
    if (c->state != PAUSED)
        return; /* an attempt has begun meanwhile: requests wait for it */
    enter(c);
    for (struct request *r; (r = etcd_request_pop(&c->waiting));)
        etcd_request_push(&c->ended, r);
    finish_ended(c, &c->why);
    leave(c);
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

/* A client that only listens to streams would not notice a dead peer. */
static void on_pulse(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, pulse);
    uint64_t silent_ns = loop_now(c->loop) - etcd_h2_heard_ns(c->h2);
    loop_arm(c->loop, &c->pulse, loop_now(c->loop) + PULSE_NS);
    if (!has_streams(c))
        return;
    if (silent_ns >= 2 * PULSE_NS)
        etcd_conn_suspect(c, PULSE_NS);
    else if (silent_ns >= PULSE_NS)
        etcd_h2_ping(c->h2);
}

static void come_up(struct conn *c)
{
    c->state = UP;
    c->up_ns = loop_now(c->loop);
    loop_arm(c->loop, &c->pulse, c->up_ns + PULSE_NS);
    send_waiting(c);
    c->events->up(c);
}

static void on_login(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct conn *c = data;
    const Etcd__AuthenticateResponse *login = (const Etcd__AuthenticateResponse *)answer;
    c->own_request = NULL;
    if (c->state != LOGGING_IN)
        return;
    if (err && err->native != FAULT_NO_AUTH) {
        c->why = *err;
        /* nothing that matters was requested yet */
        if (c->why.status == STILE_UNCERTAIN)
            c->why.status = STILE_UNREACHABLE;
        break_soon(c);
        return;
    }
    free(c->token);
    c->token = login ? strdup(login->token) : NULL;
    come_up(c);
}

static void send_own_request(struct conn *c, enum rpc rpc, const ProtobufCMessage *message,
                             conn_fn *fn)
{
    struct request *r = etcd_request_new(c, rpc, message);
    if (!r) {
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
        break_soon(c);
        return;
    }
    r->fn = fn;
    r->data = c;
    r->until_ns = loop_now(c->loop) + c->options.answer_ns;
    c->own_request = r;
    send_request(r);
    arm_overdue(c);
}

/* Requests wait meanwhile; streams go on. */
static void log_in(struct conn *c)
{
    Etcd__AuthenticateRequest message = ETCD__AUTHENTICATE_REQUEST__INIT;
    message.name = (char *)c->options.user;
    message.password = (char *)c->options.password;
    if (c->state == UP)
        restart_patience(c);
    c->state = LOGGING_IN;
    send_own_request(c, RPC_AUTHENTICATE, &message.base, on_login);
}

/* ---- which cluster it is ---- */

static void log_in_if_needed(struct conn *c)
{
    if (c->options.user)
        log_in(c);
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

/* With a URL that names members of two clusters, two clients could hold one lock. But a restored
 * cluster may have a new id: then every endpoint has it. */
static bool may_be_used(struct conn *c, uint64_t cluster_id)
{
    if (cluster_id == 0)
        return true; /* a proxy that does not report it */
    c->foreign_ids[c->at] = cluster_id == c->cluster_id ? 0 : cluster_id;
    if (cluster_id == c->cluster_id)
        return true;
    if (all_are(c, cluster_id)) {
        etcd_conn_set_cluster(c, cluster_id);
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
    const Etcd__StatusResponse *status = (const Etcd__StatusResponse *)answer;
    c->own_request = NULL;
    if (c->state != IDENTIFYING)
        return;
    if (err && etcd_fault_is_temporary(err)) {
        c->why = *err;
        c->why.status = STILE_UNREACHABLE;
        break_soon(c);
    } else if (!err && status->header && !may_be_used(c, status->header->cluster_id)) {
        break_soon(c);
    } else {
        log_in_if_needed(c);
    }
}

void etcd_conn_set_cluster(struct conn *c, uint64_t cluster_id)
{
    c->cluster_id = cluster_id;
    memset(c->foreign_ids, 0, sizeof c->foreign_ids);
}

/* Before any request, and before it gets our password. */
static void identify(struct conn *c)
{
    Etcd__StatusRequest message = ETCD__STATUS_REQUEST__INIT;
    c->state = IDENTIFYING;
    send_own_request(c, RPC_STATUS, &message.base, on_identified);
}

static void on_up(struct h2 *h2)
{
    struct conn *c = etcd_h2_owner(h2);
    enter(c);
    loop_disarm(c->loop, &c->retry);
    if (c->cluster_id)
        identify(c);
    else
        log_in_if_needed(c);
    leave(c);
}

static void on_draining(struct h2 *h2)
{
    struct conn *c = etcd_h2_owner(h2);
    if (c->state == UP)
        restart_patience(c);
    if (c->state == UP || c->state == LOGGING_IN || c->state == IDENTIFYING)
        c->state = DRAINING;
    end_if_drained(c);
}

static void on_closed(struct h2 *h2, const struct stile_error *why)
{
    struct conn *c = etcd_h2_owner(h2);
    c->why = *why;
    if (c->known && c->why.status == STILE_REFUSED)
        c->why.status = STILE_UNREACHABLE;
    go_down(c);
}

static const struct h2_events h2_events = {.up = on_up, .going = on_draining, .closed = on_closed};

static void connect_to_endpoint(struct conn *c)
{
    const struct conn_endpoint *to = &c->options.endpoints[c->at];
    uint64_t timeout_ns = c->options.n_endpoints > 1 ? CONNECT_ONE_NS : CONNECT_NS;
    const struct stream_target target = {
        .host = to->host, .port = to->port, .tls = c->options.tls, .timeout_ns = timeout_ns};
    snprintf(c->address, sizeof c->address, strchr(to->host, ':') ? "[%s]:%u" : "%s:%u", to->host,
             to->port);
    c->state = CONNECTING;
    /* For a peer that accepts the connection and then sends nothing. */
    loop_arm(c->loop, &c->retry, loop_now(c->loop) + timeout_ns);
    if (etcd_h2_open(&c->h2, c->loop, &target, &h2_events, c, &c->why))
        break_soon(c);
}

static void on_retry(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, retry);
    if (c->state == PAUSED) {
        connect_to_endpoint(c);
        return;
    }
    error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    go_down(c);
}

static void init_timers(struct conn *c)
{
    c->overdue.fn = on_overdue;
    c->retry.fn = on_retry;
    c->pulse.fn = on_pulse;
    c->break_task.fn = on_break;
    c->refuse_task.fn = on_refuse;
}

/* ---- the beginning and the end ---- */

static bool copy_text(const char **text)
{
    char *copy = *text ? strdup(*text) : NULL;
    bool copied = copy || !*text;
    *text = copy;
    return copied;
}

static bool copy_options(struct conn *c, const struct conn_options *options)
{
    bool copied = true;
    c->options = *options;
    if (!c->options.answer_ns)
        c->options.answer_ns = DEFAULT_ANSWER_NS;
    for (size_t i = 0; i < c->options.n_endpoints; i++)
        copied = copy_text(&c->options.endpoints[i].host) && copied;
    copied = copy_text(&c->options.user) && copied;
    return copy_text(&c->options.password) && copied;
}

static void wipe(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void free_parts(struct conn *c)
{
    for (size_t i = 0; i < CONN_STREAMS_MAX; i++) {
        if (c->streams[i])
            etcd_conn_stream_close(c->streams[i]);
    }
    clear_list(&c->sent);
    clear_list(&c->waiting);
    clear_list(&c->ended);
    etcd_h2_free(c->h2);
    c->h2 = NULL;
    loop_disarm(c->loop, &c->overdue);
    loop_disarm(c->loop, &c->retry);
    loop_disarm(c->loop, &c->pulse);
    loop_forget(c->loop, &c->break_task);
    loop_forget(c->loop, &c->refuse_task);
    loop_unreserve(c->loop, CONN_TIMERS);
    wipe((char *)c->options.password);
    wipe(c->token);
    free((char *)c->options.user);
    for (size_t i = 0; i < c->options.n_endpoints; i++)
        free((char *)c->options.endpoints[i].host);
}

void etcd_conn_free(struct conn *c)
{
    if (!c || c->freed)
        return;
    free_parts(c);
    c->freed = true;
    if (c->depth == 0)
        free(c);
}

void etcd_conn_forked(struct conn *c)
{
    if (c)
        etcd_h2_forked(c->h2);
}

/* Many clients start at once: they must not all connect to the first member. */
static void shuffle(struct conn *c)
{
    for (size_t i = c->options.n_endpoints; i > 1; i--) {
        uint32_t random = 0;
        if (loop_random(c->loop, &random, sizeof random))
            return;
        struct conn_endpoint *a = &c->options.endpoints[i - 1];
        struct conn_endpoint *b = &c->options.endpoints[random % i], other = *a;
        *a = *b;
        *b = other;
    }
}

enum stile_status etcd_conn_new(struct conn **out, struct loop *loop,
                                const struct conn_options *options,
                                const struct conn_events *events, void *owner,
                                struct stile_error *err)
{
    if (options->user && !options->password)
        return error_set(err, STILE_MISUSE, 0, "a user is given without a password");
    struct conn *c = calloc(1, sizeof *c);
    if (!c || loop_reserve(loop, CONN_TIMERS)) {
        free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    c->loop = loop;
    c->events = events;
    c->owner = owner;
    init_timers(c);
    if (!copy_options(c, options)) {
        etcd_conn_free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    shuffle(c);
    connect_to_endpoint(c);
    *out = c;
    return STILE_OK;
}

enum stile_status etcd_conn_new_to(struct conn **out, const struct conn *like, size_t i,
                                   bool anonymous, const struct conn_events *events, void *owner,
                                   struct stile_error *err)
{
    struct conn_options options = like->options;
    options.endpoints[0] = like->options.endpoints[i];
    options.n_endpoints = 1;
    if (anonymous)
        options.user = options.password = NULL;
    return etcd_conn_new(out, like->loop, &options, events, owner, err);
}
