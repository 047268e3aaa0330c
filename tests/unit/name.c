/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

static const char *refusal(const char *name, size_t len)
{
    static struct stile_error err;

    assert_int_equal(name_check(name, len, &err), STILE_MISUSE);
    assert_int_equal(err.status, STILE_MISUSE);
    return err.message;
}

static void length_is_bounded(void **state)
{
    char name[STILE_NAME_MAX + 200];

    (void)state;
    memset(name, 'n', sizeof(name));
    assert_string_equal(refusal("", 0), "the name is empty");
    assert_int_equal(name_check(name, 1, NULL), STILE_OK);
    assert_int_equal(name_check(name, STILE_NAME_MAX, NULL), STILE_OK);
    assert_int_equal(name_check(name, STILE_NAME_MAX + 1, NULL), STILE_MISUSE);
    assert_string_equal(refusal(name, 700), "the name has 700 bytes, 512 is the limit");
}

static void control_characters_are_refused(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        char name[] = {'a', 'b', (char)c, 'd'}, expected[80];
        if (c >= 0x20 && c != 0x7f) {
            assert_int_equal(name_check(name, sizeof(name), NULL), STILE_OK);
            continue;
        }
        snprintf(expected, sizeof(expected), "the name has a control character (0x%02x) at byte 3",
                 (unsigned)c);
        assert_string_equal(refusal(name, sizeof(name)), expected);
    }
    assert_int_equal(name_check("\x1f", 1, NULL), STILE_MISUSE);
    assert_int_equal(name_check("\xff", 1, NULL), STILE_OK);
}

/* ---- the hash ---- */

static void hash_reads_the_name_and_no_more(void **state)
{
    char a[64], b[64];

    (void)state;
    memset(a, 'x', sizeof(a));
    memset(b, 'y', sizeof(b));
    for (size_t len = 0; len < 33; len++) {
        for (size_t offset = 0; offset < 8; offset++) {
            memcpy(b + offset, a, len);
            assert_true(name_hash(a, len) == name_hash(b + offset, len));
            memset(b, 'y', sizeof(b));
        }
        assert_true(name_hash(a, len) != name_hash(a, len + 1));
        memset(b, 0, sizeof(b));
        assert_true(name_hash(b, len) != name_hash(b, len + 1));
        memset(b, 'y', sizeof(b));
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

#define NAMES 200000

static void alike_names_never_meet(void **state)
{
    static uint64_t hashes[2 * NAMES];
    char name[64];

    (void)state;
    for (int i = 0; i < NAMES; i++) {
        int len = snprintf(name, sizeof(name), "order:%d", i);
        hashes[2 * i] = name_hash(name, (size_t)len);
        len = snprintf(name, sizeof(name), "%d/tenant-with-a-long-name/%d", i % 100, i);
        hashes[2 * i + 1] = name_hash(name, (size_t)len);
    }
    qsort(hashes, 2 * NAMES, sizeof(hashes[0]), by_value);
    for (size_t i = 1; i < 2 * NAMES; i++)
        assert_true(hashes[i - 1] != hashes[i]);
}

/* Tables use the lowest or the highest bits: a chi-squared sum far above its mean of 1023 (standard
 * deviation 45) would mean crowded buckets. */
static void buckets_fill_evenly(void **state)
{
    static unsigned low[1024], high[1024];
    double low_sum = 0, high_sum = 0, mean = NAMES / 1024.0;
    char name[32];

    (void)state;
    for (int i = 0; i < NAMES; i++) {
        uint64_t hash = name_hash(name, (size_t)snprintf(name, sizeof(name), "job-%d", i));
        low[hash % 1024]++;
        high[hash >> 54]++;
    }
    for (size_t i = 0; i < 1024; i++) {
        low_sum += (low[i] - mean) * (low[i] - mean) / mean;
        high_sum += (high[i] - mean) * (high[i] - mean) / mean;
    }
    assert_in_range((uint64_t)low_sum, 800, 1250);
    assert_in_range((uint64_t)high_sum, 800, 1250);
}

/* One flipped bit of the name flips each bit of the hash in about half of the cases. */
static void flip_and_count(unsigned flips[64], size_t bit, size_t len)
{
    char name[32];

    for (size_t i = 0; i < len; i++)
        name[i] = (char)rand();
    uint64_t changed = name_hash(name, len);
    name[bit / 8] ^= (char)(1 << bit % 8);
    changed ^= name_hash(name, len);
    for (int i = 0; i < 64; i++)
        flips[i] += changed >> i & 1;
}

static void avalanche(size_t len)
{
    enum { TRIALS = 1000 };

    for (size_t bit = 0; bit < 8 * len; bit++) {
        unsigned flips[64] = {0};
        for (int trial = 0; trial < TRIALS; trial++)
            flip_and_count(flips, bit, len);
        for (int i = 0; i < 64; i++)
            assert_in_range(flips[i], TRIALS * 42 / 100, TRIALS * 58 / 100);
    }
}

static void every_bit_matters(void **state)
{
    (void)state;
    srand(1);
    avalanche(3);
    avalanche(7);
    avalanche(8);
    avalanche(9);
    avalanche(31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(length_is_bounded),
        cmocka_unit_test(control_characters_are_refused),
        cmocka_unit_test(hash_reads_the_name_and_no_more),
        cmocka_unit_test(alike_names_never_meet),
        cmocka_unit_test(buckets_fill_evenly),
        cmocka_unit_test(every_bit_matters),
    };

    return cmocka_run_group_tests_name("name", tests, NULL, NULL);
}
