/* Names, queues and the rule, without sockets or deaths: the table believes what it is told. */
#include "unit/local_table_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/name.h"

#define START_NS (1000 * NS_PER_SEC)

static struct user user;
static struct tx tx;
static struct pokes pokes;

static void begin(void)
{
    assert_true(tx_begin(&tx, &user.store));
    pokes_init(&pokes);
}

static void commit(void)
{
    struct stile_error err = {0};
    if (!tx_commit(&tx)) {
        tx_error(&tx, &err);
        fail_msg("%s", err.message);
    }
}

static int set_up(void **state)
{
    (void)state;
    user_make(&user);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kit_check(&user.store);
    user_close(&user);
    return 0;
}

static uint32_t open_name(const char *name)
{
    return names_open(&tx, name_hash(name, strlen(name)), name, strlen(name), START_NS);
}

static uint32_t find_name(const char *name)
{
    return names_find(&tx, name_hash(name, strlen(name)), name, strlen(name));
}

static uint32_t enter(const char *name, uint64_t session, enum stile_mode mode, uint32_t slots)
{
    struct wish wish = {.session = session, .id = (uint32_t)session, .mode = mode, .slots = slots};
    begin();
    uint32_t claim = queue_enter(&tx, open_name(name), &wish, START_NS, &pokes);
    commit();
    return claim;
}

static void leave(uint32_t claim, enum leave_how how)
{
    begin();
    queue_leave(&tx, claim, how, START_NS, &pokes);
    commit();
}

static const struct claim_cell *claim_at(uint32_t index)
{
    return &user.store.cells[index].claim;
}

static bool is_held(uint32_t index)
{
    return claim_is_held(claim_at(index));
}

static bool was_poked(uint64_t session)
{
    for (uint32_t i = pokes.head; i != pokes.tail; i++)
        if (pokes.ring[i % POKES_MAX].session == session)
            return true;
    return false;
}

static uint32_t n_poked(void)
{
    return pokes.tail - pokes.head;
}

/* ---- the rule ---- */

static void test_exclusive_is_one_at_a_time_in_order(void **state)
{
    (void)state;
    uint32_t a = enter("n", 1, STILE_EXCLUSIVE, 0), b = enter("n", 2, STILE_EXCLUSIVE, 0),
             c = enter("n", 3, STILE_EXCLUSIVE, 0);
    assert_true(is_held(a) && !is_held(b) && !is_held(c));
    leave(a, LEAVE_RELEASED);
    assert_true(is_held(b) && !is_held(c));
    /* One is woken, and nobody else: the third one watches the second already. */
    assert_int_equal(n_poked(), 1);
    assert_true(was_poked(2));
    leave(b, LEAVE_RELEASED);
    assert_true(is_held(c));
    leave(c, LEAVE_RELEASED);
    assert_int_equal(n_poked(), 0);
}

/* LESSONS row 12: a reader waits only for earlier writers, a writer for all before it. */
static void test_readers_and_writers(void **state)
{
    (void)state;
    uint32_t r1 = enter("n", 1, STILE_SHARED, 0), r2 = enter("n", 2, STILE_SHARED, 0);
    uint32_t w = enter("n", 3, STILE_EXCLUSIVE, 0), r3 = enter("n", 4, STILE_SHARED, 0);
    assert_true(is_held(r1) && is_held(r2) && !is_held(w) && !is_held(r3));
    leave(r2, LEAVE_RELEASED);
    assert_int_equal(n_poked(), 0); /* the writer watches the first reader */
    leave(r1, LEAVE_RELEASED);
    assert_true(is_held(w) && !is_held(r3));
    leave(w, LEAVE_RELEASED);
    assert_true(is_held(r3));
    leave(r3, LEAVE_RELEASED);
}

static void test_a_writer_that_withdraws_lets_readers_in(void **state)
{
    (void)state;
    uint32_t r1 = enter("n", 1, STILE_SHARED, 0), w1 = enter("n", 2, STILE_EXCLUSIVE, 0);
    uint32_t r2 = enter("n", 3, STILE_SHARED, 0), w2 = enter("n", 4, STILE_EXCLUSIVE, 0);
    leave(w1, LEAVE_RELEASED);
    assert_true(is_held(r1) && is_held(r2) && !is_held(w2));
    assert_true(was_poked(3));
    assert_true(was_poked(4)); /* it is the first in line now, and watches somebody else */
    leave(r1, LEAVE_RELEASED);
    leave(r2, LEAVE_RELEASED);
    assert_true(is_held(w2));
    leave(w2, LEAVE_RELEASED);
}

