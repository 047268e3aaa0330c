/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* watch: show, repeated whenever the name may have changed.
 *
 * A name is shown once at the start, whenever its engine reports a change, and when a claim that
 * was shown may have ended by itself, or periodically if the engine reports no changes. A result is
 * handed out if it differs from the last one in more than the passing of time. One show is under
 * way at a time: reports that come meanwhile cost one more, however many they are. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "core/client.h"
#include "core/inspect.h"
#include "core/retry.h"

/* Between two shows that nothing has asked for. It grows while nothing changes. */
#define PAUSE_FIRST_NS (20 * NS_PER_MS)
#define POLL_MAX_NS    (200 * NS_PER_MS) /* without reports from the engine */
#define PAUSE_MAX_NS   NS_PER_SEC
/* Servers remove what has ended a little later. */
#define END_SLACK_NS  (5 * NS_PER_MS)
#define DOWN_FIRST_NS (100 * NS_PER_MS)
#define DOWN_MAX_NS   NS_PER_SEC
#define WATCH_TIMERS  2
#define LOOK_MAX_MS   (INT64_C(24) * 3600 * 1000)

struct name_watch {
    struct inspection i; /* its question is each show */
    struct question subscription;
    struct task task;      /* shows the name: a change was reported */
    struct timer look;     /* shows the name: it is time */
    struct timer patience; /* nothing has changed for wait_ms */
    int64_t wait_ms;
    bool changed;         /* since the last show began */
    unsigned failures;    /* in a row */
    struct result *shown; /* what was reported last; NULL: nothing yet */
    int64_t ends_ms;      /* when the first of the claims shown may end */
    uint64_t pause_ns;
};

static struct loop *loop_of(const struct name_watch *watch)
{
    return watch->i.client->loop;
}

static const struct engine_class *engine_of(const struct name_watch *watch)
{
    return watch->i.client->engine->class;
}

/* ---- what is a change ---- */

/* Engines without owner values: a claim that has become younger is another one. */
static bool is_other_claim(const struct stile_claim_info *a, const struct stile_claim_info *b)
{
    if (*a->owner || *b->owner)
        return strcmp(a->owner, b->owner) != 0;
    return a->pid != b->pid || strcmp(a->host, b->host) != 0 || b->age_ms < a->age_ms;
}

static bool claim_differs(const struct stile_claim_info *a, const struct stile_claim_info *b)
{
    return a->held != b->held || a->ghost != b->ghost || a->mode != b->mode ||
           a->token != b->token || strcmp(a->proclaimed, b->proclaimed) != 0 ||
           is_other_claim(a, b);
}

/* In anything but times, which always change, and the token of a name that is free, which on some
 * engines grows with the grants of all names. b is the later one. */
static bool info_differs(const struct stile_info *a, const struct stile_info *b)
{
    if (a->holders != b->holders || a->waiters != b->waiters)
        return true;
    for (size_t i = 0; i < a->holders + a->waiters; i++) {
        if (claim_differs(&a->claims[i], &b->claims[i]))
            return true;
    }
    return false;
}

static int64_t first_end_ms(const struct stile_info *info)
{
    int64_t first = STILE_NO_DEADLINE;
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        if (info->claims[i].expires_ms < first)
            first = info->claims[i].expires_ms;
    }
    return first;
}

/* The copy has texts where the engine gave none, and is what the next one is compared with. */
static void take(struct inspection *inspection, const struct stile_info *info)
{
    struct name_watch *watch = container_of(inspection, struct name_watch, i);
    struct result *copy = result_copy(info);
    uint64_t max = engine_of(watch)->push ? PAUSE_MAX_NS : POLL_MAX_NS;
    if (!copy) {
        inspection->q.out_of_memory = true;
        return;
    }
    bool differs = !watch->shown || info_differs(&watch->shown->info, &copy->info);
    free(watch->shown);
    watch->shown = copy;
    watch->ends_ms = first_end_ms(info);
    watch->pause_ns = differs ? PAUSE_FIRST_NS : watch->pause_ns * 5 / 4;
    watch->pause_ns = watch->pause_ns < max ? watch->pause_ns : max;
    if (!differs)
        return;
    loop_disarm(loop_of(watch), &watch->patience);
    inspection_keep(inspection, info);
    inspection_notify(inspection);
}

