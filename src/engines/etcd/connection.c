#include "engines/etcd/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/conn_inner.h"

#define DEFAULT_ANSWER_NS (3 * NS_PER_SEC)
#define CONN_TIMERS       3

const struct rpc_class rpc_classes[] = {
    [RPC_RANGE] = {"/etcdserverpb.KV/Range", &pb__range_response__descriptor, .reads = true},
    [RPC_PUT] = {"/etcdserverpb.KV/Put", &pb__put_response__descriptor},
    [RPC_TXN] = {"/etcdserverpb.KV/Txn", &pb__txn_response__descriptor},
    [RPC_LEASE_GRANT] = {"/etcdserverpb.Lease/LeaseGrant", &pb__lease_grant_response__descriptor},
    [RPC_LEASE_REVOKE] = {"/etcdserverpb.Lease/LeaseRevoke",
                          &pb__lease_revoke_response__descriptor},
    [RPC_LEASE_TTL] = {"/etcdserverpb.Lease/LeaseTimeToLive",
                       &pb__lease_time_to_live_response__descriptor, .reads = true},
    [RPC_AUTHENTICATE] = {"/etcdserverpb.Auth/Authenticate",
                          &pb__authenticate_response__descriptor},
    [RPC_STATUS] = {"/etcdserverpb.Maintenance/Status", &pb__status_response__descriptor, true,
                    true},
    [RPC_ALARM] = {"/etcdserverpb.Maintenance/Alarm", &pb__alarm_response__descriptor, true, true},
    [RPC_MEMBER_LIST] = {"/etcdserverpb.Cluster/MemberList", &pb__member_list_response__descriptor,
                         true, true},
    [RPC_LEASE_KEEP_ALIVE] = {"/etcdserverpb.Lease/LeaseKeepAlive",
                              &pb__lease_keep_alive_response__descriptor},
    [RPC_WATCH] = {"/etcdserverpb.Watch/Watch", &pb__watch_response__descriptor},
};

void *conn_owner(const struct conn *c)
{
    return c->owner;
}

bool conn_is_up(const struct conn *c)
{
    return c->state == UP;
}

const char *conn_address(const struct conn *c)
{
    return c->address;
}

/* ---- lines ---- */

void line_push(struct request_line *line, struct request *r)
{
    r->line = line;
    r->next = NULL;
    r->before = line->last;
    *(line->last ? &line->last->next : &line->first) = r;
    line->last = r;
    line->n++;
}

void line_remove(struct request *r)
{
    struct request_line *line = r->line;
    if (!line)
        return;
    *(r->before ? &r->before->next : &line->first) = r->next;
    *(r->next ? &r->next->before : &line->last) = r->before;
    line->n--;
    r->line = NULL;
}

struct request *line_pop(struct request_line *line)
{
    struct request *r = line->first;
    if (r)
        line_remove(r);
    return r;
}

static void line_forget(struct request_line *line, const void *data)
{
    for (struct request *r = line->first; r; r = r->next) {
        if (r->data == data)
            r->fn = NULL;
    }
}

static void line_clear(struct request_line *line)
{
    for (struct request *r; (r = line_pop(line));)
        request_free(r);
}

/* ---- one request ---- */

static void on_message(struct h2_call *call, const uint8_t *bytes, size_t n)
{
    struct request *r = (struct request *)((char *)call - offsetof(struct request, call));
    if (!r->answer)
        r->answer = protobuf_c_message_unpack(rpc_classes[r->rpc].answer, NULL, n, bytes);
}

bool conn_worth_another(const struct stile_error *err)
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
    request_free(r);
    if (fn)
        fn(data, err ? NULL : answer, err);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
}

/* Without a token if authentication was not enabled when we logged in. */
bool conn_is_logged_out(const struct conn *c, const struct stile_error *err)
{
    return c->options.user &&
           (err->native == FAULT_TOKEN || (err->native == FAULT_LOGIN && !c->token));
}

/* Once: a login that is refused again and again must not keep anybody. */
static bool log_in_again(struct conn *c, struct request *r, const struct stile_error *err)
{
    if (!conn_is_logged_out(c, err) || r->again || r == c->own)
        return false;
    r->again = true;
    line_push(&c->waiting, r);
    if (c->state == UP)
        conn_log_in(c);
    return true;
}

