/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_leader_show() and stile_leader_watch(): looks at the name, and at the cell with the
 * proclaimed value if the engine's claims carry none, and reports what both say together.
 *
 * A watch is one watch of the name and one of the cell. After each of their reports the state of
 * the election is worked out anew, and kept for the user if it differs from the last one. The
 * client's mutex protects all fields, and is not held while a call or a callback is made. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/error.h"
#include "base/name.h"
#include "core/cell_watch.h"
#include "core/inspect.h"
#include "recipes/leader.h"

#define LOOKS_MAX 5 /* of a show: the leader changes all the time */

/* One call. Its callbacks from core come one after the other, on the thread that drives; the call
 * itself starts on its caller's thread, and counts as pending until it has. */
struct observer {
    struct stile_client *client;
    enum value_place place;
    struct sight sight;
    unsigned looks; /* of a show, so far */

    /* a watch */
    uint64_t name_watch, cell_watch; /* their numbers; 0: not begun */
    int64_t wait_ms;
    struct timer patience; /* nothing has changed for wait_ms */
    bool reserved;         /* the loop has room for the timer */
    struct leader_copy *reported;

    struct leader_copy *first, **last; /* to be handed out */
    bool delivering;
    bool ended;
    struct stile_error error; /* its outcome, once it has ended */
    unsigned pending;         /* what must end before it is freed */
    struct callback callback; /* settles it */

    stile_leader_fn *fn;
    stile_query_done_fn *done; /* NULL: it blocks */
    void *data;
    struct follower follower;
    char name[STILE_NAME_MAX + 1];
    char key[STILE_NAME_MAX + 1];
};

static void lock_client(struct observer *o)
{
    pthread_mutex_lock(&o->client->mutex);
}

static void unlock_client(struct observer *o)
{
    pthread_mutex_unlock(&o->client->mutex);
}

/* ---- the end; all with the mutex ---- */

static void cancel_watches(struct observer *o)
{
    if (o->name_watch)
        watch_cancel(o->client, o->name_watch);
    if (o->cell_watch)
        cell_watch_cancel(o->client, o->cell_watch);
}

/* The first outcome counts. What is still to be handed out is dropped if it failed. */
static void decide(struct observer *o, enum stile_status status, const struct stile_error *err)
{
    if (o->ended)
        return;
    o->ended = true;
    error_copy(&o->error, err);
    if (status && !err)
        error_set(&o->error, status, 0, "%s", stile_status_text(status));
    o->error.status = status;
    if (o->reserved)
        loop_disarm(o->client->loop, &o->patience);
    cancel_watches(o);
}

static struct leader_copy *take_first(struct observer *o)
{
    struct leader_copy *copy = o->first;
    o->first = copy->next;
    if (!o->first)
        o->last = &o->first;
    return copy;
}

static void observer_free(struct observer *o)
{
    while (o->first)
        free(take_first(o));
    if (o->reserved)
        loop_unreserve(o->client->loop, 1);
    callback_cancel(o->client, &o->callback);
    sight_clear(&o->sight);
    free(o->reported);
    free(o);
}

/* The time of the user's callback does not count. */
static void handed_out(struct observer *o, bool enough)
{
    if (enough)
        decide(o, STILE_OK, NULL);
    if (o->client->magic != CLIENT_MAGIC)
        decide(o, STILE_CANCELLED, NULL); /* the callback, or another thread, closes the client */
    uint64_t until = o->wait_ms >= 0 ? client_after_ms(o->client, o->wait_ms) : NEVER;
    if (!o->ended && !o->first && o->reserved && until != NEVER)
        loop_arm(o->client->loop, &o->patience, until);
}

static void hand_out(struct observer *o)
{
    while (o->first && !(o->ended && o->error.status)) {
        struct leader_copy *copy = take_first(o);
        unlock_client(o);
        bool enough = o->fn(&copy->leader, o->data) != 0;
        free(copy);
        lock_client(o);
        handed_out(o, enough);
        if (enough)
            return;
    }
}

