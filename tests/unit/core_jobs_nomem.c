/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on jobs, blocking and async, while every allocation fails in turn, alone or with all that
 * follow: each ends in NOMEM or does its work all the same, answers once, and leaks nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/client.h"
#include "support/loop_virtual.h"
#include "support/scarcity.h"

#define SEC NS_PER_SEC

/* ---- an engine that has everything, and allocates nothing ---- */

struct fake {
    struct engine engine;
    struct timer timer;
    struct job_request *request;
};

static void answer(struct timer *timer)
{
    struct fake *fake = (struct fake *)((char *)timer - offsetof(struct fake, timer));
    struct job_request *request = fake->request;
    const struct engine_events *events = fake->engine.events;
    const struct stile_job job = {.id = 17,
                                  .token = 17000001,
                                  .queue = "q",
                                  .key = "k",
                                  .payload = "x",
                                  .payload_size = 1,
                                  .last_error = "no luck",
                                  .host = "h"};
    size_t jobs = request->verb == JOB_LIST ? 20 : request->verb == JOB_SHOW ? 1 : request->max;
    for (size_t i = 0; i < request->n; i++)
        events->job_mark(request, request->marks[i].token);
    for (size_t i = 0; i < request->n_entries; i++)
        request->ids[i] = 100 + i;
    for (size_t i = 0; i < jobs; i++)
        events->job(request, &job);
    for (size_t i = 0; request->verb == JOB_COUNT && i < 20; i++)
        events->job_queue(request, &(struct stile_queue){.name = "q"});
    request->count = 1;
    events->job_done(request, NULL);
}

static void fake_jobs(struct engine *engine, struct job_request *request)
{
    struct fake *fake = (struct fake *)engine;
    fake->request = request;
    request->sent_ns = loop_now(engine->loop);
    loop_arm(engine->loop, &fake->timer, loop_now(engine->loop) + SEC / 10);
}

static void fake_open(struct engine *engine, const struct url *url)
{
    struct stile_error err = {.status = STILE_NOMEM};
    (void)url;
    ((struct fake *)engine)->timer.fn = answer;
    engine->events->opened(engine, loop_reserve(engine->loop, 1) ? &err : NULL);
}

static void fake_close(struct engine *engine)
{
    loop_disarm(engine->loop, &((struct fake *)engine)->timer);
}

static const struct engine_jobs fake_part = {.run = fake_jobs};
static const struct engine_class fake_class = {.schemes = "fake",
                                               .caps = {.engine = "fake"},
                                               .engine_size = sizeof(struct fake),
                                               .open = fake_open,
                                               .close = fake_close,
                                               .jobs = &fake_part};

/* ---- the frame ---- */

static struct loop *loop;
static struct stile_client *client;
static struct {
    unsigned answers, items;
} told;

static void expect_ok_or_nomem(enum stile_status status)
{
    if (status && scarcity.failed == 0)
        fail_msg("%s without a reason", stile_status_name(status));
    if (status != STILE_OK && status != STILE_NOMEM)
        fail_msg("%s, not NOMEM, at allocation %u", stile_status_name(status), scarcity.at);
}

typedef void scene_fn(void);

static void play_at(scene_fn *scene, unsigned at, bool all)
{
    long before = scarcity_outstanding;
    assert_int_equal(loop_virtual_new(&loop, 7), 0);
    assert_int_equal(client_new(&client, &fake_class, loop, NULL,
                                STILE_CLIENT_OPTIONS(.threadless = true), NULL),
                     STILE_OK);
    scarcity_begin(at, all);
    scene();
    scarcity_end();
    assert_int_equal(stile_jobs_add(NULL, client, "q", "x", 1, NULL, NULL), STILE_OK);
    stile_client_close(client);
    if (scarcity_outstanding != before)
        fail_msg("%ld leaked at allocation %u", scarcity_outstanding - before, at);
}

/* With one allocation more each time, until none is left that could fail. */
static void play(scene_fn *scene)
{
    for (int all = 0; all < 2; all++) {
        unsigned at = 0;
        do
            play_at(scene, at++, all);
        while (scarcity.failed > 0 && at < 1000);
        assert_int_equal(scarcity.failed, 0);
        assert_true(scarcity.seen > 0);
    }
}

/* An async call that was started answers once; one that was not never does. */
static void await_answer(enum stile_status started)
{
    expect_ok_or_nomem(started);
    loop_virtual_advance(loop, SEC);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
    assert_int_equal(told.answers, started ? 0 : 1);
}

#define AWAIT(call)                                                                                \
    do {                                                                                           \
        memset(&told, 0, sizeof told);                                                             \
        await_answer(call);                                                                        \
    } while (0)

