/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, and which of them are in the way of a claim. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engines/etcd/etcd.h"

static struct etcd etcd;

static const char *text(const struct key *key)
{
    static char out[KEY_MAX + 1];
    memcpy(out, key->bytes, key->len);
    out[key->len] = '\0';
    return out;
}

static const char *key_of(const char *name, enum stile_mode mode)
{
    static struct key key;
    struct claim claim = {.name = name, .name_len = strlen(name), .mode = mode};
    etcd_key_of_claim(&key, &etcd, &claim, 0x1a2b, mode == STILE_EXCLUSIVE ? 0 : 0xc);
    return text(&key);
}

/* ---- keys ---- */

static void keys_are_those_of_others(void **state)
{
    (void)state;
    etcd = (struct etcd){.prefix = ""};
    assert_string_equal(key_of("x", STILE_EXCLUSIVE), "x/1a2b");
    assert_string_equal(key_of("a/b", STILE_EXCLUSIVE), "a/b/1a2b");
    assert_string_equal(key_of("x", STILE_SHARED), "x/read/1a2b0000000c");
    assert_string_equal(key_of("x", STILE_SLOTS), "x/slots/1a2b0000000c");
    etcd.rwmutex = true;
    assert_string_equal(key_of("x", STILE_EXCLUSIVE), "x/write/1a2b");
    etcd = (struct etcd){.prefix = "/locks/"};
    assert_string_equal(key_of("x", STILE_EXCLUSIVE), "/locks/x/1a2b");
}

static void names_that_could_be_mistaken_are_escaped(void **state)
{
    (void)state;
    etcd = (struct etcd){.prefix = ""};
    assert_string_equal(key_of("x/read", STILE_EXCLUSIVE), "x/%72ead/1a2b");
    assert_string_equal(key_of("read", STILE_SHARED), "%72ead/read/1a2b0000000c");
    assert_string_equal(key_of("x/reader", STILE_EXCLUSIVE), "x/reader/1a2b");
    assert_string_equal(key_of("read/x", STILE_EXCLUSIVE), "read/x/1a2b");
    assert_string_equal(key_of("50%", STILE_EXCLUSIVE), "50%25/1a2b");
}

static const char *value_of(const char *proclaim, enum stile_mode mode)
{
    static char value[VALUE_MAX];
    struct claim claim = {.proclaim = proclaim, .mode = mode, .slots = 3};
    etcd_value_of_claim(value, &etcd, &claim);
    return value;
}

static void values_are_for_observers(void **state)
{
    struct key_suffix slots = {.mode = STILE_SLOTS}, writer = {.mode = STILE_EXCLUSIVE};
    unsigned n;
    (void)state;
    etcd = (struct etcd){.self = "17@web1"};
    assert_string_equal(value_of("web1:8080", STILE_EXCLUSIVE), "web1:8080");
    assert_string_equal(value_of("", STILE_EXCLUSIVE), "");
    assert_string_equal(value_of(NULL, STILE_SHARED), "17@web1");
    assert_string_equal(value_of("web1", STILE_SLOTS), "3 web1");
    assert_string_equal(etcd_value_parse(&n, &slots, "3 web1"), "web1");
    assert_int_equal(n, 3);
    assert_string_equal(etcd_value_parse(&n, &slots, "3"), "");
    assert_int_equal(n, 3);
    assert_string_equal(etcd_value_parse(&n, &writer, "3 web1"), "3 web1");
    assert_int_equal(n, 0);
}

static void keys_are_read_back(void **state)
{
    static const char *const names[] = {"x",    "a/b", "x/read", "write",   "slots/slots",
                                        "50%",  "%25", "/",      "//",      "a/1a2b",
                                        "read", " ",   "\xff",   "x/%72ead"};
    static const char *const prefixes[] = {"", "/locks/", "p%q/", "app"};
    (void)state;
    for (size_t p = 0; p < 4; p++) {
        for (size_t i = 0; i < 3 * (sizeof names / sizeof *names); i++) {
            struct claim claim = {.name = names[i / 3],
                                  .name_len = strlen(names[i / 3]),
                                  .mode = (enum stile_mode)(i % 3)};
            char name[KEY_MAX];
            struct key own, ghost;
            struct key_suffix suffix;
            Etcd__KeyValue kv = ETCD__KEY_VALUE__INIT;
            strcpy(etcd.prefix, prefixes[p]);
            etcd_key_of_claim(&own, &etcd, &claim, 0x1a2b, (uint32_t)(i % 3));
            etcd_key_of_ghost(&ghost, &own, 12);
            kv.lease = 1;
            kv.key = data_of(&own);
            assert_true(etcd_key_parse(name, &suffix, &etcd, &kv));
            assert_string_equal(name, claim.name);
            assert_int_equal(suffix.mode, claim.mode);
            assert_false(suffix.ghost);
            kv.key = data_of(&ghost);
            assert_true(etcd_key_parse(name, &suffix, &etcd, &kv));
            assert_string_equal(name, claim.name);
            assert_true(suffix.ghost);
        }
    }
}