/* Lets go of the mutex: it may be freed afterwards. */
static void finish(struct observer *o)
{
    struct stile_client *client = o->client;
    stile_query_done_fn *done = o->done;
    void *data = o->data;
    struct stile_error err = o->error;
    if (err.status)
        error_wrap(&err, err.status, "observing '%s'", o->name);
    observer_free(o);
    pthread_mutex_unlock(&client->mutex);
    done(client, err.status, err.status ? &err : NULL, data);
}

/* After every report: wakes the blocking caller, or makes the user's callbacks. A callback that
 * waits for another call on this client gets here again, and leaves the rest to the first one. Lets
 * go of the mutex. */
static void settle(struct observer *o)
{
    if (!o->done || o->delivering) {
        if (!o->done)
            drive_done(&o->follower);
        unlock_client(o);
        return;
    }
    o->delivering = true;
    hand_out(o);
    o->delivering = false;
    if (o->ended && o->pending == 0)
        finish(o);
    else
        unlock_client(o);
}

static void on_callback(struct callback *callback)
{
    struct observer *o = container_of(callback, struct observer, callback);
    lock_client(o);
    settle(o);
}

static void on_patience_over(struct timer *timer)
{
    struct observer *o = container_of(timer, struct observer, patience);
    struct stile_error err;
    error_set(&err, STILE_TIMEOUT, 0, "nothing has changed in that time");
    decide(o, STILE_TIMEOUT, &err);
    callback_queue(o->client, &o->callback);
}

/* ---- concluding; with the mutex ---- */

static void conclude(struct observer *o)
{
    bool complete = o->sight.holder && (o->place != VALUE_IN_CELL || o->sight.value);
    if (o->ended || !complete || sight_is_old(&o->sight))
        return;
    struct leader_copy *now = sight_conclude(&o->sight, o->place);
    struct leader_copy *kept = now ? sight_conclude(&o->sight, o->place) : NULL;
    if (!kept) {
        free(now);
        decide(o, STILE_NOMEM, NULL);
        return;
    }
    bool differs = !o->reported || leader_differs(o->reported, now);
    free(o->reported);
    o->reported = kept;
    if (!differs) {
        free(now);
        return;
    }
    if (o->reserved)
        loop_disarm(o->client->loop, &o->patience);
    *o->last = now;
    o->last = &now->next;
}

/* ---- watching ---- */

static int on_name(const struct stile_info *info, void *data)
{
    struct observer *o = data;
    lock_client(o);
    if (!sight_see_name(&o->sight, info))
        decide(o, STILE_NOMEM, NULL);
    conclude(o);
    settle(o);
    return 0;
}

static int on_cell(const struct stile_cell *cell, void *data)
{
    struct observer *o = data;
    lock_client(o);
    if (!sight_see_cell(&o->sight, cell))
        decide(o, STILE_NOMEM, NULL);
    conclude(o);
    settle(o);
    return 0;
}

/* Of either watch: the other one ends as well. */
static void on_watch_ended(struct stile_client *client, enum stile_status status,
                           const struct stile_error *err, void *data)
{
    struct observer *o = data;
    (void)client;
    lock_client(o);
    decide(o, status, err);
    o->pending--;
    settle(o);
}

/* Its reports may come before the call returns, on another thread. */
static enum stile_status watch_name(struct observer *o, struct stile_error *err)
{
    lock_client(o);
    o->pending++;
    unlock_client(o);
    return stile_watch_async(&o->name_watch, o->client, o->name, -1, on_name, on_watch_ended, o,
                             err);
}

static enum stile_status watch_cell(struct observer *o, struct stile_error *err)
{
    lock_client(o);
    o->pending++;
    unlock_client(o);
    enum stile_status status =
        stile_cell_watch_async(&o->cell_watch, o->client, o->key, -1, on_cell, on_watch_ended, o);
    return status ? error_set(err, status, 0, "%s", stile_status_text(status)) : STILE_OK;
}

/* ---- showing ---- */

static enum stile_status show_name(struct observer *o, struct stile_error *err);

static void show_over(struct observer *o, enum stile_status status, const struct stile_error *err)
{
    lock_client(o);
    if (!status)
        conclude(o);
    decide(o, status, err);
    o->pending--;
    settle(o);
}