static void on_ended(struct h2_call *call)
{
    struct request *r = (struct request *)((char *)call - offsetof(struct request, call));
    struct conn *c = r->conn;
    struct stile_error err;
    enum stile_status status = fault_explain(call, &err);
    if (status == STILE_REFUSED && c->known && call->status == H2_NO_STATUS)
        status = err.status = STILE_UNCERTAIN;
    if (status == STILE_UNCERTAIN && err.native == FAULT_PROXY && rpc_classes[r->rpc].reads)
        status = err.status = STILE_UNREACHABLE;
    c->known = c->known || (!status && r->answer);
    line_remove(r);
    if (!status && !r->answer)
        status = error_set(&err, STILE_UNCERTAIN, FAULT_OTHER, "the answer is damaged");
    if (status && log_in_again(c, r, &err))
        return;
    if (status)
        error_wrap(&err, status, "%s", c->address);
    conn_enter(c);
    finish(r, status ? &err : NULL);
    if (!c->freed && status && conn_worth_another(&err))
        conn_try_another(c, &err);
    if (!c->freed) {
        conn_put_waiting(c);
        conn_watch_time(c);
        conn_end_if_drained(c);
    }
    conn_leave(c);
}

static const struct h2_call_events request_events = {.message = on_message, .ended = on_ended};

struct request *request_new(struct conn *c, enum rpc rpc, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    struct request *r = calloc(1, sizeof *r + len);
    if (!r)
        return NULL;
    r->conn = c;
    r->rpc = rpc;
    r->call.events = &request_events;
    r->len = protobuf_c_message_pack(message, r->bytes);
    return r;
}

void request_free(struct request *r)
{
    h2_cancel(&r->call);
    if (r->answer)
        protobuf_c_message_free_unpacked(r->answer, NULL);
    if (r->rpc == RPC_AUTHENTICATE)
        explicit_bzero(r->bytes, r->len);
    free(r);
}

void request_put(struct request *r)
{
    struct conn *c = r->conn;
    const char *token = r->rpc == RPC_AUTHENTICATE ? NULL : c->token;
    r->sent_ns = loop_now(c->loop);
    r->until_ns = r->sent_ns + c->options.answer_ns;
    line_push(&c->sent, r);
    int rc = h2_start(c->h2, &r->call, rpc_classes[r->rpc].path, token, !rpc_classes[r->rpc].alone);
    if (!rc)
        rc = h2_send(&r->call, r->bytes, r->len, true);
    if (rc && !c->break_task.queued) {
        error_errno(&c->why, STILE_UNREACHABLE, rc, "sending");
        conn_break_soon(c);
    }
}

void conn_put_waiting(struct conn *c)
{
    while (c->state == UP && c->waiting.first && c->sent.n < CONN_SENT_MAX && !c->break_task.queued)
        request_put(line_pop(&c->waiting));
}

void conn_restart_patience(struct conn *c)
{
    for (struct request *r = c->waiting.first; r; r = r->next)
        r->until_ns = loop_now(c->loop) + c->options.answer_ns;
}

enum stile_status conn_ask(struct conn *c, enum rpc rpc, const ProtobufCMessage *message,
                           conn_fn *fn, void *data, struct stile_error *err)
{
    if (c->sent.n + c->waiting.n >= CONN_PENDING_MAX)
        return error_set(err, STILE_UNREACHABLE, FAULT_BUSY,
                         "%s: too many requests wait for their answers", c->address);
    struct request *r = request_new(c, rpc, message);
    if (!r)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    r->fn = fn;
    r->data = data;
    r->until_ns = loop_now(c->loop) + c->options.answer_ns;
    line_push(&c->waiting, r);
    conn_put_waiting(c);
    if (c->state == PAUSED)
        loop_soon(c->loop, &c->refuse_task);
    conn_watch_time(c);
    return STILE_OK;
}

void conn_forget(struct conn *c, const void *data)
{
    line_forget(&c->sent, data);
    line_forget(&c->waiting, data);
    line_forget(&c->ended, data);
}

void conn_tell_ended(struct conn *c, const struct stile_error *why)
{
    struct stile_error never = *why, doubt;
    error_set(&doubt, STILE_UNCERTAIN, never.native, "no answer, the connection broke: %s",
              never.message);
    for (struct request *r; !c->freed && (r = line_pop(&c->ended));)
        finish(r, r->in_doubt ? &doubt : &never);
}

