/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The number of hash chains follows the number of names, and no name is lost on the way. Kills in
 * the middle of it are in unit-local-store and fault-local-kill. */
#include "unit/local_table_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/name.h"

#define MANY (BUCKETS * 5 / 2)

static struct user user;

static int make(void **state)
{
    (void)state;
    user_make(&user);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    user_close(&user);
    return 0;
}

static const struct ledger_cell *ledger(void)
{
    return &user.store.cells[AT_LEDGER].ledger;
}

static const struct segments_cell *segments(void)
{
    return &user.store.cells[AT_SEGMENTS].segments;
}

/* The claim that holds the name. */
static uint32_t take(uint32_t i)
{
    struct tx tx;
    struct wakeups wakeups;
    char name[32];
    struct claim_request request = {.session = 7, .id = i + 1};
    wakeups_init(&wakeups);
    snprintf(name, sizeof name, "name %u", i);
    user_begin(&tx, &user);
    uint32_t claim =
        local_queue_enter(&tx, user_open_name(&tx, name), &request, NS_PER_SEC, &wakeups);
    user_commit(&tx);
    assert_true(claim_is_held(&user.store.cells[claim].claim)); /* of a second name it would wait */
    return claim;
}

static uint32_t find(uint32_t i)
{
    struct tx tx;
    char name[32];
    snprintf(name, sizeof name, "name %u", i);
    user_begin(&tx, &user);
    uint32_t found = local_names_find(&tx, name_hash(name, strlen(name)), name, strlen(name));
    user_commit(&tx);
    return found;
}

static void give(uint32_t claim)
{
    struct tx tx;
    user_begin(&tx, &user);
    assert_true(local_queue_leave_quietly(&tx, claim, false));
    user_commit(&tx);
}

static void tidy(void)
{
    while (local_table_trim(&user.store))
        ;
}

/* From the first to before the end, those of the other parity having been given. */
static void expect_names(uint32_t n, bool odd_ones)
{
    for (uint32_t i = 0; i < n; i++)
        if (odd_ones || i % 2 == 0)
            assert_int_not_equal(find(i), 0);
    kit_check(&user.store);
}

static void test_chains_come_and_go_with_the_names(void **state)
{
    (void)state;
    uint32_t *claims = calloc(MANY, sizeof *claims);
    assert_non_null(claims);
    for (uint32_t i = 0; i < MANY; i++)
        claims[i] = take(i);
    assert_true(segments()->n_buckets > MANY - MANY / 10);
    expect_names(MANY, true);
    for (uint32_t i = 1; i < MANY; i += 2)
        give(claims[i]);
    tidy();
    expect_names(MANY, false);
    for (uint32_t i = 1; i < MANY; i += 2)
        claims[i] = take(i);
    expect_names(MANY, true);
    for (uint32_t i = 0; i < MANY; i++)
        give(claims[i]);
    tidy();
    assert_int_equal(segments()->n_buckets, BUCKETS);
    assert_true(ledger()->n_used <= KEPT_CELLS + 1);
    kit_check(&user.store);
    free(claims);
}

/* Names that are left keep their chains while those around them are joined. */
static void test_those_that_stay_are_found_in_fewer_chains(void **state)
{
    (void)state;
    uint32_t *claims = calloc(MANY, sizeof *claims);
    assert_non_null(claims);
    for (uint32_t i = 0; i < MANY; i++)
        claims[i] = take(i);
    for (uint32_t i = 1000; i < MANY; i++)
        give(claims[i]);
    tidy();
    assert_int_equal(segments()->n_buckets, BUCKETS);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(user.store.cells[claims[i]].claim.name, find(i));
    kit_check(&user.store);
    free(claims);
}

/* A session is found by what a word has of its id, whichever chain that is in. */
static void test_sessions_move_with_the_names(void **state)
{
    (void)state;
    struct tx tx;
    const uint64_t id = UINT64_C(0xabcdef0123456789);
    for (uint64_t i = 0; i < 300; i++) {
        user_begin(&tx, &user);
        assert_true(local_sessions_add(&tx, id + i * 0x1001, 1, 1, "host", "command"));
        user_commit(&tx);
    }
    for (uint32_t i = 0; i < 2 * BUCKETS; i++)
        take(i);
    assert_true(segments()->n_buckets > BUCKETS + BUCKETS / 2);
    user_begin(&tx, &user);
    for (uint64_t i = 0; i < 300; i++)
        assert_true(local_sessions_by_tag(&tx, (id + i * 0x1001) & QUICK_TAG_MASK) ==
                    id + i * 0x1001);
    user_commit(&tx);
    kit_check(&user.store);
}

/* Hashes that a program has chosen: one chain of all of them. No journal has room for its split,
 * so there it ends. */
static void test_a_chain_of_bad_luck_stops_the_growth(void **state)
{
    (void)state;
    struct tx tx;
    char name[32];
    for (uint64_t i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "the same %u", (unsigned)i);
        user_begin(&tx, &user);
        local_names_open(&tx, 0, name, strlen(name), NS_PER_SEC);
        user_commit(&tx);
    }
    for (uint32_t i = 0; i < BUCKETS + 1000; i++)
        take(i);
    assert_int_equal(segments()->n_buckets, BUCKETS);
    for (uint32_t i = 0; i < BUCKETS + 1000; i += 100)
        assert_int_not_equal(find(i), 0);
}

/* Chains get longer instead. The names themselves fit into what the file has. */
static void test_a_full_disk_stops_the_growth(void **state)
{
    (void)state;
    struct rlimit kept, tight = {.rlim_cur = 16 << 20, .rlim_max = RLIM_INFINITY};
    for (uint32_t i = 0; i < BUCKETS; i++)
        take(i);
    struct tx tx; /* all but what a few hundred names need */
    for (uint32_t left; (left = ledger()->n_cells - ledger()->n_used) > 3000;) {
        user_begin(&tx, &user);
        local_tx_take_run(&tx, left - 3000);
        user_commit(&tx);
    }
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
    tight.rlim_cur = (rlim_t)ledger()->n_cells * CELL_BYTES;
    tight.rlim_max = kept.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    for (uint32_t i = BUCKETS; i < BUCKETS + 900; i++)
        take(i);
    assert_int_equal(segments()->n_buckets, BUCKETS);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
    for (uint32_t i = BUCKETS + 900; i < BUCKETS + 2000; i++)
        take(i);
    assert_true(segments()->n_buckets > BUCKETS);
    for (uint32_t i = 0; i < BUCKETS + 2000; i++)
        assert_int_not_equal(find(i), 0);
}

/* As it is when the last process has died: all of it goes in one step. */
static void test_a_table_that_starts_over_has_the_first_chains(void **state)
{
    (void)state;
    struct stile_error err;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 2 * BUCKETS; i++)
            take(i);
        assert_true(segments()->n_buckets > BUCKETS);
        kit_check(&user.store);
        assert_status(local_table_reset(&user.store, &err), OK);
        assert_int_equal(segments()->n_buckets, BUCKETS);
        assert_int_equal(find(1), 0);
        kit_check(&user.store);
    }
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chains_come_and_go_with_the_names),
        TEST(test_those_that_stay_are_found_in_fewer_chains),
        TEST(test_sessions_move_with_the_names),
        TEST(test_a_chain_of_bad_luck_stops_the_growth),
        TEST(test_a_full_disk_stops_the_growth),
        TEST(test_a_table_that_starts_over_has_the_first_chains),
    };
    return cmocka_run_group_tests_name("local_chains", tests, NULL, NULL);
}
