/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/users.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "sim/net.h"

#define REFUSED_NS   (2 * SEC) /* a program that is refused does not ask again at once */
#define LATE_ONCE_IN 8         /* of writes */
#define STEP_NS      (100 * MS)

/* A write on its way to the store. */
struct writing {
    struct process *process;
    unsigned name;
    uint64_t token, seen, sent_ns;
};

/* What a user will do, unless it has got on to something else meanwhile. */
struct intent {
    struct user *user;
    uint64_t cycle;
};

struct job job;

const char *const job_names[] = {"x", "y", "z", "w"};
static const char *const resources[] = {"store of x", "store of y", "store of z", "store of w"};

static void rest_for(struct user *user, uint64_t ns);

static void tell_status(const struct user *user, enum event_kind kind, enum stile_status status)
{
    world_trace("%s.%u %s %s", process_of(user)->name, user->number, history_kind_text(kind),
                job_names[user->name]);
    history_add(world_history(), &(struct event){.ns = world_now(),
                                                 .kind = kind,
                                                 .client = process_of(user)->number,
                                                 .claim = user->claim,
                                                 .token = user->token,
                                                 .deadline_ns = user->deadline_ns,
                                                 .status = status});
}

void user_tell(const struct user *user, enum event_kind kind)
{
    tell_status(user, kind, STILE_OK);
}

/* The faults that were waiting for this moment. */
static void reach(struct user *user, enum moment moment)
{
    for (struct awaited **at = &user->awaited; *at != NULL;) {
        struct awaited *awaited = *at;
        if (awaited->moment != moment) {
            at = &awaited->next;
            continue;
        }
        *at = awaited->next;
        world_at(world_now() + awaited->after_ns, awaited->fn, awaited->data);
    }
}

static struct intent *intent_of(struct user *user)
{
    struct intent *intent = world_alloc(sizeof *intent);
    *intent = (struct intent){user, user->cycle};
    return intent;
}

static void intend(struct user *user, uint64_t in_ns, happening_fn *fn)
{
    world_at(world_now() + in_ns, fn, intent_of(user));
}

/* The user whose call is answered; NULL: it has freed the handle meanwhile. */
static struct user *caller(void *data)
{
    const struct intent *intent = data;
    return intent->user->cycle == intent->cycle ? intent->user : NULL;
}

/* The user, if it still is where it was, and can act. A paused one acts when it is resumed. */
static struct user *still(void *data, happening_fn *again)
{
    const struct intent *intent = data;
    struct user *user = intent->user;
    const struct process *process = process_of(user);
    if (user->cycle != intent->cycle || process->dead || process->closing)
        return NULL;
    if (process->paused || !process->opened) {
        world_at(world_now() + 50 * MS, again, data);
        return NULL;
    }
    return user;
}

/* ---- writing ---- */

static void write_arrives(void *data)
{
    const struct writing *writing = data;
    struct store *store = &job.stores[writing->name];
    bool passes = writing->token >= store->highest;
    uint64_t value = store->last_value + 1;
    history_add(world_history(),
                &(struct event){.ns = world_now(),
                                .kind = EVENT_WROTE,
                                .client = writing->process->number,
                                .name = history_name(world_history(), resources[writing->name]),
                                .token = writing->token,
                                .guarded = true,
                                .sent_ns = writing->sent_ns,
                                .seen = writing->seen,
                                .value = value,
                                .outcome = passes ? WRITE_ACCEPTED : WRITE_REFUSED});
    world_trace("store of %s: token %llu is %s", job_names[writing->name],
                (unsigned long long)writing->token, passes ? "accepted" : "refused");
    if (!passes)
        return;
    store->highest = writing->token;
    store->value = store->last_value = value;
}

/* A new holder raises the guard before it reads. */
static void raise_and_read(struct user *user)
{
    struct store *store = &job.stores[user->name];
    if (user->token >= store->highest) {
        store->highest = user->token;
        user->seen = store->value;
    }
}

/* ---- does it hold? ---- */

static bool fd_is_readable(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, 0) == 1;
}

/* ran: the library has had a turn since the user could last look. Before that, only what reads the
 * clock itself can know that the deadline has passed. */
static bool is_held(const struct user *user, bool ran)
{
    struct stile_error err;
    if (user->view == BY_FD && ran && user->lost_fd >= 0)
        return !fd_is_readable(user->lost_fd);
    if (user->view == BY_REASON && ran)
        return stile_lock_lost_reason(user->lock, &err) == STILE_OK;
    if (user->view == BY_REMAINING)
        return stile_lock_remaining_ms(user->lock) > 0;
    return stile_lock_held(user->lock);
}

