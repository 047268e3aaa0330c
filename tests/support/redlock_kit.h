/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Five redis-servers as nodes of redlock, each with a connection of the test's own beside it. */
#ifndef STILE_REDLOCK_KIT_H
#define STILE_REDLOCK_KIT_H

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "servers/redis_server.h"
#include "stile.h"

#define NODES       5
#define PATIENCE_MS 20000

#define assert_status(actual, expected)                                                            \
    assert_string_equal(stile_status_name(actual), stile_status_name(STILE_##expected))

extern struct redis_server nodes[NODES];
extern struct stile_error why; /* of the call made last */

/* Setup and teardown of a group of tests, and of each one: all nodes run and are empty. */
int nodes_start(void **state);
int nodes_stop(void **state);
int nodes_clear(void **state);
void node_stop(unsigned node);     /* SIGSTOP, and seen to have stopped */
void node_continue(unsigned node); /* nothing if it runs */

/* A command to one node. Errors end the test. The text is valid until the next call. */
const char *node_text(unsigned node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));                    /* "": nil */
long long node_number(unsigned node, const char *format, ...) /* also of a text */
    __attribute__((format(printf, 2, 3)));
void all_nodes(const char *command);
/* Asks until it is so. */
void await_text(unsigned node, const char *command, const char *text);

const char *nodes_url(const char *more); /* behind the nodes: "?fence=off" */
struct stile_client *open_nodes(const char *more);
struct stile_lock *lock_on(struct stile_client *client, const char *name, int64_t ttl_ms);
enum stile_status take(struct stile_lock *lock);
uint64_t take_token(struct stile_lock *lock);
void give(struct stile_lock *lock);
bool error_has(const char *words); /* by the call made last */

/* A waiter on a thread of its own, which keeps the lock until the test releases it. */
struct waiter {
    struct stile_client *client;
    struct stile_lock *lock;
    pthread_t thread;
    sem_t granted, go;
    enum stile_status status;
    char entry[512]; /* in the queues */
};

void waiter_start(struct waiter *waiter, const char *name, unsigned before); /* so many wait */
void waiter_expect_grant(struct waiter *waiter);
void waiter_end(struct waiter *waiter); /* gives it back */

#endif
