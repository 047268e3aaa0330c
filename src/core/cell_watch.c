/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A cell is read once at the start and whenever its engine reports a change, or periodically if the
 * engine reports none. What was read is handed out if its version or its guard differs from what
 * was handed out before. One read is under way at a time: reports that come meanwhile cost one
 * more, however many they are.
 *
 * A read cannot be taken back from the engine, so a watch that is ended while one is under way ends
 * with its answer, which comes within a bounded time. */
#include "core/cell_watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/name.h"
#include "core/cell_call.h"
#include "core/question.h"
#include "core/retry.h"

/* Between two reads that nothing has asked for. It grows while nothing changes. */
#define PAUSE_FIRST_NS (20 * NS_PER_MS)
#define PAUSE_MAX_NS   (200 * NS_PER_MS)
#define DOWN_FIRST_NS  (100 * NS_PER_MS)
#define DOWN_MAX_NS    NS_PER_SEC
#define TIMERS         2

enum phase {
    RESTING, /* until a report or the timer */
    READING,
    ENDING, /* the outcome is decided, and a read under way */
    ENDED,
};

struct cell_watch {
    struct cell_call call; /* each read */
    struct stile_client *client;
    struct question subscription; /* asked: the engine has it */
    struct task task;             /* reads: a change was reported */
    struct timer look;            /* reads: it is time */
    struct timer patience;        /* nothing has changed for wait_ms */
    int64_t wait_ms;
    enum phase phase;
    bool changed;             /* since the last read began */
    unsigned failures;        /* in a row */
    struct stile_cell *shown; /* handed out last, or just now; NULL: nothing yet */
    struct stile_cell *fresh; /* to be handed out */
    uint64_t pause_ns;
    struct stile_error error; /* its outcome */
    struct follower follower; /* of a blocking call */

    /* async */
    struct cell_watch *next, **link;
    uint64_t number;
    struct callback callback;
    bool delivering;
    stile_cell_fn *fn;
    stile_query_done_fn *done; /* NULL: it blocks */
    void *data;
};

static const struct engine_cells *engine_of(const struct cell_watch *watch)
{
    return watch->client->engine->class->cells;
}

static void notify(struct cell_watch *watch)
{
    if (watch->done)
        callback_queue(watch->client, &watch->callback);
    else
        drive_done(&watch->follower);
}

/* ---- the end ---- */

/* The engine and the loop have nothing of it afterwards, but for a read that is under way. */
static void stop(struct cell_watch *watch)
{
    struct engine *engine = watch->client->engine;
    struct loop *loop = watch->client->loop;
    if (watch->subscription.asked)
        engine->class->cells->unwatch(engine, &watch->subscription.query);
    watch->subscription.asked = false;
    loop_forget(loop, &watch->task);
    loop_disarm(loop, &watch->look);
    loop_disarm(loop, &watch->patience);
    loop_unreserve(loop, TIMERS);
}

/* err NULL: OK. The first reason counts. */
static void end(struct cell_watch *watch, const struct stile_error *err)
{
    if (watch->phase >= ENDING)
        return;
    error_copy(&watch->error, err);
    stop(watch);
    if (watch->phase == READING) {
        watch->phase = ENDING;
    } else {
        watch->phase = ENDED;
        notify(watch);
    }
}

static void cancel(struct cell_watch *watch)
{
    struct stile_error err;
    error_set(&err, STILE_CANCELLED, 0, "%s", stile_status_text(STILE_CANCELLED));
    end(watch, &err);
}

static void on_patience_over(struct timer *timer)
{
    struct cell_watch *watch = container_of(timer, struct cell_watch, patience);
    struct stile_error err;
    error_set(&err, STILE_TIMEOUT, 0, "nothing has changed in that time");
    end(watch, &err);
}

/* ---- reading ---- */

static void read_cell(struct cell_watch *watch)
{
    struct loop *loop = watch->client->loop;
    watch->changed = false;
    watch->phase = READING;
    loop_forget(loop, &watch->task);
    loop_disarm(loop, &watch->look);
    cell_call_start(&watch->call, watch->client);
}

static void on_task(struct task *task)
{
    read_cell(container_of(task, struct cell_watch, task));
}

static void on_look(struct timer *timer)
{
    read_cell(container_of(timer, struct cell_watch, look));
}

static bool differs(const struct stile_cell *a, const struct stile_cell *b)
{
    return a->version != b->version || a->token != b->token || strcmp(a->issuer, b->issuer) != 0;
}

/* Takes over what was read, if it is news. */
static bool take(struct cell_watch *watch)
{
    struct stile_cell *copy = cell_copy(&watch->call.cells[0]);
    if (!copy)
        return false;
    const struct stile_cell *before = watch->fresh ? watch->fresh : watch->shown;
    if (before && !differs(before, copy)) {
        free(copy);
        watch->pause_ns = watch->pause_ns * 5 / 4;
        watch->pause_ns = watch->pause_ns < PAUSE_MAX_NS ? watch->pause_ns : PAUSE_MAX_NS;
        return true;
    }
    free(watch->fresh);
    watch->fresh = copy;
    watch->pause_ns = PAUSE_FIRST_NS;
    loop_disarm(watch->client->loop, &watch->patience);
    notify(watch);
    return true;
}

