#include "core/drive.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/client.h"
#include "mutant.h"

/* Callbacks run without the mutex, so that they may call us. Only those that are due now: one that
 * calls for the next must not keep its driver for ever. */
static void run_notes(struct stile_client *client)
{
    size_t n = 0;
    for (struct note *note = client->notes; note; note = note->next)
        n++;
    while (n-- > 0 && client->notes) {
        struct note *note = client->notes;
        client_forget_note(client, note);
        pthread_mutex_unlock(&client->mutex);
        note->fn(note);
        pthread_mutex_lock(&client->mutex);
    }
}

/* A callback that waits for its own client sits in the seat already: it drives on from there. */
static bool is_driver(const struct stile_client *client)
{
    return client->seat.taken && pthread_equal(client->seat.driver, pthread_self());
}

/* What callbacks of one turn ask for leaves together, when they are done. */
bool drive_is_inside(const struct stile_client *client)
{
    return client->threadless && is_driver(client);
}

static void end_turn(struct stile_client *client)
{
    loop_flush(client->loop);
    if (client->threadless && (client->notes || client->loop->tasks))
        loop_kick(client->loop);
}

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
    if (client->threadless)
        loop_prepare(client->loop); /* somebody polls its fd */
    else
        loop_flush(client->loop); /* callbacks may take their time */
    run_notes(client);
    end_turn(client);
}

static void take_seat(struct stile_client *client)
{
    client->seat.taken = true;
    client->seat.driver = pthread_self();
}

static void leave_seat(struct stile_client *client)
{
    struct seat *seat = &client->seat;
    seat->taken = seat->by_background = false;
    if (seat->followers && seat->followers->asleep) {
        pthread_cond_signal(&seat->followers->woken);
    } else if (seat->waiting) {
        seat->waiting = false;
        pthread_cond_signal(&seat->background_woken);
    }
}

static void follow(struct stile_client *client, struct follower *me)
{
    loop_flush(client->loop); /* from here: the leader need not be woken to send */
    if (client->seat.by_background)
        loop_kick(client->loop);
    pthread_cond_init(&me->woken, NULL);
    me->asleep = true;
    struct follower **at = &client->seat.followers;
    while (*at)
        at = &(*at)->next;
    *at = me;
    while (!me->done && client->seat.taken)
        pthread_cond_wait(&me->woken, &client->mutex);
    for (at = &client->seat.followers; *at != me; at = &(*at)->next)
        ;
    *at = me->next;
    me->next = NULL;
    me->asleep = false;
    pthread_cond_destroy(&me->woken);
}

static void lead(struct stile_client *client, struct follower *me)
{
    bool from_callback = is_driver(client);
    take_seat(client);
    while (!me->done)
        step(client, me, client->notes == NULL);
    client->seat.last_use_ns = loop_lately(client->loop);
    if (!from_callback)
        leave_seat(client);
}

void drive_until(struct stile_client *client, struct follower *me)
{
    while (!me->done) {
        if (client->seat.taken && !is_driver(client))
            follow(client, me);
        else
            lead(client, me);
    }
#ifndef MUTANT_CORE_SEAT_NOT_PASSED_ON
    /* Woken for the seat and done at the same time: the seat goes on to the next in line, or to the
     * background thread, which nobody else would wake. */
    if (!client->seat.taken)
        leave_seat(client);
#endif
}

void drive_done(struct follower *follower)
{
    follower->done = true;
    if (follower->asleep)
        pthread_cond_signal(&follower->woken);
#ifndef MUTANT_CORE_LEADER_NOT_WOKEN
    else if (follower->sleeps_in)
        loop_kick(follower->sleeps_in);
#endif
}

void drive_step(struct stile_client *client)
{
    step(client, NULL, client->notes == NULL);
}

void drive_once(struct stile_client *client)
{
    if (client->seat.taken)
        return;
    take_seat(client);
    step(client, NULL, false);
    leave_seat(client);
}

void drive_nudge(struct stile_client *client)
{
    struct seat *seat = &client->seat;
    if (seat->taken || client->threadless) {
        loop_kick(client->loop);
    } else if (seat->has_background) {
        seat->asked = true;
        pthread_cond_signal(&seat->background_woken);
    }
}

/* While one drives for long, sleeps until it leaves. Those who come and go are looked after once in
 * GRACE_NS, and never have to wake this thread. */
static void stay_away(struct stile_client *client)
{
    struct seat *seat = &client->seat;
    bool busy = loop_now(client->loop) - seat->last_use_ns < GRACE_NS;
    if ((seat->taken || seat->followers) && !busy) {
        seat->waiting = true;
        pthread_cond_wait(&seat->background_woken, &client->mutex);
        seat->waiting = false;
        if (seat->asked || seat->stop)
            return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t at = (uint64_t)until.tv_sec * NS_PER_SEC + (uint64_t)until.tv_nsec + GRACE_NS;
    until.tv_sec = (time_t)(at / NS_PER_SEC);
    until.tv_nsec = (long)(at % NS_PER_SEC);
    pthread_cond_timedwait(&seat->background_woken, &client->mutex, &until);
}

static void *background(void *arg)
{
    struct stile_client *client = arg;
    struct seat *seat = &client->seat;
    pthread_mutex_lock(&client->mutex);
    while (!seat->stop) {
        uint64_t idle_ns = loop_now(client->loop) - seat->last_use_ns;
        bool wanted = seat->asked || client->notes || idle_ns >= GRACE_NS;
        if (seat->taken || seat->followers || !wanted) {
            stay_away(client);
            continue;
        }
        seat->asked = false;
        take_seat(client);
        seat->by_background = true;
        step(client, NULL, client->notes == NULL);
        leave_seat(client);
    }
    pthread_mutex_unlock(&client->mutex);
    return NULL;
}

int drive_start(struct stile_client *client)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&client->seat.background_woken, &attr);
    pthread_condattr_destroy(&attr);
    /* The program's signals are not ours to take. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&client->seat.background, NULL, background, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    client->seat.has_background = rc == 0;
    return rc;
}

bool drive_in_use(struct stile_client *client)
{
    const struct seat *seat = &client->seat;
    bool by_us = seat->by_background && pthread_equal(pthread_self(), seat->background);
    return seat->followers || (seat->taken && !seat->by_background) || by_us;
}

void drive_stop(struct stile_client *client)
{
    if (!client->seat.has_background)
        return;
    client->seat.stop = true;
    pthread_cond_signal(&client->seat.background_woken);
    loop_kick(client->loop);
    pthread_mutex_unlock(&client->mutex);
    pthread_join(client->seat.background, NULL);
    pthread_mutex_lock(&client->mutex);
    client->seat.has_background = false;
}