static void keys_of_nobodys_lock(void **state)
{
    static const char *const keys[] = {"",       "x",        "/1a",   "x/",  "x/y",
                                       "x/1aG",  "x\001/1a", "x/1a/", "x//", "read/1a/",
                                       "p/1a\n", "x/read/",  "-"};
    char name[KEY_MAX];
    struct key_suffix suffix;
    (void)state;
    etcd = (struct etcd){.prefix = ""};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        Etcd__KeyValue kv = ETCD__KEY_VALUE__INIT;
        kv.lease = 1;
        kv.key = (ProtobufCBinaryData){.len = strlen(keys[i]), .data = (uint8_t *)keys[i]};
        assert_false(etcd_key_parse(name, &suffix, &etcd, &kv));
    }
    Etcd__KeyValue unbound = ETCD__KEY_VALUE__INIT;
    unbound.key = (ProtobufCBinaryData){.len = 4, .data = (uint8_t *)"x/1a"};
    assert_false(etcd_key_parse(name, &suffix, &etcd, &unbound));
}

static void ranges_end_behind_their_last_key(void **state)
{
    struct key start, end;
    (void)state;
    etcd = (struct etcd){.prefix = ""};
    etcd_key_of_name(&start, &etcd, "x", 1);
    etcd_key_range_end(&end, &start);
    assert_string_equal(text(&end), "x0");
    etcd_keys_of_list(&start, &end, &etcd, "", 0);
    assert_string_equal(text(&start), " ");
    assert_int_equal(end.len, 1);
    assert_int_equal(end.bytes[0], 0);
    strcpy(etcd.prefix, "p\xff");
    etcd_keys_of_list(&start, &end, &etcd, "abc", 3);
    assert_string_equal(text(&start), "p\xff ");
    assert_string_equal(text(&end), "q");
    etcd_keys_of_list(&start, &end, &etcd, "a/bc", 4);
    assert_string_equal(text(&start), "p\xff"
                                      "a/");
    assert_string_equal(text(&end), "p\xff"
                                    "a0");
}

/* ---- records of last holders ---- */

static void a_record_is_no_lock(void **state)
{
    static const char *const prefixes[] = {"", "p", "locks/"}, *const names[] = {"x", "1a", "a/1a"};
    char name[KEY_MAX];
    struct key_suffix suffix;
    struct key key, start, end;
    (void)state;
    for (size_t i = 0; i < 9; i++) {
        Etcd__KeyValue kv = ETCD__KEY_VALUE__INIT;
        etcd = (struct etcd){.plain_key = i % 2};
        strcpy(etcd.prefix, prefixes[i % 3]);
        etcd_key_of_record(&key, &etcd, names[i / 3], strlen(names[i / 3]));
        kv.lease = 0x1a;
        kv.key = data_of(&key);
        assert_false(etcd_key_parse(name, &suffix, &etcd, &kv));
        assert_false(etcd_key_parse_plain(name, &suffix, &etcd, &kv));
        etcd_keys_of_list(&start, &end, &etcd, "", 0);
        assert_true(memcmp(key.bytes, start.bytes, start.len) < 0);
    }
}

static const char *record_in(const char *value)
{
    static char shown[RECORD_MAX + 1];
    ProtobufCBinaryData data = {.len = strlen(value), .data = (uint8_t *)value};
    size_t len;
    const char *record = etcd_history_text(&len, &data);
    snprintf(shown, sizeof shown, "%.*s", record ? (int)len : 0, record ? record : "");
    return shown;
}

static void a_record_is_read_without_its_token(void **state)
{
    char huge[RECORD_MAX + 32];
    (void)state;
    assert_string_equal(record_in("00000000000000000042 1 42 7 0"), "1 42 7 0");
    assert_string_equal(record_in("00000000000000000042 "), "");
    assert_string_equal(record_in("0000000000000000004221 42 7 0"), "");
    assert_string_equal(record_in("42 1 42 7 0"), "");
    assert_string_equal(record_in(""), "");
    memset(huge, '0', sizeof huge);
    huge[20] = ' ';
    huge[21 + RECORD_MAX] = '\0';
    assert_int_equal(strlen(record_in(huge)), RECORD_MAX);
    huge[21 + RECORD_MAX] = '0';
    huge[22 + RECORD_MAX] = '\0';
    assert_string_equal(record_in(huge), "");
}

