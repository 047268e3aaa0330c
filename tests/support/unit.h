/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test of core starts with. */
#ifndef STILE_UNIT_H
#define STILE_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/world.h"

/* Compared by name, so that a failure reads "TIMEOUT" != "HELD". */
#define assert_status(actual, expected)                                                            \
    assert_string_equal(stile_status_name(actual), stile_status_name(STILE_##expected))

#define assert_trace(script, expected)                                                             \
    do {                                                                                           \
        char trace_[2048];                                                                         \
        assert_string_equal(script_trace(script, trace_, sizeof(trace_)), expected);               \
    } while (0)

static inline struct stile_lock *make_lock(struct stile_client *client, const char *name,
                                           const struct stile_lock_options *options)
{
    struct stile_lock *lock;

    assert_status(stile_lock_new(&lock, client, name, options, NULL), OK);
    return lock;
}

/* One client on a claim-lease engine; the test gets the world as its state. */
static inline int open_world(void **state, size_t n, const struct engine_class *class)
{
    static struct world world;

    world_open(&world, n, class, 1);
    *state = &world;
    return 0;
}

static inline int open_one(void **state)
{
    return open_world(state, 1, script_variant(STILE_LEASE_CLAIM, 0));
}

static inline int open_apart(void **state)
{
    return open_world(state, 1, script_variant(STILE_LEASE_CLAIM, SCRIPT_APART));
}

static inline int open_two(void **state)
{
    return open_world(state, 2, script_variant(STILE_LEASE_CLAIM, 0));
}

static inline int open_session(void **state)
{
    return open_world(state, 1, script_variant(STILE_LEASE_SESSION, SCRIPT_APART));
}

static inline int open_process(void **state)
{
    return open_world(state, 1, script_variant(STILE_LEASE_PROCESS, SCRIPT_APART));
}

static inline int open_detached(void **state)
{
    return open_world(state, 1, script_variant(STILE_LEASE_CLAIM, SCRIPT_DETACHED));
}

static inline int close_world(void **state)
{
    world_close(*state);
    return 0;
}

#define TEST_IN(open, test) cmocka_unit_test_setup_teardown(test, open, close_world)

#endif
