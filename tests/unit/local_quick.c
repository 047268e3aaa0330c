/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are taken and given by their word (quick.h): what other claims, queries and damage
 * make of it. Kills are in fault-local-kill. */
#include "unit/local_three.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/name.h"

/* ---- reaching that state ---- */

static bool is_quick(const struct bid *bid)
{
    return local_claim_of(bid->claim)->watcher.quick != 0;
}

static void take_and_give(struct bid *bid)
{
    kit_take(bid);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    assert_status(bid->error.status, OK);
}

/* The second release opens the name, the third claim finds the block of its tokens. */
static void warm_up(struct bid *bid)
{
    for (int i = 0; i < 3; i++)
        take_and_give(bid);
}

static void take_by_word(struct bid *bid)
{
    kit_take(bid);
    assert_true(is_quick(bid));
}

static struct quick *slot_of(struct bid *bid)
{
    return quick_slot(kit_store(bid->party), local_claim_of(bid->claim)->name);
}

static uint64_t transactions(void)
{
    return kit_store(&a)->cells[AT_JOURNAL].journal.word;
}

/* ---- taking and giving ---- */

static void test_no_transaction_is_needed(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    warm_up(bid);
    uint64_t token = bid->token, before = transactions();
    for (int i = 0; i < 100; i++) {
        take_by_word(bid);
        assert_true(bid->token == ++token);
        assert_int_equal(kit_release(bid), SAID_RELEASED);
        assert_status(bid->error.status, OK);
    }
    assert_true(transactions() == before);
    kit_bid_free(bid);
}

