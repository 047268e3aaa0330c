/* The local engine as core sees it: several sessions in one process, and others that are killed. */
#include "unit/local_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/local/life.h"

static char dir[64];
static struct party a, b, c;

static int open_three(void **state)
{
    (void)state;
    kit_make_dir(dir);
    kit_open(&a, dir);
    kit_open(&b, dir);
    kit_open(&c, dir);
    return 0;
}

static int close_three(void **state)
{
    (void)state;
    kit_settle();
    kit_check(kit_store(&a));
    kit_close(&a);
    kit_close(&b);
    kit_close(&c);
    kit_remove_dir(dir);
    return 0;
}

/* ---- another process ---- */

struct other {
    pid_t pid;
};

/* Does that with a claim, says so, and lives until it is killed. */
static struct other start_other(const char *name, struct bid_options options, enum said said)
{
    struct other other;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    other.pid = fork();
    assert_true(other.pid >= 0);
    if (other.pid == 0) {
        struct party party;
        kit_die_with_parent();
        if (kit_try_open(&party, dir, NULL) != STILE_OK)
            _exit(3);
        struct bid *bid = kit_bid_with(&party, name, options);
        if (kit_wait(bid) != said)
            _exit(4);
        if (write(ready[1], "r", 1) != 1)
            _exit(5);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return other;
}

static void kill_other(struct other *other)
{
    kill(other->pid, SIGKILL);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
}

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

/* LESSONS row 6: who gives up is out of the line, and nobody waits for its ghost. */
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

/* Granted in the table, and withdrawn before it has looked: nothing of it may stay, nor be held. */
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

/* ---- deaths ---- */

static void test_the_dead_hold_nothing(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct other other = start_other("n", (struct bid_options){0}, SAID_GRANTED);
    assert_int_equal(kit_try(bid), SAID_BUSY);
    kit_wait(bid);
    kit_settle();
    kill_other(&other);
    kit_until(bid, SAID_GRANTED);
    kit_release(bid);
    kit_bid_free(bid);
}

/* Nobody waited, so nobody has noticed: a try must. */
static void test_a_try_sees_that_the_holder_is_dead(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct other other = start_other("n", (struct bid_options){0}, SAID_GRANTED);
    kill_other(&other);
    kit_take(bid);
    kit_release(bid);
    kit_bid_free(bid);
}

static void test_a_try_sees_that_a_waiting_writer_is_dead(void **state)
{
    (void)state;
    struct bid_options shared = {.mode = STILE_SHARED};
    struct bid *one = kit_bid_with(&a, "n", shared), *two = kit_bid_with(&b, "n", shared);
    kit_take(one);
    struct other other = start_other("n", (struct bid_options){0}, SAID_NOTHING);
    assert_int_equal(kit_try(two), SAID_BUSY);
    kill_other(&other);
    kit_take(two);
    kit_release(one);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

static void test_a_try_finds_the_slot_of_the_dead(void **state)
{
    (void)state;
    struct bid_options slots = {.mode = STILE_SLOTS, .slots = 3};
    struct bid *one = kit_bid_with(&a, "n", slots), *two = kit_bid_with(&b, "n", slots),
               *three = kit_bid_with(&c, "n", slots);
    kit_take(one);
    struct other other = start_other("n", slots, SAID_GRANTED);
    kit_take(two);
    assert_int_equal(kit_try(three), SAID_BUSY);
    kill_other(&other);
    kit_take(three);
    kit_release(one);
    kit_release(two);
    kit_release(three);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(three);
}

static void test_a_dead_waiter_is_skipped(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_take(one);
    struct other other = start_other("n", (struct bid_options){0}, SAID_NOTHING);
    kit_wait(two);
    kill_other(&other);
    kit_settle();
    kit_release(one);
    kit_until(two, SAID_GRANTED);
    kit_release(two);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* The last reader of several dies: a writer has to notice each of them. */
static void test_a_writer_outlives_all_readers(void **state)
{
    (void)state;
    struct bid_options shared = {.mode = STILE_SHARED};
    struct bid *writer = kit_bid(&a, "n"), *reader = kit_bid_with(&b, "n", shared);
    struct other first = start_other("n", shared, SAID_GRANTED);
    kit_take(reader);
    struct other last = start_other("n", shared, SAID_GRANTED);
    kit_wait(writer);
    kill_other(&last);
    kill_other(&first);
    kit_settle();
    assert_int_equal(writer->said, SAID_NOTHING);
    kit_release(reader);
    kit_until(writer, SAID_GRANTED);
    kit_release(writer);
    kit_bid_free(writer);
    kit_bid_free(reader);
}

static void test_a_lock_delay_follows_a_death(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct other other = start_other("n", (struct bid_options){.delay_ms = 50}, SAID_GRANTED);
    kit_wait(bid);
    kill_other(&other);
    kit_until(bid, SAID_GRANTED);
    kit_release(bid);
    kit_bid_free(bid);
}

/* More slot holders than a waiter can watch: the death of any of them is still noticed. */
static void test_a_crowd_of_slot_holders(void **state)
{
    (void)state;
    enum { CROWD = SIGHT_MAX + 3 };
    struct bid_options slots = {.mode = STILE_SLOTS, .slots = CROWD + 1};
    static struct party parties[CROWD];
    struct bid *bids[CROWD], *waiter = kit_bid_with(&a, "n", slots);
    for (int i = 0; i < CROWD; i++) {
        kit_open(&parties[i], dir);
        bids[i] = kit_bid_with(&parties[i], "n", slots);
        kit_take(bids[i]);
    }
    struct other other = start_other("n", slots, SAID_GRANTED);
    assert_int_equal(kit_wait(waiter), SAID_NOTHING);
    kill_other(&other);
    kit_until(waiter, SAID_GRANTED);
    kit_release(waiter);
    for (int i = 0; i < CROWD; i++) {
        kit_release(bids[i]);
        kit_bid_free(bids[i]);
        kit_close(&parties[i]);
    }
    kit_bid_free(waiter);
}

/* ---- pokes ---- */

/* A new listener hangs up on who watches; they come back and still hear of the end. */
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
    pokes_ask_listener(kit_local(&b), kit_local(&holder)->id);
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

/* LESSONS row 11: who released was stopped before it could tell. The look that comes by itself
 * finds the grant; LESSONS row 3: and it is the table that grants, not the look. */
static void test_a_wake_up_that_never_came(void **state)
{
    (void)state;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    struct pokes unsent;
    struct tx tx;
    kit_take(one);
    kit_wait(two);
    struct timer *look = &claim_part(two->claim)->timer;
    assert_int_not_equal(look->place, 0); /* it is armed */
    look->fn(look);
    assert_int_equal(two->said, SAID_NOTHING);
    pokes_init(&unsent);
    assert_true(tx_begin(&tx, kit_store(&a)));
    queue_leave(&tx, claim_part(one->claim)->cell, LEAVE_RELEASED, loop_now(a.loop), &unsent);
    assert_true(tx_commit(&tx));
    kit_settle();
    assert_int_equal(two->said, SAID_NOTHING);
    look->fn(look);
    assert_int_equal(two->said, SAID_GRANTED);
    kit_release(two);
    kit_release(one);
    kit_bid_free(one);
    kit_bid_free(two);
}

/* LESSONS row 11. More pokes than the kernel keeps: what was dropped is made up for by looking at
 * everything. */
static void test_a_flood_of_pokes_hides_no_grant(void **state)
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

/* What others write to the socket is looked at with caution. */
static void test_nonsense_is_ignored(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n");
    struct sockaddr_un address;
    struct local *local = kit_local(&a);
    char bytes[64];
    kit_take(bid);
    session_address(local, &address, local->id, 'w');
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

/* Somebody stands inside the table: a release is tried again, and done when the way is free. */
static void test_a_stuck_table_delays_a_release(void **state)
{
    (void)state;
    struct bid *bid = kit_bid(&a, "n"), *next = kit_bid(&b, "n");
    char path[96];
    snprintf(path, sizeof path, "%s/live", dir);
    int own = open(path, O_RDWR | O_CLOEXEC);
    assert_true(own >= 0);
    assert_int_equal(life_lock(own, LIFE_IDS + 4711, true), 0);
    kit_take(bid);
    kit_store(&a)->cells[AT_LOCK].lock.word = 4711 << 1;
    assert_int_equal(kit_release(bid), SAID_NOTHING);
    assert_int_equal(kit_wait(next), SAID_FAILED);
    assert_status(next->error.status, UNREACHABLE);
    close(own); /* it dies in there */
    kit_until(bid, SAID_RELEASED);
    assert_status(bid->error.status, OK);
    kit_take(next);
    kit_release(next);
    kit_bid_free(bid);
    kit_bid_free(next);
}

/* ---- for people ---- */

/* LESSONS row 29. */
static void test_show_tells_who(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n");
    kit_ask(&answer, &c, "n", view_show, 0);
    assert_int_equal(answer.n_infos, 1);
    assert_true(answer.is_done && answer.error.status == STILE_OK);
    assert_int_equal(answer.holders + answer.waiters, 0);
    assert_int_equal(answer.token, 0);
    kit_take(one);
    kit_wait(two);
    kit_ask(&answer, &c, "n", view_show, 0);
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
    struct other other = start_other("n", (struct bid_options){0}, SAID_GRANTED);
    kill_other(&other);
    kit_ask(&answer, &a, "n", view_show, 0);
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
    kit_ask(&answer, &b, "", view_list, 0);
    assert_int_equal(answer.n_infos, 6);
    const char *sorted[] = {"B", "a", "a/0", "a/1", "b", "\xc3\xa4"};
    for (int i = 0; i < 6; i++)
        assert_string_equal(answer.names[i], sorted[i]);
    kit_ask(&answer, &b, "a/", view_list, 0);
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
    kit_ask(&answer, &c, "n", view_break, 0);
    assert_status(answer.error.status, CONFLICT);
    kit_take(one);
    kit_wait(two);
    kit_ask(&answer, &c, "n", view_break, one->token + 1);
    assert_status(answer.error.status, CONFLICT);
    kit_ask(&answer, &c, "n", view_break, one->token);
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
    assert_true(tx_begin(&tx, kit_store(&a)));
    tx_edit_claim(&tx, claim_part(one->claim)->cell)->state = CLAIM_BROKEN;
    assert_true(tx_commit(&tx));
    kit_settle();
    assert_int_equal(two->said, SAID_NOTHING); /* still held, though marked */
    pokes_make_due(kit_local(&a), &claim_part(one->claim)->looker);
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
    kit_ask(&answer, &c, "n", view_break, 0);
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
    kit_ask(&answer, &b, "n", view_break, 0);
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

static void test_watch_tells_of_every_change(void **state)
{
    (void)state;
    struct answer answer;
    struct bid *one = kit_bid(&a, "n"), *two = kit_bid(&b, "n"), *other = kit_bid(&a, "other");
    kit_ask(&answer, &c, "n", view_watch, 0);
    assert_int_equal(answer.n_infos, 1);
    kit_take(one);
    kit_until_infos(&answer, 2);
    assert_int_equal(answer.holders, 1);
    kit_wait(two);
    kit_until_infos(&answer, 3);
    assert_int_equal(answer.waiters, 1);
    kit_take(other);
    kit_release(other);
    kit_settle();
    assert_int_equal(answer.n_infos, 3);
    kit_release(one);
    kit_until(two, SAID_GRANTED);
    kit_settle();
    assert_int_equal(answer.holders, 1);
    assert_int_equal(answer.claims[0].token, two->token);
    kit_release(two);
    kit_settle();
    assert_int_equal(answer.holders, 0);
    assert_false(answer.is_done);
    view_unwatch(c.engine, &answer.query);
    assert_int_equal(kit_store(&a)->cells[AT_LEDGER].ledger.n_observers, 0);
    kit_bid_free(one);
    kit_bid_free(two);
    kit_bid_free(other);
}

static void test_watch_sees_a_death_and_the_end_of_a_hold(void **state)
{
    (void)state;
    struct answer answer;
    struct other other = start_other("n", (struct bid_options){.delay_ms = 20}, SAID_GRANTED);
    kit_ask(&answer, &c, "n", view_watch, 0);
    assert_int_equal(answer.holders, 1);
    assert_false(answer.claims[0].ghost);
    kill_other(&other);
    kit_until_infos(&answer, 2);
    while (answer.holders > 0)
        kit_until_infos(&answer, answer.n_infos + 1);
    view_unwatch(c.engine, &answer.query);
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
    struct timer *guard = &kit_local(&party)->guard;
    guard->fn(guard);
    kit_settle();
    assert_int_equal(held->said, SAID_GRANTED);
    snprintf(path, sizeof path, "%s/state", other);
    assert_int_equal(unlink(path), 0);
    guard->fn(guard);
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

#define TEST(test) cmocka_unit_test_setup_teardown(test, open_three, close_three)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_hand_over),
        TEST(test_release_is_idempotent),
        TEST(test_who_gives_up_is_out_of_the_line),
        TEST(test_withdrawn_before_it_knew),
        TEST(test_a_hold_ends_by_itself),
        TEST(test_a_busy_hint_tells_the_end_of_a_hold),
        TEST(test_the_dead_hold_nothing),
        TEST(test_a_try_sees_that_the_holder_is_dead),
        TEST(test_a_try_sees_that_a_waiting_writer_is_dead),
        TEST(test_a_try_finds_the_slot_of_the_dead),
        TEST(test_a_dead_waiter_is_skipped),
        TEST(test_a_writer_outlives_all_readers),
        TEST(test_a_lock_delay_follows_a_death),
        TEST(test_a_crowd_of_slot_holders),
        TEST(test_a_new_listener_loses_nobody),
        TEST(test_a_wake_up_that_never_came),
        TEST(test_a_flood_of_pokes_hides_no_grant),
        TEST(test_nonsense_is_ignored),
        TEST(test_a_stuck_table_delays_a_release),
        TEST(test_show_tells_who),
        TEST(test_show_leaves_the_dead_out),
        TEST(test_list_is_in_byte_order),
        TEST(test_a_break_is_told_and_fenced),
        TEST(test_a_holder_is_told_before_its_place_is_given_away),
        TEST(test_release_after_a_break_is_lost),
        TEST(test_a_break_takes_all_readers_and_ghosts),
        TEST(test_watch_tells_of_every_change),
        TEST(test_watch_sees_a_death_and_the_end_of_a_hold),
        TEST(test_a_directory_that_is_removed_ends_its_locks),
    };
    return cmocka_run_group_tests_name("local_engine", tests, NULL, NULL);
}
