/* The shortest of many leases, at most as long as it is and more than half of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engines/redis/connection.h"

#define MS UINT64_C(1000000)

static void is_near(const struct leases *leases, uint64_t lease_ns)
{
    uint64_t shortest = redis_leases_shortest(leases);
    assert_true(shortest <= lease_ns && shortest > lease_ns / 2);
}

static void the_shortest_counts(void **state)
{
    struct leases leases = {0};
    (void)state;
    assert_true(redis_leases_shortest(&leases) == UINT64_MAX);
    unsigned hour = redis_leases_add(&leases, 3600000 * MS);
    is_near(&leases, 3600000 * MS);
    unsigned ten = redis_leases_add(&leases, 10000 * MS),
             other = redis_leases_add(&leases, 10000 * MS);
    is_near(&leases, 10000 * MS);
    unsigned least = redis_leases_add(&leases, 10 * MS);
    is_near(&leases, 10 * MS);
    redis_leases_remove(&leases, least);
    redis_leases_remove(&leases, ten);
    is_near(&leases, 10000 * MS);
    redis_leases_remove(&leases, other);
    is_near(&leases, 3600000 * MS);
    redis_leases_remove(&leases, hour);
    assert_true(redis_leases_shortest(&leases) == UINT64_MAX);
}

static void every_length_has_its_place(void **state)
{
    (void)state;
    for (uint64_t lease_ns = 1; lease_ns < UINT64_MAX / 3; lease_ns = lease_ns * 3 + 1) {
        struct leases leases = {0};
        redis_leases_add(&leases, lease_ns);
        is_near(&leases, lease_ns);
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
