/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* CRDTs, kind by kind: what a counter, a set and a register answer, the clock, and the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "stile.h"

static struct stile_error why;

/* ---- replicas of this test ---- */

static int64_t clocks[26]; /* of the replicas 'a' to 'z' */

static int64_t clock_of(void *data)
{
    return *(int64_t *)data;
}

static struct stile_crdt *replica(enum stile_crdt_kind kind, char name)
{
    struct stile_crdt *crdt;
    unsigned char id[STILE_REPLICA_SIZE] = {0};
    id[STILE_REPLICA_SIZE - 1] = (unsigned char)name;
    assert_int_equal(stile_crdt_new(&crdt, kind,
                                    STILE_CRDT_OPTIONS(.replica = id, .clock = clock_of,
                                                       .clock_data = &clocks[name - 'a']),
                                    &why),
                     STILE_OK);
    assert_memory_equal(stile_crdt_replica(crdt), id, sizeof id);
    assert_int_equal(stile_crdt_kind(crdt), kind);
    return crdt;
}

static void merge(struct stile_crdt *into, const struct stile_crdt *from)
{
    assert_int_equal(stile_crdt_merge(into, from, &why), STILE_OK);
}

static void add(struct stile_crdt *set, const char *element)
{
    assert_int_equal(stile_orset_add(set, element, strlen(element), &why), STILE_OK);
}

static void drop(struct stile_crdt *set, const char *element)
{
    assert_int_equal(stile_orset_remove(set, element, strlen(element), &why), STILE_OK);
}

static bool has(const struct stile_crdt *set, const char *element)
{
    return stile_orset_has(set, element, strlen(element));
}

static void set(struct stile_crdt *reg, const char *value)
{
    assert_int_equal(stile_lww_set(reg, value, strlen(value), &why), STILE_OK);
}

/* ---- counters ---- */

static void a_counter_sums_its_replicas(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_PNCOUNTER, 'a');
    struct stile_crdt *b = replica(STILE_CRDT_PNCOUNTER, 'b');
    (void)state;
    assert_int_equal(stile_counter_value(a), 0);
    stile_counter_add(a, 5, NULL);
    stile_counter_add(b, -7, NULL);
    stile_counter_add(b, 1, NULL);
    merge(a, b);
    merge(a, b);
    assert_int_equal(stile_counter_value(a), -1);
    assert_false(stile_crdt_equal(a, b));
    merge(b, a);
    assert_true(stile_crdt_equal(a, b));
    stile_crdt_free(a);
    stile_crdt_free(b);
}

static void a_growing_counter_refuses_to_shrink(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_GCOUNTER, 'a');
    (void)state;
    assert_int_equal(stile_counter_add(a, 3, &why), STILE_OK);
    assert_int_equal(stile_counter_add(a, -1, &why), STILE_MISUSE);
    assert_non_null(strstr(why.message, "only grows"));
    assert_int_equal(stile_counter_value(a), 3);
    stile_crdt_free(a);
}

static void a_counter_ends_and_saturates(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_PNCOUNTER, 'a');
    struct stile_crdt *b = replica(STILE_CRDT_PNCOUNTER, 'b');
    (void)state;
    assert_int_equal(stile_counter_add(a, INT64_MAX, &why), STILE_OK);
    assert_int_equal(stile_counter_add(a, 1, &why), STILE_MISUSE);
    assert_int_equal(stile_counter_add(a, INT64_MIN, &why), STILE_MISUSE);
    assert_int_equal(stile_counter_add(b, 1, &why), STILE_OK);
    merge(a, b);
    assert_true(stile_counter_value(a) == INT64_MAX);
    stile_crdt_free(a);
    stile_crdt_free(b);
}

/* ---- sets ---- */

static void an_add_wins(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_ORSET, 'a'), *b = replica(STILE_CRDT_ORSET, 'b');
    (void)state;
    add(a, "x");
    merge(b, a);
    drop(b, "x");
    add(a, "x"); /* neither has seen what the other did */
    merge(a, b);
    merge(b, a);
    assert_true(has(a, "x") && has(b, "x"));
    assert_true(stile_crdt_equal(a, b));
    stile_crdt_free(a);
    stile_crdt_free(b);
}

