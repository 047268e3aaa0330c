/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/kit/link.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/container.h"

#define LINK_TIMERS 2

/* Limits, as fractions of the shortest lease that depends on the connection. */
#define SILENCE_FRACTION 4
#define PAUSE_FRACTION   8

#define BACKOFF_FIRST_NS (20 * NS_PER_MS)
#define BACKOFF_MAX_NS   (2 * NS_PER_SEC)
/* A connection that was up for this long did not fail because of the server's load. */
#define STEADY_NS     NS_PER_SEC
#define CONNECTING_NS (5 * NS_PER_SEC)

#define TO(state) (1u << (state))

/* Where each state may lead. */
static const unsigned transitions[] = {
    [LINK_PAUSED] = TO(LINK_CONNECTING) | TO(LINK_PAUSED), /* PAUSED: it is to go elsewhere */
    [LINK_CONNECTING] = TO(LINK_GREETING) | TO(LINK_PAUSED),
    [LINK_GREETING] = TO(LINK_UP) | TO(LINK_LEAVING) | TO(LINK_PAUSED),
    [LINK_UP] = TO(LINK_GREETING) | TO(LINK_LEAVING) | TO(LINK_PAUSED),
    [LINK_LEAVING] = TO(LINK_PAUSED),
};

static void go_down(struct link *link); /* why is set */
static void watch_time(struct link *link);

/* ---- leases ---- */

unsigned link_leases_add(struct link_leases *s, uint64_t lease_ns)
{
    unsigned kind = lease_ns ? 63u - (unsigned)__builtin_clzll(lease_ns) : 0;
    s->n[kind]++;
    s->used |= UINT64_C(1) << kind;
    return kind;
}

void link_leases_remove(struct link_leases *s, unsigned kind)
{
    if (--s->n[kind] == 0)
        s->used &= ~(UINT64_C(1) << kind);
}

uint64_t link_leases_shortest(const struct link_leases *s)
{
    return s->used ? s->used & -s->used : UINT64_MAX;
}

static uint64_t limited(const struct link *l, uint64_t usual_ns, unsigned fraction)
{
    uint64_t lease_ns = l->options.leases ? link_leases_shortest(l->options.leases) : UINT64_MAX;
    return lease_ns / fraction < usual_ns ? lease_ns / fraction : usual_ns;
}

uint64_t link_patience(const struct link *l, uint64_t usual_ns)
{
    return limited(l, usual_ns, SILENCE_FRACTION);
}

/* ---- queues ---- */

void link_queue_push(struct link_queue *queue, struct link_request *r)
{
    r->next = NULL;
    r->prev = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = r;
    queue->last = r;
    queue->n++;
    queue->bytes += r->len;
}

static void queue_remove(struct link_queue *queue, struct link_request *r)
{
    *(r->prev ? &r->prev->next : &queue->first) = r->next;
    *(r->next ? &r->next->prev : &queue->last) = r->prev;
    queue->n--;
    queue->bytes -= r->len;
}

struct link_request *link_queue_pop(struct link_queue *queue)
{
    struct link_request *r = queue->first;
    if (r)
        queue_remove(queue, r);
    return r;
}

void link_queue_append(struct link_queue *queue, struct link_queue *more)
{
    if (!more->first)
        return;
    more->first->prev = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = more->first;
    queue->last = more->last;
    queue->n += more->n;
    queue->bytes += more->bytes;
    *more = (struct link_queue){0};
}

void link_queue_forget(struct link_queue *queue, const void *data)
{
    for (struct link_request *r = queue->first; r; r = r->next)
        if (r->data == data)
            r->wanted = false;
}

static void end_request(struct link *l, struct link_request *r)
{
    link_index_remove(&l->index, r);
    l->class->free_request(r);
}

static void queue_clear(struct link *l, struct link_queue *queue)
{
    for (struct link_request *r; (r = link_queue_pop(queue));)
        end_request(l, r);
}

/* ---- states and callbacks ---- */

/* All callbacks come between enter() and leave(); `freed` is checked after each. */
static void enter(struct link *l)
{
    l->depth++;
}

static void leave(struct link *l)
{
    if (--l->depth == 0 && l->freed)
        l->class->free(l);
}

