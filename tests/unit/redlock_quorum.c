/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which claim gets a majority, and what the others leave behind. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/redlock_kit.h"

/* Longer than anything here is waited for: nothing goes by itself. */
#define LEASE_MS 60000
#define K        "lock:name"
#define F                                                                                          \
    "{lock:name}\x1f"                                                                              \
    "fence"

static struct stile_client *client;
static struct stile_lock *lock;

static int set_up(void **state)
{
    nodes_clear(state);
    client = open_nodes("");
    lock = lock_on(client, "name", LEASE_MS);
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

static void hold_as(const char *owner, unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        node_text(i, "SET " K " %s PX 120000", owner);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- deciding ---- */

static void all_nodes_have_the_owner_and_the_token(void **state)
{
    char fence[16];
    (void)state;
    snprintf(fence, sizeof fence, "%llu ", (unsigned long long)take_token(lock));
    for (unsigned i = 0; i < NODES; i++) {
        await_text(i, "GET " K, stile_lock_owner(lock));
        const char *text = node_text(i, "GET " F);
        assert_memory_equal(text, fence, strlen(fence));
        assert_memory_equal(text + strlen(fence), stile_lock_owner(lock), 40);
    }
    give(lock);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, "");
}

static void others_on_a_minority_do_not_matter(void **state)
{
    (void)state;
    hold_as("somebody", 0, 2);
    take_token(lock);
    give(lock);
    await_text(4, "GET " K, "");
    assert_string_equal(node_text(0, "GET " K), "somebody");
}

static void others_on_a_majority_hold_it_and_nothing_of_ours_is_left(void **state)
{
    (void)state;
    take_token(lock); /* from now on each vote comes with the key */
    give(lock);
    hold_as("somebody", 0, 3);
    assert_status(take(lock), HELD);
    await_text(3, "GET " K, "");
    await_text(4, "GET " K, "");
    assert_string_equal(node_text(0, "GET " K), "somebody");
}

/* Two for us, two for another claim, and one that does not answer. */
static void two_of_five_are_no_majority(void **state)
{
    (void)state;
    take_token(lock);
    give(lock);
    hold_as("somebody", 2, 2);
    node_stop(4);
    assert_status(take(lock), HELD);
    await_text(0, "GET " K, "");
    await_text(1, "GET " K, "");
}

/* What an earlier try has left would be in the way of all others for its whole time. */
static void a_split_vote_is_tried_again_and_leaves_nothing(void **state)
{
    (void)state;
    hold_as("one", 0, 2);
    hold_as("two", 2, 2);
    assert_status(take(lock), HELD);
    await_text(4, "GET " K, "");
    node_text(0, "DEL " K);
    node_text(1, "DEL " K);
    take_token(lock);
    give(lock);
}

static void a_key_of_another_kind_is_refused(void **state)
{
    (void)state;
    all_nodes("RPUSH " K " x");
    assert_status(take(lock), REFUSED);
    assert_true(error_has("choose another prefix"));
    assert_int_equal(node_number(0, "LLEN " K), 1);
}

/* ---- nodes that do not answer ---- */

static void two_of_five_may_be_down(void **state)
{
    (void)state;
    uint64_t first = take_token(lock);
    give(lock);
    redis_server_kill(&nodes[1], SIGKILL);
    redis_server_kill(&nodes[3], SIGKILL);
    assert_true(take_token(lock) > first);
    give(lock);
}

static void three_of_five_may_not(void **state)
{
    char port[16];
    (void)state;
    for (unsigned i = 1; i < 4; i++)
        redis_server_kill(&nodes[i], SIGKILL);
    assert_status(take(lock), UNREACHABLE);
    assert_true(error_has("2 of 5 nodes answer"));
    snprintf(port, sizeof port, ":%u", nodes[2].port);
    assert_true(error_has(port));
    await_text(0, "GET " K, "");
    await_text(4, "GET " K, "");
}

/* Its answers come, in order, when no request waits for them. */
static void who_answers_late_is_left_clean(void **state)
{
    (void)state;
    take_token(lock);
    give(lock);
    node_text(4, "DEL " F);
    node_stop(4);
    take_token(lock);
    give(lock);
    node_continue(4);
    while (node_number(4, "EXISTS " F) == 0)
        sleep_ms(1);
    await_text(4, "GET " K, "");
}

static void what_a_majority_does_not_answer_is_given_back_later(void **state)
{
    (void)state;
    take_token(lock);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, stile_lock_owner(lock));
    for (unsigned i = 0; i < 3; i++)
        node_stop(i);
    assert_status(stile_lock_release(lock, &why), UNREACHABLE);
    assert_true(error_has("2 of 5 nodes answer"));
    for (unsigned i = 0; i < 3; i++)
        node_continue(i);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, "");
}

