/* The first and the last of a lock: its options are checked against what the engine can do, it gets
 * one allocation and a place on its client's list, and loses both. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/name.h"
#include "base/text.h"
#include "core/lock.h"

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

static enum stile_status check_options(const struct stile_lock_options *o,
                                       const struct stile_caps *caps, struct stile_error *err)
{
    if (o->size != sizeof *o)
        return error_set(err, STILE_MISUSE, 0,
                         "lock options have size %zu, this library knows %zu: use STILE_OPTIONS "
                         "and compile against the header you link with",
                         o->size, sizeof *o);
    if (o->hold_at_least_ms && !caps->hold_at_least)
        return has_no(caps, "hold_at_least", err);
    if (o->lock_delay_ms && !caps->lock_delay)
        return has_no(caps, "lock-delay", err);
    if (o->owner && !caps->detached)
        return has_no(caps, "owner values", err);
    if (o->proclaim && !caps->proclaims)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s can't proclaim a value", caps->engine);
    if (o->proclaim && strlen(o->proclaim) > STILE_PROCLAIM_MAX)
        return error_set(err, STILE_MISUSE, 0, "what is proclaimed has more than %d bytes",
                         STILE_PROCLAIM_MAX);
    return check_mode(o, caps, err);
}

/* One allocation: the lock, its claim, the engine's part, the name, the owner and what is told. */
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
    static const struct stile_lock_options defaults = {.size = sizeof defaults};
    if (!lock || !name)
        return error_set(err, STILE_MISUSE, 0, "making a lock: no %s given",
                         lock ? "name" : "place for the lock");
    *lock = NULL;
    enum stile_status status = client_enter_for_locks(client, err);
    if (!status) {
        status = lock_new(lock, client, name, options ? options : &defaults, err);
        client_leave(client);
    }
    return status ? error_wrap(err, status, "making a lock") : STILE_OK;
}

void lock_bury(struct stile_lock *lock)
{
    struct stile_client *client = lock->client;
    if (lock->all_before)
        lock->all_before->all_next = lock->all_next;
    else
        client->locks = lock->all_next;
    if (lock->all_next)
        lock->all_next->all_before = lock->all_before;
    admission_leave(lock);
    loop_disarm(client->loop, &lock->timer);
    loop_unreserve(client->loop, 1);
    client_forget_note(client, &lock->lost_note);
    if (lock->lost_fd >= 0)
        close(lock->lost_fd);
    free(lock->why);
    lock->magic = LOCK_DEAD;
    /* Not freed at once: a second free of the same handle still finds LOCK_DEAD. */
    struct stile_lock **grave = &client->graves[client->next_grave++ % GRAVES];
    free(*grave);
    *grave = lock;
}
