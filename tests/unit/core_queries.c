/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The async forms of list, show, watch and break: done comes once, after all infos and never from
 * inside the call. First in virtual time, then on the real loop with threads. */
#include <stdlib.h>

#include "unit/core_threads_kit.h"

struct asked {
    struct stile_client *client;
    unsigned infos, dones, stop_after;
    size_t holders;
    enum stile_status status;
    struct stile_error err;
    char name[16];
    uint64_t watch;
    bool close, cancel, block; /* what the first info does */
    bool close_when_done;
    bool inside;            /* its fn */
    struct script *changes; /* block: what it watches is taken meanwhile */
    sem_t *answered, *over;
};

static int on_info(const struct stile_info *info, void *data)
{
    struct asked *a = data;

    assert_int_equal(a->dones, 0);
    assert_false(a->inside);
    a->inside = true;
    a->infos++;
    a->holders = info->holders;
    (void)snprintf(a->name, sizeof a->name, "%s", info->name);
    if (a->answered)
        sem_post(a->answered);
    if (a->block && a->changes)
        script_occupy(a->changes, info->name, NEVER);
    for (int i = 0; a->block && i < 5; i++)
        assert_status(stile_show(a->client, "b", NULL, NULL, NULL), OK);
    if (a->cancel)
        assert_status(stile_watch_cancel(a->client, a->watch), OK);
    if (a->close)
        stile_client_close(a->client);
    a->block = a->cancel = a->close = a->inside = false;
    return a->stop_after && a->infos >= a->stop_after;
}

static void on_done(struct stile_client *client, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    struct asked *a = data;

    assert_ptr_equal(client, a->client);
    assert_int_equal(status != STILE_OK, err != NULL);
    a->dones++;
    a->status = status;
    if (err)
        a->err = *err;
    if (a->close_when_done)
        stile_client_close(client);
    if (a->over)
        sem_post(a->over);
}

static struct asked fresh(struct world *w)
{
    return (struct asked){.client = w->clients[0]};
}

static void hold(struct world *w, const char *name)
{
    assert_status(stile_lock_acquire(make_lock(w->clients[0], name, NULL), -1, NULL), OK);
}

static void all_inside(struct world *w)
{
    for (int call = 0; call < SCRIPT_CALLS; call++)
        SCRIPT_ALWAYS(w->script, (enum script_call)call, .inside = true);
}

/* ---- list, show, break ---- */

static void each_is_answered_once(void **state)
{
    struct world *w = *state;

    for (int inside = 0; inside < 2; inside++) {
        struct asked list = fresh(w), show = fresh(w), take = fresh(w);
        char name[] = "b";
        hold(w, "a");
        hold(w, "b");
        if (inside)
            all_inside(w);
        assert_status(stile_list_async(w->clients[0], NULL, on_info, on_done, &list, NULL), OK);
        assert_status(stile_show_async(w->clients[0], name, on_info, on_done, &show, NULL), OK);
        assert_status(stile_break_async(w->clients[0], name, 0, on_done, &take, NULL), OK);
        name[0] = 'x'; /* it was copied */
        assert_int_equal(list.dones + list.infos + show.dones + show.infos + take.dones, 0);
        world_pass(w, 1 * SEC);
        assert_int_equal(list.infos, 2);
        assert_int_equal(list.dones, 1);
        assert_status(list.status, OK);
        assert_int_equal(show.infos, 1);
        assert_string_equal(show.name, "b");
        assert_int_equal(show.dones, 1);
        assert_int_equal(take.dones, 1);
        assert_status(take.status, OK);
        world_close_client(w, 0);
        assert_int_equal(list.dones + show.dones + take.dones, 3);
        if (inside)
            return;
        close_world(state);
        open_apart(state);
    }
}

static void an_async_list_stops(void **state)
{
    struct world *w = *state;
    struct asked a = fresh(w);

    a.stop_after = 1;
    hold(w, "a");
    hold(w, "b");
    assert_status(stile_list_async(w->clients[0], "", on_info, on_done, &a, NULL), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.infos, 1);
    assert_status(a.status, OK);
    assert_int_equal(a.dones, 1);
    a = fresh(w);
    assert_status(stile_list_async(w->clients[0], "", NULL, on_done, &a, NULL), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.dones, 1);
}

