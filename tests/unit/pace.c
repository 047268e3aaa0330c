/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_pace() in virtual time, against an engine with a clock of its own that answers as late and
 * as badly as the test wants; and with every allocation failed in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/client.h"
#include "recipes/pace_rule.h"
#include "support/loop_virtual.h"
#include "support/scarcity.h"

#define MS           NS_PER_MS
#define SEC          NS_PER_SEC
#define REQUESTS_MAX 64
#define STARTS_MAX   4000
/* The server's clock is that of the loop, and so much more. */
#define CLOCK_US INT64_C(1800000000000000)
#define UNIT_US  20000 /* of a coarse one */

/* ---- an engine with one cell, and a clock ---- */

struct pending {
    struct timer timer;
    struct cell_request *request;
    bool executed;
    struct stile_error err;
    struct stile_cell cell;
    char *value; /* as it was read */
};

struct fake {
    struct engine engine;
    struct pending pending[REQUESTS_MAX];
};

static struct {
    char value[PACE_TEXT_MAX];
    size_t size;
    uint64_t version;
    struct pace_history history; /* of CELL_PACE */
    uint64_t there_ns, back_ns;  /* how long a request and its answer take */
    bool random, silent;         /* as long as that at most; no answer ever */
    enum stile_status fails;     /* before it is executed, */
    unsigned times;              /* so often */
    unsigned lost;               /* so many answers are lost: UNCERTAIN */
    int64_t back_us;             /* the clock went back */
    unsigned asked, puts;
} server;

static struct loop *loop;
static struct stile_client *client;
static struct stile_error why;
static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below ? (seed >> 33) % below : 0;
}

static int64_t clock_us(void)
{
    return CLOCK_US + (int64_t)(loop_now(loop) / 1000) - server.back_us;
}

static void read_cell(struct pending *p)
{
    const struct engine *engine = p->request->engine;
    int64_t unit = engine->class->cells->clock_unit_us;
    p->cell = (struct stile_cell){
        .key = p->request->key, .version = server.version, .time_us = clock_us()};
    if (unit)
        p->cell.time_us += unit - p->cell.time_us % unit;
    if (server.version) {
        p->value = malloc(server.size + 1);
        memcpy(p->value, server.value, server.size + 1);
        p->cell.value = p->value;
        p->cell.size = server.size;
    }
}

static void write_cell(struct pending *p)
{
    if (p->request->if_version != server.version) {
        p->err.status = STILE_CONFLICT;
        return;
    }
    memcpy(server.value, p->request->value, p->request->size);
    server.value[p->request->size] = '\0';
    server.size = p->request->size;
    server.version++;
    server.puts++;
}

static void execute(struct pending *p)
{
    if (server.fails && server.times > 0) {
        server.times--;
        p->err = (struct stile_error){.status = server.fails, .message = "the test says so"};
        return;
    }
    if (p->request->verb == CELL_PACE)
        pace_reserve(&server.history, p->request->pace, clock_us());
    else if (p->request->verb == CELL_GET)
        read_cell(p);
    else
        write_cell(p);
    if (!p->err.status && server.lost > 0) {
        server.lost--;
        p->err = (struct stile_error){.status = STILE_UNCERTAIN, .message = "the answer is lost"};
    }
}

static uint64_t takes(uint64_t ns)
{
    return server.random ? draw(ns + 1) : ns;
}

static void on_timer(struct timer *timer)
{
    struct pending *p = (struct pending *)timer, done;
    if (!p->executed) {
        p->executed = true;
        execute(p);
        loop_arm(loop, timer, loop_now(loop) + takes(server.back_ns));
        return;
    }
    done = *p;
    *p = (struct pending){.timer.fn = on_timer};
    const struct engine_events *events = done.request->engine->events;
    if (done.request->verb == CELL_GET && !done.err.status)
        events->cell(done.request, &done.cell);
    events->cell_done(done.request, done.err.status ? &done.err : NULL);
    free(done.value);
}

