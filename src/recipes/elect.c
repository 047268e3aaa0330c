/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Elections: candidates queue for a lock, and its holder leads. README.md has the states.
 *
 * Every call is a chain of asynchronous calls on the lock and the cell; one that blocks drives the
 * client until its chain has ended. The client's mutex protects all fields, and is not held while
 * a call is made. */
#include "recipes/elect_value.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/options.h"
#include "core/lock.h"

#define ELECTION_MAGIC UINT64_C(0x7374696c65656c65)

/* One call of the user that is not answered: on a blocking caller's stack, or allocated. */
struct call {
    struct stile_election *election;
    struct follower follower;
    enum stile_status status;
    struct stile_error error;
    stile_election_done_fn *done; /* NULL: it blocks */
    void *data;
};

struct stile_election {
    uint64_t magic;
    struct stile_client *client;
    struct stile_lock *lock;
    enum stile_election_state state;
    unsigned uses;          /* calls that are not answered, and callbacks of the user */
    bool freed;             /* by its user */
    bool lock_gone;         /* and with it every callback of the lock */
    bool cancelled;         /* the campaign, perhaps too late for the lock to notice */
    struct call *call;      /* campaign or resign */
    struct call *proclaim;  /* proclaim */
    uint64_t until_ns;      /* of the campaign; NEVER: it has no end */
    char *value;            /* of the campaign; NULL: none */
    struct stile_error why; /* a campaign fails for this when its lock is released */
    stile_election_fn *on_change;
    void *data;
};

static void campaign_on(struct stile_election *election);

/* ---- the states ---- */

#define TO(state) (1u << STILE_ELECTION_##state)

/* Where each state may lead. Only LEADING leads to LOST: a candidate has nothing to lose. */
static const unsigned transitions[] = {
    [STILE_ELECTION_IDLE] = TO(CAMPAIGNING),
    [STILE_ELECTION_CAMPAIGNING] =
        TO(CAMPAIGNING) | TO(PROCLAIMING) | TO(LEADING) | TO(RESIGNING) | TO(IDLE),
    [STILE_ELECTION_PROCLAIMING] = TO(CAMPAIGNING) | TO(LEADING) | TO(RESIGNING) | TO(IDLE),
    [STILE_ELECTION_LEADING] = TO(LOST) | TO(RESIGNING),
    [STILE_ELECTION_RESIGNING] = TO(IDLE),
    [STILE_ELECTION_LOST] = TO(CAMPAIGNING) | TO(RESIGNING),
};

static void move_to(struct stile_election *election, enum stile_election_state state)
{
    assert(transitions[election->state] & 1u << state);
    election->state = state;
}

/* ---- beginning and end ---- */

static const struct options_kind kind = {
    .name = "election options",
    .macro = "STILE_ELECTION_OPTIONS",
    .size = sizeof(struct stile_election_options),
    .least = OPTIONS_UP_TO(struct stile_election_options, data),
};

static stile_lost_fn on_lock_lost;
static void on_lock_gone(void *data);

enum stile_status stile_election_new(struct stile_election **out, struct stile_client *client,
                                     const char *name, const struct stile_election_options *options,
                                     struct stile_error *err)
{
    struct stile_election_options o;
    if (!out)
        return error_set(err, STILE_MISUSE, 0, "making an election: no place for it");
    *out = NULL;
    enum stile_status status = options_read(&o, options, &kind, err);
    if (status)
        return error_wrap(err, status, "making an election");
    struct stile_election *election = calloc(1, sizeof *election);
    if (!election)
        return error_set(err, STILE_NOMEM, 0, "making an election: out of memory");
    *election = (struct stile_election){
        .magic = ELECTION_MAGIC, .client = client, .on_change = o.on_change, .data = o.data};
    status = stile_lock_new(&election->lock, client, name,
                            STILE_LOCK_OPTIONS(.profile = o.profile, .ttl_ms = o.ttl_ms,
                                               .renew_ms = o.renew_ms, .on_lost = on_lock_lost,
                                               .data = election),
                            err);
    if (status) {
        free(election);
        return error_wrap(err, status, "making an election");
    }
    election->lock->gone = on_lock_gone;
    election->lock->gone_data = election;
    *out = election;
    return STILE_OK;
}

static enum stile_status enter(struct stile_election *election, struct stile_error *err)
{
    if (!election || election->magic != ELECTION_MAGIC)
        return error_set(err, STILE_MISUSE, 0, "not an election");
    return client_enter(election->client, err);
}