static void failures_are_explained(void **state)
{
    struct world *w = *state;
    struct asked list = fresh(w), show = fresh(w), take = fresh(w), watch = fresh(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_list_async(w->clients[0], NULL, on_info, on_done, &list, NULL), OK);
    assert_status(stile_show_async(w->clients[0], "a", on_info, on_done, &show, NULL), OK);
    assert_status(stile_break_async(w->clients[0], "a", 7, on_done, &take, NULL), OK);
    assert_status(stile_watch_async(NULL, w->clients[0], "a", -1, on_info, on_done, &watch, NULL),
                  OK);
    world_pass(w, 1 * SEC);
    assert_status(list.status, UNREACHABLE);
    assert_string_equal(list.err.message, "listing locks: the script says so");
    assert_string_equal(show.err.message, "showing 'a': the script says so");
    assert_string_equal(take.err.message, "breaking 'a': the script says so");
    assert_status(watch.status, UNREACHABLE);
    assert_string_equal(watch.err.message, "watching 'a': the script says so");
    assert_int_equal(list.dones + show.dones + take.dones + watch.dones, 4);
}

static void misuse_is_not_called_back(void **state)
{
    struct world *w = *state;
    struct stile_client *c = w->clients[0];
    struct asked a = fresh(w);
    struct stile_error err = {0};

    assert_status(stile_list_async(c, NULL, on_info, NULL, &a, &err), MISUSE);
    assert_string_equal(err.message, "listing locks: no callback given");
    assert_status(stile_list_async(c, "a\t", on_info, on_done, &a, &err), MISUSE);
    assert_status(stile_list_async(NULL, NULL, on_info, on_done, &a, &err), MISUSE);
    assert_status(stile_show_async(c, "a", on_info, NULL, &a, &err), MISUSE);
    assert_status(stile_show_async(c, NULL, on_info, on_done, &a, &err), MISUSE);
    assert_status(stile_show_async(c, "", on_info, on_done, &a, &err), MISUSE);
    assert_status(stile_break_async(c, "a", 0, NULL, &a, &err), MISUSE);
    assert_status(stile_break_async(c, NULL, 0, on_done, &a, &err), MISUSE);
    assert_status(stile_watch_async(NULL, c, "a", -1, NULL, on_done, &a, &err), MISUSE);
    assert_status(stile_watch_async(NULL, c, "a", -1, on_info, NULL, &a, &err), MISUSE);
    assert_status(stile_watch_async(NULL, c, NULL, -1, on_info, on_done, &a, &err), MISUSE);
    assert_status(stile_watch_cancel(NULL, 1), MISUSE);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.dones + a.infos, 0);
    assert_trace(w->script, "");
}

/* ---- watch ---- */

static void start_watch(struct asked *a, const char *name, int64_t wait_ms)
{
    assert_status(stile_watch_async(&a->watch, a->client, name, wait_ms, on_info, on_done, a, NULL),
                  OK);
}

static void an_async_watch_sees_changes(void **state)
{
    struct world *w = *state;
    struct asked a = fresh(w);

    start_watch(&a, "a", 5000);
    assert_int_equal(a.infos, 0);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.infos, 1);
    assert_int_equal(a.holders, 0);
    script_occupy(w->script, "a", 2 * SEC);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.infos, 2);
    assert_int_equal(a.holders, 1);
    world_pass(w, 5 * SEC); /* it ends after 2 s */
    assert_int_equal(a.infos, 3);
    assert_int_equal(a.holders, 0);
    assert_int_equal(a.dones, 0);
    world_pass(w, 5 * SEC);
    assert_int_equal(a.dones, 1);
    assert_status(a.status, TIMEOUT);
    assert_string_equal(a.err.message, "watching 'a': nothing has changed in that time");
}

static void its_callback_ends_it(void **state)
{
    struct world *w = *state;
    struct asked a = fresh(w);

    a.stop_after = 1;
    start_watch(&a, "a", -1);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.dones, 1);
    assert_status(a.status, OK);
    script_occupy(w->script, "a", NEVER);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.infos, 1);
}

