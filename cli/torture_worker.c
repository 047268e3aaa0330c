/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of `stile torture`: takes locks and updates counters under them, as a program that does
 * not look at its lock between reading and writing. The guard alone protects one of the counters,
 * and nothing the other.
 *
 * What it is about to do is reported before it is done, and what it has learned after that: a
 * worker that is killed in between has not done what it did not report. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "torture.h"

#define UPDATES_MAX   3 /* in one hold */
#define GAP_MS        3 /* between reading and writing, at least */
#define GAP_MORE_MS   5
#define LONG_GAP_MS   60
#define LONG_GAP_EACH 16                /* one in this many gaps is long */
#define PAUSE_MS      50                /* after a failure */
#define SAMPLE_MS     50                /* between two looks at the deadline */
#define STALL_NS      (250 * NS_PER_MS) /* without any time for this process: it was paused */
#define TOLD_MS       5000 /* how long the report of a loss may take after the loss is seen */

struct worker {
    const struct plan *plan;
    const char *url;
    int out, control;
    uint32_t number;
    uint64_t random;
    struct stile_client *client;
    bool ending;       /* the sampler has ended its waits */
    _Atomic bool over; /* the sampler shall end */
    struct stile_lock *locks[NAMES_MAX];
    struct stile_lock *_Atomic lock; /* the present claim's */
    uint32_t name;                   /* the present claim's */
    uint32_t claim;
    _Atomic uint32_t held; /* the claim that is held; 0: none, or it is being given back */
    _Atomic uint32_t told; /* the claim whose loss was reported last */
    uint64_t token, writes;
};

void message_send(int fd, const struct message *message)
{
    while (write(fd, message, sizeof *message) < 0 && errno == EINTR)
        continue;
}

/* True: it is time to end. */
static bool pause_for(const struct worker *worker, int ms)
{
    struct pollfd control = {.fd = worker->control, .events = POLLIN};
    return poll(&control, 1, ms) > 0;
}

static void tell(const struct worker *worker, enum message_kind kind, uint64_t ns,
                 enum stile_status status)
{
    const struct message message = {.kind = kind,
                                    .claim = worker->claim,
                                    .ns = ns,
                                    .name = worker->name,
                                    .status = status,
                                    .token = worker->token};
    message_send(worker->out, &message);
}

/* ---- holding ---- */

static void on_lost(struct stile_lock *lock, void *data)
{
    struct worker *worker = data;
    const struct message message = {
        .kind = MESSAGE_LOST, .claim = worker->held, .ns = poller_now_ns(), .status = STILE_LOST};
    (void)lock;
    if (message.claim == 0)
        return;
    message_send(worker->out, &message);
    worker->told = message.claim;
}

/* The loss is seen: its report comes from another thread, and belongs to this claim. */
static void await_told(const struct worker *worker)
{
    for (int ms = 0; ms < TOLD_MS && worker->told != worker->claim; ms++)
        poll(NULL, 0, 1);
    if (worker->told != worker->claim)
        tell(worker, MESSAGE_UNTOLD, poller_now_ns(), STILE_LOST);
}

/* The deadline counts from before it is asked for: it is never later than the true one. */
static bool tell_deadline(struct worker *worker, enum message_kind kind, uint64_t *ns)
{
    struct stile_lock *lock = worker->locks[worker->name];
    *ns = poller_now_ns();
    int64_t left = stile_lock_remaining_ms(lock);
    struct message message = {.kind = kind,
                              .claim = worker->claim,
                              .ns = *ns,
                              .name = worker->name,
                              .token = worker->token,
                              .deadline_ns = UINT64_MAX,
                              .ttl_ms = left == STILE_NO_DEADLINE ? 0 : stile_lock_ttl_ms(lock)};
    if (left == 0)
        return false;
    if (left != STILE_NO_DEADLINE)
        message.deadline_ns = *ns + (uint64_t)left * NS_PER_MS;
    message_send(worker->out, &message);
    return true;
}

