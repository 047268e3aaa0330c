/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a Redis server: the greeting, replies, scripts and subscriptions. connection.h
 * has the rules, kit/link.c the life of the connection. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/connection.h"
#include "engines/redis/errors.h"
#include "engines/redis/reply.h"

#define DEFAULT_ANSWER_NS (3 * NS_PER_SEC)
/* A connection is given up after this many times the timeout of a request without any reply. */
#define GIVE_UP_AFTER 4
#define GREETING_NS   (5 * NS_PER_SEC)
#define READ_AT_ONCE  32 /* requests in 16 KiB, which is what a server reads at a time */

static struct conn *conn_of(struct link *link)
{
    return container_of(link, struct conn, link);
}

static struct request *request_of(struct link_request *link)
{
    return container_of(link, struct request, link);
}

void *redis_conn_owner(const struct conn *c)
{
    return c->owner;
}

const struct conn_options *redis_conn_options(const struct conn *c)
{
    return &c->options;
}

bool redis_conn_is_up(const struct conn *c)
{
    return link_is_open(&c->link);
}

bool redis_conn_is_idle(const struct conn *c)
{
    return link_is_idle(&c->link);
}

static void fail_memory(struct conn *c, const char *what)
{
    struct stile_error err;

    error_set(&err, STILE_NOMEM, 0, "%sout of memory", what);
    link_fail_soon(&c->link, &err);
}

/* ---- requests ---- */

static bool knows(struct conn *c, const struct lua *lua)
{
    for (unsigned i = 0; i < c->n_known; i++)
        if (c->known[i] == lua)
            return true;
    if (c->n_known < CONN_KNOWN_MAX)
        c->known[c->n_known++] = lua; /* from this request on */
    return false;
}

/* ASKING holds for the next command only. Its own reply is ignored. */
static void put_asking(struct conn *c, uint64_t until_ns)
{
    const struct conn_arg word = CONN_TEXT("ASKING");
    struct request *asking = redis_request_new(&word, 1);

    if (!asking) {
        fail_memory(c, "");
        return;
    }
    asking->link.until_ns = until_ns;
    link_send(&c->link, &asking->link);
}

static int write_request(struct link *link, struct link_request *request)
{
    struct conn *c = conn_of(link);
    struct request *r = request_of(request);

    if (r->asking)
        put_asking(c, request->until_ns);
    r->asking = false;
    if (link->break_task.queued)
        return 0;
    return redis_request_write(r, link->stream, r->lua && !knows(c, r->lua));
}

static enum stile_status submit(struct conn *c, struct request *r, conn_fn *fn, void *data,
                                struct stile_error *err)
{
    if (!r)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (!link_has_room(&c->link, r->link.len)) {
        redis_request_free(r);
        return error_set(err, STILE_REFUSED, 0, "%s: too many requests wait for their answers",
                         c->link.address);
    }
    r->fn = fn;
    link_submit(&c->link, &r->link, data);
    return STILE_OK;
}

enum stile_status redis_conn_send(struct conn *c, const struct conn_arg *args, size_t n,
                                  conn_fn *fn, void *data, struct stile_error *err)
{
    if (c->pushes)
        return error_set(err, STILE_MISUSE, 0, "a subscribed connection takes no requests");
    return submit(c, redis_request_new(args, n), fn, data, err);
}

enum stile_status redis_conn_eval(struct conn *c, const struct lua *lua,
                                  const struct conn_arg *args, size_t n_keys, size_t n, conn_fn *fn,
                                  void *data, struct stile_error *err)
{
    if (c->pushes)
        return error_set(err, STILE_MISUSE, 0, "a subscribed connection takes no requests");
    return submit(c, redis_request_new_eval(lua, args, n_keys, n), fn, data, err);
}

/* After ASKING the source is sent: NOSCRIPT would use the ASKING up. */
void redis_conn_give(struct conn *c, struct request *r, bool asking)
{
    r->asking = asking;
    r->forgotten = asking;
    link_resubmit(&c->link, &r->link);
}

void redis_conn_forget(struct conn *c, const void *data)
{
    link_forget(&c->link, data);
}

bool redis_conn_cancel(struct conn *c, const void *data)
{
    return link_cancel(&c->link, data);
}

bool redis_conn_is_behind(const struct conn *c)
{
    return c->link.waiting.first || c->link.again.first || c->link.sent.n > READ_AT_ONCE;
}

void redis_conn_hurry(struct conn *c)
{
    link_hurry(&c->link);
}

void redis_conn_flush(struct conn *c)
{
    if (c->link.stream)
        stream_flush(c->link.stream);
}

/* ---- replies ---- */

static void answer_request(struct link *link, struct link_request *request,
                           const struct stile_error *err)
{
    (void)link;
    request_of(request)->fn(request->data, NULL, err);
}

