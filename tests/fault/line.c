/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many waiters of one name in one client, or in a few, on a real server. Each has the lock in its
 * turn, none has it beside another, and none waits for ever: also if some of them give up, are
 * broken, or share it. With STILE_SOAK, 10,000 of them. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "stile.h"

#define CLIENTS_MAX 4
#define SCENE_S     (soak() ? 900 : 100)

static const char *url;

struct waiter {
    struct stile_lock *lock;
    int turns;     /* it still wants */
    bool gives_up; /* while it waits */
};

static struct scene {
    struct stile_client *clients[CLIENTS_MAX], *breaker;
    struct waiter *waiters;
    int n_clients, n, left;
    int held, slots;          /* at once */
    int granted, broken_each; /* every so many of them is broken */
    uint64_t token;
} scene;

static bool soak(void)
{
    return getenv("STILE_SOAK") != NULL;
}

static struct waiter *waiter_of(const struct stile_lock *lock, void *data)
{
    struct waiter *waiter = data;
    assert_ptr_equal(waiter->lock, lock);
    return waiter;
}

static void on_granted(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data);

static void ask(struct waiter *waiter)
{
    assert_int_equal(stile_lock_acquire_async(waiter->lock, -1, on_granted, waiter), STILE_OK);
}

static void next_turn(struct waiter *waiter)
{
    if (--waiter->turns > 0)
        ask(waiter);
    else
        scene.left--;
}

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    (void)err;
    if (status != STILE_LOST || !scene.broken_each)
        assert_int_equal(status, STILE_OK);
    next_turn(waiter_of(lock, data));
}

/* Of an exclusive lock each token is greater than the last one: they come in the server's order. */
static void note_grant(struct stile_lock *lock)
{
    uint64_t token = 0;
    assert_int_equal(stile_lock_token(lock, &token), STILE_OK);
    assert_true(scene.held++ < scene.slots);
    assert_true(scene.slots > 1 || token > scene.token);
    scene.token = token;
    scene.granted++;
}

static void on_granted(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    struct waiter *waiter = waiter_of(lock, data);
    struct stile_error why;
    if (status == STILE_CANCELLED && waiter->gives_up) {
        next_turn(waiter);
        return;
    }
    if (status != STILE_OK)
        fail_msg("%s: %s", stile_status_name(status), err ? err->message : "");
    note_grant(lock);
    scene.held--;
    if (scene.broken_each && scene.granted % scene.broken_each == 0)
        assert_int_equal(stile_break(scene.breaker, "line", 0, &why), STILE_OK);
    assert_int_equal(stile_lock_release_async(lock, on_released, waiter), STILE_OK);
}

/* Those that wait behind it, in the turn of the loop in which it is granted. */
static void on_first_granted(struct stile_lock *lock, enum stile_status status,
                             const struct stile_error *err, void *data)
{
    for (int i = 0; i < scene.n; i++) {
        if (scene.waiters[i].gives_up)
            stile_lock_cancel(scene.waiters[i].lock);
    }
    on_granted(lock, status, err, data);
}

static struct stile_client *enter(void)
{
    struct stile_client *client;
    struct stile_error err;
    if (stile_client_open(&client, url, STILE_CLIENT_OPTIONS(.threadless = true), &err))
        fail_msg("%s", err.message);
    return client;
}

static void begin(int clients, int n, enum stile_mode mode, int slots)
{
    struct stile_error err;
    scene = (struct scene){.n_clients = clients,
                           .n = n,
                           .left = n,
                           .slots = mode == STILE_SHARED ? n : slots,
                           .waiters = calloc((size_t)n, sizeof *scene.waiters)};
    assert_non_null(scene.waiters);
    alarm((unsigned)SCENE_S);
    for (int i = 0; i < clients; i++)
        scene.clients[i] = enter();
    scene.breaker = enter();
    for (int i = 0; i < n; i++) {
        scene.waiters[i].turns = 2;
        assert_int_equal(
            stile_lock_new(&scene.waiters[i].lock, scene.clients[i % clients], "line",
                           STILE_LOCK_OPTIONS(.ttl_ms = 40000, .mode = mode,
                                              .slots = mode == STILE_SLOTS ? (unsigned)slots : 0),
                           &err),
            STILE_OK);
    }
}

static void play(void)
{
    struct pollfd ready[CLIENTS_MAX];
    for (int i = 0; i < scene.n_clients; i++)
        ready[i] = (struct pollfd){.fd = stile_client_fd(scene.clients[i]), .events = POLLIN};
    while (scene.left > 0 && poll(ready, (nfds_t)scene.n_clients, -1) >= 0) {
        for (int i = 0; i < scene.n_clients; i++)
            assert_int_equal(stile_client_dispatch(scene.clients[i]), STILE_OK);
    }
}

static int count(const struct stile_info *info, void *data)
{
    *(int *)data += (int)(info->holders + info->waiters);
    return 0;
}

/* The breaker may have lost its session: nothing drove it. */
static void end(void)
{
    struct stile_client *client = enter();
    struct stile_error err;
    int left = 0;
    assert_int_equal(stile_list(client, "line", count, &left, &err), STILE_OK);
    assert_int_equal(left, 0);
    for (int i = 0; i < scene.n; i++)
        stile_lock_free(scene.waiters[i].lock);
    for (int i = 0; i < scene.n_clients; i++)
        stile_client_close(scene.clients[i]);
    stile_client_close(scene.breaker);
    stile_client_close(client);
    free(scene.waiters);
    alarm(0);
}

static void all_ask(void)
{
    for (int i = 0; i < scene.n; i++)
        ask(&scene.waiters[i]);
    play();
}

static void of_one_client(void **state)
{
    (void)state;
    begin(1, soak() ? 10000 : 1000, STILE_EXCLUSIVE, 1);
    all_ask();
    end();
}

static void of_several_clients(void **state)
{
    (void)state;
    begin(4, soak() ? 10000 : 400, STILE_EXCLUSIVE, 1);
    all_ask();
    end();
}

static void some_give_up(void **state)
{
    (void)state;
    begin(2, 300, STILE_EXCLUSIVE, 1);
    for (int i = 1; i < scene.n; i++)
        scene.waiters[i].gives_up = i % 3 != 0;
    assert_int_equal(
        stile_lock_acquire_async(scene.waiters[0].lock, -1, on_first_granted, &scene.waiters[0]),
        STILE_OK);
    for (int i = 1; i < scene.n; i++)
        ask(&scene.waiters[i]);
    play();
    end();
}

static void some_are_broken(void **state)
{
    (void)state;
    begin(2, 100, STILE_EXCLUSIVE, 1);
    scene.broken_each = 7;
    all_ask();
    end();
}

static void for_slots(void **state)
{
    (void)state;
    begin(2, 200, STILE_SLOTS, 3);
    all_ask();
    end();
}

static void of_readers(void **state)
{
    (void)state;
    begin(2, 500, STILE_SHARED, 0);
    all_ask();
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_one_client), cmocka_unit_test(of_several_clients),
        cmocka_unit_test(some_give_up),  cmocka_unit_test(some_are_broken),
        cmocka_unit_test(for_slots),     cmocka_unit_test(of_readers),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s ENGINE://HOST:PORT\n", argv[0]);
        return 2;
    }
    url = argv[1];
    return cmocka_run_group_tests_name("line", tests, NULL, NULL);
}