bool user_act(struct user *user, bool ran)
{
    if (user->state != HOLDING || !is_held(user, ran))
        return false;
    user_tell(user, EVENT_ACTED);
    return true;
}

/* It holds the lock now; the write may arrive much later. */
static void write_once(void *data)
{
    struct user *user = still(data, write_once);
    if (user == NULL || !user_act(user, true))
        return;
    struct writing *writing = world_alloc(sizeof *writing);
    *writing = (struct writing){process_of(user), user->name, user->token, user->seen, world_now()};
    uint64_t in_ns = random_once_in(&user->random, LATE_ONCE_IN)
                         ? random_below(&user->random, 15 * SEC)
                         : random_below(&user->random, MS);
    world_at(world_now() + in_ns, write_arrives, writing);
}

/* ---- the cycle of a user ---- */

/* A handle that is used again offers the next token, and must have forgotten nothing else. */
static void put_away(struct user *user)
{
    if (random_once_in(&user->random, 2))
        return;
    if (!process_of(user)->closing) /* which frees all of them */
        stile_lock_free(user->lock);
    user->lock = NULL;
}

void user_on_released(struct stile_lock *lock, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    struct user *user = caller(data);
    (void)lock, (void)err;
    if (user == NULL)
        return;
    world_trace("%s.%u: its release is answered %s", process_of(user)->name, user->number,
                stile_status_name(status));
    tell_status(user, EVENT_ENDED, status);
    put_away(user);
    user_rest(user);
}

/* Some do not wait for the answer. */
static void drop(struct user *user, enum event_kind kind)
{
    if (kind == EVENT_ANSWERED)
        user_tell(user, EVENT_CANCELLED);
    tell_status(user, kind, STILE_CANCELLED);
    if (kind == EVENT_RELEASED)
        user_tell(user, EVENT_ENDED);
    user->state = RESTING;
    stile_lock_free(user->lock);
    user->lock = NULL;
    process_touch(process_of(user));
    user_rest(user);
}

static void release(void *data)
{
    struct user *user = still(data, release);
    if (user == NULL || user->state != HOLDING)
        return;
    reach(user, WHEN_RELEASED);
    if (random_once_in(&user->random, 12)) {
        drop(user, EVENT_RELEASED);
        return;
    }
    user_tell(user, EVENT_RELEASED);
    user->state = RELEASING;
    stile_lock_release_async(user->lock, user_on_released, intent_of(user));
    process_touch(process_of(user));
}

static void start_asking(struct user *user);

bool user_is_done(const struct user *user)
{
    return user->rounds >= job.workload.rounds[user->number];
}

/* What all views say must agree with the callback. A lost lock may be acquired again at once. */
static void on_lost(struct stile_lock *lock, void *data)
{
    struct user *user = data;
    (void)lock;
    if (user->state != HOLDING)
        return;
    user_tell(user, EVENT_LOST);
    user->told = true;
    if (user_act(user, true) || job.winding_down || user_is_done(user) ||
        !random_once_in(&user->random, 3))
        return;
    user->cycle++;
    start_asking(user);
}

/* To the nanosecond: what is held for another half of a millisecond may still be renewed. */
static uint64_t deadline_of(const struct user *user)
{
    return stile_lock_held(user->lock) ? process_deadline(process_of(user), user->lock)
                                       : world_now();
}

/* A program that stood still may hear at once of a grant and of its loss: that is no late grant. */
static uint64_t first_deadline_of(const struct user *user)
{
    struct stile_error err;
    if (stile_lock_lost_reason(user->lock, &err) != STILE_OK)
        return world_now() + 1;
    return deadline_of(user);
}

static int latest_first(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one < other) - (one > other);
}

/* When too few servers keep what this user holds; UINT64_MAX: they do not show it, or have lost it
 * already, which is no fault of its own. */
static uint64_t end_on_servers(const struct user *user)
{
    uint64_t ends[SERVERS_MAX];
    const char *owner = stile_lock_owner(user->lock);
    unsigned n = 0, votes = job.workload.votes();
    for (size_t i = 0; owner != NULL && i < net_count(); i++) {
        const struct server *server = net_server(i);
        struct stored stored = {.until_ns = UINT64_MAX};
        if (server->class->stored(&stored, server, job_names[user->name]) &&
            strcmp(stored.holder, owner) == 0)
            ends[n++] = stored.until_ns;
    }
    qsort(ends, n, sizeof *ends, latest_first);
    return n < votes ? UINT64_MAX : ends[votes - 1];
}