/* ---- time ---- */

static uint64_t earlier(uint64_t at_ns, const struct request_line *line)
{
    return line->first && line->first->until_ns < at_ns ? line->first->until_ns : at_ns;
}

/* The timer stays where it is while requests come and go; it looks again when it fires. */
void conn_watch_time(struct conn *c)
{
    uint64_t at_ns = earlier(NEVER, &c->sent);
    if (c->state != UP)
        at_ns = earlier(at_ns, &c->waiting);
    if (c->overdue.place ? at_ns < c->overdue.at_ns : at_ns != NEVER)
        loop_arm(c->loop, &c->overdue, at_ns);
}

static void end_overdue(struct conn *c, struct request_line *line, const struct stile_error *err,
                        uint64_t now_ns)
{
    while (!c->freed && line->first && line->first->until_ns <= now_ns)
        finish(line_pop(line), err);
}

/* One request may be slow because of what it asks; if nothing at all came since it was sent, it is
 * the member. */
void conn_on_overdue(struct timer *timer)
{
    struct conn *c = (struct conn *)((char *)timer - offsetof(struct conn, overdue));
    uint64_t now_ns = loop_now(c->loop);
    struct stile_error doubt, never;
    bool overdue = c->sent.first && c->sent.first->until_ns <= now_ns;
    bool silent = overdue && c->h2 && h2_heard_ns(c->h2) < c->sent.first->sent_ns;
    conn_enter(c);
    error_set(&doubt, STILE_UNCERTAIN, ETIMEDOUT, "%s: no answer in time", c->address);
    error_set(&never, STILE_UNREACHABLE, ETIMEDOUT, "%s: no connection in time", c->address);
    if (silent) {
        error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
        conn_go_down(c);
    }
    end_overdue(c, &c->sent, &doubt, now_ns);
    if (!c->freed && c->state != UP)
        end_overdue(c, &c->waiting, &never, now_ns);
    if (!c->freed) {
        conn_put_waiting(c);
        conn_end_if_drained(c);
        conn_watch_time(c);
    }
    conn_leave(c);
}

/* ---- the beginning and the end ---- */

static bool keep(const char **text)
{
    char *copy = *text ? strdup(*text) : NULL;
    bool kept = copy || !*text;
    *text = copy;
    return kept;
}

static bool keep_options(struct conn *c, const struct conn_options *options)
{
    bool kept = true;
    c->options = *options;
    if (!c->options.answer_ns)
        c->options.answer_ns = DEFAULT_ANSWER_NS;
    for (size_t i = 0; i < c->options.n_endpoints; i++)
        kept = keep(&c->options.endpoints[i].host) && kept;
    kept = keep(&c->options.user) && kept;
    return keep(&c->options.password) && kept;
}

static void wipe(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void drop_parts(struct conn *c)
{
    for (size_t i = 0; i < CONN_STREAMS_MAX; i++) {
        if (c->streams[i])
            conn_stream_close(c->streams[i]);
    }
    line_clear(&c->sent);
    line_clear(&c->waiting);
    line_clear(&c->ended);
    h2_free(c->h2);
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

void conn_free(struct conn *c)
{
    if (!c || c->freed)
        return;
    drop_parts(c);
    c->freed = true;
    if (c->depth == 0)
        free(c);
}

void conn_forked(struct conn *c)
{
    if (c)
        h2_forked(c->h2);
}

/* Many clients start at once: not all of them at the first member. */
static void shuffle(struct conn *c)
{
    for (size_t i = c->options.n_endpoints; i > 1; i--) {
        uint32_t random = 0;
        if (loop_random(c->loop, &random, sizeof random))
            return;
        struct conn_endpoint *a = &c->options.endpoints[i - 1];
        struct conn_endpoint *b = &c->options.endpoints[random % i], kept = *a;
        *a = *b;
        *b = kept;
    }
}

enum stile_status conn_new(struct conn **out, struct loop *loop, const struct conn_options *options,
                           const struct conn_events *events, void *owner, struct stile_error *err)
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
    conn_init_life(c);
    if (!keep_options(c, options)) {
        conn_free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    shuffle(c);
    conn_connect(c);
    *out = c;
    return STILE_OK;
}
