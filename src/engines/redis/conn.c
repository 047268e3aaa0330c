#include "engines/redis/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/conn_inner.h"
#include "engines/redis/fault.h"
#include "mutant.h"

#define DEFAULT_ANSWER_NS (3 * NS_PER_SEC)
#define CONN_TIMERS       2
#define READ_AT_ONCE      32 /* requests: what is in 16 KiB, which a server reads at a time */

void *conn_owner(const struct conn *c)
{
    return c->owner;
}

const struct conn_options *conn_options(const struct conn *c)
{
    return &c->options;
}

bool conn_is_up(const struct conn *c)
{
    return c->state == UP;
}

bool conn_is_idle(const struct conn *c)
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

/* After one that was written in part, nothing more may follow: the server would take it for the
 * rest. */
void conn_write(struct conn *c, struct request *r)
{
    r->end = UINT64_MAX;
    if (c->break_task.queued)
        return;
    int rc = request_write(r, c->stream, r->lua && !knows(c, r->lua));
    if (rc) {
        error_errno(&c->why, STILE_UNREACHABLE, rc, "sending");
        conn_break_soon(c);
    }
}

/* It holds for the next command only; its own answer nobody wants to know. */
static void put_asking(struct conn *c, uint64_t until_ns)
{
    const struct conn_arg word = CONN_TEXT("ASKING");
    struct request *asking = request_new(&word, 1);

    if (!asking) {
        error_set(&c->why, STILE_NOMEM, 0, "out of memory");
        conn_break_soon(c);
        return;
    }
    asking->until_ns = until_ns;
    conn_put(c, asking);
}

void conn_put(struct conn *c, struct request *r)
{
    if (r->asking)
        put_asking(c, r->until_ns);
    r->asking = false;
    r->put_ns = loop_now(c->loop);
    conn_write(c, r);
    line_push(&c->sent, r);
    if (!c->untold)
        c->untold = r;
}

static bool has_room(const struct conn *c)
{
    return c->options.window == 0 || c->sent.n < c->options.window;
}

void conn_put_waiting(struct conn *c)
{
    while (c->waiting.first && has_room(c)) {
        struct request *r = line_pop(&c->waiting);
        if (c->options.window)
            r->until_ns = loop_now(c->loop) + c->options.answer_ns;
        conn_put(c, r);
    }
}

/* With a window, nothing overtakes what waits for room. */
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
        conn_put(c, r);
    else
        line_push(&c->waiting, r);
    if (c->state == PAUSED && !c->moved)
        loop_soon(c->loop, &c->refuse_task);
    conn_watch_time(c);
}

static enum stile_status submit(struct conn *c, struct request *r, conn_fn *fn, void *data,
                                struct stile_error *err)
{
    if (!r)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    if (c->sent.n + c->forgotten.n + c->waiting.n >= CONN_PENDING_MAX ||
        c->sent.bytes + c->forgotten.bytes + c->waiting.bytes + r->len > STREAM_OUT_MAX) {
        request_free(r);
        return error_set(err, STILE_REFUSED, 0, "%s: too many requests wait for their answers",
                         c->address);
    }
    prepare(c, r, fn, data);
    take_in(c, r);
    return STILE_OK;
}

enum stile_status conn_send(struct conn *c, const struct conn_arg *args, size_t n, conn_fn *fn,
                            void *data, struct stile_error *err)
{
    if (c->pushes)
        return error_set(err, STILE_MISUSE, 0, "a subscribed connection takes no requests");
    return submit(c, request_new(args, n), fn, data, err);
}

enum stile_status conn_eval(struct conn *c, const struct lua *lua, const struct conn_arg *args,
                            size_t n_keys, size_t n, conn_fn *fn, void *data,
                            struct stile_error *err)
{
    if (c->pushes)
        return error_set(err, STILE_MISUSE, 0, "a subscribed connection takes no requests");
    return submit(c, request_new_eval(lua, args, n_keys, n), fn, data, err);
}

/* With ASKING goes the source: NOSCRIPT would use the ASKING up. */
void conn_give(struct conn *c, struct request *r, bool asking)
{
    r->asking = asking;
    r->forgotten = asking;
    take_in(c, r);
}

void conn_answer(struct request *r, const struct stile_error *err)
{
    conn_finish(r, NULL, err);
}

void conn_forget(struct conn *c, const void *data)
{
    line_forget(&c->sent, data);
    line_forget(&c->forgotten, data);
    line_forget(&c->waiting, data);
    line_forget(&c->ended, data);
}

bool conn_cancel(struct conn *c, const void *data)
{
    bool unsent = line_cancel(&c->waiting, data);

    conn_forget(c, data);
    return unsent;
}

bool conn_is_behind(const struct conn *c)
{
    return c->waiting.first || c->forgotten.first || c->sent.n > READ_AT_ONCE;
}

void conn_flush(struct conn *c)
{
    if (c->stream)
        stream_flush(c->stream);
}

/* ---- answers ---- */