static void look_in(struct cell_watch *watch, uint64_t pause_ns)
{
    struct loop *loop = watch->client->loop;
    loop_arm(loop, &watch->look, loop_now(loop) + pause_ns);
}

static void look_later(struct cell_watch *watch, bool failed)
{
    struct loop *loop = watch->client->loop;
    if (watch->changed)
        loop_soon(loop, &watch->task);
    else if (failed)
        look_in(watch, loop_backoff(loop, DOWN_FIRST_NS, DOWN_MAX_NS, watch->failures++));
    else if (!engine_of(watch)->watch)
        look_in(watch, watch->pause_ns);
    else if (watch->call.cell.ends_ns)
        look_in(watch, watch->call.cell.ends_ns);
}

static bool may_pass(const struct cell_watch *watch, enum stile_status status)
{
    bool seen = watch->shown || watch->fresh;
    return seen && (status == STILE_UNREACHABLE || status == STILE_UNCERTAIN);
}

static void on_read(struct cell_call *call)
{
    struct cell_watch *watch = container_of(call, struct cell_watch, call);
    struct stile_error err = call->error;
    if (watch->phase == ENDING) {
        cell_call_free_cells(call);
        watch->phase = ENDED;
        notify(watch);
        return;
    }
    watch->phase = RESTING;
    if (!err.status && !take(watch))
        error_set(&err, STILE_NOMEM, 0, "out of memory");
    cell_call_free_cells(call);
    if (err.status && !may_pass(watch, err.status)) {
        end(watch, &err);
        return;
    }
    if (!err.status)
        watch->failures = 0;
    look_later(watch, err.status != STILE_OK);
}

static void on_changed(struct question *q)
{
    struct cell_watch *watch = container_of(q, struct cell_watch, subscription);
    watch->changed = true;
    if (watch->phase == RESTING)
        loop_soon(watch->client->loop, &watch->task);
}

static void on_subscription_ended(struct question *q)
{
    end(container_of(q, struct cell_watch, subscription), q->error.status ? &q->error : NULL);
}

/* ---- handing out ---- */

/* With the mutex. The time of the user's callback does not count as patience. */
static void handed_out(struct cell_watch *watch, bool enough)
{
    if (enough) {
        free(watch->fresh); /* what came meanwhile is no longer wanted */
        watch->fresh = NULL;
        end(watch, NULL);
        watch->error = (struct stile_error){0}; /* whatever else has ended it meanwhile */
    } else if (watch->phase < ENDING && !watch->fresh && watch->wait_ms >= 0) {
        uint64_t until = client_after_ms(watch->client, watch->wait_ms);
        if (until != NEVER)
            loop_arm(watch->client->loop, &watch->patience, until);
    }
}

/* Another thread may read the same again before the user's callback returns: that is no news. NULL:
 * there is nothing to hand out. */
static const struct stile_cell *take_fresh(struct cell_watch *watch)
{
    if (!watch->fresh)
        return NULL;
    free(watch->shown);
    watch->shown = watch->fresh;
    watch->fresh = NULL;
    return watch->shown;
}

static void explain(struct cell_watch *watch)
{
    struct stile_error *err = &watch->error;
    if (err->status)
        error_wrap(err, err->status, "watching '%s'", watch->call.cell.key);
}

/* ---- beginning ---- */

static enum stile_status enter(struct stile_client *client, const char *key, stile_cell_fn *fn,
                               struct stile_error *err)
{
    if (!key || !fn)
        return error_set(err, STILE_MISUSE, 0, "watching a cell: no %s given",
                         key ? "callback" : "key");
    enum stile_status status = name_check(key, strlen(key), err);
    if (!status)
        status = client_enter_for_locks(client, err);
    if (status)
        return error_wrap(err, status, "watching a cell");
    if (!client->engine->class->cells)
        status = error_set(err, STILE_UNSUPPORTED, 0, "watching a cell: %s keeps no cells",
                           client->engine->caps.engine);
    else if (loop_reserve(client->loop, TIMERS))
        status = error_set(err, STILE_NOMEM, 0, "watching a cell: out of memory");
    if (status)
        client_leave(client);
    return status;
}

/* The engine was closed before it had answered. */
static void on_abandoned(struct cell_call *call)
{
    struct cell_watch *watch = container_of(call, struct cell_watch, call);
    watch->phase = ENDED;
    watch->callback.fn(&watch->callback);
}

static void begin(struct cell_watch *watch, struct stile_client *client, const char *key,
                  int64_t wait_ms)
{
    watch->client = client;
    watch->wait_ms = wait_ms;
    watch->pause_ns = PAUSE_FIRST_NS;
    watch->call.cell =
        (struct cell_request){.verb = CELL_GET, .key = key, .key_len = strlen(key), .issuer = ""};
    watch->call.answered = on_read;
    watch->call.abandoned = on_abandoned;
    watch->task.fn = on_task;
    watch->look.fn = on_look;
    watch->patience.fn = on_patience_over;
    question_init(&watch->subscription, client, key);
    watch->subscription.answered = on_subscription_ended;
    watch->subscription.changed = on_changed;
    if (engine_of(watch)->watch)
        question_ask(&watch->subscription, engine_of(watch)->watch);
    if (watch->phase != ENDED)
        read_cell(watch);
}

