/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Queues and the rule, without sockets or deaths. */
#include "unit/local_queue_kit.h"

/* ---- the rule ---- */

static void test_exclusive_is_one_at_a_time_in_order(void **state)
{
    (void)state;
    uint32_t a = table_enter("n", 1, STILE_EXCLUSIVE, 0),
             b = table_enter("n", 2, STILE_EXCLUSIVE, 0),
             c = table_enter("n", 3, STILE_EXCLUSIVE, 0);
    assert_true(table_is_held(a) && !table_is_held(b) && !table_is_held(c));
    table_leave(a, LEAVE_RELEASED);
    assert_true(table_is_held(b) && !table_is_held(c));
    /* One is woken, and nobody else: the third one watches the second already. */
    assert_int_equal(table_n_woken(), 1);
    assert_true(table_was_woken(2));
    table_leave(b, LEAVE_RELEASED);
    assert_true(table_is_held(c));
    table_leave(c, LEAVE_RELEASED);
    assert_int_equal(table_n_woken(), 0);
}

/* LESSONS row 12: a reader waits only for earlier writers, a writer for all before it. */
static void test_readers_and_writers(void **state)
{
    (void)state;
    uint32_t r1 = table_enter("n", 1, STILE_SHARED, 0), r2 = table_enter("n", 2, STILE_SHARED, 0);
    uint32_t w = table_enter("n", 3, STILE_EXCLUSIVE, 0), r3 = table_enter("n", 4, STILE_SHARED, 0);
    assert_true(table_is_held(r1) && table_is_held(r2) && !table_is_held(w) && !table_is_held(r3));
    table_leave(r2, LEAVE_RELEASED);
    assert_int_equal(table_n_woken(), 0); /* the writer watches the first reader */
    table_leave(r1, LEAVE_RELEASED);
    assert_true(table_is_held(w) && !table_is_held(r3));
    table_leave(w, LEAVE_RELEASED);
    assert_true(table_is_held(r3));
    table_leave(r3, LEAVE_RELEASED);
}

static void test_a_writer_that_withdraws_lets_readers_in(void **state)
{
    (void)state;
    uint32_t r1 = table_enter("n", 1, STILE_SHARED, 0),
             w1 = table_enter("n", 2, STILE_EXCLUSIVE, 0);
    uint32_t r2 = table_enter("n", 3, STILE_SHARED, 0),
             w2 = table_enter("n", 4, STILE_EXCLUSIVE, 0);
    table_leave(w1, LEAVE_RELEASED);
    assert_true(table_is_held(r1) && table_is_held(r2) && !table_is_held(w2));
    assert_true(table_was_woken(3));
    assert_true(table_was_woken(4)); /* it is the first waiter now, and watches another session */
    table_leave(r1, LEAVE_RELEASED);
    table_leave(r2, LEAVE_RELEASED);
    assert_true(table_is_held(w2));
    table_leave(w2, LEAVE_RELEASED);
}

static void test_slots_are_so_many_and_no_more(void **state)
{
    (void)state;
    uint32_t s[5];
    for (uint32_t i = 0; i < 5; i++)
        s[i] = table_enter("n", i + 1, STILE_SLOTS, 3);
    assert_true(table_is_held(s[0]) && table_is_held(s[1]) && table_is_held(s[2]));
    assert_false(table_is_held(s[3]) || table_is_held(s[4]));
    table_leave(s[1], LEAVE_RELEASED);
    assert_true(table_is_held(s[3]) && !table_is_held(s[4]));
    table_leave(s[4], LEAVE_RELEASED);
    table_leave(s[0], LEAVE_DEAD);
    table_leave(s[2], LEAVE_DEAD);
    table_leave(s[3], LEAVE_DEAD);
}

static void test_who_stands_behind_a_leaver_is_told(void **state)
{
    (void)state;
    uint32_t a = table_enter("n", 1, STILE_EXCLUSIVE, 0),
             b = table_enter("n", 2, STILE_EXCLUSIVE, 0),
             c = table_enter("n", 3, STILE_EXCLUSIVE, 0);
    table_leave(b, LEAVE_RELEASED);
    assert_true(table_was_woken(3));
    assert_int_equal(table_n_woken(), 1);
    table_leave(c, LEAVE_RELEASED);
    table_leave(a, LEAVE_RELEASED);
}

static void test_a_thousand_readers_come_in_by_and_by(void **state)
{
    (void)state;
    uint32_t w = table_enter("n", 1, STILE_EXCLUSIVE, 0), r[1000];
    for (uint32_t i = 0; i < 1000; i++)
        r[i] = table_enter("n", i + 2, STILE_SHARED, 0);
    table_leave(w, LEAVE_RELEASED);
    assert_true(table_is_held(r[0]) && !table_is_held(r[999]));
    /* Each transaction wakes some; each claim that is woken continues. */
    for (int i = 0; i < 20 && !table_is_held(r[999]); i++) {
        assert_true(table_n_woken() > 0);
        table_begin();
        local_queue_settle(&tx, table_find_name("n"), START_NS, &wakeups);
        table_commit();
    }
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(table_is_held(r[i]));
        table_leave(r[i], LEAVE_RELEASED);
    }
}