/* With the mutex. It goes when nothing uses it any longer: its memory must outlive the callbacks of
 * its lock. */
static void destroy_if_done(struct stile_election *election)
{
    if (!election->freed || !election->lock_gone || election->uses > 0)
        return;
    election->magic = 0;
    free(election->value);
    free(election);
}

/* Freed by its user, or together with its client. */
static void on_lock_gone(void *data)
{
    struct stile_election *election = data;
    election->freed = election->lock_gone = election->cancelled = true;
    election->lock = NULL;
    destroy_if_done(election);
}

static void lock_client(struct stile_election *election)
{
    pthread_mutex_lock(&election->client->mutex);
}

static void unlock_client(struct stile_election *election)
{
    pthread_mutex_unlock(&election->client->mutex);
}

static void end_use(struct stile_election *election)
{
    struct stile_client *client = election->client;
    pthread_mutex_lock(&client->mutex);
    election->uses--;
    destroy_if_done(election);
    pthread_mutex_unlock(&client->mutex);
}

void stile_election_free(struct stile_election *election)
{
    if (!election || enter(election, NULL))
        return;
    struct stile_client *client = election->client;
    struct stile_lock *lock = election->lock;
    election->freed = election->cancelled = true;
    client_leave(client);
    stile_lock_free(lock); /* a campaign that waits is answered, and then the lock goes */
}

/* ---- answering a call ---- */

/* Without the mutex; *at is where the election keeps the call. */
static void answer(struct stile_election *election, struct call **at, enum stile_status status,
                   const struct stile_error *err)
{
    lock_client(election);
    struct call *call = *at;
    *at = NULL;
    call->status = status;
    error_copy(&call->error, err);
    call->error.status = status;
    bool blocks = !call->done;
    if (blocks)
        drive_done(&call->follower); /* its caller's stack, which may be gone from now on */
    unlock_client(election);
    if (!blocks) {
        call->done(election, status, status ? &call->error : NULL, call->data);
        free(call);
    }
    end_use(election);
}

/* Without the mutex. */
static void report(struct stile_election *election, enum stile_election_state state, bool wanted)
{
    if (wanted && election->on_change)
        election->on_change(election, state, election->data);
}

static bool is_cancelled(struct stile_election *election)
{
    lock_client(election);
    bool cancelled = election->cancelled;
    unlock_client(election);
    return cancelled;
}

/* ---- losing ---- */

static void on_lock_lost(struct stile_lock *lock, void *data)
{
    struct stile_election *election = data;
    (void)lock;
    lock_client(election);
    bool led = election->state == STILE_ELECTION_LEADING && !election->freed;
    if (led)
        move_to(election, STILE_ELECTION_LOST);
    election->uses += led;
    unlock_client(election);
    if (!led)
        return; /* a campaign finds out by itself, and continues */
    report(election, STILE_ELECTION_LOST, true);
    end_use(election);
}

/* ---- campaigning ---- */

static void campaign_over(struct stile_election *election, enum stile_status status,
                          const struct stile_error *err)
{
    lock_client(election);
    move_to(election, STILE_ELECTION_IDLE);
    unlock_client(election);
    answer(election, &election->call, status, err);
}

static void on_withdrawn(struct stile_lock *lock, enum stile_status status,
                         const struct stile_error *err, void *data)
{
    struct stile_election *election = data;
    (void)lock, (void)status, (void)err;
    struct stile_error why = election->why;
    campaign_over(election, why.status, &why);
}

/* It was elected, and cannot lead. */
static void withdraw(struct stile_election *election, enum stile_status status,
                     const struct stile_error *err)
{
    error_copy(&election->why, err);
    if (!err)
        error_set(&election->why, status, 0, "%s", stile_status_text(status));
    lock_client(election);
    move_to(election, STILE_ELECTION_RESIGNING);
    unlock_client(election);
    status = stile_lock_release_async(election->lock, on_withdrawn, election);
    if (status)
        on_withdrawn(election->lock, status, NULL, election);
}

/* The lock may have been lost since it was granted: then nothing was led, and nothing is reported.
 */
static void lead(struct stile_election *election)
{
    if (!stile_lock_held(election->lock)) {
        campaign_on(election);
        return;
    }
    lock_client(election);
    bool wanted = !election->freed;
    move_to(election, STILE_ELECTION_LEADING);
    unlock_client(election);
    report(election, STILE_ELECTION_LEADING, wanted);
    answer(election, &election->call, STILE_OK, NULL);
}