/* ---- the queue ---- */

#define KEYS 8

struct row {
    const char *key;
    int64_t revision;
};

static Etcd__KeyValue kvs[KEYS], *list[KEYS];

static Etcd__RangeResponse range_of(const struct row *rows)
{
    Etcd__RangeResponse range = ETCD__RANGE_RESPONSE__INIT;
    for (; rows[range.n_kvs].key; range.n_kvs++) {
        const struct row *row = &rows[range.n_kvs];
        Etcd__KeyValue *kv = &kvs[range.n_kvs];
        etcd__key_value__init(kv);
        kv->key = (ProtobufCBinaryData){.len = strlen(row->key), .data = (uint8_t *)row->key};
        kv->create_revision = row->revision;
        list[range.n_kvs] = kv;
    }
    range.kvs = list;
    return range;
}

static struct queue_position weigh(enum stile_mode mode, unsigned slots, int64_t below,
                                   const struct row *rows)
{
    struct claim claim = {
        .engine = &etcd.engine, .name = "x", .name_len = 1, .mode = mode, .slots = slots};
    Etcd__RangeResponse range = range_of(rows);
    struct queue_position position;
    struct key name;
    etcd = (struct etcd){.prefix = ""};
    etcd_key_of_name(&name, &etcd, "x", 1);
    etcd_queue_sort(&range);
    etcd_queue_locate(&position, &claim, &name, NULL, below, &range);
    return position;
}

static void writers_wait_for_the_nearest(void **state)
{
    const struct row rows[] = {{"x/5", 5}, {"x/9", 9}, {"x/read/7", 7}, {NULL, 0}};
    (void)state;
    assert_int_equal(weigh(STILE_EXCLUSIVE, 0, 9, rows).nearest->create_revision, 7);
    assert_int_equal(weigh(STILE_EXCLUSIVE, 0, 7, rows).nearest->create_revision, 5);
    assert_false(weigh(STILE_EXCLUSIVE, 0, 5, rows).blocked);
}

/* qsort() of glibc would keep them as they are here. */
static void a_claim_comes_before_its_ghosts(void **state)
{
    const struct row rows[] = {{"x/5", 5}, {"x/7-2", 7}, {"x/7-1", 7},
                               {"x/7", 7}, {"x/9", 9},   {NULL, 0}};
    const char *const sorted[] = {"x/9", "x/7", "x/7-1", "x/7-2", "x/5"};
    (void)state;
    assert_ptr_equal(weigh(STILE_EXCLUSIVE, 0, 9, rows).nearest, &kvs[3]);
    for (size_t i = 0; i < sizeof sorted / sizeof *sorted; i++)
        assert_string_equal((const char *)list[i]->key.data, sorted[i]);
}

static void readers_wait_for_earlier_writers_only(void **state)
{
    const struct row rows[] = {
        {"x/read/9", 9}, {"x/read/7", 7}, {"x/write/6", 6}, {"x/read/5", 5}, {NULL, 0}};
    (void)state;
    assert_int_equal(weigh(STILE_SHARED, 0, 9, rows).nearest->create_revision, 6);
    assert_false(weigh(STILE_SHARED, 0, 6, rows).blocked);
}

static void a_claim_and_its_ghosts_are_one_slot(void **state)
{
    const struct row rows[] = {
        {"x/slots/7-1", 7}, {"x/slots/5", 5}, {"x/slots/7", 7}, {"x/slots/7-2", 7}, {NULL, 0}};
    (void)state;
    assert_int_equal(weigh(STILE_SLOTS, 2, 9, rows).slots, 2);
    assert_true(weigh(STILE_SLOTS, 2, 9, rows).blocked);
    assert_false(weigh(STILE_SLOTS, 3, 9, rows).blocked);
    assert_false(weigh(STILE_SLOTS, 2, 7, rows).blocked);
}

static void longer_names_are_in_nobodys_way(void **state)
{
    const struct row rows[] = {{"x/y/8", 8}, {"x//7", 7}, {"x/y/read/6", 6}, {NULL, 0}};
    Etcd__RangeResponse range = range_of(rows);
    struct claim claim = {.engine = &etcd.engine, .name = "x", .name_len = 1};
    struct queue_position position;
    struct key name;
    (void)state;
    assert_false(weigh(STILE_EXCLUSIVE, 0, 9, rows).blocked);
    etcd_key_of_name(&name, &etcd, "x", 1);
    range.more = true; /* behind them there may be one of ours */
    etcd_queue_locate(&position, &claim, &name, NULL, 9, &range);
    assert_true(position.unclear);
}