static void sample_deadline(struct worker *worker)
{
    struct message message = {
        .kind = MESSAGE_RENEWED, .claim = worker->held, .ns = poller_now_ns()};
    struct stile_lock *lock = worker->lock;
    int64_t left = message.claim != 0 ? stile_lock_remaining_ms(lock) : 0;
    message.deadline_ns = message.ns + (uint64_t)left * NS_PER_MS;
    if (left != 0 && left != STILE_NO_DEADLINE && message.claim == worker->held)
        message_send(worker->out, &message);
}

/* Ends the wait for a lock when it is time to end. */
static void sample_end(struct worker *worker)
{
    if (worker->ending || !pause_for(worker, 0))
        return;
    worker->ending = true;
    stile_client_interrupt(worker->client);
}

/* Looks at the deadline while the worker may wait for a server, and at the clock: a process that
 * gets no time cannot report a loss in time. */
static void *sample(void *data)
{
    struct worker *worker = data;
    for (uint64_t last = poller_now_ns(), now; !worker->over; last = now) {
        const struct message paused = {.kind = MESSAGE_PAUSED, .ns = last};
        poll(NULL, 0, SAMPLE_MS);
        now = poller_now_ns();
        if (now - last > STALL_NS)
            message_send(worker->out, &paused);
        sample_deadline(worker);
        sample_end(worker);
    }
    return NULL;
}

static void let_go(struct worker *worker)
{
    uint64_t ns;
    if (tell_deadline(worker, MESSAGE_RENEWED, &ns))
        tell(worker, MESSAGE_RELEASED, ns, STILE_OK);
    else
        await_told(worker);
    worker->held = 0;
    enum stile_status status = stile_lock_release(worker->locks[worker->name], NULL);
    tell(worker, MESSAGE_ENDED, poller_now_ns(), status);
}

/* ---- updating ---- */

static enum write_outcome outcome_of(enum stile_status status)
{
    switch (status) {
    case STILE_OK:
        return WRITE_ACCEPTED;
    case STILE_STALE:
    case STILE_FOREIGN:
    case STILE_CONFLICT:
    case STILE_REFUSED:
        return WRITE_REFUSED;
    default:
        return WRITE_UNKNOWN;
    }
}

static enum stile_status write_counter(struct worker *worker, enum counter_kind kind,
                                       const struct counter *seen)
{
    char key[KEY_MAX];
    struct counter next = {seen->count + 1,
                           (uint64_t)(worker->number + 1) << 32 | ++worker->writes};
    struct message message = {.kind = MESSAGE_WRITES,
                              .claim = worker->claim,
                              .ns = poller_now_ns(),
                              .name = worker->name,
                              .counter = kind,
                              .token = worker->token,
                              .seen = seen->value,
                              .value = next.value};
    counter_key(key, worker->plan, kind, worker->name);
    message_send(worker->out, &message);
    enum stile_status status = counter_write(&next, worker->plan, worker->client, key,
                                             kind == GUARDED ? worker->token : 0);
    message.kind = MESSAGE_WROTE;
    message.ns = poller_now_ns();
    message.status = status;
    message.outcome = outcome_of(status);
    message_send(worker->out, &message);
    return status;
}

/* The gap in which a program computes what it will write. */
static void compute(struct worker *worker)
{
    bool is_long = poller_random(&worker->random, LONG_GAP_EACH) == 0;
    uint64_t ns;
    tell(worker, MESSAGE_READ, poller_now_ns(), STILE_OK);
    poll(NULL, 0,
         is_long ? LONG_GAP_MS : GAP_MS + (int)poller_random(&worker->random, GAP_MORE_MS));
    tell_deadline(worker, MESSAGE_RENEWED, &ns);
}

/* False: no more under this claim. A write without an answer may still arrive: only the guard and
 * the next token keep it from undoing a later one. */