static void fake_run(struct engine *engine, struct cell_request *request)
{
    struct pending *p = ((struct fake *)engine)->pending;
    while (p->request)
        p++;
    assert_true(p < ((struct fake *)engine)->pending + REQUESTS_MAX);
    server.asked++;
    p->request = request;
    if (!server.silent)
        loop_arm(loop, &p->timer, loop_now(loop) + takes(server.there_ns));
}

static void fake_open(struct engine *engine, const struct url *url)
{
    struct fake *fake = (struct fake *)engine;
    struct stile_error err = {.status = STILE_NOMEM};
    (void)url;
    for (int i = 0; i < REQUESTS_MAX; i++)
        fake->pending[i].timer.fn = on_timer;
    engine->events->opened(engine, loop_reserve(engine->loop, REQUESTS_MAX) ? &err : NULL);
}

static void fake_close(struct engine *engine)
{
    struct fake *fake = (struct fake *)engine;
    for (int i = 0; i < REQUESTS_MAX; i++) {
        loop_disarm(engine->loop, &fake->pending[i].timer);
        free(fake->pending[i].value);
    }
}

static const struct engine_cells cells_only = {.run = fake_run};
static const struct engine_cells coarse = {.run = fake_run, .clock_unit_us = UNIT_US};
static const struct engine_cells with_pace = {.run = fake_run, .paces = true};

#define CLASS(cells_, clock_)                                                                      \
    {                                                                                              \
        .schemes = "fake", .caps = {.engine = "fake", .cells = true, .paces = clock_},             \
        .engine_size = sizeof(struct fake), .open = fake_open, .close = fake_close,                \
        .cells = cells_                                                                            \
    }
static const struct engine_class exchanging = CLASS(&cells_only, true),
                                 pacing = CLASS(&with_pace, true), rounding = CLASS(&coarse, true),
                                 clockless = CLASS(&cells_only, false), without = CLASS(NULL, true);
static const struct engine_class *const both[] = {&exchanging, &pacing};
static const struct engine_class *const all[] = {&exchanging, &pacing, &rounding};

static void begin(const struct engine_class *class)
{
    memset(&server, 0, sizeof server);
    server.there_ns = server.back_ns = MS / 4;
    assert_int_equal(loop_virtual_new(&loop, 7), 0);
    assert_int_equal(
        client_new(&client, class, loop, NULL, STILE_CLIENT_OPTIONS(.threadless = true), &why),
        STILE_OK);
}

static void end(void)
{
    stile_client_close(client);
    client = NULL;
}

static void pass(uint64_t ns)
{
    loop_virtual_advance(loop, ns);
    assert_int_equal(stile_client_dispatch(client), STILE_OK);
}

static struct stile_pace_start start;

static enum stile_status pace(uint32_t count, int64_t wait_ms)
{
    return stile_pace(&start, client, "x", STILE_PACE_OPTIONS(.count = count, .per_ms = 1000),
                      wait_ms, &why);
}

static void check_message(const char *part)
{
    if (!strstr(why.message, part))
        fail_msg("%s", why.message);
}

/* ---- waiting ---- */

static void starts_are_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(both[i]);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(pace(3, -1), STILE_OK);
            assert_true(start.delay_ms <= 2);
        }
        uint64_t before = loop_now(loop);
        assert_int_equal(pace(3, -1), STILE_OK);
        assert_true(start.delay_ms >= 1000 && start.delay_ms <= 1060);
        assert_true(loop_now(loop) - before >= SEC);
        assert_true(start.until_ns > loop_now(loop));
        /* It asks once, however long it waits. */
        assert_int_equal(server.asked, i == 0 ? 8 : 4);
        end();
    }
}

static void a_wait_that_is_too_long_reserves_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(both[i]);
        assert_int_equal(pace(1, 0), STILE_OK);
        uint64_t before = loop_now(loop);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(pace(1, 0), STILE_HELD);
            check_message("pacing 'x': the next start is in 1.0");
            assert_int_equal(pace(1, 900), STILE_TIMEOUT);
            assert_true(start.delay_ms > 1000 && start.delay_ms < 1060);
        }
        assert_true(loop_now(loop) - before < 20 * MS);
        assert_int_equal(pace(1, 1100), STILE_OK);
        assert_true(loop_now(loop) - before < 1100 * MS);
        end();
    }
}

