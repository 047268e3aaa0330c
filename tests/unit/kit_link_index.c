/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a link by the data of their requester: found, however many there are, and without
 * a look at the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engines/kit/link.h"

#define MANY   50000
#define OWNERS 3000
#define CHAIN  16 /* requests in one bucket, if their data differ */

static struct link_request *new_requests(size_t n)
{
    struct link_request *requests = calloc(n, sizeof *requests);
    assert_non_null(requests);
    return requests;
}

static size_t longest_chain(const struct link_index *index)
{
    size_t longest = 0;
    for (size_t i = 0; i < (index->many ? index->size : LINK_INDEX_FEW); i++) {
        size_t n = 0;
        for (const struct link_request *r = index->many ? index->many[i] : index->few[i]; r;
             r = r->same_next)
            n++;
        longest = n > longest ? n : longest;
    }
    return longest;
}

static size_t count(const struct link_index *index, const void *data)
{
    size_t n = 0;
    for (const struct link_request *r = link_index_first(index, data); r; r = link_index_next(r))
        n++;
    return n;
}

static void test_chains_stay_short(void **state)
{
    (void)state;
    struct link_index index = {0};
    struct link_request *requests = new_requests(MANY);
    for (size_t i = 0; i < MANY; i++) {
        requests[i].data = &requests[i];
        link_index_add(&index, &requests[i]);
    }
    assert_true(longest_chain(&index) <= CHAIN);
    for (size_t i = 0; i < MANY; i++)
        assert_ptr_equal(link_index_first(&index, &requests[i]), &requests[i]);
    for (size_t i = 0; i < MANY; i++)
        link_index_remove(&index, &requests[i]);
    assert_int_equal(index.n, 0);
    assert_int_equal(longest_chain(&index), 0);
    link_index_free(&index);
    free(requests);
}

/* At random, beside an array that says which are in it. */
static void test_some_of_one_owner(void **state)
{
    (void)state;
    static char owners[OWNERS];
    static size_t expected[OWNERS];
    static bool added[MANY];
    struct link_index index = {0};
    struct link_request *requests = new_requests(MANY);
    srandom(1);
    for (size_t turn = 0; turn < 4 * (size_t)MANY; turn++) {
        size_t i = (size_t)random() % MANY, owner = i % OWNERS;
        requests[i].data = &owners[owner];
        if (added[i])
            link_index_remove(&index, &requests[i]);
        else
            link_index_add(&index, &requests[i]);
        expected[owner] += added[i] ? SIZE_MAX : 1;
        added[i] = !added[i];
        if (turn % 100 == 0)
            assert_int_equal(count(&index, &owners[owner]), expected[owner]);
    }
    for (size_t i = 0; i < OWNERS; i++)
        assert_int_equal(count(&index, &owners[i]), expected[i]);
    assert_null(link_index_first(&index, &index));
    link_index_free(&index);
    free(requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_stay_short),
        cmocka_unit_test(test_some_of_one_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
