/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/workload.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/net.h"
#include "sim/users.h"

#define RESTART_NS       (500 * MS)
#define OPEN_PATIENCE_NS (10 * SEC)

/* ---- processes ---- */

static struct process *start_process(struct host *host)
{
    struct process *process = world_alloc(sizeof *process);
    struct random random = random_stream(world_seed(), 2000 + job.next_number);
    process->number = job.next_number++;
    process->name = world_print("c%u", process->number);
    process->drift_ppm = (int64_t)random_below(&random, 401) - 200;
    process->data = host;
    process->ran = user_look_at_deadlines;
    job.processes[job.n_processes++ % PROCESSES_KEPT] = process;
    process_start(process, host->url != NULL ? host->url : job.workload.url);
    host->url = NULL;
    return process;
}

static struct host *host_of(unsigned user)
{
    return &job.hosts[user % job.workload.n_users % job.workload.n_hosts];
}

static struct user *next_user_of(const struct host *host, struct user *user)
{
    struct user *end = job.users + job.workload.n_users;
    for (user = user == NULL ? job.users : user + 1; user < end; user++) {
        if (user->host == host)
            return user;
    }
    return NULL;
}

/* A client that cannot be opened, because too few servers answer or its URL is refused, is started
 * again. */
static void check_opened(void *data)
{
    struct host *host = data;
    if (host->process->dead && !host->process->opened && !job.winding_down)
        workload_kill(host->number, false);
}

static void begin_host(void *data)
{
    struct host *host = data;
    host->restarting = false;
    host->process = start_process(host);
    for (struct user *user = NULL; (user = next_user_of(host, user)) != NULL;) {
        user->lock = NULL;
        user_rest(user);
    }
    world_at(world_now() + OPEN_PATIENCE_NS, check_opened, host);
}

unsigned workload_rounds(unsigned user)
{
    return job.users[user].rounds;
}

struct process *workload_process(unsigned user)
{
    return host_of(user)->process;
}

unsigned workload_name(unsigned user)
{
    return job.users[user % job.workload.n_users].name;
}

const char *workload_name_text(unsigned name)
{
    return job_names[name];
}

const char *workload_owner(unsigned number)
{
    const struct user *user = &job.users[number % job.workload.n_users];
    return user->state == HOLDING && !process_of(user)->dead ? stile_lock_owner(user->lock) : NULL;
}

void workload_await(unsigned user, enum moment moment, uint64_t after_ns, happening_fn *fn,
                    void *data)
{
    struct user *awaiting = &job.users[user % job.workload.n_users];
    struct awaited *awaited = world_alloc(sizeof *awaited);
    *awaited = (struct awaited){awaiting->awaited, moment, after_ns, fn, data};
    awaiting->awaited = awaited;
}

static void tell_process(const struct process *process, enum event_kind kind)
{
    history_add(world_history(),
                &(struct event){.ns = world_now(), .kind = kind, .client = process->number});
}

/* Its users continue in another process. */
static void replace(struct host *host, enum event_kind kind)
{
    tell_process(host->process, kind);
    for (struct user *user = NULL; (user = next_user_of(host, user)) != NULL;)
        user->cycle++;
    world_at(world_now() + RESTART_NS, begin_host, host);
}

void workload_kill(unsigned number, bool silently)
{
    struct host *host = host_of(number);
    if (host->process == NULL || host->restarting || host->process->stalled)
        return;
    host->restarting = true;
    process_kill(host->process);
    process_cut(host->process, silently);
    replace(host, EVENT_DIED);
}

/* What was held is free now. */
static void tell_given_back(const struct host *host)
{
    for (struct user *user = NULL; (user = next_user_of(host, user)) != NULL;) {
        if (user->state == CLOSING)
            user_tell(user, EVENT_ENDED);
    }
}

/* Closing gives back what is held, and answers every call that has not been. */
void workload_close(unsigned number)
{
    struct host *host = host_of(number);
    struct process *process = host->process;
    if (process == NULL || host->restarting || !process->opened || process->dead || process->paused)
        return;
    host->restarting = true;
    world_trace("%s is closed", process->name);
    for (struct user *user = NULL; (user = next_user_of(host, user)) != NULL;) {
        if (user->state == ASKING)
            user_tell(user, EVENT_CANCELLED);
        if (user->state == HOLDING) {
            user_tell(user, EVENT_RELEASED);
            user->state = CLOSING;
        }
    }
    process_close(process);
    tell_given_back(host);
    replace(host, EVENT_CLOSED);
}

