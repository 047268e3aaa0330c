/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/etcd/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"

#define DEFAULT_ANSWER_NS (3 * NS_PER_SEC)
#define CONN_TIMERS       2
#define CONNECT_NS        (3 * NS_PER_SEC)
/* Where other members can be tried within the patience of a request. */
#define CONNECT_ONE_NS (1 * NS_PER_SEC)
/* Never below 5 s: the server would take it for an attack and send GOAWAY. */
#define PULSE_NS (10 * NS_PER_SEC)

static void log_in(struct conn *conn);

static struct conn *conn_of(struct link *link)
{
    return container_of(link, struct conn, link);
}

static struct request *request_of(struct link_request *link)
{
    return container_of(link, struct request, link);
}

void *etcd_conn_owner(const struct conn *c)
{
    return c->owner;
}

bool etcd_conn_is_up(const struct conn *c)
{
    return c->link.state == LINK_UP;
}

size_t etcd_conn_unanswered(const struct conn *c)
{
    return c->link.sent.n + c->link.waiting.n;
}

const char *etcd_conn_address(const struct conn *c)
{
    return c->link.address;
}

/* ---- leaving a member ---- */

bool etcd_conn_try_another(struct conn *c, const struct stile_error *why)
{
    if (c->options.n_endpoints < 2 || c->link.state != LINK_UP)
        return false;
    link_fail_soon(&c->link, why);
    return true;
}

