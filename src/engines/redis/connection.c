/* One connection to a Redis server: requests and replies, subscriptions, timeouts and reconnecting.
 * connection.h has the rules. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/redis/connection.h"
#include "engines/redis/connection_inner.h"
#include "engines/redis/errors.h"
#include "engines/redis/reply.h"

/* Limits, as fractions of the shortest lease that depends on the connection. */
#define CONN_SILENCE_FRACTION 4
#define CONN_PAUSE_FRACTION   8

static void go_down(struct conn *conn); /* why is set */
/* The same from the loop, for callers that must not run callbacks. */
static void break_soon(struct conn *conn);
static void start_connecting(struct conn *conn);
static void enter(struct conn *conn);
static void leave(struct conn *conn);
static void on_retry(struct timer *timer);
static void on_break(struct task *task);
static void on_refuse(struct task *task);
static void on_overdue(struct timer *timer);
static void put_on_wire(struct conn *conn, struct request *request);
static void finish(struct request *request, const redisReply *reply, const struct stile_error *err);
static void leave_when_answered(struct conn *conn);
static void take_push(struct conn *conn, const redisReply *reply);
static void watch_time(struct conn *conn);

#define DEFAULT_ANSWER_NS (3 * NS_PER_SEC)
#define CONN_TIMERS       2
#define READ_AT_ONCE      32 /* requests in 16 KiB, which is what a server reads at a time */

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
    return c->state == UP;
}

