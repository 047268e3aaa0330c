/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names by the hundred thousand: taken in turn, held at once, left behind by a process that ends
 * without a word. Idle names cost nothing, what was left is no damage, and the room is given back.
 * Ten million in turn and a million at once under STILE_SOAK=1. */
#include "fault/local_place_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_FILE (9 << 20)

static unsigned n_in_turn(void)
{
    return kit_is_soak() ? 10000000 : 600000;
}

static unsigned n_at_once(void)
{
    return kit_is_soak() ? 1000000 : 60000;
}

static struct bid *bid_number(struct party *party, unsigned i, struct bid_options options)
{
    char name[32];
    snprintf(name, sizeof name, "order:%u", i);
    return kit_bid_with(party, name, options);
}

static off_t bytes_on_disk(void)
{
    struct stat st;
    char path[128];
    place_path(path, "state");
    assert_int_equal(stat(path, &st), 0);
    return st.st_blocks * 512;
}

/* The highest token it was given, for the parent to compare with. */
static uint64_t *highest;

static void note(const struct bid *bid)
{
    *highest = *highest < bid->token ? bid->token : *highest;
}

static void use_in_turn(struct party *party, unsigned n, struct bid_options options)
{
    for (unsigned i = 0; i < n; i++) {
        struct bid *bid = bid_number(party, i, options);
        kit_take(bid);
        note(bid);
        kit_release(bid);
        kit_bid_free(bid);
    }
}

static int end_after_names_in_turn(void)
{
    struct party party;
    kit_open(&party, dir);
    use_in_turn(&party, n_in_turn(), (struct bid_options){0});
    return bytes_on_disk() > SMALL_FILE ? 101 : 0;
}

static int end_while_many_are_held(void)
{
    struct party party;
    kit_open(&party, dir);
    for (unsigned i = 0; i < n_at_once(); i++) {
        struct bid *bid = bid_number(&party, i, (struct bid_options){0});
        kit_take(bid);
        note(bid);
    }
    return bytes_on_disk() > SMALL_FILE ? 0 : 101;
}

static int end_while_many_are_kept(void)
{
    struct party party;
    kit_open(&party, dir);
    for (unsigned i = 0; i < n_at_once(); i++)
        kit_take(bid_number(&party, i, (struct bid_options){.hold_ms = i % 2 ? 3600000 : 0}));
    return 0;
}

static void expect_a_larger_token(struct party *party, unsigned i)
{
    struct bid *bid = bid_number(party, i, (struct bid_options){0});
    kit_take(bid);
    assert_true(bid->token > *highest);
    kit_release(bid);
    kit_bid_free(bid);
}

/* As a timer does otherwise. */
static void give_back(struct party *party)
{
    while (local_table_trim(kit_store(party)))
        ;
    while (local_table_give_back(kit_store(party)))
        ;
    assert_true(bytes_on_disk() <= SMALL_FILE);
}

/* Transactions begun so far, as the journal counts them. */
static uint32_t n_transactions(void)
{
    char path[128];
    uint64_t word = 0;
    place_path(path, "state");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &word, sizeof word, AT_JOURNAL * CELL_BYTES), sizeof word);
    close(fd);
    return (uint32_t)(word >> 32);
}

/* However much was left: no room is freed, which takes the kernel long, and few transactions. */
static void open_cheaply(struct party *party)
{
    off_t bytes = bytes_on_disk();
    uint32_t before = n_transactions();
    kit_open(party, dir);
    assert_true(bytes_on_disk() >= bytes);
    assert_true(n_transactions() - before < 20);
}

static void expect_as_new(void)
{
    struct party party;
    open_cheaply(&party);
    give_back(&party);
    expect_a_larger_token(&party, 0);
    expect_a_larger_token(&party, n_at_once() - 1);
    kit_check(kit_store(&party));
    kit_close(&party);
}

/* ---- tests ---- */

static int set_up(void **state)
{
    *highest = 0;
    return place_make(state);
}

static void test_names_in_turn_leave_nothing(void **state)
{
    (void)state;
    child_expect(end_after_names_in_turn, STILE_OK);
    expect_as_new();
}

static void test_many_held_by_the_dead(void **state)
{
    (void)state;
    child_expect(end_while_many_are_held, STILE_OK);
    expect_as_new();
}

