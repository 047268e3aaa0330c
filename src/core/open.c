/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a client, and closing it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/container.h"
#include "base/options.h"
#include "base/self.h"
#include "base/url.h"
#include "core/cancellable.h"
#include "core/cell_call.h"
#include "core/cell_watch.h"
#include "core/events.h"
#include "core/inspect.h"
#include "core/job_call.h"
#include "core/lock_report.h"
#include "core/lookup.h"
#include "core/record.h"

/* How long closing waits for the engine to answer the last releases: longer than lock.c waits for
 * each of them. */
#define CLOSE_PATIENCE_NS (4 * NS_PER_SEC)
/* ... and the last records, which are information: a program's end must not hang on them. */
#define RECORD_PATIENCE_NS NS_PER_SEC
/* The leases' tick, and the patience of a close. */
#define CLIENT_TIMERS 2

/* ---- opening ---- */

static struct stile_client *client_alloc(struct loop *loop, const struct engine_class *class)
{
    struct stile_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->engine = calloc(1, class->engine_size);
    client->epoch = fork_epoch();
    if (!client->engine || !client->epoch || name_queues_init(&client->name_queues) ||
        loop_reserve(loop, CLIENT_TIMERS)) {
        name_queues_fini(&client->name_queues);
        free(client->engine);
        free(client);
        return NULL;
    }
    *client->engine =
        (struct engine){.class = class, .events = &core_events, .loop = loop, .core = client};
    client->loop = loop;
    client->callbacks.end = &client->callbacks.first;
    client->admission.admit.fn = lock_send_admitted;
    client->leases.tick.fn = lock_lease_tick;
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->left, NULL);
    return client;
}

static void client_dispose(struct stile_client *client)
{
    for (size_t i = 0; i < FREED_KEPT; i++)
        free(client->freed_locks[i]);
    name_queues_fini(&client->name_queues);
    loop_free(client->loop);
    free(client->engine);
    pthread_cond_destroy(&client->left);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}

static void client_configure(struct stile_client *client,
                             const struct stile_client_options *options)
{
    struct engine *engine = client->engine;
    engine->caps = engine->class->caps;
    engine->caps.history = engine->class->history != NULL;
    engine->pid = (int64_t)getpid();
    self_command(client->command, sizeof client->command, options ? options->label : NULL);
    if (!options)
        return;
    client->threadless = options->threadless;
    client->log = options->log;
    client->log_data = options->log_data;
    client->log_level = options->log_level ? options->log_level : STILE_LOG_WARNING;
    engine->label = options->label;
    engine->examining = options->examine;
    if (options->pid)
        engine->pid = options->pid;
}

static enum stile_status client_start(struct stile_client *client, struct stile_error *err)
{
    int rc = client_register(client);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "preparing for fork");
    if (client->threadless)
        loop_prepare(client->loop); /* its fd may be polled from now on */
    rc = client->threadless ? 0 : drive_start(client);
    if (rc) {
        client_unregister(client);
        return error_errno(err, STILE_REFUSED, rc, "starting the background thread");
    }
    client->magic = CLIENT_MAGIC;
    return STILE_OK;
}

static void open_and_wait(struct stile_client *client, const struct url *url,
                          struct opening *opening)
{
    pthread_mutex_lock(&client->mutex);
    client->opening = opening;
    client->engine->class->open(client->engine, url);
    while (client->phase == CLIENT_OPENING)
        drive_step(client);
    client->opening = NULL;
    pthread_mutex_unlock(&client->mutex);
}

