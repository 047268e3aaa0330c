/* Opening a client, and closing it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "core/completion.h"
#include "core/events.h"
#include "core/job_call.h"
#include "core/lock.h"
#include "core/lookup.h"

/* How long closing waits for the engine to answer the last releases: longer than lock.c waits for
 * each of them. */
#define CLOSE_PATIENCE_NS (4 * NS_PER_SEC)
/* The leases' tick, and the patience of a close. */
#define CLIENT_TIMERS 2

/* ---- opening ---- */

static struct stile_client *client_alloc(struct loop *loop, const struct engine_class *class)
{
    struct stile_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->engine = calloc(1, class->engine_size);
    if (!client->engine || name_queues_init(&client->name_queues) ||
        loop_reserve(loop, CLIENT_TIMERS)) {
        name_queues_fini(&client->name_queues);
        free(client->engine);
        free(client);
        return NULL;
    }
    *client->engine =
        (struct engine){.class = class, .events = &core_events, .loop = loop, .core = client};
    client->loop = loop;
    client->epoch = fork_epoch();
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

enum stile_status client_new(struct stile_client **out, const struct engine_class *class,
                             struct loop *loop, const struct url *url,
                             const struct stile_client_options *options, struct stile_error *err)
{
    struct stile_client *client = client_alloc(loop, class);
    if (!client) {
        loop_free(loop);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    client->threadless = options && options->threadless;
    client->engine->caps = client->engine->class->caps;
    client->engine->label = options ? options->label : NULL;
    if (options) {
        client->log = options->log;
        client->log_data = options->log_data;
        client->log_level = options->log_level ? options->log_level : STILE_LOG_WARNING;
    }
    client->engine->pid = options && options->pid ? options->pid : (int64_t)getpid();
    client->engine->examining = options && options->examine;
    enum stile_status status = class->open(client->engine, url, err);
    client->engine->caps.jobs = client->engine->class->jobs != NULL;
    client->engine->caps.detached = client->engine->class->detached != NULL;
    client->engine->label = NULL; /* the caller's string is ours only during the call */
    if (!status) {
        status = client_start(client, err);
        if (status)
            client->engine->class->close(client->engine);
    }
    if (status) {
        client_dispose(client);
        return status;
    }
    CLIENT_LOG(client, STILE_LOG_INFO, "opened %s", client->engine->caps.engine);
    *out = client;
    return STILE_OK;
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

enum stile_status stile_client_open(struct stile_client **client, const char *text,
                                    const struct stile_client_options *options,
                                    struct stile_error *err)
{
    static const struct options_kind kind = {
        .name = "client options",
        .macro = "STILE_CLIENT_OPTIONS",
        .size = sizeof(struct stile_client_options),
        .least = OPTIONS_UP_TO(struct stile_client_options, examine),
    };
    struct stile_client_options o;
    const struct engine_class *class;
    struct url *url;
    if (!client)
        return error_set(err, STILE_MISUSE, 0, "no place for the client");
    *client = NULL;
    enum stile_status status = options_read(&o, options, &kind, err);
    if (!status)
        status = lookup_from_text(&url, &class, text, err);
    if (status)
        return status;
    status = open_engine(client, class, url, &o, err);
    if (status)
        error_wrap(err, status, "opening %s", url->scheme);
    url_free(url);
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
    if (client->job_calls)
        return true;
    for (const struct stile_lock *lock = client->locks; lock; lock = lock->all_next) {
        if (!lock->given_up || lock->op || lock->uses)
            return true;
    }
    return false;
}

/* Thousands of releases in line take their time: patience begins anew whenever the line moves. */
static uint64_t patience_ends(const struct stile_client *client, uint64_t start_ns)
{
    uint64_t line_ns = admission_patience_ends(client, CLOSE_PATIENCE_NS);
    return line_ns > start_ns + CLOSE_PATIENCE_NS ? line_ns : start_ns + CLOSE_PATIENCE_NS;
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
    job_call_cancel_all(client);
    while (anything_to_wait_for(client) &&
           loop_now(client->loop) < (until = patience_ends(client, start))) {
        loop_arm(client->loop, &patience, until);
        drive_step(client);
    }
    loop_disarm(client->loop, &patience);
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
    answer_all(client);
    admission_close(client);
    pthread_mutex_unlock(&client->mutex);
    fork_block();
    client_unregister(client);
    client->engine->class->close(client->engine);
    job_call_abandon_all(client);
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