/* Nobody stays for long enough to give the room back, as with commands that take no time. */
static void test_room_is_given_back_by_short_visits(void **state)
{
    struct party party;
    struct stat st;
    char path[128];
    (void)state;
    child_expect(end_while_many_are_held, STILE_OK);
    unsigned most = (unsigned)(bytes_on_disk() / (off_t)GIVE_BACK_STEP + 2) * 64;
    for (unsigned i = 0; i < most && bytes_on_disk() > (off_t)STATE_BYTES_FIRST; i++) {
        off_t before = bytes_on_disk();
        kit_open(&party, dir);
        assert_true(before - bytes_on_disk() <= (off_t)GIVE_BACK_STEP);
        kit_close(&party);
    }
    place_path(path, "state");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, STATE_BYTES_FIRST);
}

/* Those that are kept are, the others are free. */
static void test_many_kept_after_the_dead(void **state)
{
    struct party party;
    (void)state;
    child_expect(end_while_many_are_kept, STILE_OK);
    for (int round = 0; round < 2; round++) {
        open_cheaply(&party);
        for (unsigned i = 0; i < 200; i++) {
            unsigned number = (unsigned)(kit_random() % n_at_once());
            struct bid *bid = bid_number(&party, number, (struct bid_options){0});
            assert_int_equal(kit_try(bid), number % 2 ? SAID_BUSY : SAID_GRANTED);
            kit_release(bid);
            kit_bid_free(bid);
        }
        kit_close(&party);
    }
}

/* No claim comes to these names again. */
static void test_many_of_the_dead_are_cleared_away(void **state)
{
    struct party party;
    struct stile_error err;
    bool found;
    (void)state;
    child_expect(end_while_many_are_kept, STILE_OK);
    open_cheaply(&party);
    const struct ledger_cell *ledger = &kit_store(&party)->cells[AT_LEDGER].ledger;
    uint64_t now_ns = local_now(kit_local(&party)) + 2 * 3600 * NS_PER_SEC; /* holds are over */
    assert_true(ledger->n_names > n_at_once() - EDITS_FOR_SWEEPS);
    for (uint32_t i = 0; ledger->n_names > 0; i++) { /* as a timer does otherwise */
        assert_true(i < n_at_once());
        assert_status(local_load_tidy(kit_local(&party)->env, &found, EDITS_FOR_SWEEPS,
                                      now_ns + i * NS_PER_SEC, &err),
                      OK);
    }
    assert_int_equal(ledger->n_kept, 0);
    kit_check(kit_store(&party));
    kit_close(&party);
    expect_as_new();
}

/* While another process keeps the directory open, so that it is never started afresh. */
static void test_many_released_beside_others(void **state)
{
    struct party other, party;
    unsigned n = n_at_once();
    struct bid **bids = calloc(n, sizeof *bids);
    (void)state;
    assert_non_null(bids);
    kit_open(&other, dir);
    struct bid *kept = kit_bid(&other, "kept all the time");
    kit_take(kept);
    kit_open(&party, dir);
    for (unsigned i = 0; i < n; i++)
        kit_take(bids[i] = bid_number(&party, i, (struct bid_options){0}));
    assert_true(bytes_on_disk() > SMALL_FILE);
    for (unsigned i = 0; i < n; i++) {
        kit_release(bids[i]);
        kit_bid_free(bids[i]);
    }
    kit_check(kit_store(&party));
    give_back(&party);
    assert_true(kit_store(&party)->cells[AT_LEDGER].ledger.n_used <= KEPT_CELLS + 1);
    free(bids);
    kit_close(&party);
    kit_release(kept);
    kit_bid_free(kept);
    kit_close(&other);
}

/* A hold that is over is forgotten with its name, though nobody asks for that name again. */
static void test_holds_that_are_over_do_not_pile_up(void **state)
{
    struct party party;
    (void)state;
    kit_open(&party, dir);
    use_in_turn(&party, 3 * n_at_once(), (struct bid_options){.hold_ms = 1});
    assert_true(kit_store(&party)->cells[AT_LEDGER].ledger.n_names < n_at_once());
    kit_check(kit_store(&party));
    kit_close(&party);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names_in_turn_leave_nothing),
        TEST(test_many_held_by_the_dead),
        TEST(test_room_is_given_back_by_short_visits),
        TEST(test_many_kept_after_the_dead),
        TEST(test_many_released_beside_others),
        TEST(test_holds_that_are_over_do_not_pile_up),
        TEST(test_many_of_the_dead_are_cleared_away),
    };
    highest = child_shared(sizeof *highest);
    return cmocka_run_group_tests_name("local_many", tests, NULL, NULL);
}
