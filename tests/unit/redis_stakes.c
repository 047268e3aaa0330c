/* The shortest of many leases, at most as long as it is and more than half of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engines/redis/connection.h"

#define MS UINT64_C(1000000)

static void is_near(const struct leases *stakes, uint64_t lease_ns)
{
    uint64_t shortest = redis_leases_shortest(stakes);
    assert_true(shortest <= lease_ns && shortest > lease_ns / 2);
}

static void the_shortest_counts(void **state)
{
    struct leases stakes = {0};
    (void)state;
    assert_true(redis_leases_shortest(&stakes) == UINT64_MAX);
    unsigned hour = redis_leases_add(&stakes, 3600000 * MS);
    is_near(&stakes, 3600000 * MS);
    unsigned ten = redis_leases_add(&stakes, 10000 * MS),
             other = redis_leases_add(&stakes, 10000 * MS);
    is_near(&stakes, 10000 * MS);
    unsigned least = redis_leases_add(&stakes, 10 * MS);
    is_near(&stakes, 10 * MS);
    redis_leases_remove(&stakes, least);
    redis_leases_remove(&stakes, ten);
    is_near(&stakes, 10000 * MS);
    redis_leases_remove(&stakes, other);
    is_near(&stakes, 3600000 * MS);
    redis_leases_remove(&stakes, hour);
    assert_true(redis_leases_shortest(&stakes) == UINT64_MAX);
}

static void every_length_has_its_place(void **state)
{
    (void)state;
    for (uint64_t lease_ns = 1; lease_ns < UINT64_MAX / 3; lease_ns = lease_ns * 3 + 1) {
        struct leases stakes = {0};
        redis_leases_add(&stakes, lease_ns);
        is_near(&stakes, lease_ns);
    }
    struct leases none = {0};
    redis_leases_remove(&none, redis_leases_add(&none, 0));
    assert_true(redis_leases_shortest(&none) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shortest_counts),
        cmocka_unit_test(every_length_has_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