/* ---- showing ---- */

static void show(struct name_watch *watch)
{
    watch->changed = false;
    watch->i.record[0] = '\0'; /* of a show that failed behind it */
    loop_forget(loop_of(watch), &watch->task);
    loop_disarm(loop_of(watch), &watch->look);
    question_ask(&watch->i.q, engine_of(watch)->show);
}

static void on_task(struct task *task)
{
    show(container_of(task, struct name_watch, task));
}

static void on_look(struct timer *timer)
{
    show(container_of(timer, struct name_watch, look));
}

static void look_in(struct name_watch *watch, uint64_t pause_ns)
{
    struct loop *loop = loop_of(watch);
    loop_arm(loop, &watch->look, loop_now(loop) + pause_ns);
}

/* An engine may not report what ends by itself. What should have ended and is still shown is looked
 * at again and again, with growing pauses. */
static void look_later(struct name_watch *watch)
{
    int64_t ends_ms = watch->ends_ms < LOOK_MAX_MS ? watch->ends_ms : LOOK_MAX_MS;
    uint64_t end_ns = (uint64_t)(ends_ms > 0 ? ends_ms : 0) * NS_PER_MS + END_SLACK_NS;
    if (!engine_of(watch)->push)
        look_in(watch, watch->pause_ns);
    else if (watch->ends_ms != STILE_NO_DEADLINE)
        look_in(watch, end_ns > watch->pause_ns ? end_ns : watch->pause_ns);
}

static bool may_pass(enum stile_status status)
{
    return status == STILE_UNREACHABLE || status == STILE_UNCERTAIN;
}

static void look_after_failure(struct name_watch *watch)
{
    uint64_t pause = retry_pause(loop_of(watch), DOWN_FIRST_NS, watch->failures++);
    look_in(watch, pause < DOWN_MAX_NS ? pause : DOWN_MAX_NS);
}

static void on_shown(struct question *q)
{
    struct name_watch *watch = container_of(q, struct name_watch, i.q);
    struct stile_error err;
    enum stile_status status = question_outcome(q, &err);
    bool again = status && watch->shown && may_pass(status);
    if (status && !again) {
        inspection_end(&watch->i, &err);
        return;
    }
    if (!status)
        watch->failures = 0;
    if (watch->changed)
        loop_soon(loop_of(watch), &watch->task);
    else if (again)
        look_after_failure(watch);
    else
        look_later(watch);
}

static void on_changed(struct question *q)
{
    struct name_watch *watch = container_of(q, struct name_watch, subscription);
    watch->changed = true;
    if (!watch->i.q.asked)
        loop_soon(loop_of(watch), &watch->task);
}

/* ---- beginning and end ---- */

static void stop(struct inspection *inspection)
{
    struct name_watch *watch = container_of(inspection, struct name_watch, i);
    struct engine *engine = inspection->client->engine;
    struct loop *loop = loop_of(watch);
    if (watch->subscription.asked)
        engine->class->push->unwatch(engine, &watch->subscription.query);
    watch->subscription.asked = false;
    loop_forget(loop, &watch->task);
    loop_disarm(loop, &watch->look);
    loop_disarm(loop, &watch->patience);
    loop_unreserve(loop, WATCH_TIMERS);
    free(watch->shown);
    watch->shown = NULL;
}

static void on_patience_over(struct timer *timer)
{
    struct name_watch *watch = container_of(timer, struct name_watch, patience);
    struct stile_error err;
    error_set(&err, STILE_TIMEOUT, 0, "nothing has changed in that time");
    inspection_end(&watch->i, &err);
}

/* The time of the user's callback does not count. */
static void handed_out(struct inspection *inspection, bool enough)
{
    struct name_watch *watch = container_of(inspection, struct name_watch, i);
    if (enough) {
        inspection_drop(inspection); /* what another thread has seen meanwhile */
        inspection_end(inspection, NULL);
        inspection->error.status = STILE_OK; /* whatever else has ended it meanwhile */
    } else if (!inspection->ended && !inspection->first && watch->wait_ms >= 0) {
        uint64_t until = client_after_ms(inspection->client, watch->wait_ms);
        if (until != NEVER)
            loop_arm(loop_of(watch), &watch->patience, until);
    }
}

