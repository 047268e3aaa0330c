/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions on the state file: all or nothing, whatever happens to the process that has begun
 * one. */
#include "unit/local_table_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

static uint32_t last_claim;

/* Something that touches many cells: a new name, claims in a queue, a release, a session that goes.
 */
static void busy_change(struct tx *tx)
{
    struct wakeups wakeups;
    wakeups_init(&wakeups);
    uint32_t name =
        user_open_name(tx, "another name that is longer than a cell of text can be, I think");
    struct claim_request one = {.session = 8, .id = 1}, two = {.session = 9, .id = 2};
    uint32_t first = local_queue_enter(tx, name, &one, 2 * NS_PER_SEC, &wakeups);
    local_queue_enter(tx, name, &two, 2 * NS_PER_SEC, &wakeups);
    local_queue_leave(tx, first, LEAVE_RELEASED, 3 * NS_PER_SEC, &wakeups);
    local_sessions_drop(tx, 7);
    local_observers_add(tx, 9, 3, name);
}

/* Leaves the table as a transaction does that dies after its n-th edit. */
static uint32_t die_after_edits(struct user *user, void (*change)(struct tx *tx), uint32_t n)
{
    struct tx tx;
    user_begin(&tx, user);
    struct store *store = &user->store;
    change(&tx);
    uint32_t made = tx.n_edits;
    assert_true(tx_is_ok(&tx));
    /* Back to how it stood after n edits: the later cells get their old content again. */
    for (uint32_t i = made; i-- > n;) {
        uint32_t index = (uint32_t)store->cells[AT_TAGS].words[i];
        store->cells[index] = store->cells[AT_BEFORE + i];
    }
    uint64_t sequence = tx.sequence;
    uint32_t check = ((uint32_t)sequence ^ n << 16 ^ n) * UINT32_C(0x9e3779b1);
    store->cells[AT_JOURNAL].journal.word = sequence << 32 | (check >> 16) << 16 | n;
    user_die(user);
    return made;
}

/* So many names that the next to go is forgotten at once, and room at the end given back. */
static void fill_up(struct user *user)
{
    for (uint32_t i = 0; user->store.cells[AT_LEDGER].ledger.n_used < KEPT_CELLS + 100; i++) {
        struct tx tx;
        struct wakeups wakeups;
        char name[32];
        struct claim_request request = {.session = 7, .id = i + 1};
        wakeups_init(&wakeups);
        snprintf(name, sizeof name, "name %u", i);
        user_begin(&tx, user);
        last_claim =
            local_queue_enter(&tx, user_open_name(&tx, name), &request, NS_PER_SEC, &wakeups);
        user_commit(&tx);
    }
}

static void forgetting_change(struct tx *tx)
{
    uint32_t used = tx_ledger(tx)->n_used, names = tx_ledger(tx)->n_names;
    assert_true(local_queue_leave_quietly(tx, last_claim, false));
    assert_int_equal(tx_ledger(tx)->n_names, names - 1);
    assert_true(tx_ledger(tx)->n_used < used);
}

static void die_and_look(void (*fill)(struct user *user), void (*change)(struct tx *tx))
{
    uint32_t n_edits = 1;
    struct user filled;
    user_make(&filled);
    fill(&filled);
    for (uint32_t n = 0; n <= n_edits; n++) {
        struct user first, second;
        user_copy(&first, &filled);
        user_join(&second, &first);
        union cell *copy = table_copy(&first.store);
        n_edits = die_after_edits(&first, change, n);
        assert_true(n_edits > 4);
        struct tx tx;
        user_begin(&tx, &second);
        local_tx_abort(&tx);
        table_expect_same(&second.store, copy);
        kit_check(&second.store);
        free(copy);
        user_close(&first);
        user_close(&second);
    }
    user_close(&filled);
}

static void test_the_dead_leave_nothing_half_done(void **state)
{
    (void)state;
    die_and_look(user_fill, busy_change);
}

static void test_the_dead_leave_nothing_half_forgotten(void **state)
{
    (void)state;
    die_and_look(fill_up, forgetting_change);
}

/* ---- more and fewer hash chains ---- */

static uint32_t n_taken, *taken;

static void take_next(struct user *user)
{
    struct tx tx;
    struct wakeups wakeups;
    char name[32];
    struct claim_request request = {.session = 7, .id = n_taken + 1};
    wakeups_init(&wakeups);
    snprintf(name, sizeof name, "name %u", n_taken);
    user_begin(&tx, user);
    taken[n_taken++] =
        local_queue_enter(&tx, user_open_name(&tx, name), &request, NS_PER_SEC, &wakeups);
    user_commit(&tx);
}

