/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the grant of one or several names, so that a signal or the front's death ends it.
 *
 * Several are taken one after the other in canonical order, all or none. This is what
 * stile_locks_acquire() does, but that call blocks, and a signal could not end it. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

#define TERMINAL_AFTER_MS 1000
#define LOG_AFTER_MS      10000
#define LOG_EVERY_MS      60000
/* How long a message waits for the holder's name. */
#define LOOK_PATIENCE_MS 1000

void wait_ready(struct stile_client *client, const struct inbox *inbox, int64_t until_ms)
{
    wait_ready_or(client, inbox, until_ms, -1);
}

void wait_ready_or(struct stile_client *client, const struct inbox *inbox, int64_t until_ms, int fd)
{
    struct pollfd fds[] = {
        {.fd = stile_client_fd(client), .events = POLLIN},
        {.fd = inbox->signal_fd, .events = POLLIN},
        {.fd = inbox->orphaned ? -1 : inbox->link.lifeline, .events = POLLIN},
        {.fd = fd, .events = POLLIN},
    };
    int64_t due = inbox_due_ms(inbox);
    if (until_ms < due)
        due = until_ms;
    int64_t timeout = due == INT64_MAX ? -1 : due - now_ms();
    if (due != INT64_MAX && timeout < 0)
        timeout = 0;
    if (timeout > 60000)
        timeout = 60000;
    if (poll(fds, 4, (int)timeout) > 0 && fds[0].revents != 0)
        stile_client_dispatch(client);
}

static void on_done(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    struct grant *grant = data;
    (void)lock;
    grant->pending = false;
    grant->status = status;
    if (err != NULL)
        grant->err = *err;
}

static void on_campaigned(struct stile_election *election, enum stile_status status,
                          const struct stile_error *err, void *data)
{
    (void)election;
    on_done(NULL, status, err, data);
}

static enum stile_status begin(struct grant *grant, struct stile_lock *lock, int64_t wait_ms)
{
    if (grant->election != NULL)
        return stile_election_campaign_async(grant->election, grant->proclaim, wait_ms,
                                             on_campaigned, grant);
    return stile_lock_acquire_async(lock, wait_ms, on_done, grant);
}

static void cancel(struct grant *grant, struct stile_lock *lock)
{
    if (grant->election != NULL)
        stile_election_cancel(grant->election);
    else
        stile_lock_cancel(lock);
}

static void handle_events(struct grant *grant, struct stile_lock *waiting)
{
    struct event event;
    while ((event = inbox_next(grant->inbox)).kind != EVENT_NONE) {
        if (event.sig == SIGTSTP)
            grant->paused = true;
        else if (event.sig == SIGCONT)
            grant->paused = false;
        else if (signals_ends_wait(event.sig) && grant->sig == 0)
            grant->sig = event.sig;
    }
    if (waiting != NULL && (grant->sig != 0 || grant->inbox->orphaned))
        cancel(grant, waiting);
}

/* ---- reports about the wait ---- */

int64_t grant_report_after_ms(enum audience audience, unsigned n)
{
    switch (audience) {
    case AUDIENCE_NONE:
        return -1;
    case AUDIENCE_TERMINAL:
        return n == 0 ? TERMINAL_AFTER_MS : -1;
    case AUDIENCE_LOG:
        return n == 0 ? LOG_AFTER_MS : LOG_EVERY_MS;
    }
    return -1;
}

static void plan_report(struct grant *grant)
{
    int64_t after = grant_report_after_ms(grant->audience, grant->reports);
    grant->report_ms = after < 0 ? INT64_MAX : now_ms() + after;
}

/* Asks for the holder when a report is due, and prints it with the answer: nothing here waits. */
static void report_wait(struct grant *grant, const char *name)
{
    int64_t now = now_ms();
    if (now >= grant->report_ms) {
        grant->reports++;
        plan_report(grant);
        grant->tell_ms = now + LOOK_PATIENCE_MS;
        look_begin(grant->look, grant->client, name, grant->self);
    }
    if (grant->tell_ms == 0 || (grant->look->under_way && now < grant->tell_ms))
        return;
    grant->tell_ms = 0;
    look_say_waiting(grant->look, name);
}

static int64_t next_report_ms(const struct grant *grant)
{
    return grant->tell_ms != 0 ? grant->tell_ms : grant->report_ms;
}

void grant_say_refused(const struct grant *grant, const struct options *options,
                       enum stile_status status)
{
    const char *name = stile_lock_name(grant->locks[grant->taken]);
    look_begin(grant->look, grant->client, name, grant->self);
    look_wait(grant->look, grant->client, now_ms() + LOOK_PATIENCE_MS);
    look_say_refused(grant->look, options, name, status);
}

/* ---- the wait ---- */

/* Until the grant under way is decided. */
static void wait_for_one(struct grant *grant, struct stile_lock *lock)
{
    stile_client_dispatch(grant->client);
    while (grant->pending) {
        wait_ready(grant->client, grant->inbox, next_report_ms(grant));
        handle_events(grant, lock);
        if (grant->pending)
            report_wait(grant, stile_lock_name(lock));
    }
    grant->tell_ms = 0; /* granted or not, there is no wait to report */
}

static bool all_held(const struct grant *grant, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!stile_lock_held(grant->locks[i]))
            return false;
    }
    return true;
}

static enum stile_status take_all(struct grant *grant)
{
    int64_t end_ms = grant->wait_ms > 0 ? now_ms() + grant->wait_ms : 0;
    plan_report(grant);
    for (; grant->taken < grant->n; grant->taken++) {
        struct stile_lock *lock = grant->locks[grant->taken];
        int64_t left = grant->wait_ms;
        if (left > 0)
            left = end_ms > now_ms() ? end_ms - now_ms() : 0;
        grant->pending = true;
        grant->status = begin(grant, lock, left);
        if (grant->status != STILE_OK)
            return grant->status;
        wait_for_one(grant, lock);
        if (grant->status != STILE_OK)
            return grant->status;
    }
    handle_events(grant, NULL);
    while (grant->paused && grant->sig == 0 && !grant->inbox->orphaned &&
           all_held(grant, grant->n)) {
        wait_ready(grant->client, grant->inbox, now_ms() + 1000);
        handle_events(grant, NULL);
    }
    if (grant->sig != 0 || grant->inbox->orphaned)
        return STILE_CANCELLED;
    if (all_held(grant, grant->n))
        return STILE_OK;
    snprintf(grant->err.message, sizeof grant->err.message, "lost again before all were there");
    return STILE_LOST;
}

enum stile_status grant_wait(struct grant *grant)
{
    enum stile_status status = take_all(grant);
    if (status == STILE_OK)
        return STILE_OK;
    for (size_t i = grant->taken; i > 0 && grant->election == NULL; i--)
        stile_lock_abandon(grant->locks[i - 1], NULL);
    if (grant->taken > 0 && grant->election != NULL)
        stile_election_resign(grant->election, NULL);
    if (grant->wait_ms > 0 && status == STILE_HELD)
        status = STILE_TIMEOUT;
    return status;
}
