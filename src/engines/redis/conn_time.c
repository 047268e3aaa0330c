/* How long requests may take. */
#include <errno.h>

#include "engines/redis/conn_inner.h"
#include "mutant.h"

/* After how many times the patience of a request without any answer a connection is given up. */
#define GIVE_UP_AFTER 4

uint64_t conn_patience(const struct conn *c, uint64_t usual_ns, unsigned part)
{
    uint64_t lease_ns = c->options.stakes ? stakes_shortest(c->options.stakes) : UINT64_MAX;
    return lease_ns / part < usual_ns ? lease_ns / part : usual_ns;
}

static uint64_t silence(const struct conn *c)
{
    return conn_patience(c, GIVE_UP_AFTER * c->options.answer_ns, CONN_SILENCE_PART);
}

static uint64_t earlier(uint64_t at_ns, const struct request *r)
{
    return r && r->until_ns < at_ns ? r->until_ns : at_ns;
}

/* A server that has thousands of requests before it answers one after the other: not even the last
 * of them is reason to leave it while answers come. What was asked last would be lost with the
 * connection, though it was about to be executed. */
static uint64_t give_up_at(const struct conn *c)
{
    if (!c->sent.first)
        return NEVER;
    uint64_t asked_ns = c->sent.first->put_ns + silence(c);
    uint64_t heard_ns = c->heard_ns + silence(c);
#ifdef MUTANT_REDIS_BUSY_IS_SILENT
    return asked_ns;
#endif
    return asked_ns > heard_ns ? asked_ns : heard_ns;
}

/* Until when what waits may wait: for a connection; or, where only so many are sent at once, for as
 * long as the server answers those. It is asked again by nobody while it is in line. */
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

/* The timer stays where it is while requests come and go; it looks again when it fires. Only a
 * request with less patience than all before it moves it. */
void conn_watch_time(struct conn *c)
{
    uint64_t at_ns = earlier(give_up_at(c), c->untold);
    at_ns = earlier(at_ns, c->forgotten.first);
    at_ns = waits_until(c) < at_ns ? waits_until(c) : at_ns;
    if (c->overdue.place ? at_ns < c->overdue.at_ns : at_ns != NEVER)
        loop_arm(c->loop, &c->overdue, at_ns);
}

static void tell_overdue(struct conn *c, uint64_t now_ns)
{
    struct stile_error err;
    bool late = c->untold && c->untold->until_ns <= now_ns;

    error_set(&err, STILE_UNCERTAIN, ETIMEDOUT, "%s: no answer in time", c->address);
    while (!c->freed && c->untold && c->untold->until_ns <= now_ns) {
        struct request *r = c->untold;
        conn_fn *fn = r->fn;
        c->untold = r->next;
        r->fn = NULL; /* its answer is dropped when it comes */
        if (fn)
            fn(r->data, NULL, &err);
    }
    if (late && !c->freed && c->events->late)
        c->events->late(c);
}

static void refuse_overdue(struct conn *c, struct request_line *line, uint64_t now_ns)
{
    struct stile_error err;

    error_set(&err, STILE_UNREACHABLE, ETIMEDOUT, "%s: no connection in time", c->address);
    while (!c->freed && line->first && line->first->until_ns <= now_ns)
        conn_finish(line_pop(line), NULL, &err);
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
    size_t n = c->waiting.n; /* what is asked for meanwhile has its own time */
    while (!c->freed && n-- > 0 && c->waiting.first)
        conn_finish(line_pop(&c->waiting), NULL, &err);
}

static void give_up(struct conn *c, uint64_t now_ns)
{
    if (give_up_at(c) > now_ns)
        return;
    error_set(&c->why, STILE_UNREACHABLE, ETIMEDOUT, "the server has not answered for %llu ms",
              (unsigned long long)(silence(c) / NS_PER_MS));
    conn_go_down(c);
}

void conn_on_overdue(struct timer *timer)
{
    struct conn *c = (struct conn *)((char *)timer - offsetof(struct conn, overdue));
    uint64_t now_ns = loop_now(c->loop);

    conn_enter(c);
    tell_overdue(c, now_ns);
    refuse_overdue(c, &c->forgotten, now_ns);
    refuse_waiting(c, now_ns);
    if (!c->freed)
        give_up(c, now_ns);
    if (!c->freed)
        conn_watch_time(c);
    conn_leave(c);
}