static void on_value_stored(const struct stile_cell *cell, enum stile_status status,
                            const struct stile_error *err, void *data)
{
    struct stile_election *election = data;
    (void)cell;
    if (is_cancelled(election))
        withdraw(election, STILE_CANCELLED, NULL);
    else if (status && stile_lock_held(election->lock))
        withdraw(election, status, err);
    else
        lead(election);
}

/* The guard of the cell refuses it if a later leader has proclaimed. */
static enum stile_status store_value(struct stile_election *election, const char *value,
                                     stile_cell_done_fn *done)
{
    char key[STILE_NAME_MAX + 1], text[VALUE_TEXT_MAX + 1], issuer[STILE_ISSUER_MAX + 1];
    uint64_t token;
    enum stile_status status = stile_lock_token(election->lock, &token);
    if (!status)
        status = stile_lock_issuer(election->lock, issuer, sizeof issuer);
    if (status)
        return status;
    elect_value_key(key, stile_lock_name(election->lock));
    size_t size = elect_value_write(text, token, value);
    return stile_cell_put_async(election->client, key, text, size,
                                STILE_CELL_OPTIONS(.token = token, .issuer = issuer), done,
                                election);
}

static void store_then_lead(struct stile_election *election)
{
    lock_client(election);
    move_to(election, STILE_ELECTION_PROCLAIMING);
    unlock_client(election);
    enum stile_status status = store_value(election, election->value, on_value_stored);
    if (status)
        on_value_stored(NULL, status, NULL, election);
}

static bool value_is_in_cell(const struct stile_election *election)
{
    return elect_value_place(election->client, election->lock->claim->name) == VALUE_IN_CELL;
}

static void on_acquired(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct stile_election *election = data;
    (void)lock;
    if (status)
        campaign_over(election, status, err);
    else if (is_cancelled(election))
        withdraw(election, STILE_CANCELLED, NULL);
    else if (election->value && value_is_in_cell(election))
        store_then_lead(election);
    else
        lead(election);
}

static int64_t left_ms(struct stile_election *election)
{
    uint64_t now = loop_now(election->client->loop);
    if (election->until_ns == NEVER)
        return -1;
    return election->until_ns > now ? (int64_t)((election->until_ns - now) / NS_PER_MS) : 0;
}

static enum stile_status acquire(struct stile_election *election, int64_t wait_ms)
{
    return stile_lock_acquire_async(election->lock, wait_ms, on_acquired, election);
}

/* Elected, and lost before it led: the lock is acquired anew. */
static void campaign_on(struct stile_election *election)
{
    lock_client(election);
    int64_t wait_ms = left_ms(election);
    move_to(election, STILE_ELECTION_CAMPAIGNING);
    unlock_client(election);
    enum stile_status status = acquire(election, wait_ms);
    if (status)
        campaign_over(election, status, NULL);
}

static enum stile_status check_campaign(const struct stile_election *election, const char *value,
                                        struct stile_error *err)
{
    if (election->freed || election->call)
        return error_set(err, STILE_MISUSE, 0, "another call on this election is under way");
    if (election->state == STILE_ELECTION_LEADING)
        return error_set(err, STILE_MISUSE, 0, "it leads already");
    return elect_value_check(election->client, election->lock->claim->name, value, err);
}

static enum stile_status keep_value(struct stile_election *election, const char *value,
                                    struct stile_error *err)
{
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    free(election->value);
    election->value = copy;
    return election->client->engine->caps.proclaims ? lock_set_proclaim(election->lock, value, err)
                                                    : STILE_OK;
}

/* ---- calls ---- */

/* Takes the call into *at; with the mutex. */
static void begin(struct stile_election *election, struct call **at, struct call *call)
{
    *at = call;
    call->election = election;
    election->uses++;
}

/* The chain could not be started: the caller learns it from the call itself. */
static enum stile_status begin_failed(struct stile_election *election, struct call **at,
                                      enum stile_status status, struct stile_error *err)
{
    lock_client(election);
    if (at == &election->call)
        move_to(election, STILE_ELECTION_IDLE);
    *at = NULL;
    unlock_client(election);
    end_use(election);
    return error_set(err, status, 0, "%s", stile_status_text(status));
}

