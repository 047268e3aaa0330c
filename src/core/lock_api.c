/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls on a lock: check the handle and the options, feed the state machine of lock.c,
 * wait for its answer. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/container.h"
#include "base/name.h"
#include "base/options.h"
#include "base/text.h"
#include "core/inspect.h"
#include "core/lock_report.h"
#include "core/record.h"

/* ---- making one ---- */

static enum stile_status has_no(const struct stile_caps *caps, const char *what,
                                struct stile_error *err)
{
    return error_set(err, STILE_UNSUPPORTED, 0, "%s has no %s%s%s", caps->engine, what,
                     caps->instead ? ": " : "", caps->instead ? caps->instead : "");
}

static enum stile_status check_mode(const struct stile_lock_options *o,
                                    const struct stile_caps *caps, struct stile_error *err)
{
    if ((unsigned)o->mode > STILE_SLOTS)
        return error_set(err, STILE_MISUSE, 0, "there is no mode %d", (int)o->mode);
    if (o->mode == STILE_SLOTS && (o->slots < 1 || o->slots > UINT16_MAX))
        return error_set(err, STILE_MISUSE, 0, "slots must be between 1 and 65535, not %u",
                         o->slots);
    if (o->mode != STILE_SLOTS && o->slots)
        return error_set(err, STILE_MISUSE, 0, "slots are given, but the mode isn't STILE_SLOTS");
    if (!(caps->modes & 1u << o->mode))
        return has_no(caps, o->mode == STILE_SHARED ? "shared locks" : "slots", err);
    return STILE_OK;
}

static enum stile_status check_proclaim(const char *value, const struct stile_caps *caps,
                                        struct stile_error *err)
{
    if (!caps->proclaims)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s can't proclaim a value", caps->engine);
    if (strlen(value) > STILE_PROCLAIM_MAX)
        return error_set(err, STILE_MISUSE, 0, "the proclaimed value has more than %d bytes",
                         STILE_PROCLAIM_MAX);
    return STILE_OK;
}

static enum stile_status check_options(const struct stile_lock_options *o,
                                       const struct stile_caps *caps, struct stile_error *err)
{
    if (o->hold_at_least_ms && !caps->hold_at_least)
        return has_no(caps, "hold_at_least", err);
    if (o->lock_delay_ms && !caps->lock_delay)
        return has_no(caps, "lock-delay", err);
    if (o->owner && !caps->detached)
        return has_no(caps, "owner values", err);
    enum stile_status status = o->proclaim ? check_proclaim(o->proclaim, caps, err) : STILE_OK;
    return status ? status : check_mode(o, caps, err);
}

/* One allocation: the lock, its claim, the engine's part, the name, the owner and the proclaimed
 * value.
 */
static struct stile_lock *lock_alloc(struct stile_client *client, const char *name,
                                     const struct stile_lock_options *o)
{
    size_t texts = text_size(name) + text_size(o->owner) + text_size(o->proclaim);
    size_t head = sizeof(struct stile_lock);
    size_t claim = sizeof(struct claim) + (client->engine->class->claim_size + 7) / 8 * 8;
    struct stile_lock *lock = calloc(1, head + claim + texts);
    if (!lock)
        return NULL;
    char *text = (char *)lock + head + claim;
    lock->claim = (struct claim *)((char *)lock + head);
    *lock->claim = (struct claim){.engine = client->engine,
                                  .core = lock,
                                  .name = text_pack(&text, name),
                                  .name_len = strlen(name),
                                  .name_hash = name_hash(name, strlen(name)),
                                  .owner = text_pack(&text, o->owner),
                                  .proclaim = text_pack(&text, o->proclaim)};
    return lock;
}

static void lock_fill(struct stile_lock *lock, struct stile_client *client,
                      const struct stile_lock_options *o)
{
    lock->magic = LOCK_MAGIC;
    lock->client = client;
    lock->lost_fd = -1;
    lock->timer.fn = lock_timer;
    lock->on_lost = o->on_lost;
    lock->on_lost_data = o->data;
    lock->claim->mode = o->mode;
    lock->claim->slots = o->slots;
    lock->claim->ttl_ns = lock->policy.ttl_ns;
    lock->claim->ttl_given = o->ttl_ms != 0;
    lock->claim->hold_ns = (uint64_t)o->hold_at_least_ms * NS_PER_MS;
    lock->claim->delay_ns = (uint64_t)o->lock_delay_ms * NS_PER_MS;
    lock->all_next = client->locks;
    if (client->locks)
        client->locks->all_before = lock;
    client->locks = lock;
}