static void another_rate_is_a_conflict(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(both[i]);
        assert_int_equal(pace(5, 0), STILE_OK);
        assert_int_equal(pace(6, -1), STILE_CONFLICT);
        check_message("it is used with the rate 5/1s: give the same, or change it");
        pass(2 * SEC);
        assert_int_equal(pace(6, -1), STILE_OK);
        end();
    }
}

/* ---- answers that are late, lost or refused ---- */

/* An answer that comes after the reservation's end is no start, and the next reservation has room
 * for it. */
static void a_slow_answer_is_not_a_start(void **state)
{
    (void)state;
    begin(&pacing);
    server.there_ns = 0;
    server.back_ns = 200 * MS;
    assert_int_equal(pace(1, -1), STILE_OK);
    assert_int_equal(server.asked, 2);
    assert_true(start.delay_ms > 1000);
    assert_true(start.until_ns > loop_now(loop));
    end();
}

static void doubtful_answers_are_asked_for_again(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(both[i]);
        server.lost = 2;
        assert_int_equal(pace(5, 0), STILE_OK);
        assert_true(server.asked > 2);
        /* Not for ever. */
        server.lost = 100;
        assert_int_equal(pace(5, 0), STILE_UNREACHABLE);
        end();
    }
}

static void an_engine_that_is_away_is_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(both[i]);
        server.fails = STILE_UNREACHABLE;
        server.times = 5;
        assert_int_equal(pace(5, 60000), STILE_OK);
        server.times = 1;
        assert_int_equal(pace(5, 0), STILE_UNREACHABLE);
        check_message("pacing 'x': the test says so");
        server.times = 10000;
        uint64_t before = loop_now(loop);
        assert_int_equal(pace(5, 3000), STILE_UNREACHABLE);
        assert_true(loop_now(loop) - before < 5 * SEC);
        server.fails = STILE_REFUSED;
        server.times = 1;
        assert_int_equal(pace(5, -1), STILE_REFUSED);
        end();
    }
}

static void others_may_be_faster(void **state)
{
    (void)state;
    begin(&exchanging);
    server.there_ns = 0;
    server.fails = STILE_CONFLICT; /* of a read: an engine gone mad */
    server.times = 1;
    assert_int_equal(pace(5, -1), STILE_CONFLICT);
    end();
}

static void cells_with_something_else_are_left_alone(void **state)
{
    static const char *const texts[] = {"", "hello", "stile pace 1 5 1000000 0 1 0 99 98"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        begin(&exchanging);
        strcpy(server.value, texts[i]);
        server.size = strlen(texts[i]);
        server.version = 3;
        assert_int_equal(pace(5, -1), STILE_CORRUPT);
        check_message("the cell pace:x holds something else");
        assert_int_equal(server.version, 3);
        end();
    }
}

/* ---- many callers at once ---- */

static struct {
    uint64_t at_ns[STARTS_MAX];
    size_t n, asked;
    unsigned refused;
} seen;
static size_t total;