static enum stile_status start_campaign(struct stile_election *election, const char *value,
                                        int64_t wait_ms, struct call *call, struct stile_error *err)
{
    enum stile_status status = enter(election, err);
    if (status)
        return status;
    status = check_campaign(election, value, err);
    if (!status)
        status = keep_value(election, value, err);
    if (!status) {
        election->until_ns = wait_ms < 0 ? NEVER : client_after_ms(election->client, wait_ms);
        election->cancelled = false;
        move_to(election, STILE_ELECTION_CAMPAIGNING);
        begin(election, &election->call, call);
    }
    client_leave(election->client);
    if (!status && (status = acquire(election, wait_ms)))
        return begin_failed(election, &election->call, status, err);
    return status;
}

static void on_resigned(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct stile_election *election = data;
    (void)lock;
    campaign_over(election, status, err);
}

static enum stile_status check_resign(const struct stile_election *election,
                                      struct stile_error *err)
{
    if (election->freed || election->call)
        return error_set(err, STILE_MISUSE, 0, "another call on this election is under way");
    if (election->state != STILE_ELECTION_LEADING && election->state != STILE_ELECTION_LOST)
        return error_set(err, STILE_MISUSE, 0, "it does not lead");
    return STILE_OK;
}

static enum stile_status start_resign(struct stile_election *election, struct call *call,
                                      struct stile_error *err)
{
    enum stile_status status = enter(election, err);
    if (status)
        return status;
    status = check_resign(election, err);
    if (!status) {
        move_to(election, STILE_ELECTION_RESIGNING);
        begin(election, &election->call, call);
    }
    client_leave(election->client);
    if (!status && (status = stile_lock_release_async(election->lock, on_resigned, election)))
        return begin_failed(election, &election->call, status, err);
    return status;
}

/* ---- proclaiming again ---- */

static void on_value_changed(const struct stile_cell *cell, enum stile_status status,
                             const struct stile_error *err, void *data)
{
    struct stile_election *election = data;
    (void)cell;
    answer(election, &election->proclaim, status, err);
}

static void on_proclaimed(struct stile_client *client, enum stile_status status,
                          const struct stile_error *err, void *data)
{
    struct stile_election *election = data;
    (void)client;
    answer(election, &election->proclaim, status, err);
}

static enum stile_status check_proclaim(struct stile_election *election, const char *value,
                                        struct stile_error *err)
{
    if (!value)
        return error_set(err, STILE_MISUSE, 0, "no value given");
    if (election->freed || election->proclaim)
        return error_set(err, STILE_MISUSE, 0, "the last value is not stored yet");
    if (election->state == STILE_ELECTION_LOST ||
        (election->state == STILE_ELECTION_LEADING && !lease_is_valid(election->lock)))
        return error_set(err, STILE_LOST, 0, "it leads no longer");
    if (election->state != STILE_ELECTION_LEADING)
        return error_set(err, STILE_MISUSE, 0, "it does not lead");
    return elect_value_check(election->client, election->lock->claim->name, value, err);
}

static enum stile_status start_proclaim(struct stile_election *election, const char *value,
                                        struct call *call, struct stile_error *err)
{
    enum stile_status status = enter(election, err);
    if (status)
        return status;
    status = check_proclaim(election, value, err);
    if (!status)
        begin(election, &election->proclaim, call);
    client_leave(election->client);
    if (status)
        return status;
    status = value_is_in_cell(election)
                 ? store_value(election, value, on_value_changed)
                 : stile_lock_proclaim_async(election->lock, value, on_proclaimed, election, NULL);
    return status ? begin_failed(election, &election->proclaim, status, err) : STILE_OK;
}

/* ---- blocking calls ---- */

static void cancel(struct stile_election *election)
{
    if (election->state == STILE_ELECTION_CAMPAIGNING)
        lock_cancel(election->lock);
    election->cancelled = election->state == STILE_ELECTION_CAMPAIGNING ||
                          election->state == STILE_ELECTION_PROCLAIMING;
}

static void interrupt(struct follower *follower)
{
    cancel(container_of(follower, struct call, follower)->election);
}

/* Holds the client and the election until the call has ended. */
static enum stile_status begin_blocking(struct stile_election *election, const char *what,
                                        struct outside *outside, struct stile_error *err)
{
    enum stile_status status = enter(election, err);
    if (status)
        return error_wrap(err, status, "%s", what);
    election->uses++;
    client_step_out(election->client, outside);
    return STILE_OK;
}

/* A client that is being closed interrupts the calls that wait; this one may not wait yet. */
static void await(struct stile_client *client, struct call *call)
{
    if (client->magic != CLIENT_MAGIC && call->follower.interrupt && !call->follower.done)
        interrupt(&call->follower);
    drive_until(client, &call->follower);
}

