/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* CRDTs while every allocation fails in turn: each call works or is NOMEM, what it was to change is
 * as it was, and nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "stile.h"
#include "support/scarcity.h"

#define ROOM 512

static struct stile_error why;

static struct stile_crdt *replica(enum stile_crdt_kind kind, unsigned char name)
{
    struct stile_crdt *crdt;
    unsigned char id[STILE_REPLICA_SIZE] = {name};
    return stile_crdt_new(&crdt, kind, STILE_CRDT_OPTIONS(.replica = id), &why) ? NULL : crdt;
}

static enum stile_status change(struct stile_crdt *crdt, const char *what)
{
    switch (stile_crdt_kind(crdt)) {
    case STILE_CRDT_ORSET:
        return stile_orset_add(crdt, what, strlen(what), &why);
    case STILE_CRDT_LWW:
        return stile_lww_set(crdt, what, strlen(what), &why);
    default:
        return stile_counter_add(crdt, 1, &why);
    }
}

static size_t bytes_of(char out[ROOM], const struct stile_crdt *crdt)
{
    size_t size;
    assert_int_equal(stile_crdt_encode(&size, out, ROOM, crdt, &why), STILE_OK);
    return size;
}

/* before: its bytes before the call. */
static bool passed(enum stile_status status, const struct stile_crdt *crdt, const char *before,
                   size_t size)
{
    char now[ROOM];
    if (status == STILE_OK)
        return true;
    assert_int_equal(status, STILE_NOMEM);
    assert_int_equal(bytes_of(now, crdt), size);
    assert_memory_equal(now, before, size);
    return false;
}

/* Enough of them for tables to grow. */
static bool change_often(struct stile_crdt *crdt)
{
    char before[ROOM], name[2] = "a";
    for (; name[0] < 'm'; name[0]++) {
        size_t size = bytes_of(before, crdt);
        if (!passed(change(crdt, name), crdt, before, size))
            return false;
    }
    return true;
}

static void exchange(struct stile_crdt *a, struct stile_crdt *b)
{
    struct stile_crdt *copy;
    char before[ROOM], bytes[ROOM];
    size_t size = bytes_of(before, a);
    if (!passed(stile_crdt_merge(a, b, &why), a, before, size))
        return;
    size = bytes_of(bytes, a);
    enum stile_status status = stile_crdt_decode(&copy, bytes, size, NULL, &why);
    assert_true(status ? status == STILE_NOMEM && !copy : stile_crdt_equal(a, copy));
    stile_crdt_free(copy);
}

static void play(enum stile_crdt_kind kind)
{
    struct stile_crdt *a = replica(kind, 'a'), *b = replica(kind, 'b');
    if (a && b && change_often(a) && change_often(b))
        exchange(a, b);
    stile_crdt_free(a);
    stile_crdt_free(b);
}

static void each_allocation_fails_in_turn(void **state)
{
    (void)state;
    for (int kind = STILE_CRDT_GCOUNTER; kind <= STILE_CRDT_LWW; kind++) {
        unsigned at = 0;
        do {
            long before = scarcity_outstanding;
            scarcity_begin(at++, false);
            play((enum stile_crdt_kind)kind);
            scarcity_end();
            assert_int_equal(scarcity_outstanding, before);
        } while (scarcity.failed > 0);
        assert_true(at > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests_name("crdt-nomem", tests, NULL, NULL);
}
