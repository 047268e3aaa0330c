/* Transactions on the state file: all or nothing, whatever happens to who has begun one. */
#include "unit/local_table_kit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/name.h"

static void begin(struct tx *tx, struct user *user)
{
    if (!tx_begin(tx, &user->store)) {
        struct stile_error err = {0};
        tx_error(tx, &err);
        fail_msg("%s", err.message);
    }
}

static void commit(struct tx *tx)
{
    struct stile_error err = {0};
    if (!tx_commit(tx)) {
        tx_error(tx, &err);
        fail_msg("%s", err.message);
    }
}

static uint32_t open_name(struct tx *tx, const char *name)
{
    return names_open(tx, name_hash(name, strlen(name)), name, strlen(name), NS_PER_SEC);
}

static void fill(struct user *user)
{
    struct tx tx;
    struct pokes pokes;
    pokes_init(&pokes);
    begin(&tx, user);
    for (uint32_t i = 0; i < 5; i++) {
        char name[80];
        snprintf(name, sizeof name, "a name that is longer than a cell of text can be, number %u",
                 i);
        struct wish wish = {.session = 7, .id = i + 1};
        queue_enter(&tx, open_name(&tx, name), &wish, NS_PER_SEC, &pokes);
    }
    sessions_add(&tx, 7, 1, "host", "a command");
    commit(&tx);
}

/* Something that touches many cells: a new name, claims in line, a release, a session that goes. */
static void busy_change(struct tx *tx)
{
    struct pokes pokes;
    pokes_init(&pokes);
    uint32_t name =
        open_name(tx, "another name that is longer than a cell of text can be, I think");
    struct wish one = {.session = 8, .id = 1}, two = {.session = 9, .id = 2};
    uint32_t first = queue_enter(tx, name, &one, 2 * NS_PER_SEC, &pokes);
    queue_enter(tx, name, &two, 2 * NS_PER_SEC, &pokes);
    queue_leave(tx, first, LEAVE_RELEASED, 3 * NS_PER_SEC, &pokes);
    sessions_drop(tx, 7);
    observers_add(tx, 9, 3, name);
}

/* Leaves the table as a transaction does that dies after its n-th edit. */
static uint32_t die_after_edits(struct user *user, uint32_t n)
{
    struct tx tx;
    begin(&tx, user);
    struct store *store = &user->store;
    busy_change(&tx);
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

static void test_the_dead_leave_nothing_half_done(void **state)
{
    (void)state;
    uint32_t n_edits = 1;
    for (uint32_t n = 0; n <= n_edits; n++) {
        struct user first, second;
        user_make(&first);
        fill(&first);
        user_join(&second, &first);
        union cell *copy = table_copy(&first.store);
        n_edits = die_after_edits(&first, n);
        assert_true(n_edits > 8);
        struct tx tx;
        begin(&tx, &second);
        tx_abort(&tx);
        table_expect_same(&second.store, copy);
        kit_check(&second.store);
        free(copy);
        user_close(&first);
        user_close(&second);
    }
}

/* The sums are written at the end; dying between two of them must not matter either. */
static void test_death_in_the_middle_of_a_commit(void **state)
{
    (void)state;
    struct user first, second;
    user_make(&first);
    fill(&first);
    union cell *copy = table_copy(&first.store);
    struct tx tx;
    for (uint32_t n = 0; n < 9; n++) {
        user_join(&second, &first);
        begin(&tx, &second);
        busy_change(&tx);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t index = (uint32_t)second.store.cells[AT_TAGS].words[i];
            second.store.cells[index].check = cell_sum(&second.store.cells[index], index);
        }
        user_close(&second);
        begin(&tx, &first);
        tx_abort(&tx);
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
    fill(&user);
    union cell *copy = table_copy(&user.store);
    struct tx tx;
    begin(&tx, &user);
    busy_change(&tx);
    /* As if a first rollback had been cut off after some cells. */
    for (uint32_t i = tx.n_edits; i-- > tx.n_edits / 2;) {
        uint32_t index = (uint32_t)user.store.cells[AT_TAGS].words[i];
        user.store.cells[index] = user.store.cells[AT_BEFORE + i];
    }
    assert_true(store_recover(&user.store));
    table_expect_same(&user.store, copy);
    assert_true(store_recover(&user.store));
    table_expect_same(&user.store, copy);
    free(copy);
    user_close(&user);
}

static void test_an_error_undoes_everything(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    fill(&user);
    union cell *copy = table_copy(&user.store);
    struct tx tx;
    begin(&tx, &user);
    busy_change(&tx);
    tx_fail(&tx, STILE_REFUSED, 0, "no more");
    assert_int_equal(tx_read(&tx, AT_LEDGER, CELL_LEDGER)->ledger.n_used, 0);
    tx_edit_ledger(&tx)->floor = 99;
    assert_false(tx_commit(&tx));
    table_expect_same(&user.store, copy);
    struct stile_error err;
    assert_status(tx_error(&tx, &err), REFUSED);
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
    begin(&tx, &user);
    for (int i = 0; i < JOURNAL_MAX + 10; i++)
        tx_alloc(&tx, CELL_TEXT);
    assert_false(tx_commit(&tx));
    table_expect_same(&user.store, copy);
    free(copy);
    user_close(&user);
}

/* ---- damage ---- */

static void test_every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    fill(&user);
    uint8_t *bytes = (uint8_t *)&user.store.cells[AT_FIRST];
    for (int bit = 0; bit < CELL_BYTES * 8; bit++) {
        struct tx tx;
        begin(&tx, &user);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        tx_peek(&tx, AT_FIRST);
        assert_status(tx.status, CORRUPT);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        tx_abort(&tx);
    }
    user_close(&user);
}