static enum stile_status end_blocking(struct stile_election *election, const char *what,
                                      struct outside *outside, struct call *call,
                                      enum stile_status status, struct stile_error *err)
{
    struct stile_client *client = election->client;
    client_step_in(client, outside);
    if (!status) {
        await(client, call);
        status = call->status;
        if (status && err)
            *err = call->error;
    }
    if (status)
        error_wrap(err, status, "%s '%s'", what, election->lock ? election->lock->claim->name : "");
    election->uses--;
    destroy_if_done(election);
    client_leave(client);
    return status;
}

enum stile_status stile_election_campaign(struct stile_election *election, const char *value,
                                          int64_t wait_ms, struct stile_error *err)
{
    static const char what[] = "campaigning for";
    struct call call = {.follower.interrupt = interrupt};
    struct outside outside;
    enum stile_status status = begin_blocking(election, what, &outside, err);
    if (status)
        return status;
    status = start_campaign(election, value, wait_ms, &call, err);
    return end_blocking(election, what, &outside, &call, status, err);
}

enum stile_status stile_election_proclaim(struct stile_election *election, const char *value,
                                          struct stile_error *err)
{
    static const char what[] = "proclaiming for";
    struct call call = {0};
    struct outside outside;
    enum stile_status status = begin_blocking(election, what, &outside, err);
    if (status)
        return status;
    status = start_proclaim(election, value, &call, err);
    return end_blocking(election, what, &outside, &call, status, err);
}

enum stile_status stile_election_resign(struct stile_election *election, struct stile_error *err)
{
    static const char what[] = "resigning from";
    struct call call = {0};
    struct outside outside;
    enum stile_status status = begin_blocking(election, what, &outside, err);
    if (status)
        return status;
    status = start_resign(election, &call, err);
    return end_blocking(election, what, &outside, &call, status, err);
}

/* ---- async calls ---- */

static struct call *call_new(stile_election_done_fn *done, void *data)
{
    struct call *call = calloc(1, sizeof *call);
    if (call)
        *call = (struct call){.done = done, .data = data};
    return call;
}

/* Frees a call that was not started. */
static enum stile_status started(struct call *call, enum stile_status status)
{
    if (status)
        free(call);
    return status;
}

enum stile_status stile_election_campaign_async(struct stile_election *election, const char *value,
                                                int64_t wait_ms, stile_election_done_fn *done,
                                                void *data)
{
    struct call *call = done ? call_new(done, data) : NULL;
    if (!call)
        return done ? STILE_NOMEM : STILE_MISUSE;
    return started(call, start_campaign(election, value, wait_ms, call, NULL));
}

enum stile_status stile_election_proclaim_async(struct stile_election *election, const char *value,
                                                stile_election_done_fn *done, void *data)
{
    struct call *call = done ? call_new(done, data) : NULL;
    if (!call)
        return done ? STILE_NOMEM : STILE_MISUSE;
    return started(call, start_proclaim(election, value, call, NULL));
}

enum stile_status stile_election_resign_async(struct stile_election *election,
                                              stile_election_done_fn *done, void *data)
{
    struct call *call = done ? call_new(done, data) : NULL;
    if (!call)
        return done ? STILE_NOMEM : STILE_MISUSE;
    return started(call, start_resign(election, call, NULL));
}

enum stile_status stile_election_cancel(struct stile_election *election)
{
    enum stile_status status = enter(election, NULL);
    if (status)
        return status;
    cancel(election);
    client_leave(election->client);
    return STILE_OK;
}

/* ---- its state ---- */

/* A lease that is over counts at once, before its loss is reported. */
enum stile_election_state stile_election_state(struct stile_election *election, uint64_t *token)
{
    if (token)
        *token = 0;
    if (enter(election, NULL))
        return STILE_ELECTION_IDLE;
    enum stile_election_state state = election->state;
    if (state == STILE_ELECTION_LEADING && !lease_is_valid(election->lock))
        state = STILE_ELECTION_LOST;
    if (token && (state == STILE_ELECTION_LEADING || state == STILE_ELECTION_LOST))
        *token = election->lock->token;
    client_leave(election->client);
    return state;
}

int stile_election_lost_fd(struct stile_election *election)
{
    struct stile_lock *lock = stile_election_lock(election);
    return lock ? stile_lock_lost_fd(lock) : -1;
}

struct stile_lock *stile_election_lock(struct stile_election *election)
{
    return election && election->magic == ELECTION_MAGIC ? election->lock : NULL;
}
