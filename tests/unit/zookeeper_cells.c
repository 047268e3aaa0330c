/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a cell's node holds, and what each request makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engines/zookeeper/cell_form.h"
#include "engines/zookeeper/zookeeper.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static struct zk_cell cell_of(bool live, uint64_t version, uint64_t token, const char *issuer)
{
    struct zk_cell cell = {.live = live, .version = version, .token = token};
    snprintf(cell.issuer, sizeof cell.issuer, "%s", issuer);
    return cell;
}

/* ---- the form ---- */

static void what_is_written_is_read(void **state)
{
    static const struct {
        bool live;
        uint64_t version, token;
        const char *issuer, *value, *head;
    } cells[] = {
        {true, 1, 0, "", "", "stile-cell 1 live 1 0 \n"},
        {true, 4294967298, 34, "redis:orders", "a\nb",
         "stile-cell 1 live 4294967298 34 redis:orders\n"},
        {false, 9, STILE_TOKEN_MAX, "zk:a b ", "",
         "stile-cell 1 gone 9 9223372036854775807 zk:a b \n"},
        {false, 0, 5, "", "", "stile-cell 1 gone 0 5 \n"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cells); i++) {
        struct zk_cell cell =
            cell_of(cells[i].live, cells[i].version, cells[i].token, cells[i].issuer);
        struct zk_cell again;
        char data[CELL_HEAD_MAX + 16];
        size_t n = zk_cell_write_head(data, &cell);
        assert_string_equal(data, cells[i].head);
        strcpy(data + n, cells[i].value);
        assert_int_equal(zk_cell_read(&again, data, strlen(data), NULL), STILE_OK);
        assert_int_equal(again.live, cell.live);
        assert_int_equal(again.version, cell.version);
        assert_true(again.token == cell.token);
        assert_string_equal(again.issuer, cell.issuer);
        assert_string_equal(again.value, cells[i].value);
        assert_int_equal(again.size, strlen(cells[i].value));
    }
}

/* The fuzz corpus has more of them. */
static void damage_is_named(void **state)
{
    static const char *const cells[][2] = {
        {"", "not written by stile"},
        {"value", "not written by stile"},
        {"stile-cell 2 live 1 0 \n", "newer"},
        {"stile-cell 1 dead 1 0 \n", "neither live nor gone"},
        {"stile-cell 1 live 0 0 \n", "version"},
        {"stile-cell 1 live 1 9223372036854775808 \n", "token"},
        {"stile-cell 1 live 1 0 redis:x", "issuer"},
        {"stile-cell 1 gone 1 0 \nvalue", "gone and has a value"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cells); i++) {
        struct zk_cell cell;
        struct stile_error err = {0};
        assert_int_equal(zk_cell_read(&cell, cells[i][0], strlen(cells[i][0]), &err),
                         STILE_CORRUPT);
        assert_non_null(strstr(err.message, cells[i][1]));
    }
}

/* ---- requests ---- */

static struct zk_cell next;

static enum stile_status change(const struct zk_cell *now, struct cell_request request)
{
    request.value = "value";
    request.size = request.verb == CELL_PUT ? 5 : 0;
    request.issuer = request.issuer ? request.issuer : "";
    memset(&next, 0x55, sizeof next);
    return zk_cell_change(&next, now, &request, 100);
}

static void check_next(bool live, uint64_t version, uint64_t token, const char *issuer)
{
    assert_int_equal(next.live, live);
    assert_int_equal(next.version, version);
    assert_int_equal(next.token, token);
    assert_string_equal(next.issuer, issuer);
}

static void versions_only_grow(void **state)
{
    struct zk_cell none = {0}, live = cell_of(true, 7, 0, ""), gone = cell_of(false, 7, 0, "");
    struct cell_request put = {.verb = CELL_PUT, .any_version = true};
    (void)state;
    assert_int_equal(change(&none, put), STILE_OK);
    check_next(true, 101, 0, "");
    assert_int_equal(change(&live, put), STILE_OK);
    check_next(true, 8, 0, "");
    assert_int_equal(change(&live, (struct cell_request){.verb = CELL_REMOVE, .any_version = true}),
                     STILE_OK);
    check_next(false, 7, 0, "");
    assert_int_equal(next.size, 0);
    assert_int_equal(change(&gone, put), STILE_OK);
    check_next(true, 8, 0, "");
}

static void versions_are_compared(void **state)
{
    struct zk_cell none = {0}, live = cell_of(true, 7, 0, ""), gone = cell_of(false, 7, 0, "");
    (void)state;
    for (enum cell_verb verb = CELL_PUT; verb <= CELL_REMOVE; verb++) {
        struct cell_request if_none = {.verb = verb}, if_seven = {.verb = verb, .if_version = 7};
        assert_int_equal(change(&none, if_none), STILE_OK);
        assert_int_equal(change(&gone, if_none), STILE_OK);
        assert_int_equal(change(&live, if_none), STILE_CONFLICT);
        assert_int_equal(change(&live, if_seven), STILE_OK);
        assert_int_equal(change(&gone, if_seven), STILE_CONFLICT);
        assert_int_equal(change(&none, if_seven), STILE_CONFLICT);
    }
}

