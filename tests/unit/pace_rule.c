/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of a pace, with clocks of the test's own: random schedules, of which every window
 * is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/pace_rule.h"

#define SECOND     INT64_C(1000000)
#define BEGINNING  INT64_C(1800000000000000)
#define STARTS_MAX 3000

static int64_t starts[STARTS_MAX];
static size_t n_starts;
static uint64_t seed;

static int64_t draw(int64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(seed >> 33) % below;
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of count + 1 starts in a row, the last is a window after the first. */
static void check_windows(const struct pace_terms *terms)
{
    qsort(starts, n_starts, sizeof *starts, compare);
    for (size_t i = terms->count; i < n_starts; i++) {
        int64_t apart = starts[i] - starts[i - terms->count];
        if (apart < terms->per_us)
            fail_msg("start %zu is %lld us after that of %u starts before", i, (long long)apart,
                     terms->count);
    }
}

static struct pace_request request_of(uint32_t count, int64_t per_us, uint32_t burst)
{
    return (struct pace_request){.terms = {.count = count, .per_us = per_us, .burst = burst},
                                 .tolerance_us = per_us / 100,
                                 .answer_us = per_us / 100,
                                 .wait_us = PACE_PER_MAX_US};
}

static void expect(struct pace_history *h, struct pace_request *r, int64_t at_us,
                   enum pace_outcome outcome, int64_t start_us)
{
    pace_reserve(h, r, BEGINNING + at_us);
    assert_int_equal(r->outcome, outcome);
    assert_int_equal(r->start_us - BEGINNING, start_us);
}

/* ---- one after the other ---- */

static void as_many_as_the_rate_start_at_once(void **state)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(2, SECOND, 0);
    (void)state;
    expect(&h, &r, 0, PACE_RESERVED, 0);
    expect(&h, &r, 100, PACE_RESERVED, 100);
    assert_int_equal(r.end_us - r.start_us, SECOND / 100);
    expect(&h, &r, 200, PACE_RESERVED, SECOND + SECOND / 100);
    expect(&h, &r, 300, PACE_RESERVED, SECOND + SECOND / 100 + 100);
    expect(&h, &r, 400, PACE_RESERVED, 2 * (SECOND + SECOND / 100));
    expect(&h, &r, 10 * SECOND, PACE_RESERVED, 10 * SECOND);
    assert_int_equal(h.n, 1);
}

static void what_is_too_far_away_is_not_reserved(void **state)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(1, SECOND, 0);
    (void)state;
    expect(&h, &r, 0, PACE_RESERVED, 0);
    struct pace_history before = h;
    r.wait_us = SECOND;
    for (int i = 0; i < 3; i++)
        expect(&h, &r, 5, PACE_FAR, SECOND + SECOND / 100);
    assert_memory_equal(&h, &before, sizeof h);
    r.wait_us = SECOND + SECOND / 100;
    expect(&h, &r, 5, PACE_RESERVED, SECOND + SECOND / 100);
}

/* The answer needs time to arrive, if the start is now; not if it is later. */
static void a_reservation_lasts_until_its_answer_is_there(void **state)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(1, SECOND, 0);
    (void)state;
    r.answer_us = 50000;
    expect(&h, &r, 0, PACE_RESERVED, 0);
    assert_int_equal(r.end_us - BEGINNING, 50000);
    expect(&h, &r, 1, PACE_RESERVED, SECOND + 50000);
    assert_int_equal(r.end_us - r.start_us, SECOND / 100);
}

static void a_burst_is_followed_by_an_even_pace(void **state)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(10, SECOND, 3);
    (void)state;
    for (int64_t i = 0; i < 3; i++)
        expect(&h, &r, 0, PACE_RESERVED, 0);
    for (int64_t i = 1; i < 50; i++)
        expect(&h, &r, 0, PACE_RESERVED, i * SECOND / 10);
    assert_int_equal(h.n, 1);
}