/* The engine gives up after a while, and core calls release() again. */
static void note_repetition(enum stile_log_level level, const char *message, void *data)
{
    (void)level;
    if (strstr(message, "release is repeated"))
        sem_post(data);
}

static void a_release_that_core_repeats_keeps_hold_at_least(void **state)
{
    struct stile_client *heard;
    struct stile_lock *held;
    sem_t repeated;
    (void)state;
    sem_init(&repeated, 0, 0);
    assert_status(stile_client_open(
                      &heard, nodes_url(""),
                      STILE_CLIENT_OPTIONS(.log = note_repetition, .log_data = &repeated), &why),
                  OK);
    assert_status(stile_lock_new(&held, heard, "name",
                                 STILE_OPTIONS(.ttl_ms = LEASE_MS, .hold_at_least_ms = LEASE_MS),
                                 &why),
                  OK);
    take_token(held);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, stile_lock_owner(held));
    all_nodes(
        "REPLICAOF 127.0.0.1 1"); /* nobody is there: they keep their data and refuse writes */
    assert_status(stile_lock_release(held, &why), UNREACHABLE);
    sem_wait(&repeated);
    all_nodes("REPLICAOF NO ONE");
    for (unsigned i = 0; i < NODES; i++) {
        while (strlen(node_text(i, "GET " K)) == 40)
            sleep_ms(1);
        assert_string_equal(node_text(i, "GET " K), "~h");
    }
    stile_client_close(heard);
}

/* A majority that was slow to answer has used up some of the lease: the time counts from when the
 * others were asked. */
static void *continue_later(void *data)
{
    (void)data;
    while (node_number(3, "EXISTS lock:slow") == 0)
        sleep_ms(1);
    sleep_ms(400);
    for (unsigned i = 0; i < 3; i++)
        node_continue(i);
    return NULL;
}

static void the_lease_counts_from_before_the_request(void **state)
{
    pthread_t thread;
    (void)state;
    struct stile_client *patient = open_nodes("?node_timeout=60000");
    struct stile_lock *slow = lock_on(patient, "slow", 4000);
    take_token(slow); /* from now on one request is enough */
    give(slow);
    await_text(3, "GET lock:slow", "");
    for (unsigned i = 0; i < 3; i++)
        node_stop(i);
    assert_int_equal(pthread_create(&thread, NULL, continue_later, NULL), 0);
    assert_status(stile_lock_acquire(slow, 0, &why), OK);
    assert_true(stile_lock_remaining_ms(slow) <= 4000 - 400 - 200);
    pthread_join(thread, NULL);
    stile_client_close(patient);
}

/* ---- tokens ---- */

static long long scripts_run(unsigned node)
{
    const char *stats = node_text(node, "INFO commandstats");
    const char *at = strstr(stats, "cmdstat_evalsha:calls=");
    return at ? atoll(at + strlen("cmdstat_evalsha:calls=")) : 0;
}

static void one_request_if_nobody_came_between(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        take_token(lock);
        give(lock);
    }
    await_text(0, "GET " K, "");
    long long before = scripts_run(0);
    uint64_t token = take_token(lock);
    give(lock);
    await_text(0, "GET " K, "");
    assert_int_equal(scripts_run(0) - before, 2);
    assert_true(node_number(0, "GET " F) == (long long)token);
}

/* The client knows the highest fence of the nodes from when it was opened, and from every answer.
 */