void conn_finish(struct request *r, const redisReply *reply, const struct stile_error *err)
{
    struct stile_error meaning;

    if (r->fn && reply && fault_explain(reply, &meaning))
        err = &meaning;
    if (r->fn)
        r->fn(r->data, reply, err);
    request_free(r);
}

void conn_tell_ended(struct conn *c, const struct stile_error *why)
{
    struct stile_error never = *why, doubt;

    error_set(&doubt, STILE_UNCERTAIN, never.native, "no answer, the connection broke: %s",
              never.message);
    for (struct request *r; !c->freed && (r = line_pop(&c->ended));)
        conn_finish(r, NULL, r->in_doubt ? &doubt : &never);
}

/* They go out again in their old order, and before anything younger, once nothing is under way that
 * could turn out to be forgotten, too. Only if somebody else brings a later script back in between
 * can that one be executed first. */
static void send_forgotten(struct conn *c)
{
    struct request_line again = c->forgotten;

#ifndef MUTANT_REDIS_SCRIPTS_OVERTAKE
    if (c->sent.first)
        return;
#endif
    if (again.n == 0)
        return;
    line_init(&c->forgotten);
    for (struct request *r = again.first, *next; r; r = next) {
        next = r->next;
        conn_put(c, r);
    }
    conn_put_waiting(c);
}

static void see_replica(struct conn *c, const redisReply *reply)
{
    struct stile_error why;

    if (c->freed || c->state != UP || c->leaving || !fault_is_replica(fault_of(reply)))
        return;
    fault_explain(reply, &why);
    conn_reconnect(c, &why);
    if (c->events->replica)
        c->events->replica(c, &why);
}

void conn_take(struct conn *c, const redisReply *reply)
{
    struct request *r = line_pop(&c->sent);

    if (!r) {
        conn_take_push(c, reply);
        return;
    }
    if (c->untold == r)
        c->untold = r->next;
    if (r->lua && r->fn && !r->forgotten && fault_of(reply) == FAULT_NO_SCRIPT) {
        r->forgotten = true;
        line_push(&c->forgotten, r);
        c->n_known = 0;
    } else if (c->state != UP || !r->fn || !c->events->answers ||
               !c->events->answers(c, r, reply)) {
        conn_finish(r, reply, NULL);
    }
    see_replica(c, reply);
    if (c->freed || c->state != UP)
        return;
    if (c->leaving)
        conn_leave_when_answered(c);
    else
        send_forgotten(c);
    if (!c->freed && c->state == UP && !c->forgotten.first && !c->break_task.queued && !c->leaving)
        conn_put_waiting(c);
}

/* ---- the beginning and the end ---- */

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

static void drop_parts(struct conn *c)
{
    stream_free(c->stream);
    resp_free(c->resp);
    c->stream = NULL;
    c->resp = NULL;
    loop_disarm(c->loop, &c->overdue);
    loop_disarm(c->loop, &c->retry);
    loop_forget(c->loop, &c->break_task);
    loop_forget(c->loop, &c->refuse_task);
    line_clear(&c->sent);
    line_clear(&c->forgotten);
    line_clear(&c->waiting);
    line_clear(&c->ended);
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

void conn_free(struct conn *c)
{
    if (!c || c->freed)
        return;
    drop_parts(c);
    loop_unreserve(c->loop, CONN_TIMERS);
    if (c->in_event)
        c->freed = true;
    else
        free(c);
}

void conn_forked(struct conn *c)
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
    c->overdue.fn = conn_on_overdue;
    c->retry.fn = conn_on_retry;
    c->break_task.fn = conn_on_break;
    c->refuse_task.fn = conn_on_refuse;
    line_init(&c->sent);
    line_init(&c->forgotten);
    line_init(&c->waiting);
    line_init(&c->ended);
    return c;
}

enum stile_status conn_new(struct conn **out, struct loop *loop, const struct conn_options *options,
                           const struct conn_events *events, void *owner, struct stile_error *err)
{
    if (options->user && !options->password)
        return error_set(err, STILE_MISUSE, 0, "a user is given without a password");
    struct conn *c = conn_alloc(loop, events, owner);
    if (!c || !keep_options(c, options)) {
        conn_free(c);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    conn_connect(c);
    *out = c;
    return STILE_OK;
}

enum stile_status conn_move(struct conn *c, const char *host, uint16_t port,
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
    conn_break_soon(c);
    return STILE_OK;
}

void conn_leave_when_answered(struct conn *c)
{
    if (c->sent.first || c->break_task.queued)
        return;
    c->moved = true;
    conn_break_soon(c);
}

/* What is under way there is answered by the old server, mostly with READONLY. Were the connection
 * closed at once, it would be in doubt. */
void conn_reconnect(struct conn *c, const struct stile_error *why)
{
    c->suspect = true;
    if (c->state != UP || c->leaving || c->break_task.queued)
        return;
    c->why = *why;
    c->leaving = true;
    conn_leave_when_answered(c);
}