static void another_rate_has_to_wait(void **state)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(2, SECOND, 0),
                        others[] = {request_of(3, SECOND, 0), request_of(2, 2 * SECOND, 0),
                                    request_of(2, SECOND, 1)};
    (void)state;
    expect(&h, &r, 0, PACE_RESERVED, 0);
    for (size_t i = 0; i < 3; i++) {
        expect(&h, &others[i], 1, PACE_OTHER_TERMS, SECOND + SECOND / 100);
        assert_int_equal(others[i].used.count, 2);
        assert_int_equal(others[i].used.per_us, SECOND);
        assert_int_equal(others[i].used.burst, 0);
    }
    expect(&h, &others[0], SECOND + SECOND / 100, PACE_RESERVED, SECOND + SECOND / 100);
    expect(&h, &r, SECOND + SECOND / 100 + 1, PACE_OTHER_TERMS, 2 * (SECOND + SECOND / 100));
}

/* ---- clocks ---- */

/* By an hour: the next start is within two windows of what it would have been. */
static void a_clock_that_goes_back_delays_by_a_window(void **state)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(1, SECOND, 0);
    (void)state;
    expect(&h, &r, 0, PACE_RESERVED, 0);
    pace_reserve(&h, &r, BEGINNING - 3600 * SECOND);
    assert_int_equal(r.outcome, PACE_RESERVED);
    assert_true(r.start_us - r.now_us >= SECOND);
    assert_true(r.start_us - r.now_us <= 2 * SECOND + SECOND / 100);
    /* And from then on as ever. */
    int64_t wait = r.start_us - r.now_us;
    pace_reserve(&h, &r, BEGINNING - 3600 * SECOND + 1000);
    assert_int_equal(r.start_us - r.now_us, wait + SECOND + SECOND / 100 - 1000);
}

/* ---- random schedules ---- */

/* True time, which no clock shows. */
static void run_schedule(uint32_t count, uint32_t burst, bool back)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(count, SECOND / 10, burst);
    int64_t clock = BEGINNING, last_start = 0;
    n_starts = 0;
    for (int64_t at = 0; n_starts < STARTS_MAX;) {
        int64_t passed = draw(10) ? draw(SECOND / 10 / count * 2 + 1) : draw(SECOND);
        at += passed;
        clock += passed;
        if (back && draw(50) == 0)
            clock -= draw(2) ? draw(1000) : draw(3600 * SECOND);
        r.tolerance_us = draw(20) ? 1000 + draw(5000) : draw(SECOND / 5);
        r.answer_us = draw(5000);
        r.wait_us = draw(3) ? PACE_PER_MAX_US : draw(SECOND / 10);
        pace_reserve(&h, &r, clock);
        int64_t start = at + r.start_us - r.now_us;
        assert_true(start >= at);
        if (r.outcome != PACE_RESERVED)
            continue;
        assert_true(back || start >= last_start); /* first come, first served */
        last_start = start;
        if (draw(30)) /* else it was killed */
            starts[n_starts++] = start + draw(r.end_us - r.start_us + 1);
    }
    if (!burst)
        check_windows(&r.terms);
}

static void no_window_holds_more_than_it_may(void **state)
{
    (void)state;
    for (seed = 1; seed <= 60; seed++) {
        uint64_t this = seed;
        run_schedule(1 + (uint32_t)draw(this % 3 ? 8 : 100), 0, this % 2);
        seed = this;
    }
}

/* In any interval: the burst, and what the rate allows. */
static void bursts_are_bounded(void **state)
{
    (void)state;
    for (uint32_t burst = 1; burst <= 20; burst++) {
        seed = burst;
        run_schedule(10, burst, false);
        qsort(starts, n_starts, sizeof *starts, compare);
        for (size_t i = 0; i < n_starts; i++) {
            for (size_t k = i; k < n_starts && k < i + 100; k++) {
                int64_t apart = starts[k] - starts[i] + SECOND / 5;
                assert_true((int64_t)(k - i + 1) <= burst + 1 + apart * 10 / (SECOND / 10));
            }
        }
    }
}