static void on_start(const struct stile_pace_start *s, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    (void)data;
    assert_int_equal(status != STILE_OK, err != NULL);
    if (status) {
        seen.refused++;
    } else {
        assert_true(loop_now(loop) <= s->until_ns);
        /* The caller takes some of the time that it has left. */
        seen.at_ns[seen.n++] = loop_now(loop) + draw(s->until_ns - loop_now(loop) + 1);
    }
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void check_windows(uint32_t count, uint64_t per_ns)
{
    qsort(seen.at_ns, seen.n, sizeof *seen.at_ns, compare);
    for (size_t i = count; i < seen.n; i++) {
        if (seen.at_ns[i] - seen.at_ns[i - count] < per_ns)
            fail_msg("start %zu of %zu is %llu us after the one %u before", i, seen.n,
                     (unsigned long long)(seen.at_ns[i] - seen.at_ns[i - count]) / 1000, count);
    }
}

static void disturb(void)
{
    switch (draw(12)) {
    case 0:
        server.lost = (unsigned)draw(3);
        break;
    case 1:
        server.back_us += (int64_t)(draw(2) ? draw(5000) : draw(100 * 1000000));
        break;
    case 2:
        server.fails = STILE_UNREACHABLE;
        server.times = (unsigned)draw(4);
        break;
    case 3:
        loop_virtual_jump(loop, draw(100 * MS)); /* this process was stopped */
        break;
    default:
        break;
    }
}

static void run_crowd(const struct engine_class *class, uint32_t count)
{
    memset(&seen, 0, sizeof seen);
    begin(class);
    server.random = true;
    server.there_ns = server.back_ns = draw(3) ? MS : 30 * MS;
    for (int step = 0; step < 600; step++) {
        if (draw(3) == 0 && seen.asked - seen.n - seen.refused < REQUESTS_MAX / 2) {
            seen.asked++;
            assert_int_equal(stile_pace_async(NULL, client, "x",
                                              STILE_PACE_OPTIONS(.count = count, .per_ms = 200),
                                              draw(4) ? -1 : (int64_t)draw(500), on_start, NULL),
                             STILE_OK);
        }
        if (draw(10) == 0)
            disturb();
        pass(draw(40 * MS));
    }
    end();
    assert_int_equal(seen.n + seen.refused, seen.asked);
    total += seen.n;
    check_windows(count, 200 * MS);
}

static void no_window_holds_more_than_it_may(void **state)
{
    (void)state;
    total = 0;
    for (uint64_t i = 0; i < 90; i++) {
        seed = i;
        run_crowd(all[i % 3], 1 + (uint32_t)draw(6));
    }
    assert_true(total > 3000);
}

/* ---- the end of a wait ---- */

static unsigned dones;
static enum stile_status ended_with;

static void on_done(const struct stile_pace_start *s, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)s, (void)err, (void)data;
    dones++;
    ended_with = status;
}

static uint64_t start_one(void)
{
    uint64_t number;
    dones = 0;
    assert_int_equal(stile_pace_async(&number, client, "x",
                                      STILE_PACE_OPTIONS(.count = 1, .per_ms = 1000), -1, on_done,
                                      NULL),
                     STILE_OK);
    assert_int_equal(dones, 0);
    return number;
}

static void waits_can_be_cancelled(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(both[i]);
        assert_int_equal(pace(1, 0), STILE_OK);
        uint64_t number = start_one();
        pass(100 * MS);
        assert_int_equal(dones, 0);
        assert_int_equal(stile_pace_cancel(client, number), STILE_OK);
        pass(0);
        assert_int_equal(dones, 1);
        assert_int_equal(ended_with, STILE_CANCELLED);
        assert_int_equal(stile_pace_cancel(client, number), STILE_OK);
        /* While the engine is asked: as soon as it answers. */
        number = start_one();
        assert_int_equal(stile_pace_cancel(client, number), STILE_OK);
        pass(10 * MS);
        assert_int_equal(dones, 1);
        assert_int_equal(ended_with, STILE_CANCELLED);
        stile_client_interrupt(client);
        assert_int_equal(pace(1, -1), STILE_CANCELLED);
        end();
    }
}

/* Waiting, being asked, and never answered. */
static void closing_ends_waits(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        begin(both[i % 2]);
        assert_int_equal(pace(1, 0), STILE_OK);
        server.silent = i / 2 == 2;
        start_one();
        if (i / 2 == 0)
            pass(100 * MS);
        end();
        assert_int_equal(dones, 1);
        assert_int_equal(ended_with, STILE_CANCELLED);
    }
}

/* A callback that comes late is no start, even if the loop was in time. */
static void a_stopped_process_does_not_start(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(both[i]);
        assert_int_equal(pace(1, 0), STILE_OK);
        start_one();
        pass(100 * MS);
        loop_virtual_jump(loop, 2 * SEC);
        pass(0);
        assert_int_equal(dones, 0);
        pass(5 * MS);
        assert_int_equal(dones, 1);
        assert_int_equal(ended_with, STILE_OK);
        end();
    }
}

/* ---- misuse ---- */

