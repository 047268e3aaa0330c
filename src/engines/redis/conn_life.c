#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/conn_inner.h"
#include "engines/redis/fault.h"
#include "engines/redis/reply.h"
#include "mutant.h"

#define BACKOFF_FIRST_NS (20 * NS_PER_MS)
#define BACKOFF_MAX_NS   (2 * NS_PER_SEC)
/* One that was up for so long has not failed because of the server's load. */
#define STEADY_NS NS_PER_SEC

#define CONNECTING_NS (5 * NS_PER_SEC)
#define GREETING_NS   (5 * NS_PER_SEC)

void conn_enter(struct conn *c)
{
    c->in_event = true;
}

void conn_leave(struct conn *c)
{
    c->in_event = false;
    if (c->freed)
        free(c);
}

static void write_address(struct conn *c)
{
    const struct stream_target *to = &c->options.target;

    if (!to->host)
        snprintf(c->address, sizeof c->address, "%s", to->path);
    else
        snprintf(c->address, sizeof c->address, strchr(to->host, ':') ? "[%s]:%u" : "%s:%u",
                 to->host, to->port);
}

/* ---- down ---- */

static void plan_retry(struct conn *c, bool was_up)
{
    uint64_t now_ns = loop_now(c->loop);

    if (was_up && now_ns - c->up_ns >= STEADY_NS)
        c->attempt = 0;
    uint64_t most_ns = conn_patience(c, BACKOFF_MAX_NS, CONN_PAUSE_PART);
    uint64_t first_ns = BACKOFF_FIRST_NS < most_ns ? BACKOFF_FIRST_NS : most_ns;
    loop_arm(c->loop, &c->retry, now_ns + loop_backoff(c->loop, first_ns, most_ns, c->attempt));
    c->attempt++;
}

static void go_elsewhere(struct conn *c)
{
    c->moved = false;
    c->attempt = 0;
    loop_disarm(c->loop, &c->retry);
    conn_connect(c);
}

/* What is still in the stream has not been executed, nor has what is there in part. */
static void end_requests(struct conn *c)
{
#ifndef MUTANT_REDIS_DOUBT_IS_FAILURE
    for (struct request *r = c->sent.first; r; r = r->next)
        r->in_doubt = c->stream && r->end <= stream_sent(c->stream);
#endif
    line_append(&c->ended, &c->sent);
    line_append(&c->ended, &c->forgotten);
    if (!c->moved)
        line_append(&c->ended, &c->waiting);
    c->untold = NULL;
}

void conn_go_down(struct conn *c)
{
    bool was_up = c->state == UP;

    error_wrap(&c->why, c->why.status, "%s", c->address);
    end_requests(c);
    stream_free(c->stream);
    resp_free(c->resp);
    c->stream = NULL;
    c->resp = NULL;
    c->n_known = 0;
    c->leaving = false;
    c->state = PAUSED;
    loop_forget(c->loop, &c->break_task);
    struct stile_error why = c->why;
    if (c->moved)
        go_elsewhere(c);
    else
        plan_retry(c, was_up);
    conn_tell_ended(c, &why);
    if (!c->freed)
        c->events->down(c, &why);
}

void conn_break_soon(struct conn *c)
{
    loop_soon(c->loop, &c->break_task);
}

void conn_on_break(struct task *task)
{
    struct conn *c = (struct conn *)((char *)task - offsetof(struct conn, break_task));

    conn_enter(c);
    conn_go_down(c);
    conn_leave(c);
}

void conn_on_refuse(struct task *task)
{
    struct conn *c = (struct conn *)((char *)task - offsetof(struct conn, refuse_task));

    if (c->state != PAUSED)
        return; /* an attempt has begun meanwhile: they wait for it */
    conn_enter(c);
    line_append(&c->ended, &c->waiting);
    conn_tell_ended(c, &c->why);
    conn_leave(c);
}

/* ---- up ---- */

static void come_up(struct conn *c)
{
    c->state = UP;
    c->up_ns = loop_now(c->loop);
    if (c->suspect && !c->role_asked) { /* the suspicion came up while it was greeted */
        struct stile_error why;
        error_set(&why, STILE_UNREACHABLE, FAULT_READ_ONLY, "this server may be a replica");
        conn_reconnect(c, &why);
        return;
    }
    conn_put_waiting(c);
    for (struct conn_channel *channel = c->channels; channel; channel = channel->next)
        conn_put_channel(c, "SUBSCRIBE", channel);
    c->events->up(c);
}