static void take_first(struct user *user, uint32_t n)
{
    for (n_taken = 0; n_taken < n;)
        take_next(user);
}

/* The next name brings the first segment. */
static void fill_to_the_brim(struct user *user)
{
    static uint32_t n;
    if (!n) {
        take_first(user, BUCKETS);
        while (!user->store.cells[AT_SEGMENTS].segments.first[0])
            take_next(user);
        n = n_taken;
        user_close(user);
        user_make(user);
    }
    take_first(user, n - 1);
}

static void growing_change(struct tx *tx)
{
    uint32_t n_buckets = tx_read(tx, AT_SEGMENTS, CELL_SEGMENTS)->segments.n_buckets;
    assert_int_not_equal(user_open_name(tx, "one more"), 0);
    assert_int_equal(tx_read(tx, AT_SEGMENTS, CELL_SEGMENTS)->segments.n_buckets, n_buckets + 1);
}

/* The next name splits a bucket of several names. */
static void fill_to_a_split(struct user *user)
{
    const struct segments_cell *segments = &user->store.cells[AT_SEGMENTS].segments;
    take_first(user, BUCKETS + 1000);
    for (struct tx tx;;) {
        uint32_t n = 0;
        take_next(user);
        user_begin(&tx, user);
        uint32_t bucket = segments->n_buckets - BUCKETS;
        for (uint32_t i = local_chain_first(&tx, bucket); i; n++)
            i = local_chain_at(&tx, i)->chain;
        user_commit(&tx);
        if (n >= 4 && segments->n_buckets % BUCKETS_PER_CELL != BUCKETS % BUCKETS_PER_CELL)
            return;
    }
}

/* The next trimming joins buckets. */
static void fill_and_empty(struct user *user)
{
    struct tx tx;
    take_first(user, BUCKETS + 400);
    for (uint32_t i = 300; i < n_taken; i++) {
        user_begin(&tx, user);
        assert_true(local_queue_leave_quietly(&tx, taken[i], false));
        user_commit(&tx);
    }
    while (user->store.cells[user->store.cells[AT_LEDGER].ledger.n_used - 1].kind == CELL_FREE)
        assert_true(local_table_trim(&user->store));
}

static void shrinking_change(struct tx *tx)
{
    uint32_t n_used = tx_ledger(tx)->n_used;
    assert_true(local_chain_shrink(tx));
    assert_true(tx_ledger(tx)->n_used < n_used);
    assert_int_equal(tx_read(tx, AT_SEGMENTS, CELL_SEGMENTS)->segments.n_buckets, BUCKETS);
}

static void test_the_dead_leave_no_half_segment(void **state)
{
    (void)state;
    taken = calloc(2 * BUCKETS, sizeof *taken);
    assert_non_null(taken);
    die_and_look(fill_to_the_brim, growing_change);
    die_and_look(fill_to_a_split, growing_change);
    die_and_look(fill_and_empty, shrinking_change);
    free(taken);
}

/* Emptied at once, whatever was in it, and tokens go on above all of them. */
static void test_a_table_starts_over(void **state)
{
    struct user user;
    struct stile_error err;
    (void)state;
    user_make(&user);
    fill_up(&user);
    uint64_t top = user.store.cells[last_claim].claim.token;
    assert_status(local_table_reset(&user.store, &err), OK);
    kit_check(&user.store);
    assert_int_equal(kit_cells_in_use(&user.store), AT_FIRST);
    assert_true(user.store.cells[AT_LEDGER].ledger.floor >= top);
    fill_up(&user);
    kit_check(&user.store);
    assert_true(user.store.cells[last_claim].claim.token > top);
    user_close(&user);
}

/* The sums are written at the end; dying between two of them must not matter either. */
static void test_death_in_the_middle_of_a_commit(void **state)
{
    (void)state;
    struct user first, second;
    user_make(&first);
    user_fill(&first);
    union cell *copy = table_copy(&first.store);
    struct tx tx;
    for (uint32_t n = 0; n < 9; n++) {
        user_join(&second, &first);
        user_begin(&tx, &second);
        busy_change(&tx);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t index = (uint32_t)second.store.cells[AT_TAGS].words[i];
            second.store.cells[index].check = cell_sum(&second.store.cells[index], index);
        }
        user_close(&second);
        user_begin(&tx, &first);
        local_tx_abort(&tx);
        table_expect_same(&first.store, copy);
    }
    free(copy);
    user_close(&first);
}

