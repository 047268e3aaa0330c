/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/faults.h"

#include "sim/operators.h"
#include "sim/workload.h"

/* ---- clients ---- */

static void pause_client(struct fault *fault)
{
    workload_pause(fault->user);
}

static void resume_client(struct fault *fault)
{
    workload_resume(fault->user);
}

static void kill_client(struct fault *fault)
{
    workload_kill(fault->user, false);
}

static void power_off_client(struct fault *fault)
{
    workload_kill(fault->user, true);
}

static void close_client(struct fault *fault)
{
    workload_close(fault->user);
}

/* ---- the network ---- */

static void cut_some(const struct fault *fault, bool after)
{
    const struct process *process = workload_process(fault->user);
    for (struct connection *each = fault->server->connections; each != NULL; each = each->next) {
        if (each->process == process)
            connection_cut(each, after);
    }
}

static void cut_before(struct fault *fault)
{
    cut_some(fault, false);
}

static void cut_after(struct fault *fault)
{
    cut_some(fault, true);
}

/* The other end is a process that may be replaced meanwhile; the path is that of the first. */
static void block(struct fault *fault, bool to_server, bool to_client)
{
    fault->path = net_path(workload_process(fault->user), fault->server);
    fault->path->blocked[TO_SERVER] |= to_server;
    fault->path->blocked[TO_CLIENT] |= to_client;
}

static void block_to_server(struct fault *fault)
{
    block(fault, true, false);
}

static void block_to_client(struct fault *fault)
{
    block(fault, false, true);
}

static void block_both(struct fault *fault)
{
    block(fault, true, true);
}

static void slow_path(struct fault *fault)
{
    block(fault, false, false);
    fault->path->delay_ns = 700 * MS;
}

const struct fault_class shared_faults[] = {
    {"a client is paused", 8, 0, AT_CLIENT, pause_client, resume_client},
    {"a client is killed", 5, 0, AT_CLIENT, kill_client, NULL},
    {"a client is closed", 3, 0, IN_ORDER, close_client, NULL},
    {"a client's host loses power", 3, 0, AT_CLIENT, power_off_client, NULL},
    {"a connection is cut, and requests are lost", 6, 0, AT_CLIENT, cut_before, NULL},
    {"a connection is cut, and answers are lost", 6, 0, AT_CLIENT, cut_after, NULL},
    {"requests of a client do not arrive", 4, 0, AT_CLIENT, block_to_server, NULL},
    {"answers to a client do not arrive", 4, 0, AT_CLIENT, block_to_client, NULL},
    {"a client is cut off", 4, 0, AT_CLIENT, block_both, NULL},
    {"a path is slow", 8, 0, AT_CLIENT, slow_path, NULL},
    {0},
};

/* ---- more of them ---- */

static void cut_all(struct fault *fault, bool after)
{
    struct fault each = *fault;
    for (size_t i = 0; i < net_count(); i++) {
        each.server = net_server(i);
        cut_some(&each, after);
    }
}

static void cut_all_before(struct fault *fault)
{
    cut_all(fault, false);
}

static void cut_all_after(struct fault *fault)
{
    cut_all(fault, true);
}

static void stall_client(struct fault *fault)
{
    workload_stall(fault->user, fault->for_ns);
}

static void slow_server(struct fault *fault)
{
    fault->server->slow_ns = fault->number % 2 ? 700 * MS : 20 * MS;
}

static void quicken_server(struct fault *fault)
{
    fault->server->slow_ns = 0;
}

const struct fault_class more_faults[] = {
    {"all connections of a client are cut, and requests are lost", 3, 0, AT_CLIENT, cut_all_before,
     NULL},
    {"all connections of a client are cut, and answers are lost", 5, 0, AT_CLIENT, cut_all_after,
     NULL},
    {"a client stands still in the middle of its work", 5, 0, AT_CLIENT, stall_client, NULL},
    {"a server is slow", 3, 0, AT_SERVER, slow_server, quicken_server},
    {"a client is closed", 4, 0, IN_ORDER, close_client, NULL},
    {0},
};

/* ---- races ---- */

/* What is under way arrives up to a second later, or at once. */
static uint64_t late_ns(const struct fault *fault)
{
    return fault->number % 4 == 0 ? 0 : fault->number % 1000 * MS;
}

/* process: NULL: those of all. */
static void cut_late(const struct fault *fault, const struct process *process)
{
    for (size_t i = 0; i < net_count(); i++) {
        for (struct connection *each = net_server(i)->connections; each != NULL;
             each = each->next) {
            if (process == NULL || each->process == process)
                connection_cut_late(each, late_ns(fault));
        }
    }
}

static void cut_late_client(struct fault *fault)
{
    cut_late(fault, workload_process(fault->user));
}

static void cut_late_all(struct fault *fault)
{
    cut_late(fault, NULL);
}

static void hear_late(void *data)
{
    struct fault *fault = data;
    if (workload_process(fault->user) != NULL)
        block(fault, true, false);
}

/* What it asks first still reaches the server in time. */
static void break_late(struct fault *fault)
{
    fault->for_ns = (5 + fault->number % 200) * MS;
    operator_break_of(fault->user);
    fault->user++; /* its operator */
    world_at(world_now() + fault->number / 200 % 1200 * US, hear_late, fault);
}

const struct race shared_races[] = {
    {{"all connections of a client end, and its requests arrive late", 4, 0, AT_CLIENT,
      cut_late_client, NULL},
     WHEN_RELEASED},
    {{"all connections end, and all requests arrive late", 4, 0, AT_CLIENT, cut_late_all, NULL},
     WHEN_RELEASED},
    {{"an operator breaks a lock, and a server hears of it late", 4, 0, IN_ORDER, break_late, NULL},
     WHEN_GRANTED},
    {{0}, WHEN_ASKED},
};

/* ---- for the tables of engines ---- */

void strike_stop(struct fault *fault)
{
    fault->server->stopped = true;
}

void heal_stop(struct fault *fault)
{
    fault->server->stopped = false;
    server_continue(fault->server);
}

void strike_clock_forward(struct fault *fault)
{
    fault->server->clock_us += fault->number;
}

void strike_clock_back(struct fault *fault)
{
    fault->server->clock_us -= fault->number;
}

void strike_break(struct fault *fault)
{
    operator_break(fault->user);
}

void strike_break_of(struct fault *fault)
{
    operator_break_of(fault->user);
}

#define DRIFT_STEP_NS (20 * MS)

static void drift_on(void *data)
{
    struct fault *fault = data;
    int64_t most_us = (int64_t)(DRIFT_STEP_NS / US) * 8 / 1000;
    if (fault->server->drifts != fault)
        return;
    fault->server->clock_us += fault->number % 2 ? most_us : -most_us;
    world_at(world_now() + DRIFT_STEP_NS, drift_on, fault);
}

/* Two at once would be more than the hundredth for which deadlines allow. */
void strike_drift(struct fault *fault)
{
    if (fault->server->drifts != NULL)
        return;
    fault->server->drifts = fault;
    drift_on(fault);
}

void heal_drift(struct fault *fault)
{
    if (fault->server->drifts == fault)
        fault->server->drifts = NULL;
}