/* Another issuer comes before a stale token, and both before the version. */
static void guards_come_first(void **state)
{
    struct zk_cell now = cell_of(true, 7, 34, "redis:a");
    (void)state;
    for (enum cell_verb verb = CELL_PUT; verb <= CELL_RAISE; verb++) {
        struct cell_request request = {
            .verb = verb, .if_version = 1, .token = 33, .issuer = "zk:a"};
        assert_int_equal(change(&now, request), STILE_FOREIGN);
        request.issuer = "redis:a";
        assert_int_equal(change(&now, request), STILE_STALE);
        request.token = 0;
        assert_int_equal(change(&now, request), STILE_STALE);
        request.token = 34;
        request.strict = true;
        assert_int_equal(change(&now, request), STILE_STALE);
        request.strict = false;
        assert_int_equal(change(&now, request), verb == CELL_RAISE ? STILE_OK : STILE_CONFLICT);
    }
}

static void tokens_are_remembered(void **state)
{
    struct zk_cell now = cell_of(true, 7, 34, ""), known = cell_of(true, 7, 34, "redis:a");
    struct cell_request raise = {.verb = CELL_RAISE, .token = 34, .issuer = "redis:b"};
    (void)state;
    assert_int_equal(change(&now, raise), STILE_OK);
    check_next(true, 7, 34, "redis:b");
    raise.token = 40;
    raise.issuer = "";
    assert_int_equal(change(&known, raise), STILE_OK);
    check_next(true, 7, 40, "redis:a");
    raise.verb = CELL_REMOVE;
    raise.any_version = true;
    assert_int_equal(change(&known, raise), STILE_OK);
    check_next(false, 7, 40, "redis:a");
}

static void a_reset_forgets(void **state)
{
    struct zk_cell now = cell_of(true, 7, 34, "redis:a"), gone = cell_of(false, 7, 34, "redis:a");
    (void)state;
    assert_int_equal(
        change(&now, (struct cell_request){.verb = CELL_RESET, .token = 3, .issuer = "zk:b"}),
        STILE_OK);
    check_next(true, 7, 3, "zk:b");
    assert_int_equal(change(&gone, (struct cell_request){.verb = CELL_RESET}), STILE_OK);
    check_next(false, 7, 0, "");
}

static void what_changes_nothing_is_not_written(void **state)
{
    struct zk_cell none = {0}, live = cell_of(true, 7, 0, ""), guard = cell_of(false, 0, 5, "");
    struct cell_request remove = {.verb = CELL_REMOVE, .issuer = ""},
                        reset = {.verb = CELL_RESET, .issuer = ""},
                        raise = {.verb = CELL_RAISE, .token = 5, .issuer = ""};
    (void)state;
    assert_true(zk_cell_is_unchanged(&none, &remove));
    assert_false(zk_cell_is_unchanged(&live, &remove));
    remove.token = 5;
    assert_false(zk_cell_is_unchanged(&none, &remove));
    assert_true(zk_cell_is_unchanged(&none, &reset));
    assert_false(zk_cell_is_unchanged(&guard, &reset));
    assert_false(zk_cell_is_unchanged(&guard, &raise));
}

/* ---- paths ---- */

static void keys_have_nodes_of_their_own(void **state)
{
    static const char *const keys[] = {"a",   "a/b",      "a%2Fb", "%",         ".",   "..",
                                       "...", "\xc3\xa9", "\xff",  "zookeeper", "a b", "cells"};
    static struct zk zk, below = {.base = "/locks"};
    char paths[COUNT(keys)][PATH_ROOM], name[PATH_ROOM];
    (void)state;
    for (size_t i = 0; i < COUNT(keys); i++) {
        zk_path_of_cell(paths[i], &zk, keys[i], strlen(keys[i]));
        assert_int_equal(strncmp(paths[i], "/%stile/cells/", 14), 0);
        const char *node = strrchr(paths[i], '/') + 1;
        assert_int_equal(node - paths[i], 17);
        assert_true(zk_name_of_child(name, &zk, node));
        assert_string_equal(name, keys[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(paths[i], paths[j]);
    }
    zk_path_of_cell(name, &below, "a", 1);
    assert_string_equal(name, "/locks/%stile/cells/8c/a");
}

static void the_longest_key_fits(void **state)
{
    static struct zk zk = {.credentials = "user:secret"};
    char key[STILE_NAME_MAX + 1], path[PATH_ROOM];
    (void)state;
    memset(zk.base, 'b', BASE_MAX);
    memset(key, '/', STILE_NAME_MAX);
    key[STILE_NAME_MAX] = '\0';
    zk_path_of_cell(path, &zk, key, STILE_NAME_MAX);
    assert_int_equal(strlen(strrchr(path, '/') + 1), 3 * STILE_NAME_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(versions_only_grow),
        cmocka_unit_test(versions_are_compared),
        cmocka_unit_test(guards_come_first),
        cmocka_unit_test(tokens_are_remembered),
        cmocka_unit_test(a_reset_forgets),
        cmocka_unit_test(what_changes_nothing_is_not_written),
        cmocka_unit_test(keys_have_nodes_of_their_own),
        cmocka_unit_test(the_longest_key_fits),
    };
    return cmocka_run_group_tests_name("zookeeper-cells", tests, NULL, NULL);
}
