/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/loop_kit.h"

#include <string.h>

struct loop the_loop;
uint64_t now, rearmed_ns;
unsigned rearms;
char trace[64];

static uint64_t fake_now(struct loop *loop)
{
    (void)loop;
    return now;
}

static void fake_rearm(struct loop *loop, uint64_t at_ns)
{
    (void)loop;
    rearms++;
    rearmed_ns = at_ns;
}

void trace_say(const char *what)
{
    assert_true(strlen(trace) + strlen(what) < sizeof(trace));
    strcat(trace, what);
}

struct task delivered_task;

static void fake_deliver(struct loop *loop)
{
    trace_say("w");
    if (delivered_task.fn)
        loop_soon(loop, &delivered_task);
}

static const struct loop_class fake_class = {
    .now_ns = fake_now, .rearm = fake_rearm, .deliver = fake_deliver};

int fake_loop_open(void **state)
{
    (void)state;
    now = 1000;
    rearms = 0;
    trace[0] = '\0';
    delivered_task = (struct task){0};
    loop_init(&the_loop, &fake_class);
    return 0;
}

int fake_loop_close(void **state)
{
    (void)state;
    loop_fini(&the_loop);
    return 0;
}

void trace_task(struct task *task)
{
    (void)task;
    trace_say("t");
}

void trace_b(struct timer *timer)
{
    (void)timer;
    trace_say("b");
}