bool redis_conn_is_idle(const struct conn *c)
{
    return !c->sent.first && !c->forgotten.first && !c->waiting.first && !c->ended.first;
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

/* Nothing may follow a request that was written in part: the server would take it for the rest. */
static void write_request(struct conn *c, struct request *r)
{
    r->end = UINT64_MAX;
    if (c->break_task.queued)
        return;
    int rc = redis_request_write(r, c->stream, r->lua && !knows(c, r->lua));
    if (rc) {
        error_errno(&c->why, STILE_UNREACHABLE, rc, "sending");
        break_soon(c);
    }
}

/* ASKING holds for the next command only. Its own reply is ignored. */
static void put_asking(struct conn *c, uint64_t until_ns)
{
    const struct conn_arg word = CONN_TEXT("ASKING");
    struct request *asking = redis_request_new(&word, 1);

    if (!asking) {
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
        break_soon(c);
        return;
    }
    asking->until_ns = until_ns;
    put_on_wire(c, asking);
}

static void put_on_wire(struct conn *c, struct request *r)
{
    if (r->asking)
        put_asking(c, r->until_ns);
    r->asking = false;
    r->put_ns = loop_now(c->loop);
    write_request(c, r);
    redis_requests_push(&c->sent, r);
    if (!c->first_on_time)
        c->first_on_time = r;
}

static bool has_room(const struct conn *c)
{
    return c->options.window == 0 || c->sent.n < c->options.window;
}

static void put_waiting(struct conn *c)
{
    while (c->waiting.first && has_room(c)) {
        struct request *r = redis_requests_pop(&c->waiting);
        if (c->options.window)
            r->until_ns = loop_now(c->loop) + c->options.answer_ns;
        put_on_wire(c, r);
    }
}

/* With a window, no request overtakes those that wait for room. */
static bool is_clear(const struct conn *c)
{
    return c->state == UP && !c->forgotten.first && !c->break_task.queued && has_room(c) &&
           !(c->options.window && c->waiting.first) && !c->leaving;
}

static void prepare(struct conn *c, struct request *r, conn_fn *fn, void *data)
{
    r->fn = fn;
    r->data = data;
    r->until_ns = loop_now(c->loop) + c->options.answer_ns;
}

static void take_in(struct conn *c, struct request *r)
{
    if (is_clear(c))
        put_on_wire(c, r);
    else
        redis_requests_push(&c->waiting, r);
    if (c->state == PAUSED && !c->moved)
        loop_soon(c->loop, &c->refuse_task);
    watch_time(c);
}

static enum stile_status submit(struct conn *c, struct request *r, conn_fn *fn, void *data,
                                struct stile_error *err)
{
    if (!r)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (c->sent.n + c->forgotten.n + c->waiting.n >= CONN_PENDING_MAX ||
        c->sent.bytes + c->forgotten.bytes + c->waiting.bytes + r->len > STREAM_OUT_MAX) {
        redis_request_free(r);
        return error_set(err, STILE_REFUSED, 0, "%s: too many requests wait for their answers",
                         c->address);
    }
    prepare(c, r, fn, data);
    take_in(c, r);
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
    take_in(c, r);
}

void redis_conn_answer(struct request *r, const struct stile_error *err)
{
    finish(r, NULL, err);
}

void redis_conn_forget(struct conn *c, const void *data)
{
    redis_requests_forget(&c->sent, data);
    redis_requests_forget(&c->forgotten, data);
    redis_requests_forget(&c->waiting, data);
    redis_requests_forget(&c->ended, data);
}

bool redis_conn_cancel(struct conn *c, const void *data)
{
    bool unsent = redis_requests_cancel(&c->waiting, data);

    redis_conn_forget(c, data);
    return unsent;
}

bool redis_conn_is_behind(const struct conn *c)
{
    return c->waiting.first || c->forgotten.first || c->sent.n > READ_AT_ONCE;
}

void redis_conn_flush(struct conn *c)
{
    if (c->stream)
        stream_flush(c->stream);
}

/* ---- replies ---- */

static void finish(struct request *r, const redisReply *reply, const struct stile_error *err)
{
    struct stile_error meaning;

    if (r->fn && reply && redis_error_explain(reply, &meaning))
        err = &meaning;
    if (r->fn)
        r->fn(r->data, reply, err);
    redis_request_free(r);
}

static void answer_ended(struct conn *c, const struct stile_error *why)
{
    struct stile_error never = *why, doubt;

    error_set(&doubt, STILE_UNCERTAIN, never.native, "no answer, the connection broke: %s",
              never.message);
    for (struct request *r; !c->freed && (r = redis_requests_pop(&c->ended));)
        finish(r, NULL, r->in_doubt ? &doubt : &never);
}

/* They are sent again in their old order and before newer requests, once no request is under way
 * that could get NOSCRIPT, too. A later script can be executed first only if another client loads
 * it in between. */
static void send_forgotten(struct conn *c)
{
    struct request_queue again = c->forgotten;

    if (c->sent.first)
        return;
    if (again.n == 0)
        return;
    redis_requests_init(&c->forgotten);
    for (struct request *r = again.first, *next; r; r = next) {
        next = r->next;
        put_on_wire(c, r);
    }
    put_waiting(c);
}

static void see_replica(struct conn *c, const redisReply *reply)
{
    struct stile_error why;

    if (c->freed || c->state != UP || c->leaving || !redis_error_is_replica(redis_error_of(reply)))
        return;
    redis_error_explain(reply, &why);
    redis_conn_reconnect(c, &why);
    if (c->events->replica)
        c->events->replica(c, &why);
}

static void take_reply(struct conn *c, const redisReply *reply)
{
    struct request *r = redis_requests_pop(&c->sent);

    if (!r) {
        take_push(c, reply);
        return;
    }
    if (c->first_on_time == r)
        c->first_on_time = r->next;
    if (r->lua && r->fn && !r->forgotten && redis_error_of(reply) == FAULT_NO_SCRIPT) {
        r->forgotten = true;
        redis_requests_push(&c->forgotten, r);
        c->n_known = 0;
    } else if (c->state != UP || !r->fn || !c->events->answers ||
               !c->events->answers(c, r, reply)) {
        finish(r, reply, NULL);
    }
    see_replica(c, reply);
    if (c->freed || c->state != UP)
        return;
    if (c->leaving)
        leave_when_answered(c);
    else
        send_forgotten(c);
    if (!c->freed && c->state == UP && !c->forgotten.first && !c->break_task.queued && !c->leaving)
        put_waiting(c);
}

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
    stream_free(c->stream);
    redis_resp_free(c->resp);
    c->stream = NULL;
    c->resp = NULL;
    loop_disarm(c->loop, &c->overdue);
    loop_disarm(c->loop, &c->retry);
    loop_forget(c->loop, &c->break_task);
    loop_forget(c->loop, &c->refuse_task);
    redis_requests_clear(&c->sent);
    redis_requests_clear(&c->forgotten);
    redis_requests_clear(&c->waiting);
    redis_requests_clear(&c->ended);
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
    if (!c || c->freed)
        return;
    free_members(c);
    loop_unreserve(c->loop, CONN_TIMERS);
    if (c->in_event)
        c->freed = true;
    else
        free(c);
}

