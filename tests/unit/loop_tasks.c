/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks, and the order of a turn, on a class that only counts calls. */
#include "unit/loop_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct letter {
    struct task task;
    const char *text;
    struct letter *then;
};

static void spell(struct task *task)
{
    struct letter *letter = (struct letter *)task;

    trace_say(letter->text);
    if (letter->then)
        loop_soon(&the_loop, &letter->then->task);
}

static void tasks_run_once_in_order(void **state)
{
    struct letter a = {{.fn = spell}, "a", NULL}, b = {{.fn = spell}, "b", NULL};
    struct letter c = {{.fn = spell}, "c", &a};

    (void)state;
    loop_soon(&the_loop, &c.task);
    loop_soon(&the_loop, &b.task);
    loop_soon(&the_loop, &c.task);
    loop_run(&the_loop);
    assert_string_equal(trace, "cbaw");
    loop_run(&the_loop);
    assert_string_equal(trace, "cbaww");
}

static void forgotten_tasks_do_not_run(void **state)
{
    struct letter letters[4];
    static const char *const names[] = {"a", "b", "c", "d"};

    (void)state;
    for (int gone = 0; gone < 4; gone++) {
        trace[0] = '\0';
        for (int i = 0; i < 4; i++)
            letters[i] = (struct letter){{.fn = spell}, names[i], NULL};
        for (int i = 0; i < 3; i++)
            loop_soon(&the_loop, &letters[i].task);
        loop_forget(&the_loop, &letters[gone].task);
        loop_soon(&the_loop, &letters[3].task);
        loop_run(&the_loop);
        static const char *const expected[] = {"bcdw", "acdw", "abdw", "abcdw"};
        assert_string_equal(trace, expected[gone]);
    }
}

static unsigned rallies;

static void return_the_ball(struct task *task)
{
    struct letter *letter = (struct letter *)task;

    rallies++;
    loop_soon(&the_loop, &letter->then->task);
}

static void tasks_that_never_end_do_not_keep_timers_waiting(void **state)
{
    struct letter ping = {{.fn = return_the_ball}, "", NULL}, pong = ping;
    struct timer b = {.fn = trace_b};

    (void)state;
    ping.then = &pong;
    pong.then = &ping;
    assert_int_equal(loop_reserve(&the_loop, 1), 0);
    loop_soon(&the_loop, &ping.task);
    loop_arm(&the_loop, &b, now);
    rallies = 0;
    loop_run(&the_loop);
    assert_string_equal(trace, "bw");
    assert_in_range(rallies, 2, 1000);
    loop_prepare(&the_loop);
    assert_true(rearmed_ns <= now);
}

/* Hundreds of tasks put off before the run are not the run's fault: they all run. */
static void all_tasks_put_off_before_run(void **state)
{
    static struct letter many[500];
    struct letter end = {{.fn = spell}, "e", NULL};

    (void)state;
    rallies = 0;
    for (size_t i = 0; i < 500; i++) {
        many[i] = (struct letter){{.fn = return_the_ball}, "", &end};
        loop_soon(&the_loop, &many[i].task);
    }
    loop_run(&the_loop);
    assert_int_equal(rallies, 500);
    assert_string_equal(trace, "ew");
}

static struct letter from_timer = {{.fn = spell}, "2", NULL};

static void puts_off(struct timer *timer)
{
    (void)timer;
    trace_say("b");
    loop_soon(&the_loop, &from_timer.task);
}

static void a_turn_is_tasks_timers_watches_tasks(void **state)
{
    struct letter first = {{.fn = spell}, "1", NULL};
    struct timer timer = {.fn = puts_off};

    (void)state;
    assert_int_equal(loop_reserve(&the_loop, 1), 0);
    delivered_task.fn = trace_task;
    loop_arm(&the_loop, &timer, now);
    loop_soon(&the_loop, &first.task);
    loop_run(&the_loop);
    assert_string_equal(trace, "1bw2t");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_loop_open, fake_loop_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tasks_run_once_in_order),
        TEST(forgotten_tasks_do_not_run),
        TEST(tasks_that_never_end_do_not_keep_timers_waiting),
        TEST(all_tasks_put_off_before_run),
        TEST(a_turn_is_tasks_timers_watches_tasks),
    };
    return cmocka_run_group_tests_name("loop_tasks", tests, NULL, NULL);
}
