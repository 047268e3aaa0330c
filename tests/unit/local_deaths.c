/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Holders and waiters of the local engine that are killed: they hold nothing, and are in nobody's
 * way. */
#include "unit/local_three.h"

#include <signal.h>

static void test_the_dead_hold_nothing(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct other other = other_start("n", (struct bid_options){0}, SAID_GRANTED);
    assert_int_equal(kit_try(bid), SAID_BUSY);
    kit_wait(bid);
    kit_settle();
    other_kill(&other);
    kit_until(bid, SAID_GRANTED);
    kit_release(bid);
    kit_bid_free(bid);
}

/* Nobody waited, so nobody has noticed: a try must. */
static void test_a_try_sees_that_the_holder_is_dead(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct other other = other_start("n", (struct bid_options){0}, SAID_GRANTED);
    other_kill(&other);
    kit_take(bid);
    kit_release(bid);
    kit_bid_free(bid);
}

static void test_a_try_sees_that_a_waiting_writer_is_dead(void **state)
{
    (void)state;
    struct bid_options shared = {.mode = STILE_SHARED};
    struct bid *one = kit_bid_with(&a, "n", shared), *two = kit_bid_with(&b, "n", shared);
    kit_take(one);
    struct other other = other_start("n", (struct bid_options){0}, SAID_NOTHING);
    assert_int_equal(kit_try(two), SAID_BUSY);
    other_kill(&other);
    kit_take(two);
    kit_release(one);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_a_try_finds_the_slot_of_the_dead(void **state)
{
    (void)state;
    struct bid_options slots = {.mode = STILE_SLOTS, .slots = 3};
    struct bid *one = kit_bid_with(&a, "n", slots), *two = kit_bid_with(&b, "n", slots),
               *three = kit_bid_with(&c, "n", slots);
    kit_take(one);
    struct other other = other_start("n", slots, SAID_GRANTED);
    kit_take(two);
    assert_int_equal(kit_try(three), SAID_BUSY);
    other_kill(&other);
    kit_take(three);
    kit_release(one);
    kit_release(two);
    kit_release(three);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(three);
}

static void test_a_dead_waiter_is_skipped(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_take(one);
    struct other other = other_start("n", (struct bid_options){0}, SAID_NOTHING);
    kit_wait(two);
    other_kill(&other);
    kit_settle();
    kit_release(one);
    kit_until(two, SAID_GRANTED);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* The last reader of several dies: a writer has to notice each of them. */
static void test_a_writer_outlives_all_readers(void **state)
{
    (void)state;
    struct bid_options shared = {.mode = STILE_SHARED};
    struct bid *writer = kit_bid(&a, "n"), *reader = kit_bid_with(&b, "n", shared);
    struct other first = other_start("n", shared, SAID_GRANTED);
    kit_take(reader);
    struct other last = other_start("n", shared, SAID_GRANTED);
    kit_wait(writer);
    other_kill(&last);
    other_kill(&first);
    kit_settle();
    assert_int_equal(writer->said, SAID_NOTHING);
    kit_release(reader);
    kit_until(writer, SAID_GRANTED);
    kit_release(writer);
    kit_bid_free(writer);
    kit_bid_free(reader);
}

static void test_a_lock_delay_follows_a_death(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct other other = other_start("n", (struct bid_options){.delay_ms = 50}, SAID_GRANTED);
    kit_wait(bid);
    other_kill(&other);
    kit_until(bid, SAID_GRANTED);
    kit_release(bid);
    kit_bid_free(bid);
}

/* More slot holders than a waiter can watch: the death of any of them is still noticed. */
static void test_a_crowd_of_slot_holders(void **state)
{
    (void)state;
    enum { CROWD = AHEAD_MAX + 3 };
    struct bid_options slots = {.mode = STILE_SLOTS, .slots = CROWD + 1};
    static struct party parties[CROWD];
    struct bid *bids[CROWD], *waiter = kit_bid_with(&a, "n", slots);
    for (int i = 0; i < CROWD; i++) {
        kit_open(&parties[i], dir);
        bids[i] = kit_bid_with(&parties[i], "n", slots);
        kit_take(bids[i]);
    }
    struct other other = other_start("n", slots, SAID_GRANTED);
    assert_int_equal(kit_wait(waiter), SAID_NOTHING);
    other_kill(&other);
    kit_until(waiter, SAID_GRANTED);
    kit_release(waiter);
    for (int i = 0; i < CROWD; i++) {
        kit_release(bids[i]);
        kit_bid_free(bids[i]);
        kit_close(&parties[i]);
    }
    kit_bid_free(waiter);
}

/* ---- names that nobody comes to ---- */

static unsigned n_claims(void)
{
    const struct store *store = kit_store(&a);
    unsigned n = 0;
    for (uint32_t i = AT_FIRST; i < store->cells[AT_LEDGER].ledger.n_used; i++)
        n += store->cells[i].kind == CELL_CLAIM && store->cells[i].claim.state != CLAIM_SPARE;
    return n;
}

/* The waiter never got the lock, so nothing is kept for it. */
static void test_dead_claims_are_swept_away(void **state)
{
    (void)state;
    struct bid_options held = {.hold_ms = 3600000};
    struct other holder = other_start("n", (struct bid_options){0}, SAID_GRANTED);
    struct other first = other_start("n", held, SAID_NOTHING);
    struct other second = other_start("n", held, SAID_NOTHING);
    kit_sweep(kit_store(&a));
    assert_int_equal(n_claims(), 3);
    other_kill(&second);
    other_kill(&first);
    other_kill(&holder);
    kit_sweep(kit_store(&a));
    assert_int_equal(n_claims(), 0);
    assert_int_equal(kit_store(&a)->cells[AT_LEDGER].ledger.n_kept, 0);
}

static void test_what_a_hold_keeps_is_not_swept_away(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct other other = other_start("n", (struct bid_options){.hold_ms = 3600000}, SAID_GRANTED);
    other_kill(&other);
    kit_sweep(kit_store(&a));
    assert_int_equal(n_claims(), 1);
    assert_int_equal(kit_try(bid), SAID_BUSY);
    kit_bid_free(bid);
}

/* Its own watch clears its way; the dead behind it have nobody else. */
static void test_a_waiter_that_lives_stays_in_line(void **state)
{
    (void)state;
    struct bid *holder = kit_bid(&a, "n"), *waiter = kit_bid(&b, "n");
    kit_take(holder);
    kit_wait(waiter);
    struct other behind = other_start("n", (struct bid_options){0}, SAID_NOTHING);
    other_kill(&behind);
    kit_sweep(kit_store(&a));
    assert_int_equal(n_claims(), 2);
    kit_release(holder);
    kit_until(waiter, SAID_GRANTED);
    kit_release(waiter);
    kit_bid_free(holder);
    kit_bid_free(waiter);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, three_open, three_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_dead_hold_nothing),
        TEST(test_a_try_sees_that_the_holder_is_dead),
        TEST(test_a_try_sees_that_a_waiting_writer_is_dead),
        TEST(test_a_try_finds_the_slot_of_the_dead),
        TEST(test_a_dead_waiter_is_skipped),
        TEST(test_a_writer_outlives_all_readers),
        TEST(test_a_lock_delay_follows_a_death),
        TEST(test_a_crowd_of_slot_holders),
        TEST(test_dead_claims_are_swept_away),
        TEST(test_what_a_hold_keeps_is_not_swept_away),
        TEST(test_a_waiter_that_lives_stays_in_line),
    };
    return cmocka_run_group_tests_name("local_deaths", tests, NULL, NULL);
}
