/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Errands of jobs in virtual time, against an engine that says what the test has written down: when
 * a claim that waits looks again, and what it is answered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/client.h"
#include "support/loop_virtual.h"

#define SEC  NS_PER_SEC
#define LOTS 64

/* What the engine answers when it is asked for the nth time; the last one for ever. */
struct line {
    enum stile_status status;
    bool gives;        /* a job */
    bool hears;        /* it reports arrivals */
    bool arrives;      /* something comes while it is being asked */
    bool silent;       /* no answer ever */
    bool accepts;      /* every mark; retry, drop: one job */
    int64_t due_ms;    /* -1: nothing will be */
    uint64_t takes_ns; /* until the answer */
};

struct fake {
    struct engine engine;
    struct timer timer;
    struct job_request *request;
};

static const struct line *lines;
static size_t n_lines, asked, left;
static uint64_t asked_ns[LOTS];
static bool listened[LOTS];
static size_t acked[LOTS];
static struct loop *loop;
static struct stile_client *client;
static struct stile_job *got;
static size_t n_got;
static struct stile_error why;

static const struct line *line_now(void)
{
    return &lines[asked - 1 < n_lines ? asked - 1 : n_lines - 1];
}

/* What the engine is given, when it answers. */
static struct {
    enum job_verb verb;
    char queue[16], text[16], payload[16], key[16];
    int64_t delay_ms, lease_ms;
    uint64_t id;
    size_t n;
} given;

static void note_text(char out[16], const char *text, size_t size)
{
    (void)snprintf(out, 16, "%.*s", (int)size, text ? text : "");
}

static void note_request(const struct job_request *request)
{
    memset(&given, 0, sizeof given);
    given.verb = request->verb;
    note_text(given.queue, request->queue, 15);
    note_text(given.text, request->text, 15);
    given.delay_ms = request->delay_ms;
    given.lease_ms = request->lease_ms;
    given.id = request->id;
    given.n = request->n + request->n_entries;
    for (size_t i = 0; i < request->n_entries; i++) { /* the last one */
        note_text(given.payload, request->entries[i].payload, request->entries[i].size);
        note_text(given.key, request->entries[i].key, 15);
    }
}

static void answer(struct timer *timer)
{
    struct fake *fake = (struct fake *)((char *)timer - offsetof(struct fake, timer));
    struct job_request *request = fake->request;
    const struct line *line = line_now();
    const struct stile_job job = {
        .id = 17, .token = 17000001, .queue = "q", .payload = "x", .payload_size = 1};
    struct stile_error err = {.status = line->status};
    note_request(request);
    for (size_t i = 0; line->accepts && i < request->n; i++)
        fake->engine.events->job_mark(request, request->marks[i].token);
    for (size_t i = 0; i < request->n_entries; i++)
        request->ids[i] = 100 + i;
    request->count = line->accepts;
    if (request->verb == JOB_COUNT)
        fake->engine.events->job_queue(request, &(struct stile_queue){.name = "q", .ready = 3});
    request->listening = line->hears;
    request->due_ms = line->due_ms;
    if (line->arrives)
        fake->engine.events->job_arrived(&fake->engine, "q");
    if (line->gives)
        fake->engine.events->job(request, &job);
    fake->engine.events->job_done(request, line->status ? &err : NULL);
}

static void fake_jobs(struct engine *engine, struct job_request *request)
{
    struct fake *fake = (struct fake *)engine;
    assert_true(asked < LOTS);
    asked_ns[asked] = loop_now(engine->loop);
    listened[asked] = request->listen;
    acked[asked] = request->n;
    asked++;
    fake->request = request;
    request->sent_ns = loop_now(engine->loop);
    if (!line_now()->silent)
        loop_arm(engine->loop, &fake->timer, loop_now(engine->loop) + line_now()->takes_ns);
}

static void fake_left(struct engine *engine, const char *queue)
{
    (void)engine;
    left += strcmp(queue, "q") == 0;
}

static enum stile_status open_now(struct engine *engine, const struct url *url,
                                  struct stile_error *err)
{
    (void)url, (void)err;
    ((struct fake *)engine)->timer.fn = answer;
    return loop_reserve(engine->loop, 1) ? STILE_NOMEM : STILE_OK;
}