static void test_two_flipped_top_bits_are_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    fill(&user);
    union cell *cell = &user.store.cells[AT_FIRST];
    for (int i = 1; i < 8; i++)
        for (int j = i + 1; j < 8; j++) {
            struct tx tx;
            begin(&tx, &user);
            cell->words[i] ^= UINT64_C(1) << 63;
            cell->words[j] ^= UINT64_C(1) << 63;
            tx_peek(&tx, AT_FIRST);
            assert_status(tx.status, CORRUPT);
            cell->words[i] ^= UINT64_C(1) << 63;
            cell->words[j] ^= UINT64_C(1) << 63;
            tx_abort(&tx);
        }
    user_close(&user);
}

static void test_a_cell_in_the_wrong_place_is_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    fill(&user);
    struct tx tx;
    begin(&tx, &user);
    union cell kept = user.store.cells[AT_FIRST + 1];
    user.store.cells[AT_FIRST + 1] = user.store.cells[AT_FIRST];
    tx_peek(&tx, AT_FIRST + 1);
    assert_status(tx.status, CORRUPT);
    user.store.cells[AT_FIRST + 1] = kept;
    tx_abort(&tx);
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
        begin(&tx, &user);
        tx_read(&tx, far[i], CELL_NAME);
        assert_status(tx.status, CORRUPT);
        tx_abort(&tx);
    }
    user_close(&user);
}

