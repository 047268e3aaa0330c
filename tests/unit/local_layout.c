/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of the state file: no damage to them goes unseen, and they are made, used again and
 * found by the check. */
#include "unit/local_table_kit.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- damage ---- */

static void test_every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    user_fill(&user);
    uint8_t *bytes = (uint8_t *)&user.store.cells[AT_FIRST];
    for (int bit = 0; bit < CELL_BYTES * 8; bit++) {
        struct tx tx;
        user_begin(&tx, &user);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        local_tx_peek(&tx, AT_FIRST);
        assert_status(tx.status, CORRUPT);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        local_tx_abort(&tx);
    }
    user_close(&user);
}

static void test_two_flipped_top_bits_are_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    user_fill(&user);
    union cell *cell = &user.store.cells[AT_FIRST];
    for (int i = 1; i < 8; i++)
        for (int j = i + 1; j < 8; j++) {
            struct tx tx;
            user_begin(&tx, &user);
            cell->words[i] ^= UINT64_C(1) << 63;
            cell->words[j] ^= UINT64_C(1) << 63;
            local_tx_peek(&tx, AT_FIRST);
            assert_status(tx.status, CORRUPT);
            cell->words[i] ^= UINT64_C(1) << 63;
            cell->words[j] ^= UINT64_C(1) << 63;
            local_tx_abort(&tx);
        }
    user_close(&user);
}

static void test_a_cell_in_the_wrong_place_is_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    user_fill(&user);
    struct tx tx;
    user_begin(&tx, &user);
    union cell kept = user.store.cells[AT_FIRST + 1];
    user.store.cells[AT_FIRST + 1] = user.store.cells[AT_FIRST];
    local_tx_peek(&tx, AT_FIRST + 1);
    assert_status(tx.status, CORRUPT);
    user.store.cells[AT_FIRST + 1] = kept;
    local_tx_abort(&tx);
    user_close(&user);
}

static void test_an_index_beyond_the_end_is_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    const uint32_t far[] = {STATE_BYTES_FIRST / CELL_BYTES, STATE_CELLS_MAX, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        struct tx tx;
        user_begin(&tx, &user);
        tx_read(&tx, far[i], CELL_NAME);
        assert_status(tx.status, CORRUPT);
        local_tx_abort(&tx);
    }
    user_close(&user);
}

static void test_a_flipped_journal_word_is_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    user_fill(&user);
    uint64_t *word = &user.store.cells[AT_JOURNAL].journal.word;
    for (int bit = 0; bit < 64; bit++) {
        struct tx tx;
        *word ^= UINT64_C(1) << bit;
        assert_false(local_tx_begin(&tx, &user.store));
        assert_status(tx.status, CORRUPT);
        *word ^= UINT64_C(1) << bit;
    }
    kit_check(&user.store);
    user_close(&user);
}

/* Entries of an earlier transaction must not come back with a forged count. */
static void test_old_journal_entries_stay_dead(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    user_fill(&user);
    uint64_t *word = &user.store.cells[AT_JOURNAL].journal.word, sequence = *word >> 32;
    uint32_t check = ((uint32_t)sequence ^ 1u << 16 ^ 1u) * UINT32_C(0x9e3779b1);
    uint64_t kept = *word;
    *word = sequence << 32 | (check >> 16) << 16 | 1;
    struct tx tx;
    assert_false(local_tx_begin(&tx, &user.store));
    assert_status(tx.status, CORRUPT);
    *word = kept;
    user_close(&user);
}

/* With right sums all along: a list that leads back to itself has to end. */
static void test_a_list_in_a_circle_ends(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    struct tx tx;
    user_begin(&tx, &user);
    uint32_t one = local_text_store(&tx, "x", 1);
    tx_edit(&tx, one, CELL_TEXT)->text.next = one;
    user_commit(&tx);
    user_begin(&tx, &user);
    uint32_t index = one;
    while (index)
        index = tx_read(&tx, index, CELL_TEXT)->text.next;
    assert_status(tx.status, CORRUPT);
    local_tx_abort(&tx);
    user_begin(&tx, &user);
    local_text_free(&tx, one);
    assert_false(local_tx_commit(&tx));
    user_close(&user);
}

/* ---- room ---- */