static void fake_open(struct engine *engine, const struct url *url)
{
    struct stile_error err;
    enum stile_status status = open_now(engine, url, &err);
    engine->events->opened(engine, status ? &err : NULL);
}

static void fake_close(struct engine *engine)
{
    loop_disarm(engine->loop, &((struct fake *)engine)->timer);
}

static const struct engine_jobs fake_part = {.run = fake_jobs, .left = fake_left};

static const struct engine_class fake_class = {.schemes = "fake",
                                               .caps = {.engine = "fake"},
                                               .engine_size = sizeof(struct fake),
                                               .open = fake_open,
                                               .close = fake_close,
                                               .jobs = &fake_part};

static void play(const struct line *script, size_t n)
{
    lines = script;
    n_lines = n;
    asked = left = 0;
    assert_int_equal(loop_virtual_new(&loop, 7), 0);
    assert_int_equal(client_new(&client, &fake_class, loop, NULL,
                                STILE_CLIENT_OPTIONS(.threadless = true), &why),
                     STILE_OK);
}

#define PLAY(...)                                                                                  \
    static const struct line script[] = {__VA_ARGS__};                                             \
    play(script, sizeof script / sizeof script[0])

static enum stile_status claim(int64_t wait_ms)
{
    return stile_jobs_claim(&got, &n_got, client, "q", STILE_JOBS_OPTIONS(.wait_ms = wait_ms),
                            &why);
}

static void end(void)
{
    stile_jobs_free(got, n_got);
    got = NULL;
    n_got = 0;
    stile_client_close(client);
}

/* ---- waiting ---- */

static void who_does_not_wait_looks_once(void **state)
{
    (void)state;
    PLAY({.due_ms = 5});
    assert_int_equal(claim(0), STILE_TIMEOUT);
    assert_int_equal(asked, 1);
    assert_false(listened[0]);
    end();
}

static void the_deaf_look_again_with_growing_pauses(void **state)
{
    (void)state;
    PLAY({.due_ms = -1});
    assert_int_equal(claim(20000), STILE_TIMEOUT);
    assert_true(asked > 20 && asked < LOTS);
    assert_true(asked_ns[1] - asked_ns[0] <= SEC / 50);
    for (size_t i = 8; i + 1 < asked; i++)
        assert_in_range(asked_ns[i] - asked_ns[i - 1], SEC / 2, SEC);
    assert_int_equal(loop_now(loop) - asked_ns[0], 20 * SEC);
    end();
}

static void who_hears_looks_rarely(void **state)
{
    (void)state;
    PLAY({.due_ms = -1, .hears = true});
    assert_int_equal(claim(60000), STILE_TIMEOUT);
    assert_in_range(asked, 6, 13);
    for (size_t i = 0; i < asked; i++)
        assert_true(listened[i]);
    end();
}

static void what_is_due_is_looked_for_in_time(void **state)
{
    (void)state;
    PLAY({.due_ms = 3000, .hears = true}, {.gives = true});
    assert_int_equal(claim(-1), STILE_OK);
    assert_int_equal(asked, 2);
    assert_int_equal(asked_ns[1] - asked_ns[0], 3 * SEC);
    end();
}

/* Due, and locked by somebody, perhaps for long: no spinning. */
static void what_is_locked_is_looked_for_with_growing_pauses(void **state)
{
    (void)state;
    PLAY({.due_ms = 0, .hears = true});
    assert_int_equal(claim(20000), STILE_TIMEOUT);
    assert_true(asked > 20 && asked < LOTS);
    assert_true(asked_ns[1] - asked_ns[0] <= SEC / 50);
    for (size_t i = 8; i + 1 < asked; i++)
        assert_in_range(asked_ns[i] - asked_ns[i - 1], SEC / 2, SEC);
    end();
}

/* Reported between the request and its answer: the request may not have seen it. */
static void what_comes_during_a_look_is_looked_for(void **state)
{
    (void)state;
    PLAY({.due_ms = -1, .hears = true, .arrives = true, .takes_ns = SEC}, {.gives = true});
    assert_int_equal(claim(-1), STILE_OK);
    assert_int_equal(asked, 2);
    assert_int_equal(asked_ns[1] - asked_ns[0], SEC);
    end();
}

