/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names as nodes, and nodes in line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engines/zookeeper/zookeeper.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct zk zk;

static const char *path_of(const char *name)
{
    static char path[PATH_ROOM];
    zk_path_of_name(path, &zk, name, strlen(name));
    return path;
}

static const char *node_of(enum dialect dialect, enum stile_mode mode)
{
    static char path[PATH_ROOM];
    static const uint8_t random[16] = {0xab, 0xcd, [15] = 0xff};
    struct claim claim = {.name = "x", .name_len = 1, .mode = mode};
    char guid[GUID_SIZE];
    zk = (struct zk){.dialect = dialect};
    zk_guid_write(guid, dialect, random);
    zk_path_of_claim(path, &zk, &claim, guid);
    return path;
}

/* ---- names ---- */

static void what_the_server_refuses_is_escaped(void **state)
{
    (void)state;
    zk = (struct zk){.base = "/locks"};
    assert_string_equal(path_of("x"), "/locks/x");
    assert_string_equal(path_of("a/b"), "/locks/a%2Fb");
    assert_string_equal(path_of("50%"), "/locks/50%25");
    assert_string_equal(path_of("."), "/locks/%2E");
    assert_string_equal(path_of(".."), "/locks/%2E%2E");
    assert_string_equal(path_of("..."), "/locks/...");
    assert_string_equal(path_of("\xc3\xa9"), "/locks/\xc3\xa9");
    assert_string_equal(path_of("\xc2\x85"), "/locks/%C2%85");               /* U+0085 */
    assert_string_equal(path_of("\xee\x80\x80"), "/locks/%EE%80%80");        /* U+E000 */
    assert_string_equal(path_of("\xef\xbf\xbf"), "/locks/%EF%BF%BF");        /* U+FFFF */
    assert_string_equal(path_of("\xf0\x9f\x94\x92"), "/locks/%F0%9F%94%92"); /* four bytes */
    assert_string_equal(path_of("\xe9"), "/locks/%E9");                      /* Latin-1 */
    assert_string_equal(path_of("\xed\xa0\x80"), "/locks/%ED%A0%80");        /* a surrogate */
    assert_string_equal(path_of("\xe0\x80\xaf"), "/locks/%E0%80%AF");        /* too long a form */
    assert_string_equal(path_of("zookeeper"), "/locks/zookeeper");
    zk = (struct zk){.base = ""};
    assert_string_equal(path_of("zookeeper"), "/%7A%6F%6F%6B%65%65%70%65%72");
}

static void names_are_read_back(void **state)
{
    static const char *const names[] = {"x",         "a/b",          "50%", ".",  "..",
                                        "zookeeper", "\xff\xc3\xa9", "%2F", "%25"};
    char name[PATH_ROOM];
    (void)state;
    zk = (struct zk){.base = ""};
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_true(zk_name_of_child(name, &zk, path_of(names[i]) + 1));
        assert_string_equal(name, names[i]);
    }
}

/* A node that no name of ours would have made is no name: two would be one. */
static void nobodys_names(void **state)
{
    static const char *const nodes[] = {"%", "%2", "%zz", "%41", "a%2f", "%00", "zookeeper", "a%"};
    char name[PATH_ROOM];
    (void)state;
    zk = (struct zk){.base = ""};
    for (size_t i = 0; i < COUNT(nodes); i++)
        assert_false(zk_name_of_child(name, &zk, nodes[i]));
}

/* ---- nodes ---- */

static void nodes_are_those_of_others(void **state)
{
    (void)state;
    assert_string_equal(node_of(CURATOR, STILE_EXCLUSIVE),
                        "/x/_c_abcd0000-0000-4000-8000-0000000000ff-lock-");
    assert_string_equal(node_of(CURATOR_RW, STILE_EXCLUSIVE),
                        "/x/_c_abcd0000-0000-4000-8000-0000000000ff-__WRIT__");
    assert_string_equal(node_of(CURATOR_RW, STILE_SHARED),
                        "/x/_c_abcd0000-0000-4000-8000-0000000000ff-__READ__");
    assert_string_equal(node_of(KAZOO, STILE_EXCLUSIVE),
                        "/x/abcd00000000400080000000000000ff__lock__");
    assert_string_equal(node_of(KAZOO, STILE_SHARED),
                        "/x/abcd00000000400080000000000000ff__rlock__");
}

static void nodes_tell_their_mode(void **state)
{
    (void)state;
    for (enum dialect dialect = CURATOR; dialect <= KAZOO; dialect++) {
        for (enum stile_mode mode = STILE_EXCLUSIVE; mode <= STILE_SLOTS; mode++) {
            const char *node = node_of(dialect, mode);
            assert_int_equal(zk_node_mode(&zk, node), mode);
        }
    }
}