static void test_a_flipped_journal_word_is_noticed(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    fill(&user);
    uint64_t *word = &user.store.cells[AT_JOURNAL].journal.word;
    for (int bit = 0; bit < 64; bit++) {
        struct tx tx;
        *word ^= UINT64_C(1) << bit;
        assert_false(tx_begin(&tx, &user.store));
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
    fill(&user);
    uint64_t *word = &user.store.cells[AT_JOURNAL].journal.word, sequence = *word >> 32;
    uint32_t check = ((uint32_t)sequence ^ 1u << 16 ^ 1u) * UINT32_C(0x9e3779b1);
    uint64_t kept = *word;
    *word = sequence << 32 | (check >> 16) << 16 | 1;
    struct tx tx;
    assert_false(tx_begin(&tx, &user.store));
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
    begin(&tx, &user);
    uint32_t one = text_store(&tx, "x", 1);
    tx_edit(&tx, one, CELL_TEXT)->text.next = one;
    commit(&tx);
    begin(&tx, &user);
    uint32_t index = one;
    while (index)
        index = tx_read(&tx, index, CELL_TEXT)->text.next;
    assert_status(tx.status, CORRUPT);
    tx_abort(&tx);
    begin(&tx, &user);
    text_free(&tx, one);
    assert_false(tx_commit(&tx));
    user_close(&user);
}

/* ---- the gate ---- */

static void test_a_dead_one_does_not_keep_the_gate_shut(void **state)
{
    (void)state;
    struct user first, second;
    user_make(&first);
    user_join(&second, &first);
    struct tx tx;
    begin(&tx, &first);
    user_die(&first);
    struct tx other;
    begin(&other, &second);
    commit(&other);
    user_close(&first);
    user_close(&second);
}

/* It is alive and doesn't come out: said with its pid, and it can go on later. */
static void test_a_stopped_one_is_named(void **state)
{
    (void)state;
    struct user first, second;
    user_make(&first);
    user_join(&second, &first);
    first.store.pid = 4711;
    struct tx tx, other;
    begin(&tx, &first);
    open_name(&tx, "under way");
    assert_false(tx_begin(&other, &second.store));
    struct stile_error err;
    assert_status(tx_error(&other, &err), UNREACHABLE);
    assert_non_null(strstr(err.message, "4711"));
    commit(&tx);
    begin(&other, &second);
    assert_int_not_equal(names_find(&other, name_hash("under way", 9), "under way", 9), 0);
    commit(&other);
    user_close(&first);
    user_close(&second);
}

/* A flipped bit in the lock's word reads as the lock of somebody who doesn't live. */
static void test_a_flipped_lock_word_heals(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    for (int bit = 0; bit < 62; bit += 7) {
        struct tx tx;
        user.store.cells[AT_LOCK].lock.word ^= UINT64_C(1) << bit;
        begin(&tx, &user);
        commit(&tx);
    }
    user_close(&user);
}

/* ---- room ---- */

static void take_cells(struct user *user, uint32_t n)
{
    while (n > 0) {
        struct tx tx;
        begin(&tx, user);
        for (int i = 0; i < 200 && n > 0; i++, n--)
            assert_int_not_equal(tx_alloc(&tx, CELL_TEXT), 0);
        commit(&tx);
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
    begin(&tx, &second);
    uint32_t last = tx_ledger(&tx)->n_used - 1;
    assert_int_equal(tx_read(&tx, last, CELL_TEXT)->kind, CELL_TEXT);
    commit(&tx);
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
    begin(&tx, &user);
    open_name(&tx, "this needs two cells");
    bool done = tx_commit(&tx);
    struct stile_error err;
    enum stile_status status = tx_error(&tx, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
    assert_false(done);
    assert_status(status, REFUSED);
    table_expect_same(&user.store, copy);
    begin(&tx, &user);
    assert_int_not_equal(open_name(&tx, "this needs two cells"), 0);
    commit(&tx);
    free(copy);
    user_close(&user);
}

static void test_freed_cells_are_used_again(void **state)
{
    (void)state;
    struct user user;
    user_make(&user);
    struct tx tx;
    begin(&tx, &user);
    uint32_t one = tx_alloc(&tx, CELL_TEXT), two = tx_alloc(&tx, CELL_TEXT);
    assert_int_not_equal(one, two);
    commit(&tx);
    uint32_t used = user.store.cells[AT_LEDGER].ledger.n_used;
    begin(&tx, &user);
    tx_free(&tx, one, CELL_TEXT);
    tx_free(&tx, two, CELL_TEXT);
    commit(&tx);
    kit_check(&user.store);
    begin(&tx, &user);
    assert_int_equal(tx_alloc(&tx, CELL_TEXT), two);
    assert_int_equal(tx_alloc(&tx, CELL_TEXT), one);
    commit(&tx);
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
    assert_status(check_all(&user.store, &in_use, &err), CORRUPT);
    user_close(&user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_dead_leave_nothing_half_done),
        cmocka_unit_test(test_death_in_the_middle_of_a_commit),
        cmocka_unit_test(test_a_rollback_can_be_done_twice),
        cmocka_unit_test(test_an_error_undoes_everything),
        cmocka_unit_test(test_a_full_journal_undoes_everything),
        cmocka_unit_test(test_every_flipped_bit_is_noticed),
        cmocka_unit_test(test_two_flipped_top_bits_are_noticed),
        cmocka_unit_test(test_a_cell_in_the_wrong_place_is_noticed),
        cmocka_unit_test(test_an_index_beyond_the_end_is_noticed),
        cmocka_unit_test(test_a_flipped_journal_word_is_noticed),
        cmocka_unit_test(test_old_journal_entries_stay_dead),
        cmocka_unit_test(test_a_list_in_a_circle_ends),
        cmocka_unit_test(test_a_dead_one_does_not_keep_the_gate_shut),
        cmocka_unit_test(test_a_stopped_one_is_named),
        cmocka_unit_test(test_a_flipped_lock_word_heals),
        cmocka_unit_test(test_the_file_grows_under_everybody),
        cmocka_unit_test(test_no_room_to_grow_is_refused),
        cmocka_unit_test(test_freed_cells_are_used_again),
        cmocka_unit_test(test_a_lost_cell_is_found_by_the_check),
    };
    return cmocka_run_group_tests_name("local_store", tests, NULL, NULL);
}