/* ---- trouble ---- */

static void unreachable_is_asked_again_while_there_is_time(void **state)
{
    (void)state;
    PLAY({.status = STILE_UNREACHABLE}, {.status = STILE_UNCERTAIN}, {.gives = true});
    assert_int_equal(claim(-1), STILE_OK);
    assert_int_equal(asked, 3);
    end();
}

static void unreachable_is_told_when_time_is_over(void **state)
{
    (void)state;
    PLAY({.status = STILE_UNREACHABLE});
    assert_int_equal(claim(5000), STILE_UNREACHABLE);
    assert_true(asked > 1);
    end();
}

static void refused_is_told_at_once(void **state)
{
    (void)state;
    PLAY({.status = STILE_REFUSED});
    assert_int_equal(claim(-1), STILE_REFUSED);
    assert_int_equal(asked, 1);
    end();
}

/* Said a second time it would look stale, and it is for its owner to know. */
static void what_is_done_is_not_said_again(void **state)
{
    (void)state;
    struct stile_job done = {.token = 3000001};
    PLAY({.status = STILE_UNCERTAIN});
    const struct stile_jobs_options *options =
        STILE_JOBS_OPTIONS(.wait_ms = -1, .done = &done, .n_done = 1);
    assert_int_equal(stile_jobs_claim(&got, &n_got, client, "q", options, &why), STILE_UNCERTAIN);
    assert_int_equal(done.status, STILE_UNCERTAIN);
    assert_int_equal(asked, 1);
    end();
}

static void what_is_done_is_said_once(void **state)
{
    (void)state;
    struct stile_job done = {.token = 3000001};
    PLAY({.due_ms = -1}, {.due_ms = -1}, {.gives = true});
    const struct stile_jobs_options *options =
        STILE_JOBS_OPTIONS(.wait_ms = -1, .done = &done, .n_done = 1);
    assert_int_equal(stile_jobs_claim(&got, &n_got, client, "q", options, &why), STILE_OK);
    assert_int_equal(acked[0], 1);
    assert_int_equal(acked[1], 0);
    assert_int_equal(acked[2], 0);
    assert_int_equal(done.status, STILE_STALE); /* the engine did not say otherwise */
    end();
}

/* ---- the lease ---- */

static void the_deadline_counts_from_before_sending(void **state)
{
    (void)state;
    PLAY({.gives = true, .takes_ns = 4 * SEC});
    assert_int_equal(
        stile_jobs_claim(&got, &n_got, client, "q", STILE_JOBS_OPTIONS(.lease_ms = 10000), &why),
        STILE_OK);
    assert_true(got->deadline_ns <= asked_ns[0] + 10 * SEC);
    assert_true(got->deadline_ns > asked_ns[0] + 9 * SEC);
    end();
}

/* ---- callbacks ---- */

static int calls;
static enum stile_status last;
static size_t n_last;

static void on_claimed(struct stile_job *jobs, size_t n, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    (void)err, (void)data;
    calls++;
    last = status;
    n_last = n;
    stile_jobs_free(jobs, n);
}

static void close_answers_every_call(void **state)
{
    (void)state;
    PLAY({.silent = true});
    calls = 0;
    assert_int_equal(
        stile_jobs_claim_async(client, "q", STILE_JOBS_OPTIONS(.wait_ms = -1), on_claimed, NULL),
        STILE_OK);
    end();
    assert_int_equal(calls, 1);
    assert_int_equal(last, STILE_UNCERTAIN);
}

