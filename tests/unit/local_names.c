/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names and their tokens in the table: thousands of them, forgotten ones, and the floor below which
 * no token comes back; and their observers. */
#include "unit/local_queue_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

/* ---- names ---- */

static void test_twenty_thousand_names(void **state)
{
    (void)state;
    char name[32];
    for (uint32_t i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "name %u", i);
        table_enter(name, 1, STILE_EXCLUSIVE, 0);
    }
    assert_int_equal(user.store.cells[AT_LEDGER].ledger.n_names, 20000);
    for (uint32_t i = 0; i < 20000; i++) {
        char text[NAME_TEXT_MAX + 1];
        snprintf(name, sizeof name, "name %u", i);
        table_begin();
        local_names_text(&tx, text, tx_name(&tx, table_find_name(name)));
        table_commit();
        assert_string_equal(text, name);
    }
}

static void test_names_of_every_length(void **state)
{
    (void)state;
    char name[STILE_NAME_MAX + 1], text[NAME_TEXT_MAX + 1];
    memset(name, 'x', sizeof name);
    for (size_t len = 1; len <= STILE_NAME_MAX; len++) {
        table_begin();
        assert_int_not_equal(local_names_open(&tx, name_hash(name, len), name, len, START_NS), 0);
        table_commit();
    }
    for (size_t len = 1; len <= STILE_NAME_MAX; len++) {
        table_begin();
        uint32_t found = local_names_find(&tx, name_hash(name, len), name, len);
        local_names_text(&tx, text, tx_name(&tx, found));
        table_commit();
        assert_int_equal(strlen(text), len);
    }
}

/* LESSONS row 22: a hash only leads to a name; the bytes make it. */
static void test_the_same_hash_is_not_the_same_name(void **state)
{
    (void)state;
    const char *a = "one", *b = "two";
    table_begin();
    uint32_t first = local_names_open(&tx, name_hash(a, 3), a, 3, START_NS);
    assert_int_equal(local_names_find(&tx, name_hash(a, 3), b, 3), 0);
    assert_int_not_equal(local_names_open(&tx, name_hash(a, 3), b, 3, START_NS), first);
    local_tx_abort(&tx);
}

static void sweep_all(uint64_t now_ns)
{
    for (uint32_t i = 0; i < BUCKETS; i += 64) {
        table_begin();
        local_names_sweep(&tx, 64, EDITS_FOR_SWEEPS, now_ns, NULL);
        table_commit();
    }
}

static void test_idle_names_are_forgotten(void **state)
{
    (void)state;
    uint32_t before = kit_cells_in_use(&user.store);
    uint32_t held = table_enter("held", 1, STILE_EXCLUSIVE, 0);
    table_leave(table_enter("idle", 1, STILE_EXCLUSIVE, 0), LEAVE_RELEASED);
    sweep_all(START_NS + FORGET_AFTER_S * NS_PER_SEC);
    table_begin();
    assert_int_not_equal(table_find_name("idle"), 0); /* not yet */
    table_commit();
    sweep_all(START_NS + (FORGET_AFTER_S + 1) * NS_PER_SEC);
    table_begin();
    assert_int_equal(table_find_name("idle"), 0);
    assert_int_not_equal(table_find_name("held"), 0);
    table_commit();
    assert_int_equal(kit_cells_in_use(&user.store), before + 3);
    table_leave(held, LEAVE_RELEASED);
    sweep_all(START_NS + 2 * (FORGET_AFTER_S + 1) * NS_PER_SEC);
    assert_int_equal(kit_cells_in_use(&user.store), before);
}

/* With names that come and go for ever, the file stays as small as what is in use. */
static void test_new_names_push_out_idle_ones(void **state)
{
    (void)state;
    char name[32];
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t now_ns = START_NS + i * NS_PER_SEC;
        snprintf(name, sizeof name, "name %u", i);
        table_begin();
        local_names_open(&tx, name_hash(name, strlen(name)), name, strlen(name), now_ns);
        table_commit();
    }
    assert_true(user.store.cells[AT_LEDGER].ledger.n_names < 20000);
    assert_true(user.store.cells[AT_LEDGER].ledger.n_used < AT_FIRST + 49000);
}

/* ---- tokens ---- */

static uint64_t token_of(const char *name)
{
    uint32_t claim = table_enter(name, 1, STILE_EXCLUSIVE, 0);
    uint64_t token = table_claim(claim)->token;
    table_leave(claim, LEAVE_RELEASED);
    return token;
}

static void test_tokens_start_at_one_and_grow(void **state)
{
    (void)state;
    assert_int_equal(token_of("a"), 1);
    assert_int_equal(token_of("a"), 2);
    assert_int_equal(token_of("b"), 1);
    uint32_t r1 = table_enter("a", 1, STILE_SHARED, 0), r2 = table_enter("a", 2, STILE_SHARED, 0);
    assert_int_equal(table_claim(r1)->token, 3);
    assert_int_equal(table_claim(r2)->token, 4); /* each grant has its own */
    table_leave(r1, LEAVE_RELEASED);
    table_leave(r2, LEAVE_BROKEN);
    assert_int_equal(token_of("a"), 5);
}

static void test_a_forgotten_name_does_not_forget_its_token(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        token_of("a");
    sweep_all(START_NS + (FORGET_AFTER_S + 1) * NS_PER_SEC);
    table_begin();
    assert_int_equal(table_find_name("a"), 0);
    table_commit();
    assert_int_equal(token_of("a"), 11);
}

static void set_token(const char *name, uint64_t token)
{
    table_begin();
    tx_edit_name(&tx, table_open_name(name))->token = token;
    table_commit();
}