static void a_fresh_name_takes_one_request(void **state)
{
    (void)state;
    take_token(lock);
    give(lock);
    await_text(0, "GET " K, "");
    struct stile_client *other = open_nodes("");
    for (int i = 0; i < 3; i++) {
        char name[16], text[32];
        snprintf(name, sizeof name, "fresh-%d", i);
        struct stile_lock *fresh = lock_on(other, name, LEASE_MS);
        long long before = scripts_run(0);
        uint64_t token = take_token(fresh);
        snprintf(text, sizeof text, "%llu", (unsigned long long)token);
        await_text(0, "HGET stile:node highest", text);
        give(fresh);
        snprintf(text, sizeof text, "GET lock:%s", name);
        await_text(0, text, "");
        if (i > 0) /* before, the connection sends the scripts themselves */
            assert_int_equal(scripts_run(0) - before, 2);
    }
    stile_client_close(other);
}

static void a_wrong_guess_costs_a_request_and_no_order(void **state)
{
    (void)state;
    struct stile_client *other = open_nodes("");
    struct stile_lock *theirs = lock_on(other, "name", 10000);
    uint64_t last = 0;
    for (int i = 0; i < 6; i++) {
        struct stile_lock *next = i % 3 ? theirs : lock;
        uint64_t token = take_token(next);
        assert_true(token > last);
        last = token;
        give(next);
    }
    stile_client_close(other);
}

/* These two are slow, and have seen a later grant. */
static void a_fence_never_goes_back(void **state)
{
    (void)state;
    for (unsigned i = 3; i < 5; i++) {
        node_text(i, "SET " F " 50");
        node_stop(i);
    }
    take_token(lock);
    give(lock);
    for (unsigned i = 3; i < 5; i++) {
        node_continue(i);
        await_text(i, "HGET stile:node longest", "60000"); /* the claim has come */
        await_text(i, "GET " K, "");
        assert_string_equal(node_text(i, "GET " F), "50");
    }
    assert_true(take_token(lock) > 1);
    give(lock);
}

static void a_fence_that_has_expired_is_the_highest_of_the_node(void **state)
{
    (void)state;
    struct stile_lock *other = lock_on(client, "other", 10000);
    uint64_t last = 0;
    for (int i = 0; i < 7; i++) {
        last = take_token(other);
        give(other);
    }
    for (unsigned i = 0; i < NODES; i++) {
        await_text(i, "GET lock:other", "");
        node_text(i, "DEL {lock:other}\x1f"
                     "fence");
    }
    struct stile_client *another = open_nodes("");
    struct stile_lock *again = lock_on(another, "other", 10000);
    assert_true(take_token(again) > last);
    stile_client_close(another);
}

static void a_handle_that_is_used_again_writes_the_highest_number_ahead(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        take_token(lock);
        give(lock);
        await_text(0, "GET " K, "");
    }
    long long highest = node_number(0, "HGET stile:node highest");
    uint64_t last = take_token(lock);
    give(lock);
    await_text(0, "GET " K, "");
    assert_true(last < (uint64_t)highest);
    assert_true(node_number(0, "HGET stile:node highest") == highest);
    struct stile_client *other = open_nodes("");
    assert_true(take_token(lock_on(other, "fresh", 10000)) == (uint64_t)highest + 1);
    stile_client_close(other);
}

/* ---- keeping it ---- */

static void await_renewal(unsigned node)
{
    long long last = node_number(node, "PTTL lock:short"), now = last;
    while (now <= last) {
        last = now;
        sleep_ms(5);
        now = node_number(node, "PTTL lock:short");
    }
}

static void it_is_kept_while_a_majority_has_it(void **state)
{
    (void)state;
    struct stile_lock *short_one = lock_on(client, "short", 3000);
    take_token(short_one);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET lock:short", stile_lock_owner(short_one));
    node_text(0, "DEL lock:short");
    node_text(1, "DEL lock:short");
    await_renewal(4);
    await_renewal(4);
    assert_true(stile_lock_held(short_one));
    assert_string_equal(node_text(0, "GET lock:short"), "");
    node_text(2, "DEL lock:short");
    struct pollfd lost = {.fd = stile_lock_lost_fd(short_one), .events = POLLIN};
    assert_int_equal(poll(&lost, 1, PATIENCE_MS), 1);
    assert_status(stile_lock_release(short_one, &why), LOST);
    await_text(3, "GET lock:short", "");
    await_text(4, "GET lock:short", "");
}

