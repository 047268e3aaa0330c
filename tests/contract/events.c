/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Async calls, with our thread and without it: in an event loop of the program's own. */
#include <string.h>

#include "contract.h"

struct answer {
    int calls;
    enum stile_status status;
    sem_t come;
};

static void answered(struct stile_lock *lock, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    struct answer *a = data;
    (void)lock;
    a->calls++;
    a->status = status;
    if ((status != STILE_OK) != (err != NULL) || (err && err->status != status))
        a->calls += 100;
    sem_post(&a->come);
}

static struct answer *fresh(struct scene *s)
{
    struct answer *a = scene_memory(s, sizeof *a);
    sem_init(&a->come, 0, 0);
    return a;
}

/* The program's loop: nothing happens but through poll and dispatch. */
static void loop_until(struct stile_client *client, const int *calls)
{
    int64_t until = now_ms() + PATIENCE_MS;
    while (!*calls && now_ms() < until) {
        assert_true(readable(stile_client_fd(client), PATIENCE_MS));
        check_ok(stile_client_dispatch(client));
    }
    assert_int_equal(*calls, 1);
}

static enum stile_status answer_by_loop(struct stile_client *client, struct answer *a)
{
    assert_int_equal(a->calls, 0); /* never from inside the call itself */
    loop_until(client, &a->calls);
    return a->status;
}

static struct stile_client *threadless(struct scene *s)
{
    return scene_client(s, STILE_CLIENT_OPTIONS(.threadless = true));
}

/* ---- without a thread ---- */

static void test_loop_acquires_and_releases(void **state)
{
    struct scene *s = *state;
    struct stile_client *client = threadless(s);
    struct stile_lock *lock = lock_on(client, s->name, NULL);
    for (int i = 0; i < 3; i++) {
        struct answer *got = fresh(s), *gone = fresh(s);
        check_ok(stile_lock_acquire_async(lock, 0, answered, got));
        check_ok(answer_by_loop(client, got));
        assert_true(stile_lock_held(lock));
        check_ok(stile_lock_release_async(lock, answered, gone));
        check_ok(answer_by_loop(client, gone));
        assert_false(stile_lock_held(lock));
        assert_int_equal(got->calls, 1);
    }
    check_free(s, s->name);
}

static void test_loop_waits_its_turn(void **state)
{
    struct scene *s = *state;
    struct answer *got = fresh(s);
    struct stile_client *client = threadless(s);
    struct stile_lock *lock = lock_on(client, s->name, NULL);
    struct peer *holder = peer_start(s, s->name, NULL);
    uint64_t before = peer_acquire(holder);
    check_ok(stile_lock_acquire_async(lock, PATIENCE_MS, answered, got));
    check_ok(stile_client_dispatch(client));
    assert_int_equal(got->calls, 0);
    peer_release(holder);
    check_ok(answer_by_loop(client, got));
    assert_true(!s->caps->token || token_of(lock) > before);
}

static void test_loop_hears_what_did_not_work(void **state)
{
    struct scene *s = *state;
    struct answer *held = fresh(s), *late = fresh(s), *cancelled = fresh(s);
    struct stile_client *client = threadless(s);
    struct stile_lock *lock = lock_on(client, s->name, NULL);
    struct peer *holder = peer_start(s, s->name, NULL);
    peer_acquire(holder);
    check_ok(stile_lock_acquire_async(lock, 0, answered, held));
    check_status(STILE_HELD, answer_by_loop(client, held));
    check_ok(stile_lock_acquire_async(lock, 20, answered, late));
    check_status(STILE_TIMEOUT, answer_by_loop(client, late));
    check_ok(stile_lock_acquire_async(lock, -1, answered, cancelled));
    check_ok(stile_lock_cancel(lock));
    check_status(STILE_CANCELLED, answer_by_loop(client, cancelled));
    await_state(s, s->name, 1, 0);
}

static void note_loss(struct stile_lock *lock, void *data)
{
    (void)lock;
    ++*(int *)data;
}

static void test_loop_hears_of_a_loss(void **state)
{
    struct scene *s = *state;
    struct answer *got = fresh(s), *gone = fresh(s);
    int *losses = scene_memory(s, sizeof *losses);
    struct stile_client *client = threadless(s);
    struct stile_lock *lock = lock_on(
        client, s->name, STILE_OPTIONS(.on_lost = note_loss, .data = losses, .ttl_ms = 3000));
    check_ok(stile_lock_acquire_async(lock, PATIENCE_MS, answered, got));
    check_ok(answer_by_loop(client, got));
    int fd = stile_lock_lost_fd(lock);
    check_ok(stile_break(s->client, s->name, 0, &why));
    loop_until(client, losses);
    assert_true(readable(fd, 0));
    assert_false(stile_lock_held(lock));
    check_ok(stile_lock_release_async(lock, answered, gone));
    check_status(STILE_LOST, answer_by_loop(client, gone));
}