void etcd_conn_suspect(struct conn *c, uint64_t for_ns)
{
    struct stile_error why;
    if (c->link.state != LINK_UP || loop_now(c->link.loop) - c->link.heard_ns < for_ns)
        return;
    error_set(&why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    link_fail_soon(&c->link, &why);
}

/* ---- requests ---- */

static void on_message(struct h2_call *call, const uint8_t *bytes, size_t n)
{
    struct request *r = container_of(call, struct request, call);
    if (!r->answer)
        r->answer = protobuf_c_message_unpack(etcd_rpc_classes[r->rpc].answer, NULL, n, bytes);
}

static bool is_worth_another(const struct stile_error *err)
{
    return err->native == ETCD_ERROR_NO_LEADER || err->native == ETCD_ERROR_LEARNER ||
           err->native == ETCD_ERROR_TIMED_OUT || err->native == ETCD_ERROR_PROXY;
}

static void answer_request(struct request *r, const struct stile_error *err)
{
    ProtobufCMessage *answer = r->answer;
    r->answer = NULL;
    if (r->link.wanted)
        r->fn(r->link.data, err ? NULL : answer, err);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
    etcd_request_free(r);
}

/* The call ends first: the requester may free the connection. */
static void fail_request(struct link *link, struct link_request *request,
                         const struct stile_error *err)
{
    struct request *r = request_of(request);
    (void)link;
    etcd_h2_cancel(&r->call);
    r->fn(request->data, NULL, err);
}

static void free_request(struct link_request *request)
{
    etcd_request_free(request_of(request));
}

static void let_go(struct link_request *request)
{
    struct request *r = request_of(request);
    request->end = etcd_h2_end(&r->call);
    etcd_h2_cancel(&r->call);
}

/* Without a token if authentication was not enabled when we logged in. */
static bool is_logged_out(const struct conn *c, const struct stile_error *err)
{
    return c->options.user &&
           (err->native == ETCD_ERROR_TOKEN || (err->native == ETCD_ERROR_LOGIN && !c->token));
}

/* Once: a login that is refused again and again must not hold up requests. */
static bool log_in_again(struct conn *c, struct request *r, const struct stile_error *err)
{
    if (!is_logged_out(c, err) || r->again || r->own)
        return false;
    r->again = true;
    r->link.until_ns = loop_now(c->link.loop) + c->link.options.answer_ns;
    if (c->link.state == LINK_UP)
        log_in(c);
    link_resubmit(&c->link, &r->link);
    return true;
}

static void on_request_ended(struct h2_call *call)
{
    struct request *r = container_of(call, struct request, call);
    struct conn *c = r->conn;
    struct stile_error err;
    enum stile_status status = etcd_error_explain(call, &err);
    if (status == STILE_REFUSED && c->link.proven && call->status == H2_NO_STATUS)
        status = err.status = STILE_UNCERTAIN;
    if (status == STILE_UNCERTAIN && err.native == ETCD_ERROR_PROXY &&
        etcd_rpc_classes[r->rpc].reads)
        status = err.status = STILE_UNREACHABLE;
    c->link.proven = c->link.proven || (!status && r->answer);
    link_take(&c->link, &r->link);
    if (!status && !r->answer)
        status = error_set(&err, STILE_UNCERTAIN, ETCD_ERROR_OTHER, "the answer is damaged");
    if (status && log_in_again(c, r, &err))
        return;
    if (status)
        error_wrap(&err, status, "%s", c->link.address);
    answer_request(r, status ? &err : NULL);
    if (!c->link.freed && status && is_worth_another(&err))
        etcd_conn_try_another(c, &err);
    link_go_on(&c->link);
}

static const struct h2_call_events request_events = {.message = on_message,
                                                     .ended = on_request_ended};

/* Its end is not known yet: flow control may keep it inside nghttp2. */
static int write_request(struct link *link, struct link_request *request)
{
    struct conn *c = conn_of(link);
    struct request *r = request_of(request);
    const struct rpc_class *rpc = &etcd_rpc_classes[r->rpc];
    r->call.events = &request_events;
    int rc = etcd_h2_start(c->h2, &r->call, rpc->path, r->rpc == RPC_AUTHENTICATE ? NULL : c->token,
                           !rpc->alone);
    return rc ? rc : etcd_h2_send(&r->call, r->bytes, request->len, true);
}

enum stile_status etcd_conn_request(struct conn *c, enum rpc rpc, const ProtobufCMessage *message,
                                    conn_fn *fn, void *data, struct stile_error *err)
{
    if (!link_has_room(&c->link, 0))
        return error_set(err, STILE_UNREACHABLE, ETCD_ERROR_BUSY,
                         "%s: too many requests wait for their answers", c->link.address);
    struct request *r = etcd_request_new(c, rpc, message);
    if (!r)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    r->fn = fn;
    link_submit(&c->link, &r->link, data);
    return STILE_OK;
}

void etcd_conn_forget(struct conn *c, const void *data)
{
    link_forget(&c->link, data);
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
        struct stile_error why;
        error_set(&why, STILE_UNREACHABLE, 0, "the server sent a damaged message");
        link_fail_soon(&c->link, &why);
        return;
    }
    s->message(s, message);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_stream_ended(struct h2_call *call)
{
    struct conn_stream *s = stream_of(call);
    struct conn *c = s->conn;
    struct stile_error err;
    if (!etcd_error_explain(call, &err))
        error_set(&err, STILE_UNREACHABLE, 0, "the server ended the stream");
    unlist(s);
    if (is_logged_out(c, &err) && c->link.state == LINK_UP)
        log_in(c);
    s->ended(s, &err);
    if (!c->link.freed && is_worth_another(&err))
        etcd_conn_try_another(c, &err);
}

static const struct h2_call_events stream_events = {.message = on_stream_message,
                                                    .ended = on_stream_ended};

enum stile_status etcd_conn_stream_open(struct conn *c, struct conn_stream *s, enum rpc rpc,
                                        struct stile_error *err)
{
    size_t i = 0;
    while (i < CONN_STREAMS_MAX && c->streams[i])
        i++;
    if (c->link.state != LINK_UP || c->link.break_task.queued || i == CONN_STREAMS_MAX)
        return error_set(err, STILE_UNREACHABLE, 0, "%s: not connected", c->link.address);
    s->conn = c;
    s->rpc = rpc;
    s->call.events = &stream_events;
    int rc = etcd_h2_start(c->h2, &s->call, etcd_rpc_classes[rpc].path, c->token, true);
    if (rc)
        return error_errno(err, STILE_UNREACHABLE, rc, "%s: opening a stream", c->link.address);
    c->streams[i] = s;
    s->open = true;
    return STILE_OK;
}

/* Half a message may be in the way of the next one. Everything on streams begins again over the
 * next connection, and what was not sent is sent then. */
static enum stile_status break_off(struct conn *c, int rc, struct stile_error *err)
{
    struct stile_error why;
    enum stile_status status = error_errno(&why, STILE_UNREACHABLE, rc, "sending");
    link_fail_soon(&c->link, &why);
    if (err)
        *err = why;
    return status;
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
    for (size_t i = 0; i < CONN_STREAMS_MAX && !c->link.freed; i++) {
        struct conn_stream *s = c->streams[i];
        if (s) {
            etcd_conn_stream_close(s);
            s->ended(s, why);
        }
    }
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
    uint64_t silent_ns = loop_now(c->link.loop) - c->link.heard_ns;
    loop_arm(c->link.loop, &c->pulse, loop_now(c->link.loop) + PULSE_NS);
    if (!has_streams(c))
        return;
    if (silent_ns >= 2 * PULSE_NS)
        etcd_conn_suspect(c, PULSE_NS);
    else if (silent_ns >= PULSE_NS)
        etcd_h2_ping(c->h2);
}

static void come_up(struct conn *c)
{
    link_come_up(&c->link);
    loop_arm(c->link.loop, &c->pulse, c->link.up_ns + PULSE_NS);
    c->events->up(c);
}

static void on_login(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct conn *c = data;
    const Etcd__AuthenticateResponse *login = (const Etcd__AuthenticateResponse *)answer;
    if (c->link.state != LINK_GREETING)
        return;
    if (err && err->native != ETCD_ERROR_NO_AUTH) {
        struct stile_error why = *err;
        /* nothing that matters was requested yet */
        if (why.status == STILE_UNCERTAIN)
            why.status = STILE_UNREACHABLE;
        link_fail_soon(&c->link, &why);
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
        struct stile_error why;
        error_set(&why, STILE_NOMEM, 0, "out of memory");
        link_fail_soon(&c->link, &why);
        return;
    }
    r->fn = fn;
    r->own = true;
    r->link.data = c;
    r->link.wanted = true;
    r->link.until_ns = loop_now(c->link.loop) + c->link.options.answer_ns;
    link_send(&c->link, &r->link);
}

/* Requests wait meanwhile; streams go on. */
static void log_in(struct conn *c)
{
    Etcd__AuthenticateRequest message = ETCD__AUTHENTICATE_REQUEST__INIT;
    message.name = (char *)c->options.user;
    message.password = (char *)c->options.password;
    if (c->link.state == LINK_UP)
        link_greet_again(&c->link);
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
static bool may_be_used(struct conn *c, uint64_t cluster_id, struct stile_error *why)
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
        why, STILE_UNREACHABLE, ETCD_ERROR_OTHER_CLUSTER,
        "this member belongs to another cluster (%llx) than those before (%llx): the URL must "
        "name members of one cluster",
        (unsigned long long)cluster_id, (unsigned long long)c->cluster_id);
    return false;
}

