/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/drive.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/client.h"

/* ---- callbacks ---- */

void callback_queue(struct stile_client *client, struct callback *callback)
{
    if (callback->queued)
        return;
    callback->queued = true;
    callback->next = NULL;
    *client->callbacks.end = callback;
    client->callbacks.end = &callback->next;
}

void callback_cancel(struct stile_client *client, struct callback *callback)
{
    if (!callback->queued)
        return;
    struct callback **at = &client->callbacks.first;
    while (*at != callback)
        at = &(*at)->next;
    *at = callback->next;
    if (!*at)
        client->callbacks.end = at;
    callback->queued = false;
}

/* Without the mutex, so that callbacks may call the library. Only those that are due now: callbacks
 * that cause further ones must not keep their leader forever. */
static void run_callbacks(struct stile_client *client)
{
    size_t n = 0;
    for (struct callback *callback = client->callbacks.first; callback; callback = callback->next)
        n++;
    while (n-- > 0 && client->callbacks.first) {
        struct callback *callback = client->callbacks.first;
        callback_cancel(client, callback);
        pthread_mutex_unlock(&client->mutex);
        callback->fn(callback);
        pthread_mutex_lock(&client->mutex);
    }
}

/* ---- leading and following ---- */

/* A callback that waits for its own client leads already: it drives on from there. */
bool drive_is_leader(const struct stile_client *client)
{
    return client->drive.led && pthread_equal(client->drive.leader, pthread_self());
}

/* Requests that the callbacks of one turn make are sent together when all have returned. */
bool drive_is_inside(const struct stile_client *client)
{
    return client->threadless && drive_is_leader(client);
}

static void end_step(struct stile_client *client)
{
    loop_flush(client->loop);
    if (client->threadless && (client->callbacks.first || client->loop->tasks))
        loop_kick(client->loop);
}

/* ---- interrupting ---- */

void drive_interrupt(struct stile_client *client)
{
    for (struct follower *wait = client->drive.waits; wait; wait = wait->wait_next) {
        if (!wait->done)
            wait->interrupt(wait);
    }
}

/* An interrupt without a wait ends the next one: otherwise a signal between a program's check of
 * its own flag and its blocking call would be missed. */
static void obey_interrupt(struct stile_client *client)
{
    atomic_bool *interrupted = &client->drive.interrupted;
    if (!atomic_load_explicit(interrupted, memory_order_relaxed) || !client->drive.waits)
        return;
    if (atomic_exchange(interrupted, false))
        drive_interrupt(client);
}

static void begin_wait(struct stile_client *client, struct follower *me)
{
    struct drive *drive = &client->drive;
    me->wait_next = drive->waits;
    me->wait_link = &drive->waits;
    if (me->wait_next)
        me->wait_next->wait_link = &me->wait_next;
    drive->waits = me;
    obey_interrupt(client);
}

static void end_wait(struct follower *me)
{
    *me->wait_link = me->wait_next;
    if (me->wait_next)
        me->wait_next->wait_link = me->wait_link;
}

/* ---- driving ---- */

static void step(struct stile_client *client, struct follower *me, bool block)
{
    loop_prepare(client->loop);
    if (me)
        me->sleeps_in = client->loop;
    pthread_mutex_unlock(&client->mutex);
    loop_wait(client->loop, block);
    pthread_mutex_lock(&client->mutex);
    if (me)
        me->sleeps_in = NULL;
    loop_run(client->loop);
    obey_interrupt(client);
    if (client->threadless)
        loop_prepare(client->loop); /* its fd may be polled */
    else
        loop_flush(client->loop); /* callbacks may be slow */
    run_callbacks(client);
    end_step(client);
}

static void take_lead(struct stile_client *client)
{
    client->drive.led = true;
    client->drive.leader = pthread_self();
}

static void leave_lead(struct stile_client *client)
{
    struct drive *drive = &client->drive;
    drive->led = drive->by_background = false;
    if (drive->followers && drive->followers->asleep) {
        pthread_cond_signal(&drive->followers->woken);
    } else if (drive->waiting) {
        drive->waiting = false;
        pthread_cond_signal(&drive->background_woken);
    }
}

static void follow(struct stile_client *client, struct follower *me)
{
    loop_flush(client->loop); /* from here: the leader need not be woken to send */
    if (client->drive.by_background)
        loop_kick(client->loop);
    pthread_cond_init(&me->woken, NULL);
    me->asleep = true;
    struct follower **at = &client->drive.followers;
    while (*at)
        at = &(*at)->next;
    *at = me;
    while (!me->done && client->drive.led)
        pthread_cond_wait(&me->woken, &client->mutex);
    for (at = &client->drive.followers; *at != me; at = &(*at)->next)
        ;
    *at = me->next;
    me->next = NULL;
    me->asleep = false;
    pthread_cond_destroy(&me->woken);
}