static void free_request(struct link_request *request)
{
    redis_request_free(request_of(request));
}

static void finish(struct request *r, const redisReply *reply, const struct stile_error *err)
{
    struct stile_error meaning;

    if (r->link.wanted && is_error(reply) && redis_error_explain(reply, &meaning))
        err = &meaning;
    if (r->link.wanted)
        r->fn(r->link.data, reply, err);
    redis_request_free(r);
}

void redis_conn_answer(struct request *r, const struct stile_error *err)
{
    finish(r, NULL, err);
}

static void see_replica(struct conn *c, const redisReply *reply)
{
    struct stile_error why;

    if (c->link.freed || c->link.state != LINK_UP || !is_error(reply) ||
        !redis_error_is_replica(redis_error_of(reply)))
        return;
    redis_error_explain(reply, &why);
    redis_conn_reconnect(c, &why);
    if (c->events->replica)
        c->events->replica(c, &why);
}

/* ---- subscriptions: what the server sends ---- */

/* An array of three: what, channel, payload or count. */
static bool is_push(const redisReply *reply)
{
    return length_of(reply) == 3 && text_at(reply, 0) && text_at(reply, 1);
}

static void take_push(struct conn *c, const redisReply *reply)
{
    const redisReply *kind = element_at(reply, 0), *channel = element_at(reply, 1);
    const redisReply *payload = element_at(reply, 2);
    struct stile_error why;

    if (!is_push(reply)) {
        if (!redis_error_explain(reply, &why))
            error_set(&why, STILE_REFUSED, 0, "the server sent a reply without a request");
        link_fail(&c->link, &why);
    } else if (is_text(kind, "message") && text_of(payload)) {
        c->events->message(c, channel->str, channel->len, payload->str, payload->len);
    } else if (is_text(kind, "subscribe") && c->events->subscribed) {
        c->events->subscribed(c, channel->str, channel->len);
    }
}

/* A script that the server has forgotten is sent again with its source. A later script can be
 * executed first only if another client loads it in between. */
static void take_answer(struct conn *c, struct request *r, const redisReply *reply)
{
    link_take(&c->link, &r->link);
    if (is_error(reply) && r->lua && r->link.wanted && !r->forgotten &&
        redis_error_of(reply) == REDIS_ERROR_NO_SCRIPT) {
        r->forgotten = true;
        link_repeat(&c->link, &r->link);
        c->n_known = 0;
    } else if (!link_is_open(&c->link) || !r->link.wanted || !c->events->answers ||
               !c->events->answers(c, r, reply)) {
        finish(r, reply, NULL);
    }
    see_replica(c, reply);
    link_go_on(&c->link);
}

static void take_reply(struct conn *c, const redisReply *reply)
{
    if (c->link.sent.first)
        take_answer(c, request_of(c->link.sent.first), reply);
    else
        take_push(c, reply);
}

static void on_bytes(struct link *link, const void *bytes, size_t n)
{
    struct conn *c = conn_of(link);
    struct stream *stream = link->stream;
    struct stile_error why;
    redisReply *reply;
    enum resp_step step = redis_resp_feed(c->resp, bytes, n, &why) ? RESP_BAD : RESP_REPLY;

    while (step == RESP_REPLY && !link->freed && link->stream == stream) {
        step = redis_resp_next(c->resp, &reply, &why);
        if (step == RESP_REPLY) {
            take_reply(c, reply);
            freeReplyObject(reply);
        }
    }
    if (step == RESP_BAD)
        link_fail(link, &why);
}

/* ---- subscriptions: channels ---- */

static void put_channel(struct conn *c, const char *verb, const struct conn_channel *channel)
{
    const struct conn_arg args[] = {CONN_TEXT(verb), {channel->name, channel->len}};
    struct request *r = redis_request_new(args, 2);

    if (r)
        link_write(&c->link, &r->link);
    else
        fail_memory(c, "subscribing: ");
    redis_request_free(r);
}

enum stile_status redis_conn_subscribe(struct conn *c, const char *channel, size_t len,
                                       struct stile_error *err)
{
    struct conn_channel *added = malloc(sizeof *added + len);

    if (!added)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    *added = (struct conn_channel){.next = c->channels, .len = len};
    memcpy(added->name, channel, len);
    c->channels = added;
    c->pushes = true;
    if (link_is_open(&c->link))
        put_channel(c, "SUBSCRIBE", added);
    return STILE_OK;
}

void redis_conn_unsubscribe(struct conn *c, const char *channel, size_t len)
{
    struct conn_channel **at = &c->channels;

    while (*at && ((*at)->len != len || memcmp((*at)->name, channel, len) != 0))
        at = &(*at)->next;
    struct conn_channel *gone = *at;
    if (!gone)
        return;
    *at = gone->next;
    if (link_is_open(&c->link))
        put_channel(c, "UNSUBSCRIBE", gone);
    free(gone);
}