static void a_claim_that_waits_is_told_and_cancelled(void **state)
{
    (void)state;
    PLAY({.due_ms = -1, .hears = true}, {.due_ms = -1, .hears = true},
         {.due_ms = -1, .hears = true});
    calls = 0;
    assert_int_equal(
        stile_jobs_claim_async(client, "q", STILE_JOBS_OPTIONS(.wait_ms = -1), on_claimed, NULL),
        STILE_OK);
    loop_virtual_advance(loop, SEC);
    assert_int_equal(asked, 1);
    client->engine->events->job_arrived(client->engine, "another");
    loop_virtual_advance(loop, 1);
    assert_int_equal(asked, 1);
    client->engine->events->job_arrived(client->engine, "q");
    loop_virtual_advance(loop, 1);
    assert_int_equal(asked, 2);
    client->engine->events->job_arrived(client->engine, NULL);
    loop_virtual_advance(loop, 1);
    assert_int_equal(asked, 3);
    assert_int_equal(stile_jobs_cancel(client), STILE_OK);
    assert_int_equal(calls, 0); /* never from inside a call */
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(last, STILE_CANCELLED);
    end();
}

/* Only a claim waits: an ack goes on, and leaves the interrupt to the next call that does. */
static void a_claim_that_waits_is_interrupted(void **state)
{
    struct stile_job mine = {.token = 1};

    (void)state;
    PLAY({.due_ms = -1}, {.due_ms = -1, .hears = true}, {.gives = true});
    stile_client_interrupt(client);
    assert_int_equal(stile_jobs_ack(client, &mine, 1, &why), STILE_STALE);
    assert_int_equal(claim(-1), STILE_CANCELLED);
    assert_int_equal(claim(-1), STILE_OK);
    end();
}

/* A claimed job is reported to its caller, even if the wait was cancelled meanwhile. */
static void what_comes_after_a_cancel_is_handed_over(void **state)
{
    (void)state;
    PLAY({.gives = true, .takes_ns = 4 * SEC});
    calls = 0;
    assert_int_equal(
        stile_jobs_claim_async(client, "q", STILE_JOBS_OPTIONS(.wait_ms = -1), on_claimed, NULL),
        STILE_OK);
    loop_virtual_advance(loop, SEC);
    assert_int_equal(stile_jobs_cancel(client), STILE_OK);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
    assert_int_equal(calls, 0);
    loop_virtual_advance(loop, 4 * SEC);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(last, STILE_OK);
    assert_int_equal(n_last, 1);
    end();
}

static void what_comes_too_late_is_handed_over(void **state)
{
    (void)state;
    PLAY({.gives = true, .takes_ns = 4 * SEC});
    assert_int_equal(claim(1000), STILE_OK);
    assert_int_equal(n_got, 1);
    end();
}

/* A report that reaches a client without a waiting claim is passed on. */
static void the_engine_is_told_that_nobody_waits(void **state)
{
    (void)state;
    PLAY({.gives = true, .hears = true}, {.due_ms = -1, .hears = true},
         {.due_ms = 2000, .hears = true}, {.gives = true, .hears = true},
         {.due_ms = -1, .hears = true, .arrives = true});
    assert_int_equal(claim(-1), STILE_OK);
    assert_int_equal(left, 0); /* it did not wait, and was not reported as waiting */
    stile_jobs_free(got, n_got);
    assert_int_equal(claim(1000), STILE_TIMEOUT);
    assert_int_equal(left, 1);
    assert_int_equal(claim(-1), STILE_OK);
    assert_int_equal(left, 2);
    stile_jobs_free(got, n_got);
    assert_int_equal(claim(0), STILE_TIMEOUT); /* reported during the only request */
    assert_int_equal(left, 3);
    client->engine->events->job_arrived(client->engine, "q");
    assert_int_equal(left, 4);
    client->engine->events->job_arrived(client->engine, NULL);
    assert_int_equal(left, 4);
    end();
}

/* ---- the async forms ---- */

static struct {
    unsigned answers, each;
    enum stile_status status;
    struct stile_error err;
    const struct stile_job *jobs;
    size_t n;
    uint64_t last_id;
} told;

static void note_answer(enum stile_status status, const struct stile_error *err)
{
    assert_int_equal(status != STILE_OK, err != NULL);
    told.answers++;
    told.status = status;
    if (err)
        told.err = *err;
}

static void on_marked(struct stile_job *jobs, size_t n, enum stile_status status,
                      const struct stile_error *err, void *data)
{
    assert_ptr_equal(data, &told);
    note_answer(status, err);
    told.jobs = jobs;
    told.n = n;
}