void redis_conn_forked(struct conn *c)
{
    if (c)
        stream_forked(c->stream);
}

static struct conn *conn_alloc(struct loop *loop, const struct conn_events *events, void *owner)
{
    struct conn *c = calloc(1, sizeof *c);

    if (!c || loop_reserve(loop, CONN_TIMERS)) {
        free(c);
        return NULL;
    }
    c->loop = loop;
    c->events = events;
    c->owner = owner;
    c->overdue.fn = on_overdue;
    c->retry.fn = on_retry;
    c->break_task.fn = on_break;
    c->refuse_task.fn = on_refuse;
    redis_requests_init(&c->sent);
    redis_requests_init(&c->forgotten);
    redis_requests_init(&c->waiting);
    redis_requests_init(&c->ended);
    return c;
}

enum stile_status redis_conn_new(struct conn **out, struct loop *loop,
                                 const struct conn_options *options,
                                 const struct conn_events *events, void *owner,
                                 struct stile_error *err)
{
    if (options->user && !options->password)
        return error_set(err, STILE_MISUSE, 0, "a user is given without a password");
    struct conn *c = conn_alloc(loop, events, owner);
    if (!c || !keep_options(c, options)) {
        redis_conn_free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    start_connecting(c);
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
    if (!why)
        return STILE_OK;
    c->why = *why;
    c->moved = true;
    break_soon(c);
    return STILE_OK;
}

static void leave_when_answered(struct conn *c)
{
    if (c->sent.first || c->break_task.queued)
        return;
    c->moved = true;
    break_soon(c);
}

/* The old server still answers what is under way, mostly with READONLY. If the connection were
 * closed at once, those requests would be in doubt. */
void redis_conn_reconnect(struct conn *c, const struct stile_error *why)
{
    c->suspect = true;
    if (c->state != UP || c->leaving || c->break_task.queued)
        return;
    c->why = *why;
    c->leaving = true;
    leave_when_answered(c);
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

    if (!is_push(reply)) {
        if (!redis_error_explain(reply, &c->why))
            error_set(&c->why, STILE_REFUSED, 0, "the server sent a reply without a request");
        go_down(c);
    } else if (is_text(kind, "message") && text_of(payload)) {
        c->events->message(c, channel->str, channel->len, payload->str, payload->len);
    } else if (is_text(kind, "subscribe") && c->events->subscribed) {
        c->events->subscribed(c, channel->str, channel->len);
    }
}

/* ---- subscriptions: channels ---- */

static void put_channel(struct conn *c, const char *verb, const struct conn_channel *channel)
{
    const struct conn_arg args[] = {CONN_TEXT(verb), {channel->name, channel->len}};
    struct request *r = redis_request_new(args, 2);

    if (r) {
        write_request(c, r);
    } else {
        error_set(&c->why, STILE_NOMEM, 0, "subscribing: out of memory");
        break_soon(c);
    }
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
    if (c->state == UP)
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
    if (c->state == UP)
        put_channel(c, "UNSUBSCRIBE", gone);
    free(gone);
}

/* ---- timeouts ---- */

/* A connection is given up after this many times the timeout of a request without any reply. */
#define GIVE_UP_AFTER 4

static uint64_t patience(const struct conn *c, uint64_t usual_ns, unsigned fraction)
{
    uint64_t lease_ns = c->options.leases ? redis_leases_shortest(c->options.leases) : UINT64_MAX;
    return lease_ns / fraction < usual_ns ? lease_ns / fraction : usual_ns;
}

static uint64_t silence(const struct conn *c)
{
    return patience(c, GIVE_UP_AFTER * c->options.answer_ns, CONN_SILENCE_FRACTION);
}

static uint64_t earlier(uint64_t at_ns, const struct request *r)
{
    return r && r->until_ns < at_ns ? r->until_ns : at_ns;
}

/* A server with thousands of requests answers one after the other. While replies come, an overdue
 * request is no reason to leave it: the last requests would be lost with the connection, though
 * they were about to be executed. */
static uint64_t give_up_at(const struct conn *c)
{
    if (!c->sent.first)
        return NEVER;
    uint64_t asked_ns = c->sent.first->put_ns + silence(c);
    uint64_t heard_ns = c->heard_ns + silence(c);
    return asked_ns > heard_ns ? asked_ns : heard_ns;
}

/* Until when unsent requests may wait: for a connection; or, with a window, for as long as the
 * server answers those before them. */
static uint64_t waits_until(const struct conn *c)
{
    if (!c->waiting.first)
        return NEVER;
    if (c->state != UP || !c->options.window)
        return c->waiting.first->until_ns;
    if (!c->sent.first)
        return NEVER;
    uint64_t heard_ns = c->heard_ns + c->options.answer_ns;
    return heard_ns > c->sent.first->until_ns ? heard_ns : c->sent.first->until_ns;
}

/* The timer stays where it is while requests come and go, and is set again when it fires. Only a
 * request with an earlier deadline than all before it moves it. */
static void watch_time(struct conn *c)
{
    uint64_t at_ns = earlier(give_up_at(c), c->first_on_time);
    at_ns = earlier(at_ns, c->forgotten.first);
    at_ns = waits_until(c) < at_ns ? waits_until(c) : at_ns;
    if (c->overdue.place ? at_ns < c->overdue.at_ns : at_ns != NEVER)
        loop_arm(c->loop, &c->overdue, at_ns);
}

static void tell_overdue(struct conn *c, uint64_t now_ns)
{
    struct stile_error err;
    bool late = c->first_on_time && c->first_on_time->until_ns <= now_ns;

    error_set(&err, STILE_UNCERTAIN, ETIMEDOUT, "%s: no answer in time", c->address);
    while (!c->freed && c->first_on_time && c->first_on_time->until_ns <= now_ns) {
        struct request *r = c->first_on_time;
        conn_fn *fn = r->fn;
        c->first_on_time = r->next;
        r->fn = NULL; /* its answer is dropped when it comes */
        if (fn)
            fn(r->data, NULL, &err);
    }
    if (late && !c->freed && c->events->late)
        c->events->late(c);
}

static void refuse_overdue(struct conn *c, struct request_queue *line, uint64_t now_ns)
{
    struct stile_error err;

    error_set(&err, STILE_UNREACHABLE, ETIMEDOUT, "%s: no connection in time", c->address);
    while (!c->freed && line->first && line->first->until_ns <= now_ns)
        finish(redis_requests_pop(line), NULL, &err);
}

static void refuse_waiting(struct conn *c, uint64_t now_ns)
{
    struct stile_error err;

    if (c->freed || waits_until(c) > now_ns)
        return;
    if (c->state != UP || !c->options.window) {
        refuse_overdue(c, &c->waiting, now_ns);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, ETIMEDOUT, "%s: no answer in time", c->address);
    size_t n = c->waiting.n; /* requests made meanwhile have a deadline of their own */
    while (!c->freed && n-- > 0 && c->waiting.first)
        finish(redis_requests_pop(&c->waiting), NULL, &err);
}

static void give_up(struct conn *c, uint64_t now_ns)
{
    if (give_up_at(c) > now_ns)
        return;
    error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server has not answered for %llu ms",
              (unsigned long long)(silence(c) / NS_PER_MS));
    go_down(c);
}