/* In the child: nothing that its parent holds is held here, and nothing can be asked for. */
static bool is_refused(const struct user *user)
{
    struct stile_error err;
    return !stile_lock_held(user->lock) && stile_lock_remaining_ms(user->lock) == 0 &&
           stile_lock_acquire_async(user->lock, 0, user_on_done, NULL) == STILE_MISUSE &&
           stile_lock_release_async(user->lock, user_on_released, NULL) == STILE_MISUSE &&
           stile_lock_lost_reason(user->lock, &err) != STILE_OK;
}

static int look_as_child(const struct host *host)
{
    for (struct user *user = NULL; (user = next_user_of(host, user)) != NULL;) {
        if (user->lock != NULL && !is_refused(user))
            return 1;
    }
    return 0;
}

/* A real fork, since the simulator has one thread. It would wait for a client that is just being
 * closed, and forever: that is the same thread. */
void workload_fork(unsigned number)
{
    const struct host *host = host_of(number);
    int status = 1;
    if (process_is_blocking() || host->process->dead || host->process->closing)
        return;
    pid_t pid = fork();
    if (pid == 0)
        _exit(look_as_child(host));
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        job.forked = world_print("A child of %s could still use its parent's locks, or died.",
                                 host->process->name);
}

const char *workload_overdue(void)
{
    return job.overdue;
}

const char *workload_forked(void)
{
    return job.forked;
}

void workload_pause(unsigned number)
{
    struct process *process = workload_process(number);
    if (process->dead || process->paused)
        return;
    tell_process(process, EVENT_EXCUSED);
    process_pause(process);
}

void workload_stall(unsigned number, uint64_t ns)
{
    struct process *process = workload_process(number);
    if (process->dead || process->paused || process->closing)
        return;
    process->stall_until_ns = world_now() + ns;
}

/* The program may look at its lock before the library has had a turn. */
void workload_resume(unsigned number)
{
    struct host *host = host_of(number);
    if (host->process->dead || !host->process->paused || host->process->stalled)
        return;
    for (struct user *user = NULL; (user = next_user_of(host, user)) != NULL;)
        user_act(user, false);
    process_resume(host->process);
}

bool workload_give_up(unsigned number)
{
    struct user *user = &job.users[number % job.workload.n_users];
    const struct process *process = process_of(user);
    if (user->state != ASKING || process->dead || process->closing || process->paused)
        return false;
    user_cancel(user);
    return true;
}

void workload_restart(unsigned number, const char *url)
{
    host_of(number)->url = url;
    workload_kill(number, false);
}

static bool has_work(const struct host *host)
{
    for (struct user *user = NULL; (user = next_user_of(host, user)) != NULL;) {
        if (!user_is_done(user))
            return true;
    }
    return false;
}

static struct habits choose_habits(void)
{
    struct random random = random_stream(world_seed(), 7);
    return (struct habits){.busy = random_once_in(&random, 4),
                           .long_leases = random_once_in(&random, 4),
                           .patient = random_once_in(&random, 4),
                           .long_hold_in = random_once_in(&random, 4) ? 2 : 6,
                           .give_up_in = random_once_in(&random, 4) ? 2 : 8};
}

/* Of the runs with more: crowds, and holders that notice late if they were never told. */
static void choose_more_habits(struct habits *habits)
{
    struct random random = random_stream(world_seed(), 11);
    habits->in_step = random_once_in(&random, 2);
    if (random_once_in(&random, 2)) {
        habits->long_leases = true;
        habits->long_hold_in = 2;
    }
}

static void choose_race_habits(struct habits *habits)
{
    struct random random = random_stream(world_seed(), 15);
    habits->in_step |= random_once_in(&random, 2);
    habits->hasty = random_once_in(&random, 4);
    habits->keeping = random_once_in(&random, 4);
    if (random_once_in(&random, 2)) {
        habits->long_leases = true;
        habits->long_hold_in = 2;
    }
}

void workload_begin(const struct workload *workload)
{
    memset(&job, 0, sizeof job);
    job.workload = *workload;
    job.habits = choose_habits();
    if (workload->more)
        choose_more_habits(&job.habits);
    if (workload->races)
        choose_race_habits(&job.habits);
    for (unsigned i = 0; i < workload->n_users; i++) {
        struct user *user = &job.users[i];
        user->number = i;
        user->random = random_stream(world_seed(), 3000 + i);
        user->host = host_of(i);
    }
    for (unsigned i = 0; i < workload->n_hosts; i++) {
        uint64_t at_ns = random_below(&job.users[i].random, 200 * MS);
        job.hosts[i].number = i;
        if (has_work(&job.hosts[i]))
            world_at(at_ns, begin_host, &job.hosts[i]);
    }
}

void workload_wind_down(void)
{
    job.winding_down = true;
}

void workload_dispose(void)
{
    for (unsigned i = 0; i < job.n_processes && i < PROCESSES_KEPT; i++)
        process_dispose(job.processes[i]);
}
