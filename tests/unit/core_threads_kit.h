/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the scripted engine on the real loop, and threads that use it. */
#ifndef STILE_CORE_THREADS_KIT_H
#define STILE_CORE_THREADS_KIT_H

#include <pthread.h>
#include <semaphore.h>

#include "core/lock.h"
#include "support/unit.h"

#define PATIENCE_SEC 10

struct it {
    struct script *script;
    struct stile_client *client;
    sem_t claims, renewals; /* one post for each request */
};

extern struct it it;

int threads_open(void **state);
int threads_close(void **state);

struct timespec threads_patience(void); /* when it is over */
void threads_await(sem_t *semaphore);
void threads_all_inside(void); /* the engine answers from inside the call */
void threads_occupy(const char *name);

/* One thread blocked in acquire(). */
struct waiter {
    pthread_t thread;
    struct stile_lock *lock;
    int64_t wait_ms;
    enum stile_status status;
};

void waiter_start(struct waiter *waiter, struct stile_lock *lock);
enum stile_status waiter_finish(struct waiter *waiter);

/* To wait until another thread has closed the client; called before it can. */
void threads_watch_close(void);
void threads_await_close(void);

#endif