static void test_slots_are_so_many_and_no_more(void **state)
{
    (void)state;
    uint32_t s[5];
    for (uint32_t i = 0; i < 5; i++)
        s[i] = enter("n", i + 1, STILE_SLOTS, 3);
    assert_true(is_held(s[0]) && is_held(s[1]) && is_held(s[2]));
    assert_false(is_held(s[3]) || is_held(s[4]));
    leave(s[1], LEAVE_RELEASED);
    assert_true(is_held(s[3]) && !is_held(s[4]));
    leave(s[4], LEAVE_RELEASED);
    leave(s[0], LEAVE_DEAD);
    leave(s[2], LEAVE_DEAD);
    leave(s[3], LEAVE_DEAD);
}

static void test_who_stands_behind_a_leaver_is_told(void **state)
{
    (void)state;
    uint32_t a = enter("n", 1, STILE_EXCLUSIVE, 0), b = enter("n", 2, STILE_EXCLUSIVE, 0),
             c = enter("n", 3, STILE_EXCLUSIVE, 0);
    leave(b, LEAVE_RELEASED);
    assert_true(was_poked(3));
    assert_int_equal(n_poked(), 1);
    leave(c, LEAVE_RELEASED);
    leave(a, LEAVE_RELEASED);
}

static void test_a_thousand_readers_come_in_by_and_by(void **state)
{
    (void)state;
    uint32_t w = enter("n", 1, STILE_EXCLUSIVE, 0), r[1000];
    for (uint32_t i = 0; i < 1000; i++)
        r[i] = enter("n", i + 2, STILE_SHARED, 0);
    leave(w, LEAVE_RELEASED);
    assert_true(is_held(r[0]) && !is_held(r[999]));
    /* Each transaction tells of some; who is told goes on. */
    for (int i = 0; i < 20 && !is_held(r[999]); i++) {
        assert_true(n_poked() > 0);
        begin();
        queue_settle(&tx, find_name("n"), START_NS, &pokes);
        commit();
    }
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(is_held(r[i]));
        leave(r[i], LEAVE_RELEASED);
    }
}

static void test_a_name_has_a_limit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CLAIMS_PER_NAME_MAX; i++)
        enter("n", i + 1, STILE_EXCLUSIVE, 0);
    struct wish wish = {.session = 70000, .id = 1};
    begin();
    assert_int_equal(queue_enter(&tx, open_name("n"), &wish, START_NS, &pokes), 0);
    assert_false(tx_commit(&tx));
    assert_status(tx.status, REFUSED);
}

/* ---- holds and delays ---- */

static uint32_t enter_held(uint64_t session, uint32_t hold_ms, uint32_t delay_ms)
{
    struct wish wish = {
        .session = session, .id = (uint32_t)session, .hold_ms = hold_ms, .delay_ms = delay_ms};
    begin();
    uint32_t claim = queue_enter(&tx, open_name("n"), &wish, START_NS, &pokes);
    commit();
    return claim;
}

static void settle_at(uint64_t ms)
{
    begin();
    queue_settle(&tx, find_name("n"), START_NS + ms * NS_PER_MS, &pokes);
    commit();
}

static void test_a_hold_keeps_the_place_of_who_released(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 100, 0), b = enter("n", 2, STILE_EXCLUSIVE, 0);
    leave(a, LEAVE_RELEASED);
    assert_int_equal(claim_at(a)->state, CLAIM_GHOST);
    assert_false(is_held(b));
    assert_true(was_poked(2)); /* it has a time to wait for now */
    struct sight sight;
    begin();
    queue_sight(&tx, b, &sight);
    commit();
    assert_int_equal(sight.n, 0);
    assert_true(sight.ghost_end_ns == START_NS + 100 * NS_PER_MS);
    settle_at(99);
    assert_false(is_held(b));
    settle_at(100);
    assert_true(is_held(b));
    leave(b, LEAVE_RELEASED);
}

static void test_a_delay_follows_a_death_only(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 0, 100), b = enter_held(2, 0, 100);
    leave(a, LEAVE_RELEASED);
    assert_true(is_held(b));
    uint32_t c = enter("n", 3, STILE_EXCLUSIVE, 0);
    leave(b, LEAVE_DEAD);
    assert_false(is_held(c));
    settle_at(100);
    assert_true(is_held(c));
    leave(c, LEAVE_RELEASED);
}