static void on_overdue(struct timer *timer)
{
    struct conn *c = container_of(timer, struct conn, overdue);
    uint64_t now_ns = loop_now(c->loop);

    enter(c);
    tell_overdue(c, now_ns);
    refuse_overdue(c, &c->forgotten, now_ns);
    refuse_waiting(c, now_ns);
    if (!c->freed)
        give_up(c, now_ns);
    if (!c->freed)
        watch_time(c);
    leave(c);
}

/* ---- connecting ---- */

#define BACKOFF_FIRST_NS (20 * NS_PER_MS)
#define BACKOFF_MAX_NS   (2 * NS_PER_SEC)
/* A connection that was up for this long did not fail because of the server's load. */
#define STEADY_NS NS_PER_SEC

#define CONNECTING_NS (5 * NS_PER_SEC)
#define GREETING_NS   (5 * NS_PER_SEC)

static void enter(struct conn *c)
{
    c->in_event = true;
}

static void leave(struct conn *c)
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
    uint64_t most_ns = patience(c, BACKOFF_MAX_NS, CONN_PAUSE_FRACTION);
    uint64_t first_ns = BACKOFF_FIRST_NS < most_ns ? BACKOFF_FIRST_NS : most_ns;
    loop_arm(c->loop, &c->retry, now_ns + loop_backoff(c->loop, first_ns, most_ns, c->attempt));
    c->attempt++;
}