/* err NULL is not enough: a server that repeats what it hears is not Redis either. */
static bool greeting_failed(struct conn *c, const char *what, const redisReply *reply,
                            const struct stile_error *err)
{
    bool strange = reply && reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_ERROR;

    if (c->state != GREETING)
        return true; /* the connection broke; everybody is told */
    if (!err && !strange)
        return false;
    if (strange)
        error_set(&c->why, STILE_REFUSED, 0, "what answers is not Redis");
    else if (err->status == STILE_UNCERTAIN) /* nothing that matters was asked yet */
        error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    else
        c->why = *err;
    error_wrap(&c->why, c->why.status, "%s", what);
    conn_go_down(c);
    return true;
}

/* The server's own words could repeat the password. */
static void on_auth(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct stile_error plain;

    if (reply && fault_of(reply) == FAULT_OTHER) {
        error_set(&plain, STILE_REFUSED, FAULT_OTHER, "the server does not accept AUTH");
        err = &plain;
    }
    greeting_failed(data, "logging in", reply, err);
}

static void on_select(void *data, const redisReply *reply, const struct stile_error *err)
{
    greeting_failed(data, "choosing the database", reply, err);
}

/* Nothing is asked of a replica: it would answer READONLY, or what was true some time ago. Where
 * the role is only a suspicion, an ACL may hide it: the next write shows it. */
static void on_role(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct conn *c = data;
    struct stile_error not_primary;

    if (!err && !is_text(element_at(reply, 0), "master")) {
        error_set(&not_primary, STILE_UNREACHABLE, FAULT_READ_ONLY,
                  "this server is not a primary (any more)");
        err = &not_primary;
    }
    if (!c->options.primary && fault_is_denial(err))
        err = NULL;
    else if (!err)
        c->suspect = false;
    greeting_failed(c, "asking for its role", NULL, err);
}

/* The name is for CLIENT LIST and may be refused, unless that means that all will be. */
static void on_name(void *data, const redisReply *reply, const struct stile_error *err)
{
    enum fault fault = reply ? fault_of(reply) : FAULT_NONE;
    bool fatal =
        !reply || fault == FAULT_AUTH || fault == FAULT_DENIED || fault == FAULT_MAX_CLIENTS;

    if (!greeting_failed(data, "connecting", reply, fatal ? err : NULL))
        come_up(data);
}

static bool greet(struct conn *c, const struct conn_arg *args, size_t n, conn_fn *fn)
{
    struct request *r = request_new(args, n);
    uint64_t ns = c->options.target.timeout_ns;

    ns = conn_patience(c, ns ? ns : GREETING_NS, CONN_SILENCE_PART);
    if (!r) {
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
        conn_go_down(c);
        return false;
    }
    r->fn = fn;
    r->data = c;
    r->secret = true;
    r->until_ns = loop_now(c->loop) + ns;
    conn_put(c, r);
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

#ifdef MUTANT_REDIS_TRUSTS_SENTINEL
    return true;
#endif
    c->role_asked = c->options.primary || c->suspect;
    return !c->role_asked || greet(c, &role, 1, on_role);
}

/* All in one go; nobody else's request goes out before they are answered: without SELECT it would
 * hit another database. */
static void on_opened(struct stream *stream)
{
    struct conn *c = stream_owner(stream);
    const struct conn_arg name[] = {CONN_TEXT("CLIENT"), CONN_TEXT("SETNAME"), CONN_TEXT("stile")};

    conn_enter(c);
    c->state = GREETING;
    if (log_in(c) && choose_db(c) && check_role(c) && greet(c, name, 3, on_name))
        conn_watch_time(c);
    conn_leave(c);
}

/* ---- the stream ---- */

static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct conn *c = stream_owner(stream);
    redisReply *reply;
    enum resp_step step = resp_feed(c->resp, bytes, n, &c->why) ? RESP_BAD : RESP_REPLY;

    c->heard_ns = loop_now(c->loop);
    conn_enter(c);
    while (step == RESP_REPLY && !c->freed && c->stream == stream) {
        step = resp_next(c->resp, &reply, &c->why);
        if (step == RESP_REPLY) {
            conn_take(c, reply);
            freeReplyObject(reply);
        }
    }
    if (step == RESP_BAD)
        conn_go_down(c);
    conn_leave(c);
}

static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct conn *c = stream_owner(stream);

    conn_enter(c);
    c->why = *why;
    conn_go_down(c);
    conn_leave(c);
}

const struct stream_events conn_stream_events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

void conn_connect(struct conn *c)
{
    struct stream_target target = c->options.target;

    target.timeout_ns =
        conn_patience(c, target.timeout_ns ? target.timeout_ns : CONNECTING_NS, CONN_SILENCE_PART);
    write_address(c);
    c->resp = resp_new();
    if (!c->resp)
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
    else if (!stream_open(&c->stream, c->loop, &target, &conn_stream_events, c, &c->why))
        c->state = CONNECTING;
    if (c->state != CONNECTING)
        conn_break_soon(c);
}

void conn_on_retry(struct timer *timer)
{
    conn_connect((struct conn *)((char *)timer - offsetof(struct conn, retry)));
}