/* With waiters at all times, the rate is that of a window and its tolerance. */
static void a_queue_makes_full_use_of_the_rate(void **state)
{
    struct pace_history h = {0};
    struct pace_request r = request_of(50, SECOND, 0);
    (void)state;
    for (int64_t i = 0; i < 5000; i++)
        pace_reserve(&h, &r, BEGINNING + i);
    assert_int_equal((r.start_us - BEGINNING) / (SECOND + SECOND / 100), 99);
}

/* ---- its form ---- */

static void what_is_written_can_be_read(void **state)
{
    static struct pace_history h, back;
    static char text[PACE_TEXT_MAX];
    struct pace_request r = request_of(STILE_PACE_COUNT_MAX, PACE_PER_MAX_US, 0);
    (void)state;
    memset(&h, 0, sizeof h);
    for (uint32_t i = 1; i <= STILE_PACE_COUNT_MAX + 5; i++) {
        pace_reserve(&h, &r, BEGINNING + i);
        size_t size = pace_write(text, &h);
        assert_true(size < PACE_TEXT_MAX && size <= STILE_CELL_MAX);
        assert_true(pace_read(&back, text, size));
        assert_int_equal(back.n, h.n);
        assert_memory_equal(back.ends, h.ends, h.n * sizeof *h.ends);
        assert_int_equal(back.seen_us, h.seen_us);
    }
    assert_int_equal(h.n, STILE_PACE_COUNT_MAX);
}

static void nothing_else_is_read(void **state)
{
    static struct pace_history h;
    static const char *const wrong[] = {
        "",
        "stile pace 1",
        "stile pace 1 2 1000000 0 5 0",       /* no ends */
        "stile pace 1 0 1000000 0 5 0 7",     /* no starts */
        "stile pace 1 1001 1000000 0 5 0 7",  /* too many */
        "stile pace 1 2 9999 0 5 0 7",        /* too short */
        "stile pace 1 2 1000000 0 5 0 7 6",   /* back */
        "stile pace 1 2 1000000 0 5 0 7 8 9", /* more than starts */
        "stile pace 1 2 1000000 1 5 0 7 8",   /* more than one, with a burst */
        "stile pace 1 2 1000000 0 5 0 7 ",    /* a blank */
        "stile pace 1 2 1000000 0 5 0 07",    /* written otherwise */
        "stile pace 1 2 1000000 0 5 0 -7",
        "stile pace 1 2 1000000 0 5 0 9007199254740993",
        "stile pace 1 2 1000000 0 5 0 99999999999999999999999",
        "stile pace 2 2 1000000 0 5 0 7",
        "STILE PACE 1 2 1000000 0 5 0 7",
    };
    (void)state;
    assert_true(pace_read(&h, "stile pace 1 2 1000000 0 5 0 7", 30));
    assert_false(pace_read(&h, "stile pace 1 2 1000000 0 5 0 7\0", 31));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (pace_read(&h, wrong[i], strlen(wrong[i])))
            fail_msg("read: %s", wrong[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_as_the_rate_start_at_once),
        cmocka_unit_test(what_is_too_far_away_is_not_reserved),
        cmocka_unit_test(a_reservation_lasts_until_its_answer_is_there),
        cmocka_unit_test(a_burst_is_followed_by_an_even_pace),
        cmocka_unit_test(another_rate_has_to_wait),
        cmocka_unit_test(a_clock_that_goes_back_delays_by_a_window),
        cmocka_unit_test(no_window_holds_more_than_it_may),
        cmocka_unit_test(bursts_are_bounded),
        cmocka_unit_test(a_queue_makes_full_use_of_the_rate),
        cmocka_unit_test(what_is_written_can_be_read),
        cmocka_unit_test(nothing_else_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