static bool update(struct worker *worker)
{
    struct counter seen[COUNTERS];
    char keys[COUNTERS][KEY_MAX];
    const struct plan *plan = worker->plan;
    for (enum counter_kind kind = 0; kind < COUNTERS; kind++)
        counter_key(keys[kind], plan, kind, worker->name);
    if (plan->guarded &&
        counter_raise(plan, worker->client, keys[GUARDED], worker->token) != STILE_OK)
        return false;
    for (enum counter_kind kind = 0; kind < COUNTERS; kind++) {
        if (counter_read(&seen[kind], plan, worker->client, keys[kind], NULL) != STILE_OK)
            return false;
    }
    compute(worker);
    bool refused = plan->guarded && write_counter(worker, GUARDED, &seen[GUARDED]) != STILE_OK;
    return write_counter(worker, PLAIN, &seen[PLAIN]) == STILE_OK && !refused;
}

static void hold(struct worker *worker)
{
    unsigned updates = 1 + (unsigned)poller_random(&worker->random, UPDATES_MAX);
    while (updates-- > 0 && update(worker))
        continue;
    let_go(worker);
}

/* ---- rounds ---- */

/* False: it failed, and the next round waits. */
static bool play_round(struct worker *worker)
{
    uint64_t ns;
    worker->name = (uint32_t)poller_random(&worker->random, worker->plan->n_names);
    worker->claim++;
    worker->token = 0;
    tell(worker, MESSAGE_ASKED, poller_now_ns(), STILE_OK);
    struct stile_lock *lock = worker->locks[worker->name];
    worker->lock = lock;
    enum stile_status status = stile_lock_acquire(lock, WAIT_MS, NULL);
    if (status == STILE_OK)
        stile_lock_token(lock, &worker->token);
    if (status == STILE_OK && tell_deadline(worker, MESSAGE_GRANTED, &ns)) {
        worker->held = worker->claim;
        hold(worker);
        return true;
    }
    /* Granted, and over before the worker could look: it was stopped, and has never acted on it. */
    tell(worker, MESSAGE_ANSWERED, poller_now_ns(), status == STILE_OK ? STILE_LOST : status);
    if (status == STILE_OK)
        stile_lock_release(lock, NULL);
    return status == STILE_TIMEOUT;
}

static enum stile_status make_locks(struct worker *worker, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    for (uint32_t i = 0; i < worker->plan->n_names && status == STILE_OK; i++) {
        char name[KEY_MAX];
        snprintf(name, sizeof name, "%s:lock:%u", worker->plan->prefix, (unsigned)i);
        status = stile_lock_new(
            &worker->locks[i], worker->client, name,
            STILE_LOCK_OPTIONS(.ttl_ms = TTL_MS, .on_lost = on_lost, .data = worker), err);
    }
    return status;
}

static enum stile_status open_client(struct stile_client **client, const char *url,
                                     struct stile_error *err)
{
    return stile_client_open(client, url, STILE_CLIENT_OPTIONS(.label = "stile torture"), err);
}

static void tell_failure(int out, enum message_kind kind, enum stile_status status,
                         const struct stile_error *err)
{
    struct message message = {.kind = kind, .ns = poller_now_ns(), .status = status};
    snprintf(message.text, sizeof message.text, "%s",
             err->message[0] != '\0' ? err->message : stile_status_text(status));
    message_send(out, &message);
}

/* Servers may be broken while it starts. False: it was told to end. */
static bool begin(struct worker *worker)
{
    for (;;) {
        struct stile_error err = {0};
        enum stile_status status = open_client(&worker->client, worker->url, &err);
        if (status == STILE_OK)
            status = make_locks(worker, &err);
        if (status == STILE_OK)
            return true;
        tell_failure(worker->out, MESSAGE_FAILED, status, &err);
        if (worker->client != NULL)
            stile_client_close(worker->client);
        worker->client = NULL;
        if (pause_for(worker, 4 * PAUSE_MS))
            return false;
    }
}

int worker_run(const struct plan *plan, const char *url, uint32_t number, int out, int control)
{
    struct worker worker = {.plan = plan,
                            .url = url,
                            .out = out,
                            .control = control,
                            .number = number,
                            .random = poller_now_ns() ^ (uint64_t)(number + 1) << 48};
    pthread_t sampler;
    if (!begin(&worker))
        return 0;
    if (pthread_create(&sampler, NULL, sample, &worker) != 0)
        return EXIT_ENGINE;
    while (!pause_for(&worker, 0)) {
        if (!play_round(&worker) && pause_for(&worker, PAUSE_MS))
            break;
    }
    worker.over = true;
    pthread_join(sampler, NULL);
    stile_client_close(worker.client);
    return 0;
}