static void test_a_rollback_can_be_done_twice(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    user_fill(&user);
    union cell *copy = table_copy(&user.store);
    struct tx tx;
    user_begin(&tx, &user);
    busy_change(&tx);
    /* As if a first rollback had been cut off after some cells. */
    for (uint32_t i = tx.n_edits; i-- > tx.n_edits / 2;) {
        uint32_t index = (uint32_t)user.store.cells[AT_TAGS].words[i];
        user.store.cells[index] = user.store.cells[AT_BEFORE + i];
    }
    assert_true(local_store_recover(&user.store));
    table_expect_same(&user.store, copy);
    assert_true(local_store_recover(&user.store));
    table_expect_same(&user.store, copy);
    free(copy);
    user_close(&user);
}

static void test_an_error_undoes_everything(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    user_fill(&user);
    union cell *copy = table_copy(&user.store);
    struct tx tx;
    user_begin(&tx, &user);
    busy_change(&tx);
    local_tx_fail(&tx, STILE_REFUSED, 0, "no more");
    assert_int_equal(tx_read(&tx, AT_LEDGER, CELL_LEDGER)->ledger.n_used, 0);
    tx_edit_ledger(&tx)->floor = 99;
    assert_false(local_tx_commit(&tx));
    table_expect_same(&user.store, copy);
    struct stile_error err;
    assert_status(local_tx_error(&tx, &err), REFUSED);
    free(copy);
    user_close(&user);
}

static void test_a_full_journal_undoes_everything(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    union cell *copy = table_copy(&user.store);
    struct tx tx;
    user_begin(&tx, &user);
    for (int i = 0; i < JOURNAL_MAX + 10; i++)
        local_tx_alloc(&tx, CELL_TEXT);
    assert_false(local_tx_commit(&tx));
    table_expect_same(&user.store, copy);
    free(copy);
    user_close(&user);
}

/* ---- the mutex ---- */

static void test_a_dead_one_does_not_keep_the_gate_shut(void **state)
{
    (void)state;
    struct user first, second;
    user_make(&first);
    user_join(&second, &first);
    struct tx tx;
    user_begin(&tx, &first);
    user_die(&first);
    struct tx other;
    user_begin(&other, &second);
    user_commit(&other);
    user_close(&first);
    user_close(&second);
}

/* A process that is alive and stays inside is reported with its pid, and can continue later. */
static void test_a_stopped_one_is_named(void **state)
{
    (void)state;
    struct user first, second;
    user_make(&first);
    user_join(&second, &first);
    first.store.pid = 4711;
    struct tx tx, other;
    user_begin(&tx, &first);
    user_open_name(&tx, "under way");
    assert_false(local_tx_begin(&other, &second.store));
    struct stile_error err;
    assert_status(local_tx_error(&other, &err), UNREACHABLE);
    assert_non_null(strstr(err.message, "4711"));
    user_commit(&tx);
    user_begin(&other, &second);
    assert_int_not_equal(local_names_find(&other, name_hash("under way", 9), "under way", 9), 0);
    user_commit(&other);
    user_close(&first);
    user_close(&second);
}

/* A flipped bit in the lock's word reads as the lock of a dead process. */
static void test_a_flipped_lock_word_heals(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    for (int bit = 0; bit < 62; bit += 7) {
        struct tx tx;
        user.store.cells[AT_LOCK].lock.word ^= UINT64_C(1) << bit;
        user_begin(&tx, &user);
        user_commit(&tx);
    }
    user_close(&user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_dead_leave_nothing_half_done),
        cmocka_unit_test(test_the_dead_leave_nothing_half_forgotten),
        cmocka_unit_test(test_the_dead_leave_no_half_segment),
        cmocka_unit_test(test_a_table_starts_over),
        cmocka_unit_test(test_death_in_the_middle_of_a_commit),
        cmocka_unit_test(test_a_rollback_can_be_done_twice),
        cmocka_unit_test(test_an_error_undoes_everything),
        cmocka_unit_test(test_a_full_journal_undoes_everything),
        cmocka_unit_test(test_a_dead_one_does_not_keep_the_gate_shut),
        cmocka_unit_test(test_a_stopped_one_is_named),
        cmocka_unit_test(test_a_flipped_lock_word_heals),
    };
    return cmocka_run_group_tests_name("local_store", tests, NULL, NULL);
}