static void on_identified(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct conn *c = data;
    const Etcd__StatusResponse *status = (const Etcd__StatusResponse *)answer;
    struct stile_error why;
    if (c->link.state != LINK_GREETING)
        return;
    if (err && etcd_error_is_temporary(err)) {
        why = *err;
        why.status = STILE_UNREACHABLE;
        link_fail_soon(&c->link, &why);
    } else if (!err && status->header && !may_be_used(c, status->header->cluster_id, &why)) {
        link_fail_soon(&c->link, &why);
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
    send_own_request(c, RPC_STATUS, &message.base, on_identified);
}

/* ---- the connection below ---- */

static void on_up(struct h2 *h2)
{
    struct conn *c = etcd_h2_owner(h2);
    loop_disarm(c->link.loop, &c->settings);
    if (c->cluster_id)
        identify(c);
    else
        log_in_if_needed(c);
}

static void on_draining(struct h2 *h2)
{
    struct conn *c = etcd_h2_owner(h2);
    struct stile_error why;
    if (c->link.state == LINK_LEAVING)
        return;
    error_set(&why, STILE_UNREACHABLE, 0, "the server ends the connection");
    link_leave(&c->link, &why);
}

static void on_failed(struct h2 *h2, const struct stile_error *why)
{
    struct conn *c = etcd_h2_owner(h2);
    struct stile_error err = *why;
    if (c->link.proven && err.status == STILE_REFUSED)
        err.status = STILE_UNREACHABLE;
    link_fail_soon(&c->link, &err);
}

static const struct h2_events h2_events = {.up = on_up, .going = on_draining, .failed = on_failed};

/* For a peer that accepts the connection and then sends nothing. */
static void on_settings_overdue(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, settings);
    struct stile_error why;
    error_set(&why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    link_fail(&c->link, &why);
}

static void on_opened(struct link *link)
{
    struct conn *c = conn_of(link);
    struct stile_error why;
    loop_arm(link->loop, &c->settings, link->heard_ns + link->options.target.timeout_ns);
    if (etcd_h2_new(&c->h2, link->stream, link->address, c->options.tls, &h2_events, c, &why))
        link_fail(link, &why);
}

static void on_bytes(struct link *link, const void *bytes, size_t n)
{
    etcd_h2_receive(conn_of(link)->h2, bytes, n);
}

static void on_closed(struct link *link, const struct stile_error *why)
{
    struct conn *c = conn_of(link);
    loop_disarm(link->loop, &c->pulse);
    loop_disarm(link->loop, &c->settings);
    if (why)
        end_streams(c, why);
    etcd_h2_free(c->h2);
    c->h2 = NULL;
}

/* A server may forget a connection that it has accepted, even where it is the only one. */
static uint64_t connect_timeout_ns(const struct conn *c)
{
    uint64_t usual_ns = c->options.n_endpoints > 1 ? CONNECT_ONE_NS : CONNECT_NS;
    uint64_t most_ns = c->events->patience_ns ? c->events->patience_ns(c) : UINT64_MAX;
    return usual_ns < most_ns ? usual_ns : most_ns;
}

static void set_target(struct conn *c)
{
    const struct conn_endpoint *to = &c->options.endpoints[c->at];
    c->link.options.target = (struct stream_target){
        .host = to->host,
        .port = to->port,
        .tls = c->options.tls,
        .timeout_ns = connect_timeout_ns(c),
    };
}

/* Waiting requests go to the next member, until all members have been tried. One whose connection
 * came up and broke soon after counts as tried, else members without a leader would be asked in a
 * circle. */
static bool try_next(struct link *link, bool steady)
{
    struct conn *c = conn_of(link);
    if (link->why.native != ETCD_ERROR_OTHER_CLUSTER)
        c->foreign_ids[c->at] = 0;
    c->at = (c->at + 1) % c->options.n_endpoints;
    c->tried = steady ? 0 : c->tried + 1;
    set_target(c);
    if (c->tried < c->options.n_endpoints)
        return true;
    c->tried = 0;
    return false;
}

static void on_down(struct link *link, const struct stile_error *why, bool was_up)
{
    struct conn *c = conn_of(link);
    if (was_up)
        c->events->down(c, why);
}

static void free_conn(struct link *link)
{
    free(conn_of(link));
}

static const struct link_class class = {
    .write = write_request,
    .opened = on_opened,
    .received = on_bytes,
    .failed = fail_request,
    .free_request = free_request,
    .let_go = let_go,
    .closed = on_closed,
    .next = try_next,
    .down = on_down,
    .free = free_conn,
};

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

static void free_options(struct conn *c)
{
    wipe((char *)c->options.password);
    wipe(c->token);
    free((char *)c->options.user);
    for (size_t i = 0; i < c->options.n_endpoints; i++)
        free((char *)c->options.endpoints[i].host);
}

void etcd_conn_free(struct conn *c)
{
    if (!c || c->link.freed)
        return;
    for (size_t i = 0; i < CONN_STREAMS_MAX; i++) {
        if (c->streams[i])
            etcd_conn_stream_close(c->streams[i]);
    }
    loop_disarm(c->link.loop, &c->pulse);
    loop_disarm(c->link.loop, &c->settings);
    loop_unreserve(c->link.loop, CONN_TIMERS);
    free_options(c);
    link_free(&c->link);
}

void etcd_conn_forked(struct conn *c)
{
    if (c)
        link_forked(&c->link);
}

/* Many clients start at once: they must not all connect to the first member. */
static void shuffle(struct conn *c)
{
    for (size_t i = c->options.n_endpoints; i > 1; i--) {
        uint32_t random = 0;
        if (loop_random(c->link.loop, &random, sizeof random))
            return;
        struct conn_endpoint *a = &c->options.endpoints[i - 1];
        struct conn_endpoint *b = &c->options.endpoints[random % i], other = *a;
        *a = *b;
        *b = other;
    }
}

static int init_link(struct conn *c, struct loop *loop)
{
    const struct link_options options = {
        .answer_ns = c->options.answer_ns,
        .silence_ns = c->options.answer_ns,
        .window = CONN_SENT_MAX,
        .pending_max = CONN_PENDING_MAX,
        .pending_bytes = SIZE_MAX,
    };
    if (loop_reserve(loop, CONN_TIMERS))
        return ENOMEM;
    int rc = link_init(&c->link, loop, &class, &options);
    if (rc)
        loop_unreserve(loop, CONN_TIMERS);
    return rc;
}

enum stile_status etcd_conn_new(struct conn **out, struct loop *loop,
                                const struct conn_options *options,
                                const struct conn_events *events, void *owner,
                                struct stile_error *err)
{
    if (options->user && !options->password)
        return error_set(err, STILE_MISUSE, 0, "a user is given without a password");
    struct conn *c = calloc(1, sizeof *c);
    if (!c || !copy_options(c, options) || init_link(c, loop)) {
        if (c)
            free_options(c);
        free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    c->events = events;
    c->owner = owner;
    c->settings.fn = on_settings_overdue;
    c->pulse.fn = on_pulse;
    shuffle(c);
    set_target(c);
    link_start(&c->link);
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
    return etcd_conn_new(out, like->link.loop, &options, events, owner, err);
}