static void on_jobs(struct stile_job *jobs, size_t n, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)err;
    expect_ok_or_nomem(status);
    told.answers++;
    if (data) /* they are ours */
        stile_jobs_free(jobs, n);
}

static void on_ids(const uint64_t *ids, size_t n, enum stile_status status,
                   const struct stile_error *err, void *data)
{
    (void)ids, (void)n, (void)err, (void)data;
    expect_ok_or_nomem(status);
    told.answers++;
}

static void on_over(struct stile_client *c, enum stile_status status, const struct stile_error *err,
                    void *data)
{
    (void)c, (void)err, (void)data;
    expect_ok_or_nomem(status);
    assert_int_equal(told.items, status ? 0 : 20);
    told.answers++;
}

static int on_job(const struct stile_job *job, void *data)
{
    (void)job, (void)data;
    told.items++;
    return 0;
}

static int on_queue(const struct stile_queue *queue, void *data)
{
    (void)queue, (void)data;
    told.items++;
    return 0;
}

/* ---- the scenes ---- */

static const struct stile_job_entry two[] = {{.payload = "a", .size = 1},
                                             {.payload = "b", .size = 1, .key = "k"}};

static void add(void)
{
    expect_ok_or_nomem(stile_jobs_add(NULL, client, "q", "x", 1, NULL, NULL));
    expect_ok_or_nomem(stile_jobs_add_all(NULL, client, "q", two, 2, NULL, NULL));
    AWAIT(stile_jobs_add_async(client, "q", "x", 1, NULL, on_ids, NULL));
    AWAIT(stile_jobs_add_all_async(client, "q", two, 2, NULL, on_ids, NULL));
}

static void claim(void)
{
    struct stile_job *jobs;
    size_t n;
    enum stile_status status =
        stile_jobs_claim(&jobs, &n, client, "q", STILE_JOBS_OPTIONS(.max = 20), NULL);
    expect_ok_or_nomem(status);
    assert_int_equal(n, status ? 0 : 20);
    stile_jobs_free(jobs, n);
    AWAIT(stile_jobs_claim_async(client, "q", STILE_JOBS_OPTIONS(.max = 20), on_jobs, client));
}

static void finish(void)
{
    struct stile_job mine[2] = {{.token = 1}, {.token = 2}};
    expect_ok_or_nomem(stile_jobs_ack(client, mine, 2, NULL));
    expect_ok_or_nomem(stile_jobs_fail(client, mine, 2, "why", NULL, NULL));
    AWAIT(stile_jobs_ack_async(client, mine, 2, on_jobs, NULL));
    AWAIT(stile_jobs_fail_async(client, mine, 2, "why", NULL, on_jobs, NULL));
    AWAIT(stile_jobs_give_back_async(client, mine, 2, on_jobs, NULL));
    AWAIT(stile_jobs_extend_async(client, mine, 2, 1000, on_jobs, NULL));
}

static void inspect(void)
{
    struct stile_job *job;
    memset(&told, 0, sizeof told);
    enum stile_status status = stile_jobs_list(client, "q", NULL, on_job, NULL, NULL);
    expect_ok_or_nomem(status);
    assert_int_equal(told.items, status ? 0 : 20);
    status = stile_jobs_show(&job, client, "q", 17, NULL);
    expect_ok_or_nomem(status);
    assert_int_equal(job == NULL, status != STILE_OK);
    stile_jobs_free(job, job != NULL);
    expect_ok_or_nomem(stile_jobs_count(client, NULL, on_queue, NULL, NULL));
    AWAIT(stile_jobs_list_async(client, "q", NULL, on_job, on_over, NULL));
    AWAIT(stile_jobs_count_async(client, NULL, on_queue, on_over, NULL));
    AWAIT(stile_jobs_show_async(client, "q", 17, on_jobs, client));
}

static void repair(void)
{
    expect_ok_or_nomem(stile_jobs_retry(NULL, client, "q", 0, NULL));
    expect_ok_or_nomem(stile_jobs_drop(client, "q", 17, NULL));
    AWAIT(stile_jobs_retry_async(client, "q", 0, on_ids, NULL));
    AWAIT(stile_jobs_drop_async(client, "q", 17, on_ids, NULL));
}

#define SCENE(name)                                                                                \
    static void name##_without_memory(void **state)                                                \
    {                                                                                              \
        (void)state;                                                                               \
        play(name);                                                                                \
    }

SCENE(add)
SCENE(claim)
SCENE(finish)
SCENE(inspect)
SCENE(repair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_without_memory),    cmocka_unit_test(claim_without_memory),
        cmocka_unit_test(finish_without_memory), cmocka_unit_test(inspect_without_memory),
        cmocka_unit_test(repair_without_memory),
    };
    return cmocka_run_group_tests_name("core-jobs-nomem", tests, NULL, NULL);
}
