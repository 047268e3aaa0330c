/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same for the jobs of all engines: how long a failed job rests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recipes/jobs.h"

#define HOUR_MS (INT64_C(3600) * 1000)

static void pause_doubles_up_to_an_hour(void **state)
{
    (void)state;
    /* The largest of all random numbers for that limit is the limit itself. */
    for (unsigned tries = 1; tries <= 12; tries++) {
        int64_t most = INT64_C(1000) << (tries - 1);
        most = most < HOUR_MS ? most : HOUR_MS;
        assert_int_equal(jobs_pause_ms(1000, tries, (uint64_t)most), most);
        assert_int_equal(jobs_pause_ms(1000, tries, (uint64_t)most + 1), 0);
    }
    assert_int_equal(jobs_pause_ms(1000, UINT32_MAX, (uint64_t)HOUR_MS), HOUR_MS);
    assert_int_equal(jobs_pause_ms(INT64_MAX, 3, (uint64_t)HOUR_MS), HOUR_MS);
}

static void pause_is_anything_below(void **state)
{
    (void)state;
    assert_int_equal(jobs_pause_ms(1000, 1, 0), 0);
    assert_int_equal(jobs_pause_ms(1000, 1, 517), 517);
    assert_int_equal(jobs_pause_ms(1000, 2, 1517), 1517);
    assert_int_equal(jobs_pause_ms(1, 1, UINT64_MAX), (int64_t)(UINT64_MAX % 2));
}

static void expect_clean(const char *text, const char *clean, size_t size)
{
    char out[64];
    jobs_clean_text(out, size, text);
    assert_string_equal(out, clean);
}

static void errors_are_text(void **state)
{
    (void)state;
    expect_clean("", "", 64);
    expect_clean("one\n\ttwo\n", "one\n\ttwo\n", 64);
    expect_clean("\x1b[31mred\r\x7f\b", "?[31mred???", 64);
    expect_clean("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
                 "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 64);
    expect_clean("\xc2\x9b\xc2\x85", "??", 64);        /* C1 */
    expect_clean("\xc0\x80\xed\xa0\x80", "?????", 64); /* overlong, surrogate */
    expect_clean("x\xe2\x82", "x??", 64);              /* cut off */
}

static void errors_are_cut_between_characters(void **state)
{
    (void)state;
    expect_clean("abc", "ab", 3);
    expect_clean("a\xc3\xbc", "a", 3);
    expect_clean("a\xc3\xbc", "a\xc3\xbc", 4);
    expect_clean("abc", "", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pause_doubles_up_to_an_hour),
        cmocka_unit_test(pause_is_anything_below),
        cmocka_unit_test(errors_are_text),
        cmocka_unit_test(errors_are_cut_between_characters),
    };
    return cmocka_run_group_tests_name("jobs", tests, NULL, NULL);
}
