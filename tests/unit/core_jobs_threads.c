/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on jobs by many threads of one client, on the real loop: every callback comes once,
 * whichever thread drives, and so does every answer when another thread adds, cancels or closes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "core/client.h"

#define PATIENCE_SEC 60
#define THREADS      4
#define ROUNDS       150

/* ---- an engine with a stock of jobs ---- */

struct fake {
    struct engine engine;
    struct timer timer;
    struct job_request *first;
};

static bool silent;
static size_t stock;
static sem_t asked;
static struct stile_client *client;

static struct job_request *next_of(struct job_request *request)
{
    return (struct job_request *)(uintptr_t)request->state[0];
}

static void answer_one(struct fake *fake, struct job_request *request)
{
    const struct engine_events *events = fake->engine.events;
    const struct stile_job job = {.id = 17, .token = 17000001, .queue = "q", .last_error = ""};
    bool gives = request->verb == JOB_LIST || request->verb == JOB_SHOW;
    if (request->verb == JOB_CLAIM && stock > 0) {
        gives = true;
        stock--;
    }
    for (size_t i = 0; i < request->n; i++)
        events->job_mark(request, request->marks[i].token);
    for (size_t i = 0; i < request->n_entries; i++)
        request->ids[i] = 100 + i;
    stock += request->n_entries;
    if (gives)
        events->job(request, &job);
    if (request->verb == JOB_COUNT)
        events->job_queue(request, &(struct stile_queue){.name = "q"});
    request->count = 1;
    request->due_ms = -1;
    request->listening = true;
    bool added = request->n_entries > 0;
    events->job_done(request, NULL);
    if (added)
        events->job_arrived(&fake->engine, "q");
}

static void answer_all(struct timer *timer)
{
    struct fake *fake = (struct fake *)((char *)timer - offsetof(struct fake, timer));
    struct job_request *request = fake->first;
    fake->first = NULL;
    for (struct job_request *next; request; request = next) {
        next = next_of(request);
        answer_one(fake, request);
    }
}

static void fake_jobs(struct engine *engine, struct job_request *request)
{
    struct fake *fake = (struct fake *)engine;
    request->sent_ns = loop_now(engine->loop);
    sem_post(&asked);
    if (silent)
        return;
    request->state[0] = (uint64_t)(uintptr_t)fake->first;
    fake->first = request;
    loop_arm(engine->loop, &fake->timer, loop_now(engine->loop));
}

static void fake_open(struct engine *engine, const struct url *url)
{
    struct stile_error err = {.status = STILE_NOMEM};
    (void)url;
    ((struct fake *)engine)->timer.fn = answer_all;
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

static int open_client(void **state)
{
    struct loop *loop;
    (void)state;
    silent = false;
    stock = 0;
    sem_init(&asked, 0, 0);
    return loop_epoll_new(&loop) || client_new(&client, &fake_class, loop, NULL, NULL, NULL) ? -1
                                                                                             : 0;
}

static int close_client(void **state)
{
    (void)state;
    stile_client_close(client);
    sem_destroy(&asked);
    return 0;
}

static void await(sem_t *semaphore)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SEC;
    assert_int_equal(sem_timedwait(semaphore, &until), 0);
}

/* ---- callbacks ---- */

struct call {
    sem_t answered;
    atomic_uint answers;
    _Atomic enum stile_status status;
    bool ours;   /* the jobs have to be freed */
    bool nested; /* its callback calls again */
};

static void note(struct call *call, enum stile_status status)
{
    if (call->nested)
        assert_int_equal(stile_jobs_count(client, NULL, NULL, NULL, NULL), STILE_OK);
    atomic_store(&call->status, status);
    atomic_fetch_add(&call->answers, 1);
    sem_post(&call->answered);
}

static void on_jobs(struct stile_job *jobs, size_t n, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    struct call *call = data;
    (void)err;
    if (call->ours)
        stile_jobs_free(jobs, n);
    note(call, status);
}

static void on_ids(const uint64_t *ids, size_t n, enum stile_status status,
                   const struct stile_error *err, void *data)
{
    (void)ids, (void)n, (void)err;
    note(data, status);
}

static void on_over(struct stile_client *c, enum stile_status status, const struct stile_error *err,
                    void *data)
{
    (void)c, (void)err;
    note(data, status);
}

static enum stile_status start(struct call *call, unsigned which, struct stile_job *mine)
{
    call->ours = which == 4 || which == 5;
    switch (which) {
    case 0:
        return stile_jobs_add_async(client, "q", "x", 1, NULL, on_ids, call);
    case 1:
        return stile_jobs_list_async(client, "q", NULL, NULL, on_over, call);
    case 2:
        return stile_jobs_count_async(client, NULL, NULL, on_over, call);
    case 3:
        return stile_jobs_ack_async(client, mine, 1, on_jobs, call);
    case 4:
        return stile_jobs_show_async(client, "q", 17, on_jobs, call);
    case 5:
        return stile_jobs_claim_async(client, "q", STILE_JOBS_OPTIONS(.wait_ms = -1), on_jobs,
                                      call);
    case 6:
        return stile_jobs_fail_async(client, mine, 1, "why", NULL, on_jobs, call);
    default:
        return stile_jobs_retry_async(client, "q", 0, on_ids, call);
    }
}