static void on_ids(const uint64_t *ids, size_t n, enum stile_status status,
                   const struct stile_error *err, void *data)
{
    assert_ptr_equal(data, &told);
    note_answer(status, err);
    told.n = n;
    told.last_id = ids ? ids[n - 1] : 0;
}

static void on_over(struct stile_client *c, enum stile_status status, const struct stile_error *err,
                    void *data)
{
    assert_ptr_equal(c, client);
    assert_ptr_equal(data, &told);
    note_answer(status, err);
}

static int on_job(const struct stile_job *job, void *data)
{
    assert_ptr_equal(data, &told);
    assert_int_equal(told.answers, 0);
    told.each += job->id == 17;
    return 0;
}

static int on_queue(const struct stile_queue *queue, void *data)
{
    assert_ptr_equal(data, &told);
    assert_int_equal(told.answers, 0);
    told.each += queue->ready == 3;
    return 0;
}

/* Once, and not from inside the call. */
static void await_answer(enum stile_status started)
{
    assert_int_equal(started, STILE_OK);
    assert_int_equal(told.answers, 0);
    loop_virtual_advance(loop, SEC);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
    assert_int_equal(told.answers, 1);
    loop_virtual_advance(loop, 60 * SEC);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
    assert_int_equal(told.answers, 1);
}

#define AWAIT(call)                                                                                \
    do {                                                                                           \
        memset(&told, 0, sizeof told);                                                             \
        await_answer(call);                                                                        \
    } while (0)

static void adding_without_waiting(void **state)
{
    char payload[] = "one", key[] = "k", queue[] = "q";
    const struct stile_job_entry two[] = {{.payload = "a", .size = 1},
                                          {.payload = payload, .size = 3, .key = key}};
    (void)state;
    PLAY({.takes_ns = SEC / 2});
    memset(&told, 0, sizeof told);
    enum stile_status started = stile_jobs_add_async(
        client, queue, payload, 3, STILE_JOBS_OPTIONS(.key = key, .delay_ms = 7), on_ids, &told);
    payload[0] = key[0] = queue[0] = 'X'; /* they were copied */
    await_answer(started);
    assert_int_equal(given.verb, JOB_ADD);
    assert_string_equal(given.queue, "q");
    assert_string_equal(given.payload, "one");
    assert_string_equal(given.key, "k");
    assert_int_equal(given.delay_ms, 7);
    assert_int_equal(told.n, 1);
    assert_int_equal(told.last_id, 100);
    memset(&told, 0, sizeof told);
    started = stile_jobs_add_all_async(client, "q", two, 2, NULL, on_ids, &told);
    payload[0] = key[0] = 'Y';
    await_answer(started);
    assert_string_equal(given.payload, "Xne");
    assert_string_equal(given.key, "X");
    assert_int_equal(told.n, 2);
    assert_int_equal(told.last_id, 101);
    end();
}

static void ending_without_waiting(void **state)
{
    struct stile_job mine[2] = {{.token = 1}, {.token = 2}};
    char text[] = "boom";
    (void)state;
    PLAY({.accepts = true}, {.accepts = true}, {.accepts = true}, {.accepts = true},
         {.due_ms = -1});
    AWAIT(stile_jobs_ack_async(client, mine, 2, on_marked, &told));
    assert_int_equal(given.verb, JOB_ACK);
    assert_int_equal(given.n, 2);
    assert_int_equal(told.status, STILE_OK);
    assert_ptr_equal(told.jobs, mine);
    assert_int_equal(told.n, 2);
    AWAIT(stile_jobs_give_back_async(client, mine, 2, on_marked, &told));
    assert_int_equal(given.verb, JOB_GIVE_BACK);
    memset(&told, 0, sizeof told);
    enum stile_status started =
        stile_jobs_fail_async(client, mine, 1, text, NULL, on_marked, &told);
    text[0] = 'X';
    await_answer(started);
    assert_int_equal(given.verb, JOB_FAIL);
    assert_string_equal(given.text, "boom");
    AWAIT(stile_jobs_extend_async(client, mine, 1, 5000, on_marked, &told));
    assert_int_equal(given.verb, JOB_EXTEND);
    assert_int_equal(given.lease_ms, 5000);
    AWAIT(stile_jobs_ack_async(client, mine, 2, on_marked, &told));
    assert_int_equal(told.status, STILE_STALE);
    assert_int_equal(mine[0].status, STILE_STALE);
    assert_string_equal(told.err.message,
                        "finishing a job: some leases have run out; other workers "
                        "may have those jobs");
    end();
}

