/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Room for a name, an error's message, and some words. */
#define LOG_MAX 1024

/* ---- fork ---- */

/* A page that the kernel wipes in every child, even one made by a bare clone(2), which runs no
 * fork handler. A mapping, because getpid() is a syscall and this is read on every call. */
typedef _Atomic(uint64_t) fork_page;
static fork_page *_Atomic epoch_page;
static pthread_mutex_t set_up_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_free = PTHREAD_COND_INITIALIZER;
static struct stile_client *registry;
static unsigned n_blocking, n_forking;

/* No client may be inside a call while the child's copy is made. */
static void before_fork(void)
{
    pthread_mutex_lock(&registry_mutex);
    n_forking++;
    while (n_blocking)
        pthread_cond_wait(&registry_free, &registry_mutex);
    n_forking--;
    for (struct stile_client *c = registry; c; c = c->registry_next)
        pthread_mutex_lock(&c->mutex);
}

static void after_fork_in_parent(void)
{
    for (struct stile_client *c = registry; c; c = c->registry_next)
        pthread_mutex_unlock(&c->mutex);
    pthread_cond_broadcast(&registry_free);
    pthread_mutex_unlock(&registry_mutex);
}

static void after_fork_in_child(void)
{
    for (struct stile_client *c = registry; c; c = c->registry_next) {
        if (c->phase != CLIENT_FAILED)
            c->engine->class->forked(c->engine);
        c->loop->class->close_fds(c->loop);
        pthread_mutex_unlock(&c->mutex);
    }
    registry = NULL;
    n_forking = 0; /* other threads, which are not here */
    registry_free = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pthread_mutex_unlock(&registry_mutex);
}

void fork_block(void)
{
    pthread_mutex_lock(&registry_mutex);
    while (n_forking) /* otherwise a stream of opening threads could starve it */
        pthread_cond_wait(&registry_free, &registry_mutex);
    n_blocking++;
    pthread_mutex_unlock(&registry_mutex);
}

void fork_unblock(void)
{
    pthread_mutex_lock(&registry_mutex);
    if (--n_blocking == 0)
        pthread_cond_broadcast(&registry_free);
    pthread_mutex_unlock(&registry_mutex);
}

static void set_up(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    if (madvise(page, size, MADV_WIPEONFORK) != 0 ||
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
        munmap(page, size);
        return;
    }
    epoch_page = page;
}

/* A lack of memory is temporary: the next one to ask tries again. */
static fork_page *the_page(void)
{
    fork_page *page = atomic_load_explicit(&epoch_page, memory_order_acquire);
    if (page)
        return page;
    pthread_mutex_lock(&set_up_mutex);
    if (!atomic_load_explicit(&epoch_page, memory_order_relaxed))
        set_up();
    pthread_mutex_unlock(&set_up_mutex);
    return atomic_load_explicit(&epoch_page, memory_order_acquire);
}

/* Time alone could repeat between two children made at once; the pid differs. */
static uint64_t fresh_epoch(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
    return (ns << 22 ^ (uint64_t)getpid()) | 1;
}

uint64_t fork_epoch(void)
{
    fork_page *page = the_page();
    if (!page)
        return 0;
    uint64_t epoch = atomic_load_explicit(page, memory_order_relaxed);
    if (epoch == 0) {
        uint64_t fresh = fresh_epoch();
        epoch = atomic_compare_exchange_strong(page, &epoch, fresh) ? fresh : epoch;
    }
    return epoch;
}

/* ---- the register of open clients ---- */

int client_register(struct stile_client *client)
{
    if (fork_epoch() == 0)
        return ENOMEM;
    pthread_mutex_lock(&registry_mutex);
    client->registry_next = registry;
    registry = client;
    pthread_mutex_unlock(&registry_mutex);
    return 0;
}

void client_unregister(struct stile_client *client)
{
    pthread_mutex_lock(&registry_mutex);
    struct stile_client **at = &registry;
    while (*at != client)
        at = &(*at)->registry_next;
    *at = client->registry_next;
    pthread_mutex_unlock(&registry_mutex);
}

/* After a bare clone(2) the child still finds the parent's clients here; they do not count. */
bool client_begin_close(struct stile_client *client)
{
    pthread_mutex_lock(&registry_mutex);
    struct stile_client *at = registry;
    while (at && at != client)
        at = at->registry_next;
    bool open = at && !at->closing && at->epoch == fork_epoch();
    if (open)
        at->closing = true;
    pthread_mutex_unlock(&registry_mutex);
    return open;
}

/* ---- opening ---- */

void client_opened(struct engine *engine, const struct stile_error *err)
{
    struct stile_client *client = engine->core;
    struct opening *opening = client->opening;
    client->phase = err ? CLIENT_FAILED : CLIENT_OPEN;
    engine->caps.jobs = engine->class->jobs != NULL;
    engine->caps.detached = engine->class->detached != NULL;
    engine->caps.paces &= engine->caps.cells;
    engine->label = NULL; /* its memory is the caller's */
    if (!err)
        CLIENT_LOG(client, STILE_LOG_INFO, "opened %s", engine->caps.engine);
    if (!opening || opening->error.status)
        return; /* the client is being closed, and its caller has been sent CANCELLED */
    error_copy(&opening->error, err);
    if (opening->fn)
        callback_queue(client, &opening->callback);
}