static void take_cells(struct user *user, uint32_t n)
{
    while (n > 0) {
        struct tx tx;
        user_begin(&tx, user);
        for (int i = 0; i < 200 && n > 0; i++, n--)
            assert_int_not_equal(local_tx_alloc(&tx, CELL_TEXT), 0);
        user_commit(&tx);
    }
}

static void test_the_file_grows_under_everybody(void **state)
{
    (void)state;
    struct user first, second;
    struct stat st;
    user_make(&first);
    user_join(&second, &first);
    take_cells(&first, 3 * STATE_BYTES_FIRST / CELL_BYTES);
    assert_int_equal(fstat(first.store.fd, &st), 0);
    assert_int_equal(st.st_size, 4 * STATE_BYTES_FIRST);
    struct tx tx;
    user_begin(&tx, &second);
    uint32_t last = tx_ledger(&tx)->n_used - 1;
    assert_int_equal(tx_read(&tx, last, CELL_TEXT)->kind, CELL_TEXT);
    user_commit(&tx);
    user_close(&first);
    user_close(&second);
}

/* RLIMIT_FSIZE stands for a full disk; the signal that goes with it must not come. */
static void test_no_room_to_grow_is_refused(void **state)
{
    (void)state;
    struct user user;
    struct rlimit kept, tight = {.rlim_cur = STATE_BYTES_FIRST, .rlim_max = RLIM_INFINITY};
    user_make(&user);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
    tight.rlim_max = kept.rlim_max;
    uint32_t left = STATE_BYTES_FIRST / CELL_BYTES - AT_FIRST;
    take_cells(&user, left - 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    union cell *copy = table_copy(&user.store);
    struct tx tx;
    user_begin(&tx, &user);
    user_open_name(&tx, "this needs two cells");
    bool done = local_tx_commit(&tx);
    struct stile_error err;
    enum stile_status status = local_tx_error(&tx, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
    assert_false(done);
    assert_status(status, REFUSED);
    table_expect_same(&user.store, copy);
    user_begin(&tx, &user);
    assert_int_not_equal(user_open_name(&tx, "this needs two cells"), 0);
    user_commit(&tx);
    free(copy);
    user_close(&user);
}

static void test_freed_cells_are_used_again(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    struct tx tx;
    user_begin(&tx, &user);
    uint32_t one = local_tx_alloc(&tx, CELL_TEXT), two = local_tx_alloc(&tx, CELL_TEXT);
    assert_int_not_equal(one, two);
    user_commit(&tx);
    uint32_t used = user.store.cells[AT_LEDGER].ledger.n_used;
    user_begin(&tx, &user);
    local_tx_free(&tx, one, CELL_TEXT);
    local_tx_free(&tx, two, CELL_TEXT);
    user_commit(&tx);
    kit_check(&user.store);
    user_begin(&tx, &user);
    assert_int_equal(local_tx_alloc(&tx, CELL_TEXT), two);
    assert_int_equal(local_tx_alloc(&tx, CELL_TEXT), one);
    user_commit(&tx);
    assert_int_equal(user.store.cells[AT_LEDGER].ledger.n_used, used);
    user_close(&user);
}

static void test_a_lost_cell_is_found_by_the_check(void **state)
{
    (void)state;
    struct user user;
    struct stile_error err;
    bool in_use;
    user_make(&user);
    take_cells(&user, 1);
    assert_status(local_check_all(&user.store, &in_use, &err), CORRUPT);
    user_close(&user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_flipped_bit_is_noticed),
        cmocka_unit_test(test_two_flipped_top_bits_are_noticed),
        cmocka_unit_test(test_a_cell_in_the_wrong_place_is_noticed),
        cmocka_unit_test(test_an_index_beyond_the_end_is_noticed),
        cmocka_unit_test(test_a_flipped_journal_word_is_noticed),
        cmocka_unit_test(test_old_journal_entries_stay_dead),
        cmocka_unit_test(test_a_list_in_a_circle_ends),
        cmocka_unit_test(test_the_file_grows_under_everybody),
        cmocka_unit_test(test_no_room_to_grow_is_refused),
        cmocka_unit_test(test_freed_cells_are_used_again),
        cmocka_unit_test(test_a_lost_cell_is_found_by_the_check),
    };
    return cmocka_run_group_tests_name("local_cells", tests, NULL, NULL);
}