static bool is_plain(const char *key, int64_t lease)
{
    Etcd__KeyValue kv = ETCD__KEY_VALUE__INIT;
    kv.key = (ProtobufCBinaryData){.len = strlen(key), .data = (uint8_t *)key};
    kv.lease = lease;
    return etcd_suffix_is_plain(&etcd, &kv, 2);
}

static void plain_keys_of_longer_names_are_in_nobodys_way(void **state)
{
    (void)state;
    etcd = (struct etcd){.plain_key = true};
    assert_true(is_plain("x/y", 0x1a2b));
    assert_true(is_plain("x/cafe", 0x1a2b));
    assert_true(is_plain("x/2-1", 0x1a2b));
    assert_true(is_plain("x/694d9a1b2c3d4e5f-", 0x1a2b));
    assert_false(is_plain("x/1a2b", 0x1a2b));
    assert_false(is_plain("x/694d9a1b2c3d4e5f-12", 0x1a2b));
    assert_false(is_plain("x/read/7", 0x1a2b));
    etcd = (struct etcd){.plain_key = false};
    assert_false(is_plain("x/y", 0x1a2b));
}

static void a_slot_comes_free(void **state)
{
    const struct row rows[] = {{"x/slots/7-1", 7}, {"x/slots/7", 7}, {"x/slots/5", 5}, {NULL, 0}};
    struct claim *base = calloc(1, sizeof *base + sizeof(struct etcd_claim));
    struct etcd_claim *claim = claim_of(base);
    Etcd__RangeResponse range = range_of(rows);
    struct key name;
    (void)state;
    base->mode = STILE_SLOTS;
    base->slots = 2;
    claim->revision = 9;
    etcd_key_of_name(&name, &etcd, "x", 1);
    assert_int_equal(etcd_queue_remember(claim, &name, &range, NULL), STILE_OK);
    Etcd__KeyValue stranger = ETCD__KEY_VALUE__INIT;
    stranger.key = (ProtobufCBinaryData){.len = 9, .data = (uint8_t *)"x/slots/8"};
    assert_false(etcd_queue_has_room(claim, &stranger));
    assert_false(etcd_queue_has_room(claim, &kvs[1])); /* its ghost is still there */
    assert_true(etcd_queue_has_room(claim, &kvs[0]));
    etcd_queue_forget(claim);
    free(base);
}

/* ---- leases ---- */

static void a_huge_lease_is_not_believed(void **state)
{
    (void)state;
    assert_int_equal(etcd_lease_ttl_ns(10, 10), 10 * NS_PER_SEC);
    assert_int_equal(etcd_lease_ttl_ns(10, 3), 3 * NS_PER_SEC);
    assert_int_equal(etcd_lease_ttl_ns(1, 75), 75 * NS_PER_SEC); /* --election-timeout=50000 */
    assert_int_equal(etcd_lease_ttl_ns(1, 76), 75 * NS_PER_SEC);
    assert_int_equal(etcd_lease_ttl_ns(1, INT64_MAX), 75 * NS_PER_SEC);
    assert_int_equal(etcd_lease_ttl_ns(1000, INT64_MAX), 1000 * NS_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_those_of_others),
        cmocka_unit_test(names_that_could_be_mistaken_are_escaped),
        cmocka_unit_test(values_are_for_observers),
        cmocka_unit_test(keys_are_read_back),
        cmocka_unit_test(keys_of_nobodys_lock),
        cmocka_unit_test(ranges_end_behind_their_last_key),
        cmocka_unit_test(a_record_is_no_lock),
        cmocka_unit_test(a_record_is_read_without_its_token),
        cmocka_unit_test(writers_wait_for_the_nearest),
        cmocka_unit_test(a_claim_comes_before_its_ghosts),
        cmocka_unit_test(readers_wait_for_earlier_writers_only),
        cmocka_unit_test(a_claim_and_its_ghosts_are_one_slot),
        cmocka_unit_test(longer_names_are_in_nobodys_way),
        cmocka_unit_test(plain_keys_of_longer_names_are_in_nobodys_way),
        cmocka_unit_test(a_slot_comes_free),
        cmocka_unit_test(a_huge_lease_is_not_believed),
    };
    return cmocka_run_group_tests_name("etcd_queue", tests, NULL, NULL);
}
