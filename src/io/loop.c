/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What all loops share: timers in a binary heap, tasks in a list, and the order of one turn. */
#include "io/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* A run ends after this many rounds of tasks that put off further tasks, so that two tasks that
 * schedule each other can't keep timers and file descriptors waiting. */
#define TASK_ROUNDS 8

/* As a time to wake at: at once. */
#define AT_ONCE 0

void loop_init(struct loop *loop, const struct loop_class *class)
{
    *loop = (struct loop){.class = class, .armed_ns = NEVER};
    loop->tasks_tail = &loop->tasks;
}

void loop_fini(struct loop *loop)
{
    free(loop->heap);
    loop->heap = NULL;
}

void loop_free(struct loop *loop)
{
    if (loop)
        loop->class->free(loop);
}

/* ---- the heap ---- */

static bool fires_before(const struct timer *a, const struct timer *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->turn < b->turn);
}

static void put(struct loop *loop, size_t i, struct timer *timer)
{
    loop->heap[i] = timer;
    timer->place = i + 1;
}

static void sift_up(struct loop *loop, size_t i, struct timer *timer)
{
    while (i > 0 && fires_before(timer, loop->heap[(i - 1) / 2])) {
        put(loop, i, loop->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(loop, i, timer);
}

static void sift_down(struct loop *loop, size_t i, struct timer *timer)
{
    size_t child;

    while ((child = 2 * i + 1) < loop->n_timers) {
        if (child + 1 < loop->n_timers && fires_before(loop->heap[child + 1], loop->heap[child]))
            child++;
        if (!fires_before(loop->heap[child], timer))
            break;
        put(loop, i, loop->heap[child]);
        i = child;
    }
    put(loop, i, timer);
}

static void sift(struct loop *loop, size_t i, struct timer *timer)
{
    if (i > 0 && fires_before(timer, loop->heap[(i - 1) / 2]))
        sift_up(loop, i, timer);
    else
        sift_down(loop, i, timer);
}

int loop_reserve(struct loop *loop, size_t n_timers)
{
    size_t need = loop->reserved + n_timers, cap = loop->cap_timers ? loop->cap_timers : 16;

    if (need > loop->cap_timers) {
        while (cap < need)
            cap *= 2;
        struct timer **heap = realloc(loop->heap, cap * sizeof(*heap));
        if (!heap)
            return ENOMEM;
        loop->heap = heap;
        loop->cap_timers = cap;
    }
    loop->reserved = need;
    return 0;
}

void loop_unreserve(struct loop *loop, size_t n_timers)
{
    assert(n_timers <= loop->reserved);
    loop->reserved -= n_timers;
}

/* ---- waking up in time ---- */

static void rearm_class(struct loop *loop, uint64_t at_ns)
{
    loop->class->rearm(loop, at_ns);
    loop->armed_ns = at_ns;
}

/* Only an earlier time matters to a sleeping thread: a later one costs it one needless wake-up, but
 * a system call would cost us on every timer that is armed and disarmed again. */
static void rearm_if_earlier(struct loop *loop, uint64_t at_ns)
{
    if (loop->live && at_ns < loop->armed_ns)
        rearm_class(loop, at_ns);
}

static uint64_t next_ns(const struct loop *loop)
{
    if (loop->tasks)
        return AT_ONCE;
    return loop->n_timers ? loop->heap[0]->at_ns : NEVER;
}

void loop_prepare(struct loop *loop)
{
    loop_flush(loop);
    uint64_t at_ns = next_ns(loop);

    loop->live = true;
    if (at_ns != loop->armed_ns)
        rearm_class(loop, at_ns);
}

void loop_wait(struct loop *loop, bool block)
{
    loop->class->wait(loop, block);
}

/* ---- timers ---- */

void loop_arm(struct loop *loop, struct timer *timer, uint64_t at_ns)
{
    /* Armed for the past from inside a run, it would fire before timers that are due already, and
     * forever if it does so each time. */
    timer->at_ns = at_ns < loop->run_ns ? loop->run_ns : at_ns;
    timer->turn = ++loop->last_turn;
    if (timer->place) {
        sift(loop, timer->place - 1, timer);
    } else {
        assert(loop->n_timers < loop->cap_timers);
        sift_up(loop, loop->n_timers++, timer);
    }
    rearm_if_earlier(loop, timer->at_ns);
}

void loop_disarm(struct loop *loop, struct timer *timer)
{
    if (!timer->place)
        return;
    size_t hole = timer->place - 1;
    struct timer *last = loop->heap[--loop->n_timers];

    timer->place = 0;
    if (last != timer)
        sift(loop, hole, last);
}

/* Runs what was due when the run started. What is armed meanwhile has a later turn and a time not
 * before now, so it stands behind all of those and waits for the next run. */
static void run_timers(struct loop *loop)
{
    uint64_t now_ns = loop->run_ns, last_turn = loop->last_turn;

    while (loop->n_timers) {
        struct timer *timer = loop->heap[0];
        if (timer->at_ns > now_ns || timer->turn > last_turn)
            return;
        loop_disarm(loop, timer);
        timer->fn(timer);
    }
}

/* ---- tasks ---- */

static void append_task(struct loop *loop, struct task *task)
{
    task->next = NULL;
    task->queued = true;
    *loop->tasks_tail = task;
    loop->tasks_tail = &task->next;
}

static struct task *take_task(struct loop *loop)
{
    struct task *task = loop->tasks;

    loop->tasks = task->next;
    if (!loop->tasks)
        loop->tasks_tail = &loop->tasks;
    task->queued = false;
    return task;
}

void loop_soon(struct loop *loop, struct task *task)
{
    if (task->queued)
        return;
    append_task(loop, task);
    rearm_if_earlier(loop, AT_ONCE);
}

void loop_forget(struct loop *loop, struct task *task)
{
    struct task **link = &loop->tasks;

    if (!task->queued)
        return;
    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    if (!*link)
        loop->tasks_tail = link;
    task->queued = false;
}

/* The mark is put behind the present tasks; only this function removes it. */
static void run_tasks_up_to_here(struct loop *loop)
{
    struct task mark = {0}, *task;

    append_task(loop, &mark);
    while ((task = take_task(loop)) != &mark)
        task->fn(task);
}

static void run_tasks(struct loop *loop)
{
    for (int round = 0; loop->tasks && round < TASK_ROUNDS; round++)
        run_tasks_up_to_here(loop);
}

/* ---- senders ---- */

void loop_gather(struct loop *loop, struct sender *sender)
{
    if (sender->queued)
        return;
    sender->queued = true;
    sender->next = loop->senders;
    loop->senders = sender;
}

void loop_ungather(struct loop *loop, struct sender *sender)
{
    struct sender **link = &loop->senders;

    if (!sender->queued)
        return;
    while (*link != sender)
        link = &(*link)->next;
    *link = sender->next;
    sender->queued = false;
}

void loop_flush(struct loop *loop)
{
    while (loop->senders) {
        struct sender *sender = loop->senders;
        loop_ungather(loop, sender);
        sender->fn(sender);
    }
}

/* ---- one turn ---- */

void loop_run(struct loop *loop)
{
    loop->live = false;
    loop->run_ns = loop->ran_ns = loop_now(loop);
    run_tasks(loop);
    run_timers(loop);
    loop->class->deliver(loop);
    run_tasks(loop);
    loop->run_ns = 0;
}

/* ---- pauses ---- */

uint64_t loop_backoff(struct loop *loop, uint64_t first_ns, uint64_t max_ns, unsigned tried)
{
    uint64_t limit = first_ns < max_ns ? first_ns : max_ns;
    while (tried-- > 0 && limit < max_ns)
        limit = limit > max_ns / 2 ? max_ns : limit * 2;
    uint64_t random;
    if (loop_random(loop, &random, sizeof random))
        random = loop_now(loop) * UINT64_C(0x9e3779b97f4a7c15); /* spread, if not random */
    return random % (limit + 1);
}