static void on_subscription_ended(struct question *q)
{
    struct name_watch *watch = container_of(q, struct name_watch, subscription);
    inspection_end(&watch->i, q->error.status ? &q->error : NULL);
}

static const struct inspection_class watching = {
    .doing = "watching", .take = take, .stop = stop, .handed_out = handed_out};

/* Its inspection is initialised, and the loop has timers for it. */
static void begin(struct name_watch *watch, int64_t wait_ms)
{
    struct inspection *inspection = &watch->i;
    const struct engine_push *push = engine_of(watch)->push;
    inspection->q.answered = on_shown;
    watch->task.fn = on_task;
    watch->look.fn = on_look;
    watch->patience.fn = on_patience_over;
    watch->wait_ms = wait_ms;
    question_init(&watch->subscription, inspection->client, inspection->q.query.name);
    watch->subscription.answered = on_subscription_ended;
    watch->subscription.changed = on_changed;
    if (push)
        question_ask(&watch->subscription, push->watch);
    if (!inspection->ended)
        show(watch);
}

static enum stile_status enter(struct stile_client *client, const char *name,
                               struct stile_error *err)
{
    enum stile_status status = inspection_enter(client, name, err);
    if (!status && loop_reserve(client->loop, WATCH_TIMERS)) {
        client_leave(client);
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    return status ? error_wrap(err, status, "watching a lock") : STILE_OK;
}

/* ---- the calls ---- */

static void interrupt(struct follower *follower)
{
    inspection_cancel(container_of(follower, struct inspection, q.follower));
}

enum stile_status stile_watch(struct stile_client *client, const char *name, int64_t wait_ms,
                              stile_info_fn *fn, void *data, struct stile_error *err)
{
    struct name_watch watch = {.changed = false};
    struct inspection *inspection = &watch.i;
    if (!fn)
        return error_set(err, STILE_MISUSE, 0, "watching: no callback given");
    enum stile_status status = enter(client, name, err);
    if (status)
        return status;
    inspection_init(inspection, &watching, client, name);
    inspection->q.follower.interrupt = interrupt;
    begin(&watch, wait_ms);
    while (!inspection->ended || inspection->first) {
        inspection->q.follower.done = inspection->ended || inspection->first;
        drive_until(client, &inspection->q.follower);
        inspection_hand_out(inspection, fn, data);
        if (client->last_out)
            inspection_cancel(inspection); /* the callback has closed the client */
    }
    return inspection_leave(inspection, err);
}

enum stile_status stile_watch_async(uint64_t *number, struct stile_client *client, const char *name,
                                    int64_t wait_ms, stile_info_fn *fn, stile_query_done_fn *done,
                                    void *data, struct stile_error *err)
{
    if (!fn || !done)
        return error_set(err, STILE_MISUSE, 0, "watching: no callback given");
    enum stile_status status = enter(client, name, err);
    if (status)
        return status;
    struct name_watch *watch = inspection_new(sizeof *watch, &watching, client, name);
    if (watch) {
        inspection_defer(&watch->i, fn, done, data);
        watch->i.number = ++client->last_watch;
        if (number)
            *number = watch->i.number;
        begin(watch, wait_ms);
    } else {
        loop_unreserve(client->loop, WATCH_TIMERS);
    }
    client_leave(client);
    return watch ? STILE_OK : error_set(err, STILE_NOMEM, 0, "watching a lock: out of memory");
}

void watch_cancel(struct stile_client *client, uint64_t number)
{
    struct inspection *at = client->inspections;
    while (at && (!number || at->number != number))
        at = at->next;
    if (at)
        inspection_cancel(at);
}

enum stile_status stile_watch_cancel(struct stile_client *client, uint64_t number)
{
    enum stile_status status = client_enter(client, NULL);
    if (status)
        return status;
    watch_cancel(client, number);
    client_leave(client);
    return STILE_OK;
}
