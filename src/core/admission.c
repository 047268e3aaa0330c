/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/admission.h"

#include "core/lock.h"

static struct admission *of(const struct stile_lock *lock)
{
    return &lock->client->admission;
}

static size_t limit(const struct stile_client *client)
{
    return client->engine->class->in_flight;
}

/* ---- the queues ---- */

static void append(struct stile_lock *lock, enum admission_queue queue)
{
    struct admission *admission = of(lock);
    if (!admission->first[RELEASE_QUEUE] && !admission->first[CLAIM_QUEUE])
        admission->progress_ns = loop_now(lock->client->loop);
    lock->admission = IN_QUEUE;
    lock->admission_queue = queue;
    lock->request_next = NULL;
    lock->request_before = admission->last[queue];
    if (lock->request_before)
        lock->request_before->request_next = lock;
    else
        admission->first[queue] = lock;
    admission->last[queue] = lock;
}

static void unlink_request(struct stile_lock *lock)
{
    struct admission *admission = of(lock);
    if (lock->request_before)
        lock->request_before->request_next = lock->request_next;
    else
        admission->first[lock->admission_queue] = lock->request_next;
    if (lock->request_next)
        lock->request_next->request_before = lock->request_before;
    else
        admission->last[lock->admission_queue] = lock->request_before;
    lock->admission = NO_REQUEST;
}

static struct stile_lock *next_in_queue(const struct admission *admission)
{
    struct stile_lock *release = admission->first[RELEASE_QUEUE];
    return release ? release : admission->first[CLAIM_QUEUE];
}

/* ---- entering and leaving ---- */

struct stile_lock *admission_next(struct stile_client *client)
{
    struct admission *admission = &client->admission;
    struct stile_lock *lock = next_in_queue(admission);
    if (!lock || admission->in_flight >= limit(client))
        return NULL;
    unlink_request(lock);
    lock->admission = IN_FLIGHT;
    admission->in_flight++;
    return lock;
}

void admission_close(struct stile_client *client)
{
    struct stile_lock *lock;
    while ((lock = next_in_queue(&client->admission)))
        unlink_request(lock);
    loop_forget(client->loop, &client->admission.admit);
}

bool admission_enter(struct stile_lock *lock, enum admission_queue queue)
{
    struct admission *admission = of(lock);
    if (!lock->client->engine->class->in_flight)
        return true;
    if (lock->admission == IN_FLIGHT)
        return true; /* a claim that is being withdrawn keeps its place */
    if (admission->in_flight >= limit(lock->client) || admission->first[queue]) {
        append(lock, queue);
        return false;
    }
    lock->admission = IN_FLIGHT;
    admission->in_flight++;
    return true;
}

void admission_leave(struct stile_lock *lock)
{
    struct admission *admission = of(lock);
    if (lock->admission == NO_REQUEST)
        return;
    if (lock->admission == IN_QUEUE) {
        unlink_request(lock);
        return;
    }
    lock->admission = NO_REQUEST;
    admission->in_flight--;
    if (next_in_queue(admission)) {
        admission->progress_ns = loop_now(lock->client->loop);
        loop_soon(lock->client->loop, &admission->admit);
    }
}

uint64_t admission_patience_ends(const struct stile_client *client, uint64_t patience_ns)
{
    return client->admission.progress_ns + patience_ns;
}
