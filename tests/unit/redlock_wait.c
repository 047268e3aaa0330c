/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: queues that differ, and claims that give way. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/redlock_kit.h"

#define K     "lock:name"
#define QUEUE "{lock:name}\x1fqueue"

static struct stile_client *client;
static struct stile_lock *lock;

static int set_up(void **state)
{
    nodes_clear(state);
    client = open_nodes("");
    lock = lock_on(client, "name", 10000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++)
        node_continue(i);
    stile_client_close(client);
    return 0;
}

/* The first to be served there. */
static void put_first(unsigned node, const struct waiter *waiter)
{
    static const char script[] = "redis.call('LREM',KEYS[1],1,ARGV[1]) "
                                 "return redis.call('LPUSH',KEYS[1],ARGV[1])";
    node_number(node, "EVAL %s 1 " QUEUE " %s", script, waiter->entry);
}

static void owner_of(char owner[41], const struct waiter *waiter)
{
    snprintf(owner, 41, "%.40s", waiter->entry);
}

static void start(struct waiter *waiters, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        waiter_start(&waiters[i], "name", i);
}

static void all_free(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        await_text(i, "GET " K, "");
        assert_int_equal(node_number(i, "EXISTS " QUEUE), 0);
    }
}

static void the_next_one_gets_all_nodes(void **state)
{
    struct waiter waiter;
    char owner[41];
    (void)state;
    take_token(lock);
    start(&waiter, 1);
    give(lock);
    waiter_expect_grant(&waiter);
    owner_of(owner, &waiter);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, owner);
    waiter_end(&waiter);
    all_free();
}

/* The second is first in line on two nodes: it must not keep them, nor lose its place. */
static void a_minority_gives_way_to_the_holder(void **state)
{
    struct waiter waiters[2];
    char owner[41];
    (void)state;
    take_token(lock);
    start(waiters, 2);
    put_first(3, &waiters[1]);
    put_first(4, &waiters[1]);
    give(lock);
    waiter_expect_grant(&waiters[0]);
    owner_of(owner, &waiters[0]);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, owner);
    assert_string_equal(node_text(3, "LINDEX " QUEUE " 0"), waiters[1].entry);
    assert_int_equal(node_number(3, "LLEN " QUEUE), 1);
    waiter_end(&waiters[0]);
    waiter_expect_grant(&waiters[1]);
    waiter_end(&waiters[1]);
    all_free();
}

/* Nobody has three: two, two and one. */
static void a_split_is_resolved(void **state)
{
    struct waiter waiters[3];
    bool served[3] = {false, false, false};
    (void)state;
    take_token(lock);
    start(waiters, 3);
    put_first(2, &waiters[1]);
    put_first(3, &waiters[1]);
    put_first(4, &waiters[2]);
    give(lock);
    for (int n = 0; n < 3; n++) {
        int next = -1;
        while (next < 0) {
            for (int i = 0; i < 3; i++) {
                if (!served[i] && sem_trywait(&waiters[i].granted) == 0)
                    next = i;
            }
        }
        assert_status(waiters[next].status, OK);
        served[next] = true;
        waiter_end(&waiters[next]);
    }
    all_free();
}

/* A waiter that has left cannot take the lock; the next one need not wait until it expires. */
static void what_is_given_to_nobody_comes_back(void **state)
{
    char gone[41], channel[32], message[128];
    (void)state;
    take_token(lock);
    snprintf(gone, sizeof gone, "%s", stile_lock_owner(lock));
    snprintf(channel, sizeof channel, "stile:%.16s", gone);
    snprintf(message, sizeof message, "y %s 1 " K, gone);
    while (node_number(2, "PUBLISH %s x", channel) == 0)
        ;
    give(lock);
    await_text(2, "GET " K, "");
    node_text(2, "SET " K " %s PX 60000", gone);
    assert_int_equal(node_number(2, "PUBLISH %s %s", channel, message), 1);
    await_text(2, "GET " K, "");
}

static void a_holder_that_died_is_waited_for_no_longer_than_its_lease(void **state)
{
    struct waiter waiters[2];
    (void)state;
    struct stile_lock *gone = lock_on(client, "name", 3000);
    assert_status(take(gone), OK);
    start(waiters, 2);
    assert_status(stile_lock_detach(gone, &why), OK);
    waiter_expect_grant(&waiters[0]);
    waiter_end(&waiters[0]);
    waiter_expect_grant(&waiters[1]);
    waiter_end(&waiters[1]);
}

