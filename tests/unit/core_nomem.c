/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation fails in turn, alone or with all that follow: each call ends in NOMEM or does
 * its work all the same, nothing leaks, and what is held can still be given back. */
#include <stdlib.h>

#include "support/scarcity.h"
#include "support/unit.h"

/* ---- the frame ---- */

static void expect_ok_or_nomem(enum stile_status status)
{
    if (status && scarcity.failed == 0)
        fail_msg("%s without a reason", stile_status_name(status));
    if (status != STILE_OK && status != STILE_NOMEM)
        fail_msg("%s, not NOMEM, at allocation %u", stile_status_name(status), scarcity.at);
}

typedef void scene_fn(struct world *world);

/* Plays it with one allocation more each time, until none is left that could fail. */
static void play(scene_fn *scene, size_t clients_first, bool all)
{
    for (unsigned at = 0;; at++) {
        struct world world = {0};
        long before = scarcity_outstanding;
        if (clients_first)
            world_open(&world, 1, script_variant(STILE_LEASE_CLAIM, 0), 1);
        scarcity_begin(at, all);
        scene(&world);
        scarcity_end();
        if (clients_first)
            world_close(&world);
        if (scarcity_outstanding != before)
            fail_msg("%ld leaked at allocation %u", scarcity_outstanding - before, at);
        if (scarcity.failed == 0)
            break;
        assert_true(at < 10000);
    }
    assert_true(scarcity.seen > 0);
}

static void play_both_ways(scene_fn *scene, size_t clients_first)
{
    play(scene, clients_first, false);
    play(scene, clients_first, true);
}

/* ---- the scenes ---- */

static void open_and_close(struct world *w)
{
    struct stile_client *client;
    struct stile_error err = {0};
    enum stile_status status = stile_client_open(&client, "test:?ttl=1000", NULL, &err);

    (void)w;
    expect_ok_or_nomem(status);
    assert_int_equal(err.status, status);
    if (status) {
        assert_null(client);
        assert_true(strlen(err.message) > 0);
        return;
    }
    stile_client_close(client);
}

static void count_opened(struct stile_client *client, enum stile_status status,
                         const struct stile_error *err, void *data)
{
    (void)client;
    (void)err;
    expect_ok_or_nomem(status);
    ++*(unsigned *)data;
}

static void open_async_and_close(struct world *w)
{
    struct stile_client *client;
    unsigned times = 0;
    enum stile_status status = stile_client_open_async(
        &client, "test:?ttl=1000", STILE_CLIENT_OPTIONS(.threadless = true, .label = "a label"),
        count_opened, &times, NULL);

    (void)w;
    expect_ok_or_nomem(status);
    if (!status)
        stile_client_close(client);
    assert_int_equal(times, status ? 0 : 1);
}

static void opening(void **state)
{
    (void)state;
    play_both_ways(open_async_and_close, 0);
    play_both_ways(open_and_close, 0);
}

static void acquire_and_release(struct world *w)
{
    struct stile_lock *lock;
    enum stile_status status = stile_lock_new(&lock, w->clients[0], "a", NULL, NULL);

    expect_ok_or_nomem(status);
    if (status) {
        assert_null(lock);
        return;
    }
    status = stile_lock_acquire(lock, -1, NULL);
    expect_ok_or_nomem(status);
    assert_int_equal(stile_lock_held(lock), status == STILE_OK);
    if (!status)
        assert_status(stile_lock_release(lock, NULL), OK); /* needs no memory */
    stile_lock_free(lock);
}

static void acquiring(void **state)
{
    (void)state;
    play_both_ways(acquire_and_release, 1);
}

static void renew_and_lose(struct world *w)
{
    struct stile_lock *lock;

    if (stile_lock_new(&lock, w->clients[0], "a", NULL, NULL) || stile_lock_acquire(lock, -1, NULL))
        return;
    world_pass(w, 60 * SEC); /* a renewal without memory is one of unknown fate */
    if (stile_lock_held(lock)) {
        world_jump(w, 20 * SEC);
        world_pass(w, 0);
    }
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), LOST);
}

static void losing(void **state)
{
    (void)state;
    play_both_ways(renew_and_lose, 1);
}

static void call_async(struct world *w)
{
    struct heard heard = {0};
    struct stile_lock *lock;
    enum stile_status status;

    if (stile_lock_new(&lock, w->clients[0], "a", NULL, NULL))
        return;
    status = stile_lock_acquire_async(lock, -1, heard_done, &heard);
    expect_ok_or_nomem(status);
    world_pass(w, 0);
    assert_int_equal(heard.times, status ? 0 : 1); /* refused, or answered once */
    expect_ok_or_nomem(heard.status);
    if (!stile_lock_held(lock))
        return;
    status = stile_lock_release_async(lock, heard_done, &heard);
    expect_ok_or_nomem(status);
    world_pass(w, 0);
    assert_int_equal(heard.times, status ? 1 : 2);
    assert_int_equal(stile_lock_held(lock), status != STILE_OK);
}

static void asynchronously(void **state)
{
    (void)state;
    play_both_ways(call_async, 1);
}

static int look(const struct stile_info *info, void *data)
{
    ++*(unsigned *)data;
    return info->name[0] == '\0';
}

