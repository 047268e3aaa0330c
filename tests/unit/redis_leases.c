/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest of many leases, at most as long as it is and more than half of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engines/redis/connection.h"

#define MS UINT64_C(1000000)

static void is_near(const struct link_leases *leases, uint64_t lease_ns)
{
    uint64_t shortest = link_leases_shortest(leases);
    assert_true(shortest <= lease_ns && shortest > lease_ns / 2);
}

static void the_shortest_counts(void **state)
{
    struct link_leases leases = {0};
    (void)state;
    assert_true(link_leases_shortest(&leases) == UINT64_MAX);
    unsigned hour = link_leases_add(&leases, 3600000 * MS);
    is_near(&leases, 3600000 * MS);
    unsigned ten = link_leases_add(&leases, 10000 * MS),
             other = link_leases_add(&leases, 10000 * MS);
    is_near(&leases, 10000 * MS);
    unsigned least = link_leases_add(&leases, 10 * MS);
    is_near(&leases, 10 * MS);
    link_leases_remove(&leases, least);
    link_leases_remove(&leases, ten);
    is_near(&leases, 10000 * MS);
    link_leases_remove(&leases, other);
    is_near(&leases, 3600000 * MS);
    link_leases_remove(&leases, hour);
    assert_true(link_leases_shortest(&leases) == UINT64_MAX);
}

static void every_length_has_its_place(void **state)
{
    (void)state;
    for (uint64_t lease_ns = 1; lease_ns < UINT64_MAX / 3; lease_ns = lease_ns * 3 + 1) {
        struct link_leases leases = {0};
        link_leases_add(&leases, lease_ns);
        is_near(&leases, lease_ns);
    }
    struct link_leases none = {0};
    link_leases_remove(&none, link_leases_add(&none, 0));
    assert_true(link_leases_shortest(&none) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shortest_counts),
        cmocka_unit_test(every_length_has_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
