/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "raise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_MS 1000
/* Other writers of a file hold its guard only for moments. */
#define FILE_WAIT_MS 2000

/* Before the wait: a guard that cannot be raised is not worth waiting for. */
static int check_cells(const struct guard_place *place)
{
    if (place->client == NULL || stile_client_caps(place->client)->cells)
        return 0;
    say("run: --guard: %s keeps no guards; name an engine that does, as in --guard URL#%s (stile "
        "caps URL prints it)",
        stile_client_caps(place->client)->engine, place->resource);
    return EXIT_ENGINE;
}

int raise_open(struct raise *raise, const struct options *options, struct stile_client *client)
{
    const char *resource;
    char *url;
    raise->answered = -1;
    if (!(options->given & OPT_GUARD))
        return 0;
    int code = guard_split(&url, &resource, "run", options->guard);
    if (code != 0)
        return code;
    raise->answered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (raise->answered < 0) {
        say("run: --guard: %s", strerror(errno));
        code = EXIT_ENGINE;
    } else if (url[0] != '\0') {
        code = guard_place_open(&raise->place, "run", url, resource);
    } else {
        guard_place_use(&raise->place, client, resource);
    }
    free(url);
    return code != 0 ? code : check_cells(&raise->place);
}

void raise_close(struct raise *raise)
{
    guard_place_close(&raise->place);
    if (raise->answered >= 0)
        close(raise->answered);
    raise->answered = -1;
}

/* On the thread of the guard's client, or on ours. */
static void on_raised(const struct stile_cell *cell, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    struct raise *raise = data;
    (void)cell;
    raise->status = status;
    if (err != NULL)
        raise->err = *err;
    (void)eventfd_write(raise->answered, 1);
}

static bool is_answered(const struct raise *raise)
{
    eventfd_t count;
    return eventfd_read(raise->answered, &count) == 0;
}

static int take_signals(struct inbox *inbox)
{
    struct event event;
    int sig = 0;
    while ((event = inbox_next(inbox)).kind != EVENT_NONE) {
        if (signals_ends_wait(event.sig) && sig == 0)
            sig = event.sig;
    }
    return sig;
}

/* False: a signal, the death of the front or the loss of the lock was first. */
static bool await_answer(struct raise *raise, struct stile_client *client, struct stile_lock *lock,
                         struct inbox *inbox, int *sig)
{
    stile_client_dispatch(client);
    while (!is_answered(raise)) {
        wait_ready_or(client, inbox, now_ms() + LOOK_MS, raise->answered);
        *sig = take_signals(inbox);
        if (*sig != 0 || inbox->orphaned || !stile_lock_held(lock))
            return false;
    }
    return true;
}

/* It blocks: a lock is not renewed meanwhile, so only a part of its lease is spent here. */
static void raise_file(struct raise *raise, struct stile_lock *lock, uint64_t token,
                       const char *issuer)
{
    int64_t part = stile_lock_remaining_ms(lock) / 4;
    int64_t wait = part < 1 ? 1 : part < FILE_WAIT_MS ? part : FILE_WAIT_MS;
    raise->status =
        stile_file_raise(raise->place.path, token,
                         STILE_FILE_OPTIONS(.issuer = issuer, .wait_ms = wait), &raise->err);
}

/* A lock that is lost has left its token behind in the guard: the next holder's is larger. */
int raise_tell_lost(struct stile_lock *lock)
{
    struct stile_error err = {0};
    stile_lock_lost_reason(lock, &err);
    say("%s: the lock is lost%s%s; the command is not started", stile_lock_name(lock),
        err.message[0] != '\0' ? ": " : "", err.message);
    return EXIT_LOST;
}

int raise_guard(struct raise *raise, const struct options *options, struct stile_client *client,
                struct stile_lock *lock, struct inbox *inbox, int *sig)
{
    char issuer[STILE_ISSUER_MAX + 1];
    uint64_t token = 0;
    *sig = 0;
    if (!(options->given & OPT_GUARD))
        return 0;
    stile_lock_token(lock, &token);
    stile_lock_issuer(lock, issuer, sizeof issuer);
    if (raise->place.client == NULL) {
        raise_file(raise, lock, token, issuer);
        stile_client_dispatch(client); /* what has happened meanwhile */
    } else {
        /* Not into raise->status: the answer may be there before the call returns. */
        enum stile_status asked =
            stile_guard_raise_async(raise->place.client, raise->place.resource, token,
                                    STILE_GUARD_OPTIONS(.issuer = issuer), on_raised, raise);
        if (asked != STILE_OK)
            raise->status = asked;
        else if (!await_answer(raise, client, lock, inbox, sig))
            return *sig != 0 || inbox->orphaned ? EXIT_LOST : raise_tell_lost(lock);
    }
    if (raise->status != STILE_OK)
        return say_failure("run: --guard", raise->status, &raise->err);
    return stile_lock_held(lock) ? 0 : raise_tell_lost(lock);
}