/* Leases are renewed by the thread that calls dispatch: it holds for longer than its TTL. */
static void test_loop_keeps_its_lease(void **state)
{
    struct scene *s = *state;
    struct answer *got = fresh(s);
    struct stile_client *client = threadless(s);
    struct stile_lock *lock = lock_on(client, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
    check_ok(stile_lock_acquire_async(lock, PATIENCE_MS, answered, got));
    check_ok(answer_by_loop(client, got));
    int64_t until = now_ms() + (ends_with_process(s) ? 0 : 2 * short_ttl(s));
    while (now_ms() < until) {
        if (readable(stile_client_fd(client), until - now_ms()))
            check_ok(stile_client_dispatch(client));
    }
    assert_true(stile_lock_held(lock));
    check_ok(stile_lock_release(lock, &why));
}

/* An fd that stays readable would turn the program's loop into a spinning one. */
static void test_loop_sleeps_when_nothing_happens(void **state)
{
    struct scene *s = *state;
    struct answer *got = fresh(s);
    struct stile_client *client = threadless(s);
    struct stile_lock *lock = lock_on(client, s->name, NULL);
    int turns = 0;
    check_ok(stile_lock_acquire_async(lock, PATIENCE_MS, answered, got));
    check_ok(answer_by_loop(client, got));
    while (readable(stile_client_fd(client), 0) && turns++ < 100)
        check_ok(stile_client_dispatch(client));
    assert_in_range(turns, 0, 99);
    check_ok(stile_client_dispatch(client)); /* with nothing to do */
}

/* Blocking calls drive a threadless client by themselves. */
static void test_threadless_blocking_calls(void **state)
{
    struct scene *s = *state;
    struct stile_client *client = threadless(s);
    struct peer *holder = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(client, s->name, NULL);
    peer_acquire(holder);
    check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    check_status(STILE_TIMEOUT, stile_lock_acquire(lock, 20, &why));
    peer_tell(holder, "release");
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    check_ok(stile_lock_release(lock, &why));
    peer_expect(holder, "released");
}

/* ---- inspecting without a thread ---- */

struct query {
    int dones, infos;
    size_t holders;
    enum stile_status status;
};

static int on_info(const struct stile_info *info, void *data)
{
    struct query *q = data;
    q->infos++;
    q->holders = info->holders;
    return 0;
}

static void on_query_done(struct stile_client *client, enum stile_status status,
                          const struct stile_error *err, void *data)
{
    struct query *q = data;
    (void)client;
    q->dones += (status != STILE_OK) == (err != NULL) ? 1 : 100;
    q->status = status;
}

static void loop_until_held(struct stile_client *client, const struct query *watch, size_t holders)
{
    int64_t until = now_ms() + PATIENCE_MS;
    while ((!watch->infos || watch->holders != holders) && now_ms() < until) {
        assert_true(readable(stile_client_fd(client), PATIENCE_MS));
        check_ok(stile_client_dispatch(client));
    }
    assert_int_equal(watch->holders, holders);
}

static void test_loop_inspects(void **state)
{
    struct scene *s = *state;
    struct query *q = scene_memory(s, 4 * sizeof *q), *list = q, *show = q + 1, *watch = q + 2,
                 *take = q + 3;
    struct stile_client *client = threadless(s);
    struct peer *peer = peer_start(s, s->name, NULL);
    uint64_t number;
    check_ok(stile_watch_async(&number, client, s->name, -1, on_info, on_query_done, watch, &why));
    loop_until_held(client, watch, 0);
    peer_acquire(peer);
    loop_until_held(client, watch, 1);
    check_ok(stile_list_async(client, s->name, on_info, on_query_done, list, &why));
    assert_int_equal(list->dones, 0); /* never from inside the call itself */
    loop_until(client, &list->dones);
    assert_int_equal(list->infos, 1);
    check_ok(stile_show_async(client, s->name, on_info, on_query_done, show, &why));
    loop_until(client, &show->dones);
    assert_int_equal(show->holders, 1);
    peer_release(peer);
    loop_until_held(client, watch, 0);
    check_ok(stile_break_async(client, s->name, 0, on_query_done, take, &why));
    loop_until(client, &take->dones);
    check_status(STILE_CONFLICT, take->status);
    check_ok(stile_watch_cancel(client, number));
    loop_until(client, &watch->dones);
    check_status(STILE_CANCELLED, watch->status);
}

/* The engine takes back what it has begun, and each call is answered once. */
static void test_close_ends_queries_under_way(void **state)
{
    struct scene *s = *state;
    struct query *q = scene_memory(s, 4 * sizeof *q);
    for (int turns = 0; turns < 4; turns++) {
        struct stile_client *client = NULL;
        memset(q, 0, 4 * sizeof *q);
        check_ok(
            stile_client_open(&client, suite.url, STILE_CLIENT_OPTIONS(.threadless = true), &why));
        check_ok(stile_list_async(client, s->name, on_info, on_query_done, &q[0], &why));
        check_ok(stile_show_async(client, s->name, on_info, on_query_done, &q[1], &why));
        check_ok(stile_break_async(client, s->name, 0, on_query_done, &q[2], &why));
        check_ok(stile_watch_async(NULL, client, s->name, -1, on_info, on_query_done, &q[3], &why));
        for (int i = 0; i < turns && readable(stile_client_fd(client), PATIENCE_MS); i++)
            check_ok(stile_client_dispatch(client));
        stile_client_close(client);
        for (int i = 0; i < 4; i++)
            assert_int_equal(q[i].dones, 1);
        check_status(STILE_CANCELLED, q[3].status);
    }
}

/* ---- with the background thread ---- */

static void test_async_with_our_thread(void **state)
{
    struct scene *s = *state;
    struct answer *got = fresh(s), *gone = fresh(s);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    struct peer *holder = peer_start(s, s->name, NULL);
    peer_acquire(holder);
    check_ok(stile_lock_acquire_async(lock, PATIENCE_MS, answered, got));
    check_status(STILE_MISUSE, stile_lock_acquire_async(lock, 0, answered, got));
    check_status(STILE_MISUSE, stile_lock_acquire(lock, 0, &why));
    peer_release(holder);
    await_post(&got->come);
    check_ok(got->status);
    assert_int_equal(got->calls, 1);
    check_ok(stile_lock_release_async(lock, answered, gone));
    await_post(&gone->come);
    check_ok(gone->status);
    check_status(STILE_MISUSE, stile_lock_release_async(lock, answered, gone));
    check_status(STILE_MISUSE, stile_lock_acquire_async(lock, 0, NULL, NULL));
    check_free(s, s->name);
}

struct chain {
    struct answer end;
    int left;
};

static void again(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data);

static void released(struct stile_lock *lock, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    struct chain *c = data;
    if (!status && --c->left > 0)
        status = stile_lock_acquire_async(lock, PATIENCE_MS, again, c);
    if (status || c->left == 0)
        answered(lock, status, err, &c->end);
}

static void again(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data)
{
    struct chain *c = data;
    if (!status)
        status = stile_lock_release_async(lock, released, c);
    if (status)
        answered(lock, status, err, &c->end);
}

/* Callbacks may call us: a whole program can live in them. */
static void test_callbacks_may_call_us(void **state)
{
    struct scene *s = *state;
    struct chain *chain = scene_memory(s, sizeof *chain);
    chain->left = 50;
    sem_init(&chain->end.come, 0, 0);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_acquire_async(lock, PATIENCE_MS, again, chain));
    await_post(&chain->end.come);
    check_ok(chain->end.status);
    assert_int_equal(chain->end.calls, 1);
    check_free(s, s->name);
}

/* clang-format off */
SUITE_PART(events,
    SCENE_TEST(test_loop_acquires_and_releases),
    SCENE_TEST(test_loop_waits_its_turn),
    SCENE_TEST(test_loop_hears_what_did_not_work),
    SCENE_TEST(test_loop_hears_of_a_loss),
    SCENE_TEST(test_loop_keeps_its_lease),
    SCENE_TEST(test_loop_sleeps_when_nothing_happens),
    SCENE_TEST(test_threadless_blocking_calls),
    SCENE_TEST(test_loop_inspects),
    SCENE_TEST(test_close_ends_queries_under_way),
    SCENE_TEST(test_async_with_our_thread),
    SCENE_TEST(test_callbacks_may_call_us))
/* clang-format on */