/* With a window those that wait are not timed while the server answers others. */
static void restart_patience(struct link *l)
{
    uint64_t until_ns = loop_now(l->loop) + l->options.answer_ns;
    for (struct link_request *r = l->waiting.first; r && l->options.window; r = r->next)
        r->until_ns = until_ns;
}

static void move_to(struct link *l, enum link_state state)
{
    assert(transitions[l->state] & TO(state));
    if (l->state == LINK_UP)
        restart_patience(l);
    l->state = state;
}

static void report(struct link *l, struct link_request *r, const struct stile_error *err)
{
    if (!r->wanted)
        return;
    r->wanted = false;
    l->class->failed(l, r, err);
}

static void finish(struct link *l, struct link_request *r, const struct stile_error *err)
{
    link_index_remove(&l->index, r);
    report(l, r, err);
    l->class->free_request(r);
}

/* ---- requests ---- */

bool link_is_idle(const struct link *l)
{
    return !l->sent.first && !l->again.first && !l->waiting.first && !l->ended.first;
}

bool link_has_room(const struct link *l, size_t len)
{
    return l->sent.n + l->again.n + l->waiting.n < l->options.pending_max &&
           l->sent.bytes + l->again.bytes + l->waiting.bytes + len <= l->options.pending_bytes;
}

/* Nothing may follow a request that was written in part: the server would take it for the rest. */
void link_write(struct link *l, struct link_request *r)
{
    struct stile_error err;
    r->end = UINT64_MAX;
    int rc = l->break_task.queued ? 0 : l->class->write(l, r);
    if (!rc)
        return;
    error_errno(&err, STILE_UNREACHABLE, rc, "sending");
    link_fail_soon(l, &err);
}

static void send_now(struct link *l, struct link_request *r)
{
    r->sent_ns = loop_now(l->loop);
    link_write(l, r);
    link_queue_push(&l->sent, r);
    if (!l->first_on_time)
        l->first_on_time = r;
}

void link_send(struct link *l, struct link_request *r)
{
    link_index_add(&l->index, r);
    send_now(l, r);
    watch_time(l);
}

static bool may_send(const struct link *l)
{
    return l->state == LINK_UP && !l->again.first && !l->break_task.queued &&
           (l->options.window == 0 || l->sent.n < l->options.window);
}

static void send_waiting(struct link *l)
{
    while (l->waiting.first && may_send(l)) {
        struct link_request *r = link_queue_pop(&l->waiting);
        if (l->options.window)
            r->until_ns = loop_now(l->loop) + l->options.answer_ns;
        send_now(l, r);
    }
}

void link_submit(struct link *l, struct link_request *r, void *data)
{
    r->data = data;
    r->wanted = true;
    r->until_ns = loop_now(l->loop) + l->options.answer_ns;
    link_resubmit(l, r);
}

void link_resubmit(struct link *l, struct link_request *r)
{
    link_index_add(&l->index, r);
    link_queue_push(&l->waiting, r);
    send_waiting(l);
    if (l->state == LINK_PAUSED && !l->break_task.queued)
        loop_soon(l->loop, &l->refuse_task);
    watch_time(l);
}

void link_repeat(struct link *l, struct link_request *r)
{
    link_index_add(&l->index, r);
    link_queue_push(&l->again, r);
}

/* In their old order and before newer requests, once no request is under way that could have to be
 * repeated, too. */
static void send_again(struct link *l)
{
    if (l->sent.first || l->break_task.queued)
        return;
    struct link_queue again = l->again;
    l->again = (struct link_queue){0};
    for (struct link_request *r; (r = link_queue_pop(&again));)
        send_now(l, r);
}

static void leave_when_answered(struct link *l)
{
    if (l->sent.first || l->break_task.queued)
        return;
    l->left = true;
    loop_soon(l->loop, &l->break_task);
}

void link_take(struct link *l, struct link_request *r)
{
    l->answered_ns = l->heard_ns;
    if (l->first_on_time == r)
        l->first_on_time = r->next;
    queue_remove(&l->sent, r);
    link_index_remove(&l->index, r);
}

void link_go_on(struct link *l)
{
    if (l->freed)
        return;
    if (l->state == LINK_LEAVING)
        leave_when_answered(l);
    if (l->state != LINK_UP)
        return;
    send_again(l);
    send_waiting(l);
}