static void it_is_cancelled(void **state)
{
    struct world *w = *state;

    for (unsigned from_inside = 0; from_inside < 2; from_inside++) {
        struct asked a = fresh(w), other = fresh(w);
        a.cancel = from_inside;
        start_watch(&a, "a", -1);
        start_watch(&other, "a", -1);
        assert_true(a.watch != other.watch);
        world_pass(w, 1 * SEC);
        if (!from_inside) {
            assert_int_equal(a.dones, 0);
            assert_status(stile_watch_cancel(w->clients[0], a.watch), OK);
            assert_int_equal(a.dones, 0);
            world_pass(w, 0);
        }
        assert_int_equal(a.dones, 1);
        assert_status(a.status, CANCELLED);
        assert_int_equal(other.dones, 0);
        assert_status(stile_watch_cancel(w->clients[0], a.watch), OK); /* it is over */
        assert_status(stile_watch_cancel(w->clients[0], 0), OK);
        assert_status(stile_watch_cancel(w->clients[0], other.watch), OK);
        world_pass(w, 1 * SEC);
        assert_int_equal(a.dones, 1);
        assert_int_equal(other.dones, 1);
    }
}

/* While its first show is under way: what the engine has is taken back. */
static void it_is_cancelled_at_once(void **state)
{
    struct world *w = *state;
    struct asked a = fresh(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .back_ns = 100 * MS);
    start_watch(&a, "a", -1);
    assert_status(stile_watch_cancel(w->clients[0], a.watch), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.infos, 0);
    assert_int_equal(a.dones, 1);
    assert_status(a.status, CANCELLED);
}

/* A change that is seen while the callback runs is no longer wanted. */
static void a_callback_that_has_enough_comes_no_more(void **state)
{
    struct world *w = *state;
    struct asked a = fresh(w);

    a.block = true;
    a.changes = w->script;
    a.stop_after = 1;
    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .back_ns = 10 * MS);
    assert_status(stile_watch(w->clients[0], "a", -1, on_info, &a, NULL), OK);
    assert_int_equal(a.infos, 1);
}

/* A blocking call inside its callback: other callbacks run there, its own do not. */
static void its_callback_waits_for_another_call(void **state)
{
    struct world *w = *state;
    struct asked a = fresh(w), list = fresh(w);

    a.block = list.block = true;
    a.changes = w->script;
    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .back_ns = 10 * MS);
    hold(w, "b");
    start_watch(&a, "a", 100);
    assert_status(stile_list_async(w->clients[0], NULL, on_info, on_done, &list, NULL), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(a.infos, 2);
    assert_int_equal(a.holders, 1);
    assert_int_equal(a.dones, 1);
    assert_status(a.status, TIMEOUT);
    assert_int_equal(list.infos, 1);
    assert_int_equal(list.dones, 1);
}

/* ---- closing ---- */

static void close_halfway(void **state)
{
    struct world *w = *state;

    for (unsigned ms = 0; ms <= 20; ms += 10) { /* before, while and after the first show arrives */
        struct asked list = fresh(w), show = fresh(w), take = fresh(w), watch = fresh(w);
        SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .back_ns = 10 * MS);
        assert_status(stile_list_async(w->clients[0], NULL, on_info, on_done, &list, NULL), OK);
        assert_status(stile_show_async(w->clients[0], "a", on_info, on_done, &show, NULL), OK);
        assert_status(stile_break_async(w->clients[0], "a", 0, on_done, &take, NULL), OK);
        start_watch(&watch, "a", -1);
        world_pass(w, ms * MS);
        bool over = ms > 0;
        assert_int_equal(list.dones, over);
        world_close_client(w, 0);
        assert_int_equal(list.dones + show.dones + take.dones + watch.dones, 4);
        assert_int_equal(list.status, over ? STILE_OK : STILE_CANCELLED);
        assert_int_equal(take.status, over ? STILE_OK : STILE_CANCELLED);
        assert_status(watch.status, CANCELLED);
        assert_string_equal(watch.err.message, "watching 'a': cancelled");
        close_world(state);
        open_apart(state);
    }
}

/* The engine never answers: closing does not wait for it. */
static void close_without_an_answer(void **state)
{
    struct world *w = *state;
    struct asked list = fresh(w), watch = fresh(w);
    uint64_t start = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .act = SCRIPT_NEVER);
    assert_status(stile_list_async(w->clients[0], NULL, on_info, on_done, &list, NULL), OK);
    start_watch(&watch, "a", -1);
    world_pass(w, 1 * SEC);
    stile_client_close(w->clients[0]);
    w->clients[0] = NULL;
    assert_int_equal(list.dones + watch.dones, 2);
    assert_status(list.status, CANCELLED);
    assert_in_range(w->script->closed_ns - start, 1 * SEC, 1 * SEC + 100 * MS);
}