static void test_the_longer_of_hold_and_delay_counts(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 50, 100);
    leave(a, LEAVE_DEAD);
    assert_true(claim_at(a)->until_ns == START_NS + 100 * NS_PER_MS);
    settle_at(100);
    a = enter_held(1, 150, 100);
    leave(a, LEAVE_DEAD);
    assert_true(claim_at(a)->until_ns == START_NS + 150 * NS_PER_MS);
    settle_at(150);
}

static void test_a_break_keeps_nothing(void **state)
{
    (void)state;
    uint32_t a = enter_held(1, 100, 100), b = enter("n", 2, STILE_EXCLUSIVE, 0);
    leave(a, LEAVE_BROKEN);
    assert_true(is_held(b));
    leave(b, LEAVE_RELEASED);
}

static void test_a_waiter_that_dies_leaves_nothing(void **state)
{
    (void)state;
    uint32_t a = enter("n", 1, STILE_EXCLUSIVE, 0), b = enter_held(2, 100, 100);
    uint32_t c = enter("n", 3, STILE_EXCLUSIVE, 0);
    leave(b, LEAVE_DEAD);
    leave(a, LEAVE_RELEASED);
    assert_true(is_held(c));
    leave(c, LEAVE_RELEASED);
}

/* Everybody is dead: what had to be kept stays, and nobody else. */
static void test_the_end_of_everybody(void **state)
{
    (void)state;
    uint32_t before = kit_cells_in_use(&user.store);
    uint32_t a = enter_held(1, 100, 0);
    enter("n", 2, STILE_EXCLUSIVE, 0);
    enter("other", 1, STILE_SHARED, 0);
    enter("other", 2, STILE_SHARED, 0);
    enter("other", 3, STILE_EXCLUSIVE, 0);
    begin();
    sessions_add(&tx, 1, START_NS, "host", "command");
    observers_add(&tx, 1, 9, open_name("n"));
    commit();
    struct stile_error err;
    assert_status(table_bury_all(&user.store, START_NS, &err), OK);
    kit_check(&user.store);
    assert_int_equal(claim_at(a)->state, CLAIM_GHOST);
    /* Two names with a cell of text and one for the next claim each, and the ghost. */
    assert_int_equal(kit_cells_in_use(&user.store), before + 7);
    assert_status(table_bury_all(&user.store, START_NS + NS_PER_SEC, &err), OK);
    assert_int_equal(kit_cells_in_use(&user.store), before + 6);
}

/* ---- who is watched ---- */

static void expect_sight(uint32_t claim, uint32_t n, uint64_t first)
{
    struct sight sight;
    begin();
    queue_sight(&tx, claim, &sight);
    commit();
    assert_int_equal(sight.n, n);
    if (n)
        assert_true(sight.sessions[0] == first);
}

static void test_each_watches_who_concerns_it(void **state)
{
    (void)state;
    uint32_t r1 = enter("n", 1, STILE_SHARED, 0), r2 = enter("n", 2, STILE_SHARED, 0);
    uint32_t w1 = enter("n", 3, STILE_EXCLUSIVE, 0), w2 = enter("n", 4, STILE_EXCLUSIVE, 0);
    expect_sight(w1, 1, 1); /* all holders have to go; the first will do */
    expect_sight(w2, 1, 3);
    leave(r1, LEAVE_DEAD);
    assert_true(was_poked(3));
    expect_sight(w1, 1, 2);
    leave(w1, LEAVE_RELEASED);
    assert_true(was_poked(4));
    expect_sight(w2, 1, 2);
    leave(w2, LEAVE_RELEASED);
    leave(r2, LEAVE_RELEASED);
    uint32_t s[100];
    for (uint32_t i = 0; i < 100; i++)
        s[i] = enter("slots", 1 + i % 80, STILE_SLOTS, 99);
    struct sight sight;
    begin();
    queue_sight(&tx, s[99], &sight);
    commit();
    assert_int_equal(sight.n, SIGHT_MAX); /* any of them may go first */
    assert_true(sight.more);
}

static void test_the_dead_before_a_waiter_are_cleared_away(void **state)
{
    (void)state;
    uint32_t a = enter("n", 1, STILE_EXCLUSIVE, 0);
    enter("n", 2, STILE_EXCLUSIVE, 0);
    enter("n", 2, STILE_EXCLUSIVE, 0);
    uint32_t d = enter("n", 3, STILE_EXCLUSIVE, 0);
    begin();
    queue_reap(&tx, d, 2, START_NS, &pokes);
    commit();
    expect_sight(d, 1, 1);
    begin();
    queue_reap(&tx, d, 1, START_NS, &pokes);
    commit();
    assert_true(is_held(d));
    (void)a;
    leave(d, LEAVE_RELEASED);
}