static void what_a_majority_does_not_have_was_lost(void **state)
{
    (void)state;
    take_token(lock);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, stile_lock_owner(lock));
    for (unsigned i = 0; i < 3; i++)
        node_text(i, "SET " K " somebody");
    assert_status(stile_lock_release(lock, &why), LOST);
    await_text(4, "GET " K, "");
    assert_string_equal(node_text(0, "GET " K), "somebody");
}

/* ---- without fences ---- */

static void without_fences_nothing_but_the_key_is_written(void **state)
{
    uint64_t token;
    (void)state;
    all_nodes("FLUSHALL");
    struct stile_client *plain = open_nodes("?fence=off");
    struct stile_lock *bare = lock_on(plain, "name", 10000);
    assert_false(stile_client_caps(plain)->token);
    assert_status(take(bare), OK);
    assert_status(stile_lock_token(bare, &token), UNSUPPORTED);
    for (unsigned i = 0; i < NODES; i++) {
        await_text(i, "GET " K, stile_lock_owner(bare));
        assert_int_equal(node_number(i, "DBSIZE"), 1);
    }
    give(bare);
    for (unsigned i = 0; i < NODES; i++)
        await_text(i, "GET " K, "");
    hold_as("one", 0, 2);
    hold_as("two", 2, 2);
    assert_status(take(bare), HELD);
    await_text(4, "GET " K, "");
    stile_client_close(plain);
}

/* ---- breaking ---- */

/* As if it had reached that node late, and the next holder counted its vote. */
static void a_break_leaves_the_key_of_another_grant(void **state)
{
    static const char next[] = "fedcba9876543210fedcba9876543210fedcba98";
    (void)state;
    struct stile_client *other = open_nodes("");
    hold_as(next, 4, 1);
    take_token(lock);
    assert_status(stile_break(other, "name", 0, &why), OK);
    assert_string_equal(node_text(4, "GET " K), next);
    for (unsigned i = 0; i < 4; i++)
        assert_string_equal(node_text(i, "GET " K), "");
    assert_status(stile_lock_release(lock, &why), LOST);
    assert_status(stile_break(other, "other", 0, &why), CONFLICT);
    stile_client_close(other);
}

/* None of them is known to hold it, so nothing may be left in the way. */
static void a_break_without_a_holder_ends_all_that_is_there(void **state)
{
    (void)state;
    hold_as("0123456789abcdef0123456789abcdef01234567", 0, 2);
    hold_as("some body's\r\n", 2, 2);
    assert_status(stile_break(client, "name", 0, &why), OK);
    for (unsigned i = 0; i < NODES; i++)
        assert_string_equal(node_text(i, "GET " K), "");
}

/* From that node to the holder, again and again until it is subscribed. */
static void tell(unsigned node, struct stile_lock *held, const char *kind, const char *what)
{
    char channel[32], message[128];
    snprintf(channel, sizeof channel, "stile:%.16s", stile_lock_owner(held));
    snprintf(message, sizeof message, "%s %s %s", kind, stile_lock_owner(held), what);
    while (node_number(node, "PUBLISH %s %s", channel, message) == 0)
        ;
}

/* Long before a renewal. */
static void expect_loss(struct stile_lock *held)
{
    struct pollfd lost = {.fd = stile_lock_lost_fd(held), .events = POLLIN};
    assert_int_equal(poll(&lost, 1, PATIENCE_MS), 1);
    assert_status(stile_lock_lost_reason(held, &why), LOST);
    assert_true(error_has("host pid 7"));
    stile_lock_free(held);
}

static void a_holder_that_is_broken_on_one_node_asks_the_others(void **state)
{
    (void)state;
    struct stile_lock *held = lock_on(client, "long", 600000);
    assert_status(take(held), OK);
    for (unsigned i = 0; i < 3; i++)
        node_text(i, "SET lock:long fedcba9876543210fedcba9876543210fedcba98");
    tell(0, held, "b", "7 host");
    expect_loss(held);
}