static void inspecting_without_waiting(void **state)
{
    (void)state;
    PLAY({.gives = true}, {.due_ms = -1}, {.accepts = true}, {.accepts = true}, {.due_ms = -1},
         {.status = STILE_UNREACHABLE});
    AWAIT(stile_jobs_list_async(client, "q", NULL, on_job, on_over, &told));
    assert_int_equal(given.verb, JOB_LIST);
    assert_int_equal(told.each, 1);
    AWAIT(stile_jobs_count_async(client, NULL, on_queue, on_over, &told));
    assert_int_equal(given.verb, JOB_COUNT);
    assert_int_equal(told.each, 1);
    AWAIT(stile_jobs_retry_async(client, "q", 9, on_ids, &told));
    assert_int_equal(given.verb, JOB_RETRY);
    assert_int_equal(given.id, 9);
    assert_int_equal(told.n, 1);
    AWAIT(stile_jobs_drop_async(client, "q", 8, on_ids, &told));
    assert_int_equal(given.verb, JOB_DROP);
    assert_int_equal(told.status, STILE_OK);
    AWAIT(stile_jobs_drop_async(client, "q", 8, on_ids, &told));
    assert_int_equal(told.status, STILE_CONFLICT);
    assert_int_equal(told.n, 0);
    AWAIT(stile_jobs_list_async(client, "q", NULL, NULL, on_over, &told));
    assert_int_equal(told.status, STILE_UNREACHABLE);
    assert_non_null(strstr(told.err.message, "listing jobs of 'q'"));
    end();
}

static void showing(void **state)
{
    struct stile_job *job;
    (void)state;
    PLAY({.gives = true}, {.due_ms = -1}, {.gives = true}, {.due_ms = -1},
         {.status = STILE_UNREACHABLE});
    assert_int_equal(stile_jobs_show(&job, client, "q", 17, &why), STILE_OK);
    assert_int_equal(given.verb, JOB_SHOW);
    assert_int_equal(given.id, 17);
    assert_memory_equal(job->payload, "x", job->payload_size);
    stile_jobs_free(job, 1);
    assert_int_equal(stile_jobs_show(&job, client, "q", 18, &why), STILE_CONFLICT);
    assert_null(job);
    assert_non_null(strstr(why.message, "showing a job of 'q': no job has the number 18"));
    AWAIT(stile_jobs_show_async(client, "q", 17, on_marked, &told));
    assert_int_equal(told.n, 1);
    assert_int_equal(told.jobs->id, 17);
    stile_jobs_free((struct stile_job *)told.jobs, 1);
    AWAIT(stile_jobs_show_async(client, "q", 18, on_marked, &told));
    assert_int_equal(told.status, STILE_CONFLICT);
    assert_null(told.jobs);
    AWAIT(stile_jobs_show_async(client, "q", 17, on_marked, &told));
    assert_int_equal(told.status, STILE_UNREACHABLE);
    assert_int_equal(stile_jobs_show(NULL, client, "q", 17, &why), STILE_MISUSE);
    assert_int_equal(stile_jobs_show(&job, client, "q", 0, &why), STILE_MISUSE);
    end();
}