static void a_removal_reaches_all(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_ORSET, 'a'), *b = replica(STILE_CRDT_ORSET, 'b');
    struct stile_crdt *c = replica(STILE_CRDT_ORSET, 'c');
    (void)state;
    add(a, "x");
    merge(b, a);
    merge(c, b);
    drop(b, "x");
    merge(c, b);
    merge(c, a); /* an old message does not bring it back */
    assert_false(has(c, "x"));
    merge(a, c);
    assert_int_equal(stile_orset_count(a), 0);
    stile_crdt_free(a);
    stile_crdt_free(b);
    stile_crdt_free(c);
}

static void removals_leave_nothing_behind(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_ORSET, 'a');
    size_t first, last;
    char name[2] = "?";
    (void)state;
    add(a, "first");
    drop(a, "first");
    stile_crdt_encode(&first, NULL, 0, a, NULL);
    for (int i = 0; i < 100; i++) {
        name[0] = (char)('0' + i % 64);
        add(a, name);
        drop(a, name);
    }
    stile_crdt_encode(&last, NULL, 0, a, NULL);
    assert_int_equal(first, last);
    stile_crdt_free(a);
}

static int collect(const void *element, size_t size, void *data)
{
    strncat(data, element, size);
    assert_int_equal(((const char *)element)[size], '\0');
    return strlen(data) > 5;
}

static void elements_come_in_byte_order(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_ORSET, 'a');
    char seen[20] = "";
    (void)state;
    add(a, "c");
    add(a, "");
    add(a, "ab");
    add(a, "a");
    add(a, "d");
    add(a, "e");
    stile_orset_each(a, collect, seen);
    assert_string_equal(seen, "aabcde");
    assert_int_equal(stile_orset_count(a), 6);
    assert_true(has(a, ""));
    stile_crdt_free(a);
}

/* ---- registers ---- */

static void the_last_write_wins(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_LWW, 'a'), *b = replica(STILE_CRDT_LWW, 'b');
    size_t size;
    (void)state;
    clocks[0] = 1000;
    clocks[1] = 1001;
    assert_null(stile_lww_get(&size, a));
    set(b, "later");
    set(a, "earlier");
    merge(a, b);
    merge(b, a);
    assert_string_equal(stile_lww_get(&size, a), "later");
    assert_int_equal(size, 5);
    assert_true(stile_crdt_equal(a, b));
    assert_int_equal(stile_lww_time_ms(a), 1001);
    stile_crdt_free(a);
    stile_crdt_free(b);
}

/* b's clock is behind, but it has seen what it overwrites. */
static void the_clock_never_goes_back(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_LWW, 'a'), *b = replica(STILE_CRDT_LWW, 'b');
    (void)state;
    clocks[0] = 5000;
    clocks[1] = 100;
    set(a, "one");
    merge(b, a);
    set(b, "two");
    assert_int_equal(stile_lww_time_ms(b), 5000);
    merge(a, b);
    assert_string_equal(stile_lww_get(NULL, a), "two");
    clocks[0] = 1;
    set(a, "three");
    merge(b, a);
    assert_string_equal(stile_lww_get(NULL, b), "three");
    clocks[0] = 6000;
    set(a, "four");
    assert_int_equal(stile_lww_time_ms(a), 6000);
    stile_crdt_free(a);
    stile_crdt_free(b);
}

static void a_clock_far_ahead_is_refused(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_LWW, 'a'), *b = replica(STILE_CRDT_LWW, 'b');
    (void)state;
    clocks[0] = 1000;
    clocks[1] = 1000 + 60000;
    set(a, "mine");
    set(b, "just");
    merge(a, b);
    clocks[1] += 1;
    set(b, "far");
    assert_int_equal(stile_crdt_merge(a, b, &why), STILE_REFUSED);
    assert_non_null(strstr(why.message, "60001 ms ahead"));
    assert_string_equal(stile_lww_get(NULL, a), "just");
    clocks[0] += 1; /* in time it is believed */
    merge(a, b);
    assert_string_equal(stile_lww_get(NULL, a), "far");
    stile_crdt_free(a);
    stile_crdt_free(b);
}

/* ---- misuse ---- */