/* A command that takes a lock once must not use up a block of tokens. */
static void test_one_use_opens_nothing(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    take_and_give(one);
    take_and_give(two);
    assert_true(two->token == one->token + 1);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_tokens_grow_from_block_to_block(void **state)
{
    (void)state;
    struct bid *bids[] = {kit_bid(&a, "n"), kit_bid(&b, "n"), kit_bid(&a, "n")};
    uint64_t token = 0, quick = 0;
    for (unsigned i = 0; i < 4 * QUICK_BLOCK; i++) {
        struct bid *bid = bids[kit_random() % 3];
        kit_take(bid);
        assert_true(bid->token > token);
        assert_true(kit_store(&a)->cells[AT_LOCK].lock.top >= bid->token);
        token = bid->token;
        quick += is_quick(bid);
        assert_int_equal(kit_release(bid), SAID_RELEASED);
    }
    assert_true(quick > 3 * QUICK_BLOCK);
    for (int i = 0; i < 3; i++)
        kit_bid_free(bids[i]);
}

/* A transaction that is undone, or whose process is killed, has opened nothing. */
static void test_a_name_is_open_once_that_is_committed(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    struct store *store = kit_store(&a);
    warm_up(one);
    take_by_word(one);
    assert_int_equal(kit_try(two), SAID_BUSY);
    kit_wait(two);
    kit_release(one);
    kit_until(two, SAID_GRANTED);
    uint32_t name = local_claim_of(one->claim)->name;
    struct tx tx;
    assert_true(local_tx_begin(&tx, store));
    local_quick_open(&tx, name);
    uint64_t token = two->token;
    assert_false(quick_take(store, name, &token, kit_local(&a)->id, 1));
    local_tx_abort(&tx);
    assert_false(quick_take(store, name, &token, kit_local(&a)->id, 1));
    assert_int_equal(kit_try(one), SAID_BUSY);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* ---- other claims ---- */

static void test_others_wait_and_are_served(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n"), *three = kit_bid(&a, "n");
    warm_up(one);
    take_by_word(one);
    assert_int_equal(kit_try(three), SAID_BUSY); /* of the same session */
    assert_int_equal(kit_try(two), SAID_BUSY);
    assert_int_equal(kit_wait(two), SAID_NOTHING);
    kit_settle();
    assert_int_equal(two->said, SAID_NOTHING);
    assert_int_equal(one->said, SAID_GRANTED);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_status(one->error.status, OK);
    kit_until(two, SAID_GRANTED);
    assert_true(two->token == one->token + 1);
    assert_int_equal(kit_try(one), SAID_BUSY);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(three);
}

static void excludes(struct bid_options options)
{
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid_with(&b, "n", options);
    warm_up(one);
    take_by_word(one);
    assert_int_equal(kit_try(two), SAID_BUSY);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_take(two);
    assert_true(two->token > one->token && !is_quick(two));
    assert_int_equal(kit_try(one), SAID_BUSY);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_wait(one);
    kit_until(one, SAID_GRANTED);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_it_excludes_all_kinds(void **state)
{
    (void)state;
    excludes((struct bid_options){.mode = STILE_SHARED});
    excludes((struct bid_options){.mode = STILE_SLOTS, .slots = 2});
    excludes((struct bid_options){.hold_ms = 1});
    excludes((struct bid_options){.delay_ms = 1});
}

/* ---- handles that have lost their name ---- */

static void forget_idle_names(void)
{
    uint64_t now_ns = local_now(kit_local(&a));
    for (int round = 0; round < 2;
         round++) { /* what was used since it was opened stays once more */
        now_ns += (FORGET_AFTER_S + 1) * NS_PER_SEC;
        for (int i = 0; i < BUCKET_CELLS; i++) {
            struct tx tx;
            assert_true(local_tx_begin(&tx, kit_store(&a)));
            local_names_sweep(&tx, 1, EDITS_FOR_SWEEPS, now_ns, NULL);
            assert_true(local_tx_commit(&tx));
        }
    }
}

/* The cell belongs to another name now: the handle must not take that one's lock. */
static void test_a_forgotten_name_takes_no_other(void **state)
{
    (void)state;
    struct bid *old = kit_bid(&a, "old"), *new = kit_bid(&b, "new");
    warm_up(old);
    uint32_t cell = local_claim_of(old->claim)->name;
    forget_idle_names();
    warm_up(new);
    assert_int_equal(local_claim_of(new->claim)->name, cell);
    kit_take(old);
    take_by_word(new); /* still free */
    assert_int_equal(kit_release(old), SAID_RELEASED);
    kit_take(old);
    assert_int_not_equal(local_claim_of(old->claim)->name, cell);
    assert_int_equal(kit_release(old), SAID_RELEASED);
    assert_int_equal(kit_release(new), SAID_RELEASED);
    kit_bid_free(old);
    kit_bid_free(new);
}

static void test_a_used_name_is_not_forgotten(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    warm_up(bid);
    take_by_word(bid);
    forget_idle_names();
    struct bid *other = kit_bid(&b, "n");
    assert_int_equal(kit_try(other), SAID_BUSY);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    assert_status(bid->error.status, OK);
    kit_take(other);
    assert_int_equal(kit_release(other), SAID_RELEASED);
    kit_bid_free(bid);
    kit_bid_free(other);
}

/* ---- names that share a word ---- */

static uint32_t cell_of(struct bid *bid)
{
    return local_claim_of(bid->claim)->name;
}

/* Takes up the cells before that one. They go with the file. */
static void use_cells_until(uint32_t end)
{
    struct tx tx;
    struct store *store = kit_store(&a);
    assert_true(local_tx_begin(&tx, store));
    while (tx_ledger(&tx)->first_free)
        local_tx_alloc(&tx, CELL_TEXT);
    assert_int_not_equal(local_tx_take_run(&tx, end - tx_ledger(&tx)->n_used), 0);
    union cell *last = local_tx_unused_cell(&tx, end - 1);
    assert_non_null(last);
    last->kind = CELL_TEXT;
    last->check = cell_sum(last, end - 1);
    assert_true(local_tx_commit(&tx));
}

/* Two names whose cells have the same word; neither has been used. */
static void make_sharers(struct bid **one, struct bid **two)
{
    *one = kit_bid(&a, "one");
    *two = kit_bid(&b, "two");
    take_and_give(*one);
    use_cells_until(cell_of(*one) + QUICK_SLOTS);
    take_and_give(*two);
    assert_int_equal(cell_of(*two), cell_of(*one) + QUICK_SLOTS);
    assert_ptr_equal(slot_of(*one), slot_of(*two));
}

static void free_sharers(struct bid *one, struct bid *two)
{
    struct stile_error err;
    kit_bid_free(one);
    kit_bid_free(two);
    assert_status(local_table_reset(kit_store(&a), &err), OK); /* the cells without an owner */
}

static void excludes_others(struct bid *holder, const char *name)
{
    struct bid *other = kit_bid(&c, name);
    assert_int_equal(kit_try(other), SAID_BUSY);
    assert_int_equal(kit_release(holder), SAID_RELEASED);
    assert_status(holder->error.status, OK);
    kit_take(other);
    assert_int_equal(kit_release(other), SAID_RELEASED);
    kit_bid_free(other);
}

/* The first of them has it, until it is closed. */
static void test_an_open_name_keeps_its_word(void **state)
{
    (void)state;
    struct bid *one, *two;
    make_sharers(&one, &two);
    warm_up(one);
    take_by_word(one);
    uint64_t word = slot_of(one)->word;
    for (int i = 0; i < 3; i++) {
        kit_take(two);
        assert_false(is_quick(two));
        assert_int_equal(kit_release(two), SAID_RELEASED);
    }
    assert_true(slot_of(one)->word == word);
    excludes_others(one, "one");
    warm_up(two);
    take_by_word(two);
    for (int i = 0; i < 3; i++) {
        take_and_give(one);
        assert_false(is_quick(one));
    }
    excludes_others(two, "two");
    warm_up(one);
    take_by_word(one);
    excludes_others(one, "one");
    free_sharers(one, two);
}

/* Tokens that were granted by transactions may be in a block that the other name has opened. */
static void test_a_block_of_the_other_name_is_not_ones_own(void **state)
{
    (void)state;
    struct bid *one, *two;
    struct tx tx;
    make_sharers(&one, &two);
    warm_up(one);
    take_and_give(one);
    uint64_t word = slot_of(one)->word;
    kit_take(two);
    assert_true(local_tx_begin(&tx, kit_store(&b)));
    tx_edit_name(&tx, cell_of(two))->token = one->token + 10;
    assert_true(local_tx_commit(&tx));
    assert_int_equal(kit_release(two), SAID_RELEASED);
    for (int i = 0; i < 5; i++) {
        kit_take(two);
        assert_false(is_quick(two));
        assert_true(slot_of(one)->word == word);
        assert_int_equal(kit_release(two), SAID_RELEASED);
    }
    take_by_word(one);
    excludes_others(one, "one");
    warm_up(two); /* the word is its own now, in a block of its own */
    take_by_word(two);
    assert_true(two->token / QUICK_BLOCK > one->token / QUICK_BLOCK);
    kit_take(one);
    assert_false(is_quick(one));
    excludes_others(one, "one");
    excludes_others(two, "two");
    free_sharers(one, two);
}

/* A block that grants by transactions have run into may be the other name's. */
static void test_a_block_that_was_run_into_is_not_ones_own(void **state)
{
    (void)state;
    struct bid *one, *two, *waiter;
    struct tx tx;
    make_sharers(&one, &two);
    waiter = kit_bid(&c, "one");
    warm_up(one);
    take_by_word(one);
    excludes_others(one, "one"); /* closed, with tokens in its block */
    warm_up(two);                /* the next block */
    take_and_give(two);
    kit_take(one);
    assert_int_equal(kit_wait(waiter), SAID_NOTHING); /* keeps it closed */
    assert_true(local_tx_begin(&tx, kit_store(&a)));
    tx_edit_name(&tx, cell_of(one))->token |= QUICK_BLOCK - 1;
    assert_true(local_tx_commit(&tx));
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_until(waiter, SAID_GRANTED);
    assert_true(waiter->token / QUICK_BLOCK == two->token / QUICK_BLOCK);
    assert_int_equal(kit_release(waiter), SAID_RELEASED);
    take_by_word(two);
    for (int i = 0; i < 3; i++) {
        kit_take(one);
        assert_false(is_quick(one));
        assert_int_equal(kit_release(one), SAID_RELEASED);
    }
    excludes_others(two, "two");
    for (int i = 0; i < 3; i++)
        take_and_give(one);
    take_by_word(one);
    assert_true(one->token / QUICK_BLOCK > two->token / QUICK_BLOCK);
    excludes_others(one, "one");
    kit_bid_free(waiter);
    free_sharers(one, two);
}

/* A name in a cell far up is not kept for ever: it goes once it is idle, and the room with it. */
static void test_an_idle_name_far_up_goes(void **state)
{
    (void)state;
    struct bid *one, *two;
    make_sharers(&one, &two);
    warm_up(two);
    take_by_word(two);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    uint32_t cell = cell_of(two);
    assert_int_equal(kit_store(&a)->cells[cell].kind, CELL_NAME);
    forget_idle_names();
    assert_int_not_equal(kit_store(&a)->cells[cell].kind, CELL_NAME);
    take_and_give(two);
    free_sharers(one, two);
}

static bool opens(struct bid *bid, enum stile_status *status)
{
    struct tx tx;
    assert_true(local_tx_begin(&tx, kit_store(bid->party)));
    bool opened = local_quick_open(&tx, cell_of(bid));
    *status = tx.status;
    local_tx_abort(&tx);
    return opened;
}

static void test_no_flipped_bit_of_a_mark_gives_the_word_away(void **state)
{
    (void)state;
    struct bid *one, *two;
    enum stile_status status;
    make_sharers(&one, &two);
    warm_up(one);
    take_by_word(one);
    kit_take(two);
    assert_false(opens(two, &status));
    assert_status(status, OK);
    uint64_t *mark =
        (uint64_t *)&kit_store(&a)->cells[AT_QUICK_MARKS] + (cell_of(one) - AT_FIRST) % QUICK_SLOTS;
    for (int bit = 0; bit < 64; bit++) {
        *mark ^= UINT64_C(1) << bit;
        assert_false(opens(two, &status));
        assert_status(status, CORRUPT);
        *mark ^= UINT64_C(1) << bit;
    }
    assert_int_equal(kit_release(two), SAID_RELEASED);
    excludes_others(one, "one");
    free_sharers(one, two);
}

/* ---- queries ---- */

static void test_show_and_list_see_the_holder(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *bid = kit_bid(&a, "n");
    warm_up(bid);
    kit_ask(&answer, &b, "", local_inspect_list, 0);
    assert_int_equal(answer.n_infos, 0);
    take_by_word(bid);
    for (int i = 0; i < 2; i++) {
        kit_ask(&answer, &b, i ? "n" : "", i ? local_inspect_show : local_inspect_list, 0);
        assert_int_equal(answer.n_infos, 1);
        assert_int_equal(answer.holders, 1);
        assert_int_equal(answer.waiters, 0);
        assert_true(answer.token == bid->token && answer.claims[0].token == bid->token);
        assert_int_equal(answer.claims[0].pid, getpid());
        assert_true(answer.claims[0].age_ms < KIT_PATIENCE_MS);
        assert_string_equal(answer.command[0], "a test");
    }
    uint64_t before = transactions();
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    assert_true(transactions() == before); /* asking has not closed it */
    kit_bid_free(bid);
}

static void test_break_takes_it_away(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *one = kit_bid(&a, "n"), *again = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    warm_up(one);
    warm_up(again);
    warm_up(one);
    take_by_word(one);
    kit_ask(&answer, &b, "n", local_inspect_break, one->token + 1);
    assert_status(answer.error.status, CONFLICT);
    assert_int_equal(one->said, SAID_GRANTED);
    kit_ask(&answer, &b, "n", local_inspect_break, one->token);
    assert_status(answer.error.status, OK);
    kit_take(again); /* before the loser has been told */
    assert_true(again->token > one->token);
    kit_until(one, SAID_LOST);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_int_equal(kit_try(two), SAID_BUSY);
    assert_int_equal(kit_release(again), SAID_RELEASED);
    assert_status(again->error.status, OK);
    take_and_give(two);
    kit_bid_free(one);
    kit_bid_free(again);
    kit_bid_free(two);
}

/* Broken, and released before the wake-up arrives. */
static void test_a_late_release_takes_nothing_from_the_next(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n"), *three = kit_bid(&c, "n");
    warm_up(two);
    warm_up(one);
    take_by_word(one);
    kit_ask(&answer, &b, "n", local_inspect_break, 0);
    kit_take(two);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_status(one->error.status, LOST);
    assert_int_equal(kit_try(three), SAID_BUSY);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    assert_status(two->error.status, OK);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(three);
}

static void test_a_watch_sees_every_change(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *bid = kit_bid(&a, "n");
    warm_up(bid);
    take_by_word(bid);
    kit_ask(&answer, &b, "n", local_inspect_watch, 0);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    kit_until_changes(&answer, 1);
    for (unsigned i = 0; i < 3; i++) {
        unsigned seen = answer.n_changes;
        take_and_give(bid);
        assert_false(is_quick(bid));
        kit_until_changes(&answer, seen + 1);
    }
    local_inspect_unwatch(b.engine, &answer.query);
    kit_bid_free(bid);
}

/* ---- damage ---- */

/* Each bit of the word in turn: no second holder. */
static void test_every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++) {
        struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
        warm_up(two);
        warm_up(one);
        if (held)
            take_by_word(one);
        uint64_t *word = &slot_of(one)->word;
        for (int bit = 0; bit < 64; bit++) {
            *word ^= UINT64_C(1) << bit;
            assert_int_equal(kit_try(two), SAID_FAILED);
            assert_status(two->error.status, CORRUPT);
            *word ^= UINT64_C(1) << bit;
        }
        if (held)
            assert_int_equal(kit_release(one), SAID_RELEASED);
        take_and_give(two);
        kit_bid_free(one);
        kit_bid_free(two);
    }
}

/* ---- sessions ---- */

/* Two sessions with one tag: the words of both would have the same holder. */
static void test_only_the_first_of_a_tag_takes_words(void **state)
{
    (void)state;
    struct tx tx;
    uint64_t id = kit_local(&a)->id ^ UINT64_C(1) << 40;
    assert_true(local_tx_begin(&tx, kit_store(&a)));
    assert_false(local_sessions_add(&tx, id, 1, 1, "host", "command"));
    assert_true(local_sessions_by_tag(&tx, id & QUICK_TAG_MASK) == kit_local(&a)->id);
    assert_int_not_equal(local_sessions_find(&tx, id), 0);
    local_tx_abort(&tx);
}

/* A word of a session that has been cleared away is free. */
static void test_a_word_of_a_vanished_session(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    warm_up(one);
    uint64_t token = one->token + 1;
    struct quick *quick = slot_of(one);
    quick->word = quick_held(token, kit_local(&a)->id ^ kit_local(&b)->id);
    kit_take(two);
    assert_true(two->token == token + 1);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* ---- starting afresh ---- */

static void test_tokens_grow_after_all_have_left(void **state)
{
    (void)state;
    char other[64];
    uint64_t token = 0;
    kit_make_dir(other);
    for (int i = 0; i < 5; i++) {
        struct party party;
        kit_open(&party, other);
        struct bid *bid = kit_bid(&party, "n");
        for (int j = 0; j < 10; j++) {
            kit_take(bid);
            assert_true(bid->token > token);
            token = bid->token;
            kit_release(bid);
        }
        kit_take(bid);
        assert_true(is_quick(bid));
        token = bid->token;
        kit_release(bid);
        kit_bid_free(bid);
        kit_close(&party);
    }
    kit_remove_dir(other);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, three_open, three_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_no_transaction_is_needed),
        TEST(test_one_use_opens_nothing),
        TEST(test_tokens_grow_from_block_to_block),
        TEST(test_a_name_is_open_once_that_is_committed),
        TEST(test_others_wait_and_are_served),
        TEST(test_it_excludes_all_kinds),
        TEST(test_a_forgotten_name_takes_no_other),
        TEST(test_a_used_name_is_not_forgotten),
        TEST(test_an_open_name_keeps_its_word),
        TEST(test_a_block_of_the_other_name_is_not_ones_own),
        TEST(test_a_block_that_was_run_into_is_not_ones_own),
        TEST(test_an_idle_name_far_up_goes),
        TEST(test_no_flipped_bit_of_a_mark_gives_the_word_away),
        TEST(test_show_and_list_see_the_holder),
        TEST(test_break_takes_it_away),
        TEST(test_a_late_release_takes_nothing_from_the_next),
        TEST(test_a_watch_sees_every_change),
        TEST(test_every_flipped_bit_is_noticed),
        TEST(test_only_the_first_of_a_tag_takes_words),
        TEST(test_a_word_of_a_vanished_session),
        TEST(test_tokens_grow_after_all_have_left),
    };
    return cmocka_run_group_tests_name("local_quick", tests, NULL, NULL);
}