void link_forget(struct link *l, const void *data)
{
    for (struct link_request *r = link_index_first(&l->index, data); r; r = link_index_next(r))
        r->wanted = false;
}

bool link_cancel(struct link *l, const void *data)
{
    size_t before = l->waiting.n;
    for (struct link_request *r = l->waiting.first, *next; r && link_index_first(&l->index, data);
         r = next) {
        next = r->next;
        if (r->data == data) {
            queue_remove(&l->waiting, r);
            end_request(l, r);
        }
    }
    link_forget(l, data);
    return l->waiting.n < before;
}

/* ---- time ---- */

/* A server with thousands of requests answers one after the other. While replies come, an overdue
 * request is no reason to leave it. */
static uint64_t give_up_at(const struct link *l)
{
    if (!l->sent.first)
        return NEVER;
    uint64_t silence_ns = link_patience(l, l->options.silence_ns);
    uint64_t asked_ns = l->sent.first->sent_ns + silence_ns;
    uint64_t heard_ns = l->heard_ns + silence_ns;
    return asked_ns > heard_ns ? asked_ns : heard_ns;
}

/* Until when unsent requests may wait: for a connection; or, with a window, for as long as the
 * server answers those before them. */
static uint64_t waits_until(const struct link *l)
{
    if (!l->waiting.first)
        return NEVER;
    if (l->state != LINK_UP || !l->options.window)
        return l->waiting.first->until_ns;
    if (!l->sent.first)
        return NEVER;
    uint64_t heard_ns = l->heard_ns + l->options.answer_ns;
    return heard_ns > l->sent.first->until_ns ? heard_ns : l->sent.first->until_ns;
}

/* When the first request that is on time will be overdue. Without a window any number of requests
 * may be ahead of it, and the server answers one after the other: as long as it does, none is
 * overdue. */
