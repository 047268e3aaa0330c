/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/redlock_kit.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

struct redis_server nodes[NODES];
struct stile_error why;

static redisContext *contexts[NODES];
static redisReply *last;

/* ---- nodes ---- */

static void connect_to(unsigned node)
{
    redisFree(contexts[node]);
    contexts[node] = redisConnect("127.0.0.1", nodes[node].port);
    if (!contexts[node] || contexts[node]->err)
        fail_msg("node %u: no connection", node);
}

int nodes_start(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++)
        redis_server_start(&nodes[i], NULL);
    return 0;
}

int nodes_stop(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++) {
        redisFree(contexts[i]);
        redis_server_stop(&nodes[i]);
    }
    freeReplyObject(last);
    return 0;
}

int nodes_clear(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++) {
        if (nodes[i].pid == 0)
            redis_server_restart(&nodes[i]);
        node_continue(i);
        connect_to(i);
        node_text(i, "FLUSHALL");
    }
    return 0;
}

void node_stop(unsigned node)
{
    int status;
    kill(nodes[node].pid, SIGSTOP);
    while (waitpid(nodes[node].pid, &status, WUNTRACED) < 0 && errno == EINTR)
        ;
    assert_true(WIFSTOPPED(status));
}

void node_continue(unsigned node)
{
    if (nodes[node].pid > 0)
        kill(nodes[node].pid, SIGCONT);
}

static redisReply *ask(unsigned node, const char *format, va_list arguments)
{
    freeReplyObject(last);
    last = redisvCommand(contexts[node], format, arguments);
    if (!last)
        fail_msg("node %u: %s: %s", node, format, contexts[node]->errstr);
    if (last->type == REDIS_REPLY_ERROR)
        fail_msg("node %u: %s: %s", node, format, last->str);
    return last;
}

const char *node_text(unsigned node, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask(node, format, arguments);
    va_end(arguments);
    return reply->str ? reply->str : "";
}

long long node_number(unsigned node, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask(node, format, arguments);
    va_end(arguments);
    return reply->str ? atoll(reply->str) : reply->integer;
}

void all_nodes(const char *command)
{
    for (unsigned i = 0; i < NODES; i++)
        node_text(i, command, NULL);
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

void await_text(unsigned node, const char *command, const char *text)
{
    int64_t end_ms = now_ms() + PATIENCE_MS;
    while (strcmp(node_text(node, command, NULL), text) != 0) {
        if (now_ms() > end_ms)
            fail_msg("node %u: %s is still \"%s\", not \"%s\"", node, command,
                     last->str ? last->str : "", text);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

/* ---- locks ---- */

const char *nodes_url(const char *more)
{
    static char url[512];
    size_t used = (size_t)snprintf(url, sizeof url, "redlock://");
    for (unsigned i = 0; i < NODES; i++)
        used += (size_t)snprintf(url + used, sizeof url - used, "%s127.0.0.1:%u", i ? "," : "",
                                 nodes[i].port);
    snprintf(url + used, sizeof url - used, "%s", more);
    return url;
}

struct stile_client *open_nodes(const char *more)
{
    struct stile_client *client;
    enum stile_status status = stile_client_open(&client, nodes_url(more), NULL, &why);
    if (status)
        fail_msg("%s", why.message);
    return client;
}

struct stile_lock *lock_on(struct stile_client *client, const char *name, int64_t ttl_ms)
{
    struct stile_lock *lock;
    assert_status(stile_lock_new(&lock, client, name, STILE_OPTIONS(.ttl_ms = ttl_ms), &why), OK);
    return lock;
}

enum stile_status take(struct stile_lock *lock)
{
    return stile_lock_acquire(lock, 0, &why);
}

uint64_t take_token(struct stile_lock *lock)
{
    uint64_t token;
    enum stile_status status = take(lock);
    if (status)
        fail_msg("%s: %s", stile_status_name(status), why.message);
    assert_status(stile_lock_token(lock, &token), OK);
    return token;
}

void give(struct stile_lock *lock)
{
    enum stile_status status = stile_lock_release(lock, &why);
    if (status)
        fail_msg("%s: %s", stile_status_name(status), why.message);
}

bool error_has(const char *words)
{
    if (strstr(why.message, words))
        return true;
    print_error("\"%s\" says nothing of \"%s\"\n", why.message, words);
    return false;
}

/* ---- waiters ---- */

static void *wait_and_hold(void *data)
{
    struct waiter *waiter = data;
    struct stile_error err;
    waiter->status = stile_lock_acquire(waiter->lock, PATIENCE_MS, &err);
    sem_post(&waiter->granted);
    sem_wait(&waiter->go);
    stile_client_close(waiter->client);
    return NULL;
}

/* In line on all nodes, so that a test knows their order. */
void waiter_start(struct waiter *waiter, const char *name, unsigned before)
{
    char length[128], size[16];
    waiter->client = open_nodes("");
    waiter->lock = lock_on(waiter->client, name, 10000);
    sem_init(&waiter->granted, 0, 0);
    sem_init(&waiter->go, 0, 0);
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_and_hold, waiter), 0);
    snprintf(length, sizeof length,
             "EVAL return(''..redis.call('LLEN',KEYS[1])) 1 {lock:%s}\x1fqueue", name);
    snprintf(size, sizeof size, "%u", before + 1);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, length, size);
    snprintf(waiter->entry, sizeof waiter->entry, "%s",
             node_text(0, "LINDEX {lock:%s}\x1fqueue -1", name));
}

static void await_post(sem_t *sem)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    while (sem_timedwait(sem, &until) != 0) {
        if (errno != EINTR)
            fail_msg("nobody was granted anything");
    }
}

void waiter_expect_grant(struct waiter *waiter)
{
    await_post(&waiter->granted);
    assert_status(waiter->status, OK);
}

void waiter_end(struct waiter *waiter)
{
    sem_post(&waiter->go);
    pthread_join(waiter->thread, NULL);
    sem_destroy(&waiter->granted);
    sem_destroy(&waiter->go);
}
