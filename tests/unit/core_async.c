/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Async calls: the callback comes exactly once, never from inside the call, and may do a lot. Then
 * the same on a real epoll loop, without a thread of ours. */
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "core/lock.h"
#include "support/unit.h"

static void all_inside(struct script *script)
{
    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(script, (enum script_call)call, .inside = true);
}

static void never_from_inside_the_call(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    all_inside(w->script); /* the engine answers at once, the callback still does not */
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    assert_int_equal(heard.times, 0);
    assert_status(stile_client_dispatch(w->clients[0]), OK);
    assert_int_equal(heard.times, 1);
    assert_ptr_equal(heard.lock, lock);
    assert_status(stile_lock_release_async(lock, heard_done, &heard), OK);
    assert_int_equal(heard.times, 1);
    assert_status(stile_client_dispatch(w->clients[0]), OK);
    assert_int_equal(heard.times, 2);
    assert_status(stile_client_dispatch(w->clients[0]), OK);
    assert_int_equal(heard.times, 2);
}

static void a_call_that_is_refused_is_not_called_back(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_release_async(lock, heard_done, &heard), MISUSE);
    assert_status(stile_lock_acquire_async(lock, -1, NULL, NULL), MISUSE);
    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), MISUSE);
    assert_status(stile_lock_acquire(lock, 0, NULL), MISUSE);
    assert_status(stile_lock_release(lock, NULL), MISUSE);
    world_pass(w, 1 * SEC);
    assert_int_equal(heard.times, 0);
    assert_status(stile_lock_cancel(lock), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(heard.times, 1);
}

static void every_outcome_once(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    script_occupy(w->script, "a", NEVER);
    assert_status(stile_lock_acquire_async(lock, 0, heard_done, &heard), OK);
    world_pass(w, 60 * SEC);
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, HELD);
    assert_status(stile_lock_acquire_async(lock, 500, heard_done, &heard), OK);
    world_pass(w, 60 * SEC);
    assert_int_equal(heard.times, 2);
    assert_status(heard.status, TIMEOUT);
    script_vacate(w->script, "a");
    assert_status(stile_lock_acquire_async(lock, 500, heard_done, &heard), OK);
    world_pass(w, 60 * SEC);
    assert_int_equal(heard.times, 3);
    assert_status(heard.status, OK);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_status(stile_lock_release_async(lock, heard_done, &heard), OK);
    world_pass(w, 60 * SEC);
    assert_int_equal(heard.times, 4);
    assert_status(heard.status, LOST);
}

/* ---- what a callback may do ---- */

struct doings {
    unsigned times;
    struct stile_lock *other;
    struct stile_client *client;
    enum stile_status first, second;
    bool held;
};

static void free_inside(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct doings *d = data;

    (void)status;
    (void)err;
    d->times++;
    d->held = stile_lock_held(lock);
    stile_lock_free(lock);
    stile_lock_free(lock); /* twice: nothing happens */
}

static void free_inside_a_callback(void **state)
{
    struct world *w = *state;

    for (int inside = 0; inside < 2; inside++) {
        struct doings d = {0};
        if (inside)
            all_inside(w->script);
        assert_status(
            stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), -1, free_inside, &d), OK);
        world_pass(w, 1 * SEC);
        assert_int_equal(d.times, 1);
        assert_true(d.held);
        assert_null(w->clients[0]->locks);
        assert_null(model_place(&w->script->model, "a")->holder);
    }
}

static void cancel_inside(struct stile_lock *lock, enum stile_status status,
                          const struct stile_error *err, void *data)
{
    struct doings *d = data;

    (void)status;
    (void)err;
    d->times++;
    d->first = stile_lock_cancel(lock);
    d->second = stile_lock_cancel(d->other);
}

static void cancel_inside_a_callback(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct doings d = {.other = make_lock(w->clients[0], "b", NULL)};

    script_occupy(w->script, "b", NEVER);
    assert_status(stile_lock_acquire_async(d.other, -1, heard_done, &heard), OK);
    assert_status(stile_lock_acquire_async(lock, -1, cancel_inside, &d), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(d.times, 1);
    assert_status(d.first, OK);
    assert_status(d.second, OK);
    assert_true(stile_lock_held(lock));
    assert_int_equal(heard.times, 1);
    assert_status(heard.status, CANCELLED);
    assert_int_equal(model_waiting(&w->script->model), 0);
}

static void go_on(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data)
{
    struct doings *d = data;

    (void)status;
    (void)err;
    d->times++;
    if (stile_lock_held(lock))
        d->first = stile_lock_release_async(lock, go_on, d);
    else
        d->first = stile_lock_acquire_async(lock, -1, go_on, d);
}

/* An endless chain of callbacks on an engine that answers at once: dispatch() returns all the same,
 * and time goes on for the others. */
static void a_chain_of_callbacks_starves_nobody(void **state)
{
    struct world *w = *state;
    struct doings d = {0};
    struct stile_lock *chain = make_lock(w->clients[0], "chain", NULL);
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    all_inside(w->script);
    w->script->untraced = true;
    assert_status(stile_lock_acquire_async(chain, -1, go_on, &d), OK);
    assert_status(stile_client_dispatch(w->clients[0]), OK);
    assert_in_range(d.times, 1, 100);
    /* A blocking call has to drive the same loop. */
    SCRIPT_NEXT(w->script, SCRIPT_CLAIM, .inside = false);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(d.first, OK);
    world_close_client(w, 0); /* which ends the chain */
    assert_status(d.first, MISUSE);
}

static void lose_and_take_again(struct stile_lock *lock, void *data)
{
    struct doings *d = data;

    d->times++;
    d->held = stile_lock_held(lock);
    d->first = stile_lock_release_async(lock, go_on, d);
}

static void on_lost_may_start_over(void **state)
{
    struct world *w = *state;
    struct doings d = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = lose_and_take_again, .data = &d));

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .back_ns = 1 * MS);
    script_tell_lost(w->script, "a");
    world_pass(w, 1 * MS); /* released, and acquired again */
    assert_false(d.held);
    assert_status(d.first, OK);
    assert_in_range(d.times, 2, 4);
    world_close_client(w, 0);
}