static uint64_t overdue_at(const struct link *l)
{
    if (!l->first_on_time)
        return NEVER;
    bool in_line = l->class->in_order && !l->options.window && link_is_open(l);
    uint64_t until_ns = l->first_on_time->until_ns, next_ns = l->answered_ns + l->options.answer_ns;
    return in_line && next_ns > until_ns ? next_ns : until_ns;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

/* The timer stays where it is while requests come and go, and is set again when it fires. Only a
 * request with an earlier deadline than all before it moves it. */
static void watch_time(struct link *l)
{
    uint64_t at_ns = earlier(give_up_at(l), overdue_at(l));
    at_ns = earlier(at_ns, l->again.first ? l->again.first->until_ns : NEVER);
    at_ns = earlier(at_ns, waits_until(l));
    if (l->overdue.place ? at_ns < l->overdue.at_ns : at_ns != NEVER)
        loop_arm(l->loop, &l->overdue, at_ns);
}

static void give_up(struct link *l, uint64_t now_ns)
{
    unsigned long long silence_ms = link_patience(l, l->options.silence_ns) / NS_PER_MS;

    if (give_up_at(l) > now_ns)
        return;
    if (link_is_open(l))
        error_set(&l->why, STILE_UNREACHABLE, ETIMEDOUT, "the server has not answered for %llu ms",
                  silence_ms);
    else
        error_set(&l->why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    go_down(l);
}

static void end_overdue(struct link *l, uint64_t now_ns)
{
    struct stile_error err;
    bool late = overdue_at(l) <= now_ns;

    error_set(&err, STILE_UNCERTAIN, ETIMEDOUT, "%s: no answer in time", l->address);
    while (!l->freed && overdue_at(l) <= now_ns) {
        struct link_request *r = l->first_on_time;
        if (l->class->in_order) {
            l->first_on_time = r->next;
            report(l, r, &err); /* its reply is dropped when it comes */
        } else {
            link_take(l, r);
            report(l, r, &err);
            l->class->free_request(r);
        }
    }
    if (late && !l->freed && l->class->late)
        l->class->late(l);
}

static void refuse_overdue(struct link *l, struct link_queue *queue, uint64_t now_ns)
{
    struct stile_error err;

    error_set(&err, STILE_UNREACHABLE, ETIMEDOUT, "%s: no connection in time", l->address);
    while (!l->freed && queue->first && queue->first->until_ns <= now_ns)
        finish(l, link_queue_pop(queue), &err);
}

static void refuse_waiting(struct link *l, uint64_t now_ns)
{
    struct stile_error err;

    if (l->freed || waits_until(l) > now_ns)
        return;
    if (l->state != LINK_UP || !l->options.window) {
        refuse_overdue(l, &l->waiting, now_ns);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, ETIMEDOUT, "%s: no answer in time", l->address);
    size_t n = l->waiting.n; /* requests made meanwhile have a deadline of their own */
    while (!l->freed && n-- > 0 && l->waiting.first)
        finish(l, link_queue_pop(&l->waiting), &err);
}

/* After the sockets of this turn: a process that was stopped finds its timers due and the replies
 * unread. */
static void on_overdue(struct timer *timer)
{
    struct link *l = container_of(timer, struct link, overdue);
    loop_soon(l->loop, &l->overdue_task);
}

/* Replies that this turn has not read, because they came after its wait or are too many for one
 * read, are read first. A silent server comes before its requests: those that never left are not in
 * doubt. */
static void judge(struct task *task)
{
    struct link *l = container_of(task, struct link, overdue_task);
    uint64_t now_ns = loop_now(l->loop);

    if (l->stream && stream_has_unread(l->stream)) {
        loop_arm(l->loop, &l->overdue, now_ns);
        return;
    }
    enter(l);
    give_up(l, now_ns);
    end_overdue(l, now_ns);
    refuse_overdue(l, &l->again, now_ns);
    refuse_waiting(l, now_ns);
    link_go_on(l);
    if (!l->freed)
        watch_time(l);
    leave(l);
}

/* ---- connecting ---- */

static void write_address(struct link *l)
{
    const struct stream_target *to = &l->options.target;

    if (!to->host)
        snprintf(l->address, sizeof l->address, "%s", to->path);
    else
        snprintf(l->address, sizeof l->address, strchr(to->host, ':') ? "[%s]:%u" : "%s:%u",
                 to->host, to->port);
}

static void on_opened(struct stream *stream)
{
    struct link *l = stream_owner(stream);

    enter(l);
    move_to(l, LINK_GREETING);
    l->class->opened(l);
    leave(l);
}

static void on_data(struct stream *stream, const void *bytes, size_t n)
{
    struct link *l = stream_owner(stream);

    l->heard_ns = loop_now(l->loop);
    enter(l);
    l->class->received(l, bytes, n);
    leave(l);
}

static void on_closed(struct stream *stream, const struct stile_error *why)
{
    struct link *l = stream_owner(stream);

    l->why = *why;
    if (l->proven && l->why.status == STILE_REFUSED)
        l->why.status = STILE_UNREACHABLE;
    go_down(l);
}

static const struct stream_events stream_events = {
    .opened = on_opened, .data = on_data, .closed = on_closed};

void link_start(struct link *l)
{
    struct stream_target target = l->options.target;
    struct stile_error err;

    target.timeout_ns = link_patience(l, target.timeout_ns ? target.timeout_ns : CONNECTING_NS);
    write_address(l);
    move_to(l, LINK_CONNECTING);
    l->left = false;
    l->heard_ns = loop_now(l->loop);
    loop_disarm(l->loop, &l->retry);
    if (stream_open(&l->stream, l->loop, &target, &stream_events, l, &err))
        link_fail_soon(l, &err);
}

static void on_retry(struct timer *timer)
{
    link_start(container_of(timer, struct link, retry));
}

void link_hurry(struct link *l)
{
    l->attempt = 0;
    if (l->state == LINK_PAUSED)
        loop_arm(l->loop, &l->retry, loop_now(l->loop));
}

void link_come_up(struct link *l)
{
    move_to(l, LINK_UP);
    l->up_ns = loop_now(l->loop);
    send_waiting(l);
}

void link_greet_again(struct link *l)
{
    move_to(l, LINK_GREETING);
}

/* ---- down ---- */

/* Requests that are still in the stream, even in part, have not been executed. */
static void end_requests(struct link *l)
{
    for (struct link_request *r = l->sent.first; r; r = r->next) {
        if (l->class->let_go)
            l->class->let_go(r);
        r->in_doubt = l->stream && r->end <= stream_sent(l->stream);
    }
    link_queue_append(&l->ended, &l->sent);
    link_queue_append(&l->ended, &l->again);
    l->first_on_time = NULL;
}

static void answer_ended(struct link *l, const struct stile_error *why)
{
    struct stile_error never = *why, doubt;

    error_set(&doubt, STILE_UNCERTAIN, never.native, "no answer, the connection broke: %s",
              never.message);
    for (struct link_request *r; !l->freed && (r = link_queue_pop(&l->ended));)
        finish(l, r, r->in_doubt ? &doubt : &never);
}

static void plan_next(struct link *l, bool was_up)
{
    uint64_t now_ns = loop_now(l->loop);
    bool steady = was_up && now_ns - l->up_ns >= STEADY_NS;

    if (steady)
        l->attempt = 0;
    if (l->class->next(l, steady)) {
        link_start(l);
        return;
    }
    uint64_t most_ns = limited(l, BACKOFF_MAX_NS, PAUSE_FRACTION);
    uint64_t first_ns = BACKOFF_FIRST_NS < most_ns ? BACKOFF_FIRST_NS : most_ns;
    loop_arm(l->loop, &l->retry, now_ns + loop_backoff(l->loop, first_ns, most_ns, l->attempt));
    l->attempt++;
    link_queue_append(&l->ended, &l->waiting);
}

static void go_down(struct link *l)
{
    bool was_up = link_is_open(l);

    error_wrap(&l->why, l->why.status, "%s", l->address);
    struct stile_error why = l->why;
    enter(l);
    move_to(l, LINK_PAUSED);
    end_requests(l);
    l->class->closed(l, &why);
    if (!l->freed) {
        l->why = why; /* and not what failed while it ended */
        loop_forget(l->loop, &l->break_task);
        stream_free(l->stream);
        l->stream = NULL;
        plan_next(l, was_up);
        answer_ended(l, &why);
    }
    if (!l->freed)
        l->class->down(l, &why, was_up);
    leave(l);
}

void link_fail(struct link *l, const struct stile_error *why)
{
    l->why = *why;
    go_down(l);
}

void link_fail_soon(struct link *l, const struct stile_error *why)
{
    if (l->freed || l->break_task.queued)
        return;
    l->why = *why;
    loop_soon(l->loop, &l->break_task);
}

void link_leave(struct link *l, const struct stile_error *why)
{
    if (l->break_task.queued)
        return;
    l->why = *why;
    move_to(l, LINK_LEAVING);
    leave_when_answered(l);
}

static void on_break(struct task *task)
{
    go_down(container_of(task, struct link, break_task));
}

static void on_refuse(struct task *task)
{
    struct link *l = container_of(task, struct link, refuse_task);

    if (l->state != LINK_PAUSED)
        return; /* a new attempt has begun: they wait for it */
    enter(l);
    link_queue_append(&l->ended, &l->waiting);
    answer_ended(l, &l->why);
    leave(l);
}

/* ---- the beginning and the end ---- */

int link_init(struct link *l, struct loop *loop, const struct link_class *class,
              const struct link_options *options)
{
    if (loop_reserve(loop, LINK_TIMERS))
        return ENOMEM;
    l->loop = loop;
    l->class = class;
    l->options = *options;
    l->overdue.fn = on_overdue;
    l->overdue_task.fn = judge;
    l->retry.fn = on_retry;
    l->break_task.fn = on_break;
    l->refuse_task.fn = on_refuse;
    return 0;
}

void link_free(struct link *l)
{
    if (l->freed)
        return;
    l->freed = true;
    queue_clear(l, &l->sent);
    queue_clear(l, &l->again);
    queue_clear(l, &l->waiting);
    queue_clear(l, &l->ended);
    link_index_free(&l->index);
    l->class->closed(l, NULL);
    stream_free(l->stream);
    l->stream = NULL;
    loop_disarm(l->loop, &l->overdue);
    loop_disarm(l->loop, &l->retry);
    loop_forget(l->loop, &l->overdue_task);
    loop_forget(l->loop, &l->break_task);
    loop_forget(l->loop, &l->refuse_task);
    loop_unreserve(l->loop, LINK_TIMERS);
    if (l->depth == 0)
        l->class->free(l);
}

void link_forked(struct link *l)
{
    if (l->stream)
        stream_forked(l->stream);
}