static void misuse_is_answered(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_LWW, 'a'), *b = replica(STILE_CRDT_ORSET, 'b');
    static char large[STILE_CRDT_VALUE_MAX + 1];
    struct stile_crdt *none = a;
    (void)state;
    assert_int_equal(stile_crdt_new(&none, 0, NULL, &why), STILE_MISUSE);
    assert_null(none);
    assert_int_equal(stile_crdt_new(NULL, STILE_CRDT_LWW, NULL, &why), STILE_MISUSE);
    assert_int_equal(
        stile_crdt_new(&none, STILE_CRDT_LWW, STILE_CRDT_OPTIONS(.drift_ms = -1), &why),
        STILE_MISUSE);
    assert_int_equal(stile_crdt_merge(a, b, &why), STILE_MISUSE);
    assert_int_equal(stile_crdt_merge(a, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_counter_add(a, 1, &why), STILE_MISUSE);
    assert_int_equal(stile_orset_add(a, "x", 1, &why), STILE_MISUSE);
    assert_int_equal(stile_lww_set(b, "x", 1, &why), STILE_MISUSE);
    assert_int_equal(stile_lww_set(a, large, sizeof large, &why), STILE_MISUSE);
    assert_int_equal(stile_orset_add(b, large, sizeof large, &why), STILE_MISUSE);
    assert_int_equal(stile_orset_add(b, NULL, 1, &why), STILE_MISUSE);
    assert_int_equal(stile_crdt_encode(NULL, NULL, 0, a, &why), STILE_MISUSE);
    assert_int_equal(stile_crdt_decode(NULL, "", 0, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_crdt_decode(&none, NULL, 1, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_crdt_decode(&none, NULL, 0, NULL, &why), STILE_CORRUPT);
    assert_int_equal(stile_crdt_update(NULL, NULL, "k", NULL, NULL, NULL, &why), STILE_MISUSE);
    assert_int_equal(stile_counter_value(NULL), 0);
    assert_false(stile_orset_has(NULL, "", 0) || stile_crdt_equal(a, b));
    stile_crdt_free(NULL);
    stile_crdt_free(a);
    stile_crdt_free(b);
}

static void random_ids_differ(void **state)
{
    struct stile_crdt *a, *b;
    (void)state;
    assert_int_equal(stile_crdt_new(&a, STILE_CRDT_LWW, NULL, &why), STILE_OK);
    assert_int_equal(stile_crdt_new(&b, STILE_CRDT_LWW, NULL, &why), STILE_OK);
    assert_memory_not_equal(stile_crdt_replica(a), stile_crdt_replica(b), STILE_REPLICA_SIZE);
    set(a, "by CLOCK_REALTIME");
    assert_true(stile_lww_time_ms(a) > UINT64_C(1600000000000));
    stile_crdt_free(a);
    stile_crdt_free(b);
}

/* ---- bytes ---- */

#define ID_A "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0a"
#define ID_B "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0b"

struct bytes {
    const char *bytes;
    size_t size;
};

#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }

/* As they will be read for ever: this test is never changed. */
static void the_form_stays(void **state)
{
    static const struct bytes counter = BYTES("SC\1\2\2" ID_A "\x96\1\0" ID_B "\0\7");
    static const struct bytes members = BYTES("SC\1\3\1" ID_A "\3\2\1x\1\0\3\1y\1\0\2");
    static const struct bytes text = BYTES("SC\1\4\1\xe8\7\1" ID_B "\2hi");
    struct stile_crdt *a, *b, *c;
    (void)state;
    assert_int_equal(stile_crdt_decode(&a, counter.bytes, counter.size, NULL, &why), STILE_OK);
    assert_int_equal(stile_counter_value(a), 143);
    assert_int_equal(stile_crdt_decode(&b, members.bytes, members.size, NULL, &why), STILE_OK);
    assert_true(stile_orset_count(b) == 2 && has(b, "x") && has(b, "y"));
    assert_int_equal(stile_crdt_decode(&c, text.bytes, text.size, NULL, &why), STILE_OK);
    assert_string_equal(stile_lww_get(NULL, c), "hi");
    assert_int_equal(stile_lww_time_ms(c), 1000);
    stile_crdt_free(a);
    stile_crdt_free(b);
    stile_crdt_free(c);
}

static void equal_states_have_equal_bytes(void **state)
{
    static const struct bytes expected = BYTES("SC\1\3\2" ID_A "\1" ID_B "\1\1\1x\2\0\1\1\1");
    struct stile_crdt *a = replica(STILE_CRDT_ORSET, 'a'), *b = replica(STILE_CRDT_ORSET, 'b');
    char out[64];
    size_t size;
    (void)state;
    add(a, "x");
    add(b, "x");
    merge(b, a);
    assert_int_equal(stile_crdt_encode(&size, out, sizeof out, b, &why), STILE_OK);
    assert_int_equal(size, expected.size);
    assert_memory_equal(out, expected.bytes, size);
    assert_int_equal(stile_crdt_encode(&size, out, size - 1, b, &why), STILE_MISUSE);
    assert_int_equal(size, expected.size);
    stile_crdt_free(a);
    stile_crdt_free(b);
}

static void bad_bytes_are_refused(void **state)
{
    static const struct bytes bad[] = {
        BYTES(""),
        BYTES("SC\1"),
        BYTES("SD\1\1\0"),                                               /* not ours */
        BYTES("SC\2\1\0"),                                               /* a later version */
        BYTES("SC\1\5\0"),                                               /* no such kind */
        BYTES("SC\1\1\0\0"),                                             /* something follows */
        BYTES("SC\1\1\x80\0"),                                           /* a needless byte */
        BYTES("SC\1\1\1" ID_A),                                          /* cut off */
        BYTES("SC\1\1\1" ID_A "\0"),                                     /* counts nothing */
        BYTES("SC\1\2\1" ID_A "\0\0"),                                   /* the same */
        BYTES("SC\1\1\2" ID_B "\1" ID_A "\1"),                           /* not in order */
        BYTES("SC\1\1\2" ID_A "\1" ID_A "\1"),                           /* twice */
        BYTES("SC\1\1\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),             /* more than there is */
        BYTES("SC\1\1\1" ID_A "\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"), /* 2^64 - 1 */
        BYTES("SC\1\3\1" ID_A "\1\1\1x\0"),                              /* no dot */
        BYTES("SC\1\3\1" ID_A "\1\1\1x\1\1\1"),                          /* no such replica */
        BYTES("SC\1\3\1" ID_A "\1\1\1x\1\0\2"),                          /* an add to come */
        BYTES("SC\1\3\1" ID_A "\2\1\1x\2\0\1\0\2"),                      /* two of a replica */
        BYTES("SC\1\3\1" ID_A "\2\2\1x\1\0\1\1x\1\0\2"),                 /* twice */
        BYTES("SC\1\3\1" ID_A "\2\2\1y\1\0\1\1x\1\0\2"),                 /* not in order */
        BYTES("SC\1\4\2"),
        BYTES("SC\1\4\1\xff\xff\xff\xff\xff\xff\x7f\0" ID_A "\0"), /* after 2^48 ms */
        BYTES("SC\1\4\1\0\0" ID_A "\3hi"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct stile_crdt *crdt;
        if (stile_crdt_decode(&crdt, bad[i].bytes, bad[i].size, NULL, &why) != STILE_CORRUPT)
            fail_msg("number %zu", i);
        assert_null(crdt);
    }
}

/* Each is within its own limit; the whole is not. */
static void a_state_that_is_too_large_is_refused(void **state)
{
    static char large[STILE_CRDT_VALUE_MAX], out[STILE_CRDT_MAX + 1];
    struct stile_crdt *a = replica(STILE_CRDT_ORSET, 'a'), *none;
    size_t size;
    (void)state;
    for (int i = 0; i < 16; i++) {
        large[0] = (char)i;
        assert_int_equal(stile_orset_add(a, large, sizeof large, &why), STILE_OK);
    }
    assert_int_equal(stile_crdt_encode(&size, out, sizeof out, a, &why), STILE_MISUSE);
    assert_true(size > STILE_CRDT_MAX);
    memcpy(out, "SC\1\1", 4);
    assert_int_equal(stile_crdt_decode(&none, out, sizeof out, NULL, &why), STILE_CORRUPT);
    stile_crdt_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counter_sums_its_replicas),
        cmocka_unit_test(a_growing_counter_refuses_to_shrink),
        cmocka_unit_test(a_counter_ends_and_saturates),
        cmocka_unit_test(an_add_wins),
        cmocka_unit_test(a_removal_reaches_all),
        cmocka_unit_test(removals_leave_nothing_behind),
        cmocka_unit_test(elements_come_in_byte_order),
        cmocka_unit_test(the_last_write_wins),
        cmocka_unit_test(the_clock_never_goes_back),
        cmocka_unit_test(a_clock_far_ahead_is_refused),
        cmocka_unit_test(misuse_is_answered),
        cmocka_unit_test(random_ids_differ),
        cmocka_unit_test(the_form_stays),
        cmocka_unit_test(equal_states_have_equal_bytes),
        cmocka_unit_test(bad_bytes_are_refused),
        cmocka_unit_test(a_state_that_is_too_large_is_refused),
    };
    return cmocka_run_group_tests_name("crdt", tests, NULL, NULL);
}