static void on_value(const struct stile_cell *cell, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    struct observer *o = data;
    struct stile_error why;
    lock_client(o);
    bool seen = !status && cell && sight_see_cell(&o->sight, cell);
    bool old = seen && sight_is_old(&o->sight), again = old && o->looks < LOOKS_MAX;
    if (old && !again)
        o->sight.value_token = 0; /* it leads, as far as we know, and its value is not known */
    unlock_client(o);
    if (again)
        status = show_name(o, &why);
    if (again && status)
        show_over(o, status, &why);
    else if (!again)
        show_over(o, status || seen ? status : STILE_NOMEM, status ? err : NULL);
}

static int on_shown(const struct stile_info *info, void *data)
{
    struct observer *o = data;
    lock_client(o);
    if (!sight_see_name(&o->sight, info))
        decide(o, STILE_NOMEM, NULL);
    unlock_client(o);
    return 0;
}

static void on_show_ended(struct stile_client *client, enum stile_status status,
                          const struct stile_error *err, void *data)
{
    struct observer *o = data;
    bool cell = !status && o->sight.holder && o->place == VALUE_IN_CELL;
    if (cell)
        status = stile_cell_get_async(client, o->key, on_value, o);
    if (!cell || status)
        show_over(o, status, cell ? NULL : err);
}

static enum stile_status show_name(struct observer *o, struct stile_error *err)
{
    o->looks++;
    return stile_show_async(o->client, o->name, on_shown, on_show_ended, o, err);
}

/* ---- starting ---- */

static enum stile_status start_show(struct observer *o, struct stile_error *err)
{
    lock_client(o);
    o->pending++;
    unlock_client(o);
    return show_name(o, err);
}

static enum stile_status start_watch(struct observer *o, struct stile_error *err)
{
    struct stile_error why;
    enum stile_status status = watch_name(o, err);
    if (status || o->place != VALUE_IN_CELL || !watch_cell(o, &why))
        return status;
    lock_client(o);
    o->pending--;
    decide(o, why.status, &why);
    unlock_client(o);
    return STILE_OK; /* the failure is reported with the end of the first watch */
}

typedef enum stile_status start_fn(struct observer *o, struct stile_error *err);

static enum stile_status observer_new(struct observer **out, struct stile_client *client,
                                      const char *name, stile_leader_fn *fn, void *data,
                                      struct stile_error *err)
{
    if (!fn || !name)
        return error_set(err, STILE_MISUSE, 0, "no %s given", fn ? "name" : "callback");
    enum stile_status status = name_check(name, strlen(name), err);
    if (status)
        return status;
    struct observer *o = calloc(1, sizeof *o);
    if (!o)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    o->client = client;
    o->last = &o->first;
    o->fn = fn;
    o->data = data;
    o->wait_ms = -1;
    o->pending = 1;
    o->callback.fn = on_callback;
    o->patience.fn = on_patience_over;
    strcpy(o->name, name);
    *out = o;
    return STILE_OK;
}

