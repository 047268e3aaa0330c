/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/operators.h"

#include "sim/net.h"
#include "sim/users.h"

/* ---- breaking ---- */

static void begin_break(unsigned name)
{
    world_trace("%s is broken by an operator", job_names[name]);
    history_add(world_history(),
                &(struct event){.ns = world_now(),
                                .kind = EVENT_BREAKS,
                                .name = history_name(world_history(), job_names[name])});
    for (unsigned i = 0; i < job.workload.n_users; i++) {
        const struct user *user = &job.users[i];
        if (user->state == HOLDING && user->name == name && !process_of(user)->dead)
            user_tell(user, EVENT_BROKEN);
    }
    job.broken_until_ns[name] = UINT64_MAX;
}

static void end_break(unsigned name, enum stile_status status)
{
    world_trace("the break is answered %s", stile_status_name(status));
    job.broken_until_ns[name] = world_now() + 2 * SEC;
    history_add(world_history(),
                &(struct event){.ns = world_now(),
                                .kind = EVENT_BROKE,
                                .name = history_name(world_history(), job_names[name]),
                                .status = status});
}

static void on_broken(struct stile_client *client, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    const unsigned *name = data;
    (void)client, (void)err;
    end_break(*name, status);
}

static void break_by(struct process *process, unsigned name)
{
    static const unsigned numbers[] = {0, 1, 2, 3};
    if (process == NULL || process->dead || process->paused || process->closing || !process->opened)
        return;
    begin_break(name);
    stile_break_async(process->client, job_names[name], 0, on_broken, (void *)&numbers[name], NULL);
    process_touch(process);
}

/* By a client that does not hold it, if there is one. */
void operator_break(unsigned number)
{
    break_by(workload_process(number + 1), number % job.workload.n_names);
}

void operator_break_of(unsigned number)
{
    const struct user *user = &job.users[number % job.workload.n_users];
    break_by(workload_process(number + 1), user->name);
}

/* ---- a process of its own ---- */

/* A break by it. */
struct errand {
    struct process *process;
    unsigned name;
    bool begun, done;
};

struct process *operator_new(void)
{
    struct process *process = world_alloc(sizeof *process);
    process->number = job.next_number++;
    process->name = world_print("op%u", process->number);
    return process;
}

static void leave(void *data)
{
    struct process *process = data;
    if (process->dead)
        return;
    process_kill(process);
    process_cut(process, false);
}

static void on_errand_done(struct stile_client *client, enum stile_status status,
                           const struct stile_error *err, void *data)
{
    struct errand *errand = data;
    (void)client, (void)err;
    errand->done = true;
    end_break(errand->name, status);
    world_at(world_now(), leave, errand->process);
}

static void break_once_opened(struct process *process)
{
    struct errand *errand = process->data;
    if (errand->begun || !process->opened)
        return;
    errand->begun = true;
    begin_break(errand->name);
    stile_break_async(process->client, job_names[errand->name], 0, on_errand_done, errand, NULL);
}

void operator_start_break(struct process *process, unsigned name)
{
    struct errand *errand = world_alloc(sizeof *errand);
    *errand = (struct errand){.process = process, .name = name};
    process->data = errand;
    process->ran = break_once_opened;
    job.processes[job.n_processes++ % PROCESSES_KEPT] = process;
    process_start(process, job.workload.url);
}

void operator_die(struct process *process, unsigned reached)
{
    struct errand *errand = process->data;
    if (process->dead)
        return;
    process_kill(process);
    process->vanished = true;
    for (size_t i = 0; i < net_count(); i++) {
        struct server *server = net_server(i);
        for (struct connection *each = server->connections; each != NULL; each = each->next) {
            if (each->process == process)
                connection_cut(each, reached & 1u << server->number);
        }
    }
    if (errand != NULL && errand->begun && !errand->done)
        end_break(errand->name, STILE_UNCERTAIN);
}

/* ---- groups ---- */

static int trace_finding(const struct stile_finding *finding, void *data)
{
    (void)data;
    world_trace("doctor: %s %s: %s", finding->id, finding->where, finding->what);
    return 0;
}

static void run_adopt(struct stile_client *client)
{
    struct stile_error err;
    if (stile_doctor(client, STILE_ADOPT, trace_finding, NULL, &err))
        world_trace("doctor: %s", err.message);
}

static void run_resize(struct stile_client *client)
{
    struct stile_error err;
    if (stile_doctor(client, STILE_RESIZE, trace_finding, NULL, &err))
        world_trace("doctor: %s", err.message);
}

void operator_adopt(struct process *process, const char *url)
{
    process_operate(process, url != NULL ? url : job.workload.url, run_adopt);
}

void operator_resize(struct process *process, const char *url)
{
    process_operate(process, url, run_resize);
    job.workload.url = url;
}