static void check_deadline(const struct user *user)
{
    if (job.workload.votes == NULL || job.overdue != NULL || user->deadline_ns == UINT64_MAX ||
        world_now() < job.broken_until_ns[user->name])
        return;
    uint64_t end_ns = end_on_servers(user);
    if (user->deadline_ns > end_ns)
        job.overdue =
            world_print("%s counts on %s until %.6f s, and its servers keep it until %.6f s.",
                        process_of(user)->name, job_names[user->name],
                        (double)user->deadline_ns / SEC, (double)end_ns / SEC);
}

/* The next moment at which all of them do something. */
static uint64_t in_step(struct user *user, uint64_t ns)
{
    if (!job.habits.in_step)
        return ns;
    uint64_t late_ns = (world_now() + ns) % STEP_NS;
    return ns + STEP_NS - late_ns + random_below(&user->random, MS);
}

static void hold(struct user *user)
{
    if (stile_lock_token(user->lock, &user->token))
        user->token = 0;
    user->deadline_ns = first_deadline_of(user);
    user->state = HOLDING;
    user->told = false;
    if (user->view == BY_FD)
        user->lost_fd = stile_lock_lost_fd(user->lock);
    user_tell(user, EVENT_GRANTED);
    check_deadline(user);
    reach(user, WHEN_GRANTED);
    if (job.workload.tokens) {
        raise_and_read(user);
        intend(user, random_below(&user->random, 500 * MS), write_once);
    }
    uint64_t for_ns = random_once_in(&user->random, job.habits.long_hold_in)
                          ? random_below(&user->random, 12 * SEC)
                          : random_below(&user->random, 400 * MS);
    intend(user, in_step(user, for_ns), release);
}

/* Its URL may be an old one: an operator starts the program again. */
static void start_again(void *data)
{
    const struct user *user = still(data, start_again);
    if (user != NULL)
        workload_close(user->number);
}

static void be_refused(struct user *user)
{
    rest_for(user, REFUSED_NS);
    if (random_once_in(&user->random, 2))
        intend(user, random_below(&user->random, REFUSED_NS), start_again);
}

void user_on_done(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data)
{
    struct user *user = caller(data);
    (void)lock, (void)err;
    if (user == NULL)
        return;
    if (status == STILE_OK) {
        hold(user);
        return;
    }
    world_trace("%s.%u is answered %s", process_of(user)->name, user->number,
                stile_status_name(status));
    tell_status(user, EVENT_ANSWERED, status);
    put_away(user);
    if (status == STILE_REFUSED)
        be_refused(user);
    else
        user_rest(user);
}

void user_cancel(struct user *user)
{
    user_tell(user, EVENT_CANCELLED);
    stile_lock_cancel(user->lock);
    process_touch(process_of(user));
}

static void give_up(void *data)
{
    struct user *user = still(data, give_up);
    if (user == NULL || user->state != ASKING)
        return;
    if (random_once_in(&user->random, 4))
        drop(user, EVENT_ANSWERED);
    else
        user_cancel(user);
}

static void choose_mode(struct user *user, struct stile_lock_options *options)
{
    unsigned keep_in = job.workload.keepers ? 4 : 12;
    if (!job.workload.exclusive_only && random_once_in(&user->random, 4)) {
        options->mode = random_once_in(&user->random, 2) ? STILE_SHARED : STILE_SLOTS;
        options->slots = options->mode == STILE_SLOTS ? 2 : 0;
    } else if (random_once_in(&user->random, job.habits.keeping ? 3 : keep_in)) {
        options->hold_at_least_ms = (int64_t)random_between(&user->random, 2000, 5000);
    } else if (random_once_in(&user->random, keep_in)) {
        options->lock_delay_ms = (int64_t)random_between(&user->random, 2000, 5000);
    }
}

static struct stile_lock_options choose_options(struct user *user)
{
    static const int64_t ttls_ms[] = {500, 1000, 1000, 2000, 3000, 5000, 10000};
    struct stile_lock_options options = stile_lock_options_init();
    size_t n = sizeof ttls_ms / sizeof *ttls_ms, first = job.habits.long_leases ? n - 2 : 0;
    options.ttl_ms = ttls_ms[random_between(&user->random, first, n - 1)];
    options.on_lost = on_lost;
    options.data = user;
    choose_mode(user, &options);
    return options;
}

/* ---- the queue as the engine shows it ---- */

static int see_queue(const struct stile_info *info, void *data)
{
    (void)data;
    for (size_t i = info->holders; i < info->holders + info->waiters; i++) {
        for (unsigned k = 0; k < job.workload.n_users; k++) {
            struct user *user = &job.users[k];
            const char *owner = user->state == ASKING && user->lock != NULL &&
                                        !process_of(user)->dead && !process_of(user)->stalled
                                    ? process_owner(user->lock)
                                    : NULL;
            if (owner != NULL && *owner && strcmp(owner, info->claims[i].owner) == 0)
                user_tell(user, EVENT_QUEUED);
        }
    }
    return 0;
}

