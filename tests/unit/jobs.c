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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pause_doubles_up_to_an_hour),
        cmocka_unit_test(pause_is_anything_below),
    };
    return cmocka_run_group_tests_name("jobs", tests, NULL, NULL);
}
