/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Records of last holders: several names in the data of one node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engines/zookeeper/history.h"

static char lines[HISTORY_LINES_MAX + 1];

static struct query query_of(const char *name, uint64_t token, const char *record)
{
    return (struct query){.name = name, .name_len = strlen(name), .token = token, .record = record};
}

/* Into a copy, as the engine does. */
static bool store(const char *name, uint64_t token, const char *record)
{
    char old[sizeof lines];
    struct query query = query_of(name, token, record);
    strcpy(old, lines);
    bool stored = zk_history_merge(lines, &query, old, strlen(old));
    if (!stored)
        strcpy(lines, old);
    return stored;
}

static const char *found_in(const char *data, size_t n, const char *name)
{
    static char shown[HISTORY_LINES_MAX + 1];
    struct query query = query_of(name, 0, NULL);
    size_t len;
    const char *record = zk_history_find(&len, &query, data, n);
    if (!record)
        return NULL;
    snprintf(shown, sizeof shown, "%.*s", (int)len, record);
    return shown;
}

static const char *found(const char *name)
{
    return found_in(lines, strlen(lines), name);
}

static int empty(void **state)
{
    (void)state;
    lines[0] = '\0';
    return 0;
}

static void each_name_has_its_own_record(void **state)
{
    (void)state;
    assert_true(store("a", 1, "1 first of a"));
    assert_true(store("b", 2, "1 first of b"));
    assert_true(store("a", 3, "1 second of a"));
    assert_string_equal(found("a"), "1 second of a");
    assert_string_equal(found("b"), "1 first of b");
    assert_null(found("c"));
    assert_null(found("a\t1"));
    assert_string_equal(lines, "a\t3\t1 second of a\nb\t2\t1 first of b\n");
}

/* A holder that was paused writes late; of one holder, a start must not replace the end. */
static void a_later_record_stays(void **state)
{
    (void)state;
    assert_true(store("a", UINT64_MAX - 1, "1 9 1700 0 -1"));
    assert_false(store("a", 9, "1 10 1700 0 -1"));
    assert_true(store("a", UINT64_MAX - 1, "1 9 1700 1800 0"));
    assert_false(store("a", UINT64_MAX - 1, "1 9 1700 0 -1"));
    assert_string_equal(found("a"), "1 9 1700 1800 0");
    assert_true(store("a", UINT64_MAX, "1 9 1600 0 -1"));
    assert_string_equal(found("a"), "1 9 1600 0 -1");
}

static void the_oldest_are_dropped(void **state)
{
    char name[16], record[RECORD_MAX + 1];
    (void)state;
    memset(record, 'r', RECORD_MAX);
    record[RECORD_MAX] = '\0';
    for (unsigned i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "%u", i);
        assert_true(store(name, i, record));
        assert_true(strlen(lines) <= HISTORY_LINES_MAX);
        assert_string_equal(found(name), record);
    }
    assert_non_null(found("7"));
    assert_null(found("6"));
}

static void the_longest_line_fits(void **state)
{
    char name[STILE_NAME_MAX + 1], record[RECORD_MAX + 1];
    (void)state;
    memset(name, 'n', STILE_NAME_MAX);
    name[STILE_NAME_MAX] = '\0';
    memset(record, 'r', RECORD_MAX);
    record[RECORD_MAX] = '\0';
    assert_true(store(name, UINT64_MAX, record));
    assert_string_equal(found(name), record);
}

/* Data that others have written, or that was cut off. */
static void what_is_no_line_is_dropped(void **state)
{
    static const char *const strange[] = {
        "\n",       "a",          "a\t",
        "a\t1",     "a\t1\t",     "a\n1\t2\n",
        "\t\t",     "a\t1\t2x",   "a\t1111111111111111111111111111\tx\n",
        "\t\n\t\n", "{\"a\": 1}",
    };
    char zero[] = "b\t1\tx\0y\na\t1\tz\n";
    struct query query = query_of("c", 1, "1 r");
    (void)state;
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        strcpy(lines, strange[i]);
        assert_null(found("a"));
        assert_true(store("a", 1, "1 r"));
        assert_string_equal(lines, "a\t1\t1 r\n");
    }
    assert_true(zk_history_merge(lines, &query, zero, sizeof zero - 1));
    assert_string_equal(lines, "c\t1\t1 r\na\t1\tz\n");
    assert_null(found_in(NULL, 0, "a"));
}

/* A node is never larger than ours, whatever was there. */
static void a_huge_node_becomes_small(void **state)
{
    size_t n = 1 << 20, used = 0;
    char *huge = malloc(n + 64);
    struct query query = query_of("c", 1, "1 r");
    (void)state;
    for (unsigned i = 0; used < n; i++)
        used += (size_t)sprintf(huge + used, "%u\t1\tx\n", i);
    assert_true(zk_history_merge(lines, &query, huge, used));
    assert_in_range(strlen(lines), HISTORY_LINES_MAX - 64, HISTORY_LINES_MAX);
    free(huge);
}

static void their_nodes_are_no_names(void **state)
{
    static struct zk zk;
    static char bob[] = "bob:secret", robert[] = "bob:other", *const users[] = {NULL, bob, robert};
    char path[PATH_ROOM], name[PATH_ROOM], paths[3][PATH_ROOM];
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        zk = (struct zk){.base = "/locks", .credentials = users[i]};
        zk_path_of_history(path, &zk, "x", 1);
        strcpy(paths[i], path);
        assert_memory_equal(path, "/locks/%stile", 13);
        assert_null(strstr(path, "secret"));
        *strrchr(path, '/') = '\0';
        assert_false(zk_name_of_child(name, &zk, path + strlen("/locks/")));
    }
    assert_string_not_equal(paths[0], paths[1]);
    assert_string_equal(paths[1], paths[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_name_has_its_own_record, empty),
        cmocka_unit_test_setup(a_later_record_stays, empty),
        cmocka_unit_test_setup(the_oldest_are_dropped, empty),
        cmocka_unit_test_setup(the_longest_line_fits, empty),
        cmocka_unit_test_setup(what_is_no_line_is_dropped, empty),
        cmocka_unit_test_setup(a_huge_node_becomes_small, empty),
        cmocka_unit_test(their_nodes_are_no_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
