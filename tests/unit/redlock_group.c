/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes count: founding a group, nodes that forgot, and their adoption. */
#include <stdio.h>
#include <stdlib.h>

#include "support/redlock_kit.h"

#define GROUP   "HGET stile:node group"
#define OPENERS 6

static char id[17]; /* of the group */

static int set_up(void **state)
{
    return nodes_clear(state);
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++)
        node_continue(i);
    return 0;
}

static enum stile_status try_to_open(void)
{
    struct stile_client *client;
    enum stile_status status = stile_client_open(&client, nodes_url(""), NULL, &why);
    if (!status)
        stile_client_close(client);
    return status;
}

/* "id.1", "id.2-random" */
static bool is_in(unsigned node, unsigned number)
{
    char start[32];
    size_t len = (size_t)snprintf(start, sizeof start, "%s.%u", id, number);
    const char *group = node_text(node, GROUP);
    return strncmp(group, start, len) == 0 && (group[len] == '-' || group[len] == '\0');
}

static void all_are_in(unsigned number)
{
    char group[64];
    snprintf(group, sizeof group, "%s", node_text(0, GROUP));
    snprintf(id, sizeof id, "%.16s", group);
    assert_true(is_in(0, number));
    for (unsigned i = 1; i < NODES; i++)
        assert_string_equal(node_text(i, GROUP), group);
}

static struct stile_client *found(void)
{
    struct stile_client *client = open_nodes("");
    all_are_in(1);
    return client;
}

/* ---- founding ---- */

static void *open_one(void *data)
{
    struct stile_client *client;
    struct stile_error err;
    if (stile_client_open(&client, data, NULL, &err) == STILE_OK)
        return client;
    print_error("%s\n", err.message);
    return NULL;
}

/* All at once, again and again: there is one group in the end, and everybody is in it. */
static void many_founders_make_one_group(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        pthread_t threads[OPENERS];
        void *client;
        all_nodes("FLUSHALL");
        char *url = strdup(nodes_url(""));
        for (int i = 0; i < OPENERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, open_one, url), 0);
        for (int i = 0; i < OPENERS; i++) {
            pthread_join(threads[i], &client);
            assert_non_null(client);
            stile_client_close(client);
        }
        free(url);
        all_are_in(1);
    }
}

static void founding_needs_all_nodes(void **state)
{
    (void)state;
    redis_server_kill(&nodes[2], SIGKILL);
    assert_status(try_to_open(), UNREACHABLE);
    assert_true(error_has("the first time all nodes"));
    assert_string_equal(node_text(0, GROUP), "");
}

static void proposals_go_down_to_the_smallest(void **state)
{
    (void)state;
    node_text(0, "HSET stile:node group ?bbbbbbbbbbbbbbbb");
    node_text(1, "HSET stile:node group ?aaaaaaaaaaaaaaaa");
    node_text(2, "HSET stile:node group ?cccccccccccccccc");
    node_text(3, "HSET stile:node group ?bbbbbbbbbbbbbbbb");
    node_text(4, "HSET stile:node group ?bbbbbbbbbbbbbbbb");
    assert_status(try_to_open(), OK);
    all_are_in(1);
    assert_string_equal(id, "aaaaaaaaaaaaaaaa");
}

/* Its founder died between two of its steps. */
static void a_proposal_beside_the_group_follows_it(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++)
        node_text(i, "HSET stile:node group %saaaaaaaaaaaaaaaa%s", i == 3 ? "" : "?",
                  i == 3 ? ".1" : "");
    assert_status(try_to_open(), OK);
    all_are_in(1);
}

static void what_is_no_group_is_left_alone(void **state)
{
    (void)state;
    all_nodes("HSET stile:node group mine");
    assert_status(try_to_open(), REFUSED);
    assert_true(error_has("holds something else"));
    assert_string_equal(node_text(4, GROUP), "mine");
}

static void a_node_of_another_group_does_not_count(void **state)
{
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 10000);
    node_text(4, "HSET stile:node group ffffffffffffffff.7");
    take_token(lock);
    assert_status(try_to_open(), OK);
    give(lock);
    assert_string_equal(node_text(4, "GET lock:name"), "");
    assert_string_equal(node_text(4, GROUP), "ffffffffffffffff.7");
    stile_client_close(client);
}

/* ---- forgetting ---- */

static void a_minority_may_forget(void **state)
{
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 10000);
    uint64_t first = take_token(lock);
    give(lock);
    node_text(0, "FLUSHALL");
    node_text(1, "FLUSHALL");
    assert_true(take_token(lock) > first);
    assert_string_equal(node_text(0, "GET lock:name"), "");
    assert_string_equal(node_text(1, "GET lock:name"), "");
    assert_status(try_to_open(), OK);
    stile_client_close(client);
}