/* ---- errands ---- */

static int finish(struct stile_client *client, int out, enum stile_status status,
                  const struct stile_error *err)
{
    tell_failure(out, MESSAGE_DONE, status, err);
    stile_client_close(client);
    return 0;
}

static int fail(int out, enum stile_status status, const struct stile_error *err)
{
    tell_failure(out, MESSAGE_DONE, status, err);
    return 0;
}

static void tell_caps(int out, const struct stile_caps *caps)
{
    struct message message = {.kind = MESSAGE_OPENED,
                              .lease = caps->lease,
                              .has_cells = caps->cells,
                              .has_tokens = caps->token,
                              .keeps = caps->keeps};
    snprintf(message.text, sizeof message.text, "%s", caps->engine);
    message_send(out, &message);
}

int errand_open(const struct plan *plan, const char *url, int out)
{
    struct stile_client *client;
    struct stile_error err = {0};
    (void)plan;
    enum stile_status status = open_client(&client, url, &err);
    if (status != STILE_OK)
        return fail(out, status, &err);
    tell_caps(out, stile_client_caps(client));
    return finish(client, out, STILE_OK, &err);
}

typedef enum stile_status counter_fn(const struct plan *plan, struct stile_client *client,
                                     const char *key, struct stile_error *err);

static enum stile_status with_each(counter_fn *fn, const struct plan *plan,
                                   struct stile_client *client, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    for (uint32_t i = 0; i < COUNTERS * plan->n_names && status == STILE_OK; i++) {
        char key[KEY_MAX];
        counter_key(key, plan, i % COUNTERS, i / COUNTERS);
        status = fn(plan, client, key, err);
    }
    return status;
}

int errand_begin(const struct plan *plan, const char *url, int out)
{
    struct stile_client *client;
    struct stile_error err = {0};
    enum stile_status status = open_client(&client, url, &err);
    if (status != STILE_OK)
        return fail(out, status, &err);
    return finish(client, out, with_each(counter_begin, plan, client, &err), &err);
}

int errand_break(const struct plan *plan, const char *url, int out, uint32_t name, uint64_t token)
{
    struct stile_client *client;
    struct stile_error err = {0};
    char lock[KEY_MAX];
    enum stile_status status = open_client(&client, url, &err);
    if (status != STILE_OK)
        return fail(out, status, &err);
    snprintf(lock, sizeof lock, "%s:lock:%u", plan->prefix, (unsigned)name);
    return finish(client, out, stile_break(client, lock, token, &err), &err);
}

static enum stile_status tell_counter(const struct plan *plan, struct stile_client *client, int out,
                                      uint32_t i, struct stile_error *err)
{
    char key[KEY_MAX];
    struct counter counter;
    counter_key(key, plan, i % COUNTERS, i / COUNTERS);
    enum stile_status status = counter_read(&counter, plan, client, key, err);
    const struct message message = {.kind = MESSAGE_COUNTER,
                                    .name = i / COUNTERS,
                                    .counter = i % COUNTERS,
                                    .count = counter.count,
                                    .value = counter.value};
    if (status == STILE_OK)
        message_send(out, &message);
    return status;
}

int errand_end(const struct plan *plan, const char *url, int out)
{
    struct stile_client *client;
    struct stile_error err = {0};
    enum stile_status status = open_client(&client, url, &err);
    if (status != STILE_OK)
        return fail(out, status, &err);
    for (uint32_t i = 0; i < COUNTERS * plan->n_names && status == STILE_OK; i++)
        status = tell_counter(plan, client, out, i, &err);
    enum stile_status removed = with_each(counter_end, plan, client, &err);
    return finish(client, out, status != STILE_OK ? status : removed, &err);
}