/* ---- blocking ---- */

static void interrupt(struct follower *follower)
{
    cancel(container_of(follower, struct cell_watch, follower));
}

/* A callback that closes the client has ended the watch. */
static void hand_out(struct cell_watch *watch, stile_cell_fn *fn, void *data)
{
    struct outside outside;
    const struct stile_cell *cell = take_fresh(watch);
    if (!cell)
        return;
    client_step_out(watch->client, &outside);
    bool enough = fn(cell, data) != 0;
    client_step_in(watch->client, &outside);
    handed_out(watch, enough);
    if (watch->client->last_out)
        cancel(watch);
}

enum stile_status stile_cell_watch(struct stile_client *client, const char *key, int64_t wait_ms,
                                   stile_cell_fn *fn, void *data, struct stile_error *err)
{
    struct cell_watch watch = {.follower.interrupt = interrupt};
    enum stile_status status = enter(client, key, fn, err);
    if (status)
        return status;
    begin(&watch, client, key, wait_ms);
    while (watch.phase != ENDED || watch.fresh) {
        watch.follower.done = watch.phase == ENDED || watch.fresh;
        drive_until(client, &watch.follower);
        hand_out(&watch, fn, data);
    }
    client_leave(client);
    explain(&watch);
    free(watch.shown);
    if (watch.error.status && err)
        *err = watch.error;
    return watch.error.status;
}

/* ---- async ---- */

static void finish(struct cell_watch *watch)
{
    const struct stile_error *err = &watch->error;
    explain(watch);
    watch->done(watch->client, err->status, err->status ? err : NULL, watch->data);
    free(watch->shown);
    free(watch->fresh);
    free(watch);
}

static void hand_out_kept(struct cell_watch *watch)
{
    struct stile_client *client = watch->client;
    while (watch->fresh) {
        const struct stile_cell *cell = take_fresh(watch);
        pthread_mutex_unlock(&client->mutex);
        bool enough = watch->fn(cell, watch->data) != 0;
        pthread_mutex_lock(&client->mutex);
        handed_out(watch, enough);
    }
}

/* A callback that waits for another call on this client makes callbacks itself: the watch stays
 * until it returns. */
static void deliver(struct callback *callback)
{
    struct cell_watch *watch = container_of(callback, struct cell_watch, callback);
    struct stile_client *client = watch->client;
    pthread_mutex_lock(&client->mutex);
    bool ended = false;
    if (!watch->delivering) {
        watch->delivering = true;
        hand_out_kept(watch);
        watch->delivering = false;
        ended = watch->phase == ENDED;
    }
    if (ended) {
        callback_cancel(client, callback);
        *watch->link = watch->next;
        if (watch->next)
            watch->next->link = watch->link;
    }
    pthread_mutex_unlock(&client->mutex);
    if (ended)
        finish(watch);
}

static void link_watch(struct cell_watch *watch, struct stile_client *client)
{
    watch->next = client->cell_watches;
    watch->link = &client->cell_watches;
    if (watch->next)
        watch->next->link = &watch->next;
    client->cell_watches = watch;
}

enum stile_status stile_cell_watch_async(uint64_t *number, struct stile_client *client,
                                         const char *key, int64_t wait_ms, stile_cell_fn *fn,
                                         stile_query_done_fn *done, void *data)
{
    enum stile_status status = done ? enter(client, key, fn, NULL) : STILE_MISUSE;
    if (status)
        return status;
    struct cell_watch *watch = calloc(1, sizeof *watch + strlen(key) + 1);
    if (watch) {
        watch->fn = fn;
        watch->done = done;
        watch->data = data;
        watch->callback.fn = deliver;
        watch->number = ++client->last_watch;
        if (number)
            *number = watch->number;
        link_watch(watch, client);
        begin(watch, client, strcpy((char *)(watch + 1), key), wait_ms);
    } else {
        loop_unreserve(client->loop, TIMERS);
    }
    client_leave(client);
    return watch ? STILE_OK : STILE_NOMEM;
}

void cell_watch_cancel(struct stile_client *client, uint64_t number)
{
    struct cell_watch *at = client->cell_watches;
    while (at && at->number != number)
        at = at->next;
    if (at)
        cancel(at);
}

enum stile_status stile_cell_watch_cancel(struct stile_client *client, uint64_t number)
{
    enum stile_status status = client_enter(client, NULL);
    if (status)
        return status;
    cell_watch_cancel(client, number);
    client_leave(client);
    return STILE_OK;
}

void cell_watch_cancel_all(struct stile_client *client)
{
    for (struct cell_watch *at = client->cell_watches; at; at = at->next)
        cancel(at);
}