static void lead(struct stile_client *client, struct follower *me)
{
    bool from_callback = drive_is_leader(client);
    take_lead(client);
    while (!me->done)
        step(client, me, client->callbacks.first == NULL);
    client->drive.last_use_ns = loop_lately(client->loop);
    if (!from_callback)
        leave_lead(client);
}

void drive_until(struct stile_client *client, struct follower *me)
{
    bool can_interrupt = me->interrupt && !me->done;
    if (can_interrupt)
        begin_wait(client, me);
    while (!me->done) {
        if (client->drive.led && !drive_is_leader(client))
            follow(client, me);
        else
            lead(client, me);
    }
    if (can_interrupt)
        end_wait(me);
    /* Woken to lead and done at the same time: the lead goes to the next follower, or to the
     * background thread, which nothing else would wake. */
    if (!client->drive.led)
        leave_lead(client);
}

void drive_done(struct follower *follower)
{
    follower->done = true;
    if (follower->asleep)
        pthread_cond_signal(&follower->woken);
    else if (follower->sleeps_in)
        loop_kick(follower->sleeps_in);
}

void drive_step(struct stile_client *client)
{
    step(client, NULL, client->callbacks.first == NULL);
}

void drive_once(struct stile_client *client)
{
    if (client->drive.led)
        return;
    take_lead(client);
    step(client, NULL, false);
    leave_lead(client);
}

void drive_nudge(struct stile_client *client)
{
    struct drive *drive = &client->drive;
    if (drive->led || client->threadless) {
        loop_kick(client->loop);
    } else if (drive->has_background) {
        drive->asked = true;
        pthread_cond_signal(&drive->background_woken);
    }
}

/* ---- leaving a client that is being closed ---- */

/* The background thread may sleep as the leader: it is the last one out then. */
void drive_unlock(struct stile_client *client)
{
    void (*last_out)(struct stile_client *) = NULL;
    if (client->magic != CLIENT_MAGIC && client->inside == 0) {
        pthread_cond_signal(&client->left);
        if (client->drive.led && client->last_out) {
            loop_kick(client->loop);
        } else {
            last_out = client->last_out;
            client->last_out = NULL;
        }
    }
    pthread_mutex_unlock(&client->mutex);
    if (last_out)
        last_out(client);
}

/* ---- the background thread ---- */

/* While one caller leads for long, sleeps until it leaves. Callers that come and go are noticed
 * once in GRACE_NS, and never have to wake this thread. */
static void stay_away(struct stile_client *client)
{
    struct drive *drive = &client->drive;
    bool busy = loop_now(client->loop) - drive->last_use_ns < GRACE_NS;
    if ((drive->led || drive->followers) && !busy) {
        drive->waiting = true;
        pthread_cond_wait(&drive->background_woken, &client->mutex);
        drive->waiting = false;
        if (drive->asked || drive->stop)
            return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t at = (uint64_t)until.tv_sec * NS_PER_SEC + (uint64_t)until.tv_nsec + GRACE_NS;
    until.tv_sec = (time_t)(at / NS_PER_SEC);
    until.tv_nsec = (long)(at % NS_PER_SEC);
    pthread_cond_timedwait(&drive->background_woken, &client->mutex, &until);
}

static void *background(void *arg)
{
    struct stile_client *client = arg;
    struct drive *drive = &client->drive;
    pthread_mutex_lock(&client->mutex);
    while (!drive->stop) {
        uint64_t idle_ns = loop_now(client->loop) - drive->last_use_ns;
        bool wanted = drive->asked || client->callbacks.first || idle_ns >= GRACE_NS;
        if (drive->led || drive->followers || !wanted) {
            stay_away(client);
            continue;
        }
        drive->asked = false;
        take_lead(client);
        drive->by_background = true;
        step(client, NULL, client->callbacks.first == NULL);
        leave_lead(client);
        if (client->last_out && !client->inside) {
            drive->has_background = false;
            pthread_detach(pthread_self());
            break;
        }
    }
    drive_unlock(client);
    return NULL;
}

int drive_start(struct stile_client *client)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&client->drive.background_woken, &attr);
    pthread_condattr_destroy(&attr);
    /* Signals must reach the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&client->drive.background, NULL, background, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    client->drive.has_background = rc == 0;
    return rc;
}

void drive_stop(struct stile_client *client)
{
    if (!client->drive.has_background)
        return;
    client->drive.stop = true;
    pthread_cond_signal(&client->drive.background_woken);
    loop_kick(client->loop);
    pthread_mutex_unlock(&client->mutex);
    pthread_join(client->drive.background, NULL);
    pthread_mutex_lock(&client->mutex);
    client->drive.has_background = false;
}
