/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Closing a client: everything is given back, every call is answered, and nothing is waited for
 * without end. */
#include <stdio.h>

#include "support/unit.h"

static void close_gives_everything_back(void **state)
{
    struct world *w = *state;
    struct heard heard[3] = {0};
    struct stile_lock *held = make_lock(w->clients[0], "held", NULL);
    struct stile_lock *queued = make_lock(w->clients[0], "queued", NULL);
    struct stile_lock *turn = make_lock(w->clients[0], "held", NULL);
    struct stile_lock *pausing = make_lock(w->clients[0], "pausing", NULL);

    script_occupy(w->script, "queued", NEVER);
    assert_status(stile_lock_acquire(held, -1, NULL), OK);
    assert_status(stile_lock_acquire_async(queued, -1, heard_done, &heard[0]), OK);
    assert_status(stile_lock_acquire_async(turn, -1, heard_done, &heard[1]), OK);
    world_pass(w, 0);
    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    assert_status(stile_lock_acquire_async(pausing, -1, heard_done, &heard[2]), OK);
    world_pass(w, 0);
    world_close_client(w, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(heard[i].times, 1);
        assert_status(heard[i].status, CANCELLED);
    }
    assert_int_equal(model_waiting(&w->script->model), 0);
    assert_null(model_place(&w->script->model, "held")->holder);
}

static void close_does_not_wait_for_ever(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *held = make_lock(w->clients[0], "held", NULL);
    struct stile_lock *queued = make_lock(w->clients[0], "queued", NULL);
    struct stile_lock *freed = make_lock(w->clients[0], "freed", NULL);

    script_occupy(w->script, "queued", NEVER);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    assert_status(stile_lock_acquire(held, -1, NULL), OK);
    assert_status(stile_lock_acquire(freed, -1, NULL), OK);
    stile_lock_free(freed);
    assert_status(stile_lock_acquire_async(queued, -1, heard_done, &heard), OK);
    world_pass(w, 0);
    world_close_client(w, 0);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
}

static struct script_rule takes_long(struct script *script, enum script_call call)
{
    if (call == SCRIPT_RELEASE)
        world_jump(script->data, 5 * SEC);
    return call == SCRIPT_RELEASE ? (struct script_rule){.act = SCRIPT_NEVER}
                                  : script->always[call];
}

/* Before the last lock is given back, the patience with all of them is over. */
static void close_answers_every_call(void **state)
{
    struct world *w = *state;
    static const char *const names[] = {"held", "queued", "queued too"};
    struct heard heard[3] = {0};

    for (int i = 0; i < 3; i++) {
        struct stile_lock *lock = make_lock(w->clients[0], names[i], NULL);
        if (i > 0)
            script_occupy(w->script, names[i], NEVER);
        assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard[i]), OK);
    }
    world_pass(w, 0);
    w->script->data = w;
    w->script->decide = takes_long;
    assert_status(stile_lock_release_async(heard[0].lock, heard_done, &heard[0]), OK);
    world_close_client(w, 0);
    assert_int_equal(heard[0].times, 2);
    assert_status(heard[0].status, UNREACHABLE);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(heard[i].times, 1);
        assert_status(heard[i].status, CANCELLED);
    }
}

/* More of them than graves: the engine must not meet freed claims when it closes. */
static void close_with_many_unanswered(void **state)
{
    struct world *w = *state;
    char name[16];

    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .act = SCRIPT_NEVER);
    for (int i = 0; i < 3 * FREED_KEPT; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_status(stile_lock_acquire(make_lock(w->clients[0], name, NULL), -1, NULL), OK);
    }
    world_close_client(w, 0);
}

/* The answer was there, the callback not yet made: closing makes it. */
static void close_delivers_what_is_due(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(w->script, (enum script_call)call, .inside = true);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    world_close_client(w, 0);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, OK);
    assert_null(model_place(&w->script->model, "a")->holder);
}

struct more {
    struct stile_client *client;
    enum stile_status made, acquired;
};

static void make_more(struct stile_lock *lock, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    struct more *more = data;
    struct stile_lock *another;

    (void)status;
    (void)err;
    more->made = stile_lock_new(&another, more->client, "more", NULL, NULL);
    more->acquired = stile_lock_acquire_async(lock, -1, heard_done, NULL);
    stile_client_close(more->client); /* again: nothing happens */
}

/* A callback of a client that is being closed can't start anything new on it. */
static void nothing_starts_while_closing(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct more more = {.client = w->clients[0]};

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire_async(lock, -1, make_more, &more), OK);
    world_close_client(w, 0);
    assert_status(more.made, MISUSE);
    assert_status(more.acquired, MISUSE);
}

static void close_inside(struct stile_lock *lock, enum stile_status status,
                         const struct stile_error *err, void *data)
{
    struct more *more = data;
    struct stile_lock *another;

    (void)status;
    (void)err;
    stile_client_close(more->client);
    more->made = stile_lock_new(&another, more->client, "more", NULL, NULL);
    more->acquired = stile_lock_release_async(lock, heard_done, NULL);
}

/* The dispatch that made the callback closes the client: there is nothing left of it afterwards. */
static void a_callback_may_close(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct more more = {.client = w->clients[0]};

    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(w->script, (enum script_call)call, .inside = true);
    assert_status(stile_lock_acquire_async(lock, -1, close_inside, &more), OK);
    assert_status(stile_client_dispatch(w->clients[0]), OK);
    assert_status(more.made, MISUSE);
    assert_status(more.acquired, MISUSE);
    assert_null(model_place(&w->script->model, "a")->holder);
    w->clients[0] = NULL;
    w->loops[0] = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, close_gives_everything_back),
        TEST_IN(open_one, close_does_not_wait_for_ever),
        TEST_IN(open_one, close_answers_every_call),
        TEST_IN(open_one, close_with_many_unanswered),
        TEST_IN(open_one, close_delivers_what_is_due),
        TEST_IN(open_one, nothing_starts_while_closing),
        TEST_IN(open_one, a_callback_may_close),
    };
    return cmocka_run_group_tests_name("core_close", tests, NULL, NULL);
}