enum stile_status client_new(struct stile_client **out, const struct engine_class *class,
                             struct loop *loop, const struct url *url,
                             const struct stile_client_options *options, struct stile_error *err)
{
    struct opening opening = {.fn = NULL};
    struct stile_client *client = client_alloc(loop, class);
    if (!client) {
        loop_free(loop);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    client_configure(client, options);
    open_and_wait(client, url, &opening);
    enum stile_status status = opening.error.status;
    if (status) {
        error_copy(err, &opening.error);
    } else if ((status = client_start(client, err))) {
        client->engine->class->close(client->engine);
    }
    if (status)
        client_dispose(client);
    else
        *out = client;
    return status;
}

static enum stile_status open_engine(struct stile_client **client, const struct engine_class *class,
                                     const struct url *url,
                                     const struct stile_client_options *options,
                                     struct stile_error *err)
{
    enum stile_status status;
    struct loop *loop;
    fork_block();
    int rc = loop_epoll_new(&loop);
    if (rc)
        status = error_errno(err, STILE_REFUSED, rc, "making an event loop");
    else
        status = client_new(client, class, loop, url, options, err);
    fork_unblock();
    return status;
}

static enum stile_status read_arguments(struct stile_client_options *o,
                                        const struct engine_class **class, struct url **url,
                                        const char *text,
                                        const struct stile_client_options *options,
                                        struct stile_error *err)
{
    static const struct options_kind kind = {
        .name = "client options",
        .macro = "STILE_CLIENT_OPTIONS",
        .size = sizeof(struct stile_client_options),
        .least = OPTIONS_UP_TO(struct stile_client_options, examine),
    };
    enum stile_status status = options_read(o, options, &kind, err);
    return status ? status : lookup_from_text(url, class, text, err);
}

enum stile_status stile_client_open(struct stile_client **client, const char *text,
                                    const struct stile_client_options *options,
                                    struct stile_error *err)
{
    struct stile_client_options o;
    const struct engine_class *class;
    struct url *url;
    if (!client)
        return error_set(err, STILE_MISUSE, 0, "no place for the client");
    *client = NULL;
    enum stile_status status = read_arguments(&o, &class, &url, text, options, err);
    if (status)
        return status;
    status = open_engine(client, class, url, &o, err);
    if (status)
        error_wrap(err, status, "opening %s", url->scheme);
    url_free(url);
    return status;
}

/* ---- opening without waiting ---- */

static void opening_free(struct opening *opening)
{
    url_free(opening->url);
    free(opening->label);
    free(opening);
}

static void report_opened(struct callback *callback)
{
    struct opening *opening = container_of(callback, struct opening, callback);
    struct stile_client *client = opening->client;
    struct stile_error *err = &opening->error;
    pthread_mutex_lock(&client->mutex);
    client->opening = NULL;
    pthread_mutex_unlock(&client->mutex);
    if (err->status)
        error_wrap(err, err->status, "opening %s", opening->url->scheme);
    opening->fn(client, err->status, err->status ? err : NULL, opening->data);
    opening_free(opening);
}

/* Owns the URL from now on. */
static struct opening *opening_new(struct url *url, const char *label, stile_open_fn *fn,
                                   void *data)
{
    struct opening *opening = calloc(1, sizeof *opening);
    if (!opening) {
        url_free(url);
        return NULL;
    }
    *opening = (struct opening){.url = url, .fn = fn, .data = data, .callback.fn = report_opened};
    if (label && !(opening->label = strdup(label))) {
        opening_free(opening);
        return NULL;
    }
    return opening;
}

/* It is registered before the engine has anything that a forked child would have to close. */
static enum stile_status client_new_async(struct stile_client **out,
                                          const struct engine_class *class, struct loop *loop,
                                          const struct stile_client_options *options,
                                          struct opening *opening, struct stile_error *err)
{
    struct stile_client *client = client_alloc(loop, class);
    if (!client) {
        loop_free(loop);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    client_configure(client, options);
    client->engine->label = opening->label;
    client->opening = opening;
    opening->client = client;
    enum stile_status status = client_start(client, err);
    if (status) {
        client_dispose(client);
        return status;
    }
    *out = client; /* before the callback can come */
    pthread_mutex_lock(&client->mutex);
    client->engine->class->open(client->engine, opening->url);
    client_flush(client);
    pthread_mutex_unlock(&client->mutex);
    return STILE_OK;
}

static enum stile_status open_engine_async(struct stile_client **client,
                                           const struct engine_class *class,
                                           const struct stile_client_options *options,
                                           struct opening *opening, struct stile_error *err)
{
    struct loop *loop;
    int rc = loop_epoll_new(&loop);
    if (rc)
        return error_errno(err, STILE_REFUSED, rc, "making an event loop");
    return client_new_async(client, class, loop, options, opening, err);
}

enum stile_status stile_client_open_async(struct stile_client **client, const char *text,
                                          const struct stile_client_options *options,
                                          stile_open_fn *fn, void *data, struct stile_error *err)
{
    struct stile_client_options o;
    const struct engine_class *class;
    struct url *url;
    if (!client || !fn)
        return error_set(err, STILE_MISUSE, 0,
                         client ? "no callback given" : "no place for the client");
    *client = NULL;
    enum stile_status status = read_arguments(&o, &class, &url, text, options, err);
    if (status)
        return status;
    struct opening *opening = opening_new(url, o.label, fn, data);
    if (!opening)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    fork_block();
    status = open_engine_async(client, class, &o, opening, err);
    fork_unblock();
    if (status) {
        error_wrap(err, status, "opening %s", url->scheme);
        opening_free(opening);
    }
    return status;
}

/* ---- closing ---- */

static void wake_up(struct timer *timer)
{
    (void)timer; /* the step that it ends looks at the clock */
}

/* A lock whose release was given up has been waited for already. */
static bool anything_to_wait_for(const struct stile_client *client)
{
    if (client->job_calls || client->cell_calls)
        return true;
    for (const struct stile_lock *lock = client->locks; lock; lock = lock->all_next) {
        if (!lock->given_up || lock->op || lock->uses)
            return true;
    }
    return false;
}

/* Thousands of queued releases take a while: patience begins anew whenever the queue moves. */
static uint64_t patience_ends(const struct stile_client *client, uint64_t start_ns)
{
    uint64_t queue_ns = admission_patience_ends(client, CLOSE_PATIENCE_NS);
    return queue_ns > start_ns + CLOSE_PATIENCE_NS ? queue_ns : start_ns + CLOSE_PATIENCE_NS;
}

static void step_until(struct stile_client *client, struct timer *patience, uint64_t until)
{
    loop_arm(client->loop, patience, until);
    drive_step(client);
}

/* Gives every lock back and waits until the engine has answered, or has been silent too long. */
static void release_all(struct stile_client *client)
{
    struct timer patience = {.fn = wake_up};
    uint64_t start = loop_now(client->loop), until;
    for (struct stile_lock *lock = client->locks, *next; lock; lock = next) {
        next = lock->all_next;
        if (!lock->freed)
            lock_discard(lock);
    }
    inspect_cancel_all(client);
    job_call_cancel_all(client);
    cell_watch_cancel_all(client);
    cancellable_cancel_all(client);
    while (anything_to_wait_for(client) &&
           loop_now(client->loop) < (until = patience_ends(client, start)))
        step_until(client, &patience, until);
    until = start + RECORD_PATIENCE_NS;
    while (client->records && loop_now(client->loop) < until)
        step_until(client, &patience, until);
    loop_disarm(client->loop, &patience);
}

/* The engine's close() ends the attempt; its answer no longer comes. */
static void cancel_opening(struct stile_client *client)
{
    if (client->phase != CLIENT_OPENING)
        return;
    error_set(&client->opening->error, STILE_CANCELLED, 0, "the client was closed");
    callback_queue(client, &client->opening->callback);
}

/* With thousands of locks, or on a busy machine, all patience may end at once: each call is
 * answered all the same. */
static void answer_all(struct stile_client *client)
{
    for (struct stile_lock *lock = client->locks; lock; lock = lock->all_next) {
        if (lock->op)
            lock_give_up(lock);
    }
    while (client->callbacks.first)
        drive_step(client);
}

static void finish_close(struct stile_client *client)
{
    pthread_mutex_lock(&client->mutex);
    drive_stop(client);
    release_all(client);
    cancel_opening(client);
    answer_all(client);
    record_cancel_all(client);
    admission_close(client);
    pthread_mutex_unlock(&client->mutex);
    fork_block();
    client_unregister(client);
    if (client->phase != CLIENT_FAILED)
        client->engine->class->close(client->engine);
    job_call_abandon_all(client);
    cell_call_abandon_all(client);
    while (client->locks)
        lock_destroy(client->locks); /* not before: the engine may still know their claims */
    CLIENT_LOG(client, STILE_LOG_INFO, "closed %s", client->engine->caps.engine);
    client_dispose(client);
    fork_unblock();
}

/* Calls that wait end first. In a callback the call that makes it is below us on the stack: the
 * last thread to leave does the rest. */
void stile_client_close(struct stile_client *client)
{
    if (!client || !client_begin_close(client))
        return;
    pthread_mutex_lock(&client->mutex);
    client->magic = 0; /* no call can begin from now on */
    drive_interrupt(client);
    client_flush(client);
    if (client_in_callback(client)) {
        client->last_out = finish_close;
        pthread_mutex_unlock(&client->mutex);
        return;
    }
    while (client->inside)
        pthread_cond_wait(&client->left, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
    finish_close(client);
}