static void wait_inside(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    struct doings *d = data;

    (void)status;
    (void)err;
    d->times++;
    d->first = stile_lock_release(lock, NULL);
    d->second = stile_lock_acquire(d->other, 5000, NULL);
}

/* It should not, but it must not hang either. */
static void a_callback_that_waits_is_served(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct doings d = {.other = make_lock(w->clients[0], "b", NULL)};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .there_ns = 10 * MS, .back_ns = 10 * MS);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .there_ns = 10 * MS, .back_ns = 10 * MS);
    assert_status(stile_lock_acquire_async(lock, -1, wait_inside, &d), OK);
    assert_status(
        stile_lock_acquire_async(make_lock(w->clients[0], "c", NULL), -1, heard_done, &heard), OK);
    /* Once driven by a blocking call ... */
    struct stile_lock *third = make_lock(w->clients[0], "d", NULL);
    assert_status(stile_lock_acquire(third, -1, NULL), OK);
    assert_int_equal(d.times, 1);
    assert_status(d.first, OK);
    assert_status(d.second, OK);
    assert_int_equal(heard.times, 1);
    /* ... and once by dispatch(). */
    assert_status(stile_lock_release(d.other, NULL), OK);
    assert_status(stile_lock_acquire_async(lock, -1, wait_inside, &d), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(d.times, 2);
    assert_true(stile_lock_held(d.other));
    assert_false(w->clients[0]->drive.led);
}

/* ---- a real event loop ---- */

static int open_epoll(void **state)
{
    static struct world world;
    struct loop *loop;

    world = (struct world){.n = 1, .script = script_new(NULL)};
    script_use(world.script);
    if (loop_epoll_new(&loop))
        return -1;
    world.loops[0] = loop;
    *state = &world;
    return client_new(&world.clients[0], script_variant(STILE_LEASE_CLAIM, 0), loop, NULL,
                      STILE_CLIENT_OPTIONS(.threadless = true), NULL)
               ? -1
               : 0;
}

/* As an event loop of somebody else's would do it: an epoll set of their own, our fd inside. */
static void drive_until_heard(struct stile_client *client, struct heard *heard, unsigned times)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};

    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, stile_client_fd(client), &event), 0);
    while (heard->times < times) {
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 10000), 1); /* else: never woken */
        assert_status(stile_client_dispatch(client), OK);
    }
    close(epoll_fd);
}

static void the_fd_wakes_for_answers(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    for (unsigned i = 0; i < 5; i++) {
        SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .there_ns = 2 * MS, .back_ns = 2 * MS);
        assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
        drive_until_heard(w->clients[0], &heard, 2 * i + 1);
        assert_status(heard.status, OK);
        assert_status(stile_lock_release_async(lock, heard_done, &heard), OK);
        drive_until_heard(w->clients[0], &heard, 2 * i + 2);
    }
    /* Answered from inside the call: only a callback is due, and the fd must say so. */
    all_inside(w->script);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    drive_until_heard(w->clients[0], &heard, 11);
    /* And a cancel that nobody has to answer. */
    assert_status(stile_lock_release(lock, NULL), OK);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_BUSY);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    assert_status(stile_lock_cancel(lock), OK);
    drive_until_heard(w->clients[0], &heard, 12);
    assert_status(heard.status, CANCELLED);
}

/* Renewal after renewal, armed from inside dispatch(), then the loss: all through the fd. The lease
 * is long enough for a process that waits for its core. */
static void the_fd_wakes_for_renewals_and_loss(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock = make_lock(
        w->clients[0], "a",
        STILE_OPTIONS(.ttl_ms = 1500, .renew_ms = 10, .on_lost = heard_lost, .data = &lost));

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    for (int i = 0; i < 4; i++)
        SCRIPT_NEXT(w->script, SCRIPT_RENEW, .act = SCRIPT_MODEL);
    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    drive_until_heard(w->clients[0], &lost, 1);
    assert_false(stile_lock_held(lock));
    assert_int_equal(script_count(w->script, SCRIPT_RENEW), 5);
}

/* When nothing is due the fd is quiet, or the event loop spins. */
static void the_fd_is_quiet_when_nothing_is_due(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    all_inside(w->script);
    assert_status(stile_lock_acquire_async(lock, -1, heard_done, &heard), OK);
    drive_until_heard(w->clients[0], &heard, 1);
    for (int i = 0; i < 3; i++)
        assert_status(stile_client_dispatch(w->clients[0]), OK);
    assert_false(fd_readable(stile_client_fd(w->clients[0])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, never_from_inside_the_call),
        TEST_IN(open_one, a_call_that_is_refused_is_not_called_back),
        TEST_IN(open_one, every_outcome_once),
        TEST_IN(open_one, free_inside_a_callback),
        TEST_IN(open_one, cancel_inside_a_callback),
        TEST_IN(open_one, a_chain_of_callbacks_starves_nobody),
        TEST_IN(open_one, on_lost_may_start_over),
        TEST_IN(open_one, a_callback_that_waits_is_served),
        TEST_IN(open_epoll, the_fd_wakes_for_answers),
        TEST_IN(open_epoll, the_fd_wakes_for_renewals_and_loss),
        TEST_IN(open_epoll, the_fd_is_quiet_when_nothing_is_due),
    };
    return cmocka_run_group_tests_name("core_async", tests, NULL, NULL);
}