/* Another client's lock, taken back without a word to us. */
static void another_client_s_lock_is_looked_for(void **state)
{
    struct waiter waiter;
    (void)state;
    all_nodes("SET " K " somebody");
    start(&waiter, 1);
    all_nodes("DEL " K);
    waiter_expect_grant(&waiter);
    waiter_end(&waiter);
}

static void two_silent_nodes_hold_nobody_up(void **state)
{
    struct waiter waiters[3];
    (void)state;
    take_token(lock);
    start(waiters, 3);
    put_first(0, &waiters[1]);
    node_stop(3);
    node_stop(4);
    give(lock);
    for (unsigned i = 0; i < 3; i++)
        sem_post(&waiters[i].go);
    for (unsigned i = 0; i < 3; i++) {
        waiter_expect_grant(&waiters[i]);
        pthread_join(waiters[i].thread, NULL);
    }
    node_continue(3);
    node_continue(4);
    all_free();
}

static void a_wait_that_ends_leaves_no_queue_entry(void **state)
{
    (void)state;
    struct stile_client *other = open_nodes("");
    struct stile_lock *theirs = lock_on(other, "name", 10000);
    take_token(lock);
    assert_status(stile_lock_acquire(theirs, 300, &why), TIMEOUT);
    for (unsigned i = 0; i < NODES; i++) {
        await_text(i, "GET " K, stile_lock_owner(lock));
        while (node_number(i, "EXISTS " QUEUE))
            ;
    }
    give(lock);
    stile_client_close(other);
    all_free();
}

static void on_done(struct stile_lock *done, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)done, (void)err;
    *(enum stile_status *)data = status;
}

static void dispatch(struct stile_client *threadless)
{
    struct pollfd ready = {.fd = stile_client_fd(threadless), .events = POLLIN};
    poll(&ready, 1, 10);
    assert_status(stile_client_dispatch(threadless), OK);
}

static long long scripts_of(unsigned node)
{
    const char *calls = strstr(node_text(node, "INFO commandstats"), "cmdstat_evalsha:calls=");
    return calls ? strtoll(strchr(calls, '=') + 1, NULL, 10) : 0;
}

static bool is_queued(unsigned node)
{
    return node_number(node, "LLEN " QUEUE) > 0;
}

/* Its client stands still while its turn comes and goes, and then asks before it reads that it was
 * its turn. If that left it in the queues twice, a release would hand the lock to nobody. */
static void a_waiter_that_stood_still_is_queued_once(void **state)
{
    enum stile_status answer = STILE_UNCERTAIN;
    struct stile_client *still;
    long long scripts;
    (void)state;
    assert_status(
        stile_client_open(&still, nodes_url(""), STILE_CLIENT_OPTIONS(.threadless = true), &why),
        OK);
    struct stile_lock *short_lease = lock_on(client, "name", 1000);
    struct stile_lock *theirs = lock_on(still, "name", 10000);
    take_token(short_lease);
    assert_status(stile_lock_acquire_async(theirs, -1, on_done, &answer), OK);
    for (unsigned i = 0; i < NODES; i++) {
        while (!is_queued(i))
            dispatch(still);
    }
    give(short_lease);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, "");
    take_token(lock);
    scripts = scripts_of(0);
    while (scripts_of(0) < scripts + 3) /* it looks, confirms in vain, and asks again */
        dispatch(still);
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(node_number(i, "LLEN " QUEUE), 1);
    give(lock);
    while (answer == STILE_UNCERTAIN)
        dispatch(still);
    assert_status(answer, OK);
    stile_client_close(still);
    all_free();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_next_one_gets_all_nodes),
        TEST(a_minority_gives_way_to_the_holder),
        TEST(a_split_is_resolved),
        TEST(what_is_given_to_nobody_comes_back),
        TEST(a_holder_that_died_is_waited_for_no_longer_than_its_lease),
        TEST(another_client_s_lock_is_looked_for),
        TEST(two_silent_nodes_hold_nobody_up),
        TEST(a_wait_that_ends_leaves_no_queue_entry),
        TEST(a_waiter_that_stood_still_is_queued_once),
    };
    return cmocka_run_group_tests(tests, nodes_start, nodes_stop);
}