/* Node 0 has had another holder since, which has given the key back. */
static void a_key_that_comes_back_behind_a_larger_token_is_no_vote(void **state)
{
    (void)state;
    struct stile_lock *held = lock_on(client, "long", 600000);
    assert_status(take(held), OK);
    node_text(0,
              "SET {lock:long}\x1f"
              "fence %s",
              "999999 fedcba9876543210fedcba9876543210fedcba98 7 host");
    tell(0, held, "b", "7 host");
    tell(0, held, "g", "999999 lock:long");
    tell(1, held, "b", "7 host");
    tell(2, held, "b", "7 host");
    expect_loss(held);
}

/* Node 0 was handed to a waiter whose token was too small, and which has given the key back. */
static void a_key_that_comes_back_unchanged_is_no_vote(void **state)
{
    char handed[64];
    (void)state;
    struct stile_lock *held = lock_on(client, "long", 600000);
    snprintf(handed, sizeof handed, "%llu lock:long", (unsigned long long)take_token(held));
    tell(0, held, "b", "7 host");
    tell(0, held, "g", handed);
    tell(1, held, "b", "7 host");
    tell(2, held, "b", "7 host");
    expect_loss(held);
}

/* ---- the URL ---- */

static void refused(const char *url, const char *words)
{
    struct stile_client *none;
    assert_int_not_equal(stile_client_open(&none, url, NULL, &why), STILE_OK);
    assert_true(error_has(words));
}

static void urls_that_make_no_sense(void **state)
{
    char url[256];
    (void)state;
    refused("redlock://a:1,b:2", "3 to 9 independent nodes, not 2");
    refused("redlock://a,b,c,d,e,f,g,h,i,j", "not 10");
    refused("redlock://a:1,b:1,a:1", "a:1 is named twice");
    refused("redlock://a,b,a:6379", "named twice");
    refused("redlock://a,b,c?ca=x", "TLS parameters need a redlocks:// URL");
    refused("redlock://a,b,c?fence=maybe", "fence= is");
    refused("redlock://a,b,c?node_timeout=0", "node_timeout=");
    /* One that answers after a majority is not looked at: both of them must be needed for it. */
    redis_server_kill(&nodes[1], SIGKILL);
    snprintf(url, sizeof url, "redlock://127.0.0.1:%u,localhost:%u,127.0.0.1:%u", nodes[0].port,
             nodes[0].port, nodes[1].port);
    refused(url, "are the same server");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_nodes_have_the_owner_and_the_token),
        TEST(others_on_a_minority_do_not_matter),
        TEST(others_on_a_majority_hold_it_and_nothing_of_ours_is_left),
        TEST(two_of_five_are_no_majority),
        TEST(a_split_vote_is_tried_again_and_leaves_nothing),
        TEST(a_key_of_another_kind_is_refused),
        TEST(two_of_five_may_be_down),
        TEST(three_of_five_may_not),
        TEST(who_answers_late_is_left_clean),
        TEST(what_a_majority_does_not_answer_is_given_back_later),
        TEST(a_release_that_core_repeats_keeps_hold_at_least),
        TEST(the_lease_counts_from_before_the_request),
        TEST(one_request_if_nobody_came_between),
        TEST(a_fresh_name_takes_one_request),
        TEST(a_wrong_guess_costs_a_request_and_no_order),
        TEST(a_fence_never_goes_back),
        TEST(a_fence_that_has_expired_is_the_highest_of_the_node),
        TEST(a_handle_that_is_used_again_writes_the_highest_number_ahead),
        TEST(it_is_kept_while_a_majority_has_it),
        TEST(what_a_majority_does_not_have_was_lost),
        TEST(without_fences_nothing_but_the_key_is_written),
        TEST(a_break_leaves_the_key_of_another_grant),
        TEST(a_break_without_a_holder_ends_all_that_is_there),
        TEST(a_holder_that_is_broken_on_one_node_asks_the_others),
        TEST(a_key_that_comes_back_behind_a_larger_token_is_no_vote),
        TEST(a_key_that_comes_back_unchanged_is_no_vote),
        TEST(urls_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, nodes_start, nodes_stop);
}