static void misuse_is_refused(void **state)
{
    char name[STILE_NAME_MAX + 1];
    const struct stile_pace_options wrong[] = {
        {.size = sizeof wrong[0], .per_ms = 1000},
        {.size = sizeof wrong[0], .count = 1001, .per_ms = 1000},
        {.size = sizeof wrong[0], .count = 1},
        {.size = sizeof wrong[0], .count = 1, .per_ms = 9},
        {.size = sizeof wrong[0], .count = 1, .per_ms = INT64_C(367) * 86400 * 1000},
        {.size = sizeof wrong[0], .count = 1, .per_ms = 1000, .burst = 1001},
        {.size = sizeof wrong[0], .count = 1, .per_ms = INT64_C(86400) * 1000, .burst = 367},
        {.size = sizeof wrong[0], .count = 1, .per_ms = 1000, .tolerance_ms = -1},
        {.count = 1, .per_ms = 1000},
    };
    (void)state;
    begin(&pacing);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(stile_pace(NULL, client, "x", &wrong[i], 0, &why), STILE_MISUSE);
    const struct stile_pace_options *right = STILE_PACE_OPTIONS(.count = 1, .per_ms = 10);
    assert_int_equal(stile_pace(NULL, client, "x", NULL, 0, &why), STILE_MISUSE);
    assert_int_equal(stile_pace(NULL, client, NULL, right, 0, &why), STILE_MISUSE);
    assert_int_equal(stile_pace(NULL, client, "", right, 0, &why), STILE_MISUSE);
    assert_int_equal(stile_pace(NULL, client, "a\nb", right, 0, &why), STILE_MISUSE);
    assert_int_equal(stile_pace(NULL, NULL, "x", right, 0, &why), STILE_MISUSE);
    assert_int_equal(stile_pace_async(NULL, client, "x", right, 0, NULL, NULL), STILE_MISUSE);
    memset(name, 'n', sizeof name);
    name[STILE_PACE_NAME_MAX + 1] = '\0';
    assert_int_equal(stile_pace(NULL, client, name, right, 0, &why), STILE_MISUSE);
    name[STILE_PACE_NAME_MAX] = '\0';
    assert_int_equal(stile_pace(NULL, client, name, right, 0, &why), STILE_OK);
    end();
    const struct engine_class *const lacking[] = {&clockless, &without};
    for (int i = 0; i < 2; i++) {
        begin(lacking[i]);
        assert_int_equal(pace(1, 0), STILE_UNSUPPORTED);
        check_message("use redis, postgres, mysql, zookeeper or local");
        end();
    }
}

/* ---- no memory ---- */

static void a_lack_of_memory_is_reported(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        begin(both[i % 2]);
        unsigned at = 0;
        do {
            enum stile_status status;
            pass(3 * SEC);
            dones = 0;
            scarcity_begin(at++, false);
            if (i < 2)
                status = pace(1, -1);
            else
                status = stile_pace_async(NULL, client, "x",
                                          STILE_PACE_OPTIONS(.count = 1, .per_ms = 1000), -1,
                                          on_done, NULL);
            for (int k = 0; k < 5; k++)
                pass(MS); /* at once: a callback that comes later is late */
            scarcity_end();
            if (i >= 2 && !status) {
                assert_int_equal(dones, 1);
                status = ended_with;
            }
            if (status && (status != STILE_NOMEM || scarcity.failed == 0))
                fail_msg("%s at %u", stile_status_name(status), at);
        } while (scarcity.failed > 0 && at < 100);
        assert_true(at > 1 || i == 1);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_are_waited_for),
        cmocka_unit_test(a_wait_that_is_too_long_reserves_nothing),
        cmocka_unit_test(another_rate_is_a_conflict),
        cmocka_unit_test(a_slow_answer_is_not_a_start),
        cmocka_unit_test(doubtful_answers_are_asked_for_again),
        cmocka_unit_test(an_engine_that_is_away_is_waited_for),
        cmocka_unit_test(others_may_be_faster),
        cmocka_unit_test(cells_with_something_else_are_left_alone),
        cmocka_unit_test(no_window_holds_more_than_it_may),
        cmocka_unit_test(waits_can_be_cancelled),
        cmocka_unit_test(closing_ends_waits),
        cmocka_unit_test(a_stopped_process_does_not_start),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(a_lack_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