/* ---- greeting ---- */

static void come_up(struct conn *c)
{
    if (c->suspect && !c->role_asked) { /* the suspicion arose during the greeting */
        struct stile_error why;
        error_set(&why, STILE_UNREACHABLE, REDIS_ERROR_READ_ONLY, "this server may be a replica");
        link_leave(&c->link, &why);
        return;
    }
    link_come_up(&c->link);
    for (struct conn_channel *channel = c->channels; channel; channel = channel->next)
        put_channel(c, "SUBSCRIBE", channel);
    c->events->up(c);
}

/* err NULL is not enough: a server that echoes its input is not Redis either. */
static bool greeting_failed(struct conn *c, const char *what, const redisReply *reply,
                            const struct stile_error *err)
{
    struct stile_error why;
    bool strange = reply && reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_ERROR;

    if (c->link.state != LINK_GREETING)
        return true; /* the connection broke: all requests are answered already */
    if (!err && !strange)
        return false;
    if (strange)
        error_set(&why, STILE_REFUSED, 0, "the server that answers is not Redis");
    else if (err->status == STILE_UNCERTAIN) /* no request of a caller was sent yet */
        error_set(&why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    else
        why = *err;
    error_wrap(&why, why.status, "%s", what);
    link_fail(&c->link, &why);
    return true;
}

/* The server's error text could repeat the password. */
static void on_auth(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct stile_error plain;

    if (reply && redis_error_of(reply) == REDIS_ERROR_OTHER) {
        error_set(&plain, STILE_REFUSED, REDIS_ERROR_OTHER, "the server does not accept AUTH");
        err = &plain;
    }
    greeting_failed(data, "logging in", reply, err);
}

static void on_select(void *data, const redisReply *reply, const struct stile_error *err)
{
    greeting_failed(data, "choosing the database", reply, err);
}

/* A replica gets no requests: it would answer READONLY, or with outdated data. If the role is only
 * a suspicion, an ACL may hide it: the next write shows it. */
static void on_role(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct conn *c = data;
    struct stile_error not_primary;

    if (!err && !is_text(element_at(reply, 0), "master")) {
        error_set(&not_primary, STILE_UNREACHABLE, REDIS_ERROR_READ_ONLY,
                  "this server is not a primary, or no longer one");
        err = &not_primary;
    }
    if (!c->options.primary && redis_error_is_denial(err))
        err = NULL;
    else if (!err)
        c->suspect = false;
    greeting_failed(c, "asking for its role", NULL, err);
}

/* The name is for CLIENT LIST and may be refused, unless the same error would refuse everything. */
static void on_name(void *data, const redisReply *reply, const struct stile_error *err)
{
    enum redis_error fault = reply ? redis_error_of(reply) : REDIS_ERROR_NONE;
    bool fatal = !reply || fault == REDIS_ERROR_AUTH || fault == REDIS_ERROR_DENIED ||
                 fault == REDIS_ERROR_MAX_CLIENTS;

    if (!greeting_failed(data, "connecting", reply, fatal ? err : NULL))
        come_up(data);
}

static bool greet(struct conn *c, const struct conn_arg *args, size_t n, conn_fn *fn)
{
    struct request *r = redis_request_new(args, n);
    uint64_t ns = c->options.target.timeout_ns;

    if (!r) {
        fail_memory(c, "");
        return false;
    }
    r->fn = fn;
    r->secret = true;
    r->link.data = c;
    r->link.wanted = true;
    r->link.until_ns = loop_now(c->link.loop) + link_patience(&c->link, ns ? ns : GREETING_NS);
    link_send(&c->link, &r->link);
    return true;
}

static bool log_in(struct conn *c)
{
    struct conn_arg args[] = {CONN_TEXT("AUTH"), CONN_TEXT(c->user ? c->user : ""),
                              CONN_TEXT(c->password ? c->password : "")};

    if (!c->password)
        return true;
    if (!c->user)
        args[1] = args[2];
    return greet(c, args, c->user ? 3 : 2, on_auth);
}

static bool choose_db(struct conn *c)
{
    char db[16];
    struct conn_arg args[] = {CONN_TEXT("SELECT"), {db, 0}};

    if (!c->options.db)
        return true;
    args[1].len = (size_t)snprintf(db, sizeof db, "%u", c->options.db);
    return greet(c, args, 2, on_select);
}

static bool check_role(struct conn *c)
{
    const struct conn_arg role = CONN_TEXT("ROLE");

    c->role_asked = c->options.primary || c->suspect;
    return !c->role_asked || greet(c, &role, 1, on_role);
}

/* Sent together; no other request is sent before they are answered: without SELECT it would use
 * another database. */
static void on_opened(struct link *link)
{
    struct conn *c = conn_of(link);
    const struct conn_arg name[] = {CONN_TEXT("CLIENT"), CONN_TEXT("SETNAME"), CONN_TEXT("stile")};

    struct stile_error err;

    c->resp = redis_resp_new();
    if (!c->resp) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        link_fail(link, &err);
    } else if (log_in(c) && choose_db(c) && check_role(c)) {
        greet(c, name, 3, on_name);
    }
}