static enum stile_status lock_new(struct stile_lock **out, struct stile_client *client,
                                  const char *name, const struct stile_lock_options *o,
                                  struct stile_error *err)
{
    struct policy policy;
    enum stile_status status = name_check(name, strlen(name), err);
    if (!status)
        status = check_options(o, &client->engine->caps, err);
    if (!status)
        status = policy_from(&policy, o, err);
    if (status)
        return status;
    if (loop_reserve(client->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    struct stile_lock *lock = lock_alloc(client, name, o);
    if (!lock) {
        loop_unreserve(client->loop, 1);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    lock->policy = policy;
    lock_fill(lock, client, o);
    *out = lock;
    return STILE_OK;
}

enum stile_status stile_lock_new(struct stile_lock **lock, struct stile_client *client,
                                 const char *name, const struct stile_lock_options *options,
                                 struct stile_error *err)
{
    static const struct options_kind kind = {
        .name = "lock options",
        .macro = "STILE_LOCK_OPTIONS",
        .size = sizeof(struct stile_lock_options),
        .least = OPTIONS_UP_TO(struct stile_lock_options, data),
    };
    struct stile_lock_options o;
    if (!lock || !name)
        return error_set(err, STILE_MISUSE, 0, "making a lock: no %s given",
                         lock ? "name" : "place for the lock");
    *lock = NULL;
    enum stile_status status = options_read(&o, options, &kind, err);
    if (!status)
        status = client_enter_for_locks(client, err);
    if (!status) {
        status = lock_new(lock, client, name, &o, err);
        client_leave(client);
    }
    return status ? error_wrap(err, status, "making a lock") : STILE_OK;
}

/* ---- entering ---- */

static enum stile_status enter(struct stile_lock *lock, struct stile_error *err)
{
    if (!lock || lock->magic != LOCK_MAGIC)
        return error_set(err, STILE_MISUSE, 0,
                         lock && lock->magic == LOCK_DEAD ? "this lock has been freed already"
                                                          : "not a lock");
    enum stile_status status = client_enter(lock->client, err);
    if (!status && lock->freed) {
        client_leave(lock->client);
        return error_set(err, STILE_MISUSE, 0, "this lock has been freed already");
    }
    return status;
}

/* What keeps a call from starting in the lock's present state, or OK. */
static enum stile_status check_startable(const struct stile_lock *lock, struct stile_error *err)
{
    if (lock->op)
        return error_set(err, STILE_MISUSE, 0, "another call on this lock is under way");
    if (lease_is_valid(lock))
        return error_set(err, STILE_MISUSE, 0, "this handle holds it already");
    if (lock_is_lost(lock) || lock->state == HELD)
        return STILE_OK;
    if (lock->state != IDLE)
        return error_set(err, STILE_UNCERTAIN, 0,
                         "the engine has not answered the last release yet; try again");
    if (lock->renewing)
        return error_set(err, STILE_UNCERTAIN, 0,
                         "the engine has not answered the last renewal yet; try again");
    return STILE_OK;
}

/* What was lost is being cleared away, and cannot be resumed. */
static enum stile_status check_resumable(const struct stile_lock *lock, struct stile_error *err)
{
    enum stile_status status = check_startable(lock, err);
    if (!status && lock->state != IDLE)
        return error_set(err, STILE_MISUSE, 0, "it was lost; release it before resuming it");
    return status;
}

static enum stile_status check_releasable(const struct stile_lock *lock, struct stile_error *err)
{
    if (lock->op)
        return error_set(err, STILE_MISUSE, 0, "another call on this lock is under way");
    if (lock->state != HELD && !lock_is_lost(lock))
        return error_set(err, STILE_MISUSE, 0, "it isn't held");
    return STILE_OK;
}

/* Drives until the operation is answered, and hands its error over. Until then the handle stays,
 * also if another thread frees it. */
static enum stile_status wait_for(struct stile_lock *lock, struct op *op, struct stile_error *err)
{
    lock->uses++;
    drive_until(lock->client, &op->follower);
    lock->uses--;
    if (op->error.status && err)
        *err = op->error;
    return op->error.status;
}

static enum stile_status fail(const struct stile_lock *lock, const char *what,
                              enum stile_status status, struct stile_error *err)
{
    bool named = lock && (lock->magic == LOCK_MAGIC || lock->magic == LOCK_DEAD);
    return error_wrap(err, status, named ? "%s '%s'" : "%s", what, named ? lock->claim->name : "");
}

/* The last use of the handle: it may be gone, and its client as well. */
static enum stile_status leave(struct stile_lock *lock, const char *what, enum stile_status status,
                               struct stile_error *err)
{
    struct stile_client *client = lock->client;
    if (status)
        fail(lock, what, status, err);
    lock_destroy_if_done(lock);
    client_leave(client);
    return status;
}

/* A call of another thread that waits in it ends with CANCELLED. */
void stile_lock_free(struct stile_lock *lock)
{
    if (!lock || enter(lock, NULL))
        return;
    struct stile_client *client = lock->client;
    lock_discard(lock);
    client_leave(client);
}

static void interrupt(struct follower *follower)
{
    lock_cancel(container_of(follower, struct op, follower)->lock);
}

/* ---- blocking ---- */

enum stile_status stile_lock_acquire(struct stile_lock *lock, int64_t wait_ms,
                                     struct stile_error *err)
{
    struct op op = {.lock = lock, .follower.interrupt = interrupt};
    enum stile_status status = enter(lock, err);
    if (status)
        return fail(lock, "acquiring", status, err);
    status = check_startable(lock, err);
    if (!status) {
        lock_start(lock, &op, wait_ms);
        status = wait_for(lock, &op, err);
    }
    return leave(lock, "acquiring", status, err);
}

static enum stile_status give_back(struct stile_lock *lock, bool unused, struct stile_error *err)
{
    struct op op = {.lock = lock};
    enum stile_status status = enter(lock, err);
    if (status)
        return fail(lock, "releasing", status, err);
    status = check_releasable(lock, err);
    if (!status) {
        lock->claim->unused = unused;
        lock_give_back(lock, &op);
        status = wait_for(lock, &op, err);
    }
    return leave(lock, "releasing", status, err);
}

enum stile_status stile_lock_release(struct stile_lock *lock, struct stile_error *err)
{
    return give_back(lock, false, err);
}

enum stile_status stile_lock_abandon(struct stile_lock *lock, struct stile_error *err)
{
    return give_back(lock, true, err);
}

enum stile_status stile_lock_resume(struct stile_lock *lock, struct stile_error *err)
{
    struct op op = {.lock = lock, .follower.interrupt = interrupt};
    enum stile_status status = enter(lock, err);
    if (status)
        return fail(lock, "resuming", status, err);
    status = check_resumable(lock, err);
    if (!status && !lock->client->engine->class->detached)
        status = error_set(err, STILE_UNSUPPORTED, 0,
                           "%s keeps no claim without its process; hold it in one process instead",
                           lock->client->engine->caps.engine);
    if (!status && !lock->claim->owner)
        status = error_set(err, STILE_MISUSE, 0, "no owner value was given with its options");
    if (!status) {
        lock_start_resume(lock, &op);
        status = wait_for(lock, &op, err);
    }
    return leave(lock, "resuming", status, err);
}

enum stile_status stile_lock_detach(struct stile_lock *lock, struct stile_error *err)
{
    enum stile_status status = enter(lock, err);
    if (status)
        return fail(lock, "detaching", status, err);
    status = check_releasable(lock, err);
    if (!status && !lock->client->engine->caps.detached)
        status = error_set(err, STILE_UNSUPPORTED, 0, "%s ends a lock with its process",
                           lock->client->engine->caps.engine);
    if (!status && lock->state == HELD && !lease_is_valid(lock))
        lock_lost_at_deadline(lock);
    if (!status && lock_is_lost(lock))
        status = error_set(err, STILE_LOST, 0, "it is lost");
    if (!status)
        lock_detach(lock);
    return leave(lock, "detaching", status, err);
}

/* ---- its public value ---- */

static const struct inspection_class proclaiming = {.doing = "proclaiming"};

enum stile_status lock_set_proclaim(struct stile_lock *lock, const char *value,
                                    struct stile_error *err)
{
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    free(lock->proclaim);
    lock->proclaim = copy;
    lock->claim->proclaim = copy;
    return STILE_OK;
}

/* Only a holder can: the value of a waiting claim was sent with it. */
static enum stile_status prepare_proclaim(struct stile_lock *lock, const char *value,
                                          struct stile_error *err)
{
    if (!value)
        return error_set(err, STILE_MISUSE, 0, "no value given");
    enum stile_status status = check_proclaim(value, &lock->client->engine->caps, err);
    if (status)
        return status;
    if (lock->state == HELD && !lease_is_valid(lock))
        lock_lost_at_deadline(lock);
    if (lock_is_lost(lock))
        return error_set(err, STILE_LOST, 0, "it is lost");
    if (lock->state != HELD)
        return error_set(err, STILE_MISUSE, 0, "it isn't held");
    return lock_set_proclaim(lock, value, err);
}

/* The engine reads the claim inside the call only: the handle may be freed meanwhile. */
enum stile_status stile_lock_proclaim(struct stile_lock *lock, const char *value,
                                      struct stile_error *err)
{
    char name[STILE_NAME_MAX + 1];
    struct inspection inspection;
    enum stile_status status = enter(lock, err);
    if (status)
        return fail(lock, "proclaiming", status, err);
    status = prepare_proclaim(lock, value, err);
    if (status)
        return leave(lock, "proclaiming", status, err);
    struct stile_client *client = lock->client;
    inspection_init(&inspection, &proclaiming, client, strcpy(name, lock->claim->name));
    inspection.q.query.claim = lock->claim;
    return inspection_run(&inspection, client->engine->class->proclaims->proclaim, NULL, NULL, err);
}

enum stile_status stile_lock_proclaim_async(struct stile_lock *lock, const char *value,
                                            stile_query_done_fn *done, void *data,
                                            struct stile_error *err)
{
    struct inspection *inspection = NULL;
    enum stile_status status = enter(lock, err);
    if (status)
        return fail(lock, "proclaiming", status, err);
    status = done ? prepare_proclaim(lock, value, err)
                  : error_set(err, STILE_MISUSE, 0, "no callback given");
    if (!status && !(inspection = inspection_new(sizeof *inspection, &proclaiming, lock->client,
                                                 lock->claim->name)))
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    if (!status) {
        inspection_defer(inspection, NULL, done, data);
        inspection->q.query.claim = lock->claim;
        question_ask(&inspection->q, lock->client->engine->class->proclaims->proclaim);
    }
    return leave(lock, "proclaiming", status, err);
}

/* ---- its record ---- */

static enum stile_status enter_to_record(struct stile_lock *lock, struct stile_error *err)
{
    enum stile_status status = enter(lock, err);
    if (status)
        return fail(lock, "recording", status, err);
    const struct engine *engine = lock->client->engine;
    if (!engine->caps.history)
        status = error_set(err, STILE_UNSUPPORTED, 0, "%s keeps no record of holders%s",
                           engine->caps.engine,
                           engine->class->history ? " here: run `stile setup URL`" : "");
    else if (lock->state != HELD && !lock_is_lost(lock))
        status = error_set(err, STILE_MISUSE, 0, "it isn't held");
    return status ? leave(lock, "recording", status, err) : STILE_OK;
}

enum stile_status stile_lock_record_start(struct stile_lock *lock, struct stile_error *err)
{
    enum stile_status status = enter_to_record(lock, err);
    return status ? status : leave(lock, "recording", record_start(lock, err), err);
}

enum stile_status stile_lock_record_end(struct stile_lock *lock, int exit_code,
                                        struct stile_error *err)
{
    enum stile_status status = enter_to_record(lock, err);
    return status ? status : leave(lock, "recording", record_end(lock, exit_code, err), err);
}

/* ---- async ---- */

static enum stile_status op_new(struct op **op, struct stile_lock *lock, stile_done_fn *done,
                                void *data)
{
    if (!done)
        return STILE_MISUSE;
    *op = calloc(1, sizeof **op);
    if (!*op)
        return STILE_NOMEM;
    **op = (struct op){.lock = lock, .done = done, .data = data};
    return STILE_OK;
}

enum stile_status stile_lock_acquire_async(struct stile_lock *lock, int64_t wait_ms,
                                           stile_done_fn *done, void *data)
{
    struct op *op;
    enum stile_status status = enter(lock, NULL);
    if (status)
        return status;
    status = check_startable(lock, NULL);
    if (!status)
        status = op_new(&op, lock, done, data);
    if (!status)
        lock_start(lock, op, wait_ms);
    client_leave(lock->client);
    return status;
}

enum stile_status stile_lock_release_async(struct stile_lock *lock, stile_done_fn *done, void *data)
{
    struct op *op;
    enum stile_status status = enter(lock, NULL);
    if (status)
        return status;
    status = check_releasable(lock, NULL);
    if (!status)
        status = op_new(&op, lock, done, data);
    if (!status)
        lock_give_back(lock, op);
    client_leave(lock->client);
    return status;
}

/* ---- reading its state ---- */

enum stile_status stile_lock_cancel(struct stile_lock *lock)
{
    enum stile_status status = enter(lock, NULL);
    if (status)
        return status;
    lock_cancel(lock);
    client_leave(lock->client);
    return STILE_OK;
}

bool stile_lock_held(struct stile_lock *lock)
{
    if (enter(lock, NULL))
        return false;
    bool held = lease_is_valid(lock);
    client_leave(lock->client);
    return held;
}

int64_t stile_lock_remaining_ms(struct stile_lock *lock)
{
    int64_t remaining = 0;
    if (enter(lock, NULL))
        return 0;
    uint64_t now = loop_now(lock->client->loop); /* read once: it changes between two reads */
    if (lock->state == HELD && lock->deadline_ns == NEVER)
        remaining = STILE_NO_DEADLINE;
    else if (lock->state == HELD && now < lock->deadline_ns)
        remaining = (int64_t)((lock->deadline_ns - now) / NS_PER_MS);
    client_leave(lock->client);
    return remaining;
}

int64_t stile_lock_ttl_ms(struct stile_lock *lock)
{
    int64_t ttl = 0;
    if (enter(lock, NULL))
        return 0;
    if (lease_is_valid(lock))
        ttl = lock->lease_ns ? (int64_t)(lock->lease_ns / NS_PER_MS) : STILE_NO_DEADLINE;
    client_leave(lock->client);
    return ttl;
}

/* Also after a loss: a guard refuses a late write by this token. */
enum stile_status stile_lock_token(struct stile_lock *lock, uint64_t *token)
{
    if (!token)
        return STILE_MISUSE;
    *token = 0; /* a caller that ignores the status must not fence with garbage */
    enum stile_status status = enter(lock, NULL);
    if (status)
        return status;
    if (!lock->client->engine->caps.token)
        status = STILE_UNSUPPORTED;
    else if (lock->state != HELD && !lock_is_lost(lock))
        status = STILE_MISUSE;
    else
        *token = lock->token;
    client_leave(lock->client);
    return status;
}

enum stile_status stile_lock_lost_reason(struct stile_lock *lock, struct stile_error *err)
{
    enum stile_status status = enter(lock, err);
    if (status)
        return status;
    if (lock->state == HELD && !lease_is_valid(lock))
        lock_lost_at_deadline(lock);
    if (lock_is_lost(lock)) {
        status = error_set(err, STILE_LOST, 0, "%s", stile_status_text(STILE_LOST));
        if (lock->reason && err) {
            *err = *lock->reason;
            err->status = STILE_LOST;
        }
    }
    client_leave(lock->client);
    return status;
}

const char *stile_lock_name(struct stile_lock *lock)
{
    return lock && lock->magic == LOCK_MAGIC ? lock->claim->name : NULL;
}

const char *stile_lock_owner(struct stile_lock *lock)
{
    const char *owner = NULL;
    if (enter(lock, NULL))
        return NULL;
    const struct engine_detached *detached = lock->client->engine->class->detached;
    if (detached && lock->state == HELD)
        owner = detached->owner(lock->client->engine, lock->claim);
    client_leave(lock->client);
    return owner;
}

int stile_lock_lost_fd(struct stile_lock *lock)
{
    if (enter(lock, NULL))
        return -1;
    if (lock->lost_fd < 0)
        lock->lost_fd = eventfd(lock_is_lost(lock), EFD_CLOEXEC | EFD_NONBLOCK);
    int fd = lock->lost_fd;
    client_leave(lock->client);
    return fd;
}