/* The two that remember are all that keeps a token from coming back. */
static void nodes_that_forgot_do_not_vote(void **state)
{
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 10000);
    take_token(lock);
    give(lock);
    for (unsigned i = 0; i < 3; i++)
        node_text(i, "FLUSHALL");
    assert_status(take(lock), UNREACHABLE);
    assert_true(error_has("2 of 5 nodes answer") &&
                error_has("has lost its data: stile doctor --adopt"));
    await_text(4, "GET lock:name", "");
    assert_status(try_to_open(), REFUSED);
    assert_true(error_has("only 2 of 5 nodes have kept their group"));
    stile_client_close(client);
}

/* ---- adoption ---- */

static unsigned adopted, refused;

static int note_finding(const struct stile_finding *finding, void *data)
{
    (void)data;
    adopted += strcmp(finding->id, "adopted") == 0;
    refused += strcmp(finding->id, "not-adopted") == 0 && strstr(finding->what, "only 2 of 5");
    return 0;
}

static enum stile_status adopt(void)
{
    struct stile_client *doctor;
    const struct stile_client_options options = {.size = sizeof options, .examine = true};
    adopted = refused = 0;
    assert_status(stile_client_open(&doctor, nodes_url(""), &options, &why), OK);
    enum stile_status status = stile_doctor(doctor, STILE_ADOPT, note_finding, NULL, &why);
    stile_client_close(doctor);
    return status;
}

static void an_adopted_node_knows_the_highest_token(void **state)
{
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 5000);
    uint64_t last = 0;
    for (int i = 0; i < 9; i++) {
        last = take_token(lock);
        give(lock);
    }
    node_text(2, "FLUSHALL");
    assert_status(adopt(), OK);
    assert_int_equal(adopted, 1);
    all_are_in(2);
    assert_true(node_number(2, "HGET stile:node highest") >= (long long)last);
    assert_int_equal(node_number(2, "HGET stile:node longest"), 5000);
    assert_true(take_token(lock) > last); /* the client has heard of the new epoch */
    assert_string_equal(node_text(2, "GET lock:name"), ""); /* quiet */
    give(lock);
    while (node_number(2, "HEXISTS stile:node quiet")) { /* until its time is over */
        take_token(lock);
        give(lock);
    }
    take_token(lock);
    await_text(2, "GET lock:name", stile_lock_owner(lock));
    stile_client_close(client);
}

/* It was away, not out of its mind. */
static void who_missed_the_adoption_follows(void **state)
{
    char group[64];
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 10000);
    take_token(lock);
    give(lock);
    node_stop(0);
    node_text(1, "FLUSHALL");
    assert_status(adopt(), OK);
    assert_int_equal(adopted, 1);
    node_continue(0);
    snprintf(group, sizeof group, "%s", node_text(1, GROUP));
    assert_true(is_in(0, 1) && is_in(1, 2));
    take_token(lock); /* under the new epoch, without it */
    give(lock);
    await_text(0, GROUP, group);
    all_are_in(2);
    stile_client_close(client);
}

static void adoption_needs_a_majority_that_remembers(void **state)
{
    (void)state;
    stile_client_close(found());
    for (unsigned i = 0; i < 3; i++)
        node_text(i, "FLUSHALL");
    assert_status(adopt(), OK);
    assert_true(adopted == 0 && refused == 1);
    assert_string_equal(node_text(0, GROUP), "");
    assert_true(is_in(4, 1));
}

static void nothing_to_adopt(void **state)
{
    (void)state;
    stile_client_close(found());
    assert_status(adopt(), OK);
    assert_int_equal(adopted, 0);
    all_are_in(1);
}

/* Votes of two epochs do not add up: a claim under the old one gets no majority. */
static void an_old_epoch_gets_no_votes(void **state)
{
    char group[64];
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 10000);
    uint64_t last = take_token(lock);
    give(lock);
    snprintf(group, sizeof group, "%s.2-00c0ffee", id);
    for (unsigned i = 0; i < 3; i++)
        node_text(i, "HSET stile:node group %s was %s.1", group, id);
    assert_true(take_token(lock) > last);
    for (unsigned i = 3; i < NODES; i++)
        await_text(i, GROUP, group); /* and those that were behind have followed */
    stile_client_close(client);
}