/* ---- entering and leaving ---- */

/* Inlined into the calls that every pair makes: otherwise it costs a local: pair two per cent. */
static inline enum stile_status enter(struct stile_client *client, struct stile_error *err)
{
    if (!client || client->magic != CLIENT_MAGIC)
        return error_set(err, STILE_MISUSE, 0, "not an open client");
    if (client->epoch != fork_epoch())
        return error_set(err, STILE_MISUSE, 0,
                         "this client was opened before fork(); open a new one in the child");
    pthread_mutex_lock(&client->mutex);
    client->inside++;
    return STILE_OK;
}

enum stile_status client_enter_early(struct stile_client *client, struct stile_error *err)
{
    return enter(client, err);
}

enum stile_status client_enter(struct stile_client *client, struct stile_error *err)
{
    enum stile_status status = enter(client, err);
    if (status || client->phase == CLIENT_OPEN)
        return status;
    bool failed = client->phase == CLIENT_FAILED;
    client_leave(client);
    return error_set(err, STILE_MISUSE, 0,
                     failed ? "this client could not be opened; close it"
                            : "this client is still being opened; wait for the callback of "
                              "stile_client_open_async()");
}

enum stile_status client_enter_for_locks(struct stile_client *client, struct stile_error *err)
{
    enum stile_status status = client_enter(client, err);
    if (status || !client->engine->examining)
        return status;
    client_leave(client);
    return error_set(err, STILE_MISUSE, 0,
                     "this client was opened with `examine`, for stile_doctor() only; open another "
                     "one for locks");
}

void client_flush(struct stile_client *client)
{
    if (drive_is_inside(client))
        return;
    loop_flush(client->loop);
    if (client->callbacks.first || client->loop->tasks)
        drive_nudge(client);
}

void client_leave(struct stile_client *client)
{
    client_flush(client);
    client->inside--;
    if (client->magic == CLIENT_MAGIC)
        pthread_mutex_unlock(&client->mutex);
    else
        drive_unlock(client);
}

void client_step_out(struct stile_client *client, struct outside *outside)
{
    *outside =
        (struct outside){.client = client, .thread = pthread_self(), .next = client->outside};
    client->outside = outside;
    pthread_mutex_unlock(&client->mutex);
}

void client_step_in(struct stile_client *client, struct outside *outside)
{
    pthread_mutex_lock(&client->mutex);
    struct outside **at = &client->outside;
    while (*at != outside)
        at = &(*at)->next;
    *at = outside->next;
}

enum stile_status client_hold(struct stile_client *client, struct outside *outside,
                              struct stile_error *err)
{
    enum stile_status status = client_enter(client, err);
    if (!status)
        client_step_out(client, outside);
    return status;
}

void client_let_go(struct outside *outside)
{
    struct stile_client *client = outside->client;
    client_step_in(client, outside);
    client_leave(client);
}

bool client_in_callback(const struct stile_client *client)
{
    const struct outside *at = client->outside;
    while (at && !pthread_equal(at->thread, pthread_self()))
        at = at->next;
    return at || drive_is_leader(client);
}

void client_log(struct stile_client *client, enum stile_log_level level, const char *format, ...)
{
    char message[LOG_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    client->log(level, message, client->log_data);
}

uint64_t client_after_ms(struct stile_client *client, int64_t ms)
{
    uint64_t now = loop_now(client->loop);
    return (uint64_t)ms < (NEVER - now) / NS_PER_MS ? now + (uint64_t)ms * NS_PER_MS : NEVER;
}

/* ---- event loops and what the engine offers ---- */

int stile_client_life_fd(struct stile_client *client)
{
    if (client_enter(client, NULL))
        return -1;
    const struct engine_class *class = client->engine->class;
    int fd = class->life_fd ? class->life_fd(client->engine) : -1;
    client_leave(client);
    return fd;
}

int stile_client_fd(struct stile_client *client)
{
    if (client_enter_early(client, NULL))
        return -1;
    int fd = client->loop->class->fd(client->loop);
    client_leave(client);
    return fd;
}

enum stile_status stile_client_dispatch(struct stile_client *client)
{
    enum stile_status status = client_enter_early(client, NULL);
    if (status)
        return status;
    drive_once(client);
    client_leave(client);
    return STILE_OK;
}

/* A signal handler may use neither the mutex nor the fork's epoch. In a forked child the loop has
 * no descriptor left to write to. */
void stile_client_interrupt(struct stile_client *client)
{
    if (!client || client->magic != CLIENT_MAGIC)
        return;
    int saved = errno;
    atomic_store(&client->drive.interrupted, true);
    loop_kick(client->loop);
    errno = saved;
}

const struct stile_caps *stile_client_caps(struct stile_client *client)
{
    if (client_enter(client, NULL))
        return NULL;
    const struct stile_caps *caps = &client->engine->caps;
    client_leave(client);
    return caps;
}