static void async_misuse(void **state)
{
    struct stile_job mine = {.token = 1};
    const struct stile_job_entry entry = {.payload = "a", .size = 1};
    (void)state;
    PLAY({.accepts = true});
    memset(&told, 0, sizeof told);
    const enum stile_status refused[] = {
        stile_jobs_add_async(client, "q", "a", 1, NULL, NULL, NULL),
        stile_jobs_add_async(client, "", "a", 1, NULL, on_ids, NULL),
        stile_jobs_add_all_async(client, "q", &entry, 1, NULL, NULL, NULL),
        stile_jobs_add_all_async(client, "q", &entry, 0, NULL, on_ids, NULL),
        stile_jobs_claim_async(client, "q", NULL, NULL, NULL),
        stile_jobs_ack_async(client, &mine, 1, NULL, NULL),
        stile_jobs_ack_async(client, NULL, 1, on_marked, NULL),
        stile_jobs_give_back_async(client, &mine, 0, on_marked, NULL),
        stile_jobs_fail_async(client, &mine, 1, "", NULL, NULL, NULL),
        stile_jobs_extend_async(client, &mine, 1, 1, on_marked, NULL),
        stile_jobs_list_async(client, "q", NULL, on_job, NULL, NULL),
        stile_jobs_list_async(client, NULL, NULL, on_job, on_over, NULL),
        stile_jobs_count_async(client, "q", on_queue, NULL, NULL),
        stile_jobs_retry_async(client, "q", 0, NULL, NULL),
        stile_jobs_drop_async(client, NULL, 1, on_ids, NULL),
        stile_jobs_show_async(client, "q", 1, NULL, NULL),
        stile_jobs_show_async(client, "q", 0, on_marked, NULL),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(refused[i], STILE_MISUSE);
    assert_int_equal(asked, 0);
    assert_int_equal(told.answers, 0);
    end();
}

/* The engine never answers: what becomes of it is not known. */
static void close_answers_the_others_too(void **state)
{
    struct stile_job mine = {.token = 1}, done = {.token = 2};
    (void)state;
    for (int i = 0; i < 4; i++) {
        PLAY({.silent = true});
        memset(&told, 0, sizeof told);
        calls = 0;
        if (i == 0)
            (void)stile_jobs_ack_async(client, &mine, 1, on_marked, &told);
        else if (i == 1)
            (void)stile_jobs_add_async(client, "q", "a", 1, NULL, on_ids, &told);
        else if (i == 2)
            (void)stile_jobs_list_async(client, "q", NULL, on_job, on_over, &told);
        else
            (void)stile_jobs_claim_async(
                client, "q", STILE_JOBS_OPTIONS(.done = &done, .n_done = 1), on_claimed, NULL);
        end();
        assert_int_equal(told.answers + (unsigned)calls, 1);
        assert_int_equal(i < 3 ? told.status : last, STILE_UNCERTAIN);
    }
    assert_int_equal(mine.status, STILE_UNCERTAIN);
    assert_int_equal(done.status, STILE_UNCERTAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_does_not_wait_looks_once),
        cmocka_unit_test(the_deaf_look_again_with_growing_pauses),
        cmocka_unit_test(who_hears_looks_rarely),
        cmocka_unit_test(what_is_due_is_looked_for_in_time),
        cmocka_unit_test(what_is_locked_is_looked_for_with_growing_pauses),
        cmocka_unit_test(what_comes_during_a_look_is_looked_for),
        cmocka_unit_test(unreachable_is_asked_again_while_there_is_time),
        cmocka_unit_test(unreachable_is_told_when_time_is_over),
        cmocka_unit_test(refused_is_told_at_once),
        cmocka_unit_test(what_is_done_is_not_said_again),
        cmocka_unit_test(what_is_done_is_said_once),
        cmocka_unit_test(the_deadline_counts_from_before_sending),
        cmocka_unit_test(close_answers_every_call),
        cmocka_unit_test(a_claim_that_waits_is_told_and_cancelled),
        cmocka_unit_test(a_claim_that_waits_is_interrupted),
        cmocka_unit_test(what_comes_after_a_cancel_is_handed_over),
        cmocka_unit_test(what_comes_too_late_is_handed_over),
        cmocka_unit_test(the_engine_is_told_that_nobody_waits),
        cmocka_unit_test(adding_without_waiting),
        cmocka_unit_test(ending_without_waiting),
        cmocka_unit_test(inspecting_without_waiting),
        cmocka_unit_test(showing),
        cmocka_unit_test(async_misuse),
        cmocka_unit_test(close_answers_the_others_too),
    };
    return cmocka_run_group_tests_name("core-jobs", tests, NULL, NULL);
}