/* The only node that was in the new epoch forgets, too: nobody knows that it was there. */
static void no_epoch_is_made_twice(void **state)
{
    char first[64];
    (void)state;
    stile_client_close(found());
    node_text(2, "FLUSHALL");
    assert_status(adopt(), OK);
    all_are_in(2);
    snprintf(first, sizeof first, "%s", node_text(0, GROUP));
    for (unsigned i = 0; i < NODES; i++)
        node_text(i, "HSET stile:node group %s.1 was x", id);
    node_text(2, "FLUSHALL");
    assert_status(adopt(), OK);
    all_are_in(2);
    assert_string_not_equal(node_text(0, GROUP), first);
}

/* Two adopters have died half-way, and knew nothing of each other. */
static void nodes_in_many_epochs_are_brought_together(void **state)
{
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 2000);
    uint64_t last = take_token(lock);
    give(lock);
    for (unsigned i = 0; i < NODES; i++)
        node_text(i, "HSET stile:node group %s.2-%s was %s.1", id,
                  i < 2   ? "aaaaaaaa"
                  : i < 4 ? "bbbbbbbb"
                          : "cccccccc",
                  id);
    assert_status(take(lock), UNREACHABLE);
    assert_status(try_to_open(), REFUSED);
    assert_true(error_has("no majority of the nodes is in one epoch"));
    assert_status(adopt(), OK);
    all_are_in(3);
    assert_true(take_token(lock) > last);
    stile_client_close(client);
}

/* An adopter has died when one node was in its epoch, and that node has forgotten since: no other
 * epoch has it on record, and the client has nobody to follow but the majority. */
static void a_client_in_an_epoch_that_is_gone_goes_where_most_are(void **state)
{
    char group[64];
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 10000);
    for (unsigned i = 1; i < 4; i++)
        node_stop(i);
    node_text(0, "HSET stile:node group %s.2-aaaaaaaa was %s.1", id, id);
    assert_status(take(lock), UNREACHABLE); /* now it knows */
    snprintf(group, sizeof group, "%s.2-bbbbbbbb", id);
    for (unsigned i = 1; i < 4; i++)
        node_continue(i);
    for (unsigned i = 0; i < NODES; i++)
        node_text(i, "HSET stile:node group %s was %s.1", group, id);
    take_token(lock);
    give(lock);
    stile_client_close(client);
}

/* It is on record which epochs are older than which: nobody is led back. */
static void a_node_in_an_epoch_of_its_own_is_left_there(void **state)
{
    char group[64];
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 10000);
    snprintf(group, sizeof group, "%s.9-99999999", id);
    node_text(4, "HSET stile:node group %s was %s.8-88888888", group, id);
    take_token(lock);
    give(lock);
    assert_status(try_to_open(), OK);
    assert_string_equal(node_text(4, GROUP), group);
    assert_true(is_in(0, 1));
    assert_string_equal(node_text(4, "GET lock:name"), "");
    stile_client_close(client);
}

/* A proposal that came late says nothing of what the node has forgotten since. */
static void a_late_proposal_is_no_memory(void **state)
{
    (void)state;
    struct stile_client *client = found();
    struct stile_lock *lock = lock_on(client, "name", 2000);
    take_token(lock);
    give(lock);
    node_text(3, "FLUSHALL");
    node_text(3, "HSET stile:node group ?%s", id);
    assert_status(try_to_open(), OK);
    assert_string_equal(node_text(3, "HGET stile:node highest"), "");
    assert_status(adopt(), OK);
    assert_int_equal(adopted, 1);
    all_are_in(2);
    stile_client_close(client);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(many_founders_make_one_group),
        TEST(founding_needs_all_nodes),
        TEST(proposals_go_down_to_the_smallest),
        TEST(a_proposal_beside_the_group_follows_it),
        TEST(what_is_no_group_is_left_alone),
        TEST(a_node_of_another_group_does_not_count),
        TEST(a_minority_may_forget),
        TEST(nodes_that_forgot_do_not_vote),
        TEST(an_adopted_node_knows_the_highest_token),
        TEST(who_missed_the_adoption_follows),
        TEST(adoption_needs_a_majority_that_remembers),
        TEST(nothing_to_adopt),
        TEST(an_old_epoch_gets_no_votes),
        TEST(no_epoch_is_made_twice),
        TEST(nodes_in_many_epochs_are_brought_together),
        TEST(a_client_in_an_epoch_that_is_gone_goes_where_most_are),
        TEST(a_node_in_an_epoch_of_its_own_is_left_there),
        TEST(a_late_proposal_is_no_memory),
    };
    return cmocka_run_group_tests(tests, nodes_start, nodes_stop);
}