static void go_elsewhere(struct conn *c)
{
    c->moved = false;
    c->attempt = 0;
    loop_disarm(c->loop, &c->retry);
    start_connecting(c);
}

/* Requests that are still in the stream, even in part, have not been executed. */
static void end_requests(struct conn *c)
{
    for (struct request *r = c->sent.first; r; r = r->next)
        r->in_doubt = c->stream && r->end <= stream_sent(c->stream);
    redis_requests_append(&c->ended, &c->sent);
    redis_requests_append(&c->ended, &c->forgotten);
    if (!c->moved)
        redis_requests_append(&c->ended, &c->waiting);
    c->first_on_time = NULL;
}

static void go_down(struct conn *c)
{
    bool was_up = c->state == UP;

    error_wrap(&c->why, c->why.status, "%s", c->address);
    end_requests(c);
    stream_free(c->stream);
    redis_resp_free(c->resp);
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
    answer_ended(c, &why);
    if (!c->freed)
        c->events->down(c, &why);
}

static void break_soon(struct conn *c)
{
    loop_soon(c->loop, &c->break_task);
}

static void on_break(struct task *task)
{
    struct conn *c = container_of(task, struct conn, break_task);

    enter(c);
    go_down(c);
    leave(c);
}

static void on_refuse(struct task *task)
{
    struct conn *c = container_of(task, struct conn, refuse_task);

    if (c->state != PAUSED)
        return; /* a new attempt has begun: they wait for it */
    enter(c);
    redis_requests_append(&c->ended, &c->waiting);
    answer_ended(c, &c->why);
    leave(c);
}

/* ---- up ---- */

static void come_up(struct conn *c)
{
    c->state = UP;
    c->up_ns = loop_now(c->loop);
    if (c->suspect && !c->role_asked) { /* the suspicion arose during the greeting */
        struct stile_error why;
        error_set(&why, STILE_UNREACHABLE, FAULT_READ_ONLY, "this server may be a replica");
        redis_conn_reconnect(c, &why);
        return;
    }
    put_waiting(c);
    for (struct conn_channel *channel = c->channels; channel; channel = channel->next)
        put_channel(c, "SUBSCRIBE", channel);
    c->events->up(c);
}

/* err NULL is not enough: a server that echoes its input is not Redis either. */
static bool greeting_failed(struct conn *c, const char *what, const redisReply *reply,
                            const struct stile_error *err)
{
    bool strange = reply && reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_ERROR;

    if (c->state != GREETING)
        return true; /* the connection broke: all requests are answered already */
    if (!err && !strange)
        return false;
    if (strange)
        error_set(&c->why, STILE_REFUSED, 0, "the server that answers is not Redis");
    else if (err->status == STILE_UNCERTAIN) /* no request of a caller was sent yet */
        error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    else
        c->why = *err;
    error_wrap(&c->why, c->why.status, "%s", what);
    go_down(c);
    return true;
}