static int look_once(const struct stile_info *info, void *data)
{
    (void)info;
    (void)data;
    return 1;
}

static int count_finding(const struct stile_finding *finding, void *data)
{
    (void)finding;
    ++*(unsigned *)data;
    return 0;
}

static void count_done(struct stile_client *client, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    (void)client;
    (void)err;
    expect_ok_or_nomem(status);
    ++*(unsigned *)data;
}

/* What was accepted is answered, once. */
static void ask_without_waiting(struct world *w)
{
    unsigned asked = 0, answered = 0;

    asked += !stile_list_async(w->clients[0], NULL, look_once, count_done, &answered, NULL);
    asked += !stile_show_async(w->clients[0], "a", look_once, count_done, &answered, NULL);
    asked +=
        !stile_watch_async(NULL, w->clients[0], "a", -1, look_once, count_done, &answered, NULL);
    asked += !stile_break_async(w->clients[0], "a", 0, count_done, &answered, NULL);
    world_pass(w, 1 * SEC);
    assert_int_equal(answered, asked);
}

static void ask_everything(struct world *w)
{
    struct stile_lock *lock;
    struct stile_error err = {0};
    unsigned listed = 0, shown = 0, found = 0;
    enum stile_status status;

    if (stile_lock_new(&lock, w->clients[0], "a", NULL, NULL) || stile_lock_acquire(lock, -1, NULL))
        return;
    status = stile_list(w->clients[0], NULL, look, &listed, &err);
    expect_ok_or_nomem(status);
    assert_int_equal(listed, status ? 0 : 1); /* never half a list that looks whole */
    status = stile_show(w->clients[0], "a", look, &shown, &err);
    expect_ok_or_nomem(status);
    assert_int_equal(shown, status ? 0 : 1);
    expect_ok_or_nomem(stile_watch(w->clients[0], "a", -1, look_once, NULL, &err));
    expect_ok_or_nomem(stile_break(w->clients[0], "a", 0, &err));
    w->script->findings[0] = (struct stile_finding){.id = "a", .what = "b"};
    w->script->n_findings = 1;
    status = stile_doctor(w->clients[0], 0, count_finding, &found, &err);
    expect_ok_or_nomem(status);
    assert_int_equal(found, status ? 0 : 1);
}

/* A start or an end that was refused for want of memory can be repeated. */
static void record_both(struct world *w)
{
    struct stile_lock *lock;
    enum stile_status status;

    if (stile_lock_new(&lock, w->clients[0], "a", NULL, NULL) || stile_lock_acquire(lock, -1, NULL))
        return;
    status = stile_lock_record_start(lock, NULL);
    expect_ok_or_nomem(status);
    status = stile_lock_record_end(lock, 0, NULL);
    expect_ok_or_nomem(status);
    world_pass(w, 0);
    if (status == STILE_NOMEM && !scarcity.and_all_that_follow)
        expect_ok_or_nomem(stile_lock_record_end(lock, 0, NULL));
    assert_true(stile_lock_held(lock));
}

static void recording(void **state)
{
    (void)state;
    play_both_ways(record_both, 1);
}

static void asking(void **state)
{
    (void)state;
    play_both_ways(ask_everything, 1);
    play_both_ways(ask_without_waiting, 1);
}

static int nothing(struct stile_lock *lock, void *data)
{
    (void)lock;
    (void)data;
    return 0;
}

static void take_several(struct world *w)
{
    struct stile_lock *locks[3];
    const char *names[] = {"c", "a", "b"};
    enum stile_status status;

    expect_ok_or_nomem(stile_with(w->clients[0], "d", NULL, nothing, NULL, NULL, NULL));
    for (int i = 0; i < 3; i++) {
        if (stile_lock_new(&locks[i], w->clients[0], names[i], NULL, NULL))
            return;
    }
    status = stile_locks_acquire(locks, 3, -1, NULL);
    expect_ok_or_nomem(status);
    for (int i = 0; i < 3; i++)
        assert_int_equal(stile_lock_held(locks[i]), status == STILE_OK);
    if (!status)
        assert_status(stile_locks_release(locks, 3, NULL), OK);
}

static void several(void **state)
{
    (void)state;
    play_both_ways(take_several, 1);
}

/* The table of turns can't grow: it is slower then, and still right. */
static void take_many(struct world *w)
{
    char name[16];

    for (int i = 0; i < 70; i++) { /* 64 are its first size */
        struct stile_lock *lock, *second;
        (void)snprintf(name, sizeof(name), "n%d", i);
        if (stile_lock_new(&lock, w->clients[0], name, NULL, NULL) ||
            stile_lock_acquire(lock, -1, NULL) ||
            stile_lock_new(&second, w->clients[0], name, NULL, NULL))
            continue;
        assert_status(stile_lock_acquire(second, 0, NULL), HELD);
    }
}

static void many(void **state)
{
    (void)state;
    play(take_many, 1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),        cmocka_unit_test(acquiring), cmocka_unit_test(losing),
        cmocka_unit_test(asynchronously), cmocka_unit_test(asking),    cmocka_unit_test(several),
        cmocka_unit_test(many),           cmocka_unit_test(recording),
    };
    return cmocka_run_group_tests_name("core_nomem", tests, NULL, NULL);
}
