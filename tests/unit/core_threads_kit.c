/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/core_threads_kit.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct it it;

static struct script_rule count(struct script *script, enum script_call call)
{
    if (call == SCRIPT_CLAIM)
        sem_post(&it.claims);
    if (call == SCRIPT_RENEW)
        sem_post(&it.renewals);
    return script->always[call == SCRIPT_CALLS ? SCRIPT_CLAIM : call];
}

int threads_open(void **state)
{
    struct loop *loop;

    (void)state;
    it.script = script_new(NULL);
    it.script->untraced = true;
    it.script->decide = count;
    sem_init(&it.claims, 0, 0);
    sem_init(&it.renewals, 0, 0);
    script_use(it.script);
    if (loop_epoll_new(&loop))
        return -1;
    return client_new(&it.client, script_variant(STILE_LEASE_CLAIM, 0), loop, NULL, NULL, NULL) ? -1
                                                                                                : 0;
}

int threads_close(void **state)
{
    (void)state;
    if (it.client)
        stile_client_close(it.client);
    script_free(it.script);
    sem_destroy(&it.claims);
    sem_destroy(&it.renewals);
    return 0;
}

struct timespec threads_patience(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SEC;
    return until;
}

void threads_await(sem_t *semaphore)
{
    struct timespec until = threads_patience();

    assert_int_equal(sem_timedwait(semaphore, &until), 0);
}

void threads_all_inside(void)
{
    pthread_mutex_lock(&it.client->mutex);
    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(it.script, (enum script_call)call, .inside = true);
    pthread_mutex_unlock(&it.client->mutex);
}

/* The server is the client's: to be touched with the mutex. */
void threads_occupy(const char *name)
{
    pthread_mutex_lock(&it.client->mutex);
    script_occupy(it.script, name, NEVER);
    pthread_mutex_unlock(&it.client->mutex);
}

static void *wait_for_it(void *arg)
{
    struct waiter *waiter = arg;

    waiter->status = stile_lock_acquire(waiter->lock, waiter->wait_ms, NULL);
    return NULL;
}

void waiter_start(struct waiter *waiter, struct stile_lock *lock)
{
    *waiter = (struct waiter){.lock = lock, .wait_ms = -1};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_it, waiter), 0);
}

enum stile_status waiter_finish(struct waiter *waiter)
{
    struct timespec until = threads_patience();

    assert_int_equal(pthread_timedjoin_np(waiter->thread, NULL, &until), 0); /* else: it hangs */
    return waiter->status;
}

/* ---- closing ---- */

static const struct engine_class *whole;
static struct engine_class watched;
static sem_t closed;

static void close_and_tell(struct engine *engine)
{
    whole->close(engine);
    sem_post(&closed);
}

void threads_watch_close(void)
{
    sem_init(&closed, 0, 0);
    pthread_mutex_lock(&it.client->mutex);
    whole = it.client->engine->class;
    watched = *whole;
    watched.close = close_and_tell;
    it.client->engine->class = &watched;
    pthread_mutex_unlock(&it.client->mutex);
}

/* A fork waits until a close is over, the last free included. */
void threads_await_close(void)
{
    threads_await(&closed);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    sem_destroy(&closed);
    it.client = NULL;
}
