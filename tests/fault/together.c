/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many locks of one client that are given back in one turn of its loop, on a real server: they go
 * in one request, and if one of them was taken away meanwhile, it alone is lost. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "stile.h"

#define LOCKS   150 /* more than go into one request */
#define BROKEN  70
#define SCENE_S 60

static const char *url;

struct scene {
    struct stile_client *client, *other;
    struct stile_lock *locks[LOCKS];
    enum stile_status released[LOCKS];
    int n_granted, n_released;
};

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct scene *scene = data;
    (void)err;
    for (int i = 0; i < LOCKS; i++) {
        if (scene->locks[i] == lock)
            scene->released[i] = status;
    }
    scene->n_released++;
}

/* In the turn in which the last one is granted all are given back. The other client is there for
 * somebody: it takes one of them away first. */
static void on_granted(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    struct scene *scene = data;
    struct stile_error why;
    (void)lock, (void)err;
    assert_int_equal(status, STILE_OK);
    if (++scene->n_granted < LOCKS)
        return;
    if (scene->other) {
        char name[32];
        snprintf(name, sizeof name, "together-%d", BROKEN);
        assert_int_equal(stile_break(scene->other, name, 0, &why), STILE_OK);
    }
    for (int i = 0; i < LOCKS; i++)
        assert_int_equal(stile_lock_release_async(scene->locks[i], on_released, scene), STILE_OK);
}

static struct stile_client *enter(void)
{
    struct stile_client *client;
    struct stile_error err;
    if (stile_client_open(&client, url, STILE_CLIENT_OPTIONS(.threadless = true), &err))
        fail_msg("%s", err.message);
    return client;
}

static void play(struct scene *scene)
{
    struct stile_error err;
    struct pollfd ready = {.fd = stile_client_fd(scene->client), .events = POLLIN};
    alarm(SCENE_S);
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "together-%d", i);
        assert_int_equal(stile_lock_new(&scene->locks[i], scene->client, name,
                                        STILE_OPTIONS(.ttl_ms = 30000), &err),
                         STILE_OK);
        scene->released[i] = STILE_TIMEOUT;
        assert_int_equal(stile_lock_acquire_async(scene->locks[i], -1, on_granted, scene),
                         STILE_OK);
    }
    while (scene->n_released < LOCKS && poll(&ready, 1, -1) >= 0)
        assert_int_equal(stile_client_dispatch(scene->client), STILE_OK);
    alarm(0);
}

static int count(const struct stile_info *info, void *data)
{
    *(int *)data += (int)(info->holders + info->waiters);
    return 0;
}

/* While the session that made them lives on; its end would remove them. */
static void nothing_is_left(struct scene *scene)
{
    struct stile_error err;
    int left = 0;
    assert_int_equal(stile_list(scene->client, "together-", count, &left, &err), STILE_OK);
    assert_int_equal(left, 0);
}

static void all_are_given_back(void **state)
{
    struct scene scene = {.client = enter()};
    (void)state;
    play(&scene);
    for (int i = 0; i < LOCKS; i++)
        assert_int_equal(scene.released[i], STILE_OK);
    nothing_is_left(&scene);
    stile_client_close(scene.client);
}

static void one_that_was_taken_away_is_lost_alone(void **state)
{
    struct scene scene = {.client = enter(), .other = enter()};
    (void)state;
    play(&scene);
    for (int i = 0; i < LOCKS; i++)
        assert_int_equal(scene.released[i], i == BROKEN ? STILE_LOST : STILE_OK);
    nothing_is_left(&scene);
    stile_client_close(scene.client);
    stile_client_close(scene.other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_given_back),
        cmocka_unit_test(one_that_was_taken_away_is_lost_alone),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s ENGINE://HOST:PORT\n", argv[0]);
        return 2;
    }
    url = argv[1];
    return cmocka_run_group_tests_name("together", tests, NULL, NULL);
}
