/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Timers, and how a sleeping thread is woken, on a class that only counts calls. */
#include "unit/loop_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

/* ---- timers against a model that can't be wrong ---- */

#define TIMERS 100

struct modelled {
    struct timer timer;
    bool armed;
    uint64_t at_ns, order;
};

static struct modelled timers[TIMERS];
static uint64_t order, order_at_start;
static unsigned fired;

static void arm_both(struct modelled *m, uint64_t at_ns)
{
    loop_arm(&the_loop, &m->timer, at_ns);
    m->armed = true;
    m->at_ns = the_loop.run_ns > at_ns ? the_loop.run_ns : at_ns;
    m->order = ++order;
}

static void disarm_both(struct modelled *m)
{
    loop_disarm(&the_loop, &m->timer);
    m->armed = false;
}

static struct modelled *first_due(void)
{
    struct modelled *first = NULL;

    for (size_t i = 0; i < TIMERS; i++) {
        struct modelled *m = &timers[i];
        if (!m->armed || m->at_ns > now || m->order > order_at_start)
            continue;
        if (!first || m->at_ns < first->at_ns ||
            (m->at_ns == first->at_ns && m->order < first->order))
            first = m;
    }
    return first;
}

static struct modelled *any_timer(void)
{
    return &timers[rand() % TIMERS];
}

static uint64_t about_now(void)
{
    return now - 20 + (uint64_t)(rand() % 60);
}

static void modelled_fires(struct timer *timer)
{
    struct modelled *m = (struct modelled *)timer;

    assert_ptr_equal(m, first_due());
    assert_int_equal(timer->place, 0);
    m->armed = false;
    fired++;
    if (rand() % 4 == 0)
        arm_both(any_timer(), about_now());
    if (rand() % 4 == 0)
        disarm_both(any_timer());
}

static void heap_is_sound(void)
{
    size_t armed = 0;

    for (size_t i = 0; i < TIMERS; i++) {
        armed += timers[i].armed;
        assert_int_equal(timers[i].armed, timers[i].timer.place != 0);
        if (timers[i].armed)
            assert_ptr_equal(the_loop.heap[timers[i].timer.place - 1], &timers[i].timer);
    }
    assert_int_equal(armed, the_loop.n_timers);
}

static void timers_fire_as_a_naive_model_says(void **state)
{
    (void)state;
    srand(1);
    fired = 0;
    order = 0;
    assert_int_equal(loop_reserve(&the_loop, TIMERS), 0);
    for (size_t i = 0; i < TIMERS; i++)
        timers[i] = (struct modelled){.timer.fn = modelled_fires};
    for (int round = 0; round < 5000; round++) {
        for (int i = rand() % 10; i > 0; i--)
            arm_both(any_timer(), about_now());
        for (int i = rand() % 5; i > 0; i--)
            disarm_both(any_timer());
        heap_is_sound();
        now += (uint64_t)(rand() % 15);
        order_at_start = order;
        trace[0] = '\0';
        loop_run(&the_loop);
        assert_null(first_due());
    }
    assert_true(fired > 5000);
}

/* ---- system calls ---- */

static void never_fires(struct timer *timer)
{
    (void)timer;
    fail();
}

static void nobody_asleep_nothing_rearmed(void **state)
{
    struct timer a = {.fn = never_fires}, b = {.fn = never_fires};

    (void)state;
    assert_int_equal(loop_reserve(&the_loop, 2), 0);
    for (uint64_t i = 0; i < 100; i++) {
        loop_arm(&the_loop, &a, now + 100 - i);
        loop_arm(&the_loop, &b, now + 200 - i);
        loop_disarm(&the_loop, &a);
    }
    loop_run(&the_loop);
    assert_int_equal(rearms, 0);
    loop_prepare(&the_loop);
    assert_int_equal(rearms, 1);
    assert_int_equal(rearmed_ns, now + 101);
    loop_prepare(&the_loop);
    assert_int_equal(rearms, 1);
}

static void a_sleeper_hears_only_of_earlier_timers(void **state)
{
    struct timer a = {.fn = never_fires}, b = {.fn = never_fires};

    (void)state;
    assert_int_equal(loop_reserve(&the_loop, 2), 0);
    loop_arm(&the_loop, &a, now + 50);
    loop_prepare(&the_loop);
    loop_arm(&the_loop, &b, now + 60);
    loop_disarm(&the_loop, &b);
    loop_arm(&the_loop, &b, now + 50);
    assert_int_equal(rearms, 1);
    loop_arm(&the_loop, &b, now + 40);
    assert_int_equal(rearms, 2);
    assert_int_equal(rearmed_ns, now + 40);
    loop_disarm(&the_loop, &b);
    loop_disarm(&the_loop, &a);
    assert_int_equal(rearms, 2);
    loop_run(&the_loop);
    loop_arm(&the_loop, &b, now + 10);
    assert_int_equal(rearms, 2);
}

