/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The local engine as core sees it: several sessions in one process that take turns and wake one
 * another. */
#include "unit/local_three.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engines/local/liveness.h"

/* ---- exclusion ---- */

static void test_hand_over(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_take(one);
    assert_int_equal(kit_try(two), SAID_BUSY);
    assert_int_equal(kit_wait(two), SAID_NOTHING);
    kit_settle();
    assert_int_equal(two->said, SAID_NOTHING);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_status(one->error.status, OK);
    kit_until(two, SAID_GRANTED);
    assert_true(two->token > one->token);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_release_is_idempotent(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    assert_status(bid->error.status, OK);
    kit_take(bid);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    assert_status(bid->error.status, OK);
    kit_bid_free(bid);
}

/* LESSONS row 6: a waiter that gives up leaves the queue, and no other waits for its ghost. */
static void test_who_gives_up_is_out_of_the_line(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n"), *three = kit_bid(&c, "n");
    kit_take(one);
    kit_wait(two);
    kit_wait(three);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_until(three, SAID_GRANTED);
    assert_int_equal(two->said, SAID_RELEASED);
    kit_release(three);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(three);
}

/* Granted in the table, and withdrawn before it has seen that: nothing of it stays or is kept. */
static void test_withdrawn_before_it_knew(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n");
    struct bid *two = kit_bid_with(&b, "n", (struct bid_options){.hold_ms = 60000});
    kit_take(one);
    kit_wait(two);
    kit_release(one);
    assert_int_equal(two->said, SAID_NOTHING);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_settle();
    assert_int_equal(two->said, SAID_RELEASED);
    kit_take(one);
    kit_release(one);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* LESSONS row 28. */
/* ---- taking it again while others wait ---- */

#define LONG_NS (3600 * NS_PER_SEC)

/* The holder may take it again; the waiter keeps its place, and has its turn afterwards. */
static void test_fair_lets_the_releaser_in_again(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_local(&a)->fair_ns = LONG_NS;
    kit_take(one);
    assert_int_equal(kit_wait(two), SAID_NOTHING);
    for (int i = 0; i < 3; i++) {
        uint64_t before = one->token;
        assert_int_equal(kit_release(one), SAID_RELEASED);
        kit_take(one);
        assert_true(one->token == before + 1);
        kit_settle();
        assert_int_equal(two->said, SAID_NOTHING);
    }
    kit_local(&a)->fair_ns = 0;
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_int_equal(kit_try(one), SAID_BUSY);
    kit_until(two, SAID_GRANTED);
    assert_true(two->token == one->token + 1);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* A holder that does not come back leaves the lock to the first waiter, which is woken each time.
 */
static void test_fair_wakes_the_first_waiter(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_local(&a)->fair_ns = LONG_NS;
    kit_take(one);
    assert_int_equal(kit_wait(two), SAID_NOTHING);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_take(one);
    kit_settle(); /* it was woken, and found it held */
    assert_int_equal(two->said, SAID_NOTHING);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_settle(); /* no timer is due: it must have been woken again */
    assert_int_equal(two->said, SAID_GRANTED);
    assert_int_equal(kit_try(one), SAID_BUSY); /* the right to it has ended */
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* No other claim goes ahead of the waiters: neither a newcomer's nor another one of the releaser's
 * own. */
static void test_fair_is_for_the_releaser_only(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n"), *three = kit_bid(&c, "n");
    struct bid *also_one = kit_bid(&a, "n");
    kit_local(&a)->fair_ns = kit_local(&c)->fair_ns = LONG_NS;
    kit_take(three); /* it has had it before, too */
    kit_release(three);
    kit_take(one);
    assert_int_equal(kit_wait(two), SAID_NOTHING);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_int_equal(kit_try(three), SAID_BUSY);
    assert_int_equal(kit_try(also_one), SAID_BUSY);
    assert_int_equal(kit_wait(three), SAID_NOTHING);
    kit_wait(one); /* three's arrival has had two granted: now it has to wait as well */
    assert_int_equal(one->said, SAID_NOTHING);
    kit_until(two, SAID_GRANTED);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_until(three, SAID_GRANTED);
    kit_local(&c)->fair_ns = 0;
    assert_int_equal(kit_release(three), SAID_RELEASED);
    kit_until(one, SAID_GRANTED);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(three);
    kit_bid_free(also_one);
}

/* Its turn is over when the waiter has waited for so long, here a nanosecond. */
static void test_a_turn_ends(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_local(&a)->fair_ns = 1;
    kit_take(one);
    assert_int_equal(kit_wait(two), SAID_NOTHING);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_int_equal(kit_wait(one), SAID_NOTHING);
    kit_until(two, SAID_GRANTED);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_until(one, SAID_GRANTED);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* Taking it again does not prolong a turn. */
static void test_a_turn_is_not_prolonged(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_local(&a)->fair_ns = LONG_NS;
    kit_take(one);
    assert_int_equal(kit_wait(two), SAID_NOTHING);
    uint64_t came_ns = local_now(kit_local(&a));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit_release(one), SAID_RELEASED);
        assert_true(local_claim_of(one->claim)->turn_ends_ns <= came_ns + LONG_NS);
        kit_take(one);
    }
    kit_local(&a)->fair_ns = 0;
    assert_int_equal(kit_release(one), SAID_RELEASED);
    kit_until(two, SAID_GRANTED);
    assert_int_equal(kit_release(two), SAID_RELEASED);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_a_hold_ends_by_itself(void **state)
{
    (void)state;
    struct bid *one = kit_bid_with(&a, "n", (struct bid_options){.hold_ms = 30});
    struct bid *two = kit_bid(&b, "n"), *try = kit_bid(&c, "n");
    kit_take(one);
    kit_wait(two);
    assert_int_equal(kit_release(one), SAID_RELEASED);
    assert_int_equal(kit_try(try), SAID_BUSY);
    kit_until(two, SAID_GRANTED);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(try);
}

static void test_a_busy_hint_tells_the_end_of_a_hold(void **state)
{
    (void)state;
    struct bid *one = kit_bid_with(&a, "n", (struct bid_options){.hold_ms = 60000});
    struct bid *two = kit_bid(&b, "n");
    kit_take(one);
    assert_int_equal(kit_try(two), SAID_BUSY);
    assert_true(two->hint_ns == 0);
    kit_release(one);
    assert_int_equal(kit_try(two), SAID_BUSY);
    assert_true(two->hint_ns > 0 && two->hint_ns <= 60 * NS_PER_SEC);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* ---- wake-ups ---- */

/* A new listener closes the connections of the watchers; they connect again and still notice the
 * end. */
static void test_a_new_listener_loses_nobody(void **state)
{
    (void)state;
    struct party holder;
    kit_open(&holder, dir);
    struct bid *one = kit_bid(&holder, "n"), *two = kit_bid(&b, "n");
    kit_take(one);
    kit_wait(two);
    kit_settle();
    kit_local(&holder)->listener_made_ns = 0;
    local_wakeup_ask_listener(kit_local(&b), kit_local(&holder)->id);
    kit_settle();
    assert_int_equal(two->said, SAID_NOTHING);
    assert_true(kit_local(&holder)->listener_made_ns > 0);
    /* Its life ends as if it had been killed: its claim is still in the table. */
    close(kit_local(&holder)->life_fd);
    close(kit_local(&holder)->listener_fd);
    kit_local(&holder)->life_fd = kit_local(&holder)->listener_fd = -1;
    kit_until(two, SAID_GRANTED);
    kit_release(two);
    kit_close(&holder);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* LESSONS row 11: the releasing process was stopped before it could send a wake-up. The
 * waiter's timer finds the grant; LESSONS row 3: and it is the table that grants, not the timer. */
static void test_a_wake_up_that_never_came(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    struct wakeups unsent;
    struct tx tx;
    kit_take(one);
    kit_wait(two);
    struct timer *recheck = &local_claim_of(two->claim)->timer;
    assert_int_not_equal(recheck->place, 0); /* it is armed */
    recheck->fn(recheck);
    assert_int_equal(two->said, SAID_NOTHING);
    wakeups_init(&unsent);
    assert_true(local_tx_begin(&tx, kit_store(&a)));
    local_queue_leave(&tx, local_claim_of(one->claim)->cell, LEAVE_RELEASED, loop_now(a.loop),
                      &unsent);
    assert_true(local_tx_commit(&tx));
    kit_settle();
    assert_int_equal(two->said, SAID_NOTHING);
    recheck->fn(recheck);
    assert_int_equal(two->said, SAID_GRANTED);
    kit_release(two);
    kit_release(one);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* LESSONS row 11. More wake-ups than the kernel queues: the client rechecks all its claims, so
 * that a dropped one does no harm. */
static void test_a_flood_of_wakeups_hides_no_grant(void **state)
{
    (void)state;
    enum { N = 50 };
    struct bid *held[N], *waits[N];
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        held[i] = kit_bid(&a, name);
        waits[i] = kit_bid(&b, name);
        kit_take(held[i]);
        kit_wait(waits[i]);
    }
    kit_settle();
    for (int i = 0; i < N; i++)
        kit_release(held[i]);
    for (int i = 0; i < N; i++) {
        kit_until(waits[i], SAID_GRANTED);
        kit_release(waits[i]);
        kit_bid_free(held[i]);
        kit_bid_free(waits[i]);
    }
}

/* Any process may write to the socket; malformed datagrams are ignored. */
static void test_nonsense_is_ignored(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct sockaddr_un address;
    struct local *local = kit_local(&a);
    char bytes[64];
    kit_take(bid);
    local_wakeup_address(local, &address, local->id, 'w');
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    for (size_t n = 0; n < sizeof bytes; n++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)kit_random();
        if (n % 2)
            memcpy(bytes, "\x31\x6c\x74\x73", 4);
        assert_int_equal(sendto(fd, bytes, n, 0, (struct sockaddr *)&address, sizeof address), n);
        kit_settle();
    }
    close(fd);
    assert_int_equal(bid->said, SAID_GRANTED);
    assert_int_equal(kit_release(bid), SAID_RELEASED);
    kit_bid_free(bid);
}

/* A process stays inside the table: a release and a withdrawal are repeated until it has left. */
static void test_a_stuck_table_delays_releases(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n"), *waiter = kit_bid(&b, "n"), *next = kit_bid(&b, "n");
    char path[96];
    snprintf(path, sizeof path, "%s/live", dir);
    int own = open(path, O_RDWR | O_CLOEXEC);
    assert_true(own >= 0);
    assert_int_equal(local_liveness_lock(own, LIVE_IDS + 4711, true), 0);
    kit_take(bid);
    assert_int_equal(kit_wait(waiter), SAID_NOTHING);
    kit_store(&a)->cells[AT_LOCK].lock.word = 4711 << 1;
    assert_int_equal(kit_release(bid), SAID_NOTHING);
    assert_int_equal(kit_release(waiter), SAID_NOTHING);
    assert_int_equal(kit_wait(next), SAID_FAILED);
    assert_status(next->error.status, UNREACHABLE);
    close(own); /* it dies in there */
    kit_until(waiter, SAID_RELEASED);
    kit_until(bid, SAID_RELEASED);
    assert_status(bid->error.status, OK);
    kit_take(next);
    kit_release(next);
    kit_bid_free(bid);
    kit_bid_free(waiter);
    kit_bid_free(next);
}

/* ---- the directory goes ---- */

static void test_a_directory_that_is_removed_ends_its_locks(void **state)
{
    (void)state;
    struct party party;
    char other[64], path[96];
    kit_make_dir(other);
    kit_open(&party, other);
    struct bid *held = kit_bid(&party, "n"), *late = kit_bid(&party, "m");
    kit_take(held);
    struct timer *timer = &kit_local(&party)->files_timer;
    timer->fn(timer);
    kit_settle();
    assert_int_equal(held->said, SAID_GRANTED);
    snprintf(path, sizeof path, "%s/state", other);
    assert_int_equal(unlink(path), 0);
    timer->fn(timer);
    kit_until(held, SAID_LOST);
    assert_status(held->error.status, CORRUPT);
    kit_release(held);
    assert_int_equal(kit_try(late), SAID_FAILED);
    assert_status(late->error.status, CORRUPT);
    kit_bid_free(held);
    kit_bid_free(late);
    kit_close(&party);
    kit_remove_dir(other);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, three_open, three_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_hand_over),
        TEST(test_release_is_idempotent),
        TEST(test_who_gives_up_is_out_of_the_line),
        TEST(test_withdrawn_before_it_knew),
        TEST(test_fair_lets_the_releaser_in_again),
        TEST(test_fair_wakes_the_first_waiter),
        TEST(test_fair_is_for_the_releaser_only),
        TEST(test_a_turn_ends),
        TEST(test_a_turn_is_not_prolonged),
        TEST(test_a_hold_ends_by_itself),
        TEST(test_a_busy_hint_tells_the_end_of_a_hold),
        TEST(test_a_new_listener_loses_nobody),
        TEST(test_a_wake_up_that_never_came),
        TEST(test_a_flood_of_wakeups_hides_no_grant),
        TEST(test_nonsense_is_ignored),
        TEST(test_a_stuck_table_delays_releases),
        TEST(test_a_directory_that_is_removed_ends_its_locks),
    };
    return cmocka_run_group_tests_name("local_engine", tests, NULL, NULL);
}