/* With a dead holder goes a ghost whose time is over, which stood next to it in the list. */
static void test_a_dead_holder_beside_an_old_ghost(void **state)
{
    (void)state;
    uint32_t s[4];
    for (uint32_t i = 0; i < 4; i++) {
        struct wish wish = {.session = i % 2 ? i : 9,
                            .id = i + 1,
                            .mode = STILE_SLOTS,
                            .slots = 4,
                            .hold_ms = i % 2 ? 10 : 0};
        begin();
        s[i] = queue_enter(&tx, open_name("n"), &wish, START_NS, &pokes);
        commit();
    }
    leave(s[1], LEAVE_RELEASED);
    leave(s[3], LEAVE_RELEASED);
    uint32_t waiter = enter("n", 5, STILE_EXCLUSIVE, 0);
    assert_false(is_held(waiter));
    begin();
    queue_reap(&tx, waiter, 9, START_NS + NS_PER_SEC, &pokes);
    commit();
    assert_true(is_held(waiter));
    leave(waiter, LEAVE_RELEASED);
}

/* ---- names ---- */

static void test_twenty_thousand_names(void **state)
{
    (void)state;
    char name[32];
    for (uint32_t i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "name %u", i);
        begin();
        assert_int_not_equal(open_name(name), 0);
        commit();
    }
    assert_int_equal(user.store.cells[AT_LEDGER].ledger.n_names, 20000);
    for (uint32_t i = 0; i < 20000; i++) {
        char text[NAME_TEXT_MAX + 1];
        snprintf(name, sizeof name, "name %u", i);
        begin();
        names_text(&tx, text, tx_name(&tx, find_name(name)));
        commit();
        assert_string_equal(text, name);
    }
}

static void test_names_of_every_length(void **state)
{
    (void)state;
    char name[STILE_NAME_MAX + 1], text[NAME_TEXT_MAX + 1];
    memset(name, 'x', sizeof name);
    for (size_t len = 1; len <= STILE_NAME_MAX; len++) {
        begin();
        assert_int_not_equal(names_open(&tx, name_hash(name, len), name, len, START_NS), 0);
        commit();
    }
    for (size_t len = 1; len <= STILE_NAME_MAX; len++) {
        begin();
        uint32_t found = names_find(&tx, name_hash(name, len), name, len);
        names_text(&tx, text, tx_name(&tx, found));
        commit();
        assert_int_equal(strlen(text), len);
    }
}

/* LESSONS row 22: a hash only leads to a name; the bytes make it. */
static void test_the_same_hash_is_not_the_same_name(void **state)
{
    (void)state;
    const char *a = "one", *b = "two";
    begin();
    uint32_t first = names_open(&tx, name_hash(a, 3), a, 3, START_NS);
    assert_int_equal(names_find(&tx, name_hash(a, 3), b, 3), 0);
    assert_int_not_equal(names_open(&tx, name_hash(a, 3), b, 3, START_NS), first);
    tx_abort(&tx);
}

static void sweep_all(uint64_t now_ns)
{
    for (uint32_t i = 0; i < BUCKETS; i += 64) {
        begin();
        names_sweep(&tx, 64, now_ns, NULL);
        commit();
    }
}

static void test_idle_names_are_forgotten(void **state)
{
    (void)state;
    uint32_t before = kit_cells_in_use(&user.store);
    uint32_t held = enter("held", 1, STILE_EXCLUSIVE, 0);
    leave(enter("idle", 1, STILE_EXCLUSIVE, 0), LEAVE_RELEASED);
    sweep_all(START_NS + FORGET_AFTER_S * NS_PER_SEC);
    begin();
    assert_int_not_equal(find_name("idle"), 0); /* not yet */
    commit();
    sweep_all(START_NS + (FORGET_AFTER_S + 1) * NS_PER_SEC);
    begin();
    assert_int_equal(find_name("idle"), 0);
    assert_int_not_equal(find_name("held"), 0);
    commit();
    assert_int_equal(kit_cells_in_use(&user.store), before + 3);
    leave(held, LEAVE_RELEASED);
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
        begin();
        names_open(&tx, name_hash(name, strlen(name)), name, strlen(name), now_ns);
        commit();
    }
    assert_true(user.store.cells[AT_LEDGER].ledger.n_names < 20000);
    assert_true(user.store.cells[AT_LEDGER].ledger.n_used < 60000);
}

/* ---- tokens ---- */

static uint64_t token_of(const char *name)
{
    uint32_t claim = enter(name, 1, STILE_EXCLUSIVE, 0);
    uint64_t token = claim_at(claim)->token;
    leave(claim, LEAVE_RELEASED);
    return token;
}