/* ---- down ---- */

static void on_closed(struct link *link, const struct stile_error *why)
{
    struct conn *c = conn_of(link);

    (void)why;
    redis_resp_free(c->resp);
    c->resp = NULL;
    c->n_known = 0;
}

static bool goes_on(struct link *link, bool steady)
{
    struct conn *c = conn_of(link);
    bool at_once = c->moved || link->left;

    (void)steady;
    c->moved = false;
    if (at_once)
        link->attempt = 0;
    return at_once;
}

static void on_down(struct link *link, const struct stile_error *why, bool was_up)
{
    struct conn *c = conn_of(link);

    (void)was_up;
    c->events->down(c, why);
}

static void on_late(struct link *link)
{
    struct conn *c = conn_of(link);

    if (c->events->late)
        c->events->late(c);
}

static void free_conn(struct link *link)
{
    free(conn_of(link));
}

static const struct link_class class = {
    .in_order = true,
    .write = write_request,
    .opened = on_opened,
    .received = on_bytes,
    .failed = answer_request,
    .free_request = free_request,
    .late = on_late,
    .closed = on_closed,
    .next = goes_on,
    .down = on_down,
    .free = free_conn,
};

/* ---- new, free, move ---- */

static bool keep(char **to, const char **option)
{
    if (!*option)
        return true;
    *to = strdup(*option);
    *option = *to;
    return *to;
}

static bool keep_options(struct conn *c, const struct conn_options *options)
{
    c->options = *options;
    if (!c->options.answer_ns)
        c->options.answer_ns = DEFAULT_ANSWER_NS;
    return keep(&c->host, &c->options.target.host) && keep(&c->path, &c->options.target.path) &&
           keep(&c->user, &c->options.user) && keep(&c->password, &c->options.password);
}

static void free_members(struct conn *c)
{
    for (struct conn_channel *next; c->channels; c->channels = next) {
        next = c->channels->next;
        free(c->channels);
    }
    if (c->password)
        explicit_bzero(c->password, strlen(c->password));
    free(c->password);
    free(c->user);
    free(c->host);
    free(c->path);
}

void redis_conn_free(struct conn *c)
{
    if (!c || c->link.freed)
        return;
    free_members(c);
    link_free(&c->link);
}

void redis_conn_forked(struct conn *c)
{
    if (c)
        link_forked(&c->link);
}

static int init_link(struct conn *c, struct loop *loop)
{
    const struct link_options options = {
        .target = c->options.target,
        .answer_ns = c->options.answer_ns,
        .silence_ns = GIVE_UP_AFTER * c->options.answer_ns,
        .leases = c->options.leases,
        .window = c->options.window,
        .pending_max = CONN_PENDING_MAX,
        .pending_bytes = STREAM_OUT_MAX,
    };
    return link_init(&c->link, loop, &class, &options);
}

enum stile_status redis_conn_new(struct conn **out, struct loop *loop,
                                 const struct conn_options *options,
                                 const struct conn_events *events, void *owner,
                                 struct stile_error *err)
{
    if (options->user && !options->password)
        return error_set(err, STILE_MISUSE, 0, "a user is given without a password");
    struct conn *c = calloc(1, sizeof *c);
    if (!c || !keep_options(c, options) || init_link(c, loop)) {
        if (c)
            free_members(c);
        free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    c->events = events;
    c->owner = owner;
    link_start(&c->link);
    *out = c;
    return STILE_OK;
}

enum stile_status redis_conn_move(struct conn *c, const char *host, uint16_t port,
                                  const struct stile_error *why, struct stile_error *err)
{
    char *copy = strdup(host);

    if (!copy)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    free(c->host);
    c->options.target.host = c->host = copy;
    c->options.target.port = port;
    c->link.options.target = c->options.target;
    if (!why)
        return STILE_OK;
    c->moved = true;
    link_fail_soon(&c->link, why);
    return STILE_OK;
}

void redis_conn_reconnect(struct conn *c, const struct stile_error *why)
{
    c->suspect = true;
    if (c->link.state == LINK_UP)
        link_leave(&c->link, why);
}