/* ---- on the real loop ---- */

static sem_t answered, over;

static struct asked fresh_it(void)
{
    sem_init(&answered, 0, 0);
    sem_init(&over, 0, 0);
    return (struct asked){.client = it.client, .answered = &answered, .over = &over};
}

static void in_the_background(void **state)
{
    struct asked a = fresh_it();

    (void)state;
    start_watch(&a, "a", -1);
    threads_await(&answered);
    threads_occupy("a");
    threads_await(&answered);
    assert_status(stile_watch_cancel(it.client, a.watch), OK);
    threads_await(&over);
    assert_status(a.status, CANCELLED);
    a = fresh_it();
    assert_status(stile_list_async(it.client, NULL, on_info, on_done, &a, NULL), OK);
    threads_await(&over);
    assert_int_equal(a.infos, 1);
    assert_int_equal(a.dones, 1);
}

/* The client is in use until the watch that made the callback returns. */
static void close_from_a_blocking_watch(void **state)
{
    struct asked a = fresh_it();

    (void)state;
    threads_watch_close();
    a.close = true;
    assert_status(stile_watch(it.client, "a", -1, on_info, &a, NULL), CANCELLED);
    assert_int_equal(a.infos, 1);
    threads_await_close();
}

static void close_from_a_callback(void **state)
{
    (void)state;
    for (unsigned when_done = 0; when_done < 2; when_done++) {
        struct asked a = fresh_it();
        threads_watch_close();
        a.close = !when_done;
        a.close_when_done = when_done;
        a.stop_after = when_done;
        start_watch(&a, "a", -1);
        threads_await(&over);
        assert_int_equal(a.infos, 1);
        assert_int_equal(a.status, when_done ? STILE_OK : STILE_CANCELLED);
        threads_await_close();
        if (!when_done) {
            threads_close(NULL);
            assert_int_equal(threads_open(NULL), 0);
        }
    }
}

struct crowd {
    pthread_t thread;
    struct asked asked[20];
    sem_t over;
};

static void *ask_a_lot(void *arg)
{
    struct crowd *c = arg;

    for (size_t i = 0; i < 20; i++) {
        c->asked[i] = (struct asked){.client = it.client, .over = &c->over};
        if (i % 2 == 0)
            start_watch(&c->asked[i], "a", -1);
        else if (stile_show_async(it.client, "a", on_info, on_done, &c->asked[i], NULL))
            return NULL;
    }
    for (size_t i = 0; i < 20; i += 2)
        (void)stile_watch_cancel(it.client, c->asked[i].watch);
    return NULL;
}

static void many_threads(void **state)
{
    struct crowd crowd[4];

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        sem_init(&crowd[i].over, 0, 0);
        assert_int_equal(pthread_create(&crowd[i].thread, NULL, ask_a_lot, &crowd[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(crowd[i].thread, NULL);
        for (size_t k = 0; k < 20; k++)
            threads_await(&crowd[i].over);
        for (size_t k = 0; k < 20; k++)
            assert_int_equal(crowd[i].asked[k].dones, 1);
    }
}

#define IN_CLIENT(test) cmocka_unit_test_setup_teardown(test, threads_open, threads_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_apart, each_is_answered_once),
        TEST_IN(open_apart, an_async_list_stops),
        TEST_IN(open_apart, failures_are_explained),
        TEST_IN(open_apart, misuse_is_not_called_back),
        TEST_IN(open_apart, an_async_watch_sees_changes),
        TEST_IN(open_apart, its_callback_ends_it),
        TEST_IN(open_apart, it_is_cancelled),
        TEST_IN(open_apart, it_is_cancelled_at_once),
        TEST_IN(open_apart, its_callback_waits_for_another_call),
        TEST_IN(open_apart, a_callback_that_has_enough_comes_no_more),
        TEST_IN(open_apart, close_halfway),
        TEST_IN(open_apart, close_without_an_answer),
        IN_CLIENT(in_the_background),
        IN_CLIENT(close_from_a_blocking_watch),
        IN_CLIENT(close_from_a_callback),
        IN_CLIENT(many_threads),
    };
    return cmocka_run_group_tests_name("core_queries", tests, NULL, NULL);
}