static void test_the_next_epoch_is_durable_first(void **state)
{
    (void)state;
    set_token("a", 0xfffffffe);
    assert_int_equal(token_of("a"), 0xffffffff);
    assert_int_equal(user.epoch_calls, 0);
    assert_true(token_of("a") == UINT64_C(0x100000000));
    assert_int_equal(user.epoch_calls, 1);
    assert_int_equal(user.store.cells[AT_LEDGER].ledger.epoch, 1);
    assert_true(token_of("a") == UINT64_C(0x100000001));
    set_token("b", 0xffffffff);
    assert_true(token_of("b") == UINT64_C(0x100000000));
    assert_int_equal(user.epoch_calls, 1); /* it is durable already */
}

static void test_no_grant_without_a_durable_epoch(void **state)
{
    (void)state;
    set_token("a", 0xffffffff);
    user.epoch_fails = true;
    union cell *copy = table_copy(&user.store);
    struct claim_request request = {.session = 1, .id = 1};
    table_begin();
    local_queue_enter(&tx, table_open_name("a"), &request, START_NS, &wakeups);
    assert_false(local_tx_commit(&tx));
    assert_status(tx.status, REFUSED);
    table_expect_same(&user.store, copy);
    free(copy);
}

/* A release must not fail because the next one can't be given a token. */
static void test_a_release_without_a_token_for_the_next(void **state)
{
    (void)state;
    set_token("a", 0xfffffffe);
    user.epoch_fails = true;
    uint32_t a = table_enter("a", 1, STILE_EXCLUSIVE, 0),
             b = table_enter("a", 2, STILE_EXCLUSIVE, 0);
    assert_int_equal(table_claim(a)->token, 0xffffffff);
    table_leave(a, LEAVE_RELEASED);
    assert_false(table_is_held(b));
    user.epoch_fails = false;
    table_begin();
    local_queue_settle(&tx, table_find_name("a"), START_NS, &wakeups);
    table_commit();
    assert_true(table_is_held(b));
    table_leave(b, LEAVE_RELEASED);
}

/* ---- observers ---- */

static void test_observers_hear_of_their_name(void **state)
{
    (void)state;
    table_begin();
    uint32_t observer = local_observers_add(&tx, 50, 5, table_open_name("a"));
    local_observers_add(&tx, 51, 6, table_open_name("b"));
    table_commit();
    uint32_t a = table_enter("a", 1, STILE_EXCLUSIVE, 0);
    assert_true(table_was_woken(50) && !table_was_woken(51));
    uint32_t b = table_enter("a", 2, STILE_EXCLUSIVE, 0);
    assert_true(table_was_woken(50));
    table_begin();
    assert_false(local_queue_leave_quietly(&tx, b, false));
    local_tx_abort(&tx);
    table_leave(b, LEAVE_RELEASED);
    assert_true(table_was_woken(50));
    table_leave(a, LEAVE_RELEASED);
    assert_true(table_was_woken(50));
    table_begin();
    local_observers_drop(&tx, observer, 50, 4); /* another's */
    table_commit();
    assert_int_equal(user.store.cells[AT_LEDGER].ledger.n_observers, 2);
    table_begin();
    local_observers_drop(&tx, observer, 50, 5);
    table_commit();
    table_leave(table_enter("a", 1, STILE_EXCLUSIVE, 0), LEAVE_RELEASED);
    assert_false(table_was_woken(50));
}

/* What somebody watches is not forgotten, however idle. */
static void test_a_watched_name_stays(void **state)
{
    (void)state;
    table_begin();
    uint32_t observer = local_observers_add(&tx, 50, 5, table_open_name("a"));
    table_commit();
    sweep_all(START_NS + (FORGET_AFTER_S + 1) * NS_PER_SEC);
    table_enter("a", 1, STILE_EXCLUSIVE, 0);
    assert_true(table_was_woken(50));
    table_begin();
    local_observers_drop(&tx, observer, 50, 5);
    table_commit();
}

/* Taken again and again, a lock doesn't touch what other names need. */
static void test_a_name_keeps_a_cell_for_its_next_claim(void **state)
{
    (void)state;
    table_leave(table_enter("a", 1, STILE_EXCLUSIVE, 0), LEAVE_RELEASED);
    union cell before = user.store.cells[AT_LEDGER];
    uint32_t a = table_enter("a", 1, STILE_EXCLUSIVE, 0);
    assert_memory_equal(&user.store.cells[AT_LEDGER], &before, CELL_BYTES);
    uint32_t b = table_enter("a", 2, STILE_EXCLUSIVE, 0);
    assert_int_not_equal(a, b);
    table_leave(a, LEAVE_RELEASED);
    table_leave(b, LEAVE_RELEASED);
    table_begin();
    assert_null(local_queue_claim_of(&tx, a, 1, 1)); /* no longer held */
    table_commit();
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, table_set_up, table_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_twenty_thousand_names),
        TEST(test_names_of_every_length),
        TEST(test_the_same_hash_is_not_the_same_name),
        TEST(test_idle_names_are_forgotten),
        TEST(test_new_names_push_out_idle_ones),
        TEST(test_tokens_start_at_one_and_grow),
        TEST(test_a_forgotten_name_does_not_forget_its_token),
        TEST(test_the_next_epoch_is_durable_first),
        TEST(test_no_grant_without_a_durable_epoch),
        TEST(test_a_release_without_a_token_for_the_next),
        TEST(test_observers_hear_of_their_name),
        TEST(test_a_watched_name_stays),
        TEST(test_a_name_keeps_a_cell_for_its_next_claim),
    };
    return cmocka_run_group_tests_name("local_names", tests, NULL, NULL);
}