#define CALLS 8

/* ---- the tests ---- */

/* As many jobs are added as are claimed, so each claim gets one. */
static void *call_often(void *data)
{
    struct stile_job mine = {.token = 17000001};
    struct call call = {.nested = data != NULL};
    sem_init(&call.answered, 0, 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned which = 0; which < CALLS; which++) {
            assert_int_equal(start(&call, which, &mine), STILE_OK);
            await(&call.answered);
            assert_int_equal(atomic_load(&call.status), STILE_OK);
        }
        assert_int_equal(stile_jobs_retry(NULL, client, "q", 0, NULL), STILE_OK);
    }
    assert_int_equal(atomic_load(&call.answers), ROUNDS * CALLS);
    sem_destroy(&call.answered);
    return NULL;
}

static void each_callback_comes_once(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, i % 2 ? client : NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(stock, 0);
}

struct claimer {
    pthread_t thread;
    enum stile_status status;
    size_t n;
};

static void *claim_for_ever(void *data)
{
    struct claimer *claimer = data;
    struct stile_job *jobs;
    claimer->status =
        stile_jobs_claim(&jobs, &claimer->n, client, "q", STILE_JOBS_OPTIONS(.wait_ms = -1), NULL);
    stile_jobs_free(jobs, claimer->n);
    return NULL;
}

static void another_thread_adds(void **state)
{
    struct claimer claimer = {.n = 0};
    struct call call = {.ours = true};
    (void)state;
    sem_init(&call.answered, 0, 0);
    assert_int_equal(pthread_create(&claimer.thread, NULL, claim_for_ever, &claimer), 0);
    await(&asked);
    assert_int_equal(start(&call, 5, NULL), STILE_OK);
    await(&asked);
    assert_int_equal(stile_jobs_add(NULL, client, "q", "x", 1, NULL, NULL), STILE_OK);
    assert_int_equal(stile_jobs_add(NULL, client, "q", "y", 1, NULL, NULL), STILE_OK);
    pthread_join(claimer.thread, NULL);
    await(&call.answered);
    assert_int_equal(claimer.status, STILE_OK);
    assert_int_equal(claimer.n, 1);
    assert_int_equal(atomic_load(&call.status), STILE_OK);
    assert_int_equal(atomic_load(&call.answers), 1);
    sem_destroy(&call.answered);
}

static void another_thread_cancels(void **state)
{
    struct claimer claimer = {.n = 0};
    struct call call = {.ours = true};
    (void)state;
    sem_init(&call.answered, 0, 0);
    assert_int_equal(pthread_create(&claimer.thread, NULL, claim_for_ever, &claimer), 0);
    await(&asked);
    assert_int_equal(start(&call, 5, NULL), STILE_OK);
    await(&asked);
    assert_int_equal(stile_jobs_cancel(client), STILE_OK);
    pthread_join(claimer.thread, NULL);
    await(&call.answered);
    assert_int_equal(claimer.status, STILE_CANCELLED);
    assert_int_equal(atomic_load(&call.status), STILE_CANCELLED);
    assert_int_equal(atomic_load(&call.answers), 1);
    sem_destroy(&call.answered);
}

/* The engine never answers: closing does, while the background thread drives. */
static void closing_answers_each_once(void **state)
{
    struct stile_job mine[CALLS];
    struct call calls[CALLS];
    memset(calls, 0, sizeof calls);
    memset(mine, 0, sizeof mine);
    open_client(state);
    silent = true;
    for (unsigned i = 0; i < CALLS; i++) {
        sem_init(&calls[i].answered, 0, 0);
        mine[i].token = 17000001 + i;
        assert_int_equal(start(&calls[i], i, &mine[i]), STILE_OK);
    }
    close_client(state);
    for (unsigned i = 0; i < CALLS; i++) {
        assert_int_equal(atomic_load(&calls[i].answers), 1);
        enum stile_status status = atomic_load(&calls[i].status);
        assert_true(status == STILE_UNCERTAIN || (i == 5 && status == STILE_CANCELLED));
        sem_destroy(&calls[i].answered);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_callback_comes_once, open_client, close_client),
        cmocka_unit_test_setup_teardown(another_thread_adds, open_client, close_client),
        cmocka_unit_test_setup_teardown(another_thread_cancels, open_client, close_client),
        cmocka_unit_test(closing_answers_each_once),
    };
    return cmocka_run_group_tests_name("core-jobs-threads", tests, NULL, NULL);
}