static void test_a_name_has_a_limit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CLAIMS_PER_NAME_MAX; i++)
        table_enter("n", i + 1, STILE_EXCLUSIVE, 0);
    struct claim_request request = {.session = 70000, .id = 1};
    table_begin();
    assert_int_equal(local_queue_enter(&tx, table_open_name("n"), &request, START_NS, &wakeups), 0);
    assert_false(local_tx_commit(&tx));
    assert_status(tx.status, REFUSED);
}

/* ---- holds and delays ---- */

static uint32_t enter_held(uint64_t session, uint32_t hold_ms, uint32_t delay_ms)
{
    struct claim_request request = {
        .session = session, .id = (uint32_t)session, .hold_ms = hold_ms, .delay_ms = delay_ms};
    table_begin();
    uint32_t claim = local_queue_enter(&tx, table_open_name("n"), &request, START_NS, &wakeups);
    table_commit();
    return claim;
}

static void settle_at(uint64_t ms)
{
    table_begin();
    local_queue_settle(&tx, table_find_name("n"), START_NS + ms * NS_PER_MS, &wakeups);
    table_commit();
}

static void test_a_hold_keeps_the_place_of_who_released(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 100, 0), b = table_enter("n", 2, STILE_EXCLUSIVE, 0);
    table_leave(a, LEAVE_RELEASED);
    assert_int_equal(table_claim(a)->state, CLAIM_GHOST);
    assert_false(table_is_held(b));
    assert_true(table_was_woken(2)); /* it has a time to wait for now */
    struct ahead ahead;
    table_begin();
    local_queue_ahead(&tx, b, &ahead);
    table_commit();
    assert_int_equal(ahead.n, 0);
    assert_true(ahead.ghost_end_ns == START_NS + 100 * NS_PER_MS);
    settle_at(99);
    assert_false(table_is_held(b));
    settle_at(100);
    assert_true(table_is_held(b));
    table_leave(b, LEAVE_RELEASED);
}

static void test_a_delay_follows_a_death_only(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 0, 100), b = enter_held(2, 0, 100);
    table_leave(a, LEAVE_RELEASED);
    assert_true(table_is_held(b));
    uint32_t c = table_enter("n", 3, STILE_EXCLUSIVE, 0);
    table_leave(b, LEAVE_DEAD);
    assert_false(table_is_held(c));
    settle_at(100);
    assert_true(table_is_held(c));
    table_leave(c, LEAVE_RELEASED);
}

static void test_the_longer_of_hold_and_delay_counts(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 50, 100);
    table_leave(a, LEAVE_DEAD);
    assert_true(table_claim(a)->until_ns == START_NS + 100 * NS_PER_MS);
    settle_at(100);
    a = enter_held(1, 150, 100);
    table_leave(a, LEAVE_DEAD);
    assert_true(table_claim(a)->until_ns == START_NS + 150 * NS_PER_MS);
    settle_at(150);
}

static void test_a_break_keeps_nothing(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 100, 100), b = table_enter("n", 2, STILE_EXCLUSIVE, 0);
    table_leave(a, LEAVE_BROKEN);
    assert_true(table_is_held(b));
    table_leave(b, LEAVE_RELEASED);
}

static void test_a_waiter_that_dies_leaves_nothing(void **state)
{
    (void)state;
    uint32_t a = table_enter("n", 1, STILE_EXCLUSIVE, 0), b = enter_held(2, 100, 100);
    uint32_t c = table_enter("n", 3, STILE_EXCLUSIVE, 0);
    table_leave(b, LEAVE_DEAD);
    table_leave(a, LEAVE_RELEASED);
    assert_true(table_is_held(c));
    table_leave(c, LEAVE_RELEASED);
}

/* Everybody is dead: what had to be kept stays, and nobody else. */
static void test_the_end_of_everybody(void **state)
{
    (void)state;
    uint32_t before = kit_cells_in_use(&user.store);
    uint32_t a = enter_held(1, 100, 0);
    table_enter("n", 2, STILE_EXCLUSIVE, 0);
    table_enter("other", 1, STILE_SHARED, 0);
    table_enter("other", 2, STILE_SHARED, 0);
    table_enter("other", 3, STILE_EXCLUSIVE, 0);
    table_begin();
    local_sessions_add(&tx, 1, 1, START_NS, "host", "command");
    local_observers_add(&tx, 1, 9, table_open_name("n"));
    table_commit();
    struct stile_error err;
    assert_status(local_table_end_all(&user.store, START_NS, &err), OK);
    kit_check(&user.store);
    assert_int_equal(table_claim(a)->state, CLAIM_GHOST);
    /* Two names with a cell of text and one for the next claim each, and the ghost. */
    assert_int_equal(kit_cells_in_use(&user.store), before + 7);
    assert_status(local_table_end_all(&user.store, START_NS + NS_PER_SEC, &err), OK);
    assert_int_equal(kit_cells_in_use(&user.store), before + 6);
}