static void check_line(enum dialect dialect, char **nodes, int n, const char *const *sorted,
                       size_t n_sorted)
{
    struct jute_strings children = {.n = (size_t)n, .list = (const char **)nodes};
    struct node_list nodes_in_queue;
    zk = (struct zk){.dialect = dialect};
    assert_int_equal(zk_nodes_sort(&nodes_in_queue, &zk, &children, NULL), STILE_OK);
    assert_int_equal(nodes_in_queue.n, n_sorted);
    for (size_t i = 0; i < n_sorted; i++) {
        assert_string_equal(nodes_in_queue.nodes[i], sorted[i]);
        assert_int_equal(zk_nodes_find(&nodes_in_queue, &zk, sorted[i]), i);
    }
    assert_int_equal(zk_nodes_find(&nodes_in_queue, &zk, "another"), n_sorted);
    zk_nodes_free(&nodes_in_queue);
}

/* By the number behind the last "lock-"; what has none is nobody's claim. */
static void curators_line(void **state)
{
    static char *nodes[] = {"stranger",
                            "_c_a-lock-0000000010",
                            "_c_b-read-lock-0000000002",
                            "lock-lock-0000000001",
                            "_c_c-slots-lock-0000000003",
                            "lock-",
                            "lock-config",
                            "lock-12",
                            "lock-0000000001.bak",
                            "0000000000"};
    static const char *const sorted[] = {"lock-lock-0000000001", "_c_b-read-lock-0000000002",
                                         "_c_c-slots-lock-0000000003", "_c_a-lock-0000000010"};
    (void)state;
    check_line(CURATOR, nodes, COUNT(nodes), sorted, COUNT(sorted));
}

/* What InterProcessMutex writes is not in it: neither sees the other. A reader that was a
 * writer before carries that one's number, and then its own. */
static void curators_line_of_readers_and_writers(void **state)
{
    static char *nodes[] = {"_c_a-__READ__0000000010",           "_c_b-lock-0000000001",
                            "_c_c-__READ__00000000030000000004", "_c_d-__WRIT__0000000004",
                            "_c_e-slots-__WRIT__0000000011",     "_c_f-__WRIT__0000000003"};
    static const char *const sorted[] = {
        "_c_f-__WRIT__0000000003", "_c_c-__READ__00000000030000000004", "_c_d-__WRIT__0000000004",
        "_c_a-__READ__0000000010", "_c_e-slots-__WRIT__0000000011"};
    (void)state;
    check_line(CURATOR_RW, nodes, COUNT(nodes), sorted, COUNT(sorted));
}

static void dialects_are_known_by_name(void **state)
{
    enum dialect dialect;
    (void)state;
    assert_true(zk_dialect_find(&dialect, "curator"));
    assert_int_equal(dialect, CURATOR);
    assert_true(zk_dialect_find(&dialect, "curator-rw"));
    assert_int_equal(dialect, CURATOR_RW);
    assert_true(zk_dialect_find(&dialect, "kazoo"));
    assert_int_equal(dialect, KAZOO);
    assert_false(zk_dialect_find(&dialect, "curator-"));
}

/* Only what ends as theirs do. */
static void kazoos_line(void **state)
{
    static char *nodes[] = {"f__lock__0000000010",  "stranger",
                            "a__rlock__0000000009", "c__slots__lock__0000000011",
                            "b__lock__000000001",   "b__lock__0000000001x",
                            "0000000001",           "__lock__"};
    static const char *const sorted[] = {"a__rlock__0000000009", "f__lock__0000000010",
                                         "c__slots__lock__0000000011"};
    (void)state;
    check_line(KAZOO, nodes, COUNT(nodes), sorted, COUNT(sorted));
}

/* An int of the server's that has overflowed: the node stands before all others. */
static void numbers_that_have_overflowed(void **state)
{
    static char *nodes[] = {"_c_a-lock-2147483647", "_c_b-lock--2147483648",
                            "_c_c-lock--000000001"};
    static const char *const sorted[] = {"_c_c-lock--000000001", "_c_b-lock--2147483648",
                                         "_c_a-lock-2147483647"};
    (void)state;
    check_line(CURATOR, nodes, COUNT(nodes), sorted, COUNT(sorted));
}

static bool is_near_the_last(const char *number)
{
    struct claim claim = {.name = "x", .name_len = 1};
    char node[PATH_ROOM];
    zk_path_of_claim(node, &zk, &claim, "a");
    strcat(node, number);
    return zk_node_numbers_run_out(&zk, &claim, "a", node);
}

static void numbers_are_refused_before_the_last(void **state)
{
    (void)state;
    for (enum dialect dialect = CURATOR; dialect <= KAZOO; dialect++) {
        zk = (struct zk){.dialect = dialect};
        assert_false(is_near_the_last("0000000000"));
        assert_false(is_near_the_last("2146483646"));
        assert_true(is_near_the_last("2146483647"));
        assert_true(is_near_the_last("2147483647"));
        assert_true(is_near_the_last("-2147483648"));
        assert_true(is_near_the_last("-000000001"));
        assert_true(is_near_the_last(""));
    }
}