/* The server's error text could repeat the password. */
static void on_auth(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct stile_error plain;

    if (reply && redis_error_of(reply) == FAULT_OTHER) {
        error_set(&plain, STILE_REFUSED, FAULT_OTHER, "the server does not accept AUTH");
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
        error_set(&not_primary, STILE_UNREACHABLE, FAULT_READ_ONLY,
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
    enum redis_error fault = reply ? redis_error_of(reply) : FAULT_NONE;
    bool fatal =
        !reply || fault == FAULT_AUTH || fault == FAULT_DENIED || fault == FAULT_MAX_CLIENTS;

    if (!greeting_failed(data, "connecting", reply, fatal ? err : NULL))
        come_up(data);
}

static bool greet(struct conn *c, const struct conn_arg *args, size_t n, conn_fn *fn)
{
    struct request *r = redis_request_new(args, n);
    uint64_t ns = c->options.target.timeout_ns;

    ns = patience(c, ns ? ns : GREETING_NS, CONN_SILENCE_FRACTION);
    if (!r) {
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
        go_down(c);
        return false;
    }
    r->fn = fn;
    r->data = c;
    r->secret = true;
    r->until_ns = loop_now(c->loop) + ns;
    put_on_wire(c, r);
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
static void on_opened(struct stream *stream)
{
    struct conn *c = stream_owner(stream);
    const struct conn_arg name[] = {CONN_TEXT("CLIENT"), CONN_TEXT("SETNAME"), CONN_TEXT("stile")};

    enter(c);
    c->state = GREETING;
    if (log_in(c) && choose_db(c) && check_role(c) && greet(c, name, 3, on_name))
        watch_time(c);
    leave(c);
}

/* ---- the stream ---- */

static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct conn *c = stream_owner(stream);
    redisReply *reply;
    enum resp_step step = redis_resp_feed(c->resp, bytes, n, &c->why) ? RESP_BAD : RESP_REPLY;

    c->heard_ns = loop_now(c->loop);
    enter(c);
    while (step == RESP_REPLY && !c->freed && c->stream == stream) {
        step = redis_resp_next(c->resp, &reply, &c->why);
        if (step == RESP_REPLY) {
            take_reply(c, reply);
            freeReplyObject(reply);
        }
    }
    if (step == RESP_BAD)
        go_down(c);
    leave(c);
}

static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct conn *c = stream_owner(stream);

    enter(c);
    c->why = *why;
    go_down(c);
    leave(c);
}

static const struct stream_events stream_events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

static void start_connecting(struct conn *c)
{
    struct stream_target target = c->options.target;

    target.timeout_ns =
        patience(c, target.timeout_ns ? target.timeout_ns : CONNECTING_NS, CONN_SILENCE_FRACTION);
    write_address(c);
    c->resp = redis_resp_new();
    if (!c->resp)
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
    else if (!stream_open(&c->stream, c->loop, &target, &stream_events, c, &c->why))
        c->state = CONNECTING;
    if (c->state != CONNECTING)
        break_soon(c);
}

static void on_retry(struct timer *timer)
{
    start_connecting(container_of(timer, struct conn, retry));
}

/* ---- leases ---- */

unsigned redis_leases_add(struct leases *s, uint64_t lease_ns)
{
    unsigned kind = lease_ns ? 63u - (unsigned)__builtin_clzll(lease_ns) : 0;
    s->n[kind]++;
    return kind;
}

void redis_leases_remove(struct leases *s, unsigned kind)
{
    s->n[kind]--;
}

uint64_t redis_leases_shortest(const struct leases *s)
{
    for (unsigned kind = 0; kind < LEASES_KINDS; kind++)
        if (s->n[kind])
            return UINT64_C(1) << kind;
    return UINT64_MAX;
}