/* ---- what a waiter watches ---- */

static void expect_sight(uint32_t claim, uint32_t n, uint64_t first)
{
    struct ahead ahead;
    table_begin();
    local_queue_ahead(&tx, claim, &ahead);
    table_commit();
    assert_int_equal(ahead.n, n);
    if (n)
        assert_true(ahead.sessions[0] == first);
}

static void test_each_watches_who_concerns_it(void **state)
{
    (void)state;
    uint32_t r1 = table_enter("n", 1, STILE_SHARED, 0), r2 = table_enter("n", 2, STILE_SHARED, 0);
    uint32_t w1 = table_enter("n", 3, STILE_EXCLUSIVE, 0),
             w2 = table_enter("n", 4, STILE_EXCLUSIVE, 0);
    expect_sight(w1, 1, 1); /* all holders have to go; the first will do */
    expect_sight(w2, 1, 3);
    table_leave(r1, LEAVE_DEAD);
    assert_true(table_was_woken(3));
    expect_sight(w1, 1, 2);
    table_leave(w1, LEAVE_RELEASED);
    assert_true(table_was_woken(4));
    expect_sight(w2, 1, 2);
    table_leave(w2, LEAVE_RELEASED);
    table_leave(r2, LEAVE_RELEASED);
    uint32_t s[100];
    for (uint32_t i = 0; i < 100; i++)
        s[i] = table_enter("slots", 1 + i % 80, STILE_SLOTS, 99);
    struct ahead ahead;
    table_begin();
    local_queue_ahead(&tx, s[99], &ahead);
    table_commit();
    assert_int_equal(ahead.n, AHEAD_MAX); /* any of them may go first */
    assert_true(ahead.more);
}

static void test_the_dead_before_a_waiter_are_cleared_away(void **state)
{
    (void)state;
    uint32_t a = table_enter("n", 1, STILE_EXCLUSIVE, 0);
    table_enter("n", 2, STILE_EXCLUSIVE, 0);
    table_enter("n", 2, STILE_EXCLUSIVE, 0);
    uint32_t d = table_enter("n", 3, STILE_EXCLUSIVE, 0);
    table_begin();
    local_queue_reap(&tx, d, 2, START_NS, &wakeups);
    table_commit();
    expect_sight(d, 1, 1);
    table_begin();
    local_queue_reap(&tx, d, 1, START_NS, &wakeups);
    table_commit();
    assert_true(table_is_held(d));
    (void)a;
    table_leave(d, LEAVE_RELEASED);
}

/* With a dead holder goes a ghost whose time is over, which stood next to it in the list. */
static void test_a_dead_holder_beside_an_old_ghost(void **state)
{
    (void)state;
    uint32_t s[4];
    for (uint32_t i = 0; i < 4; i++) {
        struct claim_request request = {.session = i % 2 ? i : 9,
                                        .id = i + 1,
                                        .mode = STILE_SLOTS,
                                        .slots = 4,
                                        .hold_ms = i % 2 ? 10 : 0};
        table_begin();
        s[i] = local_queue_enter(&tx, table_open_name("n"), &request, START_NS, &wakeups);
        table_commit();
    }
    table_leave(s[1], LEAVE_RELEASED);
    table_leave(s[3], LEAVE_RELEASED);
    uint32_t waiter = table_enter("n", 5, STILE_EXCLUSIVE, 0);
    assert_false(table_is_held(waiter));
    table_begin();
    local_queue_reap(&tx, waiter, 9, START_NS + NS_PER_SEC, &wakeups);
    table_commit();
    assert_true(table_is_held(waiter));
    table_leave(waiter, LEAVE_RELEASED);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, table_set_up, table_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_exclusive_is_one_at_a_time_in_order),
        TEST(test_readers_and_writers),
        TEST(test_a_writer_that_withdraws_lets_readers_in),
        TEST(test_slots_are_so_many_and_no_more),
        TEST(test_who_stands_behind_a_leaver_is_told),
        TEST(test_a_thousand_readers_come_in_by_and_by),
        TEST(test_a_name_has_a_limit),
        TEST(test_a_hold_keeps_the_place_of_who_released),
        TEST(test_a_delay_follows_a_death_only),
        TEST(test_the_longer_of_hold_and_delay_counts),
        TEST(test_a_break_keeps_nothing),
        TEST(test_a_waiter_that_dies_leaves_nothing),
        TEST(test_the_end_of_everybody),
        TEST(test_each_watches_who_concerns_it),
        TEST(test_the_dead_before_a_waiter_are_cleared_away),
        TEST(test_a_dead_holder_beside_an_old_ghost),
    };
    return cmocka_run_group_tests_name("local_table", tests, NULL, NULL);
}