static void seen_queue(struct stile_client *client, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    (void)client, (void)err, (void)data;
    if (status != STILE_OK)
        world_trace("the queue is not shown: %s", stile_status_name(status));
}

static void look_at_queue(void *data)
{
    struct user *user = still(data, look_at_queue);
    if (user == NULL || user->state != ASKING)
        return;
    stile_show_async(process_of(user)->client, job_names[user->name], see_queue, seen_queue, user,
                     NULL);
    process_touch(process_of(user));
}

/* ---- asking ---- */

static uint64_t end_of_wait(int64_t wait_ms)
{
    return wait_ms < 0 ? UINT64_MAX : world_now() + (uint64_t)wait_ms * MS;
}

static void start_asking(struct user *user)
{
    static const int64_t waits_ms[] = {-1, -1, -1, 0, 3000};
    int64_t wait_ms = waits_ms[random_below(&user->random, job.habits.patient ? 1 : 5)];
    if (job.habits.hasty && random_once_in(&user->random, 2))
        wait_ms = 0;
    const struct stile_lock_options *o = &user->options;
    if (stile_lock_acquire_async(user->lock, wait_ms, user_on_done, intent_of(user))) {
        world_trace("%s.%u: its last release has not been answered", process_of(user)->name,
                    user->number);
        stile_lock_free(user->lock);
        user->lock = NULL;
        user_rest(user);
        return;
    }
    user->state = ASKING;
    user->rounds++;
    user->token = 0;
    user->claim = history_ask_more(world_history(),
                                   &(struct event){.ns = world_now(),
                                                   .client = process_of(user)->number,
                                                   .mode = o->mode,
                                                   .slots = o->slots,
                                                   .until_ns = end_of_wait(wait_ms),
                                                   .lease_ns = (uint64_t)o->ttl_ms * MS,
                                                   .hold_ns = (uint64_t)o->hold_at_least_ms * MS,
                                                   .delay_ns = (uint64_t)o->lock_delay_ms * MS},
                                   job_names[user->name]);
    world_trace("%s.%u asks for %s, mode %d, TTL %lld ms, wait %lld ms", process_of(user)->name,
                user->number, job_names[user->name], (int)o->mode, (long long)o->ttl_ms,
                (long long)wait_ms);
    reach(user, WHEN_ASKED);
    if (wait_ms < 0 && random_once_in(&user->random, job.habits.give_up_in))
        intend(user, random_below(&user->random, 4 * SEC), give_up);
    if (random_once_in(&user->random, 4))
        intend(user, random_below(&user->random, 300 * MS), look_at_queue);
    process_touch(process_of(user));
}

static void ask(void *data)
{
    struct user *user = still(data, ask);
    if (user == NULL || job.winding_down || user_is_done(user))
        return;
    if (user->lock == NULL) {
        user->name = (unsigned)random_below(&user->random, job.workload.n_names);
        user->view = (enum view)random_below(&user->random, VIEWS);
        user->options = choose_options(user);
        if (stile_lock_new(&user->lock, process_of(user)->client, job_names[user->name],
                           &user->options, NULL))
            return;
    }
    start_asking(user);
}

static void rest_for(struct user *user, uint64_t ns)
{
    user->cycle++;
    user->state = RESTING;
    intend(user, ns, ask);
}

void user_rest(struct user *user)
{
    uint64_t longest = random_once_in(&user->random, 3) ? 2 * SEC : 50 * MS;
    if (job.habits.busy)
        longest = random_once_in(&user->random, 2) ? MS / 2 : 50 * MS;
    rest_for(user, in_step(user, random_below(&user->random, longest)));
}

static void look_at_deadline(struct user *user)
{
    uint64_t deadline_ns = deadline_of(user);
    if (deadline_ns <= user->deadline_ns + 2 * MS || !stile_lock_held(user->lock))
        return;
    user->deadline_ns = deadline_ns;
    user_tell(user, EVENT_RENEWED);
    check_deadline(user);
}

static bool is_holder_on(const struct user *user, const struct process *process)
{
    return user->host != NULL && process_of(user) == process && user->state == HOLDING;
}

void user_look_at_deadlines(struct process *process)
{
    for (unsigned i = 0; i < job.workload.n_users; i++) {
        if (is_holder_on(&job.users[i], process))
            look_at_deadline(&job.users[i]);
    }
}