static void test_tokens_start_at_one_and_grow(void **state)
{
    (void)state;
    assert_int_equal(token_of("a"), 1);
    assert_int_equal(token_of("a"), 2);
    assert_int_equal(token_of("b"), 1);
    uint32_t r1 = enter("a", 1, STILE_SHARED, 0), r2 = enter("a", 2, STILE_SHARED, 0);
    assert_int_equal(claim_at(r1)->token, 3);
    assert_int_equal(claim_at(r2)->token, 4); /* each grant has its own */
    leave(r1, LEAVE_RELEASED);
    leave(r2, LEAVE_BROKEN);
    assert_int_equal(token_of("a"), 5);
}

static void test_a_forgotten_name_does_not_forget_its_token(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        token_of("a");
    sweep_all(START_NS + (FORGET_AFTER_S + 1) * NS_PER_SEC);
    begin();
    assert_int_equal(find_name("a"), 0);
    commit();
    assert_int_equal(token_of("a"), 11);
}

static void set_token(const char *name, uint64_t token)
{
    begin();
    tx_edit_name(&tx, open_name(name))->token = token;
    commit();
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
    struct wish wish = {.session = 1, .id = 1};
    begin();
    queue_enter(&tx, open_name("a"), &wish, START_NS, &pokes);
    assert_false(tx_commit(&tx));
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
    uint32_t a = enter("a", 1, STILE_EXCLUSIVE, 0), b = enter("a", 2, STILE_EXCLUSIVE, 0);
    assert_int_equal(claim_at(a)->token, 0xffffffff);
    leave(a, LEAVE_RELEASED);
    assert_false(is_held(b));
    user.epoch_fails = false;
    begin();
    queue_settle(&tx, find_name("a"), START_NS, &pokes);
    commit();
    assert_true(is_held(b));
    leave(b, LEAVE_RELEASED);
}

/* ---- observers ---- */

static void test_observers_hear_of_their_name(void **state)
{
    (void)state;
    begin();
    uint32_t observer = observers_add(&tx, 50, 5, open_name("a"));
    observers_add(&tx, 51, 6, open_name("b"));
    commit();
    uint32_t a = enter("a", 1, STILE_EXCLUSIVE, 0);
    assert_true(was_poked(50) && !was_poked(51));
    uint32_t b = enter("a", 2, STILE_EXCLUSIVE, 0);
    assert_true(was_poked(50));
    begin();
    assert_false(queue_leave_quietly(&tx, b));
    tx_abort(&tx);
    leave(b, LEAVE_RELEASED);
    assert_true(was_poked(50));
    leave(a, LEAVE_RELEASED);
    assert_true(was_poked(50));
    begin();
    observers_drop(&tx, observer, 50, 4); /* another's */
    commit();
    assert_int_equal(user.store.cells[AT_LEDGER].ledger.n_observers, 2);
    begin();
    observers_drop(&tx, observer, 50, 5);
    commit();
    leave(enter("a", 1, STILE_EXCLUSIVE, 0), LEAVE_RELEASED);
    assert_false(was_poked(50));
}

/* What somebody watches is not forgotten, however idle. */
static void test_a_watched_name_stays(void **state)
{
    (void)state;
    begin();
    uint32_t observer = observers_add(&tx, 50, 5, open_name("a"));
    commit();
    sweep_all(START_NS + (FORGET_AFTER_S + 1) * NS_PER_SEC);
    enter("a", 1, STILE_EXCLUSIVE, 0);
    assert_true(was_poked(50));
    begin();
    observers_drop(&tx, observer, 50, 5);
    commit();
}

/* Taken again and again, a lock doesn't touch what other names need. */
static void test_a_name_keeps_a_cell_for_its_next_claim(void **state)
{
    (void)state;
    leave(enter("a", 1, STILE_EXCLUSIVE, 0), LEAVE_RELEASED);
    union cell before = user.store.cells[AT_LEDGER];
    uint32_t a = enter("a", 1, STILE_EXCLUSIVE, 0);
    assert_memory_equal(&user.store.cells[AT_LEDGER], &before, CELL_BYTES);
    uint32_t b = enter("a", 2, STILE_EXCLUSIVE, 0);
    assert_int_not_equal(a, b);
    leave(a, LEAVE_RELEASED);
    leave(b, LEAVE_RELEASED);
    begin();
    assert_null(queue_own(&tx, a, 1, 1)); /* nobody's any more */
    commit();
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

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
    return cmocka_run_group_tests_name("local_table", tests, NULL, NULL);
}
