/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the local engine reports in list, show and watch, and what break does. */
#include "unit/local_three.h"

#include <unistd.h>

/* LESSONS row 29. */
static void test_show_tells_who(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_ask(&answer, &c, "n", local_inspect_show, 0);
    assert_int_equal(answer.n_infos, 1);
    assert_true(answer.is_done && answer.error.status == STILE_OK);
    assert_int_equal(answer.holders + answer.waiters, 0);
    assert_int_equal(answer.token, 0);
    kit_take(one);
    kit_wait(two);
    kit_ask(&answer, &c, "n", local_inspect_show, 0);
    assert_int_equal(answer.holders, 1);
    assert_int_equal(answer.waiters, 1);
    assert_true(answer.claims[0].held && !answer.claims[1].held);
    assert_int_equal(answer.claims[0].token, one->token);
    assert_int_equal(answer.claims[1].token, 0);
    assert_int_equal(answer.claims[0].pid, getpid());
    assert_true(answer.claims[0].expires_ms == STILE_NO_DEADLINE);
    assert_string_equal(answer.command[0], "a test");
    kit_release(one);
    kit_until(two, SAID_GRANTED);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_show_leaves_the_dead_out(void **state)
{
    (void)state;
    struct answer answer;
    struct other other = other_start("n", (struct bid_options){0}, SAID_GRANTED);
    other_kill(&other);
    kit_ask(&answer, &a, "n", local_inspect_show, 0);
    assert_int_equal(answer.holders, 0);
    kit_sweep(kit_store(&a));
    kit_check(kit_store(&a));
}

static void test_list_is_in_byte_order(void **state)
{
    (void)state;
    struct answer answer;
    const char *names[] = {"b", "a/1", "a", "\xc3\xa4", "B", "a/0"};
    struct bid *bids[6];
    for (int i = 0; i < 6; i++)
        kit_take(bids[i] = kit_bid(&a, names[i]));
    struct bid *free_name = kit_bid(&b, "a/2");
    kit_take(free_name);
    kit_release(free_name);
    kit_ask(&answer, &b, "", local_inspect_list, 0);
    assert_int_equal(answer.n_infos, 6);
    const char *sorted[] = {"B", "a", "a/0", "a/1", "b", "\xc3\xa4"};
    for (int i = 0; i < 6; i++)
        assert_string_equal(answer.names[i], sorted[i]);
    kit_ask(&answer, &b, "a/", local_inspect_list, 0);
    assert_int_equal(answer.n_infos, 2);
    for (int i = 0; i < 6; i++) {
        kit_release(bids[i]);
        kit_bid_free(bids[i]);
    }
    kit_bid_free(free_name);
}

/* LESSONS rows 1, 2. */
static void test_a_break_is_told_and_fenced(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_ask(&answer, &c, "n", local_inspect_break, 0);
    assert_status(answer.error.status, CONFLICT);
    kit_take(one);
    kit_wait(two);
    kit_ask(&answer, &c, "n", local_inspect_break, one->token + 1);
    assert_status(answer.error.status, CONFLICT);
    kit_ask(&answer, &c, "n", local_inspect_break, one->token);
    assert_true(answer.is_done && answer.error.status == STILE_OK);
    kit_until(one, SAID_LOST);
    kit_until(two, SAID_GRANTED);
    assert_true(two->token > one->token);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_status(one->error.status, LOST);
    kit_settle();
    assert_int_equal(two->said, SAID_GRANTED);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* The holder hears of it no later than the next one is granted, even if the breaker dies between
 * the two: its claim is marked first. */
static void test_a_holder_is_told_before_its_place_is_given_away(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_take(one);
    kit_wait(two);
    struct tx tx;
    assert_true(local_tx_begin(&tx, kit_store(&a)));
    tx_edit_claim(&tx, local_claim_of(one->claim)->cell)->state = CLAIM_BROKEN;
    assert_true(local_tx_commit(&tx));
    kit_settle();
    assert_int_equal(two->said, SAID_NOTHING); /* still held, though marked */
    local_wakeup_make_due(kit_local(&a), &local_claim_of(one->claim)->watcher);
    kit_until(one, SAID_LOST);
    kit_release(one);
    kit_until(two, SAID_GRANTED); /* nobody waits for the breaker */
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_release_after_a_break_is_lost(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *one = kit_bid(&a, "n");
    kit_take(one);
    kit_ask(&answer, &c, "n", local_inspect_break, 0);
    assert_int_equal(kit_release(one), SAID_RELEASED); /* before it has looked */
    assert_status(one->error.status, LOST);
    kit_settle();
    assert_int_equal(one->said, SAID_RELEASED);
    kit_bid_free(one);
}

static void test_a_break_takes_all_readers_and_ghosts(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *readers[6], *writer = kit_bid(&b, "n");
    for (int i = 0; i < 6; i++)
        kit_take(readers[i] = kit_bid_with(
                     i % 2 ? &a : &c, "n",
                     (struct bid_options){.mode = STILE_SHARED, .hold_ms = i == 3 ? 60000 : 0}));
    kit_release(readers[3]);
    kit_wait(writer);
    kit_ask(&answer, &b, "n", local_inspect_break, 0);
    assert_status(answer.error.status, OK);
    kit_until(writer, SAID_GRANTED);
    for (int i = 0; i < 6; i++) {
        if (i != 3)
            kit_until(readers[i], SAID_LOST);
        kit_release(readers[i]);
        kit_bid_free(readers[i]);
    }
    kit_release(writer);
    kit_bid_free(writer);
}

static void test_every_change_is_reported(void **state)
{
    (void)state;
    struct answer watch, shown;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n"), *other = kit_bid(&a, "other");
    kit_ask(&watch, &c, "n", local_inspect_watch, 0);
    kit_take(one);
    kit_until_changes(&watch, 1);
    kit_settle();
    unsigned n = watch.n_changes;
    kit_wait(two);
    kit_until_changes(&watch, n + 1);
    kit_settle();
    n = watch.n_changes;
    kit_take(other);
    kit_release(other);
    kit_settle();
    assert_int_equal(watch.n_changes, n);
    kit_release(one);
    kit_until(two, SAID_GRANTED);
    kit_until_changes(&watch, n + 1);
    kit_settle();
    n = watch.n_changes;
    kit_release(two);
    kit_until_changes(&watch, n + 1);
    kit_ask(&shown, &c, "n", local_inspect_show, 0);
    assert_int_equal(shown.holders, 0);
    assert_false(watch.is_done);
    assert_int_equal(watch.n_infos, 0);
    local_inspect_unwatch(c.engine, &watch.query);
    assert_int_equal(kit_store(&a)->cells[AT_LEDGER].ledger.n_observers, 0);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(other);
}

/* The session that died affects no other claim: nothing but the subscription notices. */
static void test_a_death_is_reported(void **state)
{
    (void)state;
    struct answer watch, shown;
    struct other other = other_start("n", (struct bid_options){.delay_ms = 20}, SAID_GRANTED);
    kit_ask(&watch, &c, "n", local_inspect_watch, 0);
    kit_ask(&shown, &c, "n", local_inspect_show, 0);
    assert_int_equal(shown.holders, 1);
    assert_false(shown.claims[0].ghost);
    other_kill(&other);
    kit_until_changes(&watch, 1);
    kit_ask(&shown, &c, "n", local_inspect_show, 0);
    assert_true(shown.holders == 0 || shown.claims[0].pid != other.pid);
    local_inspect_unwatch(c.engine, &watch.query);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, three_open, three_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_show_tells_who),
        TEST(test_show_leaves_the_dead_out),
        TEST(test_list_is_in_byte_order),
        TEST(test_a_break_is_told_and_fenced),
        TEST(test_a_holder_is_told_before_its_place_is_given_away),
        TEST(test_release_after_a_break_is_lost),
        TEST(test_a_break_takes_all_readers_and_ghosts),
        TEST(test_every_change_is_reported),
        TEST(test_a_death_is_reported),
    };
    return cmocka_run_group_tests_name("local_inspect", tests, NULL, NULL);
}