/* With the mutex. */
static enum stile_status prepare(struct observer *o, struct stile_error *err)
{
    o->place = elect_value_place(o->client, o->name);
    if (o->place == VALUE_IN_CELL)
        elect_value_key(o->key, o->name);
    if (o->wait_ms >= 0 && loop_reserve(o->client->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    o->reserved = o->wait_ms >= 0;
    return STILE_OK;
}

/* Holds the client. If it fails, the observer is gone and the client is not held. */
static enum stile_status start(struct observer *o, start_fn *fn, struct outside *outside,
                               struct stile_error *err)
{
    struct stile_client *client = o->client;
    enum stile_status status = client_enter_for_locks(client, err);
    if (status) {
        free(o);
        return status;
    }
    status = prepare(o, err);
    client_step_out(client, outside);
    if (!status)
        status = fn(o, err);
    if (!status)
        return STILE_OK;
    client_step_in(client, outside);
    observer_free(o);
    client_leave(client);
    return status;
}

/* ---- blocking ---- */

static void interrupt(struct follower *follower)
{
    decide(container_of(follower, struct observer, follower), STILE_CANCELLED, NULL);
    drive_done(follower);
}

static void hand_out_blocking(struct observer *o)
{
    struct outside outside;
    struct leader_copy *copy = take_first(o);
    client_step_out(o->client, &outside);
    bool enough = o->fn(&copy->leader, o->data) != 0;
    free(copy);
    client_step_in(o->client, &outside);
    handed_out(o, enough);
}

static void drive(struct observer *o, bool done)
{
    o->follower.done = done;
    drive_until(o->client, &o->follower);
}

static enum stile_status observe(struct observer *o, start_fn *fn, struct stile_error *err)
{
    struct outside outside;
    struct stile_client *client = o->client;
    enum stile_status status = start(o, fn, &outside, err);
    if (status)
        return status;
    client_step_in(client, &outside);
    o->pending--;
    o->follower.interrupt = interrupt;
    if (client->magic != CLIENT_MAGIC)
        decide(o, STILE_CANCELLED, NULL); /* it was interrupted before it waits */
    while (!o->ended || (o->first && !o->error.status)) {
        drive(o, o->first != NULL);
        if (o->first && !(o->ended && o->error.status))
            hand_out_blocking(o);
    }
    o->follower.interrupt = NULL; /* the rest ends by itself */
    while (o->pending > 0)
        drive(o, false);
    status = o->error.status;
    if (status && err)
        *err = o->error;
    observer_free(o);
    client_leave(client);
    return status;
}

/* ---- async ---- */

static enum stile_status observe_async(struct observer *o, uint64_t *watch, start_fn *fn,
                                       struct stile_error *err)
{
    struct outside outside;
    struct stile_client *client = o->client;
    enum stile_status status = start(o, fn, &outside, err);
    if (status)
        return status;
    client_step_in(client, &outside);
    if (watch)
        *watch = o->name_watch;
    o->pending--;
    if (o->ended)
        callback_queue(client, &o->callback);
    client_leave(client);
    return STILE_OK;
}

/* ---- the calls ---- */

static enum stile_status explain(enum stile_status status, struct stile_error *err)
{
    return status ? error_wrap(err, status, "observing an election") : STILE_OK;
}

enum stile_status stile_leader_show(struct stile_client *client, const char *name,
                                    stile_leader_fn *fn, void *data, struct stile_error *err)
{
    struct observer *o = NULL;
    enum stile_status status = observer_new(&o, client, name, fn, data, err);
    return explain(status ? status : observe(o, start_show, err), err);
}

enum stile_status stile_leader_watch(struct stile_client *client, const char *name, int64_t wait_ms,
                                     stile_leader_fn *fn, void *data, struct stile_error *err)
{
    struct observer *o = NULL;
    enum stile_status status = observer_new(&o, client, name, fn, data, err);
    if (status)
        return explain(status, err);
    o->wait_ms = wait_ms;
    return explain(observe(o, start_watch, err), err);
}

static enum stile_status begin_async(struct observer **o, struct stile_client *client,
                                     const char *name, stile_leader_fn *fn,
                                     stile_query_done_fn *done, void *data, struct stile_error *err)
{
    if (!done)
        return error_set(err, STILE_MISUSE, 0, "no callback given");
    enum stile_status status = observer_new(o, client, name, fn, data, err);
    if (!status)
        (*o)->done = done;
    return status;
}

enum stile_status stile_leader_show_async(struct stile_client *client, const char *name,
                                          stile_leader_fn *fn, stile_query_done_fn *done,
                                          void *data, struct stile_error *err)
{
    struct observer *o = NULL;
    enum stile_status status = begin_async(&o, client, name, fn, done, data, err);
    return explain(status ? status : observe_async(o, NULL, start_show, err), err);
}

enum stile_status stile_leader_watch_async(uint64_t *watch, struct stile_client *client,
                                           const char *name, int64_t wait_ms, stile_leader_fn *fn,
                                           stile_query_done_fn *done, void *data,
                                           struct stile_error *err)
{
    struct observer *o = NULL;
    enum stile_status status = begin_async(&o, client, name, fn, done, data, err);
    if (status)
        return explain(status, err);
    o->wait_ms = wait_ms;
    return explain(observe_async(o, watch, start_watch, err), err);
}