/* ---- records ---- */

static const char *record_of(enum stile_mode mode)
{
    static char path[PATH_ROOM];
    struct claim claim = {.name = "x", .name_len = 1, .mode = mode};
    zk = (struct zk){.base = "/locks"};
    zk_path_of_record(path, &zk, &claim, "abcd-ef");
    return strrchr(path, '/') + 1;
}

static void records_tell_whose_they_are(void **state)
{
    static const char *const none[] = {"stile-kept-",  "stile-kept-x",   "stile-kept-x-",
                                       "stile-kept--", "stile-kept-?-a", "x-stile-kept-x-a"};
    enum stile_mode mode;
    (void)state;
    for (enum stile_mode wanted = STILE_EXCLUSIVE; wanted <= STILE_SLOTS; wanted++) {
        assert_string_equal(zk_record_guid(&mode, record_of(wanted)), "abcd-ef");
        assert_int_equal(mode, wanted);
    }
    for (size_t i = 0; i < COUNT(none); i++)
        assert_null(zk_record_guid(&mode, none[i]));
}

/* And others' lines, which take in all that there is, have it behind all that count. */
static void records_are_not_in_line(void **state)
{
    static char *nodes[] = {"stile-kept-x-a", "_c_a-lock-0000000001", "stile-kept-n-b"};
    static const char *const sorted[] = {"_c_a-lock-0000000001"};
    struct node_list nodes_in_queue = {.nodes = (const char **)sorted, .n = 1};
    (void)state;
    check_line(CURATOR, nodes, COUNT(nodes), sorted, COUNT(sorted));
    assert_false(zk_record_is_orphan(&nodes_in_queue, "a-lock"));
    assert_true(zk_record_is_orphan(&nodes_in_queue, "b"));
    assert_true(strcmp(nodes[0], "9999999999") > 0);
}

static void records_are_read_back(void **state)
{
    const struct record written = {.hold_ms = 5, .delay_ms = 7, .token = 1};
    struct record record;
    char data[INFO_MAX], garbage[] = "12 host 1/-1 5 true", empty[] = "";
    (void)state;
    zk = (struct zk){.pid = 12, .host = "host", .command = "do it now"};
    zk_record_write(data, &zk, &written);
    assert_true(zk_record_read(&record, data));
    assert_int_equal(record.hold_ms, 5);
    assert_int_equal(record.delay_ms, 7);
    assert_int_equal(record.token, 1);
    assert_int_equal(record.pid, 12);
    assert_string_equal(record.host, "host");
    assert_string_equal(record.command, "do it now");
    assert_false(zk_record_read(&record, garbage));
    assert_false(zk_record_read(&record, empty));
}

/* hold_at_least from when it was made; lock-delay from when its end was written down, and until
 * then from now. */
static void records_last(void **state)
{
    const struct record hold = {.hold_ms = 10}, delay = {.delay_ms = 10},
                        both = {.hold_ms = 100, .delay_ms = 10};
    const struct jute_stat fresh = {.ctime = 1000, .mtime = 1000},
                           marked = {.ctime = 1000, .mtime = 1050, .version = 1},
                           late = {.ctime = 1000, .mtime = 2000, .version = 1};
    (void)state;
    assert_int_equal(zk_record_until_ms(&hold, &fresh, 5000), 1010);
    assert_int_equal(zk_record_until_ms(&delay, &fresh, 5000), 5010);
    assert_int_equal(zk_record_until_ms(&delay, &marked, 5000), 1060);
    assert_int_equal(zk_record_until_ms(&both, &marked, 5000), 1100);
    assert_int_equal(zk_record_until_ms(&both, &late, 5000), 2010);
    assert_false(zk_record_is_unmarked(&hold, &fresh));
    assert_true(zk_record_is_unmarked(&delay, &fresh));
    assert_false(zk_record_is_unmarked(&delay, &marked));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_server_refuses_is_escaped),
        cmocka_unit_test(names_are_read_back),
        cmocka_unit_test(nobodys_names),
        cmocka_unit_test(nodes_are_those_of_others),
        cmocka_unit_test(nodes_tell_their_mode),
        cmocka_unit_test(curators_line),
        cmocka_unit_test(curators_line_of_readers_and_writers),
        cmocka_unit_test(kazoos_line),
        cmocka_unit_test(numbers_that_have_overflowed),
        cmocka_unit_test(numbers_are_refused_before_the_last),
        cmocka_unit_test(dialects_are_known_by_name),
        cmocka_unit_test(records_tell_whose_they_are),
        cmocka_unit_test(records_are_not_in_line),
        cmocka_unit_test(records_are_read_back),
        cmocka_unit_test(records_last),
    };
    return cmocka_run_group_tests_name("zookeeper_names", tests, NULL, NULL);
}