static void a_sleeper_hears_of_a_task_once(void **state)
{
    struct task one = {.fn = trace_task}, two = {.fn = trace_task};

    (void)state;
    loop_prepare(&the_loop);
    assert_int_equal(rearms, 0);
    loop_soon(&the_loop, &one);
    loop_soon(&the_loop, &two);
    assert_int_equal(rearms, 1);
    assert_true(rearmed_ns <= now);
    loop_run(&the_loop);
    assert_string_equal(trace, "ttw");
}

static void a_task_left_over_keeps_the_loop_awake(void **state)
{
    struct task task = {.fn = trace_task};

    (void)state;
    loop_soon(&the_loop, &task);
    assert_int_equal(rearms, 0);
    loop_prepare(&the_loop);
    assert_true(rearms == 1 && rearmed_ns <= now);
    loop_run(&the_loop);
    loop_prepare(&the_loop);
    assert_int_equal(rearmed_ns, NEVER);
}

/* ---- senders ---- */

static struct task found_out;

static void sends(struct sender *sender)
{
    (void)sender;
    trace_say("s");
    if (found_out.fn)
        loop_soon(&the_loop, &found_out);
}

static void what_was_gathered_leaves_before_the_sleep(void **state)
{
    struct sender one = {.fn = sends}, two = {.fn = sends}, gone = {.fn = sends};

    (void)state;
    loop_gather(&the_loop, &one);
    loop_gather(&the_loop, &gone);
    loop_gather(&the_loop, &two);
    loop_gather(&the_loop, &one);
    loop_ungather(&the_loop, &gone);
    assert_string_equal(trace, "");
    loop_prepare(&the_loop);
    assert_string_equal(trace, "ss");
    assert_int_equal(rearms, 0);
    loop_run(&the_loop);
    loop_prepare(&the_loop);
    assert_string_equal(trace, "ssw");
}

static void a_sleeper_is_not_woken_to_send(void **state)
{
    struct sender sender = {.fn = sends};

    (void)state;
    loop_prepare(&the_loop);
    loop_gather(&the_loop, &sender);
    loop_flush(&the_loop);
    assert_string_equal(trace, "s");
    assert_int_equal(rearms, 0);
}

static void what_sending_found_out_is_told_at_once(void **state)
{
    struct sender sender = {.fn = sends};

    (void)state;
    found_out = (struct task){.fn = trace_task};
    loop_gather(&the_loop, &sender);
    loop_prepare(&the_loop);
    assert_true(rearms == 1 && rearmed_ns <= now);
    loop_run(&the_loop);
    assert_string_equal(trace, "stw");
    found_out = (struct task){0};
}

/* ---- timers that arm themselves ---- */

static void again_at_once(struct timer *timer)
{
    trace_say("a");
    loop_arm(&the_loop, timer, now);
}

static void again_in_the_past(struct timer *timer)
{
    trace_say("p");
    loop_arm(&the_loop, timer, 0);
}

static void arming_for_now_does_not_spin_or_starve(void **state)
{
    struct timer again = {.fn = again_at_once}, past = {.fn = again_in_the_past};
    struct timer b = {.fn = trace_b};

    (void)state;
    assert_int_equal(loop_reserve(&the_loop, 3), 0);
    loop_arm(&the_loop, &again, now - 2);
    loop_arm(&the_loop, &past, now - 1);
    loop_arm(&the_loop, &b, now);
    loop_run(&the_loop);
    assert_string_equal(trace, "apbw");
    loop_arm(&the_loop, &b, now);
    loop_run(&the_loop);
    assert_string_equal(trace, "apbwapbw");
}

static void room_for_timers_is_reserved(void **state)
{
    static struct timer many[1000];

    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(loop_reserve(&the_loop, 1), 0);
        many[i].fn = never_fires;
        loop_arm(&the_loop, &many[i], now + 1000 - i);
    }
    assert_int_equal(the_loop.heap[0]->at_ns, now + 1);
    for (size_t i = 0; i < 1000; i++) {
        loop_disarm(&the_loop, &many[i]);
        loop_disarm(&the_loop, &many[i]);
        loop_unreserve(&the_loop, 1);
    }
    assert_int_equal(the_loop.n_timers, 0);
    size_t cap = the_loop.cap_timers;
    assert_int_equal(loop_reserve(&the_loop, cap), 0);
    assert_int_equal(the_loop.cap_timers, cap);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_loop_open, fake_loop_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(timers_fire_as_a_naive_model_says),
        TEST(nobody_asleep_nothing_rearmed),
        TEST(a_sleeper_hears_only_of_earlier_timers),
        TEST(a_sleeper_hears_of_a_task_once),
        TEST(a_task_left_over_keeps_the_loop_awake),
        TEST(what_was_gathered_leaves_before_the_sleep),
        TEST(a_sleeper_is_not_woken_to_send),
        TEST(what_sending_found_out_is_told_at_once),
        TEST(arming_for_now_does_not_spin_or_starve),
        TEST(room_for_timers_is_reserved),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
